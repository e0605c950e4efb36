//! `serve --max`: the most a server could do, in one process or several.

use std::io::Read;
use std::net::Shutdown;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result, bail};
use sys::signal::Interrupts;
use sys::worker::Worker;

use crate::args;
use crate::exit::Exit;
use crate::terminal::say;

/// Answers everything with `bytes` bytes until interrupted.
pub fn run(arguments: &args::Serve, bytes: u64, interrupts: &Interrupts) -> Result<Exit> {
    let body_bytes = usize::try_from(bytes).ok().filter(|&bytes| bytes <= serve::BODY_BYTES_MAX);
    let processes = arguments.max.processes;
    let spec = serve::MaxSpec {
        listen: arguments.listen,
        shared: processes > 1,
        threads: arguments.threads,
        body_bytes: body_bytes.context("--max: at most 1GiB, since every thread keeps the answer in memory")?,
        engine: arguments.engine.into(),
        blind: None,
    };
    let workers = workers(processes, &spec)?;
    let lost = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for worker in &workers {
            // What one process cannot do, the server does not do: half of it would be another server.
            scope.spawn(|| {
                let _ = (&mut worker.link()).read(&mut [0]);
                if !STOPPING.load(Ordering::Acquire) {
                    lost.store(true, Ordering::Release);
                    interrupts.trigger();
                }
            });
        }
        let served = serve::serve_max(&spec, interrupts.as_fd(), |address, engine| {
            let processes = if workers.is_empty() { String::new() } else { format!(", {processes} processes") };
            say(format_args!(
                "serving {bytes} bytes from memory ({}{processes}) on http://{address}/ (Ctrl-C ends it)",
                engine.name()
            ));
        });
        STOPPING.store(true, Ordering::Release);
        for worker in &workers {
            // Ends the worker's wait and its reader's; one that is gone needs neither.
            let _ = worker.link().shutdown(Shutdown::Both);
        }
        served
    })?;
    if lost.into_inner() {
        bail!("a process of the server ended; its words are above");
    }
    Ok(Exit::Success)
}

/// The server is ending by itself.
static STOPPING: AtomicBool = AtomicBool::new(false);

/// The processes beside this one, each listening at the same address.
fn workers(processes: usize, spec: &serve::MaxSpec) -> Result<Vec<Worker>> {
    if processes > 1 && spec.listen.port() == 0 {
        bail!("--processes need a port that all of them can listen on: give one with --listen");
    }
    (1..processes)
        .map(|_| {
            let work = |link: UnixStream| {
                if let Err(error) = serve::serve_max(spec, link.as_fd(), |_, _| {}) {
                    say(format_args!("{error}"));
                }
            };
            Ok(Worker::start(c"yamabiko-serve", &[], work)?)
        })
        .collect()
}
