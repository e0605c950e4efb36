//! The init process of a sandbox: sets it up, starts the command, reaps dead processes, and exits when main ends.
//!
//! Init is a copy of main that never execs. Of main's descriptors it keeps only the control socket: a copy of another
//! sandbox's socket would hide main's death from that sandbox.

use std::net::IpAddr;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::prctl::{set_name, set_pdeathsig};
use nix::sys::signal::{SigSet, SigmaskHow, Signal, sigprocmask};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;

use super::command::{self, Command};
use super::message::{self, Order, Report};
use super::{Exit, mounts};
use crate::error::{Error, Result};
use crate::namespace::NetNamespace;

/// Parameters of init.
pub(super) struct Setup {
    /// Init's end of the socket.
    pub(super) control: OwnedFd,
    /// Main's end, which init closes: its hang-up notifies init of main's death.
    pub(super) main_side: OwnedFd,
    pub(super) net: NetNamespace,
    /// Whether `net` is another namespace than main's.
    pub(super) enter_net: bool,
    pub(super) hosts: Vec<(IpAddr, String)>,
    pub(super) command: Command,
}

/// Clones init. In main, returns its number and the setup; in init, never returns.
pub(super) fn start(setup: Setup) -> Result<(Pid, Setup)> {
    let flags = libc::CLONE_NEWPID | libc::CLONE_NEWNS | libc::SIGCHLD;
    // SAFETY: a clone without its own stack and without CLONE_VM is a fork. The process has one thread (checked by the
    // caller), so the copy's locks are free and it may allocate. glibc's cached thread id is stale in the copy until it
    // forks; no code here uses it.
    let pid = unsafe { libc::syscall(libc::SYS_clone, libc::c_long::from(flags), 0, 0, 0, 0) };
    match Errno::result(pid) {
        Err(errno) => Err(Error::of("clone CLONE_NEWPID|CLONE_NEWNS")(errno)
            .remedy(&[Errno::EPERM], "run as root, or allow user namespaces for ordinary users")
            .remedy(&[Errno::ENOSPC], "raise sysctl user.max_pid_namespaces and user.max_mnt_namespaces")),
        Ok(0) => {
            // An unwinding copy of main must not run main's code.
            let _ = catch_unwind(AssertUnwindSafe(|| run_init(setup)));
            exit(70)
        }
        Ok(pid) => Ok((Pid::from_raw(pid as i32), setup)),
    }
}

fn run_init(setup: Setup) {
    // If main is already dead, the signal will not arrive; then the socket has hung up.
    let bound_to_main = set_pdeathsig(Signal::SIGKILL);
    close_all_but(&setup);
    if bound_to_main.is_err() || hung_up(&setup.control) {
        exit(0);
    }
    let _ = set_name(c"yamabiko-init");
    let Setup { control, net, enter_net, hosts, command, .. } = &setup;
    let prepared = prepare(enter_net.then_some(net), hosts);
    let sigchld = match prepared {
        Ok(sigchld) => sigchld,
        Err(error) => {
            report(control, &Report::failed(&error));
            exit(1)
        }
    };
    report(control, &Report::Ready);
    serve(control, &sigchld, command, setup.net.as_fd().as_raw_fd());
}

/// All steps that can fail, before the command exists.
fn prepare(net: Option<&NetNamespace>, hosts: &[(IpAddr, String)]) -> Result<SignalFd> {
    if let Some(net) = net {
        net.enter()?;
    }
    mounts::make_private()?;
    mounts::own_hosts(hosts)?;
    mounts::own_proc();
    let mut mask = SigSet::empty();
    mask.add(Signal::SIGCHLD);
    sigprocmask(SigmaskHow::SIG_SETMASK, Some(&mask), None).map_err(Error::of("sigprocmask"))?;
    // Main may have ignored SIGCHLD, and then no child could be waited for.
    command::default_action(libc::SIGCHLD);
    SignalFd::with_flags(&mask, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK).map_err(Error::of("signalfd"))
}

/// The main loop of init.
fn serve(control: &OwnedFd, sigchld: &SignalFd, command: &Command, net: i32) -> ! {
    let mut running: Option<Pid> = None;
    loop {
        let mut fds =
            [PollFd::new(control.as_fd(), PollFlags::POLLIN), PollFd::new(sigchld.as_fd(), PollFlags::POLLIN)];
        match poll(&mut fds, PollTimeout::NONE) {
            Err(Errno::EINTR) => continue,
            Err(_) => exit(1),
            Ok(_) => {}
        }
        let events = fds[0].revents().unwrap_or(PollFlags::empty());
        if events.intersects(PollFlags::POLLHUP | PollFlags::POLLERR | PollFlags::POLLNVAL) {
            exit(0);
        }
        if events.contains(PollFlags::POLLIN) {
            match message::receive(control, false) {
                Ok(None) => exit(0),
                Ok(Some(bytes)) => match Order::decode(&bytes) {
                    Some(Order::Exec) => running = begin(control, command, net),
                    Some(Order::Signal(signal)) => signal_all(signal),
                    None => {}
                },
                Err(_) => {}
            }
        }
        while let Ok(Some(_)) = sigchld.read_signal() {}
        if reap(control, running) {
            report(control, &Report::Empty);
            running = None;
        }
    }
}

/// Starts the command and closes the descriptors that were only for it: an open pipe here would never end for its
/// reader.
fn begin(control: &OwnedFd, command: &Command, net: i32) -> Option<Pid> {
    let started = command.spawn();
    command.close_files();
    close(net);
    match started {
        Ok(pid) => {
            report(control, &Report::Started);
            Some(pid)
        }
        Err(Error::Exec { source, .. }) => {
            report(control, &Report::ExecFailed { errno: source.raw_os_error().unwrap_or(libc::EIO) });
            None
        }
        Err(error) => {
            report(control, &Report::failed(&error));
            None
        }
    }
}

/// Waits for every dead child; returns whether a command was running and no process is left now.
fn reap(control: &OwnedFd, running: Option<Pid>) -> bool {
    loop {
        let ended = match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
            Ok(WaitStatus::StillAlive) => return false,
            Ok(WaitStatus::Exited(pid, code)) => (pid, Exit::Code(code)),
            Ok(WaitStatus::Signaled(pid, signal, _)) => (pid, Exit::Signal(signal as i32)),
            Ok(_) | Err(Errno::EINTR) => continue,
            // Orphans become init's children, so no child means no process.
            Err(_) => return running.is_some(),
        };
        if Some(ended.0) == running {
            report(control, &Report::Ended(ended.1));
        }
    }
}

/// Signals all processes but init, which the kernel excludes.
fn signal_all(signal: i32) {
    // SAFETY: kill takes no memory; -1 means every visible process, which are those of the sandbox.
    unsafe { libc::kill(-1, signal) };
}

fn report(control: &OwnedFd, report: &Report) {
    // If main is dead, the report is lost, and the next poll ends init.
    let _ = message::send(control, &report.encode());
}

pub(crate) fn hung_up(control: &impl AsFd) -> bool {
    let mut fds = [PollFd::new(control.as_fd(), PollFlags::POLLIN)];
    let polled = poll(&mut fds, PollTimeout::ZERO);
    polled.is_err() || fds[0].revents().is_some_and(|events| events.contains(PollFlags::POLLHUP))
}

/// Closes every descriptor but the standard streams, the control socket and those of the command.
fn close_all_but(setup: &Setup) {
    let mut keep = vec![setup.control.as_raw_fd(), setup.net.as_fd().as_raw_fd()];
    keep.extend(setup.command.files());
    close_descriptors_but(keep);
}

/// Closes every descriptor of a forked copy but the standard streams and these.
pub(crate) fn close_descriptors_but(mut keep: Vec<i32>) {
    keep.sort_unstable();
    let mut first = 3;
    for fd in keep.into_iter().filter(|fd| *fd >= 3) {
        close_range(first, fd - 1);
        first = fd + 1;
    }
    close_range(first, i32::MAX);
}

fn close_range(first: i32, last: i32) {
    if first > last {
        return;
    }
    // SAFETY: the descriptors belong to objects of main whose copies here are neither used nor dropped.
    let result = unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) };
    if result != 0 {
        // Before Linux 5.9.
        (first..=last.min(DESCRIPTORS_BEFORE_CLOSE_RANGE)).for_each(close);
    }
}

pub(crate) fn close(fd: i32) {
    // SAFETY: as in close_range.
    unsafe { libc::close(fd) };
}

/// Ends this process without running main's exit handlers.
pub(crate) fn exit(code: i32) -> ! {
    // SAFETY: takes no memory and does not return.
    unsafe { libc::_exit(code) }
}

/// More descriptors than this program opens before it starts its sandboxes.
const DESCRIPTORS_BEFORE_CLOSE_RANGE: i32 = 65_536;
