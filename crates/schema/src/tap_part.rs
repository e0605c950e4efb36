//! The tap's part of a run's JSON document.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::document::{Quantiles, Run, Validity, Verdict};

/// Records of programs' own socket calls.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TapPart {
    /// Connections that programs opened; absent if there are none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client: Option<TapView>,
    /// Connections that programs accepted; absent if there are none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server: Option<TapView>,
    /// Lookups of names; absent if there are none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lookups: Option<TapLookups>,
    /// Every program that ran, and whether it was seen.
    pub programs: Vec<TapProgram>,
    /// Programs that are not listed, since a list is bounded.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub programs_left_out: u64,
    /// Records read from the rings.
    pub records: u64,
    /// Records dropped because a ring was full: figures lack them.
    pub records_dropped: u64,
    /// Connections dropped because the collector was full: in no figure.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub connections_left_out: u64,
    /// Connections dropped because the library's table in their program was full, 65,534 concurrent ones, or whose
    /// descriptor is above 1,048,575: in no figure.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub connections_unfollowed: u64,
}

/// One end's view: all connections on which the programs were that end. Times in nanoseconds, amounts in bytes, rates
/// in bytes a second; each distribution counts the values that exist, so that its `count` may be less than `exchanges`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TapView {
    /// Connections: connect called, or accept returned.
    pub connections: u64,
    /// Connections that were not established.
    pub connections_failed: u64,
    /// Connections without a request.
    pub connections_unused: u64,
    /// Connections still open when the run ended.
    pub connections_open_at_end: u64,
    /// Request-response exchanges that ended: in success, in failure.
    pub exchanges: u64,
    /// Exchanges that were under way when their program or the run ended; in no ratio.
    pub exchanges_cut: u64,
    /// Exchanges that ended, and connections that were not established.
    pub attempts: u64,
    /// Attempts that failed, by error.
    pub failed: BTreeMap<String, u64>,
    /// Failed over all attempts, 0 to 1; absent without attempts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error_ratio: Option<f64>,
    /// Availability; absent without attempts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub availability: Option<TapAvailability>,
    /// connect called to connection established. Of clients only.
    pub setup_ns: Quantiles,
    /// Ts: first call that sent entered, to the last returned.
    pub send_ns: Quantiles,
    /// At a client: request sent to first byte of the response. At a server: request received to first call that
    /// sent of the response.
    pub wait_ns: Quantiles,
    /// Tr: first byte received to last byte received.
    pub receive_ns: Quantiles,
    /// First byte of the request to last byte of the response: Ts + wait + Tr.
    pub response_ns: Quantiles,
    /// Tc: connect called, or accept returned, to close.
    pub connection_duration_ns: Quantiles,
    /// Time inside the calls and from EAGAIN to the next success, an exchange.
    pub blocked_ns: Quantiles,
    /// Ds: bytes sent, an exchange.
    pub sent_bytes: Quantiles,
    /// Dr: bytes received, an exchange.
    pub received_bytes: Quantiles,
    /// Rs: Ds over Ts, of exchanges whose Ts is not 0.
    pub send_rate_bytes_per_s: Quantiles,
    /// Rr: Dr over Tr, of exchanges whose Tr is not 0.
    pub receive_rate_bytes_per_s: Quantiles,
    /// Ra: bytes both ways over Tc, of connections that were closed.
    pub overall_rate_bytes_per_s: Quantiles,
    /// All bytes sent, greetings and cut exchanges included.
    pub sent_bytes_total: u64,
    /// All bytes received, greetings and cut exchanges included.
    pub received_bytes_total: u64,
    /// Segments retransmitted, where TCP_INFO was read.
    pub retransmits: u64,
    /// Bytes that TCP counted and no hook saw.
    pub unseen_bytes: u64,
}

/// Lookups of names.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TapLookups {
    /// Calls of getaddrinfo that returned.
    pub count: u64,
    /// Failed lookups by error.
    pub failed: BTreeMap<String, u64>,
    /// Duration of a lookup.
    pub lookup_ns: Quantiles,
}

/// Availability of the service.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TapAvailability {
    /// Share of attempts that succeeded: 1 - error ratio.
    pub attempts: f64,
    /// Share of windows of time in which an attempt succeeded, of those in which one ended.
    pub windows: f64,
    /// Windows in which an attempt ended.
    pub windows_tried: u64,
    /// Length of a window in seconds, counted from the run's zero.
    pub window_s: f64,
}

/// One program that ran under the tap.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TapProgram {
    /// Name of the program.
    pub name: String,
    /// Processes of that name.
    pub processes: u64,
    /// `seen`; `partial`: some bytes bypassed the library; `unseen`: the library never ran in it.
    pub coverage: String,
    /// Why it is partial or unseen.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub why: String,
    /// Connections it opened or accepted.
    pub connections: u64,
}

/// Exchanges of one peer, port, program or minute.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TapGroup {
    /// The peer's address, the port, the program's name, or the minute's begin (RFC 3339, UTC).
    pub name: String,
    /// Connections whose last row is in it.
    pub connections: u64,
    /// Attempts that ended.
    pub attempts: u64,
    /// Failed attempts.
    pub failed: u64,
    /// Failed over all; absent without attempts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error_ratio: Option<f64>,
    /// Bytes sent.
    pub sent_bytes: u64,
    /// Bytes received.
    pub received_bytes: u64,
    /// connect called to connection established.
    pub setup_ns: Quantiles,
    /// First byte of the request to last byte of the response, of those that succeeded.
    pub response_ns: Quantiles,
    /// Connection's length.
    pub connection_duration_ns: Quantiles,
}

/// The document of `tap slice`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TapSlice {
    /// [`SLICE_SCHEMA`].
    pub schema: String,
    /// The runs, and the verdict of each.
    pub runs: Vec<TapSliceRun>,
    /// The conditions, as typed.
    pub conditions: Vec<String>,
    /// Rows read.
    pub rows: u64,
    /// Rows that met the conditions.
    pub rows_taken: u64,
    /// Connections that programs opened; absent if there are none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client: Option<TapView>,
    /// Connections that programs accepted; absent if there are none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server: Option<TapView>,
    /// Lookups of names; absent if there are none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lookups: Option<TapLookups>,
    /// Key of the groups: `peer`, `port`, `program` or `minute`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// The groups.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<TapGroup>,
}

/// A run of a slice.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TapSliceRun {
    /// Name of its folder.
    pub id: String,
    /// Wall clock at its zero, RFC 3339, UTC.
    pub started_at: String,
    /// Verdict of the run; absent for a run that did not end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verdict: Option<Verdict>,
    /// Parts of the run that could not be read, as text; empty if all could be read.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub unread: String,
}

/// The value of [`TapSlice::schema`].
pub const SLICE_SCHEMA: &str = "yamabiko.tap_slice/2";

/// The document of `tap`: that of a run, with this part.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TapDocument {
    /// [`crate::document::SCHEMA`].
    pub schema: String,
    /// Command, place and time of the run.
    pub run: Run,
    /// Whether to believe it.
    pub validity: Validity,
    /// Results of the tap.
    pub tap: TapPart,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(count: &u64) -> bool {
    *count == 0
}
