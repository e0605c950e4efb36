//! Any program under the tap, in the caller's environment and with its own streams.
//!
//! The program gets no sandbox, because it must behave as without a tap: it has the caller's namespaces, process group,
//! terminal and streams. Processes that it leaves behind are not ended; a child that outlives it is removed from the
//! figures.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};
use std::time::Duration;

use schema::document::{Document, Run, SCHEMA, Validity};
use schema::{RunPhase, RunProgress};
use store::RunStore;
use sys::clock::Clock;
use sys::relay::Relay;

use crate::error::TestbedError;
use crate::host::{self, CorePlan};
use crate::recording_folder::RecordingFolder;
use crate::snapshot::{self, SnapshotWriter};
use crate::tapping::{Glance, Prepared, Started, TapPlan, Tapping};

/// A program under the tap.
#[derive(Clone, Debug)]
pub struct TapRun {
    /// Which connections are recorded, and how they are judged.
    pub tap: TapPlan,
    /// The run store; `None`: the run is not stored.
    pub run_store: Option<RunStore>,
    /// Name of the run.
    pub name: String,
    /// The command that repeats the run.
    pub command_line: String,
    /// Interval of live figures; `None`: none.
    pub live: Option<Duration>,
}

/// Results of the program's run.
#[derive(Debug)]
pub struct TapEnd {
    /// The program's exit status; 128 plus the signal's number if a signal ended it, as in a shell.
    pub status: u8,
    /// Results of the tap.
    pub document: Document,
    /// The run's directory, if it is stored: summary.json, taps.parquet.
    pub folder: Option<PathBuf>,
}

/// Runs `command` to its end. `shown` gets the run's directory if there is one; `live` gets figures from time to time,
/// with the seconds since the start.
///
/// Signals from another process to this one are forwarded to the program; it gets those of the terminal itself. After
/// its end this process handles its own signals again.
///
/// # Errors
/// The library cannot be loaded on this machine, the program cannot be started, or the run store cannot be written.
pub fn tap(
    plan: &TapRun,
    command: &[OsString],
    shown: impl FnOnce(&Path),
    mut live: impl FnMut(&Glance, f64),
) -> Result<TapEnd, TestbedError> {
    let (program, arguments) = command.split_first().ok_or_else(|| TestbedError::plan("no command was given"))?;
    let clock = Clock::start();
    let prepared = Prepared::new(clock)?;
    let mut relay = Relay::install().map_err(TestbedError::system("take over signals"))?;
    // Created last: a failure to start leaves no directory.
    let begin = |folder: &_| SnapshotWriter::begin(folder, "tap", &plan.command_line, 0);
    let mut folder = RecordingFolder::begin(plan.run_store.as_ref(), &plan.name, |_| Ok(()), begin)?;
    if let Some(path) = folder.path() {
        shown(path);
    }
    folder.set_zero(&clock);
    let preload = std::env::var_os("LD_PRELOAD");
    let started = clock.now();
    let mut command = Command::new(program);
    command.args(arguments).envs(prepared.environment(preload.as_deref()));
    sys::inherited::restore_in(&mut command);
    // Called after `restore_in`, because `hand_over` sets the program's own signal mask.
    relay.hand_over(&mut command);
    let spawned = command.spawn().map_err(|error| cannot_start(program, &error));
    let mut child = spawned.inspect_err(|_| folder.discard())?;
    relay.to(child.id().cast_signed());
    let what = Started {
        root: child.id().cast_signed(),
        pid: child.id(),
        own_numbers: true,
        command: which(program).unwrap_or_else(|| program.into()).into(),
        own_load: false,
        cores: None,
    };
    let tapping = prepared.start(plan.tap.clone(), what, folder.folder());
    // The program runs and is awaited even if the tap fails.
    let mut reported_at = started;
    let interval = plan.live.into_iter().chain(folder.progress().map(|_| SNAPSHOT_INTERVAL)).min();
    let exit = wait(&mut child, &mut relay, interval, tapping.as_ref().ok(), |glance| {
        let now = clock.now();
        // Live figures have their own interval; this is called at the shorter of both.
        if plan.live.is_some_and(|live| now.since(reported_at) + SNAPSHOT_INTERVAL / 2 >= live) {
            reported_at = now;
            live(glance, now.since(started).as_secs_f64());
        }
        if let Some(writer) = folder.progress() {
            let tap = Some(snapshot::tap(glance));
            writer.write(&RunProgress { tap, ..writer.at(now, RunPhase::Measured) });
        }
    });
    let ended = clock.now();
    let tapped = tapping?.end();
    let exit = exit.map_err(TestbedError::system("wait for the program"))?;

    let mut checks = validity::tap_checks(&tapped.part, tapped.cut, tapped.error.as_deref());
    checks.extend(validity::tap_kernel(&tapped.part, tapped.client.called, tapped.kernel));
    let responses = tapped.responses;
    let document = Document {
        schema: SCHEMA.into(),
        run: Run {
            id: folder.id(),
            dir: folder.dir(),
            command: plan.command_line.clone(),
            started_at: store::rfc3339(clock.started()),
            duration_s: ended.since(started).as_secs_f64(),
            host: host::facts(&CorePlan::default(), 1)?,
            ..Run::default()
        },
        validity: Validity::from_checks(checks),
        load: None,
        path: None,
        watch: None,
        tap: Some(tapped.part),
        server: None,
        slo: None,
        cache: None,
    };
    if let Some(folder) = folder.folder() {
        responses.store(folder, ended).map_err(TestbedError::environment)?;
    }
    folder.finish(clock.now(), &document).map_err(TestbedError::environment)?;
    Ok(TapEnd { status: status(exit), document, folder: folder.path_buf() })
}

/// Waits for the program, and publishes figures meanwhile.
fn wait(
    child: &mut Child,
    relay: &mut Relay,
    interval: Option<Duration>,
    tapping: Option<&Tapping>,
    mut report: impl FnMut(&Glance),
) -> io::Result<ExitStatus> {
    let Ok(pidfd) = sys::process::open(child.id()) else {
        // No descriptor, or an old kernel: there are no live figures, and signals are not forwarded.
        let exit = child.wait();
        relay.stop();
        return exit;
    };
    loop {
        let ended = sys::signal::wait_readable(std::os::fd::AsFd::as_fd(&pidfd), interval.unwrap_or(IDLE_INTERVAL));
        if ended {
            // The relay must stop first: after the wait the process number may be reused.
            relay.stop();
            return child.wait();
        }
        if interval.is_some()
            && let Some(glance) = tapping.and_then(Tapping::glance)
        {
            report(&glance);
        }
    }
}

fn status(exit: ExitStatus) -> u8 {
    match (exit.code(), exit.signal()) {
        (Some(code), _) => code as u8,
        (None, signal) => (128 + signal.unwrap_or(0)) as u8,
    }
}

fn cannot_start(program: &OsStr, error: &io::Error) -> TestbedError {
    TestbedError::Plan(format!("{}: {error}", program.to_string_lossy()))
}

/// The program's file in PATH; `None` if there is none. A name with a slash is already a path.
fn which(program: &OsStr) -> Option<PathBuf> {
    if program.as_encoded_bytes().contains(&b'/') {
        return Some(program.into());
    }
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join(program)).find(|file| file.is_file())
}

/// Interval of progress snapshots, if the run is stored.
const SNAPSHOT_INTERVAL: Duration = Duration::from_secs(1);
/// Interval without live figures.
const IDLE_INTERVAL: Duration = Duration::from_secs(3600);
