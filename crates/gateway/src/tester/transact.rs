//! Test of transactions: request and response on one open connection, one after the other.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use stats::Histogram;
use sys::clock::monotonic_ns;

use super::control_connection::is_temporary;
use super::packet::error_text;
use super::report::ExchangesReport;
use super::worker::StopFlag;

/// The client: sends requests until the time is over.
pub(super) fn run_client(
    mut stream: TcpStream,
    request: usize,
    response: usize,
    lasts: Duration,
    stop: &StopFlag,
) -> ExchangesReport {
    let (request, mut response) = (vec![b'q'; request], vec![0; response]);
    let mut counter = ExchangeCounter::new(lasts);
    while !stop.is_set() && !counter.is_over() {
        let requested_ns = monotonic_ns();
        let end = || stop.is_set() || monotonic_ns() >= counter.end_ns();
        let outcome = write_all(&mut stream, &request, &end).and_then(|written| match written {
            true => read_all(&mut stream, &mut response, &end),
            false => Ok(false),
        });
        match outcome {
            Ok(true) => counter.record(requested_ns, monotonic_ns()),
            // The time is over during a transaction, which is not counted.
            Ok(false) => break,
            Err(error) => {
                counter.record_failure(error_text(&error));
                break;
            }
        }
        stop.liveness().record_activity();
    }
    counter.finish()
}

/// The server: responds until the client closes the connection.
pub(super) fn run_server(mut stream: TcpStream, request: usize, response: usize, lasts: Duration, stop: &StopFlag) {
    let (mut request, response) = (vec![0; request], vec![b'a'; response]);
    let end_ns = monotonic_ns() + (lasts + GRACE_PERIOD).as_nanos() as u64;
    let end = || stop.is_set() || monotonic_ns() >= end_ns;
    // Check the end between transactions: with a short RTT no read waits long enough to check it.
    while !end() && matches!(read_all(&mut stream, &mut request, &end), Ok(true)) {
        stop.liveness().record_activity();
        if !matches!(write_all(&mut stream, &response, &end), Ok(true)) {
            return;
        }
    }
}

/// Counts transactions or connections of a closed loop.
pub(super) struct ExchangeCounter {
    begun_ns: u64,
    lasts: Duration,
    times: Histogram,
    failed: BTreeMap<String, u64>,
    by_slice: Vec<u32>,
}

impl ExchangeCounter {
    /// A counter of a trial that starts now.
    pub(super) fn new(lasts: Duration) -> Self {
        let slices = lasts.as_millis().div_ceil(u128::from(ExchangesReport::SLICE_MS)) as usize;
        ExchangeCounter {
            begun_ns: monotonic_ns(),
            lasts,
            times: Histogram::new(),
            failed: BTreeMap::new(),
            by_slice: vec![0; slices],
        }
    }

    pub(super) fn end_ns(&self) -> u64 {
        self.begun_ns + self.lasts.as_nanos() as u64
    }

    pub(super) fn is_over(&self) -> bool {
        monotonic_ns() >= self.end_ns()
    }

    /// Records a completed transaction, unless it ended after the trial.
    pub(super) fn record(&mut self, from_ns: u64, to_ns: u64) {
        let slice = to_ns.saturating_sub(self.begun_ns) / (u64::from(ExchangesReport::SLICE_MS) * 1_000_000);
        if to_ns < self.end_ns() {
            self.times.record(to_ns - from_ns);
            if let Some(count) = self.by_slice.get_mut(slice as usize) {
                *count += 1;
            }
        }
    }

    pub(super) fn record_failure(&mut self, cause: String) {
        *self.failed.entry(cause).or_default() += 1;
    }

    /// The report. The rate of a trial that was ended early is over its actual time.
    pub(super) fn finish(self) -> ExchangesReport {
        let lasted_ns = monotonic_ns().clamp(self.begun_ns + 1, self.end_ns()) - self.begun_ns;
        ExchangesReport {
            done: self.times.len(),
            per_second: self.times.len() as f64 / (lasted_ns as f64 / 1e9),
            times_ns: self.times.quantiles(),
            failed: self.failed,
            by_slice: self.by_slice,
        }
    }
}

/// Fills the buffer; false if `end` returned true before.
fn read_all(stream: &mut TcpStream, mut buffer: &mut [u8], end: &impl Fn() -> bool) -> io::Result<bool> {
    while !buffer.is_empty() {
        match stream.read(buffer) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(length) => buffer = &mut buffer[length..],
            Err(error) if is_temporary(&error) => {
                if end() {
                    return Ok(false);
                }
            }
            Err(error) => return Err(error),
        }
    }
    Ok(true)
}

/// Writes all bytes; false if `end` returned true before.
fn write_all(stream: &mut TcpStream, mut bytes: &[u8], end: &impl Fn() -> bool) -> io::Result<bool> {
    while !bytes.is_empty() {
        match stream.write(bytes) {
            Ok(length) => bytes = &bytes[length..],
            Err(error) if is_temporary(&error) => {
                if end() {
                    return Ok(false);
                }
            }
            Err(error) => return Err(error),
        }
    }
    Ok(true)
}

/// Time after the end of the trial for which the server still responds.
const GRACE_PERIOD: Duration = Duration::from_secs(3);
