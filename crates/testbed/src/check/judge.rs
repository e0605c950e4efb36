//! Compares configured with measured values.

use std::time::Duration;

use path::{PathSpec, Sign};

use super::ends::{Flooded, PAYLOAD, Probed};
use super::expected::{self, Flood, Group, HEADERS};

/// One row of a check.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// Name of the value, such as `loss down`.
    pub what: String,
    /// Configured value, in `unit`; absent if nothing is configured.
    pub configured: Option<f64>,
    /// Measured value.
    pub measured: f64,
    /// Lower and upper bound on a path as configured.
    pub between: Option<[f64; 2]>,
    /// Unit of all values of the row.
    pub unit: Unit,
    /// The verdict.
    pub state: State,
}

/// Unit of values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Nanoseconds.
    Nanoseconds,
    /// Bits of IP packets a second.
    BitsPerSecond,
    /// A share of packets, 0 to 1.
    Share,
    /// A number of clients.
    Clients,
}

impl Unit {
    /// The name in documents.
    pub const fn name(self) -> &'static str {
        match self {
            Unit::Nanoseconds => "ns",
            Unit::BitsPerSecond => "bits_per_s",
            Unit::Share => "ratio",
            Unit::Clients => "clients",
        }
    }
}

/// Verdict of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// As configured.
    Within,
    /// Not as configured.
    Outside,
    /// Shown, but not judged.
    Shown,
}

impl State {
    /// The name in documents.
    pub const fn name(self) -> &'static str {
        match self {
            State::Within => "within",
            State::Outside => "outside",
            State::Shown => "shown",
        }
    }
}

impl Row {
    fn judged(what: String, configured: f64, measured: f64, between: [f64; 2], unit: Unit) -> Self {
        let state = if (between[0]..=between[1]).contains(&measured) { State::Within } else { State::Outside };
        Row { what, configured: Some(configured), measured, between: Some(between), unit, state }
    }
}

/// An RTT may be shorter than configured by this, because clocks are read at slightly different times.
const RTT_TOLERANCE_BELOW_NS: f64 = 20_000.0;
/// An RTT may be longer than configured by this and one percent: both kernels, and threads that are not scheduled
/// immediately on a busy machine.
const RTT_TOLERANCE_ABOVE_NS: f64 = 1_000_000.0;
/// Quantile of a client's pings that counts as its RTT, because a busy machine delays some. It is within the bounds of
/// a varying delay ([`expected::rtt`]).
const CLIENT_RTT_QUANTILE: f64 = 0.25;
/// Largest share of the pinged clients with a wrong RTT: a busy machine disturbs some.
const WRONG_RTT_SHARE_MAX: f64 = 0.1;

/// The distribution of RTTs, and the number of clients with a wrong RTT.
pub(super) fn rtts(spec: &PathSpec, measured: &[(u32, Vec<f64>)]) -> Vec<Row> {
    let mut client_rtts = Vec::new();
    let (mut lows, mut highs, mut configured) = (Vec::new(), Vec::new(), Vec::new());
    let mut wrong = 0;
    for (client, rtts) in measured {
        let (least, most) = expected::rtt(spec, *client, PAYLOAD + HEADERS);
        let (low, high) = (least - RTT_TOLERANCE_BELOW_NS, most * 1.01 + RTT_TOLERANCE_ABOVE_NS);
        let Some(client_rtt) = quantile(rtts.clone(), CLIENT_RTT_QUANTILE) else {
            wrong += 1;
            continue;
        };
        wrong += usize::from(!(low..=high).contains(&client_rtt));
        client_rtts.push(client_rtt);
        lows.push(low);
        highs.push(high);
        configured.push((least + most) / 2.0);
    }
    let mut rows = Vec::new();
    for (name, q) in [("RTT p10", 0.1), ("RTT p50", 0.5), ("RTT p90", 0.9)] {
        let at = |values: &[f64]| quantile(values.to_vec(), q);
        if let (Some(measured), Some(low), Some(high), Some(configured)) =
            (at(&client_rtts), at(&lows), at(&highs), at(&configured))
        {
            rows.push(Row::judged(name.to_owned(), configured, measured, [low, high], Unit::Nanoseconds));
        }
    }
    let most = (measured.len() as f64 * WRONG_RTT_SHARE_MAX).ceil();
    let what = format!("off their own RTT, of {}", measured.len());
    rows.push(Row::judged(what, 0.0, wrong as f64, [0.0, most], Unit::Clients));
    rows
}

/// The value above a share `q` of all others; never the largest unless `q` is 1 or there is only one.
fn quantile(mut values: Vec<f64>, q: f64) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    values.get((values.len().saturating_sub(1) as f64 * q) as usize).copied()
}

/// Standard deviations of the bounds: a correct path is outside once in 16,000 checks.
const BOUND_DEVIATIONS: f64 = 4.0;

/// Bounds of a measured share `configured` of `number` packets, whose variance is a multiple of that of independent
/// draws.
fn bounds(configured: f64, number: f64, scatter: f64) -> [f64; 2] {
    let number = number.max(1.0);
    let deviation = (configured * (1.0 - configured) * scatter / number).sqrt();
    // Two packets more or less, for whole numbers and bursts.
    let whole = if configured > 0.0 { 2.0 * scatter.sqrt() / number } else { 0.0 };
    [
        (configured - BOUND_DEVIATIONS * deviation - whole).max(0.0),
        (configured + BOUND_DEVIATIONS * deviation + whole).min(1.0),
    ]
}

/// Loss of one client's links, and the symptoms of all effects.
pub(super) fn losses(spec: &PathSpec, group: &Group, probed: &Probed) -> Vec<Row> {
    let mut rows = Vec::new();
    let ways = [
        (true, probed.sent, &probed.up, probed.corrupted[0]),
        (false, probed.answered, &probed.down, probed.corrupted[1]),
    ];
    for (up, sent, arrivals, corrupted) in ways {
        let configured = expected::lost(spec, group.client, up);
        let (sent, first) = (f64::from(sent), f64::from(arrivals.first));
        let name = |what: &str| named(what, up, group);
        let lost = if sent > 0.0 { 1.0 - first / sent } else { 1.0 };
        rows.push(Row::judged(
            name("loss"),
            configured.share,
            lost,
            bounds(configured.share, sent, configured.scatter),
            Unit::Share,
        ));
        for symptom in path::symptoms() {
            let configured = expected::shown(spec, group.client, up, &symptom);
            // A delay shorter than the gap of two probes does not reorder.
            if configured.share > 0.0 && configured.delay_ns > 0.0 && configured.delay_ns <= 2.0 * probed.gap_ns {
                continue;
            }
            let (measured, number) = match symptom.sign {
                Sign::Again => (f64::from(arrivals.again), first),
                Sign::Late => (f64::from(arrivals.late), first),
                Sign::WrongChecksum => (corrupted as f64, sent),
            };
            if configured.share > 0.0 || measured > 0.0 {
                let between = bounds(configured.share, number, 1.0);
                let what = name(symptom.name);
                rows.push(Row::judged(what, configured.share, measured / number.max(1.0), between, Unit::Share));
            }
        }
    }
    rows
}

fn named(what: &str, up: bool, group: &Group) -> String {
    let way = if up { "up" } else { "down" };
    if group.alone { format!("{what} {way}") } else { format!("{what} {way}, client {}", group.client + 1) }
}

/// Tolerance of rates: packets are not divisible, and a flood has an end.
const RATE_MIN_RATIO: f64 = 0.95;
const RATE_MAX_RATIO: f64 = 1.03;
/// Tolerance if a queue drops early, because the link may be idle for short times.
const RATE_MIN_RATIO_EARLY_DROPS: f64 = 0.85;

/// The rate of a flood.
pub(super) fn rate(group: &Group, up: bool, flood: &Flood, flooded: Flooded, duration: Duration) -> Row {
    let least = if flood.early_drops { RATE_MIN_RATIO_EARLY_DROPS } else { RATE_MIN_RATIO };
    let uncertainty = flood.jitter_s / duration.as_secs_f64();
    let between = [flood.rate * (least - uncertainty).max(0.0), flood.rate * (RATE_MAX_RATIO + uncertainty)];
    let mut row = Row::judged(named("rate", up, group), flood.rate, flooded.received, between, Unit::BitsPerSecond);
    // If the machine cannot send fast enough, the rate is not judged.
    if !flood.constant
        || (flooded.sent < flood.rate * 1.05 && row.state == State::Outside && flooded.received < flood.rate)
    {
        row.state = State::Shown;
        row.what.push_str(if flood.constant { ", not reached by the sender" } else { ", mean of a trace" });
    }
    row
}

/// Rate of a TCP stream: never above the link's rate; how far below is not judged.
pub(super) fn stream(spec: &PathSpec, group: &Group, up: bool, measured: f64) -> Row {
    let configured = expected::flood(spec, group.client, up).filter(|flood| flood.constant).map(|flood| flood.rate);
    let exceeded = configured.is_some_and(|configured| measured > configured * RATE_MAX_RATIO);
    Row {
        what: named("TCP", up, group),
        configured,
        measured,
        between: configured.map(|configured| [0.0, configured * RATE_MAX_RATIO]),
        unit: Unit::BitsPerSecond,
        state: if exceeded { State::Outside } else { State::Shown },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_allow_chance_but_not_errors() {
        let [low, high] = bounds(0.01, 4000.0, 1.0);
        assert!(low > 0.002 && high < 0.018, "{low} {high}");
        assert_eq!(bounds(0.0, 4000.0, 1.0), [0.0, 0.0]);
        let [low, high] = bounds(0.01, 4000.0, 9.0);
        assert!(low == 0.0 && (0.02..0.05).contains(&high), "{low} {high}");
    }

    /// The row of a symptom has the expected share of all effects with this symptom, in a fixed order.
    #[test]
    fn every_symptom_of_an_effect_has_a_row() {
        let chance = |value| units::Probability::new(value).unwrap();
        let reorder = path::Reorder { probability: chance(0.1), by: Duration::from_millis(5) };
        let up = vec![
            path::EffectSpec::Reorder(reorder),
            path::EffectSpec::Corrupt(chance(0.5)),
            path::EffectSpec::Loss(chance(0.2)),
            path::EffectSpec::Duplicate(chance(0.25)),
            path::EffectSpec::Corrupt(chance(0.5)),
        ];
        let mut client = path::ClientPath::constant(Duration::from_millis(10));
        client.up.effects = up;
        let spec = PathSpec::new(vec![client]);
        let group = Group { client: 0, clients: 1, alone: true };
        let configured = |gap_ns| -> Vec<(String, f64)> {
            let rows = losses(&spec, &group, &Probed { gap_ns, ..Probed::default() });
            rows.into_iter().map(|row| (row.what, row.configured.unwrap())).collect()
        };
        let expected = [
            ("loss up", 0.8),
            ("duplicated up", 0.25),
            ("reordered up", 0.1),
            ("corrupted up", 0.75),
            ("loss down", 0.0),
        ];
        let close = |(row, configured): &(String, f64), (name, share): (&str, f64)| {
            assert!(row == name && (configured - share).abs() < 1e-12, "{row} {configured}, {name} {share}");
        };
        configured(1e6).iter().zip(expected).for_each(|(row, expected)| close(row, expected));
        assert_eq!(configured(1e6).len(), expected.len());
        let names: Vec<String> = configured(3e6).into_iter().map(|(row, _)| row).collect();
        assert_eq!(names, ["loss up", "duplicated up", "corrupted up", "loss down"], "5 ms are too little to reorder");
    }

    #[test]
    fn a_rate_that_the_sender_did_not_reach_is_not_judged() {
        let group = Group { client: 0, clients: 1, alone: true };
        let flood =
            Flood { payload: 1472, per_second: 1.0, rate: 1e6, early_drops: false, constant: true, jitter_s: 0.0 };
        let state =
            |sent, received| rate(&group, true, &flood, Flooded { sent, received }, Duration::from_secs(1)).state;
        assert_eq!(state(1.3e6, 1e6), State::Within);
        assert_eq!(state(1.3e6, 0.9e6), State::Outside);
        assert_eq!(state(1.3e6, 1.1e6), State::Outside);
        assert_eq!(state(0.8e6, 0.8e6), State::Shown);
        assert_eq!(state(0.8e6, 1.2e6), State::Outside);
    }
}
