//! Captures read from files.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::measured::{Usage, measure_in_process};
use super::verdict;
use crate::bench::rounds::{line, median, ratio};
use crate::bench::servers::{PORT, Site, output};

const ROUNDS: usize = 5;
const MIN_PACKETS: u64 = 500_000;
/// Target speed, as a multiple of tcptrace's packets per second.
const SPEED_TARGET: f64 = 10.0;
/// Target peak memory, as a share of tcptrace's.
const MEMORY_TARGET: f64 = 0.1;

/// Captured traffic: name, and arguments of `bench`.
const TRAFFIC: [(&str, &[&str]); 2] = [
    ("64 persistent connections", &["-c", "64", "-n", "320000"]),
    ("a connection a request", &["-c", "64", "-n", "75000", "--clients", "1000", "--close"]),
];

/// Measures all programs with both captures.
pub fn run(yamabiko: &Path, site: &Site) -> Result<()> {
    for (label, arguments) in TRAFFIC {
        let capture = make(yamabiko, site, arguments)?;
        let (packets, connections) = contents(yamabiko, &capture)?;
        println!(
            "watch, from a file: {label}: {packets} packets, {connections} connections, snaplen 128, {:.0} MB",
            std::fs::metadata(&capture)?.len() as f64 / 1e6
        );
        if packets < MIN_PACKETS {
            bail!("the capture has {packets} packets only");
        }
        compare(yamabiko, site, &capture, packets)?;
        std::fs::remove_file(&capture)?;
    }
    Ok(())
}

/// Captures real traffic of `bench` and nginx at the server's end of a path, with tcpdump.
fn make(yamabiko: &Path, site: &Site, arguments: &[&str]) -> Result<PathBuf> {
    let file = site.path("capture.pcap");
    let server = format!(
        "tcpdump -i s0 -s 128 -B 262144 -Z root -w {} > {} 2>&1 & sleep 0.5; {}",
        file.display(),
        site.path("tcpdump.log").display(),
        site.nginx()
    );
    let mut bench = Command::new(yamabiko);
    bench.args(["bench", &format!("http://server:{PORT}/1k.bin"), "--rtt", "0ms", "--server", &server]);
    bench.args(["-d", "60s", "--no-save", "--json"]).args(arguments);
    // Exit status 3 (invalid) is ignored: only the traffic matters.
    let done = bench.output().with_context(|| format!("{bench:?}"))?;
    if !matches!(done.status.code(), Some(0 | 3)) {
        bail!("{bench:?}: {}: {}", done.status, String::from_utf8_lossy(&done.stderr).trim());
    }
    Ok(file)
}

/// Number of packets and of connections.
fn contents(yamabiko: &Path, capture: &Path) -> Result<(u64, u64)> {
    let text = output(Command::new(yamabiko).args(["watch", "--json", "--no-save", "-r"]).arg(capture))?;
    let document: Value = serde_json::from_str(&text)?;
    let count = |value: &Value| value.as_u64().context("a count in the document of watch");
    Ok((count(&document["watch"]["packets"])?, count(&document["watch"]["connections"]["count"])?))
}

fn compare(yamabiko: &Path, site: &Site, capture: &Path, packets: u64) -> Result<()> {
    let watch = |more: &[&str]| {
        let mut command = Command::new(yamabiko);
        command.args(["watch", "--json", "-r"]).arg(capture).args(more).env("YAMABIKO_RUNS", site.path("runs"));
        command
    };
    let tcptrace = |options: &str| {
        let mut command = Command::new("tcptrace");
        command.arg(options).arg(capture);
        command
    };
    // `tcptrace -n` analyses everything and prints one line per connection, like the summary of watch without storing.
    // `tcptrace -nlr` prints every figure of every connection, like watch with a stored run (which also has every
    // request).
    let programs = [
        ("yamabiko watch --no-save", watch(&["--no-save"])),
        ("yamabiko watch, Parquet written", watch(&[])),
        ("tcptrace -n", tcptrace("-n")),
        ("tcptrace -nlr", tcptrace("-nlr")),
    ];
    let mut rounds: Vec<Vec<Usage>> = vec![Vec::new(); programs.len()];
    for _ in 0..ROUNDS {
        for ((_, command), rounds) in programs.iter().zip(&mut rounds) {
            rounds.push(measure_in_process(&site.path("usage.json"), command)?);
        }
        let _ = std::fs::remove_dir_all(site.path("runs"));
    }
    let speeds: Vec<Vec<f64>> = figures(&rounds, |usage| packets as f64 / usage.wall_s / 1e6);
    let memories: Vec<Vec<f64>> = figures(&rounds, |usage| usage.rss_bytes_max as f64 / 1e6);
    let cpu: Vec<Vec<f64>> = figures(&rounds, |usage| (usage.user_s + usage.system_s) / packets as f64 * 1e9);
    for (at, (name, _)) in programs.iter().enumerate() {
        println!("{}", line(name, "Mpkt/s", &speeds[at]));
        println!("{:36} {:>12.1} MB at most, {:.0} ns of CPU a packet", "", median(&memories[at]), median(&cpu[at]));
    }
    for (own, peer) in [(0, 2), (1, 3)] {
        let (speed, memory) = (ratio(&speeds[own], &speeds[peer]), ratio(&memories[own], &memories[peer]));
        println!(
            "  {} / {}: packets/s {speed:.1} (at least {SPEED_TARGET}: {}), memory {memory:.3} (at most \
             {MEMORY_TARGET}: {})",
            programs[own].0,
            programs[peer].0,
            verdict(speed >= SPEED_TARGET),
            verdict(memory <= MEMORY_TARGET),
        );
        println!("    by CPU time {:.1} times", ratio(&cpu[peer], &cpu[own]));
    }
    Ok(())
}

fn figures(rounds: &[Vec<Usage>], of: impl Fn(&Usage) -> f64) -> Vec<Vec<f64>> {
    rounds.iter().map(|rounds| rounds.iter().map(&of).collect()).collect()
}
