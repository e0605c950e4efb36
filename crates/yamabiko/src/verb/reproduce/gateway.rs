//! `yamabiko reproduce gateway`.

use std::time::Duration;

use anyhow::{Result, bail, ensure};
use ledger::ReproductionDocument;
use report::page::{Page, Section};
use report::plot::{Axis, Chart, Quantity, Series};
use report::reproduction::page_with;
use store::Book;
use suites::cache::plan::RATES_PER_S;
use suites::reproduce::gateway::{self, Asked, Card, Machine, POINT_FULL, POINT_MIN, PUBLISHED, Part, rows, summary};
use sys::signal::Interrupts;

use super::super::cache::Progress;
use super::{conclude, order};
use crate::args;
use crate::exit::Exit;
use crate::terminal::say;

/// Makes its parts.
pub fn run(typed: &args::Gateway) -> Result<Exit> {
    ensure!(
        typed.full || typed.duration >= POINT_MIN,
        "--duration: at least {}; a quarter of a point is not measured",
        units::format_duration(POINT_MIN)
    );
    let part = |part: &args::GatewayPart| match part {
        args::GatewayPart::Small => Part::Small,
        args::GatewayPart::Middle => Part::Middle,
        args::GatewayPart::Large => Part::Large,
        args::GatewayPart::Repeats => Part::Repeats,
        args::GatewayPart::New => Part::New,
        args::GatewayPart::Class => Part::Class,
    };
    let asked = Asked {
        order: order(&typed.result)?,
        parts: typed.parts.iter().map(part).collect(),
        point: if typed.full { POINT_FULL } else { typed.duration },
        rates: rates(typed)?,
        factor: typed.factor,
        full: typed.full,
    };
    let interrupts = Interrupts::install()?;
    let book = Book::open()?;
    if !typed.result.json {
        let time = Duration::from_secs(asked.time().as_secs());
        say(format_args!("{} parts; this takes about {}", asked.parts.len(), units::format_duration(time)));
    }
    let reproduced = gateway::make(&asked, &book, &interrupts, &mut Progress { quiet: typed.result.json })?;
    conclude(&reproduced.document, page(&reproduced.document), &reproduced.folder, &typed.result)
}

/// Those of the paper that were asked for.
fn rates(typed: &args::Gateway) -> Result<Vec<f64>> {
    let Some(args) = &typed.rate else { return Ok(RATES_PER_S.to_vec()) };
    let mut rates = Vec::new();
    for rate in args.0.iter().map(|rate| rate.per_second()) {
        match RATES_PER_S.into_iter().find(|known| (known - rate).abs() < 1e-9) {
            Some(known) => rates.push(known),
            None => {
                let known: Vec<String> = RATES_PER_S.iter().map(f64::to_string).collect();
                bail!("--rate {rate}/s: the paper offered {}/s; leave out what you do not want", known.join(", "));
            }
        }
    }
    Ok(rates)
}

fn page(document: &ReproductionDocument) -> Page {
    let summary = summary(&document.reproduce);
    let sweeps = [
        (Machine::Small, Card::Mbit10),
        (Machine::Middle, Card::Mbit10),
        (Machine::Large, Card::Mbit10),
        (Machine::Large, Card::Mbit100),
    ];
    let chart = |title: &str, (label, quantity): (&str, Quantity), figure: &str, factor: f64| {
        let y = match quantity {
            Quantity::Nanoseconds => Axis::log(label, quantity),
            Quantity::Share => Axis { to: Some(1.0), ..Axis::from_zero(label, quantity) },
            _ => Axis::from_zero(label, quantity),
        };
        let mut chart = Chart::new(title, Axis::from_zero("offered, over F", Quantity::PerSecond), y);
        for (color, (machine, card)) in sweeps.into_iter().enumerate() {
            let name = rows::experiment(machine, card);
            let points = points(document, &name, figure, factor);
            if points.is_empty() {
                continue;
            }
            chart = chart.series(Series::line(&name, points).color(color).dotted());
            let of_paper = published(machine, card, figure, factor);
            if !of_paper.is_empty() {
                chart = chart.series(Series::line(format!("{name}, paper"), of_paper).asked().color(color).dotted());
            }
        }
        chart
    };
    // Seconds to ns, per cent to shares.
    let (ns, share) = (1e9, 0.01);
    let figures = Section::new("By offered rate, as the paper's figures 2 and 3")
        .text("All on the paper's scale: time runs F times as fast here. Dashed: what the paper tells of its curves.")
        .figure(chart("Responses", ("responses a second, over F", Quantity::PerSecond), rows::RESPONSES, 1.0))
        .figure(chart("Mean response time", ("mean, times F", Quantity::Nanoseconds), rows::MEAN, ns))
        .figure(chart("Document hit ratio", ("hits", Quantity::Share), rows::HITS, share))
        .figure(chart("Error ratio", ("failed", Quantity::Share), rows::ERRORS, share))
        .figure(chart("Repeats of what had come", ("of plain GETs", Quantity::Share), rows::HAD_COME, share).about(
            "To its client by then: the hits of a cache that joins no requests, as long as its clients do not wait.",
        ))
        .figure(chart("CPU", ("of the machine's share", Quantity::Share), rows::CPU, share).about(
            "Where all of it is used the machine is the limit; where not, the card is, or a host that is busy.",
        ));
    let title = "Gateway: squid on a small, a middle and a large machine";
    page_with(title, document, (&summary.head, &summary.lines), &[6], vec![figures])
}

/// A figure of a sweep, by the paper's rates.
fn points(document: &ReproductionDocument, experiment: &str, quantity: &str, factor: f64) -> Vec<[f64; 2]> {
    let of = document.reproduce.rows.iter().filter(|row| row.experiment == experiment && row.quantity == quantity);
    of.filter_map(|row| Some([rows::rate_of(&row.setting)?, row.here? * factor])).collect()
}

/// What the paper publishes of it.
fn published(machine: Machine, card: Card, quantity: &str, factor: f64) -> Vec<[f64; 2]> {
    let of = PUBLISHED.iter().filter(|one| (one.machine, one.card, one.quantity) == (machine, card, quantity));
    let mut points: Vec<[f64; 2]> = of
        .filter_map(|one| Some((one, one.value?)))
        .flat_map(|(one, value)| {
            let covered = RATES_PER_S.into_iter().filter(|rate| (one.from_per_s..=one.to_per_s).contains(rate));
            covered.map(move |rate| [rate, value * factor])
        })
        .collect();
    points.sort_by(|a, b| a[0].total_cmp(&b[0]));
    points
}
