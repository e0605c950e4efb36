//! `--to`: sends the live series to another host.
//!
//! ```text
//!   watching thread -- push --> backlog (bounded) --> thread: one POST, its reply, the next
//! ```
//!
//! The capture never waits for the network. While the receiver is unreachable, seconds wait in the backlog. Once the
//! backlog is full, the oldest seconds are dropped and counted. A receiver that refuses, because the token is wrong or
//! because the server is not a receiver of series, ends the watch: a retry would not help.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Result, anyhow, bail};
use broker::Failure::Away;
use broker::{Kind, Publisher, StreamAddress, Subject};
use http::HeaderValue;
use http::header::AUTHORIZATION;
use schema::document::Host;
use schema::{WatchPart, WatchSecond};
use sys::clock::{Clock, realtime_ns};
use sys::signal::Interrupts;
use testbed::host::{CorePlan, facts};
use units::Timestamp;
use watch::CapturePoint;
use web::post::{Failure, Receiver, Roots};

use super::message::{self, CONTENT_TYPE, End, Head, PATH, ROWS_MAX, Row, SCHEMA};
use super::view::View;
use crate::args::{self, SendTo};
use crate::terminal::print_message;
use crate::token::Token;

/// Sends a series to another host.
pub struct Sender {
    shared: Arc<Shared>,
    clock: Clock,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    to: String,
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    head: Head,
    /// The head has changed since it was last sent.
    head_changed: bool,
    backlog: VecDeque<Row>,
    next_index: u64,
    /// When the receiver became unreachable, if it still is.
    unreachable_since: Option<Timestamp>,
    last_error: String,
    refusal: Option<String>,
    /// The series has ended: the thread ends once everything is sent.
    is_ending: bool,
    /// The thread ends after the request in flight.
    is_abandoned: bool,
    /// The thread has ended.
    has_ended: bool,
}

/// The host that sends a series, and the series' session.
pub struct Origin {
    /// Name of this host.
    pub host: String,
    /// The machine's hardware and system.
    pub machine: Host,
    /// When the watch began, in ns since 1970.
    pub started_at_ns: u64,
    /// Identifies the series: see [`Head::session`].
    pub session: String,
}

impl Sender {
    /// Sends a first message to the receiver at `to` and starts the thread. An unreachable receiver is no error: the
    /// thread retries.
    ///
    /// # Errors
    /// The receiver refuses, or no thread can be started.
    pub fn start(to: &SendTo, token: Option<&Token>, origin: Origin, view: &View) -> Result<Sender> {
        let (mut post, to) = match to {
            SendTo::Receiver(url) => (Post::Http(HttpPost::new(url, token)?), url.clone()),
            SendTo::Stream(address) => {
                (Post::Stream(Box::new(StreamPost::new(address, &origin)?)), address.to_string())
            }
        };
        let head = Head {
            schema: SCHEMA.into(),
            session: origin.session,
            host: origin.host,
            machine: origin.machine,
            started_at_ns: origin.started_at_ns,
            elapsed_ns: 0,
            lost_seconds: 0,
            end: None,
            totals: view.totals.clone(),
            rtt: view.rtt.clone(),
        };
        let state = State {
            head,
            head_changed: true,
            backlog: VecDeque::new(),
            next_index: 0,
            unreachable_since: None,
            last_error: String::new(),
            refusal: None,
            is_ending: false,
            is_abandoned: false,
            has_ended: false,
        };
        let shared = Arc::new(Shared { to, state: Mutex::new(state), changed: Condvar::new() });
        let clock = Clock::start();
        send_once(&shared, &mut post, &clock);
        if let Some(refusal) = shared.lock().refusal.take() {
            return Err(anyhow!(refusal));
        }
        let thread_shared = shared.clone();
        let thread = thread::Builder::new()
            .name("send".into())
            .spawn(move || send_until_the_end(&thread_shared, &mut post, &clock))?;
        Ok(Sender { shared, clock, thread: Some(thread) })
    }

    /// Queues seconds and replaces the totals.
    pub fn push(&self, new_seconds: Vec<WatchSecond>, view: &View) {
        let mut state = self.shared.lock();
        for second in new_seconds {
            if state.backlog.len() == BACKLOG_MAX {
                state.backlog.pop_front();
                state.head.lost_seconds += 1;
            }
            let index = state.next_index;
            state.next_index += 1;
            state.backlog.push_back(Row { index, second });
        }
        state.head.elapsed_ns = (view.elapsed_s * 1e9) as u64;
        state.head.totals = view.totals.clone();
        state.head.rtt = view.rtt.clone();
        state.head_changed = true;
        self.shared.changed.notify_all();
    }

    /// The state of sending as a text, and whether it is a problem.
    pub fn state(&self) -> (String, bool) {
        let state = self.shared.lock();
        let lost = match state.head.lost_seconds {
            0 => String::new(),
            lost => format!(", {lost} s lost"),
        };
        match state.unreachable_since {
            None => (format!("sent to {}{lost}", self.shared.to), !lost.is_empty()),
            Some(since) => {
                let unreachable_s = self.clock.now().since(since).as_secs();
                let queued = state.backlog.len();
                (
                    format!(
                        "{} unreachable for {unreachable_s} s: {}; {queued} s queued{lost}",
                        self.shared.to, state.last_error
                    ),
                    true,
                )
            }
        }
    }

    /// Why the receiver refuses the series, if it does.
    pub fn refusal(&self) -> Option<anyhow::Error> {
        self.shared.lock().refusal.clone().map(|text| anyhow!(text))
    }

    /// Sends the last seconds and waits at most [`FINISH_TIMEOUT`] until they are accepted; a second Ctrl-C ends the
    /// wait.
    ///
    /// # Errors
    /// Seconds were not accepted: how many, and why.
    pub fn finish(mut self, seconds: Vec<WatchSecond>, view: &View, end: End, interrupts: &Interrupts) -> Result<()> {
        self.push(seconds, view);
        let mut state = self.shared.lock();
        // The thread may be sending the head already, without `end`: it is to be sent again.
        (state.head.end, state.is_ending, state.head_changed) = (Some(end), true, true);
        self.shared.changed.notify_all();
        let (before, mut left) = (interrupts.count(), FINISH_TIMEOUT);
        let is_second = || interrupts.count() > before.max(1);
        while !state.has_ended && !left.is_zero() && !is_second() {
            state =
                self.shared.changed.wait_timeout(state, FINISH_POLL_INTERVAL).unwrap_or_else(PoisonError::into_inner).0;
            if left == FINISH_TIMEOUT && !state.has_ended {
                print_message(format_args!("sending the last seconds to {}", self.shared.to));
            }
            left = left.saturating_sub(FINISH_POLL_INTERVAL);
        }
        state.is_abandoned = true;
        let outcome = outcome(&self.shared.to, &state);
        self.shared.changed.notify_all();
        let has_ended = state.has_ended;
        drop(state);
        if has_ended && let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        outcome
    }
}

/// Whether every second was accepted; otherwise an error with the number of missing seconds and the reason.
fn outcome(to: &str, state: &State) -> Result<()> {
    let (queued, lost, all) = (state.backlog.len() as u64, state.head.lost_seconds, state.next_index);
    if let Some(refusal) = &state.refusal {
        return Err(anyhow!(refusal.clone()));
    }
    if queued == 0 && lost == 0 && !state.head_changed {
        return Ok(());
    }
    let why = if state.last_error.is_empty() { "it answers too slowly" } else { &state.last_error };
    let missing = queued + lost;
    // An io::Error makes this an error of the environment, not of usage.
    let error = std::io::Error::other(format!("{missing} of {all} seconds were not accepted: {why}"));
    Err(anyhow::Error::from(error).context(format!("sending to {to}")))
}

impl Drop for Sender {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        (state.is_ending, state.is_abandoned) = (true, true);
        self.shared.changed.notify_all();
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Starts sending the series. The first message is sent before this returns, so that a wrong token is reported
/// immediately.
pub fn start(to: &SendTo, arguments: &args::Watch, source: &str, capture_point: CapturePoint) -> Result<Sender> {
    if matches!(to, SendTo::Stream(_)) && arguments.token_file.is_some() {
        bail!("--token-file is for a receiver over HTTP: NATS has its own credentials (NATS_CREDS, NATS_USER ..)");
    }
    let token = Token::find(arguments.token_file.as_deref())?;
    let origin = Origin {
        host: nix::unistd::gethostname().unwrap_or_default().to_string_lossy().chars().take(64).collect(),
        machine: facts(&CorePlan::default(), 1)?,
        started_at_ns: realtime_ns(),
        session: format!("{:016x}{:016x}", super::random(), super::random()),
    };
    let totals =
        WatchPart { source: source.to_owned(), capture_point: capture_point.name().to_owned(), ..WatchPart::default() };
    Sender::start(to, token.as_ref(), origin, &View { totals, ..View::default() })
}

fn send_until_the_end(shared: &Shared, post: &mut Post, clock: &Clock) {
    let mut pause = RETRY_PAUSE_MIN;
    loop {
        let mut state = shared.lock();
        while !state.head_changed && state.backlog.is_empty() && !state.is_ending {
            state = shared.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        let is_done = state.backlog.is_empty() && !state.head_changed;
        if state.is_abandoned || state.refusal.is_some() || (state.is_ending && is_done) {
            break;
        }
        drop(state);
        if send_once(shared, post, clock) {
            pause = RETRY_PAUSE_MIN;
            continue;
        }
        let state = shared.lock();
        let was_ending = state.is_ending;
        let wait = if was_ending { RETRY_PAUSE_MIN } else { pause };
        let nothing_new = |state: &mut State| !state.is_abandoned && state.is_ending == was_ending;
        drop(shared.changed.wait_timeout_while(state, wait, nothing_new));
        pause = (pause * 2).min(RETRY_PAUSE_MAX);
    }
    shared.lock().has_ended = true;
    shared.changed.notify_all();
}

/// Sends one message. True if the receiver accepted it.
fn send_once(shared: &Shared, post: &mut Post, clock: &Clock) -> bool {
    let (mut head, rows, is_all) = {
        let mut state = shared.lock();
        state.head_changed = false;
        let rows: Vec<Row> = state.backlog.iter().take(ROWS_MAX).copied().collect();
        (state.head.clone(), rows, state.backlog.len() <= ROWS_MAX)
    };
    if !is_all {
        // Only the message with the last seconds ends the series.
        head.end = None;
    }
    let reply = post.send(&head, &rows);
    let mut state = shared.lock();
    match reply {
        Reply::Accepted => {
            // Seconds of this message that the full backlog dropped meanwhile are not lost after all.
            let first_queued = state.backlog.front().map_or(state.next_index, |row| row.index);
            state.head.lost_seconds -= rows.iter().filter(|row| row.index < first_queued).count() as u64;
            let last = rows.last().map(|row| row.index);
            while state.backlog.front().is_some_and(|row| Some(row.index) <= last) {
                state.backlog.pop_front();
            }
            (state.unreachable_since, state.last_error) = (None, String::new());
            state.head_changed |= !is_all;
            true
        }
        Reply::Unreachable(why) => {
            state.head_changed = true;
            state.unreachable_since.get_or_insert(clock.now());
            state.last_error = why;
            false
        }
        Reply::Refused(why) => {
            state.refusal = Some(format!("{} refuses the series: {why}", shared.to));
            shared.changed.notify_all();
            false
        }
    }
}

/// The connection to the receiver, or to the stream that it reads.
enum Post {
    Http(HttpPost),
    Stream(Box<StreamPost>),
}

impl Post {
    fn send(&mut self, head: &Head, rows: &[Row]) -> Reply {
        let body = match message::body(head, rows) {
            Ok(body) => body,
            Err(error) => return Reply::Refused(error.to_string()),
        };
        match self {
            Post::Http(post) => post.send(&body),
            Post::Stream(post) => post.send(body),
        }
    }
}

/// A receiver that listens.
struct HttpPost {
    post: web::post::Post,
    has_token: bool,
}

enum Reply {
    /// The receiver has the message.
    Accepted,
    /// A retry may succeed.
    Unreachable(String),
    /// A retry cannot succeed.
    Refused(String),
}

impl HttpPost {
    fn new(to: &str, token: Option<&Token>) -> Result<HttpPost> {
        let authorization = |token: &Token| -> Result<_> {
            let mut value = HeaderValue::from_str(&token.header())?;
            value.set_sensitive(true);
            Ok((AUTHORIZATION, value))
        };
        let headers = token.map(authorization).transpose()?.into_iter().collect();
        let receiver = Receiver { url: format!("{to}{PATH}"), headers, roots: Roots::System, timeout: REQUEST_TIMEOUT };
        Ok(HttpPost { post: web::post::Post::new(receiver)?, has_token: token.is_some() })
    }

    fn send(&self, body: &[u8]) -> Reply {
        let reply = match self.post.exchange("", body, &[("content-type", CONTENT_TYPE)]) {
            Ok(reply) => reply,
            Err(Failure::Unreachable(why)) => return Reply::Unreachable(why),
            Err(failure) => return Reply::Refused(failure.to_string()),
        };
        let (status, text) = (reply.status, reply.first_line());
        match status {
            200..=299 => Reply::Accepted,
            401 if !self.has_token => Reply::Refused("a token is required: --token-file, or YAMABIKO_TOKEN".to_owned()),
            401 => Reply::Refused("the token is wrong".to_owned()),
            400 | 413 => Reply::Refused(format!("{text} (status {status})")),
            408 | 429 | 500..=599 => Reply::Unreachable(format!("status {status} {text}")),
            _ => Reply::Refused(format!("status {status}; is it a `yamabiko watch --from`?")),
        }
    }
}

/// A stream of NATS.
struct StreamPost {
    publisher: Publisher,
    subject: String,
    session: String,
    /// Messages so far: identifies each, so that the client's own repetition counts once.
    messages: u64,
    is_open: bool,
}

impl StreamPost {
    fn new(address: &StreamAddress, origin: &Origin) -> Result<StreamPost> {
        // Words of a subject have no spaces and wildcards.
        let plain = |c: char| if c.is_ascii_alphanumeric() || "-_.".contains(c) { c } else { '-' };
        let name = origin.host.chars().map(plain).collect();
        let subject = Subject { kind: Kind::Watch, name, id: origin.session.clone() }.text(address.stream());
        let publisher = Publisher::new(address.clone(), format!("yamabiko watch {}", origin.host), message::BODY_MAX)?;
        Ok(StreamPost { publisher, subject, session: origin.session.clone(), messages: 0, is_open: false })
    }

    fn send(&mut self, body: Vec<u8>) -> Reply {
        self.messages += 1;
        let id = format!("{}.{}", self.session, self.messages);
        let opened = if self.is_open { Ok(()) } else { self.publisher.open(&self.subject) };
        let sent = opened.and_then(|()| self.publisher.publish(&self.subject, None, &id, &[], body));
        self.is_open = sent.is_ok();
        match sent {
            Ok(_) => Reply::Accepted,
            Err(Away(why)) => Reply::Unreachable(why),
            Err(failure) => Reply::Refused(failure.to_string()),
        }
    }
}

/// Most seconds queued while the receiver is unreachable: ten minutes.
const BACKLOG_MAX: usize = 600;
/// Pause between two attempts: it doubles from the first to the second.
const RETRY_PAUSE_MIN: Duration = Duration::from_millis(250);
const RETRY_PAUSE_MAX: Duration = Duration::from_secs(8);
/// How long a request and its response may take.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(6);
/// How long the last seconds may take at the end, and how often their state is checked.
const FINISH_TIMEOUT: Duration = Duration::from_secs(6);
const FINISH_POLL_INTERVAL: Duration = Duration::from_millis(250);

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    fn origin() -> Origin {
        Origin { host: "h".into(), machine: Host::default(), started_at_ns: 1, session: "0".repeat(32) }
    }

    fn seconds(count: usize) -> Vec<WatchSecond> {
        vec![WatchSecond::default(); count]
    }

    /// The URL of an address without a listener.
    fn unused_url() -> String {
        format!("http://{}", TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap())
    }

    #[test]
    fn send_queue_is_bounded_and_counts_dropped_seconds() {
        let sender = Sender::start(&SendTo::Receiver(unused_url()), None, origin(), &View::default()).unwrap();
        for _ in 0..7 {
            sender.push(seconds(100), &View::default());
        }
        let (text, is_problem) = sender.state();
        assert!(is_problem && text.contains("600 s queued, 100 s lost"), "{text}");
        assert!(sender.refusal().is_none(), "an unreachable receiver does not refuse");
        let state = sender.shared.lock();
        assert_eq!((state.backlog.front().unwrap().index, state.next_index), (100, 700));
        let error = outcome(&sender.shared.to, &state).unwrap_err();
        assert!(format!("{error:#}").contains("700 of 700 seconds were not accepted"), "{error:#}");
    }

    #[test]
    fn invalid_receiver_address_is_refused_immediately() {
        assert!(Sender::start(&SendTo::Receiver("http://[::1".into()), None, origin(), &View::default()).is_err());
    }
}
