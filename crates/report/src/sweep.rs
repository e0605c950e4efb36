//! Texts and tables about a cache that terminal and page have in common.

use schema::document::Quantiles;
use schema::{CacheFigures, CachePart, CachePoint, ClientsSupported, FailureCause, Ratio, Wrong};

use crate::figures::{count, duration_f64, rate, share};
use crate::phrases::by_frequency;

/// Error ratios below this are shown as `under 0.01 %`.
const ERROR_RATIO_SHOWN_MIN: f64 = 0.000_05;

/// Most statuses listed for a cause.
const STATUSES_SHOWN: usize = 3;

/// The result in a sentence or two: clients supported, hit ratio, wrong responses.
pub(crate) fn answer(part: &CachePart) -> String {
    let responses = part.points.iter().fold(0u64, |sum, point| sum.saturating_add(point.figures.answered));
    if part.points.is_empty() {
        return "Nothing was measured.".to_owned();
    }
    if responses == 0 {
        let mut causes = part.points.iter().flat_map(|point| {
            by_frequency(&point.figures.errors).into_iter().map(|(name, _)| cause(name, &point.figures))
        });
        return match causes.next() {
            Some(cause) => format!("No responses: {cause}."),
            None => "No responses: no request was sent in a measured phase.".to_owned(),
        };
    }
    let supported =
        part.clients_supported.as_ref().map_or(String::new(), |supported| format!("{} ", clients_supported(supported)));
    // Without a cache there are no hits.
    let has_cache = part.proxy != "none";
    let best = part.points.iter().filter(|point| has_cache && point.figures.hit_ratio.measured.is_some());
    let best = best.max_by(|a, b| a.achieved_rate_per_s.total_cmp(&b.achieved_rate_per_s));
    let hits = best.map_or(String::new(), |point| {
        let ratio = &point.figures.hit_ratio;
        format!(
            "At {} the hit ratio was {}, of {} offered ({} without collapsing of requests). ",
            rate(point.offered_rate_per_s),
            optional(ratio.measured),
            optional(ratio.offered),
            optional(uncollapsed(point))
        )
    });
    let incorrect = part.points.iter().fold(0u64, |sum, point| sum.saturating_add(point.figures.incorrect()));
    let wrong = match incorrect {
        0 => "No response was wrong.".to_owned(),
        1 => "One response was wrong.".to_owned(),
        n => format!("{} responses were wrong.", count(n)),
    };
    format!("{supported}{hits}{wrong}")
}

/// How many clients the cache supports.
pub(crate) fn clients_supported(supported: &ClientsSupported) -> String {
    let each = if (supported.rate_per_client_per_s - 1.0).abs() < 1e-9 {
        "one request per second each".to_owned()
    } else {
        format!("{} each", rate(supported.rate_per_client_per_s))
    };
    let text = match (supported.clients, supported.unsustained_rate_per_s) {
        (0, Some(failed)) => format!("No measured rate was sustained; the lowest was {}.", rate(failed)),
        (clients, Some(failed)) => {
            format!("{} clients supported at {each}; {} was not sustained.", count(clients), rate(failed))
        }
        (clients, None) => {
            format!("At least {} clients supported at {each}: every measured rate was sustained.", count(clients))
        }
    };
    let left_out: Vec<String> =
        supported.not_counted.iter().map(|point| format!("{} ({})", rate(point.rate_per_s), point.why)).collect();
    if left_out.is_empty() { text } else { format!("{text} Not counted: {}.", left_out.join(", ")) }
}

/// Name of a point: its rate and its phase.
pub(crate) fn label(point: &CachePoint) -> String {
    match point.phase.as_str() {
        "" => rate(point.offered_rate_per_s),
        phase => format!("{} {phase}", rate(point.offered_rate_per_s)),
    }
}

/// One line about a point, printed during a sweep.
pub(crate) fn point_line(point: &CachePoint) -> String {
    let figures = &point.figures;
    let ratios = |name: &str, ratio: &Ratio| {
        let ideal = ratio.ideal.map_or(String::new(), |ideal| format!(", ideal {}", share(ideal)));
        format!("; {name} {} of {} offered{ideal}", optional(ratio.measured), optional(ratio.offered))
    };
    let mut line = format!(
        "{}: {} achieved, mean {} (hits {}, misses {})",
        label(point),
        rate(point.achieved_rate_per_s),
        mean(&figures.response_time_ns),
        mean(&figures.hits_response_time_ns),
        mean(&figures.misses_response_time_ns),
    );
    line.push_str(&ratios("hits", &figures.hit_ratio));
    line.push_str(&ratios("bytes", &figures.byte_hit_ratio));
    if point.origin.is_some() {
        line.push_str(&format!("; origin saved {}", saved(point)));
    }
    line.push_str(&format!("; errors {}", errors(point)));
    if !figures.errors.is_empty() {
        line.push_str(&format!(" ({})", causes(point)));
    }
    line.push_str(match ended(point) {
        "" => "",
        "early" => ", ended early",
        _ => ", interrupted",
    });
    let wrong = figures.incorrect();
    line.push_str(&if wrong == 0 {
        "; no wrong responses".to_owned()
    } else {
        format!("; {} WRONG RESPONSES: {}", count(wrong), kinds(point))
    });
    line
}

/// Head and rows of load and response times, one row for each point.
pub(crate) fn load_table(part: &CachePart) -> (Vec<&'static str>, Vec<Vec<String>>) {
    let head = vec!["offered", "achieved", "mean", "p50", "p99", "hits, mean", "misses, mean", "errors", "ended"];
    let row = |point: &CachePoint| {
        let q = &point.figures.response_time_ns;
        let of = |ns: u64| if q.count == 0 { "-".to_owned() } else { duration_f64(ns as f64) };
        vec![
            label(point),
            rate(point.achieved_rate_per_s),
            mean(q),
            of(q.p50),
            of(q.p99),
            mean(&point.figures.hits_response_time_ns),
            mean(&point.figures.misses_response_time_ns),
            errors(point),
            ended(point).to_owned(),
        ]
    };
    (head, part.points.iter().map(row).collect())
}

/// Head and rows of hit ratios, one row for each point.
pub(crate) fn hits_table(part: &CachePart) -> (Vec<&'static str>, Vec<Vec<String>>) {
    let with_lru = part.points.iter().any(|point| point.figures.hit_ratio.ideal_lru.is_some());
    let mut head = vec!["offered", "hits: offered", "ideal"];
    head.extend(with_lru.then_some("LRU"));
    head.extend(["uncollapsed", "measured", "bytes: offered", "ideal"]);
    head.extend(with_lru.then_some("LRU"));
    head.extend(["measured", "origin saved"]);
    let row = |point: &CachePoint| {
        let (documents, bytes) = (&point.figures.hit_ratio, &point.figures.byte_hit_ratio);
        let mut row = vec![label(point)];
        for (ratio, uncollapsed) in [(documents, Some(uncollapsed(point))), (bytes, None)] {
            row.extend([optional(ratio.offered), optional(ratio.ideal)]);
            row.extend(with_lru.then(|| optional(ratio.ideal_lru)));
            row.extend(uncollapsed.map(optional));
            row.push(optional(ratio.measured));
        }
        row.push(saved(point));
        row
    };
    (head, part.points.iter().map(row).collect())
}

/// Offered hit ratio without repeats sent during the first fetch: the limit for a cache that does not collapse
/// requests.
pub(crate) fn uncollapsed(point: &CachePoint) -> Option<f64> {
    let figures = &point.figures;
    let uncollapsed = figures.offered.saturating_sub(figures.offered_while_fetching);
    (figures.basic_requests > 0).then(|| uncollapsed as f64 / figures.basic_requests as f64)
}

/// Requests that did not reach the origin, as a share of those sent; negative for a cache that sends more than it
/// receives.
pub(crate) fn saved(point: &CachePoint) -> String {
    match saved_share(point) {
        None => "-".to_owned(),
        Some(saved) if saved < 0.0 => format!("-{}", share(-saved)),
        Some(saved) => share(saved),
    }
}

/// Share of requests that did not reach the origin, as a number: see [`saved`].
pub(crate) fn saved_share(point: &CachePoint) -> Option<f64> {
    let origin = point.origin.as_ref()?;
    let sent = origin.saved_requests.saturating_add_unsigned(origin.requests);
    (sent > 0).then(|| origin.saved_requests as f64 / sent as f64)
}

/// Counts of a point that are not in its ratios, each in a few words; zero counts are left out.
pub(crate) fn asides(point: &CachePoint) -> Vec<String> {
    let figures = &point.figures;
    let mut asides = Vec::new();
    let mut add = |n: u64, what: &str| {
        if n > 0 {
            asides.push(format!("{} {what}", count(n)));
        }
    };
    add(figures.repeats.saturating_sub(figures.offered), "repeats that no cache could have stored");
    add(figures.offered_while_fetching, "repeats sent during the first fetch");
    add(figures.offered_expired, "repeats of expired copies");
    add(figures.wrong.get(Wrong::FalseMiss.name()).copied().unwrap_or(0), "false misses");
    add(figures.hits_not_offered, "hits that the workload did not offer");
    add(figures.possibly_stale, "possibly stale copies (not stale if the origin validated them before the change)");
    add(figures.without_identity, "responses without identity, hits or misses");
    add(figures.unverified, "unverified responses, in no other count");
    asides
}

/// Kinds of wrong responses with their counts, the most frequent first, without false misses.
pub(crate) fn kinds(point: &CachePoint) -> String {
    let kinds = by_frequency(&point.figures.wrong).into_iter().filter(|(kind, _)| *kind != Wrong::FalseMiss.name());
    let kinds: Vec<String> = kinds.map(|(kind, n)| format!("{} {}", kind.replace('_', " "), count(n))).collect();
    kinds.join(", ")
}

/// Failures by cause, the most frequent first.
pub(crate) fn causes(point: &CachePoint) -> String {
    let causes: Vec<String> = by_frequency(&point.figures.errors)
        .into_iter()
        .map(|(name, n)| format!("{} {}", cause(name, &point.figures), count(n)))
        .collect();
    causes.join(", ")
}

/// A cause in words; unexpected statuses with the most frequent ones.
fn cause(name: &str, figures: &CacheFigures) -> String {
    let words = name.replace('_', " ");
    if name != FailureCause::UnexpectedStatus.name() || figures.error_statuses.is_empty() {
        return words;
    }
    let statuses = by_frequency(&figures.error_statuses).into_iter().map(|(status, _)| status);
    format!("{words} ({})", statuses.take(STATUSES_SHOWN).collect::<Vec<_>>().join(", "))
}

/// How a point ended, if not as planned.
fn ended(point: &CachePoint) -> &'static str {
    match (point.ended_early, point.interrupted) {
        (true, _) => "early",
        (false, true) => "interrupted",
        (false, false) => "",
    }
}

fn errors(point: &CachePoint) -> String {
    match point.figures.error_ratio {
        None => "-".to_owned(),
        Some(ratio) if ratio > 0.0 && ratio < ERROR_RATIO_SHOWN_MIN => "under 0.01 %".to_owned(),
        Some(ratio) => share(ratio),
    }
}

/// A mean; a dash without values.
pub(crate) fn mean(q: &Quantiles) -> String {
    if q.count == 0 { "-".to_owned() } else { duration_f64(q.mean) }
}

/// A ratio; a dash without one.
pub(crate) fn optional(ratio: Option<f64>) -> String {
    ratio.map_or("-".to_owned(), share)
}

/// The cache and the workload.
pub(crate) fn about(part: &CachePart) -> String {
    let target = part.target_hit_ratio.map_or(String::new(), |target| format!(", target hit ratio {}", share(target)));
    format!("{}; workload {}{target}", part.proxy, part.workload)
}

/// How hit ratios are counted.
pub(crate) const TERMS: &str = "Ratios count plain GETs that a proxy can see. Offered: repeats of cacheable objects that an \
                                  earlier request could have stored. Ideal: a simulated cache without size limit; LRU: one of the \
                                  stated size. Uncollapsed: offered, without requests sent during the first fetch, which only a \
                                  cache that collapses requests can answer. Measured: responses that the origin made for another \
                                  request.";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_supported_have_a_sentence_for_every_outcome() {
        let supported = |clients, unsustained_rate_per_s| ClientsSupported {
            clients,
            rate_per_client_per_s: 1.0,
            unsustained_rate_per_s,
            not_counted: Vec::new(),
            rule: String::new(),
        };
        assert_eq!(
            clients_supported(&supported(40, Some(50.0))),
            "40 clients supported at one request per second each; 50.0/s was not sustained."
        );
        assert!(clients_supported(&supported(80, None)).contains("At least 80"));
        assert!(
            clients_supported(&supported(0, Some(5.0)))
                .contains("No measured rate was sustained; the lowest was 5.00/s")
        );
        let left_out = schema::UncountedRun { rate_per_s: 50.0, why: "it was interrupted".into() };
        let some = ClientsSupported { not_counted: vec![left_out], ..supported(40, None) };
        assert!(
            clients_supported(&some).ends_with("Not counted: 50.0/s (it was interrupted)."),
            "{}",
            clients_supported(&some)
        );
    }

    #[test]
    fn line_of_a_point_has_ratios_errors_and_how_it_ended() {
        let ratio =
            |measured| Ratio { offered: Some(0.5), ideal: Some(0.49), measured: Some(measured), ideal_lru: None };
        let mut point = CachePoint { interrupted: true, offered_rate_per_s: 20.0, ..CachePoint::default() };
        (point.figures.hit_ratio, point.figures.byte_hit_ratio) = (ratio(0.4), ratio(0.3));
        point.figures.error_ratio = Some(0.1);
        point.figures.errors.insert("response_timeout".into(), 9);
        point.origin = Some(schema::OriginTraffic { requests: 60, saved_requests: 40, ..Default::default() });
        let line = point_line(&point);
        for part in [
            "hits 40.0 % of 50.0 % offered, ideal 49.0 %",
            "bytes 30.0 % of 50.0 % offered",
            "origin saved 40.0 %",
            "errors 10.0 % (response timeout 9), interrupted",
            "no wrong responses",
        ] {
            assert!(line.contains(part), "{part}: {line}");
        }
        let early = CachePoint { ended_early: true, interrupted: false, ..point };
        assert!(point_line(&early).contains("ended early"));
    }

    #[test]
    fn sweep_without_responses_names_the_cause() {
        let mut point = CachePoint::default();
        point.figures.errors.insert("connect_refused".into(), 9);
        let part = CachePart { points: vec![point], ..CachePart::default() };
        assert_eq!(answer(&part), "No responses: connect refused.");
        let mut point = CachePoint::default();
        point.figures.errors.insert("unexpected_status".into(), 9);
        point.figures.error_statuses.extend([("404".to_owned(), 1), ("502".to_owned(), 8)]);
        assert_eq!(causes(&point), "unexpected status (502, 404) 9");
        let part = CachePart { points: vec![point], ..CachePart::default() };
        assert_eq!(answer(&part), "No responses: unexpected status (502, 404).");
        assert_eq!(answer(&CachePart::default()), "Nothing was measured.");
    }

    #[test]
    fn cache_that_sends_more_requests_than_it_receives_has_negative_savings() {
        let origin = schema::OriginTraffic { requests: 120, saved_requests: -20, ..Default::default() };
        let point = CachePoint { origin: Some(origin), ..CachePoint::default() };
        assert_eq!(saved(&point), "-20.0 %");
        assert_eq!(saved(&CachePoint::default()), "-");
    }
}
