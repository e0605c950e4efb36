//! Development tasks of the project, run as `cargo xtask VERB`.
//!
//! Contributors and CI run the verb `test`: the module [`test`] has its steps. [`packages`] installs the Debian
//! packages that the tests use, [`package`] builds the packages for users, [`tidy`] checks rules that neither rustfmt
//! nor clippy checks, and [`bench`] measures.
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
        // CI runs the verb `test` only, so that a local success is a success of CI.
        ["ci"] => test::run(root(), test::Options::default()),
        ["test", options @ ..] => test::Options::parse(options).and_then(|options| test::run(root(), options)),
        ["tidy"] => tidy::run(root()),
        ["audit"] => audit::run(root()),
        ["reference"] => reference::run(root()),
        [test::threads::VERB, program, arguments @ ..] => test::threads::become_binary(program, arguments),
        // For running a single test that needs the readers; `test` installs them itself.
        ["readers"] => readers::make_ready(root(), &test::target_folder(root())),
        ["package" | "bench" | "udp-echo" | "udp-send" | "measured" | "attack", ..] => benches(&words),
        ["help" | "--help" | "-h"] => {
            println!("{HELP}");
            Ok(())
        }
        [] => Err(anyhow::anyhow!("no verb given\n{HELP}")),
        _ => Err(anyhow::anyhow!("`{}` is not a verb of xtask\n{HELP}", arguments.join(" "))),
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

/// Builds and runs this program with the feature `bench`: the benches need most of the workspace, which takes too long
/// to build before every test. The release profile is that of the measured program. The started program prints its own
/// errors.
#[cfg(not(feature = "bench"))]
fn benches(words: &[&str]) -> Result<()> {
    use std::os::unix::process::CommandExt as _;

    let mut cargo = std::process::Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.args(["run", "--quiet", "--release", "--package", "xtask", "--features", "bench", "--manifest-path"]);
    let error = cargo.arg(root().join("Cargo.toml")).arg("--").args(words).exec();
    Err(error).context("start cargo")
}

/// The root folder of the workspace.
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
cargo xtask bench [NAME]     measure, and compare with a peer program; without a name: list the benches";
