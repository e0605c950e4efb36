//! `yamabiko serve`: the static server, and MAX.

mod content;

use std::io::Read;
use std::net::{Shutdown, SocketAddr};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result, bail};
use sys::signal::Interrupts;
use sys::worker::Worker;

use crate::args;
use crate::exit::Exit;
use crate::terminal::say;

/// Serves until interrupted.
pub fn run(arguments: &args::Serve) -> Result<Exit> {
    let interrupts = Interrupts::install()?;
    match (&arguments.dir, arguments.max) {
        (_, Some(size)) => max(arguments, size.0, &interrupts),
        (Some(dir), None) => {
            if let Some(content) = &arguments.make_content
                && !content::make(content, dir, &interrupts)?
            {
                return Ok(Exit::Fine);
            }
            files(arguments, dir, &interrupts)
        }
        (None, None) => bail!("nothing to serve: name a folder, or a size with --max"),
    }
}

fn files(arguments: &args::Serve, dir: &Path, interrupts: &Interrupts) -> Result<Exit> {
    let spec = serve::ServeSpec { threads: arguments.threads, ..serve::ServeSpec::new(dir, arguments.listen) };
    serve::serve(&spec, interrupts.as_fd(), |address| told(&format!("{}", dir.display()), address))?;
    Ok(Exit::Fine)
}

fn max(arguments: &args::Serve, bytes: u64, interrupts: &Interrupts) -> Result<Exit> {
    let body_bytes = usize::try_from(bytes).ok().filter(|&bytes| bytes <= serve::BODY_BYTES_MAX);
    let spec = serve::MaxSpec {
        listen: arguments.listen,
        shared: arguments.processes > 1,
        threads: arguments.threads,
        body_bytes: body_bytes.context("--max: at most 1GiB, since every thread keeps the answer in memory")?,
        engine: match arguments.engine {
            args::Engine::Auto => serve::Engine::Auto,
            args::Engine::Uring => serve::Engine::Uring,
            args::Engine::Epoll => serve::Engine::Epoll,
        },
    };
    let workers = workers(arguments, &spec)?;
    let lost = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for worker in &workers {
            // What one process cannot do, the server does not do: half of it would be another server.
            scope.spawn(|| {
                let _ = (&mut worker.link()).read(&mut [0]);
                if !STOPPING.load(Ordering::Acquire) {
                    lost.store(true, Ordering::Release);
                    interrupts.ask();
                }
            });
        }
        let served = serve::serve_max(&spec, interrupts.as_fd(), |address, engine| {
            let processes =
                if workers.is_empty() { String::new() } else { format!(", {} processes", arguments.processes) };
            told(&format!("{bytes} bytes from memory ({}{processes})", engine.name()), address);
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
    Ok(Exit::Fine)
}

/// The server is ending by itself.
static STOPPING: AtomicBool = AtomicBool::new(false);

/// The processes beside this one, each listening at the same address.
fn workers(arguments: &args::Serve, spec: &serve::MaxSpec) -> Result<Vec<Worker>> {
    if arguments.processes > 1 && arguments.listen.port() == 0 {
        bail!("--processes need a port that all of them can listen on: give one with --listen");
    }
    (1..arguments.processes)
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

fn told(what: &str, address: SocketAddr) {
    say(format_args!("serving {what} on http://{address}/ (Ctrl-C ends it)"));
}
