//! The second witness and the third, as meant.

use serde::{Deserialize, Serialize};
use units::Bytes;

use super::named::named;

/// Where packets are captured while a run goes, and how much of each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[cfg_attr(feature = "cli", derive(clap::Args), command(next_help_heading = "Second witness"))]
pub struct WatchPlan {
    /// Read the packets at the server's end, at both ends of the path, or at none [default: server, where there
    /// is a path]
    // Plan: Written out in a plan that was checked.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "cli", arg(id = "watch", long = "watch", value_enum, value_name = "END"))]
    pub at: Option<WatchAt>,
    /// Bytes kept of each packet, such as 1KiB; longer heads of HTTP cannot be read in full
    // Plan: From 128B to 64KiB, IP header included.
    #[cfg_attr(feature = "cli", arg(id = "watch_snap", long = "watch-snap", value_name = "BYTES"))]
    #[cfg_attr(feature = "cli", arg(default_value_t = default_snap(), allow_hyphen_values = true))]
    pub snap: Bytes,
    /// Memory of the ring at each end, at least 64KiB. What finds no room in it is lost, counted, and makes the run
    /// suspect.
    #[cfg_attr(feature = "cli", arg(skip = default_ring()))]
    pub ring: Bytes,
    /// The third witness beside a load: the sockets of the generator itself, by `yamabiko tap`. The load then uses epoll, since no
    /// hook sees what io_uring does, and pays for the hooks.
    // `--tap` is each verb's own: some have none.
    #[serde(skip_serializing_if = "is_false")]
    #[cfg_attr(feature = "cli", arg(skip))]
    pub tap: bool,
}

impl Default for WatchPlan {
    fn default() -> Self {
        WatchPlan { at: None, snap: default_snap(), ring: default_ring(), tap: false }
    }
}

impl WatchPlan {
    /// Refuses what no capture can do.
    ///
    /// # Errors
    /// One sentence.
    pub fn check(&self) -> Result<(), String> {
        if self.snap < SNAP_MIN || self.snap > SNAP_MAX {
            return Err(format!(
                "watch snap = {} (--watch-snap): from {SNAP_MIN} to {SNAP_MAX} of a packet can be kept",
                self.snap
            ));
        }
        if self.ring < RING_MIN || self.ring > RING_MAX {
            return Err(format!("watch ring = {}: from {RING_MIN} to {RING_MAX} are possible", self.ring));
        }
        Ok(())
    }
}

/// Which ends of the path are watched.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum WatchAt {
    /// The server's: what ENMA saw.
    #[default]
    Server,
    /// Both: the path is then timed from outside, too.
    Both,
    /// None: the load is the only witness.
    None,
}

named!(WatchAt: Server "server", Both "both", None "none");

/// Least that may be kept of a packet: every header, and the first line of a message.
pub const SNAP_MIN: Bytes = Bytes(128);
/// Most: no IP packet is longer.
pub const SNAP_MAX: Bytes = Bytes(65_536);

/// Least memory of a ring: one block.
pub const RING_MIN: Bytes = Bytes(64 << 10);
/// Most.
pub const RING_MAX: Bytes = Bytes(1 << 30);

/// What passes in some 200 ms at the highest rate that generator and server reach on two cores.
fn default_ring() -> Bytes {
    Bytes(32 << 20)
}

fn is_false(asked: &bool) -> bool {
    !asked
}

/// A head of HTTP as servers write it, and the headers before it.
pub fn default_snap() -> Bytes {
    Bytes(1024)
}
