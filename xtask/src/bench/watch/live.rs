//! Captures at a device during load.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::verdict;
use crate::bench::rounds::{line, ratio};
use crate::bench::servers::{PORT, Site};

const ROUNDS: usize = 3;
/// Duration of the captures, from 0.5 s before the server starts: they must report their lost packets before the run
/// ends them. The load lasts a second longer.
const CAPTURE_S: f64 = 7.5;
const LOAD_DURATION: &str = "10s";

/// Loads: name, and arguments of `bench`.
const LOADS: [(&str, &[&str]); 4] = [
    ("8,000 requests/s", &["--rate", "8000/s", "-c", "256"]),
    ("20,000 requests/s", &["--rate", "20000/s", "-c", "256"]),
    ("40,000 requests/s", &["--rate", "40000/s", "-c", "256"]),
    ("closed loop, 64 connections", &["-c", "64"]),
];

/// The program that captures at the server's end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CaptureProgram {
    None,
    Tcpdump,
    Watch,
    OwnCapture,
}

impl CaptureProgram {
    fn name(self) -> &'static str {
        match self {
            CaptureProgram::None => "none",
            CaptureProgram::Tcpdump => "tcpdump -w -s 128",
            CaptureProgram::Watch => "yamabiko watch -i s0",
            CaptureProgram::OwnCapture => "bench --watch server",
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

/// Measures every load with every capturing program.
pub fn run(yamabiko: &Path, site: &Site) -> Result<()> {
    // The run has its own capture, on by default, if `bench` has the option.
    let help = Command::new(yamabiko).args(["bench", "--help"]).output()?;
    let has_capture = String::from_utf8_lossy(&help.stdout).contains("--watch");
    let mut capture_programs = vec![CaptureProgram::None, CaptureProgram::Tcpdump, CaptureProgram::Watch];
    capture_programs.extend(has_capture.then_some(CaptureProgram::OwnCapture));
    for (label, load) in LOADS {
        let mut rounds = vec![Vec::new(); capture_programs.len()];
        for _ in 0..ROUNDS {
            for (capture_program, rounds) in capture_programs.iter().zip(&mut rounds) {
                rounds.push(round(yamabiko, site, *capture_program, has_capture, load)?);
            }
        }
        print(label, &capture_programs, &rounds);
    }
    Ok(())
}

fn print(label: &str, capture_programs: &[CaptureProgram], rounds: &[Vec<Round>]) {
    println!("watch, live: {label}, 1 KB, keep-alive, nginx, through the path without delay");
    let achieved = |at: usize| rounds[at].iter().map(|round| round.achieved_per_s).collect::<Vec<_>>();
    let drops = |at: usize| rounds[at].iter().map(|round| round.drops).sum::<u64>();
    for (at, capture_program) in capture_programs.iter().enumerate() {
        println!("{}", line(capture_program.name(), "req/s", &achieved(at)));
        println!("{}", line("  response time p99", "us", &rounds[at].iter().map(|r| r.p99_us).collect::<Vec<_>>()));
        if *capture_program != CaptureProgram::None {
            println!(
                "    requests/s relative to no capture {:.3}; {} of {} packets dropped by the kernel",
                ratio(&achieved(at), &achieved(0)),
                drops(at),
                rounds[at].iter().map(|round| round.packets).sum::<u64>()
            );
        }
    }
    for (at, capture_program) in capture_programs.iter().enumerate().skip(2) {
        let fair = drops(1) > 0 || drops(at) == 0;
        println!("  {}: no drop where tcpdump has none: {}", capture_program.name(), verdict(fair));
    }
}

fn round(
    yamabiko: &Path,
    site: &Site,
    capture_program: CaptureProgram,
    has_capture: bool,
    load: &[&str],
) -> Result<Round> {
    let [log, errors, dump] =
        ["capture_program.log", "capture_program.errors", "live.pcap"].map(|name| site.path(name));
    let capture_command = match capture_program {
        CaptureProgram::None | CaptureProgram::OwnCapture => String::new(),
        CaptureProgram::Tcpdump => format!(
            "timeout -s INT {CAPTURE_S} tcpdump -i s0 -s 128 -Z root -w {} > {} 2>&1 & ",
            dump.display(),
            log.display()
        ),
        CaptureProgram::Watch => format!(
            "YAMABIKO_RUNS={} {} watch -i s0 -d {CAPTURE_S}s --json > {} 2> {} & ",
            site.path("runs").display(),
            yamabiko.display(),
            log.display(),
            errors.display()
        ),
    };
    let server = format!("{capture_command}sleep 0.5; {}", site.nginx());
    let mut bench = Command::new(yamabiko);
    bench.args(["bench", &format!("http://server:{PORT}/1k.bin"), "--rtt", "0ms", "--server", &server]);
    bench.args(["-d", LOAD_DURATION, "--no-save", "--json"]).args(load);
    if has_capture {
        bench.args(["--watch", if capture_program == CaptureProgram::OwnCapture { "server" } else { "none" }]);
    }
    let done = bench.output().with_context(|| format!("{bench:?}"))?;
    if !matches!(done.status.code(), Some(0 | 3)) {
        bail!("{bench:?}: {}: {}", done.status, String::from_utf8_lossy(&done.stderr).trim());
    }
    let document: Value = serde_json::from_slice(&done.stdout)?;
    let output_text = std::fs::read_to_string(&log).unwrap_or_default();
    let (packets, drops) = match capture_program {
        CaptureProgram::None => (0, 0),
        CaptureProgram::Tcpdump => of_tcpdump(&output_text)?,
        CaptureProgram::Watch => {
            let document = serde_json::from_str(&output_text).with_context(|| {
                format!(
                    "watch printed `{output_text}` and `{}`",
                    std::fs::read_to_string(&errors).unwrap_or_default().trim()
                )
            });
            of_watch(&document?)?
        }
        CaptureProgram::OwnCapture => of_watch(&document)?,
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
fn of_tcpdump(output_text: &str) -> Result<(u64, u64)> {
    let count = |what: &str| {
        let line = output_text
            .lines()
            .find(|line| line.ends_with(what))
            .with_context(|| format!("`{what}` in {output_text}"))?;
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
        let output_text = "tcpdump: listening on s0, link-type RAW\n\
                    31 packets captured\n40 packets received by filter\n9 packets dropped by kernel\n";
        assert_eq!(of_tcpdump(output_text).unwrap(), (31, 9));
        assert!(of_tcpdump("tcpdump: s0: no such device\n").is_err());
    }
}
