//! `cargo xtask bench compare [--rounds N] [--seconds N]`: whether `yamabiko compare` cries wolf, and whether it sees 5
//! %.
//!
//! A server is compared with itself, again and again, each time with another seed: at 95 % one comparison in twenty
//! shows a difference that is none. Half of them are nginx in an open loop, where the mean response time decides, half
//! this program's server in a closed one, where the carried rate does; both are held to a share of a core, so that the
//! client is never the limit. Then the model server (`examples/model-server`) with one whose requests take 5 % longer,
//! in an open loop and in a closed one. Each comparison is of six blocks of four runs, and nothing is widened.
//! `--only` takes one of the four.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};
use schema::{CompareDocument, CompareVerdict, Verdict};

use super::extent::{Extent, only};
use super::servers::{PORT, Site, need, yamabiko};

/// Comparisons of a server with itself, each way of loading it, and the length of a run.
const USUAL_EXTENT: Extent = Extent { rounds: 10, seconds: 1 };
/// Comparisons with the slower server, each way of loading it.
const SLOWER_ROUNDS: usize = 3;
/// What each server is held to.
const SHARE: &str = "20%";
/// The blocks of a comparison that count, where none is disturbed.
const BLOCKS: &str = "6";

/// One of the four.
struct Part {
    /// What `--only` knows it by.
    name: &'static str,
    about: &'static str,
    servers: [String; 2],
    path: &'static str,
    load: &'static [&'static str],
    rounds: usize,
    /// Its runs are so many times as long.
    longer: u64,
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
    let (picked, words) = only(words, &["open", "closed", "slower-open", "slower-closed"])?;
    let extent = USUAL_EXTENT.changed_by(&words)?;
    need("nginx")?;
    let (program, site) = (yamabiko()?, Site::new()?);
    println!("{BLOCKS} blocks of four runs each, servers held to {SHARE} of a core");
    for part in parts(&program, &site, extent) {
        if picked.is_some_and(|picked| picked != part.name) {
            continue;
        }
        let duration = format!("{}s", extent.seconds * part.longer);
        println!("\n{}: {}; runs of {duration}", part.name, part.about);
        let url = format!("http://server:{PORT}{}", part.path);
        let load = [part.load, &["-d", &duration]].concat();
        let mut told = Tally::default();
        for seed in 1..=part.rounds {
            let document = compare(&program, &part.servers, &url, &load, seed)?;
            told.add(&document);
            println!("  {seed:>2}  {}", line(&document));
        }
        println!(
            "  a difference shown in {} of {} comparisons; {} more were not valid",
            told.shown, told.valid, told.not_valid
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
            "nginx beside itself, 10 KB, open loop of 1,000/s: mean response time",
            [site.nginx(), site.nginx()],
            "/10k.bin",
            &["-r", "1000/s"],
            extent.rounds,
            1,
        ),
        part(
            "closed",
            "yamabiko serve beside itself, 10 KB, closed loop of 16 connections: carried rate",
            [own.clone(), own],
            "/10k.bin",
            &["-c", "16"],
            extent.rounds,
            1,
        ),
        part(
            "slower-open",
            "the model server, 20 ms a request, beside one of 21 ms; open loop of 100/s: mean response time",
            slower.clone(),
            "/",
            &["-r", "100/s"],
            few,
            1,
        ),
        part(
            "slower-closed",
            // A run's rate is known to 4 requests.
            "the same in a closed loop of 4 connections: carried rate",
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
    shown: u32,
    valid: u32,
    not_valid: u32,
}

impl Tally {
    /// A suspect comparison says as much of the interval as a valid one.
    fn add(&mut self, document: &CompareDocument) {
        if document.validity.verdict == Verdict::Invalid {
            self.not_valid += 1;
            return;
        }
        self.valid += 1;
        let verdict = document.compare.headline().map(|metric| metric.verdict);
        self.shown += u32::from(matches!(verdict, Some(CompareVerdict::Less | CompareVerdict::More)));
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
            let shown = match metric.verdict {
                CompareVerdict::Less => "less",
                CompareVerdict::More => "more",
                _ => "no difference shown",
            };
            let percent = |share: f64| format!("{:+.2} %", 100.0 * share);
            format!("{:>8} ({} to {})  {shown}", percent(difference), percent(low), percent(high))
        }
        None => "nothing is known".to_owned(),
    };
    format!("{what}; {counted} of {made} blocks count; {}", document.validity.verdict.name())
}
