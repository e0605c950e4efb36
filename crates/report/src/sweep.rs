//! What terminal and page say alike of a sweep against a cache.

use schema::document::Quantiles;
use schema::{CacheFigures, CachePart, CachePoint, ClientsSupported, FailureCause, Ratio, Wrong};

use crate::figures::{count, duration_f64, rate, share};
use crate::phrases::by_frequency;

/// Below this no point is said to have failed: a failure among thousands is no story.
const ERRORS_TOLD: f64 = 0.000_05;

/// More statuses than these say no more.
const STATUSES_TOLD: usize = 3;

/// The answer in a sentence or two: how far it carried, how often it hit, what was wrong.
pub(crate) fn answer(part: &CachePart) -> String {
    let answered = part.points.iter().fold(0u64, |sum, point| sum.saturating_add(point.figures.answered));
    if part.points.is_empty() {
        return "Nothing was measured.".to_owned();
    }
    if answered == 0 {
        let mut causes = part.points.iter().flat_map(|point| {
            by_frequency(&point.figures.errors).into_iter().map(|(name, _)| cause(name, &point.figures))
        });
        return match causes.next() {
            Some(cause) => format!("Nothing was answered: {cause}."),
            None => "Nothing was answered: no request was sent in a measured phase.".to_owned(),
        };
    }
    let held = part.clients_supported.as_ref().map_or(String::new(), |supported| format!("{} ", held(supported)));
    // Without a cache nothing can be a hit.
    let has_cache = part.proxy != "none";
    let best = part.points.iter().filter(|point| has_cache && point.figures.hit_ratio.measured.is_some());
    let best = best.max_by(|a, b| a.achieved_rate_per_s.total_cmp(&b.achieved_rate_per_s));
    let hits = best.map_or(String::new(), |point| {
        let ratio = &point.figures.hit_ratio;
        format!(
            "At {} {} of the documents were hits, of {} offered, {} where requests are not joined. ",
            rate(point.offered_rate_per_s),
            optional(ratio.measured),
            optional(ratio.offered),
            optional(had_come(point))
        )
    });
    let incorrect = part.points.iter().fold(0u64, |sum, point| sum.saturating_add(point.figures.incorrect()));
    let wrong = match incorrect {
        0 => "No answer was wrong.".to_owned(),
        1 => "One answer was wrong.".to_owned(),
        n => format!("{} answers were wrong.", count(n)),
    };
    format!("{held}{hits}{wrong}")
}

/// How many clients the cache supports.
pub(crate) fn held(supported: &ClientsSupported) -> String {
    let each = if (supported.rate_per_client_per_s - 1.0).abs() < 1e-9 {
        "one request a second each".to_owned()
    } else {
        format!("{} each", rate(supported.rate_per_client_per_s))
    };
    let held = match (supported.clients, supported.unsustained_rate_per_s) {
        (0, Some(failed)) => format!("It sustained no measured rate: {} was too much.", rate(failed)),
        (clients, Some(failed)) => {
            format!("It supports {} clients at {each}; {} was too much.", count(clients), rate(failed))
        }
        (clients, None) => {
            format!(
                "It supports {} clients at {each}, and perhaps more: no measured rate was too much.",
                count(clients)
            )
        }
    };
    let left_out: Vec<String> =
        supported.not_counted.iter().map(|point| format!("{} ({})", rate(point.rate_per_s), point.why)).collect();
    if left_out.is_empty() { held } else { format!("{held} Not counted: {}.", left_out.join(", ")) }
}

/// A point by its rate and its phase.
pub(crate) fn label(point: &CachePoint) -> String {
    match point.phase.as_str() {
        "" => rate(point.offered_rate_per_s),
        phase => format!("{} {phase}", rate(point.offered_rate_per_s)),
    }
}

/// One line on a point, for while a sweep goes on.
pub(crate) fn point_line(point: &CachePoint) -> String {
    let figures = &point.figures;
    let ratios = |name: &str, ratio: &Ratio| {
        let ideal = ratio.ideal.map_or(String::new(), |ideal| format!(", ideal {}", share(ideal)));
        format!("; {name} {} of {} offered{ideal}", optional(ratio.measured), optional(ratio.offered))
    };
    let mut line = format!(
        "{}: {} carried, mean {} (hits {}, misses {})",
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
        "; nothing wrong".to_owned()
    } else {
        format!("; {} WRONG: {}", count(wrong), kinds(point))
    });
    line
}

/// The head and rows of what was carried: one row a point.
pub(crate) fn load_table(part: &CachePart) -> (Vec<&'static str>, Vec<Vec<String>>) {
    let head = vec!["offered", "carried", "mean", "p50", "p99", "hits, mean", "misses, mean", "errors", "ended"];
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

/// The head and rows of what was hit: one row a point.
pub(crate) fn hits_table(part: &CachePart) -> (Vec<&'static str>, Vec<Vec<String>>) {
    let with_lru = part.points.iter().any(|point| point.figures.hit_ratio.ideal_lru.is_some());
    let mut head = vec!["at", "hits: offered", "ideal"];
    head.extend(with_lru.then_some("LRU"));
    head.extend(["had come", "measured", "bytes: offered", "ideal"]);
    head.extend(with_lru.then_some("LRU"));
    head.extend(["measured", "origin saved"]);
    let row = |point: &CachePoint| {
        let (documents, bytes) = (&point.figures.hit_ratio, &point.figures.byte_hit_ratio);
        let mut row = vec![label(point)];
        for (ratio, had_come) in [(documents, Some(had_come(point))), (bytes, None)] {
            row.extend([optional(ratio.offered), optional(ratio.ideal)]);
            row.extend(with_lru.then(|| optional(ratio.ideal_lru)));
            row.extend(had_come.map(optional));
            row.push(optional(ratio.measured));
        }
        row.push(saved(point));
        row
    };
    (head, part.points.iter().map(row).collect())
}

/// What was offered, less what was sent while the first fetch was still out: the most for a cache that does not join requests.
pub(crate) fn had_come(point: &CachePoint) -> Option<f64> {
    let figures = &point.figures;
    let had_come = figures.offered.saturating_sub(figures.offered_while_fetching);
    (figures.basic_requests > 0).then(|| had_come as f64 / figures.basic_requests as f64)
}

/// Requests kept from the origin, as a share of what the robots sent; of a cache that asks more than it is asked, how many more.
pub(crate) fn saved(point: &CachePoint) -> String {
    match saved_share(point) {
        None => "-".to_owned(),
        Some(saved) if saved < 0.0 => format!("-{}", share(-saved)),
        Some(saved) => share(saved),
    }
}

/// The same as a number.
pub(crate) fn saved_share(point: &CachePoint) -> Option<f64> {
    let origin = point.origin.as_ref()?;
    let sent = origin.saved_requests.saturating_add_unsigned(origin.requests);
    (sent > 0).then(|| origin.saved_requests as f64 / sent as f64)
}

/// What the counts of a point say besides its ratios, each in a few words; those of nothing are left out.
pub(crate) fn asides(point: &CachePoint) -> Vec<String> {
    let figures = &point.figures;
    let mut asides = Vec::new();
    let mut add = |n: u64, what: &str| {
        if n > 0 {
            asides.push(format!("{} {what}", count(n)));
        }
    };
    add(figures.repeats.saturating_sub(figures.offered), "repeats that no cache could have had");
    add(figures.offered_while_fetching, "repeats sent while the first fetch was still out");
    add(figures.offered_expired, "of copies past their lifetime");
    add(figures.wrong.get(Wrong::FalseMiss.name()).copied().unwrap_or(0), "false misses");
    add(figures.hits_not_offered, "hits that were not offered");
    add(figures.possibly_stale, "old copies, stale unless the origin renewed them before the change");
    add(figures.without_identity, "responses without identity, which may be hits or not");
    add(figures.unverified, "that nobody judged, and that are in no count");
    asides
}

/// Kinds of wrong answers with their counts, the most frequent first; false misses are none.
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

/// A cause in words; of unexpected statuses the most frequent ones with it, since 502 is another story than 404.
fn cause(name: &str, figures: &CacheFigures) -> String {
    let words = name.replace('_', " ");
    if name != FailureCause::UnexpectedStatus.name() || figures.error_statuses.is_empty() {
        return words;
    }
    let statuses = by_frequency(&figures.error_statuses).into_iter().map(|(status, _)| status);
    format!("{words} ({})", statuses.take(STATUSES_TOLD).collect::<Vec<_>>().join(", "))
}

/// How a point ended, where not as planned.
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
        Some(ratio) if ratio > 0.0 && ratio < ERRORS_TOLD => "under 0.01 %".to_owned(),
        Some(ratio) => share(ratio),
    }
}

/// A mean, where there is one.
pub(crate) fn mean(q: &Quantiles) -> String {
    if q.count == 0 { "-".to_owned() } else { duration_f64(q.mean) }
}

/// A ratio, where there is one.
pub(crate) fn optional(ratio: Option<f64>) -> String {
    ratio.map_or("-".to_owned(), share)
}

/// What the cache and the model were.
pub(crate) fn about(part: &CachePart) -> String {
    let target =
        part.target_hit_ratio.map_or(String::new(), |target| format!(", which aims at {} hits", share(target)));
    format!("{}; workload {}{target}", part.proxy, part.workload)
}

/// How hit ratios are counted, for whoever compares them with others'.
pub(crate) const COUNTED: &str = "Ratios are of plain GETs that a proxy can see. Offered: repeats of cacheable objects that an \
                                  earlier request could have left in a cache. Ideal: a simulation of the requests as they were \
                                  sent, in a cache without limit, and as LRU in one of the size stated. Had come: offered, less \
                                  those sent while the first fetch was still out, which only a cache that joins requests can \
                                  answer. Measured: answers that the origin made for another request.";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_supported_are_stated_for_every_outcome() {
        let supported = |clients, unsustained_rate_per_s| ClientsSupported {
            clients,
            rate_per_client_per_s: 1.0,
            unsustained_rate_per_s,
            not_counted: Vec::new(),
            rule: String::new(),
        };
        assert_eq!(
            held(&supported(40, Some(50.0))),
            "It supports 40 clients at one request a second each; 50.0/s was too much."
        );
        assert!(held(&supported(80, None)).contains("perhaps more"));
        assert!(held(&supported(0, Some(5.0))).contains("no measured rate: 5.00/s"));
        let left_out = schema::NotCounted { rate_per_s: 50.0, why: "it was interrupted".into() };
        let some = ClientsSupported { not_counted: vec![left_out], ..supported(40, None) };
        assert!(held(&some).ends_with("Not counted: 50.0/s (it was interrupted)."), "{}", held(&some));
    }

    #[test]
    fn a_points_line_has_its_figures_and_how_it_ended() {
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
            "nothing wrong",
        ] {
            assert!(line.contains(part), "{part}: {line}");
        }
        let early = CachePoint { ended_early: true, interrupted: false, ..point };
        assert!(point_line(&early).contains("ended early"));
    }

    #[test]
    fn nothing_answered_has_its_reason() {
        let mut point = CachePoint::default();
        point.figures.errors.insert("connect_refused".into(), 9);
        let part = CachePart { points: vec![point], ..CachePart::default() };
        assert_eq!(answer(&part), "Nothing was answered: connect refused.");
        let mut point = CachePoint::default();
        point.figures.errors.insert("unexpected_status".into(), 9);
        point.figures.error_statuses.extend([("404".to_owned(), 1), ("502".to_owned(), 8)]);
        assert_eq!(causes(&point), "unexpected status (502, 404) 9");
        let part = CachePart { points: vec![point], ..CachePart::default() };
        assert_eq!(answer(&part), "Nothing was answered: unexpected status (502, 404).");
        assert_eq!(answer(&CachePart::default()), "Nothing was measured.");
    }

    #[test]
    fn a_cache_that_asks_more_than_it_is_asked_saves_less_than_nothing() {
        let origin = schema::OriginTraffic { requests: 120, saved_requests: -20, ..Default::default() };
        let point = CachePoint { origin: Some(origin), ..CachePoint::default() };
        assert_eq!(saved(&point), "-20.0 %");
        assert_eq!(saved(&CachePoint::default()), "-");
    }
}
