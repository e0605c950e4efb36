//! Which runs a search means.

use store::{RunEntry, RunState};

use crate::args::{Search, StateName, VerdictName};

/// Keeps of a list what the search means.
pub fn keep(entries: &mut Vec<RunEntry>, search: &Search) {
    let words: Vec<String> = search.words.iter().map(|word| word.to_lowercase()).collect();
    entries.retain(|entry| means(search, &words, entry));
    if let Some(last) = search.last {
        entries.drain(..entries.len().saturating_sub(last));
    }
}

fn means(search: &Search, words: &[String], entry: &RunEntry) -> bool {
    let brief = match &entry.state {
        RunState::Finished(brief) => Some(brief),
        _ => None,
    };
    let moment = entry.id.get(..MOMENT).unwrap_or_default();
    let verdict = |name: VerdictName| {
        let wanted = match name {
            VerdictName::Valid => "valid",
            VerdictName::Suspect => "suspect",
            VerdictName::Invalid => "invalid",
        };
        brief.is_some_and(|brief| brief.verdict.name() == wanted)
    };
    let state = |name: StateName| match name {
        StateName::Finished => matches!(entry.state, RunState::Finished(_)),
        StateName::Running => matches!(entry.state, RunState::Running { .. }),
        StateName::Unfinished => matches!(entry.state, RunState::Unfinished { .. }),
        StateName::Unreadable => matches!(entry.state, RunState::Unreadable { .. }),
    };
    let text = || {
        let command = brief.map_or("", |brief| &brief.command);
        format!("{} {command} {}", entry.id, entry.tags.join(" ")).to_lowercase()
    };
    search.since.as_ref().is_none_or(|since| moment >= since.first.as_str())
        && search.until.as_ref().is_none_or(|until| moment <= until.last.as_str())
        && search.tag.iter().all(|tag| entry.tags.contains(tag))
        && search.verdict.is_none_or(verdict)
        && search.state.is_none_or(state)
        && search.verb.as_ref().is_none_or(|verb| brief.is_some_and(|brief| brief.verb() == verb))
        && search.conditions.iter().all(|condition| brief.is_some_and(|brief| condition.holds(brief)))
        && (words.is_empty() || {
            let text = text();
            words.iter().all(|word| text.contains(word.as_str()))
        })
}

/// Length of `yyyymmdd-hhmmss` at the front of a run's name.
const MOMENT: usize = 15;
