//! How many tests of one binary run side by side.
//!
//! libtest runs as many as there are cores. That is too many for tests of the real network, where what is measured wants the
//! machine's attention, and too few where a test starts the program and waits for it, most of the time for a load that lasts a second or
//! two and asks for a tenth of a core.
//!
//! ```text
//!   cargo test ──CARGO_TARGET_.._RUNNER──> xtask one-binary PROGRAM ARGUMENTS ──RUST_TEST_THREADS──> PROGRAM
//! ```
//!
//! | binaries | at a time | since |
//! |---|---|---|
//! | `command`, `misbehaving`, `results`, `experiments` | two for each core | they wait, and nothing in them depends on a figure |
//! | `real_validity`, `real_path`, `real_results`, `real_experiments` | two | of what is measured there is one at a time (`Workspace::new`); beside it goes what only waits (`Workspace::concurrent_as_root`) |
//! | other `real_*` | one | they make networks in their own process, or are all measured |
//! | all others | one for each core | libtest's own |

use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result};

const WAITING: [&str; 4] = ["command", "misbehaving", "results", "experiments"];
const ONE_IS_MEASURED: [&str; 4] = ["real_validity", "real_path", "real_results", "real_experiments"];

const SECOND_STREAM: [&str; 4] = ["real_attacks", "real_experiments", "real_fleet", "real_load"];

/// What libtest asks for the number of its threads.
pub const VARIABLE: &str = "RUST_TEST_THREADS";

/// The verb by which cargo has this program start a test binary.
pub const VERB: &str = "one-binary";

/// The command by which cargo is to start test binaries. `None` if this program cannot be named in it: then each runs as libtest
/// has it, which only takes longer, and the real-network tests want to be told otherwise.
pub fn runner() -> Option<String> {
    let program = std::env::current_exe().ok()?;
    // cargo takes it apart at spaces.
    let program = program.to_str().filter(|path| !path.contains(char::is_whitespace))?;
    Some(format!("{program} {VERB}"))
}

/// Becomes the test binary.
///
/// # Errors
/// It cannot be started.
pub fn become_binary(program: &str, arguments: &[&str]) -> Result<()> {
    let mut command = Command::new(program);
    command.args(arguments);
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    if let Some(threads) = threads(program, cores).filter(|_| std::env::var_os(VARIABLE).is_none()) {
        command.env(VARIABLE, threads.to_string());
    }
    Err(command.exec()).with_context(|| format!("start {program}"))
}

/// The real-network test binaries as two streams that run one beside the other, each one binary at a time. A stream takes about
/// half of the time; what is not named in the table is in the first.
pub fn streams(binaries: Vec<String>) -> [Vec<String>; 2] {
    let (second, first) = binaries.into_iter().partition(|name| SECOND_STREAM.contains(&&**name));
    [first, second]
}

/// None: as libtest has it.
fn threads(program: &str, cores: usize) -> Option<usize> {
    // cargo calls it NAME-HASH.
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
        for name in WAITING.into_iter().chain(ONE_IS_MEASURED).chain(SECOND_STREAM) {
            assert!(tests.join(format!("{name}.rs")).is_file(), "{name} is a test binary no more");
        }
    }

    #[test]
    fn real_network_binaries_run_in_two_streams() {
        let names = ["real_attacks", "real_new", "real_path"].map(str::to_owned).to_vec();
        assert_eq!(
            streams(names),
            [vec!["real_new".to_owned(), "real_path".to_owned()], vec!["real_attacks".to_owned()]]
        );
    }

    #[test]
    fn the_runner_command_splits_into_two_words() {
        if let Some(runner) = runner() {
            assert_eq!(runner.split_whitespace().count(), 2, "{runner}");
        }
    }
}
