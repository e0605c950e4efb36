//! Vantage points besides the load generator: packet capture and the generator's own sockets.

use serde::{Deserialize, Serialize};
use units::Bytes;

use super::named::named;

/// Where packets are captured during a run, and how many bytes of each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[cfg_attr(feature = "cli", derive(clap::Args), command(next_help_heading = "Packet capture"))]
pub struct WatchPlan {
    /// Capture packets at the server's end, at both ends of the path, or at none [default: server, if there is a path]
    // Plan: Set in a checked plan.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "cli", arg(id = "watch", long = "watch", value_enum, value_name = "END"))]
    pub at: Option<WatchAt>,
    /// Capture this many bytes of each packet; longer HTTP heads cannot be read in full
    // Plan: From 128B to 64KiB, IP header included.
    #[cfg_attr(feature = "cli", arg(id = "watch_snaplen", long = "watch-snaplen", value_name = "BYTES"))]
    #[cfg_attr(feature = "cli", arg(default_value_t = default_snaplen(), allow_hyphen_values = true))]
    pub snaplen: Bytes,
    /// Memory of the capture ring at each end, at least 64KiB. Packets that do not fit are lost and counted, and make
    /// the run suspect.
    #[cfg_attr(feature = "cli", arg(skip = default_ring()))]
    pub ring: Bytes,
    /// Measure at the load generator's own sockets, too, by `yamabiko tap`. The load then uses epoll, since no hook sees
    /// io_uring, and bears the cost of the hooks.
    // Each verb defines `--tap` itself: some have none.
    #[serde(skip_serializing_if = "is_false")]
    #[cfg_attr(feature = "cli", arg(skip))]
    pub tap: bool,
}

impl Default for WatchPlan {
    fn default() -> Self {
        WatchPlan { at: None, snaplen: default_snaplen(), ring: default_ring(), tap: false }
    }
}

impl WatchPlan {
    /// Rejects values that no capture supports.
    ///
    /// # Errors
    /// The value and its range, in a sentence.
    pub fn check(&self) -> Result<(), String> {
        if self.snaplen < SNAPLEN_MIN || self.snaplen > SNAPLEN_MAX {
            return Err(format!(
                "watch snaplen = {} (--watch-snaplen): expected from {SNAPLEN_MIN} to {SNAPLEN_MAX}",
                self.snaplen
            ));
        }
        if self.ring < RING_MIN || self.ring > RING_MAX {
            return Err(format!("watch ring = {}: expected from {RING_MIN} to {RING_MAX}", self.ring));
        }
        Ok(())
    }
}

/// The ends of the path at which packets are captured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum WatchAt {
    /// The server's end, as in Koshien (ENMA).
    #[default]
    Server,
    /// Both ends: the capture then also measures the timing error of the path.
    Both,
    /// None: only the load generator measures.
    None,
}

named!(WatchAt: Server "server", Both "both", None "none");

/// Minimum snaplen: every header, and the first line of a message.
pub const SNAPLEN_MIN: Bytes = Bytes(128);
/// Maximum snaplen: no IP packet is longer.
pub const SNAPLEN_MAX: Bytes = Bytes(65_536);

/// Minimum memory of a ring: one block.
pub const RING_MIN: Bytes = Bytes(64 << 10);
/// Maximum memory of a ring.
pub const RING_MAX: Bytes = Bytes(1 << 30);

/// About 200 ms of traffic at the highest rate that generator and server reach on two cores.
fn default_ring() -> Bytes {
    Bytes(32 << 20)
}

fn is_false(value: &bool) -> bool {
    !value
}

/// Packet headers and a typical HTTP head.
pub fn default_snaplen() -> Bytes {
    Bytes(1024)
}
