//! Runs a program under the tap, and checks that the tap was active.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, bail};
use schema::Document;
use schema::tap_part::TapPart;

use crate::bench::servers::{Site, output};

/// Runs programs under the tap.
pub struct Tapped {
    yamabiko: PathBuf,
    report: PathBuf,
    /// The run store.
    runs: PathBuf,
}

/// Whether a run is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Storage {
    /// Figures only.
    No,
    /// Every exchange is stored as a row.
    InRunStore,
}

impl Tapped {
    pub fn new(yamabiko: PathBuf, site: &Site) -> Self {
        Tapped { yamabiko, report: site.path("tap.json"), runs: site.path("runs") }
    }

    /// Runs a command; returns its output and the tap's figures, which must contain connections of `program`.
    pub fn run(&self, program: &str, storage: Storage, command: &Command) -> Result<(String, TapPart)> {
        let (text, part) = self.run_with(storage, &[], command)?;
        was_loaded(&part, program)?;
        Ok((text, part))
    }

    /// Runs a command that writes records faster than the collector can derive exchanges: connections are counted and
    /// not followed, so that the collector reads all records.
    pub fn run_unfollowed(&self, program: &str, command: &Command) -> Result<(String, TapPart)> {
        let (text, part) = self.run_with(Storage::No, &["--only", UNUSED_PORT], command)?;
        let seen = part.programs.iter().any(|one| one.name == program && one.coverage != "unseen");
        if !seen || part.records < MIN_RECORDS {
            bail!(
                "{program} did not load the library, or wrote only {} records: the tap was not measured",
                part.records
            );
        }
        Ok((text, part))
    }

    fn run_with(&self, storage: Storage, options: &[&str], command: &Command) -> Result<(String, TapPart)> {
        let mut tap = Command::new(&self.yamabiko);
        tap.env("YAMABIKO_RUNS", &self.runs).args(["tap", "--json"]).arg(&self.report);
        if storage == Storage::No {
            tap.arg("--no-save");
        }
        tap.args(options).arg("--").arg(command.get_program()).args(command.get_args());
        for (name, value) in command.get_envs() {
            if let Some(value) = value {
                tap.env(name, value);
            }
        }
        let text = output(&mut tap)?;
        let document: Document = serde_json::from_slice(&fs::read(&self.report)?).context("the tap's document")?;
        if storage == Storage::InRunStore {
            fs::remove_dir_all(&self.runs).context("the run that was stored")?;
        }
        Ok((text, document.tap.context("the document has no tap part")?))
    }
}

/// Checks that the tap has recorded `program`, and connections with bytes in both directions.
fn was_loaded(part: &TapPart, program: &str) -> Result<()> {
    let Some(seen) = part.programs.iter().find(|one| one.name == program) else {
        bail!("{program} did not report that it loaded the library: the tap was not measured");
    };
    // The bytes of lost records are missing; the number of lost records is printed.
    if seen.coverage != "seen" && (seen.coverage == "unseen" || part.records_dropped == 0) {
        bail!("{program} was {}: {}", seen.coverage, seen.why);
    }
    let bytes = |view: &schema::tap_part::TapView| view.sent_bytes_total.min(view.received_bytes_total);
    if seen.connections == 0 || part.client.as_ref().map_or(0, bytes) == 0 {
        bail!("{program} loaded the library, but no connection of it was seen at work");
    }
    Ok(())
}

/// A port that no service uses.
const UNUSED_PORT: &str = "1";
/// Minimum number of records of a program that makes only calls.
const MIN_RECORDS: u64 = 100_000;

#[cfg(test)]
mod tests {
    use schema::tap_part::{TapProgram, TapView};

    use super::*;

    #[test]
    fn a_run_without_the_tap_library_is_discarded() {
        let program = |coverage: &str, connections| TapProgram {
            name: "wrk".into(),
            processes: 1,
            coverage: coverage.into(),
            why: String::new(),
            connections,
        };
        let part = |programs, bytes| TapPart {
            programs,
            client: Some(TapView { sent_bytes_total: bytes, received_bytes_total: bytes, ..TapView::default() }),
            ..TapPart::default()
        };
        assert!(was_loaded(&part(vec![program("seen", 64)], 10), "wrk").is_ok());
        assert!(was_loaded(&part(vec![program("seen", 64)], 10), "curl").is_err());
        assert!(was_loaded(&part(vec![program("unseen", 64)], 10), "wrk").is_err());
        assert!(was_loaded(&part(vec![program("partial", 64)], 10), "wrk").is_err());
        let dropped = TapPart { records_dropped: 1, ..part(vec![program("partial", 64)], 10) };
        assert!(was_loaded(&dropped, "wrk").is_ok());
        assert!(was_loaded(&part(vec![program("seen", 0)], 10), "wrk").is_err());
        assert!(was_loaded(&part(vec![program("seen", 64)], 0), "wrk").is_err());
        assert!(was_loaded(&TapPart::default(), "wrk").is_err());
    }
}
