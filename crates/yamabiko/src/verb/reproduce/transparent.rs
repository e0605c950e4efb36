//! `yamabiko reproduce transparent`.

use std::time::Duration;

use anyhow::{Result, ensure};
use papers::transparent_monitoring::parts::{PARTS, Transfer};
use papers::transparent_monitoring::{
    self, Climb, FULL, MonitoredLink, Overhead, OverheadPoint, TransparentOptions, TransparentReproduced, bands,
    summary,
};
use report::page::{Page, Section};
use report::plot::{Axis, Bars, Chart, Quantity, Series};
use report::reproduction::page_with;
use store::RunStore;
use sys::signal::Interrupts;

use super::{Progress, conclude, order};
use crate::args;
use crate::exit::Exit;
use crate::live_child::Live;
use crate::terminal::say;

/// Makes its experiments.
pub fn run(typed: &args::Transparent) -> Result<Exit> {
    ensure!(
        typed.full || typed.duration >= Duration::from_secs(1),
        "--duration: at least 1s; a transfer over 1.5 Mbit/s takes half of it"
    );
    let asked = TransparentOptions {
        order: order(&typed.result)?,
        experiments: typed.experiments.clone(),
        time: if typed.full { FULL } else { typed.duration },
    };
    let live = Live::start(&typed.result.show, true)?;
    let interrupts = Interrupts::install()?;
    let book = RunStore::open()?;
    if !typed.result.json {
        let time = Duration::from_secs(asked.time().as_secs());
        say(format_args!("100 KB again and again; this takes about {}", units::format_duration(time)));
    }
    let mut progress = Progress { quiet: typed.result.json };
    let reproduced = transparent_monitoring::make(&asked, &book, &interrupts, &mut live.staging(&mut progress))?;
    conclude(&reproduced.document, page(&reproduced), &reproduced.folder, &typed.result)
}

fn page(reproduced: &TransparentReproduced) -> Page {
    let summary = summary(&reproduced.document.reproduce);
    let title = "Transparent monitoring: what it costs, and what a server's log does not see";
    let sections = vec![cost(&reproduced.overheads), logs(&reproduced.climbs)];
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
    let lost = Chart::new("Throughput that the tap costs", x(), Axis::new("share of the throughput", Quantity::Share))
        .about("Below zero the runs under the tap were the faster ones: that is how well it can be told from nothing.")
        .rule(PAPERS_COST, "the paper: at most about 10 %");
    let lost = overheads.iter().fold(lost, |chart, overhead| {
        chart.series(Series::line(overhead.link.name(), by_amount(&overhead.points, &OverheadPoint::lost)))
    });
    let section = Section::new("1: what the tap costs").text(
        "Each amount is the first so many transfers of runs that go on to the largest. Small amounts are few transfers, and \
         differ from run to run by more than the tap costs.",
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
            .series(Series::line("under the tap", by_amount(&overhead.points, &|point| middle(&point.with))));
        section.figure(chart)
    });
    section.figure(lost)
}

fn logs(climbs: &[Climb]) -> Section {
    if climbs.is_empty() {
        return Section::new("");
    }
    let mut section = Section::new("2: the client's Tc beside the server's log").text(
        "More and more clients fetch 100 KB over 1.5 Mbit/s. A point is a transfer, where it began; both curves are of the \
         same transfers. What lies between them is in no log.",
    );
    for climb in climbs {
        let points = |of: &dyn Fn(&Transfer) -> f64| {
            climb.transfers.iter().map(|one| [one.began_ns as f64 / 1e9, of(one)]).collect::<Vec<_>>()
        };
        let title = format!("{}: as the client felt it, and as the log has it", climb.server.name());
        let chart = Chart::over_time(title, "time of a transfer", Quantity::Nanoseconds)
            .series(Series::line("client's Tc", points(&|one| one.connection_ns as f64)))
            .series(Series::line("server's log", points(&|one| one.log_ns as f64)));
        section = section.figure(chart);
    }
    let apart = |climb: &Climb| -> Vec<u64> {
        climb.transfers.iter().map(|one| u64::try_from(one.apart_ns()).unwrap_or(0)).collect()
    };
    let spread = climbs.iter().fold(
        Chart::cumulative("How far apart they are", "client's Tc less the log's time")
            .about("The paper: 4.5 s on average, up to about 28 s."),
        |chart, climb| chart.series(Series::shares_of(climb.server.name(), &apart(climb))),
    );
    section = climbs.iter().fold(section, |section, climb| section.figure(parts(climb)));
    let meanings =
        PARTS.iter().fold(report::page::Table::new(&["part", "from, to, and by whom"]).left(&[1]), |table, part| {
            table.row([part.name, part.about])
        });
    section.figure(spread).folded("What the parts are", Section::new("").table(meanings))
}

fn parts(climb: &Climb) -> Bars {
    // The two parts before the server are one bar: there are six colours.
    let mut names = vec!["in the log", "set-up and request"];
    names.extend(PARTS[2..].iter().map(|part| part.name));
    let title = format!("{}: where the time of a transfer went, by load", climb.server.name());
    let about = "Means of the transfers that began under so many clients. All but the first are not in the log.";
    bands(climb).iter().fold(Bars::new(title, Quantity::Nanoseconds, &names).about(about), |bars, band| {
        let [set_up, request, rest @ ..] = band.parts_ns;
        let mut values = vec![Some(band.log_ns), Some(set_up + request)];
        // A part below zero is a step of a clock.
        values.extend(rest.map(|ns| Some(ns.max(0.0))));
        bars.row(band.name.clone(), &values)
    })
}

/// At most about so much.
const PAPERS_COST: f64 = 0.1;
