//! The live page of an experiment.

use std::path::Path;

use experiment::{SearchProgress, Stage};
use schema::{CachePoint, TrialPart};
use testbed::Observer;

use super::LivePage;

impl LivePage {
    /// Wraps a stage, so that the page shows the experiment.
    pub fn staging<'a>(&self, stage: &'a mut dyn Stage) -> StageWithPage<'a> {
        StageWithPage { inner: stage, live: self.clone() }
    }
}

/// A stage whose experiment the page shows. The experiment's progress snapshot refers to its runs.
pub struct StageWithPage<'a> {
    inner: &'a mut dyn Stage,
    live: LivePage,
}

impl Stage for StageWithPage<'_> {
    fn folder(&mut self, dir: &Path) {
        self.live.show(dir);
        self.inner.folder(dir);
    }

    fn begin(&mut self, what: &str) -> Box<dyn Observer> {
        Box::new(self.live.observing(self.inner.begin(what)))
    }

    fn point(&mut self, point: &CachePoint) {
        self.inner.point(point);
    }

    fn trial(&mut self, trial: &TrialPart, so_far: &SearchProgress) {
        self.inner.trial(trial, so_far);
    }

    fn step(&mut self, what: &str) {
        self.inner.step(what);
    }
}
