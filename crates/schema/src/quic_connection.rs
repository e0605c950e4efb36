//! One QUIC connection as seen on the wire.

use std::net::SocketAddr;
use std::sync::Arc;

use units::Timestamp;

use crate::{Direction, RecordEnd, RttSummary, group, record};

group! {
    /// Datagrams of one direction of a QUIC connection.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct QuicSent {
        /// Datagrams, as captured: a super-packet that the kernel had not yet cut counts once.
        pub datagrams: u64 [unit "packets"],
        /// Bytes of IP packets, headers included.
        pub ip_bytes: u64 [unit "bytes"],
        /// Payload of the datagrams.
        pub udp_bytes: u64 [unit "bytes"],
        /// Datagrams with more than one QUIC packet.
        pub coalesced_datagrams: u64 [unit "packets"],
        /// Initial packets.
        pub initial_packets: u64 [unit "packets"],
        /// Handshake packets.
        pub handshake_packets: u64 [unit "packets"],
        /// 0-RTT packets.
        pub zero_rtt_packets: u64 [unit "packets"],
        /// Packets with a short header: 1-RTT packets, and stateless resets, which look the same.
        pub one_rtt_packets: u64 [unit "packets"],
        // At the capture point: the whole round trip, however far away the ends are. Without the samples of reordered
        // packets; RFC 9312, section 4.2.
        /// Samples of the RTT by the spin bit: from one of its changes in this direction to the next. None if the ends
        /// do not use it.
        pub spin_rtt: RttSummary,
    }
}

record! {
    // Some 700 bytes a row.
    /// One QUIC connection as seen in packets (watch), in the order in which records were closed. Times are
    /// capture times: nanoseconds since the run's zero where a load or a program ran, since 1970 (UTC) in the logs of
    /// `yamabiko watch`. `up_` is what the client sent, `down_` what the server sent.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct QuicConnectionRecord in "quic_connections", 4_096 rows a part {
        /// Number of the connection in the capture, from 0, by first packet; TCP connections have numbers of the same
        /// sequence.
        pub connection: u64,
        /// Address of the client in its first packet.
        pub client: SocketAddr,
        /// Address of the server in the client's first packet.
        pub server: SocketAddr [few],
        /// Address of the client after its last migration to a new one. Null without one.
        pub migrated_client: Option<SocketAddr>,
        /// Changes of an end's address or port that were followed by a connection ID.
        pub migrations: u32,
        /// Version of QUIC as a number: 1; that of version 2 is 1798521807 (0x6b3343cf).
        pub version: u32 [few],
        /// Connection ID that the client chose for the server before it knew one, in hexadecimal digits. Null if it is
        /// empty.
        pub original_destination_id: Option<Arc<str>>,
        /// Connection ID of the client, in hexadecimal digits. Null if it is empty.
        pub client_id: Option<Arc<str>>,
        /// Connection ID of the server, in hexadecimal digits. Null if it is empty or was not seen.
        pub server_id: Option<Arc<str>>,
        /// Server name in the ClientHello. Null if there is none or it could not be read.
        pub server_name: Option<Arc<[u8]>>,
        /// Application protocols that the ClientHello offers, separated by commas. Null if there are none or they could
        /// not be read.
        pub offered_protocols: Option<Arc<[u8]>>,
        /// First packet of any kind.
        pub first_at: Timestamp,
        /// Last packet of any kind.
        pub last_at: Timestamp,
        /// First packet of the server. Null if none was seen.
        pub answered_at: Option<Timestamp>,
        /// First packet of the client with a short header: it has the keys for its data. Null if none was seen.
        pub secured_at: Option<Timestamp>,
        /// Handshake RTT between capture and client: the server's first acknowledged Initial packet to its
        /// acknowledgement. Null if that was not seen.
        pub handshake_rtt_ns: Option<u64>,
        /// Handshake RTT between capture and server: the client's first acknowledged Initial packet to its
        /// acknowledgement. Null if that was not seen.
        pub server_rtt_ns: Option<u64>,
        /// Version Negotiation packets.
        pub version_negotiations: u32 [unit "packets"],
        /// Retry packets.
        pub retries: u32 [unit "packets"],
        /// Packets that could not be decrypted although their keys are known: cut, damaged, or of another connection.
        /// Without a key log these are Initial packets.
        pub undecrypted_packets: u32 [unit "packets"],
        /// First CONNECTION_CLOSE that could be read. Null if none was.
        pub closed_at: Option<Timestamp>,
        /// Its error code. Null if none was read.
        pub close_error: Option<u64>,
        /// Idle timeout that the client announced. Null if it announced none or it could not be read.
        pub idle_timeout_ns: Option<u64>,
        /// Why the record was closed: closed by a CONNECTION_CLOSE that could be read, idle after the idle timeout
        /// without a packet, or as for TCP connections.
        pub end: RecordEnd,
        /// What the client sent.
        pub up: QuicSent,
        /// What the server sent.
        pub down: QuicSent,
        /// HTTP/3 requests.
        pub requests: u32 [unit "requests"],
    }
}

impl QuicConnectionRecord {
    /// What one end sent.
    pub fn sent(&self, direction: Direction) -> &QuicSent {
        match direction {
            Direction::Up => &self.up,
            Direction::Down => &self.down,
        }
    }
}
