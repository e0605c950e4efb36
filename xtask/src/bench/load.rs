//! `cargo xtask bench load`: the generator beside wrk, and whether an open loop stays on time.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};
use ledger::Document;

use super::rounds::{line, ratio};
use super::servers::{PORT, Running, Site, need, output, wrk_figures, yamabiko};

const ROUNDS: usize = 7;
const OPEN_RATE: u32 = 50_000;

/// Runs the bench and prints it.
pub fn run() -> Result<()> {
    for program in ["wrk", "nginx", "taskset"] {
        need(program)?;
    }
    let yamabiko = yamabiko()?;
    let site = Site::new()?;
    let _nginx = Running::start(&site.nginx(), Some("0"))?;
    let url = format!("http://127.0.0.1:{PORT}/1k.bin");
    let (mut ours, mut wrks, mut again) = (Vec::new(), Vec::new(), Vec::new());
    let mut lags = Vec::new();
    for _ in 0..ROUNDS {
        wrks.push(wrk(&url)?);
        ours.push(bench(&yamabiko, &url, &["-c", "64", "-d", "2s"])?.carried_rate_per_s);
        again.push(wrk(&url)?);
        let open = bench(&yamabiko, &url, &["--rate", &format!("{OPEN_RATE}/s"), "-d", "3s"])?;
        lags.push((open.carried_rate_per_s, open.send_lag_ns));
    }
    println!("load: keep-alive, 1 KB, nginx on core 0, client on core 1, every request recorded");
    println!("{}", line("wrk, closed, 64 connections", "req/s", &wrks));
    println!("{}", line("yamabiko, closed, 64 connections", "req/s", &ours));
    println!("  yamabiko / wrk {:.3}; wrk / wrk again {:.3}", ratio(&ours, &wrks), ratio(&wrks, &again));
    println!("open loop at {OPEN_RATE}/s: carried, send lag median / p99 / p99.9 in us, each round");
    for (carried, lag) in lags {
        let us = |ns: u64| ns as f64 / 1e3;
        println!("  {carried:>9.0}/s   {:.1} / {:.1} / {:.1}", us(lag.p50), us(lag.p99), us(lag.p99_9));
    }
    Ok(())
}

fn wrk(url: &str) -> Result<f64> {
    Ok(wrk_figures(&output(Command::new("taskset").args(["-c", "1", "wrk", "-t1", "-c64", "-d2s", url]))?)?.0)
}

fn bench(yamabiko: &Path, url: &str, options: &[&str]) -> Result<ledger::document::Load> {
    let mut command = Command::new("taskset");
    command.args(["-c", "1"]).arg(yamabiko).args(["bench", url, "--json", "--no-save"]).args(options);
    // Status 3 (invalid) still prints the figures, which say why.
    let output = command.output().with_context(|| format!("{command:?}"))?;
    let document: Document =
        serde_json::from_slice(&output.stdout).with_context(|| String::from_utf8_lossy(&output.stderr).into_owned())?;
    document.load.context("the document has no load part")
}
