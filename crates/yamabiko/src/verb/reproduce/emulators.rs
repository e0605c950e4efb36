//! `yamabiko reproduce emulators`: the scenarios of rattan's paper, through yamabiko and through its peers.

use anyhow::{Context, Result, ensure};
use papers::emulators::probe::{self, Probe};
use papers::emulators::{
    self, CPU_OVER_LOOPBACK, EmulatorsOptions, LINK_SHARE, PATHS_SERVED, RATE_ERROR, RTT_P99, summary,
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
        (emulators::DURATION_MIN..=emulators::DURATION_MAX).contains(&arguments.duration),
        "--duration {}: expected {} to {}",
        units::format_duration(arguments.duration),
        units::format_duration(emulators::DURATION_MIN),
        units::format_duration(emulators::DURATION_MAX)
    );
    let options = EmulatorsOptions {
        order: order(&arguments.result)?,
        parts: ascending(&arguments.only),
        duration: arguments.duration,
        rounds: arguments.rounds,
        rates: ascending(&arguments.rates),
        depths: ascending(&arguments.depths),
        paths: ascending(&arguments.paths),
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

/// The values in ascending order, each once: a point is a row, and the result names the last one that holds.
fn ascending<T: Ord + Copy>(values: &[T]) -> Vec<T> {
    let mut sorted = values.to_vec();
    sorted.sort_unstable();
    sorted.dedup();
    sorted
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
