//! `yamabiko runs`: what is in the book.

use anyhow::Result;
use store::Book;

use super::bench::print;
use crate::args::{self, RunsWhat};
use crate::exit::Exit;
use crate::terminal;

/// Lists the runs, newest last.
pub fn run(arguments: &args::Runs) -> Result<Exit> {
    if let Some(RunsWhat::Columns) = arguments.what {
        print(&store::columns_page())?;
        return Ok(Exit::Fine);
    }
    let book = Book::open()?;
    let runs = book.list()?;
    if arguments.json {
        print(&(report::json::runs(&runs)? + "\n"))?;
    } else {
        print(&report::terminal::runs(&runs, terminal::style()))?;
    }
    Ok(Exit::Fine)
}
