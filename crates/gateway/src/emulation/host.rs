//! The card: the process in whose time the gateway forwards.
//!
//! ```text
//!   link's loop --put--> ring (bounded) --receive--> card --write--> g0: forwarding, NAT, and out at g1, inside this write
//! ```
//!
//! A kernel forwards in the softirq that a packet's arrival raises, which no control group holds or counts: it is charged to
//! whoever runs, and for a TUN that is who writes to it. So packets that arrive at the gateway are written by a process that
//! does nothing else and is in the gateway's control group: what it may use is what the gateway has, and while it is held
//! back packets wait in its rings, as they wait in those of a card whose interrupts are not served. A ring that is full
//! loses what comes: that is the gateway's loss, and counted apart.
//!
//! Why not threaded NAPI: docs/decisions/0021.

use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use sys::accounting::served;
use sys::cgroup::Cgroup;
use sys::clock::monotonic_ns;
use sys::epoll::{Epoll, Event, Interest};
use sys::packets::PacketBatch;
use sys::sched::{Cores, Urgency};
use sys::tun::{Tun, VNET_HEADER_BYTES};
use sys::worker::Worker;

use testbed::LabError;
use testbed::drive::packet_queue::PacketQueue;

use super::{CLIENT, SERVER};

/// What the card says when it works.
const READY: &str = "ready";

/// Starts the card: what comes out of a ring is written to the device of the same number. It joins `group` before anything
/// else, runs on `cores` where there are some, and ends when its rings are closed, when the worker is dropped, or with this
/// process. Must be called while this process has one thread.
///
/// # Errors
/// The process has other threads; the group may not be joined.
pub fn start(
    devices: [&Tun; 2],
    rings: [OwnedFd; 2],
    group: Option<&Cgroup>,
    cores: Option<&Cores>,
) -> Result<Worker, LabError> {
    let keep = [devices[0].as_fd(), devices[1].as_fd(), rings[0].as_fd(), rings[1].as_fd()];
    let worker = Worker::start(c"yamabiko-card", &keep, |mut link| {
        let joined = group.map_or(Ok(()), Cgroup::join);
        let placed = cores.map_or(Ok(()), Cores::pin_this_thread);
        // A card is served before programs; where this user may not have that, it takes its turn.
        Urgency::High.apply_to_this_thread();
        let ready = match (&joined, &placed) {
            (Err(error), _) => error.to_string(),
            (_, Err(error)) => format!("sched_setaffinity: {error}"),
            _ => READY.to_owned(),
        };
        // The original is waiting for it; if it is gone, so is this process.
        let _ = link.write_all(ready.as_bytes());
        let _ = link.shutdown(std::net::Shutdown::Write);
        if ready == READY {
            let _ = carry(devices, &rings);
        }
    });
    let worker = worker.map_err(LabError::environment)?;
    let said = wait_ready(worker.link()).map_err(LabError::system("start the card"))?;
    match said.as_str() {
        READY => Ok(worker),
        why => Err(LabError::Environment(format!("the gateway's card cannot start: {why}"))),
    }
}

/// What the card takes for a packet, in nanoseconds of its processor time: of many at once, and of one that it has to be woken for. It
/// is given some that the gateway's kernel drops at the first look at their headers. `arrived` says how many packets its first
/// device has had.
pub(super) fn cost(card: &Worker, ring: &mut PacketQueue, arrived: impl Fn() -> Option<u64>) -> [Option<f64>; 2] {
    [(AT_ONCE, Duration::ZERO), (ALONE, APART)].map(|trial| trial_cost(card, ring, &arrived, trial))
}

fn trial_cost(
    card: &Worker,
    ring: &mut PacketQueue,
    arrived: impl Fn() -> Option<u64>,
    (packets, apart): (u64, Duration),
) -> Option<f64> {
    let spent = || served(card.pid(), card.pid()).map(|served| served.ran);
    let (before, had) = (spent()?, arrived()?);
    for _ in 0..packets {
        ring.put(&malformed()).ok()?;
        if !apart.is_zero() {
            std::thread::sleep(apart);
        }
    }
    // What did not fit does not count.
    let sent = packets.checked_sub(ring.take_overflowed())?;
    let deadline = monotonic_ns() + TRIAL_MAX.as_nanos() as u64;
    while arrived()? < had + sent {
        if monotonic_ns() > deadline {
            return None;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    // Its time is counted when it sleeps, which it does once nothing is left.
    std::thread::sleep(Duration::from_millis(1));
    let took = spent()?.checked_sub(before)?;
    (took > Duration::ZERO && sent > 0).then(|| took.as_nanos() as f64 / sent as f64)
}

/// A packet of 64 bytes from the client to the server whose header is not as its checksum says.
fn malformed() -> Vec<u8> {
    let mut ip = [0u8; 64];
    ip[..12].copy_from_slice(&[0x45, 0, 0, 64, 0, 1, 0, 0, 64, 17, 0xff, 0xff]);
    ip[12..16].copy_from_slice(&CLIENT.octets());
    ip[16..20].copy_from_slice(&SERVER.octets());
    [&[0; VNET_HEADER_BYTES][..], &ip].concat()
}

/// As many as a usual ring holds.
const AT_ONCE: u64 = 1000;
/// So many one at a time,
const ALONE: u64 = 40;
/// each so long after the one before that the card sleeps again.
const APART: Duration = Duration::from_micros(300);
/// At the least share there is, 1 %, they take some 200 ms.
const TRIAL_MAX: Duration = Duration::from_secs(1);

/// What it says of itself; nothing if it died.
fn wait_ready(mut link: &UnixStream) -> io::Result<String> {
    let mut said = String::new();
    link.read_to_string(&mut said)?;
    Ok(said)
}

/// The card's whole life. What the kernel will not take (a device that is down, a malformed packet) its device counts.
fn carry(devices: [&Tun; 2], rings: &[OwnedFd; 2]) -> io::Result<()> {
    let epoll = Epoll::new()?;
    for (number, ring) in rings.iter().enumerate() {
        epoll.add(ring.as_fd(), Interest::READ, number as u64)?;
    }
    let mut batch = PacketBatch::default();
    let mut events = [Event::EMPTY; 2];
    let mut open = [true; 2];
    while open != [false; 2] {
        let ready = epoll.wait(&mut events, -1)?;
        // At most a batch of each in turn: neither direction waits for the other.
        for event in ready {
            let number = event.token() as usize;
            match batch.receive(rings[number].as_fd())? {
                Some(packets) => packets.for_each(|packet| {
                    let _ = devices[number].write(packet);
                }),
                None => {
                    epoll.remove(rings[number].as_fd())?;
                    open[number] = false;
                }
            }
        }
    }
    Ok(())
}
