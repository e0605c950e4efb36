//! Whether to believe a condition's figures: what the tester, the links and the machine around the gateway did meanwhile.

use crate::emulation::{GatewayUsed, LinkFigures};
use schema::document::{Check, CheckState, Weight};
use schema::{GatewayCondition, PacketRate, ProxyLoad};

use super::trials::{Stop, Taken};

/// A sender of which one packet in a hundred is later than this is late.
const LAG_P99_NS_MAX: f64 = 1e6;
/// From here on somebody is busy all the time.
pub(super) const BUSY: f64 = 0.95;
/// From here on the gateway's share, or its core, is used up.
const SHARE_USED: f64 = 0.9;
/// A share is held if no more of it is used than this: it is dealt out in whole milliseconds, and counted in whole periods.
const SHARE_HELD: f64 = 1.1;
/// Besides, what the card may run over once before it is charged, in seconds: of a short time that is much.
const SHARE_ONCE_S: f64 = 0.005;
/// Share of a link's packets that may be more than a millisecond late.
const LATE_SHARE_MAX: f64 = 0.01;
/// Deviation over mean beyond which trials are not alike.
const ALIKE: f64 = 0.2;
/// Trials that a deviation is judged by.
const ALIKE_TRIALS: usize = 3;

/// What a lab did while a condition was measured.
pub(super) struct LabSpent {
    /// What the gateway used, and in what time.
    pub used: GatewayUsed,
    /// Its share of a core, if it has one.
    pub share: Option<f64>,
    /// What its links did.
    pub links: [LinkFigures; 2],
}

/// Every check of a condition.
pub(super) fn checks(taken: &Taken, condition: &GatewayCondition, lab: Option<&LabSpent>) -> Vec<Check> {
    let mut checks = vec![measured(taken), sender_on_time(taken), tester(taken, condition, lab), alike(condition)];
    if let Some(lab) = lab {
        checks.extend([share_held(lab), links_on_time(lab), nothing_lost_by_mistake(lab)]);
    }
    checks
}

/// All parts of the lab still worked when the condition had been measured.
pub(super) fn lab_whole(trouble: Option<String>) -> Check {
    let draft = draft("lab_whole", Weight::Invalid, "");
    match trouble {
        None => Check { state: CheckState::Ok, why: "every part of the lab worked to the end".into(), ..draft },
        Some(why) => Check { state: CheckState::Failed, why, ..draft },
    }
}

/// The proxy's own: it was loaded, from before the first trial to after the last.
pub(super) fn proxy_loaded(load: Result<&ProxyLoad, &str>) -> Check {
    let draft = draft("proxy_loaded", Weight::Suspect, "/s");
    match load {
        Err(why) => Check { state: CheckState::CouldNotRun, why: why.to_owned(), ..draft },
        Ok(load) if load.achieved_per_s > 0.0 => Check {
            state: CheckState::Ok,
            value: Some(load.achieved_per_s),
            why: "the proxy answered while the gateway was measured".into(),
            ..draft
        },
        Ok(load) => Check {
            state: CheckState::Failed,
            value: Some(load.achieved_per_s),
            limit: Some(0.0),
            why: "the proxy answered nothing: what was measured is a gateway with a proxy that stands still".into(),
            ..draft
        },
    }
}

/// The same version at both ends; sessions of others are refused, so it holds where there is one.
pub(super) fn both_ends_one_version(here: &str, there: &str) -> Check {
    Check {
        state: if here == there { CheckState::Ok } else { CheckState::Failed },
        why: format!("{here} here, {there} there; other versions may measure otherwise"),
        ..draft("both_ends_one_version", Weight::Suspect, "")
    }
}

/// A real gateway's processor time, which was asked for and not told.
pub(super) fn not_told_of_cpu(why: &str) -> Check {
    let why = format!("the gateway's processor time (--gateway-stat) is not known: {why}");
    Check { state: CheckState::CouldNotRun, why, ..draft("gateway_stat", Weight::Suspect, "") }
}

fn draft(name: &str, weight: Weight, unit: &str) -> Check {
    Check {
        name: name.into(),
        state: CheckState::NotApplicable,
        weight,
        value: None,
        limit: None,
        unit: unit.into(),
        why: String::new(),
    }
}

/// A figure held against the most that it may be.
fn at_most(draft: Check, value: f64, limit: f64, held: &str, failed: &str) -> Check {
    let ok = value <= limit;
    Check {
        state: if ok { CheckState::Ok } else { CheckState::Failed },
        value: Some(value),
        limit: Some(limit),
        why: if ok { held } else { failed }.to_owned(),
        ..draft
    }
}

/// Everything that was asked for was measured.
fn measured(taken: &Taken) -> Check {
    let draft = draft("measured", Weight::Suspect, "");
    let missing: Vec<String> = [
        taken.ended.as_ref().map(|stop| match stop {
            Stop::Interrupted => "it was interrupted: what was measured by then is here".to_owned(),
            Stop::Failed(error) => format!("what comes after is missing: {error}"),
        }),
        taken.udp_blocked.as_ref().map(|why| format!("packets and latency are left out: {why}")),
    ]
    .into_iter()
    .flatten()
    .chain(taken.refused.iter().cloned())
    .chain(taken.broken.iter().map(|(test, broken)| {
        let test = test.replace('_', " ");
        format!("{} of {} trials of `{test}` have no figure: their connection broke off", broken.trials, broken.of)
    }))
    .collect();
    match missing.is_empty() {
        true => Check { state: CheckState::Ok, why: "every test that was asked for was made".into(), ..draft },
        false => Check { state: CheckState::CouldNotRun, why: missing.join("; "), ..draft },
    }
}

/// The senders of the surveys were on time: what they say of loss and silence is the gateway's.
fn sender_on_time(taken: &Taken) -> Check {
    let draft = draft("sender_on_time", Weight::Suspect, "ns");
    let lags = taken.survey.iter().filter_map(|survey| Some(survey.seen.sender().sent.as_ref()?.lag_ns.p99 as f64));
    match lags.reduce(f64::max) {
        None => Check { why: "no packets were sent at a pace".into(), ..draft },
        Some(lag) => at_most(
            draft,
            lag,
            LAG_P99_NS_MAX,
            "how late 99 % of the survey's packets were sent at most",
            "the survey's packets were sent late: this machine was busy with something else; findings of loss and silence may be its own",
        ),
    }
}

/// The tester was not what bounded a figure.
fn tester(taken: &Taken, condition: &GatewayCondition, lab: Option<&LabSpent>) -> Check {
    let draft = draft("tester_not_the_limit", Weight::Suspect, "");
    if taken.figures.is_empty() && taken.rates.is_empty() {
        return Check { why: "nothing was measured that it could bound".into(), ..draft };
    }
    let of_rate = |rate: &&PacketRate| rate.limited_by == "tester";
    let mut bounded: Vec<String> = condition
        .packets
        .iter()
        .filter(of_rate)
        .map(|rate| format!("packets of {} bytes {}", rate.ip_bytes, super::trials::way(rate.up)))
        .collect();
    let of_streams = condition.bound_by.iter().filter(|(_, by)| *by == "tester");
    bounded.extend(of_streams.map(|(test, _)| test.replace('_', " ")));
    let share = lab.and_then(|lab| lab.share);
    bounded.extend(
        ["transactions", "connections"].into_iter().filter(|test| is_testers(taken, test, share)).map(Into::into),
    );
    let stood = lab.map(|lab| lab.links.iter().map(|link| link.stood.as_secs_f64()).sum::<f64>());
    let aside = match stood {
        Some(stood) if stood > 1.0 => format!(" (the links' loops waited {stood:.1} s for a core)"),
        _ => String::new(),
    };
    match bounded.is_empty() {
        true => Check { state: CheckState::Ok, why: "no figure was bounded by the tester".into(), ..draft },
        false => Check {
            state: CheckState::Failed,
            value: Some(bounded.len() as f64),
            limit: Some(0.0),
            why: format!("the figure is the tester's, the gateway may do more: {}{aside}", bounded.join(", ")),
            ..draft
        },
    }
}

/// Trials of one test resemble each other.
fn alike(condition: &GatewayCondition) -> Check {
    let draft = draft("trials_alike", Weight::Suspect, "ratio");
    let named = [
        ("stream up", &condition.mbit_per_s),
        ("stream down", &condition.mbit_per_s_down),
        ("transactions", &condition.transactions_per_s),
        ("connections", &condition.connections_per_s),
    ];
    let deviation = |(name, figure): &(&'static str, &Option<schema::Measured>)| {
        let figure = figure.as_ref().filter(|figure| figure.trials.len() >= ALIKE_TRIALS && figure.mean > 0.0)?;
        Some((*name, figure.stddev? / figure.mean))
    };
    let worst = named.iter().filter_map(deviation).max_by(|a, b| a.1.total_cmp(&b.1));
    match worst {
        None => Check { why: format!("fewer than {ALIKE_TRIALS} trials"), ..draft },
        Some((name, deviation)) => at_most(
            draft,
            deviation,
            ALIKE,
            "the largest deviation of trials, over their mean",
            &format!(
                "the trials of `{name}` differ much: something else went on, or the gateway has phases; each is in the document"
            ),
        ),
    }
}

/// The gateway used no more than its share.
fn share_held(lab: &LabSpent) -> Check {
    let draft = draft("share_held", Weight::Invalid, "cores");
    let Some(share) = lab.share else {
        return Check { why: "the gateway was not held".into(), ..draft };
    };
    if lab.used.at.is_zero() {
        return Check { state: CheckState::CouldNotRun, why: "no time passed".into(), ..draft };
    }
    at_most(
        draft,
        lab.used.cores(),
        SHARE_HELD * share + SHARE_ONCE_S / lab.used.at.as_secs_f64(),
        "processor time of the gateway, forwarding and proxy together, over the time",
        "the gateway used more than its share: its figures are those of a faster machine",
    )
}

/// The links handed packets on when they were due.
fn links_on_time(lab: &LabSpent) -> Check {
    let draft = draft("links_on_time", Weight::Suspect, "ratio");
    at_most(
        draft,
        lab.links.iter().map(LinkFigures::late_share).fold(0.0, f64::max),
        LATE_SHARE_MAX,
        "share of packets that a link handed on more than 1 ms late",
        "the lab's links were late: this machine was busy with something else; RTT and silence may be its own",
    )
}

/// Packets that the lab itself lost.
fn nothing_lost_by_mistake(lab: &LabSpent) -> Check {
    let mistaken: u64 = lab.links.iter().map(|link| link.mistaken).sum();
    at_most(
        draft("no_unintended_drops", Weight::Invalid, "packets"),
        mistaken as f64,
        0.0,
        "packets that the lab lost itself, at a device",
        "the lab itself lost packets, where a device's queue was full: they look like the gateway's",
    )
}

/// Whether the gateway's share is used up, or a core where it has none. Not where nobody knows.
pub(super) fn used_up(cpu: Option<f64>, share: Option<f64>) -> bool {
    cpu.is_some_and(|cpu| cpu >= SHARE_USED * share.unwrap_or(1.0))
}

/// Whether the tester, or the lab's links, were busy all the time of a test, and the gateway was not.
fn is_testers(taken: &Taken, test: &str, share: Option<f64>) -> bool {
    let mean = |each: Option<&Vec<f64>>| Some(super::measured::measured(each?)?.mean);
    mean(taken.busiest.get(test)).is_some_and(|busiest| busiest >= BUSY) && !used_up(mean(taken.cpu.get(test)), share)
}

/// What bounded a stream: the link, the gateway, the tester, or, where none of these did and nothing was lost, its own window.
pub(super) fn stream_bound(
    bits_per_s: f64,
    link_bits_per_s: Option<f64>,
    cpu: Option<f64>,
    share: Option<f64>,
    busiest: f64,
    may_be_window: bool,
) -> &'static str {
    /// Payload of a full packet: 1500 bytes less the headers of IPv4 and TCP with timestamps.
    const PAYLOAD: f64 = 1448.0 / 1500.0;
    if link_bits_per_s.is_some_and(|link| bits_per_s >= SHARE_USED * link * PAYLOAD) {
        return "link";
    }
    if used_up(cpu, share) {
        return "gateway";
    }
    if busiest >= BUSY {
        return "tester";
    }
    if may_be_window { "window" } else { "unknown" }
}

#[cfg(test)]
mod tests;
