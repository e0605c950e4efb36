//! `serve --component`: measures one component of a server alone.

use std::os::fd::AsFd;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use schema::{ComponentRound, ComponentRounds};
use serve::{ExchangeBody, ExchangeSpec, LocalSpec, Tls};
use sys::signal::Interrupts;

use crate::args;
use crate::exit::Exit;
use crate::terminal::print_message;
use crate::verb::bench::print;

/// Measures the component `part` and prints its rounds as JSON; `exchange` serves until SIGINT or SIGTERM.
pub fn run(arguments: &args::Serve, dir: &Path, part: args::ComponentAlone, interrupts: &Interrupts) -> Result<Exit> {
    let options = &arguments.component;
    let bytes = usize::try_from(options.component_bytes.0).ok().filter(|&bytes| bytes <= serve::BODY_BYTES_MAX);
    let bytes = bytes.context("--component-bytes: expected at most 1GiB")?;
    ensure!(dir.is_dir(), "{}: expected a folder in which files can be created", dir.display());
    let args::ComponentAlone::Local(part) = part else {
        let body =
            if options.component_sendfile { ExchangeBody::Sendfile(dir.to_owned()) } else { ExchangeBody::Memory };
        let (waits, close) = (options.component_waits.into(), options.component_close);
        let spec = ExchangeSpec { listen: arguments.listen, waits, body, body_bytes: bytes, close };
        serve::serve_exchange(&spec, interrupts.as_fd(), |address| {
            print_message(format_args!("exchanging {bytes} bytes on {address}"));
        })?;
        return Ok(Exit::Success);
    };
    let tls = match arguments.tls.as_deref() {
        Some([certificate, key]) => Some(Tls::load(certificate, key).context("--tls")?),
        _ => None,
    };
    let spec = LocalSpec {
        part,
        bytes,
        folder: dir.to_owned(),
        rounds: options.component_rounds,
        each: options.component_time,
        tls,
    };
    let rounds = serve::measure_part(&spec)?.into_iter().map(|round| ComponentRound {
        count: round.count,
        cpu_s: round.cpu.as_secs_f64(),
        elapsed_s: round.elapsed.as_secs_f64(),
        blocks_read: round.blocks_read,
        up_bytes: round.up_bytes,
        down_bytes: round.down_bytes,
    });
    print(&(serde_json::to_string(&ComponentRounds { rounds: rounds.collect() })? + "\n"))?;
    Ok(Exit::Success)
}
