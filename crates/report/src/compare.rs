//! What terminal, page and Markdown say alike of a comparison.

use schema::compare_part::{ComparedMetric, FailSure, FailTerm};
use schema::{ComparePart, CompareVerdict};

use crate::figures;

/// The metric that decides, in a sentence.
pub(crate) fn answer(part: &ComparePart) -> String {
    let Some(metric) = part.headline() else {
        return match part.by.as_str() {
            "response_time_mean_ns" => "mean response time: no side has a figure that counts.".to_owned(),
            "achieved_rate_per_s" => "carried rate: no side has a figure that counts.".to_owned(),
            other => format!("{other}: no side has a figure that counts."),
        };
    };
    let name = words(metric);
    match (metric.verdict, metric.difference, metric.interval) {
        (CompareVerdict::NoDifferenceShown, ..) => match metric.detectable_difference {
            Some(seen) => {
                format!("{name}: no difference shown; one of {} or more would have been.", size(metric, seen))
            }
            None => format!("{name}: no difference shown."),
        },
        (CompareVerdict::Less | CompareVerdict::More, Some(difference), Some([low, high])) => {
            let less = metric.verdict == CompareVerdict::Less;
            // A sentence says "less by", and puts the smaller first.
            let [near, far] = if less { [-high, -low] } else { [low, high] };
            format!(
                "{name}: B's is {} {} than A's ({} to {}).",
                size(metric, difference.abs()),
                if less { "less" } else { "more" },
                size(metric, near),
                size(metric, far)
            )
        }
        _ => format!("{name}: how well the difference is known, nobody can say here."),
    }
}

/// A metric's row under [`HEAD`].
pub(crate) fn row(metric: &ComparedMetric) -> Vec<String> {
    let figure = |figure: Option<f64>| figure.map(|figure| of_unit(&metric.unit, figure)).unwrap_or_default();
    let interval = metric.interval.map(|[low, high]| format!("{} to {}", signed(metric, low), signed(metric, high)));
    let shown = match (metric.verdict, metric.detectable_difference) {
        (CompareVerdict::Less, _) => "less".to_owned(),
        (CompareVerdict::More, _) => "more".to_owned(),
        (CompareVerdict::NoDifferenceShown, Some(seen)) => format!("nothing of {} or more", size(metric, seen)),
        (CompareVerdict::NoDifferenceShown, None) if metric.a == Some(0.0) => "none on either side".to_owned(),
        (CompareVerdict::NoDifferenceShown, None) => "the same".to_owned(),
        (CompareVerdict::NotKnown, _) => "not known".to_owned(),
    };
    vec![
        words(metric).to_owned(),
        figure(metric.a),
        figure(metric.b),
        metric.difference.map(|difference| signed(metric, difference)).unwrap_or_default(),
        interval.unwrap_or_default(),
        shown,
    ]
}

/// What the intervals are made of.
pub(crate) fn how(part: &ComparePart) -> Option<String> {
    let percent = format!("{:.3}", 100.0 * part.confidence);
    let percent = percent.trim_end_matches('0').trim_end_matches('.');
    let method = match part.method.as_str() {
        "one_run" => "Intervals are of moments within one run a side".to_owned(),
        "runs" => "Each run counts as one figure (Welch's t, of logarithms)".to_owned(),
        _ => {
            let counted = part.blocks.iter().filter(|block| block.counted).count();
            // The first never counts.
            let void = part.blocks.len().saturating_sub(counted + 1);
            let void = if void == 0 { String::new() } else { format!(", {void} more did not count") };
            format!("{counted} blocks of four runs in turns{void}; the difference is taken within each")
        }
    };
    let first = part.headline().map_or("the first", words);
    Some(format!(
        "{method}. {percent} % of such intervals cover the difference; those of all others but {first} do so together (Holm)."
    ))
}

/// Where plans and machines differ, one row each: what, A's, B's, and of what kind it is.
pub(crate) fn differing(part: &ComparePart) -> Vec<[String; 4]> {
    let value = |value: &Option<String>| value.clone().unwrap_or_else(|| "-".to_owned());
    let plans = part.plans_differ.iter().map(|one| {
        let kind = if one.subject { "what is compared" } else { "the plan" };
        [one.field.clone(), value(&one.a), value(&one.b), kind.to_owned()]
    });
    let hosts = part.hosts_differ.iter().map(|one| {
        let figure = |value: &Option<String>| match (one.fact.as_str(), value) {
            ("memory_bytes", Some(bytes)) => bytes.parse().map_or_else(|_| bytes.clone(), figures::bytes),
            (_, value) => value.clone().unwrap_or_else(|| "-".to_owned()),
        };
        let kind = if one.machine { "the machine" } else { "how it was used" };
        let fact = one.fact.strip_prefix("settings.").unwrap_or(&one.fact).replace('_', " ");
        [fact, figure(&one.a), figure(&one.b), kind.to_owned()]
    });
    plans.chain(hosts).collect()
}

/// Terms of `--fail-if`, one to a row: as typed, what came of it, why.
pub(crate) fn terms(part: &ComparePart) -> Vec<[String; 3]> {
    part.fail_if.iter().map(|term| [term.term.clone(), outcome(term).to_owned(), term.why.clone()]).collect()
}

/// What came of a term, in a word or two.
pub(crate) fn outcome(term: &FailTerm) -> &'static str {
    match (term.failed, term.sure) {
        (Some(true), FailSure::Shown) => "FAILED, shown",
        (Some(true), _) => "FAILED, likely",
        (Some(false), FailSure::Excluded) => "held, shown",
        (Some(false), _) => "held, not shown",
        (None, _) => "not known",
    }
}

/// A metric's name in words.
pub(crate) fn words(metric: &ComparedMetric) -> &'static str {
    match metric.short.as_str() {
        "mean" => "mean response time",
        "p50" => "median response time",
        "p90" => "p90 response time",
        "p99" => "p99 response time",
        "rate" => "carried rate",
        "cpu" => "CPU time of a request",
        "errors" => "share of errors",
        "memory" => "most memory",
        _ => "another figure",
    }
}

/// A figure in its unit.
pub(crate) fn of_unit(unit: &str, figure: f64) -> String {
    match unit {
        "ns" => figures::duration_f64(figure),
        "us" => figures::duration_f64(figure * 1e3),
        "1/s" => figures::rate(figure),
        "bytes" => figures::bytes(figure.max(0.0).round() as u64),
        _ => figures::share(figure),
    }
}

/// A difference without its sign: a share of A's figure, or percent points of requests.
pub(crate) fn size(metric: &ComparedMetric, difference: f64) -> String {
    let percent = 100.0 * difference;
    let digits = match percent.abs() {
        p if p < 0.995 => 2,
        p if p < 99.95 => 1,
        _ => 0,
    };
    let unit = if metric.relative { "%" } else { "points of %" };
    format!("{percent:.digits$} {unit}")
}

/// A difference with its sign.
pub(crate) fn signed(metric: &ComparedMetric, difference: f64) -> String {
    let text = size(metric, difference);
    if text.starts_with('-') { text } else { format!("+{text}") }
}

/// Heads of the table of metrics.
pub(crate) const HEAD: [&str; 6] = ["", "A", "B", "B against A", "interval", "shown"];
