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
use web::post::{Outcome, Post, PostError, Receiver, Roots, OTLP_RETRYABLE};

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
        let ends = signal.clone();
        let run = move || send_all(&data, &notes, &ends, &post);
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

fn send_all(data: &Data, notes: &Notes, ends: &Signal, post: &Post) {
    let mut said = String::new();
    let mut failures = 0_u32;
    loop {
        let turn = turn(data, post, realtime_ns());
        let (words, pause) = match turn {
            Ok(Sent { words, wanted, failed }) => {
                failures = if failed { failures.saturating_add(1) } else { 0 };
                (words, wanted.unwrap_or(Duration::ZERO).clamp(pause_after(failures), RETRY_AFTER_MAX))
            }
            Err(error) => (error.to_string(), SEND_INTERVAL),
        };
        // A lasting problem is logged once; so is its end.
        if words != said {
            let line = if words.is_empty() { "accepts all data again" } else { &words };
            notes.trouble(&format!("otlp {}: {line}", post.display_url()));
            said = words;
        }
        if ends.wait(pause, None) {
            return;
        }
    }
}

/// Result of one attempt.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Sent {
    /// The line to log; empty: everything was accepted.
    pub words: String,
    /// Pause that the receiver requests.
    pub wanted: Option<Duration>,
    /// Whether a message was rejected.
    pub failed: bool,
}

/// Sends everything once. There is no retry within an attempt: the next one has all data and more.
pub(super) fn turn(data: &Data, post: &Post, now_ns: u64) -> Result<Sent> {
    let (series, agents) =
        data.read(|index| -> rusqlite::Result<_> { Ok((sums::all(index)?, agents(index, now_ns)?)) })?;
    let mut sent = Sent::default();
    for message in messages(&series, &agents, now_ns) {
        match send(post, &message) {
            Outcome::Accepted(answer) => {
                if let Some(words) = partial(&answer) {
                    sent.words = words;
                }
            }
            // Further messages would fail as well, or the receiver has requested a pause.
            Outcome::Retryable(why, wanted) => return Ok(Sent { words: why, wanted, failed: true }),
            Outcome::Refused(why, _) => {
                sent = Sent { words: format!("refused: {why}"), wanted: None, failed: true };
            }
        }
    }
    Ok(sent)
}

fn send(post: &Post, message: &Request) -> Outcome {
    let mut packed = GzEncoder::new(Vec::new(), Compression::fast());
    // Writing to memory does not fail.
    let packed = packed.write_all(&body(message)).and_then(|()| packed.finish()).unwrap_or_default();
    post.once(&packed, &[("content-type", CONTENT_TYPE), ("content-encoding", "gzip")], OTLP_RETRYABLE)
}

/// The receiver's report for an accepted message: rejected points, or a warning.
fn partial(answer: &[u8]) -> Option<String> {
    // A response that is not OTLP, such as an empty one of a proxy, reports no rejected points.
    let partial = <Response as prost::Message>::decode(answer).ok()?.partial_success?;
    let words: String = report::figures::plain(partial.error_message.lines().next().unwrap_or_default());
    let words: String = words.chars().take(WORDS_MAX).collect();
    match partial.rejected_data_points {
        0 if words.is_empty() => None,
        0 => Some(format!("it warns: {words}")),
        points => Some(format!("it rejected {points} points: {words}")),
    }
}

fn agents(index: &Connection, now_ns: u64) -> rusqlite::Result<Vec<Agent>> {
    let mut query = index.prepare_cached(
        "SELECT name, \"group\", host, first_seen_at, last_seen_at, told_at, spool, records_lost, rows_dropped FROM agents \
         ORDER BY name LIMIT ?1",
    )?;
    let rows = query.query_map([AGENTS_MAX], |row| {
        let whole = |at: usize| row.get::<_, i64>(at).map(|value| value.max(0) as u64);
        let (seen, told) = (whole(4)?, whole(5)?);
        let spool: String = row.get(6)?;
        Ok(Agent {
            name: row.get(0)?,
            group: row.get(1)?,
            host: row.get(2)?,
            first_seen_ns: whole(3)?,
            connected: now_ns.saturating_sub(seen) < CONNECTED_NS,
            spool_bytes: serde_json::from_str::<SpoolUsage>(&spool).ok().map(|stand| stand.bytes),
            lag_s: (told > 0).then(|| now_ns.saturating_sub(told) as f64 / 1e9),
            records_lost: whole(7)?,
            rows_dropped: whole(8)?,
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
const WORDS_MAX: usize = 300;
/// Agents with separate gauges.
const AGENTS_MAX: i64 = 2000;
/// An agent sends a message at least every 10 s.
const CONNECTED_NS: u64 = 60_000_000_000;
