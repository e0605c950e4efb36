//! Sentences and figures that every kind of report says alike.

use std::collections::BTreeMap;

use schema::Quantiles;
use schema::document::{Check, CheckState, Load, Slo, Tls, Validity, Verdict, Weight};
use stats::materiality::{is_known, values_needed};

use crate::figures;

/// The answer in one sentence: carried of offered, the times, the failures.
pub fn answer(load: &Load) -> String {
    let part = |count: u64| figures::share(count as f64 / load.offered_requests.max(1) as f64);
    let failures = match (total(&load.failed), not_success(&load.status)) {
        (0, 0) => "none failed".to_owned(),
        (0, other) => format!("{} got a status other than 2xx", part(other)),
        (failed, 0) => format!("{} failed", part(failed)),
        (failed, other) => format!("{} failed, {} got a status other than 2xx", part(failed), part(other)),
    };
    let times = &load.response_time_ns;
    let answered = match times.count {
        0 => "nothing was answered".to_owned(),
        // Of few requests a high percentile is only the slowest.
        count => match [(0.01, "99 %", times.p99), (0.05, "95 %", times.p95), (0.1, "90 %", times.p90)]
            .into_iter()
            .find(|(beyond, _, _)| is_known(count, *beyond))
        {
            Some((_, share, within)) => {
                format!("half within {}, {share} within {}", figures::duration(times.p50), figures::duration(within))
            }
            None => format!("the slowest of {} took {}", figures::count(count), figures::duration(times.max)),
        },
    };
    let offered = match load.loop_kind.as_str() {
        "open" => format!(" of {} offered", figures::level(load.offered_rate_per_s)),
        _ => String::new(),
    };
    format!("{} requests/s carried{offered}; {answered}; {failures}.", figures::level(load.achieved_rate_per_s))
}

/// Whole responses with a status other than 2xx and 304.
pub fn not_success(status: &BTreeMap<String, u64>) -> u64 {
    let good = |status: &str| status.starts_with('2') || status == "304";
    let others = status.iter().filter(|(status, _)| !good(status));
    others.fold(0, |sum: u64, (_, count)| sum.saturating_add(*count))
}

/// What is to be said of how requests were sent and answered beyond the counts: retries, early responses, unsolicited data.
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
            "{} responses ({part}) were whole before the server had received the whole request",
            figures::count(load.early_responses)
        );
        lines.push(("early", text));
    }
    if load.stray_lines > 0 {
        let text = format!("{} empty lines that belong to no response were skipped", figures::count(load.stray_lines));
        lines.push(("stray", text));
    }
    if let Some(unsolicited) = &load.unsolicited {
        let text = format!(
            "{} connections brought data that no request had asked for, after {} responses",
            figures::count(unsolicited.connections),
            figures::count(unsolicited.responses)
        );
        lines.push(("unsolicited", text));
    }
    lines
}

/// A percentile: its name, the share of the values beyond it, and where it stands in a row.
type Percentile = (&'static str, f64, fn(&Quantiles) -> u64);

/// The percentiles of a row.
const PERCENTILES: [Percentile; 4] =
    [("p50", 0.5, |q| q.p50), ("p90", 0.1, |q| q.p90), ("p99", 0.01, |q| q.p99), ("p99.9", 0.001, |q| q.p99_9)];

/// p50, p90, p99 and p99.9 of requests; one that fewer than twenty values exceed is marked, since no check judges it.
pub(crate) fn percentiles(q: &Quantiles) -> [String; 4] {
    PERCENTILES.map(|(_, beyond, of)| marked(q.count, beyond, of(q)))
}

fn marked(count: u64, beyond: f64, value: u64) -> String {
    let mark = if is_known(count, beyond) { "" } else { UNKNOWN };
    format!("{mark}{}", figures::duration(value))
}

/// The mark of a percentile that is not known.
const UNKNOWN: &str = "~";

/// What the mark says, where one of these rows has one.
pub(crate) fn unknown<'a>(rows: impl IntoIterator<Item = &'a Quantiles>) -> Option<String> {
    let fewest = rows.into_iter().map(|q| q.count).filter(|count| *count > 0).min()?;
    let (name, beyond, _) = PERCENTILES.into_iter().find(|(_, beyond, _)| !is_known(fewest, *beyond))?;
    Some(format!(
        "{UNKNOWN} fewer than 20 values lie beyond it, so that it is a guess and no check judges it: {name} takes {} requests",
        figures::count(values_needed(beyond))
    ))
}

/// Terms of an objective on percentiles that so few requests do not know, if there are any: whether it is met is then a guess.
pub(crate) fn guesses(slo: &Slo, requests: u64) -> Option<String> {
    let guessed = slo.terms.iter().filter_map(|term| {
        let name = term.term.split(|c: char| c == '<' || c.is_whitespace()).next()?;
        let below: f64 = name.strip_prefix('p')?.parse().ok()?;
        let beyond = 1.0 - below / 100.0;
        (!is_known(requests, beyond))
            .then(|| format!("{name} takes {} requests", figures::count(values_needed(beyond))))
    });
    let guessed: Vec<String> = guessed.collect();
    (!guessed.is_empty())
        .then(|| format!("of {} requests that is a guess: {}", figures::count(requests), guessed.join(", ")))
}

/// Stalls of the generator, if there were any.
pub(crate) fn stalls(load: &Load) -> Option<String> {
    let delay = load.generator_delay.as_ref().filter(|delay| delay.stalls > 0)?;
    Some(format!(
        "{} of generator and path, the longest {}, {} in all; they and late starts delayed {} requests",
        figures::count(delay.stalls),
        figures::duration(delay.stall_max_ns),
        figures::duration(delay.stalled_ns),
        figures::count(delay.response_time_ns.count)
    ))
}

/// What the verdict means for who reads the figures.
pub fn meaning(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Valid => "Every check that applies ran and held.",
        Verdict::Suspect => "Read the doubts below before you use this.",
        Verdict::Invalid => "Do not use these figures: see why below.",
    }
}

/// How many checks held, of those that apply.
pub fn tally(validity: &Validity) -> String {
    let applies = validity.checks.iter().filter(|check| check.state != CheckState::NotApplicable);
    let held = applies.clone().filter(|check| check.state == CheckState::Ok).count();
    match (applies.count(), held) {
        (0, _) => "No check applies.".to_owned(),
        (1, 1) => "The one check that applies held.".to_owned(),
        (all, held) if all == held => format!("All {all} checks that apply held."),
        (all, held) => format!("{held} of {all} checks held."),
    }
}

/// A check's name as words: `generator on time`.
pub fn check_name(check: &Check) -> String {
    check.name.replace('_', " ")
}

/// What came of a check, in one word or two.
pub fn check_state(check: &Check) -> &'static str {
    match (check.state, check.weight) {
        (CheckState::Ok, _) => "held",
        (CheckState::NotApplicable, _) => "does not apply",
        (CheckState::CouldNotRun, _) => "not run",
        (CheckState::Failed, Weight::Suspect) => "doubt",
        (CheckState::Failed, Weight::Invalid) => "failed",
    }
}

/// A figure with its unit as the document has it: durations and ratios in their own form.
pub fn measure(value: f64, unit: &str) -> String {
    match unit {
        "ns" if value < 0.0 => format!("-{}", figures::duration_f64(-value)),
        "ns" => figures::duration_f64(value),
        "ratio" => figures::share(value),
        "" => short(value),
        unit => format!("{} {unit}", short(value)),
    }
}

/// The same with a capital, as a sentence begins.
pub fn sentence(text: &str) -> String {
    let mut rest = text.chars();
    rest.next().map_or_else(String::new, |first| first.to_uppercase().chain(rest).collect())
}

/// A limit: chosen, not measured, so without zeros that say nothing.
pub fn limit(value: f64, unit: &str) -> String {
    if unit == "ns" && value >= 0.0 { figures::round_duration(value as u64) } else { measure(value, unit) }
}

/// A moment of RFC 3339 as people write it: `2026-11-20 09:30:05 UTC`; empty for what is none.
pub fn moment(rfc3339: &str) -> String {
    let Some((date, time)) = rfc3339.split_once('T') else { return String::new() };
    let (time, zone) = time.strip_suffix('Z').map_or((time, ""), |time| (time, " UTC"));
    // Nobody repeats a run within its second.
    format!("{date} {}{zone}", time.split('.').next().unwrap_or(time))
}

/// A length in seconds as typed: `60 s`, `12.3 s`.
pub fn span(seconds: f64) -> String {
    let seconds = if seconds.is_finite() { seconds.max(0.0) } else { 0.0 };
    if seconds.fract() == 0.0 && seconds < 1e9 { format!("{seconds} s") } else { figures::duration_f64(seconds * 1e9) }
}

/// What a load comes from where it was recorded: what it is, and a line about it.
pub fn recordings(load: &Load) -> Vec<(&'static str, String)> {
    let left_out = |counts: &BTreeMap<String, u64>, of: &str| {
        let listed: Vec<String> =
            by_frequency(counts).into_iter().map(|(why, n)| format!("{} {why}", figures::count(n))).collect();
        if listed.is_empty() { String::new() } else { format!("; {of} left out: {}", listed.join(", ")) }
    };
    let mut lines = Vec::new();
    if let Some(replay) = &load.replay {
        let planned = replay.requests_planned.map(|planned| format!(" of {} asked for", figures::count(planned)));
        let bodies = match replay.bodies_empty {
            0 => String::new(),
            n => format!("; {} with a method that has a body were sent without", figures::count(n)),
        };
        lines.push((
            "replay",
            format!(
                "{}: {} requests replayed{}, {} different ones, {} clients as {}{bodies}{}",
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

/// What TLS settled: versions, suites and protocols, and how many handshakes it took.
pub fn tls_line(tls: &Tls) -> String {
    let handshakes = match tls.resumed_share {
        None => "no handshake was finished".to_owned(),
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
        "system" => "verified by the system's authorities".to_owned(),
        file => format!("verified by {file}"),
    };
    format!("{handshakes}; {} {trust}", tls.server_name)
}

/// The names alone where there is one, else each with its count.
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

/// Name and count, the most frequent first; those of 0 are left out.
pub fn by_frequency(counts: &BTreeMap<String, u64>) -> Vec<(&str, u64)> {
    let mut counts: Vec<_> = counts.iter().map(|(name, &n)| (name.as_str(), n)).filter(|&(_, n)| n > 0).collect();
    counts.sort_by_key(|&(_, n)| std::cmp::Reverse(n));
    counts
}

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
    fn moments_are_as_people_write_them() {
        assert_eq!(moment("2026-11-20T09:30:05.123Z"), "2026-11-20 09:30:05 UTC");
        assert_eq!(moment("2026-11-20T09:30:05+02:00"), "2026-11-20 09:30:05+02:00");
        assert_eq!([moment(""), moment("x")], ["", ""]);
    }

    #[test]
    fn a_percentile_of_few_requests_is_marked_and_an_objective_on_it_is_a_guess() {
        let times = |count| Quantiles {
            count,
            p50: 1_000_000,
            p90: 2_000_000,
            p99: 1_930_000_000,
            max: 1_930_000_000,
            ..Quantiles::default()
        };
        assert_eq!(percentiles(&times(10))[2], "~1.93 s");
        assert_eq!(
            [percentiles(&times(1_999))[2].as_str(), percentiles(&times(2_000))[2].as_str()],
            ["~1.93 s", "1.93 s"]
        );
        assert!(unknown([&times(10)]).unwrap().ends_with("p50 takes 40 requests"));
        assert!(unknown([&times(2_000)]).unwrap().ends_with("p99.9 takes 20,000 requests"));
        assert_eq!(unknown([&times(20_000)]), None);
        let sentence = |count| answer(&Load { response_time_ns: times(count), ..Load::default() });
        assert!(sentence(10).contains("the slowest of 10 took 1.93 s"), "{}", sentence(10));
        assert!(sentence(2_000).contains("half within 1.00 ms, 99 % within 1.93 s"), "{}", sentence(2_000));
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
        assert_eq!(guesses(&slo, 10).unwrap(), "of 10 requests that is a guess: p99 takes 2,000 requests");
        assert_eq!(guesses(&slo, 2_000), None);
    }

    #[test]
    fn tls_is_told_in_a_line() {
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
             TLS_AES_128_GCM_SHA256 x 5, ALPN http/1.1; shop.example verified by the system's authorities"
        );
        let none = Tls { trust: "nothing".into(), server_name: "h".into(), ..Tls::default() };
        assert_eq!(tls_line(&none), "no handshake was finished; h not verified");
    }
}
