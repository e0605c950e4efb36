//! The way to the manager, and what can come back on it.

use std::time::Duration;

use serde::de::DeserializeOwned;
use web::post::{Distrust, Failure, Post, Reply};

use crate::clock::Zero;
use tap_protocol::{Hello, Refusal, Stored, Welcome, Why, ZERO, ZERO_ERROR};

/// A manager: over HTTPS, or what a test makes up.
pub(crate) trait Link {
    /// Says who is there.
    fn hello(&mut self, hello: &Hello) -> Result<Welcome, Unheard>;

    /// Hands a batch over: JSON in gzip.
    fn batch(&mut self, body: &[u8], zero: Option<Zero>) -> Result<Stored, Unheard>;

    /// The token may have been replaced: reads it again.
    ///
    /// # Errors
    /// Why it cannot; then the one before is gone on with.
    fn renew(&mut self) -> Result<(), String> {
        Ok(())
    }
}

/// Why it was not done.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Unheard {
    /// The manager says no, and why. After this time it may be tried again, if it says one.
    Refused(Refusal, Option<Duration>),
    /// There is no answer, or that of something on the way that has no manager behind it now. It is not known whether it was done.
    Away(String, Option<Duration>),
    /// What answers is not the manager: nothing was sent to it, or nothing that it understood. In words, with what to do.
    Stranger(String),
}

/// A manager at a URL.
pub(crate) struct Wire {
    post: Post,
    hello: String,
    batches: String,
    again: Again,
}

/// Makes the post once more, with the token as it is now.
pub(crate) type Again = Box<dyn FnMut() -> Result<Post, String> + Send>;

impl Wire {
    /// The manager that `post` reaches, for the agent of this name.
    pub fn new(post: Post, name: &str, again: Again) -> Wire {
        let path = |what| format!("/api/1/agents/{name}/{what}");
        Wire { post, hello: path("hello"), batches: path("batches"), again }
    }
}

impl Link for Wire {
    fn hello(&mut self, hello: &Hello) -> Result<Welcome, Unheard> {
        let body = serde_json::to_vec(hello).expect("plain fields");
        heard(self.post.exchange(&self.hello, &body, &[JSON]))
    }

    fn batch(&mut self, body: &[u8], zero: Option<Zero>) -> Result<Stored, Unheard> {
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
        heard(reply)
    }

    fn renew(&mut self) -> Result<(), String> {
        self.post = (self.again)()?;
        Ok(())
    }
}

const JSON: (&str, &str) = ("content-type", "application/json");

fn heard<T: DeserializeOwned>(reply: Result<Reply, Failure>) -> Result<T, Unheard> {
    let reply = reply.map_err(|failure| match failure {
        Failure::Away(why) => Unheard::Away(why, None),
        Failure::Untrusted { why, words } => Unheard::Stranger(format!("{words}; {}", distrust(why))),
        Failure::Hopeless(why) => {
            Unheard::Stranger(format!("{why}; is --manager the address that the manager prints as `agents`?"))
        }
    })?;
    if reply.is_success() {
        let strange =
            |_| Unheard::Stranger("something answers, but not as a manager: is --manager its address?".into());
        return serde_json::from_slice(&reply.body).map_err(strange);
    }
    match serde_json::from_slice::<Refusal>(&reply.body) {
        Ok(refusal) => {
            let message = units::printable(&refusal.message).chars().take(WORDS_MAX).collect();
            Err(Unheard::Refused(Refusal { message, ..refusal }, reply.retry_after))
        }
        Err(_) => Err(of_status(&reply)),
    }
}

/// Something on the way answered, or a manager of another version.
fn of_status(reply: &Reply) -> Unheard {
    let words = format!("status {} {}", reply.status, reply.words()).trim_end().to_owned();
    let refused = |error| {
        let refusal = Refusal { error, message: words.clone(), stored_through: None };
        Unheard::Refused(refusal, reply.retry_after)
    };
    match reply.status {
        401 => refused(Why::Unauthorised),
        403 => refused(Why::Forbidden),
        408 | 425 | 429 | 500.. => Unheard::Away(words, reply.retry_after),
        300..=399 => Unheard::Stranger(format!("{words}: it sends elsewhere; name that address as --manager")),
        _ => Unheard::Stranger(format!("{words}: is --manager the manager's address?")),
    }
}

fn distrust(why: Distrust) -> &'static str {
    match why {
        Distrust::Issuer => "give the manager's certificate as --ca FILE (it says where that lies when it starts)",
        Distrust::Name => {
            "its certificate is for other names: use one of them in --manager, or start the manager with --host and this one"
        }
        Distrust::Time => "its certificate has expired, or one of the two clocks is wrong by days",
        Distrust::Other => "its certificate cannot be used",
    }
}

const WORDS_MAX: usize = 300;

#[cfg(test)]
mod tests {
    use super::*;

    fn reply(status: u16, body: &str) -> Result<Reply, Failure> {
        Ok(Reply { status, retry_after: Some(Duration::from_secs(9)), body: body.as_bytes().to_vec() })
    }

    #[test]
    fn what_answers_is_told_apart() {
        let stored = r#"{"stored_through":7,"received_unix_ns":1,"answered_unix_ns":2}"#;
        assert_eq!(heard::<Stored>(reply(200, stored)).unwrap().stored_through, 7);
        assert!(matches!(heard::<Stored>(reply(200, "<html>")), Err(Unheard::Stranger(_))));
        let refusal = r#"{"error":"out_of_turn","message":"\u001b[2J7 is missing","stored_through":6}"#;
        match heard::<Stored>(reply(409, refusal)) {
            Err(Unheard::Refused(refusal, Some(after))) => {
                assert_eq!((refusal.error, refusal.stored_through), (Why::OutOfTurn, Some(6)));
                assert_eq!((&*refusal.message, after.as_secs()), ("\\u{1b}[2J7 is missing", 9));
            }
            other => panic!("{other:?}"),
        }
        assert!(matches!(heard::<Stored>(reply(502, "bad gateway")), Err(Unheard::Away(_, Some(_)))));
        assert!(matches!(heard::<Stored>(reply(302, "")), Err(Unheard::Stranger(_))));
        assert!(matches!(heard::<Stored>(reply(404, "not here")), Err(Unheard::Stranger(_))));
        match heard::<Stored>(reply(401, "")) {
            Err(Unheard::Refused(refusal, _)) => assert_eq!(refusal.error, Why::Unauthorised),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_certificate_that_is_not_trusted_comes_with_what_to_do() {
        for (why, mend) in [(Distrust::Issuer, "--ca"), (Distrust::Name, "--host"), (Distrust::Time, "clock")] {
            match heard::<Stored>(Err(Failure::Untrusted { why, words: "bad".into() })) {
                Err(Unheard::Stranger(words)) => assert!(words.starts_with("bad; ") && words.contains(mend), "{words}"),
                other => panic!("{other:?}"),
            }
        }
    }
}
