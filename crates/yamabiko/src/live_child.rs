//! `--live`: serves a live page of a running verb, from a separate process.
//!
//! ```text
//!   this process                                     yamabiko live --follow-stdin [--listen ADDR]
//!     starts it before anything is forked --------->   listens, prints its URL (its stdout, one line)
//!     prints the URL on stderr <--------------------
//!     folder of a run, one a line  --- pipe ------->   shows that folder, read from the disk
//!     exits in any way: the pipe is closed --------->  shows the last state, and exits
//! ```
//!
//! The page's process and the run share no memory. The process has the lowest priority and runs on the generator's
//! cores. It starts before the run's namespaces and control groups exist, so it is in none of them.

#[cfg(feature = "experiments")]
mod stage;

use std::cell::RefCell;
use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::rc::Rc;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use sys::auxiliary::Priority;
use sys::sched::Cores;
use sys::signal::wait_readable;
use testbed::{Observer, RunFacts};

use crate::args::ShowOptions;
use crate::terminal::print_message;

/// A live page that listens, or none if `--live` is not given. The page's process ends when the last clone is dropped.
#[derive(Clone, Default)]
pub struct LivePage(Option<Rc<RefCell<Server>>>);

/// The page's process.
struct Server {
    child: Child,
    /// The process's stdin: receives folders. Closing it ends the process.
    folders: Option<ChildStdin>,
}

/// How long the process may take until it listens, on a busy machine.
const LISTEN_TIMEOUT: Duration = Duration::from_secs(10);
/// How long the process may take to send the last state to all viewers.
const EXIT_TIMEOUT: Duration = Duration::from_secs(4);
/// Most bytes read of the line with the URL, which is shorter.
const URL_BYTES_MAX: usize = 512;

impl LivePage {
    /// Starts the page if `--live` is given, and prints its URL. Call this before anything of the run is created, and
    /// after a possible restart of this program. `is_stored`: whether the run will have a folder.
    ///
    /// # Errors
    /// The run is not stored, so there would be nothing to show. The page cannot listen at the address.
    pub fn start(show: &ShowOptions, is_stored: bool) -> Result<LivePage> {
        let Some(address) = &show.live else { return Ok(LivePage(None)) };
        ensure!(is_stored, "--live shows the stored files of a run, and --no-save stores none: use only one of them");
        let mut command = Command::new(std::env::current_exe().context("the path of this program")?);
        command.args(["live", "--follow-stdin"]);
        if !address.is_empty() {
            command.args(["--listen", address]);
        }
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        sys::auxiliary::deprioritize(&mut command, Priority::Idle);
        let mut child = command.spawn().context("starting the live page")?;
        let folders = child.stdin.take();
        let mut server = Server { child, folders };
        match server.url()? {
            Some(url) => print_message(format_args!("live: {url}")),
            // The page's process has printed the reason on stderr.
            None => bail!("the live page could not be served (--live)"),
        }
        Ok(LivePage(Some(Rc::new(RefCell::new(server)))))
    }

    /// Shows the run in this folder from now on.
    pub fn show(&self, dir: &Path) {
        if let Some(server) = &self.0 {
            server.borrow_mut().show(dir);
        }
    }

    /// Restricts the page's process to these cores, which are not the server's.
    fn restrict_to(&self, cores: Option<&Cores>) {
        if let (Some(server), Some(cores)) = (&self.0, cores) {
            // A failure is harmless: the process has ended, or it keeps running on all cores at the lowest priority.
            let _ = sys::auxiliary::pin_to(server.borrow().child.id(), cores);
        }
    }

    /// Wraps an observer, so that the page shows the run that it observes.
    pub fn observing<O: Observer>(&self, observer: O) -> ObserverWithPage<O> {
        ObserverWithPage { inner: observer, live: self.clone() }
    }
}

impl Server {
    /// The URL that the process prints when it listens; `None` if the process ended without printing one.
    fn url(&mut self) -> Result<Option<String>> {
        let mut stdout = self.child.stdout.take().context("the live page's output")?;
        let mut line = Vec::new();
        while !line.contains(&b'\n') && line.len() < URL_BYTES_MAX {
            ensure!(
                wait_readable(stdout.as_fd(), LISTEN_TIMEOUT),
                "the live page did not listen within {} (--live)",
                units::format_duration(LISTEN_TIMEOUT)
            );
            let mut bytes = [0; 128];
            match stdout.read(&mut bytes).context("reading the live page's address")? {
                0 => return Ok(None),
                count => line.extend(&bytes[..count]),
            }
        }
        let text = String::from_utf8_lossy(&line);
        Ok(text.lines().next().map(report::figures::plain).map(|url| url.trim().to_owned()))
    }

    fn show(&mut self, dir: &Path) {
        use std::os::unix::ffi::OsStrExt;
        let bytes = dir.as_os_str().as_bytes();
        // A path with a line feed cannot be sent as a line; the run store creates none.
        let Some(folders) = self.folders.as_mut().filter(|_| !bytes.contains(&b'\n')) else { return };
        let mut line = bytes.to_vec();
        line.push(b'\n');
        // A page that has ended does not affect the run.
        let _ = folders.write_all(&line);
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.folders = None;
        let ended = sys::process::open(self.child.id()).is_ok_and(|pid| wait_readable(pid.as_fd(), EXIT_TIMEOUT));
        if !ended {
            let _ = self.child.kill();
        }
        let _ = self.child.wait();
    }
}

/// An observer whose run the page shows.
pub struct ObserverWithPage<O> {
    inner: O,
    live: LivePage,
}

impl<O: Observer> Observer for ObserverWithPage<O> {
    fn inner(&mut self) -> Option<&mut dyn Observer> {
        Some(&mut self.inner)
    }

    fn folder(&mut self, dir: &Path) {
        self.live.show(dir);
        self.inner.folder(dir);
    }

    fn started(&mut self, facts: &RunFacts) {
        self.live.restrict_to(facts.cores.as_ref());
        self.inner.started(facts);
    }
}
