//! The offered rate as a function of time.

use std::time::Duration;

use units::RequestRate;

/// A piecewise linear rate; jumps are allowed. After its last stretch the rate stays at that stretch's final value.
#[derive(Clone, Debug, PartialEq)]
pub struct RateOverTime {
    lines: Vec<Line>,
    /// The constant rate after all lines.
    tail: Line,
}

/// A linear part of a rate over time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Stretch {
    /// Length; above 0.
    pub lasts: Duration,
    /// Requests per second at its beginning; 0 to 10^9.
    pub from_per_s: f64,
    /// Requests per second at its end; 0 to 10^9.
    pub to_per_s: f64,
}

/// A stretch, with its position in time and the integral of the rate before it.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Line {
    begins_ns: f64,
    lasts_ns: f64,
    from_per_ns: f64,
    to_per_ns: f64,
    /// Integral of the rate up to the beginning of the line: the mean number of arrivals until then.
    before: f64,
}

/// A time, with the integral of the rate up to it. Both are stored, since computing one from the other needs a search.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Position {
    pub ns: f64,
    pub reached: f64,
}

impl Position {
    pub const START: Position = Position { ns: 0.0, reached: 0.0 };
}

/// Maximum requests per second, as of [`RequestRate`].
const RATE_MAX_PER_S: f64 = 1e9;

impl RateOverTime {
    /// A constant rate without end.
    pub fn constant(rate: RequestRate) -> Self {
        let per_ns = rate.per_second() / 1e9;
        let tail =
            Line { begins_ns: 0.0, lasts_ns: f64::INFINITY, from_per_ns: per_ns, to_per_ns: per_ns, before: 0.0 };
        RateOverTime { lines: Vec::new(), tail }
    }

    /// A rate of consecutive stretches.
    ///
    /// # Errors
    /// The index of the stretch, and the reason: no stretch at all, a length of 0, a rate that is negative, NaN or
    /// above 10^9/s, or a rate of 0 throughout.
    pub fn new(stretches: &[Stretch]) -> Result<Self, (usize, String)> {
        let Some(last) = stretches.last() else { return Err((0, "a rate over time has at least one part".to_owned())) };
        let (mut begins_ns, mut before) = (0.0, 0.0);
        let mut lines = Vec::with_capacity(stretches.len());
        for (index, stretch) in stretches.iter().enumerate() {
            if stretch.lasts.is_zero() {
                return Err((index, "it lasts no time".to_owned()));
            }
            for rate in [stretch.from_per_s, stretch.to_per_s] {
                if !(0.0..=RATE_MAX_PER_S).contains(&rate) {
                    return Err((index, format!("{rate}/s is not a rate from 0/s to 1000000000/s")));
                }
            }
            let line = Line {
                begins_ns,
                lasts_ns: stretch.lasts.as_nanos() as f64,
                from_per_ns: stretch.from_per_s / 1e9,
                to_per_ns: stretch.to_per_s / 1e9,
                before,
            };
            begins_ns += line.lasts_ns;
            before += line.reached_after(line.lasts_ns);
            lines.push(line);
        }
        if before == 0.0 && last.to_per_s == 0.0 {
            return Err((0, "the rate is 0/s throughout: nothing would ever arrive".to_owned()));
        }
        let per_ns = last.to_per_s / 1e9;
        let tail = Line { begins_ns, lasts_ns: f64::INFINITY, from_per_ns: per_ns, to_per_ns: per_ns, before };
        Ok(RateOverTime { lines, tail })
    }

    /// This rate after a warm-up at its initial value.
    pub fn after(&self, warmup: Duration) -> Self {
        // A constant rate stays a single line, so that arrivals stay at multiples of 1/rate.
        if self.lines.is_empty() { self.clone() } else { self.behind(self.begins_with(), warmup) }
    }

    /// This rate after a warm-up in which the rate rises linearly from 0 to its initial value, for a cold server.
    #[must_use]
    pub fn after_rising(&self, warmup: Duration) -> Self {
        self.behind(0.0, warmup)
    }

    fn begins_with(&self) -> f64 {
        self.lines.first().unwrap_or(&self.tail).from_per_ns
    }

    fn behind(&self, from_per_ns: f64, warmup: Duration) -> Self {
        if warmup.is_zero() {
            return self.clone();
        }
        let warm = Line {
            begins_ns: 0.0,
            lasts_ns: warmup.as_nanos() as f64,
            from_per_ns,
            to_per_ns: self.begins_with(),
            before: 0.0,
        };
        let moved = |line: &Line| Line {
            begins_ns: line.begins_ns + warm.lasts_ns,
            before: line.before + warm.reached_after(warm.lasts_ns),
            ..*line
        };
        RateOverTime {
            lines: std::iter::once(warm).chain(self.lines.iter().map(moved)).collect(),
            tail: moved(&self.tail),
        }
    }

    /// This rate times `factor`, which is above 0 and finite: the rate of arrivals of a load in which one arrival leads
    /// to several requests.
    #[must_use]
    pub fn scaled(&self, factor: f64) -> Self {
        let scaled = |line: &Line| Line {
            from_per_ns: line.from_per_ns * factor,
            to_per_ns: line.to_per_ns * factor,
            before: line.before * factor,
            ..*line
        };
        RateOverTime { lines: self.lines.iter().map(scaled).collect(), tail: scaled(&self.tail) }
    }

    /// Total length of the stretches; zero for a constant rate.
    pub fn length(&self) -> Duration {
        Duration::from_nanos(self.tail.begins_ns as u64)
    }

    /// The highest rate of all times, requests per second.
    pub fn peak_per_second(&self) -> f64 {
        let ends = |line: &Line| line.from_per_ns.max(line.to_per_ns);
        self.lines.iter().map(ends).fold(ends(&self.tail), f64::max) * 1e9
    }

    /// Requests per second at `time` after the beginning; at a jump, the rate after the jump.
    pub fn per_second(&self, time: Duration) -> f64 {
        let ns = time.as_nanos() as f64;
        self.line_at(ns).rate_after(ns) * 1e9
    }

    /// Mean number of arrivals up to `time`.
    pub fn expected(&self, time: Duration) -> f64 {
        self.reached_at(time.as_nanos() as f64)
    }

    /// The time in ns at which the integral reaches `work`; infinite if it never does.
    pub(super) fn reaches(&self, work: f64) -> f64 {
        let after = self.lines.partition_point(|line| line.before <= work);
        // The last line whose initial integral does not exceed `work`. The end of one line is the beginning of the
        // next, and lines without arrivals are skipped.
        let line = match after {
            0 => self.lines.first().unwrap_or(&self.tail),
            _ if self.tail.before <= work => &self.tail,
            _ => &self.lines[after - 1],
        };
        line.begins_ns + line.takes(work - line.before)
    }

    /// Whether no arrival follows the time `ns`.
    pub(super) fn is_over_at(&self, ns: f64) -> bool {
        ns >= self.tail.begins_ns && self.tail.from_per_ns == 0.0
    }

    /// The integral up to the time `ns`.
    pub(super) fn reached_at(&self, ns: f64) -> f64 {
        let line = self.line_at(ns);
        line.before + line.reached_after(ns - line.begins_ns)
    }

    fn line_at(&self, ns: f64) -> &Line {
        if ns >= self.tail.begins_ns {
            return &self.tail;
        }
        let after = self.lines.partition_point(|line| line.begins_ns <= ns);
        &self.lines[after.saturating_sub(1)]
    }
}

impl Line {
    fn slope(&self) -> f64 {
        if self.lasts_ns.is_finite() { (self.to_per_ns - self.from_per_ns) / self.lasts_ns } else { 0.0 }
    }

    fn rate_after(&self, ns: f64) -> f64 {
        self.from_per_ns + self.slope() * (ns - self.begins_ns)
    }

    /// The integral over the first `ns` nanoseconds of the line.
    fn reached_after(&self, ns: f64) -> f64 {
        if ns == 0.0 { 0.0 } else { (self.from_per_ns + self.slope() * ns / 2.0) * ns }
    }

    /// Nanoseconds from the beginning of the line until the integral has grown by `work`.
    fn takes(&self, work: f64) -> f64 {
        if self.slope() == 0.0 {
            // A line with rate 0 has no arrival, not even at its beginning.
            return if self.from_per_ns == 0.0 { f64::INFINITY } else { work.max(0.0) / self.from_per_ns };
        }
        if work <= 0.0 {
            return 0.0;
        }
        // The root of work = from x + slope x^2 / 2, in the form without cancellation.
        let under = self.from_per_ns * self.from_per_ns + 2.0 * self.slope() * work;
        let takes = 2.0 * work / (self.from_per_ns + under.max(0.0).sqrt());
        takes.min(self.lasts_ns)
    }
}
