//! `yamabiko reproduce transparent`: repeats the experiments of the transparent monitoring paper.

use std::time::Duration;

use anyhow::{Result, ensure};
use papers::transparent_monitoring::components::{PARTS, Transfer};
use papers::transparent_monitoring::{
    self, FULL, LogComparison, MonitoredLink, Overhead, OverheadPoint, TransparentOptions, TransparentReproduced,
    bands, summary,
};
use report::page::{Page, Section};
use report::plot::{Axis, Bars, Chart, Quantity, Series};
use report::reproduction::page_with;
use store::RunStore;
use sys::signal::Interrupts;

use super::{Progress, order, write_and_print};
use crate::args;
use crate::exit::Exit;
use crate::live_child::LivePage;
use crate::terminal::print_message;

/// Runs the selected experiments and prints the rows.
pub fn run(arguments: &args::Transparent) -> Result<Exit> {
    ensure!(
        arguments.full || arguments.duration >= Duration::from_secs(1),
        "--duration: expected 1s or more; a transfer over 1.5 Mbit/s takes half a second"
    );
    let options = TransparentOptions {
        order: order(&arguments.result)?,
        experiments: arguments.experiments.clone(),
        time: if arguments.full { FULL } else { arguments.duration },
    };
    let live = LivePage::start(&arguments.result.show, true)?;
    let interrupts = Interrupts::install()?;
    let run_store = RunStore::open()?;
    if !arguments.result.json {
        let time = Duration::from_secs(options.time().as_secs());
        print_message(format_args!("repeated transfers of 100 KB; this takes about {}", units::format_duration(time)));
    }
    let mut progress = Progress { quiet: arguments.result.json };
    let reproduced = transparent_monitoring::make(&options, &run_store, &interrupts, &mut live.staging(&mut progress))?;
    write_and_print(&reproduced.document, page(&reproduced), &reproduced.folder, &arguments.result)
}

fn page(reproduced: &TransparentReproduced) -> Page {
    let summary = summary(&reproduced.document.reproduce);
    let title = "Transparent monitoring: its cost, and what a server's log misses";
    let sections = vec![cost(&reproduced.overheads), logs(&reproduced.log_comparisons)];
    page_with(title, &reproduced.document, (&summary.head, &summary.lines), &[1, 2, 3], sections)
}

fn cost(overheads: &[Overhead]) -> Section {
    if overheads.is_empty() {
        return Section::new("");
    }
    let by_amount = |points: &[OverheadPoint], of: &dyn Fn(&OverheadPoint) -> f64| {
        points.iter().map(|point| [point.bytes() as f64, of(point)]).collect::<Vec<_>>()
    };
    let x = || Axis::log("amount transferred, 100 KB at a time", Quantity::Bytes);
    let lost = Chart::new("Throughput cost of the tap", x(), Axis::new("share of the throughput", Quantity::Share))
        .about("Below zero the runs with the tap were faster, which shows the variation of the measurement.")
        .rule(PAPERS_COST, "published: at most about 10 %");
    let lost = overheads.iter().fold(lost, |chart, overhead| {
        chart.series(Series::line(overhead.link.name(), by_amount(&overhead.points, &OverheadPoint::lost)))
    });
    let section = Section::new("1: cost of the tap").text(
        "Each amount is the beginning of runs that go on to the largest amount. Small amounts are few transfers, and \
         vary between runs by more than the tap costs.",
    );
    let section = overheads.iter().fold(section, |section, overhead| {
        let middle = |runs: &[f64]| stats::median(runs.iter().copied());
        let title = match overhead.link {
            MonitoredLink::Unlimited => "Throughput, no limit".to_owned(),
            link => format!("Throughput at {}", link.name()),
        };
        let chart = Chart::new(title, x(), Axis::from_zero("bytes a second", Quantity::Bytes))
            .about("Payload on the wire; medians of the runs.")
            .series(Series::line("without the tap", by_amount(&overhead.points, &|point| middle(&point.without))))
            .series(Series::line("with the tap", by_amount(&overhead.points, &|point| middle(&point.with))));
        section.figure(chart)
    });
    section.figure(lost)
}

fn logs(log_comparisons: &[LogComparison]) -> Section {
    if log_comparisons.is_empty() {
        return Section::new("");
    }
    let mut section = Section::new("2: the client's Tc and the server's log").text(
        "More and more clients fetch 100 KB over 1.5 Mbit/s. A point is a transfer at its start; both curves are of \
         the same transfers. The difference between them is in no log.",
    );
    for comparison in log_comparisons {
        let points = |of: &dyn Fn(&Transfer) -> f64| {
            comparison.transfers.iter().map(|one| [one.began_ns as f64 / 1e9, of(one)]).collect::<Vec<_>>()
        };
        let title = format!("{}: time at the client, and time in the log", comparison.server.name());
        let chart = Chart::over_time(title, "time of a transfer", Quantity::Nanoseconds)
            .series(Series::line("client's Tc", points(&|one| one.connection_ns as f64)))
            .series(Series::line("server's log", points(&|one| one.log_ns as f64)));
        section = section.figure(chart);
    }
    let differences = |comparison: &LogComparison| -> Vec<u64> {
        comparison.transfers.iter().map(|one| u64::try_from(one.difference_ns()).unwrap_or(0)).collect()
    };
    let spread = log_comparisons.iter().fold(
        Chart::cumulative("Difference", "client's Tc less the log's time")
            .about("Published: 4.5 s on average, up to about 28 s."),
        |chart, comparison| chart.series(Series::shares_of(comparison.server.name(), &differences(comparison))),
    );
    section = log_comparisons.iter().fold(section, |section, comparison| section.figure(parts(comparison)));
    let meanings =
        PARTS.iter().fold(report::page::Table::new(&["part", "from, to, vantage point"]).left(&[1]), |table, part| {
            table.row([part.name, part.about])
        });
    section.figure(spread).folded("Components of the difference", Section::new("").table(meanings))
}

fn parts(comparison: &LogComparison) -> Bars {
    // The two components before the server share one bar, since there are six colours.
    let mut names = vec!["in the log", "set-up and request"];
    names.extend(PARTS[2..].iter().map(|part| part.name));
    let title = format!("{}: components of a transfer's time, by load", comparison.server.name());
    let about = "Means of the transfers that started with this number of clients. All but the first component are \
                 missing in the log.";
    bands(comparison).iter().fold(Bars::new(title, Quantity::Nanoseconds, &names).about(about), |bars, band| {
        let [set_up, request, rest @ ..] = band.parts_ns;
        let mut values = vec![Some(band.log_ns), Some(set_up + request)];
        // A negative component is a step of a clock.
        values.extend(rest.map(|ns| Some(ns.max(0.0))));
        bars.row(band.name.clone(), &values)
    })
}

/// The published cost of monitoring: at most about this share of the throughput.
const PAPERS_COST: f64 = 0.1;
