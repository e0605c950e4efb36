//! Sentences: the result, and the text for screen readers.

use schema::{Quantiles, RunPhase, Verdict};

use super::super::follow::Records;
use super::super::state::Fact;
use super::{progress, status};
use crate::durations;
use crate::figures::{count, share};
use crate::phrases::{answer, total};
use crate::run_page;

/// The result in one sentence, or the progress.
pub(super) fn lead(records: &Records) -> String {
    if let Some(document) = records.document() {
        return match (&document.load, &document.watch) {
            (Some(load), _) => answer(load),
            (None, Some(watch)) => run_page::wire_answer(watch),
            (None, None) => String::new(),
        };
    }
    let Some(progress) = &records.progress else {
        return match records.phase() {
            RunPhase::Killed => {
                "The run was killed, or could not write its summary. Its data so far is shown.".to_owned()
            }
            _ => "The run has not written any data yet.".to_owned(),
        };
    };
    let killed = match progress.phase {
        RunPhase::Killed => "The run was killed, or could not write its summary. ",
        _ => "",
    };
    if let Some(load) = &progress.load {
        let failed = total(&load.failed);
        let ended = load.completed.saturating_add(failed);
        let failures = match failed {
            0 => "none failed".to_owned(),
            _ => format!("{} failed", share(failed as f64 / ended.max(1) as f64)),
        };
        let q = &load.response_time_ns;
        return match (ended, q.count) {
            (0, _) => format!("{killed}No request of the measured phase has ended yet."),
            (_, 0) => format!("{killed}{} requests; no responses; {failures}.", count(ended)),
            _ => format!(
                "{killed}{} requests so far; median {}, p99 {}; {failures}.",
                count(ended),
                times(q)[0],
                times(q)[1]
            ),
        };
    }
    if let Some(watch) = &progress.watch {
        return format!(
            "{killed}{} packets of {} so far: {} requests, {} responses.",
            count(watch.packets),
            watch.source,
            count(watch.requests),
            count(watch.responses)
        );
    }
    if let Some(path) = &progress.path {
        return format!("{killed}{} packets through the path so far.", count(path.packets));
    }
    progress.step.clone().unwrap_or_else(|| killed.trim_end().to_owned())
}

/// p50 and p99 in one unit.
fn times(q: &Quantiles) -> Vec<String> {
    durations::in_one_unit(&[q.p50 as f64, q.p99 as f64])
}

/// Two sentences for screen readers: the state, and the headline figures.
pub(super) fn spoken(records: &Records, facts: &[Fact]) -> String {
    let mut text = status(records).word;
    if let Some(progress) = progress(records) {
        text.push_str(&format!(", {}", progress.text));
    }
    if let Some(validity) = records.validity().filter(|_| records.is_over()) {
        text.push_str(&format!(", {}", verdict(validity.verdict).0.to_lowercase()));
    }
    text.push('.');
    for fact in facts.iter().filter(|fact| fact.value.is_some()) {
        text.push_str(&format!(" {} {}.", fact.name, fact.text));
    }
    text
}

/// Word and colour of a verdict.
pub(super) fn verdict(verdict: Verdict) -> (&'static str, &'static str) {
    match verdict {
        Verdict::Valid => ("Valid", "good"),
        Verdict::Suspect => ("Suspect", "doubt"),
        Verdict::Invalid => ("Invalid", "bad"),
    }
}
