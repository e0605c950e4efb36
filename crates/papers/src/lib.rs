//! Published experiments made again: published figures beside measured ones.
//!
//! ```text
//!   options of a paper --> its runs, by the crates below --> rows: published, measured --> summary, ReproductionDocument
//! ```
//!
//! | module | the paper's system | paper |
//! |---|---|---|
//! | [`koshien`] | ENMA: the connections that a server has open, for clients that are near and far | Nishimura et al., about 2001 |
//! | [`transparent_monitoring`] | the client's calls monitored: what that costs, and what a server's log does not see | Saito and Nakasho, 1999 |
//! | [`ntt_directory`] | NTT DIRECTORY: the parts of an Internet directory, measured alone and added up | Ayano et al., about 1997 |
//! | [`dserver`] | Dserver: a server with as few functions as possible, beside Apache | a student's report, 2001 |
//! | [`school_gateway`] | a gateway for a school network: cache, NAT, forwarding and storage on one machine | Makino et al., 2001 |
//!
//! Each makes its runs one after the other and keeps them; a document on all of them says what the paper published and what came
//! out here ([`schema::Reproduction`]). Start reading at [`koshien`]. In each folder `rows` names the quantities, and
//! `summary` puts the document in words.

pub mod dserver;
mod figures;
pub mod koshien;
pub mod ntt_directory;
pub mod school_gateway;
mod sheet;
pub mod transparent_monitoring;

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
        ntt_directory::NAME => ntt_directory::summary(reproduction),
        dserver::NAME => dserver::summary(reproduction),
        school_gateway::NAME => school_gateway::summary(reproduction),
        transparent_monitoring::NAME => transparent_monitoring::summary(reproduction),
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
