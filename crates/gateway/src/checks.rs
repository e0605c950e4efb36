//! Validity checks of a condition: tester, links and host during the measurement.

use crate::emulation::{GatewayUsed, LinkFigures};
use schema::document::{Check, CheckState, Weight};
use schema::{GatewayCondition, PacketRate, ProxyLoad};

use super::trials::{Observations, Stop};

/// Limit of the 99th percentile of a sender's lag.
const LAG_P99_NS_MAX: f64 = 1e6;
/// Utilization from which a thread counts as saturated.
pub(super) const BUSY: f64 = 0.95;
/// Utilization from which the gateway's CPU share, or its core, counts as used up.
const SHARE_USED: f64 = 0.9;
/// Tolerated usage over the CPU share, which the kernel grants in whole milliseconds and counts in whole periods.
const SHARE_USAGE_MAX: f64 = 1.1;
/// Tolerated one-time overrun in seconds, before the kernel charges it.
const SHARE_OVERRUN_S: f64 = 0.005;
/// Tolerated share of a link's packets that are more than 1 ms late.
const LATE_SHARE_MAX: f64 = 0.01;
/// Limit of the standard deviation of trials over their mean.
const DEVIATION_MAX: f64 = 0.2;
/// Trials needed to judge the deviation.
const DEVIATION_TRIALS_MIN: usize = 3;

/// Usage of the emulation while a condition was measured.
pub(super) struct EmulationUsage {
    /// CPU time and memory of the gateway, and the elapsed time.
    pub used: GatewayUsed,
    /// CPU share of the gateway, if limited.
    pub share: Option<f64>,
    /// Counts of both links.
    pub links: [LinkFigures; 2],
}

/// Every check of a condition.
pub(super) fn checks(
    observations: &Observations,
    condition: &GatewayCondition,
    emulation: Option<&EmulationUsage>,
) -> Vec<Check> {
    let mut checks = vec![
        measured(observations),
        sender_on_time(observations),
        tester(observations, condition, emulation),
        alike(condition),
    ];
    if let Some(emulation) = emulation {
        checks.extend([share_limit_respected(emulation), links_on_time(emulation), no_unintended_drops(emulation)]);
    }
    checks
}

/// All parts of the emulation worked to the end.
pub(super) fn testbed_intact(failure: Option<String>) -> Check {
    let draft = draft("lab_whole", Weight::Invalid, "");
    match failure {
        None => Check { state: CheckState::Ok, why: "every part of the testbed worked to the end".into(), ..draft },
        Some(why) => Check { state: CheckState::Failed, why, ..draft },
    }
}

/// The proxy was under load from before the first trial to after the last.
pub(super) fn proxy_loaded(load: Result<&ProxyLoad, &str>) -> Check {
    let draft = draft("proxy_loaded", Weight::Suspect, "/s");
    match load {
        Err(why) => Check { state: CheckState::CouldNotRun, why: why.to_owned(), ..draft },
        Ok(load) if load.achieved_per_s > 0.0 => Check {
            state: CheckState::Ok,
            value: Some(load.achieved_per_s),
            why: "the proxy responded while the gateway was measured".into(),
            ..draft
        },
        Ok(load) => Check {
            state: CheckState::Failed,
            value: Some(load.achieved_per_s),
            limit: Some(0.0),
            why: "the proxy sent no response: the gateway was measured with an idle proxy".into(),
            ..draft
        },
    }
}

/// Both ends have the same version.
pub(super) fn both_ends_one_version(here: &str, there: &str) -> Check {
    Check {
        state: if here == there { CheckState::Ok } else { CheckState::Failed },
        why: format!("client {here}, server {there}; different versions may measure differently"),
        ..draft("both_ends_one_version", Weight::Suspect, "")
    }
}

/// The CPU time of a real gateway could not be read.
pub(super) fn gateway_stat_failed(why: &str) -> Check {
    let why = format!("the gateway's CPU time (--gateway-stat) is unknown: {why}");
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

/// Compares a figure with its upper limit.
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

/// Everything requested was measured.
fn measured(observations: &Observations) -> Check {
    let draft = draft("measured", Weight::Suspect, "");
    let missing: Vec<String> = [
        observations.ended.as_ref().map(|stop| match stop {
            Stop::Interrupted => "interrupted: figures up to then are stored".to_owned(),
            Stop::Failed(error) => format!("later tests are missing: {error}"),
        }),
        observations.udp_blocked.as_ref().map(|why| format!("packets and latency were not measured: {why}")),
    ]
    .into_iter()
    .flatten()
    .chain(observations.refused.iter().cloned())
    .chain(observations.broken.iter().map(|(test, broken)| {
        let test = test.replace('_', " ");
        format!("{} of {} trials of `{test}` have no figure: the connection ended early", broken.trials, broken.of)
    }))
    .collect();
    match missing.is_empty() {
        true => Check { state: CheckState::Ok, why: "every requested test was made".into(), ..draft },
        false => Check { state: CheckState::CouldNotRun, why: missing.join("; "), ..draft },
    }
}

/// The survey's senders were on time, so that loss and gaps are due to the gateway.
fn sender_on_time(observations: &Observations) -> Check {
    let draft = draft("sender_on_time", Weight::Suspect, "ns");
    let lags =
        observations.survey.iter().filter_map(|survey| Some(survey.seen.sender().sent.as_ref()?.lag_ns.p99 as f64));
    match lags.reduce(f64::max) {
        None => Check { why: "no packets were sent at a rate".into(), ..draft },
        Some(lag) => at_most(
            draft,
            lag,
            LAG_P99_NS_MAX,
            "99th percentile of the send lag of the survey's packets",
            "the survey's packets were sent late since this machine was busy: findings of loss and stalls may be due to it; repeat the run on an idle machine",
        ),
    }
}

/// No figure was limited by the tester.
fn tester(observations: &Observations, condition: &GatewayCondition, emulation: Option<&EmulationUsage>) -> Check {
    let draft = draft("tester_not_the_limit", Weight::Suspect, "");
    if observations.figures.is_empty() && observations.rates.is_empty() {
        return Check { why: "nothing was measured that the tester could limit".into(), ..draft };
    }
    let of_rate = |rate: &&PacketRate| rate.limited_by == "tester";
    let mut bounded: Vec<String> = condition
        .packets
        .iter()
        .filter(of_rate)
        .map(|rate| format!("packets of {} bytes {}", rate.ip_bytes, super::trials::direction_name(rate.up)))
        .collect();
    let of_streams = condition.bound_by.iter().filter(|(_, by)| *by == "tester");
    bounded.extend(of_streams.map(|(test, _)| test.replace('_', " ")));
    let share = emulation.and_then(|emulation| emulation.share);
    bounded.extend(
        ["transactions", "connections"]
            .into_iter()
            .filter(|test| is_limited_by_tester(observations, test, share))
            .map(Into::into),
    );
    let waited_for_core =
        emulation.map(|emulation| emulation.links.iter().map(|link| link.waited_for_core.as_secs_f64()).sum::<f64>());
    let aside = match waited_for_core {
        Some(waited_for_core) if waited_for_core > 1.0 => {
            format!(" (the links' threads waited {waited_for_core:.1} s for a core)")
        }
        _ => String::new(),
    };
    match bounded.is_empty() {
        true => Check { state: CheckState::Ok, why: "no figure was limited by the tester".into(), ..draft },
        false => Check {
            state: CheckState::Failed,
            value: Some(bounded.len() as f64),
            limit: Some(0.0),
            why: format!("limited by the tester, the gateway may do more: {}{aside}", bounded.join(", ")),
            ..draft
        },
    }
}

/// Trials of one test agree.
fn alike(condition: &GatewayCondition) -> Check {
    let draft = draft("trials_alike", Weight::Suspect, "ratio");
    let named = [
        ("stream up", &condition.mbit_per_s),
        ("stream down", &condition.mbit_per_s_down),
        ("transactions", &condition.transactions_per_s),
        ("connections", &condition.connections_per_s),
    ];
    let deviation = |(name, figure): &(&'static str, &Option<schema::Measured>)| {
        let figure =
            figure.as_ref().filter(|figure| figure.trials.len() >= DEVIATION_TRIALS_MIN && figure.mean > 0.0)?;
        Some((*name, figure.stddev? / figure.mean))
    };
    let worst = named.iter().filter_map(deviation).max_by(|a, b| a.1.total_cmp(&b.1));
    match worst {
        None => Check { why: format!("fewer than {DEVIATION_TRIALS_MIN} trials"), ..draft },
        Some((name, deviation)) => at_most(
            draft,
            deviation,
            DEVIATION_MAX,
            "largest standard deviation of trials over their mean",
            &format!(
                "the trials of `{name}` vary: background load, or the gateway's behaviour changes; the document has each trial"
            ),
        ),
    }
}

/// The gateway used no more than its CPU share.
fn share_limit_respected(emulation: &EmulationUsage) -> Check {
    let draft = draft("share_held", Weight::Invalid, "cores");
    let Some(share) = emulation.share else {
        return Check { why: "the gateway has no CPU limit".into(), ..draft };
    };
    if emulation.used.at.is_zero() {
        return Check { state: CheckState::CouldNotRun, why: "no time passed".into(), ..draft };
    }
    at_most(
        draft,
        emulation.used.cores(),
        SHARE_USAGE_MAX * share + SHARE_OVERRUN_S / emulation.used.at.as_secs_f64(),
        "CPU time of the gateway, forwarding and proxy together, over elapsed time",
        "the gateway used more than its CPU share: the figures are those of a faster machine",
    )
}

/// The links forwarded packets on time.
fn links_on_time(emulation: &EmulationUsage) -> Check {
    let draft = draft("links_on_time", Weight::Suspect, "ratio");
    at_most(
        draft,
        emulation.links.iter().map(LinkFigures::late_share).fold(0.0, f64::max),
        LATE_SHARE_MAX,
        "share of packets that a link forwarded more than 1 ms late",
        "the emulated links were late since this machine was busy: RTT and stalls may be due to it; repeat the run on an idle machine",
    )
}

/// The testbed itself dropped no packets.
fn no_unintended_drops(emulation: &EmulationUsage) -> Check {
    let drops: u64 = emulation.links.iter().map(|link| link.unintended_drops).sum();
    at_most(
        draft("no_unintended_drops", Weight::Invalid, "packets"),
        drops as f64,
        0.0,
        "packets that the testbed dropped at a device",
        "the testbed dropped packets at a device with a full queue, which look like losses of the gateway",
    )
}

/// Whether the gateway's CPU share is used up, or a core without a limit. False if the usage is unknown.
pub(super) fn is_used_up(cpu: Option<f64>, share: Option<f64>) -> bool {
    cpu.is_some_and(|cpu| cpu >= SHARE_USED * share.unwrap_or(1.0))
}

/// Whether tester or links were saturated during a test and the gateway was not.
fn is_limited_by_tester(observations: &Observations, test: &str, share: Option<f64>) -> bool {
    let mean = |each: Option<&Vec<f64>>| Some(super::measured::measured(each?)?.mean);
    mean(observations.busiest.get(test)).is_some_and(|busiest| busiest >= BUSY)
        && !is_used_up(mean(observations.cpu.get(test)), share)
}

/// The bottleneck of a stream: link, gateway, tester, or, if none of these is saturated and nothing was lost, the
/// window.
pub(super) fn stream_bound(
    bits_per_s: f64,
    link_bits_per_s: Option<f64>,
    cpu: Option<f64>,
    share: Option<f64>,
    busiest: f64,
    may_be_window: bool,
) -> &'static str {
    /// Payload share of a full packet: 1500 bytes less the headers of IPv4 and TCP with timestamps.
    const PAYLOAD: f64 = 1448.0 / 1500.0;
    if link_bits_per_s.is_some_and(|link| bits_per_s >= SHARE_USED * link * PAYLOAD) {
        return "link";
    }
    if is_used_up(cpu, share) {
        return "gateway";
    }
    if busiest >= BUSY {
        return "tester";
    }
    if may_be_window { "window" } else { "unknown" }
}

#[cfg(test)]
mod tests;
