//! The states of connections: of successive equal ones the first and the last.

use std::time::Duration;

use schema::TcpSampleRow;
use sys::netlink::TcpInfo;
use units::Timestamp;
use units::time::saturating_nanos;

use super::{OpenedSocket, SOCKETS_MAX};
use crate::packets::connection_hash;

/// Most bytes of memory for the samples.
const MEMORY_MAX: usize = 32 << 20;
/// A connection that the kernel does not have is looked for this long: its handshake may not be complete.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(2);

/// Samples of all connections.
#[derive(Debug)]
pub struct SocketSamples {
    active: Vec<Active>,
    rows: Vec<TcpSampleRow>,
    rows_max: usize,
    /// Connections are sampled whose hash has none of these bits.
    sample_mask: u32,
}

/// A connection under observation.
#[derive(Debug)]
struct Active {
    socket: OpenedSocket,
    added_at: Timestamp,
    /// Its last state, and whether that is among the rows.
    last: Option<(TcpSampleRow, bool)>,
}

impl Default for SocketSamples {
    fn default() -> Self {
        SocketSamples::with_rows(MEMORY_MAX / size_of::<TcpSampleRow>())
    }
}

impl SocketSamples {
    fn with_rows(rows_max: usize) -> SocketSamples {
        SocketSamples { active: Vec::new(), rows: Vec::new(), rows_max, sample_mask: 0 }
    }

    /// Observes a new connection, if there is room.
    pub fn add(&mut self, socket: OpenedSocket, now: Timestamp) {
        let is_sampled = connection_hash(socket.client, socket.remote.port()) & self.sample_mask == 0;
        // A SYN may be sent twice.
        let is_known = self.active.iter().any(|active| active.socket == socket);
        if is_sampled && !is_known && self.active.len() < SOCKETS_MAX {
            self.active.push(Active { socket, added_at: now, last: None });
        }
    }

    /// Reads all connections by `read`, which returns the time and the state; a connection without a state ended, or is
    /// not established yet.
    pub fn read(&mut self, mut read: impl FnMut(&OpenedSocket) -> (Timestamp, Option<TcpInfo>)) {
        let rows = &mut self.rows;
        self.active.retain_mut(|active| {
            let (at, info) = read(&active.socket);
            let Some(info) = info.filter(|info| info.congestion_window > 0) else {
                let is_gone = active.last.is_some() || at.since(active.added_at) > HANDSHAKE_TIMEOUT;
                if is_gone {
                    rows.extend(active.unwritten());
                }
                return !is_gone;
            };
            let now = row(&active.socket, at, &info);
            match &mut active.last {
                Some((last, is_written)) if is_same(last, &now) => (*last, *is_written) = (now, false),
                _ => {
                    rows.extend(active.unwritten());
                    rows.push(now);
                    active.last = Some((now, true));
                }
            }
            true
        });
        while self.rows.len() > self.rows_max {
            self.shrink();
        }
    }

    /// Removes half of the connections: those whose packets are removed when theirs fill the memory.
    fn shrink(&mut self) {
        self.sample_mask = self.sample_mask << 1 | 1;
        let mask = self.sample_mask;
        self.rows.retain(|row| connection_hash(row.client, row.client_port) & mask == 0);
        self.active.retain(|active| connection_hash(active.socket.client, active.socket.remote.port()) & mask == 0);
        if mask == u32::MAX {
            self.rows.clear();
        }
    }

    /// All samples.
    pub fn finish(mut self) -> Vec<TcpSampleRow> {
        let last: Vec<TcpSampleRow> = self.active.iter_mut().filter_map(Active::unwritten).collect();
        self.rows.extend(last);
        self.rows
    }
}

impl Active {
    /// The last state, if it is not among the rows.
    fn unwritten(&mut self) -> Option<TcpSampleRow> {
        self.last.take().filter(|(_, is_written)| !is_written).map(|(row, _)| row)
    }
}

fn row(socket: &OpenedSocket, at: Timestamp, info: &TcpInfo) -> TcpSampleRow {
    TcpSampleRow {
        at,
        client: socket.client,
        client_port: socket.remote.port(),
        congestion_window: info.congestion_window,
        segment_bytes: info.segment_bytes,
        min_rtt_ns: info.min_rtt.map(saturating_nanos),
        pacing_bytes_per_s: info.pacing_rate,
        unsent_bytes: info.unsent_bytes,
        receive_window_limited_ns: saturating_nanos(info.receive_window_limited),
        send_buffer_limited_ns: saturating_nanos(info.send_buffer_limited),
    }
}

/// Whether nothing but the time differs.
fn is_same(one: &TcpSampleRow, other: &TcpSampleRow) -> bool {
    TcpSampleRow { at: other.at, ..*one } == *other
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use super::*;

    fn socket(port: u16) -> OpenedSocket {
        OpenedSocket {
            client: 0,
            remote: SocketAddr::from(([198, 19, 0, 1], port)),
            local: SocketAddr::from(([198, 18, 0, 1], 80)),
        }
    }

    fn at(ms: u64) -> Timestamp {
        Timestamp::from_nanos(ms * 1_000_000)
    }

    fn info(congestion_window: u32) -> TcpInfo {
        TcpInfo { congestion_window, segment_bytes: 1_448, ..TcpInfo::default() }
    }

    #[test]
    fn of_equal_states_the_first_and_the_last_are_kept() {
        let mut samples = SocketSamples::default();
        samples.add(socket(1_024), at(0));
        samples.add(socket(1_024), at(1));
        for (ms, window) in [(5, 10), (10, 10), (15, 10), (20, 20), (25, 30), (30, 30)] {
            samples.read(|_| (at(ms), Some(info(window))));
        }
        samples.read(|_| (at(35), None));
        samples.read(|_| unreachable!("the connection has ended"));
        let rows = samples.finish();
        let kept: Vec<(u64, u32)> =
            rows.iter().map(|row| (row.at.as_nanos() / 1_000_000, row.congestion_window)).collect();
        assert_eq!(kept, [(5, 10), (15, 10), (20, 20), (25, 30), (30, 30)]);
    }

    #[test]
    fn a_connection_is_looked_for_until_its_handshake_would_have_timed_out() {
        let mut samples = SocketSamples::default();
        samples.add(socket(1_024), at(0));
        let mut reads = 0;
        for ms in (0..=4_000).step_by(500) {
            samples.read(|_| {
                reads += 1;
                (at(ms), None)
            });
        }
        assert_eq!(reads, 6, "at 0, 500 .. 2500 ms");
        assert!(samples.finish().is_empty());
    }

    #[test]
    fn full_memory_leaves_whole_connections_and_new_ones_of_the_same_half() {
        let mut samples = SocketSamples::with_rows(1_000);
        (2_000..2_100).for_each(|port| samples.add(socket(port), at(0)));
        for round in 1..=60 {
            samples.read(|_| (at(round), Some(info(round as u32))));
        }
        let mask = samples.sample_mask;
        assert!(mask > 0 && samples.rows.len() <= 1_000, "{mask:b} {}", samples.rows.len());
        (3_000..3_100).for_each(|port| samples.add(socket(port), at(61)));
        assert!(samples.active.iter().all(|active| connection_hash(0, active.socket.remote.port()) & mask == 0));
        let rows = samples.finish();
        let mut ports: Vec<u16> = rows.iter().map(|row| row.client_port).collect();
        ports.sort_unstable();
        ports.dedup();
        assert!(!ports.is_empty());
        assert_eq!(rows.len(), ports.len() * 60, "every state of a connection in the sample");
    }

    #[test]
    fn more_connections_than_fit_are_left_out() {
        let mut samples = SocketSamples::default();
        (1_024..2_024).for_each(|port| samples.add(socket(port), at(0)));
        let mut reads = 0;
        samples.read(|_| {
            reads += 1;
            (at(5), Some(info(10)))
        });
        assert_eq!(reads, SOCKETS_MAX);
    }
}
