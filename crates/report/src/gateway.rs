//! Texts and tables about a gateway that terminal and page have in common.

use schema::{ForwardingPart, GatewayCondition, GatewayDocument, Measured, PacketRate, ProxyLoad};

use crate::durations;
use crate::figures::{self, duration_f64, level, share};

/// Names of tests in the document, and for people.
const TESTS: [(&str, &str); 4] = [
    ("stream_up", "stream up"),
    ("stream_down", "stream down"),
    ("transactions", "transactions"),
    ("connections", "connections"),
];

/// A condition on its link: `nat, 10Mbit`.
pub(crate) fn place(condition: &GatewayCondition) -> String {
    if condition.link.is_empty() { condition.name.clone() } else { format!("{}, {}", condition.name, condition.link) }
}

/// The links, each once, in order; a real gateway has one link without a name.
pub(crate) fn links(part: &ForwardingPart) -> Vec<&str> {
    let mut links: Vec<&str> = Vec::new();
    for condition in &part.conditions {
        if !links.contains(&condition.link.as_str()) {
            links.push(&condition.link);
        }
    }
    links
}

pub(crate) fn on<'a>(part: &'a ForwardingPart, link: &'a str) -> impl Iterator<Item = &'a GatewayCondition> {
    part.conditions.iter().filter(move |condition| condition.link == link)
}

/// The result: for each link the figure of the first condition, and the other conditions compared with it.
pub(crate) fn answer(document: &GatewayDocument) -> String {
    let part = &document.gateway;
    let mut sentences: Vec<String> = links(part).into_iter().filter_map(|link| of_link(part, link)).collect();
    let findings: Vec<String> = part
        .conditions
        .iter()
        .filter(|condition| !condition.findings.is_empty())
        .map(|condition| {
            let names: Vec<&str> = condition.findings.iter().map(|finding| finding.name.as_str()).collect();
            format!("{} ({})", names.join(", "), place(condition))
        })
        .collect();
    match findings.as_slice() {
        [] => {}
        few if few.len() <= 3 => sentences.push(format!("Findings: {}.", few.join("; "))),
        many => sentences.push(format!("Findings: {}, and more below.", many[..3].join("; "))),
    }
    if sentences.is_empty() { "Nothing was measured.".to_owned() } else { sentences.join(" ") }
}

/// The result for one link, by the first figure that a condition has.
fn of_link(part: &ForwardingPart, link: &str) -> Option<String> {
    type Figure = (&'static str, fn(&GatewayCondition) -> Option<f64>, fn(f64) -> String);
    let figures: [Figure; 4] = [
        (
            "in one TCP stream",
            |condition| mean(condition.mbit_per_s.as_ref().or(condition.mbit_per_s_down.as_ref())),
            |value| figures::bit_rate(value * 1e6),
        ),
        (
            "forwarded",
            |condition| condition.packets.iter().find_map(|rate| rate.per_second),
            |value| format!("{} packets/s", level(value)),
        ),
        ("transactions", |condition| mean(condition.transactions_per_s.as_ref()), figures::rate),
        ("new connections", |condition| mean(condition.connections_per_s.as_ref()), figures::rate),
    ];
    let (what, of, text) = figures.into_iter().find(|(_, of, _)| on(part, link).any(|each| of(each).is_some()))?;
    let mut values = on(part, link).filter_map(|condition| Some((condition, of(condition)?)));
    let (first, base) = values.next()?;
    let others: Vec<String> = values
        .map(|(condition, value)| {
            let name = &condition.name;
            if base <= 0.0 {
                return format!("{name} {}", text(value));
            }
            // Differences within the confidence intervals are marked.
            let doubt = if overlap(within_of(first), within_of(condition)) { " (intervals overlap)" } else { "" };
            match value / base - 1.0 {
                near if near.abs() < 0.005 => format!("{name} equal"),
                less if less < 0.0 => format!("{name} {} lower{doubt}", share(-less)),
                more => format!("{name} {} higher{doubt}", share(more)),
            }
        })
        .collect();
    let first = &first.name;
    let place = if link.is_empty() { String::new() } else { format!("{link}: ") };
    let others = if others.is_empty() { String::new() } else { format!("; {}", others.join(", ")) };
    Some(format!("{place}{} {what} ({first}){others}.", text(base)))
}

/// The confidence interval of the figure by which conditions are compared.
fn within_of(condition: &GatewayCondition) -> Option<[f64; 2]> {
    let stream = condition.mbit_per_s.as_ref().or(condition.mbit_per_s_down.as_ref());
    let others = condition.transactions_per_s.as_ref().or(condition.connections_per_s.as_ref());
    match (stream, condition.packets.is_empty()) {
        (Some(stream), _) => stream.interval,
        (None, false) => None,
        (None, true) => others?.interval,
    }
}

fn overlap(one: Option<[f64; 2]>, other: Option<[f64; 2]>) -> bool {
    one.zip(other).is_some_and(|(one, other)| one[0] <= other[1] && other[0] <= one[1])
}

fn mean(figure: Option<&Measured>) -> Option<f64> {
    figure.map(|figure| figure.mean)
}

/// A figure and half the width of its confidence interval: `9.49 +-0.02`.
pub(crate) fn within(figure: Option<&Measured>) -> String {
    let Some(figure) = figure else { return String::new() };
    match figure.interval {
        Some([low, high]) => format!("{} +-{}", level(figure.mean), level((high - low) / 2.0)),
        None => level(figure.mean),
    }
}

/// How a gateway was measured, in a sentence.
pub(crate) fn about(part: &ForwardingPart) -> String {
    let each = |condition: &GatewayCondition| {
        let figures = [
            &condition.mbit_per_s,
            &condition.mbit_per_s_down,
            &condition.transactions_per_s,
            &condition.connections_per_s,
        ];
        figures.into_iter().flatten().map(|figure| figure.trials.len()).max()
    };
    let trials = part.conditions.iter().filter_map(each).max();
    let trials = match trials {
        Some(1) => ", one trial each".to_owned(),
        Some(many) => format!(", up to {many} trials each, 95 % intervals"),
        None => String::new(),
    };
    let limits = part.share.map_or(String::new(), |limit| format!(", limited to {} of a core", share(limit)));
    let limits = match part.memory_bytes {
        Some(memory) => format!("{limits} and {} of memory", figures::bytes(memory)),
        None => limits,
    };
    match &part.peer {
        Some(peer) => {
            format!("a real gateway, between this host and {peer}; trials of {} s{trials}", level(part.trial_s))
        }
        None => format!("an emulated gateway on this kernel{limits}; trials of {} s{trials}", level(part.trial_s)),
    }
}

/// Head and rows of rates.
pub(crate) fn figures_table(part: &ForwardingPart) -> (Vec<&'static str>, Vec<Vec<String>>) {
    let head = vec!["", "Mbit/s up", "Mbit/s down", "transactions/s", "new connections/s", "CPU", "limited by"];
    let rows = part.conditions.iter().filter(|condition| has_figures(condition)).map(|condition| {
        vec![
            place(condition),
            within(condition.mbit_per_s.as_ref()),
            within(condition.mbit_per_s_down.as_ref()),
            within(condition.transactions_per_s.as_ref()),
            within(condition.connections_per_s.as_ref()),
            cpu(condition),
            bound(condition),
        ]
    });
    (head, rows.collect())
}

fn has_figures(condition: &GatewayCondition) -> bool {
    condition.mbit_per_s.is_some()
        || condition.mbit_per_s_down.is_some()
        || condition.transactions_per_s.is_some()
        || condition.connections_per_s.is_some()
}

/// CPU of the gateway under streams, or else under the first other test.
fn cpu(condition: &GatewayCondition) -> String {
    let first = TESTS.iter().find_map(|(name, _)| condition.cpu.get(*name));
    first.map_or(String::new(), |figure| share(figure.mean))
}

/// The limiting resource of streams, once if both directions agree.
fn bound(condition: &GatewayCondition) -> String {
    let (up, down) = (condition.bound_by.get("stream_up"), condition.bound_by.get("stream_down"));
    match (up, down) {
        (Some(up), Some(down)) if up != down => format!("{up}, {down}"),
        (Some(by), _) | (None, Some(by)) => by.clone(),
        (None, None) => String::new(),
    }
}

/// Head and rows of packet rates.
pub(crate) fn packets_table(part: &ForwardingPart) -> (Vec<&'static str>, Vec<Vec<String>>) {
    let head = vec![
        "",
        "IP bytes",
        "frame bytes",
        "direction",
        "packets/s",
        "too many/s",
        "IP rate",
        "loss limit",
        "limited by",
    ];
    let rates =
        part.conditions.iter().flat_map(|condition| condition.packets.iter().map(move |rate| (condition, rate)));
    let rows = rates.map(|(condition, rate)| {
        vec![
            place(condition),
            rate.ip_bytes.to_string(),
            rate.frame_bytes.to_string(),
            way(rate.up).to_owned(),
            rate.per_second.map(level).unwrap_or_else(|| "none".to_owned()),
            rate.too_many_per_second.map(level).unwrap_or_default(),
            rate.bits_per_s.map(figures::bit_rate).unwrap_or_default(),
            share(rate.loss_bound),
            bounded_by(rate).to_owned(),
        ]
    });
    (head, rows.collect())
}

/// The limit of a search, in words.
pub(crate) fn bounded_by(rate: &PacketRate) -> &str {
    match rate.limited_by.as_str() {
        "nothing_passes" => "nothing passes",
        other => other,
    }
}

pub(crate) const fn way(up: bool) -> &'static str {
    if up { "up" } else { "down" }
}

/// Head and rows of round-trip times.
pub(crate) fn rtt_table(part: &ForwardingPart) -> (Vec<&'static str>, Vec<Vec<String>>) {
    let head = vec!["RTT", "load", "probes", "mean", "p50", "p90", "p99", "max"];
    let all =
        part.conditions.iter().flat_map(|condition| condition.rtt_ns.iter().map(move |(load, q)| (condition, load, q)));
    let rows = all.map(|(condition, load, q)| {
        vec![place(condition), loaded_with(load), figures::count(q.count)]
            .into_iter()
            .chain(durations::in_one_unit(&[q.mean, q.p50 as f64, q.p90 as f64, q.p99 as f64, q.max as f64]))
            .collect()
    });
    (head, rows.collect())
}

/// A table without its empty columns.
pub(crate) fn without_empty_columns(
    head: Vec<&'static str>,
    rows: Vec<Vec<String>>,
) -> (Vec<&'static str>, Vec<Vec<String>>) {
    let has_text = |at: usize| rows.iter().any(|row| !row[at].is_empty());
    let columns: Vec<usize> = (0..head.len()).filter(|&at| has_text(at)).collect();
    let rows = rows.iter().map(|row| columns.iter().map(|&at| row[at].clone()).collect()).collect();
    (columns.iter().map(|&at| head[at]).collect(), rows)
}

/// A shorter form of [`loaded_with`], for a plot.
pub(crate) fn loaded_with_short(name: &str) -> String {
    let words: Vec<&str> = name.split('_').collect();
    match words.as_slice() {
        ["packets", size, way, percent] => format!("{size} B {way}, {percent} %"),
        _ => name.replace('_', " "),
    }
}

/// The load during a test, from its name in the document: `packets_64_up_50`.
pub(crate) fn loaded_with(name: &str) -> String {
    let words: Vec<&str> = name.split('_').collect();
    match words.as_slice() {
        ["idle"] => "idle".to_owned(),
        ["stream", way] => format!("a stream {way}"),
        ["packets", size, way, percent] => format!("packets of {size} bytes {way}, {percent} % of their rate"),
        _ => name.replace('_', " "),
    }
}

/// The name of a test for people.
pub(crate) fn test(name: &str) -> String {
    match TESTS.iter().find(|(known, _)| *known == name) {
        Some((_, words)) => (*words).to_owned(),
        None => match name.strip_prefix("rtt_") {
            Some(load) => format!("RTT: {}", loaded_with(load)),
            None => name.replace('_', " "),
        },
    }
}

/// Results of the loaded proxy.
pub(crate) fn proxy_results(proxy: &ProxyLoad) -> String {
    let offered = proxy.offered_per_s.map_or(String::new(), |rate| format!(" of {}", figures::rate(rate)));
    let hits = proxy.hit_ratio.map_or(String::new(), |ratio| format!(", hit ratio {}", share(ratio)));
    let mean = proxy.response_mean_ns.map_or(String::new(), |ns| format!(", mean {}", duration_f64(ns)));
    let over = if proxy.overloaded { "; OVERLOADED" } else { "" };
    let by = if proxy.by == "wget" { " by wget" } else { "" };
    format!(
        "{}{offered} achieved{by}, {} failed{hits}{mean}{over}",
        figures::rate(proxy.achieved_per_s),
        share(proxy.error_ratio)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use schema::{Finding, Quantiles};

    fn condition(name: &str, mbit: f64) -> GatewayCondition {
        let figure = Measured { mean: mbit, trials: vec![mbit], ..Measured::default() };
        GatewayCondition {
            name: name.into(),
            link: "10Mbit".into(),
            mbit_per_s: Some(figure),
            ..GatewayCondition::default()
        }
    }

    fn document(conditions: Vec<GatewayCondition>) -> GatewayDocument {
        GatewayDocument {
            schema: String::new(),
            run: schema::document::Run::default(),
            validity: schema::Validity::from_checks(Vec::new()),
            gateway: ForwardingPart { conditions, trial_s: 3.0, ..ForwardingPart::default() },
        }
    }

    #[test]
    fn result_compares_conditions_with_the_first_one() {
        let result =
            answer(&document(vec![condition("none", 10.0), condition("nat", 8.0), condition("proxy-loaded", 10.02)]));
        assert_eq!(result, "10Mbit: 10.0 Mbit/s in one TCP stream (none); nat 20.0 % lower, proxy-loaded equal.");
        let within = |mut condition: GatewayCondition, interval| {
            condition.mbit_per_s.as_mut().unwrap().interval = Some(interval);
            condition
        };
        let of = |interval| {
            answer(&document(vec![
                within(condition("none", 10.0), [9.9, 10.1]),
                within(condition("nat", 9.0), interval),
            ]))
        };
        assert!(of([8.0, 9.91]).ends_with("nat 10.0 % lower (intervals overlap)."), "{}", of([8.0, 9.91]));
        assert!(of([8.0, 9.89]).ends_with("nat 10.0 % lower."));
        assert_eq!(answer(&document(Vec::new())), "Nothing was measured.");
        let finding = Finding { name: "no_route".into(), ..Finding::default() };
        let silent = GatewayCondition { name: "nat".into(), findings: vec![finding], ..GatewayCondition::default() };
        assert_eq!(answer(&document(vec![silent])), "Findings: no_route (nat).");
    }

    #[test]
    fn names_of_tests_and_loads_are_words_for_people() {
        assert_eq!(loaded_with("packets_64_up_50"), "packets of 64 bytes up, 50 % of their rate");
        assert_eq!(loaded_with("idle"), "idle");
        assert_eq!(loaded_with_short("packets_64_up_50"), "64 B up, 50 %");
        let (head, rows) = without_empty_columns(vec!["a", "b"], vec![vec![String::new(), "1".into()]]);
        assert_eq!((head, rows), (vec!["b"], vec![vec!["1".to_owned()]]));
        assert_eq!(test("stream_up"), "stream up");
        assert_eq!(test("rtt_stream_down"), "RTT: a stream down");
        let figure = Measured { mean: 9.4, interval: Some([9.38, 9.42]), ..Measured::default() };
        assert_eq!(within(Some(&figure)), "9.40 +-0.02");
    }

    #[test]
    fn gateway_tables_have_a_cell_for_each_column() {
        let mut one = condition("nat", 9.4);
        one.packets = vec![PacketRate { ip_bytes: 64, limited_by: "nothing_passes".into(), ..PacketRate::default() }];
        one.rtt_ns.insert("idle".into(), Quantiles { count: 3, ..Quantiles::default() });
        let part = document(vec![one]).gateway;
        for (head, rows) in [figures_table(&part), packets_table(&part), rtt_table(&part)] {
            assert_eq!(rows.len(), 1);
            assert_eq!(head.len(), rows[0].len(), "{head:?}");
        }
        assert_eq!(packets_table(&part).1[0][4], "none");
    }
}
