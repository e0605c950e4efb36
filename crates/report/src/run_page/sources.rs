//! The data of a run's page.

use std::path::Path;

use schema::{DistributionRecord, Document, Measure, SecondRecord, ServerSecond, TapOutcome, TapSide, WatchSecond};
use stats::Histogram;

/// A run as read from its folder. Parts that the run does not have are empty.
#[derive(Clone, Debug)]
pub struct Sources {
    /// The document.
    pub document: Document,
    /// Seconds counted by the load generator.
    pub series: Vec<SecondRecord>,
    /// Seconds of the packet capture.
    pub watch_series: Vec<WatchSecond>,
    /// Seconds of the server's resource usage.
    pub server_series: Vec<ServerSecond>,
    /// Response times by second and bucket.
    pub distributions: Vec<DistributionRecord>,
    /// Response times of the measured phase.
    pub response_time: Histogram,
    /// Service times of the measured phase.
    pub service_time: Histogram,
    /// Connect times of the measured phase.
    pub connect: Histogram,
    /// Times to the first byte of the measured phase.
    pub first_byte: Histogram,
    /// Round-trip times of handshakes as the wire showed them, the whole capture.
    pub wire_rtt: Histogram,
    /// Server processing times in the complete capture.
    pub wire_service: Histogram,
    /// Response times of programs that were clients.
    pub tap_client: Histogram,
    /// Response times of programs that were servers.
    pub tap_server: Histogram,
    /// Configured RTT of each client in nanoseconds, in any order. It is not stored: the caller computes it from the
    /// plan.
    pub configured_rtt_ns: Vec<u64>,
    /// plan.toml as text.
    pub plan: String,
    /// Parts that could not be read, one sentence each, such as a table truncated by a full disk.
    pub missing: Vec<String>,
}

impl Sources {
    /// A document alone; everything else is empty.
    pub fn of(document: Document) -> Self {
        Sources {
            document,
            series: Vec::new(),
            watch_series: Vec::new(),
            server_series: Vec::new(),
            distributions: Vec::new(),
            response_time: Histogram::new(),
            service_time: Histogram::new(),
            connect: Histogram::new(),
            first_byte: Histogram::new(),
            wire_rtt: Histogram::new(),
            wire_service: Histogram::new(),
            tap_client: Histogram::new(),
            tap_server: Histogram::new(),
            configured_rtt_ns: Vec::new(),
            plan: String::new(),
            missing: Vec::new(),
        }
    }

    /// Reads a run's folder. A table or histogram that cannot be read is omitted and named in [`Sources::missing`].
    ///
    /// # Errors
    /// The run has no document, or one that this version cannot read.
    pub fn read(dir: &Path) -> store::Result<Sources> {
        let mut sources = Sources::of(store::read_summary(dir)?);
        let mut missing = Vec::new();
        let mut histogram = |name: &str| stored_histogram(dir, name, &mut missing).unwrap_or_default();
        sources.response_time = histogram("response_time");
        sources.service_time = histogram("service_time");
        sources.connect = histogram("connect");
        sources.first_byte = histogram("first_byte");
        let series = &mut sources.series;
        for_each_row(store::read_series(dir), "series", &mut missing, |row| series.push(row));
        let series = &mut sources.watch_series;
        for_each_row(store::read_watch_series(dir), "watch_series", &mut missing, |row| series.push(row));
        let series = &mut sources.server_series;
        for_each_row(store::read_server_series(dir), "server_series", &mut missing, |row| series.push(row));
        let cells = &mut sources.distributions;
        for_each_row(store::read_distributions(dir), "distributions", &mut missing, |row| {
            if row.measure == Measure::ResponseTime {
                cells.push(row);
            }
        });
        // A run of an hour has tens of millions of such rows, so the run stores histograms of them. Without a histogram
        // the rows are read.
        match stored_histogram(dir, "wire_rtt", &mut missing) {
            Some(values) => sources.wire_rtt = values,
            None => for_each_row(store::read_connections(dir), "connections", &mut missing, |row| {
                row.handshake_rtt_ns.into_iter().for_each(|rtt| sources.wire_rtt.record(rtt));
            }),
        }
        match stored_histogram(dir, "wire_service", &mut missing) {
            Some(values) => sources.wire_service = values,
            None => for_each_row(store::read_wire_requests(dir), "wire_requests", &mut missing, |row| {
                row.service_time_ns().into_iter().for_each(|time| sources.wire_service.record(time));
            }),
        }
        match (stored_histogram(dir, "tap_client", &mut missing), stored_histogram(dir, "tap_server", &mut missing)) {
            (None, None) => {
                let (client, server) = (&mut sources.tap_client, &mut sources.tap_server);
                for_each_row(store::read_taps(dir), "taps", &mut missing, |row| {
                    let times = if row.side == TapSide::Client { &mut *client } else { &mut *server };
                    if row.outcome == TapOutcome::Succeeded {
                        row.response_ns().into_iter().for_each(|time| times.record(time));
                    }
                });
            }
            (client, server) => {
                (sources.tap_client, sources.tap_server) = (client.unwrap_or_default(), server.unwrap_or_default());
            }
        }
        sources.plan = store::read_plan(dir).unwrap_or_default();
        sources.missing = missing;
        Ok(sources)
    }

    /// The load's seconds that lie completely in the measured phase.
    pub fn measured(&self) -> impl Iterator<Item = &SecondRecord> {
        self.series.iter().filter(|row| row.measured)
    }
}

/// A stored histogram; none without such a file. A file that cannot be read is added to `missing`.
fn stored_histogram(dir: &Path, name: &str, missing: &mut Vec<String>) -> Option<Histogram> {
    match store::read_histogram(dir, name) {
        Ok(values) => Some(values),
        Err(error) => {
            if dir.join(format!("{name}.hlog")).exists() {
                missing.push(format!("{name}.hlog could not be read: {error}"));
            }
            None
        }
    }
}

/// Passes the rows of a table to `take`, one at a time, up to the first that cannot be read, which is added to
/// `missing`.
fn for_each_row<R>(
    table: store::Result<impl Iterator<Item = store::Result<R>>>,
    name: &str,
    missing: &mut Vec<String>,
    mut take: impl FnMut(R),
) {
    let outcome = table.and_then(|mut rows| rows.try_for_each(|row| row.map(&mut take)));
    if let Err(error) = outcome {
        missing.push(format!("{name} could not be read to its end: {error}"));
    }
}
