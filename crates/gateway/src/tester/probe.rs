//! Timestamped datagrams, client - server - client: the round trip, idle or under load.

use std::net::UdpSocket;
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use stats::Histogram;
use sys::clock::monotonic_ns;
use sys::datagrams::Sender;

use super::datagram::Datagram;
use super::seen::RttSeen;
use super::work::{Halt, sleep_until};

/// Probes a second: few enough to be no load, enough for a 99th percentile in some seconds.
const PER_SECOND: u64 = 50;
/// Of UDP's payload: an IP packet of 64 bytes.
const PAYLOAD: usize = 36;
/// The last may take so long.
const LAST: Duration = Duration::from_secs(1);

/// Times of probes: written by who receives, read by who sends.
#[derive(Clone)]
pub(super) struct Times(Arc<Mutex<Book>>);

struct Book {
    /// Of each number, whether it is away.
    away: Vec<bool>,
    received: u64,
    rtt: Histogram,
}

impl Times {
    pub(super) fn new() -> Self {
        Times(Arc::new(Mutex::new(Book { away: Vec::new(), received: 0, rtt: Histogram::new() })))
    }

    /// One came back. A second time, or with a number that was not sent, it is nothing.
    pub(super) fn add(&self, datagram: Datagram, now_ns: u64) {
        let mut book = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let number = usize::try_from(datagram.number).unwrap_or(usize::MAX);
        if book.away.get_mut(number).is_some_and(std::mem::take) {
            book.received += 1;
            book.rtt.record(now_ns.saturating_sub(datagram.sent_ns));
        }
    }

    fn sent(&self) -> u64 {
        let mut book = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        book.away.push(true);
        book.away.len() as u64 - 1
    }

    fn seen(&self) -> RttSeen {
        let book = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        RttSeen { sent: book.away.len() as u64, received: book.received, ns: book.rtt.quantiles() }
    }
}

/// Sends probes for so long, and waits a moment for the last.
pub(super) fn send(socket: &UdpSocket, mark: u64, lasts: Duration, times: &Times, halt: &Halt) -> RttSeen {
    let mut sender = Sender::default();
    let begun_ns = monotonic_ns();
    let end_ns = begun_ns + lasts.as_nanos() as u64;
    let mut next = 0;
    while !halt.is_set() {
        let moment_ns = begun_ns + next * 1_000_000_000 / PER_SECOND;
        if moment_ns >= end_ns {
            break;
        }
        if moment_ns > monotonic_ns() {
            sleep_until(moment_ns);
            continue;
        }
        let mut bytes = [0; PAYLOAD];
        let datagram = Datagram { mark, number: times.sent(), sent_ns: monotonic_ns() };
        bytes[..Datagram::BYTES].copy_from_slice(&datagram.write());
        // What has no room, or no way, does not come back.
        let _ = sender.send(socket.as_fd(), &[&bytes]);
        next += 1;
    }
    let last_ns = monotonic_ns() + LAST.as_nanos() as u64;
    while !halt.is_set() && monotonic_ns() < last_ns {
        let seen = times.seen();
        if seen.received >= seen.sent {
            break;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    times.seen()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probe_response_counts_once_and_only_if_sent() {
        let times = Times::new();
        assert_eq!((times.sent(), times.sent()), (0, 1));
        let back = |number| Datagram { mark: 1, number, sent_ns: 1000 };
        for number in [1, 1, 2, u64::MAX] {
            times.add(back(number), 5000);
        }
        let seen = times.seen();
        assert_eq!((seen.sent, seen.received, seen.ns.count, seen.ns.max), (2, 1, 1, 4000));
    }
}
