//! Disturbance of the server by other processes on its cores: how long it waited for them, and by how much they may
//! have raised response times.
//!
//! Every 10 ms two values are read: how long other processes have had the server's cores, and how long the server's
//! threads have been ready to run without one. The server waited for others for at most the smaller of both: while
//! others had a core that the server did not need they did no harm, and a server that waits for its own threads (more
//! workers than cores), or for its CPU limit (`--server-cpu`), does so without them.
//!
//! Bias: upward. A wait is reported only when it ends, and counts as if it had been continuous; time of others in one
//! window counts as one continuous span, joined to that of the window before.

use std::collections::VecDeque;
use std::time::Duration;

use schema::MovedFigure;
use stats::Histogram;
use stats::materiality::{is_known, material_ns};

/// A wait is searched this far back from its end.
const WAIT_SEARCH_MAX: Duration = Duration::from_secs(10);
/// Another process had a core for a whole window if it had the core for this share of the window.
const WHOLE_WINDOW_SHARE: f64 = 0.9;
/// A server this busy needs at most this multiple of its waiting time to catch up.
const CATCHING_UP_MAX: f64 = 20.0;

/// One reading; all values count from some time before the run.
#[derive(Clone, Debug, Default)]
pub struct Sample {
    pub at: Duration,
    /// How long other processes have had each core; as one core if it is not known separately.
    pub others: Vec<Duration>,
    /// How long threads of the server have waited, in total.
    pub waited: Duration,
}

/// Time between two readings.
#[derive(Clone, Debug)]
struct Window {
    began: Duration,
    lasted: Duration,
    others: Vec<Duration>,
    /// Time of the window for which the server may have waited; all of it if unknown.
    waited: Duration,
    in_phase: bool,
}

/// Results.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Disturbed {
    /// Length of all windows.
    pub lasted: Duration,
    /// Upper bound of the time for which the server waited for other processes.
    pub waited: Duration,
    /// The longest continuous part of it.
    pub longest: Duration,
    /// Integral over `waited` of the length of the continuous span, in seconds squared.
    pub weighted_s2: f64,
}

/// Sums over readings.
#[derive(Debug, Default)]
pub struct Disturbance {
    last: Option<Sample>,
    /// Maximum of each core's value so far: a value from two counters may decrease for a while, and catches up.
    peaks: Vec<Duration>,
    windows: VecDeque<Window>,
    /// For each core: the continuous span that may go on in the next window.
    open_spans: Vec<Duration>,
    in_phase: bool,
    /// Maximum of the waiting time so far: a continuous wait is reported as a whole.
    longest_wait: Duration,
    totals: Disturbed,
}

impl Disturbance {
    /// Begins the phase: later readings count, earlier ones only give the counters' initial values.
    pub fn begin(&mut self) {
        self.in_phase = true;
    }

    /// Ends the phase: later readings do not count, but may report a wait that began in it.
    pub fn end(&mut self) {
        self.in_phase = false;
    }

    /// Adds a reading.
    pub fn add(&mut self, sample: Sample) {
        let others = sample.others.iter().enumerate().map(|(core, &now)| {
            let peak = self.peaks.get(core).copied().unwrap_or(now);
            now.saturating_sub(peak)
        });
        let others: Vec<Duration> = others.collect();
        self.peaks.resize(sample.others.len(), Duration::ZERO);
        self.peaks.iter_mut().zip(&sample.others).for_each(|(peak, &now)| *peak = now.max(*peak));
        let Some(last) = self.last.replace(sample) else { return };
        let sample = self.last.as_ref().expect("set above");
        let lasted = sample.at.saturating_sub(last.at);
        if lasted.is_zero() {
            return;
        }
        // An increase by more than the window's length catches up for earlier windows.
        let others = others.into_iter().map(|others| others.min(lasted * 2)).collect();
        let waited = sample.waited.saturating_sub(last.waited);
        self.windows.push_back(Window {
            began: last.at,
            lasted,
            others,
            waited: Duration::ZERO,
            in_phase: self.in_phase,
        });
        self.longest_wait = self.longest_wait.max(waited);
        self.wait_until_now(waited);
        while self.windows.front().is_some_and(|first| first.began + WAIT_SEARCH_MAX < last.at) {
            self.settle();
        }
    }

    /// Adds that the server waited for `waited` at any time since `from`.
    pub fn waited_since(&mut self, from: Duration, waited: Duration) {
        self.longest_wait = self.longest_wait.max(waited);
        for window in self.windows.iter_mut().rev().take_while(|window| window.began + window.lasted > from) {
            window.waited = window.waited.saturating_add(waited).min(window.lasted);
        }
    }

    /// Adds that the server's wait since `from` is unknown: it counts as all of the time.
    pub fn waited_unknown_since(&mut self, from: Duration) {
        self.waited_since(from, Duration::MAX);
    }

    /// Adds a wait of this length that ended in the last window: it began that long before.
    fn wait_until_now(&mut self, waited: Duration) {
        if waited.is_zero() {
            return;
        }
        let Some(last) = self.windows.back() else { return };
        self.waited_since(last.began.saturating_sub(waited), waited);
    }

    fn settle(&mut self) {
        let Some(window) = self.windows.pop_front() else { return };
        self.open_spans.resize(window.others.len(), Duration::ZERO);
        let mut total_waited = Duration::ZERO;
        for (open_span, &others) in self.open_spans.iter_mut().zip(&window.others) {
            let waited = others.min(window.waited);
            let span = if waited.is_zero() { Duration::ZERO } else { *open_span + waited };
            let span = span.min(self.longest_wait);
            let is_whole = waited >= window.lasted.mul_f64(WHOLE_WINDOW_SHARE);
            *open_span = if is_whole { span } else { waited };
            total_waited += waited;
            if window.in_phase {
                self.totals.longest = self.totals.longest.max(span);
                self.totals.weighted_s2 += waited.as_secs_f64() * span.as_secs_f64();
            }
        }
        if window.in_phase {
            self.totals.lasted += window.lasted;
            self.totals.waited += total_waited.min(window.waited);
        }
    }

    /// The final sums, when nothing more follows.
    pub fn finish(mut self) -> Disturbed {
        while !self.windows.is_empty() {
            self.settle();
        }
        self.totals
    }
}

/// The figure of the response times that other processes may have changed most, in multiples of the material change.
/// `busy`: share of the cores' time that the server used.
///
/// Other processes only delay. If a share `a` of the requests was delayed, the quantile `p` of the undisturbed ones
/// lies between the measured quantiles `p - a` and `p`; and no request was delayed for longer than the longest
/// continuous wait plus the time to catch up.
pub fn could_have_moved(times: &Histogram, disturbed: &Disturbed, busy: f64) -> Option<MovedFigure> {
    if times.is_empty() || disturbed.lasted.is_zero() {
        return None;
    }
    let actual_s = disturbed.lasted.as_secs_f64();
    let share = disturbed.waited.as_secs_f64() / actual_s;
    // Requests that arrive while the server catches up are late as well.
    let catching_up = (1.0 / (1.0 - busy).max(1e-9)).min(CATCHING_UP_MAX);
    let affected = (share * catching_up).min(1.0);
    let longest_ns = disturbed.longest.as_nanos() as f64;
    let moved = |figure: &str, value_ns: f64, by_ns: f64| MovedFigure {
        figure: figure.to_owned(),
        value_ns,
        by_ns: by_ns.max(0.0),
        limit_ns: material_ns(value_ns),
    };
    // No undisturbed request was faster than the fastest of all.
    let mean_ns = (disturbed.weighted_s2 * 1e9 / actual_s * catching_up).min(times.mean() - times.value_at(0.0) as f64);
    let mut figures = vec![moved("mean", times.mean(), mean_ns)];
    for (name, quantile) in [("p50", 0.5), ("p75", 0.75), ("p90", 0.9), ("p95", 0.95), ("p99", 0.99), ("p99_9", 0.999)]
    {
        if !is_known(times.len(), 1.0 - quantile) {
            continue;
        }
        let value_ns = times.value_at(quantile) as f64;
        // The rank of a quantile is known to two standard errors (its 95 % interval): a change of fewer requests is not
        // certain to change it.
        let rank_error = 2.0 * (quantile * (1.0 - quantile) / times.len() as f64).sqrt();
        let affected = if affected > rank_error { affected } else { 0.0 };
        let undisturbed = times.value_at((quantile - affected).max(0.0)) as f64;
        let by_ns = (value_ns - undisturbed).min(longest_ns + share * value_ns);
        figures.push(moved(name, value_ns, if affected > 0.0 { by_ns } else { 0.0 }));
    }
    let ratio = |figure: &MovedFigure| figure.by_ns / figure.limit_ns;
    figures.into_iter().max_by(|a, b| ratio(a).total_cmp(&ratio(b)))
}

#[cfg(test)]
mod tests;
