//! `[watch]`: packet capture and tap, the vantage points other than the load generator.

use serde::{Deserialize, Serialize};
use units::Bytes;

use super::named::named;

/// Where packets are captured during a run, and how much of each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[cfg_attr(feature = "cli", derive(clap::Args), command(next_help_heading = "Packet capture"))]
pub struct WatchPlan {
    /// Capture packets at this end of the path, at both, or at none [default: server, if there is a path]
    // Plan: Written out in a plan that was checked.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "cli", arg(id = "watch", long = "watch", value_enum, value_name = "END"))]
    pub at: Option<WatchAt>,
    /// Store this many bytes of each packet, such as 1KiB; longer HTTP headers cannot be read completely [default: 1KiB,
    /// for TLS, HTTP/2 and HTTP/3 whole packets, without which their requests cannot be read]
    // Plan: From 128B to 64KiB, IP header included.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "cli", arg(id = "watch_snaplen", long = "watch-snaplen", value_name = "BYTES"))]
    #[cfg_attr(feature = "cli", arg(allow_hyphen_values = true))]
    pub snaplen: Option<Bytes>,
    /// Size of the capture buffer at each end, at least 64KiB. Packets that do not fit are lost, counted, and make the
    /// run suspect.
    #[cfg_attr(feature = "cli", arg(skip = default_ring()))]
    pub ring: Bytes,
    /// Keep the headers of the packets of both ends in the run's folder, for `yamabiko explain`. At most 128 MB of
    /// memory; beyond that whole connections are left out. Of HTTP/3 whole datagrams, in at most 256 MB, and a key log.
    // `--explain` of `bench` sets it.
    #[serde(skip_serializing_if = "is_false")]
    #[cfg_attr(feature = "cli", arg(skip))]
    pub keep: bool,
    /// Record the load generator's own sockets with `yamabiko tap`, as a third vantage point. The load then uses epoll,
    /// because a tap cannot see io_uring, and pays the cost of the tap.
    // `--tap` is defined by each verb: some have none.
    #[serde(skip_serializing_if = "is_false")]
    #[cfg_attr(feature = "cli", arg(skip))]
    pub tap: bool,
}

impl Default for WatchPlan {
    fn default() -> Self {
        WatchPlan { at: None, snaplen: None, ring: default_ring(), keep: false, tap: false }
    }
}

impl WatchPlan {
    /// Refuses sizes out of range.
    ///
    /// # Errors
    /// The value and its range, in a sentence.
    pub fn check(&self) -> Result<(), String> {
        if let Some(snaplen) = self.snaplen.filter(|&snaplen| snaplen < SNAPLEN_MIN || snaplen > SNAPLEN_MAX) {
            return Err(format!(
                "watch snaplen = {snaplen} (--watch-snaplen): expected {SNAPLEN_MIN} to {SNAPLEN_MAX}"
            ));
        }
        if self.ring < RING_MIN || self.ring > RING_MAX {
            return Err(format!("watch ring = {}: expected {RING_MIN} to {RING_MAX}", self.ring));
        }
        Ok(())
    }
}

/// The ends of the path at which packets are captured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum WatchAt {
    /// The server's end, as ENMA.
    #[default]
    Server,
    /// Both ends: the capture then also measures the path itself.
    Both,
    /// None: the load generator is the only vantage point.
    None,
}

named!(WatchAt: Server "server", Both "both", None "none");

/// Smallest snap length: every header, and the first line of a message.
pub const SNAPLEN_MIN: Bytes = Bytes(128);
/// Largest snap length: no IP packet is longer.
pub const SNAPLEN_MAX: Bytes = Bytes(65_536);

/// Smallest capture buffer: one block.
pub const RING_MIN: Bytes = Bytes(64 << 10);
/// Largest capture buffer.
pub const RING_MAX: Bytes = Bytes(1 << 30);

/// Packets of about 200 ms at the highest rate that generator and server reach on two cores.
fn default_ring() -> Bytes {
    Bytes(32 << 20)
}

fn is_false(value: &bool) -> bool {
    !value
}

/// The head of an HTTP/1 message of common servers, and the headers before it.
pub const SNAPLEN_OF_HEADS: Bytes = Bytes(1024);
