//! `cargo xtask bench compare [--rounds N] [--seconds N]`: whether `yamabiko compare` cries wolf, and whether it sees 5
//! %.
//!
//! A server is compared with itself, again and again, each time with another seed: at 95 % one comparison in twenty
//! shows a difference that is none. Then the model server (`examples/model-server`) with one whose requests take 5 %
//! longer, in an open loop and in a closed one.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};
use ledger::{CompareDocument, CompareVerdict, Verdict};

use super::extent::Extent;
use super::servers::{PORT, Site, yamabiko};

/// Comparisons of a server with itself, and the length of a run. Each comparison takes from 7 to 21 blocks of four
/// runs.
const USUAL_EXTENT: Extent = Extent { rounds: 20, seconds: 1 };
/// Comparisons with the slower server, each way of loading it.
const SLOWER_ROUNDS: usize = 3;

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
    let (program, site) = (yamabiko()?, Site::new()?);
    let duration = format!("{}s", extent.seconds);
    let own = format!("exec {} serve {} --listen 0.0.0.0:{PORT}", program.display(), site.path("").display());
    println!(
        "yamabiko serve beside itself, 1 KB in a closed loop of 16 connections, runs of {duration}, blocks until the carried rate is known\n\
         within 2 % (6 to 20 of four runs each)"
    );
    let url = format!("http://server:{PORT}/1k.bin");
    let closed = ["-c", "16", "-d", &duration];
    let mut told = Tally::default();
    for round in 0..extent.rounds {
        let document = compare(&program, [&own, &own], &url, &closed, round + 1)?;
        told.add(&document);
        println!("  {:>2}  {}", round + 1, line(&document));
    }
    println!(
        "  a difference shown in {} of {} valid comparisons; {} were not valid",
        told.shown, told.valid, told.not_valid
    );

    let model = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/model-server/model.py");
    let model = |service: &str| {
        format!("exec python3 {} --listen 0.0.0.0:{PORT} --workers 4 --service {service}", model.display())
    };
    let (usual, slower) = (model("0.020"), model("0.021"));
    for (about, load) in [
        ("open loop of 100/s: mean response time", &["-r", "100/s", "-d", &duration][..]),
        ("closed loop of 8 connections: carried rate", &["-c", "8", "-d", &duration]),
    ] {
        println!("\nthe model server, 20 ms a request, beside one of 21 ms; {about}");
        let mut told = Tally::default();
        for round in 0..SLOWER_ROUNDS.min(extent.rounds) {
            let document = compare(&program, [&usual, &slower], &url, load, round + 1)?;
            told.add(&document);
            println!("  {:>2}  {}", round + 1, line(&document));
        }
        println!("  a difference shown in {} of {} valid comparisons", told.shown, told.valid);
    }
    Ok(())
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

fn compare(program: &Path, servers: [&str; 2], url: &str, load: &[&str], seed: usize) -> Result<CompareDocument> {
    let seed = seed.to_string();
    let output = Command::new(program)
        .args(["compare", url, "--server", servers[0], "--server", servers[1], "--json", "--no-save", "--seed", &seed])
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
