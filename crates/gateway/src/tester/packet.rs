//! Numbered datagrams at an even pace, and what arrives of them.
//!
//! The sender has a moment for each, counted from its beginning: late once, it sends what is due and says by how much it
//! was late; it does not shift the rest, and drops nothing. The receiver follows the numbers ([`stats::arrivals`]), sends
//! probes back or times them, and takes every datagram of the trial for a sign of life.

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

use super::datagram::{Datagram, Marks};
use super::line::{Pulse, passing};
use super::seen::SentSeen;
use super::work::{Halt, sleep_until};

/// Datagrams to be sent.
#[derive(Clone, Copy, Debug)]
pub(super) struct Train {
    /// What they begin with.
    pub(super) mark: u64,
    /// How many.
    pub(super) count: u64,
    /// So many a second.
    pub(super) per_second: f64,
    /// Of so many bytes, UDP's and IP's headers left out.
    pub(super) payload: usize,
}

/// Sends them all, unless halted, or so late that it makes no sense any more.
pub(super) fn send(socket: &UdpSocket, train: &Train, halt: &Halt) -> SentSeen {
    let payload = train.payload.max(Datagram::BYTES);
    let mut rooms = vec![0; payload * DATAGRAMS_PER_CALL];
    let (mut sender, mut lag) = (Sender::default(), Histogram::new());
    let begun_ns = monotonic_ns();
    let moment = |number: u64| begun_ns + (number as f64 * 1e9 / train.per_second) as u64;
    let given_up_ns = moment(train.count) + GIVE_UP.as_nanos() as u64;
    let mut seen = SentSeen { asked: train.count, from_ns: begun_ns, to_ns: begun_ns, ..SentSeen::default() };
    while seen.sent < train.count && !halt.is_set() {
        let now = monotonic_ns();
        if now > given_up_ns {
            break;
        }
        let due = ((now - begun_ns) as f64 / 1e9 * train.per_second) as u64 + 1;
        let count = (due.min(train.count).saturating_sub(seen.sent) as usize).min(DATAGRAMS_PER_CALL);
        if count == 0 {
            sleep_until(moment(seen.sent));
            continue;
        }
        for (room, number) in rooms.chunks_exact_mut(payload).zip(seen.sent..).take(count) {
            let datagram = Datagram { mark: train.mark, number, sent_ns: now };
            room[..Datagram::BYTES].copy_from_slice(&datagram.write());
        }
        let mut pieces: [&[u8]; DATAGRAMS_PER_CALL] = [&[]; DATAGRAMS_PER_CALL];
        for (piece, room) in pieces.iter_mut().zip(rooms.chunks_exact(payload)) {
            *piece = room;
        }
        match sender.send(socket.as_fd(), &pieces[..count]) {
            Ok(took) => {
                for number in seen.sent..seen.sent + took as u64 {
                    lag.record(now.saturating_sub(moment(number)));
                }
                if seen.sent == 0 {
                    seen.from_ns = now;
                }
                seen.sent += took as u64;
                seen.to_ns = now;
            }
            // The device has no room: what waits for it is late, and says so.
            Err(error) if error.kind() == ErrorKind::WouldBlock => thread::sleep(NO_ROOM),
            Err(error) => {
                *seen.errors.entry(name(&error)).or_default() += 1;
                thread::sleep(REFUSED);
            }
        }
    }
    seen.lag_ns = lag.quantiles();
    seen
}

/// What an error is called, without its number.
pub(super) fn name(error: &std::io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or_default().to_lowercase()
}

/// What a receiver is to look for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Expected {
    pub(super) marks: Marks,
    /// Numbers of packets below this one; 0: none come to this end.
    pub(super) count: u64,
    /// Between two of them, in nanoseconds.
    pub(super) gap_ns: f64,
    /// What IP and UDP add to a payload.
    pub(super) headers: usize,
}

/// What arrived at one end.
#[derive(Clone, Debug)]
pub(super) struct Received {
    arrivals: Arrivals,
    pub(super) bytes: u64,
    pub(super) from_ns: u64,
    pub(super) to_ns: u64,
    pub(super) overflowed: u64,
}

impl Received {
    /// Its figures, of so many sent.
    pub(super) fn arrivals(&self, sent: u64) -> ArrivalsSeen {
        self.arrivals.finish(sent)
    }
}

/// Receives until halted. `progress` is how many different packets have come; a probe is `on_probe`'s, with the moment at
/// which it was taken out of the socket.
pub(super) fn receive(
    socket: &UdpSocket,
    expected: &Expected,
    progress: &AtomicU64,
    halt: &Halt,
    mut on_probe: impl FnMut(&UdpSocket, &[u8], Datagram, u64),
) -> Received {
    let mut receiver = Receiver::new(LONGEST);
    let mut got = Received {
        arrivals: Arrivals::new(expected.gap_ns),
        bytes: 0,
        from_ns: 0,
        to_ns: 0,
        overflowed: datagrams::overflowed(socket).unwrap_or(0),
    };
    while !halt.is_set() {
        let datagrams = match receiver.receive(socket.as_fd()) {
            Ok(datagrams) => datagrams,
            Err(error) => {
                // The network's answer to what was sent; who sends counts it.
                if !passing(&error) {
                    thread::sleep(REFUSED);
                }
                continue;
            }
        };
        let now = monotonic_ns();
        for bytes in datagrams {
            let Some(datagram) = Datagram::read(bytes) else { continue };
            if datagram.mark == expected.marks.packet && datagram.number < expected.count {
                let before = got.arrivals.received();
                got.arrivals.add(datagram.number, now);
                if got.arrivals.received() > before {
                    got.bytes += (bytes.len() + expected.headers) as u64;
                }
                if got.from_ns == 0 {
                    got.from_ns = now;
                }
                got.to_ns = now;
            } else if datagram.mark == expected.marks.probe {
                on_probe(socket, bytes, datagram, now);
            } else if datagram.mark != expected.marks.alive {
                continue;
            }
            halt.pulse().hear();
        }
        progress.store(got.arrivals.received(), Ordering::Relaxed);
    }
    got.overflowed = datagrams::overflowed(socket).unwrap_or(0).saturating_sub(got.overflowed);
    got
}

/// What the server does with a probe: back as it came, to the one address that the socket is connected to.
pub(super) fn echo() -> impl FnMut(&UdpSocket, &[u8], Datagram, u64) {
    let mut sender = Sender::default();
    move |socket, bytes, _, _| {
        // One that has no room is lost, and counted as lost by whoever waits for it.
        let _ = sender.send(socket.as_fd(), &[bytes]);
    }
}

/// Whether all that were sent have come, or `since_ns` is so long ago that they will not.
pub(super) fn settled(progress: &AtomicU64, sent: u64, since_ns: u64, settle: Duration, pulse: &Pulse) -> bool {
    progress.load(Ordering::Relaxed) >= sent
        || monotonic_ns().saturating_sub(since_ns) >= settle.as_nanos() as u64
        || pulse.is_lost()
}

/// Longer than any that is asked for.
const LONGEST: usize = 9216;
/// A sender that is so late cannot keep the rate.
const GIVE_UP: Duration = Duration::from_secs(1);
const NO_ROOM: Duration = Duration::from_micros(50);
const REFUSED: Duration = Duration::from_millis(1);
