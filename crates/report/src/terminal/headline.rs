//! The verdict, and every check that is not green.

use schema::document::{Check, CheckState, Document, Slo, Verdict, Weight};

use super::page::{Ink, Page, padded};
use crate::phrases;

pub(super) fn print(page: &mut Page, document: &Document) {
    let (word, ink) = match document.validity.verdict {
        Verdict::Valid => ("VALID", Ink::Good),
        Verdict::Suspect => ("SUSPECT", Ink::Doubtful),
        Verdict::Invalid => ("INVALID", Ink::Bad),
    };
    let sentence = document.load.as_ref().map(phrases::answer).unwrap_or_default();
    let front = padded(word, WORD);
    page.marked(&[(&front, ink)], WORD, &format!("{}{sentence}", meaning(document.validity.verdict)), Ink::Strong);
    if document.run.interrupted {
        let text = format!(
            "Stopped early, after {}: what was measured until then is below.",
            phrases::span(document.run.duration_s)
        );
        page.marked(&[(&padded("", WORD), Ink::Plain)], WORD, &text, Ink::Doubtful);
    }
    checks(page, &document.validity.checks);
    if let Some(slo) = &document.slo {
        objective(page, slo);
        let requests = document.load.as_ref().map_or(0, |load| load.response_time_ns.count);
        if let Some(guess) = phrases::guesses(slo, requests) {
            page.marked(&[(&padded("", WORD), Ink::Plain)], WORD, &guess, Ink::Doubtful);
        }
    }
    page.blank();
}

fn meaning(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Valid => "",
        Verdict::Suspect => "Read the doubts below before you use this. ",
        Verdict::Invalid => "Do not use these figures: see why below. ",
    }
}

fn checks(page: &mut Page, checks: &[Check]) {
    let applies: Vec<&Check> = checks.iter().filter(|check| check.state != CheckState::NotApplicable).collect();
    let held = applies.iter().filter(|check| check.state == CheckState::Ok).count();
    let not_green = || applies.iter().filter(|check| check.state != CheckState::Ok);
    for check in not_green() {
        let (word, ink) = match (check.state, check.weight) {
            (CheckState::CouldNotRun, _) => ("not run", Ink::Doubtful),
            (_, Weight::Suspect) => ("doubt", Ink::Doubtful),
            (_, Weight::Invalid) => ("failed", Ink::Bad),
        };
        let text = format!("{}{}: {}", phrases::check_name(check), compared(check), check.why);
        page.marked(&[(&padded(word, WORD), ink)], WORD, &text, Ink::Plain);
    }
    let text = match (applies.len(), not_green().count()) {
        (0, _) => "No check applies to this run.".to_owned(),
        (1, 0) => "The one check that applies held.".to_owned(),
        (all, 0) => format!("All {all} checks that apply held."),
        (_, _) if held == 0 => return,
        (all, _) => format!("The other {held} of {all} checks held."),
    };
    page.marked(&[(&padded("", WORD), Ink::Plain)], WORD, &text, Ink::Label);
}

/// ` 12.3 ms, limit 1 ms`, as far as both are known.
fn compared(check: &Check) -> String {
    let value = check.value.map(|value| format!(" {}", phrases::measure(value, &check.unit)));
    let limit = check.limit.map(|limit| format!(", limit {}", phrases::limit(limit, &check.unit)));
    value.map(|value| value + &limit.unwrap_or_default()).unwrap_or_default()
}

fn objective(page: &mut Page, slo: &Slo) {
    let (word, ink) = if slo.met { ("met", Ink::Good) } else { ("NOT MET", Ink::Bad) };
    page.marked(&[(&padded(word, WORD), ink)], WORD, &format!("objective: {}", slo.objective), Ink::Plain);
    for term in slo.terms.iter().filter(|term| !term.met) {
        let text = format!("{} was not held: {}", term.term, phrases::measure(term.value, &term.unit));
        page.marked(&[(&padded("", WORD), Ink::Plain)], WORD, &text, Ink::Plain);
    }
}

/// Column of the verdict's word.
const WORD: usize = 9;
