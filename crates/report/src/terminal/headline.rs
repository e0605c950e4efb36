//! The top of a screen: verdict and result, URL and command, and every check that did not pass.

use schema::document::{Check, CheckState, Document, Load, Run, Slo, Validity, Verdict, Weight};

use super::page::{Ink, Page, padded};
use crate::phrases;

/// The top of a single run's screen; its result is that of the load.
pub(super) fn print(page: &mut Page, document: &Document) {
    let sentence = document.load.as_ref().map(phrases::answer).unwrap_or_default();
    print_result(page, &document.run, &document.validity, document.load.as_ref(), &sentence);
    if let Some(slo) = &document.slo {
        objective(page, slo);
        let requests = document.load.as_ref().map_or(0, |load| load.response_time_ns.count);
        if let Some(warning) = phrases::too_few_requests(slo, requests) {
            page.marked(&[(&padded("", VERDICT_WIDTH), Ink::Plain)], VERDICT_WIDTH, &warning, Ink::Doubtful);
        }
    }
    page.blank();
}

/// Verdict and `sentence` first, then what was measured, then the checks.
pub(super) fn print_result(page: &mut Page, run: &Run, validity: &Validity, load: Option<&Load>, sentence: &str) {
    let (word, ink) = match validity.verdict {
        Verdict::Valid => ("VALID", Ink::Good),
        Verdict::Suspect => ("SUSPECT", Ink::Doubtful),
        Verdict::Invalid => ("INVALID", Ink::Bad),
    };
    let sentence = format!("{}{sentence}", meaning(validity.verdict));
    page.marked(&[(&padded(word, VERDICT_WIDTH), ink)], VERDICT_WIDTH, &sentence, Ink::Strong);
    if run.interrupted {
        let text =
            format!("Interrupted after {}: the figures below cover that time only.", phrases::span(run.duration_s));
        page.marked(&[(&padded("", VERDICT_WIDTH), Ink::Plain)], VERDICT_WIDTH, &text, Ink::Doubtful);
    }
    if let Some(url) = load.and_then(phrases::url) {
        page.verbatim_at(VERDICT_WIDTH, "URL", &url);
    }
    if !run.command.is_empty() {
        page.verbatim_at(VERDICT_WIDTH, "command", &run.command);
    }
    checks(page, &validity.checks);
}

fn meaning(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Valid => "",
        Verdict::Suspect => "Read the warnings below before you use these figures. ",
        Verdict::Invalid => "Do not use these figures: see the failed checks below. ",
    }
}

fn checks(page: &mut Page, checks: &[Check]) {
    let applicable: Vec<&Check> = checks.iter().filter(|check| check.state != CheckState::NotApplicable).collect();
    let passed = applicable.iter().filter(|check| check.state == CheckState::Ok).count();
    let not_passed = || applicable.iter().filter(|check| check.state != CheckState::Ok);
    for check in not_passed() {
        let (word, ink) = match (check.state, check.weight) {
            (CheckState::CouldNotRun, _) => ("not run", Ink::Doubtful),
            (_, Weight::Suspect) => ("warning", Ink::Doubtful),
            (_, Weight::Invalid) => ("failed", Ink::Bad),
        };
        let text = format!("{}{}: {}", phrases::check_name(check), compared(check), check.why);
        page.marked(&[(&padded(word, VERDICT_WIDTH), ink)], VERDICT_WIDTH, &text, Ink::Plain);
    }
    let text = match (applicable.len(), not_passed().count()) {
        (0, _) => "No validity check applies to this run.".to_owned(),
        (1, 0) => "The only applicable validity check passed.".to_owned(),
        (all, 0) => format!("All {all} applicable validity checks passed."),
        (_, _) if passed == 0 => return,
        (all, _) => format!("The other {passed} of {all} validity checks passed."),
    };
    page.marked(&[(&padded("", VERDICT_WIDTH), Ink::Plain)], VERDICT_WIDTH, &text, Ink::Label);
}

/// ` 12.3 ms, limit 1 ms`, as far as both are known.
fn compared(check: &Check) -> String {
    let value = check.value.map(|value| format!(" {}", phrases::measure(value, &check.unit)));
    let limit = check.limit.map(|limit| format!(", limit {}", phrases::limit(limit, &check.unit)));
    value.map(|value| value + &limit.unwrap_or_default()).unwrap_or_default()
}

fn objective(page: &mut Page, slo: &Slo) {
    let (word, ink) = if slo.met { ("met", Ink::Good) } else { ("NOT MET", Ink::Bad) };
    page.marked(
        &[(&padded(word, VERDICT_WIDTH), ink)],
        VERDICT_WIDTH,
        &format!("objective: {}", slo.objective),
        Ink::Plain,
    );
    for term in slo.terms.iter().filter(|term| !term.met) {
        let text = format!("{} was not met: {}", term.term, phrases::measure(term.value, &term.unit));
        page.marked(&[(&padded("", VERDICT_WIDTH), Ink::Plain)], VERDICT_WIDTH, &text, Ink::Plain);
    }
}

/// Width of the column of verdicts.
const VERDICT_WIDTH: usize = 9;
