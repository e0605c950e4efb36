//! Benches: each prints its results, the results of a peer program, and the ratio. A bench fails only if it could not
//! measure.
//!
//! To add a bench, write `bench/NAME.rs` with a function `run`, and add it to [`BENCHES`]. [`servers`] starts the
//! peers, [`rounds`] compares figures, and [`udp`] is the traffic for measuring the path.

mod attack;
mod cache;
mod capacity;
mod compare;
mod connections;
mod emulators;
mod explain;
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
    /// One line that describes what the bench measures.
    about: &'static str,
    /// Measures and prints the results.
    run: fn() -> Result<()>,
}

/// All benches.
const BENCHES: &[Bench] = &[
    Bench {
        name: "load",
        about: "requests per second of one client core, compared with wrk, h2load and oha [--only PART]",
        run: load::run,
    },
    Bench {
        name: "connections",
        about: "100,000 concurrent connections through the path, from several processes",
        run: connections::run,
    },
    Bench {
        name: "path",
        about: "configured against measured RTT, timing error, requests and bytes against direct",
        run: path::run,
    },
    Bench {
        name: "emulators",
        about: "yamabiko compared with mahimahi and rattan, where found [--only PART] [--rounds N] [--seconds N] [--quick] [--json FILE] [--pages FOLDER] [--binary FILE]",
        run: emulators::run,
    },
    Bench {
        name: "explain",
        about: "cost of keeping packets, time and memory of explaining, limits named right [--only PART] [--rounds N] [--seconds N] [--binary FILE] [--before FILE]",
        run: explain::run,
    },
    Bench { name: "replay", about: "a log of a million requests at its own times", run: replay::run },
    Bench {
        name: "serve",
        about: "requests per second of one server core, compared with nginx, Apache, Caddy and an upper bound [--only PART]",
        run: serve::run,
    },
    Bench { name: "attack", about: "what attacks on a server do to its other clients", run: attack::run },
    Bench {
        name: "watch",
        about: "packets per second and memory compared with tcptrace, drops with tcpdump",
        run: watch::run,
    },
    Bench {
        name: "tap",
        about: "a hook in nanoseconds, wrk and curl without, with the tap and under strace [--rounds N] [--seconds N]",
        run: tap::run,
    },
    Bench {
        name: "fleet",
        about: "many agents and a manager with injected faults, each row checked [--agents N] [--seconds N] [--rate N] [--hold S] [--quiet]",
        run: fleet::run,
    },
    Bench {
        name: "cache",
        about: "exchanges per second of virtual users and origin together, without a cache [--rounds N] [--seconds N]",
        run: cache::run,
    },
    Bench {
        name: "capacity",
        about: "a known capacity found ten times, four servers five times each, compared with httperf [--only PART] [--rounds N] [--seconds N]",
        run: capacity::run,
    },
    Bench {
        name: "compare",
        about: "a server compared with itself twenty times, and with one 5 % slower [--only PART] [--rounds N] [--seconds N]",
        run: compare::run,
    },
    Bench {
        name: "predict",
        about: "capacity of five sites, predicted and measured [--only SITE] [--rounds N] [--seconds N]",
        run: predict::run,
    },
    Bench {
        name: "gateway",
        about: "forwarding compared with iperf3 in the same testbed, storage with fio [--rounds N] [--seconds N]",
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

/// Runs the command in the arguments after `cargo xtask`.
///
/// # Errors
/// The command is unknown, or the bench could not measure.
pub fn command(words: &[&str]) -> Result<()> {
    match words {
        // `package` reads cargo's metadata as JSON, which needs dependencies of the benches.
        ["package", options @ ..] => crate::package::run(crate::root(), options),
        ["bench", "load", options @ ..] => load::run_with(options),
        ["bench", "serve", options @ ..] => serve::run_with(options),
        ["bench", "tap", options @ ..] => tap::run_with(options),
        ["bench", "emulators", options @ ..] => emulators::run_with(options),
        ["bench", "explain", options @ ..] => explain::run_with(options),
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
        // Sender and echo of the traffic of `bench path`, which starts them at both ends of a path.
        ["udp-echo", port] => udp_echo(port),
        ["udp-send", profile, clients, rate_per_s, seconds, port] => {
            udp_send(Path::new(profile), [clients, rate_per_s, seconds, port])
        }
        // Runs one program as the only child of a process, so that `bench watch` can read its resource usage.
        ["measured", file, words @ ..] => watch::measure(Path::new(file), words),
        // The attackers of `bench attack`, in a process with its own priority.
        ["attack", name, address, folder] => attack::attack(name, address, folder),
        _ => bail!("`{}` is not understood; there are these benches:\n{}", words.join(" "), list()),
    }
}

/// Runs the bench called `name`.
///
/// # Errors
/// No bench has this name, or the bench could not measure.
fn run(name: &str) -> Result<()> {
    match BENCHES.iter().find(|bench| bench.name == name) {
        Some(bench) => (bench.run)(),
        None => bail!("unknown bench `{name}`; benches are:\n{}", list()),
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
        assert!(run("nonsense").unwrap_err().to_string().contains("unknown bench `nonsense`"));
    }
}
