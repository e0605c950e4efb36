//! `serve --only`: runs the minimal server MAX with selected features.

use std::os::fd::AsFd;
use std::path::Path;

use anyhow::{Context, Result, bail};
use serve::{Log, LogFormat, LogSpec, LogTarget, StepsSpec, Tls};
use sys::signal::Interrupts;

use crate::args;
use crate::args::Step;
use crate::exit::Exit;
use crate::terminal::print_message;

/// Serves with the features that `steps` names until SIGINT or SIGTERM.
pub fn run(arguments: &args::Serve, dir: &Path, steps: &[Step], interrupts: &Interrupts) -> Result<Exit> {
    let log = arguments.steps.only_log.as_ref().map(|file| {
        Log::open(LogSpec { to: LogTarget::File(file.clone()), format: LogFormat::Combined, anonymous: false })
    });
    let tls = match arguments.tls.as_deref() {
        Some([certificate, key]) => Some(Tls::load(certificate, key).context("--tls")?),
        _ => None,
    };
    let spec = StepsSpec {
        root: dir.to_owned(),
        listen: arguments.listen,
        features: steps.iter().filter_map(|step| step.feature()).collect(),
        log: log.transpose().context("--only-log")?,
        tls,
    };
    if let Err(why) = spec.check() {
        bail!("--only: {why}");
    }
    serve::serve_steps(&spec, interrupts.as_fd(), |address| {
        print_message(format_args!("serving {} with {} features on {address}", dir.display(), spec.features.len()));
    })?;
    Ok(Exit::Success)
}
