//! The offered rate as a function of time.

use std::time::Duration;

use units::RequestRate;

/// A rate that runs in straight lines from moment to moment, jumps allowed. After its last stretch it stays as it was
/// at that stretch's end.
#[derive(Clone, Debug, PartialEq)]
pub struct RateOverTime {
    lines: Vec<Line>,
    /// After all lines: from this moment on, this rate.
    tail: Line,
}

/// Part of a rate over time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Stretch {
    /// How long; above 0.
    pub lasts: Duration,
    /// Requests a second at its beginning; 0 to 10^9.
    pub from_per_s: f64,
    /// Requests a second at its end.
    pub to_per_s: f64,
}

/// A stretch with what went before it.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Line {
    begins_ns: f64,
    lasts_ns: f64,
    from_per_ns: f64,
    to_per_ns: f64,
    /// The integral of the rate up to its beginning: arrivals by then.
    before: f64,
}

/// A moment, and the integral of the rate up to it. Carried along, since one is only found from the other by a search.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Place {
    pub ns: f64,
    pub reached: f64,
}

impl Place {
    pub const START: Place = Place { ns: 0.0, reached: 0.0 };
}

/// Highest rate, as of [`RequestRate`].
const HIGHEST_PER_S: f64 = 1e9;

impl RateOverTime {
    /// The same rate for ever.
    pub fn constant(rate: RequestRate) -> Self {
        let per_ns = rate.per_second() / 1e9;
        let tail =
            Line { begins_ns: 0.0, lasts_ns: f64::INFINITY, from_per_ns: per_ns, to_per_ns: per_ns, before: 0.0 };
        RateOverTime { lines: Vec::new(), tail }
    }

    /// One stretch after the other.
    ///
    /// # Errors
    /// The stretch, counted from 0, and what is wrong: none at all, one of no length, a rate that is negative, no
    /// number or above 10^9/s; no arrival at all, ever.
    pub fn new(stretches: &[Stretch]) -> Result<Self, (usize, String)> {
        let Some(last) = stretches.last() else { return Err((0, "a rate over time has at least one part".to_owned())) };
        let (mut begins_ns, mut before) = (0.0, 0.0);
        let mut lines = Vec::with_capacity(stretches.len());
        for (index, stretch) in stretches.iter().enumerate() {
            if stretch.lasts.is_zero() {
                return Err((index, "it lasts no time".to_owned()));
            }
            for rate in [stretch.from_per_s, stretch.to_per_s] {
                if !(0.0..=HIGHEST_PER_S).contains(&rate) {
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

    /// The same after a time at the rate with which it begins: a warm-up.
    pub fn after(&self, warmup: Duration) -> Self {
        // One rate for ever is one line, from the beginning: so its moments stay k / rate.
        if self.lines.is_empty() { self.clone() } else { self.behind(self.begins_with(), warmup) }
    }

    /// The same after a time over which the rate rises evenly from 0 to that with which it begins: a warm-up of a server that is cold.
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

    /// `factor` times as much at every moment: what begins a load whose requests bring others with them. `factor` is above 0
    /// and finite.
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

    /// How long its stretches last together; zero for a constant rate.
    pub fn length(&self) -> Duration {
        Duration::from_nanos(self.tail.begins_ns as u64)
    }

    /// Requests a second at `time` after its beginning; where it jumps, the rate after the jump.
    pub fn per_second(&self, time: Duration) -> f64 {
        let ns = time.as_nanos() as f64;
        self.line_at(ns).rate_after(ns) * 1e9
    }

    /// Mean number of arrivals up to `time`.
    pub fn expected(&self, time: Duration) -> f64 {
        self.reached_at(time.as_nanos() as f64)
    }

    /// The moment, in ns, at which the integral reaches `work`; infinite if it never does.
    pub(super) fn reaches(&self, work: f64) -> f64 {
        let after = self.lines.partition_point(|line| line.before <= work);
        // The last line that begins with no more than that: what was reached at the end of one line is reached at the
        // beginning of the next, and a line without arrivals is passed over.
        let line = match after {
            0 => self.lines.first().unwrap_or(&self.tail),
            _ if self.tail.before <= work => &self.tail,
            _ => &self.lines[after - 1],
        };
        line.begins_ns + line.takes(work - line.before)
    }

    /// Whether nothing arrives from the moment `ns` on.
    pub(super) fn is_over_at(&self, ns: f64) -> bool {
        ns >= self.tail.begins_ns && self.tail.from_per_ns == 0.0
    }

    /// The integral up to the moment `ns`.
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

    /// The integral over its first `ns` nanoseconds.
    fn reached_after(&self, ns: f64) -> f64 {
        if ns == 0.0 { 0.0 } else { (self.from_per_ns + self.slope() * ns / 2.0) * ns }
    }

    /// How many nanoseconds it takes from its beginning until the integral has grown by `work`.
    fn takes(&self, work: f64) -> f64 {
        if self.slope() == 0.0 {
            // Where nothing arrives, nothing arrives at its very beginning either.
            return if self.from_per_ns == 0.0 { f64::INFINITY } else { work.max(0.0) / self.from_per_ns };
        }
        if work <= 0.0 {
            return 0.0;
        }
        // The root of work = from x + slope x^2 / 2 in the form that does not subtract large numbers.
        let under = self.from_per_ns * self.from_per_ns + 2.0 * self.slope() * work;
        let takes = 2.0 * work / (self.from_per_ns + under.max(0.0).sqrt());
        takes.min(self.lasts_ns)
    }
}
