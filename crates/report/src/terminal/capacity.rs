//! The result of `capacity` on the terminal.

use schema::{CapacityDocument, TrialPart};

use super::{Style, judged, table};
use crate::capacity;
use crate::figures::plain;

/// Verdict and result, further figures, every trial, distances, findings and notes.
pub fn capacity(document: &CapacityDocument, style: Style) -> String {
    let part = &document.capacity;
    let further: Vec<Vec<String>> =
        capacity::further(part).into_iter().map(|(name, words)| vec![name.to_owned(), words]).collect();
    let mut text = String::new();
    for line in &further {
        text += &format!("  {:<15} {}\n", line[0], plain(&line[1]));
    }
    let shown = |trial: &&TrialPart| trial.stage != "limit";
    let trials: Vec<Vec<String>> = part
        .trials
        .iter()
        .filter(shown)
        .map(|trial| capacity::trial(trial, &part.unit).into_iter().take(7).collect())
        .collect();
    for (head, rows) in [
        (&capacity::TRIALS[..7], trials),
        (&capacity::EACH[..], part.each.iter().map(|each| capacity::distance(each, &part.unit)).collect::<Vec<_>>()),
    ] {
        if !rows.is_empty() {
            if !text.is_empty() {
                text.push('\n');
            }
            text += &table(head, &rows, style);
        }
    }
    let findings: Vec<String> =
        part.findings.iter().map(|finding| format!("{}: {}.", finding.name, finding.words)).collect();
    let notes: Vec<&str> = findings.iter().chain(&part.notes).map(String::as_str).collect();
    judged(&document.run, &document.validity, &capacity::answer(document), &text, &notes, style)
}

/// One line about a trial during a search; `unit` is that of the search: `1/s`, `users` or `connections`.
pub fn capacity_trial(trial: &TrialPart, bracket: (Option<f64>, Option<f64>), unit: &str) -> String {
    plain(&capacity::line(trial, bracket, unit))
}
