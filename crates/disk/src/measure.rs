//! All tests of a plan, one after the other, and the document with their checks.

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

/// Of what is read or written so much must have come from storage, or gone there, for it to be storage that was measured.
const STORAGE_SHARE_MIN: f64 = 0.9;
/// A test that takes the whole file once ends after so long, wherever it is.
const WHOLE_MAX: Duration = Duration::from_secs(120);
/// The flush at the end of a test, and fio's own beginning and end, may take so much longer.
const GRACE: Duration = Duration::from_secs(120);

/// What to measure.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DiskPlan {
    /// The folder whose storage is measured. A file without a name is made in it.
    pub directory: PathBuf,
    /// Size of that file: at least 16 MiB.
    pub size: Bytes,
    /// How long each test lasts that does not take the whole file once: at least 100 ms.
    #[serde(with = "units::time::text")]
    pub each: Duration,
    /// The tests, made in the order of [`Trial::ALL`].
    pub tests: Vec<Trial>,
}

/// What was measured, all in its document.
#[derive(Debug)]
pub struct DiskDone {
    /// Its document.
    pub document: DiskDocument,
    /// Its folder in the book.
    pub folder: PathBuf,
}

impl DiskPlan {
    /// How long it takes at most, but for slow flushes, and how long on storage that moves 200 MB a second.
    pub fn time(&self) -> Duration {
        let whole = Duration::from_secs_f64(self.size.0 as f64 / 200e6).min(WHOLE_MAX);
        self.tests.iter().map(|test| if test.takes_whole_file() { whole } else { self.each }).sum()
    }

    fn check(&self) -> Result<(), ExperimentError> {
        let wrong = |why: String| Err(ExperimentError::Plan(why));
        if self.size.0 < SIZE_MIN.0 {
            return wrong(format!("--size {}: the least is {SIZE_MIN}", self.size));
        }
        if self.each < Duration::from_millis(100) || self.each > Duration::from_secs(3600) {
            return wrong(format!("--duration {}: from 100ms to 1h", format_duration(self.each)));
        }
        if self.tests.is_empty() {
            return wrong("no test is asked for".to_owned());
        }
        Ok(())
    }
}

const SIZE_MIN: Bytes = Bytes(16 << 20);

/// Makes the tests, one after the other; `begin` is told each test's name. An interrupt ends the test at hand, which is then left out, and
/// those after it; what was measured is kept.
///
/// # Errors
/// Sizes and times out of range; no such folder, or one that may not be written to; too little room; no fio.
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
    let document = Measuring { plan, fio: &fio, order, scratch, tests: BTreeMap::new(), checks: Vec::new() }
        .all(&record, interrupts, begin)
        .inspect_err(|_| {
            let _ = fs::remove_dir_all(record.path());
        })?;
    Ok(DiskDone { document, folder: record.path().to_owned() })
}

struct Measuring<'a> {
    plan: &'a DiskPlan,
    fio: &'a Fio,
    order: &'a Order,
    scratch: Scratch,
    tests: BTreeMap<String, DiskTest>,
    checks: Vec<Check>,
}

impl Measuring<'_> {
    fn all(
        mut self,
        record: &RunFolder,
        interrupts: &Interrupts,
        begin: &mut dyn FnMut(Trial),
    ) -> Result<DiskDocument, ExperimentError> {
        record.write_plan(&toml::to_string(self.plan).map_err(|why| ExperimentError::Plan(why.to_string()))?)?;
        let asked = Trial::ALL.into_iter().filter(|test| self.plan.tests.contains(test));
        let mut filled = false;
        for test in asked {
            if interrupts.count() > 0 {
                break;
            }
            if test.wants_a_written_file() && !filled {
                // Nothing can be read that was never written: holes are read from nowhere.
                begin(Trial::WritePerBlock);
                if !self.one(Trial::WritePerBlock, record, interrupts)? {
                    self.forgo(test, "the file could not be written");
                    continue;
                }
                filled = true;
                // It was made for those that read, and is no result of its own.
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

    /// Makes one test; false if there are no figures of it.
    fn one(&mut self, test: Trial, record: &RunFolder, interrupts: &Interrupts) -> Result<bool, ExperimentError> {
        if test.begins_with_an_empty_file() {
            self.scratch.empty()?;
        }
        let lasting = if test.takes_whole_file() { WHOLE_MAX } else { self.plan.each };
        let words = test.words(&self.scratch, lasting, self.order.seed)?;
        let said = self.fio.run(&words, &self.scratch, lasting + GRACE, interrupts)?;
        match said.killed {
            Some(Killed::Interrupted) => return Ok(false),
            Some(Killed::Late) => {
                self.forgo(test, &format!("it had not ended after {}", format_duration(lasting + GRACE)));
                return Ok(false);
            }
            None => {}
        }
        let kept = record.path().join(format!("{}.fio.json", test.name()));
        fs::write(&kept, &said.json).map_err(ExperimentError::file(&kept))?;
        let figures = match fio::figures(test, &said) {
            Ok(figures) => figures,
            Err(why) => {
                self.forgo(test, &why);
                return Ok(false);
            }
        };
        if test == Trial::WritePerBlock && figures.written_bytes < self.scratch.size().0 {
            self.scratch.shorten(figures.written_bytes)?;
        }
        self.checks.extend(storage_measured(test, &figures, &self.scratch));
        self.tests.insert(test.name().to_owned(), figures);
        Ok(true)
    }

    fn forgo(&mut self, test: Trial, why: &str) {
        self.checks.push(Check::without_figure(
            format!("{}: made", test.name()),
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

/// Whether bytes came from storage or went there.
fn storage_measured(test: Trial, figures: &DiskTest, scratch: &Scratch) -> Option<Check> {
    let share = figures.storage_share?;
    let held = share >= STORAGE_SHARE_MIN;
    let moved = if figures.read_bytes > 0 { "read came from storage" } else { "written went to storage" };
    Some(Check {
        name: format!("{}: storage measured", test.name()),
        state: if held { CheckState::Ok } else { CheckState::Failed },
        weight: Weight::Suspect,
        value: Some(share),
        limit: Some(STORAGE_SHARE_MIN),
        unit: String::new(),
        why: if held {
            format!("the share of what was {moved}, as the kernel counted")
        } else {
            format!(
                "only {:.0} % of what was {moved} as the kernel counted: this is the speed of the page cache or of memory, not of a disk \
                 ({})",
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
    fn a_plan_is_held_to_its_ranges() {
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
    fn the_page_cache_is_named() {
        let scratch = Scratch::make(&std::env::temp_dir(), SIZE_MIN).unwrap();
        let figures = |share, read_bytes| DiskTest { storage_share: share, read_bytes, ..DiskTest::default() };
        let check = storage_measured(Trial::ReadPerBlock, &figures(Some(0.03), 1), &scratch).unwrap();
        assert_eq!(check.state, CheckState::Failed);
        assert!(check.why.contains("3 % of what was read") && check.why.contains("page cache"), "{}", check.why);
        let check = storage_measured(Trial::WritePerBlock, &figures(Some(1.0), 0), &scratch).unwrap();
        assert_eq!(check.state, CheckState::Ok);
        assert!(check.why.contains("written"), "{}", check.why);
        assert!(storage_measured(Trial::Seeks, &figures(None, 1), &scratch).is_none());
    }
}
