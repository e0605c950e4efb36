//! Published experiments made again: paper beside here.
//!
//! Each makes its runs by the lab, one after the other, and keeps them in the book; a document on all of them says what
//! the paper published and what came out here ([`ledger::Reproduction`]).

pub mod directory;
pub mod dserver;
mod figures;
pub mod gateway;
pub mod koshien;
mod sheet;
pub mod transparent;

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use lab::Observer;
use ledger::{CachePoint, Reproduction, ReproductionDocument, TrialPart};

/// Tells where a reproduction stands.
pub trait Stage {
    /// An experiment begins; what is returned observes its load.
    fn begin(&mut self, what: &str) -> Box<dyn Observer>;
    /// A point of a sweep of caches was made. Nothing happens unless somebody wants to tell it.
    fn point(&mut self, _point: &CachePoint) {}
    /// A trial of a capacity was made.
    fn trial(&mut self, _trial: &TrialPart, _so_far: &SoFar) {}
    /// The experiment is kept in this folder, which was just made.
    fn folder(&mut self, _dir: &Path) {}
    /// A measurement without a load of requests begins. Nothing happens unless somebody wants to tell it.
    fn step(&mut self, _what: &str) {}
}

/// How far a search for a capacity has come.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SoFar {
    /// The highest load that held, and the least that was too much, where they are known.
    pub bracket: (Option<f64>, Option<f64>),
    /// How long the rest of it takes, about.
    pub rest: Duration,
}

/// A reproduction that was made, and is all in its document.
#[derive(Debug)]
pub struct Reproduced {
    /// Its document.
    pub document: ReproductionDocument,
    /// Its folder in the book.
    pub folder: PathBuf,
}

/// What any of them is told.
#[derive(Clone, Debug)]
pub struct Order {
    /// This program: the server among those that are measured.
    pub program: PathBuf,
    /// Seed of every random choice.
    pub seed: u64,
    /// The command that repeats all of it.
    pub command: String,
    /// When it began.
    pub started: SystemTime,
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

/// A path as a word of a shell command.
pub(crate) fn quoted(path: &Path) -> String {
    format!("'{}'", path.display().to_string().replace('\'', "'\\''"))
}

/// The median of some figures; NaN of none, which no row shows.
pub fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    let mut sorted: Vec<f64> = values.into_iter().collect();
    sorted.sort_by(f64::total_cmp);
    match sorted.len() {
        0 => f64::NAN,
        n if n % 2 == 1 => sorted[n / 2],
        n => f64::midpoint(sorted[n / 2 - 1], sorted[n / 2]),
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
