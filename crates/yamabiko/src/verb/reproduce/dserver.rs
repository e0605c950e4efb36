//! `yamabiko reproduce dserver`: repeats the measurements of the Dserver paper.

use anyhow::{Result, ensure};
use papers::dserver::{self, DserverOptions, SIZES, summary};
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
pub fn run(arguments: &args::Dserver) -> Result<Exit> {
    ensure!(arguments.requests > 0, "--requests 0: expected 1 or more");
    let sizes =
        arguments.sizes.iter().filter_map(|selected| SIZES.iter().position(|size| size.bytes == selected.bytes()));
    let options =
        DserverOptions { order: order(&arguments.result)?, requests: arguments.requests, sizes: sizes.collect() };
    let live = LivePage::start(&arguments.result.show, true)?;
    let interrupts = Interrupts::install()?;
    let run_store = RunStore::open()?;
    if !arguments.result.json {
        print_message(format_args!(
            "{} requests each, one at a time; this takes about {}",
            options.requests,
            units::format_duration(std::time::Duration::from_secs(options.time().as_secs().max(1))),
        ));
    }
    let mut progress = Progress { quiet: arguments.result.json };
    let reproduced = dserver::make(&options, &run_store, &interrupts, &mut live.staging(&mut progress))?;
    write_and_print(&reproduced.document, page(&reproduced.document), &reproduced.folder, &arguments.result)
}

fn page(document: &ReproductionDocument) -> Page {
    let summary = summary(&document.reproduce);
    let per_second = ("requests per second", Quantity::PerSecond);
    let link = bars(
        "Requests per second, 100 Mbit/s",
        document,
        per_second,
        &[
            ("Linux Apache, published", "100 Mbit/s, Apache", true),
            ("Linux Dserver, published", "100 Mbit/s, yamabiko", true),
            ("Apache", "100 Mbit/s, Apache", false),
            ("nginx", "100 Mbit/s, nginx", false),
            ("yamabiko", "100 Mbit/s, yamabiko", false),
        ],
        true,
    )
    .about("One request at a time, one connection each; logarithmic axis.");
    let direct = bars(
        "Requests per second, no path",
        document,
        per_second,
        &[
            ("Apache", "no path, Apache", false),
            ("nginx", "no path, nginx", false),
            ("yamabiko", "no path, yamabiko", false),
        ],
        false,
    )
    .about("On this host's loopback; medians of the rounds.");
    let ratios = bars(
        "The minimal server relative to Apache",
        document,
        ("requests per second, relative to Apache", Quantity::Count),
        &[
            ("Dserver, published", "100 Mbit/s, yamabiko", true),
            ("yamabiko, 100 Mbit/s", "100 Mbit/s, yamabiko", false),
            ("yamabiko, no path", "no path, yamabiko", false),
        ],
        false,
    )
    .about("1 is Apache's rate.");
    let figures = Section::new("Figures").figure(link).figure(direct).figure(ratios);
    let title = "Dserver: a minimal server against Apache";
    page_with(title, document, (&summary.head, &summary.lines), &[], vec![figures])
}
