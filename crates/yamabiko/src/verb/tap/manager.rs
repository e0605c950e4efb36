//! `yamabiko tap manager`: collects the records of the agents of many machines.
//!
//! The crate `manager` does the work. This module handles options, the two lines on stdout, signals and the log.

mod token;

use std::io::Write as _;
use std::os::fd::AsFd as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use anyhow::{Context, Result, bail};
use manager::from_stream::StreamPlan;
use manager::notes::Log;
use manager::otlp;
use manager::retention::Retention;
use manager::start::{Plan, Running};
use sys::clock::realtime_ns;
use sys::signal::{Hangups, Interrupts, Wake};
use web::post::{Post, Receiver, Roots};

use crate::args::{self, ManagerWhat};
use crate::exit::Exit;
use crate::terminal::print_message;
use crate::verb::export::headers;

/// Serves until Ctrl-C or SIGTERM, or runs the subcommand `token`.
pub fn run(arguments: &args::Manager) -> Result<Exit> {
    if let Some(ManagerWhat::Token(token)) = &arguments.what {
        return token::run(token);
    }
    let plan = plan(arguments)?;
    let interrupts = Interrupts::install().context("sigaction")?;
    let hangups = Hangups::install().context("sigaction")?;
    let ended = Wake::new().context("eventfd")?;
    let log: Log = Arc::new(|line| print_message(format_args!("{} {line}", now())));
    let running = Running::start(&plan, log)?;
    print_addresses(&running);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while hangups.wait(ended.as_fd()) {
                running.reload();
            }
        });
        while interrupts.count() == 0 && running.is_running() {
            interrupts.wait(POLL_INTERVAL);
        }
        ended.wake();
    });
    if interrupts.count() == 0 {
        // There is no orderly shutdown: it could wait for the failed part forever. All accepted data is on disk.
        std::mem::forget(running);
        bail!("a part of the manager failed, see above: restart it; accepted data is not lost");
    }
    print_message(format_args!("{} shutting down: writing received data to disk", now()));
    running.stop();
    Ok(Exit::Success)
}

fn plan(arguments: &args::Manager) -> Result<Plan> {
    let listen = arguments.listen.context("--listen ADDR:PORT is required")?;
    let data = arguments.data.clone().context("--data DIR is required")?;
    let mut plan = Plan::new(data, listen);
    plan.page = arguments.page;
    plan.certificate = arguments.tls_certificate.clone().zip(arguments.tls_key.clone());
    plan.hosts.clone_from(&arguments.hosts);
    let roots = arguments.cacert.clone().map_or(Roots::System, Roots::File);
    let headers = |file: &Option<PathBuf>| file.as_deref().map_or(Ok(Vec::new()), headers::file);
    if let Some(url) = &arguments.webhook {
        let headers = headers(&arguments.webhook_header_file)?;
        let receiver = Receiver { url: url.clone(), headers, roots: roots.clone(), timeout: WEBHOOK_TIMEOUT };
        plan.webhook = Some(Post::new(receiver).context("--webhook")?);
    }
    if let Some(url) = &arguments.otlp {
        plan.otlp = Some(otlp::Plan { url: url.clone(), headers: headers(&arguments.otlp_header_file)?, roots });
    }
    plan.from = arguments.from.clone().map(|address| StreamPlan {
        address,
        bytes: arguments.stream_bytes.0,
        // NATS takes zero for forever.
        age: arguments.stream_age.0.unwrap_or(Duration::ZERO),
        replicas: arguments.stream_replicas,
    });
    plan.retention = Retention { age: arguments.keep_for.0, bytes: arguments.keep_bytes.0 };
    // Unauthenticated connections and agents get a quarter of the descriptors each; files and the page need the rest.
    let descriptors = usize::try_from(sys::limits::raise_open_files()).unwrap_or(usize::MAX);
    let (unauthenticated, known) = (plan.unauthenticated.connections, plan.connections);
    plan.unauthenticated.connections = unauthenticated.min((descriptors / 4).max(16));
    plan.connections = known.min((descriptors / 4).max(16));
    if (plan.unauthenticated.connections, plan.connections) != (unauthenticated, known) {
        print_message(format_args!(
            "note: at most {} agent connections, as only {descriptors} files may be open; raise ulimit -n, or LimitNOFILE= of the unit",
            plan.connections
        ));
    }
    Ok(plan)
}

/// Prints two lines for scripts on stdout, and the certificate on stderr. A closed stdout is ignored.
fn print_addresses(running: &Running) {
    let mut stdout = std::io::stdout();
    let _ = writeln!(stdout, "agents  {}\npage    {}", running.url(), running.page_url()).and_then(|()| stdout.flush());
    let served = running.served();
    print_message(format_args!("certificate {}, SHA-256 {}", served.trusted.display(), served.fingerprint));
    print_message("give it to agents with --ca; `yamabiko tap manager token add NAME` creates a token");
}

fn now() -> String {
    store::rfc3339(UNIX_EPOCH + Duration::from_nanos(realtime_ns()))
}

/// Time between two checks whether every part of the manager runs.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// How long a webhook's response may take.
const WEBHOOK_TIMEOUT: Duration = Duration::from_secs(10);
