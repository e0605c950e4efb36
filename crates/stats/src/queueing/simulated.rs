//! Queues in virtual time, for the quantiles that no formula gives.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use crate::Histogram;
use crate::rng::Rng;

/// Of the arrivals, the first tenth is of a queue that was empty a moment ago, and is not recorded.
const UNRECORDED: u64 = 10;

/// Response times, in ns, of `arrivals` requests that come at `rate` a second (Poisson) to `cores` processors which all
/// present share equally, one request at most one core. `classes` are shares of the requests (any positive weights)
/// with their demands in seconds of a core.
///
/// With `quota`, all of them together may use `(cores, period)`: so many cores' time in each period, all at once if
/// they like, after which they stand still until the next one begins, as the kernel holds a group of processes
/// (cpu.max, cpu.cfs_quota_us). What is not used is lost.
///
/// The first tenth of the arrivals is not recorded; requests go on arriving until all that are recorded have left. At
/// and above what the processors can do the queue grows for as long as it is simulated, and so do the figures. A
/// hundred thousand arrivals take some 50 ms.
///
/// # Panics
/// No class, or weights, demands, rate, cores or quota that are not above 0 and finite.
pub fn simulate_ps(
    classes: &[(f64, f64)],
    rate: f64,
    cores: u32,
    quota: Option<(f64, Duration)>,
    arrivals: u64,
    rng: &mut Rng,
) -> Histogram {
    let demands = Demands::of(classes);
    assert!(rate > 0.0 && rate.is_finite() && cores > 0, "{rate}/s on {cores} cores");
    let quota = quota.map(|(share, period)| {
        assert!(share > 0.0 && share.is_finite() && !period.is_zero(), "{share} cores in {period:?}");
        let period_s = period.as_secs_f64();
        Quota { budget_s: share * period_s, period_s, left_s: share * period_s, periods: 0 }
    });
    let mut shared = Shared { cores: f64::from(cores), now: 0.0, served: 0.0, present: BinaryHeap::new(), quota };
    let mut times = Histogram::new();
    let skipped = arrivals / UNRECORDED;
    let (mut arrived, mut awaited) = (0, arrivals - skipped);
    let mut next = rng.exponential() / rate;
    while awaited > 0 {
        match shared.until(next) {
            Some(left) => {
                if (skipped..arrivals).contains(&left.number) {
                    awaited -= 1;
                    times.record(nanoseconds(shared.now - left.arrived));
                }
            }
            None => {
                let demand_s = demands.draw(rng);
                shared.present.push(Reverse(Present {
                    done_at: shared.served + demand_s,
                    number: arrived,
                    arrived: next,
                }));
                arrived += 1;
                next += rng.exponential() / rate;
            }
        }
        // Where the queue grows without end, those who come later only keep it from ever being empty.
        if arrived >= arrivals * 2 {
            next = f64::INFINITY;
        }
    }
    times
}

/// Response times, in ns, of `arrivals` requests that come at `rate` a second (Poisson) to `workers`, each of which is
/// held by one request for the time of its class, in order of arrival: a server of processes or threads, whose clients
/// far away hold a worker for much longer than they use a core. `classes` are shares of the requests (any positive
/// weights) with the seconds that a worker is held.
///
/// The first tenth of the arrivals is not recorded. At and above `workers` over the mean time held the queue grows for
/// as long as it is simulated.
///
/// # Panics
/// No class, or weights, times, rate or workers that are not above 0 and finite.
pub fn simulate_workers(classes: &[(f64, f64)], rate: f64, workers: u32, arrivals: u64, rng: &mut Rng) -> Histogram {
    let held = Demands::of(classes);
    assert!(rate > 0.0 && rate.is_finite() && workers > 0, "{rate}/s for {workers} workers");
    // When each worker is free.
    let mut free: BinaryHeap<Reverse<Moment>> = (0..workers).map(|_| Reverse(Moment(0.0))).collect();
    let mut times = Histogram::new();
    let (skipped, mut now) = (arrivals / UNRECORDED, 0.0);
    for number in 0..arrivals {
        now += rng.exponential() / rate;
        let Reverse(Moment(worker)) = free.pop().expect("there is a worker");
        let done = worker.max(now) + held.draw(rng);
        free.push(Reverse(Moment(done)));
        if number >= skipped {
            times.record(nanoseconds(done - now));
        }
    }
    times
}

fn nanoseconds(seconds: f64) -> u64 {
    (seconds * 1e9).round() as u64
}

/// Demands of classes, by their shares.
struct Demands {
    /// Share of this class and those before it, and its demand.
    classes: Vec<(f64, f64)>,
}

impl Demands {
    fn of(classes: &[(f64, f64)]) -> Self {
        let is_usable = |value: f64| value > 0.0 && value.is_finite();
        assert!(
            !classes.is_empty() && classes.iter().all(|&(share, of)| is_usable(share) && is_usable(of)),
            "{classes:?}"
        );
        let whole: f64 = classes.iter().map(|&(share, _)| share).sum();
        let mut before = 0.0;
        let classes = classes
            .iter()
            .map(|&(share, of)| {
                before += share / whole;
                (before, of)
            })
            .collect();
        Demands { classes }
    }

    fn draw(&self, rng: &mut Rng) -> f64 {
        let drawn = rng.uniform();
        let found = self.classes.iter().find(|&&(until, _)| drawn < until);
        // Shares that add up to a little less than 1.
        found.or(self.classes.last()).expect("there is a class").1
    }
}

/// Processors and those who share them. All present are served at the same pace, so that who leaves first is known by
/// the service all of them have had.
struct Shared {
    cores: f64,
    now: f64,
    /// Service that one who was always there would have had, in seconds.
    served: f64,
    present: BinaryHeap<Reverse<Present>>,
    quota: Option<Quota>,
}

struct Quota {
    budget_s: f64,
    period_s: f64,
    left_s: f64,
    /// Periods that have begun, less one.
    periods: u64,
}

impl Shared {
    /// Goes on until somebody leaves, at the latest until `next`.
    fn until(&mut self, next: f64) -> Option<Present> {
        if self.present.is_empty() && next.is_finite() {
            self.idle_until(next);
            return None;
        }
        loop {
            let count = self.present.len() as f64;
            let used = count.min(self.cores);
            let pace = if count > 0.0 { used / count } else { 0.0 };
            let leaves = self.present.peek().map(|Reverse(first)| (first.done_at - self.served).max(0.0) / pace);
            let spends = self.quota.as_ref().map(|quota| quota.left_s / used);
            let renews = self.quota.as_ref().map(|quota| (quota.periods + 1) as f64 * quota.period_s - self.now);
            let stands = self.quota.as_ref().is_some_and(|quota| quota.left_s <= 0.0);
            let arrives = next - self.now;
            // What comes first, and of things at one moment the one that lets others go on.
            let runs = if stands { f64::INFINITY } else { leaves.unwrap_or(f64::INFINITY) };
            let spends = if stands || count == 0.0 { f64::INFINITY } else { spends.unwrap_or(f64::INFINITY) };
            let renews = renews.unwrap_or(f64::INFINITY);
            let step = runs.min(spends).min(renews).min(arrives).max(0.0);
            if !stands {
                self.served += step * pace;
                if let Some(quota) = &mut self.quota {
                    quota.left_s -= step * used;
                }
            }
            self.now += step;
            // Who leaves as the budget ends does not wait for the next period because of a rounding.
            if runs - step <= ROUNDING_S {
                let Reverse(left) = self.present.pop()?;
                self.served = self.served.max(left.done_at);
                return Some(left);
            }
            if renews <= step {
                let quota = self.quota.as_mut().expect("only a quota is renewed");
                quota.periods += 1;
                quota.left_s = quota.budget_s;
            } else if spends <= step {
                self.quota.as_mut().expect("only a quota is spent").left_s = 0.0;
            } else {
                // Exactly there, so that moments do not drift.
                self.now = next;
                return None;
            }
        }
    }
}

impl Shared {
    /// Nobody is there until `next`: whole periods pass unused.
    fn idle_until(&mut self, next: f64) {
        self.now = next;
        if let Some(quota) = &mut self.quota {
            let periods = (next / quota.period_s) as u64;
            if periods > quota.periods {
                (quota.periods, quota.left_s) = (periods, quota.budget_s);
            }
        }
    }
}

/// Far below a nanosecond, in which times are recorded, and far above what a sum of seconds loses.
const ROUNDING_S: f64 = 1e-10;

struct Present {
    /// Leaves when all have had so much service.
    done_at: f64,
    number: u64,
    arrived: f64,
}

impl Ord for Present {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.done_at.total_cmp(&other.done_at).then(self.number.cmp(&other.number))
    }
}

impl PartialOrd for Present {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Present {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Present {}

/// A moment in seconds, in order.
struct Moment(f64);

impl Ord for Moment {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.0.total_cmp(&other.0)
    }
}

impl PartialOrd for Moment {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Moment {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Moment {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queueing::{ps_response, ps_response_of_cores};

    const ARRIVALS: u64 = 400_000;

    fn mean_s(times: &Histogram) -> f64 {
        times.mean() / 1e9
    }

    fn near(found: f64, is: f64, within: f64) {
        assert!((found / is - 1.0).abs() < within, "{found} instead of {is}");
    }

    /// D / (1 - U), whatever the distribution: at a half the mean of 400,000 is known within a few parts in a thousand.
    #[test]
    fn simulated_mean_matches_the_queueing_formula() {
        let mut rng = Rng::new(31, 1);
        let fixed = simulate_ps(&[(1.0, 0.01)], 50.0, 1, None, ARRIVALS, &mut rng);
        near(mean_s(&fixed), ps_response(0.01, 0.5), 0.01);
        assert_eq!(fixed.len(), ARRIVALS - ARRIVALS / 10);
        // Nobody is served faster than alone.
        assert!(fixed.quantiles().min >= 10_000_000 - 2);
        let mixed = simulate_ps(&[(9.0, 0.005), (1.0, 0.055)], 50.0, 1, None, ARRIVALS, &mut rng);
        near(mean_s(&mixed), ps_response(0.01, 0.5), 0.02);
        let of_four = simulate_ps(&[(3.0, 0.02), (1.0, 0.1)], 70.0, 4, None, ARRIVALS, &mut rng);
        near(mean_s(&of_four), ps_response_of_cores(0.04, 4, 0.7), 0.02);
    }

    /// One request at a time of 3 ms that may run for 1 ms in each 5 ms: 9.4 ms in the mean, as is worked out where it
    /// arrives at each moment of a period; 11 ms at most.
    #[test]
    fn a_cpu_quota_delays_as_computed_by_hand() {
        let mut rng = Rng::new(31, 2);
        let quota = Some((0.2, Duration::from_millis(5)));
        let times = simulate_ps(&[(1.0, 0.003)], 0.02, 1, quota, 20_000, &mut rng);
        near(mean_s(&times), 0.009_4, 0.01);
        near(times.value_at(0.95) as f64, 11e6, 0.001);
        near(times.quantiles().min as f64, 7e6, 0.005);
        // What needs less than the budget does not feel it.
        let light = simulate_ps(&[(1.0, 0.000_1)], 0.02, 1, quota, 20_000, &mut rng);
        near(light.value_at(0.5) as f64, 1e5, 0.001);
    }

    /// A quota of a fifth of a core carries a fifth of what the core does, and not more.
    #[test]
    fn a_cpu_quota_equals_a_slower_cpu_in_the_long_run() {
        let mut rng = Rng::new(31, 3);
        let quota = Some((0.2, Duration::from_millis(5)));
        let below = simulate_ps(&[(1.0, 0.001)], 180.0, 1, quota, 100_000, &mut rng);
        assert!(below.value_at(0.99) < 500_000_000, "{:?}", below.quantiles());
        let above = simulate_ps(&[(1.0, 0.001)], 220.0, 1, quota, 100_000, &mut rng);
        // It grows by a tenth of the time that passes.
        assert!(above.value_at(0.99) > 20_000_000_000, "{:?}", above.quantiles());
    }

    /// M/D/1: D + D U / (2 (1 - U)) (Pollaczek and Khinchine). Workers that are never all taken hold nobody up.
    #[test]
    fn simulated_workers_match_the_formula() {
        let mut rng = Rng::new(31, 4);
        let one = simulate_workers(&[(1.0, 0.01)], 60.0, 1, ARRIVALS, &mut rng);
        near(mean_s(&one), 0.01 + 0.01 * 0.6 / (2.0 * 0.4), 0.02);
        let many = simulate_workers(&[(1.0, 0.01)], 60.0, 100, 10_000, &mut rng);
        assert_eq!((many.quantiles().min, many.max()), (10_000_000, 10_000_000));
        // Ten workers, each held for a second, end ten requests a second.
        let full = simulate_workers(&[(1.0, 1.0)], 12.0, 10, 12_000, &mut rng);
        near(full.max() as f64, 200e9, 0.15);
    }

    #[test]
    fn the_same_seed_gives_the_same_results() {
        let of = |seed| simulate_ps(&[(1.0, 0.01)], 80.0, 1, None, 1_000, &mut Rng::new(seed, 0)).quantiles();
        assert_eq!(of(1), of(1));
        assert_ne!(of(1), of(2));
    }
}
