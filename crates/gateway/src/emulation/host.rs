//! The emulated gateway host: the process in whose CPU time the gateway forwards.
//!
//! ```text
//!   link's loop --put--> queue (bounded) --receive--> host --write--> g0
//! ```
//!
//! Forwarding, NAT and the output at g1 happen inside this write.
//!
//! A kernel forwards in the softirq raised by the arrival of a packet, which no control group limits or counts: it is
//! charged to the running process, for a TUN device the one that writes to it. Therefore packets for the gateway are
//! written by a process of the gateway's control group that does nothing else. While it is throttled, packets wait in
//! its queues, as in the receive queues of a network interface. A full queue drops packets, which count as losses of
//! the gateway.
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

use testbed::TestbedError;
use testbed::drive::packet_queue::PacketQueue;

use super::{CLIENT, SERVER};

/// Message of the host process when it runs.
const READY: &str = "ready";

/// Starts the emulated host: it writes packets of a queue to the device of the same number. It joins `group` first,
/// runs on `cores` if given, and ends when its queues are closed, when the worker is dropped, or with this process.
/// Must be called while this process has one thread.
///
/// # Errors
/// The process has other threads; the control group cannot be joined.
pub fn start(
    devices: [&Tun; 2],
    queues: [OwnedFd; 2],
    group: Option<&Cgroup>,
    cores: Option<&Cores>,
) -> Result<Worker, TestbedError> {
    let kept_open = [devices[0].as_fd(), devices[1].as_fd(), queues[0].as_fd(), queues[1].as_fd()];
    let worker = Worker::start(c"yamabiko-host", &kept_open, |mut link| {
        let joined = group.map_or(Ok(()), Cgroup::join);
        let placed = cores.map_or(Ok(()), Cores::pin_this_thread);
        // Packet processing precedes programs, if this user may set the priority.
        Urgency::High.apply_to_this_thread();
        let ready = match (&joined, &placed) {
            (Err(error), _) => error.to_string(),
            (_, Err(error)) => format!("sched_setaffinity: {error}"),
            _ => READY.to_owned(),
        };
        // The parent waits for it.
        let _ = link.write_all(ready.as_bytes());
        let _ = link.shutdown(std::net::Shutdown::Write);
        if ready == READY {
            let _ = forward_packets(devices, &queues);
        }
    });
    let worker = worker.map_err(TestbedError::environment)?;
    let message = wait_ready(worker.link()).map_err(TestbedError::system("start the emulated gateway host"))?;
    match message.as_str() {
        READY => Ok(worker),
        why => Err(TestbedError::Environment(format!("the emulated gateway host cannot start: {why}"))),
    }
}

/// CPU time of the emulated host per packet in nanoseconds: in a burst, and isolated. Measured with malformed packets,
/// which the gateway's kernel drops. `arrived` returns the number of packets at its first device.
pub(super) fn cpu_cost(
    host_process: &Worker,
    queue: &mut PacketQueue,
    arrived: impl Fn() -> Option<u64>,
) -> [Option<f64>; 2] {
    [(BURST_PACKETS, Duration::ZERO), (ISOLATED_PACKETS, ISOLATED_GAP)]
        .map(|trial| trial_cost(host_process, queue, &arrived, trial))
}

fn trial_cost(
    host_process: &Worker,
    queue: &mut PacketQueue,
    arrived: impl Fn() -> Option<u64>,
    (packets, apart): (u64, Duration),
) -> Option<f64> {
    let spent = || served(host_process.pid(), host_process.pid()).map(|served| served.ran);
    let (before, had) = (spent()?, arrived()?);
    for _ in 0..packets {
        queue.put(&malformed()).ok()?;
        if !apart.is_zero() {
            std::thread::sleep(apart);
        }
    }
    // Dropped packets do not count.
    let sent = packets.checked_sub(queue.take_overflowed())?;
    let deadline = monotonic_ns() + COST_TIMEOUT.as_nanos() as u64;
    while arrived()? < had + sent {
        if monotonic_ns() > deadline {
            return None;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    // CPU time is updated when the process sleeps.
    std::thread::sleep(Duration::from_millis(1));
    let took = spent()?.checked_sub(before)?;
    (took > Duration::ZERO && sent > 0).then(|| took.as_nanos() as f64 / sent as f64)
}

/// A packet of 64 bytes from client to server with a wrong header checksum.
fn malformed() -> Vec<u8> {
    let mut ip = [0u8; 64];
    ip[..12].copy_from_slice(&[0x45, 0, 0, 64, 0, 1, 0, 0, 64, 17, 0xff, 0xff]);
    ip[12..16].copy_from_slice(&CLIENT.octets());
    ip[16..20].copy_from_slice(&SERVER.octets());
    [&[0; VNET_HEADER_BYTES][..], &ip].concat()
}

/// Packets of the burst: a usual queue.
const BURST_PACKETS: u64 = 1000;
/// Isolated packets.
const ISOLATED_PACKETS: u64 = 40;
/// Gap between isolated packets, in which the host process sleeps.
const ISOLATED_GAP: Duration = Duration::from_micros(300);
/// Timeout; at the smallest share, 1 %, the measurement takes about 200 ms.
const COST_TIMEOUT: Duration = Duration::from_secs(1);

/// The message of the host process; empty if the process ended without one.
fn wait_ready(mut link: &UnixStream) -> io::Result<String> {
    let mut message = String::new();
    link.read_to_string(&mut message)?;
    Ok(message)
}

/// The loop of the host process. Errors of the kernel are counted by the device.
fn forward_packets(devices: [&Tun; 2], queues: &[OwnedFd; 2]) -> io::Result<()> {
    let epoll = Epoll::new()?;
    for (number, queue) in queues.iter().enumerate() {
        epoll.add(queue.as_fd(), Interest::READ, number as u64)?;
    }
    let mut batch = PacketBatch::default();
    let mut events = [Event::EMPTY; 2];
    let mut open = [true; 2];
    while open != [false; 2] {
        let ready = epoll.wait(&mut events, -1)?;
        // Alternate between directions in batches.
        for event in ready {
            let number = event.token() as usize;
            match batch.receive(queues[number].as_fd())? {
                Some(packets) => packets.for_each(|packet| {
                    let _ = devices[number].write(packet);
                }),
                None => {
                    epoll.remove(queues[number].as_fd())?;
                    open[number] = false;
                }
            }
        }
    }
    Ok(())
}
