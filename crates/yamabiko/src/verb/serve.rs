//! `yamabiko serve`: runs the web server, the minimal server MAX, or a part of a server.
//!
//! The main thread serves. A second thread waits for SIGHUP and reloads certificate, key and log.

mod component;
mod content;
mod max;
mod origin;
mod steps;

use std::io::IsTerminal;
use std::os::fd::AsFd;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serve::{LogSummary, Refusal, ServeSpec, Tls, Total};
use sys::clock::Clock;
use sys::signal::{Hangups, Interrupts, Wake};
use units::{Bytes, Timestamp, format_duration};

use crate::args;
use crate::exit::Exit;
use crate::terminal::print_message;

/// Serves until SIGINT or SIGTERM.
pub fn run(arguments: &args::Serve) -> Result<Exit> {
    let interrupts = Interrupts::install()?;
    match (&arguments.dir, arguments.max.bytes, &arguments.origin.workload) {
        (_, Some(size), _) => max::run(arguments, size.0, &interrupts),
        (_, None, Some(workload)) => origin::run(arguments, workload, &interrupts),
        (Some(dir), None, None) => {
            if let Some(content) = &arguments.make_content
                && !content::make(content, dir, &interrupts)?
            {
                return Ok(Exit::Success);
            }
            match (&arguments.steps.only, arguments.component.component) {
                (_, Some(part)) => component::run(arguments, dir, part, &interrupts),
                (Some(only), None) => steps::run(arguments, dir, only, &interrupts),
                (None, None) => files(arguments, dir, &interrupts),
            }
        }
        (None, None, None) => {
            bail!("nothing to serve: name a folder, a workload with --workload, or a size with --max")
        }
    }
}

fn files(arguments: &args::Serve, dir: &Path, interrupts: &Interrupts) -> Result<Exit> {
    let spec = spec(arguments, ServeSpec::new(dir, arguments.listen))?;
    serve_until_signal(&spec, &dir.display().to_string(), interrupts)?;
    Ok(Exit::Success)
}

/// Serves until SIGINT or SIGTERM, then prints a summary. `what` names the content in messages.
fn serve_until_signal(spec: &ServeSpec, what: &str, interrupts: &Interrupts) -> Result<()> {
    let hangups = Hangups::install()?;
    let ended = Wake::new()?;
    let at_terminal = std::io::stderr().is_terminal();
    let clock = Clock::start();
    std::thread::scope(|scope| {
        // This ends the second thread even if this one panics.
        let _ended = WakeOnDrop(&ended);
        serve::serve(spec, interrupts.as_fd(), |address| {
            // The thread starts only now, because the server forks while the process has a single thread.
            scope.spawn(|| {
                while hangups.wait(ended.as_fd()) {
                    if at_terminal && !std::io::stderr().is_terminal() {
                        // The SIGHUP comes from a closed terminal, not from a request to reload.
                        interrupts.trigger();
                    } else {
                        reload(spec);
                    }
                }
            });
            let scheme = if spec.tls.is_some() { "https" } else { "http" };
            let http3 = if spec.http3 { ", HTTP/3 too" } else { "" };
            print_message(format_args!(
                "serving {what} on {scheme}://{address}/ ({}{http3}; Ctrl-C ends it)",
                spec.engine.name()
            ));
        })
    })?;
    print_summary(&spec.figures.total(), clock.now().since(Timestamp::ZERO));
    if let Some(log) = &spec.log {
        print_log_failures(log.summary());
    }
    Ok(())
}

/// The specification of the server from the options; `of` has the content to serve.
fn spec(arguments: &args::Serve, of: ServeSpec) -> Result<ServeSpec> {
    let tls = match arguments.tls.as_deref() {
        Some([certificate, key]) => Some(Tls::load(certificate, key).context("--tls")?),
        _ => None,
    };
    print_tls_warning(tls.as_ref());
    Ok(ServeSpec {
        threads: arguments.threads,
        // The engine is chosen here, so that the message names the engine that serves.
        engine: serve::Engine::from(arguments.engine).chosen(),
        limits: arguments.limits.limits(of.limits.clone()),
        files: arguments.files.rules(),
        tls,
        http3: arguments.http3,
        dynamic: arguments
            .dynamic
            .spec()?
            .map(|dynamic| serve::DynamicSpec { cache: arguments.cache.spec(), ..dynamic }),
        log: arguments.log.open()?,
        status: arguments.log.status(),
        ..of
    })
}

/// Reloads certificate, key and log. After a failure, which is printed, the old ones stay in use.
fn reload(spec: &ServeSpec) {
    if let Some(tls) = &spec.tls {
        match tls.reload() {
            Ok(()) => print_message("certificate and key are read again"),
            Err(error) => print_message(format_args!("the certificate stays as it was: {error}")),
        }
        print_tls_warning(Some(tls));
    }
    if let Some(log) = &spec.log {
        match log.reopen() {
            Ok(()) => print_message("the log is opened anew"),
            Err(error) => print_message(format_args!("the log continues in the old file: {error}")),
        }
    }
}

fn print_tls_warning(tls: Option<&Tls>) {
    let now_s = sys::clock::realtime_ns() / 1_000_000_000;
    if let Some(warning) = tls.and_then(|tls| tls.doubt(now_s)) {
        print_message(format_args!("warning: {warning}"));
    }
}

/// Prints a summary of the served requests in one or two lines.
fn print_summary(total: &Total, duration: Duration) {
    print_message(format_args!(
        "served {} requests in {}: {} errors, {} cut short; {} sent over {} connections",
        total.requests(),
        format_duration(Duration::from_millis(duration.as_millis() as u64)),
        total.errors(),
        total.truncated,
        Bytes(total.sent_bytes),
        total.opened,
    ));
    let refused: Vec<String> = Refusal::ALL
        .iter()
        .map(|refusal| (refusal.name(), total.refused[refusal.index()]))
        .filter(|(_, count)| *count > 0)
        .map(|(name, count)| format!("{name} {count}"))
        .collect();
    if !refused.is_empty() {
        print_message(format_args!("connections ended for a limit: {}", refused.join(", ")));
    }
}

/// Prints how many lines of the log were dropped or could not be written, if any.
fn print_log_failures(log: LogSummary) {
    if log.dropped + log.failed > 0 {
        print_message(format_args!(
            "the log has {} lines; {} more were dropped because the disk was too slow, {} could not be written",
            log.written, log.dropped, log.failed
        ));
    }
}

/// Wakes the second thread when dropped.
struct WakeOnDrop<'a>(&'a Wake);

impl Drop for WakeOnDrop<'_> {
    fn drop(&mut self) {
        self.0.wake();
    }
}
