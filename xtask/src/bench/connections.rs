//! `cargo xtask bench connections`: 100,000 connections open at once from 10,000 addresses through the path, on one
//! machine, while requests go on over them.
//!
//! Generator and server divide themselves among as many processes as the limit of open files asks for. What is to be seen:
//! that every connection was opened and held and every request accounted for, what a connection costs in memory, and how
//! late generator and path were meanwhile.

use std::process::Command;

use anyhow::{Context, Result};
use serde_json::Value;

use super::servers::yamabiko;

const CONNECTIONS: u64 = 100_000;
const CLIENTS: u64 = 10_000;
const RATE: &str = "5000/s";
const SECONDS: u64 = 10;
/// Connections that one process of the server gets at most: 5,000 below the usual limit of 20,000 files here, since the
/// kernel spreads connections by chance.
const EACH: u64 = 15_000;
/// What the document calls the checks that bear on it.
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
    let processes = CONNECTIONS.div_ceil(EACH);
    let server = format!("exec {} serve --max 1KiB --listen 0.0.0.0:8080 --processes {processes}", yamabiko.display());
    // Ends by its own time; what is not valid has its own exit status and a document all the same.
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
