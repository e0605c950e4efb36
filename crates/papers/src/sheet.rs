//! The document of a reproduction while it grows: which runs there were, and what stands against them.

use schema::document::{Check, Host, Run, SCHEMA};
use schema::{Document, Reproduction, ReproductionDocument, ReproductionRow, Validity};
use store::{RunFolder, RunStore};

use super::Reproduced;
use experiment::ExperimentError;
use experiment::local::CoreDivision;
use experiment::progress::{ExperimentProgress, Staged};
use experiment::verdict::{folded, nothing_measured, of_run};
use experiment::{Order, Stage};

/// A folder in the book, and what is known of its runs so far.
pub struct Sheet {
    record: RunFolder,
    showing: ExperimentProgress,
    name: String,
    checks: Vec<Check>,
    runs: Vec<String>,
    host: Option<Host>,
    duration_s: f64,
}

impl Sheet {
    /// Makes the folder.
    pub fn new(book: &RunStore, name: &str, order: &Order, stage: &mut dyn Stage) -> Result<Sheet, ExperimentError> {
        let record = book.create(&format!("reproduce-{name}"), order.started, order.seed)?;
        let showing = ExperimentProgress::begin(&record, "reproduce", &order.command, order.seed, stage);
        let name = name.to_owned();
        Ok(Sheet { record, showing, name, checks: Vec::new(), runs: Vec::new(), host: None, duration_s: 0.0 })
    }

    /// `stage`, and what it is told is told of the reproduction.
    pub fn staging<'a>(&self, stage: &'a mut dyn Stage) -> Staged<'a> {
        self.showing.staging(stage)
    }

    /// Tells the rows so far to who looks on.
    pub fn rows(&self, rows: &[ReproductionRow]) {
        let (name, rows, runs) = (self.name.clone(), rows.to_vec(), self.runs.clone());
        let so_far = Reproduction { name, rows, runs, ..Reproduction::default() };
        self.showing.put(|standing| standing.reproduce = Some(so_far));
    }

    /// Takes in a run that was made, by name; `division` where this host's cores were divided, which the run, held to
    /// one of them, does not know.
    pub fn take(&mut self, name: &str, document: &Document, division: Option<&CoreDivision>) {
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
        self.showing.put(|standing| {
            let part = standing.reproduce.get_or_insert_with(Reproduction::default);
            part.name.clone_from(&self.name);
            part.runs.clone_from(&self.runs);
            standing.validity = Some(Validity::from_checks(self.checks.clone()));
        });
    }

    /// Takes in a check that is not a run's.
    pub fn check(&mut self, check: Check) {
        self.checks.push(check);
    }

    /// Writes the document. The part's runs are filled in here.
    pub fn close(
        mut self,
        order: &Order,
        interrupted: bool,
        part: Reproduction,
    ) -> Result<Reproduced, ExperimentError> {
        self.checks.extend(nothing_measured(&self.checks));
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
        self.showing.done(&document.validity, |standing| standing.reproduce = Some(document.reproduce.clone()));
        Ok(Reproduced { document, folder: self.record.path().to_owned() })
    }
}
