//! Computes upper bounds, for each percentile, of the delay that the load generator itself added to response times.
//!
//! ```text
//!   scheduled     started                        done
//!   |-- send lag --|-------- service time ---------|
//!          |-- stall --|              |- stall -|             of the request's loop, and of the loop with the path
//!   ===================               ===========             upper bound of the generator's own delay
//! ```
//!
//! When a request has ended, a bound of its own delay is known. Subtracting the bounds from the response times gives a
//! second distribution with its own percentiles. A reported percentile is too high by at most the difference of the
//! two: lowering every value of a distribution lowers every percentile. Requests without delay need no work, and a run
//! without delays stores nothing.
//!
//! The bound consists of:
//!
//! - the send lag, unless the request waited for a connection, a wait caused by the server or by the maximum of
//!   connections;
//! - the whole length of every stall between the scheduled time and the last byte, since the response, a packet on the
//!   path or the next step may have waited for all of it;
//! - in an open loop, for requests scheduled during a stall or up to three times its length after it, a part of that
//!   length that decreases to zero: the requests delayed by a stall reach the server in a burst, which queues there.
//!
//! After the first hundred requests, a request's bound is at most its response time minus the shortest service time so
//! far.
//!
//! Bias: too high for requests that no stall delayed. Too low for the burst after a stall if the server's utilization
//! is above two fifths, as its queue then takes longer to empty. Stalls below the threshold of the loop's detector, and
//! delays under [`DELAY_MIN`], are not included.

use std::collections::VecDeque;
use std::time::Duration;

use schema::{Quantiles, RequestRecord};
use serde::{Deserialize, Serialize};
use stats::Histogram;
use units::Timestamp;

/// A time in which a loop made no progress although it had work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stall {
    /// When the loop last made progress, or began to wait.
    pub from: Timestamp,
    /// When the loop next made progress.
    pub to: Timestamp,
}

impl Stall {
    fn length(self) -> Duration {
        self.to.since(self.from)
    }
}

/// A request's delay below this counts as zero: a fifth of the smallest material error of a percentile.
const DELAY_MIN: Duration = Duration::from_micros(10);

/// Maximum number of stored stalls: those of a minute in which a loop stalls permanently.
const STALLS_MAX: usize = 1 << 18;

/// Number of stalls at the end of the log that are searched linearly before a binary search.
const LINEAR_SEARCH_MAX: usize = 8;

/// The burst after a stall is over after this multiple of the stall's length.
const BURST_LENGTH_FACTOR: u32 = 3;

/// Number of requests after which the shortest service time is taken as unaffected by stalls.
const SHORTEST_SERVICE_TIME_SAMPLES: u64 = 100;

/// Collects the delays of a run's requests, from the stalls and records of its shards. Its serialised form has what is
/// counted, without requests that wait for later stalls: see [`Delays::settle`].
#[derive(Debug, Serialize, Deserialize)]
pub struct Delays {
    open_loop: bool,
    measured: (Timestamp, Option<Timestamp>),
    /// Whether the loop of shard 0 carries the packets of all shards.
    has_path: bool,
    shards: Vec<ShardDelays>,
    counted: Counted,
}

/// The counts from which bounds are computed.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Counted {
    all: Replaced,
    by_stalls: Replaced,
    stalls: u64,
    longest: Duration,
    /// Send lags less the machine's part of them, of requests that did not wait for a connection.
    own_send_lag: Histogram,
    /// Number of completed requests, and the shortest of their service times.
    shortest: (u64, Duration),
}

/// The stalls of one shard, and its requests that are not counted yet.
#[derive(Debug, Default, Serialize, Deserialize)]
struct ShardDelays {
    /// Stalls of the shard and of the path.
    #[serde(skip)]
    log: StallLog,
    /// Time up to which the shard has reported its own stalls.
    reported_until: Timestamp,
    /// Total length of its own stalls in the measured phase.
    stalled: Duration,
    late_wakeups: LateWakeups,
    /// Stalls that are not in the log yet, since earlier ones may still be reported.
    #[serde(skip)]
    stalls: VecDeque<Stall>,
    #[serde(skip)]
    requests: VecDeque<Brief>,
}

/// Times by which the machine woke or resumed a waiting loop late: the machine's part of the send lag.
///
/// Bias: a loop cannot notice a preemption while it works; this counts as the generator's own lag. With io_uring the
/// call that ends a wait also collects completions; this work counts as the machine's part if the wait ends over 10 us
/// late.
#[derive(Debug, Default, Serialize, Deserialize)]
struct LateWakeups {
    #[serde(skip)]
    log: StallLog,
    /// Total length in the measured phase.
    total: Duration,
}

/// The properties of a record that the bound needs.
#[derive(Clone, Copy, Debug)]
struct Brief {
    scheduled: Timestamp,
    /// Time of the start, unless the request waited for a connection.
    started: Option<Timestamp>,
    done: Timestamp,
    service: Option<Duration>,
}

/// Upper bounds of how much too high the statistics of response times are.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct DelayBounds {
    /// Bounds for all delays of the generator: `count` requests were delayed, `max` is the longest delay of a request,
    /// every other field is the bound of that field. `min` and `stddev` are 0.
    pub all: Quantiles,
    /// Bounds for stalls alone.
    pub by_stalls: Quantiles,
    /// Number of stalls in the measured phase, of all shards.
    pub stalls: u64,
    /// The longest stall.
    pub longest: Duration,
    /// Total length of stalls in the shard that stalled the most.
    pub stalled: Duration,
    /// The send lag less the machine's part of it, of requests that did not wait for a connection.
    pub own_send_lag: Quantiles,
    /// Time by which the machine woke or resumed waiting loops late, in the measured phase, of all shards.
    pub late_wakeups: Duration,
}

impl Delays {
    /// An empty collector. `has_path`: the loop of shard 0 carries the packets of all shards.
    pub fn new(open_loop: bool, measured: (Timestamp, Option<Timestamp>), has_path: bool) -> Self {
        Delays { open_loop, measured, has_path, shards: Vec::new(), counted: Counted::default() }
    }

    /// Sets the end of the measured phase.
    pub fn set_measured_end(&mut self, end: Timestamp) {
        self.measured.1 = Some(end);
    }

    /// Adds the times by which the machine woke or resumed the loop of a shard late, before the requests that started
    /// after them: [`Self::add`].
    pub fn add_late_wakeups(&mut self, shard: usize, late: &[Stall]) {
        self.ensure(shard);
        let (start, end) = self.measured;
        let own = &mut self.shards[shard].late_wakeups;
        for &late in late {
            own.log.push(late);
            own.total += end.map_or(late.to, |end| late.to.min(end)).since(late.from.max(start));
        }
    }

    fn ensure(&mut self, shard: usize) {
        if self.shards.len() <= shard {
            self.shards.resize_with(shard + 1, ShardDelays::default);
        }
    }

    /// Adds the stalls of a shard since the last call, up to `reported_until`, and the requests that ended in it.
    pub fn add(&mut self, shard: usize, stalls: &[Stall], reported_until: Timestamp, requests: &[RequestRecord]) {
        self.ensure(shard);
        stalls.iter().for_each(|stall| self.count_stall(shard, *stall));
        let own = &mut self.shards[shard];
        own.reported_until = own.reported_until.max(reported_until);
        own.stalls.extend(stalls);
        if shard == 0 && self.has_path {
            for other in &mut self.shards[1..] {
                other.stalls.extend(stalls);
            }
        }
        let path_until = if self.has_path { self.shards[0].reported_until } else { Timestamp::MAX };
        for (number, shard) in self.shards.iter_mut().enumerate() {
            let until = if number == 0 { Timestamp::MAX } else { path_until };
            shard.settle(until, self.open_loop, &mut self.counted);
        }
        let until = if shard == 0 { Timestamp::MAX } else { path_until };
        let own = &mut self.shards[shard];
        for record in requests.iter().filter(|record| record.scheduled_at >= self.measured.0) {
            if let Some(started_at) = record.started_at.filter(|_| !record.queued) {
                let late = own.late_wakeups.log.between(record.scheduled_at, started_at);
                let lag = started_at.since(record.scheduled_at).saturating_sub(late);
                self.counted.own_send_lag.record(lag.as_nanos() as u64);
            }
            let brief = Brief::of(record);
            if brief.done <= until && own.requests.is_empty() {
                own.count(&brief, self.open_loop, &mut self.counted);
            } else {
                own.requests.push_back(brief);
            }
        }
    }

    /// Marks a shard as ended: it has reported all stalls and requests.
    pub fn end(&mut self, shard: usize) {
        self.add(shard, &[], Timestamp::MAX, &[]);
    }

    /// Adds the counts of another collector, for other requests of the same load, made by the same loops.
    pub fn merge(&mut self, mut other: Delays) {
        self.add_counted(&mut other);
        for (number, shard) in other.shards.iter().enumerate() {
            if self.shards.len() <= number {
                self.shards.push(ShardDelays::default());
            }
            self.shards[number].stalled += shard.stalled;
            self.shards[number].late_wakeups.total += shard.late_wakeups.total;
        }
    }

    /// Adds the counts of another machine's collector: its loops are other loops. Both must have reported everything.
    pub fn merge_machine(&mut self, mut other: Delays) {
        self.settle();
        self.add_counted(&mut other);
        self.shards.append(&mut other.shards);
    }

    fn add_counted(&mut self, other: &mut Delays) {
        other.settle();
        let (counted, from) = (&mut self.counted, &other.counted);
        counted.all.merge(&from.all);
        counted.by_stalls.merge(&from.by_stalls);
        counted.stalls += from.stalls;
        counted.longest = counted.longest.max(from.longest);
        counted.own_send_lag.merge(&from.own_send_lag);
    }

    /// The bounds so far, for requests with the response times `response`.
    pub fn bounds(&self, response: &Histogram) -> DelayBounds {
        DelayBounds {
            all: self.counted.all.bounds(response),
            by_stalls: self.counted.by_stalls.bounds(response),
            stalls: self.counted.stalls,
            longest: self.counted.longest,
            stalled: self.shards.iter().map(|shard| shard.stalled).max().unwrap_or_default(),
            own_send_lag: self.counted.own_send_lag.quantiles(),
            late_wakeups: self.shards.iter().map(|shard| shard.late_wakeups.total).sum(),
        }
    }

    /// The final bounds, after all shards have reported everything.
    pub fn finish(&mut self, response: &Histogram) -> DelayBounds {
        self.settle();
        self.bounds(response)
    }

    /// Counts every request, after all shards have reported everything.
    pub fn settle(&mut self) {
        for shard in &mut self.shards {
            shard.settle(Timestamp::MAX, self.open_loop, &mut self.counted);
        }
    }

    fn count_stall(&mut self, shard: usize, stall: Stall) {
        let (start, end) = self.measured;
        let (from, to) = (stall.from.max(start), end.map_or(stall.to, |end| stall.to.min(end)));
        if from < to {
            self.counted.stalls += 1;
            self.counted.longest = self.counted.longest.max(to.since(from));
            self.shards[shard].stalled += to.since(from);
        }
    }
}

impl ShardDelays {
    /// Counts the requests that ended before `until`, the time up to which all stalls are known.
    fn settle(&mut self, until: Timestamp, open_loop: bool, counted: &mut Counted) {
        if !self.stalls.is_empty() {
            let mut stalls: Vec<Stall> = Vec::new();
            self.stalls.retain(|&stall| {
                let known = stall.to <= until;
                if known {
                    stalls.push(stall);
                }
                !known
            });
            stalls.sort_by_key(|stall| stall.from);
            stalls.into_iter().for_each(|stall| self.log.push(stall));
        }
        while let Some(&brief) = self.requests.front().filter(|brief| brief.done <= until) {
            self.requests.pop_front();
            self.count(&brief, open_loop, counted);
        }
    }

    fn count(&self, brief: &Brief, open_loop: bool, counted: &mut Counted) {
        if let Some(service) = brief.service {
            let (count, shortest) = counted.shortest;
            counted.shortest = (count + 1, if count == 0 { service } else { shortest.min(service) });
        }
        let (count, shortest) = counted.shortest;
        let shortest = if count > SHORTEST_SERVICE_TIME_SAMPLES { shortest } else { Duration::ZERO };
        let (all, by_stalls) = brief.delay(&self.log, open_loop, shortest);
        let response_ns = brief.response().as_nanos() as u64;
        counted.all.add(response_ns, all);
        counted.by_stalls.add(response_ns, by_stalls);
    }
}

impl Brief {
    fn of(record: &RequestRecord) -> Self {
        let started = record.started_at.unwrap_or(record.done_at);
        Brief {
            scheduled: record.scheduled_at,
            started: (!record.queued).then_some(started),
            done: record.done_at.max(record.scheduled_at),
            service: record.service_time_ns().filter(|_| record.failure.is_none()).map(Duration::from_nanos),
        }
    }

    fn response(&self) -> Duration {
        self.done.since(self.scheduled)
    }

    /// Upper bounds of the generator's part of the response time: for all causes, and for stalls.
    fn delay(&self, stalls: &StallLog, open_loop: bool, shortest: Duration) -> (Duration, Duration) {
        let most = self.response().saturating_sub(shortest);
        let by_stalls = if open_loop {
            let (until, burst) = stalls.at(self.scheduled);
            until.since(self.scheduled).max(burst) + stalls.between(until, self.done)
        } else {
            stalls.between(self.scheduled, self.done)
        };
        let by_stalls = by_stalls.min(most);
        let started = self.started.unwrap_or(self.scheduled);
        // The part of the send lag that no stall covers.
        let lag = started.since(self.scheduled);
        let lag = if lag.is_zero() { lag } else { lag.saturating_sub(stalls.between(self.scheduled, started)) };
        ((by_stalls + lag).min(most), by_stalls)
    }
}

/// Non-overlapping stalls in order of time.
#[derive(Debug, Default)]
struct StallLog {
    /// Each stall with the total length of all stalls before it, and the time when all bursts up to its own have ended.
    stalls: VecDeque<(Stall, Duration, Timestamp)>,
}

impl StallLog {
    fn push(&mut self, stall: Stall) {
        let Some(last) = self.stalls.back_mut().filter(|(last, _, _)| stall.from <= last.to) else {
            let (before, left) = self
                .stalls
                .back()
                .map_or((Duration::ZERO, Timestamp::ZERO), |(last, before, left)| (*before + last.length(), *left));
            if self.stalls.len() == STALLS_MAX {
                self.stalls.pop_front();
            }
            self.stalls.push_back((stall, before, left.max(stall.to + BURST_LENGTH_FACTOR * stall.length())));
            return;
        };
        let (known, _, left) = last;
        *known = Stall { from: known.from.min(stall.from), to: known.to.max(stall.to) };
        *left = (*left).max(known.to + BURST_LENGTH_FACTOR * known.length());
    }

    /// Number of stalls that began before `at`; nearly always all but a few.
    fn begun(&self, at: Timestamp) -> usize {
        let later =
            self.stalls.iter().rev().take(LINEAR_SEARCH_MAX + 1).take_while(|(stall, _, _)| stall.from >= at).count();
        if later <= LINEAR_SEARCH_MAX {
            self.stalls.len() - later
        } else {
            self.stalls.partition_point(|(stall, _, _)| stall.from < at)
        }
    }

    /// Total length of all stalls before `at`.
    fn before(&self, at: Timestamp) -> Duration {
        let Some((stall, before, _)) = self.begun(at).checked_sub(1).and_then(|last| self.stalls.get(last)) else {
            return self.stalls.front().map_or(Duration::ZERO, |(_, before, _)| *before);
        };
        *before + stall.to.min(at).since(stall.from)
    }

    fn between(&self, from: Timestamp, to: Timestamp) -> Duration {
        if self.stalls.back().is_none_or(|(last, _, _)| last.to <= from) {
            return Duration::ZERO;
        }
        self.before(to).saturating_sub(self.before(from))
    }

    /// For a request scheduled at `at`: the end of the stall at that time (`at` without a stall), and an upper bound of
    /// its wait behind the bursts after earlier stalls.
    fn at(&self, at: Timestamp) -> (Timestamp, Duration) {
        if self.stalls.back().is_none_or(|(_, _, left)| *left <= at) {
            return (at, Duration::ZERO);
        }
        // A stall that begins exactly at `at` delays the request too.
        let last = self.stalls.partition_point(|(stall, _, _)| stall.from <= at).checked_sub(1);
        last.and_then(|last| self.stalls.get(last))
            .map_or((at, Duration::ZERO), |(stall, _, left)| (stall.to.max(at), left.since(at) / BURST_LENGTH_FACTOR))
    }
}

/// Values of delayed requests with and without their delays.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Replaced {
    both: Option<Box<(Histogram, Histogram)>>,
    longest: u64,
}

impl Replaced {
    fn add(&mut self, response_ns: u64, delay: Duration) {
        if delay < DELAY_MIN {
            return;
        }
        let delay_ns = delay.as_nanos() as u64;
        let (delayed, reduced) = &mut **self.both.get_or_insert_default();
        delayed.record(response_ns);
        reduced.record(response_ns.saturating_sub(delay_ns));
        self.longest = self.longest.max(delay_ns);
    }

    fn merge(&mut self, other: &Replaced) {
        if let Some(other) = &other.both {
            let (delayed, reduced) = &mut **self.both.get_or_insert_default();
            delayed.merge(&other.0);
            reduced.merge(&other.1);
        }
        self.longest = self.longest.max(other.longest);
    }

    fn bounds(&self, response: &Histogram) -> Quantiles {
        let Some(both) = self.both.as_ref().filter(|_| !response.is_empty()) else { return Quantiles::default() };
        let (delayed, reduced) = &**both;
        // During a run, `response` may lack requests whose delay is already counted.
        let Some(would_be) = response.replaced(delayed, reduced) else { return Quantiles::default() };
        let (is, would_be) = (response.quantiles(), would_be.quantiles());
        let by = |of: fn(&Quantiles) -> u64| of(&is).saturating_sub(of(&would_be));
        Quantiles {
            count: delayed.len(),
            mean: (is.mean - would_be.mean).max(0.0),
            stddev: 0.0,
            min: 0,
            p50: by(|q| q.p50),
            p75: by(|q| q.p75),
            p90: by(|q| q.p90),
            p95: by(|q| q.p95),
            p99: by(|q| q.p99),
            p99_9: by(|q| q.p99_9),
            p99_99: by(|q| q.p99_99),
            max: self.longest,
        }
    }
}

#[cfg(test)]
mod tests;
