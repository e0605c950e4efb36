//! Benches: each prints what it measured, the peer measured beside it, and the ratio. A bench reports; it judges
//! nothing and fails only when it could not measure.
//!
//! To add one: write `bench/NAME.rs` with a function `run`, and give it a line in [`BENCHES`]. [`servers`] starts the
//! peers, [`rounds`] puts figures side by side, [`udp`] is traffic for judging the path.

mod attack;
mod cache;
mod capacity;
mod compare;
mod connections;
mod extent;
mod fleet;
mod gateway;
mod load;
mod path;
mod predict;
mod replay;
mod rounds;
pub mod runs;
mod serve;
mod servers;
mod tap;
mod udp;
mod viewers;
mod watch;

use std::path::Path;

use anyhow::{Context as _, Result, bail};

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
    Bench {
        name: "path",
        about: "configured against measured RTT, timing error, requests and bytes against direct",
        run: path::run,
    },
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
        name: "fleet",
        about: "many agents and a manager, harmed, each row looked for [--agents N] [--seconds N] [--rate N] [--hold S] [--quiet]",
        run: fleet::run,
    },
    Bench {
        name: "cache",
        about: "exchanges per second of virtual users and origin together, without a cache [--rounds N] [--seconds N]",
        run: cache::run,
    },
    Bench {
        name: "capacity",
        about: "a known capacity found ten times, four servers five times each, beside httperf by hand [--only PART] [--rounds N] [--seconds N]",
        run: capacity::run,
    },
    Bench {
        name: "compare",
        about: "a server beside itself twenty times, and beside one 5 % slower [--only PART] [--rounds N] [--seconds N]",
        run: compare::run,
    },
    Bench {
        name: "predict",
        about: "capacity of five sites, predicted and measured [--only SITE] [--rounds N] [--seconds N]",
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
    Bench {
        name: "viewers",
        about: "a run's own figures without a live page, and with 0, 1 and 20 viewers of it [--rounds N] [--seconds N]",
        run: viewers::run,
    },
];

/// Does what the words after `cargo xtask` ask for.
///
/// # Errors
/// They are not understood, or it could not measure.
pub fn command(words: &[&str]) -> Result<()> {
    match words {
        // Reads what cargo says of the packages, which needs what the benches need.
        ["package", options @ ..] => crate::package::run(crate::root(), options),
        ["bench", "tap", options @ ..] => tap::run_with(options),
        ["bench", "fleet", options @ ..] => fleet::run_with(options),
        ["bench", "cache", options @ ..] => cache::run_with(options),
        ["bench", "gateway", options @ ..] => gateway::run_with(options),
        ["bench", "capacity", options @ ..] => capacity::run_with(options),
        ["bench", "compare", options @ ..] => compare::run_with(options),
        ["bench", "predict", options @ ..] => predict::run_with(options),
        ["bench", "runs", options @ ..] => runs::run_with(options),
        ["bench", "viewers", options @ ..] => viewers::run_with(options),
        ["bench", name] => run(name),
        ["bench"] => bail!("which one?\n{}", list()),
        // Both ends of the traffic by which `bench path` judges the path, started by it at both ends of one.
        ["udp-echo", port] => udp_echo(port),
        ["udp-send", profile, clients, rate_per_s, seconds, port] => {
            udp_send(Path::new(profile), [clients, rate_per_s, seconds, port])
        }
        // One program of which `bench watch` wants the kernel's account, alone in a process.
        ["measured", file, words @ ..] => watch::measure(Path::new(file), words),
        // The attackers of `bench attack`, in a process with a priority of its own.
        ["attack", name, address, folder] => attack::attack(name, address, folder),
        _ => bail!("`{}` is not understood; there are these benches:\n{}", words.join(" "), list()),
    }
}

/// Runs the bench called `name`.
///
/// # Errors
/// There is none of that name, or it could not measure.
fn run(name: &str) -> Result<()> {
    match BENCHES.iter().find(|bench| bench.name == name) {
        Some(bench) => (bench.run)(),
        None => bail!("there is no bench `{name}`; there are:\n{}", list()),
    }
}

/// A line for each bench.
fn list() -> String {
    BENCHES.iter().map(|bench| format!("  {:11} {}", bench.name, bench.about)).collect::<Vec<_>>().join("\n")
}

fn udp_echo(port: &str) -> Result<()> {
    udp::echo(port.parse().context("the port of udp-echo")?)
}

fn udp_send(profile: &Path, [clients, rate_per_s, seconds, port]: [&str; 4]) -> Result<()> {
    udp::send(
        profile,
        clients.parse().context("the clients of udp-send")?,
        rate_per_s.parse().context("the rate of udp-send, packets a second")?,
        seconds.parse().context("the seconds of udp-send")?,
        port.parse().context("the port of udp-send")?,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_bench_is_refused_with_the_known_names() {
        for words in [&["bench", "nonsense"][..], &["bench"], &["udp-send", "a", "b"]] {
            let error = command(words).unwrap_err().to_string();
            assert!(error.contains("  load ") && error.contains("  path "), "{error}");
        }
        assert!(run("nonsense").unwrap_err().to_string().contains("no bench `nonsense`"));
    }
}
