//! One screen of text.
//!
//! ```text
//!   Document ──> headline     verdict, result, URL, command, every check that did not pass
//!                load         offered and achieved rate, times, bars, distances, gauges, failures
//!                over_time    small plots of its seconds
//!                environment  path, server, host
//!                wire         packets at the server's end
//!                tap          socket calls of programs
//!                footer       where the run is stored
//! ```
//!
//! Every line goes through `page`: read it first.

mod bars;
mod cache;
mod capacity;
mod columns;
mod compare;
mod disk;
mod doctor;
mod entries;
mod environment;
mod gateway;
mod headline;
mod judged;
mod load;
mod over_time;
mod page;
mod predict;
mod profile;
mod runs;
mod tap;
mod watch;
mod wire;

use schema::document::Run;
use schema::{Document, SecondRecord};
use stats::Histogram;

pub use cache::{cache, cache_point};
pub use capacity::{capacity, capacity_trial};
pub use compare::compare;
pub use disk::disk;
pub use doctor::doctor;
pub use entries::{Entry, entries};
pub use gateway::gateway;
pub use judged::judged;
use page::Page;
pub use predict::predict;
pub use profile::{
    CheckRow, CheckView, ProfileEntry, ProfileView, Series, Spread, SpreadUnit, check, profile, profiles,
};
pub use runs::{disk_use, runs};
pub use tap::tap_slice;
pub use watch::watch;

/// What the terminal can show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Style {
    /// Whether to use colours. The caller decides by terminal and NO_COLOR.
    pub color: bool,
    /// Columns of the terminal, limited to 60 to 120.
    pub width: u16,
    /// Whether bars may use block characters. Names keep their characters in any case.
    pub unicode: bool,
}

impl Style {
    /// No colours, 100 columns, ASCII: for a file or a pipe.
    pub const PLAIN: Style = Style { color: false, width: 100, unicode: false };
}

/// A run on one screen. `response_times` (`store::read_histogram(dir, "response_time")`) adds a small histogram.
pub fn render(document: &Document, response_times: Option<&Histogram>, style: Style) -> String {
    render_over_time(document, response_times, &[], style)
}

/// A run on one screen, with small plots of its seconds if `seconds` has any.
pub fn render_over_time(
    document: &Document,
    response_times: Option<&Histogram>,
    seconds: &[SecondRecord],
    style: Style,
) -> String {
    let mut page = Page::new(style);
    headline::print(&mut page, document);
    if let Some(load) = &document.load {
        load::print(&mut page, load, &document.run, response_times);
    }
    if !seconds.is_empty() {
        over_time::print(&mut page, document, seconds);
    }
    if let Some(part) = &document.cache {
        cache::print(&mut page, part);
    }
    if let Some(path) = &document.path {
        environment::path(&mut page, path);
    }
    if let Some(watch) = &document.watch {
        wire::print(&mut page, watch);
    }
    if let Some(tap) = &document.tap {
        tap::print(&mut page, tap);
    }
    if let Some(server) = &document.server {
        environment::server(&mut page, server);
    }
    environment::host(&mut page, &document.run.host);
    footer(&mut page, &document.run);
    page.into_text()
}

/// A small table: the first cell of each row is aligned left, the others right.
pub fn table(head: &[&str], rows: &[Vec<String>], style: Style) -> String {
    let mut page = Page::new(style);
    page.table(head, rows);
    page.into_text()
}

fn footer(page: &mut Page, run: &Run) {
    page.blank();
    if run.dir.is_empty() {
        page.entry("stored", "no: this run was not stored");
    } else {
        page.verbatim("stored in", &run.dir);
    }
}
