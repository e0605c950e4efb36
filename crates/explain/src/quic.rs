//! Responses over QUIC: decrypted packets of one or both ends, made into the same [`View`](crate::view::View) as TCP's.
//!
//! ```text
//!   packets of the client's end --\    by number                    by stream and time
//!                                  +--> merged --> QuicConnection ----> QuicResponse --> View
//!   packets of the server's end --/      places, acknowledgements,       of one request
//!                                        windows, handshake
//! ```
//!
//! What differs from TCP: a packet number is used once, so that it is known which transmission arrived; a hole of one
//! stream does not hold back another; windows are stated ([`windows`]); the handshake of transport and TLS is one
//! ([`handshake`]); a loss that no ACK reports is found by a probe. The state of congestion control is not known.

mod capture;
mod connection;
mod handshake;
mod places;
mod recovery;
mod response;
mod windows;

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;

use schema::{QuicConnectionRecord, QuicPacket};

use crate::fates::ClientLinks;
pub use capture::quic_evidence;
pub(crate) use connection::QuicConnection;
pub(crate) use response::End;
pub use response::QuicResponse;

/// The decrypted packets of one capture, by connection, with the connections' records.
#[derive(Debug, Default)]
pub struct QuicCapture {
    packets: HashMap<u64, Vec<QuicPacket>>,
    records: Vec<QuicConnectionRecord>,
    count: usize,
    is_full: bool,
}

/// Most packets in memory, some 400 bytes each with their frames.
const PACKETS_MAX: usize = 2_000_000;

impl QuicCapture {
    /// No packets.
    pub fn new() -> QuicCapture {
        QuicCapture::default()
    }

    /// Adds decrypted packets, and takes them out of `packets`; those beyond 2 million are left out.
    pub fn add_packets(&mut self, packets: &mut Vec<QuicPacket>) {
        for packet in packets.drain(..) {
            if self.count >= PACKETS_MAX {
                self.is_full = true;
                continue;
            }
            self.count += 1;
            self.packets.entry(packet.connection).or_default().push(packet);
        }
    }

    /// Adds records of connections, and takes them out of `records`.
    pub fn add_connections(&mut self, records: &mut Vec<QuicConnectionRecord>) {
        self.records.append(records);
    }

    /// Whether packets were left out, because there were more than 2 million.
    pub fn is_full(&self) -> bool {
        self.is_full
    }

    /// Whether no packet was decrypted.
    pub fn is_empty(&self) -> bool {
        self.packets.is_empty()
    }

    fn of(&self, record: &QuicConnectionRecord) -> Option<&[QuicPacket]> {
        self.packets.get(&record.connection).map(Vec::as_slice)
    }
}

/// The QUIC connections of a run or of capture files, prepared to explain their responses.
#[derive(Debug, Default)]
pub struct QuicConnections {
    connections: Vec<Opened>,
    /// Places in `connections` by number in the capture that the requests come from.
    by_number: HashMap<u64, usize>,
}

/// A connection with its opening.
#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) client: SocketAddr,
    /// First packet, at the client's end if that was captured.
    pub(crate) opened_at: u64,
    /// First packet of the server, at the same end.
    pub(crate) answered_at: Option<u64>,
    pub(crate) connection: Arc<QuicConnection>,
}

impl QuicConnections {
    /// Prepares the connections of captures of the client's end, the server's, or both on one clock. A connection of
    /// both is found by the connection ID that the client chose first. `links_of` gives the configured path of a client,
    /// `configured_rtt_ns` the round trip without queues where nothing else is known of the path.
    pub fn new(
        client: Option<&QuicCapture>,
        server: Option<&QuicCapture>,
        links_of: impl Fn(SocketAddr) -> Option<ClientLinks>,
        configured_rtt_ns: Option<u64>,
    ) -> QuicConnections {
        let Some(main) = client.or(server) else { return QuicConnections::default() };
        let mut all = Vec::new();
        let other: HashMap<_, &QuicConnectionRecord> = match (client, server) {
            (Some(_), Some(server)) => server.records.iter().map(|record| (identity(record), record)).collect(),
            _ => HashMap::new(),
        };
        for record in &main.records {
            let Some(packets) = main.of(record) else { continue };
            let at_server = other.get(&identity(record)).copied();
            let of_server = at_server.and_then(|record| server?.of(record));
            let ends = if client.is_some() { [Some(packets), of_server] } else { [None, Some(packets)] };
            let is_whole =
                record.undecrypted_packets == 0 && at_server.is_none_or(|other| other.undecrypted_packets == 0);
            let links = links_of(record.client).filter(|_| is_whole);
            let connection = Arc::new(QuicConnection::new(ends, links.as_ref(), is_whole, configured_rtt_ns));
            all.push((
                record.connection,
                Opened {
                    client: record.client,
                    opened_at: record.first_at.as_nanos(),
                    answered_at: record.answered_at.map(units::Timestamp::as_nanos),
                    connection,
                },
            ));
        }
        all.sort_by_key(|(_, opened)| (opened.opened_at, opened.client));
        let by_number = all.iter().enumerate().map(|(place, (number, _))| (*number, place)).collect();
        QuicConnections { connections: all.into_iter().map(|(_, opened)| opened).collect(), by_number }
    }

    /// In the order of their openings.
    pub(crate) fn openings(&self) -> &[Opened] {
        &self.connections
    }

    /// The connection with this number in the client's capture, or in the only one.
    pub(crate) fn numbered(&self, number: u64) -> Option<&Opened> {
        self.connections.get(*self.by_number.get(&number)?)
    }
}

/// What identifies a connection in both captures: the path may rewrite the server's address.
fn identity(record: &QuicConnectionRecord) -> (SocketAddr, Option<Arc<str>>) {
    (record.client, record.original_destination_id.clone())
}
