//! A reader's end of a stream.
//!
//! The position is the reader's user's, who stores it together with what was read. The consumer on the server is made
//! anew after it at each start and after each interruption: the server would otherwise deliver what it had not
//! delivered before first, and repeat what was lost on the way half a minute later. Acknowledgements show the
//! server's own programs how far the reader is.

use std::io;
use std::time::Duration;

use async_nats::jetstream;
use async_nats::jetstream::consumer::{AckPolicy, Consumer, DeliverPolicy, pull};
use bytes::Bytes;
use futures_util::StreamExt as _;
use tokio::runtime::Runtime;
use tokio::time::timeout;

use crate::address::{Kind, StreamAddress, Subject};
use crate::cursor::{Cursor, Delivery};
use crate::publish::{chain, header, headers, runtime};
use crate::session::{Failure, Limits, Session};

/// What a reader reads.
#[derive(Clone, Debug)]
pub struct ReaderPlan {
    /// The stream.
    pub address: StreamAddress,
    /// Name of the client, for the server's own lists.
    pub client: String,
    /// Messages of this kind only; absent: all.
    pub kind: Option<Kind>,
    /// Name of its durable consumer; absent: one that the server forgets when the reader is away.
    pub consumer: Option<String>,
    /// Limits of the stream, if it does not exist yet.
    pub limits: Limits,
}

/// How far a stream was read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Position {
    /// Identifies the stream: one of the same name that was made later has another.
    pub stream: String,
    /// Number of the last message.
    pub through: u64,
}

/// Where a reader begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Start {
    /// After this position. Everything that the stream still has, if it is another stream, or has lost its end.
    After(Position),
    /// With messages that are published from now on.
    New,
}

/// A message.
#[derive(Clone, Debug)]
pub struct Message {
    /// Its subject.
    pub subject: Subject,
    /// When the server stored it, by the server's clock: ns since 1970.
    pub stored_unix_ns: u64,
    /// Its contents.
    pub payload: Bytes,
    headers: Vec<(String, String)>,
}

impl Message {
    /// A message as a reader returns it.
    pub fn new(subject: Subject, stored_unix_ns: u64, headers: Vec<(String, String)>, payload: Bytes) -> Message {
        Message { subject, stored_unix_ns, payload, headers }
    }

    /// A header's value.
    pub fn header(&self, name: &str) -> Option<&str> {
        header(&self.headers, name)
    }
}

/// Reads a stream in order.
pub struct Reader {
    runtime: Runtime,
    plan: ReaderPlan,
    start: Start,
    open: Option<Open>,
}

struct Open {
    session: Session,
    consumer: Consumer<pull::Config>,
    cursor: Cursor,
    stream_id: String,
    /// Connections when the consumer was made.
    connections: u64,
    last: Option<jetstream::Message>,
}

impl Reader {
    /// A reader that has not connected yet.
    ///
    /// # Errors
    /// The system has no thread left.
    pub fn new(plan: ReaderPlan, start: Start) -> io::Result<Reader> {
        Ok(Reader { runtime: runtime()?, plan, start, open: None })
    }

    /// Connects, creates the stream if it does not exist, and begins after the position. [`Reader::next`] does so where
    /// needed; a first call shows what is refused.
    ///
    /// # Errors
    /// [`Failure::Away`], [`Failure::Refused`].
    pub fn connect(&mut self) -> Result<(), Failure> {
        let before = self.open.take();
        let open = self.runtime.block_on(begin(&self.plan, &self.start, before.map(|open| open.session)))?;
        self.start = Start::After(Position { stream: open.stream_id.clone(), through: open.cursor.through() });
        self.open = Some(open);
        Ok(())
    }

    /// The position after everything that [`Reader::next`] has returned.
    pub fn position(&self) -> Position {
        match &self.start {
            Start::After(position) => position.clone(),
            Start::New => Position::default(),
        }
    }

    /// The next messages, at most this number, in order; waits at most `wait` for the first. The caller has stored all
    /// that earlier calls returned.
    ///
    /// # Errors
    /// [`Failure::Away`], [`Failure::Refused`]: the next call begins again after the position.
    pub fn next(&mut self, most: usize, wait: Duration) -> Result<Vec<Message>, Failure> {
        if self.open.as_ref().is_none_or(|open| open.session.notices.connections() != open.connections) {
            self.connect()?;
        }
        let Some(open) = &mut self.open else { return Ok(Vec::new()) };
        let outcome = self.runtime.block_on(async {
            let mut messages = open.fetch(most, None).await?;
            if messages.is_empty() {
                messages = open.fetch(1, Some(wait)).await?;
            }
            Ok(messages)
        });
        let delivered = match outcome {
            Ok(delivered) => delivered,
            Err(failure) => {
                self.open = None;
                return Err(failure);
            }
        };
        let (messages, is_whole) = open.take(delivered, self.plan.address.stream());
        self.start = Start::After(Position { stream: open.stream_id.clone(), through: open.cursor.through() });
        if !is_whole {
            self.open = None;
        }
        Ok(messages)
    }

    /// All that was returned is stored: tells the server, for its own lists.
    pub fn stored(&mut self) {
        let Some(open) = &mut self.open else { return };
        if let Some(message) = open.last.take() {
            // A lost acknowledgement changes nothing: the position is the caller's.
            let _ = self.runtime.block_on(async { timeout(ACKNOWLEDGE_TIMEOUT, message.ack()).await });
        }
    }
}

impl Open {
    /// What the server has now, or with `wait` what comes first.
    async fn fetch(&self, most: usize, wait: Option<Duration>) -> Result<Vec<jetstream::Message>, Failure> {
        let failed = |what: String| Failure::Away(format!("{}: {what}", self.session.where_));
        let fetching = async {
            let batch = match wait {
                None => self.consumer.fetch().max_messages(most).messages().await,
                Some(wait) => self.consumer.batch().max_messages(most).expires(wait).messages().await,
            };
            let mut batch = batch.map_err(|error| failed(chain(&error)))?;
            let mut messages = Vec::new();
            while let Some(message) = batch.next().await {
                messages.push(message.map_err(|error| failed(chain(&*error)))?);
            }
            Ok(messages)
        };
        let limit = wait.unwrap_or_default() + FETCH_TIMEOUT;
        timeout(limit, fetching).await.unwrap_or_else(|_| Err(self.session.no_answer("reading")))
    }

    /// The new ones of some deliveries, and whether none is missing.
    fn take(&mut self, delivered: Vec<jetstream::Message>, stream: &str) -> (Vec<Message>, bool) {
        let mut messages = Vec::new();
        for message in delivered {
            let Ok(info) = message.info() else { return (messages, false) };
            match self.cursor.delivered(info.stream_sequence, info.consumer_sequence) {
                Delivery::Skip => {}
                Delivery::Restart => return (messages, false),
                Delivery::Take => {
                    let stored_unix_ns = u64::try_from(info.published.unix_timestamp_nanos()).unwrap_or_default();
                    // A subject of another program is read over.
                    if let Some(subject) = Subject::parse(stream, &message.subject) {
                        let headers = message.headers.as_ref().map(headers).unwrap_or_default();
                        messages.push(Message { subject, stored_unix_ns, headers, payload: message.payload.clone() });
                    }
                }
            }
            self.last = Some(message);
        }
        (messages, true)
    }
}

/// Makes the consumer after the position.
async fn begin(plan: &ReaderPlan, start: &Start, before: Option<Session>) -> Result<Open, Failure> {
    // The connection stays, if it is one.
    let alive = match before {
        Some(session) if session.client.connection_state() == async_nats::connection::State::Connected => Some(session),
        _ => None,
    };
    let session = match alive {
        Some(session) => session,
        None => Session::open(&plan.address, &plan.client, Some(plan.limits), 0).await?,
    };
    let connections = session.notices.connections();
    let where_ = session.where_.clone();
    let Ok(info) = session.stream.get_info().await else {
        // The stream was removed, or the server does not answer: the next call, with a new connection, tells which.
        return Err(session.no_answer("looking at the stream"));
    };
    let stream_id = info.created.unix_timestamp_nanos().to_string();
    let last = info.state.last_sequence;
    let through = match start {
        Start::New => last,
        Start::After(position) if position.stream == stream_id && position.through <= last => position.through,
        Start::After(_) => 0,
    };
    let pattern = match plan.kind {
        Some(kind) => Subject::of_kind(plan.address.stream(), kind),
        None => format!("yamabiko.{}.>", plan.address.stream()),
    };
    let config = pull::Config {
        durable_name: plan.consumer.clone(),
        deliver_policy: if through == 0 {
            DeliverPolicy::All
        } else {
            DeliverPolicy::ByStartSequence { start_sequence: through + 1 }
        },
        ack_policy: AckPolicy::All,
        ack_wait: ACKNOWLEDGE_WAIT,
        max_ack_pending: PENDING_MAX,
        filter_subject: pattern,
        inactive_threshold: if plan.consumer.is_none() { FORGOTTEN_AFTER } else { Duration::ZERO },
        ..pull::Config::default()
    };
    if let Some(name) = &plan.consumer {
        // A missing one is as good as removed; any other failure is reported by the next call.
        let _ = session.stream.delete_consumer(name).await;
    }
    let consumer = match session.stream.create_consumer(config).await {
        Ok(consumer) => consumer,
        Err(error) => {
            return Err(match session.notices.take_error() {
                Some(refused) => Failure::Refused(format!("{where_} refuses a consumer: {refused}")),
                None => Failure::Away(format!("{where_} has no consumer for this reader: {}", chain(&error))),
            });
        }
    };
    Ok(Open { session, consumer, cursor: Cursor::after(through), stream_id, connections, last: None })
}

/// How long the server may take beyond the wait.
const FETCH_TIMEOUT: Duration = Duration::from_secs(5);
const ACKNOWLEDGE_TIMEOUT: Duration = Duration::from_secs(2);
/// After this the server repeats what was not acknowledged; it is skipped then.
const ACKNOWLEDGE_WAIT: Duration = Duration::from_secs(60);
/// Messages on the way and not acknowledged.
const PENDING_MAX: i64 = 1024;
/// How long the server keeps the consumer of a reader without a name.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(300);
