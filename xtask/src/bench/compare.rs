//! `cargo xtask bench compare [--rounds N] [--seconds N]`: false positives of `yamabiko compare`, and whether it
//! detects a difference of 5 %.
//!
//! A server is compared with itself repeatedly, each time with another seed: at 95 % confidence one comparison in
//! twenty reports a false difference. Half of the comparisons are of nginx in an open loop, by the mean response time,
//! half of this program's server in a closed loop, by the achieved rate; both have a CPU limit, so that the client is
//! never the limit. Then the model server (`examples/model-server`) is compared with one whose requests take 5 %
//! longer, in an open and in a closed loop. Each comparison has six blocks of four runs, without additional blocks.
//! `--only` runs one of the four parts.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};
use schema::{CompareDocument, CompareVerdict, Verdict};

use super::extent::{Extent, only};
use super::servers::{PORT, Site, need, yamabiko};

/// Default number of comparisons of a server with itself, for each kind of load, and length of a run.
const USUAL_EXTENT: Extent = Extent { rounds: 10, seconds: 1 };
/// Number of comparisons with the slower server, for each kind of load.
const SLOWER_ROUNDS: usize = 3;
/// CPU limit of each server.
const SHARE: &str = "20%";
/// Number of counted blocks of a comparison.
const BLOCKS: &str = "6";

/// One of the four parts.
struct Part {
    /// Name for `--only`.
    name: &'static str,
    about: &'static str,
    servers: [String; 2],
    path: &'static str,
    load: &'static [&'static str],
    rounds: usize,
    /// Factor of the length of its runs.
    longer: u64,
}

/// Runs the bench at its usual length and prints it.
pub fn run() -> Result<()> {
    run_with(&[])
}

/// Runs the bench with these options and prints it.
///
/// # Errors
/// An unknown option, or a failed measurement.
pub fn run_with(words: &[&str]) -> Result<()> {
    let (selected, words) = only(words, &["open", "closed", "slower-open", "slower-closed"])?;
    let extent = USUAL_EXTENT.changed_by(&words)?;
    need("nginx")?;
    let (program, site) = (yamabiko()?, Site::new()?);
    println!("{BLOCKS} blocks of four runs each, servers held to {SHARE} of a core");
    for part in parts(&program, &site, extent) {
        if selected.is_some_and(|selected| selected != part.name) {
            continue;
        }
        let duration = format!("{}s", extent.seconds * part.longer);
        println!("\n{}: {}; runs of {duration}", part.name, part.about);
        let url = format!("http://server:{PORT}{}", part.path);
        let load = [part.load, &["-d", &duration]].concat();
        let mut tally = Tally::default();
        for seed in 1..=part.rounds {
            let document = compare(&program, &part.servers, &url, &load, seed)?;
            tally.add(&document);
            println!("  {seed:>2}  {}", line(&document));
        }
        println!(
            "  a difference reported in {} of {} comparisons; {} more were not valid",
            tally.differences, tally.valid, tally.not_valid
        );
    }
    Ok(())
}

fn parts(program: &Path, site: &Site, extent: Extent) -> [Part; 4] {
    let own = format!("exec {} serve {} --listen 0.0.0.0:{PORT}", program.display(), site.path("").display());
    let model = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/model-server/model.py");
    let model = |service: &str| {
        format!("exec python3 {} --listen 0.0.0.0:{PORT} --workers 4 --service {service}", model.display())
    };
    let slower = [model("0.020"), model("0.021")];
    let part =
        |name, about, servers, path, load, rounds, longer| Part { name, about, servers, path, load, rounds, longer };
    let few = SLOWER_ROUNDS.min(extent.rounds);
    [
        part(
            "open",
            "nginx and itself, 10 KB, open loop of 1,000/s: mean response time",
            [site.nginx(), site.nginx()],
            "/10k.bin",
            &["-r", "1000/s"],
            extent.rounds,
            1,
        ),
        part(
            "closed",
            "yamabiko serve and itself, 10 KB, closed loop of 16 connections: achieved rate",
            [own.clone(), own],
            "/10k.bin",
            &["-c", "16"],
            extent.rounds,
            1,
        ),
        part(
            "slower-open",
            "the model server, 20 ms per request, and one with 21 ms; open loop of 100/s: mean response time",
            slower.clone(),
            "/",
            &["-r", "100/s"],
            few,
            1,
        ),
        part(
            "slower-closed",
            // The rate of a run is exact to 4 requests.
            "the same in a closed loop of 4 connections: achieved rate",
            slower,
            "/",
            &["-c", "4"],
            few,
            3,
        ),
    ]
}

#[derive(Default)]
struct Tally {
    differences: u32,
    valid: u32,
    not_valid: u32,
}

impl Tally {
    /// Adds a comparison. The interval of a suspect comparison counts like that of a valid one.
    fn add(&mut self, document: &CompareDocument) {
        if document.validity.verdict == Verdict::Invalid {
            self.not_valid += 1;
            return;
        }
        self.valid += 1;
        let verdict = document.compare.headline().map(|metric| metric.verdict);
        self.differences += u32::from(matches!(verdict, Some(CompareVerdict::Less | CompareVerdict::More)));
    }
}

fn compare(program: &Path, servers: &[String; 2], url: &str, load: &[&str], seed: usize) -> Result<CompareDocument> {
    let seed = seed.to_string();
    let output = Command::new(program)
        .args([
            "compare",
            url,
            "--server",
            &servers[0],
            "--server",
            &servers[1],
            "--json",
            "--no-save",
            "--seed",
            &seed,
        ])
        .args(["--server-cpu", SHARE, "--blocks", BLOCKS])
        .args(load)
        .output()
        .context("yamabiko compare")?;
    serde_json::from_slice(&output.stdout)
        .with_context(|| format!("yamabiko compare: {}", String::from_utf8_lossy(&output.stderr).trim()))
}

fn line(document: &CompareDocument) -> String {
    let compare = &document.compare;
    let counted = compare.blocks.iter().filter(|block| block.counted).count();
    let made = compare.blocks.len().saturating_sub(1);
    let figures = compare.headline().and_then(|metric| Some((metric, metric.difference?, metric.interval?)));
    let what = match figures {
        Some((metric, difference, [low, high])) => {
            let finding = match metric.verdict {
                CompareVerdict::Less => "less",
                CompareVerdict::More => "more",
                _ => "no difference detected",
            };
            let percent = |share: f64| format!("{:+.2} %", 100.0 * share);
            format!("{:>8} ({} to {})  {finding}", percent(difference), percent(low), percent(high))
        }
        None => "nothing is known".to_owned(),
    };
    format!("{what}; {counted} of {made} blocks count; {}", document.validity.verdict.name())
}
