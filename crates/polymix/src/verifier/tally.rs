//! Counts of the exchanges of the measured phase.

use std::collections::BTreeMap;

use schema::cache_part::EXAMPLES_MAX;
use schema::{CacheExchange, CacheFigures, FailureCause, Ratio, Wrong, WrongExample};
use stats::Histogram;

use super::Readiness;

/// The counters behind [`CacheFigures`].
#[derive(Clone, Debug, Default)]
pub(super) struct Tally {
    requests: u64,
    answered: u64,
    errors: BTreeMap<&'static str, u64>,
    error_statuses: BTreeMap<u16, u64>,
    basic: Amount,
    basic_answered: Amount,
    offered: Amount,
    hits: Amount,
    repeats: u64,
    offered_while_fetching: u64,
    offered_expired: u64,
    hits_not_offered: u64,
    hits_of_all: u64,
    without_identity: u64,
    possibly_stale: u64,
    response_time: Histogram,
    hits_response_time: Histogram,
    misses_response_time: Histogram,
    body_bytes: u64,
    wrong: [u64; Wrong::ALL.len()],
    examples: Vec<WrongExample>,
}

/// Exchanges, and the lengths of their bodies as the origin generates them.
#[derive(Clone, Copy, Debug, Default)]
struct Amount {
    count: u64,
    bytes: u64,
}

impl Amount {
    fn add(&mut self, exchange: &CacheExchange) {
        self.count += 1;
        self.bytes += exchange.object_bytes;
    }

    fn merge(&mut self, other: Amount) {
        self.count += other.count;
        self.bytes += other.bytes;
    }

    fn shares(self, of: Amount) -> (Option<f64>, Option<f64>) {
        let share = |part: u64, all: u64| (all > 0).then(|| part as f64 / all as f64);
        (share(self.count, of.count), share(self.bytes, of.bytes))
    }
}

impl Tally {
    /// `why` makes the example of an incorrect response.
    pub(super) fn add(
        &mut self,
        exchange: &CacheExchange,
        readiness: Readiness,
        is_in_doubt: bool,
        why: impl FnOnce() -> WrongExample,
    ) {
        self.requests += 1;
        self.without_identity += u64::from(exchange.is_without_identity() && !exchange.hit);
        self.possibly_stale += u64::from(is_in_doubt);
        self.body_bytes += exchange.body_bytes;
        let response_time = exchange.response_time_ns();
        self.response_time.record(response_time);
        match exchange.failure {
            None => {
                self.answered += 1;
                self.hits_of_all += u64::from(exchange.hit);
            }
            Some(cause) => {
                *self.errors.entry(cause.name()).or_default() += 1;
                if cause == FailureCause::UnexpectedStatus {
                    *self.error_statuses.entry(exchange.status).or_default() += 1;
                }
            }
        }
        if exchange.is_basic() {
            self.add_basic(exchange, readiness);
        }
        if let Some(wrong) = exchange.wrong {
            let count = &mut self.wrong[wrong.index()];
            *count += 1;
            if *count <= EXAMPLES_MAX as u64 {
                self.examples.push(why());
            }
        }
    }

    fn add_basic(&mut self, exchange: &CacheExchange, readiness: Readiness) {
        self.basic.add(exchange);
        self.repeats += u64::from(exchange.repeat && exchange.cacheable);
        if exchange.offered {
            self.offered.add(exchange);
            self.offered_while_fetching += u64::from(readiness == Readiness::Fetching);
            self.offered_expired += u64::from(readiness == Readiness::Expired);
        }
        if exchange.failure.is_some() {
            return;
        }
        self.basic_answered.add(exchange);
        if exchange.hit {
            self.hits.add(exchange);
            self.hits_not_offered += u64::from(!exchange.offered);
            self.hits_response_time.record(exchange.response_time_ns());
        } else {
            self.misses_response_time.record(exchange.response_time_ns());
        }
    }

    pub(super) fn merge(&mut self, other: Tally) {
        self.requests += other.requests;
        self.answered += other.answered;
        for (cause, count) in other.errors {
            *self.errors.entry(cause).or_default() += count;
        }
        for (status, count) in other.error_statuses {
            *self.error_statuses.entry(status).or_default() += count;
        }
        self.basic.merge(other.basic);
        self.basic_answered.merge(other.basic_answered);
        self.offered.merge(other.offered);
        self.hits.merge(other.hits);
        self.repeats += other.repeats;
        self.offered_while_fetching += other.offered_while_fetching;
        self.offered_expired += other.offered_expired;
        self.hits_not_offered += other.hits_not_offered;
        self.hits_of_all += other.hits_of_all;
        self.without_identity += other.without_identity;
        self.possibly_stale += other.possibly_stale;
        self.response_time.merge(&other.response_time);
        self.hits_response_time.merge(&other.hits_response_time);
        self.misses_response_time.merge(&other.misses_response_time);
        self.body_bytes += other.body_bytes;
        for (mine, theirs) in self.wrong.iter_mut().zip(other.wrong) {
            *mine += theirs;
        }
        for example in other.examples {
            let of_its_kind = self.examples.iter().filter(|mine| mine.kind == example.kind).count();
            if of_its_kind < EXAMPLES_MAX {
                self.examples.push(example);
            }
        }
    }

    pub(super) fn figures(self) -> CacheFigures {
        let (offered, offered_bytes) = self.offered.shares(self.basic);
        let (measured, measured_bytes) = self.hits.shares(self.basic_answered);
        let ratio = |offered, measured| Ratio { offered, measured, ..Ratio::default() };
        let wrong = Wrong::ALL.into_iter().map(|wrong| (wrong.name().to_owned(), self.wrong[wrong.index()]));
        CacheFigures {
            requests: self.requests,
            answered: self.answered,
            error_ratio: (self.requests > 0).then(|| (self.requests - self.answered) as f64 / self.requests as f64),
            errors: self.errors.into_iter().map(|(cause, count)| (cause.to_owned(), count)).collect(),
            error_statuses: self
                .error_statuses
                .into_iter()
                .map(|(status, count)| (status.to_string(), count))
                .collect(),
            hit_ratio: ratio(offered, measured),
            byte_hit_ratio: ratio(offered_bytes, measured_bytes),
            basic_requests: self.basic.count,
            basic_answered: self.basic_answered.count,
            offered: self.offered.count,
            repeats: self.repeats,
            offered_while_fetching: self.offered_while_fetching,
            offered_expired: self.offered_expired,
            hits: self.hits.count,
            hits_not_offered: self.hits_not_offered,
            hits_of_all: self.hits_of_all,
            without_identity: self.without_identity,
            possibly_stale: self.possibly_stale,
            // Set by the recorder.
            unverified: 0,
            response_time_ns: self.response_time.quantiles(),
            hits_response_time_ns: self.hits_response_time.quantiles(),
            misses_response_time_ns: self.misses_response_time.quantiles(),
            body_bytes: self.body_bytes,
            wrong: wrong.filter(|&(_, count)| count > 0).collect(),
            examples: self.examples,
        }
    }
}
