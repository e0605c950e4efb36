//! The result of `cache`: load and hit ratios at each rate, wrong responses.

use schema::{CachePart, CachePoint, Document, Wrong};

use super::page::{Ink, Page};
use super::{Style, environment, footer, headline};
use crate::figures::count;
use crate::sweep;

/// Examples shown of each kind of wrong response; the document has more.
const EXAMPLES_MAX: usize = 3;

/// A sweep on one screen.
pub fn cache(document: &Document, style: Style) -> String {
    let mut page = Page::new(style);
    let result = document.cache.as_ref().map(sweep::answer).unwrap_or_default();
    headline::print_result(&mut page, &document.run, &document.validity, None, &result);
    if let Some(part) = &document.cache {
        print(&mut page, part);
    }
    environment::host(&mut page, &document.run.host);
    footer(&mut page, &document.run);
    page.into_text()
}

/// One line about a point, printed during a sweep.
pub fn cache_point(point: &CachePoint) -> String {
    crate::figures::plain(&sweep::point_line(point))
}

/// The figures of a cache, as a part of any screen.
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
            page.entry("including", &format!("{}: {}", sweep::label(point), asides.join("; ")));
        }
    }
    part.points.iter().for_each(|point| wrong(page, point));
    if let Some(supported) = &part.clients_supported {
        page.entry("clients", &format!("{} Rule: {}.", sweep::clients_supported(supported), supported.rule));
    }
    page.entry("terms", sweep::TERMS);
    for note in &part.notes {
        page.entry("note", note);
    }
}

/// Wrong responses by kind, each with some of its requests.
fn wrong(page: &mut Page, point: &CachePoint) {
    for (kind, n) in crate::phrases::by_frequency(&point.figures.wrong) {
        // A false miss is not an error: a finite cache evicts.
        if kind == Wrong::FalseMiss.name() {
            continue;
        }
        let text = format!("{} at {}: {}", kind.replace('_', " "), sweep::label(point), count(n));
        page.entry_in("WRONG", &text, Ink::Bad);
        let examples = point.figures.examples.iter().filter(|example| example.kind == kind);
        for example in examples.take(EXAMPLES_MAX) {
            page.entry("", &format!("{}: {}", example.request, example.why));
        }
    }
}
