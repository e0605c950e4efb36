//! How many tests of one binary run side by side.
//!
//! libtest runs as many as there are cores. In some of the command's binaries a test starts the program and waits for it, most of
//! the time for a load that lasts a second or two and asks for a tenth of a core: two at a time leave the machine idle. Each of these
//! is run with more threads. Nothing in them depends on a figure; what does has a binary of its own, or is a real-network test.
//!
//! ```text
//!   cargo test ──CARGO_TARGET_.._RUNNER──> xtask one-binary PROGRAM ARGUMENTS ──RUST_TEST_THREADS──> PROGRAM
//! ```

use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result};

/// Binaries of tests that mostly wait.
const WAITING: [&str; 4] = ["command", "misbehaving", "showing", "suites"];

/// What libtest asks for the number of its threads.
const THREADS: &str = "RUST_TEST_THREADS";

/// The verb by which cargo has this program start a test binary.
pub const VERB: &str = "one-binary";

/// The command by which cargo is to start test binaries. `None` if this program cannot be named in it: then each runs as cargo runs
/// it, which only takes longer.
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
    if waits(program) && std::env::var_os(THREADS).is_none() {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        command.env(THREADS, (2 * cores).to_string());
    }
    Err(command.exec()).with_context(|| format!("start {program}"))
}

/// Whether it is one of those that mostly wait: cargo calls it `NAME-HASH`.
fn waits(program: &str) -> bool {
    let name = Path::new(program).file_name().and_then(|name| name.to_str()).unwrap_or_default();
    name.rsplit_once('-').is_some_and(|(name, _)| WAITING.contains(&name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn binaries_that_wait_are_known_by_name_and_all_are_there() {
        assert!(waits("/target/debug/deps/suites-7a75a64df9386afc"));
        assert!(!waits("/target/debug/deps/tapping-fc93358b97bbe79b") && !waits("suites") && !waits(""));
        let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates/yamabiko/tests");
        for name in WAITING {
            assert!(tests.join(format!("{name}.rs")).is_file(), "{name} is a test binary no more");
        }
    }

    #[test]
    fn cargo_can_take_the_runner_apart() {
        if let Some(runner) = runner() {
            assert_eq!(runner.split_whitespace().count(), 2, "{runner}");
        }
    }
}
