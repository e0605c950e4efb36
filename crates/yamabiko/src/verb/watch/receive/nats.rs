//! The receiver as a reader of a stream of NATS: the same messages and limits as over HTTP.
//!
//! It reads what is published from its start on, as a listening receiver receives it. Seconds that the stream discarded
//! are missing by their numbers; repeated ones are skipped by them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::SyncSender;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Result, bail};
use broker::{Failure, Kind, Limits, Reader, ReaderPlan, Start, StreamAddress};
use sys::clock::Clock;

use super::http::Event;
use super::sessions::Sessions;
use crate::verb::watch::message::{self, BODY_MAX};

/// Reads until dropped.
pub struct StreamListener {
    is_ending: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl StreamListener {
    /// Connects and starts reading. Messages wait in `events`, and in the stream while the queue is full.
    ///
    /// # Errors
    /// The server refuses, or is away; no thread is available.
    pub fn start(address: &StreamAddress, events: SyncSender<Event>, sessions: Sessions) -> Result<StreamListener> {
        let plan = ReaderPlan {
            address: address.clone(),
            client: "yamabiko watch".to_owned(),
            kind: Some(Kind::Watch),
            consumer: None,
            limits: Limits { bytes: STREAM_BYTES, age: STREAM_AGE, replicas: 1, message_bytes: MESSAGE_MAX },
        };
        let mut reader = Reader::new(plan, Start::New)?;
        if let Err(failure) = reader.connect() {
            bail!("{failure}");
        }
        let is_ending = Arc::new(AtomicBool::new(false));
        let ending = is_ending.clone();
        let work = move || read(&mut reader, &events, &sessions, &ending);
        let thread = thread::Builder::new().name("stream".into()).spawn(work)?;
        Ok(StreamListener { is_ending, thread: Some(thread) })
    }
}

impl Drop for StreamListener {
    fn drop(&mut self) {
        self.is_ending.store(true, Ordering::SeqCst);
        if let Some(thread) = self.thread.take().filter(JoinHandle::is_finished) {
            let _ = thread.join();
        }
        // Otherwise it ends with its wait, and nobody takes what it reads until then.
    }
}

#[allow(clippy::disallowed_methods, reason = "a pause before the server is looked for again")]
fn read(reader: &mut Reader, events: &SyncSender<Event>, sessions: &Sessions, is_ending: &AtomicBool) {
    let clock = Clock::start();
    let mut is_away = false;
    while !is_ending.load(Ordering::SeqCst) {
        let messages = match reader.next(MESSAGES_MAX, WAIT) {
            Ok(messages) => messages,
            Err(Failure::Refused(why)) => {
                let _ = events.send(Event::Failed(why));
                return;
            }
            Err(failure) => {
                if !std::mem::replace(&mut is_away, true)
                    && events.send(Event::Note(format!("{failure}; trying again"))).is_err()
                {
                    return;
                }
                thread::sleep(RETRY_INTERVAL);
                continue;
            }
        };
        if std::mem::take(&mut is_away) && events.send(Event::Note("reading again".to_owned())).is_err() {
            return;
        }
        for message in messages {
            let event = match accept(&message, sessions, &clock) {
                Ok(message) => Event::Message(Box::new(message)),
                Err(why) => Event::Refused(message.subject.name.clone(), why),
            };
            if events.send(event).is_err() {
                return;
            }
        }
        reader.stored();
    }
}

/// Checks a message as if it had come over HTTP.
fn accept(message: &broker::Message, sessions: &Sessions, clock: &Clock) -> Result<message::Message, String> {
    if message.payload.len() > BODY_MAX {
        return Err("the message is too long".to_owned());
    }
    let parsed = message::parse(&message.payload)?;
    if parsed.head.session != message.subject.id {
        return Err("the subject is that of another series".to_owned());
    }
    let indices = parsed.rows.iter().map(|row| row.index);
    sessions.enter(&parsed.head.session, indices, clock.now()).map_err(|limit| limit.to_string())?;
    Ok(parsed)
}

/// Messages that are read at a time: at most 32 MB.
const MESSAGES_MAX: usize = 64;
const WAIT: Duration = Duration::from_millis(500);
const RETRY_INTERVAL: Duration = Duration::from_secs(1);
/// Limits of a stream that does not exist yet: a sender has 2 KB a second.
const STREAM_BYTES: u64 = 1_000_000_000;
const STREAM_AGE: Duration = Duration::from_secs(86_400);
const MESSAGE_MAX: u32 = BODY_MAX as u32 + 4096;
