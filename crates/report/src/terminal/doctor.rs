//! The result of `doctor` on one or two screens.

use schema::DoctorDocument;
use schema::doctor::{Ability, Area, Finding, Measured, State, VerbState};

use super::Style;
use super::environment;
use super::page::{Ink, Page, padded};
use crate::durations;
use crate::figures::{count, round_duration};

/// Summary, verbs, findings by area, measured times.
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
    environment::host(&mut page, &document.host);
    page.into_text()
}

fn headline(page: &mut Page, document: &DoctorDocument) {
    let with = |state| document.verbs.iter().filter(move |ability| ability.state == state);
    let names = |state| with(state).map(|ability| ability.verb.as_str()).collect::<Vec<_>>().join("; ");
    let mut sentence = match names(VerbState::Missing) {
        names if names.is_empty() => "Every verb works on this machine.".to_owned(),
        names => format!("Does not work: {names}."),
    };
    let in_part = names(VerbState::Partial);
    if !in_part.is_empty() {
        sentence.push_str(&format!(" Partially: {in_part}."));
    }
    let all_works = document.verbs.iter().all(|ability| ability.state == VerbState::Ok);
    let (word, ink) = match (document.ready(), all_works) {
        (true, true) => ("READY", Ink::Good),
        (true, false) => ("READY", Ink::Doubtful),
        (false, _) => ("MISSING", Ink::Bad),
    };
    page.marked(&[(&padded(word, STATE_WIDTH), ink)], STATE_WIDTH, &sentence, Ink::Strong);
    let notes = document.findings.iter().filter(|finding| finding.state == State::Note).count();
    if notes > 0 {
        let noun = if notes == 1 { "note" } else { "notes" };
        let text = format!("{} {noun} below, marked `note`.", count(notes as u64));
        page.marked(&[(&padded("", STATE_WIDTH), Ink::Plain)], STATE_WIDTH, &text, Ink::Plain);
    }
}

fn verb(page: &mut Page, ability: &Ability) {
    let ink = match ability.state {
        VerbState::Ok => Ink::Good,
        VerbState::Partial => Ink::Doubtful,
        VerbState::Missing => Ink::Bad,
    };
    let word = match ability.state {
        VerbState::Ok => "ok",
        VerbState::Partial => "partial",
        VerbState::Missing => "missing",
    };
    named(page, word, ink, &ability.verb, &ability.about);
    if !ability.why.is_empty() {
        below(page, "why", &ability.why);
    }
    if let Some(fix) = &ability.fix {
        below(page, "fix", fix);
    }
}

fn print(page: &mut Page, finding: &Finding) {
    let (word, ink) = match finding.state {
        State::Ok => ("ok", Ink::Good),
        State::Note => ("note", Ink::Doubtful),
        State::Missing => ("missing", Ink::Bad),
    };
    named(page, word, ink, &finding.name, &finding.found);
    if !finding.touches.is_empty() {
        below(page, "affects", &finding.touches.join("; "));
    }
    if let Some(fix) = &finding.fix {
        below(page, "fix", fix);
    }
}

/// State, name and text on one line; on a narrow page the text is under the name.
fn named(page: &mut Page, word: &str, ink: Ink, name: &str, text: &str) {
    let word = padded(word, STATE_WIDTH);
    if page.width() < ONE_LINE_WIDTH_MIN {
        page.marked(&[(&word, ink)], STATE_WIDTH, name, Ink::Label);
        page.marked(&[(&padded("", DETAIL_INDENT), Ink::Plain)], DETAIL_INDENT, text, Ink::Plain);
    } else {
        page.marked(
            &[(&word, ink), (&padded(name, NAME_WIDTH), Ink::Label)],
            STATE_WIDTH + NAME_WIDTH,
            text,
            Ink::Plain,
        );
    }
}

/// A line below that belongs to the entry above.
fn below(page: &mut Page, label: &str, text: &str) {
    let front = format!("{}{}", " ".repeat(DETAIL_INDENT), padded(label, SUBLABEL_WIDTH));
    page.marked(&[(&front, Ink::Label)], DETAIL_INDENT + SUBLABEL_WIDTH, text, Ink::Plain);
}

fn times(page: &mut Page, measured: &Measured) {
    page.blank();
    let mut rows: Vec<Vec<String>> = Vec::new();
    let mut row = |name: String, q: &schema::Quantiles| {
        let times = durations::in_one_unit(&[q.p50, q.p99, q.max].map(|ns| ns as f64));
        rows.push([vec![name], times, vec![count(q.count)]].concat());
    };
    for wake_up in &measured.wake_up {
        row(format!("timer: {}, {}", wake_up.wait, round_duration(wake_up.ahead_ns)), &wake_up.late_ns);
    }
    row("clock read".into(), &measured.clock_read_ns);
    if let Some(writes) = &measured.tun_write_ns {
        row("TUN write".into(), writes);
    }
    page.table(&["measured", "p50", "p99", "max", "values"], &rows);
}

/// Width of the column of states.
const STATE_WIDTH: usize = 9;
/// Width of the column of names; the longest is that of a verb.
const NAME_WIDTH: usize = 24;
/// Indent of the lines below an entry.
const DETAIL_INDENT: usize = STATE_WIDTH + 2;
/// Width of the labels of such lines.
const SUBLABEL_WIDTH: usize = 8;
/// Narrower pages have the text below the name.
const ONE_LINE_WIDTH_MIN: usize = 80;
