//! What a condition came upon, by name and with figures: what is lost and how, what stands still, what goes nowhere.
//!
//! A finding is data. It comes from the survey, which is light work for any gateway: what is lost there is lost at any rate.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use crate::tester::{ExchangesSeen, SentSeen, TesterError, TrialSeen};
use schema::Finding;
use stats::arrivals::ArrivalsSeen;

use super::trials::{Broken, OfSize, Surveyed, Taken, way};

/// Names of findings, which programs may rely on; the page on `gateway` lists them.
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
/// New connections fall off by so much where a table is full.
const TABLE_FULL_SHARE: f64 = 0.1;
/// Connections in a slice of time, before a fall can be told from chance.
const SLICE_MIN: f64 = 5.0;
/// Slices that a trial must have had.
const SLICES_MIN: usize = 9;

/// What is known of a gateway from beside it, where nothing comes through.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Outlook {
    /// The gateway itself answers on the client's side.
    pub answers: bool,
    /// Packets that its kernel forwarded.
    pub forwarded: u64,
    /// Packets that its far link carried towards the server.
    pub towards_server: u64,
    /// Packets that came back on it.
    pub came_back: u64,
    /// It is to translate addresses.
    pub nat: bool,
}

/// Everything that a condition came upon. `links_lose` is what both of the gateway's links lose together as they were asked to.
pub(super) fn findings(taken: &Taken, links_lose: f64) -> Vec<Finding> {
    let mut all: Vec<Finding> = taken.survey.iter().flat_map(|survey| of_survey(survey, links_lose)).collect();
    all.extend(one_way(&taken.survey));
    for up in [true, false] {
        let of_way: Vec<OfSize> = taken.sizes.iter().filter(|size| size.up == up).copied().collect();
        all.extend(mtu(&of_way));
    }
    all.extend(taken.connections.iter().find_map(table_full));
    all.extend(connections_failed(&taken.connections));
    all.extend(taken.broken.iter().map(|(test, broken)| broken_off(test, broken)));
    all
}

/// Says of each stand-still that is no longer than a gateway's share alone can make it, that it may be that.
pub(super) fn lay_to_share(findings: &mut [Finding], stands_still_ns: f64) {
    let by_share =
        |finding: &&mut Finding| finding.name == name::STALL && finding.figures["lasted_ns"] <= stands_still_ns;
    for finding in findings.iter_mut().filter(by_share) {
        finding.words.push_str("; with its share of a core used up it may stand still for so long");
    }
}

/// Connections that were to last a trial, and did not.
fn broken_off(test: &str, broken: &Broken) -> Finding {
    let causes: Vec<&str> = broken.causes.iter().map(String::as_str).collect();
    Finding {
        name: name::BROKEN_OFF.into(),
        test: test.into(),
        figures: figures(&[("trials", broken.trials as f64), ("of_trials", broken.of as f64)]),
        words: format!(
            "in {} of {} trials the connection broke off ({}): they have no figure",
            broken.trials,
            broken.of,
            causes.join(", ")
        ),
    }
}

/// New connections that were not made, of all trials.
fn connections_failed(trials: &[ExchangesSeen]) -> Option<Finding> {
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

/// What one direction's survey shows. Where there was a closer look, that one says how packets are lost.
fn of_survey(survey: &Surveyed, links_lose: f64) -> Vec<Finding> {
    let test = format!("survey_{}", way(survey.up));
    let mut found = of_row(&survey.seen, survey.gap_ns, links_lose, &test);
    if let Some((gap_ns, seen)) = &survey.closer {
        let closer = of_row(seen, *gap_ns, links_lose, &test);
        if closer.iter().any(is_loss) {
            found.retain(|finding| !is_loss(finding));
        }
        let new = |finding: &Finding| !found.iter().any(|known| known.name == finding.name);
        let more: Vec<Finding> = closer.into_iter().filter(new).collect();
        found.extend(more);
    }
    found
}

fn is_loss(finding: &Finding) -> bool {
    [name::LOSS_PERIODIC, name::LOSS_BURSTS, name::LOSS_RANDOM].contains(&finding.name.as_str())
}

/// What one row of packets shows.
fn of_row(seen: &TrialSeen, gap_ns: f64, links_lose: f64, test: &str) -> Vec<Finding> {
    let (Some(arrived), Some(sent)) = (seen.receiver().arrivals, seen.sender().sent.as_ref()) else {
        return Vec::new();
    };
    if arrived.received == 0 {
        // Nothing came through at all: that is another finding.
        return Vec::new();
    }
    let mut found = Vec::new();
    found.extend(stall(&arrived, sent, gap_ns, test));
    // Losses of a stand-still are told with it, not as if they were the way's habit.
    if let Some((lost, _)) = floor_of(seen, gap_ns).filter(|(lost, _)| *lost > 0) {
        found.push(loss(&arrived, lost, sent.sent, links_lose, test));
    }
    found.extend(counted(name::REORDERED, arrived.reordered, sent.sent, "came after a later one", test));
    found.extend(counted(name::DUPLICATED, arrived.duplicated, sent.sent, "came more than once", test));
    found
}

/// How packets are lost: every n-th, in bursts, or by chance. `lost` are those outside a stand-still.
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
        let asked = match links_lose {
            0.0 => String::new(),
            asked => format!("; its links lose {} as they were asked to", percent(asked)),
        };
        let words = format!(
            "{lost} of {sent} packets are lost ({}, {} to {} at 95 %), without a pattern{asked}",
            percent(share),
            percent(low),
            percent(high)
        );
        (name::LOSS_RANDOM, words)
    };
    Finding { name: name.into(), test: test.into(), figures, words }
}

/// A time in which nothing arrived, though it was sent.
fn stall(arrived: &ArrivalsSeen, sent: &SentSeen, gap_ns: f64, test: &str) -> Option<Finding> {
    let lasted_ns = arrived.stall_ns(gap_ns)?;
    // A sender that stood still itself is no gateway that did.
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
            "stood still for {:.2} s at {:.1} s; of the packets sent then {late} arrived later, {lost} were lost",
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

/// One direction works and the other does not.
fn one_way(surveys: &[Surveyed]) -> Option<Finding> {
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

/// Longer packets never arrive, shorter ones do. Sizes of one direction.
fn mtu(sizes: &[OfSize]) -> Option<Finding> {
    let passes = sizes.iter().filter(|size| size.received > 0).map(|size| size.ip_bytes).max()?;
    let blocked: Vec<&OfSize> =
        sizes.iter().filter(|size| size.received == 0 && (size.sent > 0 || size.too_long)).collect();
    let least = blocked.iter().filter(|size| size.ip_bytes > passes).min_by_key(|size| size.ip_bytes)?;
    // Word from the network is not always heard: that there was none says nothing.
    let told = match (least.too_long, least.sent) {
        (false, _) => "",
        (true, 0) => ": the sender's own device takes no longer ones",
        (true, _) => "; the gateway says so (ICMP)",
    };
    Some(Finding {
        name: name::MTU.into(),
        test: format!("sizes_{}", way(least.up)),
        figures: figures(&[("passes_bytes", f64::from(passes)), ("blocked_bytes", f64::from(least.ip_bytes))]),
        words: format!("IP packets of {passes} bytes arrive, none of {} does{told}", least.ip_bytes),
    })
}

/// Whether a sender's error says that packets are too long for the way.
pub(super) fn says_too_long(error: &str) -> bool {
    error.to_ascii_lowercase().contains("too long")
}

/// New connections that went well at first and hardly at all in the end.
fn table_full(seen: &ExchangesSeen) -> Option<Finding> {
    let slices = &seen.by_slice;
    if slices.len() < SLICES_MIN {
        return None;
    }
    let third = slices.len() / 3;
    let mean = |slices: &[u32]| slices.iter().map(|&n| f64::from(n)).sum::<f64>() / slices.len() as f64;
    let last = mean(&slices[slices.len() - third..]);
    // Where it began well before it fell, if only for a moment.
    let best = slices.windows(2).map(mean).fold(0.0, f64::max);
    if best < SLICE_MIN || last >= TABLE_FULL_SHARE * best {
        return None;
    }
    let fell = slices.iter().rposition(|&n| f64::from(n) >= best / 2.0)?;
    let from: u64 = slices[..=fell].iter().map(|&n| u64::from(n)).sum();
    let slice_s = f64::from(ExchangesSeen::SLICE_MS) / 1e3;
    Some(Finding {
        name: name::TABLE_FULL.into(),
        test: "connections".into(),
        figures: figures(&[
            ("connections", from as f64),
            ("before_per_s", best / slice_s),
            ("after_per_s", last / slice_s),
        ]),
        words: format!(
            "after {from} connections new ones come at {:.0} a second instead of {:.0}: a table of them (conntrack, NAT) seems to be full",
            last / slice_s,
            best / slice_s
        ),
    })
}

/// What it means that the other end cannot be reached; nothing where that is no fault of the gateway's.
pub(super) fn unreachable(error: &TesterError, server: SocketAddr, outlook: Option<&Outlook>) -> Option<Finding> {
    let finding = |name: &str, words: String| Finding {
        name: name.into(),
        test: "survey".into(),
        figures: BTreeMap::new(),
        words,
    };
    let address = server.ip();
    match error {
        TesterError::Unreachable { source, .. } if says_no_way(source) => {
            let said = source.to_string();
            let said = said.split(" (os error").next().unwrap_or_default().to_ascii_lowercase();
            Some(finding(name::NO_ROUTE, format!("the way to {address} ends at the gateway, which says so: {said}")))
        }
        TesterError::NoAnswer { .. } => {
            let outlook = outlook?;
            if !outlook.answers {
                return None;
            }
            Some(if outlook.forwarded == 0 || outlook.towards_server == 0 {
                let words = format!(
                    "packets to {address} go no further than the gateway, which itself answers: it drops them in silence"
                );
                finding(name::NO_ROUTE, words)
            } else if outlook.nat && outlook.came_back == 0 {
                let words = format!(
                    "the gateway forwards packets to {address}, and no answer finds the way back: their source is not translated"
                );
                finding(name::NAT_MISSING, words)
            } else {
                finding(
                    name::ONE_WAY,
                    format!("the gateway forwards packets to {address}, and no answer comes through it"),
                )
            })
        }
        _ => None,
    }
}

/// Whether the network said that there is no way, rather than that nobody listens at its end.
fn says_no_way(error: &std::io::Error) -> bool {
    use std::io::ErrorKind::{HostUnreachable, NetworkUnreachable, PermissionDenied};
    // A router's rule may say "prohibited" as well.
    matches!(error.kind(), HostUnreachable | NetworkUnreachable | PermissionDenied)
}

/// What the way loses at light load: packets lost and sent in the survey and in the closer look.
pub(super) fn floor(survey: &Surveyed) -> Option<(u64, u64)> {
    let (lost, sent) = floor_of(&survey.seen, survey.gap_ns)?;
    let closer = survey.closer.as_ref().and_then(|(gap_ns, seen)| floor_of(seen, *gap_ns));
    Some(closer.map_or((lost, sent), |(more, of)| (lost + more, sent + of)))
}

/// What one row of packets lost at light load: packets lost and sent, without those of a stand-still and the tester's own. Nothing where the
/// survey saw none arrive.
pub(super) fn floor_of(seen: &TrialSeen, gap_ns: f64) -> Option<(u64, u64)> {
    let (arrived, sent) = (seen.receiver().arrivals?, seen.sender().sent.as_ref()?);
    if arrived.received == 0 {
        return None;
    }
    let in_stall = arrived.stall_ns(gap_ns).map_or(0, |_| arrived.lost_in_silence().min(arrived.lost));
    Some((arrived.lost.saturating_sub(in_stall).saturating_sub(seen.receiver().overflowed), sent.sent))
}

/// An interval of a share of which `hits` of `all` are known (Wilson 1927): it never leaves 0 to 1, and is good for few hits.
/// Without any, all is possible.
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
