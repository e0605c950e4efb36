//! The result of `gateway` as one page: rates by condition and link with their intervals, packet rates by size, RTT
//! under load, CPU of the gateway, findings.

use schema::{ForwardingPart, GatewayCondition, GatewayDocument, Measured};

use crate::figures::{count, duration, level, share};
use crate::gateway;
use crate::page::{Page, Section, Table};
use crate::phrases::{sentence, span, wall_clock};
use crate::plot::{Axis, Bars, Chart, Quantity, Series};

/// Builds the page; `plan` is the plan's own text.
pub fn gateway_page(document: &GatewayDocument, plan: &str) -> Page {
    let (run, part) = (&document.run, &document.gateway);
    let title = if run.id.is_empty() { "A gateway" } else { &run.id };
    let early = if run.interrupted { ", interrupted: the figures cover that time only" } else { "" };
    let about = format!(
        "{}: measured for {} in all{early}. {}.",
        wall_clock(&run.started_at),
        span(run.duration_s),
        sentence(&gateway::about(part))
    );
    let repeat = Section::new("Repeat this run")
        .text(format!("Seed of every random choice: {}.", run.seed))
        .folded("The plan", Section::new("").verbatim("", plan));
    Page::new(title)
        .lead(gateway::answer(document))
        .subject("", run.command.clone())
        .judged("", &document.validity)
        .about(about)
        .section(found(part))
        .section(rates(part))
        .section(packets(part))
        .section(latency(part))
        .section(processor(part))
        .section(proxies(part))
        .section(part.notes.iter().fold(Section::new("Notes"), Section::text))
        .section(repeat)
        .foot(if run.dir.is_empty() { "This run was not stored.".to_owned() } else { format!("Stored in {}", run.dir) })
}

fn found(part: &ForwardingPart) -> Section {
    let head = ["condition", "finding", "test", "description", "figures"];
    let findings =
        part.conditions.iter().flat_map(|condition| condition.findings.iter().map(move |one| (condition, one)));
    let table = findings.fold(Table::new(&head).left(&[1, 2, 3, 4]), |table, (condition, finding)| {
        let figures: Vec<String> = finding.figures.iter().map(|(name, &value)| figure(name, value)).collect();
        table.row([
            gateway::place(condition),
            finding.name.clone(),
            finding.test.replace('_', " "),
            finding.words.clone(),
            figures.join(", "),
        ])
    });
    if table.is_empty() { Section::new("") } else { Section::new("Findings").table(table) }
}

/// A figure of a finding: a duration if its name ends in `_ns`, a count if it is whole.
fn figure(name: &str, value: f64) -> String {
    let text = match name.strip_suffix("_ns") {
        Some(_) => duration(value.max(0.0).round() as u64),
        None if value.fract() == 0.0 && value >= 0.0 => count(value as u64),
        None => format!("{value:.3}"),
    };
    format!("{} {text}", name.trim_end_matches("_ns").replace('_', " "))
}

/// The figure of a condition in a bar.
type Figure<'a> = &'a dyn Fn(&GatewayCondition) -> Option<Measured>;

/// Bars of one figure, a group for each condition of a link.
fn of_link(
    part: &ForwardingPart,
    link: &str,
    title: &str,
    quantity: Quantity,
    series: &[(&str, Figure<'_>, f64)],
) -> Bars {
    let is_measured = |of: Figure<'_>| gateway::on(part, link).any(|each| of(each).is_some());
    let series: Vec<_> = series.iter().filter(|(_, of, _)| is_measured(of)).collect();
    let names: Vec<&str> = series.iter().map(|(name, ..)| *name).collect();
    let title = if link.is_empty() { title.to_owned() } else { format!("{title}, {link}") };
    let mut bars = Bars::new(title, quantity, &names);
    for condition in gateway::on(part, link) {
        let values: Vec<_> = series
            .iter()
            .map(|(_, of, unit)| match of(condition) {
                Some(figure) => {
                    (Some(figure.mean * unit), figure.interval.map(|interval| interval.map(|end| end * unit)))
                }
                None => (None, None),
            })
            .collect();
        if values.iter().any(|(value, _)| value.is_some()) {
            bars = bars.row_within(&condition.name, &values);
        }
    }
    bars
}

fn rates(part: &ForwardingPart) -> Section {
    let (head, rows) = gateway::figures_table(part);
    if rows.is_empty() {
        return Section::new("");
    }
    let (head, rows) = gateway::without_empty_columns(head, rows);
    let table = rows.into_iter().fold(Table::new(&head), Table::row);
    let mut section = Section::new("Rates").text(INTERVALS).table(table);
    for link in gateway::links(part) {
        let streams = of_link(
            part,
            link,
            "One TCP stream",
            Quantity::BitsPerSecond,
            &[
                ("up", &|condition| condition.mbit_per_s.clone(), 1e6),
                ("down", &|condition| condition.mbit_per_s_down.clone(), 1e6),
            ],
        );
        let transactions = of_link(
            part,
            link,
            "Transactions",
            Quantity::PerSecond,
            &[("per second", &|condition| condition.transactions_per_s.clone(), 1.0)],
        );
        let connections = of_link(
            part,
            link,
            "New connections",
            Quantity::PerSecond,
            &[("per second", &|condition| condition.connections_per_s.clone(), 1.0)],
        );
        for bars in [streams, transactions, connections] {
            if !bars.is_empty() {
                section = section.figure(bars);
            }
        }
    }
    section.folded("Every trial", trials(part))
}

const INTERVALS: &str = "Means of the trials; the line at the end of a bar, and +-, are 95 % confidence intervals (Student). The rate of a \
     stream is its payload at the receiver; a transaction is one byte in each direction on an open connection.";

fn trials(part: &ForwardingPart) -> Section {
    let mut table = Table::new(&["", "test", "mean", "deviation", "each"]).left(&[1, 4]);
    for condition in &part.conditions {
        let named = [
            ("Mbit/s up", &condition.mbit_per_s),
            ("Mbit/s down", &condition.mbit_per_s_down),
            ("transactions/s", &condition.transactions_per_s),
            ("new connections/s", &condition.connections_per_s),
        ];
        for (name, figure) in named {
            let Some(figure) = figure else { continue };
            let each: Vec<String> = figure.trials.iter().map(|value| level(*value)).collect();
            let deviation = figure.stddev.map(level).unwrap_or_default();
            table =
                table.row([gateway::place(condition), name.to_owned(), level(figure.mean), deviation, each.join(", ")]);
        }
    }
    Section::new("").table(table)
}

fn packets(part: &ForwardingPart) -> Section {
    let (head, rows) = gateway::packets_table(part);
    if rows.is_empty() {
        return Section::new("");
    }
    let (head, rows) = gateway::without_empty_columns(head, rows);
    let table = rows.into_iter().fold(Table::new(&head), Table::row);
    let mut section = Section::new("Packet rates by size").text(PACKETS).table(table);
    for link in gateway::links(part) {
        for up in [true, false] {
            let chart = by_size(part, link, up);
            if !chart.is_empty() {
                section = section.figure(chart);
            }
        }
    }
    section.folded("Every trial of the searches", searches(part))
}

const PACKETS: &str = "The highest rate within the loss limit, and the lowest rate above it. Sizes are those of IP packets; an Ethernet frame \
     is 18 bytes longer.";

fn by_size(part: &ForwardingPart, link: &str, up: bool) -> Chart {
    let place = if link.is_empty() { String::new() } else { format!(", {link}") };
    let title = format!("Packets {}{place}", gateway::way(up));
    let x = Axis::from_zero("IP packet (bytes)", Quantity::Count);
    gateway::on(part, link).fold(
        Chart::new(title, x, Axis::log("packets/s", Quantity::PerSecond)),
        |chart, condition| {
            let rates = condition.packets.iter().filter(|rate| rate.up == up);
            let mut points: Vec<[f64; 2]> =
                rates.filter_map(|rate| Some([f64::from(rate.ip_bytes), rate.per_second?])).collect();
            points.sort_by(|a, b| a[0].total_cmp(&b[0]));
            if points.is_empty() { chart } else { chart.series(Series::line(&condition.name, points).dotted()) }
        },
    )
}

fn searches(part: &ForwardingPart) -> Section {
    let head =
        ["", "IP bytes", "direction", "planned/s", "sent/s", "time", "packets", "lost", "longest gap", "CPU", "result"];
    let mut table = Table::new(&head).left(&[2, 10]);
    for condition in &part.conditions {
        for rate in &condition.packets {
            for trial in &rate.trials {
                let result = match (trial.tester_late, trial.good) {
                    (false, true) => "good",
                    (false, false) => "too many lost",
                    (true, true) => "good, but the tester sent late",
                    (true, false) => "too many lost, but the tester sent late",
                };
                table = table.row([
                    gateway::place(condition),
                    rate.ip_bytes.to_string(),
                    gateway::way(rate.up).to_owned(),
                    level(trial.planned_per_s),
                    level(trial.offered_per_s),
                    span(trial.actual_s),
                    count(trial.sent),
                    count(trial.lost),
                    duration(trial.longest_silence_ns),
                    trial.cpu.map(share).unwrap_or_default(),
                    result.to_owned(),
                ]);
            }
        }
    }
    Section::new("").table(table)
}

fn latency(part: &ForwardingPart) -> Section {
    let (head, rows) = gateway::rtt_table(part);
    if rows.is_empty() {
        return Section::new("");
    }
    let table = rows.into_iter().fold(Table::new(&head).left(&[1]), Table::row);
    let mut section = Section::new("Round-trip times under load").text(PROBES).table(table);
    for link in gateway::links(part) {
        let title = if link.is_empty() { "Round-trip times".to_owned() } else { format!("Round-trip times, {link}") };
        let mut bars = Bars::dots(title, Quantity::Nanoseconds, &["p50", "p99", "max"]);
        for condition in gateway::on(part, link) {
            for (load, q) in &condition.rtt_ns {
                let name = format!("{}: {}", condition.name, gateway::loaded_with_short(load));
                bars = bars.row(name, &[q.p50, q.p99, q.max].map(|ns| Some(ns as f64)));
            }
        }
        if !bars.is_empty() {
            section = section.figure(bars);
        }
    }
    section
}

const PROBES: &str = "Fifty timestamped datagrams per second to the other end and back, during each load. One-way times would need \
     synchronized clocks.";

fn processor(part: &ForwardingPart) -> Section {
    let tests = ["stream_up", "stream_down", "transactions", "connections"];
    let measured: Vec<&str> = tests
        .into_iter()
        .filter(|test| part.conditions.iter().any(|condition| condition.cpu.contains_key(*test)))
        .collect();
    if measured.is_empty() {
        return Section::new("");
    }
    let names: Vec<String> = measured.iter().map(|test| gateway::test(test)).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let bars =
        part.conditions.iter().fold(Bars::new("CPU of the gateway", Quantity::Share, &names), |bars, condition| {
            let figure = |test: &&str| {
                let figure = condition.cpu.get(*test);
                (figure.map(|figure| figure.mean), figure.and_then(|figure| figure.interval))
            };
            bars.row_within(gateway::place(condition), &measured.iter().map(figure).collect::<Vec<_>>())
        });
    let limit = part.share.map_or(String::new(), |limit| format!(" CPU limit: {}.", share(limit)));
    Section::new("CPU")
        .figure(bars.about(format!("Share of one core during a test, forwarding and proxy together.{limit}")))
}

fn proxies(part: &ForwardingPart) -> Section {
    let loaded = part.conditions.iter().filter_map(|condition| Some((condition, condition.proxy.as_ref()?)));
    let table = loaded.fold(Table::new(&["", "proxy"]).left(&[1]), |table, (condition, proxy)| {
        table.row([gateway::place(condition), gateway::proxy_results(proxy)])
    });
    if table.is_empty() { Section::new("") } else { Section::new("Loaded proxy").table(table) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use schema::{Finding, PacketRate, ProxyLoad, Quantiles, SearchTrial};

    fn measured(mean: f64) -> Option<Measured> {
        let interval = Some([mean - 0.1, mean + 0.1]);
        Some(Measured { mean, stddev: Some(0.1), interval, trials: vec![mean; 3] })
    }

    fn condition(name: &str) -> GatewayCondition {
        let trial =
            SearchTrial { planned_per_s: 1e4, sent: 20_000, good: true, cpu: Some(0.1), ..SearchTrial::default() };
        let rate = PacketRate {
            ip_bytes: 64,
            up: true,
            per_second: Some(1e4),
            bits_per_s: Some(5.12e6),
            limited_by: "gateway".into(),
            trials: vec![trial],
            ..PacketRate::default()
        };
        let q = Quantiles { count: 9, p50: 100_000, p99: 200_000, max: 300_000, ..Quantiles::default() };
        GatewayCondition {
            name: name.into(),
            link: "10Mbit".into(),
            mbit_per_s: measured(9.4),
            transactions_per_s: measured(4000.0),
            packets: vec![rate],
            rtt_ns: [("idle".to_owned(), q)].into(),
            cpu: [("stream_up".to_owned(), measured(0.2).unwrap())].into(),
            proxy: Some(ProxyLoad { by: "rate".into(), achieved_per_s: 40.0, ..ProxyLoad::default() }),
            findings: vec![Finding {
                name: "loss_periodic".into(),
                words: "every 1000th <packet>".into(),
                ..Finding::default()
            }],
            ..GatewayCondition::default()
        }
    }

    #[test]
    fn gateway_page_has_a_section_for_each_measured_part() {
        let part =
            ForwardingPart { conditions: vec![condition("none"), condition("nat")], ..ForwardingPart::default() };
        let document = |gateway| GatewayDocument {
            schema: String::new(),
            run: schema::document::Run::default(),
            validity: schema::Validity::from_checks(Vec::new()),
            gateway,
        };
        let page = gateway_page(&document(part.clone()), "[gateway]\n");
        let titles: Vec<&str> = page.figures().iter().map(|figure| figure.title()).collect();
        assert_eq!(
            titles,
            [
                "One TCP stream, 10Mbit",
                "Transactions, 10Mbit",
                "Packets up, 10Mbit",
                "Round-trip times, 10Mbit",
                "CPU of the gateway"
            ]
        );
        let html = page.into_html();
        assert!(html.contains("every 1000th &lt;packet&gt;") && html.contains("loss_periodic"));
        let none = gateway_page(&document(ForwardingPart::default()), "").into_html();
        assert!(none.contains("Nothing was measured") && !none.contains("Round-trip times under load"));
        let screen = crate::terminal::gateway(&document(part), crate::Style::PLAIN);
        assert!(screen.contains("loss_periodic") && screen.contains("9.40 +-0.10"), "{screen}");
    }
}
