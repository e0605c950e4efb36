//! The document of a reproduction under construction: its runs, and their checks.

use schema::document::{Check, Host, Run, SCHEMA};
use schema::{Document, Reproduction, ReproductionDocument, ReproductionRow, Validity};
use store::{RunFolder, RunStore};

use super::Reproduced;
use experiment::ExperimentError;
use experiment::local::CoreDivision;
use experiment::progress::{ExperimentProgress, Staged};
use experiment::verdict::{merge_repeated, nothing_measured, of_run};
use experiment::{Order, Stage};

/// A folder in the run store, and the checks of its runs so far.
pub struct DocumentBuilder {
    record: RunFolder,
    showing: ExperimentProgress,
    name: String,
    checks: Vec<Check>,
    runs: Vec<String>,
    host: Option<Host>,
    duration_s: f64,
}

impl DocumentBuilder {
    /// Creates the folder.
    pub fn new(
        run_store: &RunStore,
        name: &str,
        order: &Order,
        stage: &mut dyn Stage,
    ) -> Result<DocumentBuilder, ExperimentError> {
        let record = run_store.create(&format!("reproduce-{name}"), order.started, order.seed)?;
        let showing = ExperimentProgress::begin(&record, "reproduce", &order.command, order.seed, stage);
        let name = name.to_owned();
        Ok(DocumentBuilder { record, showing, name, checks: Vec::new(), runs: Vec::new(), host: None, duration_s: 0.0 })
    }

    /// `stage`, with its events forwarded to the progress document.
    pub fn staging<'a>(&self, stage: &'a mut dyn Stage) -> Staged<'a> {
        self.showing.staging(stage)
    }

    /// Publishes the rows so far to viewers.
    pub fn rows(&self, rows: &[ReproductionRow]) {
        let (name, rows, runs) = (self.name.clone(), rows.to_vec(), self.runs.clone());
        let so_far = Reproduction { name, rows, runs, ..Reproduction::default() };
        self.showing.put(|progress| progress.reproduce = Some(so_far));
    }

    /// Adds a run by name; `division` if this host's cores were divided, which a run confined to one of them cannot
    /// see.
    pub fn take(&mut self, name: &str, document: &Document, division: Option<&CoreDivision>) {
        self.take_run(name, &document.run, &document.validity);
        if let (Some(division), Some(host)) = (division, &mut self.host) {
            division.describe(host);
        }
    }

    /// Adds a run of any kind, by name.
    pub fn take_run(&mut self, name: &str, run: &Run, validity: &Validity) {
        self.checks.extend(of_run(name, validity));
        if !run.id.is_empty() {
            self.runs.push(run.id.clone());
        }
        self.duration_s += run.duration_s;
        self.host.get_or_insert_with(|| run.host.clone());
        self.showing.put(|progress| {
            let part = progress.reproduce.get_or_insert_with(Reproduction::default);
            part.name.clone_from(&self.name);
            part.runs.clone_from(&self.runs);
            progress.validity = Some(Validity::from_checks(self.checks.clone()));
        });
    }

    /// Adds a check that does not belong to a run.
    pub fn check(&mut self, check: Check) {
        self.checks.push(check);
    }

    /// Writes the document, with the ids of its runs.
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
                // Measured time only, without start-up of servers.
                duration_s: self.duration_s,
                interrupted,
                host: self.host.unwrap_or_default(),
                ..Run::default()
            },
            validity: Validity::from_checks(merge_repeated(self.checks)),
            reproduce: Reproduction { runs: self.runs, ..part },
        };
        self.record.write_summary(&document)?;
        self.showing.done(&document.validity, |progress| progress.reproduce = Some(document.reproduce.clone()));
        Ok(Reproduced { document, folder: self.record.path().to_owned() })
    }
}
