//! Transactions: a request and its response on one open connection, one pair after the other.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use stats::Histogram;
use sys::clock::monotonic_ns;

use super::line::passing;
use super::packet::name;
use super::seen::ExchangesSeen;
use super::work::Halt;

/// The client: asks for so long.
pub(super) fn ask(
    mut stream: TcpStream,
    request: usize,
    response: usize,
    lasts: Duration,
    halt: &Halt,
) -> ExchangesSeen {
    let (request, mut response) = (vec![b'q'; request], vec![0; response]);
    let mut counts = Counts::new(lasts);
    while !halt.is_set() && !counts.is_over() {
        let asked_ns = monotonic_ns();
        let end = || halt.is_set() || monotonic_ns() >= counts.end_ns();
        let outcome = write_all(&mut stream, &request, &end).and_then(|whole| match whole {
            true => read_all(&mut stream, &mut response, &end),
            false => Ok(false),
        });
        match outcome {
            Ok(true) => counts.done(asked_ns, monotonic_ns()),
            // The time is over in the middle of one.
            Ok(false) => break,
            Err(error) => {
                counts.failed(name(&error));
                break;
            }
        }
        halt.pulse().hear();
    }
    counts.seen()
}

/// The server: answers until the client ends it.
pub(super) fn answer(mut stream: TcpStream, request: usize, response: usize, lasts: Duration, halt: &Halt) {
    let (mut request, response) = (vec![0; request], vec![b'a'; response]);
    let end_ns = monotonic_ns() + (lasts + GRACE).as_nanos() as u64;
    let end = || halt.is_set() || monotonic_ns() >= end_ns;
    // Looked at between any two: with a short RTT no read ever waits long enough to look itself.
    while !end() && matches!(read_all(&mut stream, &mut request, &end), Ok(true)) {
        halt.pulse().hear();
        if !matches!(write_all(&mut stream, &response, &end), Ok(true)) {
            return;
        }
    }
}

/// A closed loop's counts, for transactions and connections alike.
pub(super) struct Counts {
    begun_ns: u64,
    lasts: Duration,
    times: Histogram,
    failed: BTreeMap<String, u64>,
    by_slice: Vec<u32>,
}

impl Counts {
    /// From now on.
    pub(super) fn new(lasts: Duration) -> Self {
        let slices = lasts.as_millis().div_ceil(u128::from(ExchangesSeen::SLICE_MS)) as usize;
        Counts {
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

    /// Done, unless after the end.
    pub(super) fn done(&mut self, from_ns: u64, to_ns: u64) {
        let slice = to_ns.saturating_sub(self.begun_ns) / (u64::from(ExchangesSeen::SLICE_MS) * 1_000_000);
        if to_ns < self.end_ns() {
            self.times.record(to_ns - from_ns);
            if let Some(count) = self.by_slice.get_mut(slice as usize) {
                *count += 1;
            }
        }
    }

    pub(super) fn failed(&mut self, cause: String) {
        *self.failed.entry(cause).or_default() += 1;
    }

    /// The figures; of a trial cut short over the time that it had.
    pub(super) fn seen(self) -> ExchangesSeen {
        let lasted_ns = monotonic_ns().clamp(self.begun_ns + 1, self.end_ns()) - self.begun_ns;
        ExchangesSeen {
            done: self.times.len(),
            per_second: self.times.len() as f64 / (lasted_ns as f64 / 1e9),
            times_ns: self.times.quantiles(),
            failed: self.failed,
            by_slice: self.by_slice,
        }
    }
}

/// False if `end` came first.
fn read_all(stream: &mut TcpStream, mut room: &mut [u8], end: &impl Fn() -> bool) -> io::Result<bool> {
    while !room.is_empty() {
        match stream.read(room) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(length) => room = &mut room[length..],
            Err(error) if passing(&error) => {
                if end() {
                    return Ok(false);
                }
            }
            Err(error) => return Err(error),
        }
    }
    Ok(true)
}

/// False if `end` came first.
fn write_all(stream: &mut TcpStream, mut bytes: &[u8], end: &impl Fn() -> bool) -> io::Result<bool> {
    while !bytes.is_empty() {
        match stream.write(bytes) {
            Ok(length) => bytes = &bytes[length..],
            Err(error) if passing(&error) => {
                if end() {
                    return Ok(false);
                }
            }
            Err(error) => return Err(error),
        }
    }
    Ok(true)
}

/// How much longer than asked the server answers.
const GRACE: Duration = Duration::from_secs(3);
