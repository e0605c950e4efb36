//! The path's part of the document.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::Quantiles;

/// The path's figures. The path is up from its start to its end, so packets of the warm-up are counted.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Path {
    /// Name of the profile, or how it was given.
    pub profile: String,
    /// Number of virtual clients.
    pub clients: u64,
    /// RTT asked, one value a client.
    pub configured_rtt_ns: Quantiles,
    /// RTT got, one value a handshake: connect called to connection established, as the load's clock saw it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub measured_rtt_ns: Option<Quantiles>,
    /// Got less asked of the same client, one value a handshake that lost no packet. Absolute value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rtt_error_ns: Option<Quantiles>,
    /// Where `measured_rtt_ns` comes from.
    pub measured_rtt_source: String,
    /// Write less due, all packets.
    pub timing_error_ns: Quantiles,
    /// The same, of packets that were not part of a volley.
    pub timing_error_isolated_ns: Quantiles,
    /// The same, of packets in a volley (8 or more due within 50 us).
    pub timing_error_burst_ns: Quantiles,
    /// The path as packets show it from outside, where both its ends were watched.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub packet_capture: Option<PathFromOutside>,
    /// From a TUN's packet being waiting to its being read; measured where stamps exist, else absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read_delay_ns: Option<Quantiles>,
    /// Packets accepted, both directions, as wire packets.
    pub packets: u64,
    /// Bytes accepted, both directions, IP headers included.
    pub bytes: u64,
    /// Packets dropped, by cause.
    pub drops: BTreeMap<String, u64>,
    /// Up (client to server).
    pub up: PathDirection,
    /// Down (server to client).
    pub down: PathDirection,
}

/// The path by the time stamps of packets captured at both its ends, over the measured phase. It holds what the path
/// cannot know of itself: how long packets waited before they were read.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PathFromOutside {
    /// Packets found at both ends.
    pub matched: u64,
    /// Packets found at one end only: lost, cut into others on the way, or not told apart.
    pub unmatched: u64,
    /// One-way time from the clients' device to the server's.
    pub up_ns: Quantiles,
    /// One-way time from the server's device to the clients'.
    pub down_ns: Quantiles,
    /// One-way time less the delay asked of that client's link, both directions; earlier than asked counts as 0.
    pub timing_error_ns: Quantiles,
}

/// One direction of the path. `packets = delivered + sum of drops + held`, always.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PathDirection {
    /// Wire packets accepted.
    pub packets: u64,
    /// Bytes accepted.
    pub bytes: u64,
    /// Wire packets delivered.
    pub delivered: u64,
    /// Bytes delivered.
    pub delivered_bytes: u64,
    /// Wire packets held (on the way) at the end.
    pub in_transit: u64,
    /// Wire packets dropped, by cause.
    pub drops: BTreeMap<String, u64>,
    /// Wire packets that the path made in addition, as asked. Always: packets + duplicated = delivered + dropped + held.
    #[serde(default)]
    pub duplicated: u64,
    /// Wire packets in which a bit was inverted, as asked.
    #[serde(default)]
    pub corrupted: u64,
    /// Wire packets held back so that others could overtake them, as asked.
    #[serde(default)]
    pub reordered: u64,
}
