//! Runs the tests of a plan one after the other, and makes their document.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use schema::document::{Check, CheckState, Run, SCHEMA, Weight};
use schema::{DiskDocument, DiskTest, Validity};
use serde::Serialize;
use store::{RunFolder, RunStore};
use sys::collected::Killed;
use sys::signal::Interrupts;
use testbed::host;
use units::{Bytes, format_duration};

use experiment::{ExperimentError, Order};

use crate::fio::{self, Fio};
use crate::scratch::Scratch;
use crate::trial::Trial;

/// Share of the bytes that must be storage I/O for the test to measure storage.
const STORAGE_SHARE_MIN: f64 = 0.9;
/// Time limit of tests that go through the whole file once.
const WHOLE_FILE_TIMEOUT: Duration = Duration::from_secs(120);
/// Additional time for the final flush and fio's start and end.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(120);

/// Configuration of a disk measurement.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DiskPlan {
    /// The folder whose storage is measured. A file without a name is created in it.
    pub directory: PathBuf,
    /// Size of that file: at least 16 MiB.
    pub size: Bytes,
    /// Length of each test that does not go through the whole file once: at least 100 ms.
    #[serde(with = "units::time::text")]
    pub each: Duration,
    /// The selected tests; they run in the order of [`Trial::ALL`].
    pub tests: Vec<Trial>,
}

/// A finished measurement.
#[derive(Debug)]
pub struct DiskDone {
    /// Its document.
    pub document: DiskDocument,
    /// Its folder in the run store.
    pub folder: PathBuf,
}

impl DiskPlan {
    /// Estimated time at 200 MB/s, without slow flushes.
    pub fn time(&self) -> Duration {
        let whole = Duration::from_secs_f64(self.size.0 as f64 / 200e6).min(WHOLE_FILE_TIMEOUT);
        self.tests.iter().map(|test| if test.covers_whole_file() { whole } else { self.each }).sum()
    }

    fn check(&self) -> Result<(), ExperimentError> {
        let wrong = |why: String| Err(ExperimentError::Plan(why));
        if self.size.0 < SIZE_MIN.0 {
            return wrong(format!("--size {}: expected at least {SIZE_MIN}", self.size));
        }
        if self.each < Duration::from_millis(100) || self.each > Duration::from_secs(3600) {
            return wrong(format!("--duration {}: expected 100ms to 1h", format_duration(self.each)));
        }
        if self.tests.is_empty() {
            return wrong("no test is selected (--tests)".to_owned());
        }
        Ok(())
    }
}

const SIZE_MIN: Bytes = Bytes(16 << 20);

/// Runs the tests one after the other; `begin` is called with each. An interrupt discards the current test and ends the
/// measurement; earlier figures are stored.
///
/// # Errors
/// Sizes and times out of range; a missing or read-only folder; too little space; fio is not installed.
pub fn run(
    plan: &DiskPlan,
    order: &Order,
    book: &RunStore,
    interrupts: &Interrupts,
    begin: &mut dyn FnMut(Trial),
) -> Result<DiskDone, ExperimentError> {
    plan.check()?;
    let fio = Fio::find()?;
    let scratch = Scratch::make(&plan.directory, plan.size)?;
    let record = book.create("disk", order.started, order.seed)?;
    let document = DiskMeasurement { plan, fio: &fio, order, scratch, tests: BTreeMap::new(), checks: Vec::new() }
        .all(&record, interrupts, begin)
        .inspect_err(|_| {
            let _ = fs::remove_dir_all(record.path());
        })?;
    Ok(DiskDone { document, folder: record.path().to_owned() })
}

struct DiskMeasurement<'a> {
    plan: &'a DiskPlan,
    fio: &'a Fio,
    order: &'a Order,
    scratch: Scratch,
    tests: BTreeMap<String, DiskTest>,
    checks: Vec<Check>,
}

impl DiskMeasurement<'_> {
    fn all(
        mut self,
        record: &RunFolder,
        interrupts: &Interrupts,
        begin: &mut dyn FnMut(Trial),
    ) -> Result<DiskDocument, ExperimentError> {
        record.write_plan(&toml::to_string(self.plan).map_err(|why| ExperimentError::Plan(why.to_string()))?)?;
        let selected = Trial::ALL.into_iter().filter(|test| self.plan.tests.contains(test));
        let mut filled = false;
        for test in selected {
            if interrupts.count() > 0 {
                break;
            }
            if test.needs_written_file() && !filled {
                // Reading holes would not touch storage: write the file first.
                begin(Trial::WritePerBlock);
                if !self.one(Trial::WritePerBlock, record, interrupts)? {
                    self.skip(test, "the file could not be written");
                    continue;
                }
                filled = true;
                // This write test only prepares the file for the read tests: it is not a result.
                if !self.plan.tests.contains(&Trial::WritePerBlock) {
                    self.tests.remove(Trial::WritePerBlock.name());
                    self.checks.retain(|check| !check.name.starts_with(Trial::WritePerBlock.name()));
                }
            }
            begin(test);
            let made = self.one(test, record, interrupts)?;
            filled |= made && test == Trial::WritePerBlock;
        }
        let document = self.document(record, interrupts.count() > 0)?;
        record.write_summary(&document)?;
        Ok(document)
    }

    /// Runs one test; false if it has no figures.
    fn one(&mut self, test: Trial, record: &RunFolder, interrupts: &Interrupts) -> Result<bool, ExperimentError> {
        if test.needs_empty_file() {
            self.scratch.empty()?;
        }
        let limit = if test.covers_whole_file() { WHOLE_FILE_TIMEOUT } else { self.plan.each };
        let words = test.command(&self.scratch, limit, self.order.seed)?;
        let output = self.fio.run(&words, &self.scratch, limit + FLUSH_TIMEOUT, interrupts)?;
        match output.killed {
            Some(Killed::Interrupted) => return Ok(false),
            Some(Killed::Late) => {
                self.skip(test, &format!("fio had not ended after {}", format_duration(limit + FLUSH_TIMEOUT)));
                return Ok(false);
            }
            None => {}
        }
        let json_path = record.path().join(format!("{}.fio.json", test.name()));
        fs::write(&json_path, &output.json).map_err(ExperimentError::file(&json_path))?;
        let figures = match fio::figures(test, &output) {
            Ok(figures) => figures,
            Err(why) => {
                self.skip(test, &why);
                return Ok(false);
            }
        };
        if test == Trial::WritePerBlock && figures.written_bytes < self.scratch.size().0 {
            self.scratch.truncate(figures.written_bytes)?;
        }
        self.checks.extend(storage_measured(test, &figures, &self.scratch));
        self.tests.insert(test.name().to_owned(), figures);
        Ok(true)
    }

    fn skip(&mut self, test: Trial, why: &str) {
        self.checks.push(Check::without_figure(
            format!("{}: measured", test.name()),
            CheckState::CouldNotRun,
            Weight::Suspect,
            why,
        ));
    }

    fn document(self, record: &RunFolder, interrupted: bool) -> Result<DiskDocument, ExperimentError> {
        let mut host = host::facts(&host::CorePlan::default(), 1)?;
        let settings = [
            ("folder", self.plan.directory.display().to_string()),
            ("file system", self.scratch.file_system().to_owned()),
            ("file", self.scratch.size().to_string()),
            ("fio", self.fio.version().to_owned()),
        ];
        host.settings.extend(settings.map(|(name, value)| (name.to_owned(), value)));
        Ok(DiskDocument {
            schema: SCHEMA.into(),
            run: Run {
                id: record.id().into(),
                dir: record.path().display().to_string(),
                command: self.order.command.clone(),
                seed: self.order.seed,
                started_at: store::rfc3339(self.order.started),
                duration_s: self.tests.values().map(|test| test.duration_s).sum(),
                interrupted,
                host,
                ..Run::default()
            },
            validity: Validity::from_checks(self.checks),
            disk: self.tests,
        })
    }
}

/// Whether the bytes were read from or written to storage.
fn storage_measured(test: Trial, figures: &DiskTest, scratch: &Scratch) -> Option<Check> {
    let share = figures.storage_share?;
    let held = share >= STORAGE_SHARE_MIN;
    let direction = if figures.read_bytes > 0 { "were read from storage" } else { "were written to storage" };
    Some(Check {
        name: format!("{}: storage measured", test.name()),
        state: if held { CheckState::Ok } else { CheckState::Failed },
        weight: Weight::Suspect,
        value: Some(share),
        limit: Some(STORAGE_SHARE_MIN),
        unit: String::new(),
        why: if held {
            format!("share of the bytes that {direction}, by the kernel's counters")
        } else {
            format!(
                "only {:.0} % of the bytes {direction} by the kernel's counters: the page cache or memory was \
                 measured, not storage ({})",
                100.0 * share,
                scratch.file_system()
            )
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan() -> DiskPlan {
        DiskPlan {
            directory: "/".into(),
            size: Bytes(1 << 30),
            each: Duration::from_secs(5),
            tests: Trial::ALL.to_vec(),
        }
    }

    #[test]
    fn disk_plan_limits_are_enforced() {
        assert!(plan().check().is_ok());
        for wrong in [
            DiskPlan { size: Bytes(1 << 20), ..plan() },
            DiskPlan { each: Duration::from_millis(10), ..plan() },
            DiskPlan { tests: Vec::new(), ..plan() },
        ] {
            assert!(matches!(wrong.check(), Err(ExperimentError::Plan(_))), "{wrong:?}");
        }
        assert!(
            plan().time() > Duration::from_secs(40) && plan().time() < Duration::from_secs(80),
            "{:?}",
            plan().time()
        );
    }

    #[test]
    fn result_of_the_page_cache_is_suspect() {
        let scratch = Scratch::make(&std::env::temp_dir(), SIZE_MIN).unwrap();
        let figures = |share, read_bytes| DiskTest { storage_share: share, read_bytes, ..DiskTest::default() };
        let check = storage_measured(Trial::ReadPerBlock, &figures(Some(0.03), 1), &scratch).unwrap();
        assert_eq!(check.state, CheckState::Failed);
        assert!(
            check.why.contains("3 % of the bytes were read from storage") && check.why.contains("page cache"),
            "{}",
            check.why
        );
        let check = storage_measured(Trial::WritePerBlock, &figures(Some(1.0), 0), &scratch).unwrap();
        assert_eq!(check.state, CheckState::Ok);
        assert!(check.why.contains("written"), "{}", check.why);
        assert!(storage_measured(Trial::Seeks, &figures(None, 1), &scratch).is_none());
    }
}
