//! The live series: counters and gauges over time, per second.

use schema::WatchSecond;
use stats::Histogram;
use units::Timestamp;

/// A gauge, weighted by the duration of each value.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct GaugeOverTime {
    now: u64,
    min: u64,
    max: u64,
    /// Sum of value times nanoseconds since the second began.
    weighted: u128,
    since: u64,
}

impl GaugeOverTime {
    /// The present value.
    pub(crate) fn now(&self) -> u64 {
        self.now
    }

    fn settle(&mut self, at: u64) {
        self.weighted += u128::from(self.now) * u128::from(at.saturating_sub(self.since));
        self.since = self.since.max(at);
    }

    /// Increments it, at a time not before the last.
    fn add(&mut self, at: u64) {
        self.settle(at);
        self.now += 1;
        self.max = self.max.max(self.now);
    }

    /// Decrements it.
    fn take(&mut self, at: u64) {
        self.settle(at);
        self.now = self.now.saturating_sub(1);
        self.min = self.min.min(self.now);
    }

    /// Ends the second at `at`: mean over `length` nanoseconds, minimum, maximum.
    fn roll(&mut self, at: u64, length: u64) -> (f64, u64, u64) {
        self.settle(at);
        let mean = if length == 0 { self.now as f64 } else { self.weighted as f64 / length as f64 };
        let row = (mean, self.min, self.max);
        (self.weighted, self.min, self.max) = (0, self.now, self.now);
        row
    }
}

/// The series under construction. Counters in `row` are public; gauges change through methods.
pub(crate) struct Series {
    /// The current second; its gauges are filled in at its end.
    pub(crate) row: WatchSecond,
    /// Round-trip times of all handshakes.
    pub(crate) handshake_rtt: Histogram,
    /// Service times of all complete requests.
    pub(crate) service_time: Histogram,
    rtt_of_second: Histogram,
    connections: GaugeOverTime,
    sessions: GaugeOverTime,
    in_flight: GaugeOverTime,
    /// Latest time seen; `None` before the first.
    now: Option<u64>,
    began: u64,
    ends_at: u64,
    rows: Vec<WatchSecond>,
    /// Time between packets for which there are no rows.
    skipped: u64,
    silence: Silence,
}

/// The latest time between two packets for which there are no rows.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Silence {
    /// Number of silences.
    pub(crate) count: u32,
    /// Length of the silence in nanoseconds.
    pub(crate) length_ns: u64,
}

impl Series {
    pub(crate) fn new() -> Series {
        Series {
            row: WatchSecond::default(),
            handshake_rtt: Histogram::new(),
            service_time: Histogram::new(),
            rtt_of_second: Histogram::new(),
            connections: GaugeOverTime::default(),
            sessions: GaugeOverTime::default(),
            in_flight: GaugeOverTime::default(),
            now: None,
            began: 0,
            ends_at: 0,
            rows: Vec::new(),
            skipped: 0,
            silence: Silence::default(),
        }
    }

    /// Latest time seen.
    pub(crate) fn now(&self) -> Timestamp {
        Timestamp::from_nanos(self.now.unwrap_or(0))
    }

    /// The clock by which connections age: the latest time seen, less the silences without rows. A capture that paused
    /// for an hour has closed no connection.
    #[inline]
    pub(crate) fn clock(&self) -> u64 {
        self.now.unwrap_or(0) - self.skipped
    }

    /// The latest silence.
    #[inline]
    pub(crate) fn silence(&self) -> Silence {
        self.silence
    }

    /// Records the silence up to `at`, when a packet arrived. Call it before [`Series::advance`].
    pub(crate) fn note_silence(&mut self, at: Timestamp) {
        let Some(now) = self.now else { return };
        let at = at.as_nanos().min(u64::MAX - 2 * SECOND);
        // As `end_seconds` counts: a limited number of rows, and then none.
        if at >= self.ends_at.saturating_add(QUIET_ROWS_MAX as u64 * SECOND) {
            self.skipped += at - now;
            self.silence = Silence { count: self.silence.count.wrapping_add(1), length_ns: at - now };
        }
    }

    /// Whether a second ends before `at`.
    #[inline]
    pub(crate) fn ends_before(&self, at: Timestamp) -> bool {
        at.as_nanos() >= self.ends_at
    }

    /// Advances to `at`; an earlier time changes nothing. True when a second has ended.
    #[inline]
    pub(crate) fn advance(&mut self, at: Timestamp) -> bool {
        // Leaves space for the end of this second and the next, so that nothing below can overflow.
        let at = at.as_nanos().min(u64::MAX - 2 * SECOND);
        match self.now {
            Some(now) if at < self.ends_at => {
                self.now = Some(now.max(at));
                false
            }
            Some(_) => {
                self.end_seconds(at);
                true
            }
            None => {
                self.begin(at);
                for gauge in [&mut self.connections, &mut self.sessions, &mut self.in_flight] {
                    gauge.since = at;
                }
                self.now = Some(at);
                true
            }
        }
    }

    /// A connection opened.
    pub(crate) fn connection_opened(&mut self) {
        self.connections.add(self.now.unwrap_or(0));
    }

    /// A connection closed.
    pub(crate) fn connection_closed(&mut self) {
        self.row.connections_closed += 1;
        self.connections.take(self.now.unwrap_or(0));
    }

    /// The first request of a connection arrived.
    pub(crate) fn session_opened(&mut self) {
        self.sessions.add(self.now.unwrap_or(0));
    }

    /// A connection with requests closed.
    pub(crate) fn session_closed(&mut self) {
        self.sessions.take(self.now.unwrap_or(0));
    }

    /// The first byte of a request arrived.
    pub(crate) fn request_began(&mut self) {
        self.row.requests += 1;
        self.in_flight.add(self.now.unwrap_or(0));
    }

    /// A request is no longer in flight.
    pub(crate) fn request_ended(&mut self) {
        self.in_flight.take(self.now.unwrap_or(0));
    }

    /// A handshake ended with this round-trip time.
    pub(crate) fn handshake(&mut self, rtt_ns: u64) {
        self.row.handshakes += 1;
        self.rtt_of_second.record(rtt_ns);
        self.handshake_rtt.record(rtt_ns);
    }

    /// Concurrent connections, HTTP sessions, requests in flight.
    pub(crate) fn gauges(&self) -> [u64; 3] {
        [self.connections.now(), self.sessions.now(), self.in_flight.now()]
    }

    /// Ends the current second at its present time: the capture is over.
    pub(crate) fn finish(&mut self) {
        if let Some(now) = self.now.filter(|&now| now > self.began || self.row.packets > 0) {
            self.end_second(now);
            self.begin(now);
        }
    }

    /// Takes the seconds that ended.
    pub(crate) fn take(&mut self, into: &mut Vec<WatchSecond>) {
        into.append(&mut self.rows);
    }

    #[cold]
    fn end_seconds(&mut self, at: u64) {
        let mut rows = 0;
        while at >= self.ends_at && rows < QUIET_ROWS_MAX {
            let end = self.ends_at;
            self.end_second(end);
            self.begin(end);
            rows += 1;
        }
        if at >= self.ends_at {
            // A long silence: gauges are constant, and no row reports them.
            for gauge in [&mut self.connections, &mut self.sessions, &mut self.in_flight] {
                gauge.since = at;
                gauge.weighted = 0;
            }
            self.begin(at);
        }
        self.now = Some(at);
    }

    fn begin(&mut self, at: u64) {
        self.began = at;
        self.row = WatchSecond { second: at / SECOND, ..WatchSecond::default() };
        self.ends_at = (at / SECOND + 1) * SECOND;
    }

    fn end_second(&mut self, end: u64) {
        let length = end.saturating_sub(self.began);
        let row = &mut self.row;
        row.watched_ns = length;
        (row.connections_mean, row.connections_min, row.connections_max) = self.connections.roll(end, length);
        (row.sessions_mean, _, row.sessions_max) = self.sessions.roll(end, length);
        (row.in_flight_mean, _, row.in_flight_max) = self.in_flight.roll(end, length);
        row.connections = self.connections.now();
        row.sessions = self.sessions.now();
        row.in_flight = self.in_flight.now();
        if !self.rtt_of_second.is_empty() {
            row.handshake_rtt_p50_ns = self.rtt_of_second.value_at(0.5);
            row.handshake_rtt_p90_ns = self.rtt_of_second.value_at(0.9);
            row.handshake_rtt_p99_ns = self.rtt_of_second.value_at(0.99);
            row.handshake_rtt_max_ns = self.rtt_of_second.max();
            self.rtt_of_second.clear();
        }
        self.rows.push(*row);
    }
}

const SECOND: u64 = 1_000_000_000;
/// Maximum number of rows for a silence. A corrupt timestamp must not cause a row for every second of a century.
const QUIET_ROWS_MAX: usize = 60;

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Timestamp {
        Timestamp::from_nanos(millis * 1_000_000)
    }

    fn rows(series: &mut Series) -> Vec<WatchSecond> {
        let mut rows = Vec::new();
        series.take(&mut rows);
        rows
    }

    #[test]
    fn gauges_are_weighted_by_time() {
        let mut series = Series::new();
        series.advance(at(7_000));
        series.connection_opened();
        series.advance(at(7_250));
        series.connection_opened();
        series.advance(at(7_500));
        series.connection_closed();
        series.advance(at(9_500));
        series.finish();
        let rows = rows(&mut series);
        assert_eq!(rows.iter().map(|row| row.second).collect::<Vec<_>>(), [7, 8, 9]);
        assert_eq!((rows[0].connections_mean, rows[0].connections_max, rows[0].connections_min), (1.25, 2, 0));
        assert_eq!((rows[1].connections_mean, rows[1].connections_min, rows[1].watched_ns), (1.0, 1, SECOND));
        assert_eq!((rows[2].connections, rows[2].watched_ns), (1, SECOND / 2));
    }

    #[test]
    fn rows_of_a_long_silence_and_a_step_back_are_bounded() {
        let mut series = Series::new();
        series.advance(at(1_000));
        series.advance(Timestamp::MAX);
        assert_eq!(rows(&mut series).len(), QUIET_ROWS_MAX);
        let now = series.now();
        assert!(!series.advance(Timestamp::MAX) && !series.advance(at(2_000)));
        assert_eq!(series.now(), now);
        series.finish();
        assert!(rows(&mut series).len() <= QUIET_ROWS_MAX + 1);
    }

    #[test]
    fn quantiles_of_a_row_are_those_of_its_second() {
        let mut series = Series::new();
        series.advance(at(0));
        series.handshake(48_000_000);
        series.advance(at(1_500));
        series.handshake(1_000_000);
        series.advance(at(2_000));
        let rows = rows(&mut series);
        assert_eq!((rows[0].handshakes, rows[0].handshake_rtt_max_ns), (1, 48_000_000));
        assert_eq!((rows[1].handshakes, rows[1].handshake_rtt_p99_ns), (1, 1_000_000));
    }
}
