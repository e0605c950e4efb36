//! Requests to the manager and their possible results.

use std::time::Duration;

use serde::de::DeserializeOwned;
use web::post::{CertificateProblem, Failure, Post, Reply};

use crate::clock::ClockZero;
use crate::spool::PendingBatch;
use tap_protocol::{Hello, Refusal, RefusalReason, Settings, Stored, Welcome, ZERO, ZERO_ERROR};

/// Requests to a manager: over HTTPS, or simulated in tests; or what takes its place, the stream that managers read.
pub(crate) trait Link {
    /// Announces the agent.
    fn hello(&mut self, hello: &Hello) -> Result<Greeting, RequestError>;

    /// Sends a batch.
    fn batch(&mut self, batch: &PendingBatch, zero: Option<ClockZero>) -> Result<Accepted, RequestError>;

    /// Reads the token again, which may have been replaced.
    ///
    /// # Errors
    /// The reason; then the previous token stays in use.
    fn renew(&mut self) -> Result<(), String> {
        Ok(())
    }
}

impl<L: Link + ?Sized> Link for Box<L> {
    fn hello(&mut self, hello: &Hello) -> Result<Greeting, RequestError> {
        (**self).hello(hello)
    }

    fn batch(&mut self, batch: &PendingBatch, zero: Option<ClockZero>) -> Result<Accepted, RequestError> {
        (**self).batch(batch, zero)
    }

    fn renew(&mut self) -> Result<(), String> {
        (**self).renew()
    }
}

/// The answer to a [`Hello`].
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Greeting {
    /// How far the receiver has the stream.
    pub position: StreamPosition,
    /// Settings that the agent must apply; absent: the receiver has none.
    pub settings: Option<Settings>,
    /// When the request arrived and was answered, by the receiver's clock, ns since 1970; absent: it does not tell.
    pub times: Option<(u64, u64)>,
}

/// How far a receiver has a stream of batches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StreamPosition {
    /// A manager has exactly the batches through this number.
    Through(u64),
    /// A log has this number, perhaps not all before it: it discards old ones.
    AtLeast(u64),
}

/// The answer to a batch.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Accepted {
    /// See [`Greeting::settings`].
    pub settings: Option<Settings>,
    /// See [`Greeting::times`].
    pub times: Option<(u64, u64)>,
}

impl From<Welcome> for Greeting {
    fn from(welcome: Welcome) -> Greeting {
        Greeting {
            position: StreamPosition::Through(welcome.stored_through),
            settings: Some(welcome.settings),
            times: Some((welcome.received_unix_ns, welcome.answered_unix_ns)),
        }
    }
}

impl From<Stored> for Accepted {
    fn from(stored: Stored) -> Accepted {
        Accepted { settings: stored.settings, times: Some((stored.received_unix_ns, stored.answered_unix_ns)) }
    }
}

/// Why a request failed.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum RequestError {
    /// The manager refuses the request, with the reason. It may be retried after this time, if given.
    Refused(Refusal, Option<Duration>),
    /// No response, or the response of a proxy without a manager behind it. Whether the request was processed is
    /// unknown.
    Unreachable(String, Option<Duration>),
    /// The server is not a manager: it received no request, or could not parse it. The text recommends a fix.
    NotAManager(String),
}

/// A manager at a URL.
pub(crate) struct HttpLink {
    post: Post,
    hello: String,
    batches: String,
    reconnect: Reconnect,
}

/// Creates the client again, with the current token.
pub(crate) type Reconnect = Box<dyn FnMut() -> Result<Post, String> + Send>;

impl HttpLink {
    /// A client for the manager that `post` reaches, for the agent of this name.
    pub fn new(post: Post, name: &str, reconnect: Reconnect) -> HttpLink {
        let path = |what| format!("/api/1/agents/{name}/{what}");
        HttpLink { post, hello: path("hello"), batches: path("batches"), reconnect }
    }
}

impl Link for HttpLink {
    fn hello(&mut self, hello: &Hello) -> Result<Greeting, RequestError> {
        let body = serde_json::to_vec(hello).expect("a hello message serialises to JSON");
        parse_response::<Welcome>(self.post.exchange(&self.hello, &body, &[JSON])).map(Greeting::from)
    }

    fn batch(&mut self, batch: &PendingBatch, zero: Option<ClockZero>) -> Result<Accepted, RequestError> {
        let body = &*batch.body;
        let gzip = ("content-encoding", "gzip");
        let reply = match zero {
            None => self.post.exchange(&self.batches, body, &[JSON, gzip]),
            Some(zero) => {
                let (unix_ns, error_ns) = (zero.unix_ns.to_string(), zero.error_ns.to_string());
                self.post.exchange(
                    &self.batches,
                    body,
                    &[JSON, gzip, (ZERO, unix_ns.as_str()), (ZERO_ERROR, error_ns.as_str())],
                )
            }
        };
        parse_response::<Stored>(reply).map(Accepted::from)
    }

    fn renew(&mut self) -> Result<(), String> {
        self.post = (self.reconnect)()?;
        Ok(())
    }
}

const JSON: (&str, &str) = ("content-type", "application/json");

fn parse_response<T: DeserializeOwned>(reply: Result<Reply, Failure>) -> Result<T, RequestError> {
    let reply = reply.map_err(|failure| match failure {
        Failure::Unreachable(why) => RequestError::Unreachable(why, None),
        Failure::Untrusted { why, text } => RequestError::NotAManager(format!("{text}; {}", certificate_advice(why))),
        Failure::Permanent(why) => {
            RequestError::NotAManager(format!("{why}; is --manager the address that the manager prints as `agents`?"))
        }
    })?;
    if reply.is_success() {
        let not_a_manager = |_| {
            RequestError::NotAManager("the server that responds is not a manager: is --manager its address?".into())
        };
        return serde_json::from_slice(&reply.body).map_err(not_a_manager);
    }
    match serde_json::from_slice::<Refusal>(&reply.body) {
        Ok(refusal) => {
            let message = units::printable(&refusal.message).chars().take(MESSAGE_CHARACTERS_MAX).collect();
            Err(RequestError::Refused(Refusal { message, ..refusal }, reply.retry_after))
        }
        Err(_) => Err(error_of_status(&reply)),
    }
}

/// The error for a response without a refusal message: from a proxy, or a manager of another version.
fn error_of_status(reply: &Reply) -> RequestError {
    let text = format!("status {} {}", reply.status, reply.first_line()).trim_end().to_owned();
    let refused = |error| {
        let refusal = Refusal { error, message: text.clone(), stored_through: None };
        RequestError::Refused(refusal, reply.retry_after)
    };
    match reply.status {
        401 => refused(RefusalReason::Unauthenticated),
        403 => refused(RefusalReason::Forbidden),
        408 | 425 | 429 | 500.. => RequestError::Unreachable(text, reply.retry_after),
        300..=399 => {
            RequestError::NotAManager(format!("{text}: the server redirects; give the final address as --manager"))
        }
        _ => RequestError::NotAManager(format!("{text}: is --manager the address of the manager?")),
    }
}

fn certificate_advice(why: CertificateProblem) -> &'static str {
    match why {
        CertificateProblem::Issuer => {
            "give the manager's certificate as --ca FILE (the manager prints its path at startup)"
        }
        CertificateProblem::Name => {
            "its certificate is for other names: use one of them in --manager, or add this name with --host at the \
             manager"
        }
        CertificateProblem::Time => "its certificate has expired, or one of the two clocks is wrong by days",
        CertificateProblem::Other => "its certificate cannot be used",
    }
}

/// Maximum characters of a message of the manager.
const MESSAGE_CHARACTERS_MAX: usize = 300;

#[cfg(test)]
mod tests {
    use super::*;

    fn reply(status: u16, body: &str) -> Result<Reply, Failure> {
        Ok(Reply { status, retry_after: Some(Duration::from_secs(9)), body: body.as_bytes().to_vec() })
    }

    #[test]
    fn responses_of_managers_and_other_servers_are_distinguished() {
        let stored = r#"{"stored_through":7,"received_unix_ns":1,"answered_unix_ns":2}"#;
        assert_eq!(parse_response::<Stored>(reply(200, stored)).unwrap().stored_through, 7);
        assert!(matches!(parse_response::<Stored>(reply(200, "<html>")), Err(RequestError::NotAManager(_))));
        let refusal = r#"{"error":"sequence_gap","message":"\u001b[2J7 is missing","stored_through":6}"#;
        match parse_response::<Stored>(reply(409, refusal)) {
            Err(RequestError::Refused(refusal, Some(after))) => {
                assert_eq!((refusal.error, refusal.stored_through), (RefusalReason::SequenceGap, Some(6)));
                assert_eq!((&*refusal.message, after.as_secs()), ("\\u{1b}[2J7 is missing", 9));
            }
            other => panic!("{other:?}"),
        }
        assert!(matches!(
            parse_response::<Stored>(reply(502, "bad gateway")),
            Err(RequestError::Unreachable(_, Some(_)))
        ));
        assert!(matches!(parse_response::<Stored>(reply(302, "")), Err(RequestError::NotAManager(_))));
        assert!(matches!(parse_response::<Stored>(reply(404, "not here")), Err(RequestError::NotAManager(_))));
        match parse_response::<Stored>(reply(401, "")) {
            Err(RequestError::Refused(refusal, _)) => assert_eq!(refusal.error, RefusalReason::Unauthenticated),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn errors_about_untrusted_certificates_recommend_a_fix() {
        for (why, fix) in [
            (CertificateProblem::Issuer, "--ca"),
            (CertificateProblem::Name, "--host"),
            (CertificateProblem::Time, "clock"),
        ] {
            match parse_response::<Stored>(Err(Failure::Untrusted { why, text: "bad".into() })) {
                Err(RequestError::NotAManager(text)) => {
                    assert!(text.starts_with("bad; ") && text.contains(fix), "{text}")
                }
                other => panic!("{other:?}"),
            }
        }
    }
}
