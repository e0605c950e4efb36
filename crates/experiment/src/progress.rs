//! How an experiment of several runs stands: the part of its document so far, and which run is under way.
//!
//! ```text
//!   suite: Showing::begin, put (a trial was made) ---\
//!   Staged, around the verb's stage: step, folder ----+--> Board --> progress.json of the experiment's own folder
//!   Observed, around each run's observer: run, ticks -/
//! ```
//!
//! Each run keeps its own in its own folder meanwhile. Everything is written by the main thread, between what it does and some
//! times while it watches a run: the lab forks, and a thread more would forbid it.

use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use schema::{CachePoint, RunPhase, RunProgress, TrialPart, Validity};
use store::RunFolder;
use testbed::Observer;
use testbed::drive::progress::Snapshot;
use testbed::standing::Opening;
use units::Timestamp;

use crate::stage::{SearchProgress, Stage};

/// It is written at least this often while a run is watched.
const BEAT_EVERY: Duration = Duration::from_secs(1);

/// What is told of an experiment while it goes.
#[derive(Clone)]
pub struct ExperimentProgress(Rc<RefCell<Board>>);

struct Board {
    opening: Opening,
    standing: RunProgress,
    written: Timestamp,
    /// Of the run under way.
    dir: Option<PathBuf>,
}

impl ExperimentProgress {
    /// Of an experiment that begins, in the folder that was made for it. `stage` is told where that is.
    pub fn begin(
        record: &RunFolder,
        verb: &str,
        command: &str,
        seed: u64,
        stage: &mut dyn Stage,
    ) -> ExperimentProgress {
        let opening = Opening::begin(record, verb, command, seed);
        let standing = opening.at(Timestamp::ZERO, RunPhase::Starting);
        stage.folder(record.path());
        ExperimentProgress(Rc::new(RefCell::new(Board { opening, standing, written: Timestamp::ZERO, dir: None })))
    }

    /// `stage`, and what it is told is told here.
    pub fn staging<'a>(&self, stage: &'a mut dyn Stage) -> Staged<'a> {
        Staged { inner: stage, showing: self.clone() }
    }

    /// Says something new.
    pub fn put(&self, change: impl FnOnce(&mut RunProgress)) {
        let mut board = self.0.borrow_mut();
        change(&mut board.standing);
        board.write();
    }

    /// The experiment has ended, and its document is written.
    pub fn done(&self, validity: &Validity, change: impl FnOnce(&mut RunProgress)) {
        self.put(|standing| {
            (standing.phase, standing.under, standing.step) = (RunPhase::Done, None, None);
            standing.validity = Some(validity.clone());
            change(standing);
        });
    }

    /// Something else is done now.
    fn step(&self, what: &str) {
        self.put(|standing| {
            standing.phase = RunPhase::Measured;
            standing.step = Some(what.to_owned());
        });
    }

    /// A run, or an experiment within this one, is made in this folder.
    fn under(&self, dir: &Path) {
        self.0.borrow_mut().dir = Some(dir.to_owned());
        self.put(|standing| standing.under = dir.file_name().map(|name| name.to_string_lossy().into_owned()));
    }

    /// It has ended.
    fn over(&self) {
        let dir = self.0.borrow_mut().dir.take();
        let Some(dir) = dir else { return };
        self.put(|standing| {
            let run = standing.under.take();
            // One that could not begin leaves no folder.
            standing.ended.extend(run.filter(|_| dir.exists()));
        });
    }

    /// Writes it again if that is due.
    fn beat(&self) {
        let mut board = self.0.borrow_mut();
        if board.opening.elapsed().since(board.written) >= BEAT_EVERY {
            board.write();
        }
    }
}

impl Board {
    fn write(&mut self) {
        self.written = self.opening.elapsed();
        self.standing.at_s = self.written.since(Timestamp::ZERO).as_secs_f64();
        self.opening.write(&self.standing);
    }
}

/// A stage that tells here what it is told.
pub struct Staged<'a> {
    inner: &'a mut dyn Stage,
    showing: ExperimentProgress,
}

impl Stage for Staged<'_> {
    fn begin(&mut self, what: &str) -> Box<dyn Observer> {
        self.showing.step(what);
        Box::new(Observed { inner: self.inner.begin(what), showing: self.showing.clone() })
    }

    fn point(&mut self, point: &CachePoint) {
        self.inner.point(point);
    }

    fn trial(&mut self, trial: &TrialPart, so_far: &SearchProgress) {
        self.inner.trial(trial, so_far);
    }

    /// Of an experiment within this one: what is shown stays this one.
    fn folder(&mut self, dir: &Path) {
        self.showing.over();
        self.showing.under(dir);
    }

    fn step(&mut self, what: &str) {
        self.showing.step(what);
        self.inner.step(what);
    }
}

/// A run that is observed.
struct Observed {
    inner: Box<dyn Observer>,
    showing: ExperimentProgress,
}

impl Observer for Observed {
    fn inner(&mut self) -> Option<&mut dyn Observer> {
        Some(&mut *self.inner)
    }

    /// What is shown stays the experiment.
    fn folder(&mut self, dir: &Path) {
        self.showing.under(dir);
    }

    fn tick(&mut self, elapsed: Duration, snapshot: &Snapshot) {
        self.showing.beat();
        self.inner.tick(elapsed, snapshot);
    }
}

impl Drop for Observed {
    /// Its document is written by now.
    fn drop(&mut self) {
        self.showing.over();
    }
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use store::{RunStore, read_progress};
    use testbed::NoObserver;

    use super::*;

    /// Notes the folders that it is told.
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
    fn an_experiment_says_which_run_is_under_way_and_which_have_ended() {
        let root = tempfile::tempdir().unwrap();
        let book = RunStore::at(root.path());
        let (own, one, two) = (
            book.create("capacity", UNIX_EPOCH, 1).unwrap(),
            book.create("trial", UNIX_EPOCH, 2).unwrap(),
            book.create("trial", UNIX_EPOCH, 3).unwrap(),
        );
        let read = || read_progress(own.path()).unwrap().unwrap();
        let mut notes = Notes::default();
        let showing = ExperimentProgress::begin(&own, "capacity", "yamabiko capacity", 1, &mut notes);
        assert_eq!((read().phase, read().run.as_str()), (RunPhase::Starting, own.id()));
        let mut stage = showing.staging(&mut notes);
        let mut observer = stage.begin("short, 100/s");
        observer.folder(one.path());
        assert_eq!((read().under.as_deref(), read().step.as_deref()), (Some(one.id()), Some("short, 100/s")));
        drop(observer);
        assert_eq!((read().under, read().ended), (None, vec![one.id().to_owned()]));
        // A run that could not begin, and one within.
        let mut observer = stage.begin("short, 200/s");
        observer.folder(&root.path().join("20261122-230000-trial-gone"));
        drop(observer);
        stage.folder(two.path());
        assert_eq!((read().under.as_deref(), read().ended.len()), (Some(two.id()), 1));
        showing.done(&Validity::from_checks(Vec::new()), |_| {});
        assert_eq!((read().phase, read().under), (RunPhase::Done, None));
        assert_eq!(notes.0, [own.path()], "the page shows the experiment, not its runs");
    }
}
