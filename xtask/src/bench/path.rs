//! `cargo xtask bench path`: accuracy and cost of the path.
//!
//! 1. Accuracy, measured outside of the path: 25,000 UDP packets/s of Poisson arrivals up and their echoes down (50,000
//!    packets/s) over 10,000 clients, with RTTs spread log-normally about 48 ms, and with 48 ms for all. With the
//!    machine's part: late wake-ups, waits for a core, CPU steal.
//! 2. Bursts: a closed loop of 64 connections at 48 ms, whose packets are due at the same time.
//! 3. Throughput: wrk to nginx through a path without delay and directly, alternately, with an A/A pair.
//! 4. Cost: nanoseconds per packet in the path itself, for 1 to 60,000 clients, alternately
//!    (`crates/path/examples/path_cost.rs`), and CPU time of the path's thread including the devices, for 1 and 60,000.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};
use schema::{Document, Quantiles};

use super::rounds::{line, ratio};
use super::servers::{PORT, Running, Site, need, output, wrk_figures, yamabiko};
use super::udp::UdpResult;

const CLIENTS: u32 = 10_000;
const PACKETS_PER_S_UP: u32 = 25_000;
const SECONDS: u64 = 10;
const MANY_CLIENTS: u32 = 60_000;
const COST_ROUNDS: usize = 5;
const ACCURACY_ROUNDS: usize = 3;
const THROUGHPUT_ROUNDS: usize = 7;
const UDP_PORT: u16 = 18081;

const SPREAD: &str = "name = \"spread\"\nabout = \"bench: log-normal, median 48 ms, sigma 0.8\"\n[[clients]]\nshare = 1.0\n\
                      rtt = { lognormal = { median = \"48ms\", sigma = 0.8, min = \"2ms\", max = \"2s\" } }\n";
const CONSTANT: &str =
    "name = \"constant\"\nabout = \"bench: 48 ms for all\"\n[[clients]]\nshare = 1.0\nrtt = \"48ms\"\n";

/// Runs the bench and prints it.
pub fn run() -> Result<()> {
    for program in ["wrk", "nginx", "taskset"] {
        need(program)?;
    }
    let yamabiko = yamabiko()?;
    let site = Site::new()?;
    println!("path: {PACKETS_PER_S_UP}/s up and as many echoes down, Poisson, {CLIENTS} clients, {SECONDS} s a round");
    println!("  us: median / p99 / p99.9");
    for (label, profile) in [("spread", SPREAD), ("48 ms for all", CONSTANT)] {
        let file = site.path("profile.toml");
        fs::write(&file, profile)?;
        for _ in 0..ACCURACY_ROUNDS {
            accuracy(&yamabiko, &site, label, &file)?;
        }
    }
    bursts(&yamabiko, &site)?;
    throughput(&yamabiko, &site)?;
    through_devices(&yamabiko, &site)?;
    cost()
}

/// Runs a separate program, so that the path is measured in a release build.
fn cost() -> Result<()> {
    let text = output(Command::new("cargo").args([
        "run",
        "--release",
        "--locked",
        "--quiet",
        "--package",
        "path",
        "--example",
        "path_cost",
    ]))?;
    print!("cost: {text}");
    Ok(())
}

/// CPU time per packet of the path's thread with reads, writes and waiting: one client and 60,000 clients, alternately.
/// The mean RTT is the same: one client with 48 ms, or all clients of the profile.
fn through_devices(yamabiko: &Path, site: &Site) -> Result<()> {
    let file = site.path("profile.toml");
    let mut rounds: [Vec<f64>; 2] = [Vec::new(), Vec::new()];
    for _ in 0..COST_ROUNDS {
        for (clients, rounds) in [1, MANY_CLIENTS].into_iter().zip(&mut rounds) {
            fs::write(&file, CONSTANT)?;
            let (_, document) = send_and_echo(yamabiko, site, &file, clients)?;
            let busy = document.run.host.settings.get("loop_busy").context("the loop's share is not stated")?;
            let busy: f64 = busy.trim_end_matches('%').parse()?;
            let packets = document.path.context("the document has no path part")?.packets;
            rounds.push(busy / 100.0 * document.run.duration_s * 1e9 / packets.max(1) as f64);
        }
    }
    println!(
        "cost through the devices, 48 ms for all, ns of the path's thread a packet, {PACKETS_PER_S_UP}/s and echoes"
    );
    println!("{}", line("1 client", "ns", &rounds[0]));
    println!("{}", line(&format!("{MANY_CLIENTS} clients"), "ns", &rounds[1]));
    println!("  many / one {:.3}", ratio(&rounds[1], &rounds[0]));
    Ok(())
}

fn accuracy(yamabiko: &Path, site: &Site, label: &str, profile: &Path) -> Result<()> {
    let (udp, document) = send_and_echo(yamabiko, site, profile, CLIENTS)?;
    let path = document.path.context("the document has no path part")?;
    let ms = |ns: u64| ns as f64 / 1e6;
    println!(
        "  {label:<14} RTT error {}; timing error: isolated {} (without late wake-ups {}), bursts {} ({:.1} % of \
         packets); up, in the capture {}; send lag {}; {} sent, {} back; path busy {}; woken late for {:.1} ms, waited \
         {} for a core, steal {}",
        p50_p99_p99_9(&udp.rtt_error_ns),
        p50_p99_p99_9(&path.timing_error_isolated_ns),
        p50_p99_p99_9(&path.timing_error_own_ns),
        p50_p99_p99_9(&path.timing_error_burst_ns),
        100.0 * path.timing_error_burst_ns.count as f64 / path.timing_error_ns.count.max(1) as f64,
        p50_p99_p99_9(&udp.up_error_ns),
        p50_p99_p99_9(&udp.send_lag_ns),
        udp.sent,
        udp.received,
        document.run.host.settings.get("loop_busy").map_or("?", String::as_str),
        ms(path.late_wakeups_ns),
        path.run_queue_wait_ns.map_or("?".into(), |ns| format!("{:.1} ms", ms(ns))),
        document.run.host.steal_share.map_or("?".into(), |share| format!("{:.2} %", 100.0 * share)),
    );
    Ok(())
}

/// Sends UDP packets of `clients` clients upstream, which are echoed downstream; returns the results of the
/// sender and of the path.
fn send_and_echo(yamabiko: &Path, site: &Site, profile: &Path, clients: u32) -> Result<(UdpResult, Document)> {
    let xtask = std::env::current_exe()?;
    let json = site.path("net.json");
    let text = output(
        Command::new(yamabiko)
            .args(["net", "--clients", &clients.to_string(), "--path"])
            .arg(profile)
            .arg("--server")
            .arg(format!("exec taskset -c 0 '{}' udp-echo {UDP_PORT}", xtask.display()))
            .arg("--json")
            .arg(&json)
            .args(["--", "taskset", "-c", "0"])
            .arg(&xtask)
            .arg("udp-send")
            .arg(profile)
            .args([clients.to_string(), PACKETS_PER_S_UP.to_string(), SECONDS.to_string(), UDP_PORT.to_string()]),
    )?;
    let udp: UdpResult = serde_json::from_str(text.trim()).with_context(|| text.clone())?;
    Ok((udp, serde_json::from_slice(&fs::read(&json)?)?))
}

fn bursts(yamabiko: &Path, site: &Site) -> Result<()> {
    let text = output(
        Command::new(yamabiko)
            .args(["bench", &format!("http://server:{PORT}/1k.bin"), "--server", &site.nginx()])
            .args(["--rtt", "48ms", "-c", "64", "-d", "5s", "--watch", "none", "--json", "--no-save"]),
    )?;
    let path = serde_json::from_str::<Document>(&text)?.path.context("the document has no path part")?;
    println!(
        "bursts: closed loop, 64 connections, 48 ms for all: timing error of bursts {}, of isolated packets {}",
        p50_p99_p99_9(&path.timing_error_burst_ns),
        p50_p99_p99_9(&path.timing_error_isolated_ns)
    );
    Ok(())
}

fn throughput(yamabiko: &Path, site: &Site) -> Result<()> {
    for (file, connections, label) in [("1k.bin", "64", "1 KB"), ("1m.bin", "16", "1 MB")] {
        let wrk = |url: String| {
            let mut wrk = Command::new("wrk");
            wrk.args(["-t1", "-c", connections, "-d2s", &url]);
            wrk
        };
        let direct = || -> Result<(f64, f64)> {
            let _nginx = Running::start(&site.nginx(), None)?;
            wrk_figures(&output(&mut wrk(format!("http://127.0.0.1:{PORT}/{file}")))?)
        };
        let through = |watch: &str| -> Result<(f64, f64)> {
            let inner = wrk(format!("http://server:{PORT}/{file}"));
            let mut net = Command::new(yamabiko);
            net.args(["net", "--rtt", "0ms", "--watch", watch, "--server", &site.nginx(), "--"])
                .arg(inner.get_program())
                .args(inner.get_args());
            wrk_figures(&output(&mut net)?)
        };
        let (mut a, mut b, mut watched, mut again) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for _ in 0..THROUGHPUT_ROUNDS {
            a.push(direct()?);
            b.push(through("none")?);
            watched.push(through("server")?);
            again.push(direct()?);
            std::thread::sleep(Duration::from_millis(200));
        }
        let requests = |rounds: &[(f64, f64)]| rounds.iter().map(|&(requests, _)| requests).collect::<Vec<_>>();
        let megabytes = |rounds: &[(f64, f64)]| rounds.iter().map(|&(_, bytes)| bytes / 1e6).collect::<Vec<_>>();
        println!("throughput, {label}, wrk -c {connections} to nginx, no delay, nothing pinned");
        println!("{}", line("direct", "req/s", &requests(&a)));
        println!("{}", line("through the path", "req/s", &requests(&b)));
        println!("{}", line("through the path", "MB/s", &megabytes(&b)));
        println!("{}", line("through, watched", "req/s", &requests(&watched)));
        println!(
            "  through / direct {:.3}; watched / direct {:.3}; direct / direct again {:.3}",
            ratio(&requests(&b), &requests(&a)),
            ratio(&requests(&watched), &requests(&a)),
            ratio(&requests(&a), &requests(&again))
        );
    }
    Ok(())
}

fn p50_p99_p99_9(quantiles: &Quantiles) -> String {
    let us = |ns: u64| ns as f64 / 1e3;
    format!("{:.1} / {:.1} / {:.1}", us(quantiles.p50), us(quantiles.p99), us(quantiles.p99_9))
}
