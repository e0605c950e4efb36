//! The second witness and the third, as meant.

use serde::{Deserialize, Serialize};
use units::Bytes;

/// Where packets are captured while a run goes, and how much of each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WatchPlan {
    /// At which ends of the path; absent: at the server's, where the lab has one, else nowhere. Written out in a plan
    /// that was checked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<WatchAt>,
    /// Bytes kept of each packet, IP header included, from 128B to 64KiB. Heads of HTTP messages that are longer cannot be
    /// read in full (docs/decisions/0011).
    #[serde(default = "default_snap")]
    pub snap: Bytes,
    /// Memory of the ring at each end, at least 64KiB. What finds no room in it is lost, counted, and makes the run
    /// suspect.
    #[serde(default = "default_ring")]
    pub ring: Bytes,
    /// The third witness beside a load: the sockets of the generator itself, by `yamabiko tap`. The load then uses epoll, since no
    /// hook sees what io_uring does, and pays for the hooks.
    #[serde(default, skip_serializing_if = "is_false")]
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

impl WatchAt {
    /// As in the plan.
    pub const fn name(self) -> &'static str {
        match self {
            WatchAt::Server => "server",
            WatchAt::Both => "both",
            WatchAt::None => "none",
        }
    }
}

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
