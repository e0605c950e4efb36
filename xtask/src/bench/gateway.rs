//! `cargo xtask bench gateway [--rounds N] [--seconds N]`: `yamabiko gateway` compared with iperf3 in the same testbed,
//! and `yamabiko disk` compared with fio, alternately.
//!
//! - TCP streams through the emulated gateway with its default CPU limit: buffers and messages of 16 KiB on both sides,
//!   rate at the receiver. On each link without and with NAT. Target: within 3 %.
//! - Datagrams over two links with 1 % loss each: measured and expected loss.
//! - Disk tests and fio with the same options, on a file in the same folder. The figures of `disk` are fio's own
//!   (`tests/experiments/disk.rs` compares them with its JSON), so differences here are those of the disk.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use serde_json::Value;

use super::extent::Extent;
use super::rounds::{line, median, ratio};
use super::servers::{need, output, yamabiko};

/// The default number of rounds, and length of a trial.
const USUAL_EXTENT: Extent = Extent { rounds: 5, seconds: 3 };
/// Rates of both links, in both directions. With the last one the gateway's CPU is the limit; packets have their size
/// on the wire.
const LINKS: [&str; 3] = ["10Mbit", "100Mbit", "1Gbit"];
/// A link that forwards offloaded segments undivided. Their size depends on when the ends write and acknowledge, so the
/// rates of two programs are not comparable: printed without a target.
const UNDIVIDED_SEGMENTS: &str = "unlimited";
/// Conditions of the school gateway study in which other programs can run.
const CONDITIONS: [&str; 2] = ["none", "nat"];
/// Maximum relative difference.
const MAX_DIFFERENCE: f64 = 0.03;

/// A link with loss, and the loss of two such links.
const LINK_WITH_LOSS: &str = "unlimited,loss=1%";
const EXPECTED_LOSS: f64 = 1.0 - 0.99 * 0.99;
/// Datagrams of a survey: rate per second, and payload of a packet of 512 bytes.
const DATAGRAMS_PER_S: u64 = 2000;
const DATAGRAM_PAYLOAD: u64 = 512 - 28;

/// Disk tests and the equivalent options of fio.
const DISK_TESTS: [DiskTest; 4] = [
    DiskTest { name: "write_per_block", words: &["--rw=write", "--bs=16k", "--end_fsync=1"], timed: false },
    DiskTest { name: "read_per_block", words: &["--rw=read", "--bs=16k"], timed: false },
    DiskTest { name: "random_read_4k", words: &["--rw=randread", "--bs=4k", "--direct=1"], timed: true },
    DiskTest { name: "commits", words: &["--rw=randwrite", "--bs=4k", "--fdatasync=1"], timed: true },
];
/// Size of the test file.
const DISK_BYTES: u64 = 256 << 20;

struct DiskTest {
    name: &'static str,
    words: &'static [&'static str],
    /// Whether the test runs for a fixed time.
    timed: bool,
}

/// Runs the bench with its default length and prints it.
pub fn run() -> Result<()> {
    run_with(&[])
}

/// Runs the bench with these options and prints it.
///
/// # Errors
/// An unknown option, or a failed measurement.
pub fn run_with(words: &[&str]) -> Result<()> {
    let extent = USUAL_EXTENT.changed_by(words)?;
    need("iperf3")?;
    need("fio")?;
    let program = yamabiko()?;
    let folder = tempfile::Builder::new().prefix("yamabiko-bench-").tempdir()?;
    let bench = Bench { program, folder: folder.path().to_owned(), extent };
    println!(
        "forwarding in the testbed, the gateway with its default CPU limit; streams of {} s, {} rounds, alternately",
        extent.seconds, extent.rounds
    );
    let mut apart = Vec::new();
    for link in LINKS {
        for condition in CONDITIONS {
            apart.push(bench.streams(link, condition)?);
        }
    }
    for condition in CONDITIONS {
        bench.streams(UNDIVIDED_SEGMENTS, condition)?;
    }
    let most = apart.iter().map(|ratio| (ratio - 1.0).abs()).fold(0.0, f64::max);
    let met = if most <= MAX_DIFFERENCE { "met" } else { "not met" };
    println!(
        "\nstreams on links with a rate: at most {:.1} % apart (target {:.0} %): {met}",
        100.0 * most,
        100.0 * MAX_DIFFERENCE
    );
    bench.datagrams()?;
    bench.disk()
}

struct Bench {
    program: PathBuf,
    folder: PathBuf,
    extent: Extent,
}

impl Bench {
    /// One TCP stream; returns our rate divided by iperf3's.
    fn streams(&self, link: &str, condition: &str) -> Result<f64> {
        let (mut ours, mut peers) = (Vec::new(), Vec::new());
        for _ in 0..self.extent.rounds {
            let document = self.ours(link, condition, &["stream"], false)?;
            let figure = &document["gateway"]["conditions"][0]["mbit_per_s"]["mean"];
            ours.push(figure.as_f64().with_context(|| format!("no stream was measured: {}", document["validity"]))?);
            let seconds = self.extent.seconds.to_string();
            let result = self.iperf3(link, condition, &["-t", &seconds, "-O", "1", "-w", "16K", "-l", "16K"])?;
            peers.push(tcp_mbit_per_s(&result)?);
        }
        let of_ours = ratio(&ours, &peers);
        println!("\n{link}, {condition}");
        println!("{}", line("yamabiko gateway", "Mbit/s", &ours));
        println!("{}", line("iperf3 -w 16K -l 16K", "Mbit/s", &peers));
        println!("  ours over iperf3's, round by round   {of_ours:.4}");
        Ok(of_ours)
    }

    /// Compares the loss of datagrams on links with loss.
    fn datagrams(&self) -> Result<()> {
        println!("\ndatagrams over two links that lose 1 % each: {:.3} % must be lost", 100.0 * EXPECTED_LOSS);
        for condition in CONDITIONS {
            let (mut ours, mut peers) = (Vec::new(), Vec::new());
            let mut sent = 0;
            for _ in 0..self.extent.rounds {
                let document = self.ours(LINK_WITH_LOSS, condition, &["latency"], true)?;
                let floor = &document["gateway"]["conditions"][0]["floor"];
                let up = floor.as_object().and_then(|floor| floor.iter().find(|(way, _)| way.starts_with("up")));
                let lost = up.and_then(|(_, lost)| lost.as_f64());
                ours.push(100.0 * lost.with_context(|| format!("no survey was made: {}", document["validity"]))?);
                let rate = (DATAGRAMS_PER_S * DATAGRAM_PAYLOAD * 8).to_string();
                let (seconds, payload) = (self.extent.seconds.to_string(), DATAGRAM_PAYLOAD.to_string());
                let result =
                    self.iperf3(LINK_WITH_LOSS, condition, &["-u", "-t", &seconds, "-b", &rate, "-l", &payload])?;
                let (percent, packets) = udp_lost(&result)?;
                peers.push(percent);
                sent += packets;
            }
            // Standard deviation for the number of datagrams that iperf3 sent; a survey sends nearly as many.
            let by_chance = 100.0 * (EXPECTED_LOSS * (1.0 - EXPECTED_LOSS) / sent.max(1) as f64).sqrt();
            println!("\n{LINK_WITH_LOSS}, {condition}");
            println!("{}", line("yamabiko gateway, survey", "% lost", &ours));
            println!("{}", line("iperf3 -u", "% lost", &peers));
            let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len().max(1) as f64;
            println!("  means {:.3} and {:.3} %; chance alone moves each by {by_chance:.3}", mean(&ours), mean(&peers));
        }
        Ok(())
    }

    /// The document of `yamabiko gateway` for one condition, one link and one trial.
    fn ours(&self, link: &str, condition: &str, tests: &[&str], survey: bool) -> Result<Value> {
        let plan = self.folder.join("plan.toml");
        let text = format!(
            "seed = 1\n[gateway]\nconditions = [\"{condition}\"]\nlinks = [\"{link}\"]\ntests = {tests:?}\ntrials = 1\nlasts = \"{}s\"\n\
             direction = \"up\"\nsurvey = {survey}\n",
            self.extent.seconds
        );
        fs::write(&plan, text)?;
        let output = Command::new(&self.program)
            .arg("run")
            .arg(&plan)
            .args(["--json", "--no-save"])
            .output()
            .context("start yamabiko")?;
        // The exit status of a suspect result is ignored.
        let text = String::from_utf8_lossy(&output.stdout);
        serde_json::from_str(&text).with_context(|| {
            format!("yamabiko run: {}: {}", output.status, String::from_utf8_lossy(&output.stderr).trim())
        })
    }

    /// Runs iperf3 in the same testbed, from the clients' network to the server's; returns its JSON.
    fn iperf3(&self, link: &str, condition: &str, words: &[&str]) -> Result<Value> {
        let text = output(
            Command::new(&self.program)
                .args(["gateway", "--condition", condition, "--link", link, "--server", "iperf3 -s -1"])
                .args(["--", "iperf3", "-J", "-c", "server"])
                .args(words),
        )?;
        json(&text).context("parse the output of iperf3")
    }

    /// Compares `yamabiko disk` with fio.
    fn disk(&self) -> Result<()> {
        // In the binary's folder, since temporary folders are often in memory.
        let binary_folder = self.program.parent().context("the folder of the binary")?;
        let folder = tempfile::Builder::new().prefix("yamabiko-bench-").tempdir_in(binary_folder)?;
        println!("\nstorage of {}, a file of {} MiB, alternately", folder.path().display(), DISK_BYTES >> 20);
        let mut figures = DISK_TESTS.map(|_| (Vec::new(), Vec::new()));
        for _ in 0..self.extent.rounds {
            let ours = self.disk_by_yamabiko(folder.path())?;
            for (test, (of_us, of_fio)) in DISK_TESTS.iter().zip(&mut figures) {
                let figure = ours["disk"][test.name]["bytes_per_s"].as_f64();
                of_us.push(figure.with_context(|| format!("{}: {}", test.name, ours["validity"]))? / 1e6);
                of_fio.push(self.disk_by_fio(test, folder.path())? / 1e6);
            }
        }
        for (test, (of_us, of_fio)) in DISK_TESTS.iter().zip(&figures) {
            println!("\n{}", test.name);
            println!("{}", line("yamabiko disk", "MB/s", of_us));
            println!("{}", line("fio by hand", "MB/s", of_fio));
            println!("  ours over fio's, medians             {:.3}", median(of_us) / median(of_fio));
        }
        Ok(())
    }

    fn disk_by_yamabiko(&self, folder: &Path) -> Result<Value> {
        let (bytes, lasts) = (format!("{DISK_BYTES}B"), format!("{}s", self.extent.seconds));
        let tests = DISK_TESTS.map(|test| test.name).join(",");
        let text = output(Command::new(&self.program).arg("disk").arg(folder).args([
            "--size",
            &bytes,
            "-d",
            &lasts,
            "-t",
            &tests,
            "--json",
            "--no-save",
        ]))?;
        Ok(serde_json::from_str(&text)?)
    }

    fn disk_by_fio(&self, test: &DiskTest, folder: &Path) -> Result<f64> {
        let (name, size) = (format!("--filename={}", folder.join("by-hand").display()), format!("--size={DISK_BYTES}"));
        let lasts = format!("--runtime={}s", self.extent.seconds);
        let mut fio = Command::new("fio");
        fio.args(["--name=x", "--output-format=json", "--thread=1", "--ioengine=psync", "--invalidate=1"]);
        fio.args([&name, &size]).args(test.words);
        if test.timed {
            fio.args([&lasts, "--time_based=1"]);
        }
        let result = json(&output(&mut fio)?).context("parse the output of fio")?;
        let job = &result["jobs"][0];
        let bytes_per_s = ["read", "write"].map(|way| job[way]["bw_bytes"].as_f64().unwrap_or_default());
        Ok(bytes_per_s.iter().sum())
    }
}

/// Parses JSON that may follow other text.
fn json(text: &str) -> Option<Value> {
    serde_json::from_str(&text[text.find('{')?..]).ok()
}

/// Rate at iperf3's receiver in Mbit/s.
fn tcp_mbit_per_s(result: &Value) -> Result<f64> {
    let bits = result["end"]["sum_received"]["bits_per_second"].as_f64();
    Ok(bits.with_context(|| format!("iperf3: {}", result["error"]))? / 1e6)
}

/// Loss in percent, and number of packets.
fn udp_lost(result: &Value) -> Result<(f64, u64)> {
    let sum = &result["end"]["sum"];
    let figures = sum["lost_percent"].as_f64().zip(sum["packets"].as_u64());
    figures.with_context(|| format!("iperf3: {}", result["error"]))
}

#[cfg(test)]
mod tests {
    use serde_json::json as value;

    use super::*;

    #[test]
    fn the_json_of_iperf3_is_parsed() {
        let result = json("warning: x\n{\"end\":{\"sum_received\":{\"bits_per_second\":9.5e6}}}").unwrap();
        assert_eq!(tcp_mbit_per_s(&result).unwrap(), 9.5);
        assert_eq!(udp_lost(&value!({"end": {"sum": {"lost_percent": 1.9, "packets": 6000}}})).unwrap(), (1.9, 6000));
        let refused = value!({"start": {}, "end": {}, "error": "unable to connect"});
        assert!(tcp_mbit_per_s(&refused).unwrap_err().to_string().contains("unable to connect"));
        assert!(udp_lost(&refused).is_err() && json("nothing").is_none());
    }

    #[test]
    fn the_loss_of_two_links_combines() {
        assert!((EXPECTED_LOSS - 0.0199).abs() < 1e-12);
        assert_eq!(DATAGRAM_PAYLOAD + 28, 512);
    }
}
