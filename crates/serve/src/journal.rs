//! The access log, off the hot path.
//!
//! ```text
//!   worker: Journal ── one memcpy a request ──▶ buffer ──full, or once a second──▶ queue ──▶ log thread: format, write
//!               ◀───────────── emptied buffers ────────────────────────────────────┘
//! ```
//!
//! A worker notes what is known of an answer as it is: the request head as it came, and the figures in binary. Taking the
//! head apart, escaping and formatting are the log thread's work. A worker has [`BUFFERS`] buffers; when all are on
//! their way to a disk that is slower than the server, records are dropped and counted, and the server goes on.
//!
//! Read `line.rs` for what a line looks like, `writer.rs` for the thread.

mod line;
mod record;
mod scribe;
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
use self::record::append;
pub(crate) use self::scribe::Scribe;
pub use self::writer::{Log, LogError, LogSummary};
use self::writer::{Message, Tallies};
use crate::cache::Finding;
use crate::figures::{Counters, Kind};

/// The access log as asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogSpec {
    /// Where lines go.
    pub to: LogTarget,
    /// What a line has.
    pub format: LogFormat,
    /// Addresses lose their host part: the last 8 bits of IPv4, the last 80 of IPv6 are written as 0.
    pub anonymous: bool,
}

/// Where the lines of the log go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogTarget {
    /// Appended to a file, which is made if it is not there.
    File(PathBuf),
    /// Standard output.
    Stdout,
}

/// What is known of an answer when it is over.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry<'a> {
    /// Who asked.
    pub(crate) peer: IpAddr,
    /// The request's head as it came; empty, or what there was of it, when it was refused before its end.
    pub(crate) head: &'a [u8],
    /// As answered; [`NO_ANSWER`] when the client was gone before.
    pub(crate) status: u16,
    /// Bytes of the body that the kernel took, without head and framing.
    pub(crate) content_bytes: u64,
    /// For the figures.
    pub(crate) kind: Kind,
    /// What the result cache did.
    pub(crate) finding: Finding,
    /// When the head was complete.
    pub(crate) began: Timestamp,
    /// When the last byte was handed to the kernel, or to the buffer that goes there with the same turn.
    pub(crate) ended: Timestamp,
    /// All of it went out.
    pub(crate) whole: bool,
}

/// The books are written up this often.
const TICK: Duration = Duration::from_secs(1);

/// The status in the log of a request whose client was gone before any answer: the number that nginx has for it.
pub(crate) const NO_ANSWER: u16 = 499;

/// A worker's books: its counters and its side of the log. Every answer is entered once, when it is over.
#[derive(Debug)]
pub(crate) struct Books {
    counters: Arc<Counters>,
    journal: Option<Journal>,
    /// Something happened since the last tick.
    untold: bool,
    /// A second after the last tick.
    due_at: Timestamp,
}

impl Books {
    /// Books of one worker.
    pub(crate) fn new(counters: Arc<Counters>, journal: Option<Journal>) -> Self {
        Books { counters, journal, untold: false, due_at: Timestamp::ZERO }
    }

    /// The worker's counters, for what is not an answer: connections and bytes.
    pub(crate) fn counters(&self) -> &Counters {
        &self.counters
    }

    /// A request's head is complete: it is in flight until [`Books::answered`].
    pub(crate) fn began(&self) {
        self.counters.began();
    }

    /// An answer is over. Exactly once for each [`Books::began`].
    pub(crate) fn answered(&mut self, entry: &Entry<'_>) {
        let Entry { kind, status, content_bytes, finding, whole, .. } = *entry;
        self.untold = true;
        self.counters.answered(kind, status, content_bytes, finding, whole);
        if let Some(journal) = &mut self.journal {
            journal.note(entry);
        }
    }

    /// A request that was refused before its head was complete: without [`Books::began`].
    pub(crate) fn refused(&mut self, entry: &Entry<'_>) {
        self.counters.began();
        self.answered(entry);
    }

    /// What has to be kept of a head for an answer that takes time; costs nothing where no log is asked for.
    pub(crate) fn keep(&self, head: &[u8]) -> Kept {
        if self.journal.is_some() { Kept(head.into()) } else { Kept::default() }
    }

    /// When the next tick must come: what happened since the last one is told then.
    pub(crate) fn due_at(&self) -> Timestamp {
        if self.untold { self.due_at } else { Timestamp::MAX }
    }

    /// Once a second where something happened, and before a wait that may last for ever: hands noted records over, and tells
    /// the pace.
    pub(crate) fn tick(&mut self, now: Timestamp) {
        (self.untold, self.due_at) = (false, now + TICK);
        self.counters.tick(now);
        if let Some(journal) = &mut self.journal {
            journal.hand_over();
        }
    }
}

/// A request's head, kept for the log.
#[derive(Clone, Debug, Default)]
pub(crate) struct Kept(Box<[u8]>);

impl Kept {
    /// For [`Entry::head`].
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.0
    }
}

/// A worker's side of the log.
#[derive(Debug)]
pub(crate) struct Journal {
    filling: Vec<u8>,
    /// Records in `filling`.
    records: u64,
    /// Emptied buffers.
    empty: Receiver<Vec<u8>>,
    back: Sender<Vec<u8>>,
    /// Buffers not yet made.
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

    /// Notes an answer; drops it when every buffer is on its way.
    fn note(&mut self, entry: &Entry<'_>) {
        if self.filling.capacity() - self.filling.len() < record::bytes(entry) {
            self.hand_over();
            if self.filling.capacity() == 0 {
                self.tallies.drop_records(1);
                return;
            }
        }
        append(&mut self.filling, entry);
        self.records += 1;
    }

    /// Hands what is noted to the log thread.
    fn hand_over(&mut self) {
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
            // The log thread is gone, which happens at the very end only.
            drop(unsent);
            self.tallies.drop_records(records);
        }
    }
}

impl Drop for Journal {
    fn drop(&mut self) {
        self.hand_over();
    }
}

/// Room of one buffer: some hundred records.
const BUFFER_BYTES: usize = 256 << 10;
/// Buffers of one worker: 4 MiB of records may wait for a slow disk.
const BUFFERS: usize = 16;
