//! `yamabiko reproduce http3`: downloads by HTTP/2 and HTTP/3.

use anyhow::{Result, ensure};
use papers::http3::{self, DELAYS_MS, FAST_MBIT, Http3Options, LOSSES, summary};
use report::page::{Page, Section};
use report::plot::Quantity;
use report::reproduction::{bars, page_with};
use schema::ReproductionDocument;
use store::RunStore;
use sys::signal::Interrupts;

use super::{Progress, order, write_and_print};
use crate::args;
use crate::exit::Exit;
use crate::live_child::LivePage;
use crate::terminal::print_message;

/// Runs the measurements.
pub fn run(arguments: &args::Http3) -> Result<Exit> {
    ensure!(arguments.requests > 0, "--requests 0: expected 1 or more");
    let fast_mbit: Vec<u64> = arguments.fast.iter().copied().filter(|mbit| *mbit > 0).collect();
    ensure!(
        arguments.losses.iter().all(|loss| LOSSES.contains(loss)),
        "--losses: expected some of {LOSSES:?}, as in the paper"
    );
    ensure!(
        arguments.delays.iter().all(|delay| DELAYS_MS.contains(delay)),
        "--delays: expected some of {DELAYS_MS:?}, as in the paper"
    );
    ensure!(
        fast_mbit.iter().all(|mbit| FAST_MBIT.contains(mbit)),
        "--fast: expected some of {FAST_MBIT:?}, or 0 for none"
    );
    let options = Http3Options {
        order: order(&arguments.result)?,
        requests: arguments.requests,
        losses: arguments.losses.clone(),
        delays_ms: arguments.delays.clone(),
        fast_mbit,
    };
    let live = LivePage::start(&arguments.result.show, true)?;
    let interrupts = Interrupts::install()?;
    let run_store = RunStore::open()?;
    if !arguments.result.json {
        print_message(format_args!(
            "{} downloads per point and version, one after the other; at high loss HTTP/2 takes about 10 s for each",
            options.requests
        ));
    }
    let mut progress = Progress { quiet: arguments.result.json };
    let reproduced = http3::make(&options, &run_store, &interrupts, &mut live.staging(&mut progress))?;
    write_and_print(&reproduced.document, page(&reproduced.document), &reproduced.folder, &arguments.result)
}

fn page(document: &ReproductionDocument) -> Page {
    let summary = summary(&document.reproduce);
    let times = bars(
        "Download time, median",
        document,
        ("download time, median", Quantity::Seconds),
        &[("HTTP/2", "HTTP/2", false), ("HTTP/3", "HTTP/3", false)],
        true,
    )
    .about("1 MB at 10 Mbit/s, 50 MB on the fast lines; logarithmic axis.");
    let figures = Section::new("Figures").figure(times);
    page_with("HTTP/3 against HTTP/2", document, (&summary.head, &summary.lines), &[], vec![figures])
}
