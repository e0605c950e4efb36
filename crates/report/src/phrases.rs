//! Sentences and figures that terminal, pages and Markdown have in common.

use std::collections::BTreeMap;

use schema::Quantiles;
use schema::document::{Check, CheckState, Load, Path, Run, Slo, Tls, Validity, Verdict, Weight};
use stats::materiality::{is_known, values_needed};

use crate::durations;
use crate::figures;

mod quic;

pub use quic::quic_line;
pub(crate) use quic::wire_quic_line;

/// The result of a load in one sentence: achieved of offered rate, response times, failures.
pub fn answer(load: &Load) -> String {
    let part = |count: u64| figures::share(count as f64 / load.offered_requests.max(1) as f64);
    let failures = match (total(&load.failed), not_success(&load.status)) {
        (0, 0) => "none failed".to_owned(),
        (0, other) => format!("{} had a status other than 2xx", part(other)),
        (failed, 0) => format!("{} failed", part(failed)),
        (failed, other) => format!("{} failed, {} had a status other than 2xx", part(failed), part(other)),
    };
    let times = &load.response_time_ns;
    let response_times = match times.count {
        0 => "no responses".to_owned(),
        // A high percentile of few requests would only be the slowest request.
        count => match [(0.01, "p99", times.p99), (0.05, "p95", times.p95), (0.1, "p90", times.p90)]
            .into_iter()
            .find(|(beyond, _, _)| is_known(count, *beyond))
        {
            Some((_, name, value)) => {
                let [median, value] = [times.p50, value].map(|ns| ns as f64);
                let texts = durations::in_one_unit(&[median, value]);
                format!("median {}, {name} {}", texts[0], texts[1])
            }
            None => format!("the slowest of {} took {}", figures::count(count), figures::duration(times.max)),
        },
    };
    let offered = match load.loop_kind.as_str() {
        "open" => format!(" of {} offered", figures::level(load.offered_rate_per_s)),
        _ => String::new(),
    };
    format!("{} requests/s achieved{offered}; {response_times}; {failures}.", figures::level(load.achieved_rate_per_s))
}

/// The machine's part of the path's timing error; `None` if it always woke the path's loop on time.
pub fn late_wakeups(path: &Path) -> Option<String> {
    if path.late_wakeups_ns == 0 {
        return None;
    }
    let waited = path.run_queue_wait_ns.map(|ns| format!(", and waited {} for a core", figures::duration(ns)));
    let own = &path.timing_error_own_ns;
    Some(format!(
        "the path's loop was woken late for a total of {}{}; without late wake-ups the timing error of isolated packets \
         is p99 {}, p99.9 {}",
        figures::duration(path.late_wakeups_ns),
        waited.unwrap_or_default(),
        figures::duration(own.p99),
        figures::duration(own.p99_9)
    ))
}

/// Complete responses with a status other than 2xx and 304.
pub fn not_success(status: &BTreeMap<String, u64>) -> u64 {
    let good = |status: &str| status.starts_with('2') || status == "304";
    let others = status.iter().filter(|(status, _)| !good(status));
    others.fold(0, |sum: u64, (_, count)| sum.saturating_add(*count))
}

/// Irregularities of requests and responses, each with its name: retries, early responses, unsolicited data.
pub fn irregular(load: &Load) -> Vec<(&'static str, String)> {
    let mut lines = Vec::new();
    if load.requests_retried > 0 {
        let part = figures::share(load.requests_retried as f64 / load.offered_requests.max(1) as f64);
        let text = format!(
            "{} requests ({part}) were sent again after the server had closed their connections; {} sends in all",
            figures::count(load.requests_retried),
            figures::count(load.requests_sent)
        );
        lines.push(("retried", text));
    }
    if load.early_responses > 0 {
        let part = figures::share(load.early_responses as f64 / load.completed.max(1) as f64);
        let text = format!(
            "{} responses ({part}) were complete before the server had received the complete request",
            figures::count(load.early_responses)
        );
        lines.push(("early", text));
    }
    if load.stray_lines > 0 {
        let text = format!("{} empty lines outside of any response were skipped", figures::count(load.stray_lines));
        lines.push(("stray", text));
    }
    if let Some(unsolicited) = &load.unsolicited {
        let text = format!(
            "{} connections received data without a request, after {} responses",
            figures::count(unsolicited.connections),
            figures::count(unsolicited.responses)
        );
        lines.push(("unsolicited", text));
    }
    lines
}

/// A percentile: its name, the share of the values beyond it, and its value.
type Percentile = (&'static str, f64, fn(&Quantiles) -> u64);

/// The percentiles of a row.
const PERCENTILES: [Percentile; 4] =
    [("p50", 0.5, |q| q.p50), ("p90", 0.1, |q| q.p90), ("p99", 0.01, |q| q.p99), ("p99.9", 0.001, |q| q.p99_9)];

/// Mean, p50, p90, p99, p99.9 and max of requests in one unit; a percentile exceeded by fewer than twenty values is
/// marked, since no check uses it.
pub(crate) fn times_row(q: &Quantiles) -> Vec<String> {
    let mut row = durations_row(q);
    for (cell, (_, beyond, _)) in row[1..].iter_mut().zip(PERCENTILES) {
        *cell = marked(q.count, beyond, cell);
    }
    row
}

/// Mean, p50, p90, p99, p99.9 and max in one unit.
pub(crate) fn durations_row(q: &Quantiles) -> Vec<String> {
    let values = [q.p50, q.p90, q.p99, q.p99_9, q.max].map(|ns| ns as f64);
    durations::in_one_unit(&[&[q.mean][..], &values].concat())
}

/// p50, p90, p99 and max of requests in one unit, marked as [`times_row`] does; dashes without values.
pub(crate) fn percentiles(q: &Quantiles) -> [String; 4] {
    if q.count == 0 {
        return std::array::from_fn(|_| "-".to_owned());
    }
    let texts = durations::in_one_unit(&[q.p50, q.p90, q.p99, q.max].map(|ns| ns as f64));
    std::array::from_fn(|at| if at < 3 { marked(q.count, PERCENTILES[at].1, &texts[at]) } else { texts[at].clone() })
}

fn marked(count: u64, beyond: f64, text: &str) -> String {
    let mark = if is_known(count, beyond) { "" } else { TOO_FEW };
    format!("{mark}{text}")
}

/// The mark of a percentile from too few values.
const TOO_FEW: &str = "~";

/// The legend of the mark, if one of these rows of [`times_row`] has it.
pub(crate) fn too_few_values<'a>(rows: impl IntoIterator<Item = &'a Quantiles>) -> Option<String> {
    mark_legend(rows, &PERCENTILES)
}

/// The legend of the mark, if one of these rows of [`percentiles`] has it.
pub(crate) fn too_few_values_to_p99<'a>(rows: impl IntoIterator<Item = &'a Quantiles>) -> Option<String> {
    mark_legend(rows, &PERCENTILES[..3])
}

fn mark_legend<'a>(rows: impl IntoIterator<Item = &'a Quantiles>, shown: &[Percentile]) -> Option<String> {
    let fewest = rows.into_iter().map(|q| q.count).filter(|count| *count > 0).min()?;
    let &(name, beyond, _) = shown.iter().find(|(_, beyond, _)| !is_known(fewest, *beyond))?;
    Some(format!(
        "{TOO_FEW} estimate: fewer than 20 values lie beyond this percentile, and no check uses it; {name} needs {} requests",
        figures::count(values_needed(beyond))
    ))
}

/// A warning that the objective has percentiles for which there are too few requests, if it has any.
pub(crate) fn too_few_requests(slo: &Slo, requests: u64) -> Option<String> {
    let uncertain = slo.terms.iter().filter_map(|term| {
        let name = term.term.split(|c: char| c == '<' || c.is_whitespace()).next()?;
        let below: f64 = name.strip_prefix('p')?.parse().ok()?;
        let beyond = 1.0 - below / 100.0;
        (!is_known(requests, beyond))
            .then(|| format!("{name} needs {} requests", figures::count(values_needed(beyond))))
    });
    let uncertain: Vec<String> = uncertain.collect();
    (!uncertain.is_empty()).then(|| {
        format!("{} requests are too few for this objective: {}", figures::count(requests), uncertain.join(", "))
    })
}

/// Stalls of load generator and path, if there were any.
pub(crate) fn stalls(load: &Load) -> Option<String> {
    let delay = load.generator_delay.as_ref().filter(|delay| delay.stalls > 0)?;
    Some(format!(
        "{} of load generator and path, the longest {}, {} in all; stalls and late starts delayed {} requests",
        figures::count(delay.stalls),
        figures::duration(delay.stall_max_ns),
        figures::duration(delay.stalled_ns),
        figures::count(delay.response_time_ns.count)
    ))
}

/// What the verdict means for the reader of the figures.
pub fn meaning(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Valid => "Every applicable validity check ran and passed.",
        Verdict::Suspect => "Read the warnings below before you use these figures.",
        Verdict::Invalid => "Do not use these figures: see the failed checks below.",
    }
}

/// How many of the applicable checks passed.
pub fn tally(validity: &Validity) -> String {
    let applies = validity.checks.iter().filter(|check| check.state != CheckState::NotApplicable);
    let passed = applies.clone().filter(|check| check.state == CheckState::Ok).count();
    match (applies.count(), passed) {
        (0, _) => "No validity check applies.".to_owned(),
        (1, 1) => "The only applicable validity check passed.".to_owned(),
        (all, passed) if all == passed => format!("All {all} applicable validity checks passed."),
        (all, passed) => format!("{passed} of {all} validity checks passed."),
    }
}

/// A check's name as words: `generator on time`.
pub fn check_name(check: &Check) -> String {
    check.name.replace('_', " ")
}

/// The result of a check in one word or two.
pub fn check_state(check: &Check) -> &'static str {
    match (check.state, check.weight) {
        (CheckState::Ok, _) => "passed",
        (CheckState::NotApplicable, _) => "not applicable",
        (CheckState::CouldNotRun, _) => "not run",
        (CheckState::Failed, Weight::Suspect) => "warning",
        (CheckState::Failed, Weight::Invalid) => "failed",
    }
}

/// A figure in the unit of the document: durations and ratios have their own form.
pub fn measure(value: f64, unit: &str) -> String {
    match unit {
        "ns" if value < 0.0 => format!("-{}", figures::duration_f64(-value)),
        "ns" => figures::duration_f64(value),
        "ratio" => figures::share(value),
        "" => short(value),
        unit => format!("{} {unit}", short(value)),
    }
}

/// The text with a capital letter at its start.
pub fn sentence(text: &str) -> String {
    let mut rest = text.chars();
    rest.next().map_or_else(String::new, |first| first.to_uppercase().chain(rest).collect())
}

/// A limit. It was chosen, not measured, so it has no trailing zeros.
pub fn limit(value: f64, unit: &str) -> String {
    if unit == "ns" && value >= 0.0 { figures::round_duration(value as u64) } else { measure(value, unit) }
}

/// A time of RFC 3339 for people: `2026-11-20 09:30:05 UTC`; empty for another text.
pub fn wall_clock(rfc3339: &str) -> String {
    let Some((date, time)) = rfc3339.split_once('T') else { return String::new() };
    let (time, zone) = time.strip_suffix('Z').map_or((time, ""), |time| (time, " UTC"));
    // Seconds are precise enough: fractions are cut off.
    format!("{date} {}{zone}", time.split('.').next().unwrap_or(time))
}

/// A time in seconds: `60 s`, `12.3 s`.
pub fn span(seconds: f64) -> String {
    let seconds = if seconds.is_finite() { seconds.max(0.0) } else { 0.0 };
    if seconds.fract() == 0.0 && seconds < 1e9 { format!("{seconds} s") } else { figures::duration_f64(seconds * 1e9) }
}

/// Which part of a load the figures are of, if the load was divided among machines.
pub fn shards(run: &Run) -> Option<String> {
    if let Some(shard) = &run.shard {
        return Some(format!(
            "part {}/{} of the load alone; every figure is of this part (yamabiko merge joins the parts)",
            shard.index, shard.count
        ));
    }
    let all = run.shards.len();
    let missing = run.shards.iter().filter(|shard| shard.verdict == "missing").count();
    let machines = run.host.settings.get("machines").map(|machines| format!(" on {machines} machines"));
    (all > 0).then(|| format!("{} of {all} parts of the load{}", all - missing, machines.unwrap_or_default()))
}

/// The recordings that the load replays (an access log, a HAR file), each with its name.
pub fn recordings(load: &Load) -> Vec<(&'static str, String)> {
    let left_out = |counts: &BTreeMap<String, u64>, of: &str| {
        let listed: Vec<String> =
            by_frequency(counts).into_iter().map(|(why, n)| format!("{} {why}", figures::count(n))).collect();
        if listed.is_empty() { String::new() } else { format!("; {of} skipped: {}", listed.join(", ")) }
    };
    let mut lines = Vec::new();
    if let Some(replay) = &load.replay {
        let planned = replay.requests_planned.map(|planned| format!(" of {} planned", figures::count(planned)));
        let bodies = match replay.bodies_empty {
            0 => String::new(),
            n => format!("; {} with a method that needs a body were sent without one", figures::count(n)),
        };
        lines.push((
            "replay",
            format!(
                "{}: {} requests replayed{}, {} different URLs, {} clients mapped to {}{bodies}{}",
                replay.file,
                figures::count(load.offered_requests),
                planned.unwrap_or_default(),
                figures::count(replay.urls),
                figures::count(replay.clients_logged),
                figures::count(replay.clients),
                left_out(&replay.left_out, "lines")
            ),
        ));
    }
    if let Some(har) = &load.har {
        let requests = figures::count(har.requests);
        let left_out = left_out(&har.left_out, "entries");
        lines.push(("recorded", format!("{}: sessions of {requests} requests of {}{left_out}", har.file, har.host)));
    }
    lines
}

/// TLS: handshakes, versions, cipher suites, protocols, and whether the certificate was verified.
pub fn tls_line(tls: &Tls) -> String {
    let handshakes = match tls.resumed_share {
        None => "no handshake was completed".to_owned(),
        Some(share) => format!(
            "{} full handshakes and {} resumed ({}), {}, {}, ALPN {}",
            figures::count(tls.handshakes_full),
            figures::count(tls.handshakes_resumed),
            figures::share(share),
            names(&tls.version),
            names(&tls.cipher_suite),
            names(&tls.alpn)
        ),
    };
    let trust = match tls.trust.as_str() {
        "nothing" => "not verified".to_owned(),
        "system" => "verified by the system's CA certificates".to_owned(),
        file => format!("verified by the CA certificates in {file}"),
    };
    format!("{handshakes}; {} {trust}", tls.server_name)
}

/// A single name alone; several names each with its count.
fn names(counts: &BTreeMap<String, u64>) -> String {
    match by_frequency(counts).as_slice() {
        [(name, _)] => (*name).to_owned(),
        counts => {
            let each: Vec<String> = counts.iter().map(|(name, n)| format!("{name} x {}", figures::count(*n))).collect();
            each.join(" and ")
        }
    }
}

/// The sum of counts, never wrapping.
pub fn total(counts: &BTreeMap<String, u64>) -> u64 {
    counts.values().fold(0, |sum, &count| sum.saturating_add(count))
}

/// Names and counts, the most frequent first; counts of 0 are left out.
pub fn by_frequency(counts: &BTreeMap<String, u64>) -> Vec<(&str, u64)> {
    let mut counts: Vec<_> = counts.iter().map(|(name, &n)| (name.as_str(), n)).filter(|&(_, n)| n > 0).collect();
    counts.sort_by_key(|&(_, n)| std::cmp::Reverse(n));
    counts
}

/// The URL of a load: one as it is, several as their number.
pub(crate) fn url(load: &Load) -> Option<String> {
    let more = load.by_url_left_out.as_ref().map_or(0, |others| others.urls);
    match (load.by_url.as_slice(), more) {
        ([], _) => None,
        ([one], 0) => Some(one.url.clone()),
        (urls, more) => {
            Some(format!("{} and {} more", urls[0].url, figures::count(more.saturating_add(urls.len() as u64 - 1))))
        }
    }
}

/// Connection states as Zeek names them, each with its count and meaning: `SF x 3 (closed normally)`.
pub(crate) fn connection_states(counts: &BTreeMap<String, u64>) -> String {
    let texts: Vec<String> = by_frequency(counts)
        .into_iter()
        .map(|(state, n)| match connection_state(state) {
            "" => format!("{state} x {}", figures::count(n)),
            meaning => format!("{state} x {} ({meaning})", figures::count(n)),
        })
        .collect();
    if texts.is_empty() { "none".to_owned() } else { texts.join(", ") }
}

/// Meaning of a connection state (Zeek, `conn_state`); empty for another text.
pub(crate) fn connection_state(state: &str) -> &'static str {
    match state {
        "S0" => "SYN without reply",
        "S1" => "established, not closed",
        "SF" => "closed normally",
        "REJ" => "refused",
        "S2" => "closed by the client only",
        "S3" => "closed by the server only",
        "RSTO" => "reset by the client",
        "RSTR" => "reset by the server",
        "RSTOS0" => "SYN, then reset by the client",
        "RSTRH" => "SYN-ACK, then reset by the server",
        "SH" => "SYN and FIN, no SYN-ACK",
        "SHR" => "SYN-ACK and FIN, no SYN",
        "OTH" => "no SYN captured",
        _ => "",
    }
}

/// Explanation of the symbols in tables of a tap.
pub(crate) const TAP_SYMBOLS: &str = "Ts, Tr, Tc: times to send, to receive, of the connection. Ds, Dr: bytes sent, \
                                      received. Rs, Rr, Ra: rates of sending, of receiving, of both.";

fn short(value: f64) -> String {
    match value {
        v if v.is_finite() && v.fract() == 0.0 && (0.0..1e18).contains(&v) => figures::count(v as u64),
        v => format!("{v:.3}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wall_clock_times_are_shown_without_fractions() {
        assert_eq!(wall_clock("2026-11-20T09:30:05.123Z"), "2026-11-20 09:30:05 UTC");
        assert_eq!(wall_clock("2026-11-20T09:30:05+02:00"), "2026-11-20 09:30:05+02:00");
        assert_eq!([wall_clock(""), wall_clock("x")], ["", ""]);
    }

    #[test]
    fn percentile_of_few_requests_is_marked_and_its_objective_has_a_warning() {
        let times = |count| Quantiles {
            count,
            p50: 1_000_000,
            p90: 2_000_000,
            p99: 1_930_000_000,
            max: 1_930_000_000,
            ..Quantiles::default()
        };
        assert_eq!(percentiles(&times(10))[2], "~1,930.00 ms");
        assert_eq!(
            [percentiles(&times(1_999))[2].as_str(), percentiles(&times(2_000))[2].as_str()],
            ["~1,930.00 ms", "1,930.00 ms"]
        );
        assert!(too_few_values([&times(10)]).unwrap().ends_with("p50 needs 40 requests"));
        assert!(too_few_values([&times(2_000)]).unwrap().ends_with("p99.9 needs 20,000 requests"));
        assert_eq!(too_few_values([&times(20_000)]), None);
        assert_eq!(too_few_values_to_p99([&times(2_000)]), None);
        assert!(too_few_values_to_p99([&times(1_999)]).unwrap().ends_with("p99 needs 2,000 requests"));
        let sentence = |count| answer(&Load { response_time_ns: times(count), ..Load::default() });
        assert!(sentence(10).contains("the slowest of 10 took 1.93 s"), "{}", sentence(10));
        assert!(sentence(2_000).contains("median 1.00 ms, p99 1,930.00 ms"), "{}", sentence(2_000));
        let term = |term: &str| schema::document::SloTerm {
            term: term.into(),
            value: 1.0,
            limit: 2.0,
            unit: "ns".into(),
            met: true,
        };
        let slo = Slo {
            objective: String::new(),
            met: true,
            terms: vec![term("p99 < 2s"), term("mean < 1s"), term("errors < 1%")],
        };
        assert_eq!(
            too_few_requests(&slo, 10).unwrap(),
            "10 requests are too few for this objective: p99 needs 2,000 requests"
        );
        assert_eq!(too_few_requests(&slo, 2_000), None);
    }

    #[test]
    fn late_wakeups_are_stated_if_there_were_any() {
        let mut path = Path { run_queue_wait_ns: Some(3_000_000), ..Path::default() };
        assert_eq!(late_wakeups(&path), None);
        path.late_wakeups_ns = 12_000_000;
        path.timing_error_own_ns = Quantiles { p99: 9_000, p99_9: 40_000, ..Quantiles::default() };
        let text = late_wakeups(&path).unwrap();
        assert!(text.contains("woken late for a total of 12.0 ms, and waited 3.00 ms for a core;"), "{text}");
        assert!(text.ends_with("p99 9.00 us, p99.9 40.0 us"), "{text}");
        path.run_queue_wait_ns = None;
        assert!(late_wakeups(&path).unwrap().contains("a total of 12.0 ms; without"));
    }

    #[test]
    fn tls_line_has_handshakes_versions_and_trust() {
        let counts = |pairs: &[(&str, u64)]| pairs.iter().map(|&(name, n)| (name.to_owned(), n)).collect();
        let tls = Tls {
            server_name: "shop.example".into(),
            trust: "system".into(),
            handshakes_full: 30,
            handshakes_resumed: 10,
            resumed_share: Some(0.25),
            version: counts(&[("TLSv1.3", 40)]),
            cipher_suite: counts(&[("TLS_AES_128_GCM_SHA256", 5), ("TLS_AES_256_GCM_SHA384", 35)]),
            alpn: counts(&[("http/1.1", 40)]),
            first_failure: None,
        };
        assert_eq!(
            tls_line(&tls),
            "30 full handshakes and 10 resumed (25.0 %), TLSv1.3, TLS_AES_256_GCM_SHA384 x 35 and \
             TLS_AES_128_GCM_SHA256 x 5, ALPN http/1.1; shop.example verified by the system's CA certificates"
        );
        let none = Tls { trust: "nothing".into(), server_name: "h".into(), ..Tls::default() };
        assert_eq!(tls_line(&none), "no handshake was completed; h not verified");
    }
}
