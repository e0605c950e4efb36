//! `yamabiko reproduce dserver`.

use anyhow::{Result, ensure};
use papers::dserver::{self, DserverOptions, SIZES, summary};
use report::page::{Page, Section};
use report::plot::Quantity;
use report::reproduction::{bars, page_with};
use schema::ReproductionDocument;
use store::RunStore;
use sys::signal::Interrupts;

use super::{Progress, conclude, order};
use crate::args;
use crate::exit::Exit;
use crate::live_child::Live;
use crate::terminal::say;

/// Runs the measurements.
pub fn run(typed: &args::Dserver) -> Result<Exit> {
    ensure!(typed.requests > 0, "--requests 0: expected 1 or more");
    let sizes = typed.sizes.iter().filter_map(|wanted| SIZES.iter().position(|size| size.bytes == wanted.bytes()));
    let asked = DserverOptions { order: order(&typed.result)?, requests: typed.requests, sizes: sizes.collect() };
    let live = Live::start(&typed.result.show, true)?;
    let interrupts = Interrupts::install()?;
    let book = RunStore::open()?;
    if !typed.result.json {
        say(format_args!(
            "{} requests each, one at a time; this takes about {}",
            asked.requests,
            units::format_duration(std::time::Duration::from_secs(asked.time().as_secs().max(1))),
        ));
    }
    let mut progress = Progress { quiet: typed.result.json };
    let reproduced = dserver::make(&asked, &book, &interrupts, &mut live.staging(&mut progress))?;
    conclude(&reproduced.document, page(&reproduced.document), &reproduced.folder, &typed.result)
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
