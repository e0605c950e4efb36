//! Components without network: a child process for each, on the server's core, that repeats one operation and prints
//! its cost.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use schema::{ComponentPoint, ComponentRound, ComponentRounds};
use sys::sched::Cores;

use super::costs::MeasuredComponent;
use experiment::ExperimentError;
use experiment::local::CoreDivision;

/// Rounds of each size.
const ROUNDS: u32 = 7;
/// CPU time of a round: thousands of the cheapest operations, about a hundred handshakes.
const ROUND_CPU_TIME: Duration = Duration::from_millis(40);

/// Starts the children.
#[derive(Debug)]
pub struct Children<'a> {
    /// Path of this program.
    pub program: &'a Path,
    /// Folder for files.
    pub folder: &'a Path,
    /// Certificate and key, for TLS components.
    pub certificate: Option<(PathBuf, PathBuf)>,
}

impl Children<'_> {
    /// A component at each of `sizes`, and its rounds as printed. Must be called while this process has one thread.
    ///
    /// # Errors
    /// The child cannot be started, or printed something unexpected.
    pub fn price(
        &self,
        part: &'static str,
        words: &str,
        sizes: &[u64],
    ) -> Result<(Option<MeasuredComponent>, Vec<ComponentRound>), ExperimentError> {
        let (mut points, mut all) = (Vec::new(), Vec::new());
        for &bytes in sizes {
            let rounds = self.rounds(part, bytes)?;
            points.extend(rounds.iter().filter(|round| round.count > 0).map(|round| point(bytes, round)));
            all.extend(rounds);
        }
        Ok((MeasuredComponent::of(part, words, points), all))
    }

    fn rounds(&self, part: &'static str, bytes: u64) -> Result<Vec<ComponentRound>, ExperimentError> {
        let mut command = Command::new(self.program);
        command.arg("serve").arg(self.folder).args(["--component", part]);
        command.args(["--component-bytes", &format!("{bytes}B"), "--component-rounds", &ROUNDS.to_string()]);
        command.args(["--component-time", &units::format_duration(ROUND_CPU_TIME)]);
        if let Some((certificate, key)) = &self.certificate {
            command.arg("--tls").args([certificate, key]);
        }
        let output = as_server(|| command.output())?.map_err(ExperimentError::file(self.program))?;
        let wrong =
            |why: String| ExperimentError::Program { program: "component of a server", why: format!("{part}: {why}") };
        if !output.status.success() {
            return Err(wrong(String::from_utf8_lossy(&output.stderr).trim().to_owned()));
        }
        let text: ComponentRounds = serde_json::from_slice(&output.stdout).map_err(|error| wrong(error.to_string()))?;
        Ok(text.rounds)
    }
}

/// Cost of one operation.
fn point(bytes: u64, round: &ComponentRound) -> ComponentPoint {
    let count = round.count as f64;
    let each_s = round.cpu_s / count;
    ComponentPoint {
        bytes,
        count: round.count,
        processes_s: each_s,
        cores_s: each_s,
        elapsed_s: Some(round.elapsed_s / count),
    }
}

/// Runs `work` with its children on the server's core.
fn as_server<T>(work: impl FnOnce() -> T) -> Result<T, ExperimentError> {
    let allowed = Cores::allowed().map_err(ExperimentError::file("sched_getaffinity"))?;
    // Without the core the cost is the same on a machine with equal cores.
    let pinned = CoreDivision::of_this_machine()?.server.is_some_and(|cores| cores.pin_this_thread().is_ok());
    let result = work();
    if pinned {
        allowed.pin_this_thread().map_err(ExperimentError::file("sched_setaffinity"))?;
    }
    Ok(result)
}
