//! The gateway part of the JSON document.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::document::{Quantiles, Run, Validity};
use crate::finding::Finding;

/// The document of `gateway`: a run's document with this part.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GatewayDocument {
    /// [`crate::document::SCHEMA`].
    pub schema: String,
    /// Command, place and time of the measurement.
    pub run: Run,
    /// Validity of the figures.
    pub validity: Validity,
    /// Forwarding performance of the gateway.
    pub gateway: ForwardingPart,
}

/// Forwarding performance of a gateway, by condition.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ForwardingPart {
    /// `testbed`: this kernel, in a namespace; `remote`: a real gateway between this host and `peer`.
    pub mode: String,
    /// Address of the tester's other end; absent in the testbed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peer: Option<String>,
    /// CPU limit of the gateway, as a share of one core: 1 is a core. Absent without a limit and for a real gateway.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub share: Option<f64>,
    /// Memory limit of the gateway.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<u64>,
    /// Length of a trial in seconds.
    pub trial_s: f64,
    /// Bytes of each write of a TCP stream.
    pub message_bytes: u32,
    /// Configured size of the socket buffers in bytes; absent: the kernel tunes them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub socket_bytes: Option<u32>,
    /// Actual size of the socket buffers: to send, to receive.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub socket_bytes_actual: Option<[u32; 2]>,
    /// Each link in each condition.
    pub conditions: Vec<GatewayCondition>,
    /// Notes, a sentence each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// Results of one condition on one link. A test that was not selected, or failed, is absent.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct GatewayCondition {
    /// `none`, `nat`, `nat-proxy-idle`, `nat-proxy-loaded`, `proxy-loaded`; for a real gateway the name given to it.
    pub name: String,
    /// Both links of the gateway, each way, as typed; empty for a real gateway.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub link: String,
    /// One TCP stream up: payload received, in Mbit/s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mbit_per_s: Option<Measured>,
    /// One TCP stream down: payload received, in Mbit/s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mbit_per_s_down: Option<Measured>,
    /// Transactions on an open connection, one after the other: one byte to the server, one byte back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub transactions_per_s: Option<Measured>,
    /// New connections per second, each with one byte and its close.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connections_per_s: Option<Measured>,
    /// Highest packet rate for each size and direction.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub packets: Vec<PacketRate>,
    /// RTT through the gateway by background load: `idle`, `stream_up`, `packets_64_up_50` (64 bytes, at 50 % of their
    /// rate) ..
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub rtt_ns: BTreeMap<String, Quantiles>,
    /// Bottleneck of a stream, by test: `link`, `gateway` (its CPU share or core was used up), `tester`, `window`
    /// (socket buffers, by exclusion: nothing else was saturated and nothing lost), `unknown`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub bound_by: BTreeMap<String, String>,
    /// The gateway's CPU time by test, over the time of the trials: 1 is one core.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub cpu: BTreeMap<String, Measured>,
    /// Peak memory of the gateway's programs and its emulated host, in bytes, with their page cache. Absent where the
    /// kernel does not count it, and of a real gateway.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_max_bytes: Option<u64>,
    /// Share of packets lost at light load, up and down.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub floor: BTreeMap<String, f64>,
    /// Results of the proxy that was loaded meanwhile.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proxy: Option<ProxyLoad>,
    /// Findings.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub findings: Vec<Finding>,
}

/// A figure over several trials.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// Mean of the trials.
    pub mean: f64,
    /// Standard deviation (n - 1); absent for one trial.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stddev: Option<f64>,
    /// Student-t interval of the mean, 95 %; absent for one trial.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interval: Option<[f64; 2]>,
    /// Each trial, in order.
    pub trials: Vec<f64>,
}

/// The highest packet rate at which no more than a given share is lost.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PacketRate {
    /// Length of the IP packet in bytes.
    pub ip_bytes: u16,
    /// Length of the Ethernet frame, checksum included: 18 bytes more. Preamble and gap add 20 on the wire.
    pub frame_bytes: u16,
    /// Whether the packets go to the server.
    pub up: bool,
    /// Packet loss allowed.
    pub loss_bound: f64,
    /// Packets per second; the mean of several searches. Absent: no rate found.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub per_second: Option<f64>,
    /// The lowest rate with more loss; absent: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub too_many_per_second: Option<f64>,
    /// Distance of both rates, over the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub width: Option<f64>,
    /// IP bits per second at that rate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bits_per_s: Option<f64>,
    /// Limit of the search: `gateway` (more loss), `link`, `tester` (cannot send more) or `nothing_passes`.
    pub limited_by: String,
    /// Results of several searches.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub searches: Option<Measured>,
    /// Every trial, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub trials: Vec<SearchTrial>,
}

/// One trial of a search for a packet rate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SearchTrial {
    /// Configured packets per second.
    pub planned_per_s: f64,
    /// Packets a second that were sent.
    pub offered_per_s: f64,
    /// Length in seconds.
    pub actual_s: f64,
    /// Packets sent.
    pub sent: u64,
    /// Packets that did not arrive.
    pub lost: u64,
    /// Longest time without a packet at the receiver.
    pub longest_silence_ns: u64,
    /// Whether the loss was within `loss_bound`.
    pub good: bool,
    /// Whether the sender was late; such a trial is no measurement of the gateway.
    pub tester_late: bool,
    /// The gateway's CPU time over the trial's, where it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu: Option<f64>,
}

/// Results of a loaded proxy.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ProxyLoad {
    /// Load: `rate`, PolyMix-1 at a rate; `wget`, one file after the other.
    pub by: String,
    /// Offered requests per second; absent for `wget`, a closed loop.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub offered_per_s: Option<f64>,
    /// Responses a second.
    pub achieved_per_s: f64,
    /// Share of requests without a complete response.
    pub error_ratio: f64,
    /// Share served from the cache.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hit_ratio: Option<f64>,
    /// Mean response time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub response_mean_ns: Option<f64>,
    /// Whether the achieved rate was below 90 % of the offered one, or 5 % or more of the requests failed.
    pub overloaded: bool,
}
