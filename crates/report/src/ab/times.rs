//! Statistics of request times as ab reports them.

/// Times of one request, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestTimes {
    /// Start of the request, from the run's zero.
    pub started_at_ns: u64,
    /// Connect time, including a TLS handshake; 0 on an open connection.
    pub connect_ns: u64,
    /// Time from the written request to the first byte of the response.
    pub waiting_ns: u64,
    /// Time from the start to the last byte.
    pub total_ns: u64,
}

impl RequestTimes {
    /// Total time without the connect time.
    pub fn processing_ns(&self) -> u64 {
        self.total_ns.saturating_sub(self.connect_ns)
    }
}

/// Times of all requests, shortest total first.
#[derive(Clone, Debug, Default)]
pub struct Times(Vec<RequestTimes>);

impl Times {
    /// Sorts times given in any order.
    pub fn new(mut times: Vec<RequestTimes>) -> Self {
        times.sort_by_key(|times| times.total_ns);
        Times(times)
    }

    /// Number of requests.
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// All times, shortest total first.
    pub fn iter(&self) -> impl Iterator<Item = &RequestTimes> {
        self.0.iter()
    }

    /// Statistics of one of the times; `None` without requests.
    pub fn spread(&self, of: fn(&RequestTimes) -> u64) -> Option<Spread> {
        Spread::of(self.0.iter().map(of).collect())
    }

    /// The total time that `percent` of the requests did not exceed, at ab's rank: count * percent / 100, from 0. This
    /// is never less than the exact quantile, and at most one rank above. `None` without requests.
    pub fn percentile_ns(&self, percent: u32) -> Option<u64> {
        self.at_rank(self.0.len() as u64 * u64::from(percent) / 100)
    }

    /// The percentile at the nearest rank, for the file of `-e`. With fewer than 51 requests ab reads beyond its last
    /// request; this function returns the longest time.
    pub fn nearest_percentile_ns(&self, percent: u32) -> Option<u64> {
        self.at_rank((self.0.len() as u64 * u64::from(percent) + 50) / 100)
    }

    fn at_rank(&self, rank: u64) -> Option<u64> {
        let last = self.0.len().checked_sub(1)?;
        Some(self.0[usize::try_from(rank).unwrap_or(last).min(last)].total_ns)
    }
}

/// Statistics of a time, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    /// Smallest.
    pub min_ns: u64,
    /// Arithmetic mean.
    pub mean_ns: f64,
    /// Sample standard deviation (n - 1); 0 of a single value.
    pub stddev_ns: f64,
    /// Median: the middle value, or the mean of the two middle values. (For an odd number ab averages two wrong
    /// values.)
    pub median_ns: f64,
    /// Largest.
    pub max_ns: u64,
}

impl Spread {
    fn of(mut values: Vec<u64>) -> Option<Spread> {
        values.sort_unstable();
        let (min_ns, max_ns) = (*values.first()?, *values.last()?);
        let count = values.len();
        let mean_ns = values.iter().map(|&value| value as f64).sum::<f64>() / count as f64;
        // A sum beyond 2^53 is rounded.
        let mean_ns = mean_ns.clamp(min_ns as f64, max_ns as f64);
        let squares: f64 = values.iter().map(|&value| (value as f64 - mean_ns).powi(2)).sum();
        let stddev_ns = if count > 1 { (squares / (count - 1) as f64).sqrt() } else { 0.0 };
        let median_ns = if count % 2 == 1 {
            values[count / 2] as f64
        } else {
            (values[count / 2 - 1] as f64 + values[count / 2] as f64) / 2.0
        };
        Some(Spread { min_ns, mean_ns, stddev_ns, median_ns, max_ns })
    }
}

/// Rounds to whole milliseconds, halves up, as ab does.
pub fn whole_ms(ns: f64) -> u64 {
    (ns / 1e6).round() as u64
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn totals(ms: &[u64]) -> Times {
        let request = |&ms: &u64| RequestTimes { total_ns: ms * 1_000_000, ..RequestTimes::default() };
        Times::new(ms.iter().map(request).collect())
    }

    fn spread(ms: &[u64]) -> Spread {
        totals(ms).spread(|times| times.total_ns).unwrap()
    }

    #[test]
    fn median_of_ab_is_the_middle_value() {
        assert_eq!(spread(&[9, 1, 2]).median_ns, 2e6);
        assert_eq!(spread(&[9, 1, 2, 4]).median_ns, 3e6);
        assert_eq!(spread(&[7]).median_ns, 7e6);
    }

    #[test]
    fn standard_deviation_is_that_of_a_sample() {
        let four = spread(&[2, 4, 4, 6]);
        assert_eq!((four.min_ns, four.mean_ns, four.max_ns), (2_000_000, 4e6, 6_000_000));
        assert!((four.stddev_ns - (8.0f64 / 3.0).sqrt() * 1e6).abs() < 1.0);
        assert_eq!(spread(&[7]).stddev_ns, 0.0);
        assert!(Times::default().spread(|times| times.total_ns).is_none());
    }

    #[test]
    fn percentiles_of_ab_are_at_ranks_of_requests() {
        let ten = totals(&[10, 20, 30, 40, 50, 60, 70, 80, 90, 100]);
        let ms = |ns: Option<u64>| ns.unwrap() / 1_000_000;
        assert_eq!([50, 90, 99, 100].map(|percent| ms(ten.percentile_ns(percent))), [60, 100, 100, 100]);
        assert_eq!([0, 1, 98, 99, 100].map(|percent| ms(ten.nearest_percentile_ns(percent))), [10, 10, 100, 100, 100]);
        assert_eq!(Times::default().percentile_ns(50), None);
    }

    #[test]
    fn share_of_requests_within_a_percentile_is_at_least_the_percentile() {
        for count in 1..=250u64 {
            let times = totals(&(1..=count).collect::<Vec<_>>());
            for percent in [50, 66, 75, 80, 90, 95, 98, 99, 100] {
                let within = times.percentile_ns(percent).unwrap() / 1_000_000;
                assert!(within * 100 >= count * u64::from(percent), "{percent} % of {count}");
                assert!(within <= (count * u64::from(percent)).div_ceil(100) + 1, "{percent} % of {count}");
            }
        }
    }

    proptest! {
        #[test]
        fn mean_median_and_percentiles_use_the_same_requests(
            ns in prop::collection::vec(prop_oneof![0u64..1000, Just(999_999_999_999u64), 0u64..3_600_000_000_000], 1..200),
        ) {
            let times = Times::new(ns.iter().map(|&total_ns| RequestTimes { total_ns, ..RequestTimes::default() }).collect());
            let Spread { min_ns, mean_ns, stddev_ns, median_ns, max_ns } = times.spread(|times| times.total_ns).unwrap();
            let ends = min_ns as f64..=max_ns as f64;
            prop_assert!(ends.contains(&mean_ns) && ends.contains(&median_ns) && stddev_ns >= 0.0);
            let percentiles = [0, 50, 66, 75, 80, 90, 95, 98, 99, 100].map(|percent| times.percentile_ns(percent).unwrap());
            prop_assert!(percentiles.is_sorted(), "{:?}", percentiles);
            prop_assert_eq!((percentiles[0], percentiles[9]), (min_ns, max_ns));
            prop_assert!(percentiles[1] as f64 >= median_ns);
        }
    }

    #[test]
    fn milliseconds_are_rounded_half_up() {
        assert_eq!([499_999.0, 500_000.0, 1_499_999.0].map(whole_ms), [0, 1, 1]);
    }
}
