//! What experiments of several runs share: what they are told, and whom they tell how far they have come.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use schema::{CachePoint, TrialPart};
use testbed::Observer;

/// Tells how far an experiment of several runs has come.
pub trait Stage {
    /// An experiment begins; what is returned observes its load.
    fn begin(&mut self, what: &str) -> Box<dyn Observer>;
    /// A point of a sweep of caches was made. Nothing happens unless somebody wants to tell it.
    fn point(&mut self, _point: &CachePoint) {}
    /// A trial of a capacity was made.
    fn trial(&mut self, _trial: &TrialPart, _so_far: &SearchProgress) {}
    /// The experiment is kept in this folder, which was just made.
    fn folder(&mut self, _dir: &Path) {}
    /// A measurement without a load of requests begins. Nothing happens unless somebody wants to tell it.
    fn step(&mut self, _what: &str) {}
}

/// How far a search for a capacity has come.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SearchProgress {
    /// The highest load that held, and the least that was too much, where they are known.
    pub bracket: (Option<f64>, Option<f64>),
    /// How long the rest of it takes, about.
    pub rest: Duration,
}

/// What any of them is told: by which program and command, with which seed, and when it began.
#[derive(Clone, Debug)]
pub struct Order {
    /// This program: the server among those that are measured.
    pub program: PathBuf,
    /// Seed of every random choice.
    pub seed: u64,
    /// The command that repeats all of it.
    pub command: String,
    /// When it began.
    pub started: SystemTime,
}
