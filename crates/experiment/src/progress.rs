//! Progress of an experiment: the part of its document so far, and the run under way.
//!
//! ```text
//!   ExperimentProgress::begin, put (a trial was made)\
//!   Staged, around the verb's stage: step, folder ----+--> Board --> progress.json of the experiment's own folder
//!   Observed, around each run's observer: run, ticks -/
//! ```
//!
//! Each run has its own progress file in its own directory. The main thread writes everything, between its actions and
//! a few times while it observes a run: the testbed forks, which another thread would forbid.

use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use schema::{CachePoint, RunPhase, RunProgress, TrialPart, Validity};
use store::RunFolder;
use testbed::Observer;
use testbed::drive::progress::Snapshot;
use testbed::snapshot::SnapshotWriter;
use units::Timestamp;

use crate::stage::{SearchProgress, Stage};

/// Longest interval between two writes while a run is observed.
const WRITE_INTERVAL: Duration = Duration::from_secs(1);

/// Progress of an experiment.
#[derive(Clone)]
pub struct ExperimentProgress(Rc<RefCell<Board>>);

struct Board {
    writer: SnapshotWriter,
    snapshot: RunProgress,
    written: Timestamp,
    /// Directory of the run under way.
    dir: Option<PathBuf>,
}

impl ExperimentProgress {
    /// Begins the progress of an experiment, in its directory. `stage` gets that directory.
    pub fn begin(
        record: &RunFolder,
        verb: &str,
        command: &str,
        seed: u64,
        stage: &mut dyn Stage,
    ) -> ExperimentProgress {
        let writer = SnapshotWriter::begin(record, verb, command, seed);
        let snapshot = writer.at(Timestamp::ZERO, RunPhase::Starting);
        stage.folder(record.path());
        ExperimentProgress(Rc::new(RefCell::new(Board { writer, snapshot, written: Timestamp::ZERO, dir: None })))
    }

    /// Wraps `stage`: progress reported to it is written here.
    pub fn staging<'a>(&self, stage: &'a mut dyn Stage) -> Staged<'a> {
        Staged { inner: stage, progress: self.clone() }
    }

    /// Publishes a change.
    pub fn put(&self, change: impl FnOnce(&mut RunProgress)) {
        let mut board = self.0.borrow_mut();
        change(&mut board.snapshot);
        board.write();
    }

    /// Publishes the last progress: the experiment has ended, and its document is written.
    pub fn done(&self, validity: &Validity, change: impl FnOnce(&mut RunProgress)) {
        self.put(|snapshot| {
            (snapshot.phase, snapshot.under, snapshot.step) = (RunPhase::Done, None, None);
            snapshot.validity = Some(validity.clone());
            change(snapshot);
        });
    }

    /// Publishes that the experiment has reached another step.
    fn step(&self, what: &str) {
        self.put(|snapshot| {
            snapshot.phase = RunPhase::Measured;
            snapshot.step = Some(what.to_owned());
        });
    }

    /// Publishes the directory of a run or nested experiment that begins.
    fn run_started(&self, dir: &Path) {
        self.0.borrow_mut().dir = Some(dir.to_owned());
        self.put(|snapshot| snapshot.under = dir.file_name().map(|name| name.to_string_lossy().into_owned()));
    }

    /// Publishes that the run has ended.
    fn run_ended(&self) {
        let dir = self.0.borrow_mut().dir.take();
        let Some(dir) = dir else { return };
        self.put(|snapshot| {
            let run = snapshot.under.take();
            // A run that could not begin leaves no directory.
            snapshot.ended.extend(run.filter(|_| dir.exists()));
        });
    }

    /// Writes the progress again if it is due.
    fn write_if_due(&self) {
        let mut board = self.0.borrow_mut();
        if board.writer.elapsed().since(board.written) >= WRITE_INTERVAL {
            board.write();
        }
    }
}

impl Board {
    fn write(&mut self) {
        self.written = self.writer.elapsed();
        self.snapshot.at_s = self.written.since(Timestamp::ZERO).as_secs_f64();
        self.writer.write(&self.snapshot);
    }
}

/// A stage that publishes its progress here.
pub struct Staged<'a> {
    inner: &'a mut dyn Stage,
    progress: ExperimentProgress,
}

impl Stage for Staged<'_> {
    fn begin(&mut self, what: &str) -> Box<dyn Observer> {
        self.progress.step(what);
        Box::new(Observed { inner: self.inner.begin(what), progress: self.progress.clone() })
    }

    fn point(&mut self, point: &CachePoint) {
        self.inner.point(point);
    }

    fn trial(&mut self, trial: &TrialPart, so_far: &SearchProgress) {
        self.inner.trial(trial, so_far);
    }

    /// Does not report the directory of a nested experiment to the wrapped stage.
    fn folder(&mut self, dir: &Path) {
        self.progress.run_ended();
        self.progress.run_started(dir);
    }

    fn step(&mut self, what: &str) {
        self.progress.step(what);
        self.inner.step(what);
    }
}

/// The observer of a run.
struct Observed {
    inner: Box<dyn Observer>,
    progress: ExperimentProgress,
}

impl Observer for Observed {
    fn inner(&mut self) -> Option<&mut dyn Observer> {
        Some(&mut *self.inner)
    }

    /// Does not report the run's directory to the wrapped observer, because viewers show the experiment.
    fn folder(&mut self, dir: &Path) {
        self.progress.run_started(dir);
    }

    fn tick(&mut self, elapsed: Duration, snapshot: &Snapshot) {
        self.progress.write_if_due();
        self.inner.tick(elapsed, snapshot);
    }
}

impl Drop for Observed {
    /// Publishes the end of the run, whose document is written by now.
    fn drop(&mut self) {
        self.progress.run_ended();
    }
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use store::{RunStore, read_progress};
    use testbed::NoObserver;

    use super::*;

    /// Records the directories that it gets.
    #[derive(Default)]
    struct Notes(Vec<PathBuf>);

    impl Stage for Notes {
        fn begin(&mut self, _: &str) -> Box<dyn Observer> {
            Box::new(NoObserver)
        }

        fn folder(&mut self, dir: &Path) {
            self.0.push(dir.to_owned());
        }
    }

    #[test]
    fn progress_names_the_run_under_way_and_ended_runs() {
        let root = tempfile::tempdir().unwrap();
        let book = RunStore::at(root.path());
        let (own, one, two) = (
            book.create("capacity", UNIX_EPOCH, 1).unwrap(),
            book.create("trial", UNIX_EPOCH, 2).unwrap(),
            book.create("trial", UNIX_EPOCH, 3).unwrap(),
        );
        let read = || read_progress(own.path()).unwrap().unwrap();
        let mut notes = Notes::default();
        let progress = ExperimentProgress::begin(&own, "capacity", "yamabiko capacity", 1, &mut notes);
        assert_eq!((read().phase, read().run.as_str()), (RunPhase::Starting, own.id()));
        let mut stage = progress.staging(&mut notes);
        let mut observer = stage.begin("short, 100/s");
        observer.folder(one.path());
        assert_eq!((read().under.as_deref(), read().step.as_deref()), (Some(one.id()), Some("short, 100/s")));
        drop(observer);
        assert_eq!((read().under, read().ended), (None, vec![one.id().to_owned()]));
        // A run that could not begin, and a nested run.
        let mut observer = stage.begin("short, 200/s");
        observer.folder(&root.path().join("20261122-230000-trial-gone"));
        drop(observer);
        stage.folder(two.path());
        assert_eq!((read().under.as_deref(), read().ended.len()), (Some(two.id()), 1));
        progress.done(&Validity::from_checks(Vec::new()), |_| {});
        assert_eq!((read().phase, read().under), (RunPhase::Done, None));
        assert_eq!(notes.0, [own.path()], "the stage gets the directory of the experiment, not those of its runs");
    }
}
