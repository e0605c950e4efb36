//! `cargo xtask bench attack`: what each attack does to the other clients of `yamabiko serve`.
//!
//! The server runs on core 0, with one thread and its default limits. The other clients are an open loop on core 1:
//! response times count from the scheduled time of each request. The attackers share core 1 at idle priority, so
//! that they use only CPU time that the generator does not need. Each attack has a new server. Results: the other
//! clients' response times without and with the attack, and the server's memory.

use std::io::{Read, Write};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::rounds::median;
use super::servers::{PORT, Running, Site, certificate, need, yamabiko};

// The tests of `serve` use the same attackers.
#[path = "../../../crates/yamabiko/tests/support/attackers.rs"]
#[allow(dead_code, reason = "the tests use the rest")]
mod attackers;

use attackers::churn::{churn, prepare};
use attackers::{ATTACKS, Target};

/// The other clients: rate, connections, and duration of each phase.
const RATE: &str = "1000/s";
const CONNECTIONS: &str = "32";
const SECONDS: &str = "2s";
/// Number of phases without and with each attack, alternately.
const ROUNDS: usize = 3;
/// Time for an attack to reach its full strength, and for the server to recover afterwards.
const SETTLING_TIME: Duration = Duration::from_millis(1500);

/// Name in the table of the attack by a changing directory.
const CHURN: &str = "directory";

/// Runs the bench and prints it.
pub fn run() -> Result<()> {
    need("taskset")?;
    need("chrt")?;
    let yamabiko = yamabiko()?;
    let site = Site::new()?;
    std::fs::write(site.path("20m.bin"), vec![b'b'; 20 << 20])?;
    certificate(site.path("").as_path())?;
    println!(
        "other clients: {RATE} for 10 KiB over {CONNECTIONS} persistent connections; medians of {ROUNDS} phases of {SECONDS} \
         without and with the attack\n"
    );
    println!(
        "{:<16} {:>9} {:>9} {:>9} {:>9} {:>7} {:>7} {:>7} {:>8}",
        "attack", "p50 us", "with", "p99 us", "with", "ratio", "failed", "CPU %", "peak MiB"
    );
    let names = [("none", false)].into_iter().chain(ATTACKS.iter().map(|attack| (attack.name, attack.tls)));
    for (name, tls) in names.chain([(CHURN, false)]) {
        let (line, tally) = measure(&yamabiko, &site, name, tls).with_context(|| name.to_owned())?;
        println!("{line}");
        if !tally.is_empty() {
            println!("    {tally}");
        }
    }
    Ok(())
}

/// Measures one attack; returns its line of the table, and the attackers' tally.
fn measure(yamabiko: &Path, site: &Site, name: &str, tls: bool) -> Result<(String, String)> {
    let (folder, secure) = (site.path(""), ["certificate.pem", "key.pem"].map(|name| site.path(name)));
    let mut command = format!("exec {} serve {} --listen 127.0.0.1:{PORT}", yamabiko.display(), folder.display());
    if tls {
        command += &format!(" --tls {} {}", secure[0].display(), secure[1].display());
    }
    let server = Running::start_at(&command, Some("0"), PORT)?;
    let scheme = if tls { "https" } else { "http" };
    let url = format!("{scheme}://127.0.0.1:{PORT}/10k.bin");
    let (mut without, mut with, mut tally) = (Vec::new(), Vec::new(), String::new());
    let mut busy_with = Vec::new();
    measure_other_clients(yamabiko, &url)?;
    for _ in 0..ROUNDS {
        without.push(measure_other_clients(yamabiko, &url)?);
        let attack = (name != "none").then(|| AttackProcess::start(name, &folder)).transpose()?;
        std::thread::sleep(SETTLING_TIME);
        let before = cpu0_times()?;
        with.push(measure_other_clients(yamabiko, &url)?);
        busy_with.push(busy_share(before, cpu0_times()?));
        if let Some(attack) = attack {
            tally = attack.stop()?;
        }
        std::thread::sleep(SETTLING_TIME);
    }
    let of = |phases: &[Phase], what: fn(&Phase) -> f64| median(&phases.iter().map(what).collect::<Vec<_>>());
    let (p99_before, p99_with) = (of(&without, |phase| phase.p99_us), of(&with, |phase| phase.p99_us));
    let failed: u64 = without.iter().chain(&with).map(|phase| phase.failed).sum();
    let line = format!(
        "{name:<16} {:>9.0} {:>9.0} {p99_before:>9.0} {p99_with:>9.0} {:>7.2} {failed:>7} {:>7.0} {:>8.1}",
        of(&without, |phase| phase.p50_us),
        of(&with, |phase| phase.p50_us),
        p99_with / p99_before,
        100.0 * median(&busy_with),
        peak_kib(server.pid())? / 1024.0
    );
    Ok((line, tally))
}

/// Results of one phase of the other clients.
struct Phase {
    p50_us: f64,
    p99_us: f64,
    failed: u64,
}

fn measure_other_clients(yamabiko: &Path, url: &str) -> Result<Phase> {
    let output = Command::new("taskset")
        .args(["-c", "1"])
        .arg(yamabiko)
        .args(["bench", url, "--rate", RATE, "-c", CONNECTIONS, "-d", SECONDS, "--warmup", "300ms"])
        .args(if url.starts_with("https") { &["-k"][..] } else { &[] })
        .args(["--json", "--no-save"])
        .output()?;
    let document: Value = serde_json::from_slice(&output.stdout)
        .with_context(|| String::from_utf8_lossy(&output.stderr).trim().to_owned())?;
    let load = &document["load"];
    let time = |quantile: &str| load["response_time_ns"][quantile].as_f64().unwrap_or(f64::NAN) / 1e3;
    let failed = load["failed"].as_object().map_or(0, |causes| causes.values().filter_map(Value::as_u64).sum());
    Ok(Phase { p50_us: time("p50"), p99_us: time("p99"), failed })
}

/// An attack in a process of its own, killed when dropped.
struct AttackProcess(Child);

impl AttackProcess {
    fn start(name: &str, folder: &Path) -> Result<Self> {
        let own = std::env::current_exe()?;
        let child = Command::new("taskset")
            .args(["-c", "1", "chrt", "--idle", "0"])
            .arg(own)
            .args(["attack", name, &format!("127.0.0.1:{PORT}")])
            .arg(folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        Ok(AttackProcess(child))
    }

    /// Ends the attack; returns its tally.
    fn stop(mut self) -> Result<String> {
        drop(self.0.stdin.take());
        let mut tally = String::new();
        self.0.stdout.take().context("stdout is piped")?.read_to_string(&mut tally)?;
        self.0.wait()?;
        Ok(tally.trim().to_owned())
    }
}

impl Drop for AttackProcess {
    fn drop(&mut self) {
        // An error means that the process has exited already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// `xtask attack NAME ADDRESS FOLDER`: attacks until standard input ends, and prints the tally.
///
/// # Errors
/// The attack is unknown, or the folder cannot be changed.
pub fn attack(name: &str, address: &str, folder: &str) -> Result<()> {
    let stop = Arc::new(AtomicBool::new(false));
    let stop_requested = Arc::clone(&stop);
    std::thread::spawn(move || {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        stop_requested.store(true, Ordering::Relaxed);
    });
    let tally = if name == CHURN {
        let secret = tempfile::NamedTempFile::new()?;
        let folder = Path::new(folder).join("churn");
        if std::fs::create_dir(&folder).is_ok() {
            prepare(&folder, secret.path())?;
        }
        format!("{} versions", churn(&folder, secret.path(), &stop)?)
    } else {
        let Some(attack) = attackers::named(name) else { bail!("unknown attack `{name}`") };
        let address: SocketAddr = address.parse()?;
        let (small, big) = ("/10k.bin".into(), "/20m.bin".into());
        // 40 addresses; the rest of the descriptor limit is for this process itself.
        attack.run(&Target { address, small, big, sources: 40, max_concurrent: 19_900 }, &stop).to_string()
    };
    // The parent process may have exited.
    let _ = writeln!(std::io::stdout(), "{tally}");
    Ok(())
}

/// Busy time and total time of core 0, in clock ticks.
fn cpu0_times() -> Result<(f64, f64)> {
    let stat = std::fs::read_to_string("/proc/stat")?;
    let line = stat.lines().find_map(|line| line.strip_prefix("cpu0 ")).context("/proc/stat has no cpu0")?;
    let ticks: Vec<f64> = line.split_whitespace().filter_map(|ticks| ticks.parse().ok()).collect();
    let all: f64 = ticks.iter().take(8).sum();
    Ok((all - ticks[3] - ticks[4], all))
}

fn busy_share(before: (f64, f64), after: (f64, f64)) -> f64 {
    (after.0 - before.0) / (after.1 - before.1).max(1.0)
}

/// Peak resident memory of a process in KiB.
fn peak_kib(pid: i32) -> Result<f64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).context("no VmHWM")?;
    Ok(line.trim().trim_end_matches(" kB").parse()?)
}
