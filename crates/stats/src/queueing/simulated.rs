//! Simulates queues in virtual time, for quantiles without a formula.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use crate::Histogram;
use crate::rng::Rng;

/// One tenth of the arrivals is the warm-up from an empty queue, and is not recorded.
const WARM_UP_DIVISOR: u64 = 10;

/// Simulates processor sharing: response times, in ns, of `arrivals` requests that arrive at `rate` per second
/// (Poisson) at `cores` processors, which all requests share equally with at most one core each. `classes` are the
/// weights of classes of requests with their demands in seconds of a core.
///
/// `quota` is a CPU limit `(cores, period)`: all requests together may use this many cores' time in each period,
/// possibly in parallel, and are then throttled until the next period, as with the kernel's cpu.max or
/// cpu.cfs_quota_us. Unused time is lost.
///
/// The first tenth of the arrivals is not recorded. Requests continue to arrive until all recorded requests have ended.
/// At and above saturation the queue grows during the whole simulation, and so do the response times. A hundred
/// thousand arrivals take some 50 ms.
///
/// # Panics
/// If there is no class, or if weights, demands, rate, cores or quota are not above 0 and finite.
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
    let skipped = arrivals / WARM_UP_DIVISOR;
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
        // Above saturation the queue would never become empty, so arrivals end after twice the number.
        if arrived >= arrivals * 2 {
            next = f64::INFINITY;
        }
    }
    times
}

/// Simulates a server of processes or threads: response times, in ns, of `arrivals` requests that arrive at `rate` per
/// second (Poisson) and occupy one of `workers` workers each, in order of arrival. Far-away clients occupy a worker for
/// much longer than they use a core. `classes` are the weights of classes of requests with the seconds that they occupy
/// a worker.
///
/// The first tenth of the arrivals is not recorded. At rates of `workers` over the mean time and above, the queue grows
/// during the whole simulation.
///
/// # Panics
/// If there is no class, or if weights, times, rate or workers are not above 0 and finite.
pub fn simulate_workers(classes: &[(f64, f64)], rate: f64, workers: u32, arrivals: u64, rng: &mut Rng) -> Histogram {
    let occupation = Demands::of(classes);
    assert!(rate > 0.0 && rate.is_finite() && workers > 0, "{rate}/s for {workers} workers");
    // The time at which each worker becomes free.
    let mut free: BinaryHeap<Reverse<OrderedSeconds>> = (0..workers).map(|_| Reverse(OrderedSeconds(0.0))).collect();
    let mut times = Histogram::new();
    let (skipped, mut now) = (arrivals / WARM_UP_DIVISOR, 0.0);
    for number in 0..arrivals {
        now += rng.exponential() / rate;
        let Reverse(OrderedSeconds(worker)) = free.pop().expect("at least one worker");
        let done = worker.max(now) + occupation.draw(rng);
        free.push(Reverse(OrderedSeconds(done)));
        if number >= skipped {
            times.record(nanoseconds(done - now));
        }
    }
    times
}

fn nanoseconds(seconds: f64) -> u64 {
    (seconds * 1e9).round() as u64
}

/// The demands of classes, for random draws by weight.
struct Demands {
    /// Cumulative share and demand of each class.
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
        // Because of rounding, the shares may add up to a little less than 1.
        found.or(self.classes.last()).expect("at least one class").1
    }
}

/// The processors and the requests that share them. All requests are served at the same rate, so the next one to end is
/// the one with the lowest remaining service.
struct Shared {
    cores: f64,
    now: f64,
    /// Service per request since the beginning, in seconds.
    served: f64,
    present: BinaryHeap<Reverse<Present>>,
    quota: Option<Quota>,
}

struct Quota {
    budget_s: f64,
    period_s: f64,
    left_s: f64,
    /// Number of the current period, from 0.
    periods: u64,
}

impl Shared {
    /// Simulates until a request ends, at the latest until `next`.
    fn until(&mut self, next: f64) -> Option<Present> {
        if self.present.is_empty() && next.is_finite() {
            self.idle_until(next);
            return None;
        }
        loop {
            let count = self.present.len() as f64;
            let used = count.min(self.cores);
            let speed = if count > 0.0 { used / count } else { 0.0 };
            let until_end = self.present.peek().map(|Reverse(first)| (first.done_at - self.served).max(0.0) / speed);
            let until_spent = self.quota.as_ref().map(|quota| quota.left_s / used);
            let until_renewal = self.quota.as_ref().map(|quota| (quota.periods + 1) as f64 * quota.period_s - self.now);
            let is_throttled = self.quota.as_ref().is_some_and(|quota| quota.left_s <= 0.0);
            let until_arrival = next - self.now;
            // The next event; at equal times the one that frees resources comes first.
            let until_next_end = if is_throttled { f64::INFINITY } else { until_end.unwrap_or(f64::INFINITY) };
            let until_spent =
                if is_throttled || count == 0.0 { f64::INFINITY } else { until_spent.unwrap_or(f64::INFINITY) };
            let until_renewal = until_renewal.unwrap_or(f64::INFINITY);
            let step = until_next_end.min(until_spent).min(until_renewal).min(until_arrival).max(0.0);
            if !is_throttled {
                self.served += step * speed;
                if let Some(quota) = &mut self.quota {
                    quota.left_s -= step * used;
                }
            }
            self.now += step;
            // A request that ends exactly when the quota is used up must not wait for the next period because of
            // rounding.
            if until_next_end - step <= TOLERANCE_S {
                let Reverse(left) = self.present.pop()?;
                self.served = self.served.max(left.done_at);
                return Some(left);
            }
            if until_renewal <= step {
                let quota = self.quota.as_mut().expect("only a quota is renewed");
                quota.periods += 1;
                quota.left_s = quota.budget_s;
            } else if until_spent <= step {
                self.quota.as_mut().expect("only a quota is spent").left_s = 0.0;
            } else {
                // Set exactly, so that times do not drift.
                self.now = next;
                return None;
            }
        }
    }
}

impl Shared {
    /// Advances to `next` without requests; whole periods pass unused.
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

/// Tolerance for equal times: far below the recorded nanoseconds, and far above the rounding error of sums of seconds.
const TOLERANCE_S: f64 = 1e-10;

struct Present {
    /// The request ends when the service per request reaches this.
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

/// A time in seconds, with a total order.
struct OrderedSeconds(f64);

impl Ord for OrderedSeconds {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.0.total_cmp(&other.0)
    }
}

impl PartialOrd for OrderedSeconds {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for OrderedSeconds {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for OrderedSeconds {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queueing::{ps_response, ps_response_of_cores};

    const ARRIVALS: u64 = 400_000;

    fn mean_s(times: &Histogram) -> f64 {
        times.mean() / 1e9
    }

    fn near(actual: f64, expected: f64, within: f64) {
        assert!((actual / expected - 1.0).abs() < within, "{actual} instead of {expected}");
    }

    /// The mean is D / (1 - U) for any distribution. At utilization 1/2 the error of the mean of 400,000 is a few per
    /// mille.
    #[test]
    fn simulated_mean_matches_the_queueing_formula() {
        let mut rng = Rng::new(31, 1);
        let fixed = simulate_ps(&[(1.0, 0.01)], 50.0, 1, None, ARRIVALS, &mut rng);
        near(mean_s(&fixed), ps_response(0.01, 0.5), 0.01);
        assert_eq!(fixed.len(), ARRIVALS - ARRIVALS / 10);
        // No request is faster than alone.
        assert!(fixed.quantiles().min >= 10_000_000 - 2);
        let mixed = simulate_ps(&[(9.0, 0.005), (1.0, 0.055)], 50.0, 1, None, ARRIVALS, &mut rng);
        near(mean_s(&mixed), ps_response(0.01, 0.5), 0.02);
        let of_four = simulate_ps(&[(3.0, 0.02), (1.0, 0.1)], 70.0, 4, None, ARRIVALS, &mut rng);
        near(mean_s(&of_four), ps_response_of_cores(0.04, 4, 0.7), 0.02);
    }

    /// A single request of 3 ms with 1 ms of CPU time per 5 ms takes 9.4 ms on average over all arrival times within a
    /// period, and at most 11 ms.
    #[test]
    fn a_cpu_quota_delays_as_computed_by_hand() {
        let mut rng = Rng::new(31, 2);
        let quota = Some((0.2, Duration::from_millis(5)));
        let times = simulate_ps(&[(1.0, 0.003)], 0.02, 1, quota, 20_000, &mut rng);
        near(mean_s(&times), 0.009_4, 0.01);
        near(times.value_at(0.95) as f64, 11e6, 0.001);
        near(times.quantiles().min as f64, 7e6, 0.005);
        // A request below the quota is not delayed.
        let light = simulate_ps(&[(1.0, 0.000_1)], 0.02, 1, quota, 20_000, &mut rng);
        near(light.value_at(0.5) as f64, 1e5, 0.001);
    }

    /// A quota of a fifth of a core has a fifth of the core's capacity.
    #[test]
    fn a_cpu_quota_equals_a_slower_cpu_in_the_long_run() {
        let mut rng = Rng::new(31, 3);
        let quota = Some((0.2, Duration::from_millis(5)));
        let below = simulate_ps(&[(1.0, 0.001)], 180.0, 1, quota, 100_000, &mut rng);
        assert!(below.value_at(0.99) < 500_000_000, "{:?}", below.quantiles());
        let above = simulate_ps(&[(1.0, 0.001)], 220.0, 1, quota, 100_000, &mut rng);
        // The queue grows by a tenth of the elapsed time.
        assert!(above.value_at(0.99) > 20_000_000_000, "{:?}", above.quantiles());
    }

    /// M/D/1: D + D U / (2 (1 - U)) (Pollaczek and Khinchine). With enough workers no request waits.
    #[test]
    fn simulated_workers_match_the_formula() {
        let mut rng = Rng::new(31, 4);
        let one = simulate_workers(&[(1.0, 0.01)], 60.0, 1, ARRIVALS, &mut rng);
        near(mean_s(&one), 0.01 + 0.01 * 0.6 / (2.0 * 0.4), 0.02);
        let many = simulate_workers(&[(1.0, 0.01)], 60.0, 100, 10_000, &mut rng);
        assert_eq!((many.quantiles().min, many.max()), (10_000_000, 10_000_000));
        // Ten workers with one second per request end ten requests per second.
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
