//! `yamabiko reproduce gateway`.

mod page;

use std::time::Duration;

use anyhow::{Result, bail, ensure};
use cachebench::sweep_plan::RATES_PER_S;
use gateway::ProxyLoading;
use papers::school_gateway::{
    self, POINT_FULL, POINT_MIN, STREAM_MAX, STREAMS_FULL, SchoolGatewayOptions, SchoolGatewayPart, Storage, Streams,
};
use store::RunStore;
use sys::signal::Interrupts;

use super::super::cache::Progress;
use super::{conclude, order};
use crate::args;
use crate::exit::Exit;
use crate::live_child::Live;
use crate::terminal::say;

/// Runs the parts.
pub fn run(typed: &args::Gateway) -> Result<Exit> {
    ensure!(
        typed.full || typed.duration >= POINT_MIN,
        "--duration: expected {} or more; a quarter of a point is warm-up",
        units::format_duration(POINT_MIN)
    );
    let part = |part: &args::GatewayPart| match part {
        args::GatewayPart::Small => SchoolGatewayPart::Small,
        args::GatewayPart::Middle => SchoolGatewayPart::Middle,
        args::GatewayPart::Large => SchoolGatewayPart::Large,
        args::GatewayPart::Repeats => SchoolGatewayPart::Repeats,
        args::GatewayPart::New => SchoolGatewayPart::New,
        args::GatewayPart::Class => SchoolGatewayPart::Class,
        args::GatewayPart::Forwarding => SchoolGatewayPart::Forwarding,
        args::GatewayPart::Disk => SchoolGatewayPart::Disk,
    };
    let book = RunStore::open()?;
    let asked = SchoolGatewayOptions {
        order: order(&typed.result)?,
        parts: typed.only.iter().map(part).collect(),
        point: if typed.full { POINT_FULL } else { typed.duration },
        rates: rates(typed)?,
        factor: typed.factor,
        full: typed.full,
        streams: streams(typed)?,
        storage: Storage {
            directory: typed.directory.clone().unwrap_or_else(|| book.root().to_owned()),
            size: typed.size,
            each: DISK_TEST,
        },
        clients: typed.clients,
    };
    let live = Live::start(&typed.result.show, true)?;
    let interrupts = Interrupts::install()?;
    if !typed.result.json {
        let time = Duration::from_secs(asked.time().as_secs());
        say(format_args!("{} parts; this takes about {}", asked.parts.len(), units::format_duration(time)));
    }
    let mut progress = Progress { quiet: typed.result.json };
    let reproduced = school_gateway::make(&asked, &book, &interrupts, &mut live.staging(&mut progress))?;
    conclude(&reproduced.document, page::page(&reproduced.document), &reproduced.folder, &typed.result)
}

/// Length of a disk test that does not take the whole file.
const DISK_TEST: Duration = Duration::from_secs(5);
/// Shorter streams are mostly start-up.
const STREAM_MIN: Duration = Duration::from_secs(1);

fn streams(typed: &args::Gateway) -> Result<Streams> {
    let (trials, lasts) = if typed.full { STREAMS_FULL } else { (typed.trials, typed.stream) };
    ensure!(
        (STREAM_MIN..=STREAM_MAX).contains(&lasts),
        "--stream: expected {} to {}",
        units::format_duration(STREAM_MIN),
        units::format_duration(STREAM_MAX)
    );
    let load_per_s = match typed.load {
        ProxyLoading::Wget => None,
        ProxyLoading::Rate(rate) => Some(rate.per_second()),
    };
    Ok(Streams { trials, lasts, factor: typed.factor_forwarding, load_per_s })
}

/// The selected rates of the paper.
fn rates(typed: &args::Gateway) -> Result<Vec<f64>> {
    let Some(args) = &typed.rate else { return Ok(RATES_PER_S.to_vec()) };
    let mut rates = Vec::new();
    for rate in args.0.iter().map(|rate| rate.per_second()) {
        match RATES_PER_S.into_iter().find(|known| (known - rate).abs() < 1e-9) {
            Some(known) => rates.push(known),
            None => {
                let known: Vec<String> = RATES_PER_S.iter().map(f64::to_string).collect();
                bail!("--rate {rate}/s: expected rates of the paper, {}/s", known.join(", "));
            }
        }
    }
    Ok(rates)
}
