//! `yamabiko serve`: the static server, and MAX.

use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::path::Path;

use anyhow::{Context, Result, bail};
use sys::signal::Interrupts;

use crate::args;
use crate::exit::Exit;
use crate::terminal::say;

/// Serves until interrupted.
pub fn run(arguments: &args::Serve) -> Result<Exit> {
    let interrupts = Interrupts::install()?;
    match (&arguments.dir, arguments.max) {
        (_, Some(size)) => max(arguments, size.0, &interrupts),
        (Some(dir), None) => files(arguments, dir, &interrupts),
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
        threads: arguments.threads,
        body_bytes: body_bytes.context("--max: at most 1GiB, since every thread keeps the answer in memory")?,
        engine: match arguments.engine {
            args::Engine::Auto => serve::Engine::Auto,
            args::Engine::Uring => serve::Engine::Uring,
            args::Engine::Epoll => serve::Engine::Epoll,
        },
    };
    serve::serve_max(&spec, interrupts.as_fd(), |address, engine| {
        told(&format!("{bytes} bytes from memory ({})", engine.name()), address);
    })?;
    Ok(Exit::Fine)
}

fn told(what: &str, address: SocketAddr) {
    say(format_args!("serving {what} on http://{address}/ (Ctrl-C ends it)"));
}
