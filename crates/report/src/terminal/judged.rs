//! The screen of an experiment: verdict and result, its own tables, notes, host.

use schema::Validity;
use schema::document::Run;

use super::page::{Ink, Page};
use super::{Style, environment, footer, headline};

/// Verdict with `answer`, command, every check that did not pass, `body` (made by [`super::table`]), `notes`, host, and
/// where the run is stored.
pub fn judged(run: &Run, validity: &Validity, answer: &str, body: &str, notes: &[&str], style: Style) -> String {
    let mut page = Page::new(style);
    headline::print_result(&mut page, run, validity, None, answer);
    page.blank();
    page.verbatim_block(body);
    page.blank();
    for note in notes {
        page.marked(&[], 0, note, Ink::Plain);
    }
    environment::host(&mut page, &run.host);
    footer(&mut page, run);
    page.into_text()
}
