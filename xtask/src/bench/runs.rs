//! `cargo xtask bench runs`: how long a list of very many runs takes, by the catalogue and without it.
//!
//! The runs are folders with one summary each, that of a short run made here, so that what is read is of its real size.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context as _, Result, bail};

use super::rounds::{line, median};

/// Lists 10,000 runs (or `--runs N`) by the release binary (or `--binary FILE`), `--rounds N` times each way.
///
/// # Errors
/// The binary is not there or fails.
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
    let list = |arguments: &[&str]| listed(&binary, folder.path(), arguments);
    // The folders once, so that both ways find them in the page cache.
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

/// Makes one run, and its summary so many times; the summary's size.
fn fill(book: &Path, binary: &Path, runs: usize) -> Result<usize> {
    // Nothing listens there: the requests fail, and the document is whole.
    listed(binary, book, &["bench", "http://127.0.0.1:9/", "-n", "1000", "-r", "10000/s"])?;
    let made = fs::read_dir(book)?.next().context("the run was not kept")??.path();
    let summary = fs::read(made.join("summary.json"))?;
    for number in 1..runs {
        let (day, second) = (number / 86_400 + 1, number % 86_400);
        let moment = format!("202601{day:02}-{:02}{:02}{:02}", second / 3600, second / 60 % 60, second % 60);
        let run = book.join(format!("{moment}-bench-abcd"));
        fs::create_dir(&run)?;
        fs::write(run.join("summary.json"), &summary)?;
    }
    Ok(summary.len())
}

/// Runs it to its end; milliseconds.
fn listed(binary: &Path, book: &Path, arguments: &[&str]) -> Result<f64> {
    let began = Instant::now();
    let output = Command::new(binary).args(arguments).env("YAMABIKO_RUNS", book).stdin(Stdio::null()).output()?;
    let took = began.elapsed().as_secs_f64() * 1e3;
    // 3: an invalid measurement, which a run without a server may well be.
    if !matches!(output.status.code(), Some(0 | 3)) {
        bail!("yamabiko {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(took)
}
