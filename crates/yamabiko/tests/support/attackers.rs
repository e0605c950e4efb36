//! Clients that attack a server. An attack is a set of connections and the behaviour of each connection.
//!
//! ```text
//!   Attack::run ── until `stop`: open missing connections; one step of each connection's behaviour; sleep ── Tally
//! ```
//!
//! One thread serves all connections of an attack with non-blocking sockets: a thousand slow clients cost little, and a
//! flood uses all of the thread's CPU time. The attack replaces a connection that the server closes, so that the
//! pressure stays constant. Tests of `serve` run attacks in threads, and `cargo xtask bench attack` in a process of its
//! own. The code uses only std and nix.

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

/// The server under attack.
#[derive(Clone, Debug)]
pub struct Target {
    /// Where the server listens.
    pub address: SocketAddr,
    /// Path of a small file.
    pub small: String,
    /// Path of a file of many megabytes.
    pub big: String,
    /// Number of client addresses, from 127.1.0.1 up, if the server's address is in 127.0.0.0/8. With 1 the kernel
    /// chooses the address.
    pub sources: u16,
    /// Upper limit of concurrent connections of an attack.
    pub max_concurrent: usize,
}

/// An attack.
pub struct Attack {
    /// As named on the command line.
    pub name: &'static str,
    /// One line that describes the attack.
    pub about: &'static str,
    /// Whether the attack needs a TLS server.
    pub tls: bool,
    run: fn(&Target, &AtomicBool) -> Tally,
}

impl Attack {
    /// Runs the attack until `stop` is true.
    pub fn run(&self, target: &Target, stop: &AtomicBool) -> Tally {
        (self.run)(target, stop)
    }
}

/// All attacks.
pub const ATTACKS: &[Attack] = &[
    Attack { name: "slow-heads", about: "1,500 heads, a byte every 200 ms", tls: false, run: habits::slow_heads },
    Attack { name: "slow-bodies", about: "1,500 bodies, a byte every 200 ms", tls: false, run: habits::slow_bodies },
    Attack { name: "slow-readers", about: "500 big files, 100 B every 200 ms", tls: false, run: habits::slow_readers },
    Attack { name: "no-readers", about: "500 big files, never read", tls: false, run: habits::no_readers },
    Attack { name: "idle", about: "20,000 connections without a request", tls: false, run: habits::idle },
    Attack {
        name: "idle-persistent",
        about: "20,000 idle after one request",
        tls: false,
        run: habits::idle_persistent,
    },
    Attack { name: "long-heads", about: "heads of one field without end", tls: false, run: habits::long_heads },
    Attack { name: "many-fields", about: "heads of fields without end", tls: false, run: habits::many_fields },
    Attack { name: "connections", about: "connect and close, at full speed", tls: false, run: habits::connections },
    Attack { name: "resets", about: "request and reset, at full speed", tls: false, run: habits::resets },
    Attack { name: "pipelining", about: "64 pipelines without end, read", tls: false, run: habits::pipelining },
    Attack {
        name: "unread-pipelining",
        about: "64 pipelines without end, not read",
        tls: false,
        run: habits::unread_pipelining,
    },
    Attack { name: "garbage", about: "random bytes", tls: false, run: habits::garbage },
    Attack { name: "tls-hellos", about: "a ClientHello and close, at full speed", tls: true, run: habits::hellos },
    Attack { name: "tls-slow", about: "1,500 hellos, a byte every 200 ms", tls: true, run: habits::slow_hellos },
    Attack { name: "tls-garbage", about: "random bytes", tls: true, run: habits::garbage },
];

/// The attack with this name.
pub fn named(name: &str) -> Option<&'static Attack> {
    ATTACKS.iter().find(|attack| attack.name == name)
}

/// Counters of an attack.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Opened connections.
    pub opened: u64,
    /// Connections that the server closed, with or without a response.
    pub closed_by_server: u64,
    /// Connections that could not be opened: refused, or no free local port or descriptor.
    pub not_opened: u64,
    /// Connections by the status of their first response.
    pub responses: BTreeMap<String, u64>,
    /// Maximum number of concurrent connections.
    pub max_concurrent: usize,
    /// Bytes sent and read.
    pub sent_bytes: u64,
    pub read_bytes: u64,
}

impl fmt::Display for Tally {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} connections ({} concurrent)", self.opened, self.max_concurrent)?;
        write!(formatter, ", {} closed by the server, {} not opened", self.closed_by_server, self.not_opened)?;
        for (status, count) in &self.responses {
            write!(formatter, ", {status}: {count}")?;
        }
        write!(formatter, "; {} B sent, {} B read", self.sent_bytes, self.read_bytes)
    }
}

/// The client address of connection `number`. `None` if the kernel chooses it.
fn source(target: &Target, number: u64) -> Option<IpAddr> {
    let loopback = matches!(target.address.ip(), IpAddr::V4(address) if address.is_loopback());
    (loopback && target.sources > 1).then(|| {
        let [high, low] = ((number % u64::from(target.sources)) as u16 + 1).to_be_bytes();
        Ipv4Addr::new(127, 1, high, low).into()
    })
}
