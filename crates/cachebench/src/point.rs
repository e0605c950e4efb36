//! From a run that was made to the points of the sweep.

use std::ops::Range;
use std::sync::Arc;

use polymix::origin_figures::WorldFigures;
use polymix::{Judge, World};
use schema::document::PhasePart;
use schema::{CacheFigures, CachePoint, OriginTraffic};
use store::StoreError;
use testbed::Outcome;
use units::{Bytes, Timestamp};

use super::exchanges::Exchanges;
use super::ideal;
use super::phases::PhaseOfPoint;

/// What a run was, besides what the lab knows.
pub struct PointRun<'a> {
    /// What the lab says of it.
    pub outcome: &'a Outcome,
    /// Every exchange, as recorded; none where the table is only a sample, or cannot be read.
    pub exchanges: Option<Exchanges>,
    /// Why the table could not be read, where it could not.
    pub unread: Option<StoreError>,
    /// The world in which objects were asked for.
    pub world: Arc<World>,
    /// What of this world reached the origin, where it could be asked.
    pub origin: Option<WorldFigures>,
    /// Whether failures ended it: too many, or nothing but refused connections.
    pub ended_early: bool,
    /// Size of the cache, for the simulation.
    pub cache_size: Option<Bytes>,
}

impl<'a> PointRun<'a> {
    /// With its table looked through.
    pub fn new(outcome: &'a Outcome, world: Arc<World>, origin: Option<WorldFigures>) -> Self {
        let mut made =
            PointRun { outcome, exchanges: None, unread: None, world, origin, ended_early: false, cache_size: None };
        // What the disk could not take is missing from the table, and a part has no order.
        if let Some(folder) = outcome.folder.as_deref().filter(|_| outcome.exchanges_left_out == 0) {
            match Exchanges::open(folder) {
                Ok(exchanges) => made.exchanges = Some(exchanges),
                Err(error) => made.unread = Some(error),
            }
        }
        made
    }

    /// Its points: one, or with phases one for each that is measured and was reached, where every exchange is at hand to be
    /// judged again.
    pub fn points(&mut self, phases: &[PhaseOfPoint]) -> Vec<CachePoint> {
        if phases.is_empty() {
            return self.whole().into_iter().collect();
        }
        let parts = self.outcome.document.load.as_ref().map(|load| &load.by_phase[..]).unwrap_or_default();
        let reached = |part: &&PhasePart| part.to_s > part.from_s;
        let measured = |part: &&PhasePart| phases.iter().any(|phase| phase.measured && phase.name == part.name);
        // Whatever ended the run ended the last phase that began, and those before it came to their end.
        let last = parts.iter().rposition(|part| reached(&part));
        let wanted = parts.iter().enumerate().filter(|(_, part)| reached(part) && measured(part));
        let wanted: Vec<(bool, &PhasePart)> = wanted.map(|(at, part)| (Some(at) == last, part)).collect();
        let mut points = Vec::new();
        for (is_last, part) in wanted {
            match self.phase(part, is_last) {
                Ok(point) => points.extend(point),
                Err(error) => self.unread = Some(error),
            }
        }
        points
    }

    /// The whole measured phase.
    fn whole(&mut self) -> Option<CachePoint> {
        let load = self.outcome.document.load.as_ref()?;
        let mut figures = self.outcome.cache.clone()?;
        if let Err(error) = self.fill_ideals(&mut figures, self.outcome.measured.clone()) {
            self.unread = Some(error);
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

    /// One phase of it: judged again with what came before it known, so that only its window is counted.
    fn phase(&self, part: &PhasePart, is_last: bool) -> Result<Option<CachePoint>, StoreError> {
        let Some(exchanges) = &self.exchanges else { return Ok(None) };
        let at = |seconds: f64| {
            let nanos = (seconds.max(0.0) * 1e9).round() as u64;
            Timestamp::from_nanos(self.outcome.measured.start.as_nanos().saturating_add(nanos))
        };
        let window = at(part.from_s)..at(part.to_s);
        let mut judge = Judge::new(Arc::clone(&self.world), (window.start, Some(window.end)));
        for exchange in exchanges.by_end()? {
            judge.add(&mut exchange?);
        }
        let mut figures = judge.finish();
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
            // The origin counts a whole run: what of it was of this phase nobody knows.
            origin: None,
        }))
    }

    /// Where the table lacks some, the ideals stay absent, which the sweep says.
    fn fill_ideals(&self, figures: &mut CacheFigures, window: Range<Timestamp>) -> Result<(), StoreError> {
        let Some(exchanges) = &self.exchanges else { return Ok(()) };
        ideal::ideals_in_order(exchanges.by_sending()?, window, self.cache_size)?.fill(figures);
        Ok(())
    }

    /// What the cache kept from the origin: all that robots sent and got an answer to outside TLS, warm-up and drain included,
    /// as the origin counts.
    pub fn saved(&self, reached: WorldFigures) -> Option<OriginTraffic> {
        let answered = self.exchanges.as_ref()?.answered();
        let less = |ours: u64, its: u64| ours as i64 - its as i64;
        Some(OriginTraffic {
            requests: reached.requests,
            bytes: reached.content_bytes,
            saved_requests: less(answered.requests, reached.requests),
            saved_bytes: less(answered.bytes, reached.content_bytes),
        })
    }
}
