//! From a run that was made to the points of the sweep.

use std::ops::Range;
use std::sync::Arc;

use lab::Outcome;
use ledger::document::PhasePart;
use ledger::{CacheExchange, CacheFigures, CachePoint, OriginTraffic};
use mix::origin_figures::WorldFigures;
use mix::{Judge, World};
use units::{Bytes, Timestamp};

use super::ideal;
use super::phases::PhaseOfPoint;

/// What a run was, besides what the lab knows.
pub struct Made<'a> {
    /// What the lab says of it.
    pub outcome: &'a Outcome,
    /// Every exchange, as recorded; none where the table is only a sample.
    pub exchanges: Option<Vec<CacheExchange>>,
    /// The world in which objects were asked for.
    pub world: Arc<World>,
    /// What of this world reached the origin, where it could be asked.
    pub origin: Option<WorldFigures>,
    /// Whether too many failures ended it.
    pub ended_early: bool,
    /// Size of the cache, for the simulation.
    pub cache_size: Option<Bytes>,
}

impl Made<'_> {
    /// Its points: one, or with phases one for each that is measured and was reached.
    pub fn points(&self, phases: &[PhaseOfPoint]) -> Vec<CachePoint> {
        if phases.is_empty() {
            return self.whole().into_iter().collect();
        }
        let parts = self.outcome.document.load.as_ref().map(|load| &load.by_phase[..]).unwrap_or_default();
        let measured = |part: &&PhasePart| phases.iter().any(|phase| phase.measured && phase.name == part.name);
        parts.iter().filter(measured).filter(|part| part.to_s > part.from_s).map(|part| self.phase(part)).collect()
    }

    /// The whole measured phase.
    fn whole(&self) -> Option<CachePoint> {
        let load = self.outcome.document.load.as_ref()?;
        let mut figures = self.outcome.cache.clone()?;
        self.fill_ideals(&mut figures, self.outcome.measured.clone());
        Some(CachePoint {
            run: self.outcome.document.run.id.clone(),
            phase: String::new(),
            offered_rate_per_s: load.offered_rate_per_s,
            carried_rate_per_s: load.carried_rate_per_s,
            duration_s: self.outcome.document.run.duration_s,
            ended_early: self.ended_early,
            figures,
            origin: self.origin.and_then(|reached| self.saved(reached)),
        })
    }

    /// One phase of it: judged again with what came before it known, so that only its window is counted.
    fn phase(&self, part: &PhasePart) -> CachePoint {
        let at = |seconds: f64| {
            let nanos = (seconds.max(0.0) * 1e9).round() as u64;
            Timestamp::from_nanos(self.outcome.measured.start.as_nanos().saturating_add(nanos))
        };
        let window = at(part.from_s)..at(part.to_s);
        let mut judge = Judge::new(Arc::clone(&self.world), (window.start, Some(window.end)));
        for exchange in self.exchanges.iter().flatten() {
            judge.add(&mut exchange.clone());
        }
        let mut figures = judge.finish();
        self.fill_ideals(&mut figures, window);
        CachePoint {
            run: self.outcome.document.run.id.clone(),
            phase: part.name.clone(),
            offered_rate_per_s: part.offered_rate_per_s,
            carried_rate_per_s: part.carried_rate_per_s,
            duration_s: part.to_s - part.from_s,
            ended_early: self.ended_early,
            figures,
            // The origin counts a whole run: what of it was of this phase nobody knows.
            origin: None,
        }
    }

    fn fill_ideals(&self, figures: &mut CacheFigures, window: Range<Timestamp>) {
        if let Some(exchanges) = &self.exchanges {
            // Where the table lacks some, the ideals stay absent, which the sweep says.
            ideal::ideals_of(exchanges, window, self.cache_size).fill(figures);
        }
    }

    /// What the cache kept from the origin: all that robots sent and got outside TLS, warm-up and drain included, as the origin
    /// counts.
    pub fn saved(&self, reached: WorldFigures) -> Option<OriginTraffic> {
        let exchanges = self.exchanges.as_ref()?;
        let seen = || exchanges.iter().filter(|exchange| !exchange.secure);
        let sent = seen().filter(|exchange| exchange.sent_at.is_some()).count() as i64;
        let got: i64 = seen().map(|exchange| exchange.body_bytes as i64).sum();
        Some(OriginTraffic {
            requests: reached.requests,
            bytes: reached.content_bytes,
            saved_requests: sent - reached.requests as i64,
            saved_bytes: got - reached.content_bytes as i64,
        })
    }
}
