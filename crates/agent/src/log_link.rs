//! Batches into a stream of NATS, from which managers read them.
//!
//! ```text
//!   hello ─▶ last message of this spool's subject: how far the stream has it     batch ─▶ published after that message,
//!                                                                                         or not at all
//! ```
//!
//! The stream has one subject for each spool's stream, and the last message's headers have its number. A batch is
//! published on the condition that the last message is the one known here. So a repeated batch is not stored twice, also
//! after the server's window for repeated messages, and a copy of this agent's folder is noticed, as a manager does.
//!
//! No manager answers here: there are no settings, and no clock to compare this machine's with.

use broker::{Failure, Header, Kind, Last, Publisher, Subject};

use crate::clock::ClockZero;
use crate::link::{Accepted, Greeting, Link, RequestError, StreamPosition};
use crate::spool::PendingBatch;
use crate::text::hexadecimal;
use tap_protocol::{Hello, Refusal, RefusalReason, log};

/// A stream of messages: NATS, or simulated in tests.
pub(crate) trait Log {
    /// Connects, and checks that the subject's messages are stored.
    fn open(&mut self, subject: &str) -> Result<(), Failure>;

    /// The last message of a subject.
    fn last(&self, subject: &str) -> Result<Option<Last>, Failure>;

    /// Publishes a message: [`Publisher::publish`].
    fn publish(
        &self,
        subject: &str,
        after: Option<u64>,
        id: &str,
        headers: &[Header<'_>],
        payload: &[u8],
    ) -> Result<u64, Failure>;
}

impl Log for Publisher {
    fn open(&mut self, subject: &str) -> Result<(), Failure> {
        Publisher::open(self, subject)
    }

    fn last(&self, subject: &str) -> Result<Option<Last>, Failure> {
        Publisher::last(self, subject)
    }

    fn publish(
        &self,
        subject: &str,
        after: Option<u64>,
        id: &str,
        headers: &[Header<'_>],
        payload: &[u8],
    ) -> Result<u64, Failure> {
        Publisher::publish(self, subject, after, id, headers, payload.to_vec())
    }
}

/// A log as the receiver of batches.
pub(crate) struct LogLink<L> {
    log: L,
    /// Name of the log.
    log_name: String,
    /// The agent's name.
    name: String,
    /// The spool's stream that `last` is of.
    stream: String,
    /// Number in the log of the last message of that stream; 0: none.
    last: u64,
}

impl<L: Log> LogLink<L> {
    /// An agent of this name, and the log of that one.
    pub fn new(log: L, log_name: String, name: String) -> LogLink<L> {
        LogLink { log, log_name, name, stream: String::new(), last: 0 }
    }

    fn subject(&self, kind: Kind, stream: &str) -> String {
        Subject { kind, name: self.name.clone(), id: stream.to_owned() }.text(&self.log_name)
    }

    /// Reads the last message of a stream's subject; returns its batch's number and digest.
    fn find_last(&mut self, stream: &str) -> Result<Option<(u64, String)>, Failure> {
        let found = self.log.last(&self.subject(Kind::Tap, stream))?;
        stream.clone_into(&mut self.stream);
        self.last = found.as_ref().map_or(0, |last| last.sequence);
        Ok(found.and_then(|last| {
            let number = last.header(log::SEQUENCE)?.parse().ok()?;
            Some((number, last.header(log::DIGEST).unwrap_or_default().to_owned()))
        }))
    }

    fn publish(&mut self, batch: &PendingBatch) -> Result<Accepted, RequestError> {
        let digest = ring::digest::digest(&ring::digest::SHA256, &batch.body);
        let digest = hexadecimal(&digest.as_ref()[..DIGEST_BYTES]);
        let id = format!("{}.{}.{digest}", batch.stream, batch.sequence);
        let numbers = [batch.sequence, batch.sealed_rows.0, batch.sealed_rows.1].map(|number| number.to_string());
        let headers = [
            (log::SEQUENCE, numbers[0].as_str()),
            (log::ROWS_BEFORE, numbers[1].as_str()),
            (log::ROWS_AFTER, numbers[2].as_str()),
            (log::DIGEST, digest.as_str()),
        ];
        let subject = self.subject(Kind::Tap, &batch.stream);
        if self.stream != batch.stream {
            // The spool has begun a new stream.
            self.find_last(&batch.stream).map_err(failed)?;
        }
        for _ in 0..2 {
            match self.log.publish(&subject, Some(self.last), &id, &headers, &batch.body) {
                Ok(sequence) => {
                    self.last = sequence;
                    return Ok(Accepted { settings: None, times: None });
                }
                Err(Failure::Overtaken) => {}
                Err(failure) => return Err(failed(failure)),
            }
            if let Some((number, other)) = self.find_last(&batch.stream).map_err(failed)?
                && number >= batch.sequence
            {
                let is_other = number == batch.sequence && other != digest;
                let error = if is_other { RefusalReason::Conflict } else { RefusalReason::AlreadyStored };
                let message = "the stream has this batch already".to_owned();
                return Err(RequestError::Refused(Refusal { error, message, stored_through: Some(number) }, None));
            }
            // Earlier ones were discarded, or the server has lost its end: the next attempt knows the last message.
        }
        Err(RequestError::Unreachable("another sender uses the same stream at the same time".to_owned(), None))
    }
}

impl<L: Log> Link for LogLink<L> {
    fn hello(&mut self, hello: &Hello) -> Result<Greeting, RequestError> {
        self.log.open(&self.subject(Kind::Tap, &hello.stream)).map_err(failed)?;
        let found = self.find_last(&hello.stream).map_err(failed)?;
        let body = serde_json::to_vec(hello).expect("a hello message serialises to JSON");
        let id = format!("{}.hello.{}", hello.stream, hello.now_ns);
        self.log.publish(&self.subject(Kind::Hello, &hello.stream), None, &id, &[], &body).map_err(failed)?;
        let position = StreamPosition::AtLeast(found.map_or(0, |(number, _)| number));
        Ok(Greeting { position, settings: None, times: None })
    }

    fn batch(&mut self, batch: &PendingBatch, _: Option<ClockZero>) -> Result<Accepted, RequestError> {
        self.publish(batch)
    }
}

fn failed(failure: Failure) -> RequestError {
    match failure {
        Failure::Away(why) => RequestError::Unreachable(why, None),
        Failure::Refused(why) => RequestError::NotAManager(why),
        Failure::TooLarge(message) => {
            let refusal = Refusal { error: RefusalReason::TooLarge, message, stored_through: None };
            RequestError::Refused(refusal, None)
        }
        Failure::Overtaken => RequestError::Unreachable(failure.to_string(), None),
    }
}

/// Rows of a batch for a log: the largest that rows can become stays below [`PAYLOAD_MAX`].
pub(crate) const ROWS_MAX: usize = if cfg!(test) { 50 } else { 1_000 };
/// Bytes of a message, headers included, that a server must accept: a little less than NATS' default of 1 MiB.
pub(crate) const PAYLOAD_MAX: usize = 1_000_000;
/// Bytes of a digest in headers and identifiers: enough to tell two batches of a number apart.
const DIGEST_BYTES: usize = 16;
