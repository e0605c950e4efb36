//! Input of experiments, and the receiver of their progress.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use schema::{CachePoint, TrialPart};
use testbed::Observer;

/// Receives the progress of an experiment.
pub trait Stage {
    /// A part of the experiment begins; the returned observer observes its load.
    fn begin(&mut self, what: &str) -> Box<dyn Observer>;
    /// A point of a sweep of caches was made. Ignored by default.
    fn point(&mut self, _point: &CachePoint) {}
    /// A trial of a capacity search was made.
    fn trial(&mut self, _trial: &TrialPart, _so_far: &SearchProgress) {}
    /// The experiment is stored in this directory, which was just created.
    fn folder(&mut self, _dir: &Path) {}
    /// A measurement without a load of requests begins. Ignored by default.
    fn step(&mut self, _what: &str) {}
}

/// Progress of a capacity search.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SearchProgress {
    /// The highest sustained and the lowest unsustained load, if they are known.
    pub bracket: (Option<f64>, Option<f64>),
    /// Approximate remaining time.
    pub rest: Duration,
}

/// Input of every experiment: program, command, seed and start time.
#[derive(Clone, Debug)]
pub struct Order {
    /// Path of this program, which is one of the measured servers.
    pub program: PathBuf,
    /// Seed of all random choices.
    pub seed: u64,
    /// The command that repeats the experiment.
    pub command: String,
    /// Start of the experiment.
    pub started: SystemTime,
}
