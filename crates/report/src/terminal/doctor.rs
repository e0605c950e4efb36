//! What a machine can and cannot do, on one screen or two.

use schema::DoctorDocument;
use schema::doctor::{Ability, AbilityState, Area, Finding, Measured, State};

use super::Style;
use super::page::{Ink, Page, padded};
use super::places;
use crate::figures::{count, duration, round_duration};

/// The document of `doctor`: the answer, the verbs, then the findings by area, and what was measured.
pub fn doctor(document: &DoctorDocument, style: Style) -> String {
    let mut page = Page::new(style);
    headline(&mut page, document);
    page.blank();
    for ability in &document.verbs {
        verb(&mut page, ability);
    }
    for area in Area::ALL {
        let mut found = document.findings.iter().filter(|finding| finding.area == area).peekable();
        if found.peek().is_some() {
            page.blank();
            page.line(&[("  ", Ink::Plain), (area.name(), Ink::Strong)]);
        }
        found.for_each(|finding| print(&mut page, finding));
    }
    if let Some(measured) = &document.measured {
        times(&mut page, measured);
    }
    places::host(&mut page, &document.host);
    page.into_text()
}

fn headline(page: &mut Page, document: &DoctorDocument) {
    let with = |state| document.verbs.iter().filter(move |ability| ability.state == state);
    let names = |state| with(state).map(|ability| ability.verb.as_str()).collect::<Vec<_>>().join("; ");
    let mut sentence = match names(AbilityState::No) {
        names if names.is_empty() => "Everything works here.".to_owned(),
        names => format!("Does not work here: {names}."),
    };
    let in_part = names(AbilityState::InPart);
    if !in_part.is_empty() {
        sentence.push_str(&format!(" In part: {in_part}."));
    }
    let all_works = document.verbs.iter().all(|ability| ability.state == AbilityState::Works);
    let (word, ink) = match (document.ready(), all_works) {
        (true, true) => ("READY", Ink::Good),
        (true, false) => ("READY", Ink::Doubtful),
        (false, _) => ("LACKING", Ink::Bad),
    };
    page.marked(&[(&padded(word, WORD), ink)], WORD, &sentence, Ink::Strong);
    let notes = document.findings.iter().filter(|finding| finding.state == State::WorthKnowing).count();
    if notes > 0 {
        let verb = if notes == 1 { "thing is" } else { "things are" };
        let text = format!("{} {verb} worth knowing, marked `note`.", count(notes as u64));
        page.marked(&[(&padded("", WORD), Ink::Plain)], WORD, &text, Ink::Plain);
    }
}

fn verb(page: &mut Page, ability: &Ability) {
    let ink = match ability.state {
        AbilityState::Works => Ink::Good,
        AbilityState::InPart => Ink::Doubtful,
        AbilityState::No => Ink::Bad,
    };
    named(page, ability.state.name(), ink, &ability.verb, &ability.about);
    if !ability.why.is_empty() {
        below(page, "why", &ability.why);
    }
    if let Some(mend) = &ability.mend {
        below(page, "mend", mend);
    }
}

fn print(page: &mut Page, finding: &Finding) {
    let (word, ink) = match finding.state {
        State::Fine => ("fine", Ink::Good),
        State::WorthKnowing => ("note", Ink::Doubtful),
        State::Lacking => ("lacking", Ink::Bad),
    };
    named(page, word, ink, &finding.name, &finding.found);
    if !finding.touches.is_empty() {
        below(page, "touches", &finding.touches.join("; "));
    }
    if let Some(mend) = &finding.mend {
        below(page, "mend", mend);
    }
}

/// State, name and text on one line; the text under the name where the page is narrow.
fn named(page: &mut Page, word: &str, ink: Ink, name: &str, text: &str) {
    let word = padded(word, WORD);
    if page.width() < WIDE {
        page.marked(&[(&word, ink)], WORD, name, Ink::Label);
        page.marked(&[(&padded("", INNER), Ink::Plain)], INNER, text, Ink::Plain);
    } else {
        page.marked(&[(&word, ink), (&padded(name, NAME), Ink::Label)], WORD + NAME, text, Ink::Plain);
    }
}

/// A line that belongs to the one above.
fn below(page: &mut Page, label: &str, text: &str) {
    let front = format!("{}{}", " ".repeat(INNER), padded(label, TOUCHES));
    page.marked(&[(&front, Ink::Label)], INNER + TOUCHES, text, Ink::Plain);
}

fn times(page: &mut Page, measured: &Measured) {
    page.blank();
    let mut rows: Vec<Vec<String>> = Vec::new();
    let mut row = |name: String, q: &schema::Quantiles| {
        rows.push(vec![name, duration(q.p50), duration(q.p99), duration(q.max), count(q.count)]);
    };
    for wake_up in &measured.wake_up {
        row(format!("late: {}, {} ahead", wake_up.wait, round_duration(wake_up.ahead_ns)), &wake_up.late_ns);
    }
    row("clock reading".into(), &measured.clock_read_ns);
    if let Some(writes) = &measured.tun_write_ns {
        row("TUN write".into(), writes);
    }
    page.table(&["measured", "p50", "p99", "max", "of"], &rows);
}

/// Column of states.
const WORD: usize = 9;
/// Column of names: the longest is that of a verb.
const NAME: usize = 24;
/// Indent of lines that belong to the one above.
const INNER: usize = WORD + 2;
/// Column of what such a line is.
const TOUCHES: usize = 8;
/// Pages narrower than this have no room for names beside the text.
const WIDE: usize = 80;
