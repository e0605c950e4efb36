//! An emulated gateway as configured: links, NAT, proxy, its share of a core, and the programs at its ends.

use std::ffi::OsString;
use std::fs::File;
use std::time::Duration;

use plan::Placement;
use units::{BitRate, Bytes, CpuShare, Limit, Probability};

/// Configuration of an emulation.
#[derive(Clone, Debug, PartialEq)]
pub struct EmulationSpec {
    /// Settings of both links, in each direction.
    pub link: LinkSettings,
    /// Whether source addresses of the client are translated.
    pub nat: bool,
    /// The proxy at the gateway, if there is one.
    pub proxy: Option<ProxySpec>,
    /// CPU limit of forwarding and proxy together; `None`: unlimited.
    pub share: Option<CpuShare>,
    /// Memory limit of the gateway's processes; `None`: unlimited.
    pub memory: Option<Bytes>,
    /// A shell command run first in the gateway's network: rules, routes, settings. Its background processes end with
    /// the emulation.
    pub setup: Option<String>,
    /// Seed of the links' losses.
    pub seed: u64,
    /// Placement on cores.
    pub placement: Placement,
}

/// Settings of a link, in each direction.
#[derive(Clone, Debug, PartialEq)]
pub struct LinkSettings {
    /// Rate of IP packets.
    pub rate: Limit<BitRate>,
    /// Queue limit, if there is a rate.
    pub queue: Bytes,
    /// Random packet loss before the queue.
    pub loss: Probability,
    /// One-way delay.
    pub delay: Duration,
}

impl LinkSettings {
    /// 64 KiB, as in network interfaces of 2001.
    pub const QUEUE: Bytes = Bytes(64 * 1024);

    /// A link with only a rate.
    pub const fn at(rate: Limit<BitRate>) -> Self {
        LinkSettings { rate, queue: Self::QUEUE, loss: Probability::ZERO, delay: Duration::ZERO }
    }
}

/// A proxy at the gateway, listening on [`super::INSIDE`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProxySpec {
    /// Shell command of the proxy.
    pub command: String,
    /// Listening port.
    pub port: u16,
}

/// The program at the server end that must listen before the measurement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerEnd {
    /// The program and its arguments.
    pub argv: Vec<OsString>,
    /// Additional environment variables.
    pub env: Vec<(OsString, OsString)>,
    /// Listening TCP port at [`super::SERVER`].
    pub port: u16,
}

/// A program prepared with the emulation.
#[derive(Debug)]
pub struct PreparedProgram {
    /// Unique name, for errors and [`super::RunningEmulation::go`].
    pub name: String,
    /// Its network. Programs at the gateway are in its control group.
    pub at: At,
    /// The program and its arguments.
    pub argv: Vec<OsString>,
    /// Additional environment variables.
    pub env: Vec<(OsString, OsString)>,
    /// File for stdout; `None`: stored with stderr for error messages.
    pub stdout: Option<File>,
    /// When it starts.
    pub starts: Starts,
}

/// A network of the emulation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum At {
    /// Client side.
    Clients,
    /// The gateway.
    Gateway,
    /// Server side.
    Server,
}

/// When a program starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Starts {
    /// With the emulation, which waits until the program listens on the port, if given.
    Immediately {
        /// The TCP port.
        listens: Option<u16>,
    },
    /// By [`super::RunningEmulation::go`].
    OnRequest,
}
