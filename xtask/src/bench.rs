//! Benches: each prints what it measured, the peer measured beside it, and the ratio. A bench reports; it judges
//! nothing and fails only when it could not measure.
//!
//! To add one: write `bench/NAME.rs` with a function `run`, and give it a line in [`BENCHES`]. [`servers`] starts the
//! peers, [`rounds`] puts figures side by side, [`udp`] is traffic for judging the path.

pub mod attack;
pub mod cache;
pub mod capacity;
pub mod compare;
mod connections;
mod extent;
pub mod gateway;
mod load;
mod path;
pub mod predict;
mod replay;
mod rounds;
pub mod runs;
mod serve;
mod servers;
pub mod tap;
pub mod udp;
pub mod watch;

use anyhow::{Result, bail};

/// One bench.
struct Bench {
    name: &'static str,
    /// What it measures, in a line.
    about: &'static str,
    /// Measures and prints.
    run: fn() -> Result<()>,
}

/// All of them, in the order of the table in the design.
const BENCHES: &[Bench] = &[
    Bench { name: "load", about: "requests per second of one client core, beside wrk", run: load::run },
    Bench {
        name: "connections",
        about: "100,000 connections at once through the path, from several processes",
        run: connections::run,
    },
    Bench { name: "path", about: "asked RTT against got, lateness, requests and bytes against direct", run: path::run },
    Bench { name: "replay", about: "a log of a million requests at its own times", run: replay::run },
    Bench {
        name: "serve",
        about: "requests per second of one server core, beside nginx, Apache and the most there could be",
        run: serve::run,
    },
    Bench { name: "attack", about: "what attacks on a server do to its other clients", run: attack::run },
    Bench {
        name: "watch",
        about: "packets per second and memory beside tcptrace, drops beside tcpdump",
        run: watch::run,
    },
    Bench {
        name: "tap",
        about: "a hook in nanoseconds, wrk and curl without and with, beside strace [--rounds N] [--seconds N]",
        run: tap::run,
    },
    Bench {
        name: "cache",
        about: "exchanges per second of robots and origin together, without a cache [--rounds N] [--seconds N]",
        run: cache::run,
    },
    Bench {
        name: "capacity",
        about: "a known capacity found ten times, four servers five times each, beside httperf by hand [--rounds N] [--seconds N]",
        run: capacity::run,
    },
    Bench {
        name: "compare",
        about: "a server beside itself twenty times, and beside one 5 % slower [--rounds N] [--seconds N]",
        run: compare::run,
    },
    Bench {
        name: "predict",
        about: "five sites foretold, and the capacity that is then found [--rounds N] [--seconds N]",
        run: predict::run,
    },
    Bench {
        name: "gateway",
        about: "forwarding beside iperf3 in the same lab, storage beside fio by hand [--rounds N] [--seconds N]",
        run: gateway::run,
    },
    Bench {
        name: "runs",
        about: "a list of 10,000 runs by the catalogue and without it [--runs N] [--rounds N] [--binary FILE]",
        run: runs::run,
    },
];

/// Runs the bench called `name`.
///
/// # Errors
/// There is none of that name, or it could not measure.
pub fn run(name: &str) -> Result<()> {
    match BENCHES.iter().find(|bench| bench.name == name) {
        Some(bench) => (bench.run)(),
        None => bail!("there is no bench `{name}`; there are:\n{}", list()),
    }
}

/// A line for each bench.
pub fn list() -> String {
    BENCHES.iter().map(|bench| format!("  {:11} {}", bench.name, bench.about)).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_name_is_answered_with_the_known_ones() {
        let error = run("nonsense").unwrap_err().to_string();
        assert!(error.contains("no bench `nonsense`") && error.contains("load") && error.contains("path"), "{error}");
    }
}
