//! The coordinating process, as the process of the load sees it.

use std::io::{BufReader, Write as _};
use std::os::fd::AsFd as _;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result};
use coordination::pipe::{self, FromCoordinator, Hello, ToCoordinator};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use sys::auxiliary::Priority;
use sys::clock::Deadline;
use sys::sched::Cores;
use sys::signal::{Interrupts, wait_readable};

use super::{Collected, NotStarted};
use crate::terminal::print_message;

/// Interval at which interrupts are looked for.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// Longest time in which the process reports an interrupt to the other shards.
const INTERRUPT_TIMEOUT: Duration = Duration::from_secs(8);
/// Longest time in which the process reports the end of a search to the other shards.
const FINISH_TIMEOUT: Duration = Duration::from_secs(8);
/// How long the process may take to exit after its last line.
const EXIT_TIMEOUT: Duration = Duration::from_secs(4);

/// The coordinating process. It ends with this value.
pub struct Coordinator {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
    collected: Collected,
    /// Loads that were aborted, each by a SIGINT to this process.
    aborts: u32,
    has_start: bool,
}

/// What a member does next in a search.
#[derive(Debug)]
pub enum Next {
    /// Prepare this trial.
    Trial {
        /// Number of the trial.
        number: u32,
        /// What distinguishes it from other trials.
        request: String,
    },
    /// Nothing more: why the search ended early, or nothing.
    Finished(String),
}

impl Coordinator {
    /// Starts the process. Call it before anything of the run is created.
    ///
    /// # Errors
    /// The system refuses a process.
    pub fn start(hello: Hello) -> Result<Self> {
        let mut command = Command::new(std::env::current_exe().context("the path of this program")?);
        command.arg("coordinate").stdin(Stdio::piped()).stdout(Stdio::piped());
        // The other shards wait for it before a start.
        sys::auxiliary::deprioritize(&mut command, Priority::Low);
        let mut child = command.spawn().context("starting the coordination")?;
        let output = BufReader::new(child.stdout.take().context("the coordination's output")?);
        let input = child.stdin.take();
        let mut coordinator =
            Coordinator { input, child, output, collected: Collected::default(), aborts: 0, has_start: false };
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
            // A failure is harmless: it keeps running on all cores at low priority.
            let _ = sys::auxiliary::pin_to(self.child.id(), cores);
        }
    }

    /// Waits until the leader has set the start: nanoseconds since 1970.
    ///
    /// # Errors
    /// [`NotStarted`]: the load does not start, for this reason; the process has ended.
    pub fn wait_for_start(&mut self, interrupts: &Interrupts) -> Result<u64> {
        let before = interrupts.count();
        let mut deadline: Option<Deadline> = None;
        let why = loop {
            match self.line(interrupts, &mut deadline, before) {
                Some(FromCoordinator::Start(at_ns)) => {
                    self.has_start = true;
                    return Ok(at_ns);
                }
                Some(FromCoordinator::NotStarted(why) | FromCoordinator::Finished(why)) => break why,
                Some(other) => self.collected.add(other),
                None if interrupts.count() > before => break "interrupted".to_owned(),
                None => break "the coordinating process has ended".to_owned(),
            }
        };
        Err(NotStarted(why).into())
    }

    /// Number of interrupts by the user: those by the coordination end a load too.
    pub fn interrupts_of_user(&self, interrupts: &Interrupts) -> u32 {
        interrupts.count().saturating_sub(self.aborts)
    }

    /// Waits for the next trial of a search, or for its end. An interrupt is reported to the leader.
    pub fn next_trial(&mut self, interrupts: &Interrupts) -> Next {
        let before = interrupts.count();
        let mut deadline = None;
        loop {
            match self.line(interrupts, &mut deadline, before) {
                Some(FromCoordinator::Trial { number, request }) => return Next::Trial { number, request },
                Some(FromCoordinator::Finished(why) | FromCoordinator::NotStarted(why)) => return Next::Finished(why),
                Some(other) => self.collected.add(other),
                None if interrupts.count() > before => return Next::Finished("interrupted".into()),
                None => return Next::Finished("the coordinating process has ended".into()),
            }
        }
    }

    /// Reports that a load ended without a result; why the load of all was ended, if it was.
    pub fn failed(&mut self, why: &str, interrupts: &Interrupts) -> Option<String> {
        self.send(&ToCoordinator::Failed(why.to_owned()));
        // Without a start there is nothing to collect.
        if self.has_start { self.collect(interrupts).aborted } else { None }
    }

    /// Whether a load has a start and is not yet collected.
    pub fn has_start(&self) -> bool {
        self.has_start
    }

    /// Waits until the process has ended, for a bounded time.
    pub fn wait_for_exit(&self) {
        let _ = sys::process::open(self.child.id()).map(|pid| wait_readable(pid.as_fd(), FINISH_TIMEOUT));
    }

    /// Waits until everything is collected, or the user interrupts that.
    pub fn finish(mut self, interrupts: &Interrupts) -> Collected {
        self.collect(interrupts)
    }

    /// The same for a trial of a search, which goes on.
    pub fn collect(&mut self, interrupts: &Interrupts) -> Collected {
        let before = interrupts.count();
        let mut deadline = None;
        loop {
            match self.line(interrupts, &mut deadline, before) {
                Some(
                    line @ (FromCoordinator::Done(_) | FromCoordinator::NotStarted(_) | FromCoordinator::Finished(_)),
                ) => {
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
        self.has_start = false;
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
        let line = pipe::read(&mut self.output).unwrap_or_else(|error| {
            print_message(format_args!("coordination: {error}"));
            None
        });
        self.aborts += u32::from(matches!(line, Some(FromCoordinator::Abort(_))));
        line
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
