//! `--live`: a page beside a verb that runs, served by a process of its own.
//!
//! ```text
//!   this process                                     yamabiko live --follow-stdin [--listen ADDR]
//!     before anything is forked: starts it ------->    listens, prints its URL (its stdout, one line)
//!     says the URL on stderr <-----------------------
//!     folder of a run, one a line  --- pipe ------->   shows that folder, read from the disk
//!     ends, however it does: the pipe is shut ----->   shows the last state, and ends
//! ```
//!
//! Nothing of the run's own is in that process, and nothing of that process in the run's: it has the lowest priority and the cores
//! of the generator, and none of the run's namespaces and control groups, since it was there before them.

use std::cell::RefCell;
use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::rc::Rc;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use experiment::{SearchProgress, Stage};
use schema::{CachePoint, TrialPart};
use sys::sched::Cores;
use sys::signal::wait_readable;
use testbed::{Observer, RunFacts};

use crate::args::ShowOptions;
use crate::terminal::say;

/// A page that listens by now, or none where none was asked for. It ends with the last copy of this.
#[derive(Clone, Default)]
pub struct Live(Option<Rc<RefCell<Server>>>);

/// The process.
struct Server {
    child: Child,
    /// Shut, it says that nothing more comes.
    folders: Option<ChildStdin>,
}

/// So long a page may take until it listens, on a machine that is busy with other things.
const LISTENS_WITHIN: Duration = Duration::from_secs(10);
/// And so long until it has shown the last state to everybody who looks on.
const ENDS_WITHIN: Duration = Duration::from_secs(4);
/// An address is shorter.
const URL_BYTES_MAX: usize = 512;

impl Live {
    /// Starts it, if that was asked for, and says where it is. Call it before anything of the run is made, and after what starts this
    /// program anew. `is_kept`: whether the run will have a folder.
    ///
    /// # Errors
    /// The run is not kept, so there would be nothing to show; it cannot listen at the address.
    pub fn start(show: &ShowOptions, is_kept: bool) -> Result<Live> {
        let Some(address) = &show.live else { return Ok(Live(None)) };
        ensure!(
            is_kept,
            "--live shows what is kept of a run while it goes, and --no-save keeps nothing: leave one of them out"
        );
        let mut command = Command::new(std::env::current_exe().context("the path of this program")?);
        command.args(["live", "--follow-stdin"]);
        if !address.is_empty() {
            command.args(["--listen", address]);
        }
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        sys::auxiliary::deprioritize(&mut command);
        let mut child = command.spawn().context("starting the live page")?;
        let folders = child.stdin.take();
        let mut server = Server { child, folders };
        match server.url()? {
            Some(url) => say(format_args!("live: {url}")),
            // It has said why on stderr.
            None => bail!("the live page could not be served (--live)"),
        }
        Ok(Live(Some(Rc::new(RefCell::new(server)))))
    }

    /// Shows the run in this folder from now on.
    pub fn show(&self, dir: &Path) {
        if let Some(server) = &self.0 {
            server.borrow_mut().show(dir);
        }
    }

    /// Keeps it from the server's cores.
    fn settle(&self, cores: Option<&Cores>) {
        if let (Some(server), Some(cores)) = (&self.0, cores) {
            // One that has ended, or may not be moved, costs what it costs.
            let _ = sys::auxiliary::pin_to(server.borrow().child.id(), cores);
        }
    }

    /// `observer`, and the page shows the run that it observes.
    pub fn observing<O: Observer>(&self, observer: O) -> Shown<O> {
        Shown { inner: observer, live: self.clone() }
    }

    /// `stage`, and the page shows the experiment.
    pub fn staging<'a>(&self, stage: &'a mut dyn Stage) -> ShownStage<'a> {
        ShownStage { inner: stage, live: self.clone() }
    }
}

impl Server {
    /// The line that it prints when it listens; `None` if it ended without one.
    fn url(&mut self) -> Result<Option<String>> {
        let mut stdout = self.child.stdout.take().context("the live page's output")?;
        let mut line = Vec::new();
        while !line.contains(&b'\n') && line.len() < URL_BYTES_MAX {
            ensure!(
                wait_readable(stdout.as_fd(), LISTENS_WITHIN),
                "the live page did not listen within {} (--live)",
                units::format_duration(LISTENS_WITHIN)
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
        // A name with a line's end in it cannot be said; the run store makes none.
        let Some(folders) = self.folders.as_mut().filter(|_| !bytes.contains(&b'\n')) else { return };
        let mut line = bytes.to_vec();
        line.push(b'\n');
        // A page that is gone is missed by nobody here.
        let _ = folders.write_all(&line);
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.folders = None;
        let ended = sys::process::open(self.child.id()).is_ok_and(|pid| wait_readable(pid.as_fd(), ENDS_WITHIN));
        if !ended {
            let _ = self.child.kill();
        }
        let _ = self.child.wait();
    }
}

/// An observer whose run is on the page.
pub struct Shown<O> {
    inner: O,
    live: Live,
}

impl<O: Observer> Observer for Shown<O> {
    fn inner(&mut self) -> Option<&mut dyn Observer> {
        Some(&mut self.inner)
    }

    fn folder(&mut self, dir: &Path) {
        self.live.show(dir);
        self.inner.folder(dir);
    }

    fn started(&mut self, facts: &RunFacts) {
        self.live.settle(facts.cores.as_ref());
        self.inner.started(facts);
    }
}

/// A stage whose experiment is on the page; its runs are shown by what the experiment says of itself.
pub struct ShownStage<'a> {
    inner: &'a mut dyn Stage,
    live: Live,
}

impl Stage for ShownStage<'_> {
    fn folder(&mut self, dir: &Path) {
        self.live.show(dir);
        self.inner.folder(dir);
    }

    fn begin(&mut self, what: &str) -> Box<dyn Observer> {
        Box::new(self.live.observing(self.inner.begin(what)))
    }

    fn point(&mut self, point: &CachePoint) {
        self.inner.point(point);
    }

    fn trial(&mut self, trial: &TrialPart, so_far: &SearchProgress) {
        self.inner.trial(trial, so_far);
    }

    fn step(&mut self, what: &str) {
        self.inner.step(what);
    }
}
