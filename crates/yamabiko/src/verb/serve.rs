//! `yamabiko serve`: the server, and MAX.
//!
//! This thread serves; a second one waits for SIGHUP and reads again what may have changed.

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
use crate::terminal::say;

/// Serves until interrupted.
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
    until_told(&spec, &dir.display().to_string(), interrupts)?;
    Ok(Exit::Success)
}

/// Serves `what` until interrupted, and says what it was.
fn until_told(spec: &ServeSpec, what: &str, interrupts: &Interrupts) -> Result<()> {
    let hangups = Hangups::install()?;
    let ended = Wake::new()?;
    let at_terminal = std::io::stderr().is_terminal();
    let clock = Clock::start();
    std::thread::scope(|scope| {
        // Also when this thread panics: the other one must not be waited for in vain.
        let _ended = WhenDropped(&ended);
        serve::serve(spec, interrupts.as_fd(), |address| {
            // Not before: what the server starts, it starts from a process with one thread.
            scope.spawn(|| {
                while hangups.wait(ended.as_fd()) {
                    if at_terminal && !std::io::stderr().is_terminal() {
                        // It is not that somebody wants a reload: the terminal was closed.
                        interrupts.trigger();
                    } else {
                        reload(spec);
                    }
                }
            });
            let scheme = if spec.tls.is_some() { "https" } else { "http" };
            say(format_args!("serving {what} on {scheme}://{address}/ ({}; Ctrl-C ends it)", spec.engine.name()));
        })
    })?;
    tell_summary(&spec.figures.total(), clock.now().since(Timestamp::ZERO));
    if let Some(log) = &spec.log {
        tell_log(log.summary());
    }
    Ok(())
}

/// What is to be served, as meant; `of` says what.
fn spec(arguments: &args::Serve, of: ServeSpec) -> Result<ServeSpec> {
    let tls = match arguments.tls.as_deref() {
        Some([certificate, key]) => Some(Tls::load(certificate, key).context("--tls")?),
        _ => None,
    };
    tell_doubt(tls.as_ref());
    Ok(ServeSpec {
        threads: arguments.threads,
        // Chosen here, so that what is said is what serves.
        engine: serve::Engine::from(arguments.engine).chosen(),
        limits: arguments.limits.limits(of.limits.clone()),
        files: arguments.files.rules(),
        tls,
        dynamic: arguments
            .dynamic
            .spec()?
            .map(|dynamic| serve::DynamicSpec { cache: arguments.cache.spec(), ..dynamic }),
        log: arguments.log.open()?,
        status: arguments.log.status(),
        ..of
    })
}

/// Reads again what SIGHUP is for. What cannot be read is told, and served on as it was.
fn reload(spec: &ServeSpec) {
    if let Some(tls) = &spec.tls {
        match tls.reload() {
            Ok(()) => say("certificate and key are read again"),
            Err(error) => say(format_args!("the certificate stays as it was: {error}")),
        }
        tell_doubt(Some(tls));
    }
    if let Some(log) = &spec.log {
        match log.reopen() {
            Ok(()) => say("the log is opened anew"),
            Err(error) => say(format_args!("the log goes on in the old file: {error}")),
        }
    }
}

fn tell_doubt(tls: Option<&Tls>) {
    let now_s = sys::clock::realtime_ns() / 1_000_000_000;
    if let Some(doubt) = tls.and_then(|tls| tls.doubt(now_s)) {
        say(format_args!("warning: {doubt}"));
    }
}

/// What it was, in a line or two.
fn tell_summary(total: &Total, lasted: Duration) {
    say(format_args!(
        "served {} requests in {}: {} errors, {} cut short; {} sent over {} connections",
        total.requests(),
        format_duration(Duration::from_millis(lasted.as_millis() as u64)),
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
        say(format_args!("connections ended for a limit: {}", refused.join(", ")));
    }
}

/// What the log lacks, if it lacks anything.
fn tell_log(log: LogSummary) {
    if log.dropped + log.failed > 0 {
        say(format_args!(
            "the log has {} lines; {} more were dropped since it fell behind, {} could not be written",
            log.written, log.dropped, log.failed
        ));
    }
}

/// Wakes when it goes out of scope.
struct WhenDropped<'a>(&'a Wake);

impl Drop for WhenDropped<'_> {
    fn drop(&mut self) {
        self.0.wake();
    }
}
