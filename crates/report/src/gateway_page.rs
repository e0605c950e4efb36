//! A gateway as one page: rates by condition and link with their intervals, packets a second by size, RTT under load, the
//! gateway's processor, what was come upon.

use schema::{ForwardingPart, GatewayCondition, GatewayDocument, Measured};

use crate::figures::{count, duration, level, share};
use crate::gateway;
use crate::page::{Page, Section, Table};
use crate::phrases::{moment, sentence, span};
use crate::plot::{Axis, Bars, Chart, Quantity, Series};

/// Puts the page together; `plan` is the plan's own text.
pub fn gateway_page(document: &GatewayDocument, plan: &str) -> Page {
    let (run, part) = (&document.run, &document.gateway);
    let title = if run.id.is_empty() { "A gateway" } else { &run.id };
    let early = if run.interrupted { ", stopped early: the figures are of what was measured until then" } else { "" };
    let about = format!(
        "{}: measured for {} in all{early}. {}.",
        moment(&run.started_at),
        span(run.duration_s),
        sentence(&gateway::about(part))
    );
    let repeat = Section::new("Repeat it")
        .verbatim("The command", run.command.clone())
        .text(format!("Seed of every random choice: {}.", run.seed))
        .folded("The plan", Section::new("").verbatim("", plan));
    Page::new(title)
        .lead(gateway::answer(document))
        .judged("", &document.validity)
        .about(about)
        .section(found(part))
        .section(rates(part))
        .section(packets(part))
        .section(latency(part))
        .section(processor(part))
        .section(proxies(part))
        .section(part.notes.iter().fold(Section::new("What to know when reading"), Section::text))
        .section(repeat)
        .foot(if run.dir.is_empty() {
            "Nothing was kept of this run.".to_owned()
        } else {
            format!("Kept in {}", run.dir)
        })
}

fn found(part: &ForwardingPart) -> Section {
    let head = ["where", "what", "test", "in words", "figures"];
    let findings =
        part.conditions.iter().flat_map(|condition| condition.findings.iter().map(move |one| (condition, one)));
    let table = findings.fold(Table::new(&head).left(&[1, 2, 3, 4]), |table, (condition, finding)| {
        let figures: Vec<String> = finding.figures.iter().map(|(name, value)| format!("{name} {value:.4}")).collect();
        table.row([
            gateway::place(condition),
            finding.name.clone(),
            finding.test.replace('_', " "),
            finding.words.clone(),
            figures.join(", "),
        ])
    });
    if table.is_empty() { Section::new("") } else { Section::new("What was found").table(table) }
}

/// What bars show of a condition.
type Figure<'a> = &'a dyn Fn(&GatewayCondition) -> Option<Measured>;

/// Bars of one figure, a group for each condition of a link.
fn of_link(
    part: &ForwardingPart,
    link: &str,
    title: &str,
    quantity: Quantity,
    series: &[(&str, Figure<'_>, f64)],
) -> Bars {
    let is_asked = |of: Figure<'_>| gateway::on(part, link).any(|each| of(each).is_some());
    let series: Vec<_> = series.iter().filter(|(_, of, _)| is_asked(of)).collect();
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
    let (head, rows) = gateway::told(head, rows);
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
            &[("a second", &|condition| condition.transactions_per_s.clone(), 1.0)],
        );
        let connections = of_link(
            part,
            link,
            "New connections",
            Quantity::PerSecond,
            &[("a second", &|condition| condition.connections_per_s.clone(), 1.0)],
        );
        for bars in [streams, transactions, connections] {
            if !bars.is_empty() {
                section = section.figure(bars);
            }
        }
    }
    section.folded("Every trial", trials(part))
}

const INTERVALS: &str = "Means of the trials; the line at the end of a bar, and the figure behind +-, is Student's interval of 95 %. A stream's \
     rate is its payload at the receiver; a transaction is a byte there and a byte back on an open connection.";

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
    let (head, rows) = gateway::told(head, rows);
    let table = rows.into_iter().fold(Table::new(&head), Table::row);
    let mut section = Section::new("Packets a second by size").text(PACKETS).table(table);
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

const PACKETS: &str = "The highest rate at which no more packets are lost than may be, and the least at which more are. Sizes are those of IP \
     packets; a frame of Ethernet is 18 bytes longer.";

fn by_size(part: &ForwardingPart, link: &str, up: bool) -> Chart {
    let place = if link.is_empty() { String::new() } else { format!(", {link}") };
    let title = format!("Packets {}{place}", gateway::way(up));
    let x = Axis::from_zero("IP packet (bytes)", Quantity::Count);
    gateway::on(part, link).fold(
        Chart::new(title, x, Axis::log("packets a second", Quantity::PerSecond)),
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
    let head = ["", "bytes", "way", "asked", "sent", "for", "packets", "lost", "longest silence", "CPU", "judged"];
    let mut table = Table::new(&head).left(&[2, 10]);
    for condition in &part.conditions {
        for rate in &condition.packets {
            for trial in &rate.trials {
                let judged = match (trial.tester_late, trial.good) {
                    (false, true) => "good",
                    (false, false) => "too many lost",
                    (true, true) => "good, but the tester was late",
                    (true, false) => "too many lost, but the tester was late",
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
                    judged.to_owned(),
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
    let mut section = Section::new("Round trips under load").text(PROBES).table(table);
    for link in gateway::links(part) {
        let title = if link.is_empty() { "Round trips".to_owned() } else { format!("Round trips, {link}") };
        let mut bars = Bars::dots(title, Quantity::Nanoseconds, &["median", "99 %", "largest"]);
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

const PROBES: &str = "Fifty timestamped datagrams a second go to the other end and back while something else goes on. There and back: one way \
     would need one clock for two hosts.";

fn processor(part: &ForwardingPart) -> Section {
    let tests = ["stream_up", "stream_down", "transactions", "connections"];
    let asked: Vec<&str> = tests
        .into_iter()
        .filter(|test| part.conditions.iter().any(|condition| condition.cpu.contains_key(*test)))
        .collect();
    if asked.is_empty() {
        return Section::new("");
    }
    let names: Vec<String> = asked.iter().map(|test| gateway::test(test)).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let bars = part.conditions.iter().fold(
        Bars::new("The gateway's processor", Quantity::Share, &names),
        |bars, condition| {
            let figure = |test: &&str| {
                let figure = condition.cpu.get(*test);
                (figure.map(|figure| figure.mean), figure.and_then(|figure| figure.interval))
            };
            bars.row_within(gateway::place(condition), &asked.iter().map(figure).collect::<Vec<_>>())
        },
    );
    let held = part.share.map_or(String::new(), |held| format!(" It was held to {}.", share(held)));
    Section::new("Processor")
        .figure(bars.about(format!("Of one core, while a test went on: forwarding and proxy together.{held}")))
}

fn proxies(part: &ForwardingPart) -> Section {
    let loaded = part.conditions.iter().filter_map(|condition| Some((condition, condition.proxy.as_ref()?)));
    let table = loaded.fold(Table::new(&["", "the proxy"]).left(&[1]), |table, (condition, proxy)| {
        table.row([gateway::place(condition), gateway::fared(proxy)])
    });
    if table.is_empty() { Section::new("") } else { Section::new("The proxy meanwhile").table(table) }
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
    fn the_page_has_every_part_and_what_was_not_measured_is_not_there() {
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
                "Round trips, 10Mbit",
                "The gateway's processor"
            ]
        );
        let html = page.into_html();
        assert!(html.contains("every 1000th &lt;packet&gt;") && html.contains("loss_periodic"));
        let none = gateway_page(&document(ForwardingPart::default()), "").into_html();
        assert!(none.contains("Nothing was measured") && !none.contains("Round trips under load"));
        let screen = crate::terminal::gateway(&document(part), crate::Style::PLAIN);
        assert!(screen.contains("loss_periodic") && screen.contains("9.40 +-0.10"), "{screen}");
    }
}
