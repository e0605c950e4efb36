//! Rows of forwarding, with the paper's text.

use schema::ReproductionRow;

use super::{Cell, Factor, Forwarded, ForwardingCost};
use crate::figures::{find, row, with_published};
use crate::school_gateway::rows::experiment as place;
use crate::school_gateway::scale::{Interface, Machine};
use crate::{Lines, level};
use gateway::Condition;

/// Experiment name of the factor's rows.
pub const SCALE: &str = "the scale of forwarding";
/// F of forwarding.
pub const FACTOR: &str = "F of forwarding: time runs this many times as fast";
/// A calibration step.
pub const STEP: &str = "the small machine with NAT at 10 Mbit/s times this, over it";
/// Payload at the receiver, over the factor.
pub const RATE: &str = "TCP stream, over F";
/// Standard deviation of the trials.
pub const DEVIATION: &str = "standard deviation, over F";
/// Without conversion.
pub const RATE_UNCONVERTED: &str = "TCP stream, unconverted";
/// CPU used, as a share of the CPU limit.
pub const USED: &str = "CPU used, of its limit";
/// Cost of the condition.
pub const LESS_THAN_NONE: &str = "less than with no other load";
/// Cost of a loaded proxy, relative to NAT alone.
pub const LESS_THAN_NAT: &str = "less than with NAT alone";
/// Responses of a loaded proxy per second.
pub const ANSWERS: &str = "responses of the proxy, unconverted";
/// Error ratio of a loaded proxy.
pub const ERRORS: &str = "error ratio of the proxy";

/// The paper's text on a loaded squid without NAT.
pub const A_LITTLE: &str = "a little; the types alike";

/// Notes on the comparison.
pub const NOTES: [&str; 4] = [
    "Forwarding has an F of its own: with an interface of 10 F Mbit/s the small machine forwards 8 F with NAT, as \
     the paper's did 8 with 10 (a fifth less). Only this figure is fitted. squid and kernel forwarding have sped up \
     by different factors since 2001, so it differs from the caches' F. Links are F times the paper's interfaces, \
     and figures are divided by F. The machines' CPU limits are those of the caches.",
    "NAT costs of 20 or 35 % cannot be reproduced: translation took the paper's machines nearly as long as all other \
     work on a packet; today it takes some hundredths of it, and no CPU limit restores the code and the small caches \
     of 2001. That NAT costs the large machine nothing holds by construction, wherever its CPU limit exceeds its \
     interface.",
    "The kernel forwards outside of any process, so no CPU limit applies to it. Here a process emulates the network \
     interface: it passes each packet to the gateway, and the forwarding is done in its time (docs/decisions/0021). \
     Its own work counts towards the machine's limit, like a driver's. The limit is enforced by quota periods: the \
     small machine pauses for tens of milliseconds at a time.",
    "The stream has netperf's sizes: buffers and messages of 16,384 bytes. Linux doubles the buffers, so about 32 KB \
     are in flight at most. How the paper loaded its proxy besides `wget` is not published; here it is wget, one \
     file after the other, or a rate (--load).",
];

/// Experiment name of a row.
pub fn experiment(machine: Machine, interface: Interface) -> String {
    format!("forwarding, {}", place(machine, interface))
}

/// The paper's text for a row.
pub fn published(machine: Machine, interface: Interface, condition: Condition, quantity: &str) -> Option<&'static str> {
    let stalled = "could not be measured: netperf's traffic stalls it";
    match (machine, interface, condition, quantity) {
        (Machine::Small, _, Condition::NatProxyLoaded | Condition::ProxyLoaded, RATE) => Some(stalled),
        (Machine::Middle, Interface::Mbit100, Condition::Nat, RATE) => Some("over 50"),
        (Machine::Small, Interface::Mbit10, Condition::Nat, LESS_THAN_NONE) => Some("about 20"),
        (Machine::Middle | Machine::Large, Interface::Mbit10, Condition::Nat, LESS_THAN_NONE) => Some("nothing"),
        (Machine::Middle, Interface::Mbit100, Condition::Nat, LESS_THAN_NONE) => Some("about 35"),
        (Machine::Large, Interface::Mbit100, Condition::Nat, LESS_THAN_NONE) => Some("nothing"),
        (Machine::Middle, Interface::Mbit100, Condition::NatProxyLoaded, LESS_THAN_NAT) => Some("half"),
        (Machine::Middle | Machine::Large, _, Condition::ProxyLoaded, LESS_THAN_NONE) => Some(A_LITTLE),
        _ => None,
    }
}

/// The paper's text as a number, for charts; `None` for `a little`.
pub fn published_percent(machine: Machine, interface: Interface, condition: Condition, quantity: &str) -> Option<f64> {
    match published(machine, interface, condition, quantity)? {
        "nothing" => Some(0.0),
        "about 20" => Some(20.0),
        "about 35" => Some(35.0),
        "half" => Some(50.0),
        _ => None,
    }
}

/// Value of F.
pub fn of_factor(factor: &Factor) -> Vec<ReproductionRow> {
    let whence = if factor.steps.is_empty() {
        "given by --factor-forwarding, not calibrated"
    } else {
        "fitted, the only fitted figure: with it the small machine forwards 8 Mbit/s with NAT"
    };
    let mut rows = vec![with_published(row(SCALE, "", FACTOR, "", factor.value), None, whence)];
    for step in &factor.steps {
        let setting = format!("times {}", step.factor);
        rows.push(row(SCALE, &setting, STEP, "Mbit/s", step.on_scale()));
        rows.push(row(SCALE, &setting, USED, "%", 100.0 * step.used));
    }
    rows
}

/// All measurements.
pub fn rows(forwarded: &Forwarded) -> Vec<ReproductionRow> {
    forwarded.cells.iter().flat_map(|cell| of_cell(cell, forwarded)).collect()
}

fn of_cell(cell: &Cell, forwarded: &Forwarded) -> Vec<ReproductionRow> {
    let (name, setting) = (experiment(cell.machine, cell.interface), cell.condition.name());
    let rounds = cell.mbit_per_s.len();
    if rounds == 0 {
        return Vec::new();
    }
    let of = |quantity: &str, unit: &str, here: Option<f64>, note: &str| {
        let paper = published(cell.machine, cell.interface, cell.condition, quantity);
        with_published(row(&name, setting, quantity, unit, here.unwrap_or(f64::NAN)), paper, note)
    };
    let percent = |share: Option<f64>| share.map(|share| 100.0 * share);
    let mean = cell.mean();
    let mut rows = vec![of(RATE, "Mbit/s", mean, &note(cell))];
    rows.push(of(DEVIATION, "Mbit/s", deviation(&cell.figures()), ""));
    rows.push(of(RATE_UNCONVERTED, "Mbit/s", mean.map(|mean| mean * forwarded.factor.value), ""));
    if cell.used().is_some() {
        rows.push(of(USED, "%", percent(cell.used()), ""));
    }
    let against = [(Condition::None, LESS_THAN_NONE), (Condition::Nat, LESS_THAN_NAT)];
    for (than, quantity) in against {
        let compared = match than {
            Condition::None => cell.condition != Condition::None,
            _ => matches!(cell.condition, Condition::NatProxyIdle | Condition::NatProxyLoaded),
        };
        if !compared {
            continue;
        }
        let cost = forwarded.cost((cell.machine, cell.interface), cell.condition, than);
        let interval = cost.as_ref().map_or(String::new(), of_rounds);
        rows.push(of(quantity, "%", cost.map(|cost| 100.0 * cost.mean), &interval));
    }
    if !cell.proxies.is_empty() {
        let count = cell.proxies.len() as f64;
        let mean = |of: fn(&schema::ProxyLoad) -> f64| Some(cell.proxies.iter().map(of).sum::<f64>() / count);
        rows.push(of(ANSWERS, "/s", mean(|proxy| proxy.achieved_per_s), ""));
        rows.push(of(ERRORS, "%", percent(mean(|proxy| proxy.error_ratio)), ""));
    }
    rows
}

/// The interval of a cost, and its number of rounds.
pub fn of_rounds(cost: &ForwardingCost) -> String {
    let interval = match cost.interval {
        Some([low, high]) => {
            format!("95 %: {} to {} %, {} rounds", level(100.0 * low), level(100.0 * high), cost.rounds)
        }
        None => "a single round has no interval".to_owned(),
    };
    if cost.is_the_testers { format!("{interval}; the tester was the limit") } else { interval }
}

/// Notes on a rate.
fn note(cell: &Cell) -> String {
    let mut parts = Vec::new();
    let (made, without) = (cell.mbit_per_s.len(), cell.mbit_per_s.iter().filter(|trial| trial.is_none()).count());
    if without > 0 {
        parts.push(format!("{without} of {made} trials have no figure"));
    }
    for by in &cell.bound_by {
        parts.push(match by.as_str() {
            "gateway" => "limited by the machine's CPU".to_owned(),
            "link" => "limited by the interface".to_owned(),
            "tester" => "limited by the tester: this is not the machine's figure".to_owned(),
            "window" => "limited by the stream's window, not by the machine".to_owned(),
            _ => "the limit is unknown".to_owned(),
        });
    }
    let overloaded = cell.proxies.iter().filter(|proxy| proxy.overloaded).count();
    if overloaded > 0 {
        parts.push(format!("the proxy was overloaded in {overloaded} of {}", cell.proxies.len()));
    }
    parts.extend(cell.findings.iter().cloned());
    parts.join("; ")
}

/// Standard deviation of independent values, over n - 1; absent of fewer than two.
fn deviation(values: &[f64]) -> Option<f64> {
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count;
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    (values.len() > 1).then(|| (squares / (count - 1.0)).sqrt())
}

/// The rates of each machine and interface in a line, conditions as columns; nothing if there are none.
pub fn lines(rows: &[ReproductionRow]) -> Option<Lines> {
    let mut lines = Vec::new();
    for (machine, interface) in places() {
        let name = experiment(machine, interface);
        if rows.iter().all(|row| row.experiment != name) {
            continue;
        }
        let cells = Condition::ALL.map(|condition| {
            let of = |quantity: &str| find(rows, &name, condition.name(), quantity);
            match (of(RATE), of(DEVIATION)) {
                (None, _) => "-".to_owned(),
                (Some(mean), None) => level(mean),
                (Some(mean), Some(deviation)) => format!("{} ({})", level(mean), level(deviation)),
            }
        });
        lines.push(
            std::iter::once(place(machine, interface)).chain(cells).chain([in_words(machine, interface)]).collect(),
        );
    }
    let mut head = vec!["stream, Mbit/s (sd)"];
    head.extend(Condition::ALL.map(Condition::name));
    head.push("published");
    (!lines.is_empty()).then_some(Lines { head, lines })
}

/// The forwarding result as a sentence; empty if it was not measured.
pub fn result_sentence(rows: &[ReproductionRow]) -> Option<String> {
    // Each machine at the interface for which the paper has a figure.
    let quantities = [
        (Machine::Small, Interface::Mbit10, " (published: 8, and not measurable)"),
        (Machine::Middle, Interface::Mbit100, " (published: over 50, and half of it)"),
        (Machine::Large, Interface::Mbit100, ""),
    ];
    let parts: Vec<String> = quantities
        .into_iter()
        .filter_map(|(machine, interface, paper)| {
            let of = |condition: Condition| find(rows, &experiment(machine, interface), condition.name(), RATE);
            let loaded = of(Condition::NatProxyLoaded).map_or("-".to_owned(), level);
            let nat = level(of(Condition::Nat)?);
            Some(format!("{} {nat} and {loaded} of {} Mbit/s{paper}", machine.name(), interface.megabits()))
        })
        .collect();
    (!parts.is_empty()).then(|| format!("Forwarded with NAT, and with a loaded squid: {}.", parts.join("; ")))
}

/// Machines and interfaces, in the order of the paper.
pub fn places() -> impl Iterator<Item = (Machine, Interface)> {
    Machine::ALL.into_iter().flat_map(|machine| Interface::ALL.map(|interface| (machine, interface)))
}

/// The paper's text on a machine with an interface.
fn in_words(machine: Machine, interface: Interface) -> String {
    let nat = match published(machine, interface, Condition::Nat, LESS_THAN_NONE) {
        Some("nothing") => "NAT: nothing",
        Some("about 20") => "NAT: 20 %",
        Some("about 35") => "NAT: 35 %; loaded: half",
        _ => "",
    };
    let loaded = published(machine, interface, Condition::ProxyLoaded, RATE).map_or("", |_| "loaded: stalls");
    [nat, loaded].into_iter().filter(|words| !words.is_empty()).collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use schema::ProxyLoad;

    use super::super::tests::cell;
    use super::*;

    fn forwarded() -> Forwarded {
        let of = |condition, trials: &[f64]| cell(Machine::Middle, Interface::Mbit100, condition, trials);
        let mut loaded = of(Condition::NatProxyLoaded, &[40.0, 44.0]);
        loaded.used = vec![0.99, 1.01];
        let proxy = ProxyLoad { achieved_per_s: 12.0, error_ratio: 0.5, overloaded: true, ..ProxyLoad::default() };
        loaded.proxies = vec![proxy.clone(), ProxyLoad { overloaded: false, ..proxy }];
        loaded.findings = ["stalled for 1.00 s".to_owned()].into();
        let cells = vec![of(Condition::None, &[90.0, 94.0]), of(Condition::Nat, &[80.0, 88.0]), loaded];
        Forwarded { factor: Factor::given(15.0), cells }
    }

    #[test]
    fn each_cell_has_rows_with_published_text() {
        let made = rows(&forwarded());
        let name = "forwarding, middle, 100 Mbit/s";
        let here = |setting, quantity| find(&made, name, setting, quantity);
        assert_eq!((here("none", RATE), here("none", RATE_UNCONVERTED)), (Some(92.0), Some(1380.0)));
        assert_eq!(here("none", LESS_THAN_NONE), None);
        // 10 of 90 and 6 of 94.
        let cost = 100.0 * f64::midpoint(10.0 / 90.0, 6.0 / 94.0);
        assert!((here("nat", LESS_THAN_NONE).unwrap() - cost).abs() < 1e-9);
        assert!((here("nat-proxy-loaded", LESS_THAN_NAT).unwrap() - 50.0).abs() < 1e-9);
        assert_eq!((here("nat-proxy-loaded", ANSWERS), here("nat-proxy-loaded", ERRORS)), (Some(12.0), Some(50.0)));
        let of = |setting: &str, quantity: &str| {
            let is = |row: &&ReproductionRow| row.setting == setting && row.quantity == quantity;
            made.iter().find(is).unwrap()
        };
        assert_eq!(of("nat", LESS_THAN_NONE).published.as_deref(), Some("about 35"));
        assert!(of("nat", LESS_THAN_NONE).note.ends_with("2 rounds"), "{}", of("nat", LESS_THAN_NONE).note);
        assert_eq!(of("nat", RATE).published.as_deref(), Some("over 50"));
        assert_eq!(of("nat-proxy-loaded", LESS_THAN_NAT).published.as_deref(), Some("half"));
        let note = &of("nat-proxy-loaded", RATE).note;
        assert_eq!(note, "the proxy was overloaded in 1 of 2; stalled for 1.00 s");
        assert_eq!(of("none", DEVIATION).measured.map(|sd| (sd * 100.0).round()), Some(283.0));
    }

    #[test]
    fn rows_note_a_limit_other_than_the_machine() {
        let text = |by: &str| {
            note(&Cell {
                bound_by: [by.to_owned()].into(),
                ..cell(Machine::Small, Interface::Mbit10, Condition::None, &[9.0])
            })
        };
        assert_eq!(text("link"), "limited by the interface");
        assert!(text("tester").contains("not the machine's figure") && text("new").contains("the limit is unknown"));
        let gap =
            Cell { mbit_per_s: vec![Some(9.5), None], ..cell(Machine::Small, Interface::Mbit10, Condition::None, &[]) };
        assert_eq!(note(&gap), "1 of 2 trials have no figure");
    }

    #[test]
    fn table_has_a_line_per_machine_and_interface() {
        assert_eq!(lines(&[]), None);
        let table = lines(&rows(&forwarded())).unwrap();
        assert_eq!(table.lines.len(), 1);
        let line = &table.lines[0];
        assert_eq!(line[..3], ["middle, 100 Mbit/s", "92.0 (2.83)", "84.0 (5.66)"]);
        assert_eq!((line[3].as_str(), line.len()), ("-", table.head.len()));
        assert_eq!(line.last().unwrap(), "NAT: 35 %; loaded: half");
        assert_eq!(in_words(Machine::Small, Interface::Mbit10), "NAT: 20 %; loaded: stalls");
        assert_eq!(in_words(Machine::Large, Interface::Mbit10), "NAT: nothing");
        let text = result_sentence(&rows(&forwarded())).unwrap();
        assert_eq!(
            text,
            "Forwarded with NAT, and with a loaded squid: middle 84.0 and 42.0 of 100 Mbit/s (published: over 50, \
             and half of it)."
        );
        assert_eq!(result_sentence(&[]), None);
        let percent = |machine, interface| published_percent(machine, interface, Condition::Nat, LESS_THAN_NONE);
        assert_eq!(percent(Machine::Middle, Interface::Mbit100), Some(35.0));
        assert_eq!(percent(Machine::Small, Interface::Mbit100), None);
    }
}
