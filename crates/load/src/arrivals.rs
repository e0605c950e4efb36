//! When requests are intended.

use stats::Rng;
use units::{RequestRate, Timestamp};

/// The arrival process.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Arrivals {
    /// Closed loop: each connection issues its next request when the one before has ended.
    Closed,
    /// Open loop, one every `1/rate`: the k-th (from 0) at start + k/rate.
    Constant(RequestRate),
    /// Open loop, exponential gaps of mean `1/rate`.
    Poisson(RequestRate),
}

impl Arrivals {
    /// Whether arrivals do not wait for answers.
    pub fn is_open(self) -> bool {
        !matches!(self, Arrivals::Closed)
    }
}

/// The moments of an open loop's arrivals, in order, without end. Depends on nothing but rate, start and seed: the
/// server cannot push it.
#[derive(Clone, Debug)]
pub struct Schedule {
    process: Process,
    start: Timestamp,
    next: Timestamp,
}

#[derive(Clone, Debug)]
enum Process {
    Constant { per_second: f64, index: u64 },
    Poisson { per_second: f64, elapsed_ns: f64, rng: Rng },
}

impl Schedule {
    /// The schedule of `arrivals` from `start`; `None` for the closed loop, which has none.
    pub fn new(arrivals: Arrivals, start: Timestamp, seed: u64) -> Option<Schedule> {
        let process = match arrivals {
            Arrivals::Closed => return None,
            Arrivals::Constant(rate) => Process::Constant { per_second: rate.per_second(), index: 0 },
            Arrivals::Poisson(rate) => {
                let rng = Rng::named(seed, "arrivals");
                Process::Poisson { per_second: rate.per_second(), elapsed_ns: 0.0, rng }
            }
        };
        let mut schedule = Schedule { process, start, next: start };
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
        let since_start_ns = match &mut self.process {
            Process::Constant { per_second, index } => {
                let since_start_ns = *index as f64 * 1e9 / *per_second;
                *index += 1;
                since_start_ns
            }
            Process::Poisson { per_second, elapsed_ns, rng } => {
                *elapsed_ns += rng.exponential() * 1e9 / *per_second;
                *elapsed_ns
            }
        };
        // `as` saturates: an arrival beyond 584 years is at the end of time.
        let nanos = self.start.as_nanos().saturating_add(since_start_ns.round() as u64);
        self.next = Timestamp::from_nanos(nanos);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn rate(per_second: f64) -> RequestRate {
        RequestRate::from_per_second(per_second).unwrap()
    }

    #[test]
    fn a_constant_schedule_does_not_drift() {
        let start = Timestamp::from_nanos(5);
        let mut schedule = Schedule::new(Arrivals::Constant(rate(3.0)), start, 0).unwrap();
        let taken: Vec<u64> = (0..4).map(|_| schedule.take().as_nanos()).collect();
        assert_eq!(taken, [5, 333_333_338, 666_666_672, 1_000_000_005]);
        for _ in 4..3_000_000 {
            schedule.take();
        }
        assert_eq!(schedule.next().as_nanos(), 1_000_000 * 1_000_000_000 + 5);
    }

    #[test]
    fn poisson_gaps_have_the_mean_and_spread_of_an_exponential() {
        let mut schedule = Schedule::new(Arrivals::Poisson(rate(1000.0)), Timestamp::ZERO, 11).unwrap();
        let mut last = 0;
        let gaps: Vec<f64> = (0..100_000)
            .map(|_| {
                let at = schedule.take().as_nanos();
                let gap = at - last;
                last = at;
                gap as f64 / 1e6
            })
            .collect();
        let n = gaps.len() as f64;
        let mean = gaps.iter().sum::<f64>() / n;
        let variance = gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / n;
        // Standard errors: 0.0032 of the mean, 0.009 of the variance (an exponential's kurtosis is 9). Five of them.
        assert!((mean - 1.0).abs() < 0.016, "{mean}");
        assert!((variance - 1.0).abs() < 0.045, "{variance}");
    }

    #[test]
    fn the_closed_loop_has_no_schedule() {
        assert!(Schedule::new(Arrivals::Closed, Timestamp::ZERO, 0).is_none());
    }

    proptest! {
        #[test]
        fn arrivals_are_in_order_and_a_seed_repeats_them(per_second in 0.001f64..1e9, seed: u64, poisson: bool) {
            let arrivals = if poisson { Arrivals::Poisson(rate(per_second)) } else { Arrivals::Constant(rate(per_second)) };
            let mut one = Schedule::new(arrivals, Timestamp::ZERO, seed).unwrap();
            let mut two = Schedule::new(arrivals, Timestamp::ZERO, seed).unwrap();
            let mut last = Timestamp::ZERO;
            for _ in 0..200 {
                let at = one.take();
                prop_assert!(at >= last);
                prop_assert_eq!(at, two.take());
                last = at;
            }
        }

        /// Over any window that begins with an arrival, a constant schedule has as many as its rate, rounded.
        #[test]
        fn a_constant_rate_holds_over_every_window(per_second in 1.0f64..1e6, from in 0u64..10_000, n in 1u64..10_000) {
            let schedule = Schedule {
                process: Process::Constant { per_second, index: from },
                start: Timestamp::ZERO,
                next: Timestamp::ZERO,
            };
            let mut schedule = schedule;
            schedule.draw();
            let first = schedule.next().as_nanos() as f64;
            schedule.process = Process::Constant { per_second, index: from + n };
            schedule.draw();
            let length_ns = schedule.next().as_nanos() as f64 - first;
            prop_assert!((length_ns - n as f64 * 1e9 / per_second).abs() <= 1.5);
        }
    }
}
