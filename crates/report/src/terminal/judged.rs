//! Any document that has a run and a validity: the frame around a suite's own table.

use schema::Validity;
use schema::document::{Document, Run};

use super::page::{Ink, Page};
use super::{Style, footer, headline, places};

/// The verdict with every check that is not green, `answer`, `body` as it is (made by [`super::table`]), `notes`, and
/// where the run is kept.
pub fn judged(run: &Run, validity: &Validity, answer: &str, body: &str, notes: &[&str], style: Style) -> String {
    let document = Document {
        schema: String::new(),
        run: run.clone(),
        validity: validity.clone(),
        load: None,
        path: None,
        watch: None,
        tap: None,
        server: None,
        slo: None,
        cache: None,
    };
    let mut page = Page::new(style);
    headline::print(&mut page, &document);
    page.marked(&[], 0, answer, Ink::Strong);
    page.blank();
    page.verbatim_block(body);
    page.blank();
    for note in notes {
        page.marked(&[], 0, note, Ink::Plain);
    }
    places::host(&mut page, &run.host);
    footer(&mut page, &document);
    page.into_text()
}
