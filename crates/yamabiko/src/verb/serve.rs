//! `yamabiko serve`: the static server.

use std::os::fd::AsFd;

use anyhow::Result;
use sys::signal::Interrupts;

use crate::args;
use crate::exit::Exit;
use crate::terminal::say;

/// Serves until interrupted.
pub fn run(arguments: &args::Serve) -> Result<Exit> {
    let interrupts = Interrupts::install()?;
    let spec = serve::ServeSpec {
        threads: arguments.threads,
        ..serve::ServeSpec::new(arguments.dir.clone(), arguments.listen)
    };
    serve::serve(&spec, interrupts.as_fd(), |address| {
        say(format_args!("serving {} on http://{address}/ (Ctrl-C ends it)", arguments.dir.display()));
    })?;
    Ok(Exit::Fine)
}
