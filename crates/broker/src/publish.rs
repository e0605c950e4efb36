//! A sender's end of a stream.

use std::io;

use async_nats::jetstream::context::PublishErrorKind;
use async_nats::jetstream::message::PublishMessage;
use async_nats::jetstream::stream::LastRawMessageErrorKind;
use bytes::Bytes;
use tokio::runtime::Runtime;

use crate::session::Session;
use crate::{Failure, StreamAddress};

/// A header of a message: its name and value.
pub type Header<'a> = (&'static str, &'a str);

/// The last message of a subject.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Last {
    /// Its number in the stream.
    pub sequence: u64,
    headers: Vec<(String, String)>,
}

impl Last {
    /// A message with these headers.
    pub fn new(sequence: u64, headers: Vec<(String, String)>) -> Last {
        Last { sequence, headers }
    }

    /// A header's value.
    pub fn header(&self, name: &str) -> Option<&str> {
        header(&self.headers, name)
    }
}

pub(crate) fn header<'a>(headers: &'a [(String, String)], name: &str) -> Option<&'a str> {
    headers.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
}

pub(crate) fn headers(map: &async_nats::HeaderMap) -> Vec<(String, String)> {
    let pairs = map.iter().filter_map(|(name, values)| Some((name.to_string(), values.first()?.as_str().to_owned())));
    pairs.collect()
}

/// A sender's connection. Its calls wait for the server; a thread of its own keeps the connection alive meanwhile.
pub struct Publisher {
    runtime: Runtime,
    address: StreamAddress,
    name: String,
    payload: usize,
    session: Option<Session>,
}

impl Publisher {
    /// A publisher that has not connected yet. `name` is the client's, for the server's own lists; `payload` the bytes
    /// of a message that the server must accept.
    ///
    /// # Errors
    /// The system has no thread left.
    pub fn new(address: StreamAddress, name: String, payload: usize) -> io::Result<Publisher> {
        Ok(Publisher { runtime: runtime()?, address, name, payload, session: None })
    }

    /// Connects unless it is connected, and checks that the stream exists and takes this subject.
    ///
    /// # Errors
    /// [`Failure::Away`], [`Failure::Refused`].
    pub fn open(&mut self, subject: &str) -> Result<(), Failure> {
        // Everything is looked up again: the stream may have been changed.
        self.session = None;
        let session = self.runtime.block_on(Session::open(&self.address, &self.name, None, self.payload))?;
        session.takes(subject)?;
        self.session = Some(session);
        Ok(())
    }

    /// The last message of a subject that the stream still has.
    ///
    /// # Errors
    /// [`Failure::Away`], [`Failure::Refused`].
    pub fn last(&self, subject: &str) -> Result<Option<Last>, Failure> {
        let session = self.session()?;
        let found = self.runtime.block_on(session.stream.get_last_raw_message_by_subject(subject));
        match found {
            Ok(message) => Ok(Some(Last { sequence: message.sequence, headers: headers(&message.headers) })),
            Err(error) => match error.kind() {
                LastRawMessageErrorKind::NoMessageFound => Ok(None),
                LastRawMessageErrorKind::JetStream(why) => Err(Failure::Away(format!("{}: {why}", session.where_))),
                _ => Err(session.no_answer("reading the last message of this sender")),
            },
        }
    }

    /// Publishes a message and waits until the server has stored it; returns its number in the stream. `id` identifies
    /// the message and its contents: one that the server stored within its window (two minutes by default) is not stored
    /// again. `after`: the number of the last message of this subject, 0 for none, if only then the message may be stored.
    ///
    /// # Errors
    /// [`Failure::Overtaken`]: not stored. [`Failure::TooLarge`]: not stored. Otherwise it is unknown whether it was
    /// stored.
    pub fn publish(
        &self,
        subject: &str,
        after: Option<u64>,
        id: &str,
        headers: &[Header<'_>],
        payload: Vec<u8>,
    ) -> Result<u64, Failure> {
        let session = self.session()?;
        let bytes = payload.len();
        let mut message =
            PublishMessage::build().payload(Bytes::from(payload)).message_id(id).expected_stream(self.address.stream());
        for (name, value) in headers {
            message = message.header(*name, *value);
        }
        if let Some(after) = after {
            message = message.expected_last_subject_sequence(after);
        }
        let publishing = async { session.context.send_publish(subject.to_owned(), message).await?.await };
        let where_ = &session.where_;
        match self.runtime.block_on(publishing) {
            Ok(acknowledged) => Ok(acknowledged.sequence),
            Err(error) => Err(match error.kind() {
                PublishErrorKind::WrongLastSequence => Failure::Overtaken,
                PublishErrorKind::MaxPayloadExceeded => Failure::TooLarge(format!("{where_}: {error}")),
                PublishErrorKind::StreamNotFound => {
                    Failure::Away(format!("{where_}: no stream takes the subject {subject}"))
                }
                PublishErrorKind::TimedOut => session.no_answer("publishing"),
                _ => {
                    let text = chain(&error);
                    if text.contains("message size exceeds maximum") {
                        Failure::TooLarge(format!(
                            "{where_}: the message has {bytes} bytes, more than the stream's maximum"
                        ))
                    } else {
                        Failure::Away(format!("{where_}: {text}"))
                    }
                }
            }),
        }
    }

    fn session(&self) -> Result<&Session, Failure> {
        self.session.as_ref().ok_or_else(|| Failure::Away("not connected yet".to_owned()))
    }
}

/// One thread that keeps connections alive.
pub(crate) fn runtime() -> io::Result<Runtime> {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .max_blocking_threads(2)
        .thread_name("nats")
        .enable_all()
        .build()
}

/// An error with its causes.
pub(crate) fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let more = cause.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        next = cause.source();
    }
    text
}
