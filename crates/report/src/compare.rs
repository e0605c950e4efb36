//! Texts and tables about a comparison that terminal, page and Markdown have in common.

use schema::compare_part::{ComparedMetric, FailCertainty, FailTerm};
use schema::{ComparePart, CompareVerdict};

use crate::figures;

/// The result in a sentence: the difference of the main metric.
pub(crate) fn answer(part: &ComparePart) -> String {
    let Some(metric) = part.headline() else {
        return match part.by.as_str() {
            "response_time_mean_ns" => "mean response time: neither side has a valid figure.".to_owned(),
            "achieved_rate_per_s" => "achieved rate: neither side has a valid figure.".to_owned(),
            other => format!("{other}: neither side has a valid figure."),
        };
    };
    let name = words(metric);
    match (metric.verdict, metric.difference, metric.interval) {
        (CompareVerdict::NoDifferenceShown, ..) => match metric.detectable_difference {
            Some(seen) => {
                format!("{name}: no difference detected; detectable from {}.", size(metric, seen))
            }
            None => format!("{name}: no difference detected."),
        },
        (CompareVerdict::Less | CompareVerdict::More, Some(difference), Some([low, high])) => {
            let less = metric.verdict == CompareVerdict::Less;
            // The interval of a decrease is given without sign, the smaller end first.
            let [near, far] = if less { [-high, -low] } else { [low, high] };
            format!(
                "{name}: B is {} {} than A ({} to {}).",
                size(metric, difference.abs()),
                if less { "lower" } else { "higher" },
                size(metric, near),
                size(metric, far)
            )
        }
        _ => format!("{name}: the difference has no confidence interval."),
    }
}

/// A metric's row under [`HEAD`].
pub(crate) fn row(metric: &ComparedMetric) -> Vec<String> {
    let figure = |figure: Option<f64>| figure.map(|figure| of_unit(&metric.unit, figure)).unwrap_or_default();
    let interval = metric.interval.map(|[low, high]| format!("{} to {}", signed(metric, low), signed(metric, high)));
    let shown = match (metric.verdict, metric.detectable_difference) {
        (CompareVerdict::Less, _) => "lower".to_owned(),
        (CompareVerdict::More, _) => "higher".to_owned(),
        (CompareVerdict::NoDifferenceShown, Some(seen)) => format!("no; detectable from {}", size(metric, seen)),
        (CompareVerdict::NoDifferenceShown, None) if metric.a == Some(0.0) => "no; zero on both sides".to_owned(),
        (CompareVerdict::NoDifferenceShown, None) => "no".to_owned(),
        (CompareVerdict::NotKnown, _) => "unknown".to_owned(),
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

/// How the intervals were computed.
pub(crate) fn how(part: &ComparePart) -> Option<String> {
    let percent = format!("{:.3}", 100.0 * part.confidence);
    let percent = percent.trim_end_matches('0').trim_end_matches('.');
    let method = match part.method.as_str() {
        "one_run" => "Intervals are from time windows within one run per side".to_owned(),
        "runs" => "Each run counts as one value (Welch's t-test of logarithms)".to_owned(),
        _ => {
            let counted = part.blocks.iter().filter(|block| block.counted).count();
            // The first block is a warm-up.
            let void = part.blocks.len().saturating_sub(counted + 1);
            let void = if void == 0 { String::new() } else { format!(", {void} more were discarded") };
            format!("{counted} blocks of four alternating runs{void}; differences are taken within a block")
        }
    };
    let first = part.headline().map_or("the first", words);
    Some(format!("{method}. Confidence {percent} %; for all metrics but {first} simultaneous (Holm)."))
}

/// Differences of plans and hosts, one row each: name, value of A, value of B, kind.
pub(crate) fn differing(part: &ComparePart) -> Vec<[String; 4]> {
    let value = |value: &Option<String>| value.clone().unwrap_or_else(|| "-".to_owned());
    let plans = part.plans_differ.iter().map(|one| {
        let kind = if one.subject { "compared" } else { "plan" };
        [one.field.clone(), value(&one.a), value(&one.b), kind.to_owned()]
    });
    let hosts = part.hosts_differ.iter().map(|one| {
        let figure = |value: &Option<String>| match (one.fact.as_str(), value) {
            ("memory_bytes", Some(bytes)) => bytes.parse().map_or_else(|_| bytes.clone(), figures::bytes),
            (_, value) => value.clone().unwrap_or_else(|| "-".to_owned()),
        };
        let kind = if one.machine { "host" } else { "host state" };
        let fact = one.fact.strip_prefix("settings.").unwrap_or(&one.fact).replace('_', " ");
        [fact, figure(&one.a), figure(&one.b), kind.to_owned()]
    });
    plans.chain(hosts).collect()
}

/// Terms of `--fail-if`, one row each: term, result, reason.
pub(crate) fn terms(part: &ComparePart) -> Vec<[String; 3]> {
    part.fail_if.iter().map(|term| [term.term.clone(), outcome(term).to_owned(), term.why.clone()]).collect()
}

/// The result of a term in a word or two.
pub(crate) fn outcome(term: &FailTerm) -> &'static str {
    match (term.failed, term.sure) {
        (Some(true), FailCertainty::Shown) => "FAILED",
        (Some(true), _) => "FAILED, likely",
        (Some(false), FailCertainty::Excluded) => "passed",
        (Some(false), _) => "passed, not certain",
        (None, _) => "unknown",
    }
}

/// A metric's name in words.
pub(crate) fn words(metric: &ComparedMetric) -> &'static str {
    match metric.short.as_str() {
        "mean" => "mean response time",
        "p50" => "median response time",
        "p90" => "p90 response time",
        "p99" => "p99 response time",
        "rate" => "achieved rate",
        "cpu" => "CPU time per request",
        "errors" => "error ratio",
        "memory" => "peak memory",
        _ => "other metric",
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

/// A difference without its sign: relative to A, or in percentage points.
pub(crate) fn size(metric: &ComparedMetric, difference: f64) -> String {
    let percent = 100.0 * difference;
    let digits = match percent.abs() {
        p if p < 0.995 => 2,
        p if p < 99.95 => 1,
        _ => 0,
    };
    let unit = if metric.relative { "%" } else { "percentage points" };
    format!("{percent:.digits$} {unit}")
}

/// A difference with its sign.
pub(crate) fn signed(metric: &ComparedMetric, difference: f64) -> String {
    let text = size(metric, difference);
    if text.starts_with('-') { text } else { format!("+{text}") }
}

/// Heads of the table of metrics.
pub(crate) const HEAD: [&str; 6] = ["", "A", "B", "B vs. A", "interval", "difference"];
