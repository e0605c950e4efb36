//! The program that the server starts, bounds, and starts again.
//!
//! ```text
//!   server ──link── keeper (a copy of this process, one thread) ── place: PID namespace ── /bin/sh -c COMMAND
//!      │               starts, waits, starts again                  in the control group: bound, weight, account
//!      └─ relay: follows what the keeper reports; tries the upstream until it accepts
//! ```
//!
//! A place can be made only by a process with one thread, and the server has many by the time a program has to be started
//! again: so a copy is made while there is one. When the server ends, however it ends, the keeper dies, and with it the
//! place's init, and with that everything in it. The keeper is in no control group of the program's.

use std::ffi::OsString;
use std::io::Write as _;
use std::net::Shutdown;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::unistd::geteuid;
use sys::cgroup::{Cgroup, Limits, Weight, sweep};
use sys::clock::Clock;
use sys::namespace::{NetNamespace, enter_user_namespace};
use sys::place::{Exit, Leashed, Net, Place, PlaceSpec, Stdio, Stdio3};
use sys::worker::Worker;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::time::sleep;
use units::Timestamp;

use super::account::ProgramState;
use super::say;
use super::socket;
use super::spec::{ProgramSpec, Transport};
use crate::spec::ServeError;

/// The running program. Dropping it ends it: TERM, then KILL.
#[derive(Debug)]
pub(super) struct Program {
    keeper: Option<Worker>,
    state: Arc<ProgramState>,
}

impl Program {
    /// Makes the control group and starts the keeper, which starts the program. Call it while the process has one thread.
    ///
    /// # Errors
    /// A bound was asked for and cannot be had; the process has other threads.
    pub(super) fn start(spec: &ProgramSpec, transport: &Transport) -> Result<Program, ServeError> {
        let failed = |source: sys::Error| ServeError::Program { source };
        // What a server that was killed left behind.
        let _ = sweep();
        let limits = Limits { cpu: spec.cpu, period: spec.period, weight: spec.weight, memory: None };
        let group = match Cgroup::create("dynamic", limits) {
            Ok(group) => {
                // What was asked for can be had; it comes into force when the program is done with starting.
                group.set_weight(Weight::Usual).map_err(failed)?;
                Some(group)
            }
            Err(error) if spec.cpu.is_some() => return Err(failed(error)),
            Err(error) => {
                let weight = if spec.weight == Weight::Least { " and competes with the static server" } else { "" };
                say(format_args!("no control group for the program ({error}): it is not accounted for{weight}"));
                None
            }
        };
        let work = |link| Keeper { spec, transport, group: group.as_ref(), link }.run();
        let keeper = Worker::start(c"yamabiko-keeper", &[], work).map_err(failed)?;
        Ok(Program { keeper: Some(keeper), state: Arc::new(ProgramState::new(group, spec.weight)) })
    }

    /// What is known of it.
    pub(super) fn state(&self) -> Arc<ProgramState> {
        Arc::clone(&self.state)
    }

    /// The keeper's reports, for [`follow`].
    pub(super) fn link(&self) -> Option<UnixStream> {
        let link = self.keeper.as_ref()?.link().try_clone().ok()?;
        link.set_nonblocking(true).ok()?;
        Some(link)
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        if let Some(keeper) = self.keeper.take() {
            self.state.lift_bound();
            // It hears the hang-up, ends the program gently, and goes.
            let _ = keeper.link().shutdown(Shutdown::Both);
            keeper.wait();
        }
        self.state.set_up(false);
        self.state.remove_group();
    }
}

/// Follows the keeper's reports, in the relay: what is up, what ended.
pub(super) async fn follow(link: UnixStream, state: Arc<ProgramState>, transport: Transport) {
    let Ok(link) = tokio::net::UnixStream::from_std(link) else { return };
    let mut lines = BufReader::new(link).lines();
    let mut probe: Option<tokio::task::JoinHandle<()>> = None;
    while let Ok(Some(line)) = lines.next_line().await {
        if let Some(probe) = probe.take() {
            probe.abort();
        }
        state.set_up(false);
        if line == STARTED {
            state.change(|account| account.starts += 1);
            probe = Some(tokio::task::spawn_local(wait_until_up(Arc::clone(&state), transport.clone())));
            continue;
        }
        let (end, told) = line.split_once('\t').unwrap_or((&line, ""));
        say(format_args!("the program {end}{told}"));
        state.change(|account| account.last_end = Some(end.to_owned()));
    }
    // A server that ends does not come here: its relay goes before the keeper.
    if let Some(probe) = probe.take() {
        probe.abort();
    }
    state.set_up(false);
    state.change(|account| account.last_end = Some("was ended with its keeper".to_owned()));
    say(format_args!(
        "the process that keeps the program was killed, and the program with it: it is not started again"
    ));
}

/// Tries the upstream until it accepts.
async fn wait_until_up(state: Arc<ProgramState>, transport: Transport) {
    let mut pause = PROBE_FIRST;
    while socket::connect(&transport, PROBE_TIME).await.is_err() {
        sleep(pause).await;
        pause = (pause * 2).min(PROBE_LAST);
    }
    state.set_up(true);
}

/// The process that starts the program, and starts it again.
struct Keeper<'a> {
    spec: &'a ProgramSpec,
    transport: &'a Transport,
    group: Option<&'a Cgroup>,
    link: UnixStream,
}

/// The program, as well confined as this user may.
enum Running {
    Placed(Place),
    Leashed(Leashed),
}

impl Keeper<'_> {
    /// Until the server hangs up.
    fn run(mut self) {
        // Another user's server has no right to a PID namespace but in a user namespace of its own.
        let rootless = !geteuid().is_root();
        let confined = !rootless || enter_user_namespace().is_ok();
        let clock = Clock::start();
        let mut backoff = BACKOFF_FIRST;
        let mut may_place = confined;
        loop {
            let began = clock.now();
            let end = match self.start(rootless, &mut may_place) {
                Ok(mut running) => {
                    self.report(STARTED);
                    match running.wait(&self.link) {
                        Some(end) => end,
                        None => return running.stop(),
                    }
                }
                Err(error) => format!("did not start: {error}"),
            };
            if clock.now().since(began) >= STEADY {
                backoff = BACKOFF_FIRST;
            }
            self.report(&format!("{end}\t; it is started again in {} s", backoff.as_secs()));
            if self.hangs_up_within(backoff) {
                return;
            }
            backoff = (backoff * 2).min(BACKOFF_LAST);
        }
    }

    fn start(&self, rootless: bool, may_place: &mut bool) -> sys::Result<Running> {
        let argv = ["/bin/sh", "-c", &self.spec.command].map(OsString::from).to_vec();
        let env = vec![(OsString::from("YAMABIKO_UPSTREAM"), OsString::from(self.transport.to_string()))];
        if *may_place {
            match self.place(argv.clone(), env.clone(), rootless) {
                Ok(place) => return Ok(Running::Placed(place)),
                Err(error @ sys::Error::Exec { .. }) => return Err(error),
                Err(error) => {
                    *may_place = false;
                    say(format_args!(
                        "no PID namespace for the program ({error}): it has a process group, and dies with this server, \
                         but what leaves that group does not"
                    ));
                }
            }
        }
        Leashed::start(&argv, &env, self.group).map(Running::Leashed)
    }

    fn place(&self, argv: Vec<OsString>, env: Vec<(OsString, OsString)>, rootless: bool) -> sys::Result<Place> {
        // stdout is for the server's own results.
        let stderr = std::io::stderr().as_fd().try_clone_to_owned().map_err(|_| sys::Error::PlaceLost)?;
        let mut place = Place::start(PlaceSpec {
            env,
            stdio: Stdio3 { stdin: Stdio::Null, stdout: Stdio::File(stderr), stderr: Stdio::Inherit },
            new_session: true,
            cgroup: self.group,
            net: Net::Existing(NetNamespace::current()?),
            rootless,
            ..PlaceSpec::new(argv)
        })?;
        place.go()?;
        Ok(place)
    }

    /// One line to the server. A server that is gone is noticed by who waits.
    fn report(&mut self, line: &str) {
        let _ = writeln!(self.link, "{}", line.replace('\n', " "));
    }

    /// Waits so long for the server to hang up.
    fn hangs_up_within(&self, wait: Duration) -> bool {
        let clock = Clock::start();
        loop {
            let left = wait.saturating_sub(clock.now().since(Timestamp::ZERO));
            if hung_up_after(&self.link, None, left) {
                return true;
            }
            if left.is_zero() {
                return false;
            }
        }
    }
}

impl Running {
    /// Waits for the end of the program, in words; `None` when the server hangs up first.
    fn wait(&mut self, link: &UnixStream) -> Option<String> {
        loop {
            let ended = match self {
                // A command that makes daemons of itself returns 0, and they go on. One that fails is over, whoever of
                // its children has not noticed yet.
                Running::Placed(place) => match (place.try_exit(), place.alive()) {
                    (Ok(None | Some(Exit::Code(0))), Ok(true)) => None,
                    (Ok(exit), Ok(_)) => Some(exit),
                    _ => Some(None),
                },
                Running::Leashed(leashed) => leashed.try_exit().unwrap_or(None).map(Some),
            };
            match ended {
                Some(Some(Exit::Code(code))) => return Some(format!("ended with code {code}")),
                Some(Some(Exit::Signal(signal))) => return Some(format!("was ended by signal {signal}")),
                Some(None) => return Some("was lost".to_owned()),
                None => {}
            }
            let (status, wait) = match self {
                Running::Placed(place) => (Some(place.status_fd()), Duration::from_secs(3600)),
                Running::Leashed(_) => (None, LEASHED_CHECK),
            };
            if hung_up_after(link, status, wait) {
                return None;
            }
        }
    }

    fn stop(self) {
        match self {
            Running::Placed(place) => place.stop(GRACE),
            Running::Leashed(leashed) => leashed.stop(GRACE),
        }
    }
}

/// Waits so long, or until there is news at `other`; true when the server hung up.
fn hung_up_after(link: &UnixStream, other: Option<BorrowedFd<'_>>, wait: Duration) -> bool {
    let timeout = PollTimeout::try_from(wait + Duration::from_millis(1)).unwrap_or(PollTimeout::MAX);
    let mut fds = vec![PollFd::new(link.as_fd(), PollFlags::POLLIN)];
    fds.extend(other.map(|fd| PollFd::new(fd, PollFlags::POLLIN)));
    // The server never writes: anything at all is its end.
    matches!(poll(&mut fds, timeout), Ok(ready) if ready > 0)
        && fds[0].revents().is_some_and(|events| !events.is_empty())
}

/// The keeper's word for a start.
const STARTED: &str = "started";

const BACKOFF_FIRST: Duration = Duration::from_secs(1);
const BACKOFF_LAST: Duration = Duration::from_secs(30);
/// A program that ran this long ends for another reason than that it cannot start.
const STEADY: Duration = Duration::from_secs(30);
/// From TERM to KILL.
const GRACE: Duration = Duration::from_secs(3);
const LEASHED_CHECK: Duration = Duration::from_millis(50);
const PROBE_TIME: Duration = Duration::from_secs(1);
const PROBE_FIRST: Duration = Duration::from_millis(10);
const PROBE_LAST: Duration = Duration::from_millis(250);
