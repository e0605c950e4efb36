//! A sender with Poisson arrivals over many client addresses, and an echo server: the traffic for measuring the path.
//! `bench path` starts both inside of `yamabiko net`.
//!
//! Every packet contains its client, its send time and, once echoed, its arrival time. Times are of CLOCK_MONOTONIC,
//! which both ends share. So errors are measured outside of the path, and include delayed reads of the path.

use std::io::IoSlice;
use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::os::fd::AsRawFd;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use nix::libc::{in_addr, in_pktinfo};
use nix::sys::socket::{ControlMessage, MsgFlags, SockaddrIn, sendmsg};
use path::{AddressPlan, Profile};
use stats::{Histogram, Rng};
use sys::clock::monotonic_ns;
use sys::sched::Urgency;

/// Size of a packet: client, send time, arrival time, and padding.
const PACKET_BYTES: usize = 64;
/// How long the receiver waits for the last echoes: longer than any RTT of the profiles.
const ECHO_TIMEOUT: Duration = Duration::from_secs(3);

/// Results of the sender.
#[derive(Debug, Default, serde::Serialize, serde::Deserialize)]
pub struct UdpResult {
    /// Packets sent.
    pub sent: u64,
    /// Echoes received.
    pub received: u64,
    /// Send lag of the sender, ns.
    pub send_lag_ns: schema::Quantiles,
    /// RTT error, ns.
    pub rtt_error_ns: schema::Quantiles,
    /// One-way delay upstream, measured minus configured (half the RTT), ns: read delay, timing error and the
    /// receiver's own delay.
    pub up_error_ns: schema::Quantiles,
}

/// Echoes packets until the process is killed.
pub fn echo(port: u16) -> Result<()> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, port)).context("bind the echo")?;
    let mut packet = [0u8; PACKET_BYTES];
    loop {
        let (length, from) = socket.recv_from(&mut packet).context("receive")?;
        packet[16..24].copy_from_slice(&monotonic_ns().to_le_bytes());
        // With a small buffer, a full queue towards the clients would cause missing echoes.
        let _ = socket.send_to(&packet[..length], from);
    }
}

/// Sends `rate_per_s` packets per second for `seconds`, each from a random client, and prints the result as JSON.
pub fn send(profile: &Path, clients: u32, rate_per_s: f64, seconds: u64, port: u16) -> Result<()> {
    let paths = Profile::read(profile, &|file| std::fs::read_to_string(file))?.clients(clients);
    let addresses = AddressPlan::new(clients).context("too many clients")?;
    let configured_ns: Vec<u64> = paths.iter().map(|path| path.rtt().as_nanos() as u64).collect();
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).context("bind the sender")?;
    let stop = Arc::new(AtomicBool::new(false));
    let receiver = {
        let (socket, stop) = (socket.try_clone()?, Arc::clone(&stop));
        std::thread::spawn(move || receive(&socket, &configured_ns, &stop))
    };

    Urgency::Ordinary.apply_to_this_thread();
    let server = SockaddrIn::from(SocketAddrV4::new(Ipv4Addr::new(198, 18, 0, 1), port));
    let mut rng = Rng::named(1, "udp-send");
    let mut lag = Histogram::new();
    let mut packet = [0u8; PACKET_BYTES];
    let (start, mut sent) = (monotonic_ns(), 0u64);
    let (mut due, end) = (start, start + seconds * 1_000_000_000);
    while due < end {
        let now = monotonic_ns();
        if now < due {
            std::thread::sleep(Duration::from_nanos(due - now));
            continue;
        }
        let client = rng.below(u64::from(clients)) as u32;
        packet[0..4].copy_from_slice(&client.to_le_bytes());
        packet[8..16].copy_from_slice(&monotonic_ns().to_le_bytes());
        let from = in_pktinfo {
            ipi_ifindex: 0,
            ipi_spec_dst: in_addr { s_addr: u32::from_ne_bytes(addresses.address(client).octets()) },
            ipi_addr: in_addr { s_addr: 0 },
        };
        let control = [ControlMessage::Ipv4PacketInfo(&from)];
        sendmsg(socket.as_raw_fd(), &[IoSlice::new(&packet)], &control, MsgFlags::empty(), Some(&server))
            .context("sendmsg")?;
        lag.record(now - due);
        sent += 1;
        due += (rng.exponential() * 1e9 / rate_per_s) as u64;
    }
    std::thread::sleep(ECHO_TIMEOUT);
    stop.store(true, Ordering::Relaxed);
    let (rtt_error, up_error) = receiver.join().expect("the receiver does not panic")?;
    ensure!(!rtt_error.is_empty(), "no echo came back");
    let result = UdpResult {
        sent,
        received: rtt_error.len(),
        send_lag_ns: lag.quantiles(),
        rtt_error_ns: rtt_error.quantiles(),
        up_error_ns: up_error.quantiles(),
    };
    println!("{}", serde_json::to_string(&result)?);
    Ok(())
}

fn receive(socket: &UdpSocket, configured_ns: &[u64], stop: &AtomicBool) -> Result<(Histogram, Histogram)> {
    socket.set_read_timeout(Some(Duration::from_millis(100)))?;
    let (mut rtt_error, mut up_error) = (Histogram::new(), Histogram::new());
    let mut packet = [0u8; PACKET_BYTES];
    while !stop.load(Ordering::Relaxed) {
        let Ok(_) = socket.recv(&mut packet) else { continue };
        let now = monotonic_ns();
        let client = u32::from_le_bytes(packet[0..4].try_into()?) as usize;
        let sent_at = u64::from_le_bytes(packet[8..16].try_into()?);
        let echoed_at = u64::from_le_bytes(packet[16..24].try_into()?);
        rtt_error.record((now - sent_at).abs_diff(configured_ns[client]));
        up_error.record((echoed_at - sent_at).saturating_sub(configured_ns[client] / 2));
    }
    Ok((rtt_error, up_error))
}
