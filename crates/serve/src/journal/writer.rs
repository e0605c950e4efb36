//! The log thread: receives buffers of records, formats and writes lines.

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

/// The access log: a cloneable handle. Made before [`crate::serve`], so that an unusable file is reported before the
/// server starts.
#[derive(Clone, Debug)]
pub struct Log(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    spec: LogSpec,
    tallies: Arc<Tallies>,
    /// The file opened last; the thread takes it, and again after a reopen.
    file: Mutex<Option<File>>,
    /// Notifies the running thread of a new file.
    notify: Mutex<Option<Sender<Message>>>,
}

/// Why the log cannot be opened.
#[derive(Debug, thiserror::Error)]
#[error("cannot open the access log {path}: {source}; name a file in a folder that exists and is writable")]
pub struct LogError {
    path: String,
    source: io::Error,
}

/// Counts of the log's records.
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
    /// The last write failed, and the failure was printed.
    failing: AtomicBool,
}

impl Tallies {
    pub(super) fn drop_records(&self, records: u64) {
        self.dropped.fetch_add(records, Ordering::Relaxed);
    }
}

/// A message to the log thread.
#[derive(Debug)]
pub(super) enum Message {
    /// A buffer of records, to be returned empty.
    Records { records: u64, bytes: Vec<u8>, back: Sender<Vec<u8>> },
    /// A new file is open.
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

    /// Opens the file again by its name, after a log rotation. Queued records go to the file that is open when they are
    /// written.
    ///
    /// # Errors
    /// It cannot be opened; the log continues in the old file.
    pub fn reopen(&self) -> Result<(), LogError> {
        let file = open(&self.0.spec.to)?;
        *lock(&self.0.file) = file;
        if let Some(notify) = &*lock(&self.0.notify) {
            // Fails after the end of the thread, when nothing is written any more.
            let _ = notify.send(Message::Reopened);
        }
        Ok(())
    }

    /// The counts so far.
    pub fn summary(&self) -> LogSummary {
        let Tallies { written, dropped, failed, .. } = &*self.0.tallies;
        let [written, dropped, failed] = [written, dropped, failed].map(|count| count.load(Ordering::Relaxed));
        LogSummary { written, dropped, failed }
    }

    /// Starts the log thread. It ends when the last [`Journal`] and the [`LogThread`] are dropped, after all records
    /// are written.
    pub(crate) fn start(&self, clock: Clock) -> io::Result<LogThread> {
        let (sender, receiver) = channel();
        *lock(&self.0.notify) = Some(sender.clone());
        let inner = Arc::clone(&self.0);
        // Done here, not on the thread: a later reopen applies to later records.
        let file = lock(&inner.file).take();
        let thread = thread::Builder::new()
            .name("log".to_owned())
            .spawn(move || Writer::new(&inner, clock, file).run(&receiver))?;
        Ok(LogThread { log: self.clone(), sender: Some(sender), thread: Some(thread) })
    }
}

impl PartialEq for Log {
    /// Whether both are the same handle.
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Log {}

/// The running log thread; dropping it, after all journals, waits until all records are written.
#[derive(Debug)]
pub(crate) struct LogThread {
    log: Log,
    sender: Option<Sender<Message>>,
    thread: Option<JoinHandle<()>>,
}

impl LogThread {
    /// A worker's part.
    pub(crate) fn journal(&self) -> Option<Journal> {
        Some(Journal::new(self.sender.clone()?, Arc::clone(&self.log.0.tallies)))
    }
}

impl Drop for LogThread {
    fn drop(&mut self) {
        *lock(&self.log.0.notify) = None;
        self.sender = None;
        if let Some(thread) = self.thread.take() {
            // The panic hook has printed the thread's panic; the server survives without its log.
            let _ = thread.join();
        }
    }
}

/// State of the thread.
struct Writer<'a> {
    inner: &'a Inner,
    clock: Clock,
    lines: Lines,
    file: Option<File>,
    /// Formatted lines of one buffer of records.
    text: Vec<u8>,
    /// The last write ended within a line: the next one begins with a line end, so that one line is damaged, not two.
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
                // Printed once, not for every buffer until space is available.
                if !tallies.failing.swap(true, Ordering::Relaxed) {
                    // eprintln would panic if the terminal is closed.
                    let _ = writeln!(
                        io::stderr(),
                        "access log: write: {error}; the server continues and counts lines that cannot be written"
                    );
                }
            }
        }
    }
}

/// Writes all of `text`; an error includes the number of bytes written.
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

/// The wall clock at the zero of `clock`, from the current values of both: follows a wall clock that is set.
fn zero_unix_ns(clock: Clock) -> u64 {
    sys::clock::realtime_ns().saturating_sub(clock.now().as_nanos())
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Maximum sleep of the thread; nothing depends on it.
const CLOCK_CHECK: Duration = Duration::from_secs(60);
