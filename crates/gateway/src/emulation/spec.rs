//! An emulated gateway as configured: links, NAT, proxy, its share of a core, and the programs at its ends.

use std::ffi::OsString;
use std::fs::File;
use std::time::Duration;

use plan::Placement;
use units::{BitRate, Bytes, CpuShare, Limit, Probability};

/// A lab as meant.
#[derive(Clone, Debug, PartialEq)]
pub struct LabSpec {
    /// Both links of the gateway, each way.
    pub link: LinkWords,
    /// Whether what the client sends leaves under the gateway's own address.
    pub nat: bool,
    /// The proxy at the gateway, if there is one.
    pub proxy: Option<ProxySpec>,
    /// How much of a core the gateway has: forwarding and proxy together. `None`: as much as it needs.
    pub share: Option<CpuShare>,
    /// Memory that the gateway's processes have; `None`: without a bound.
    pub memory: Option<Bytes>,
    /// A shell command that is run in the gateway's network before anything else: rules, routes, settings. What it leaves
    /// running in the background lives as long as the lab.
    pub setup: Option<String>,
    /// Seed of the links' losses.
    pub seed: u64,
    /// Where things run.
    pub placement: Placement,
}

/// A link, each way.
#[derive(Clone, Debug, PartialEq)]
pub struct LinkWords {
    /// How fast it sends, counting whole IP packets.
    pub rate: Limit<BitRate>,
    /// What may wait for the rate; without one nothing waits.
    pub queue: Bytes,
    /// How many packets it loses, each by chance, before they wait.
    pub loss: Probability,
    /// How long a packet takes, one way.
    pub delay: Duration,
}

impl LinkWords {
    /// 64 KB, as much as a network card of the time held.
    pub const QUEUE: Bytes = Bytes(64 * 1024);

    /// A link that does nothing but carry at this rate.
    pub const fn at(rate: Limit<BitRate>) -> Self {
        LinkWords { rate, queue: Self::QUEUE, loss: Probability::ZERO, delay: Duration::ZERO }
    }
}

/// A proxy at the gateway. It listens on [`super::INSIDE`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProxySpec {
    /// The shell command that starts it.
    pub command: String,
    /// The port on which it listens.
    pub port: u16,
}

/// The program at the server's end that is waited for before anything is measured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerEnd {
    /// The program and its arguments.
    pub argv: Vec<OsString>,
    /// Variables set over those of this process.
    pub env: Vec<(OsString, OsString)>,
    /// The TCP port of [`super::SERVER`] on which it listens.
    pub port: u16,
}

/// A program of the lab, made ready with it.
#[derive(Debug)]
pub struct Waiting {
    /// Its name in errors, and for [`super::RunningLab::go`]; no two have the same.
    pub name: String,
    /// In which network it runs. At the gateway it is in the gateway's control group.
    pub at: At,
    /// The program and its arguments.
    pub argv: Vec<OsString>,
    /// Variables set over those of this process.
    pub env: Vec<(OsString, OsString)>,
    /// Where its stdout goes; `None`: where its stderr goes, which is kept for errors.
    pub stdout: Option<File>,
    /// When it starts.
    pub starts: Starts,
}

/// A network of the lab.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum At {
    /// The clients'.
    Clients,
    /// The gateway's own.
    Gateway,
    /// The server's.
    Server,
}

/// When a program starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Starts {
    /// With the lab; if a port is named, the lab waits until it listens on that.
    AtOnce {
        /// The TCP port.
        listens: Option<u16>,
    },
    /// By [`super::RunningLab::go`].
    WhenTold,
}
