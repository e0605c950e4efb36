//! Reproductions of published experiments: published vs. measured figures.
//!
//! ```text
//!   options of a paper --> its runs, by the crates below --> rows: published, measured --> summary, ReproductionDocument
//! ```
//!
//! | module | the paper's system | paper |
//! |---|---|---|
//! | [`koshien`] | Koshien (ENMA): concurrent connections in a server, for clients that are near and far | Nishimura et al., about 2001 |
//! | [`transparent_monitoring`] | transparent monitoring: cost of monitoring a client's calls, and what server logs miss | Saito and Nakasho, 1999 |
//! | [`ntt_directory`] | NTT DIRECTORY: components of an Internet directory, measured alone and added up | Ayano et al., about 1997 |
//! | [`dserver`] | Dserver: a minimal server against Apache | a student report, 2001 |
//! | [`school_gateway`] | school gateway: cache, NAT, forwarding and storage on one machine | Makino et al., 2001 |
//! | [`http3`] | HTTP/3 against HTTP/2, over loss and delay and on fast lines | Liu et al., 2024; Zhang et al., 2024 |
//! | [`emulators`] | rattan: a path emulator, compared with yamabiko and mahimahi | Wang et al., 2025 |
//!
//! Each module makes its runs one after the other and stores them; a document over all of them has published and
//! measured figures ([`schema::Reproduction`]). Start reading at [`koshien`]. In each module `rows` names the
//! quantities, and `summary` makes notes and tables.

mod builder;
pub mod dserver;
pub mod emulators;
mod figures;
pub mod http3;
pub mod koshien;
pub mod ntt_directory;
pub mod school_gateway;
pub mod transparent_monitoring;

use std::path::PathBuf;

use schema::{Reproduction, ReproductionDocument};

/// A finished reproduction.
#[derive(Debug)]
pub struct Reproduced {
    /// The complete document.
    pub document: ReproductionDocument,
    /// Folder in the run store.
    pub folder: PathBuf,
}

/// Main figures of a reproduction as a small table; the rows have all figures.
#[derive(Clone, Debug, PartialEq)]
pub struct Summary {
    /// Names of the columns; the first column names the lines.
    pub head: Vec<&'static str>,
    /// Cells.
    pub lines: Vec<Vec<String>>,
    /// Further tables with other columns.
    pub more: Vec<Lines>,
    /// Notes below the tables.
    pub notes: Vec<String>,
}

/// A further table of a summary.
#[derive(Clone, Debug, PartialEq)]
pub struct Lines {
    /// Names of the columns; the first column names the lines.
    pub head: Vec<&'static str>,
    /// Cells.
    pub lines: Vec<Vec<String>>,
}

/// Summary of any reproduction. Documents of early versions have no name and are of `koshien`.
pub fn summary(reproduction: &Reproduction) -> Summary {
    match reproduction.name.as_str() {
        ntt_directory::NAME => ntt_directory::summary(reproduction),
        dserver::NAME => dserver::summary(reproduction),
        http3::NAME => http3::summary(reproduction),
        emulators::NAME => emulators::summary(reproduction),
        school_gateway::NAME => school_gateway::summary(reproduction),
        transparent_monitoring::NAME => transparent_monitoring::summary(reproduction),
        _ => koshien::summary(reproduction),
    }
}

/// A figure with its significant digits.
fn level(value: f64) -> String {
    match value.abs() {
        small if small < 9.95 => format!("{value:.2}"),
        middle if middle < 999.5 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    }
}
