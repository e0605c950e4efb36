//! A connection of the load in the capture: joins records of the load and of packets.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

/// A connection on which connect was called, as it appears in the capture.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConnectCall {
    /// Sequence number of the connection in the run.
    pub connection: u64,
    /// Index of the connection's client.
    pub client: u32,
    /// Local port, chosen by the kernel.
    pub port: u16,
    /// The address connected to.
    pub server: IpAddr,
}
