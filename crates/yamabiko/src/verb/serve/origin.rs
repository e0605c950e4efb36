//! `serve --workload`: the origin behind a cache under test.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use polymix::{CacheWorkload, OriginFigures, World};
use serve::{OriginSpec, ServeSpec};
use sys::signal::Interrupts;
use units::{Bytes, format_duration};

use crate::args;
use crate::exit::Exit;
use crate::terminal::say;

/// Serves the objects of a mix until interrupted.
pub fn run(arguments: &args::Serve, named: &str, interrupts: &Interrupts) -> Result<Exit> {
    let seed = arguments.origin.seed.context("--workload: the seed of the robots is wanted, too (--seed)")?;
    let mut mix = mix(named)?;
    if let Some(think) = &arguments.origin.think {
        mix.think = Some(think.clone());
    }
    let what = format!("the objects of {}, seed {seed},", mix.name);
    // The number of the world comes with each URL.
    let origin = OriginSpec::new(Arc::new(World::new(Arc::new(mix), seed, 0)));
    let spec = super::spec(arguments, ServeSpec::of_origin(origin.clone(), arguments.listen))?;
    super::until_told(&spec, &what, interrupts)?;
    tell(&origin.figures());
    Ok(Exit::Success)
}

/// A mix by its name, or from a file.
fn mix(named: &str) -> Result<CacheWorkload> {
    let mix = match CacheWorkload::named(named) {
        Some(mix) => mix,
        None if !Path::new(named).exists() => {
            bail!(
                "--workload {named}: there is no such mix, and no such file; polymix-1 to polymix-4 and modern are built in"
            )
        }
        None => {
            let text = std::fs::read_to_string(named).with_context(|| format!("--workload {named}"))?;
            toml::from_str(&text).with_context(|| format!("--workload {named}"))?
        }
    };
    match mix.check() {
        Ok(()) => Ok(mix),
        Err(why) => bail!("--workload {named}: {why}"),
    }
}

/// What the origin was asked, in a line or two.
fn tell(figures: &OriginFigures) {
    say(format_args!(
        "{} requests for objects over {} connections: {} whole with {}, {} not modified, {} cut as planned, {} given up; \
         {} for no object",
        figures.requests,
        figures.connections,
        figures.full - figures.aborted.min(figures.full),
        Bytes(figures.content_bytes),
        figures.not_modified,
        figures.aborted,
        figures.abandoned,
        figures.refused,
    ));
    let late = &figures.think_timing_error_ns;
    if late.count > 0 {
        let time = |ns| format_duration(std::time::Duration::from_nanos(ns));
        say(format_args!(
            "answers late after thinking: p50 {}, p99 {}, at most {}",
            time(late.p50),
            time(late.p99),
            time(late.max)
        ));
    }
}
