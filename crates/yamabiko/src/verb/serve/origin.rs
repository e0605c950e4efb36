//! `serve --workload`: runs the origin server behind a cache under test.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use polymix::{CacheWorkload, OriginFigures, World};
use serve::{OriginSpec, ServeSpec};
use sys::signal::Interrupts;
use units::{Bytes, format_duration};

use crate::args;
use crate::exit::Exit;
use crate::terminal::print_message;

/// Serves the objects of a workload until SIGINT or SIGTERM.
pub fn run(arguments: &args::Serve, name: &str, interrupts: &Interrupts) -> Result<Exit> {
    let seed = arguments.origin.seed.context("--workload: give the seed of the load, too (--seed)")?;
    let mut workload = workload(name)?;
    if let Some(think) = &arguments.origin.think {
        workload.think = Some(think.clone());
    }
    let what = format!("the objects of {}, seed {seed},", workload.name);
    // Each URL contains the number of its world (set of objects).
    let origin = OriginSpec::new(Arc::new(World::new(Arc::new(workload), seed, 0)));
    let spec = super::spec(arguments, ServeSpec::of_origin(origin.clone(), arguments.listen))?;
    super::serve_until_signal(&spec, &what, interrupts)?;
    print_counts(&origin.figures());
    Ok(Exit::Success)
}

/// A workload by its name, or from a file.
fn workload(name: &str) -> Result<CacheWorkload> {
    let workload = match CacheWorkload::named(name) {
        Some(workload) => workload,
        None if !Path::new(name).exists() => {
            bail!(
                "--workload {name}: no such workload and no such file; polymix-1 to polymix-4 and modern are built in"
            )
        }
        None => {
            let text = std::fs::read_to_string(name).with_context(|| format!("--workload {name}"))?;
            toml::from_str(&text).with_context(|| format!("--workload {name}"))?
        }
    };
    match workload.check() {
        Ok(()) => Ok(workload),
        Err(why) => bail!("--workload {name}: {why}"),
    }
}

/// Prints the origin's counts in one or two lines.
fn print_counts(figures: &OriginFigures) {
    print_message(format_args!(
        "{} requests for objects over {} connections: {} complete with {}, {} not modified, {} aborted as planned, {} abandoned; \
         {} refused",
        figures.requests,
        figures.connections,
        figures.full - figures.aborted.min(figures.full),
        Bytes(figures.content_bytes),
        figures.not_modified,
        figures.aborted,
        figures.abandoned,
        figures.refused,
    ));
    let delay = &figures.think_timing_error_ns;
    if delay.count > 0 {
        let time = |ns| format_duration(std::time::Duration::from_nanos(ns));
        print_message(format_args!(
            "delay after the think time: p50 {}, p99 {}, at most {}",
            time(delay.p50),
            time(delay.p99),
            time(delay.max)
        ));
    }
}
