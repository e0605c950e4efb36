//! The program that the server starts, limits and restarts.
//!
//! ```text
//!   server ──link── keeper (a copy of this process, one thread) ── sandbox: PID namespace ── /bin/sh -c COMMAND
//!      │               starts, waits, restarts                      in the control group: limit, weight, usage
//!      └─ relay: follows what the keeper reports; tries the upstream until it accepts
//! ```
//!
//! A sandbox needs a process with one thread, and the server has many when the program restarts: so the keeper is
//! forked before the threads start. When the server ends in any way, the keeper ends, and with it the sandbox's init
//! and all processes in the sandbox. The keeper is outside of the program's control group.

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
use sys::sandbox::{Exit, Net, Sandbox, SandboxSpec, Stdio, Stdio3, TiedProcess};
use sys::worker::Worker;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::time::sleep;
use units::Timestamp;

use super::print_line;
use super::socket;
use super::spec::{ProgramSpec, Transport};
use super::usage::ProgramState;
use crate::spec::ServeError;

/// The running program. Dropping it ends it by SIGTERM, then SIGKILL.
#[derive(Debug)]
pub(super) struct Program {
    keeper: Option<Worker>,
    state: Arc<ProgramState>,
}

impl Program {
    /// Creates the control group and starts the keeper, which starts the program. Call it while the process has one
    /// thread.
    ///
    /// # Errors
    /// A configured limit is unavailable, or the process has other threads.
    pub(super) fn start(spec: &ProgramSpec, transport: &Transport) -> Result<Program, ServeError> {
        let failed = |source: sys::Error| ServeError::Program { source };
        // Removes leftovers of a killed server.
        let _ = sweep();
        let limits = Limits { cpu: spec.cpu, period: spec.period, weight: spec.weight, memory: None };
        let group = match Cgroup::create("dynamic", limits) {
            Ok(group) => {
                // The configured weight is available; it applies after the program's first response.
                group.set_weight(Weight::Usual).map_err(failed)?;
                Some(group)
            }
            Err(error) if spec.cpu.is_some() => return Err(failed(error)),
            Err(error) => {
                let weight = if spec.weight == Weight::Least { " and competes with the static server" } else { "" };
                print_line(format_args!(
                    "no control group for the program ({error}): its resource usage is not measured{weight}"
                ));
                None
            }
        };
        let work = |link| Supervisor { spec, transport, group: group.as_ref(), link }.run();
        let keeper = Worker::start(c"yamabiko-keeper", &[], work).map_err(failed)?;
        Ok(Program { keeper: Some(keeper), state: Arc::new(ProgramState::new(group, spec.weight)) })
    }

    /// The program's state.
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
            // The keeper sees the closed link, ends the program with SIGTERM and exits.
            let _ = keeper.link().shutdown(Shutdown::Both);
            keeper.wait();
        }
        self.state.set_up(false);
        self.state.remove_group();
    }
}

/// Follows the keeper's reports in the relay: starts and ends of the program.
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
        let (end, details) = line.split_once('\t').unwrap_or((&line, ""));
        print_line(format_args!("the program {end}{details}"));
        state.change(|account| account.last_end = Some(end.to_owned()));
    }
    // A stopping server does not reach this: its relay ends before the keeper.
    if let Some(probe) = probe.take() {
        probe.abort();
    }
    state.set_up(false);
    state.change(|account| account.last_end = Some("was killed with its keeper process".to_owned()));
    print_line(format_args!("the keeper process was killed, and the program with it: the program is not restarted"));
}

/// Tries the upstream until it accepts.
async fn wait_until_up(state: Arc<ProgramState>, transport: Transport) {
    let mut pause = PROBE_INTERVAL_MIN;
    while socket::connect(&transport, PROBE_TIME).await.is_err() {
        sleep(pause).await;
        pause = (pause * 2).min(PROBE_INTERVAL_MAX);
    }
    state.set_up(true);
}

/// The process that starts and restarts the program.
struct Supervisor<'a> {
    spec: &'a ProgramSpec,
    transport: &'a Transport,
    group: Option<&'a Cgroup>,
    link: UnixStream,
}

/// The program, in the strictest confinement available to this user.
enum Running {
    Sandboxed(Sandbox),
    TiedProcess(TiedProcess),
}

impl Supervisor<'_> {
    /// Runs until the server closes the link.
    fn run(mut self) {
        // Without root a PID namespace needs a user namespace.
        let rootless = !geteuid().is_root();
        let confined = !rootless || enter_user_namespace().is_ok();
        let clock = Clock::start();
        let mut backoff = BACKOFF_MIN;
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
            if clock.now().since(began) >= STABLE_AFTER {
                backoff = BACKOFF_MIN;
            }
            self.report(&format!("{end}\t; it restarts in {} s", backoff.as_secs()));
            if self.hangs_up_within(backoff) {
                return;
            }
            backoff = (backoff * 2).min(BACKOFF_MAX);
        }
    }

    fn start(&self, rootless: bool, may_place: &mut bool) -> sys::Result<Running> {
        let argv = ["/bin/sh", "-c", &self.spec.command].map(OsString::from).to_vec();
        let env = vec![(OsString::from("YAMABIKO_UPSTREAM"), OsString::from(self.transport.to_string()))];
        if *may_place {
            match self.start_sandbox(argv.clone(), env.clone(), rootless) {
                Ok(sandbox) => return Ok(Running::Sandboxed(sandbox)),
                Err(error @ sys::Error::Exec { .. }) => return Err(error),
                Err(error) => {
                    *may_place = false;
                    print_line(format_args!(
                        "no PID namespace for the program ({error}): when this server ends, the program's process \
                         group is killed, but not the processes that left that group"
                    ));
                }
            }
        }
        TiedProcess::start(&argv, &env, self.group).map(Running::TiedProcess)
    }

    fn start_sandbox(
        &self,
        argv: Vec<OsString>,
        env: Vec<(OsString, OsString)>,
        rootless: bool,
    ) -> sys::Result<Sandbox> {
        // stdout is for the server's own output.
        let stderr = std::io::stderr().as_fd().try_clone_to_owned().map_err(|_| sys::Error::SandboxLost)?;
        let mut sandbox = Sandbox::start(SandboxSpec {
            env,
            stdio: Stdio3 { stdin: Stdio::Null, stdout: Stdio::File(stderr), stderr: Stdio::Inherit },
            new_session: true,
            cgroup: self.group,
            net: Net::Existing(NetNamespace::current()?),
            rootless,
            ..SandboxSpec::new(argv)
        })?;
        sandbox.exec()?;
        Ok(sandbox)
    }

    /// Sends one line to the server. `wait` detects a server that has ended.
    fn report(&mut self, line: &str) {
        let _ = writeln!(self.link, "{}", line.replace('\n', " "));
    }

    /// Waits that long for the server to close the link.
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
    /// Waits for the end of the program and describes it; `None` if the server closes the link first.
    fn wait(&mut self, link: &UnixStream) -> Option<String> {
        loop {
            let ended = match self {
                // A command that daemonises returns 0 and its children continue. A failed command ends the sandbox with
                // all its children.
                Running::Sandboxed(sandbox) => match (sandbox.try_exit(), sandbox.alive()) {
                    (Ok(None | Some(Exit::Code(0))), Ok(true)) => None,
                    (Ok(exit), Ok(_)) => Some(exit),
                    _ => Some(None),
                },
                Running::TiedProcess(process) => process.try_exit().unwrap_or(None).map(Some),
            };
            match ended {
                Some(Some(Exit::Code(code))) => return Some(format!("exited with code {code}")),
                Some(Some(Exit::Signal(signal))) => return Some(format!("was killed by signal {signal}")),
                Some(None) => return Some("was lost".to_owned()),
                None => {}
            }
            let (status, wait) = match self {
                Running::Sandboxed(sandbox) => (Some(sandbox.status_fd()), Duration::from_secs(3600)),
                Running::TiedProcess(_) => (None, PARENT_CHECK_INTERVAL),
            };
            if hung_up_after(link, status, wait) {
                return None;
            }
        }
    }

    fn stop(self) {
        match self {
            Running::Sandboxed(sandbox) => sandbox.stop(KILL_DELAY),
            Running::TiedProcess(process) => process.stop(KILL_DELAY),
        }
    }
}

/// Waits that long, or until `other` is readable; true if the server closed the link.
fn hung_up_after(link: &UnixStream, other: Option<BorrowedFd<'_>>, wait: Duration) -> bool {
    let timeout = PollTimeout::try_from(wait + Duration::from_millis(1)).unwrap_or(PollTimeout::MAX);
    let mut fds = vec![PollFd::new(link.as_fd(), PollFlags::POLLIN)];
    fds.extend(other.map(|fd| PollFd::new(fd, PollFlags::POLLIN)));
    // The server never writes: readable means closed.
    matches!(poll(&mut fds, timeout), Ok(ready) if ready > 0)
        && fds[0].revents().is_some_and(|events| !events.is_empty())
}

/// The keeper's message for a start.
const STARTED: &str = "started";

const BACKOFF_MIN: Duration = Duration::from_secs(1);
const BACKOFF_MAX: Duration = Duration::from_secs(30);
/// A program that ran this long ended for another reason than a failed start.
const STABLE_AFTER: Duration = Duration::from_secs(30);
/// Time from SIGTERM to SIGKILL.
const KILL_DELAY: Duration = Duration::from_secs(3);
const PARENT_CHECK_INTERVAL: Duration = Duration::from_millis(50);
const PROBE_TIME: Duration = Duration::from_secs(1);
const PROBE_INTERVAL_MIN: Duration = Duration::from_millis(10);
const PROBE_INTERVAL_MAX: Duration = Duration::from_millis(250);
