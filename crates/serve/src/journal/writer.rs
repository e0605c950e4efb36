//! The log thread: takes buffers of records, formats them, writes lines.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Write as _};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use sys::clock::Clock;

use super::line::Lines;
use super::record::take;
use super::{Journal, LogSpec, LogTarget};

/// The access log: a handle that may be cloned. Made before [`crate::serve`], so that a file that cannot be opened is
/// told before anything is served.
#[derive(Clone, Debug)]
pub struct Log(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    spec: LogSpec,
    tallies: Arc<Tallies>,
    /// The file as opened last; the thread takes it, and takes it anew after a reopening.
    file: Mutex<Option<File>>,
    /// Tells the thread, while it runs, that there is another file.
    notify: Mutex<Option<Sender<Message>>>,
}

/// Why the log cannot be opened.
#[derive(Debug, thiserror::Error)]
#[error("open the access log {path}: {source}; name a file in a folder that exists and may be written to")]
pub struct LogError {
    path: String,
    source: io::Error,
}

/// What became of the records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogSummary {
    /// Lines written.
    pub written: u64,
    /// Records dropped because the log thread fell behind.
    pub dropped: u64,
    /// Lines lost because a write failed: a full disk, a pipe without a reader.
    pub failed: u64,
}

/// Counters of the log.
#[derive(Debug, Default)]
pub(super) struct Tallies {
    written: AtomicU64,
    pub(super) dropped: AtomicU64,
    failed: AtomicU64,
    /// The last write failed, and it was said.
    failing: AtomicBool,
}

impl Tallies {
    pub(super) fn drop_records(&self, records: u64) {
        self.dropped.fetch_add(records, Ordering::Relaxed);
    }
}

/// To the log thread.
#[derive(Debug)]
pub(super) enum Message {
    /// A buffer of records, to be sent back emptied.
    Records { records: u64, bytes: Vec<u8>, back: Sender<Vec<u8>> },
    /// There is another file.
    Reopened,
}

impl Log {
    /// Opens the log's file.
    ///
    /// # Errors
    /// It cannot be opened for appending.
    pub fn open(spec: LogSpec) -> Result<Self, LogError> {
        let file = open(&spec.to)?;
        Ok(Log(Arc::new(Inner { spec, tallies: Arc::default(), file: Mutex::new(file), notify: Mutex::new(None) })))
    }

    /// Opens the file anew by its name, as after it was moved away (logrotate). Records on their way go to whichever
    /// is open when they are written.
    ///
    /// # Errors
    /// It cannot be opened; the log goes on with the old one.
    pub fn reopen(&self) -> Result<(), LogError> {
        let file = open(&self.0.spec.to)?;
        *lock(&self.0.file) = file;
        if let Some(notify) = &*lock(&self.0.notify) {
            // It fails when the thread has ended, and then nobody writes any more.
            let _ = notify.send(Message::Reopened);
        }
        Ok(())
    }

    /// What became of the records so far.
    pub fn summary(&self) -> LogSummary {
        let Tallies { written, dropped, failed, .. } = &*self.0.tallies;
        let [written, dropped, failed] = [written, dropped, failed].map(|count| count.load(Ordering::Relaxed));
        LogSummary { written, dropped, failed }
    }

    /// Starts the log thread. It ends when the last [`Journal`] and the [`Writing`] are gone, after it wrote all that
    /// was noted.
    pub(crate) fn start(&self, clock: Clock) -> io::Result<Writing> {
        let (sender, receiver) = channel();
        *lock(&self.0.notify) = Some(sender.clone());
        let inner = Arc::clone(&self.0);
        // Here, not on the thread: what is opened from now on is for what is noted from now on.
        let file = lock(&inner.file).take();
        let thread = thread::Builder::new()
            .name("log".to_owned())
            .spawn(move || Writer::new(&inner, clock, file).run(&receiver))?;
        Ok(Writing { log: self.clone(), sender: Some(sender), thread: Some(thread) })
    }
}

impl PartialEq for Log {
    /// The same handle.
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Log {}

/// The running log thread; dropping it, after all journals, waits until everything noted is written.
#[derive(Debug)]
pub(crate) struct Writing {
    log: Log,
    sender: Option<Sender<Message>>,
    thread: Option<JoinHandle<()>>,
}

impl Writing {
    /// A worker's side.
    pub(crate) fn journal(&self) -> Option<Journal> {
        Some(Journal::new(self.sender.clone()?, Arc::clone(&self.log.0.tallies)))
    }
}

impl Drop for Writing {
    fn drop(&mut self) {
        *lock(&self.log.0.notify) = None;
        self.sender = None;
        if let Some(thread) = self.thread.take() {
            // A panic of the thread was told by the panic hook; the log is lost, the server is not.
            let _ = thread.join();
        }
    }
}

/// What the thread has.
struct Writer<'a> {
    inner: &'a Inner,
    clock: Clock,
    lines: Lines,
    file: Option<File>,
    /// Lines of one buffer of records.
    text: Vec<u8>,
    /// The last write ended within a line: the next one begins with a line's end, so that one line is damaged, not two.
    torn: bool,
}

impl<'a> Writer<'a> {
    fn new(inner: &'a Inner, clock: Clock, file: Option<File>) -> Self {
        let LogSpec { format, anonymous, .. } = inner.spec;
        let lines = Lines::new(format, anonymous, zero_unix_ns(clock));
        Writer { inner, clock, lines, file, text: Vec::new(), torn: false }
    }

    fn run(mut self, messages: &Receiver<Message>) {
        loop {
            match messages.recv_timeout(CLOCK_CHECK) {
                Ok(Message::Records { records, bytes, back }) => {
                    self.write(records, &bytes);
                    let mut emptied = bytes;
                    emptied.clear();
                    // The worker may have ended.
                    let _ = back.send(emptied);
                }
                Ok(Message::Reopened) => {
                    if let Some(file) = lock(&self.inner.file).take() {
                        self.file = Some(file);
                    }
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    fn write(&mut self, records: u64, mut bytes: &[u8]) {
        self.lines.set_zero(zero_unix_ns(self.clock));
        self.text.clear();
        if self.torn {
            self.text.push(b'\n');
        }
        while let Some(record) = take(&mut bytes) {
            self.lines.append(&mut self.text, &record);
        }
        let outcome = match &mut self.file {
            Some(file) => write_lines(file, &self.text),
            None => {
                let mut out = io::stdout().lock();
                write_lines(&mut out, &self.text).and_then(|()| out.flush().map_err(|error| (0, error)))
            }
        };
        let tallies = &self.inner.tallies;
        match outcome {
            Ok(()) => {
                tallies.written.fetch_add(records, Ordering::Relaxed);
                tallies.failing.store(false, Ordering::Relaxed);
                self.torn = false;
            }
            Err((taken, error)) => {
                let whole = self.text[..taken].iter().filter(|&&byte| byte == b'\n').count() as u64;
                let written = whole - u64::from(self.torn && taken > 0);
                if let Some(last) = self.text[..taken].last() {
                    self.torn = *last != b'\n';
                }
                tallies.written.fetch_add(written, Ordering::Relaxed);
                tallies.failed.fetch_add(records - written, Ordering::Relaxed);
                // Said once, not for every buffer until somebody makes room.
                if !tallies.failing.swap(true, Ordering::Relaxed) {
                    // A terminal that is gone must not end the log, as eprintln would.
                    let _ = writeln!(
                        io::stderr(),
                        "access log: write: {error}; serving goes on, lines that cannot be written are counted"
                    );
                }
            }
        }
    }
}

/// Writes all of `text`; a failure comes with how much of it was taken.
fn write_lines(out: &mut impl io::Write, text: &[u8]) -> Result<(), (usize, io::Error)> {
    let mut taken = 0;
    while taken < text.len() {
        match out.write(&text[taken..]) {
            Ok(0) => return Err((taken, ErrorKind::WriteZero.into())),
            Ok(bytes) => taken += bytes,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err((taken, error)),
        }
    }
    Ok(())
}

fn open(to: &LogTarget) -> Result<Option<File>, LogError> {
    let LogTarget::File(path) = to else { return Ok(None) };
    append_to(path).map(Some).map_err(|source| LogError { path: path.display().to_string(), source })
}

fn append_to(path: &Path) -> io::Result<File> {
    OpenOptions::new().append(true).create(true).open(path)
}

/// The wall clock at the zero of `clock`, by both clocks as they stand now: follows a wall clock that is set.
fn zero_unix_ns(clock: Clock) -> u64 {
    sys::clock::realtime_ns().saturating_sub(clock.now().as_nanos())
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// How long the thread sleeps at most; nothing depends on it.
const CLOCK_CHECK: Duration = Duration::from_secs(60);
