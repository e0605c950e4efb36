//! Sentences: the answer, and what is read aloud.

use schema::{RunPhase, Verdict};

use super::super::follow::Records;
use super::super::state::Fact;
use super::{progress, status};
use crate::figures::{count, duration, share};
use crate::phrases::{answer, total};
use crate::run_page;

/// The answer in one sentence, or how far it is.
pub(super) fn lead(records: &Records) -> String {
    if let Some(document) = records.document() {
        return match (&document.load, &document.watch) {
            (Some(load), _) => answer(load),
            (None, Some(watch)) => run_page::wire_answer(watch),
            (None, None) => String::new(),
        };
    }
    let Some(standing) = &records.standing else {
        return match records.phase() {
            RunPhase::Killed => "It was killed, or could not write its end. What it had written is shown.".to_owned(),
            _ => "It has not written anything yet.".to_owned(),
        };
    };
    let killed = match standing.phase {
        RunPhase::Killed => "It was killed, or could not write its end; so far: ",
        _ => "",
    };
    if let Some(load) = &standing.load {
        let failed = total(&load.failed);
        let ended = load.completed.saturating_add(failed);
        let failures = match failed {
            0 => "none failed".to_owned(),
            _ => format!("{} failed", share(failed as f64 / ended.max(1) as f64)),
        };
        let q = &load.response_time_ns;
        return match (ended, q.count) {
            (0, _) => format!("{killed}No request of the measured phase has ended yet."),
            (_, 0) => format!("{killed}{} requests; nothing was answered; {failures}.", count(ended)),
            _ => format!(
                "{killed}{} requests so far; half within {}, 99 % within {}; {failures}.",
                count(ended),
                duration(q.p50),
                duration(q.p99)
            ),
        };
    }
    if let Some(watch) = &standing.watch {
        return format!(
            "{killed}{} packets of {} so far: {} requests, {} responses.",
            count(watch.packets),
            watch.source,
            count(watch.requests),
            count(watch.responses)
        );
    }
    if let Some(path) = &standing.path {
        return format!("{killed}{} packets through the path so far.", count(path.packets));
    }
    standing.step.clone().unwrap_or_else(|| killed.trim_end_matches("; so far: ").to_owned())
}

/// Two sentences for those who hear the page: where it is, and the headline figures.
pub(super) fn aloud(records: &Records, facts: &[Fact]) -> String {
    let mut said = status(records).word;
    if let Some(progress) = progress(records) {
        said.push_str(&format!(", {}", progress.text));
    }
    if let Some(validity) = records.validity().filter(|_| records.is_over()) {
        said.push_str(&format!(", {}", verdict(validity.verdict).0.to_lowercase()));
    }
    said.push('.');
    for fact in facts.iter().filter(|fact| fact.value.is_some()) {
        said.push_str(&format!(" {} {}.", fact.name, fact.text));
    }
    said
}

/// A verdict's word and colour.
pub(super) fn verdict(verdict: Verdict) -> (&'static str, &'static str) {
    match verdict {
        Verdict::Valid => ("Valid", "good"),
        Verdict::Suspect => ("Suspect", "doubt"),
        Verdict::Invalid => ("Invalid", "bad"),
    }
}
