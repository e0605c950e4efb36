//! `yamabiko reproduce gateway`: repeats the experiments of the school gateway paper.

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
use super::{order, write_and_print};
use crate::args;
use crate::exit::Exit;
use crate::live_child::LivePage;
use crate::terminal::print_message;

/// Runs the selected parts of the experiments and prints the rows.
pub fn run(arguments: &args::Gateway) -> Result<Exit> {
    ensure!(
        arguments.full || arguments.duration >= POINT_MIN,
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
    let run_store = RunStore::open()?;
    let options = SchoolGatewayOptions {
        order: order(&arguments.result)?,
        parts: arguments.only.iter().map(part).collect(),
        point: if arguments.full { POINT_FULL } else { arguments.duration },
        rates: rates(arguments)?,
        factor: arguments.factor,
        full: arguments.full,
        streams: streams(arguments)?,
        storage: Storage {
            directory: arguments.directory.clone().unwrap_or_else(|| run_store.root().to_owned()),
            size: arguments.size,
            each: DISK_TEST,
        },
        clients: arguments.clients,
    };
    let live = LivePage::start(&arguments.result.show, true)?;
    let interrupts = Interrupts::install()?;
    if !arguments.result.json {
        let time = Duration::from_secs(options.time().as_secs());
        print_message(format_args!("{} parts; this takes about {}", options.parts.len(), units::format_duration(time)));
    }
    let mut progress = Progress { quiet: arguments.result.json };
    let reproduced = school_gateway::make(&options, &run_store, &interrupts, &mut live.staging(&mut progress))?;
    write_and_print(&reproduced.document, page::page(&reproduced.document), &reproduced.folder, &arguments.result)
}

/// Length of a disk test that does not read or write the whole file.
const DISK_TEST: Duration = Duration::from_secs(5);
/// Length of the shortest stream: shorter ones consist mostly of TCP's slow start.
const STREAM_MIN: Duration = Duration::from_secs(1);

fn streams(arguments: &args::Gateway) -> Result<Streams> {
    let (trials, lasts) = if arguments.full { STREAMS_FULL } else { (arguments.trials, arguments.stream) };
    ensure!(
        (STREAM_MIN..=STREAM_MAX).contains(&lasts),
        "--stream: expected {} to {}",
        units::format_duration(STREAM_MIN),
        units::format_duration(STREAM_MAX)
    );
    let load_per_s = match arguments.load {
        ProxyLoading::Wget => None,
        ProxyLoading::Rate(rate) => Some(rate.per_second()),
    };
    Ok(Streams { trials, lasts, factor: arguments.factor_forwarding, load_per_s })
}

/// The selected rates of the paper.
fn rates(arguments: &args::Gateway) -> Result<Vec<f64>> {
    let Some(args) = &arguments.rate else { return Ok(RATES_PER_S.to_vec()) };
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
