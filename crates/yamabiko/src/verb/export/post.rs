//! Sends one message after another to a receiver over HTTP ([`web::post`]), with retries and messages for the user.
//!
//! A message is retried only if its protocol requires that, a bounded number of times.

use std::time::Duration;

use anyhow::{Error, Result};
use web::post::{Outcome, PostError, Receiver, Roots, is_loopback};

use super::headers;
use crate::args;
use crate::terminal::print_message;

/// Sends messages to a receiver.
pub struct Post(web::post::Post);

/// Whether remote write 1.0 requires a retry after this status.
pub const PROMETHEUS_RETRYABLE: fn(u16) -> bool = |status| status == 429 || status >= 500;

impl Post {
    /// # Errors
    /// A header or a certificate that cannot be read.
    pub fn new(url: &str, arguments: &args::Push) -> Result<Post> {
        let headers = headers::read(arguments)?;
        if url.starts_with("http:") && !headers.is_empty() && !is_loopback(url) {
            print_message("note: the headers are sent unencrypted over http; use https");
        }
        let roots = match &arguments.cacert {
            Some(path) => Roots::File(path.clone()),
            None if arguments.insecure => Roots::Unchecked,
            None => Roots::System,
        };
        let receiver = Receiver { url: url.to_owned(), headers, roots, timeout: arguments.timeout };
        web::post::Post::new(receiver).map(Post).map_err(explained)
    }

    /// The receiver's URL for messages: without the query, which may contain secrets.
    pub fn receiver(&self) -> &str {
        self.0.display_url()
    }

    /// Sends a message until the receiver accepts it. Returns the body of the response.
    ///
    /// # Errors
    /// The receiver refuses the message, or did not accept it in [`ATTEMPTS`] attempts.
    pub fn send(&self, body: &[u8], own: &[(&str, &str)], is_tried_again: fn(u16) -> bool) -> Result<Vec<u8>> {
        let mut pause = PAUSE_MIN;
        let mut left = ATTEMPTS;
        loop {
            left -= 1;
            match self.0.once(body, own, is_tried_again) {
                Outcome::Accepted(answer) => return Ok(answer),
                Outcome::Retryable(why, retry_after) if left > 0 => {
                    let wait = retry_after.unwrap_or(pause).min(PAUSE_MAX);
                    print_message(format_args!("{}: {why}; retry in {:.1} s", self.receiver(), wait.as_secs_f64()));
                    sleep(wait);
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

    /// A failure of the receiver, as an error of the environment.
    fn failed(&self, why: String) -> Error {
        Error::from(std::io::Error::other(why)).context(format!("sending to {}", self.receiver()))
    }
}

fn explained(error: PostError) -> Error {
    match error {
        PostError::File { path, source } => Error::from(source).context(format!("reading {}", path.display())),
        PostError::NoRoots => {
            let words = "this system has no trusted CA certificates: install ca-certificates, or give the receiver's with --cacert";
            Error::from(std::io::Error::other(words))
        }
        error => Error::from(error),
    }
}

/// Advice for the user after a refusal.
fn fix(status: u16, words: &str) -> &'static str {
    match status {
        300..=399 => "; it redirects: give that address instead, since redirects are not followed",
        401 | 403 => "; other credentials are required: --header-file",
        404 | 405 => {
            "; check the path: Prometheus accepts /api/v1/write if started with --web.enable-remote-write-receiver"
        }
        _ if words.contains("out of bounds") || words.contains("out of order") || words.contains("too old") => {
            "; the run was sent before, or is older than the receiver accepts: use `report --export openmetrics`, then \
             `promtool tsdb create-blocks-from openmetrics`, or set out_of_order_time_window in its configuration"
        }
        _ => "",
    }
}

#[allow(clippy::disallowed_methods, reason = "nothing is measured during a retry pause")]
fn sleep(pause: Duration) {
    std::thread::sleep(pause);
}

/// Most attempts to send one message, including the first.
const ATTEMPTS: u32 = 5;
/// Pause between two attempts: it doubles from the first to the second value, which also limits a receiver's
/// Retry-After.
const PAUSE_MIN: Duration = Duration::from_millis(250);
const PAUSE_MAX: Duration = Duration::from_secs(30);
