//! Timers, clock and TUN of this machine: how late a thread wakes, the cost of a clock reading, the cost of a write.
//!
//! The measurement takes about two seconds and includes the effects of other programs. The thread waits like the load
//! generator ([`testbed::drive`]), on the same core and with the same scheduling class.

use std::io;
use std::net::{Ipv4Addr, UdpSocket};
use std::os::fd::AsFd;
use std::time::Duration;

use schema::doctor::{Measured, WakeUp};
use stats::quantiles_of;
use sys::accounting::{CpuTimes, cpu_times};
use sys::clock::monotonic_ns;
use sys::epoll::{Epoll, Event, Interest};
use sys::sched::{Cores, RealTimeLock, Urgency};
use sys::timer::Timer;
use sys::tun::VNET_HEADER_BYTES;

use super::ends::Device;
use super::facts::Machine;
use super::machine::{busy_share, steal_share};
use plan::{Idle, Placement, Wait};
use testbed::TestbedError;
use testbed::drive::waiting::Margin;
use testbed::host::{CorePlan, Wakefulness};
use testbed::topology::{FIRST_CLIENT, SERVER};

/// Measures timers, clock and TUN.
pub(super) fn measure(machine: &Machine, device: Option<Device>) -> Result<Measured, TestbedError> {
    let core = CorePlan::new(Placement::Split, &machine.allowed, 1).loop_core();
    let (begun, before) = (monotonic_ns(), cpu_times().unwrap_or_default());
    let thread = std::thread::Builder::new()
        .name("timing".into())
        .spawn(move || on_thread(core, device))
        .map_err(TestbedError::system("start a thread"))?;
    let mut measured =
        thread.join().expect("measuring does not panic").map_err(TestbedError::system("measure the timers"))?;
    let after = cpu_times().unwrap_or_default();
    let spent: Vec<CpuTimes> = after.iter().zip(&before).map(|((_, after), (_, before))| after.since(before)).collect();
    measured.duration_s = (monotonic_ns() - begun) as f64 / 1e9;
    measured.steal_share = steal_share(&spent);
    measured.busy_share = busy_share(&spent);
    Ok(measured)
}

fn on_thread(core: Option<Cores>, device: Option<Device>) -> io::Result<Measured> {
    let core = core.filter(|core| core.pin_this_thread().is_ok());
    // Another run in progress has the lock of the real-time class, and this measurement must not disturb that run.
    let right = RealTimeLock::acquire();
    let requested = if right.is_some() { Urgency::RealTime } else { Urgency::High };
    let urgency = requested.apply_to_this_thread();
    Ok(Measured {
        scheduling: urgency.name().into(),
        core: core.map(|core| core.to_string()),
        wake_up: wake_ups()?,
        clock_read_ns: quantiles_of(&clock_reads()),
        tun_write_ns: device.and_then(|device| tun_writes(&device)).map(|times| quantiles_of(&times)),
        ..Measured::default()
    })
}

/// Both kinds of wait, alternating, so that a disturbance affects both.
fn wake_ups() -> io::Result<Vec<WakeUp>> {
    // Processors stay awake as in a run.
    let _awake = Wakefulness::of(Idle::default());
    let (epoll, mut timer) = (Epoll::new()?, Timer::new()?);
    epoll.add(timer.as_fd(), Interest::READ.edge(), 0)?;
    let mut found = Vec::new();
    let mut margin = Margin::default();
    for (ahead, waits) in WAITS {
        let (mut hybrid, mut sleep) = (Vec::new(), Vec::new());
        for _ in 0..waits {
            hybrid.push(wake_delay(ahead, margin.of(ahead), &epoll, &mut timer)?);
            let asleep = wake_delay(ahead, Duration::ZERO, &epoll, &mut timer)?;
            margin.adapt(Duration::from_nanos(asleep));
            sleep.push(asleep);
        }
        for (wait, late) in [(Wait::Hybrid, hybrid), (Wait::Sleep, sleep)] {
            found.push(WakeUp {
                wait: wait.name().into(),
                ahead_ns: ahead.as_nanos() as u64,
                late_ns: quantiles_of(&late),
            });
        }
    }
    Ok(found)
}

/// Waits for a time `ahead`, the last `spin` of it without sleeping, and returns how late the wait ended.
fn wake_delay(ahead: Duration, spin: Duration, epoll: &Epoll, timer: &mut Timer) -> io::Result<u64> {
    let mut events = [Event::EMPTY; 1];
    let due_ns = monotonic_ns() + ahead.as_nanos() as u64;
    timer.arm(Duration::from_nanos(due_ns) - spin)?;
    // A signal ends a wait early.
    while epoll.wait(&mut events, -1)?.is_empty() {}
    timer.fired();
    loop {
        if spin > Duration::ZERO {
            epoll.wait(&mut events, 0)?;
        }
        let now_ns = monotonic_ns();
        if now_ns >= due_ns {
            return Ok(now_ns - due_ns);
        }
    }
}

/// Means of a hundred readings each.
fn clock_reads() -> Vec<u64> {
    (0..CLOCK_ROUNDS)
        .map(|_| {
            let begun = monotonic_ns();
            let mut last = begun;
            for _ in 0..CLOCK_READINGS {
                last = monotonic_ns();
            }
            (last - begun) / CLOCK_READINGS
        })
        .collect()
}

/// Durations of single writes, of the packets that a socket at the other end received; `None` if none was received.
fn tun_writes(device: &Device) -> Option<Vec<u64>> {
    let bound = device.net.run(|| UdpSocket::bind((SERVER, 0))).ok()?;
    let socket = bound.ok()?;
    socket.set_nonblocking(true).ok()?;
    let packet = datagram(FIRST_CLIENT, SERVER, socket.local_addr().ok()?.port());
    let mut times = Vec::new();
    let mut buffer = [0; 64];
    for _ in 0..TUN_WRITES {
        let begun = monotonic_ns();
        device.tun.write(&packet).ok()?;
        let elapsed_ns = monotonic_ns() - begun;
        if socket.recv(&mut buffer).is_ok() {
            times.push(elapsed_ns);
        }
    }
    (!times.is_empty()).then_some(times)
}

/// A UDP datagram of 16 bytes, without checksum, after an empty virtio header.
fn datagram(from: Ipv4Addr, to: Ipv4Addr, port: u16) -> Vec<u8> {
    const PAYLOAD: usize = 16;
    let total = (20 + 8 + PAYLOAD) as u16;
    let mut packet = vec![0; VNET_HEADER_BYTES];
    let mut ip = [0u8; 20];
    ip[0] = 0x45;
    ip[2..4].copy_from_slice(&total.to_be_bytes());
    (ip[8], ip[9]) = (64, 17);
    ip[12..16].copy_from_slice(&from.octets());
    ip[16..20].copy_from_slice(&to.octets());
    let sum: u32 = ip.chunks(2).map(|word| u32::from(u16::from_be_bytes([word[0], word[1]]))).sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    ip[10..12].copy_from_slice(&(!(folded as u16)).to_be_bytes());
    packet.extend(ip);
    packet.extend(SOURCE_PORT.to_be_bytes());
    packet.extend(port.to_be_bytes());
    packet.extend(((8 + PAYLOAD) as u16).to_be_bytes());
    packet.extend([0; 2 + PAYLOAD]);
    packet
}

/// Distances of the wake-up times, and number of waits: 1.4 s in total, most of it asleep.
const WAITS: [(Duration, u32); 4] = [
    (Duration::from_micros(200), 100),
    (Duration::from_millis(1), 100),
    (Duration::from_millis(5), 40),
    (Duration::from_millis(20), 20),
];
const CLOCK_ROUNDS: usize = 200;
const CLOCK_READINGS: u64 = 100;
/// About ten milliseconds.
const TUN_WRITES: usize = 2000;
const SOURCE_PORT: u16 = 40_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_wait_ends_at_or_after_its_time() {
        for wake_up in wake_ups().unwrap() {
            // An early wake-up would underflow; all waits are counted.
            let expected = WAITS.iter().find(|(ahead, _)| ahead.as_nanos() as u64 == wake_up.ahead_ns).unwrap().1;
            assert_eq!(wake_up.late_ns.count, u64::from(expected), "{wake_up:?}");
        }
    }

    #[test]
    fn the_datagram_of_tun_writes_is_valid() {
        let packet = datagram(FIRST_CLIENT, SERVER, 4242);
        let ip = &packet[VNET_HEADER_BYTES..];
        let view = wire::ip::Packet::parse(ip, ip.len()).unwrap();
        assert_eq!((view.total_len, view.transport_at), (ip.len(), 20));
        let sum: u32 = ip[..20].chunks(2).map(|word| u32::from(u16::from_be_bytes([word[0], word[1]]))).sum();
        assert_eq!((sum & 0xffff) + (sum >> 16), 0xffff, "the header's checksum");
        assert_eq!(u16::from_be_bytes([ip[22], ip[23]]), 4242);
    }
}
