//! Where a connection of the load is on the wire: by it the load's records and the packets' are joined.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

/// A connection on which connect was called, and where it is on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Called {
    /// Sequence number of the connection in the run.
    pub connection: u64,
    /// Index of its client.
    pub client: u32,
    /// The port that the kernel chose.
    pub port: u16,
    /// The address connected to.
    pub server: IpAddr,
}
