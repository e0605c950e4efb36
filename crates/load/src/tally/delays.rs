//! How much of the response times the load generator may have added itself: a bound for each percentile.
//!
//! ```text
//!   scheduled     started                        done
//!   |-- send lag --|-------- service time ---------|
//!          |-- stall --|              |- stall -|             of the request's loop, and of the loop with the path
//!   ===================               ===========             at most so much is the generator's own delay
//! ```
//!
//! Of each request a bound on its own delay is known when it has ended. The response times less that bound have percentiles too, and a reported
//! percentile is too high by no more than the difference of the two: where every value of a distribution is lowered, so is every percentile.
//! Requests that were not delayed cost nothing, and a run without a stall keeps nothing.
//!
//! What counts: the send lag, unless the request waited for a connection (that wait is the server's, or the cap's); the whole length of
//! every stall between the scheduled time and the last byte, since the answer, a packet on the path or the next step may have waited for all of it; and
//! in an open loop, for requests that are scheduled in a stall or up to three times its length after it, a part of that length that shrinks to
//! nothing: what a stall held back reaches the server in a burst, which waits there. Once a hundred requests have ended, none is taken to be delayed by
//! more than its response time exceeds the shortest service time of all before it.
//!
//! Bias: too high for requests that a stall did not hold up. Too low for the burst after a stall where the server is used by more than two fifths:
//! its queue then takes longer to end. Stalls shorter than the loop's detector finds, and delays under [`DELAY_MIN`], are not in it.

use std::collections::VecDeque;
use std::time::Duration;

use schema::{Quantiles, RequestRecord};
use stats::Histogram;
use units::Timestamp;

/// A stretch of time in which a loop did nothing although it meant to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Stall {
    /// When the loop was last seen at work, or began to wait.
    pub from: Timestamp,
    /// When it was seen again.
    pub to: Timestamp,
}

impl Stall {
    fn length(self) -> Duration {
        self.to.since(self.from)
    }
}

/// A smaller delay of a request counts as none: a fifth of the least error of a percentile that matters.
const DELAY_MIN: Duration = Duration::from_micros(10);

/// Stalls that are remembered: those of a minute in which a loop stalls all the time.
const STALLS_MAX: usize = 1 << 18;

/// Of the stalls of a batch, those at its end are looked through one after the other.
const NEAR: usize = 8;

/// The burst that follows a stall is over so many lengths of the stall later.
const BURST: u32 = 3;

/// The shortest service time of so many requests is one that no stall lengthened.
const SHORTEST_OF: u64 = 100;

/// Collects the delays of a run's requests, from the stalls and records of its shards.
#[derive(Debug)]
pub struct Delays {
    open_loop: bool,
    measured: (Timestamp, Option<Timestamp>),
    /// Shard 0 carries the packets of all.
    has_path: bool,
    lanes: Vec<Lane>,
    counted: Counted,
}

/// What a bound is made of.
#[derive(Clone, Debug, Default)]
struct Counted {
    all: Replaced,
    by_stalls: Replaced,
    stalls: u64,
    longest: Duration,
    /// Requests that did not fail, and the shortest of their service times.
    shortest: (u64, Duration),
}

/// One shard's stalls, and what waits to be counted.
#[derive(Debug, Default)]
struct Lane {
    /// Its own, and the path's.
    log: StallLog,
    /// Its own are known up to here.
    told_until: Timestamp,
    /// In the measured phase, of its own.
    stalled: Duration,
    /// Those of the path that it has not taken in: they may lie before some of its own.
    stalls: VecDeque<Stall>,
    requests: VecDeque<Brief>,
}

/// What is needed of a record.
#[derive(Clone, Copy, Debug)]
struct Brief {
    scheduled: Timestamp,
    /// Time of the start, unless a connection was waited for.
    started: Option<Timestamp>,
    done: Timestamp,
    service: Option<Duration>,
}

/// How far figures of the response time may be too high.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct DelayBounds {
    /// For all that the generator did: `count` requests were delayed, `max` is the longest delay of one, any other field is the difference of
    /// that field. `min` and `stddev` are 0.
    pub all: Quantiles,
    /// For stalls alone.
    pub by_stalls: Quantiles,
    /// Stalls in the measured phase, of all shards.
    pub stalls: u64,
    /// The longest.
    pub longest: Duration,
    /// Length of all, in the shard that stalled the most.
    pub stalled: Duration,
}

impl Delays {
    /// None so far. `has_path`: the loop of shard 0 carries the packets of all shards.
    pub fn new(open_loop: bool, measured: (Timestamp, Option<Timestamp>), has_path: bool) -> Self {
        Delays { open_loop, measured, has_path, lanes: Vec::new(), counted: Counted::default() }
    }

    /// The measured phase ends at `end`.
    pub fn set_measured_end(&mut self, end: Timestamp) {
        self.measured.1 = Some(end);
    }

    /// The stalls of a shard since the last call, up to `told_until`, and the requests that ended in it.
    pub fn add(&mut self, lane: usize, stalls: &[Stall], told_until: Timestamp, requests: &[RequestRecord]) {
        if self.lanes.len() <= lane {
            self.lanes.resize_with(lane + 1, Lane::default);
        }
        stalls.iter().for_each(|stall| self.count_stall(lane, *stall));
        let own = &mut self.lanes[lane];
        own.told_until = own.told_until.max(told_until);
        own.stalls.extend(stalls);
        if lane == 0 && self.has_path {
            for other in &mut self.lanes[1..] {
                other.stalls.extend(stalls);
            }
        }
        let path_until = if self.has_path { self.lanes[0].told_until } else { Timestamp::MAX };
        for (number, lane) in self.lanes.iter_mut().enumerate() {
            let until = if number == 0 { Timestamp::MAX } else { path_until };
            lane.settle(until, self.open_loop, &mut self.counted);
        }
        let until = if lane == 0 { Timestamp::MAX } else { path_until };
        let own = &mut self.lanes[lane];
        for record in requests.iter().filter(|record| record.scheduled_at >= self.measured.0) {
            let brief = Brief::of(record);
            if brief.done <= until && own.requests.is_empty() {
                own.count(&brief, self.open_loop, &mut self.counted);
            } else {
                own.requests.push_back(brief);
            }
        }
    }

    /// A shard has told everything.
    pub fn end(&mut self, lane: usize) {
        self.add(lane, &[], Timestamp::MAX, &[]);
    }

    /// Adds what was counted elsewhere of other requests of the same load.
    pub fn merge(&mut self, mut other: Delays) {
        other.settle_all();
        let (counted, from) = (&mut self.counted, &other.counted);
        counted.all.merge(&from.all);
        counted.by_stalls.merge(&from.by_stalls);
        counted.stalls += from.stalls;
        counted.longest = counted.longest.max(from.longest);
        for (number, lane) in other.lanes.iter().enumerate() {
            if self.lanes.len() <= number {
                self.lanes.push(Lane::default());
            }
            self.lanes[number].stalled += lane.stalled;
        }
    }

    /// The bounds so far, of requests whose response times are `response`.
    pub fn bounds(&self, response: &Histogram) -> DelayBounds {
        DelayBounds {
            all: self.counted.all.bounds(response),
            by_stalls: self.counted.by_stalls.bounds(response),
            stalls: self.counted.stalls,
            longest: self.counted.longest,
            stalled: self.lanes.iter().map(|lane| lane.stalled).max().unwrap_or_default(),
        }
    }

    /// The bounds, when all shards have told everything.
    pub fn finish(&mut self, response: &Histogram) -> DelayBounds {
        self.settle_all();
        self.bounds(response)
    }

    fn settle_all(&mut self) {
        for lane in &mut self.lanes {
            lane.settle(Timestamp::MAX, self.open_loop, &mut self.counted);
        }
    }

    fn count_stall(&mut self, lane: usize, stall: Stall) {
        let (start, end) = self.measured;
        let (from, to) = (stall.from.max(start), end.map_or(stall.to, |end| stall.to.min(end)));
        if from < to {
            self.counted.stalls += 1;
            self.counted.longest = self.counted.longest.max(to.since(from));
            self.lanes[lane].stalled += to.since(from);
        }
    }
}

impl Lane {
    /// Counts what can be counted when every stall up to `until` is known.
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
        let shortest = if count > SHORTEST_OF { shortest } else { Duration::ZERO };
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

    /// At most so much of the response time is the generator's: for all reasons, and for stalls.
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
        // The rest of a send lag in which there was a stall is lag too.
        let lag = started.since(self.scheduled);
        let lag = if lag.is_zero() { lag } else { lag.saturating_sub(stalls.between(self.scheduled, started)) };
        ((by_stalls + lag).min(most), by_stalls)
    }
}

/// Stalls that do not overlap, in their order.
#[derive(Debug, Default)]
struct StallLog {
    /// Each with the length of all before it, and the end of what it and those before it leave behind.
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
            self.stalls.push_back((stall, before, left.max(stall.to + BURST * stall.length())));
            return;
        };
        let (known, _, left) = last;
        *known = Stall { from: known.from.min(stall.from), to: known.to.max(stall.to) };
        *left = (*left).max(known.to + BURST * known.length());
    }

    /// How many began before `at`: nearly always all but a few.
    fn begun(&self, at: Timestamp) -> usize {
        let later = self.stalls.iter().rev().take(NEAR + 1).take_while(|(stall, _, _)| stall.from >= at).count();
        if later <= NEAR {
            self.stalls.len() - later
        } else {
            self.stalls.partition_point(|(stall, _, _)| stall.from < at)
        }
    }

    /// Length of all stalls before `at`.
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

    /// What is scheduled at `at` starts when the stall of that time ends, and waits for so long at most, that included, behind the bursts after
    /// stalls that began before: the longer, the later those end.
    fn at(&self, at: Timestamp) -> (Timestamp, Duration) {
        if self.stalls.back().is_none_or(|(_, _, left)| *left <= at) {
            return (at, Duration::ZERO);
        }
        // One that begins at this very time holds up what is scheduled then.
        let last = self.stalls.partition_point(|(stall, _, _)| stall.from <= at).checked_sub(1);
        last.and_then(|last| self.stalls.get(last))
            .map_or((at, Duration::ZERO), |(stall, _, left)| (stall.to.max(at), left.since(at) / BURST))
    }
}

/// Values, and what they would be.
#[derive(Clone, Debug, Default)]
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
        let (old, new) = &mut **self.both.get_or_insert_default();
        old.record(response_ns);
        new.record(response_ns.saturating_sub(delay_ns));
        self.longest = self.longest.max(delay_ns);
    }

    fn merge(&mut self, other: &Replaced) {
        if let Some(other) = &other.both {
            let (old, new) = &mut **self.both.get_or_insert_default();
            old.merge(&other.0);
            new.merge(&other.1);
        }
        self.longest = self.longest.max(other.longest);
    }

    fn bounds(&self, response: &Histogram) -> Quantiles {
        let Some(both) = self.both.as_ref().filter(|_| !response.is_empty()) else { return Quantiles::default() };
        let (old, new) = &**both;
        // While a run goes on, some whose delay is known may not be counted yet.
        let Some(would_be) = response.replaced(old, new) else { return Quantiles::default() };
        let (is, would_be) = (response.quantiles(), would_be.quantiles());
        let by = |of: fn(&Quantiles) -> u64| of(&is).saturating_sub(of(&would_be));
        Quantiles {
            count: old.len(),
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
