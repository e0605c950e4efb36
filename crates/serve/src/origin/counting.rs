//! What the origin counts. Each worker writes under a lock of its own, which only whoever reads the figures ever contends.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use mix::{OriginFigures, WorldFigures};
use stats::Histogram;

use super::Asked;
use crate::request::Method;

/// The counts of all workers of an origin: a handle that may be cloned, and read at any time.
#[derive(Clone, Debug, Default)]
pub struct OriginCounts(Arc<Mutex<Vec<Tally>>>);

impl OriginCounts {
    /// Counts of one more worker.
    pub(super) fn worker(&self) -> Tally {
        let tally = Tally(Arc::new(Mutex::new(Counts::default())));
        lock(&self.0).push(tally.clone());
        tally
    }

    /// Adds everything to `sum`.
    pub(super) fn read(&self, mut sum: OriginFigures) -> OriginFigures {
        let mut lateness = Histogram::new();
        for tally in lock(&self.0).iter() {
            let counts = lock(&tally.0);
            sum.add(&counts.figures);
            for (&world, figures) in &counts.worlds {
                let of_world = sum.worlds.entry(format!("{world:x}")).or_default();
                of_world.requests += figures.requests;
                of_world.content_bytes += figures.content_bytes;
            }
            lateness.merge(&counts.lateness);
        }
        sum.think_lateness_ns = lateness.quantiles();
        sum
    }
}

impl PartialEq for OriginCounts {
    /// The same handle.
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

/// One worker's side of it.
#[derive(Clone, Debug)]
pub(super) struct Tally(Arc<Mutex<Counts>>);

impl Tally {
    /// Counts something.
    pub fn with(&self, count: impl FnOnce(&mut Counts)) {
        count(&mut lock(&self.0));
    }
}

/// What one worker counted: `figures` without worlds and lateness.
#[derive(Debug, Default)]
pub(super) struct Counts {
    pub figures: OriginFigures,
    worlds: HashMap<u32, WorldFigures>,
    pub lateness: Histogram,
}

impl Counts {
    /// A request for an object has come, and is thought about or not.
    pub fn begin(&mut self, asked: &Asked, foreign: bool, thinks: bool) {
        let figures = &mut self.figures;
        figures.requests += 1;
        match asked.method {
            Method::Head => figures.head += 1,
            Method::Post => figures.post += 1,
            _ => figures.get += 1,
        }
        figures.conditional += u64::from(asked.is_conditional());
        figures.without_ask += u64::from(asked.ask.is_none());
        figures.foreign += u64::from(foreign);
        figures.thinking += u64::from(thinks);
        let is_known = self.worlds.len() < OriginFigures::WORLDS_MAX || self.worlds.contains_key(&asked.world);
        if is_known {
            self.worlds.entry(asked.world).or_default().requests += 1;
        }
    }

    /// It is answered, with so much of a body; `cut`: fewer than it announced.
    pub fn answer(&mut self, world: u32, full: bool, content_bytes: u64, cut: bool) {
        let figures = &mut self.figures;
        *(if full { &mut figures.full } else { &mut figures.not_modified }) += 1;
        figures.aborted += u64::from(cut);
        figures.content_bytes += content_bytes;
        if let Some(figures) = self.worlds.get_mut(&world) {
            figures.content_bytes += content_bytes;
        }
    }

    /// Not all of that was sent.
    pub fn take_back(&mut self, world: u32, bytes: u64) {
        self.figures.content_bytes -= bytes;
        if let Some(figures) = self.worlds.get_mut(&world) {
            figures.content_bytes -= bytes;
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
