//! Any program under the tap, where it is: in the caller's own surroundings, with its own streams.
//!
//! No place is made for it, since under the tap it is to behave as without it: it has the caller's namespaces, process
//! group, terminal and streams. What it left behind when it ends is its own affair; a child that lives on is cut from
//! the figures.

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

use crate::error::LabError;
use crate::host::{self, CorePlan};
use crate::recording_folder::RecordingFolder;
use crate::standing::{self, Opening};
use crate::tapping::{Glance, Prepared, Started, TapPlan, Tapping};

/// A program under the tap, as meant.
#[derive(Clone, Debug)]
pub struct TapRun {
    /// What is followed.
    pub tap: TapPlan,
    /// Where the run is kept; `None`: nowhere.
    pub book: Option<RunStore>,
    /// Name in the run's folder.
    pub name: String,
    /// The command that repeats it.
    pub command_line: String,
    /// How often figures are told while it runs; `None`: never.
    pub live: Option<Duration>,
}

/// How it ended.
#[derive(Debug)]
pub struct TapEnd {
    /// The program's exit status; 128 and the signal's number if one ended it, as in a shell.
    pub status: u8,
    /// What it saw.
    pub document: Document,
    /// The run's folder, where it was kept: summary.json, taps.parquet.
    pub folder: Option<PathBuf>,
}

/// Runs `command` to its end. `shown` gets the run's folder when there is one; `live` gets figures now and then, with the seconds since
/// the start.
///
/// Signals that another process sends to this one are handed on to the program; those of the terminal it gets itself. When it
/// has ended they are this process's own again: what is left to do is to tell what came out.
///
/// # Errors
/// The library cannot be handed over on this machine; the program cannot be started; the book cannot be written.
pub fn tap(
    plan: &TapRun,
    command: &[OsString],
    shown: impl FnOnce(&Path),
    mut live: impl FnMut(&Glance, f64),
) -> Result<TapEnd, LabError> {
    let (program, arguments) = command.split_first().ok_or_else(|| LabError::plan("no command was given"))?;
    let clock = Clock::start();
    let prepared = Prepared::new(clock)?;
    let mut relay = Relay::install().map_err(LabError::system("take over signals"))?;
    // Last: what cannot be followed leaves no folder behind.
    let begin = |folder: &_| Opening::begin(folder, "tap", &plan.command_line, 0);
    let mut folder = RecordingFolder::begin(plan.book.as_ref(), &plan.name, |_| Ok(()), begin)?;
    if let Some(path) = folder.path() {
        shown(path);
    }
    folder.set_zero(&clock);
    let preload = std::env::var_os("LD_PRELOAD");
    let started = clock.now();
    let mut command = Command::new(program);
    command.args(arguments).envs(prepared.environment(preload.as_deref()));
    sys::inherited::hand_on(&mut command);
    // After that, which puts the program's own mask of signals in place.
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
    // Whatever became of the tap, the program runs, and is waited for.
    let mut told = started;
    let every = plan.live.into_iter().chain(folder.progress().map(|_| STANDING_EVERY)).min();
    let exit = wait(&mut child, &mut relay, every, tapping.as_ref().ok(), |glance| {
        let now = clock.now();
        // Its own interval, give or take that of the standing.
        if plan.live.is_some_and(|live| now.since(told) + STANDING_EVERY / 2 >= live) {
            told = now;
            live(glance, now.since(started).as_secs_f64());
        }
        if let Some(opening) = folder.progress() {
            let tap = Some(standing::tap(glance));
            opening.write(&RunProgress { tap, ..opening.at(now, RunPhase::Measured) });
        }
    });
    let ended = clock.now();
    let tapped = tapping?.end();
    let exit = exit.map_err(LabError::system("wait for the program"))?;

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
        responses.keep(folder, ended).map_err(LabError::environment)?;
    }
    folder.finish(clock.now(), &document).map_err(LabError::environment)?;
    Ok(TapEnd { status: status(exit), document, folder: folder.path_buf() })
}

/// Waits for the program, and tells figures meanwhile.
fn wait(
    child: &mut Child,
    relay: &mut Relay,
    every: Option<Duration>,
    tapping: Option<&Tapping>,
    mut tell: impl FnMut(&Glance),
) -> io::Result<ExitStatus> {
    let Ok(pidfd) = sys::process::open(child.id()) else {
        // No descriptor is left for it, or an old kernel: without figures meanwhile, and without signals at its end.
        let exit = child.wait();
        relay.stop();
        return exit;
    };
    loop {
        let ended = sys::signal::wait_readable(std::os::fd::AsFd::as_fd(&pidfd), every.unwrap_or(LONG));
        if ended {
            // Its number is its own until it is waited for.
            relay.stop();
            return child.wait();
        }
        if every.is_some()
            && let Some(glance) = tapping.and_then(Tapping::glance)
        {
            tell(&glance);
        }
    }
}

fn status(exit: ExitStatus) -> u8 {
    match (exit.code(), exit.signal()) {
        (Some(code), _) => code as u8,
        (None, signal) => (128 + signal.unwrap_or(0)) as u8,
    }
}

fn cannot_start(program: &OsStr, error: &io::Error) -> LabError {
    LabError::Plan(format!("{}: {error}", program.to_string_lossy()))
}

/// Where PATH has a program; `None` where it is nowhere. A name with a slash is a path already.
fn which(program: &OsStr) -> Option<PathBuf> {
    if program.as_encoded_bytes().contains(&b'/') {
        return Some(program.into());
    }
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join(program)).find(|file| file.is_file())
}

/// How the run stands is written this often, where it is kept.
const STANDING_EVERY: Duration = Duration::from_secs(1);
/// Where nothing is to be told meanwhile.
const LONG: Duration = Duration::from_secs(3600);
