//! RTT probes: timestamped datagrams that the server sends back, on an idle network or under load.

use std::net::UdpSocket;
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use stats::Histogram;
use sys::clock::monotonic_ns;
use sys::datagrams::Sender;

use super::datagram::Datagram;
use super::report::RttReport;
use super::worker::{StopFlag, sleep_towards};

/// Rate of the probes: low enough not to be a load, high enough for a 99th percentile within seconds.
const PROBES_PER_S: u64 = 50;
/// UDP payload of an IPv4 packet of 64 bytes.
const PAYLOAD_BYTES: usize = 36;
/// Wait for responses after the last probe.
const LAST_RESPONSE_TIMEOUT: Duration = Duration::from_secs(1);

/// Times of probes, shared by the sending and the receiving thread.
#[derive(Clone)]
pub(super) struct ProbeTimes(Arc<Mutex<ProbeRecord>>);

struct ProbeRecord {
    /// By number: whether the probe has not returned yet.
    outstanding: Vec<bool>,
    received: u64,
    rtt: Histogram,
}

impl ProbeTimes {
    pub(super) fn new() -> Self {
        ProbeTimes(Arc::new(Mutex::new(ProbeRecord { outstanding: Vec::new(), received: 0, rtt: Histogram::new() })))
    }

    /// Records a returned probe. Duplicates and numbers that were not sent are ignored.
    pub(super) fn add(&self, datagram: Datagram, now_ns: u64) {
        let mut record = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let number = usize::try_from(datagram.number).unwrap_or(usize::MAX);
        if record.outstanding.get_mut(number).is_some_and(std::mem::take) {
            record.received += 1;
            record.rtt.record(now_ns.saturating_sub(datagram.sent_ns));
        }
    }

    fn record_sent(&self) -> u64 {
        let mut record = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        record.outstanding.push(true);
        record.outstanding.len() as u64 - 1
    }

    fn report(&self) -> RttReport {
        let record = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        RttReport { sent: record.outstanding.len() as u64, received: record.received, ns: record.rtt.quantiles() }
    }
}

/// Sends probes until the time is over and waits for the last responses.
pub(super) fn send(socket: &UdpSocket, mark: u64, lasts: Duration, times: &ProbeTimes, stop: &StopFlag) -> RttReport {
    let mut sender = Sender::default();
    let begun_ns = monotonic_ns();
    let end_ns = begun_ns + lasts.as_nanos() as u64;
    let mut next = 0;
    while !stop.is_set() {
        let scheduled_ns = begun_ns + next * 1_000_000_000 / PROBES_PER_S;
        if scheduled_ns >= end_ns {
            break;
        }
        if scheduled_ns > monotonic_ns() {
            sleep_towards(scheduled_ns);
            continue;
        }
        let mut bytes = [0; PAYLOAD_BYTES];
        let datagram = Datagram { mark, number: times.record_sent(), sent_ns: monotonic_ns() };
        bytes[..Datagram::BYTES].copy_from_slice(&datagram.write());
        // A probe that cannot be sent counts as lost.
        let _ = sender.send(socket.as_fd(), &[&bytes]);
        next += 1;
    }
    let last_ns = monotonic_ns() + LAST_RESPONSE_TIMEOUT.as_nanos() as u64;
    while !stop.is_set() && monotonic_ns() < last_ns {
        let report = times.report();
        if report.received >= report.sent {
            break;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    times.report()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probe_response_counts_once_and_only_if_sent() {
        let times = ProbeTimes::new();
        assert_eq!((times.record_sent(), times.record_sent()), (0, 1));
        let returned = |number| Datagram { mark: 1, number, sent_ns: 1000 };
        for number in [1, 1, 2, u64::MAX] {
            times.add(returned(number), 5000);
        }
        let report = times.report();
        assert_eq!((report.sent, report.received, report.ns.count, report.ns.max), (2, 1, 1, 4000));
    }
}
