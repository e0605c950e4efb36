//! `yamabiko tap manager`: gathers what the agents of many machines saw.
//!
//! What it does is in the crate `manager`; here are its options, its two lines on stdout, signals and the log.

mod token;

use std::io::Write as _;
use std::os::fd::AsFd as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use anyhow::{Context, Result, bail};
use manager::notes::Log;
use manager::otlp;
use manager::retention::Retention;
use manager::start::{Plan, Running};
use sys::clock::realtime_ns;
use sys::signal::{Hangups, Interrupts, Wake};
use web::post::{Post, Receiver, Roots};

use crate::args::{self, ManagerWhat};
use crate::exit::Exit;
use crate::terminal::say;
use crate::verb::export::headers;

/// Serves until Ctrl-C or SIGTERM, or does what is asked of tokens.
pub fn run(arguments: &args::Manager) -> Result<Exit> {
    if let Some(ManagerWhat::Token(token)) = &arguments.what {
        return token::run(token);
    }
    let plan = plan(arguments)?;
    let interrupts = Interrupts::install().context("sigaction")?;
    let hangups = Hangups::install().context("sigaction")?;
    let ended = Wake::new().context("eventfd")?;
    let log: Log = Arc::new(|line| say(format_args!("{} {line}", now())));
    let running = Running::start(&plan, log)?;
    tell(&running);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while hangups.wait(ended.as_fd()) {
                running.reload();
            }
        });
        while interrupts.count() == 0 && running.is_running() {
            interrupts.wait(LOOK);
        }
        ended.wake();
    });
    if interrupts.count() == 0 {
        // Not in order: what broke may hold up the rest. All that was taken is on disk.
        std::mem::forget(running);
        bail!("a part of the manager failed, see above: restart it; accepted data is not lost");
    }
    say(format_args!("{} shutting down: writing received data to disk", now()));
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
        let receiver = Receiver { url: url.clone(), headers, roots: roots.clone(), timeout: WEBHOOK };
        plan.webhook = Some(Post::new(receiver).context("--webhook")?);
    }
    if let Some(url) = &arguments.otlp {
        plan.otlp = Some(otlp::Plan { url: url.clone(), headers: headers(&arguments.otlp_header_file)?, roots });
    }
    plan.retention = Retention { age: arguments.keep_for.0, bytes: arguments.keep_bytes.0 };
    // Strangers, files, the page and what they may be about to leave have theirs besides.
    let descriptors = usize::try_from(sys::limits::raise_open_files()).unwrap_or(usize::MAX);
    let (strangers, known) = (plan.unauthenticated.connections, plan.connections);
    plan.unauthenticated.connections = strangers.min((descriptors / 4).max(16));
    plan.connections = known.min((descriptors / 4).max(16));
    if (plan.unauthenticated.connections, plan.connections) != (strangers, known) {
        say(format_args!(
            "note: at most {} agent connections, as only {descriptors} files may be open; raise ulimit -n, or LimitNOFILE= of the unit",
            plan.connections
        ));
    }
    Ok(plan)
}

/// What a script reads goes to stdout: two lines. Nobody may be there to read.
fn tell(running: &Running) {
    let mut stdout = std::io::stdout();
    let _ = writeln!(stdout, "agents  {}\npage    {}", running.url(), running.page_url()).and_then(|()| stdout.flush());
    let served = running.served();
    say(format_args!("certificate {}, SHA-256 {}", served.trusted.display(), served.fingerprint));
    say("give it to agents with --ca; `yamabiko tap manager token add NAME` creates a token");
}

fn now() -> String {
    store::rfc3339(UNIX_EPOCH + Duration::from_nanos(realtime_ns()))
}

/// Between two looks whether all of it works.
const LOOK: Duration = Duration::from_secs(1);
/// What a webhook may take to answer.
const WEBHOOK: Duration = Duration::from_secs(10);
