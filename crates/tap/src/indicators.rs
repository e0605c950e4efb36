//! Indicators of one side, computed from its exchanges: counts, distributions, errors, availability.
//!
//! Used for running and ended runs, and for slices of many runs: rows in, [`TapView`] out. The fields of [`TapView`]
//! define the figures.

use std::collections::{BTreeMap, HashSet};

use schema::tap_part::{TapAvailability, TapLookups, TapView};
use schema::{TapExchange, TapOutcome, TapSide};
use stats::Histogram;

/// Indicators being computed: about 3 MB, and 50 bytes for each window of time with an end.
#[derive(Debug)]
pub struct Indicators {
    counts: TapView,
    window_ns: u64,
    tried: HashSet<(u32, u64)>,
    succeeded: HashSet<(u32, u64)>,
    /// Connect times, one per connection. The other distributions have one value per exchange, unless noted. All
    /// times are in ns.
    pub setup: Histogram,
    /// Time to send a request (Ts).
    pub send: Histogram,
    /// Time from the end of the request to the first byte of the response.
    pub wait: Histogram,
    /// Time to receive a response (Tr).
    pub receive: Histogram,
    /// Response time: Ts + wait + Tr.
    pub response: Histogram,
    /// Connection durations (Tc), one per connection.
    pub connection: Histogram,
    blocked: Histogram,
    sent: Histogram,
    received: Histogram,
    send_rate: Histogram,
    receive_rate: Histogram,
    /// Distribution per connection.
    overall_rate: Histogram,
}

impl Indicators {
    /// Default length of an availability window: short enough to show an outage of a minute, long enough that a
    /// browser's pauses leave few windows empty.
    pub const WINDOW_NS: u64 = 10_000_000_000;

    /// Empty figures. Windows are `window_ns` long, from each run's zero; 0 counts as 1.
    pub fn new(window_ns: u64) -> Self {
        Indicators {
            counts: TapView::default(),
            window_ns: window_ns.max(1),
            tried: HashSet::new(),
            succeeded: HashSet::new(),
            setup: Histogram::new(),
            send: Histogram::new(),
            wait: Histogram::new(),
            receive: Histogram::new(),
            response: Histogram::new(),
            connection: Histogram::new(),
            blocked: Histogram::new(),
            sent: Histogram::new(),
            received: Histogram::new(),
            send_rate: Histogram::new(),
            receive_rate: Histogram::new(),
            overall_rate: Histogram::new(),
        }
    }

    /// Whether no row was added.
    pub fn is_empty(&self) -> bool {
        self.counts.connections == 0 && self.counts.attempts == 0 && self.counts.exchanges_cut == 0
    }

    /// Adds one row of a connection. `run` separates the windows of several runs. Lookups without a connection belong
    /// to [`Lookups`].
    pub fn add(&mut self, run: u32, row: &TapExchange) {
        let counts = &mut self.counts;
        if row.last {
            counts.connections += 1;
            let unmade = row.exchange.is_none() && row.outcome == TapOutcome::Failed;
            counts.connections_failed += u64::from(unmade);
            counts.connections_unused += u64::from(row.outcome == TapOutcome::Unused);
            counts.connections_open_at_end += u64::from(row.closed_at.is_none() && !unmade);
        }
        if row.exchange.is_some() {
            match row.outcome {
                TapOutcome::Succeeded | TapOutcome::Failed => counts.exchanges += 1,
                TapOutcome::Cut => counts.exchanges_cut += 1,
                TapOutcome::Greeting | TapOutcome::Farewell | TapOutcome::Unused => {}
            }
        }
        if row.outcome.is_attempt() {
            counts.attempts += 1;
            let window = (run, row.ended_at().as_nanos() / self.window_ns);
            self.tried.insert(window);
            if row.outcome == TapOutcome::Succeeded {
                self.succeeded.insert(window);
            } else {
                let error = row.error.map_or_else(|| "unknown".to_owned(), |error| error.name());
                *counts.failed.entry(error).or_insert(0) += 1;
            }
        }
        counts.sent_bytes_total = counts.sent_bytes_total.saturating_add(row.sent_bytes);
        counts.received_bytes_total = counts.received_bytes_total.saturating_add(row.received_bytes);
        counts.retransmits = counts.retransmits.saturating_add(row.retransmits.unwrap_or(0));
        counts.unseen_bytes = counts.unseen_bytes.saturating_add(row.unseen_bytes.unwrap_or(0));
        self.record(row);
    }

    fn record(&mut self, row: &TapExchange) {
        let put = |histogram: &mut Histogram, value: Option<u64>| value.into_iter().for_each(|v| histogram.record(v));
        let whole = |rate: Option<f64>| rate.map(|rate| rate.round() as u64);
        put(&mut self.setup, row.setup_ns);
        put(&mut self.connection, row.connection_ns());
        put(&mut self.overall_rate, whole(row.overall_rate()));
        // A greeting has a wait and no request; a cut exchange has no end: neither is complete.
        if row.exchange.is_none() || !row.outcome.is_attempt() {
            return;
        }
        put(&mut self.send, row.send_ns());
        put(&mut self.wait, row.wait_ns());
        put(&mut self.receive, row.receive_ns());
        // A failed exchange has no response time.
        put(&mut self.response, row.response_ns().filter(|_| row.outcome == TapOutcome::Succeeded));
        self.blocked.record(row.blocked_ns);
        self.sent.record(row.sent_bytes);
        self.received.record(row.received_bytes);
        put(&mut self.send_rate, whole(row.send_rate()));
        put(&mut self.receive_rate, whole(row.receive_rate()));
    }

    /// Exchanges that ended, and failed attempts.
    pub fn counts(&self) -> (u64, u64) {
        (self.counts.exchanges, self.counts.failed.values().sum())
    }

    /// The figures so far.
    pub fn view(&self) -> TapView {
        let failed: u64 = self.counts.failed.values().sum();
        let attempts = self.counts.attempts;
        let error_ratio = (attempts > 0).then(|| failed as f64 / attempts as f64);
        TapView {
            error_ratio,
            availability: error_ratio.map(|errors| TapAvailability {
                attempts: 1.0 - errors,
                windows: self.succeeded.len() as f64 / self.tried.len() as f64,
                windows_tried: self.tried.len() as u64,
                window_s: self.window_ns as f64 / 1e9,
            }),
            setup_ns: self.setup.quantiles(),
            send_ns: self.send.quantiles(),
            wait_ns: self.wait.quantiles(),
            receive_ns: self.receive.quantiles(),
            response_ns: self.response.quantiles(),
            connection_duration_ns: self.connection.quantiles(),
            blocked_ns: self.blocked.quantiles(),
            sent_bytes: self.sent.quantiles(),
            received_bytes: self.received.quantiles(),
            send_rate_bytes_per_s: self.send_rate.quantiles(),
            receive_rate_bytes_per_s: self.receive_rate.quantiles(),
            overall_rate_bytes_per_s: self.overall_rate.quantiles(),
            ..self.counts.clone()
        }
    }
}

/// Name lookups, from the same rows.
#[derive(Debug, Default)]
pub struct Lookups {
    failed: BTreeMap<String, u64>,
    times: Histogram,
}

impl Lookups {
    /// Adds the lookup of a row, if any. A successful lookup without a connect is in no row.
    pub fn add(&mut self, row: &TapExchange) {
        let Some(lookup) = row.lookup_ns else { return };
        self.times.record(lookup);
        if row.connection.is_none()
            && let Some(error) = row.error
        {
            *self.failed.entry(error.name()).or_insert(0) += 1;
        }
    }

    /// The figures so far; `None` without lookups.
    pub fn part(&self) -> Option<TapLookups> {
        (!self.times.is_empty()).then(|| TapLookups {
            count: self.times.len(),
            failed: self.failed.clone(),
            lookup_ns: self.times.quantiles(),
        })
    }
}

/// Both sides and the lookups of a run, or of a slice.
#[derive(Debug)]
pub struct Sides {
    window_ns: u64,
    client: Option<Box<Indicators>>,
    server: Option<Box<Indicators>>,
    /// Lookups.
    pub lookups: Lookups,
}

impl Sides {
    /// Empty figures; see [`Indicators::new`].
    pub fn new(window_ns: u64) -> Self {
        Sides { window_ns, client: None, server: None, lookups: Lookups::default() }
    }

    /// Adds a row to the indicators of its side, or to the lookups.
    pub fn add(&mut self, run: u32, row: &TapExchange) {
        self.lookups.add(row);
        if row.connection.is_none() {
            return;
        }
        let side = match row.side {
            TapSide::Client => &mut self.client,
            TapSide::Server => &mut self.server,
        };
        side.get_or_insert_with(|| Box::new(Indicators::new(self.window_ns))).add(run, row);
    }

    /// One side; `None` without connections.
    pub fn side(&self, side: TapSide) -> Option<&Indicators> {
        match side {
            TapSide::Client => self.client.as_deref(),
            TapSide::Server => self.server.as_deref(),
        }
    }

    /// The figures of one side so far.
    pub fn view(&self, side: TapSide) -> Option<TapView> {
        self.side(side).map(Indicators::view)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use schema::TapError;
    use units::Timestamp;

    fn exchange(at_s: u64, outcome: TapOutcome) -> TapExchange {
        let at = |ms: u64| Some(Timestamp::from_nanos(at_s * 1_000_000_000 + ms * 1_000_000));
        TapExchange {
            connection: Some(0),
            exchange: Some(0),
            opened_at: at(0).unwrap(),
            sent_first_at: at(1),
            sent_last_at: at(1),
            received_first_at: at(5),
            received_last_at: at(7),
            sent_bytes: 100,
            received_bytes: 2_000,
            outcome,
            error: (outcome == TapOutcome::Failed).then_some(TapError::Errno(104)),
            ..TapExchange::BLANK
        }
    }

    #[test]
    fn ratios_count_attempts_that_ended() {
        let mut indicators = Indicators::new(Indicators::WINDOW_NS);
        for (at, outcome) in [
            (1, TapOutcome::Succeeded),
            (2, TapOutcome::Failed),
            (3, TapOutcome::Cut),
            (12, TapOutcome::Failed),
            (25, TapOutcome::Succeeded),
            (31, TapOutcome::Greeting),
        ] {
            indicators.add(0, &exchange(at, outcome));
        }
        let view = indicators.view();
        assert_eq!((view.exchanges, view.exchanges_cut, view.attempts), (4, 1, 4));
        assert_eq!(view.failed, [("ECONNRESET".to_owned(), 2)].into());
        assert_eq!(view.error_ratio, Some(0.5));
        let availability = view.availability.unwrap();
        assert_eq!(availability.windows_tried, 3, "the last 30 s have no attempts");
        assert!((availability.windows - 2.0 / 3.0).abs() < 1e-12);
        assert_eq!((view.response_ns.count, view.response_ns.p50), (2, 6_000_000));
        assert_eq!(
            (view.send_ns.max, view.send_rate_bytes_per_s.count),
            (0, 0),
            "a rate over a zero duration is absent"
        );
        assert_eq!(view.receive_rate_bytes_per_s.p50, 1_000_000);
    }

    #[test]
    fn without_attempts_there_is_no_ratio() {
        let mut indicators = Indicators::new(0);
        assert!(indicators.is_empty());
        indicators.add(
            0,
            &TapExchange { last: true, connection: Some(1), outcome: TapOutcome::Unused, ..TapExchange::BLANK },
        );
        let view = indicators.view();
        assert_eq!((view.connections, view.connections_unused, view.connections_open_at_end), (1, 1, 1));
        assert_eq!((view.error_ratio, view.availability), (None, None));
    }

    #[test]
    fn availability_windows_of_different_runs_are_separate() {
        let mut indicators = Indicators::new(Indicators::WINDOW_NS);
        indicators.add(0, &exchange(1, TapOutcome::Succeeded));
        indicators.add(1, &exchange(1, TapOutcome::Failed));
        assert_eq!(indicators.view().availability.unwrap().windows, 0.5);
    }
}
