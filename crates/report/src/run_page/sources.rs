//! What a page is made from.

use std::path::Path;

use schema::{DistributionRecord, Document, Measure, SecondRecord, ServerSecond, TapOutcome, TapSide, WatchSecond};
use stats::Histogram;

/// A run as read from its folder. What a run does not have is empty.
#[derive(Clone, Debug)]
pub struct Sources {
    /// Its document.
    pub document: Document,
    /// Its seconds, as the load counted them.
    pub series: Vec<SecondRecord>,
    /// Its seconds, as the wire showed them.
    pub watch_series: Vec<WatchSecond>,
    /// The server's seconds.
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
    /// Service times as the wire showed them, the whole capture.
    pub wire_service: Histogram,
    /// Response times as programs saw them that asked.
    pub tap_client: Histogram,
    /// Response times as programs saw them that answered.
    pub tap_server: Histogram,
    /// RTT asked of each client in nanoseconds, in any order. Not in the book: the caller works it out from the plan.
    pub configured_rtt_ns: Vec<u64>,
    /// plan.toml as text.
    pub plan: String,
    /// What could not be read, one sentence each: a table of a run from a full disk, say.
    pub missing: Vec<String>,
}

impl Sources {
    /// Only a document; everything else is empty.
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

    /// Reads a run's folder. A table or histogram that is there and cannot be read is left out and named in
    /// [`Sources::missing`]: the rest of the page stands.
    ///
    /// # Errors
    /// The run has no document, or one this version cannot read.
    pub fn read(dir: &Path) -> store::Result<Sources> {
        let mut sources = Sources::of(store::read_summary(dir)?);
        let mut missing = Vec::new();
        let mut histogram = |name: &str| summed(dir, name, &mut missing).unwrap_or_default();
        sources.response_time = histogram("response_time");
        sources.service_time = histogram("service_time");
        sources.connect = histogram("connect");
        sources.first_byte = histogram("first_byte");
        let series = &mut sources.series;
        each(store::read_series(dir), "series", &mut missing, |row| series.push(row));
        let series = &mut sources.watch_series;
        each(store::read_watch_series(dir), "watch_series", &mut missing, |row| series.push(row));
        let series = &mut sources.server_series;
        each(store::read_server_series(dir), "server_series", &mut missing, |row| series.push(row));
        let cells = &mut sources.distributions;
        each(store::read_distributions(dir), "distributions", &mut missing, |row| {
            if row.measure == Measure::ResponseTime {
                cells.push(row);
            }
        });
        // A run of an hour has tens of millions of rows of these: what is drawn of them was summed up when it was made.
        // Runs of earlier versions have the rows alone.
        match summed(dir, "wire_rtt", &mut missing) {
            Some(values) => sources.wire_rtt = values,
            None => each(store::read_connections(dir), "connections", &mut missing, |row| {
                row.handshake_rtt_ns.into_iter().for_each(|rtt| sources.wire_rtt.record(rtt));
            }),
        }
        match summed(dir, "wire_service", &mut missing) {
            Some(values) => sources.wire_service = values,
            None => each(store::read_wire_requests(dir), "wire_requests", &mut missing, |row| {
                row.service_time_ns().into_iter().for_each(|time| sources.wire_service.record(time));
            }),
        }
        match (summed(dir, "tap_client", &mut missing), summed(dir, "tap_server", &mut missing)) {
            (None, None) => {
                let (client, server) = (&mut sources.tap_client, &mut sources.tap_server);
                each(store::read_taps(dir), "taps", &mut missing, |row| {
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

    /// The load's seconds that lie wholly in the measured phase.
    pub fn measured(&self) -> impl Iterator<Item = &SecondRecord> {
        self.series.iter().filter(|row| row.measured)
    }
}

/// A distribution that was summed up when the run was made; none where the run has no such file, or it cannot be read, which
/// is told.
fn summed(dir: &Path, name: &str, missing: &mut Vec<String>) -> Option<Histogram> {
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

/// Takes the rows of a table until the first that cannot be read, which is told. One row at a time: there may be
/// millions.
fn each<R>(
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
