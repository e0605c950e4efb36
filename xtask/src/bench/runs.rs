//! `cargo xtask bench runs`: time to list very many runs, with and without the catalogue.
//!
//! Each run is a folder with a copy of the summary of a real short run, so that the summaries have a real size.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context as _, Result, bail};

use super::rounds::{line, median};

/// Lists 10,000 runs (or `--runs N`) with the release binary (or `--binary FILE`), `--rounds N` times with and without
/// the catalogue.
///
/// # Errors
/// The binary does not exist or fails.
pub fn run_with(options: &[&str]) -> Result<()> {
    let (mut runs, mut rounds, mut binary) = (10_000_usize, 5_usize, PathBuf::from("target/release/yamabiko"));
    for pair in options.chunks(2) {
        match pair {
            ["--runs", count] => runs = count.parse().context("--runs")?,
            ["--rounds", count] => rounds = count.parse().context("--rounds")?,
            ["--binary", path] => binary = PathBuf::from(path),
            _ => bail!("options are --runs N, --rounds N, --binary FILE"),
        }
    }
    let binary = fs::canonicalize(&binary).with_context(|| format!("{}: build it first", binary.display()))?;
    let folder = tempfile::tempdir()?;
    let bytes = fill(folder.path(), &binary, runs)?;
    println!("{runs} runs with a summary of {bytes} bytes each; the files are in the page cache");
    let list = |arguments: &[&str]| run_duration_ms(&binary, folder.path(), arguments);
    // Read all folders once, so that they are in the page cache for both.
    list(&["runs", "--no-catalogue"])?;
    let first = list(&["runs"])?;
    let (mut with, mut without, mut searched) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..rounds {
        with.push(list(&["runs"])?);
        without.push(list(&["runs", "--no-catalogue"])?);
        searched.push(list(&["runs", "search", "--where", "p99 > 1h"])?);
    }
    println!("{}", line("from the folders", "ms", &without));
    println!("{}", line("from the folders, catalogue made", "ms", &[first]));
    println!("{}", line("by the catalogue", "ms", &with));
    println!("{}", line("search on a figure", "ms", &searched));
    println!("  by the catalogue {:.1} times as fast", median(&without) / median(&with));
    let size = fs::metadata(folder.path().join("catalogue.sqlite"))?.len();
    println!("  catalogue.sqlite: {:.1} MB", size as f64 / 1e6);
    Ok(())
}

/// The bench with its defaults.
///
/// # Errors
/// Those of [`run_with`].
pub fn run() -> Result<()> {
    run_with(&[])
}

/// Makes one run and `runs` copies of it; returns the size of the summary.
fn fill(store: &Path, binary: &Path, runs: usize) -> Result<usize> {
    // No server listens: the requests fail, and the document is complete.
    run_duration_ms(binary, store, &["bench", "http://127.0.0.1:9/", "-n", "1000", "-r", "10000/s"])?;
    let made = fs::read_dir(store)?.next().context("the run was not stored")??.path();
    let summary = fs::read(made.join("summary.json"))?;
    for number in 1..runs {
        let (day, second) = (number / 86_400 + 1, number % 86_400);
        let id = format!("202601{day:02}-{:02}{:02}{:02}", second / 3600, second / 60 % 60, second % 60);
        let run = store.join(format!("{id}-bench-abcd"));
        fs::create_dir(&run)?;
        fs::write(run.join("summary.json"), &summary)?;
    }
    Ok(summary.len())
}

/// Runs the program with these arguments; returns its duration in milliseconds.
fn run_duration_ms(binary: &Path, store: &Path, arguments: &[&str]) -> Result<f64> {
    let began = Instant::now();
    let output = Command::new(binary).args(arguments).env("YAMABIKO_RUNS", store).stdin(Stdio::null()).output()?;
    let took = began.elapsed().as_secs_f64() * 1e3;
    // Exit status 3: an invalid run, as expected without a server.
    if !matches!(output.status.code(), Some(0 | 3)) {
        bail!("yamabiko {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(took)
}
