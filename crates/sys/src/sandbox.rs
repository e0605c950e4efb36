//! A sandbox: a PID namespace for one command and all its descendants, which end with it.
//!
//! ```text
//! main process --clone--> init (pid 1 of the sandbox) --fork--> command --> its daemons, workers, set-uid children ..
//!       |  ^                 |
//!       +--+--- one socket --+     commands to init, reports from it; its hang-up means that main is dead
//! ```
//!
//! When init exits, the kernel kills everything in the namespace, whatever it did to escape (setsid, setuid, double
//! fork). Init is killed when main ends, by two mechanisms, since one alone is not sufficient: PR_SET_PDEATHSIG, and
//! the hang-up of the socket, checked right after the prctl in case main died before it, and polled afterwards.
//!
//! Read [`SandboxSpec`] first, then [`Sandbox`]; `init.rs` is the other side of the socket, `command.rs` the last steps
//! before exec.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{Signal, kill};
use nix::sys::socket::{AddressFamily, SockFlag, SockType, socketpair};
use nix::sys::wait::waitpid;
use nix::unistd::Pid;

use crate::accounting::{self, ProcessUsage};
use crate::error::{Error, Result};
use crate::namespace::{NetNamespace, require_single_thread};
use crate::netlink::{Netlink, sysctl};
use crate::relay::Relay;

pub use process_group::TiedProcess;
pub use spec::{Net, SandboxSpec, Stdio, Stdio3};

use message::{Order, Report};

mod command;
pub(crate) mod init;
mod message;
mod mounts;
mod process_group;
mod program;
mod spec;

/// A running sandbox. Dropping it ends all its processes: immediately, or after [`SandboxSpec::grace`].
#[derive(Debug)]
pub struct Sandbox {
    program: String,
    control: OwnedFd,
    init: Pid,
    net: NetNamespace,
    /// Whether init was waited for: no process of the sandbox is left.
    reaped: bool,
    started: bool,
    exit: Option<Exit>,
    empty: bool,
    grace: Duration,
}

/// How the command of a sandbox ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// The command returned this code, 0 to 255.
    Code(i32),
    /// The command was killed by this signal.
    Signal(i32),
}

impl Sandbox {
    /// Creates the namespaces and the init process of a sandbox; the command waits for [`Sandbox::exec`], so that
    /// devices can be moved into [`Sandbox::net`] first. Takes 2 to 10 ms.
    ///
    /// Call it from a thread that exists as long as the sandbox (init is killed when the thread that created it ends),
    /// while that is the only thread of the process, and before the process becomes real-time.
    ///
    /// # Errors
    /// The program is not on the PATH; the process has other threads; a namespace, mount or control group was refused.
    pub fn start(spec: SandboxSpec<'_>) -> Result<Sandbox> {
        let program = spec.argv.first().map(|p| p.to_string_lossy().into_owned()).unwrap_or_default();
        let command = command::Command::prepare(&spec)?;
        let net = match spec.net {
            Net::New => new_net(spec.rootless)?,
            Net::Existing(net) => net,
        };
        // A rootless process may stay in the host's namespace but not enter it.
        let enter_net = net.inode()? != NetNamespace::current()?.inode()?;
        let (ours, theirs) = socketpair(AddressFamily::Unix, SockType::SeqPacket, None, SockFlag::SOCK_CLOEXEC)
            .map_err(Error::of("socketpair"))?;
        require_single_thread()?;
        let setup = init::Setup { control: theirs, main_side: ours, net, enter_net, hosts: spec.hosts, command };
        let (init, setup) = init::start(setup)?;
        // From here on, dropping the sandbox kills init.
        let mut sandbox = Sandbox {
            program,
            control: setup.main_side,
            init,
            net: setup.net,
            reaped: false,
            started: false,
            exit: None,
            empty: false,
            grace: spec.grace,
        };
        drop(setup.control);
        match sandbox.wait_report()? {
            Report::Ready => Ok(sandbox),
            Report::Failed { call, errno, remedy } => Err(message::error(call, errno, remedy)),
            other => Err(Error::Unexpected { call: "start a sandbox".to_owned(), answer: format!("{other:?}") }),
        }
    }

    /// The network namespace of the sandbox.
    pub fn net(&self) -> &NetNamespace {
        &self.net
    }

    /// The process number of the sandbox's init in the caller's namespace: the root of its process tree.
    pub fn init_pid(&self) -> i32 {
        self.init.as_raw()
    }

    /// Starts the command; returns when its exec succeeded.
    ///
    /// # Errors
    /// The exec, or one of the steps before it, failed: the message names the step, as in `nginx: Permission denied`.
    /// Or the command was already started.
    pub fn exec(&mut self) -> Result<()> {
        if self.started {
            return Err(Error::Unexpected {
                call: format!("start {}", self.program),
                answer: "already started".to_owned(),
            });
        }
        message::send(&self.control, &Order::Exec.encode()).map_err(Error::of("send to the sandbox"))?;
        match self.wait_report()? {
            Report::Started => {
                self.started = true;
                Ok(())
            }
            Report::ExecFailed { errno } => {
                Err(Error::Exec { program: self.program.clone(), source: Errno::from_raw(errno).into() })
            }
            Report::Failed { call, errno, remedy } => Err(message::error(call, errno, remedy)),
            other => Err(Error::Unexpected { call: format!("start {}", self.program), answer: format!("{other:?}") }),
        }
    }

    /// Readable when [`Sandbox::try_exit`] or [`Sandbox::alive`] may return a new result: for an event loop.
    pub fn status_fd(&self) -> BorrowedFd<'_> {
        self.control.as_fd()
    }

    /// How the command itself ended, if it did. A program that daemonises ends with code 0 while its children continue:
    /// check [`Sandbox::alive`], too. Never waits.
    ///
    /// # Errors
    /// The sandbox was killed from outside.
    pub fn try_exit(&mut self) -> Result<Option<Exit>> {
        self.take_reports()?;
        Ok(self.exit)
    }

    /// Whether any process besides init is left of a started command. Never waits.
    ///
    /// # Errors
    /// The sandbox was killed from outside.
    pub fn alive(&mut self) -> Result<bool> {
        self.take_reports()?;
        Ok(self.started && !self.empty)
    }

    /// Resource usage of all processes of the sandbox so far, including dead ones.
    pub fn usage(&self) -> ProcessUsage {
        if self.reaped { ProcessUsage::default() } else { accounting::tree_usage(self.init.as_raw()) }
    }

    /// The processes of the sandbox in the caller's namespace, without init.
    pub fn pids(&self) -> Vec<i32> {
        if self.reaped { Vec::new() } else { accounting::descendants(self.init.as_raw()) }
    }

    /// Sends a signal to every process of the sandbox but init.
    ///
    /// # Errors
    /// The sandbox was killed from outside.
    pub fn signal(&mut self, signal: Signal) -> Result<()> {
        message::send(&self.control, &Order::Signal(signal as i32).encode()).map_err(|_| Error::SandboxLost)
    }

    /// The command's number in the caller's namespace, and a descriptor of it (pidfd); `None` after its end. It is the
    /// first child of init, and only init waits for it.
    pub fn command(&self) -> Option<(i32, OwnedFd)> {
        let init = self.init.as_raw();
        let children = std::fs::read_to_string(format!("/proc/{init}/task/{init}/children")).ok()?;
        let pid: i32 = children.split_whitespace().next()?.parse().ok()?;
        let pidfd = crate::process::open(pid.cast_unsigned()).ok()?;
        // If it ended in between, its number may have been reused.
        let parent = accounting::ProcessStat::read(pid)?.parent;
        (self.exit.is_none() && parent == init).then_some((pid, pidfd))
    }

    /// Forwards signals of this process to the command from now on.
    pub fn relay(&self, relay: &mut Relay) {
        match self.command() {
            Some((pid, pidfd)) => relay.to_grandchild(pid, pidfd),
            // The command has ended, or the kernel is older than Linux 5.3: signals are for this process again.
            None => relay.stop(),
        }
    }

    /// Ends the sandbox: TERM to all its processes, up to `grace` for their end, then KILL. Returns when no process is
    /// left.
    pub fn stop(mut self, grace: Duration) {
        self.end(grace);
    }

    fn end(&mut self, grace: Duration) {
        if self.started && !self.empty && !self.reaped && !grace.is_zero() {
            self.request_end(grace);
        }
        self.kill();
    }

    /// Sends TERM, and CONT so that a stopped process can handle it; then waits until the sandbox is empty.
    fn request_end(&mut self, grace: Duration) {
        let deadline = Instant::now() + grace;
        if self.signal(Signal::SIGTERM).and_then(|()| self.signal(Signal::SIGCONT)).is_err() {
            return;
        }
        while matches!(self.alive(), Ok(true)) {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            // Rounded up, so that the last wait does not become a busy loop.
            let timeout = PollTimeout::try_from(left + Duration::from_millis(1)).unwrap_or(PollTimeout::MAX);
            let _ = poll(&mut [PollFd::new(self.control.as_fd(), PollFlags::POLLIN)], timeout);
        }
    }

    /// Kills init, and with it all processes; waits until the kernel has torn down the namespace.
    fn kill(&mut self) {
        if self.reaped {
            return;
        }
        // Neither call can fail while a process is left: init is a child of this process and not waited for yet.
        let _ = kill(self.init, Signal::SIGKILL);
        while waitpid(self.init, None) == Err(Errno::EINTR) {}
        self.reaped = true;
    }

    /// Waits for the next report of init.
    fn wait_report(&mut self) -> Result<Report> {
        message::receive(&self.control, true)
            .map_err(Error::of("receive from the sandbox"))?
            .and_then(|bytes| Report::decode(&bytes))
            .ok_or(Error::SandboxLost)
    }

    fn take_reports(&mut self) -> Result<()> {
        loop {
            match message::receive(&self.control, false) {
                Err(Errno::EAGAIN) => return Ok(()),
                Err(errno) => return Err(Error::of("receive from the sandbox")(errno)),
                Ok(None) => return Err(Error::SandboxLost),
                Ok(Some(bytes)) => match Report::decode(&bytes) {
                    Some(Report::Ended(exit)) => self.exit = Some(exit),
                    Some(Report::Empty) => self.empty = true,
                    other => {
                        return Err(Error::Unexpected {
                            call: "receive from the sandbox".to_owned(),
                            answer: format!("{other:?}"),
                        });
                    }
                },
            }
        }
    }
}

impl Drop for Sandbox {
    fn drop(&mut self) {
        self.end(self.grace);
    }
}

/// A namespace with its loopback up. For rootless processes, ports below 1024 and ping are opened to the command, which
/// has no capabilities of its own.
fn new_net(rootless: bool) -> Result<NetNamespace> {
    let net = NetNamespace::create()?;
    net.run(|| {
        Netlink::open()?.link_up("lo")?;
        if rootless {
            sysctl("net/ipv4/ip_unprivileged_port_start", "0")?;
            // Group 0 here is the only mapped group: the user's own.
            sysctl("net/ipv4/ping_group_range", "0 0")?;
        }
        Ok(())
    })??;
    Ok(net)
}
