//! The coordinating process, as the process of the load sees it.

use std::io::{BufReader, Write as _};
use std::os::fd::AsFd as _;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result};
use coordination::pipe::{self, FromCoordinator, Hello, ToCoordinator};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use sys::clock::Deadline;
use sys::sched::Cores;
use sys::signal::{Interrupts, wait_readable};

use super::{Collected, not_started};
use crate::terminal::print_message;

/// Interval at which interrupts are looked for.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// Longest time in which the process reports an interrupt to the other shards.
const INTERRUPT_TIMEOUT: Duration = Duration::from_secs(8);
/// How long the process may take to exit after its last line.
const EXIT_TIMEOUT: Duration = Duration::from_secs(4);

/// The coordinating process. It ends with this value.
pub struct Coordinator {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
    collected: Collected,
}

impl Coordinator {
    /// Starts the process. Call it before anything of the run is created.
    ///
    /// # Errors
    /// The system refuses a process.
    pub fn start(hello: Hello) -> Result<Self> {
        let mut command = Command::new(std::env::current_exe().context("the path of this program")?);
        command.arg("coordinate").stdin(Stdio::piped()).stdout(Stdio::piped());
        sys::auxiliary::deprioritize(&mut command);
        let mut child = command.spawn().context("starting the coordination")?;
        let output = BufReader::new(child.stdout.take().context("the coordination's output")?);
        let mut coordinator = Coordinator { input: child.stdin.take(), child, output, collected: Collected::default() };
        coordinator.send(&ToCoordinator::Hello(Box::new(hello)));
        Ok(coordinator)
    }

    /// Sends a line. A process that has ended does not affect the load.
    pub fn send(&mut self, line: &ToCoordinator) {
        if let Some(input) = &mut self.input {
            let _ = pipe::write(input, line);
        }
    }

    /// Sends a line unless that would wait; whether it was sent.
    pub fn try_send(&mut self, line: &ToCoordinator) -> bool {
        let Some(input) = &mut self.input else { return false };
        // A pipe that is writable has room for 4 KiB, more than a line of counts.
        let mut fds = [PollFd::new(input.as_fd(), PollFlags::POLLOUT)];
        let is_writable = matches!(poll(&mut fds, PollTimeout::ZERO), Ok(1..))
            && fds[0].revents().is_some_and(|events| events.contains(PollFlags::POLLOUT));
        is_writable && pipe::write(input, line).is_ok()
    }

    /// Limits the process to these cores, which are not the server's.
    pub fn restrict_to(&self, cores: Option<&Cores>) {
        if let Some(cores) = cores {
            // A failure is harmless: it keeps running on all cores at the lowest priority.
            let _ = sys::auxiliary::pin_to(self.child.id(), cores);
        }
    }

    /// Waits until the leader has set the start: nanoseconds since 1970.
    ///
    /// # Errors
    /// The load does not start, for this reason. The process has ended.
    pub fn wait_for_start(&mut self, interrupts: &Interrupts) -> Result<u64> {
        let before = interrupts.count();
        let mut deadline: Option<Deadline> = None;
        loop {
            match self.line(interrupts, &mut deadline, before) {
                Some(FromCoordinator::Start(at_ns)) => return Ok(at_ns),
                Some(FromCoordinator::NotStarted(why)) => return not_started(&why),
                Some(other) => self.collected.add(other),
                None if interrupts.count() > before => return not_started("interrupted"),
                None => return not_started("the coordinating process has ended"),
            }
        }
    }

    /// Waits until everything is collected, or the user interrupts that.
    pub fn finish(mut self, interrupts: &Interrupts) -> Collected {
        let before = interrupts.count();
        let mut deadline = None;
        loop {
            match self.line(interrupts, &mut deadline, before) {
                Some(line @ (FromCoordinator::Done(_) | FromCoordinator::NotStarted(_))) => {
                    self.collected.add(line);
                    break;
                }
                Some(line) => self.collected.add(line),
                None => {
                    self.collected
                        .missing
                        .push("the coordinating process ended early: not all runs were collected".into());
                    break;
                }
            }
        }
        std::mem::take(&mut self.collected)
    }

    /// The next line; `None` at the end, or some time after an interrupt.
    fn line(
        &mut self,
        interrupts: &Interrupts,
        deadline: &mut Option<Deadline>,
        before: u32,
    ) -> Option<FromCoordinator> {
        while self.output.buffer().is_empty() {
            if wait_readable(self.output.get_ref().as_fd(), POLL_INTERVAL) {
                break;
            }
            if interrupts.count() > before {
                match deadline {
                    None => {
                        self.send(&ToCoordinator::Interrupted);
                        *deadline = Some(Deadline::after(INTERRUPT_TIMEOUT));
                    }
                    Some(deadline) if deadline.has_passed() => return None,
                    Some(_) => {}
                }
            }
        }
        pipe::read(&mut self.output).unwrap_or_else(|error| {
            print_message(format_args!("coordination: {error}"));
            None
        })
    }
}

impl Drop for Coordinator {
    fn drop(&mut self) {
        if let Some(mut input) = self.input.take() {
            let _ = input.flush();
        }
        let ended = sys::process::open(self.child.id()).is_ok_and(|pid| wait_readable(pid.as_fd(), EXIT_TIMEOUT));
        if !ended {
            let _ = self.child.kill();
        }
        let _ = self.child.wait();
    }
}
