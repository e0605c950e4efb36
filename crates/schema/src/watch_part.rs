//! The packet capture's part of a run's JSON document.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::document::{Level, Quantiles, Run, Validity};

/// Figures of a packet capture, from its first packet to its last.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct WatchPart {
    /// Source of the packets: a device or a file.
    pub source: String,
    /// Capture point: `server`, `client` or `between`.
    pub capture_point: String,
    /// Packets of any kind, as captured: a super-packet that the kernel had not yet cut counts once.
    pub packets: u64,
    /// Their bytes on the wire, link headers included.
    pub bytes: u64,
    /// Packets assigned to a TCP connection.
    pub tcp_packets: u64,
    /// Packets whose headers contradict themselves or were not captured.
    pub malformed_packets: u64,
    /// Later fragments, which cannot be assigned to a connection.
    pub later_fragments: u64,
    /// Packets lost by the capture, as the capturing system reports.
    pub capture_drops: u64,
    /// Bytes that one end acknowledged and the capture never saw.
    pub missing_bytes: u64,
    /// Concurrent connections.
    pub connections: WatchConnections,
    /// Transactions in progress: first byte of the request seen, last byte of the response not.
    pub in_flight: Level,
    /// HTTP sessions: connections with a request, not closed.
    pub sessions: Level,
    /// HTTP requests whose first byte was captured.
    pub requests: u64,
    /// HTTP responses whose last byte was captured.
    pub responses: u64,
    /// HTTP requests a second.
    pub request_rate_per_s: f64,
    /// HTTP responses a second.
    pub response_rate_per_s: f64,
    /// Connections opened a second.
    pub connection_rate_per_s: f64,
    /// Round-trip times of handshakes, as the capture point implies them.
    pub handshake_rtt_ns: Quantiles,
    /// Last byte of a request to last byte of its response.
    pub service_time_ns: Quantiles,
    /// Responses by status code.
    pub status: BTreeMap<String, u64>,
    /// Requests whose response was not seen to its end.
    pub incomplete: u64,
    /// Requests whose ends were found by changes of direction, because their heads could not be read in full.
    pub by_direction: u64,
    /// Packets with payload.
    pub data_packets: u64,
    /// Retransmitted packets: they repeated bytes seen before.
    pub retransmitted: u64,
    /// The share of retransmitted packets.
    pub retransmit_share: f64,
    /// Packets that filled a gap.
    pub out_of_order: u64,
    /// QUIC connections; absent if there were none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quic: Option<WatchQuic>,
    /// Why requests are not compared with the load's; absent if they are. Their counts may then be 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unread: Option<String>,
    /// TLS and QUIC connections of a run's load with data that was not decrypted, or not to its end; absent if there
    /// were none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub undecrypted_connections: Option<u64>,
    /// Quality of the capture; absent for a capture of a run's own devices.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capture: Option<CaptureReading>,
}

/// QUIC connections in the capture.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct WatchQuic {
    /// Connections whose first packet was seen.
    pub connections: u64,
    /// Connections by version: `1`, `2`, or the number of another in hexadecimal digits.
    pub versions: BTreeMap<String, u64>,
    /// UDP datagrams assigned to them.
    pub datagrams: u64,
    /// Bytes of these datagrams' payload.
    pub udp_bytes: u64,
    /// Round-trip times of handshakes, as the capture point implies them.
    pub handshake_rtt_ns: Quantiles,
    /// Mean round-trip times by the spin bit of the connections that use it.
    pub spin_rtt_ns: Quantiles,
    /// Version Negotiation packets.
    pub version_negotiations: u64,
    /// Retry packets.
    pub retries: u64,
    /// Changes of an end's address or port that were followed.
    pub migrations: u64,
    /// Datagrams with more than one QUIC packet.
    pub coalesced_datagrams: u64,
    /// Initial packets that could not be decrypted.
    pub undecrypted_packets: u64,
    /// Connections by why their records were closed.
    pub ends: BTreeMap<String, u64>,
}

/// Packets excluded from a capture, corrections of their order, and doubts.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct CaptureReading {
    /// TCP packets captured twice: the copies, which are in no other figure.
    pub duplicate_packets: u64,
    /// Packets of a file that had a time before that of a packet before them and were sorted.
    pub reordered_packets: u64,
    /// Largest disorder that is repaired, in ns.
    pub reorder_window_ns: u64,
    /// Packets out of order by more.
    pub late_packets: PacketFault,
    /// Packets that acknowledge data with a later time than their own.
    pub early_acks: PacketFault,
    /// Connections that went on after a time without packets as if none had passed.
    pub clock_jumps: PacketFault,
    /// Packets whose headers were not captured in full.
    pub truncated_headers: u64,
    /// Connections whose first data was not captured: their protocol is unknown.
    pub unread_streams: u64,
    /// Heads of HTTP/2 or HTTP/3 with fields that could not be decoded, because the table that they refer to was not
    /// captured.
    pub undecoded_heads: u64,
    /// TLS connections that were not decrypted, or not to their end, although there is a key log.
    pub undecrypted_tls_connections: u64,
    /// Connections that began with a PROXY protocol header.
    pub proxy_protocol_connections: u64,
    /// Packets read inside of tunnels, by kind.
    pub tunnels: BTreeMap<String, u64>,
    /// Packets that were not analyzed, by protocol, most packets first.
    pub not_analyzed: Vec<NotAnalyzed>,
}

/// Something wrong with packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PacketFault {
    /// Number of occurrences.
    pub count: u64,
    /// Number of the first such packet in the capture, from 1; absent if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_packet: Option<u64>,
    /// Largest extent in ns.
    pub max_ns: u64,
}

/// Packets of a protocol that is not analyzed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct NotAnalyzed {
    /// Kind of the number: `ethertype`, `ip_protocol`, `udp_port`, `link_type` .., or `other` for those beyond the
    /// first kinds.
    pub kind: String,
    /// The number.
    pub number: u32,
    /// For people: the protocol's name, if it has a common one, and the number.
    pub name: String,
    /// Packets.
    pub packets: u64,
}

/// Connections in the capture.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct WatchConnections {
    /// Connections seen, those open before the capture included.
    pub count: u64,
    /// Mean number of concurrent connections, weighted by time.
    pub mean: f64,
    /// Median of the means of the seconds.
    pub p50: u64,
    /// Highest number of concurrent connections.
    pub max: u64,
    /// Connections by state at their end, in Zeek's names.
    pub states: BTreeMap<String, u64>,
    /// Connections whose records were closed early because the table was full.
    pub evicted: u64,
}

/// The document of `watch`: that of a run, with this part.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WatchDocument {
    /// [`crate::document::SCHEMA`].
    pub schema: String,
    /// Command, place and time of the capture.
    pub run: Run,
    /// Whether to believe it.
    pub validity: Validity,
    /// Results of the capture.
    pub watch: WatchPart,
}
