//! The number of concurrent tests of a test binary.
//!
//! libtest runs one test per core. That is too many for real-network tests, whose measurements other tests disturb, and
//! too few for tests that start the program and wait for it: most wait for a load of a second or two that uses a tenth
//! of a core.
//!
//! ```text
//!   cargo test ──CARGO_TARGET_.._RUNNER──> xtask one-binary PROGRAM ARGUMENTS ──RUST_TEST_THREADS──> PROGRAM
//! ```
//!
//! | binaries | concurrent tests | reason |
//! |---|---|---|
//! | `command`, `misbehaving`, `results`, `experiments` | two per core | they wait, and check no measured figure |
//! | `real_validity`, `real_path`, `real_results`, `real_experiments`, `real_load` | two | one test that measures (`Workspace::new`), and one that waits (`Workspace::concurrent_as_root`) |
//! | other `real_*` | one | they make networks in their own process, or all measure |
//! | all others | one per core | the default of libtest |

use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result};

const WAITING: [&str; 4] = ["command", "misbehaving", "results", "experiments"];
const ONE_IS_MEASURED: [&str; 5] = ["real_validity", "real_path", "real_results", "real_experiments", "real_load"];

/// Real-network test binaries that run concurrently with those of the other stream. Their tests tolerate other load,
/// and namespaces and control groups of others on the host. Both streams take about as long.
const STREAMS: [&[&str]; 2] = [&["real_load"], &["real_attacks", "real_experiments", "real_fleet", "real_results"]];

/// The variable with libtest's number of threads.
pub const VARIABLE: &str = "RUST_TEST_THREADS";

/// The verb by which cargo starts a test binary through this program.
pub const VERB: &str = "one-binary";

/// The command by which cargo starts test binaries. `None` if it cannot contain this program's path: then libtest's
/// default applies, which takes longer, and the caller limits the real-network tests by [`VARIABLE`].
pub fn runner() -> Option<String> {
    let program = std::env::current_exe().ok()?;
    // cargo splits the command at spaces.
    let program = program.to_str().filter(|path| !path.contains(char::is_whitespace))?;
    Some(format!("{program} {VERB}"))
}

/// Replaces this process with the test binary.
///
/// # Errors
/// The test binary cannot be started.
pub fn become_binary(program: &str, arguments: &[&str]) -> Result<()> {
    let mut command = Command::new(program);
    command.args(arguments);
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    if let Some(threads) = threads(program, cores).filter(|_| std::env::var_os(VARIABLE).is_none()) {
        command.env(VARIABLE, threads.to_string());
    }
    Err(command.exec()).with_context(|| format!("start {program}"))
}

/// Divides real-network test binaries into those that run alone, and two streams that run concurrently, each one binary
/// at a time.
pub fn streams(binaries: Vec<String>) -> (Vec<String>, [Vec<String>; 2]) {
    let (first, rest): (Vec<_>, Vec<_>) = binaries.into_iter().partition(|name| STREAMS[0].contains(&&**name));
    let (second, alone) = rest.into_iter().partition(|name| STREAMS[1].contains(&&**name));
    (alone, [first, second])
}

/// The number of concurrent tests of a binary; `None`: libtest's default.
fn threads(program: &str, cores: usize) -> Option<usize> {
    // cargo's file name is NAME-HASH.
    let name = Path::new(program).file_name()?.to_str()?.rsplit_once('-')?.0;
    match name {
        _ if WAITING.contains(&name) => Some(2 * cores),
        _ if ONE_IS_MEASURED.contains(&name) => Some(2),
        _ if name.starts_with("real_") => Some(1),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_test_binary_of_the_table_exists() {
        let of = |name: &str| threads(&format!("/target/debug/deps/{name}-7a75a64df9386afc"), 3);
        assert_eq!(
            [of("experiments"), of("real_path"), of("real_effects"), of("tapping")],
            [Some(6), Some(2), Some(1), None]
        );
        assert_eq!([threads("experiments", 3), threads("", 3), threads("/", 3)], [None; 3]);
        let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates/yamabiko/tests");
        for name in WAITING.into_iter().chain(ONE_IS_MEASURED).chain(STREAMS.concat()) {
            assert!(tests.join(format!("{name}.rs")).is_file(), "the test binary {name} does not exist");
        }
    }

    #[test]
    fn real_network_binaries_run_alone_or_in_two_streams() {
        let owned = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>();
        let (alone, streams) = streams(owned(&["real_attacks", "real_load", "real_new", "real_path"]));
        assert_eq!(alone, owned(&["real_new", "real_path"]));
        assert_eq!(streams, [owned(&["real_load"]), owned(&["real_attacks"])]);
    }

    #[test]
    fn the_runner_command_splits_into_two_words() {
        if let Some(runner) = runner() {
            assert_eq!(runner.split_whitespace().count(), 2, "{runner}");
        }
    }
}
