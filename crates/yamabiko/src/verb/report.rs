//! `yamabiko report`: a run from the book, printed again.

use anyhow::{Result, bail};
use ledger::{Document, WatchDocument};
use store::Book;

use super::bench::print;
use crate::args;
use crate::exit::{self, Exit};
use crate::terminal;

/// Prints the run. The exit status is the run's own: a script that reads an invalid run again is told again.
pub fn run(arguments: &args::Report) -> Result<Exit> {
    let book = Book::open()?;
    if arguments.run == "last" && book.list()?.is_empty() {
        bail!("there is no run in {} yet; `yamabiko demo` makes the first", book.root().display());
    }
    let dir = book.find(&arguments.run)?;
    let document = store::read_summary(&dir)?;
    if let Some(part) = store::read_watch_part(&dir)? {
        let Document { schema, run, validity, .. } = document;
        let document = WatchDocument { schema, run, validity, watch: part };
        super::watch::show(&document, arguments.json)?;
        return Ok(exit::of_validity(&document.validity));
    }
    if arguments.json {
        print(&(serde_json::to_string_pretty(&document)? + "\n"))?;
    } else {
        let histogram = store::read_histogram(&dir, "response_time").ok();
        print(&report::terminal::render(&document, histogram.as_ref(), terminal::style()))?;
    }
    Ok(exit::of_document(&document, false))
}
