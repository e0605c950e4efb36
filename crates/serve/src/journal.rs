//! The access log, off the hot path.
//!
//! ```text
//!   worker: Journal ── one memcpy a request ──▶ buffer ──full, or once a second──▶ queue ──▶ log thread: format, write
//!               ◀───────────── empty buffers ────────────────────────────────────┘
//! ```
//!
//! A worker records a response as raw data: the request head as received, and numbers in binary. The log thread parses,
//! escapes and formats. A worker has [`BUFFERS`] buffers; when all of them wait for a slow disk, records are dropped
//! and counted, and the server continues.
//!
//! Read `line.rs` for the format of a line, `writer.rs` for the thread.

mod line;
mod line_formatter;
mod record;
mod writer;

#[cfg(test)]
mod tests;

use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use units::Timestamp;

pub use self::line::LogFormat;
pub(crate) use self::line_formatter::LineFormatter;
use self::record::append;
pub use self::writer::{Log, LogError, LogSummary};
use self::writer::{Message, Tallies};
use crate::cache::Finding;
use crate::figures::{Counters, Kind};

/// Configuration of the access log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogSpec {
    /// Destination.
    pub to: LogTarget,
    /// Line format.
    pub format: LogFormat,
    /// Zeroes the host part of addresses: the last 8 bits of IPv4, the last 80 of IPv6.
    pub anonymous: bool,
}

/// Destination of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogTarget {
    /// Appended to a file, which is created if it does not exist.
    File(PathBuf),
    /// Standard output.
    Stdout,
}

/// A completed response.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry<'a> {
    /// The client's address.
    pub(crate) peer: IpAddr,
    /// The request's head as received; empty or incomplete if it was refused before its end.
    pub(crate) head: &'a [u8],
    /// The status; [`NO_RESPONSE`] if the client disconnected before.
    pub(crate) status: u16,
    /// Bytes of the body that the kernel accepted, without head and framing.
    pub(crate) content_bytes: u64,
    /// For the metrics.
    pub(crate) kind: Kind,
    /// Outcome of the result cache.
    pub(crate) finding: Finding,
    /// When the head was complete.
    pub(crate) began: Timestamp,
    /// When the last byte was passed to the kernel, or to a buffer that is passed in the same turn.
    pub(crate) ended: Timestamp,
    /// The response is complete.
    pub(crate) whole: bool,
}

/// Interval of reports.
const TICK: Duration = Duration::from_secs(1);

/// Status in the log of a request whose client disconnected before a response, as in nginx.
pub(crate) const NO_RESPONSE: u16 = 499;

/// A worker's counters and its part of the log. Every response is recorded once, at its end.
#[derive(Debug)]
pub(crate) struct Recorder {
    counters: Arc<Counters>,
    journal: Option<Journal>,
    /// Something changed since the last tick.
    has_unreported: bool,
    /// One second after the last tick.
    due_at: Timestamp,
}

impl Recorder {
    /// For one worker.
    pub(crate) fn new(counters: Arc<Counters>, journal: Option<Journal>) -> Self {
        Recorder { counters, journal, has_unreported: false, due_at: Timestamp::ZERO }
    }

    /// The worker's counters, for connections and bytes.
    pub(crate) fn counters(&self) -> &Counters {
        &self.counters
    }

    /// A request's head is complete: it is in flight until [`Recorder::answered`].
    pub(crate) fn began(&self) {
        self.counters.began();
    }

    /// A response ended. Exactly once for each [`Recorder::began`].
    pub(crate) fn answered(&mut self, entry: &Entry<'_>) {
        let Entry { kind, status, content_bytes, finding, whole, .. } = *entry;
        self.has_unreported = true;
        self.counters.answered(kind, status, content_bytes, finding, whole);
        if let Some(journal) = &mut self.journal {
            journal.note(entry);
        }
    }

    /// A request was refused before its head was complete: without [`Recorder::began`].
    pub(crate) fn refused(&mut self, entry: &Entry<'_>) {
        self.counters.began();
        self.answered(entry);
    }

    /// Copies the head for a response that takes time; free of cost without a log.
    pub(crate) fn keep(&self, head: &[u8]) -> RequestHead {
        if self.journal.is_some() { RequestHead(head.into()) } else { RequestHead::default() }
    }

    /// When the next tick is due: it reports everything since the last one.
    pub(crate) fn due_at(&self) -> Timestamp {
        if self.has_unreported { self.due_at } else { Timestamp::MAX }
    }

    /// Once a second after changes, and before an unlimited wait: passes records to the log thread and updates the
    /// request rate.
    pub(crate) fn tick(&mut self, now: Timestamp) {
        (self.has_unreported, self.due_at) = (false, now + TICK);
        self.counters.tick(now);
        if let Some(journal) = &mut self.journal {
            journal.send_to_log_thread();
        }
    }
}

/// A request's head, copied for the log.
#[derive(Clone, Debug, Default)]
pub(crate) struct RequestHead(Box<[u8]>);

impl RequestHead {
    /// For [`Entry::head`].
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.0
    }
}

/// A worker's part of the log.
#[derive(Debug)]
pub(crate) struct Journal {
    filling: Vec<u8>,
    /// Records in `filling`.
    records: u64,
    /// Emptied buffers.
    empty: Receiver<Vec<u8>>,
    back: Sender<Vec<u8>>,
    /// Buffers not yet allocated.
    unmade: usize,
    full: Sender<Message>,
    tallies: Arc<Tallies>,
}

impl Journal {
    fn new(full: Sender<Message>, tallies: Arc<Tallies>) -> Self {
        let (back, empty) = channel();
        Journal {
            filling: Vec::with_capacity(BUFFER_BYTES),
            records: 0,
            empty,
            back,
            unmade: BUFFERS - 1,
            full,
            tallies,
        }
    }

    /// Records a response; drops it when all buffers are in use.
    fn note(&mut self, entry: &Entry<'_>) {
        if self.filling.capacity() - self.filling.len() < record::bytes(entry) {
            self.send_to_log_thread();
            if self.filling.capacity() == 0 {
                self.tallies.drop_records(1);
                return;
            }
        }
        append(&mut self.filling, entry);
        self.records += 1;
    }

    /// Sends the records to the log thread.
    fn send_to_log_thread(&mut self) {
        if self.filling.capacity() > 0 && self.filling.is_empty() {
            return;
        }
        let next = self.empty.try_recv().ok().or_else(|| {
            self.unmade = self.unmade.checked_sub(1)?;
            Some(Vec::with_capacity(BUFFER_BYTES))
        });
        let full = std::mem::replace(&mut self.filling, next.unwrap_or_default());
        let records = std::mem::take(&mut self.records);
        if full.capacity() == 0 {
            return;
        }
        if let Err(unsent) = self.full.send(Message::Records { records, bytes: full, back: self.back.clone() }) {
            // The log thread has ended, which happens during shutdown only.
            drop(unsent);
            self.tallies.drop_records(records);
        }
    }
}

impl Drop for Journal {
    fn drop(&mut self) {
        self.send_to_log_thread();
    }
}

/// Size of one buffer: some hundred records.
const BUFFER_BYTES: usize = 256 << 10;
/// Buffers of one worker: 4 MiB of records may wait for a slow disk.
const BUFFERS: usize = 16;
