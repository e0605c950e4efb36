//! Findings of a condition with name and figures: patterns of loss, stalls, missing routes.
//!
//! Most findings come from the survey at light load: loss there occurs at any rate.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use crate::tester::{ExchangesReport, SentReport, TesterError, TrialReport};
use schema::Finding;
use stats::arrivals::ArrivalsSeen;

use super::trials::{BrokenTrials, Observations, SizeResult, SurveyResult, direction_name};

/// Names of findings, a stable interface; the page on `gateway` lists them.
pub(super) mod name {
    pub const LOSS_PERIODIC: &str = "loss_periodic";
    pub const LOSS_BURSTS: &str = "loss_bursts";
    pub const LOSS_RANDOM: &str = "loss_random";
    pub const STALL: &str = "stall";
    pub const REORDERED: &str = "reordered";
    pub const DUPLICATED: &str = "duplicated";
    pub const NO_ROUTE: &str = "no_route";
    pub const NAT_MISSING: &str = "nat_missing";
    pub const ONE_WAY: &str = "one_way";
    pub const TABLE_FULL: &str = "table_full";
    pub const MTU: &str = "mtu";
    pub const BROKEN_OFF: &str = "broken_off";
    pub const CONNECTIONS_FAILED: &str = "connections_failed";
}

/// Confidence of a share of losses.
const CONFIDENCE: f64 = 0.95;
/// Connection rate with a full table, as a share of the best rate.
const TABLE_FULL_SHARE: f64 = 0.1;
/// Connections per time slice needed to distinguish a decline from chance.
const SLICE_MIN: f64 = 5.0;
/// Time slices needed in a trial.
const SLICES_MIN: usize = 9;

/// Counters around the emulated gateway, for a diagnosis if nothing passes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ForwardingDiagnosis {
    /// Whether the gateway's own address responds on the client side.
    pub answers: bool,
    /// Packets that the gateway's kernel forwarded.
    pub forwarded: u64,
    /// Packets on the server-side link towards the server.
    pub towards_server: u64,
    /// Packets on that link from the server.
    pub came_back: u64,
    /// Whether the gateway is to translate addresses.
    pub nat: bool,
}

/// All findings of a condition. `links_lose` is the configured loss of both links together.
pub(super) fn findings(observations: &Observations, links_lose: f64) -> Vec<Finding> {
    let mut all: Vec<Finding> = observations.survey.iter().flat_map(|survey| of_survey(survey, links_lose)).collect();
    all.extend(one_way(&observations.survey));
    for up in [true, false] {
        let of_way: Vec<SizeResult> = observations.sizes.iter().filter(|size| size.up == up).copied().collect();
        all.extend(mtu(&of_way));
    }
    all.extend(observations.connections.iter().find_map(table_full));
    all.extend(connections_failed(&observations.connections));
    all.extend(observations.broken.iter().map(|(test, broken)| broken_off(test, broken)));
    all
}

/// Adds to each stall that is short enough for it that the CPU share may be the cause.
pub(super) fn attribute_stalls_to_share(findings: &mut [Finding], share_stall_ns: f64) {
    let by_share =
        |finding: &&mut Finding| finding.name == name::STALL && finding.figures["lasted_ns"] <= share_stall_ns;
    for finding in findings.iter_mut().filter(by_share) {
        finding.words.push_str("; a used-up CPU share can cause stalls of this length");
    }
}

/// Connections that ended before the end of their trial.
fn broken_off(test: &str, broken: &BrokenTrials) -> Finding {
    let causes: Vec<&str> = broken.causes.iter().map(String::as_str).collect();
    Finding {
        name: name::BROKEN_OFF.into(),
        test: test.into(),
        figures: figures(&[("trials", broken.trials as f64), ("of_trials", broken.of as f64)]),
        words: format!(
            "in {} of {} trials the connection ended early ({}): these have no figure",
            broken.trials,
            broken.of,
            causes.join(", ")
        ),
    }
}

/// Failed new connections of all trials.
fn connections_failed(trials: &[ExchangesReport]) -> Option<Finding> {
    let (done, failed): (u64, u64) =
        trials.iter().fold((0, 0), |(done, failed), trial| (done + trial.done, failed + trial.failures()));
    let mut causes: BTreeMap<&str, u64> = BTreeMap::new();
    for (cause, count) in trials.iter().flat_map(|trial| &trial.failed) {
        *causes.entry(cause).or_default() += count;
    }
    let causes: Vec<String> = causes.into_iter().map(|(cause, count)| format!("{cause} {count}")).collect();
    (failed > 0).then(|| Finding {
        name: name::CONNECTIONS_FAILED.into(),
        test: "connections".into(),
        figures: figures(&[("failed", failed as f64), ("done", done as f64)]),
        words: format!("{failed} of {} new connections failed ({})", done + failed, causes.join(", ")),
    })
}

/// Findings of one direction's survey. A longer row of packets, if there was one, determines the pattern of loss.
fn of_survey(survey: &SurveyResult, links_lose: f64) -> Vec<Finding> {
    let test = format!("survey_{}", direction_name(survey.up));
    let mut found = of_row(&survey.seen, survey.gap_ns, links_lose, &test);
    if let Some((gap_ns, seen)) = &survey.longer_survey {
        let longer_survey = of_row(seen, *gap_ns, links_lose, &test);
        if longer_survey.iter().any(is_loss) {
            found.retain(|finding| !is_loss(finding));
        }
        let new = |finding: &Finding| !found.iter().any(|known| known.name == finding.name);
        let more: Vec<Finding> = longer_survey.into_iter().filter(new).collect();
        found.extend(more);
    }
    found
}

fn is_loss(finding: &Finding) -> bool {
    [name::LOSS_PERIODIC, name::LOSS_BURSTS, name::LOSS_RANDOM].contains(&finding.name.as_str())
}

/// Findings of one row of packets.
fn of_row(seen: &TrialReport, gap_ns: f64, links_lose: f64, test: &str) -> Vec<Finding> {
    let (Some(arrived), Some(sent)) = (seen.receiver().arrivals, seen.sender().sent.as_ref()) else {
        return Vec::new();
    };
    if arrived.received == 0 {
        // Nothing passed: reported as another finding.
        return Vec::new();
    }
    let mut found = Vec::new();
    found.extend(stall(&arrived, sent, gap_ns, test));
    // Losses in a stall are part of that finding.
    if let Some((lost, _)) = floor_of(seen, gap_ns).filter(|(lost, _)| *lost > 0) {
        found.push(loss(&arrived, lost, sent.sent, links_lose, test));
    }
    found.extend(counted(name::REORDERED, arrived.reordered, sent.sent, "arrived out of order", test));
    found.extend(counted(name::DUPLICATED, arrived.duplicated, sent.sent, "arrived more than once", test));
    found
}

/// Pattern of packet loss: every n-th, in bursts, or random. `lost` excludes losses in stalls.
fn loss(arrived: &ArrivalsSeen, lost: u64, sent: u64, links_lose: f64, test: &str) -> Finding {
    let share = lost as f64 / sent.max(1) as f64;
    let [low, high] = wilson(lost, sent, CONFIDENCE);
    let mut figures = figures(&[
        ("lost_packets", lost as f64),
        ("sent_packets", sent as f64),
        ("loss_share", share),
        ("loss_share_low", low),
        ("loss_share_high", high),
    ]);
    let (name, words) = if let Some(period) = arrived.loss_period() {
        figures.insert("period_packets".into(), period);
        let every = period.round();
        (
            name::LOSS_PERIODIC,
            format!("every {every:.0}{} packet is lost: {lost} of {sent}, at even distances", ordinal(every)),
        )
    } else if let Some(length) = arrived.burst_length() {
        figures.insert("burst_packets".into(), length);
        figures.insert("longest_burst_packets".into(), arrived.longest_burst as f64);
        let longest = arrived.longest_burst;
        (
            name::LOSS_BURSTS,
            format!("{lost} of {sent} packets are lost, in bursts of {length:.1} on average, the longest of {longest}"),
        )
    } else {
        let configured = match links_lose {
            0.0 => String::new(),
            configured => format!("; configured loss of the links: {}", percent(configured)),
        };
        let words = format!(
            "{lost} of {sent} packets are lost ({}, {} to {} at 95 %), without a pattern{configured}",
            percent(share),
            percent(low),
            percent(high)
        );
        (name::LOSS_RANDOM, words)
    };
    Finding { name: name.into(), test: test.into(), figures, words }
}

/// A time without arrivals although packets were sent.
fn stall(arrived: &ArrivalsSeen, sent: &SentReport, gap_ns: f64, test: &str) -> Option<Finding> {
    let lasted_ns = arrived.stall_ns(gap_ns)?;
    // The sender itself stalled.
    if sent.lag_ns.max >= lasted_ns / 2 {
        return None;
    }
    let (lost, late) = (arrived.lost_in_silence(), arrived.late_after_silence);
    Some(Finding {
        name: name::STALL.into(),
        test: test.into(),
        figures: figures(&[
            ("lasted_ns", lasted_ns as f64),
            ("at_ns", arrived.silence_at_ns as f64),
            ("late_packets", late as f64),
            ("lost_packets", lost as f64),
        ]),
        words: format!(
            "stall of {:.2} s at {:.1} s; of the packets sent in it {late} arrived later, {lost} were lost",
            lasted_ns as f64 / 1e9,
            arrived.silence_at_ns as f64 / 1e9
        ),
    })
}

fn counted(name: &str, count: u64, sent: u64, what: &str, test: &str) -> Option<Finding> {
    (count > 0).then(|| Finding {
        name: name.into(),
        test: test.into(),
        figures: figures(&[("packets", count as f64), ("sent_packets", sent as f64)]),
        words: format!("{count} of {sent} packets {what}"),
    })
}

/// Datagrams pass in one direction only.
fn one_way(surveys: &[SurveyResult]) -> Option<Finding> {
    let of = |up: bool| {
        let seen = &surveys.iter().find(|survey| survey.up == up)?.seen;
        let sent = seen.sender().sent.as_ref().map_or(0, |sent| sent.sent);
        Some((seen.receiver().arrivals.map_or(0, |arrivals| arrivals.received), sent))
    };
    let ((up, up_sent), (down, down_sent)) = (of(true)?, of(false)?);
    let (dead, sent) = match (up, down) {
        (0, 1..) => ("up", up_sent),
        (1.., 0) => ("down", down_sent),
        _ => return None,
    };
    let other = if dead == "up" { "down" } else { "up" };
    Some(Finding {
        name: name::ONE_WAY.into(),
        test: format!("survey_{dead}"),
        figures: figures(&[("sent_packets", sent as f64)]),
        words: format!("datagrams pass {other} and not {dead}: none of {sent} arrived"),
    })
}

/// Only packets up to some length arrive. `sizes` are of one direction.
fn mtu(sizes: &[SizeResult]) -> Option<Finding> {
    let passes = sizes.iter().filter(|size| size.received > 0).map(|size| size.ip_bytes).max()?;
    let blocked: Vec<&SizeResult> =
        sizes.iter().filter(|size| size.received == 0 && (size.sent > 0 || size.too_long)).collect();
    let least = blocked.iter().filter(|size| size.ip_bytes > passes).min_by_key(|size| size.ip_bytes)?;
    // ICMP messages may be lost: their absence means nothing.
    let report = match (least.too_long, least.sent) {
        (false, _) => "",
        (true, 0) => ": the MTU of the sender's device is smaller",
        (true, _) => "; reported by the gateway (ICMP)",
    };
    Some(Finding {
        name: name::MTU.into(),
        test: format!("sizes_{}", direction_name(least.up)),
        figures: figures(&[("passes_bytes", f64::from(passes)), ("blocked_bytes", f64::from(least.ip_bytes))]),
        words: format!("IP packets of {passes} bytes arrive, none of {} does{report}", least.ip_bytes),
    })
}

/// Whether a send error means that packets are too long.
pub(super) fn is_too_long_error(error: &str) -> bool {
    error.to_ascii_lowercase().contains("too long")
}

/// The connection rate collapsed during a trial.
fn table_full(seen: &ExchangesReport) -> Option<Finding> {
    let slices = &seen.by_slice;
    if slices.len() < SLICES_MIN {
        return None;
    }
    let third = slices.len() / 3;
    let mean = |slices: &[u32]| slices.iter().map(|&n| f64::from(n)).sum::<f64>() / slices.len() as f64;
    let last = mean(&slices[slices.len() - third..]);
    // The best rate before the decline.
    let best = slices.windows(2).map(mean).fold(0.0, f64::max);
    if best < SLICE_MIN || last >= TABLE_FULL_SHARE * best {
        return None;
    }
    let fell = slices.iter().rposition(|&n| f64::from(n) >= best / 2.0)?;
    let from: u64 = slices[..=fell].iter().map(|&n| u64::from(n)).sum();
    let slice_s = f64::from(ExchangesReport::SLICE_MS) / 1e3;
    Some(Finding {
        name: name::TABLE_FULL.into(),
        test: "connections".into(),
        figures: figures(&[
            ("connections", from as f64),
            ("before_per_s", best / slice_s),
            ("after_per_s", last / slice_s),
        ]),
        words: format!(
            "after {from} connections the rate of new ones fell to {:.0} a second from {:.0}: a connection table (conntrack, NAT) seems to be full",
            last / slice_s,
            best / slice_s
        ),
    })
}

/// The finding for an unreachable server; `None` if the gateway is not the cause.
pub(super) fn unreachable(
    error: &TesterError,
    server: SocketAddr,
    diagnosis: Option<&ForwardingDiagnosis>,
) -> Option<Finding> {
    let finding = |name: &str, words: String| Finding {
        name: name.into(),
        test: "survey".into(),
        figures: BTreeMap::new(),
        words,
    };
    let address = server.ip();
    match error {
        TesterError::Unreachable { source, .. } if is_no_route(source) => {
            let error_text = source.to_string();
            let error_text = error_text.split(" (os error").next().unwrap_or_default().to_ascii_lowercase();
            Some(finding(name::NO_ROUTE, format!("no route to {address}, reported by the gateway: {error_text}")))
        }
        TesterError::NoAnswer { .. } => {
            let diagnosis = diagnosis?;
            if !diagnosis.answers {
                return None;
            }
            Some(if diagnosis.forwarded == 0 || diagnosis.towards_server == 0 {
                let words =
                    format!("packets to {address} are silently dropped at the gateway, whose own address responds");
                finding(name::NO_ROUTE, words)
            } else if diagnosis.nat && diagnosis.came_back == 0 {
                let words = format!(
                    "the gateway forwards packets to {address}, but responses have no way back: source addresses are not translated"
                );
                finding(name::NAT_MISSING, words)
            } else {
                finding(name::ONE_WAY, format!("the gateway forwards packets to {address}, but no response passes it"))
            })
        }
        _ => None,
    }
}

/// Whether the error is a missing route rather than a closed port.
fn is_no_route(error: &std::io::Error) -> bool {
    use std::io::ErrorKind::{HostUnreachable, NetworkUnreachable, PermissionDenied};
    // A router may also report "prohibited".
    matches!(error.kind(), HostUnreachable | NetworkUnreachable | PermissionDenied)
}

/// Packets lost and sent at light load, in the survey and its longer row.
pub(super) fn floor(survey: &SurveyResult) -> Option<(u64, u64)> {
    let (lost, sent) = floor_of(&survey.seen, survey.gap_ns)?;
    let longer_survey = survey.longer_survey.as_ref().and_then(|(gap_ns, seen)| floor_of(seen, *gap_ns));
    Some(longer_survey.map_or((lost, sent), |(more, of)| (lost + more, sent + of)))
}

/// Packets lost and sent in one row at light load, without losses in stalls and in the tester. `None` if none arrived.
pub(super) fn floor_of(seen: &TrialReport, gap_ns: f64) -> Option<(u64, u64)> {
    let (arrived, sent) = (seen.receiver().arrivals?, seen.sender().sent.as_ref()?);
    if arrived.received == 0 {
        return None;
    }
    let in_stall = arrived.stall_ns(gap_ns).map_or(0, |_| arrived.lost_in_silence().min(arrived.lost));
    Some((arrived.lost.saturating_sub(in_stall).saturating_sub(seen.receiver().overflowed), sent.sent))
}

/// Wilson score interval (1927) of a share, given `hits` of `all`. It stays within 0 to 1 and suits few hits.
pub(super) fn wilson(hits: u64, all: u64, confidence: f64) -> [f64; 2] {
    if all == 0 {
        return [0.0, 1.0];
    }
    let (n, z) = (all as f64, stats::normal::quantile((1.0 + confidence) / 2.0));
    let p = hits as f64 / n;
    let middle = (p + z * z / (2.0 * n)) / (1.0 + z * z / n);
    let half = z / (1.0 + z * z / n) * (p * (1.0 - p) / n + z * z / (4.0 * n * n)).sqrt();
    let low = if hits == 0 { 0.0 } else { (middle - half).max(0.0) };
    [low, if hits == all { 1.0 } else { (middle + half).min(1.0) }]
}

fn figures(named: &[(&str, f64)]) -> BTreeMap<String, f64> {
    named.iter().map(|&(name, value)| (name.to_owned(), value)).collect()
}

fn percent(share: f64) -> String {
    match share * 100.0 {
        p if p >= 0.1 => format!("{p:.2} %"),
        p => format!("{p:.4} %"),
    }
}

fn ordinal(number: f64) -> &'static str {
    match (number as u64 % 100, number as u64 % 10) {
        (11..=13, _) => "th",
        (_, 1) => "st",
        (_, 2) => "nd",
        (_, 3) => "rd",
        _ => "th",
    }
}

#[cfg(test)]
mod tests;
