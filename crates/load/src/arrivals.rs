//! When requests are intended.
//!
//! ```text
//!   rate over time (requests/s):  ___/‾‾‾|__      what is offered, exactly known beforehand
//!   x process:  constant | Poisson | bursts | self-similar      how arrivals are spaced under that rate
//! ```
//!
//! A process is defined at one arrival a unit of *work*, and the rate says how fast work passes: arrival k of the
//! constant process is at the moment when the integral of the rate reaches k, and the gaps of the Poisson process are
//! exponential in that integral, which makes it the inhomogeneous Poisson process of that rate. The two bursty
//! processes multiply the rate by a random factor of mean 1.

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
    /// Open loop: arrivals do not wait for answers.
    Open {
        /// How they are spaced.
        spacing: Spacing,
        /// How many there are a second, on average.
        rate: RateOverTime,
    },
    /// Open loop: arrivals of a log, each with its own client and request. Shards share them.
    Logged(Arc<Logged>),
}

/// Arrivals that were recorded, to be made again.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Logged {
    /// In order of time. Clients are below the load's number of clients, requests index its workload.
    pub arrivals: Vec<LoggedArrival>,
    /// A round begins so long after the one before it.
    pub round: std::time::Duration,
    /// How many rounds; `None` for without end.
    pub rounds: Option<u64>,
}

/// How the arrivals of an open loop are spaced.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Spacing {
    /// Equal gaps: under a constant rate the k-th (from 0) comes at start + k/rate.
    Constant,
    /// Independent users: exponential gaps.
    Poisson,
    /// Poisson, with a rate that jumps between a high and a low one (MMPP with two states).
    Bursts(Bursts),
    /// Poisson, with the rate of many sources that are silent and active for heavy-tailed times.
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

    /// Whether arrivals do not wait for answers.
    pub fn is_open(&self) -> bool {
        !matches!(self, Arrivals::Closed)
    }
}

/// The moments of an open loop's arrivals, in order. Depends on nothing but rate, spacing, start and seed: the server
/// cannot push it. Without end, unless the rate ends at 0: then the last is followed by [`Timestamp::MAX`].
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
    Random { rng: Rng, at: rate::Place, modulation: Modulation },
}

impl Schedule {
    /// The schedule of `arrivals` from `start`; `None` for the closed loop, which has none, and for logged arrivals, which
    /// are not drawn.
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
            Some(modulation) => State::Random { rng: Rng::named(seed, "arrivals"), at: rate::Place::START, modulation },
        };
        let mut schedule = Schedule { rate: rate.clone(), spacing, start, next: start };
        schedule.draw();
        Some(schedule)
    }

    /// The next arrival.
    pub fn next(&self) -> Timestamp {
        self.next
    }

    /// Takes the next arrival and draws the one after it.
    pub fn take(&mut self) -> Timestamp {
        let taken = self.next;
        self.draw();
        taken
    }

    fn draw(&mut self) {
        // Every moment is computed from the start, never from the one before rounded to nanoseconds: no drift. A
        // double holds the product to 1e-16, so after a day the error is a hundredth of a nanosecond.
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
        // `as` saturates: an arrival beyond 584 years is at the end of time, and so is one that never comes.
        let nanos = self.start.as_nanos().saturating_add(since_start_ns.round() as u64);
        self.next = Timestamp::from_nanos(nanos);
    }
}

#[cfg(test)]
mod tests;
