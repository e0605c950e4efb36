//! Reads batches from a stream of NATS: `tap manager --from`.
//!
//! ```text
//!   stream ──▶ some messages ──▶ one transaction: rows and position ──▶ acknowledged ──▶ the next
//!                                   │ it fails: the same messages again, nothing after them
//!                                   └ killed: the next manager of this folder begins after the stored position
//! ```
//!
//! Each manager reads everything, under a consumer of its own whose name belongs to its folder.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use broker::{Failure, Limits, Message, Reader, ReaderPlan, Start, StreamAddress};
use sys::clock::realtime_ns;

use crate::data::Data;
use crate::days;
use crate::error::{Error, Result};
use crate::ingest::{Report, read_position, store_messages};
use crate::notes::Notes;
use tap_protocol::BODY_MAX;

/// A stream to read.
#[derive(Clone, Debug)]
pub struct StreamPlan {
    /// The stream.
    pub address: StreamAddress,
    /// Bytes that it holds at most, if it does not exist yet: beyond them its oldest batches are discarded.
    pub bytes: u64,
    /// Age of its batches at most, if it does not exist yet.
    pub age: Duration,
    /// Servers that store it, if it does not exist yet.
    pub replicas: u8,
}

/// The thread that reads.
pub(crate) struct StreamReader {
    stop: Sender<()>,
    thread: Option<JoinHandle<()>>,
}

impl StreamReader {
    /// Connects and starts reading. A server that is away is no error: it is looked for again. `stored` is called after
    /// each transaction with the number of its rows.
    ///
    /// # Errors
    /// The server refuses; no thread can be started.
    pub fn start(
        data: Arc<Data>,
        notes: Notes,
        plan: &StreamPlan,
        stored: impl Fn(u64) + Send + 'static,
    ) -> Result<StreamReader> {
        let consumer = format!("manager-{}", days::short_id(&data)?);
        let plan = ReaderPlan {
            address: plan.address.clone(),
            client: format!("yamabiko tap {consumer}"),
            kind: None,
            consumer: Some(consumer.clone()),
            limits: Limits { bytes: plan.bytes, age: plan.age, replicas: plan.replicas, message_bytes: MESSAGE_MAX },
        };
        let where_ = plan.address.to_string();
        let position = read_position(&data)?;
        let known = position.clone();
        let mut reader = Reader::new(plan, Start::After(position)).map_err(|_| Error::Thread("nats"))?;
        let failure = match reader.connect() {
            Ok(()) => {
                notes.log(&format!("reading {where_}, consumer {consumer}"));
                if !known.stream.is_empty() && reader.position() != known {
                    notes.log(
                        "the stream is another one than before, or has lost its end: all of it is read, and what is \
                         stored already is skipped",
                    );
                }
                None
            }
            Err(Failure::Refused(why)) => return Err(Error::Stream(why)),
            Err(failure) => {
                notes.log(&format!("{failure}; trying again"));
                Some(failure)
            }
        };
        let (stop, stopped) = channel();
        let mut reading = Reading { data, notes, reader, where_, failure, stopped };
        let work = move || reading.run(&stored);
        let thread = thread::Builder::new().name("stream".into()).spawn(work).map_err(|_| Error::Thread("stream"))?;
        Ok(StreamReader { stop, thread: Some(thread) })
    }

    /// Whether the thread runs.
    pub fn is_running(&self) -> bool {
        self.thread.as_ref().is_some_and(|thread| !thread.is_finished())
    }

    /// Ends the thread, after what it has read is stored.
    pub fn stop(&mut self) {
        let _ = self.stop.send(());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Drop for StreamReader {
    fn drop(&mut self) {
        self.stop();
    }
}

struct Reading {
    data: Arc<Data>,
    notes: Notes,
    reader: Reader,
    where_: String,
    /// The last failure that was logged, if nothing was read since.
    failure: Option<Failure>,
    stopped: Receiver<()>,
}

impl Reading {
    fn run(&mut self, stored: &dyn Fn(u64)) {
        let mut pause = Duration::ZERO;
        // A thread that cannot be told to stop ends, too.
        while self.stopped.recv_timeout(pause) == Err(RecvTimeoutError::Timeout) {
            pause = match self.reader.next(MESSAGES_MAX, WAIT) {
                Ok(messages) => {
                    if self.failure.take().is_some() {
                        self.notes.log(&format!("reading {} again", self.where_));
                    }
                    if !messages.is_empty() && !self.store(&messages, stored) {
                        return;
                    }
                    Duration::ZERO
                }
                Err(failure) => {
                    if self.failure.as_ref() != Some(&failure) {
                        self.notes.log(&format!("{failure}; trying again"));
                    }
                    self.failure = Some(failure);
                    RETRY_INTERVAL
                }
            };
        }
    }

    /// Stores messages, as often as it takes. `false`: the thread is to end, and the next manager reads them.
    fn store(&mut self, messages: &[Message], stored: &dyn Fn(u64)) -> bool {
        let position = self.reader.position();
        loop {
            match store_messages(&self.data, messages, &position, realtime_ns()) {
                Ok(report) => {
                    self.reader.stored();
                    self.log(&report);
                    if report.rows > 0 {
                        stored(report.rows);
                    }
                    return true;
                }
                Err(error) => self.notes.trouble(&format!("batches cannot be stored: {error}")),
            }
            if self.stopped.recv_timeout(RETRY_INTERVAL) != Err(RecvTimeoutError::Timeout) {
                return false;
            }
        }
    }

    fn log(&self, report: &Report) {
        for (agent, refused) in &report.refused {
            self.notes.refused(refused, refused.why.status(), agent, None, &self.where_);
        }
        for (agent, missed) in &report.missed {
            let rows = missed.rows.map_or("an unknown number of".to_owned(), |rows| rows.to_string());
            self.notes.log(&format!(
                "{} batches of {agent} with {rows} rows are not in the stream any more: counted as missed",
                missed.batches
            ));
        }
    }
}

/// Messages of one transaction: 64,000 rows of agents at most, usually a few.
const MESSAGES_MAX: usize = 64;
/// How long to wait for a message before looking whether the manager ends.
const WAIT: Duration = Duration::from_secs(1);
const RETRY_INTERVAL: Duration = Duration::from_secs(1);
/// Bytes of a message in a new stream: a body with its headers.
const MESSAGE_MAX: u32 = BODY_MAX as u32 + 4096;
