//! Counters of the origin. Each worker has its own lock, which is contended only while the counters are read.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use polymix::{OriginFigures, WorldFigures};
use stats::Histogram;

use super::ObjectRequest;
use crate::request::Method;

/// Counters of all workers of an origin: a cloneable handle, readable at any time.
#[derive(Clone, Debug, Default)]
pub struct OriginCounts(Arc<Mutex<Vec<Tally>>>);

impl OriginCounts {
    /// Counters of another worker.
    pub(super) fn worker(&self) -> Tally {
        let tally = Tally(Arc::new(Mutex::new(Counts::default())));
        lock(&self.0).push(tally.clone());
        tally
    }

    /// Adds all counters to `sum`.
    pub(super) fn read(&self, mut sum: OriginFigures) -> OriginFigures {
        let mut think_error = Histogram::new();
        for tally in lock(&self.0).iter() {
            let counts = lock(&tally.0);
            sum.add(&counts.figures);
            for (world, recent) in &counts.worlds {
                sum.worlds.entry(format!("{world:x}")).or_default().add(recent.figures);
            }
            think_error.merge(&counts.think_error);
        }
        sum.think_timing_error_ns = think_error.quantiles();
        sum
    }
}

impl PartialEq for OriginCounts {
    /// Whether both are the same handle.
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

/// The counters of one worker.
#[derive(Clone, Debug)]
pub(super) struct Tally(Arc<Mutex<Counts>>);

impl Tally {
    /// Updates the counters.
    pub fn with(&self, count: impl FnOnce(&mut Counts)) {
        count(&mut lock(&self.0));
    }
}

/// Counters of one worker: `figures` without worlds and timing errors.
#[derive(Debug, Default)]
pub(super) struct Counts {
    pub figures: OriginFigures,
    worlds: HashMap<u32, RecentWorld>,
    pub think_error: Histogram,
}

/// A world, and the worker's request number of its last request.
#[derive(Debug, Default)]
struct RecentWorld {
    figures: WorldFigures,
    last: u64,
}

impl Counts {
    /// Counts a request for an object, with or without think time.
    pub fn begin(&mut self, request: &ObjectRequest, foreign: bool, thinks: bool) {
        let figures = &mut self.figures;
        figures.requests += 1;
        match request.method {
            Method::Head => figures.head += 1,
            Method::Post => figures.post += 1,
            _ => figures.get += 1,
        }
        figures.conditional += u64::from(request.is_conditional());
        figures.without_request_id += u64::from(request.request_id.is_none());
        figures.foreign += u64::from(foreign);
        figures.thinking += u64::from(thinks);
        let world = self.world(request.world);
        world.requests += 1;
        world.without_request_id += u64::from(request.request_id.is_none());
    }

    /// Counters of a requested world. A new one replaces the least recently requested: a sweep reads the counters of
    /// its current worlds.
    fn world(&mut self, world: u32) -> &mut WorldFigures {
        if self.worlds.len() >= OriginFigures::WORLDS_MAX && !self.worlds.contains_key(&world) {
            let oldest = self.worlds.iter().min_by_key(|(_, recent)| recent.last).map(|(&oldest, _)| oldest);
            oldest.and_then(|oldest| self.worlds.remove(&oldest));
            self.figures.worlds_forgotten += 1;
        }
        let recent = self.worlds.entry(world).or_default();
        recent.last = self.figures.requests;
        &mut recent.figures
    }

    /// Counts a response and its body bytes; `cut`: fewer than announced.
    pub fn answer(&mut self, world: u32, full: bool, content_bytes: u64, cut: bool) {
        let figures = &mut self.figures;
        *(if full { &mut figures.full } else { &mut figures.not_modified }) += 1;
        figures.aborted += u64::from(cut);
        figures.content_bytes += content_bytes;
        if let Some(RecentWorld { figures, .. }) = self.worlds.get_mut(&world) {
            figures.content_bytes += content_bytes;
        }
    }

    /// Subtracts bytes that were not sent.
    pub fn take_back(&mut self, world: u32, bytes: u64) {
        self.figures.content_bytes -= bytes;
        if let Some(RecentWorld { figures, .. }) = self.worlds.get_mut(&world) {
            // The world may have been replaced and requested again.
            figures.content_bytes = figures.content_bytes.saturating_sub(bytes);
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use polymix::Object;

    use super::*;

    /// Sweeps that run for days use one origin: it must continue to count current worlds.
    #[test]
    fn counts_of_the_most_recent_worlds_are_stored() {
        let mut counts = Counts::default();
        let request = |world| ObjectRequest {
            world,
            object: Object { kind: 0, number: 1 },
            request_id: None,
            method: Method::Get,
            gzip: false,
            since_s: None,
            tags: None,
            old: false,
            keep_alive: true,
        };
        let last = OriginFigures::WORLDS_MAX as u32 + 9;
        for world in 0..=last {
            // This world is requested repeatedly.
            counts.begin(&request(u32::MAX), false, false);
            counts.begin(&request(world), false, false);
            counts.begin(&request(world), false, false);
            counts.answer(world, true, 10, false);
        }
        assert_eq!(counts.worlds.len(), OriginFigures::WORLDS_MAX);
        let expected = WorldFigures { requests: 2, content_bytes: 10, without_request_id: 2 };
        assert_eq!(counts.worlds.get(&last).map(|recent| recent.figures), Some(expected));
        assert!(counts.worlds.contains_key(&u32::MAX) && !counts.worlds.contains_key(&9));
        assert_eq!(counts.figures.worlds_forgotten, 11);
        // A response for a world that has been replaced meanwhile.
        counts.answer(9, true, 10, false);
        counts.take_back(9, 10);
        assert_eq!(counts.worlds.len(), OriginFigures::WORLDS_MAX);
    }
}
