//! Converts a finished run into points of the sweep.

use std::ops::Range;
use std::sync::Arc;

use polymix::origin_figures::WorldFigures;
use polymix::{Verifier, World};
use schema::document::PhasePart;
use schema::{CacheFigures, CachePoint, OriginTraffic};
use store::StoreError;
use testbed::Outcome;
use units::{Bytes, Timestamp};

use super::exchanges::Exchanges;
use super::ideal;
use super::phases::PointPhase;

/// A finished run of a point.
pub struct PointRun<'a> {
    /// Outcome reported by the testbed.
    pub outcome: &'a Outcome,
    /// The recorded exchanges; `None` if the table is incomplete or unreadable.
    pub exchanges: Option<Exchanges>,
    /// Error of reading the table, if any.
    pub read_error: Option<StoreError>,
    /// The world of the requested objects.
    pub world: Arc<World>,
    /// Counts of this world at the origin, if known.
    pub origin: Option<WorldFigures>,
    /// Whether failures ended the run: too many, or only refused connections.
    pub ended_early: bool,
    /// Size of the cache for the simulation.
    pub cache_size: Option<Bytes>,
}

impl<'a> PointRun<'a> {
    /// A finished run, with its table opened.
    pub fn new(outcome: &'a Outcome, world: Arc<World>, origin: Option<WorldFigures>) -> Self {
        let mut made = PointRun {
            outcome,
            exchanges: None,
            read_error: None,
            world,
            origin,
            ended_early: false,
            cache_size: None,
        };
        // A table with missing exchanges cannot be simulated.
        if let Some(folder) = outcome.folder.as_deref().filter(|_| outcome.exchanges_left_out == 0) {
            match Exchanges::open(folder) {
                Ok(exchanges) => made.exchanges = Some(exchanges),
                Err(error) => made.read_error = Some(error),
            }
        }
        made
    }

    /// The points of the run: one, or with phases one for each measured phase that was reached. Phases need the
    /// complete table, since they are verified again.
    pub fn points(&mut self, phases: &[PointPhase]) -> Vec<CachePoint> {
        if phases.is_empty() {
            return self.whole().into_iter().collect();
        }
        let parts = self.outcome.document.load.as_ref().map(|load| &load.by_phase[..]).unwrap_or_default();
        let reached = |part: &&PhasePart| part.to_s > part.from_s;
        let measured = |part: &&PhasePart| phases.iter().any(|phase| phase.measured && phase.name == part.name);
        // An early end affects only the last phase reached.
        let last = parts.iter().rposition(|part| reached(&part));
        let selected = parts.iter().enumerate().filter(|(_, part)| reached(part) && measured(part));
        let selected: Vec<(bool, &PhasePart)> = selected.map(|(at, part)| (Some(at) == last, part)).collect();
        let mut points = Vec::new();
        for (is_last, part) in selected {
            match self.phase(part, is_last) {
                Ok(point) => points.extend(point),
                Err(error) => self.read_error = Some(error),
            }
        }
        points
    }

    /// The point of the whole measured phase.
    fn whole(&mut self) -> Option<CachePoint> {
        let load = self.outcome.document.load.as_ref()?;
        let mut figures = self.outcome.cache.clone()?;
        if let Err(error) = self.fill_ideals(&mut figures, self.outcome.measured.clone()) {
            self.read_error = Some(error);
        }
        let run = &self.outcome.document.run;
        Some(CachePoint {
            run: run.id.clone(),
            phase: String::new(),
            offered_rate_per_s: load.offered_rate_per_s,
            achieved_rate_per_s: load.achieved_rate_per_s,
            duration_s: run.duration_s,
            ended_early: self.ended_early,
            interrupted: run.interrupted && !self.ended_early,
            figures,
            origin: self.origin.and_then(|reached| self.saved(reached)),
        })
    }

    /// The point of one phase: all exchanges are verified again, those of the phase are counted.
    fn phase(&self, part: &PhasePart, is_last: bool) -> Result<Option<CachePoint>, StoreError> {
        let Some(exchanges) = &self.exchanges else { return Ok(None) };
        let at = |seconds: f64| {
            let nanos = (seconds.max(0.0) * 1e9).round() as u64;
            Timestamp::from_nanos(self.outcome.measured.start.as_nanos().saturating_add(nanos))
        };
        let window = at(part.from_s)..at(part.to_s);
        let mut verifier = Verifier::new(Arc::clone(&self.world), (window.start, Some(window.end)));
        for exchange in exchanges.by_end()? {
            verifier.add(&mut exchange?);
        }
        let mut figures = verifier.finish();
        self.fill_ideals(&mut figures, window)?;
        let run = &self.outcome.document.run;
        Ok(Some(CachePoint {
            run: run.id.clone(),
            phase: part.name.clone(),
            offered_rate_per_s: part.offered_rate_per_s,
            achieved_rate_per_s: part.achieved_rate_per_s,
            duration_s: part.to_s - part.from_s,
            ended_early: self.ended_early && is_last,
            interrupted: run.interrupted && !self.ended_early && is_last,
            figures,
            // The origin counts whole runs, not phases.
            origin: None,
        }))
    }

    /// Fills in the ideal ratios. They stay absent if the table is incomplete, which the sweep reports.
    fn fill_ideals(&self, figures: &mut CacheFigures, window: Range<Timestamp>) -> Result<(), StoreError> {
        let Some(exchanges) = &self.exchanges else { return Ok(()) };
        ideal::ideals_in_order(exchanges.by_sending()?, window, self.cache_size)?.fill(figures);
        Ok(())
    }

    /// Requests that the cache saved: those answered outside TLS, warm-up and drain included, less those that reached
    /// the origin.
    pub fn saved(&self, reached: WorldFigures) -> Option<OriginTraffic> {
        let answered = self.exchanges.as_ref()?.answered();
        let less = |answered: u64, at_origin: u64| answered as i64 - at_origin as i64;
        Some(OriginTraffic {
            requests: reached.requests,
            bytes: reached.content_bytes,
            saved_requests: less(answered.requests, reached.requests),
            saved_bytes: less(answered.bytes, reached.content_bytes),
        })
    }
}
