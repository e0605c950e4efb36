//! The sending thread. It reads the index, and no other thread waits for it.

use std::io::Write as _;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use flate2::Compression;
use flate2::write::GzEncoder;
use http::{HeaderName, HeaderValue};
use report::export::otlp::{CONTENT_TYPE, Request, Response, body, metrics_url};
use rusqlite::Connection;
use sys::clock::realtime_ns;
use web::post::{OTLP_RETRYABLE, Outcome, Post, PostError, Receiver, Roots};

use super::metrics::{Agent, messages};
use super::sums;
use crate::alerts::Signal;
use crate::data::Data;
use crate::error::{Error, Result};
use crate::notes::Notes;
use tap_protocol::SpoolUsage;

/// The receiver of metrics.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Base URL such as `http://collector:4318`, or with a path.
    pub url: String,
    /// Headers of every message. Mark secret ones as sensitive.
    pub headers: Vec<(HeaderName, HeaderValue)>,
    /// Trusted certificates.
    pub roots: Roots,
}

/// Sends until it is dropped.
pub struct Sender {
    signal: Arc<Signal>,
    thread: Option<JoinHandle<()>>,
}

impl Sender {
    /// Starts to count and to send. Series continue from the last time the manager sent.
    ///
    /// # Errors
    /// Invalid certificates; no thread; SQLite's.
    pub fn start(data: Arc<Data>, notes: Notes, plan: Plan) -> Result<Sender> {
        let post = post(plan).map_err(|error| Error::Refused(format!("--otlp: {error}")))?;
        data.change(sums::on)?;
        let signal = Arc::new(Signal::default());
        let end_signal = signal.clone();
        let run = move || send_all(&data, &notes, &end_signal, &post);
        let thread = thread::Builder::new().name("otlp".to_owned()).spawn(run).map_err(|_| Error::Thread("otlp"))?;
        Ok(Sender { signal, thread: Some(thread) })
    }

    /// Ends the thread; waits for a message in progress, at most [`TIMEOUT`].
    pub fn stop(&mut self) {
        self.signal.end();
        if let Some(thread) = self.thread.take() {
            // A panicked thread has printed its message to stderr.
            let _ = thread.join();
        }
    }
}

impl Drop for Sender {
    fn drop(&mut self) {
        self.stop();
    }
}

pub(super) fn post(plan: Plan) -> std::result::Result<Post, PostError> {
    let Plan { url, headers, roots } = plan;
    Post::new(Receiver { url: metrics_url(&url), headers, roots, timeout: TIMEOUT })
}

fn send_all(data: &Data, notes: &Notes, end_signal: &Signal, post: &Post) {
    let mut last_logged = String::new();
    let mut failures = 0_u32;
    loop {
        let outcome = send_once(data, post, realtime_ns());
        let (text, pause) = match outcome {
            Ok(Sent { text, retry_after, failed }) => {
                failures = if failed { failures.saturating_add(1) } else { 0 };
                (text, retry_after.unwrap_or(Duration::ZERO).clamp(pause_after(failures), RETRY_AFTER_MAX))
            }
            Err(error) => (error.to_string(), SEND_INTERVAL),
        };
        // A lasting problem is logged once; so is its end.
        if text != last_logged {
            let line = if text.is_empty() { "accepts all data again" } else { &text };
            notes.trouble(&format!("otlp {}: {line}", post.display_url()));
            last_logged = text;
        }
        if end_signal.wait(pause, None) {
            return;
        }
    }
}

/// Result of one attempt.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Sent {
    /// The line to log; empty: everything was accepted.
    pub text: String,
    /// Pause that the receiver requests.
    pub retry_after: Option<Duration>,
    /// Whether a message was rejected.
    pub failed: bool,
}

/// Sends everything once. There is no retry within an attempt: the next one has all data and more.
pub(super) fn send_once(data: &Data, post: &Post, now_ns: u64) -> Result<Sent> {
    let (series, agents) =
        data.read(|index| -> rusqlite::Result<_> { Ok((sums::all(index)?, agents(index, now_ns)?)) })?;
    let mut sent = Sent::default();
    for message in messages(&series, &agents, now_ns) {
        match send(post, &message) {
            Outcome::Accepted(response_body) => {
                if let Some(text) = partial(&response_body) {
                    sent.text = text;
                }
            }
            // Further messages would fail as well, or the receiver has requested a pause.
            Outcome::Retryable(why, retry_after) => return Ok(Sent { text: why, retry_after, failed: true }),
            Outcome::Refused(why, _) => {
                sent = Sent { text: format!("refused: {why}"), retry_after: None, failed: true };
            }
        }
    }
    Ok(sent)
}

fn send(post: &Post, message: &Request) -> Outcome {
    let mut compressed = GzEncoder::new(Vec::new(), Compression::fast());
    // Writing to memory does not fail.
    let compressed = compressed.write_all(&body(message)).and_then(|()| compressed.finish()).unwrap_or_default();
    post.once(&compressed, &[("content-type", CONTENT_TYPE), ("content-encoding", "gzip")], OTLP_RETRYABLE)
}

/// The receiver's report for an accepted message: rejected points, or a warning.
fn partial(response_body: &[u8]) -> Option<String> {
    // A response that is not OTLP, such as an empty one of a proxy, reports no rejected points.
    let partial = <Response as prost::Message>::decode(response_body).ok()?.partial_success?;
    let text: String = report::figures::plain(partial.error_message.lines().next().unwrap_or_default());
    let text: String = text.chars().take(TEXT_CHARACTERS_MAX).collect();
    match partial.rejected_data_points {
        0 if text.is_empty() => None,
        0 => Some(format!("it warns: {text}")),
        points => Some(format!("it rejected {points} points: {text}")),
    }
}

fn agents(index: &Connection, now_ns: u64) -> rusqlite::Result<Vec<Agent>> {
    let mut query = index.prepare_cached(
        "SELECT name, \"group\", host, first_seen_at, last_seen_at, told_at, spool, records_lost, rows_dropped + rows_missed FROM agents \
         ORDER BY name LIMIT ?1",
    )?;
    let rows = query.query_map([AGENTS_MAX], |row| {
        let unsigned = |at: usize| row.get::<_, i64>(at).map(|value| value.max(0) as u64);
        let (seen, newest_data_ns) = (unsigned(4)?, unsigned(5)?);
        let spool: String = row.get(6)?;
        Ok(Agent {
            name: row.get(0)?,
            group: row.get(1)?,
            host: row.get(2)?,
            first_seen_ns: unsigned(3)?,
            connected: now_ns.saturating_sub(seen) < CONNECTED_NS,
            spool_bytes: serde_json::from_str::<SpoolUsage>(&spool).ok().map(|usage| usage.bytes),
            lag_s: (newest_data_ns > 0).then(|| now_ns.saturating_sub(newest_data_ns) as f64 / 1e9),
            records_lost: unsigned(7)?,
            rows_dropped: unsigned(8)?,
        })
    })?;
    rows.collect()
}

/// The pause after this number of failed attempts in a row.
fn pause_after(failures: u32) -> Duration {
    SEND_INTERVAL.saturating_mul(1 << failures.min(5)).min(PAUSE_MAX)
}

/// Interval between attempts.
const SEND_INTERVAL: Duration = Duration::from_secs(15);
/// Maximum interval while the receiver fails; the interval doubles each time.
const PAUSE_MAX: Duration = Duration::from_secs(240);
/// Longest accepted `Retry-After`.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(3600);
/// Timeout of a message with its response.
pub const TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum logged characters of a receiver's text.
const TEXT_CHARACTERS_MAX: usize = 300;
/// Agents with separate gauges.
const AGENTS_MAX: i64 = 2000;
/// An agent sends a message at least every 10 s.
const CONNECTED_NS: u64 = 60_000_000_000;
