//! The specification of sessions: the requests of one user, step by step.

use std::time::Duration;

use stats::Rng;

/// A sequence of requests by one client.
///
/// A session begins with an arrival; in a closed loop, when the user's previous session has ended. No request is
/// scheduled after the end of the measured phase; an unfinished session is cut. A failed request ends the session,
/// unless `goes_on`: then the next step follows, but the embedded objects of a failed page are not requested.
#[derive(Clone, Debug)]
pub struct SessionSpec {
    /// Name in results.
    pub name: Option<String>,
    /// Weight of the session in a random choice; above 0, finite.
    pub weight: f64,
    /// The steps in order, at least one.
    pub steps: Vec<Step>,
    /// Whether the session continues after a failed request.
    pub goes_on: bool,
}

/// A step: a request, and the embedded objects of its page.
#[derive(Clone, Debug)]
pub struct Step {
    /// Index into [`Workload::requests`](super::Workload::requests).
    pub request: u32,
    /// When the step's request is scheduled.
    pub when: When,
    /// Requests for the embedded objects, in order. Up to `parallel` are scheduled when the step's own response is
    /// complete, each further one when an earlier one has ended, so that send lag is only the generator's own delay.
    /// The step ends with the last of them.
    pub embedded: Vec<u32>,
    /// Maximum concurrent requests for embedded objects: over HTTP/1 this number of connections of the client, 6 in
    /// browsers. 0 counts as 1. In an open loop the maximum of connections applies too.
    pub parallel: u16,
}

/// When a step is scheduled.
#[derive(Clone, Debug)]
pub enum When {
    /// After a think time from the end of the previous step; for the first step, from the session's arrival.
    After(Think),
    /// At a fixed time after the session's arrival, independent of earlier steps.
    At(Duration),
}

impl When {
    /// The fixed time after the session's arrival, if the step has one.
    pub fn at(&self) -> Option<Duration> {
        match self {
            When::At(at) => Some(*at),
            When::After(_) => None,
        }
    }
}

/// The distribution of a think time.
#[derive(Clone, Debug)]
pub enum Think {
    /// A constant time; may be zero.
    Constant(Duration),
    /// Uniform between the two times.
    Uniform(Duration, Duration),
    /// Exponential, limited to `max`.
    Exponential {
        /// Mean before the limit.
        mean: Duration,
        /// Maximum.
        max: Duration,
    },
    /// Log-normal, limited to `max`.
    LogNormal {
        /// Median.
        median: Duration,
        /// Standard deviation of the logarithm.
        sigma: f64,
        /// Maximum.
        max: Duration,
    },
}

impl Think {
    /// Draws a think time of at most 146 years.
    pub fn draw(&self, rng: &mut Rng) -> Duration {
        let time = match *self {
            Think::Constant(time) => time,
            Think::Uniform(least, most) => least.saturating_add(scaled(most.saturating_sub(least), rng.uniform())),
            Think::Exponential { mean, max } => scaled(mean, rng.exponential()).min(max),
            Think::LogNormal { median, sigma, max } => {
                // The Box-Muller method, from an exponential draw and an angle.
                let radius = (2.0 * rng.exponential()).sqrt();
                let normal = radius * (std::f64::consts::TAU * rng.uniform()).cos();
                scaled(median, (sigma * normal).exp()).min(max)
            }
        };
        time.min(THINK_TIME_MAX)
    }
}

/// Maximum think time; the sum with any timestamp of a run fits into 64 bits of nanoseconds.
const THINK_TIME_MAX: Duration = Duration::from_nanos(1 << 62);

/// A multiple of a duration, rounded to nanoseconds.
fn scaled(time: Duration, factor: f64) -> Duration {
    let nanos = (time.as_secs_f64() * 1e9 * factor).round();
    // The conversion saturates at the range of the integer.
    Duration::from_nanos(nanos as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(think: &Think) -> Vec<f64> {
        let mut rng = Rng::named(11, "think");
        (0..100_000).map(|_| think.draw(&mut rng).as_secs_f64()).collect()
    }

    #[test]
    fn think_times_follow_their_distribution() {
        let second = Duration::from_secs(1);
        assert!(seconds(&Think::Constant(second)).iter().all(|&time| time == 1.0));
        let mean = |times: &[f64]| times.iter().sum::<f64>() / times.len() as f64;
        // Standard errors: 0.0018 (uniform over 2 s), 0.0032 (exponential, limited once in 22,000 draws). The limits
        // are five times these.
        let uniform = seconds(&Think::Uniform(second, 3 * second));
        assert!((mean(&uniform) - 2.0).abs() < 0.009 && uniform.iter().all(|time| (1.0..=3.0).contains(time)));
        let exponential = seconds(&Think::Exponential { mean: second, max: 10 * second });
        assert!((mean(&exponential) - 1.0).abs() < 0.016 && exponential.iter().all(|&time| time <= 10.0));
        let mut log_normal = seconds(&Think::LogNormal { median: second, sigma: 0.8, max: 5 * second });
        assert!(log_normal.iter().all(|&time| time <= 5.0));
        log_normal.sort_by(f64::total_cmp);
        // Quantiles of the normal distribution: 0 at 0.5, 1 at 0.8413; the standard error of the latter is about 0.004.
        assert!((log_normal[50_000].ln()).abs() < 0.016, "{}", log_normal[50_000]);
        assert!((log_normal[84_134].ln() / 0.8 - 1.0).abs() < 0.025, "{}", log_normal[84_134]);
    }

    #[test]
    fn think_times_never_overflow() {
        let mut rng = Rng::named(1, "think");
        let long = Think::LogNormal { median: Duration::MAX, sigma: 100.0, max: Duration::MAX };
        (0..1000).for_each(|_| assert!(long.draw(&mut rng) <= THINK_TIME_MAX));
        assert_eq!(
            Think::Uniform(Duration::from_secs(2), Duration::from_secs(1)).draw(&mut rng),
            Duration::from_secs(2)
        );
    }
}
