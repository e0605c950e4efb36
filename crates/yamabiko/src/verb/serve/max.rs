//! `serve --max`: runs the minimal server, whose rate is an upper bound for any server, in one process or several.

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
use crate::terminal::print_message;

/// Answers every request with a body of `bytes` bytes until SIGINT or SIGTERM.
pub fn run(arguments: &args::Serve, bytes: u64, interrupts: &Interrupts) -> Result<Exit> {
    let body_bytes = usize::try_from(bytes).ok().filter(|&bytes| bytes <= serve::BODY_BYTES_MAX);
    let processes = arguments.max.processes;
    let spec = serve::MaxSpec {
        listen: arguments.listen,
        shared: processes > 1,
        threads: arguments.threads,
        body_bytes: body_bytes.context("--max: at most 1GiB, since every thread has the response in memory")?,
        engine: arguments.engine.into(),
        blind: None,
    };
    let workers = workers(processes, &spec)?;
    let worker_failed = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for worker in &workers {
            // If one process ends early, the server ends: with fewer processes it would be another server.
            scope.spawn(|| {
                let _ = (&mut worker.link()).read(&mut [0]);
                if !STOPPING.load(Ordering::Acquire) {
                    worker_failed.store(true, Ordering::Release);
                    interrupts.trigger();
                }
            });
        }
        let served = serve::serve_max(&spec, interrupts.as_fd(), |address, engine| {
            let processes = if workers.is_empty() { String::new() } else { format!(", {processes} processes") };
            print_message(format_args!(
                "serving {bytes} bytes from memory ({}{processes}) on http://{address}/ (Ctrl-C ends it)",
                engine.name()
            ));
        });
        STOPPING.store(true, Ordering::Release);
        for worker in &workers {
            // This ends the worker, and the thread that waits for the worker's end. It fails if the worker has ended.
            let _ = worker.link().shutdown(Shutdown::Both);
        }
        served
    })?;
    if worker_failed.into_inner() {
        bail!("a process of the server failed, see above");
    }
    Ok(Exit::Success)
}

/// Set when the server ends on a signal, not because a worker failed.
static STOPPING: AtomicBool = AtomicBool::new(false);

/// Starts the other processes of the server, which listen at the same address.
fn workers(processes: usize, spec: &serve::MaxSpec) -> Result<Vec<Worker>> {
    if processes > 1 && spec.listen.port() == 0 {
        bail!("--processes need a port that all of them can listen on: give one with --listen");
    }
    (1..processes)
        .map(|_| {
            let work = |link: UnixStream| {
                if let Err(error) = serve::serve_max(spec, link.as_fd(), |_, _| {}) {
                    print_message(format_args!("{error}"));
                }
            };
            Ok(Worker::start(c"yamabiko-serve", &[], work)?)
        })
        .collect()
}
