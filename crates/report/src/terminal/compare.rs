//! Two runs or two servers beside each other.

use ledger::compare_part::{CompareSide, ComparedMetric};
use ledger::{CompareDocument, ComparePart, CompareVerdict};

use super::{Style, judged, table};
use crate::figures;

/// A comparison on one screen: the answer in a sentence, then every metric.
pub fn compare(document: &CompareDocument, style: Style) -> String {
    let part = &document.compare;
    let mut body = sides(part);
    let rows: Vec<Vec<String>> = part.metrics.iter().map(row).collect();
    let head = ["", "A", "B", "B against A", "interval", "shown"];
    body += &table(&head, &rows, style);
    let notes = [how(part), differing(part), failing(part)].into_iter().flatten().chain(part.notes.iter().cloned());
    let notes: Vec<String> = notes.collect();
    let notes: Vec<&str> = notes.iter().map(String::as_str).collect();
    judged(&document.run, &document.validity, &answer(part), &body, &notes, style)
}

/// The metric that decides, in a sentence.
fn answer(part: &ComparePart) -> String {
    let Some(metric) = part.headline() else {
        return format!("{}: neither side has it.", part.by);
    };
    let name = words(metric);
    match (metric.verdict, metric.difference, metric.interval) {
        (CompareVerdict::NoDifferenceShown, ..) => match metric.could_have_seen {
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

fn sides(part: &ComparePart) -> String {
    let side = |name: &str, side: &CompareSide| {
        let runs = match (part.method.as_str(), side.counted) {
            ("one_run", _) | (_, 1) => String::new(),
            (_, counted) => format!(" ({counted} runs)"),
        };
        format!("  {name}  {}{runs}\n", figures::plain(&side.what))
    };
    side("A", &part.a) + &side("B", &part.b) + "\n"
}

fn row(metric: &ComparedMetric) -> Vec<String> {
    let figure = |figure: Option<f64>| figure.map(|figure| of_unit(&metric.unit, figure)).unwrap_or_default();
    let interval = metric.interval.map(|[low, high]| format!("{} to {}", signed(metric, low), signed(metric, high)));
    let shown = match (metric.verdict, metric.could_have_seen) {
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

fn how(part: &ComparePart) -> Option<String> {
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

fn differing(part: &ComparePart) -> Option<String> {
    let value = |value: &Option<String>| value.as_deref().map_or("nothing".to_owned(), figures::plain);
    let fields: Vec<String> = part
        .plans_differ
        .iter()
        .map(|one| format!("{} ({} and {})", figures::plain(&one.field), value(&one.a), value(&one.b)))
        .collect();
    (!fields.is_empty()).then(|| format!("The plans differ in {}.", fields.join(", ")))
}

fn failing(part: &ComparePart) -> Option<String> {
    let terms = part.fail_if.iter().map(|term| {
        let state = match term.failed {
            Some(true) => "FAILED",
            Some(false) => "not so, as far as is shown",
            None => "not known",
        };
        format!("{}: {state}", term.term)
    });
    let terms: Vec<String> = terms.collect();
    (!terms.is_empty()).then(|| format!("Asked to fail if {}.", terms.join("; ")))
}

fn words(metric: &ComparedMetric) -> &'static str {
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

fn of_unit(unit: &str, figure: f64) -> String {
    match unit {
        "ns" => figures::duration_f64(figure),
        "us" => figures::duration_f64(figure * 1e3),
        "1/s" => figures::rate(figure),
        "bytes" => figures::bytes(figure.max(0.0).round() as u64),
        _ => figures::share(figure),
    }
}

/// A difference without its sign: a share of A's figure, or percent points of requests.
fn size(metric: &ComparedMetric, difference: f64) -> String {
    let percent = 100.0 * difference;
    let digits = match percent.abs() {
        p if p < 0.995 => 2,
        p if p < 99.95 => 1,
        _ => 0,
    };
    let unit = if metric.relative { "%" } else { "points of %" };
    format!("{percent:.digits$} {unit}")
}

fn signed(metric: &ComparedMetric, difference: f64) -> String {
    let text = size(metric, difference);
    if text.starts_with('-') { text } else { format!("+{text}") }
}

#[cfg(test)]
mod tests {
    use ledger::Validity;
    use ledger::document::Run;

    use super::*;

    fn metric(short: &str, unit: &str, [a, b]: [f64; 2], interval: Option<[f64; 2]>) -> ComparedMetric {
        let verdict = match interval {
            None => CompareVerdict::NotKnown,
            Some([_, high]) if high < 0.0 => CompareVerdict::Less,
            Some([low, _]) if low > 0.0 => CompareVerdict::More,
            Some(_) => CompareVerdict::NoDifferenceShown,
        };
        ComparedMetric {
            name: short.to_owned(),
            short: short.to_owned(),
            unit: unit.to_owned(),
            a: Some(a),
            b: Some(b),
            relative: short != "errors",
            difference: Some(if short == "errors" { b - a } else { b / a - 1.0 }),
            interval,
            confidence: interval.map(|_| 0.95),
            p: None,
            verdict,
            could_have_seen: interval.map(|[low, high]| (high - low) / 2.0),
        }
    }

    fn shown(metrics: Vec<ComparedMetric>) -> String {
        let part = ComparePart {
            method: "blocks".to_owned(),
            confidence: 0.95,
            by: metrics[0].name.clone(),
            a: CompareSide { what: "one --fast".to_owned(), counted: 24, ..CompareSide::default() },
            b: CompareSide { what: "two\u{1b}[31m".to_owned(), counted: 24, ..CompareSide::default() },
            metrics,
            ..ComparePart::default()
        };
        let document = CompareDocument {
            schema: String::new(),
            run: Run::default(),
            validity: Validity::from_checks(Vec::new()),
            compare: part,
        };
        compare(&document, Style::PLAIN)
    }

    #[test]
    fn answers_in_a_sentence() {
        let none = shown(vec![metric("mean", "ns", [1e6, 1.002e6], Some([-0.012, 0.016]))]);
        assert!(
            none.contains("mean response time: no difference shown; one of 1.4 % or more would have been."),
            "{none}"
        );
        assert!(none.contains("one --fast (24 runs)") && !none.contains('\u{1b}'), "{none}");
        let less = shown(vec![metric("mean", "ns", [1e6, 0.9e6], Some([-0.12, -0.08]))]);
        assert!(less.contains("mean response time: B's is 10.0 % less than A's (8.0 % to 12.0 %)."), "{less}");
        let more = shown(vec![metric("rate", "1/s", [100.0, 105.0], Some([0.031, 0.068]))]);
        assert!(more.contains("carried rate: B's is 5.0 % more than A's (3.1 % to 6.8 %)."), "{more}");
        let unknown = shown(vec![metric("memory", "bytes", [1e6, 2e6], None)]);
        assert!(unknown.contains("nobody can say") && unknown.contains("not known"), "{unknown}");
    }

    #[test]
    fn every_metric_has_its_unit() {
        let text = shown(vec![
            metric("mean", "ns", [1.5e6, 1.5e6], Some([-0.01, 0.01])),
            metric("cpu", "us", [20.0, 25.0], Some([0.1, 0.4])),
            metric("errors", "ratio", [0.001, 0.011], Some([0.002, 0.018])),
        ]);
        for words in ["1.50 ms", "25.0 us", "+25.0 %", "1.1 %", "+1.0 points of %", "nothing of 1.0 % or more", "more"]
        {
            assert!(text.contains(words), "{words}\n{text}");
        }
    }
}
