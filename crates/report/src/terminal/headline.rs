//! The verdict, and every check that is not green.

use ledger::document::{Check, CheckState, Document, Load, Slo, Verdict, Weight};

use super::page::{Ink, Page, padded};
use crate::figures;

pub(super) fn print(page: &mut Page, document: &Document) {
    let (word, ink) = match document.validity.verdict {
        Verdict::Valid => ("VALID", Ink::Good),
        Verdict::Suspect => ("SUSPECT", Ink::Doubtful),
        Verdict::Invalid => ("INVALID", Ink::Bad),
    };
    let sentence = document.load.as_ref().map(sentence).unwrap_or_default();
    let front = padded(word, WORD);
    page.marked(&[(&front, ink)], WORD, &format!("{}{sentence}", meaning(document.validity.verdict)), Ink::Strong);
    if document.run.interrupted {
        let text =
            format!("Stopped early, after {}: what was measured until then is below.", span(document.run.duration_s));
        page.marked(&[(&padded("", WORD), Ink::Plain)], WORD, &text, Ink::Doubtful);
    }
    checks(page, &document.validity.checks);
    if let Some(slo) = &document.slo {
        objective(page, slo);
    }
    page.blank();
}

/// A length in seconds as typed: `60 s`, `12.3 s`.
pub(super) fn span(seconds: f64) -> String {
    let seconds = if seconds.is_finite() { seconds.max(0.0) } else { 0.0 };
    if seconds.fract() == 0.0 && seconds < 1e9 { format!("{seconds} s") } else { figures::duration_f64(seconds * 1e9) }
}

fn meaning(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Valid => "",
        Verdict::Suspect => "Read the doubts below before you use this. ",
        Verdict::Invalid => "Do not use these figures: see why below. ",
    }
}

fn sentence(load: &Load) -> String {
    let failed: u64 = load.failed.values().fold(0, |sum, &count| sum.saturating_add(count));
    let failures = match failed {
        0 => "none failed".to_owned(),
        _ => format!("{} failed", figures::share(failed as f64 / load.offered_requests.max(1) as f64)),
    };
    let times = &load.response_time_ns;
    let answered = match times.count {
        0 => "nothing was answered".to_owned(),
        _ => format!("half within {}, 99 % within {}", figures::duration(times.p50), figures::duration(times.p99)),
    };
    let offered = match load.loop_kind.as_str() {
        "open" => format!(" of {} offered", figures::level(load.offered_rate_per_s)),
        _ => String::new(),
    };
    format!("{} requests/s carried{offered}; {answered}; {failures}.", figures::level(load.carried_rate_per_s))
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
        let text = format!("{}{}: {}", check.name.replace('_', " "), compared(check), check.why);
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
    let value = check.value.map(|value| format!(" {}", measure(value, &check.unit)));
    let limit = check.limit.map(|limit| format!(", limit {}", limit_of(limit, &check.unit)));
    value.map(|value| value + &limit.unwrap_or_default()).unwrap_or_default()
}

fn limit_of(limit: f64, unit: &str) -> String {
    if unit == "ns" && limit >= 0.0 { figures::round_duration(limit as u64) } else { measure(limit, unit) }
}

/// A figure with its unit: durations and ratios in their own form.
fn measure(value: f64, unit: &str) -> String {
    match unit {
        "ns" if value < 0.0 => format!("-{}", figures::duration_f64(-value)),
        "ns" => figures::duration_f64(value),
        "ratio" => figures::share(value),
        "" => short(value),
        unit => format!("{} {unit}", short(value)),
    }
}

fn short(value: f64) -> String {
    match value {
        v if v.is_finite() && v.fract() == 0.0 && (0.0..1e18).contains(&v) => figures::count(v as u64),
        v => format!("{v:.3}"),
    }
}

fn objective(page: &mut Page, slo: &Slo) {
    let (word, ink) = if slo.met { ("met", Ink::Good) } else { ("NOT MET", Ink::Bad) };
    page.marked(&[(&padded(word, WORD), ink)], WORD, &format!("objective: {}", slo.objective), Ink::Plain);
    for term in slo.terms.iter().filter(|term| !term.met) {
        let text = format!("{} was not held: {}", term.term, measure(term.value, &term.unit));
        page.marked(&[(&padded("", WORD), Ink::Plain)], WORD, &text, Ink::Plain);
    }
}

/// Column of the verdict's word.
const WORD: usize = 9;
