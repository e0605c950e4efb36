//! The result of `predict` on the terminal.

use schema::{PredictDocument, PredictPart};

use super::{Style, judged, table};
use crate::durations;
use crate::figures::{count, duration_f64, rate, share};
use crate::predict;
use crate::predict_components::{
    COMPARISON_HEAD, COMPONENT_HEAD, TERM_HEAD, comparison_rows, component_row, term_rows,
};

/// Verdict and result, limits, service demands, response time against load, consequences, assumptions.
pub fn predict(document: &PredictDocument, style: Style) -> String {
    let part = &document.predict;
    let mut tables = vec![
        grid(
            &["limited by", "rate", "95 %", "reason"],
            part.limits.iter().map(|limit| predict::limit_row(limit).to_vec()),
            style,
        ),
        grid(
            &["CPU time of", "per request", "loads", "each", "95 %"],
            predict::demands(part, "processes").map(|demand| predict::demand_row(demand).to_vec()),
            style,
        ),
        grid(&COMPONENT_HEAD, part.components.iter().map(component_row), style),
        grid(&TERM_HEAD, part.component_sum.iter().flat_map(term_rows), style),
        grid(&COMPARISON_HEAD, comparison_rows(part).into_iter(), style),
        curve(part, style),
        users(part, style),
    ];
    tables.retain(|table| !table.is_empty());
    let mut plans = predict::plans(part);
    plans.extend(part.component_sum.iter().map(|sum| format!("Modelled server: {}.", sum.described)));
    // A prediction from components only has these assumptions already.
    let of_sum = part.component_sum.iter().flat_map(|sum| &sum.assumes).filter(|text| !part.assumes.contains(text));
    let of_sum = of_sum.map(|text| format!("assumed about components: {text}"));
    let assumes: Vec<String> = part.assumes.iter().map(|text| format!("assumed: {text}")).chain(of_sum).collect();
    let reasons = part.reasons.iter().chain(&part.notes);
    let notes: Vec<&str> = plans.iter().chain(reasons).chain(&assumes).map(String::as_str).collect();
    judged(&document.run, &document.validity, &predict::answer(document), &tables.join("\n"), &notes, style)
}

fn grid(head: &[&str], rows: impl Iterator<Item = Vec<String>>, style: Style) -> String {
    let rows: Vec<Vec<String>> = rows.collect();
    if rows.is_empty() { String::new() } else { table(head, &rows, style) }
}

fn curve(part: &PredictPart, style: Style) -> String {
    let rows = part.curve.iter().map(|point| {
        let times = durations::in_one_unit(&[point.mean_s, point.p50_s, point.p99_s].map(|seconds| seconds * 1e9));
        [vec![rate(point.rate_per_s), share(point.busy)], times].concat()
    });
    grid(&["offered", "busy", "mean", "p50", "p99"], rows, style)
}

fn users(part: &PredictPart, style: Style) -> String {
    let rows = part.closed.iter().map(|point| {
        vec![count(point.users.into()), rate(point.rate_per_s), duration_f64(point.response_s * 1e9), share(point.busy)]
    });
    grid(&["users", "rate", "mean response", "busy"], rows, style)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn screen_has_result_limits_and_components_if_measured() {
        let text = predict(&crate::predict::tests::sample(), Style::PLAIN);
        for expected in [
            "100.0/s predicted",
            "the cores",
            "2.00 ms",
            "saturated",
            "2,880,000 requests a day",
            "assumed: One resource binds.",
        ] {
            assert!(text.contains(expected), "{expected}\n{text}");
        }
        assert!(!text.contains("users") && !text.contains("sum of components"), "{text}");
        let mut document = crate::predict::tests::sample();
        document.predict = crate::predict_components::tests::with_sum(document.predict);
        let text = predict(&document, Style::PLAIN);
        for expected in ["component", "sum of components", "service demands", "Modelled server: one loop"] {
            assert!(text.contains(expected), "{expected}\n{text}");
        }
    }
}
