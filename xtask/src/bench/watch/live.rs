//! Captures at a device, beside load.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::verdict;
use crate::bench::rounds::{line, ratio};
use crate::bench::servers::{PORT, Site};

const ROUNDS: usize = 3;
/// How long the watchers look, from half a second before the server is there: they must have said what they lost
/// before the end of the run ends them. The load lasts a second longer than they look at it.
const WATCHED_S: f64 = 7.5;
const LOADED: &str = "10s";

/// Loads: what they are called, and arguments of `bench`.
const LOADS: [(&str, &[&str]); 4] = [
    ("8,000 requests/s", &["--rate", "8000/s", "-c", "256"]),
    ("20,000 requests/s", &["--rate", "20000/s", "-c", "256"]),
    ("40,000 requests/s", &["--rate", "40000/s", "-c", "256"]),
    ("closed loop, 64 connections", &["-c", "64"]),
];

/// Who stands at the server's door.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Watcher {
    Nobody,
    Tcpdump,
    Watch,
    OwnCapture,
}

impl Watcher {
    fn name(self) -> &'static str {
        match self {
            Watcher::Nobody => "nobody",
            Watcher::Tcpdump => "tcpdump -w -s 128",
            Watcher::Watch => "yamabiko watch -i s0",
            Watcher::OwnCapture => "bench --watch server",
        }
    }
}

/// One run.
#[derive(Clone, Copy, Debug)]
struct Round {
    achieved_per_s: f64,
    p99_us: f64,
    packets: u64,
    drops: u64,
}

/// Every load with every watcher.
pub fn run(yamabiko: &Path, site: &Site) -> Result<()> {
    // A capture inside the run exists if `bench` has the flag, and is then on by default.
    let help = Command::new(yamabiko).args(["bench", "--help"]).output()?;
    let has_capture = String::from_utf8_lossy(&help.stdout).contains("--watch");
    let mut watchers = vec![Watcher::Nobody, Watcher::Tcpdump, Watcher::Watch];
    watchers.extend(has_capture.then_some(Watcher::OwnCapture));
    for (label, load) in LOADS {
        let mut rounds = vec![Vec::new(); watchers.len()];
        for _ in 0..ROUNDS {
            for (watcher, rounds) in watchers.iter().zip(&mut rounds) {
                rounds.push(round(yamabiko, site, *watcher, has_capture, load)?);
            }
        }
        print(label, &watchers, &rounds);
    }
    Ok(())
}

fn print(label: &str, watchers: &[Watcher], rounds: &[Vec<Round>]) {
    println!("watch, live: {label}, 1 KB, keep-alive, nginx, through the path without delay");
    let carried = |at: usize| rounds[at].iter().map(|round| round.achieved_per_s).collect::<Vec<_>>();
    let drops = |at: usize| rounds[at].iter().map(|round| round.drops).sum::<u64>();
    for (at, watcher) in watchers.iter().enumerate() {
        println!("{}", line(watcher.name(), "req/s", &carried(at)));
        println!("{}", line("  response time p99", "us", &rounds[at].iter().map(|r| r.p99_us).collect::<Vec<_>>()));
        if *watcher != Watcher::Nobody {
            println!(
                "    requests/s beside nobody's {:.3}; {} of {} packets dropped by the kernel",
                ratio(&carried(at), &carried(0)),
                drops(at),
                rounds[at].iter().map(|round| round.packets).sum::<u64>()
            );
        }
    }
    for (at, watcher) in watchers.iter().enumerate().skip(2) {
        let fair = drops(1) > 0 || drops(at) == 0;
        println!("  {}: no drop where tcpdump has none: {}", watcher.name(), verdict(fair));
    }
}

fn round(yamabiko: &Path, site: &Site, watcher: Watcher, has_capture: bool, load: &[&str]) -> Result<Round> {
    let [log, errors, dump] = ["watcher.log", "watcher.errors", "live.pcap"].map(|name| site.path(name));
    let beside = match watcher {
        Watcher::Nobody | Watcher::OwnCapture => String::new(),
        Watcher::Tcpdump => format!(
            "timeout -s INT {WATCHED_S} tcpdump -i s0 -s 128 -Z root -w {} > {} 2>&1 & ",
            dump.display(),
            log.display()
        ),
        Watcher::Watch => format!(
            "YAMABIKO_RUNS={} {} watch -i s0 -d {WATCHED_S}s --json > {} 2> {} & ",
            site.path("runs").display(),
            yamabiko.display(),
            log.display(),
            errors.display()
        ),
    };
    let server = format!("{beside}sleep 0.5; {}", site.nginx());
    let mut bench = Command::new(yamabiko);
    bench.args(["bench", &format!("http://server:{PORT}/1k.bin"), "--rtt", "0ms", "--server", &server]);
    bench.args(["-d", LOADED, "--no-save", "--json"]).args(load);
    if has_capture {
        bench.args(["--watch", if watcher == Watcher::OwnCapture { "server" } else { "none" }]);
    }
    let done = bench.output().with_context(|| format!("{bench:?}"))?;
    if !matches!(done.status.code(), Some(0 | 3)) {
        bail!("{bench:?}: {}: {}", done.status, String::from_utf8_lossy(&done.stderr).trim());
    }
    let document: Value = serde_json::from_slice(&done.stdout)?;
    let said = std::fs::read_to_string(&log).unwrap_or_default();
    let (packets, drops) = match watcher {
        Watcher::Nobody => (0, 0),
        Watcher::Tcpdump => of_tcpdump(&said)?,
        Watcher::Watch => {
            let document = serde_json::from_str(&said).with_context(|| {
                format!("watch said `{said}` and `{}`", std::fs::read_to_string(&errors).unwrap_or_default().trim())
            });
            of_watch(&document?)?
        }
        Watcher::OwnCapture => of_watch(&document)?,
    };
    for path in [log, errors, dump] {
        let _ = std::fs::remove_file(path);
    }
    let _ = std::fs::remove_dir_all(site.path("runs"));
    let load = &document["load"];
    Ok(Round {
        achieved_per_s: load["achieved_rate_per_s"].as_f64().context("load.achieved_rate_per_s")?,
        p99_us: load["response_time_ns"]["p99"].as_f64().context("load.response_time_ns.p99")? / 1e3,
        packets,
        drops,
    })
}

/// Packets captured, and those `dropped by kernel`.
fn of_tcpdump(said: &str) -> Result<(u64, u64)> {
    let count = |what: &str| {
        let line = said.lines().find(|line| line.ends_with(what)).with_context(|| format!("`{what}` in {said}"))?;
        line.split(' ').next().unwrap_or_default().parse::<u64>().with_context(|| line.to_owned())
    };
    Ok((count("captured")?, count("dropped by kernel")?))
}

fn of_watch(document: &Value) -> Result<(u64, u64)> {
    let count = |name: &str| document["watch"][name].as_u64().with_context(|| format!("watch.{name}"));
    Ok((count("packets")?, count("capture_drops")?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_summary_of_tcpdump_is_parsed() {
        let said = "tcpdump: listening on s0, link-type RAW\n\
                    31 packets captured\n40 packets received by filter\n9 packets dropped by kernel\n";
        assert_eq!(of_tcpdump(said).unwrap(), (31, 9));
        assert!(of_tcpdump("tcpdump: s0: no such device\n").is_err());
    }
}
