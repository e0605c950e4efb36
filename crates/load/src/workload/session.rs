//! Sessions: what one user does, one step after another.

use std::time::Duration;

use stats::Rng;

/// A sequence of requests by one client.
///
/// It begins with an arrival; in a closed loop, when the one before of the same user has ended. Nothing of it is intended
/// after the end of the load's phase: what is left then is cut off. A request that fails ends it, unless it goes on: then
/// the next step follows all the same, but what a failed page embeds is not asked for.
#[derive(Clone, Debug)]
pub struct SessionSpec {
    /// What results call it.
    pub name: Option<String>,
    /// Share among the sessions, relative to the others; above 0, finite.
    pub weight: f64,
    /// In order, at least one.
    pub steps: Vec<Step>,
    /// A failed request does not end the session.
    pub goes_on: bool,
}

/// One step: a request, and what its page embeds.
#[derive(Clone, Debug)]
pub struct Step {
    /// Index into [`Workload::requests`](super::Workload::requests).
    pub request: u32,
    /// When it is intended.
    pub when: When,
    /// Requests for what the page embeds, in order. As many as go in parallel are intended when the step's own response
    /// is whole, each further one when one before it has ended: so send lag stays what the generator is late by. The
    /// step has ended when all have.
    pub embedded: Vec<u32>,
    /// Embedded objects in flight at once: over HTTP/1 that many connections of the client, 6 in browsers. 0 is taken
    /// as 1. In an open loop the cap on connections holds for them too.
    pub parallel: u16,
}

/// When a step is intended.
#[derive(Clone, Debug)]
pub enum When {
    /// So long after the step before has ended; for the first step, after the session's arrival.
    After(Think),
    /// So long after the session's arrival, whatever the steps before do.
    At(Duration),
}

impl When {
    /// The fixed moment, from the session's arrival.
    pub fn at(&self) -> Option<Duration> {
        match self {
            When::At(at) => Some(*at),
            When::After(_) => None,
        }
    }
}

/// A time for which a user does nothing.
#[derive(Clone, Debug)]
pub enum Think {
    /// Always the same; may be zero.
    Constant(Duration),
    /// Evenly spread from the first to the last.
    Uniform(Duration, Duration),
    /// Exponential, cut at `max`.
    Exponential {
        /// Mean before the cut.
        mean: Duration,
        /// Longest.
        max: Duration,
    },
    /// Log-normal, cut at `max`.
    LogNormal {
        /// Median.
        median: Duration,
        /// Standard deviation of the logarithm.
        sigma: f64,
        /// Longest.
        max: Duration,
    },
}

impl Think {
    /// A draw; at most 146 years.
    pub fn draw(&self, rng: &mut Rng) -> Duration {
        let time = match *self {
            Think::Constant(time) => time,
            Think::Uniform(least, most) => least.saturating_add(scaled(most.saturating_sub(least), rng.uniform())),
            Think::Exponential { mean, max } => scaled(mean, rng.exponential()).min(max),
            Think::LogNormal { median, sigma, max } => {
                // Box and Muller: one of the two values, from an exponential draw and an angle.
                let radius = (2.0 * rng.exponential()).sqrt();
                let normal = radius * (std::f64::consts::TAU * rng.uniform()).cos();
                scaled(median, (sigma * normal).exp()).min(max)
            }
        };
        time.min(LONGEST)
    }
}

/// The moments of a run are 64 bits of nanoseconds: this fits beside any of them.
const LONGEST: Duration = Duration::from_nanos(1 << 62);

/// Rounded to nanoseconds.
fn scaled(time: Duration, factor: f64) -> Duration {
    let nanos = (time.as_secs_f64() * 1e9 * factor).round();
    // A float turned into an integer is cut to its range.
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
        // Standard errors: 0.0018 (uniform over 2 s), 0.0032 (exponential, cut once in 22,000): five of them.
        let uniform = seconds(&Think::Uniform(second, 3 * second));
        assert!((mean(&uniform) - 2.0).abs() < 0.009 && uniform.iter().all(|time| (1.0..=3.0).contains(time)));
        let exponential = seconds(&Think::Exponential { mean: second, max: 10 * second });
        assert!((mean(&exponential) - 1.0).abs() < 0.016 && exponential.iter().all(|&time| time <= 10.0));
        let mut log_normal = seconds(&Think::LogNormal { median: second, sigma: 0.8, max: 5 * second });
        assert!(log_normal.iter().all(|&time| time <= 5.0));
        log_normal.sort_by(f64::total_cmp);
        // Quantiles of the normal distribution: 0 at a half, 1 at 0.8413; the error of the latter is 0.004 or so.
        assert!((log_normal[50_000].ln()).abs() < 0.016, "{}", log_normal[50_000]);
        assert!((log_normal[84_134].ln() / 0.8 - 1.0).abs() < 0.025, "{}", log_normal[84_134]);
    }

    #[test]
    fn think_times_never_overflow() {
        let mut rng = Rng::named(1, "think");
        let long = Think::LogNormal { median: Duration::MAX, sigma: 100.0, max: Duration::MAX };
        (0..1000).for_each(|_| assert!(long.draw(&mut rng) <= LONGEST));
        assert_eq!(
            Think::Uniform(Duration::from_secs(2), Duration::from_secs(1)).draw(&mut rng),
            Duration::from_secs(2)
        );
    }
}
