//! Arrival processes: when requests are scheduled.
//!
//! ```text
//!   rate over time (requests/s):  ___/‾‾‾|__      the offered rate, known in advance
//!   x process:  constant | Poisson | bursts | self-similar      how arrivals are spaced at that rate
//! ```
//!
//! A process is defined with a mean gap of one unit of the integral of the rate over time. Arrival k of the constant
//! process is at the time when the integral reaches k. The gaps of the Poisson process are exponential in the integral,
//! which makes it the inhomogeneous Poisson process of that rate. The two bursty processes multiply the rate by a
//! random factor of mean 1.

mod modulation;
mod rate;

use std::sync::Arc;

use stats::Rng;
use units::{RequestRate, Timestamp};

pub use modulation::{Bursts, SelfSimilar};
pub use rate::{RateOverTime, Stretch};

use crate::replay::LoggedArrival;
use modulation::Modulation;

/// The arrival process.
#[derive(Clone, Debug, PartialEq)]
pub enum Arrivals {
    /// Closed loop: each connection issues its next request when the one before has ended.
    Closed,
    /// Open loop: arrivals do not wait for responses.
    Open {
        /// How arrivals are spaced.
        spacing: Spacing,
        /// Mean number of arrivals per second, over time.
        rate: RateOverTime,
    },
    /// Open loop: arrivals of a log, each with its own client and request. Shards share them.
    Logged(Arc<Logged>),
}

/// Recorded arrivals, for a replay.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Logged {
    /// The arrivals in order of time. Clients are below the load's number of clients; requests are indices of its
    /// workload.
    pub arrivals: Vec<LoggedArrival>,
    /// Time from the beginning of one round to that of the next.
    pub round: std::time::Duration,
    /// Number of rounds; `None` for unlimited.
    pub rounds: Option<u64>,
}

/// How the arrivals of an open loop are spaced.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Spacing {
    /// Equal gaps: at a constant rate the k-th arrival (from 0) is at start + k/rate.
    Constant,
    /// Exponential gaps, as of independent users.
    Poisson,
    /// Poisson, with a rate that alternates between high and low (MMPP with two states).
    Bursts(Bursts),
    /// Poisson, with the summed rate of many sources that are active and silent for heavy-tailed times.
    SelfSimilar(SelfSimilar),
}

impl Arrivals {
    /// An open loop of equal gaps at one rate.
    pub fn constant(rate: RequestRate) -> Self {
        Arrivals::Open { spacing: Spacing::Constant, rate: RateOverTime::constant(rate) }
    }

    /// An open loop of exponential gaps at one rate.
    pub fn poisson(rate: RequestRate) -> Self {
        Arrivals::Open { spacing: Spacing::Poisson, rate: RateOverTime::constant(rate) }
    }

    /// The highest offered rate in arrivals per second, averaged over bursts; `None` of a closed loop, whose rate is the
    /// server's. A log's is its mean.
    pub fn peak_per_second(&self) -> Option<f64> {
        match self {
            Arrivals::Closed => None,
            Arrivals::Open { rate, .. } => Some(rate.peak_per_second()),
            Arrivals::Logged(logged) => {
                let round = logged.round.as_secs_f64();
                Some(if round > 0.0 { logged.arrivals.len() as f64 / round } else { f64::INFINITY })
            }
        }
    }

    /// Whether the load is an open loop, in which arrivals do not wait for responses.
    pub fn is_open(&self) -> bool {
        !matches!(self, Arrivals::Closed)
    }
}

/// The scheduled times of an open loop's arrivals, in order. They depend only on rate, spacing, start and seed, never
/// on the server. The schedule is endless, unless the rate ends at 0: then [`Timestamp::MAX`] follows the last arrival.
#[derive(Clone, Debug)]
pub struct Schedule {
    rate: RateOverTime,
    spacing: State,
    start: Timestamp,
    next: Timestamp,
}

#[derive(Clone, Debug)]
enum State {
    Constant { index: u64 },
    Random { rng: Rng, at: rate::Position, modulation: Modulation },
}

impl Schedule {
    /// The schedule of `arrivals` from `start`; `None` for the closed loop, which has no schedule, and for logged
    /// arrivals, which are not drawn.
    pub fn new(arrivals: &Arrivals, start: Timestamp, seed: u64) -> Option<Schedule> {
        let Arrivals::Open { spacing, rate } = arrivals else { return None };
        let modulation = match spacing {
            Spacing::Constant => None,
            Spacing::Poisson => Some(Modulation::none()),
            Spacing::Bursts(bursts) => Some(Modulation::bursts(bursts, seed)),
            Spacing::SelfSimilar(sources) => Some(Modulation::self_similar(sources, seed)),
        };
        let spacing = match modulation {
            None => State::Constant { index: 0 },
            Some(modulation) => {
                State::Random { rng: Rng::named(seed, "arrivals"), at: rate::Position::START, modulation }
            }
        };
        let mut schedule = Schedule { rate: rate.clone(), spacing, start, next: start };
        schedule.draw();
        Some(schedule)
    }

    /// The scheduled time of the next arrival.
    pub fn next(&self) -> Timestamp {
        self.next
    }

    /// Returns the scheduled time of the next arrival, and draws the one after it.
    pub fn take(&mut self) -> Timestamp {
        let taken = self.next;
        self.draw();
        taken
    }

    fn draw(&mut self) {
        // Every time is computed from the start, not from the previous time rounded to nanoseconds, so there is no
        // drift. The relative error of an f64 is 1e-16: after a day, a hundredth of a nanosecond.
        let since_start_ns = match &mut self.spacing {
            State::Constant { index } => {
                let since_start_ns = self.rate.reaches(*index as f64);
                *index += 1;
                since_start_ns
            }
            State::Random { rng, at, modulation } => {
                *at = modulation.advance(&self.rate, *at, rng.exponential());
                at.ns
            }
        };
        // `as` saturates: an arrival after 584 years, or an infinite time, becomes the maximum.
        let nanos = self.start.as_nanos().saturating_add(since_start_ns.round() as u64);
        self.next = Timestamp::from_nanos(nanos);
    }
}

#[cfg(test)]
mod tests;
