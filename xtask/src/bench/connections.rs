//! `cargo xtask bench connections`: 100,000 concurrent connections from 10,000 addresses through the path, on one
//! machine, with requests over them.
//!
//! Generator and server use as many processes as the limit of open files requires. Results: whether every connection
//! was opened and kept open and every request is accounted for, memory per connection, and timing errors of generator
//! and path.

use std::process::Command;

use anyhow::{Context, Result};
use serde_json::Value;

use super::servers::yamabiko;

const CONNECTIONS: u64 = 100_000;
const CLIENTS: u64 = 10_000;
const RATE: &str = "5000/s";
const SECONDS: u64 = 10;
/// Maximum number of connections of one server process: 5,000 below the limit of 20,000 files, since the kernel
/// distributes connections randomly.
const MAX_PER_PROCESS: u64 = 15_000;
/// Names of the relevant validity checks.
const CHECKS: [&str; 8] = [
    "open_connections_established",
    "generator_on_time",
    "path_on_time",
    "no_unintended_drops",
    "conservation",
    "littles_law_connections",
    "vantage_points_agree_requests",
    "vantage_points_agree_connections",
];

/// Runs the bench and prints it.
pub fn run() -> Result<()> {
    let yamabiko = yamabiko()?;
    let processes = CONNECTIONS.div_ceil(MAX_PER_PROCESS);
    let server = format!("exec {} serve --max 1KiB --listen 0.0.0.0:8080 --processes {processes}", yamabiko.display());
    // The run ends by itself. An invalid run has exit status 3 and also prints a document.
    let output = Command::new(&yamabiko)
        .args(["bench", "http://server:8080/", "--server", &server, "--rtt", "40ms"])
        .args(["--open-connections", &CONNECTIONS.to_string(), "--clients", &CLIENTS.to_string()])
        .args(["--rate", RATE, "-d", &format!("{SECONDS}s"), "--json", "--no-save"])
        .output()
        .context("yamabiko")?;
    let document: Value = serde_json::from_slice(&output.stdout)
        .with_context(|| String::from_utf8_lossy(&output.stderr).trim().to_owned())?;
    print(&document);
    Ok(())
}

fn print(document: &Value) {
    let load = &document["load"];
    let held = &load["held"];
    let number = |value: &Value| value.as_f64().unwrap_or(f64::NAN);
    println!(
        "\n{} connections from {CLIENTS} addresses, 40 ms away, in {} processes; {RATE} over them for {SECONDS} s: open {:.0} \
         (mean), not opened {}; {} requests, {} whole; {:.0} B a connection in the generator, {:.0} B in the kernel (both \
         ends); send lag p50 {:.0} us, p99 {:.0} us; timing error p50 {:.0} us, p99 {:.0} us",
        held["connections"],
        held["processes"],
        number(&load["connections"]["mean"]),
        held["failed"],
        load["offered_requests"],
        load["completed"],
        number(&held["generator_bytes_each"]),
        number(&held["kernel_bytes_each"]),
        number(&load["send_lag_ns"]["p50"]) / 1e3,
        number(&load["send_lag_ns"]["p99"]) / 1e3,
        number(&document["path"]["timing_error_ns"]["p50"]) / 1e3,
        number(&document["path"]["timing_error_ns"]["p99"]) / 1e3,
    );
    let checks = document["validity"]["checks"].as_array().map(Vec::as_slice).unwrap_or_default();
    println!("verdict: {}", document["validity"]["verdict"]);
    for check in checks {
        let named = CHECKS.iter().any(|name| check["name"] == *name);
        if named || check["state"] == "failed" || check["state"] == "could_not_run" {
            println!("  {} {} {} ({})", check["name"], check["state"], check["value"], check["unit"]);
        }
    }
}
