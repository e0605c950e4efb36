//! `yamabiko reproduce emulators`: the scenarios of rattan's paper, through yamabiko and through its peers.

use anyhow::{Context, Result, ensure};
use papers::emulators::probe::{self, Probe};
use papers::emulators::{
    self, CPU_OVER_LOOPBACK, EmulatorsOptions, LINK_SHARE, PATHS_SERVED, Part, RATE_ERROR, RTT_P99, summary,
};
use report::page::{Page, Section};
use report::plot::Quantity;
use report::reproduction::{bars, page_with};
use schema::ReproductionDocument;
use store::RunStore;
use sys::signal::Interrupts;

use super::super::bench::print;
use super::{Progress, order, write_and_print};
use crate::args;
use crate::exit::Exit;
use crate::live_child::LivePage;
use crate::terminal::print_message;

/// Runs the measurements.
pub fn run(arguments: &args::Emulators) -> Result<Exit> {
    ensure!(
        arguments.duration >= emulators::DURATION_MIN,
        "--duration {}: expected {} or more",
        units::format_duration(arguments.duration),
        units::format_duration(emulators::DURATION_MIN)
    );
    let part = |part: &args::EmulatorsPart| match part {
        args::EmulatorsPart::Rtt => Part::Rtt,
        args::EmulatorsPart::Rates => Part::Rates,
        args::EmulatorsPart::Loss => Part::Loss,
        args::EmulatorsPart::Trace => Part::Trace,
        args::EmulatorsPart::Flow => Part::Flow,
        args::EmulatorsPart::Depth => Part::Depth,
        args::EmulatorsPart::Density => Part::Density,
    };
    let options = EmulatorsOptions {
        order: order(&arguments.result)?,
        parts: arguments.only.iter().map(part).collect(),
        duration: arguments.duration,
        rounds: arguments.rounds,
        rates: arguments.rates.clone(),
        depths: arguments.depths.clone(),
        paths: arguments.paths.clone(),
    };
    let live = LivePage::start(&arguments.result.show, true)?;
    let interrupts = Interrupts::install()?;
    let run_store = RunStore::open()?;
    if !arguments.result.json {
        print_message(emulators::found(&options.order.program));
    }
    let mut progress = Progress { quiet: arguments.result.json };
    let reproduced = emulators::make(&options, &run_store, &interrupts, &mut live.staging(&mut progress))?;
    write_and_print(&reproduced.document, page(&reproduced.document), &reproduced.folder, &arguments.result)
}

/// Runs a probe, and prints its figures as JSON.
pub fn probe(json: &str) -> Result<Exit> {
    let probe: Probe = serde_json::from_str(json).context("the probe of `reproduce emulators`")?;
    if let Some(answer) = probe::run(&probe)? {
        print(&(serde_json::to_string(&answer)? + "\n"))?;
    }
    Ok(Exit::Success)
}

fn page(document: &ReproductionDocument) -> Page {
    let summary = summary(&document.reproduce);
    let names = [("yamabiko", "yamabiko", false), ("mahimahi", "mahimahi", false), ("rattan", "rattan", false)];
    let figures = [
        ("RTT error p99, 48 ms", RTT_P99, "Microseconds over the configured RTT; logarithmic axis.", true),
        ("CPU a packet, over loopback", CPU_OVER_LOOPBACK, "Microseconds of the whole machine.", false),
        ("Error of rates", RATE_ERROR, "Percent of the configured rate.", false),
        ("Throughput, of the links", LINK_SHARE, "Percent; 100 is the links' rate.", false),
        ("Paths served", PATHS_SERVED, "Paths whose flow reached 90 % of its link.", false),
    ];
    let section = figures.into_iter().fold(Section::new("Figures"), |section, (title, quantity, about, decades)| {
        let bars = bars(title, document, (quantity, Quantity::Count), &names, decades).about(about);
        if bars.is_empty() { section } else { section.figure(bars) }
    });
    page_with("Path emulators compared", document, (&summary.head, &summary.lines), &[0, 1, 2], vec![section])
}
