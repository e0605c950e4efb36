//! `cargo xtask test`: every check and every test, in the order in which a failure is cheapest to find.
//!
//! ```text
//!   fetch ▶ format ▶ lint ▶ small build ▶ tidy ▶ audit ▶ packages ▶ build ▶ readers ▶ tests ▶ real-network tests
//!     └ packages, readers and fetch alone use the network                └ as root
//! ```
//!
//! Packages are installed during the steps that do not need them; the step `packages` waits for that. Nothing else runs
//! during the tests, because some of them check that a client is served in time.
//!
//! One build contains the ordinary tests, the real-network tests and the program that both start, with overflow checks
//! and debug assertions. `--full` also builds the release, which the real-network tests then start.
//!
//! [`threads`] decides how many tests of a binary run concurrently.
//!
//! Every step runs even if an earlier step failed, unless packages are missing. The last line is `N passed, N failed`:
//! tests and steps together.

pub mod background;
mod targets;
pub mod threads;

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow, bail};

use self::background::Background;
use self::targets::{ordinary_targets, real_targets, targets_of};
use crate::rights::Rights;
use crate::tally::Tally;
use crate::{audit, packages, readers, tidy};

/// How much to run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Extent {
    /// Unit tests and the tests of libraries: they need neither root nor servers nor a network. For use during
    /// development; CI runs `Usual`.
    Quick,
    /// The tests that every change must pass.
    #[default]
    Usual,
    /// Also the tests that take longer, behind the feature `full`.
    Full,
}

/// Options of the test command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// How much to run.
    pub extent: Extent,
    /// Whether missing packages are installed. Otherwise they are named, and nothing runs.
    pub install: bool,
}

impl Default for Options {
    fn default() -> Self {
        Options { extent: Extent::Usual, install: true }
    }
}

impl Options {
    /// Parses the arguments after `test`.
    ///
    /// # Errors
    /// An unknown option, or two extents.
    pub fn parse(words: &[&str]) -> Result<Options> {
        let mut options = Options::default();
        for word in words {
            let extent = match *word {
                "--no-install" => {
                    options.install = false;
                    continue;
                }
                "--quick" => Extent::Quick,
                "--full" => Extent::Full,
                other => bail!("unknown option `{other}`; test takes --quick, --full and --no-install"),
            };
            if options.extent != Extent::Usual {
                bail!("--quick and --full exclude one another");
            }
            options.extent = extent;
        }
        Ok(options)
    }
}

/// Runs all steps, then prints a table of them and the final line.
///
/// # Errors
/// Anything failed.
pub fn run(root: &Path, options: Options) -> Result<()> {
    // The build replaces the file of this program, so its name is read first.
    let runner = threads::runner();
    let extent = options.extent;
    let mut run = Run { root, extent, rights: Rights::find(), runner, steps: Vec::new() };
    if extent == Extent::Quick {
        run.quick();
        return run.conclude();
    }
    match packages::begin(run.rights, options) {
        Ok(installing) => run.all(installing),
        Err(error) => {
            run.step("packages", |_| Err(error));
        }
    }
    run.conclude()
}

/// The test command in progress.
struct Run<'a> {
    root: &'a Path,
    extent: Extent,
    rights: Rights,
    /// The command by which cargo starts test binaries.
    runner: Option<String>,
    steps: Vec<Step>,
}

/// A completed step.
struct Step {
    name: &'static str,
    tally: Tally,
    took: Duration,
}

impl<'a> Run<'a> {
    /// Runs every step, while packages are installed.
    fn all(&mut self, installing: Option<Background>) {
        self.step("fetch", |run| run.check(&["fetch", "--locked"]));
        self.step("format", |run| run.check(&["fmt", "--all", "--check"]));
        // All features, because the real-network tests are behind one.
        self.step("lint", |run| {
            let what = ["clippy", "--workspace", "--all-targets", "--all-features", "--locked"];
            run.check(&[&what[..], &["--", "-D", "warnings"]].concat())
        });
        self.step("small build", Run::small_build);
        self.step("tidy", |run| tidy::run(run.root).map(|()| ONE));
        self.step("audit", |run| audit::run(run.root).map(|()| ONE));
        if !self.step("packages", |_| installing.map_or(Ok(()), Background::finish).map(|()| ONE)) {
            return;
        }
        let (root, target) = (self.root.to_owned(), target_folder(self.root));
        let readers = std::thread::spawn(move || readers::make_ready(&root, &target));
        self.step("build", |run| run.check(&[run.tests_of_all(), words(&["--tests", "--no-run"])].concat()));
        self.step("readers", |_| match readers.join() {
            Ok(made) => made.map(|()| ONE),
            Err(_) => bail!("the thread panicked; its message is above"),
        });
        if self.extent == Extent::Full {
            self.step("release", |run| run.check(&["build", "--release", "--locked"]));
        }
        self.step("tests", Run::ordinary_tests);
        self.step("real-network tests", Run::real_tests);
    }

    /// Checks that the program without its optional parts compiles. `--full` also tests that it refuses their verbs and
    /// options by name, which compiles every crate a second time.
    fn small_build(&self) -> Result<Tally> {
        let small = ["--package", "yamabiko", "--no-default-features", "--locked", "--bins"];
        if self.extent == Extent::Full {
            return self.tests(self.cargo(&[&["test"], &small[..], &["left_out"]].concat()));
        }
        self.check(&[&["clippy"], &small[..], &["--", "-D", "warnings"]].concat())
    }

    /// Runs the steps that need no privilege, no servers and no packages.
    fn quick(&mut self) {
        self.step("format", |run| run.check(&["fmt", "--all", "--check"]));
        self.step("tidy", |run| tidy::run(run.root).map(|()| ONE));
        self.step("audit", |run| audit::run(run.root).map(|()| ONE));
        self.step("tests", |run| {
            // Tests of the command start servers and sandboxes.
            let mut targets = ordinary_targets(&run.root.join("crates"))?;
            let of_command = targets_of(&run.root.join("crates/yamabiko/tests"))?;
            targets.retain(|name| !of_command.contains(name));
            let mut cargo = run.cargo(&[run.tests_of_all(), words(&["--lib", "--bins"]), named(targets)].concat());
            if let Some(runner) = &run.runner {
                cargo.env(runner_variable(&host_triple()?), runner);
            }
            run.tests(cargo)
        });
    }

    /// Runs a step and records its result. True if nothing failed.
    fn step(&mut self, name: &'static str, take: impl FnOnce(&Self) -> Result<Tally>) -> bool {
        println!("\n== {name}");
        let began = Instant::now();
        let tally = take(self).unwrap_or_else(|error| {
            println!("{name}: {error:#}");
            Tally::default().settle(false)
        });
        let took = began.elapsed();
        println!("== {name}: {} in {:.1} s", verdict(tally), took.as_secs_f64());
        self.steps.push(Step { name, tally, took });
        tally.failed == 0
    }

    /// Prints the table and the final line.
    fn conclude(self) -> Result<()> {
        println!();
        for Step { name, tally, took } in &self.steps {
            println!("{name:20} {:>8.1} s  {}", took.as_secs_f64(), verdict(*tally));
        }
        let passed: usize = self.steps.iter().map(|step| step.tally.passed).sum();
        let failed: usize = self.steps.iter().map(|step| step.tally.failed).sum();
        println!("{passed} passed, {failed} failed");
        if failed > 0 {
            // The final line is the error message.
            std::process::exit(1);
        }
        Ok(())
    }

    /// Runs a cargo command that counts as one test.
    fn check(&self, arguments: &[impl AsRef<str>]) -> Result<Tally> {
        let arguments: Vec<&str> = arguments.iter().map(AsRef::as_ref).collect();
        let status = self.cargo(&arguments).status().context("start cargo")?;
        if status.success() { Ok(ONE) } else { bail!("cargo {}: {status}", arguments.join(" ")) }
    }

    /// Runs the ordinary tests. Examples are compiled by the lint, and tidy checks that no doc tests exist.
    fn ordinary_tests(&self) -> Result<Tally> {
        let targets = ordinary_targets(&self.root.join("crates"))?;
        let mut cargo = self.cargo(&[self.tests_of_all(), words(&["--lib", "--bins"]), named(targets)].concat());
        if let Some(runner) = &self.runner {
            cargo.env(runner_variable(&host_triple()?), runner);
        }
        self.tests(cargo)
    }

    /// Runs the real-network tests as root: those that need the machine to themselves, then the others in two
    /// concurrent streams. The output of the second stream is printed when both have ended.
    fn real_tests(&self) -> Result<Tally> {
        let (alone, streams) = threads::streams(real_targets(&self.root.join("crates/yamabiko/tests"))?);
        let alone = self.tests(self.real_stream(alone)?)?;
        let [first, second] = streams.map(|targets| self.real_stream(targets));
        let (first, second) = (first?, second?);
        std::thread::scope(|scope| {
            let second = scope.spawn(|| {
                let mut text = String::new();
                let tally = count_tests(second, |line| text.push_str(line));
                (text, tally)
            });
            let first = self.tests(first);
            let (text, second) = second.join().map_err(|_| anyhow!("the thread of the second stream panicked"))?;
            println!("\n== real-network tests, second stream\n{text}");
            Ok(alone.plus(first?).plus(second?))
        })
    }

    /// The command for these real-network test binaries.
    fn real_stream(&self, targets: Vec<String>) -> Result<Command> {
        let target = target_folder(self.root);
        let mut cargo = self.cargo(&[self.tests_of_all(), named(targets)].concat());
        cargo.env(readers::VARIABLE, target.join(readers::FOLDER));
        if self.extent == Extent::Full {
            let binary = target.join("release/yamabiko");
            if !binary.is_file() {
                bail!("{} is not there: the release was not built", binary.display());
            }
            cargo.env(PROGRAM, &binary);
        }
        let mut start = String::new();
        if self.rights == Rights::Sudo {
            start = format!("sudo -n --preserve-env={PROGRAM},{},{} ", readers::VARIABLE, threads::VARIABLE);
        }
        match &self.runner {
            Some(runner) => start.push_str(runner),
            None => _ = cargo.env(threads::VARIABLE, "1"),
        }
        if !start.is_empty() {
            cargo.env(runner_variable(&host_triple()?), start.trim_end());
        }
        Ok(cargo)
    }

    /// First arguments of the three commands that build or run tests. Other packages or features would cause a second
    /// build.
    fn tests_of_all(&self) -> Vec<String> {
        let full = if self.extent == Extent::Full { ",yamabiko/full" } else { "" };
        let features = format!("xtask/bench,yamabiko/real-network{full}");
        words(&["test", "--workspace", "--locked", "--no-fail-fast", "--features", &features])
    }

    /// Runs cargo test, passing its output on and counting the tests.
    fn tests(&self, cargo: Command) -> Result<Tally> {
        count_tests(cargo, |line| print!("{line}"))
    }

    /// A cargo command in the workspace. Only the step `fetch` may use the network.
    fn cargo(&self, arguments: &[impl AsRef<str>]) -> Command {
        let arguments: Vec<&str> = arguments.iter().map(AsRef::as_ref).collect();
        let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        cargo.args(&arguments).current_dir(self.root).stdin(Stdio::null());
        if arguments.first() != Some(&"fetch") {
            cargo.env("CARGO_NET_OFFLINE", "true");
            // With these, curl and the browser would send requests for the testbed's addresses to a proxy.
            for name in PROXY_VARIABLES {
                cargo.env_remove(name).env_remove(name.to_uppercase());
            }
        }
        // Tests parse the output of other programs.
        cargo.env("LC_ALL", "C.UTF-8");
        cargo
    }
}

/// Runs cargo test, counts the tests, and gives each line of the output to `print`.
fn count_tests(mut cargo: Command, mut print: impl FnMut(&str)) -> Result<Tally> {
    let mut child = cargo.stdout(Stdio::piped()).spawn().context("start cargo test")?;
    let output = child.stdout.take().context("the output of cargo test")?;
    let mut tally = Tally::default();
    let mut lines = BufReader::new(output);
    let mut line = Vec::new();
    // By bytes: a test may print what is not UTF-8.
    while lines.read_until(b'\n', &mut line).context("read the output of cargo test")? > 0 {
        let text = String::from_utf8_lossy(&line);
        print(&text);
        tally.take(&text);
        line.clear();
    }
    let status = child.wait().context("wait for cargo test")?;
    if tally.ignored > 0 {
        print(&format!("{} ignored tests count as failed\n", tally.ignored));
    }
    if tally == Tally::default() && status.success() {
        bail!("cargo test succeeded without a single test");
    }
    Ok(tally.settle(status.success()))
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|&word| word.to_owned()).collect()
}

/// Arguments of cargo for these test binaries.
fn named(targets: Vec<String>) -> Vec<String> {
    targets.into_iter().flat_map(|target| ["--test".to_owned(), target]).collect()
}

/// The folder in which cargo builds.
pub fn target_folder(root: &Path) -> PathBuf {
    // The variable is relative to cargo's working folder, the root.
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), |folder| root.join(folder))
}

/// The variable with the program that tests start, if it is not the one that was built with them.
const PROGRAM: &str = "YAMABIKO_BIN";

fn host_triple() -> Result<String> {
    let output = Command::new("rustc").arg("-vV").output().context("start rustc -vV")?;
    let text = String::from_utf8_lossy(&output.stdout);
    let host = text.lines().find_map(|line| line.strip_prefix("host: ")).context("rustc -vV names no host")?;
    Ok(host.to_owned())
}

/// The variable with the command by which cargo runs the test binaries of a target.
fn runner_variable(triple: &str) -> String {
    format!("CARGO_TARGET_{}_RUNNER", triple.to_uppercase().replace(['-', '.'], "_"))
}

fn verdict(tally: Tally) -> String {
    match tally {
        ONE => "ok".to_owned(),
        Tally { passed: 0, failed: 1, .. } => "FAILED".to_owned(),
        Tally { passed, failed: 0, .. } => format!("{passed} passed"),
        Tally { passed, failed, .. } => format!("FAILED: {passed} passed, {failed} failed"),
    }
}

/// The count of a successful step without tests.
const ONE: Tally = Tally { passed: 1, failed: 0, ignored: 0 };

const PROXY_VARIABLES: &[&str] = &["http_proxy", "https_proxy", "all_proxy", "no_proxy", "ftp_proxy"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn test_options_are_parsed() {
        let parse = |words: &[&str]| Options::parse(words).map_err(|error| error.to_string());
        assert_eq!(parse(&[]), Ok(Options::default()));
        assert_eq!(parse(&["--quick"]), Ok(Options { extent: Extent::Quick, install: true }));
        assert_eq!(parse(&["--no-install", "--full"]), Ok(Options { extent: Extent::Full, install: false }));
        assert!(parse(&["--quick", "--full"]).unwrap_err().contains("exclude"));
        assert!(parse(&["--fast"]).unwrap_err().contains("--no-install"));
    }

    #[test]
    fn the_runner_variable_has_the_name_that_cargo_reads() {
        assert_eq!(runner_variable("x86_64-unknown-linux-gnu"), "CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_RUNNER");
        assert!(host_triple().unwrap().contains('-'));
    }

    #[test]
    fn the_verdict_prints_passed_and_failed_counts() {
        assert_eq!(verdict(ONE), "ok");
        assert_eq!(verdict(Tally::default().settle(false)), "FAILED");
        assert_eq!(verdict(Tally { passed: 3, failed: 2, ignored: 0 }), "FAILED: 3 passed, 2 failed");
    }
}
