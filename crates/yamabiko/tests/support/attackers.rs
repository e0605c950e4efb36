//! Clients that mean harm to a server: each attack is a crowd of connections and a habit.
//!
//! ```text
//!   Attack::run ── until told to stop: fill the crowd up; then the habit of each member in turn; rest ── Tally
//! ```
//!
//! One thread goes over its crowd again and again with sockets that never block, so that a thousand slow clients cost
//! little and a flood takes what its thread is given. A member that the server sends away is replaced: pressure stays
//! the same. Used by the tests of `serve` in threads, and by `cargo xtask bench attack` in a process of its own; nothing
//! but std and nix is needed.

#[path = "attackers/churn.rs"]
pub mod churn;
#[path = "attackers/crowd.rs"]
pub mod crowd;
#[path = "attackers/habits.rs"]
mod habits;
#[path = "attackers/hello.rs"]
pub mod hello;

use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::atomic::AtomicBool;

/// What is attacked.
#[derive(Clone, Debug)]
pub struct Target {
    /// Where the server listens.
    pub address: SocketAddr,
    /// Path of a small file.
    pub small: String,
    /// Path of a file of many megabytes.
    pub big: String,
    /// The crowd comes from so many addresses: 127.1.0.1 and on where the target is on 127.0.0.0/8, which all belong to
    /// every host; 1 means the kernel's choice.
    pub sources: u16,
    /// Most members of a crowd, where an attack would take more.
    pub members_max: usize,
}

/// An attack.
pub struct Attack {
    /// As named on the command line.
    pub name: &'static str,
    /// What its clients do.
    pub about: &'static str,
    /// For a server that speaks TLS.
    pub tls: bool,
    run: fn(&Target, &AtomicBool) -> Tally,
}

impl Attack {
    /// Attacks until `stop`.
    pub fn run(&self, target: &Target, stop: &AtomicBool) -> Tally {
        (self.run)(target, stop)
    }
}

/// All of them.
pub const ATTACKS: &[Attack] = &[
    Attack { name: "slow-heads", about: "1,500 heads, a byte every 200 ms", tls: false, run: habits::slow_heads },
    Attack { name: "slow-bodies", about: "1,500 bodies, a byte every 200 ms", tls: false, run: habits::slow_bodies },
    Attack { name: "slow-readers", about: "500 big files, 100 B every 200 ms", tls: false, run: habits::slow_readers },
    Attack { name: "no-readers", about: "500 big files, never read", tls: false, run: habits::no_readers },
    Attack { name: "idle", about: "20,000 connections without a word", tls: false, run: habits::idle },
    Attack { name: "idle-kept", about: "20,000 idle after one request", tls: false, run: habits::idle_kept },
    Attack { name: "long-heads", about: "heads of one field without end", tls: false, run: habits::long_heads },
    Attack { name: "many-fields", about: "heads of fields without end", tls: false, run: habits::many_fields },
    Attack { name: "connections", about: "connect and leave, as fast as can be", tls: false, run: habits::connections },
    Attack { name: "resets", about: "ask and reset, as fast as can be", tls: false, run: habits::resets },
    Attack { name: "pipelining", about: "64 pipelines without end, read", tls: false, run: habits::pipelining },
    Attack { name: "deaf-pipelining", about: "64 pipelines without end, not read", tls: false, run: habits::deaf },
    Attack { name: "garbage", about: "random bytes", tls: false, run: habits::garbage },
    Attack { name: "tls-hellos", about: "a hello and away, as fast as can be", tls: true, run: habits::hellos },
    Attack { name: "tls-slow", about: "1,500 hellos, a byte every 200 ms", tls: true, run: habits::slow_hellos },
    Attack { name: "tls-garbage", about: "random bytes", tls: true, run: habits::garbage },
];

/// The attack of this name.
pub fn named(name: &str) -> Option<&'static Attack> {
    ATTACKS.iter().find(|attack| attack.name == name)
}

/// What became of a crowd.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Connections begun.
    pub begun: u64,
    /// Closed by the server, with or without a response.
    pub sent_away: u64,
    /// Could not be had: refused, or no port or descriptor was left here.
    pub not_begun: u64,
    /// Connections by the status of their first response.
    pub answered: BTreeMap<String, u64>,
    /// Maximum concurrent members.
    pub members_max: usize,
    /// Bytes sent and read.
    pub sent_bytes: u64,
    pub read_bytes: u64,
}

impl fmt::Display for Tally {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} connections ({} at once)", self.begun, self.members_max)?;
        write!(formatter, ", {} sent away, {} not had", self.sent_away, self.not_begun)?;
        for (status, count) in &self.answered {
            write!(formatter, ", {status}: {count}")?;
        }
        write!(formatter, "; {} B sent, {} B read", self.sent_bytes, self.read_bytes)
    }
}

/// The address from which member `number` of a crowd comes, unless the kernel may choose.
fn source(target: &Target, number: u64) -> Option<IpAddr> {
    let loopback = matches!(target.address.ip(), IpAddr::V4(address) if address.is_loopback());
    (loopback && target.sources > 1).then(|| {
        let [high, low] = ((number % u64::from(target.sources)) as u16 + 1).to_be_bytes();
        Ipv4Addr::new(127, 1, high, low).into()
    })
}
