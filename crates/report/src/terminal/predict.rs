//! A prediction on the terminal.

use schema::{PredictDocument, PredictPart};

use super::{Style, judged, table};
use crate::figures::{count, duration_f64, rate, share};
use crate::predict;
use crate::predict_parts::{BESIDE_HEAD, PART_HEAD, TERM_HEAD, beside_rows, part_row, term_rows};

/// The verdict, the result in a sentence, limits, demands, response time against load, what it means, and what it supposes.
pub fn predict(document: &PredictDocument, style: Style) -> String {
    let part = &document.predict;
    let mut tables = vec![
        grid(
            &["bound by", "rate", "95 %", "by"],
            part.limits.iter().map(|limit| predict::limit_row(limit).to_vec()),
            style,
        ),
        grid(
            &["processor time of", "a request", "loads", "each", "95 %"],
            predict::demands(part, "processes").map(|demand| predict::demand_row(demand).to_vec()),
            style,
        ),
        grid(&PART_HEAD, part.components.iter().map(part_row), style),
        grid(&TERM_HEAD, part.component_sum.iter().flat_map(term_rows), style),
        grid(&BESIDE_HEAD, beside_rows(part).into_iter(), style),
        curve(part, style),
        users(part, style),
    ];
    tables.retain(|table| !table.is_empty());
    let mut plans = predict::plans(part);
    plans.extend(part.component_sum.iter().map(|sum| format!("The server that was added up: {}.", sum.described)));
    // Where a sum is all there is, what it supposes stands there already.
    let of_sum = part.component_sum.iter().flat_map(|sum| &sum.assumes).filter(|text| !part.assumes.contains(text));
    let of_sum = of_sum.map(|text| format!("supposed of the parts: {text}"));
    let assumes: Vec<String> = part.assumes.iter().map(|text| format!("supposed: {text}")).chain(of_sum).collect();
    let reasons = part.reasons.iter().chain(&part.notes);
    let notes: Vec<&str> = plans.iter().chain(reasons).chain(&assumes).map(String::as_str).collect();
    judged(&document.run, &document.validity, &predict::answer(document), &tables.join("\n"), &notes, style)
}

fn grid(head: &[&str], rows: impl Iterator<Item = Vec<String>>, style: Style) -> String {
    let rows: Vec<Vec<String>> = rows.collect();
    if rows.is_empty() { String::new() } else { table(head, &rows, style) }
}

fn curve(part: &PredictPart, style: Style) -> String {
    let time = |seconds: f64| duration_f64(seconds * 1e9);
    let rows = part.curve.iter().map(|point| {
        vec![rate(point.rate_per_s), share(point.busy), time(point.mean_s), time(point.p50_s), time(point.p99_s)]
    });
    grid(&["offered", "busy", "mean", "p50", "p99"], rows, style)
}

fn users(part: &PredictPart, style: Style) -> String {
    let rows = part.closed.iter().map(|point| {
        vec![count(point.users.into()), rate(point.rate_per_s), duration_f64(point.response_s * 1e9), share(point.busy)]
    });
    grid(&["users", "rate", "mean wait", "busy"], rows, style)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_stands_on_one_screen() {
        let text = predict(&crate::predict::tests::sample(), Style::PLAIN);
        for wanted in [
            "100.0/s foretold",
            "the cores",
            "2.00 ms",
            "held",
            "2,880,000 requests a day",
            "supposed: One resource binds.",
        ] {
            assert!(text.contains(wanted), "{wanted}\n{text}");
        }
        assert!(!text.contains("users") && !text.contains("added up"), "{text}");
        let mut document = crate::predict::tests::sample();
        document.predict = crate::predict_parts::tests::with_sum(document.predict);
        let text = predict(&document, Style::PLAIN);
        for wanted in
            ["part, alone", "parts, added up", "demands of the server", "The server that was added up: one loop"]
        {
            assert!(text.contains(wanted), "{wanted}\n{text}");
        }
    }
}
