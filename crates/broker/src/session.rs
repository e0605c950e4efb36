//! A connection to the server, and the stream on it.

use std::error::Error as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_nats::jetstream::context::{
    CreateStreamErrorKind, GetStreamError, GetStreamErrorKind, RequestError, RequestErrorKind,
};
use async_nats::jetstream::stream::{Config, DiscardPolicy, Stream};
use async_nats::jetstream::{self, Context, ErrorCode};
use async_nats::{Client, Event, ServerError};
use coordination::nats::connect::{is_lasting, options};
use tokio::time::timeout;

use crate::{StreamAddress, Subject};

/// Why something did not succeed. The texts name the cause and what to do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// It may succeed later: the server or the stream is not there.
    #[error("{0}")]
    Away(String),
    /// The operator must change something.
    #[error("{0}")]
    Refused(String),
    /// The message is larger than the server accepts.
    #[error("{0}")]
    TooLarge(String),
    /// Another message is the last on the subject than the one that the sender knows.
    #[error("the stream has another message of this sender than expected")]
    Overtaken,
}

/// Limits of a stream that does not exist yet. Beyond them its oldest messages are discarded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of its messages on the server's disk.
    pub bytes: u64,
    /// Age of its messages.
    pub age: Duration,
    /// Servers of the cluster that store it, 1 to 5.
    pub replicas: u8,
    /// Bytes of a message, with its headers.
    pub message_bytes: u32,
}

/// A connection, with its stream.
pub(crate) struct Session {
    pub client: Client,
    pub context: Context,
    pub stream: Stream,
    pub notices: Arc<Notices>,
    pub where_: String,
}

/// What the server reported without being asked.
#[derive(Default)]
pub(crate) struct Notices {
    error: Mutex<Option<String>>,
    /// Connections so far.
    connections: AtomicU64,
}

impl Notices {
    /// How often the client has connected.
    pub fn connections(&self) -> u64 {
        self.connections.load(Ordering::SeqCst)
    }

    fn add(&self, event: &Event) {
        match event {
            Event::Connected => drop(self.connections.fetch_add(1, Ordering::SeqCst)),
            Event::ServerError(error) => {
                let text = match error {
                    ServerError::AuthorizationViolation => "the credentials are refused".to_owned(),
                    other => other.to_string(),
                };
                *self.error.lock().unwrap_or_else(PoisonError::into_inner) = Some(text);
            }
            _ => {}
        }
    }

    /// The last reported error, once.
    pub fn take_error(&self) -> Option<String> {
        self.error.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl Session {
    /// Connects and finds the stream; with `limits` a missing stream is created. `name`: of the client. `payload`: bytes
    /// of a message that the server must accept.
    pub async fn open(
        address: &StreamAddress,
        name: &str,
        limits: Option<Limits>,
        payload: usize,
    ) -> Result<Session, Failure> {
        let notices = Arc::new(Notices::default());
        let of_events = notices.clone();
        let options = options(name.to_owned()).await.map_err(Failure::Refused)?.event_callback(move |event| {
            of_events.add(&event);
            std::future::ready(())
        });
        let client = match timeout(CONNECT_TIMEOUT, options.connect(address.server())).await {
            Ok(Ok(client)) => client,
            Ok(Err(error)) if is_lasting(&error) => {
                return Err(Failure::Refused(format!("NATS at {address}: {error}")));
            }
            Ok(Err(error)) => return Err(Failure::Away(format!("NATS at {address} cannot be reached: {error}"))),
            Err(_) => return Err(Failure::Away(format!("NATS at {address} cannot be reached: no answer"))),
        };
        let mut context = jetstream::new(client.clone());
        context.set_timeout(ANSWER_TIMEOUT);
        let where_ = format!("NATS at {address}");
        let max = client.max_payload();
        if max < payload {
            return Err(Failure::Refused(format!(
                "{where_} accepts messages of at most {max} bytes (max_payload in its configuration): at least {payload} expected"
            )));
        }
        let stream = stream(&context, address, limits, &notices).await?;
        Ok(Session { client, context, stream, notices, where_ })
    }

    /// Whether a subject of the stream takes messages of this subject.
    pub fn takes(&self, subject: &str) -> Result<(), Failure> {
        let config = &self.stream.cached_info().config;
        if config.subjects.iter().any(|pattern| matches(pattern, subject)) {
            return Ok(());
        }
        Err(Failure::Refused(format!(
            "the stream {} of {} does not take the subject {subject}: add {} to its subjects",
            config.name,
            self.where_,
            Subject::all(&config.name).join(", ")
        )))
    }

    /// The failure of an operation that had no answer: a missing permission is reported beside it.
    pub fn no_answer(&self, what: &str) -> Failure {
        no_answer(&self.where_, what, &self.notices)
    }
}

async fn stream(
    context: &Context,
    address: &StreamAddress,
    limits: Option<Limits>,
    notices: &Notices,
) -> Result<Stream, Failure> {
    let (name, where_) = (address.stream(), format!("NATS at {address}"));
    let error = match context.get_stream(name).await {
        Ok(stream) => return Ok(stream),
        Err(error) => error,
    };
    let is_missing =
        matches!(error.kind(), GetStreamErrorKind::JetStream(why) if why.error_code() == ErrorCode::STREAM_NOT_FOUND);
    let Some(limits) = limits.filter(|_| is_missing) else { return Err(unopened(&error, name, &where_, notices)) };
    let config = Config {
        name: name.to_owned(),
        description: Some("batches of yamabiko's senders".to_owned()),
        subjects: Subject::all(name),
        max_bytes: i64::try_from(limits.bytes).unwrap_or(i64::MAX),
        max_age: limits.age,
        max_message_size: i32::try_from(limits.message_bytes).unwrap_or(i32::MAX),
        num_replicas: usize::from(limits.replicas),
        discard: DiscardPolicy::Old,
        ..Config::default()
    };
    match context.get_or_create_stream(config).await {
        Ok(stream) => Ok(stream),
        Err(error) => match error.kind() {
            CreateStreamErrorKind::TimedOut => Err(no_answer(&where_, "creating the stream", notices)),
            CreateStreamErrorKind::JetStream(why) => {
                Err(Failure::Refused(format!("{where_} cannot create the stream {name}: {}", why)))
            }
            _ => Err(Failure::Away(format!("{where_} cannot create the stream {name}: {error}"))),
        },
    }
}

fn unopened(error: &GetStreamError, name: &str, where_: &str, notices: &Notices) -> Failure {
    let without =
        || Failure::Refused(format!("{where_} has no JetStream for this account: nats-server's option -js enables it"));
    match error.kind() {
        GetStreamErrorKind::JetStream(why) if why.error_code() == ErrorCode::STREAM_NOT_FOUND => {
            Failure::Away(format!(
                "{where_} has no such stream yet: its first reader creates it (`yamabiko tap manager --from`, `yamabiko watch --from`)"
            ))
        }
        GetStreamErrorKind::JetStream(why)
            if [ErrorCode::JETSTREAM_NOT_ENABLED, ErrorCode::JETSTREAM_NOT_ENABLED_FOR_ACCOUNT]
                .contains(&why.error_code()) =>
        {
            without()
        }
        GetStreamErrorKind::JetStream(why) => Failure::Away(format!("{where_}, stream {name}: {}", why)),
        _ => {
            let cause = error.source().and_then(|cause| cause.downcast_ref::<RequestError>());
            match cause.map(RequestError::kind) {
                Some(RequestErrorKind::NoResponders) => without(),
                _ => no_answer(where_, "looking for the stream", notices),
            }
        }
    }
}

/// An operation that had no answer.
fn no_answer(where_: &str, what: &str, notices: &Notices) -> Failure {
    match notices.take_error() {
        Some(error) => Failure::Refused(format!("{where_} refuses {what}: {error}")),
        None => Failure::Away(format!("{where_} does not answer ({what})")),
    }
}

/// Whether a subject belongs to a pattern of NATS: `*` is one word, `>` at the end one or more.
fn matches(pattern: &str, subject: &str) -> bool {
    let mut words = subject.split('.');
    for expected in pattern.split('.') {
        match (expected, words.next()) {
            (">", Some(_)) => return true,
            ("*", Some(_)) => {}
            (expected, Some(word)) if expected == word => {}
            _ => return false,
        }
    }
    words.next().is_none()
}

const CONNECT_TIMEOUT: Duration = Duration::from_secs(6);
/// How long the server's answer may take: a slow disk has to store a message first.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subjects_belong_to_patterns_as_the_server_sees_it() {
        for (pattern, subject, expected) in [
            ("yamabiko.T.tap.*.*", "yamabiko.T.tap.a.b", true),
            ("yamabiko.T.>", "yamabiko.T.tap.a.b", true),
            (">", "a", true),
            ("yamabiko.T.tap.*", "yamabiko.T.tap.a.b", false),
            ("yamabiko.T.tap.*.*", "yamabiko.T.tap.a", false),
            ("yamabiko.T.>", "yamabiko.T", false),
            ("yamabiko.U.>", "yamabiko.T.tap.a.b", false),
        ] {
            assert_eq!(matches(pattern, subject), expected, "{pattern} {subject}");
        }
    }

    #[test]
    fn a_missing_permission_is_named_once_and_silence_is_an_absence() {
        let notices = Notices::default();
        notices.add(&Event::ServerError(ServerError::Other("Permissions Violation for Publish to \"x\"".into())));
        assert!(
            matches!(no_answer("NATS at h", "publishing", &notices), Failure::Refused(why) if why.contains("Permissions"))
        );
        assert!(matches!(no_answer("NATS at h", "publishing", &notices), Failure::Away(_)));
    }
}
