//! A sweep against a cache: the answer, what was carried and hit at each rate, what was wrong.

use schema::{CachePart, CachePoint, Document, Wrong};

use super::page::{Ink, Page};
use super::{Style, footer, headline, places};
use crate::figures::count;
use crate::sweep;

/// So many wrong answers of a kind are shown with their request; the document has more.
const SHOWN_MAX: usize = 3;

/// A sweep on one screen.
pub fn cache(document: &Document, style: Style) -> String {
    let mut page = Page::new(style);
    headline::print(&mut page, document);
    if let Some(part) = &document.cache {
        page.marked(&[], 0, &sweep::answer(part), Ink::Strong);
        print(&mut page, part);
    }
    places::host(&mut page, &document.run.host);
    footer(&mut page, document);
    page.into_text()
}

/// One line on a point, for while a sweep goes on.
pub fn cache_point(point: &CachePoint) -> String {
    crate::figures::plain(&sweep::point_line(point))
}

/// Figures of a cache, as part of any screen.
pub(super) fn print(page: &mut Page, part: &CachePart) {
    page.blank();
    page.entry("cache", &sweep::about(part));
    page.blank();
    let (head, rows) = sweep::load_table(part);
    page.table(&head, &rows);
    page.blank();
    let (head, rows) = sweep::hits_table(part);
    page.table(&head, &rows);
    page.blank();
    for point in part.points.iter().filter(|point| !point.figures.errors.is_empty()) {
        page.entry("errors", &format!("{}: {}", sweep::label(point), sweep::causes(point)));
    }
    for point in &part.points {
        let asides = sweep::asides(point);
        if !asides.is_empty() {
            page.entry("among them", &format!("{}: {}", sweep::label(point), asides.join("; ")));
        }
    }
    part.points.iter().for_each(|point| wrong(page, point));
    if let Some(supported) = &part.clients_supported {
        page.entry("clients supported", &format!("{} The rule: {}.", sweep::held(supported), supported.rule));
    }
    page.entry("counted", sweep::COUNTED);
    for note in &part.notes {
        page.entry("note", note);
    }
}

/// What was wrong, each kind with some of its requests.
fn wrong(page: &mut Page, point: &CachePoint) {
    for (kind, n) in crate::phrases::by_frequency(&point.figures.wrong) {
        // A finite cache evicts.
        if kind == Wrong::FalseMiss.name() {
            continue;
        }
        let text = format!("{} at {}: {}", kind.replace('_', " "), sweep::label(point), count(n));
        page.entry_in("WRONG", &text, Ink::Bad);
        let examples = point.figures.examples.iter().filter(|example| example.kind == kind);
        for example in examples.take(SHOWN_MAX) {
            page.entry("", &format!("{}: {}", example.request, example.why));
        }
    }
}
