//! Selects the runs that match a search.

use store::{RunEntry, RunState};

use crate::args::{Search, StateName, VerdictName};

/// Removes the runs that do not match the search from a list.
pub fn retain_matching(entries: &mut Vec<RunEntry>, search: &Search) {
    let words: Vec<String> = search.words.iter().map(|word| word.to_lowercase()).collect();
    entries.retain(|entry| matches(search, &words, entry));
    if let Some(last) = search.last {
        entries.drain(..entries.len().saturating_sub(last));
    }
}

fn matches(search: &Search, words: &[String], entry: &RunEntry) -> bool {
    let brief = match &entry.state {
        RunState::Finished(brief) => Some(brief),
        _ => None,
    };
    let verdict = |name: VerdictName| {
        let expected = match name {
            VerdictName::Valid => "valid",
            VerdictName::Suspect => "suspect",
            VerdictName::Invalid => "invalid",
        };
        brief.is_some_and(|brief| brief.verdict.name() == expected)
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
    search.since.as_ref().is_none_or(|since| entry.started() >= since.first.as_str())
        && search.until.as_ref().is_none_or(|until| entry.started() <= until.last.as_str())
        && search.tag.iter().all(|tag| entry.tags.contains(tag))
        && search.verdict.is_none_or(verdict)
        && search.state.is_none_or(state)
        && search.verb.as_ref().is_none_or(|verb| brief.is_some_and(|brief| brief.verb() == verb))
        && search.conditions.iter().all(|condition| brief.is_some_and(|brief| condition.is_met(brief)))
        && (words.is_empty() || {
            let text = text();
            words.iter().all(|word| text.contains(word.as_str()))
        })
}
