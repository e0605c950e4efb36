//! Numbered datagrams from the server: losses, rates and traces.

use std::io;
use std::time::Duration;

use sys::clock::monotonic_ns;

use super::server::{FLOOD, FloodRequest};
use super::{Client, FloodFigures};
use crate::emulators::analysis::LossFigures;

/// IP and UDP headers.
const HEADER_BYTES: usize = 28;
/// The receiver's wait for one datagram.
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// How much longer than the flood the receiver waits: for the delay, and what is queued.
const END_TIMEOUT_NS: u64 = 500_000_000;

/// Requests a flood and receives it.
pub fn measure(client: &Client, per_s: f64, payload: usize, seconds: f64) -> io::Result<FloodFigures> {
    let mut request = vec![FLOOD];
    request.extend(serde_json::to_vec(&FloodRequest { per_s, payload, seconds }).map_err(io::Error::other)?);
    client.socket.set_read_timeout(Some(POLL_INTERVAL))?;
    client.socket.send_to(&request, client.server)?;
    let end = monotonic_ns() + (seconds * 1e9) as u64 + END_TIMEOUT_NS;
    let mut arrivals: Vec<(u64, u64, usize)> = Vec::new();
    let mut packet = [0u8; 2048];
    while monotonic_ns() < end {
        let Ok(length) = client.socket.recv(&mut packet) else { continue };
        let now = monotonic_ns();
        if length >= 8 {
            let number = u64::from_le_bytes(packet[..8].try_into().unwrap_or_default());
            arrivals.push((number, now, length + HEADER_BYTES));
        }
    }
    Ok(figures(&arrivals))
}

/// Figures of arrivals: number, time and IP bytes of each, in the order of arrival.
fn figures(arrivals: &[(u64, u64, usize)]) -> FloodFigures {
    let (Some(&(_, first_ns, _)), Some(&(_, last_ns, _))) = (arrivals.first(), arrivals.last()) else {
        return FloodFigures::default();
    };
    let highest = arrivals.iter().map(|&(number, ..)| number).max().unwrap_or(0);
    let mut received = vec![false; highest as usize + 1];
    let (mut overtaken, mut seen) = (0, 0);
    let mut per_ms = vec![0u64; ((last_ns - first_ns) / 1_000_000) as usize + 1];
    for &(number, at_ns, bytes) in arrivals {
        received[number as usize] = true;
        overtaken += u64::from(number < seen);
        seen = seen.max(number);
        per_ms[((at_ns - first_ns) / 1_000_000) as usize] += bytes as u64;
    }
    FloodFigures {
        received: arrivals.len() as u64,
        overtaken,
        loss: LossFigures::of(&received),
        span_ns: last_ns - first_ns,
        bytes: arrivals[1..].iter().map(|&(.., bytes)| bytes as u64).sum(),
        per_ms,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrivals_become_losses_order_and_bytes_over_time() {
        let arrivals = [(0, 5_000_000, 100), (3, 5_900_000, 100), (2, 7_100_000, 100)];
        let figures = figures(&arrivals);
        assert_eq!((figures.received, figures.overtaken, figures.loss.lost), (3, 1, 1));
        assert_eq!((figures.span_ns, figures.bytes), (2_100_000, 200));
        assert_eq!(figures.per_ms, [200, 0, 100]);
        assert_eq!(super::figures(&[]), FloodFigures::default());
    }
}
