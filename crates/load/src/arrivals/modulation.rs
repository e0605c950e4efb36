//! Random modulation of the rate: a factor of mean 1 on the offered rate, constant between its jumps.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use stats::Rng;

use super::rate::{Position, RateOverTime};

/// A rate that alternates between high and low: a Markov-modulated Poisson process of two states. The durations of both
/// states are exponential. The low rate is such that the mean is the offered rate.
///
/// Source: Fischer, Meier-Hellstern, "The Markov-modulated Poisson process (MMPP) cookbook", Performance Evaluation
/// 18 (1993).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bursts {
    factor: f64,
    on: Duration,
    off: Duration,
}

impl Bursts {
    /// Bursts of the mean length `on` with `factor` times the offered rate, and pauses of the mean length `off`.
    ///
    /// # Errors
    /// A factor is under 1, or so high that the rate of the pauses would be negative, or a time is zero.
    pub fn new(factor: f64, on: Duration, off: Duration) -> Result<Self, String> {
        if on.is_zero() || off.is_zero() {
            return Err("bursts and the pauses between them must last some time".to_owned());
        }
        let highest = (on + off).as_secs_f64() / on.as_secs_f64();
        if !(1.0..=highest).contains(&factor) {
            return Err(format!(
                "a burst's factor is from 1 to {highest:.3} here ((on + off) / on: then the pauses are silent), not {factor}"
            ));
        }
        Ok(Bursts { factor, on, off })
    }

    /// The factors on the offered rate in a burst and in a pause.
    pub fn factors(&self) -> (f64, f64) {
        let (on, off) = (self.on.as_secs_f64(), self.off.as_secs_f64());
        (self.factor, ((on + off - self.factor * on) / off).max(0.0))
    }
}

/// Many sources, each alternately active and silent for times with a Pareto distribution. Their sum is self-similar
/// with the Hurst parameter (3 - alpha) / 2, at time scales from the mean active time to the length of the run.
///
/// Source: Willinger, Taqqu, Sherman, Wilson, "Self-similarity through high-variability", ACM SIGCOMM 1995.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SelfSimilar {
    sources: u32,
    alpha: f64,
    on: Duration,
    off: Duration,
}

impl SelfSimilar {
    /// Maximum number of sources. Each state change of a source costs one step of computation.
    pub const SOURCES_MAX: u32 = 10_000;

    /// `sources` sources, active for `on` and silent for `off` on average, with the tail exponent `alpha` for both
    /// times.
    ///
    /// # Errors
    /// The number of sources is 0 or above [`Self::SOURCES_MAX`], the exponent is outside 1.05 to 1.95, or a time is
    /// zero.
    pub fn new(sources: u32, alpha: f64, on: Duration, off: Duration) -> Result<Self, String> {
        if sources == 0 || sources > Self::SOURCES_MAX {
            return Err(format!("from 1 to {} sources are possible, not {sources}", Self::SOURCES_MAX));
        }
        // Closer to 1 the mean exists, but no run is long enough to measure it.
        if !(1.05..=1.95).contains(&alpha) {
            return Err(format!("the tail exponent alpha is from 1.05 to 1.95, not {alpha}"));
        }
        if on.is_zero() || off.is_zero() {
            return Err("activity and silence must last some time".to_owned());
        }
        Ok(SelfSimilar { sources, alpha, on, off })
    }

    /// The Hurst parameter of the number of arrivals at large scales.
    pub fn hurst(&self) -> f64 {
        (3.0 - self.alpha) / 2.0
    }
}

/// The modulating factor over time.
#[derive(Clone, Debug)]
pub(super) struct Modulation {
    factor: f64,
    /// Time of the factor's next change; infinite if it never changes.
    until_ns: f64,
    kind: Kind,
}

#[derive(Clone, Debug)]
enum Kind {
    None,
    Bursts { bursts: Bursts, in_burst: bool, rng: Rng },
    Sources(Box<Sources>),
}

#[derive(Clone, Debug)]
struct Sources {
    spec: SelfSimilar,
    active: Vec<bool>,
    active_count: u32,
    /// Time of the next state change of each source, in whole nanoseconds, as floats are not `Ord`.
    next_changes: BinaryHeap<Reverse<(u64, u32)>>,
    rng: Rng,
}

impl Modulation {
    pub fn none() -> Self {
        Modulation { factor: 1.0, until_ns: f64::INFINITY, kind: Kind::None }
    }

    pub fn bursts(spec: &Bursts, seed: u64) -> Self {
        let mut rng = Rng::named(seed, "bursts");
        // The process starts in equilibrium: the remaining time in a state with an exponential duration is exponential.
        let (on, off) = (spec.on.as_nanos() as f64, spec.off.as_nanos() as f64);
        let in_burst = rng.uniform() < on / (on + off);
        let until_ns = rng.exponential() * if in_burst { on } else { off };
        let (high, low) = spec.factors();
        let factor = if in_burst { high } else { low };
        Modulation { factor, until_ns, kind: Kind::Bursts { bursts: *spec, in_burst, rng } }
    }

    pub fn self_similar(spec: &SelfSimilar, seed: u64) -> Self {
        let mut rng = Rng::named(seed, "self-similar");
        let (on, off) = (spec.on.as_nanos() as f64, spec.off.as_nanos() as f64);
        let mut sources = Sources {
            spec: *spec,
            active: Vec::new(),
            active_count: 0,
            next_changes: BinaryHeap::with_capacity(spec.sources as usize),
            rng: Rng::named(seed, "self-similar-stays"),
        };
        for source in 0..spec.sources {
            let active = rng.uniform() < on / (on + off);
            let left = pareto_residual(&mut rng, spec.alpha, if active { on } else { off });
            sources.active.push(active);
            sources.active_count += u32::from(active);
            sources.next_changes.push(Reverse((left as u64, source)));
        }
        let mut modulation = Modulation { factor: 1.0, until_ns: 0.0, kind: Kind::Sources(Box::new(sources)) };
        modulation.settle();
        modulation
    }

    /// The position after `at` at which the integral of rate times factor has grown by `work`.
    pub fn advance(&mut self, rate: &RateOverTime, at: Position, mut work: f64) -> Position {
        let mut at = at;
        loop {
            let target = at.reached + work / self.factor;
            // With a factor of 0 the target is infinite.
            let ns = if target.is_finite() { rate.reaches(target) } else { f64::INFINITY };
            if ns <= self.until_ns {
                // Rounding must not put an arrival before the previous one.
                return Position { ns: ns.max(at.ns), reached: target };
            }
            let reached = rate.reached_at(self.until_ns);
            work = (work - (reached - at.reached) * self.factor).max(0.0);
            at = Position { ns: self.until_ns, reached };
            if rate.is_over_at(at.ns) || !self.jump() {
                return Position { ns: f64::INFINITY, reached };
            }
        }
    }

    /// Changes the factor at its next jump; false if the jump is beyond the range of time.
    fn jump(&mut self) -> bool {
        // 584 years, the range of [`units::Timestamp`].
        if self.until_ns >= u64::MAX as f64 {
            return false;
        }
        match &mut self.kind {
            Kind::None => false,
            Kind::Bursts { bursts, in_burst, rng } => {
                *in_burst = !*in_burst;
                let ((high, low), stay) =
                    (bursts.factors(), if *in_burst { bursts.on } else { bursts.off }.as_nanos() as f64);
                self.factor = if *in_burst { high } else { low };
                self.until_ns += rng.exponential() * stay;
                true
            }
            Kind::Sources(sources) => {
                sources.change_next();
                self.settle();
                true
            }
        }
    }

    /// Computes the factor and the next jump from the sources.
    fn settle(&mut self) {
        if let Kind::Sources(sources) = &self.kind {
            let spec = &sources.spec;
            let (on, off) = (spec.on.as_secs_f64(), spec.off.as_secs_f64());
            let mean = f64::from(spec.sources) * on / (on + off);
            self.factor = f64::from(sources.active_count) / mean;
            self.until_ns = sources.next_changes.peek().map_or(f64::INFINITY, |Reverse((ns, _))| *ns as f64);
        }
    }
}

impl Sources {
    /// Changes the state of the source that is next.
    fn change_next(&mut self) {
        let Some(Reverse((ns, source))) = self.next_changes.pop() else { return };
        let active = &mut self.active[source as usize];
        *active = !*active;
        self.active_count = if *active { self.active_count + 1 } else { self.active_count - 1 };
        let mean = if *active { self.spec.on } else { self.spec.off }.as_nanos() as f64;
        let stay = pareto(&mut self.rng, self.spec.alpha, mean);
        self.next_changes.push(Reverse((ns.saturating_add((stay as u64).max(1)), source)));
    }
}

/// Draws from the Pareto distribution with tail exponent `alpha` above 1 and the mean `mean`.
fn pareto(rng: &mut Rng, alpha: f64, mean: f64) -> f64 {
    let least = mean * (alpha - 1.0) / alpha;
    least * (1.0 - rng.uniform()).powf(-1.0 / alpha)
}

/// Draws the remaining time of a Pareto-distributed state at a random time: density (1 - F(x)) / mean.
fn pareto_residual(rng: &mut Rng, alpha: f64, mean: f64) -> f64 {
    let least = mean * (alpha - 1.0) / alpha;
    // The distribution function is x / mean up to `least`, where it is (alpha - 1) / alpha. Above `least` it is
    // 1 - (least / x)^(alpha - 1) / alpha.
    let u = rng.uniform();
    if u <= (alpha - 1.0) / alpha { u * mean } else { least * (alpha * (1.0 - u)).powf(-1.0 / (alpha - 1.0)) }
}
