//! Test of packets: sends numbered datagrams at a constant rate and counts their arrivals.
//!
//! Each packet has a scheduled time, relative to the start. A late sender sends all due packets and reports its lag; it
//! neither shifts later packets nor drops any. The receiver counts by number ([`stats::arrivals`]), sends probes back
//! or records their RTT, and treats every datagram of the trial as a sign of life.

use std::io::ErrorKind;
use std::net::UdpSocket;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use stats::Histogram;
use stats::arrivals::{Arrivals, ArrivalsSeen};
use sys::clock::monotonic_ns;
use sys::datagrams::{self, DATAGRAMS_PER_CALL, Receiver, Sender};

use super::control_connection::{Liveness, is_temporary};
use super::datagram::{Datagram, Marks};
use super::report::SentReport;
use super::worker::{StopFlag, sleep_towards};

/// Packets to send.
#[derive(Clone, Copy, Debug)]
pub(super) struct PacketTrain {
    /// Mark of the packets.
    pub(super) mark: u64,
    /// Number of packets.
    pub(super) count: u64,
    /// Rate per second.
    pub(super) per_second: f64,
    /// Payload in bytes, without headers of UDP and IP.
    pub(super) payload: usize,
}

/// Sends all packets, unless stopped or [`SEND_LAG_MAX`] late.
pub(super) fn send(socket: &UdpSocket, train: &PacketTrain, stop: &StopFlag) -> SentReport {
    let payload = train.payload.max(Datagram::BYTES);
    let mut buffers = vec![0; payload * DATAGRAMS_PER_CALL];
    let (mut sender, mut lag) = (Sender::default(), Histogram::new());
    let begun_ns = monotonic_ns();
    let scheduled_ns = |number: u64| begun_ns + (number as f64 * 1e9 / train.per_second) as u64;
    let give_up_ns = scheduled_ns(train.count) + SEND_LAG_MAX.as_nanos() as u64;
    let mut report = SentReport { planned: train.count, from_ns: begun_ns, to_ns: begun_ns, ..SentReport::default() };
    while report.sent < train.count && !stop.is_set() {
        let now = monotonic_ns();
        if now > give_up_ns {
            break;
        }
        let due = ((now - begun_ns) as f64 / 1e9 * train.per_second) as u64 + 1;
        let count = (due.min(train.count).saturating_sub(report.sent) as usize).min(DATAGRAMS_PER_CALL);
        if count == 0 {
            sleep_towards(scheduled_ns(report.sent));
            continue;
        }
        for (buffer, number) in buffers.chunks_exact_mut(payload).zip(report.sent..).take(count) {
            let datagram = Datagram { mark: train.mark, number, sent_ns: now };
            buffer[..Datagram::BYTES].copy_from_slice(&datagram.write());
        }
        let mut pieces: [&[u8]; DATAGRAMS_PER_CALL] = [&[]; DATAGRAMS_PER_CALL];
        for (piece, buffer) in pieces.iter_mut().zip(buffers.chunks_exact(payload)) {
            *piece = buffer;
        }
        match sender.send(socket.as_fd(), &pieces[..count]) {
            Ok(sent) => {
                for number in report.sent..report.sent + sent as u64 {
                    lag.record(now.saturating_sub(scheduled_ns(number)));
                }
                if report.sent == 0 {
                    report.from_ns = now;
                }
                report.sent += sent as u64;
                report.to_ns = now;
            }
            // The queue of the device is full: waiting packets are late, which the send lag shows.
            Err(error) if error.kind() == ErrorKind::WouldBlock => thread::sleep(FULL_QUEUE_WAIT),
            Err(error) => {
                *report.errors.entry(error_text(&error)).or_default() += 1;
                thread::sleep(ERROR_WAIT);
            }
        }
    }
    report.lag_ns = lag.quantiles();
    report
}

/// Text of an error without its number.
pub(super) fn error_text(error: &std::io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or_default().to_lowercase()
}

/// Datagrams that a receiver expects.
#[derive(Clone, Copy, Debug)]
pub(super) struct Expected {
    pub(super) marks: Marks,
    /// Number of packets; 0 if this end receives none.
    pub(super) count: u64,
    /// Time between two packets in nanoseconds.
    pub(super) gap_ns: f64,
    /// Length of the headers of IP and UDP.
    pub(super) headers: usize,
}

/// Packets received at one end.
#[derive(Clone, Debug)]
pub(super) struct Received {
    arrivals: Arrivals,
    pub(super) bytes: u64,
    pub(super) from_ns: u64,
    pub(super) to_ns: u64,
    pub(super) overflowed: u64,
}

impl Received {
    /// Figures of the arrivals, given the number of sent packets.
    pub(super) fn arrivals(&self, sent: u64) -> ArrivalsSeen {
        self.arrivals.finish(sent)
    }
}

/// Receives until stopped. `progress` is set to the number of different packets so far. `on_probe` is called with each
/// probe and the time at which it was read from the socket.
pub(super) fn receive(
    socket: &UdpSocket,
    expected: &Expected,
    progress: &AtomicU64,
    stop: &StopFlag,
    mut on_probe: impl FnMut(&UdpSocket, &[u8], Datagram, u64),
) -> Received {
    let mut receiver = Receiver::new(DATAGRAM_BYTES_MAX);
    let mut received = Received {
        arrivals: Arrivals::new(expected.gap_ns),
        bytes: 0,
        from_ns: 0,
        to_ns: 0,
        overflowed: datagrams::overflowed(socket).unwrap_or(0),
    };
    while !stop.is_set() {
        let datagrams = match receiver.receive(socket.as_fd()) {
            Ok(datagrams) => datagrams,
            Err(error) => {
                // An ICMP error for a sent packet: the sender counts it.
                if !is_temporary(&error) {
                    thread::sleep(ERROR_WAIT);
                }
                continue;
            }
        };
        let now = monotonic_ns();
        for bytes in datagrams {
            let Some(datagram) = Datagram::read(bytes) else { continue };
            if datagram.mark == expected.marks.packet && datagram.number < expected.count {
                let before = received.arrivals.received();
                received.arrivals.add(datagram.number, now);
                if received.arrivals.received() > before {
                    received.bytes += (bytes.len() + expected.headers) as u64;
                }
                if received.from_ns == 0 {
                    received.from_ns = now;
                }
                received.to_ns = now;
            } else if datagram.mark == expected.marks.probe {
                on_probe(socket, bytes, datagram, now);
            } else if datagram.mark != expected.marks.keep_alive {
                continue;
            }
            stop.liveness().record_activity();
        }
        progress.store(received.arrivals.received(), Ordering::Relaxed);
    }
    received.overflowed = datagrams::overflowed(socket).unwrap_or(0).saturating_sub(received.overflowed);
    received
}

/// Sends a probe back unchanged, to the address to which the server's socket is connected.
pub(super) fn echo() -> impl FnMut(&UdpSocket, &[u8], Datagram, u64) {
    let mut sender = Sender::default();
    move |socket, bytes, _, _| {
        // A probe that does not fit into the send buffer is dropped; the client counts it as lost.
        let _ = sender.send(socket.as_fd(), &[bytes]);
    }
}

/// Whether all sent packets have arrived, or the wait of `settle` since `since_ns` is over.
pub(super) fn settled(progress: &AtomicU64, sent: u64, since_ns: u64, settle: Duration, liveness: &Liveness) -> bool {
    progress.load(Ordering::Relaxed) >= sent
        || monotonic_ns().saturating_sub(since_ns) >= settle.as_nanos() as u64
        || liveness.is_lost()
}

/// Receive buffer of a datagram, longer than any packet of a test.
const DATAGRAM_BYTES_MAX: usize = 9216;
/// Lag after which a sender gives up, since it cannot keep the rate.
const SEND_LAG_MAX: Duration = Duration::from_secs(1);
const FULL_QUEUE_WAIT: Duration = Duration::from_micros(50);
const ERROR_WAIT: Duration = Duration::from_millis(1);
