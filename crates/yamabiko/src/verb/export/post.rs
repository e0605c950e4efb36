//! One message after another to a receiver over HTTP ([`web::post`]): what is tried again, how often, and what the user is told.
//!
//! A message is tried again only where its protocol says so, a bounded number of times.

use std::time::Duration;

use anyhow::{Error, Result};
use web::post::{Outcome, PostError, Receiver, Roots, is_loopback};

use super::headers;
use crate::args;
use crate::terminal::say;

/// How to reach a receiver.
pub struct Post(web::post::Post);

/// Statuses after which remote write 1.0 has a message sent again.
pub const TRIED_AGAIN_BY_PROMETHEUS: fn(u16) -> bool = |status| status == 429 || status >= 500;

impl Post {
    /// # Errors
    /// A header or a certificate that cannot be read.
    pub fn new(url: &str, arguments: &args::Push) -> Result<Post> {
        let headers = headers::read(arguments)?;
        if url.starts_with("http:") && !headers.is_empty() && !is_loopback(url) {
            say("note: the headers are sent unencrypted over http; use https");
        }
        let roots = match &arguments.cacert {
            Some(path) => Roots::File(path.clone()),
            None if arguments.insecure => Roots::Unchecked,
            None => Roots::System,
        };
        let receiver = Receiver { url: url.to_owned(), headers, roots, timeout: arguments.timeout };
        web::post::Post::new(receiver).map(Post).map_err(told)
    }

    /// The receiver as it is printed: without what may be secret in a query.
    pub fn receiver(&self) -> &str {
        self.0.display_url()
    }

    /// Sends a message until it is taken. Returns what the receiver answered.
    ///
    /// # Errors
    /// The receiver refuses it, or did not take it however often it was tried.
    pub fn send(&self, body: &[u8], own: &[(&str, &str)], is_tried_again: fn(u16) -> bool) -> Result<Vec<u8>> {
        let mut pause = PAUSE_MIN;
        let mut left = TRIES;
        loop {
            left -= 1;
            match self.0.once(body, own, is_tried_again) {
                Outcome::Accepted(answer) => return Ok(answer),
                Outcome::Retryable(why, wanted) if left > 0 => {
                    let wait = wanted.unwrap_or(pause).min(PAUSE_MAX);
                    say(format_args!("{}: {why}; retry in {:.1} s", self.receiver(), wait.as_secs_f64()));
                    wait_for(wait);
                    pause *= 2;
                }
                Outcome::Retryable(why, _) | Outcome::Refused(why, None) => return Err(self.failed(why)),
                Outcome::Refused(why, Some(status)) => {
                    let fix = fix(status, &why);
                    return Err(self.failed(why + fix));
                }
            }
        }
    }

    /// What lacks is the receiver's: an error of the environment.
    fn failed(&self, why: String) -> Error {
        Error::from(std::io::Error::other(why)).context(format!("sending to {}", self.receiver()))
    }
}

fn told(error: PostError) -> Error {
    match error {
        PostError::File { path, source } => Error::from(source).context(format!("reading {}", path.display())),
        PostError::NoRoots => {
            let words = "this system has no trusted CA certificates: install ca-certificates, or give the receiver's with --cacert";
            Error::from(std::io::Error::other(words))
        }
        error => Error::from(error),
    }
}

/// What the user can do.
fn fix(status: u16, words: &str) -> &'static str {
    match status {
        300..=399 => "; it sends elsewhere: name that address itself, headers are not passed on",
        401 | 403 => "; it wants other credentials: --header-file",
        404 | 405 => {
            "; is this its path? Prometheus takes /api/v1/write, if started with --web.enable-remote-write-receiver"
        }
        _ if words.contains("out of bounds") || words.contains("out of order") || words.contains("too old") => {
            "; the run was sent before, or is older than what it takes: then `report --export openmetrics`, then `promtool tsdb create-blocks-from \
             openmetrics`, or out_of_order_time_window in its configuration"
        }
        _ => "",
    }
}

#[allow(clippy::disallowed_methods, reason = "nothing is measured while a receiver is given time")]
fn wait_for(pause: Duration) {
    std::thread::sleep(pause);
}

/// Of one message, the first included.
const TRIES: u32 = 5;
/// Between two tries: at first, doubled each time, and at most, whatever the receiver wants.
const PAUSE_MIN: Duration = Duration::from_millis(250);
const PAUSE_MAX: Duration = Duration::from_secs(30);
