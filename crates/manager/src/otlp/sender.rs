//! The thread that sends. It reads what is in the index and waits for no one; no one waits for it.

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
use web::post::{Answer, Post, PostError, Receiver, Roots, TRIED_AGAIN_BY_OTLP};

use super::metrics::{Agent, messages};
use super::sums;
use crate::alerts::Signal;
use crate::data::Data;
use crate::error::{Error, Result};
use crate::notes::Notes;
use tap_protocol::SpoolUsage;

/// Where metrics go.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The receiver: a base such as `http://collector:4318`, or with its path.
    pub url: String,
    /// In every message. Mark those that are secret as sensitive.
    pub headers: Vec<(HeaderName, HeaderValue)>,
    /// Which certificates are trusted.
    pub roots: Roots,
}

/// Sends as long as it is there.
pub struct Sender {
    signal: Arc<Signal>,
    thread: Option<JoinHandle<()>>,
}

impl Sender {
    /// Begins to count and to send. Series go on from where they were when the manager last sent.
    ///
    /// # Errors
    /// Certificates cannot be had; no thread; SQLite's.
    pub fn start(data: Arc<Data>, notes: Notes, plan: Plan) -> Result<Sender> {
        let post = post(plan).map_err(|error| Error::Refused(format!("--otlp: {error}")))?;
        data.change(sums::on)?;
        let signal = Arc::new(Signal::default());
        let ends = signal.clone();
        let run = move || send_all(&data, &notes, &ends, &post);
        let thread = thread::Builder::new().name("otlp".to_owned()).spawn(run).map_err(|_| Error::Thread("otlp"))?;
        Ok(Sender { signal, thread: Some(thread) })
    }

    /// Ends it; a message that is under way is waited for, which takes [`TIMEOUT`] at most.
    pub fn stop(&mut self) {
        self.signal.end();
        if let Some(thread) = self.thread.take() {
            // If it broke it has said so on stderr.
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
        // What goes on is said once; that it is over is said too.
        if words != said {
            let line = if words.is_empty() { "accepts all data again" } else { &words };
            notes.trouble(&format!("otlp {}: {line}", post.shown()));
            said = words;
        }
        if ends.wait(pause, None) {
            return;
        }
    }
}

/// What became of one turn.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Sent {
    /// What is to be said of it; empty: all was taken.
    pub words: String,
    /// How long the receiver wants to be left alone.
    pub wanted: Option<Duration>,
    /// Whether a message was not taken.
    pub failed: bool,
}

/// Sends all there is once. Nothing is sent again within a turn: the next one says all of it, and more.
pub(super) fn turn(data: &Data, post: &Post, now_ns: u64) -> Result<Sent> {
    let (series, agents) =
        data.read(|index| -> rusqlite::Result<_> { Ok((sums::all(index)?, agents(index, now_ns)?)) })?;
    let mut sent = Sent::default();
    for message in messages(&series, &agents, now_ns) {
        match send(post, &message) {
            Answer::Taken(answer) => {
                if let Some(words) = partial(&answer) {
                    sent.words = words;
                }
            }
            // What follows would fare no better, and the receiver has asked for quiet.
            Answer::Later(why, wanted) => return Ok(Sent { words: why, wanted, failed: true }),
            Answer::Refused(why, _) => {
                sent = Sent { words: format!("refused: {why}"), wanted: None, failed: true };
            }
        }
    }
    Ok(sent)
}

fn send(post: &Post, message: &Request) -> Answer {
    let mut packed = GzEncoder::new(Vec::new(), Compression::fast());
    // NotesWriter into memory does not fail.
    let packed = packed.write_all(&body(message)).and_then(|()| packed.finish()).unwrap_or_default();
    post.once(&packed, &[("content-type", CONTENT_TYPE), ("content-encoding", "gzip")], TRIED_AGAIN_BY_OTLP)
}

/// What a receiver says of a message that it took: points that it did not, or a warning.
fn partial(answer: &[u8]) -> Option<String> {
    // An answer that is none of OTLP, such as an empty one of a proxy, says of nothing that it was not taken.
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

/// The pause after so many turns in a row that failed.
fn pause_after(failures: u32) -> Duration {
    SEND_INTERVAL.saturating_mul(1 << failures.min(5)).min(PAUSE_MAX)
}

/// From one turn to the next.
const SEND_INTERVAL: Duration = Duration::from_secs(15);
/// The same where the receiver is away or refuses, doubled each time.
const PAUSE_MAX: Duration = Duration::from_secs(240);
/// What a receiver may want at most.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(3600);
/// For a message and its answer.
pub const TIMEOUT: Duration = Duration::from_secs(10);
/// Characters shown of what a receiver says.
const WORDS_MAX: usize = 300;
/// Agents with gauges of their own.
const AGENTS_MAX: i64 = 2000;
/// An agent says something each 10 s at least.
const CONNECTED_NS: u64 = 60_000_000_000;
