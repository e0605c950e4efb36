//! Round trips of datagrams.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use stats::{Rng, quantiles_of};
use sys::clock::monotonic_ns;
use sys::sched::Urgency;

use super::{Client, RttFigures, machine_cpu_s, server};

/// Kind, number, send time and padding.
const PACKET_BYTES: usize = 64;
/// How long the receiver waits for the last echoes.
const ECHO_TIMEOUT: Duration = Duration::from_millis(600);
/// The receiver's wait for one echo.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Sends `per_s` datagrams a second for `seconds`, with Poisson arrivals, and times the echoes.
pub fn measure(client: &Client, per_s: f64, seconds: f64) -> io::Result<RttFigures> {
    let end_ns = Arc::new(AtomicU64::new(u64::MAX));
    let socket = client.socket.try_clone()?;
    socket.set_read_timeout(Some(POLL_INTERVAL))?;
    let receiver = {
        let end_ns = Arc::clone(&end_ns);
        thread::spawn(move || -> (Vec<u64>, u64) {
            Urgency::Ordinary.apply_to_this_thread();
            // Exact values: a histogram's bucket at 48 ms is 33 us wide, as much as the error that is measured.
            let mut rtts = Vec::with_capacity((per_s * seconds) as usize);
            let (mut overtaken, mut highest) = (0, None);
            let mut packet = [0u8; PACKET_BYTES];
            while monotonic_ns() < end_ns.load(Ordering::Relaxed) {
                let Ok(length) = socket.recv(&mut packet) else { continue };
                let now = monotonic_ns();
                if length < PACKET_BYTES || packet[0] != server::ECHO {
                    continue;
                }
                let number = |at: usize| u64::from_le_bytes(packet[at..at + 8].try_into().unwrap_or_default());
                rtts.push(now.saturating_sub(number(16)));
                overtaken += u64::from(highest > Some(number(8)));
                highest = highest.max(Some(number(8)));
            }
            (rtts, overtaken)
        })
    };
    let mut rng = Rng::named(1, "emulators rtt");
    let mut packet = [0u8; PACKET_BYTES];
    packet[0] = server::ECHO;
    let cpu_before = machine_cpu_s()?;
    let start = monotonic_ns();
    let end = start + (seconds * 1e9) as u64;
    let (mut due, mut sent) = (start, 0u64);
    while due < end {
        let now = monotonic_ns();
        if now < due {
            thread::sleep(Duration::from_nanos(due - now));
        }
        packet[8..16].copy_from_slice(&sent.to_le_bytes());
        packet[16..24].copy_from_slice(&monotonic_ns().to_le_bytes());
        let _ = client.socket.send_to(&packet, client.server);
        sent += 1;
        due += (rng.exponential() * 1e9 / per_s) as u64;
    }
    let machine_cpu_s = machine_cpu_s()? - cpu_before;
    end_ns.store(monotonic_ns() + ECHO_TIMEOUT.as_nanos() as u64, Ordering::Relaxed);
    let (rtts, overtaken) = receiver.join().map_err(|_| io::Error::other("the receiver panicked"))?;
    Ok(RttFigures { sent, received: rtts.len() as u64, overtaken, rtt_ns: quantiles_of(&rtts), machine_cpu_s })
}
