//! Requests to the manager and their possible results.

use std::time::Duration;

use serde::de::DeserializeOwned;
use web::post::{CertificateProblem, Failure, Post, Reply};

use crate::clock::ClockZero;
use tap_protocol::{Hello, Refusal, RefusalReason, Stored, Welcome, ZERO, ZERO_ERROR};

/// Requests to a manager: over HTTPS, or simulated in tests.
pub(crate) trait Link {
    /// Announces the agent.
    fn hello(&mut self, hello: &Hello) -> Result<Welcome, RequestError>;

    /// Sends a batch: JSON in gzip.
    fn batch(&mut self, body: &[u8], zero: Option<ClockZero>) -> Result<Stored, RequestError>;

    /// Reads the token again, which may have been replaced.
    ///
    /// # Errors
    /// The reason; then the previous token stays in use.
    fn renew(&mut self) -> Result<(), String> {
        Ok(())
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
    fn hello(&mut self, hello: &Hello) -> Result<Welcome, RequestError> {
        let body = serde_json::to_vec(hello).expect("a hello message serialises to JSON");
        parse_response(self.post.exchange(&self.hello, &body, &[JSON]))
    }

    fn batch(&mut self, body: &[u8], zero: Option<ClockZero>) -> Result<Stored, RequestError> {
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
        parse_response(reply)
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
