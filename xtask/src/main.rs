//! The project's own chores, run as `cargo xtask VERB`.
//!
//! `test` is what a contributor runs and what CI runs: [`test`] is its list of steps. [`packages`] makes a fresh
//! Debian ready for it, [`package`] makes what people install, [`tidy`] holds the rules that neither rustfmt nor clippy
//! knows, [`bench`] measures.
#![allow(clippy::disallowed_methods, reason = "chores time their steps, benches read the clock and wait")]

mod audit;
#[cfg(feature = "bench")]
mod bench;
#[cfg(feature = "bench")]
mod package;
mod packages;
mod readers;
mod reference;
mod rights;
mod tally;
mod test;
mod tidy;

use std::path::Path;
use std::process::ExitCode;

#[cfg(not(feature = "bench"))]
use anyhow::Context as _;
use anyhow::Result;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let outcome = match words.as_slice() {
        // CI is the test verb and nothing else, so that what is green here is green there.
        ["ci"] => test::run(root(), test::Options::default()),
        ["test", options @ ..] => test::Options::parse(options).and_then(|options| test::run(root(), options)),
        ["tidy"] => tidy::run(root()),
        ["audit"] => audit::run(root()),
        ["reference"] => reference::run(root()),
        [test::threads::VERB, program, arguments @ ..] => test::threads::become_binary(program, arguments),
        // For one of the tests that need them, alone; `test` does it by itself.
        ["readers"] => readers::make_ready(root(), &test::target_folder(root())),
        ["package" | "bench" | "udp-echo" | "udp-send" | "measured" | "attack", ..] => benches(&words),
        ["help" | "--help" | "-h"] => {
            println!("{HELP}");
            Ok(())
        }
        [] => Err(anyhow::anyhow!("no verb given\n{HELP}")),
        _ => Err(anyhow::anyhow!("`{}` is not understood\n{HELP}", arguments.join(" "))),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}

#[cfg(feature = "bench")]
fn benches(words: &[&str]) -> Result<()> {
    bench::command(words)
}

/// This program again, with the benches in it: they need most of the workspace, and what that needs, which is too much to
/// build before every test. As a release, as which the program that is measured is built too. Whatever is the matter, the other one says it.
#[cfg(not(feature = "bench"))]
fn benches(words: &[&str]) -> Result<()> {
    use std::os::unix::process::CommandExt as _;

    let mut cargo = std::process::Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.args(["run", "--quiet", "--release", "--package", "xtask", "--features", "bench", "--manifest-path"]);
    let error = cargo.arg(root().join("Cargo.toml")).arg("--").args(words).exec();
    Err(error).context("start cargo")
}

/// The folder of the workspace.
fn root() -> &'static Path {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here)
}

const HELP: &str = "\
cargo xtask test [--full] [--no-install]
                             make a fresh Debian ready, then run every check and test; --full adds the long ones, --no-install only
                             names the packages that are missing
cargo xtask test --quick     what needs no privilege, no server and no package
cargo xtask ci               the same as test: exactly what CI runs
cargo xtask readers          what the tests of exports read our files with, into target/readers; test does it by itself
cargo xtask tidy             the project's own rules: sizes, arrows between crates, where unsafe may be
cargo xtask reference        write docs/reference anew from the definitions of options and plan keys
cargo xtask audit            where dependencies come from, their licences and versions; known flaws with cargo-deny
cargo xtask package          what is given to people: a tarball and a .deb, in target/package
cargo xtask bench [NAME]     measure, beside a peer where there is one; without a name: what there is to measure";
