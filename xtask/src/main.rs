//! The project's own chores, run as `cargo xtask VERB`.
//!
//! `test` is what a contributor runs and what CI runs: [`test`] is its list of steps. [`packages`] makes a fresh
//! Debian ready for it, [`package`] makes what people install, [`tidy`] holds the rules that neither rustfmt nor clippy
//! knows, [`bench`] measures.
#![allow(clippy::disallowed_methods, reason = "chores time their steps, benches read the clock and wait")]

mod bench;
mod package;
mod packages;
mod rights;
mod tally;
mod test;
mod tidy;

use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context as _, Result};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let outcome = match words.as_slice() {
        // CI is the test verb and nothing else, so that what is green here is green there.
        ["ci"] | ["test"] => test::run(root(), test::Extent::Usual),
        ["test", "--full"] => test::run(root(), test::Extent::Full),
        ["tidy"] => tidy::run(root()),
        ["package", options @ ..] => package::run(root(), options),
        ["bench", "tap", options @ ..] => bench::tap::run_with(options),
        ["bench", "cache", options @ ..] => bench::cache::run_with(options),
        ["bench", "gateway", options @ ..] => bench::gateway::run_with(options),
        ["bench", "capacity", options @ ..] => bench::capacity::run_with(options),
        ["bench", "compare", options @ ..] => bench::compare::run_with(options),
        ["bench", "predict", options @ ..] => bench::predict::run_with(options),
        ["bench", "runs", options @ ..] => bench::runs::run_with(options),
        ["bench", name] => bench::run(name),
        ["bench"] => Err(anyhow::anyhow!("which one?\n{}", bench::list())),
        // Both ends of the traffic by which `bench path` judges the path, started by it at both ends of one.
        ["udp-echo", port] => udp_echo(port),
        ["udp-send", profile, clients, rate_per_s, seconds, port] => {
            udp_send(Path::new(profile), [clients, rate_per_s, seconds, port])
        }
        // One program of which `bench watch` wants the kernel's account, alone in a process.
        ["measured", file, words @ ..] => bench::watch::measure(Path::new(file), words),
        // The attackers of `bench attack`, in a process with a priority of its own.
        ["attack", name, address, folder] => bench::attack::attack(name, address, folder),
        ["help" | "--help" | "-h"] => {
            println!("{HELP}\nbenches:\n{}", bench::list());
            Ok(())
        }
        [] => Err(anyhow::anyhow!("no verb given\n{HELP}")),
        _ => Err(anyhow::anyhow!("`{}` is not understood\n{HELP}", arguments.join(" "))),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn udp_echo(port: &str) -> Result<()> {
    bench::udp::echo(port.parse().context("the port of udp-echo")?)
}

fn udp_send(profile: &Path, [clients, rate_per_s, seconds, port]: [&str; 4]) -> Result<()> {
    bench::udp::send(
        profile,
        clients.parse().context("the clients of udp-send")?,
        rate_per_s.parse().context("the rate of udp-send, packets a second")?,
        seconds.parse().context("the seconds of udp-send")?,
        port.parse().context("the port of udp-send")?,
    )
}

/// The folder of the workspace.
fn root() -> &'static Path {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here)
}

const HELP: &str = "\
cargo xtask test [--full]    make a fresh Debian ready, then run every check and test; --full adds the long ones
cargo xtask ci               the same as test: exactly what CI runs
cargo xtask tidy             the project's own rules: sizes, arrows between crates, where unsafe may be
cargo xtask package          what is given to people: a tarball and a .deb, in target/package
cargo xtask bench NAME       measure, beside a peer where there is one";
