//! `cargo xtask bench emulators`: yamabiko compared with mahimahi and rattan, by `yamabiko reproduce
//! emulators`, which has the probes and the peers' configurations.
//!
//! A peer is found on PATH, or by an environment variable: `YAMABIKO_MAHIMAHI`, the folder of mm-delay, mm-link and
//! mm-loss; `YAMABIKO_RATTAN`, the program. docs/notes/emulators.md says how they are built. One that is not found is
//! reported as not run.
//!
//! The parts run one after the other. After each its document is added to a JSON file, so that an interrupted bench
//! keeps what it has.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};
use schema::{ReproductionDocument, ReproductionRow};

use super::extent::{Extent, only};
use super::servers::{output, yamabiko};

/// The parts, the rounds of each (all together about twenty minutes by their settings), and further arguments of a quick bench.
const PARTS: &[(&str, usize, &[&str])] = &[
    ("rtt", 5, &[]),
    ("rates", 2, &[]),
    ("loss", 5, &[]),
    ("trace", 3, &[]),
    ("flow", 3, &["--rates", "100Mbit,1Gbit"]),
    ("depth", 2, &["--depths", "1,8"]),
    ("density", 1, &["--paths", "8,32"]),
];

/// What to run and where to write.
#[derive(Debug, PartialEq)]
struct Options<'a> {
    part: Option<&'a str>,
    extent: Extent,
    /// Whether every part has the rounds of `extent`.
    same_rounds: bool,
    quick: bool,
    json: PathBuf,
    /// Folder of the pages, one a part.
    pages: Option<PathBuf>,
    binary: Option<PathBuf>,
}

/// The bench with its defaults.
///
/// # Errors
/// Those of [`run_with`].
pub fn run() -> Result<()> {
    run_with(&[])
}

/// Runs all parts, or `--only PART`; `--rounds N`: as many of each; `--quick`: one round at few points. Documents go to
/// `--json FILE`, pages to `--pages FOLDER`. `--binary FILE` is measured instead of a new build.
///
/// # Errors
/// An unknown option, or a part that could not be run.
pub fn run_with(words: &[&str]) -> Result<()> {
    let options = parse(words)?;
    let binary = match &options.binary {
        Some(file) => fs::canonicalize(file).with_context(|| format!("{}", file.display()))?,
        None => yamabiko()?,
    };
    println!("{}", machine());
    let mut documents = Vec::new();
    for &(part, rounds, quick) in PARTS.iter().filter(|(part, ..)| options.part.is_none_or(|only| only == *part)) {
        let rounds = if options.same_rounds { options.extent.rounds } else { rounds };
        let document = measure(&binary, part, (rounds, if options.quick { quick } else { &[] }), &options)?;
        print_rows(part, &document);
        documents.push(document);
        if let Some(folder) = options.json.parent() {
            fs::create_dir_all(folder)?;
        }
        fs::write(&options.json, serde_json::to_string_pretty(&documents)? + "\n")
            .with_context(|| format!("{}", options.json.display()))?;
    }
    println!("documents: {}", options.json.display());
    Ok(())
}

fn parse<'a>(words: &[&'a str]) -> Result<Options<'a>> {
    let names: Vec<&str> = PARTS.iter().map(|(name, ..)| *name).collect();
    let (part, words) = only(words, &names)?;
    let quick = words.contains(&"--quick");
    let same_rounds = quick || words.contains(&"--rounds");
    let extent = if quick { Extent { rounds: 1, seconds: 1 } } else { Extent { rounds: 5, seconds: 2 } };
    let (mut json, mut pages, mut binary) = (PathBuf::from("target/bench/emulators.json"), None, None);
    let mut others = Vec::new();
    for pair in words.into_iter().filter(|&word| word != "--quick").collect::<Vec<_>>().chunks(2) {
        match *pair {
            ["--json", file] => json = PathBuf::from(file),
            ["--pages", folder] => pages = Some(PathBuf::from(folder)),
            ["--binary", file] => binary = Some(PathBuf::from(file)),
            _ => others.extend(pair),
        }
    }
    Ok(Options { part, extent: extent.changed_by(&others)?, same_rounds, quick, json, pages, binary })
}

fn measure(
    binary: &Path,
    part: &str,
    (rounds, more): (usize, &[&str]),
    options: &Options<'_>,
) -> Result<ReproductionDocument> {
    let mut command = Command::new(binary);
    command.args(["reproduce", "emulators", "--json", "--only", part]).args(more);
    command.args(["--rounds", &rounds.to_string(), "-d", &format!("{}s", options.extent.seconds)]);
    if let Some(folder) = &options.pages {
        fs::create_dir_all(folder)?;
        command.arg("--html").arg(folder.join(format!("emulators-{part}.html")));
    }
    // The documents are in the JSON file: the user's run store stays as it is.
    let run_store = tempfile::tempdir()?;
    let ran = command.env("YAMABIKO_RUNS", run_store.path()).output().with_context(|| format!("{command:?}"))?;
    // An invalid measurement ends with status 3 and has a document all the same: the checks are of yamabiko's runs.
    match serde_json::from_slice(&ran.stdout) {
        Ok(document) => Ok(document),
        Err(_) => bail!("{command:?}: {}: {}", ran.status, String::from_utf8_lossy(&ran.stderr).trim()),
    }
}

fn print_rows(part: &str, document: &ReproductionDocument) {
    println!("{part}: {} ({} of yamabiko's checks are not ok)", document.validity.verdict.name(), doubts(document));
    for row in &document.reproduce.rows {
        println!("  {}", line(row));
    }
}

fn doubts(document: &ReproductionDocument) -> usize {
    document.validity.checks.iter().filter(|check| check.state != schema::CheckState::Ok).count()
}

fn line(row: &ReproductionRow) -> String {
    let figure = row.measured.map_or_else(|| "-".to_owned(), |value| format!("{value:.2}"));
    let (experiment, setting) = (&row.experiment, &row.setting);
    format!("{experiment:<52} {setting:<9} {:<36} {figure:>12} {:<10} ({})", row.quantity, row.unit, row.note)
}

/// Cores, CPU model and kernel of the machine, in one line.
fn machine() -> String {
    let read = |file: &str| fs::read_to_string(file).unwrap_or_default();
    let cpu = read("/proc/cpuinfo");
    let model = cpu
        .lines()
        .find_map(|line| line.strip_prefix("model name"))
        .map_or("", |rest| rest.trim_start_matches([' ', '\t', ':']));
    let cores = cpu.lines().filter(|line| line.starts_with("processor")).count();
    let kernel = output(Command::new("uname").arg("-r")).unwrap_or_default();
    format!("machine: {cores} cores, {model}, Linux {}", kernel.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn emulators_options_are_parsed_and_invalid_ones_refused() {
        let options = parse(&["--only", "rtt", "--rounds", "3", "--pages", "out"]).unwrap();
        assert_eq!((options.part, options.extent.rounds, options.same_rounds), (Some("rtt"), 3, true));
        assert!(!parse(&[]).unwrap().same_rounds);
        assert_eq!(options.pages, Some(PathBuf::from("out")));
        assert_eq!(parse(&["--quick"]).unwrap().extent, Extent { rounds: 1, seconds: 1 });
        for words in [&["--only", "all"][..], &["--json"], &["--rounds", "0"], &["--turns", "1"]] {
            assert!(parse(words).is_err(), "{words:?}");
        }
    }
}
