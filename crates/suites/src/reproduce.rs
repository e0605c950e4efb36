//! Published experiments made again: paper beside here.
//!
//! Each makes its runs by the lab, one after the other, and keeps them in the book; a document on all of them says what
//! the paper published and what came out here ([`schema::Reproduction`]).

pub mod directory;
pub mod dserver;
mod figures;
pub mod gateway;
pub mod koshien;
mod sheet;
pub mod transparent;

use std::path::PathBuf;

use schema::{Reproduction, ReproductionDocument};

/// A reproduction that was made, and is all in its document.
#[derive(Debug)]
pub struct Reproduced {
    /// Its document.
    pub document: ReproductionDocument,
    /// Its folder in the book.
    pub folder: PathBuf,
}

/// A reproduction's main figures in a small table; its rows have everything.
#[derive(Clone, Debug, PartialEq)]
pub struct Summary {
    /// Names of the columns; the first names the lines.
    pub head: Vec<&'static str>,
    /// Cells.
    pub lines: Vec<Vec<String>>,
    /// Further tables, of halves that have columns of their own.
    pub more: Vec<Lines>,
    /// What to say below, each in a sentence or two.
    pub remarks: Vec<String>,
}

/// One more table of a summary.
#[derive(Clone, Debug, PartialEq)]
pub struct Lines {
    /// Names of the columns; the first names the lines.
    pub head: Vec<&'static str>,
    /// Cells.
    pub lines: Vec<Vec<String>>,
}

/// The main figures of any of them. One that an earlier version made has no name, and is `koshien`.
pub fn summary(reproduction: &Reproduction) -> Summary {
    match reproduction.name.as_str() {
        directory::NAME => directory::summary(reproduction),
        dserver::NAME => dserver::summary(reproduction),
        gateway::NAME => gateway::summary(reproduction),
        transparent::NAME => transparent::summary(reproduction),
        _ => koshien::summary(reproduction),
    }
}

/// A figure with as many digits as say something.
fn level(value: f64) -> String {
    match value.abs() {
        small if small < 9.95 => format!("{value:.2}"),
        middle if middle < 999.5 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    }
}
