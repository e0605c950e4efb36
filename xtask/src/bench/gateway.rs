//! `cargo xtask bench gateway [--rounds N] [--seconds N]`: what `yamabiko gateway` says of forwarding beside what iperf3 says in the same lab, and
//! what `yamabiko disk` says of storage beside fio by hand, turn and turn about.
//!
//! - TCP streams through the lab's gateway, held to its usual share: buffers and messages of 16 KiB on both sides, what the receiver had. On each link
//!   without and with NAT. Within 3 % is asked.
//! - Datagrams over links that lose 1 % each: the share that is lost, beside what it must be.
//! - The same tests of a disk, with the same words for fio, on a file in the same folder. Their figures are fio's own (`tests/disk.rs` compares each
//!   with its JSON), so what differs here is the disk.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use serde_json::Value;

use super::extent::Extent;
use super::rounds::{line, median, ratio};
use super::servers::{need, output, yamabiko};

/// The usual length.
const USUAL_EXTENT: Extent = Extent { rounds: 5, seconds: 3 };
/// Links, each way and on both sides: at the last the gateway's share is the limit, and packets are those of the wire.
const LINKS: [&str; 3] = ["10Mbit", "100Mbit", "1Gbit"];
/// A link that hands big segments on whole: how big they are depends on when the ends write and acknowledge, so that bits a second
/// of two programs are two things. Shown, not judged.
const WHOLE_SEGMENTS: &str = "unlimited";
/// P5's first two conditions: a program of one's own is run in these.
const CONDITIONS: [&str; 2] = ["none", "nat"];
/// Figures may be apart by so much.
const APART_MAX: f64 = 0.03;

/// A link that loses, and what two of them lose of what is sent.
const LOSSY: &str = "unlimited,loss=1%";
const LOST: f64 = 1.0 - 0.99 * 0.99;
/// What a survey sends: datagrams a second, and their payload where the packet has 512 bytes.
const DATAGRAMS_PER_S: u64 = 2000;
const DATAGRAM_PAYLOAD: u64 = 512 - 28;

/// Tests of a disk whose words are short enough to be said by hand.
const DISK_TESTS: [DiskTest; 4] = [
    DiskTest { name: "write_per_block", words: &["--rw=write", "--bs=16k", "--end_fsync=1"], timed: false },
    DiskTest { name: "read_per_block", words: &["--rw=read", "--bs=16k"], timed: false },
    DiskTest { name: "random_read_4k", words: &["--rw=randread", "--bs=4k", "--direct=1"], timed: true },
    DiskTest { name: "commits", words: &["--rw=randwrite", "--bs=4k", "--fdatasync=1"], timed: true },
];
/// Size of the file.
const DISK_BYTES: u64 = 256 << 20;

struct DiskTest {
    name: &'static str,
    words: &'static [&'static str],
    /// Whether it ends by time.
    timed: bool,
}

/// Runs the bench at its usual length and prints it.
pub fn run() -> Result<()> {
    run_with(&[])
}

/// Runs the bench with the options as typed and prints it.
///
/// # Errors
/// An option that there is not; something that could not be measured.
pub fn run_with(words: &[&str]) -> Result<()> {
    let extent = USUAL_EXTENT.changed_by(words)?;
    need("iperf3")?;
    need("fio")?;
    let program = yamabiko()?;
    let folder = tempfile::Builder::new().prefix("yamabiko-bench-").tempdir()?;
    let bench = Bench { program, folder: folder.path().to_owned(), extent };
    println!(
        "forwarding in the lab, the gateway held to its usual share; streams of {} s, {} rounds, turn and turn about",
        extent.seconds, extent.rounds
    );
    let mut apart = Vec::new();
    for link in LINKS {
        for condition in CONDITIONS {
            apart.push(bench.streams(link, condition)?);
        }
    }
    for condition in CONDITIONS {
        bench.streams(WHOLE_SEGMENTS, condition)?;
    }
    let most = apart.iter().map(|ratio| (ratio - 1.0).abs()).fold(0.0, f64::max);
    let met = if most <= APART_MAX { "met" } else { "not met" };
    println!(
        "\nstreams on links with a rate: at most {:.1} % apart ({:.0} % asked): {met}",
        100.0 * most,
        100.0 * APART_MAX
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
    /// One TCP stream; ours over iperf3's.
    fn streams(&self, link: &str, condition: &str) -> Result<f64> {
        let (mut ours, mut peers) = (Vec::new(), Vec::new());
        for _ in 0..self.extent.rounds {
            let document = self.ours(link, condition, &["stream"], false)?;
            let figure = &document["gateway"]["conditions"][0]["mbit_per_s"]["mean"];
            ours.push(figure.as_f64().with_context(|| format!("no stream was measured: {}", document["validity"]))?);
            let seconds = self.extent.seconds.to_string();
            let said = self.iperf3(link, condition, &["-t", &seconds, "-O", "1", "-w", "16K", "-l", "16K"])?;
            peers.push(tcp_mbit_per_s(&said)?);
        }
        let of_ours = ratio(&ours, &peers);
        println!("\n{link}, {condition}");
        println!("{}", line("yamabiko gateway", "Mbit/s", &ours));
        println!("{}", line("iperf3 -w 16K -l 16K", "Mbit/s", &peers));
        println!("  ours over iperf3's, round by round   {of_ours:.4}");
        Ok(of_ours)
    }

    /// What is lost of datagrams on links that lose.
    fn datagrams(&self) -> Result<()> {
        println!("\ndatagrams over two links that lose 1 % each: {:.3} % must be lost", 100.0 * LOST);
        for condition in CONDITIONS {
            let (mut ours, mut peers) = (Vec::new(), Vec::new());
            let mut sent = 0;
            for _ in 0..self.extent.rounds {
                let document = self.ours(LOSSY, condition, &["latency"], true)?;
                let floor = &document["gateway"]["conditions"][0]["floor"];
                let up = floor.as_object().and_then(|floor| floor.iter().find(|(way, _)| way.starts_with("up")));
                let lost = up.and_then(|(_, lost)| lost.as_f64());
                ours.push(100.0 * lost.with_context(|| format!("no survey was made: {}", document["validity"]))?);
                let rate = (DATAGRAMS_PER_S * DATAGRAM_PAYLOAD * 8).to_string();
                let (seconds, payload) = (self.extent.seconds.to_string(), DATAGRAM_PAYLOAD.to_string());
                let said = self.iperf3(LOSSY, condition, &["-u", "-t", &seconds, "-b", &rate, "-l", &payload])?;
                let (percent, packets) = udp_lost(&said)?;
                peers.push(percent);
                sent += packets;
            }
            // By chance alone, of as many as iperf3 sent; a survey sends nearly as many.
            let by_chance = 100.0 * (LOST * (1.0 - LOST) / sent.max(1) as f64).sqrt();
            println!("\n{LOSSY}, {condition}");
            println!("{}", line("yamabiko gateway, survey", "% lost", &ours));
            println!("{}", line("iperf3 -u", "% lost", &peers));
            let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len().max(1) as f64;
            println!("  means {:.3} and {:.3} %; chance alone moves each by {by_chance:.3}", mean(&ours), mean(&peers));
        }
        Ok(())
    }

    /// The document of one condition on one link, one trial.
    fn ours(&self, link: &str, condition: &str, tests: &[&str], survey: bool) -> Result<Value> {
        let plan = self.folder.join("plan.toml");
        let text = format!(
            "seed = 1\n[gateway]\nconditions = [\"{condition}\"]\nlinks = [\"{link}\"]\ntests = {tests:?}\ntrials = 1\nlasts = \"{}s\"\n\
             direction = \"up\"\nsurvey = {survey}\n",
            self.extent.seconds
        );
        fs::write(&plan, text)?;
        let said = Command::new(&self.program)
            .arg("run")
            .arg(&plan)
            .args(["--json", "--no-save"])
            .output()
            .context("start yamabiko")?;
        // What it has doubts about it says with its status, and is measured all the same.
        let text = String::from_utf8_lossy(&said.stdout);
        serde_json::from_str(&text)
            .with_context(|| format!("yamabiko run: {}: {}", said.status, String::from_utf8_lossy(&said.stderr).trim()))
    }

    /// iperf3 in the same lab, from the clients' network to a server in the server's.
    fn iperf3(&self, link: &str, condition: &str, words: &[&str]) -> Result<Value> {
        let text = output(
            Command::new(&self.program)
                .args(["gateway", "--condition", condition, "--link", link, "--server", "iperf3 -s -1"])
                .args(["--", "iperf3", "-J", "-c", "server"])
                .args(words),
        )?;
        json(&text).context("iperf3 said nothing that can be read")
    }

    /// A disk by us and by hand.
    fn disk(&self) -> Result<()> {
        // Beside the binary: what is temporary is often in memory.
        let beside = self.program.parent().context("the folder of the binary")?;
        let folder = tempfile::Builder::new().prefix("yamabiko-bench-").tempdir_in(beside)?;
        println!("\nstorage of {}, a file of {} MiB, turn and turn about", folder.path().display(), DISK_BYTES >> 20);
        let mut figures = DISK_TESTS.map(|_| (Vec::new(), Vec::new()));
        for _ in 0..self.extent.rounds {
            let ours = self.disk_by_us(folder.path())?;
            for (test, (of_us, of_fio)) in DISK_TESTS.iter().zip(&mut figures) {
                let figure = ours["disk"][test.name]["bytes_per_s"].as_f64();
                of_us.push(figure.with_context(|| format!("{}: {}", test.name, ours["validity"]))? / 1e6);
                of_fio.push(self.disk_by_hand(test, folder.path())? / 1e6);
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

    fn disk_by_us(&self, folder: &Path) -> Result<Value> {
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

    fn disk_by_hand(&self, test: &DiskTest, folder: &Path) -> Result<f64> {
        let (name, size) = (format!("--filename={}", folder.join("by-hand").display()), format!("--size={DISK_BYTES}"));
        let lasts = format!("--runtime={}s", self.extent.seconds);
        let mut fio = Command::new("fio");
        fio.args(["--name=x", "--output-format=json", "--thread=1", "--ioengine=psync", "--invalidate=1"]);
        fio.args([&name, &size]).args(test.words);
        if test.timed {
            fio.args([&lasts, "--time_based=1"]);
        }
        let said = json(&output(&mut fio)?).context("fio said nothing that can be read")?;
        let job = &said["jobs"][0];
        let moved = ["read", "write"].map(|way| job[way]["bw_bytes"].as_f64().unwrap_or_default());
        Ok(moved.iter().sum())
    }
}

/// A document that may have words before it.
fn json(text: &str) -> Option<Value> {
    serde_json::from_str(&text[text.find('{')?..]).ok()
}

/// What iperf3's receiver had.
fn tcp_mbit_per_s(said: &Value) -> Result<f64> {
    let bits = said["end"]["sum_received"]["bits_per_second"].as_f64();
    Ok(bits.with_context(|| format!("iperf3: {}", said["error"]))? / 1e6)
}

/// Per cent lost, and of how many packets.
fn udp_lost(said: &Value) -> Result<(f64, u64)> {
    let sum = &said["end"]["sum"];
    let figures = sum["lost_percent"].as_f64().zip(sum["packets"].as_u64());
    figures.with_context(|| format!("iperf3: {}", said["error"]))
}

#[cfg(test)]
mod tests {
    use serde_json::json as value;

    use super::*;

    #[test]
    fn the_json_of_iperf3_is_parsed() {
        let said = json("warning: x\n{\"end\":{\"sum_received\":{\"bits_per_second\":9.5e6}}}").unwrap();
        assert_eq!(tcp_mbit_per_s(&said).unwrap(), 9.5);
        assert_eq!(udp_lost(&value!({"end": {"sum": {"lost_percent": 1.9, "packets": 6000}}})).unwrap(), (1.9, 6000));
        let refused = value!({"start": {}, "end": {}, "error": "unable to connect"});
        assert!(tcp_mbit_per_s(&refused).unwrap_err().to_string().contains("unable to connect"));
        assert!(udp_lost(&refused).is_err() && json("nothing").is_none());
    }

    #[test]
    fn the_loss_of_two_links_combines() {
        assert!((LOST - 0.0199).abs() < 1e-12);
        assert_eq!(DATAGRAM_PAYLOAD + 28, 512);
    }
}
