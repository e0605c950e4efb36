//! Links that follow a file: delivery times, and delays over time.

use std::time::Duration;

use units::{BitRate, Bytes};

/// Delivery times of a bottleneck, in mahimahi's format: each line is a time in whole milliseconds at which up to
/// [`DeliveryTrace::OPPORTUNITY`] bytes leave; lines do not decrease, and a time may be repeated. After the last line
/// the trace repeats, its times counted from that of the last line.
///
/// As in mahimahi, a packet counts [`DeliveryTrace::OVERHEAD`] bytes more than its IP packet (the header of the TUN
/// device), the remainder of an opportunity goes to the next waiting packet, and an unused opportunity is lost. A
/// packet that arrives exactly at an opportunity has missed it. The trace counts from time zero, and restarts at
/// [`crate::Network::set_start`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeliveryTrace {
    times_ms: Vec<u64>,
}

/// In bits per second: the maximum of [`BitRate`].
const RATE_MAX_BITS_PER_SECOND: f64 = 1e12;

impl DeliveryTrace {
    /// Bytes that may leave at each time.
    pub const OPPORTUNITY: Bytes = Bytes(1504);
    /// Bytes that a packet counts in addition to its own.
    pub const OVERHEAD: Bytes = Bytes(4);

    /// A trace of these times, in milliseconds.
    ///
    /// # Errors
    /// The line, counted from 0, and the reason: no line at all, a time before the one above it, a last time of 0 (it
    /// would repeat immediately, forever), more than 10^12 bits per second.
    pub fn new(times_ms: Vec<u64>) -> Result<Self, (usize, String)> {
        let Some(&last) = times_ms.last() else { return Err((0, "a trace needs at least one line".to_owned())) };
        if let Some(line) = times_ms.windows(2).position(|pair| pair[1] < pair[0]) {
            return Err((
                line + 1,
                format!("{} ms is before the line above it; times must not decrease", times_ms[line + 1]),
            ));
        }
        if last == 0 {
            return Err((
                times_ms.len() - 1,
                "the last time must be above 0: the trace would have no length".to_owned(),
            ));
        }
        let trace = DeliveryTrace { times_ms };
        if trace.bits_per_second() > RATE_MAX_BITS_PER_SECOND {
            let line = trace.times_ms.len() - 1;
            return Err((line, "the lines up to here exceed 1 Tbit/s".to_owned()));
        }
        Ok(trace)
    }

    /// The times, in milliseconds, at least one, never decreasing.
    pub fn times_ms(&self) -> &[u64] {
        &self.times_ms
    }

    /// Length of the trace: when it repeats.
    pub fn length(&self) -> Duration {
        Duration::from_millis(self.times_ms.last().copied().unwrap_or(1))
    }

    /// Mean bits per second, with full opportunities; `None` below one.
    pub fn mean_rate(&self) -> Option<BitRate> {
        BitRate::from_bits_per_second(self.bits_per_second().round() as u64)
    }

    fn bits_per_second(&self) -> f64 {
        self.times_ms.len() as f64 * Self::OPPORTUNITY.0 as f64 * 8.0 / self.length().as_secs_f64()
    }
}

/// Propagation delay over time: linear between points, or steps; after the last point it repeats or stays.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DelayOverTime {
    /// Time since the start, and the one-way delay from then on; the first time is 0, times rise.
    points: Vec<(Duration, Duration)>,
    between: Between,
    repeats: bool,
}

/// Delay between two points.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Between {
    /// The delay of the preceding point.
    #[default]
    Steps,
    /// Linear interpolation.
    Lines,
}

impl DelayOverTime {
    /// The series. With `repeats` the time of the last point is that of the first again.
    ///
    /// # Errors
    /// The point, counted from 0, and the reason: no point, a first time that is not 0, times that do not rise; with
    /// `repeats` fewer than two points.
    pub fn new(points: Vec<(Duration, Duration)>, between: Between, repeats: bool) -> Result<Self, (usize, String)> {
        match points.first() {
            None => return Err((0, "a series needs at least one point".to_owned())),
            Some((first, _)) if !first.is_zero() => return Err((0, "the first time must be 0".to_owned())),
            Some(_) => {}
        }
        if let Some(index) = points.windows(2).position(|pair| pair[1].0 <= pair[0].0) {
            return Err((index + 1, "its time is not after that of the point above it".to_owned()));
        }
        if repeats && points.len() < 2 {
            return Err((0, "a series that repeats needs at least two points: the last is its length".to_owned()));
        }
        Ok(DelayOverTime { points, between, repeats })
    }

    /// The points.
    pub fn points(&self) -> &[(Duration, Duration)] {
        &self.points
    }

    /// The delay between two points.
    pub fn between(&self) -> Between {
        self.between
    }

    /// Whether it repeats after the last point.
    pub fn repeats(&self) -> bool {
        self.repeats
    }

    /// The delay at `time` since the start.
    pub fn at(&self, time: Duration) -> Duration {
        let last = self.points[self.points.len() - 1];
        let time = match self.repeats {
            true => Duration::from_nanos((time.as_nanos() % last.0.as_nanos()) as u64),
            false => time,
        };
        let after = self.points.partition_point(|&(begin, _)| begin <= time);
        let (from, delay) = self.points[after - 1];
        match (self.between, self.points.get(after)) {
            (Between::Steps, _) | (_, None) => delay,
            (Between::Lines, Some(&(to, next))) => {
                let share = (time - from).as_secs_f64() / (to - from).as_secs_f64();
                let nanos = delay.as_nanos() as f64 * (1.0 - share) + next.as_nanos() as f64 * share;
                Duration::from_nanos(nanos.round() as u64)
            }
        }
    }

    /// The same series with every delay multiplied by `share`, 0 to 1.
    pub fn scaled(&self, share: f64) -> Self {
        let points = self.points.iter().map(|&(time, delay)| (time, delay.mul_f64(share))).collect();
        DelayOverTime { points, ..*self }
    }

    /// Mean over the time from the first to the last point; with a single point, its delay.
    pub fn mean(&self) -> Duration {
        let whole = self.points[self.points.len() - 1].0.as_secs_f64();
        if whole == 0.0 {
            return self.points[0].1;
        }
        let parts = self.points.windows(2).map(|pair| {
            let ((from, delay), (to, next)) = (pair[0], pair[1]);
            let mean = match self.between {
                Between::Steps => delay.as_secs_f64(),
                Between::Lines => (delay.as_secs_f64() + next.as_secs_f64()) / 2.0,
            };
            mean * (to - from).as_secs_f64()
        });
        Duration::from_secs_f64(parts.sum::<f64>() / whole)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn delay_series_interpolates_lines_and_steps() {
        let points = vec![(ms(0), ms(10)), (ms(100), ms(30)), (ms(200), ms(10))];
        let steps = DelayOverTime::new(points.clone(), Between::Steps, false).unwrap();
        assert_eq!([0, 99, 100, 199, 200, 9999].map(|t| steps.at(ms(t))), [10, 10, 30, 30, 10, 10].map(ms));
        let lines = DelayOverTime::new(points, Between::Lines, true).unwrap();
        assert_eq!([0, 50, 100, 150, 200, 250, 430].map(|t| lines.at(ms(t))), [10, 20, 30, 20, 10, 20, 16].map(ms));
        assert_eq!((steps.mean(), lines.mean(), lines.scaled(0.5).mean()), (ms(20), ms(20), ms(10)));
    }

    #[test]
    fn inconsistent_series_and_traces_are_rejected() {
        assert!(DelayOverTime::new(vec![], Between::Steps, false).is_err());
        assert!(DelayOverTime::new(vec![(ms(1), ms(1))], Between::Steps, false).is_err());
        assert!(DelayOverTime::new(vec![(ms(0), ms(1))], Between::Steps, true).is_err());
        assert_eq!(DelayOverTime::new(vec![(ms(0), ms(1)), (ms(0), ms(2))], Between::Steps, false).unwrap_err().0, 1);
        assert!(DeliveryTrace::new(vec![]).is_err());
        assert_eq!(DeliveryTrace::new(vec![0, 5, 4]).unwrap_err().0, 2);
        assert!(DeliveryTrace::new(vec![0, 0]).is_err());
        assert_eq!(DeliveryTrace::new(vec![1; 84_000]).unwrap_err().0, 83_999);
        assert!(DeliveryTrace::new(vec![1; 83_000]).unwrap().mean_rate().is_some());
    }

    #[test]
    fn trace_mean_rate_counts_full_opportunities() {
        // One opportunity per millisecond: 12.032 Mbit/s.
        let trace = DeliveryTrace::new((1..=1000).collect()).unwrap();
        assert_eq!(trace.mean_rate(), BitRate::from_bits_per_second(12_032_000));
    }
}
