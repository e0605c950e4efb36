//! The path's part of the document.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::Quantiles;

/// The path's figures. The path is up from its start to its end, so packets of the warm-up are counted.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Path {
    /// Name of the profile, or the option that defined the path.
    pub profile: String,
    /// Number of virtual clients.
    pub clients: u64,
    /// Configured RTT, one value a client.
    pub configured_rtt_ns: Quantiles,
    /// Measured RTT, one value a handshake: connect called to connection established, as the load's clock saw it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub measured_rtt_ns: Option<Quantiles>,
    /// RTT error: measured less configured RTT of the same client, absolute; one value a handshake that lost no packet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rtt_error_ns: Option<Quantiles>,
    /// Source of `measured_rtt_ns`.
    pub measured_rtt_source: String,
    /// Timing error: how much later than computed packets left the path; all packets.
    pub timing_error_ns: Quantiles,
    /// Timing error of packets that were not part of a burst.
    pub timing_error_isolated_ns: Quantiles,
    /// Timing error of packets in a burst (8 or more due within 50 us).
    pub timing_error_burst_ns: Quantiles,
    /// Timing error of packets that were not part of a burst, less the time for which the machine woke the path's loop
    /// late.
    #[serde(default)]
    pub timing_error_own_ns: Quantiles,
    /// Sum of the late wake-ups of the path's loop: waits that ended over 10 us after the next packet was due.
    #[serde(default)]
    pub late_wakeups_ns: u64,
    /// Time for which the path's loop was ready to run and had no core, in the measured phase; absent if the kernel
    /// does not measure it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_queue_wait_ns: Option<u64>,
    /// The path as measured by packet capture at both ends (`--watch both`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub packet_capture: Option<PathInCapture>,
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

/// The path by the time stamps of packets captured at both its ends, over the measured phase. Unlike the path's
/// own figures it includes the time for which packets waited before they were read.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PathInCapture {
    /// Packets found at both ends.
    pub matched: u64,
    /// Packets found at one end only: lost, segmented on the way, or not distinguishable.
    pub unmatched: u64,
    /// One-way time from the clients' device to the server's.
    pub up_ns: Quantiles,
    /// One-way time from the server's device to the clients'.
    pub down_ns: Quantiles,
    /// One-way time less the configured delay of that client's link, both directions; an earlier packet counts as 0.
    pub timing_error_ns: Quantiles,
}

/// One direction of the path. Always: `packets + duplicated = delivered + drops + in_transit`.
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
    /// Wire packets in transit at the end.
    pub in_transit: u64,
    /// Wire packets dropped, by cause.
    pub drops: BTreeMap<String, u64>,
    /// Wire packets that the path duplicated, as configured.
    #[serde(default)]
    pub duplicated: u64,
    /// Wire packets in which a bit was inverted, as configured.
    #[serde(default)]
    pub corrupted: u64,
    /// Wire packets delayed so that others overtook them, as configured.
    #[serde(default)]
    pub reordered: u64,
}
