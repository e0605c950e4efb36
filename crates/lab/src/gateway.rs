//! A gateway between two networks, in this kernel: forwarding, NAT and a proxy, held to a share of a core.
//!
//! ```text
//!  clients' ns           loop A (thread)          gateway's ns            loop B (thread)            server's ns
//!  198.19.0.1 c0 ==fd== [link] ==ring== card > g0 198.18.255.1   g1 198.19.0.2 < card ==ring== [link] ==fd== s0 198.18.0.1
//!                              <======= fd === g0                g1 === fd =======>
//!  the clients' programs        rate, queue    | ip_forward, NAT     |                            the server's programs
//!                                              '- proxy, in a place -'
//! ```
//!
//! Each of the two links is a path of its own, with a loop of its own. What comes to the gateway is put into the ring of
//! its [`card`], a process that hands it to the kernel: forwarding and translation run in that process's time, so that a
//! control group holds and counts them (docs/decisions/0021). What the gateway sends is read by the loops.
//!
//! [`GatewayLab::new`] makes everything, while this process has one thread; [`GatewayLab::start`] starts the loops and the
//! programs; dropping the [`RunningLab`] takes it all down. Read `places` for addresses, `links` for the loops.

pub mod card;
mod figures;
mod links;
mod nat;
mod places;
mod programs;
mod through;

use std::ffi::OsString;
use std::fs::File;
use std::net::Ipv4Addr;
use std::time::Duration;

use sys::namespace::NetNamespace;
use units::{BitRate, Bytes, CpuShare, Limit, Probability};

use crate::error::LabError;
use crate::plan::Placement;

pub use figures::{DirectionFigures, GatewayCounts, GatewayUsed, LabFacts, LinkFigures};
pub use through::{Through, ThroughOutcome, through};

/// The client.
pub const CLIENT: Ipv4Addr = crate::places::FIRST_CLIENT;
/// The gateway as the clients know it.
pub const INSIDE: Ipv4Addr = Ipv4Addr::new(198, 18, 255, 1);
/// The gateway as the server knows it; with NAT the client as well.
pub const OUTSIDE: Ipv4Addr = Ipv4Addr::new(198, 19, 0, 2);
/// The server.
pub const SERVER: Ipv4Addr = crate::places::SERVER;

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

/// A proxy at the gateway. It listens on [`INSIDE`].
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
    /// The TCP port of [`SERVER`] on which it listens.
    pub port: u16,
}

/// A program of the lab, made ready with it.
#[derive(Debug)]
pub struct Waiting {
    /// Its name in errors, and for [`RunningLab::go`]; no two have the same.
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
    /// By [`RunningLab::go`].
    WhenTold,
}

/// A lab that is made, and not started. It takes all of itself down when it is dropped.
pub struct GatewayLab {
    _private: (),
}

impl GatewayLab {
    /// Makes it: control group, networks, devices, card, NAT, what [`LabSpec::setup`] says, and a place for every program.
    /// Must be called while this process has one thread, and by the thread that lives longest.
    ///
    /// # Errors
    /// What the machine lacks, by name; a set-up that fails; programs that are not there.
    pub fn new(_spec: &LabSpec, _server: Option<&ServerEnd>, _extra: Vec<Waiting>) -> Result<Self, LabError> {
        Err(LabError::Environment("the gateway's lab is not there yet".into()))
    }

    /// Starts the links, then the programs that start at once, and waits for those that listen.
    ///
    /// # Errors
    /// A program that cannot be started, ends, or does not listen: with its last words.
    pub fn start(self) -> Result<RunningLab, LabError> {
        Err(LabError::Environment("the gateway's lab is not there yet".into()))
    }
}

/// A lab that runs, until it is dropped.
pub struct RunningLab {
    client: NetNamespace,
}

impl RunningLab {
    /// The clients' network.
    pub fn client_net(&self) -> &NetNamespace {
        &self.client
    }

    /// What the gateway used so far.
    pub fn used(&self) -> GatewayUsed {
        GatewayUsed::default()
    }

    /// What both links did so far: that to the clients, that to the server.
    pub fn links(&self) -> [LinkFigures; 2] {
        Default::default()
    }

    /// What the gateway's kernel counted so far.
    pub fn counts(&self) -> GatewayCounts {
        GatewayCounts::default()
    }

    /// What is to be said of this lab beside its figures.
    pub fn facts(&self) -> &LabFacts {
        unimplemented!()
    }

    /// Starts a program that was waiting.
    ///
    /// # Errors
    /// There is none of this name, or it cannot be started.
    pub fn go(&mut self, _name: &str) -> Result<(), LabError> {
        Ok(())
    }

    /// How a program ended, with its last words; `None` while it runs (or any process that it left behind), and before it was
    /// started.
    pub fn ended(&mut self, _name: &str) -> Option<String> {
        None
    }
}
