//! The document of a reproduction while it grows: which runs there were, and what stands against them.

use ledger::document::{Check, Host, Run, SCHEMA};
use ledger::{Document, Reproduction, ReproductionDocument, Validity};
use store::{Book, RunFolder};

use super::{Order, Reproduced, folded, of_run};
use crate::error::SuiteError;
use crate::local::Division;

/// A folder in the book, and what is known of its runs so far.
pub struct Sheet {
    record: RunFolder,
    checks: Vec<Check>,
    runs: Vec<String>,
    host: Option<Host>,
    duration_s: f64,
}

impl Sheet {
    /// Makes the folder.
    pub fn new(book: &Book, name: &str, order: &Order) -> Result<Sheet, SuiteError> {
        let record = book.create(&format!("reproduce-{name}"), order.started, order.seed)?;
        Ok(Sheet { record, checks: Vec::new(), runs: Vec::new(), host: None, duration_s: 0.0 })
    }

    /// Takes in a run that was made, by name; `division` where this host's cores were divided, which the run, held to
    /// one of them, does not know.
    pub fn take(&mut self, name: &str, document: &Document, division: Option<&Division>) {
        self.take_run(name, &document.run, &document.validity);
        if let (Some(division), Some(host)) = (division, &mut self.host) {
            division.describe(host);
        }
    }

    /// Takes in a run of any kind, by name.
    pub fn take_run(&mut self, name: &str, run: &Run, validity: &Validity) {
        self.checks.extend(of_run(name, validity));
        if !run.id.is_empty() {
            self.runs.push(run.id.clone());
        }
        self.duration_s += run.duration_s;
        self.host.get_or_insert_with(|| run.host.clone());
    }

    /// Takes in a check that is not a run's.
    pub fn check(&mut self, check: Check) {
        self.checks.push(check);
    }

    /// Writes the document. The part's runs are filled in here.
    pub fn close(self, order: &Order, interrupted: bool, part: Reproduction) -> Result<Reproduced, SuiteError> {
        let document = ReproductionDocument {
            schema: SCHEMA.into(),
            run: Run {
                id: self.record.id().into(),
                dir: self.record.path().display().to_string(),
                command: order.command.clone(),
                seed: order.seed,
                started_at: store::rfc3339(order.started),
                // Of what was measured; starting servers comes on top.
                duration_s: self.duration_s,
                interrupted,
                host: self.host.unwrap_or_default(),
                ..Run::default()
            },
            validity: Validity::from_checks(folded(self.checks)),
            reproduce: Reproduction { runs: self.runs, ..part },
        };
        self.record.write_summary(&document)?;
        Ok(Reproduced { document, folder: self.record.path().to_owned() })
    }
}
