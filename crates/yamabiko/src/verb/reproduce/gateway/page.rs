//! The page of `reproduce gateway`: caches by offered rate, forwarding by condition, Bonnie's table, and conclusions.

use cachebench::sweep_plan::RATES_PER_S;
use gateway::Condition;
use papers::Lines;
use papers::school_gateway::forwarding::rows as forwarding;
use papers::school_gateway::{Interface, Machine, PUBLISHED, conclusions, rows, storage, summary};
use report::page::{Page, Section, Table};
use report::plot::{Axis, Bars, Chart, Quantity, Series};
use report::reproduction::page_with;
use schema::ReproductionDocument;

/// Assembles the page.
pub fn page(document: &ReproductionDocument) -> Page {
    let summary = summary(&document.reproduce);
    let sections = vec![conclusion_section(document), caches(document), streams(document), disks(document)];
    let title = "School gateway: caches, forwarding and storage of a small, a middle and a large machine";
    page_with(title, document, (&summary.head, &summary.lines), &[6], sections)
}

/// The paper's conclusions, evaluated on this run.
fn conclusion_section(document: &ReproductionDocument) -> Section {
    let sentences = conclusions::sentences(&document.reproduce.rows);
    sentences.into_iter().fold(Section::new("Conclusions"), Section::text)
}

fn table(lines: &Lines, words: &[usize]) -> Table {
    lines.lines.iter().fold(Table::new(&lines.head).left(words), |table, line| table.row(line.iter().cloned()))
}

/// Streams by condition, and the costs of NAT and a loaded squid.
fn streams(document: &ReproductionDocument) -> Section {
    let rows = &document.reproduce.rows;
    let Some(lines) = forwarding::lines(rows) else { return Section::new("") };
    let here = |machine, interface, condition: Condition, quantity: &str| {
        rows::find(rows, &forwarding::experiment(machine, interface), condition.name(), quantity)
    };
    let of_card = |interface: Interface| {
        let names = Condition::ALL.map(Condition::name);
        let bars = Bars::new(format!("A TCP stream behind {}", interface.name()), Quantity::Count, &names);
        let bars = Machine::ALL.into_iter().fold(bars, |bars, machine| {
            bars.row(
                machine.name(),
                &Condition::ALL.map(|condition| here(machine, interface, condition, forwarding::RATE)),
            )
        });
        bars.about("Mbit/s of payload, over F; means.")
    };
    let cost = |title: &str, condition: Condition, quantity: &str| {
        let bars = Bars::new(title, Quantity::Share, &["here", "paper"]);
        let bars = forwarding::places().fold(bars, |bars, (machine, interface)| {
            let here = here(machine, interface, condition, quantity).map(|percent| percent / 100.0);
            if here.is_none() {
                return bars;
            }
            let paper = forwarding::published_percent(machine, interface, condition, quantity);
            bars.row(rows::experiment(machine, interface), &[here, paper.map(|percent| percent / 100.0)])
        });
        bars.about("Relative to the rate without; negative costs are drawn as zero. A dash: the paper has no figure.")
    };
    Section::new("Forwarding in five conditions")
        .text(
            "On the paper's scale: links are F times as fast here, and figures are divided by F. In parentheses: \
               standard deviation of the trials.",
        )
        .table(table(&lines, &[lines.head.len() - 1]))
        .figure(of_card(Interface::Mbit10))
        .figure(of_card(Interface::Mbit100))
        .figure(cost("NAT costs", Condition::Nat, forwarding::LESS_THAN_NONE))
        .figure(cost("A loaded proxy costs with NAT", Condition::NatProxyLoaded, forwarding::LESS_THAN_NAT))
}

/// Bonnie's table, with charts.
fn disks(document: &ReproductionDocument) -> Section {
    let Some(lines) = storage::lines(&document.reproduce.rows) else { return Section::new("") };
    let machines = storage::machines(&document.reproduce.rows);
    let names: Vec<&str> = machines.iter().map(|machine| machine.name.as_str()).collect();
    let columns = storage::columns();
    let dots = |title: &str, quantity: Quantity, factor: f64, of: &[usize]| {
        of.iter().fold(Bars::dots(title, quantity, &names), |bars, &at| {
            let values: Vec<Option<f64>> =
                machines.iter().map(|machine| machine.rates[at].map(|rate| rate * factor)).collect();
            bars.row(columns[at], &values)
        })
    };
    let seeks = columns.len() - 1;
    let transfers: Vec<usize> = (0..seeks).collect();
    Section::new("Storage, in Bonnie's columns")
        .text("K/s and %CPU; for seeks, seeks/s and %CPU. There is one storage here, and no CPU limit slows it.")
        .table(table(&lines, &[]))
        .figure(
            dots("Transfers", Quantity::Bytes, storage::BYTES_PER_K, &transfers)
                .about("Bytes a second, on a logarithmic axis."),
        )
        .figure(dots("Seeks", Quantity::PerSecond, 1.0, &[seeks]).about("A second, on a logarithmic axis."))
}

/// The paper's figures 2 and 3.
fn caches(document: &ReproductionDocument) -> Section {
    let sweeps = [
        (Machine::Small, Interface::Mbit10),
        (Machine::Middle, Interface::Mbit10),
        (Machine::Large, Interface::Mbit10),
        (Machine::Large, Interface::Mbit100),
    ];
    let chart = |title: &str, (label, quantity): (&str, Quantity), figure: &str, factor: f64| {
        let y = match quantity {
            Quantity::Nanoseconds => Axis::log(label, quantity),
            Quantity::Share => Axis { to: Some(1.0), ..Axis::from_zero(label, quantity) },
            _ => Axis::from_zero(label, quantity),
        };
        let mut chart = Chart::new(title, Axis::from_zero("offered, over F", Quantity::PerSecond), y);
        for (color, (machine, interface)) in sweeps.into_iter().enumerate() {
            let name = rows::experiment(machine, interface);
            let points = points(document, &name, figure, factor);
            if points.is_empty() {
                continue;
            }
            chart = chart.series(Series::line(&name, points).color(color).dotted());
            let of_paper = published(machine, interface, figure, factor);
            if !of_paper.is_empty() {
                chart =
                    chart.series(Series::line(format!("{name}, published"), of_paper).dashed().color(color).dotted());
            }
        }
        chart
    };
    // Seconds to ns, per cent to shares.
    let (ns, share) = (1e9, 0.01);
    let all = [rows::RESPONSES, rows::MEAN, rows::HITS, rows::ERRORS];
    let measured = |(machine, interface)| {
        let name = rows::experiment(machine, interface);
        all.iter().any(|figure| !points(document, &name, figure, 1.0).is_empty())
    };
    if !sweeps.into_iter().any(measured) {
        return Section::new("");
    }
    Section::new("By offered rate, as the paper's figures 2 and 3")
        .text("All on the paper's scale: time runs F times as fast here. Dashed: published points of its curves.")
        .figure(chart("Responses", ("responses a second, over F", Quantity::PerSecond), rows::RESPONSES, 1.0))
        .figure(chart("Mean response time", ("mean, times F", Quantity::Nanoseconds), rows::MEAN, ns))
        .figure(chart("Document hit ratio", ("hits", Quantity::Share), rows::HITS, share))
        .figure(chart("Error ratio", ("failed", Quantity::Share), rows::ERRORS, share))
        .figure(
            chart(
                "Repeats after the first response",
                ("of plain GETs", Quantity::Share),
                rows::REPEATS_AFTER_RESPONSE,
                share,
            )
            .about(
                "Repeats of objects whose first response had arrived: the hit ratio of a cache without request \
             collapsing, as long as its clients do not wait.",
            ),
        )
        .figure(chart("CPU", ("of the machine's limit", Quantity::Share), rows::CPU, share).about(
            "Where all of it is used, the CPU is the limit; elsewhere the interface is, or other load on this host.",
        ))
}

/// A figure of a sweep, by the paper's rates.
fn points(document: &ReproductionDocument, experiment: &str, quantity: &str, factor: f64) -> Vec<[f64; 2]> {
    let of = document.reproduce.rows.iter().filter(|row| row.experiment == experiment && row.quantity == quantity);
    of.filter_map(|row| Some([rows::rate_of(&row.setting)?, row.measured? * factor])).collect()
}

/// The published values of a figure, by the paper's rates.
fn published(machine: Machine, interface: Interface, quantity: &str, factor: f64) -> Vec<[f64; 2]> {
    let of =
        PUBLISHED.iter().filter(|one| (one.machine, one.interface, one.quantity) == (machine, interface, quantity));
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
