//! `--to`: sends the live series to another host.
//!
//! ```text
//!   watching thread -- push --> backlog (bounded) --> thread: one POST, its answer, the next
//! ```
//!
//! The capture never waits for the network. While the receiver is away, seconds wait in the backlog; once it is full
//! the oldest are given up and counted. A receiver that refuses, for want of the right token or because it is no
//! receiver, ends the watch: trying again would not help.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Result, anyhow};
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
use crate::args;
use crate::terminal::say;
use crate::token::Token;

/// A series on its way to another host.
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
    /// The head has not been sent since it changed.
    is_new: bool,
    backlog: VecDeque<Row>,
    next_index: u64,
    /// When the receiver was last heard of failing, without an answer since.
    away_since: Option<Timestamp>,
    last_error: String,
    refusal: Option<String>,
    /// No more comes; the thread ends when all is sent, or when this is past.
    ends: bool,
    is_abandoned: bool,
    has_ended: bool,
}

/// Who sends.
pub struct Origin {
    /// Name of this host.
    pub host: String,
    /// The machine.
    pub machine: Host,
    /// When the watch began, in ns since 1970.
    pub started_at_ns: u64,
    /// Names the watch: see [`Head::session`].
    pub session: String,
}

impl Sender {
    /// Asks the receiver at `to` whether it takes the series, and starts the thread. A receiver that is away may come
    /// later.
    ///
    /// # Errors
    /// The receiver refuses, or no thread can be started.
    pub fn start(to: &str, token: Option<&Token>, origin: Origin, view: &View) -> Result<Sender> {
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
            is_new: true,
            backlog: VecDeque::new(),
            next_index: 0,
            away_since: None,
            last_error: String::new(),
            refusal: None,
            ends: false,
            is_abandoned: false,
            has_ended: false,
        };
        let shared = Arc::new(Shared { to: to.to_owned(), state: Mutex::new(state), changed: Condvar::new() });
        let clock = Clock::start();
        let post = Post::new(to, token)?;
        send_once(&shared, &post, &clock);
        if let Some(refusal) = shared.lock().refusal.take() {
            return Err(anyhow!(refusal));
        }
        let theirs = shared.clone();
        let thread =
            thread::Builder::new().name("send".into()).spawn(move || send_until_the_end(&theirs, &post, &clock))?;
        Ok(Sender { shared, clock, thread: Some(thread) })
    }

    /// Adds seconds, and how things stand now.
    pub fn push(&self, fresh: Vec<WatchSecond>, view: &View) {
        let mut state = self.shared.lock();
        for second in fresh {
            if state.backlog.len() == BACKLOG {
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
        state.is_new = true;
        self.shared.changed.notify_all();
    }

    /// How it goes, and whether not well.
    pub fn state(&self) -> (String, bool) {
        let state = self.shared.lock();
        let lost = match state.head.lost_seconds {
            0 => String::new(),
            lost => format!(", {lost} s lost"),
        };
        match state.away_since {
            None => (format!("sent to {}{lost}", self.shared.to), !lost.is_empty()),
            Some(since) => {
                let away_s = self.clock.now().since(since).as_secs();
                let held = state.backlog.len();
                (
                    format!(
                        "{} unreachable for {away_s} s: {}; {held} s queued{lost}",
                        self.shared.to, state.last_error
                    ),
                    true,
                )
            }
        }
    }

    /// Why the receiver will not take it.
    pub fn refusal(&self) -> Option<anyhow::Error> {
        self.shared.lock().refusal.clone().map(|text| anyhow!(text))
    }

    /// Sends the last seconds, and waits some seconds for them to be taken; a second Ctrl-C ends the waiting.
    ///
    /// # Errors
    /// Not everything was taken: how many seconds, and why.
    pub fn finish(mut self, fresh: Vec<WatchSecond>, view: &View, end: End, interrupts: &Interrupts) -> Result<()> {
        self.push(fresh, view);
        let mut state = self.shared.lock();
        // What was pushed may be on its way already, without the end.
        (state.head.end, state.ends, state.is_new) = (Some(end), true, true);
        self.shared.changed.notify_all();
        let (before, mut left) = (interrupts.count(), PATIENCE);
        let is_second = || interrupts.count() > before.max(1);
        while !state.has_ended && !left.is_zero() && !is_second() {
            state = self.shared.changed.wait_timeout(state, GLANCE).unwrap_or_else(PoisonError::into_inner).0;
            if left == PATIENCE && !state.has_ended {
                say(format_args!("sending the last seconds to {}", self.shared.to));
            }
            left = left.saturating_sub(GLANCE);
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

/// What the series came to.
fn outcome(to: &str, state: &State) -> Result<()> {
    let (held, lost, all) = (state.backlog.len() as u64, state.head.lost_seconds, state.next_index);
    if let Some(refusal) = &state.refusal {
        return Err(anyhow!(refusal.clone()));
    }
    if held == 0 && lost == 0 && !state.is_new {
        return Ok(());
    }
    let why = if state.last_error.is_empty() { "it answers too slowly" } else { &state.last_error };
    let missing = held + lost;
    // The receiver lacks something, not the one who typed: an error of the environment.
    let error = std::io::Error::other(format!("{missing} of {all} seconds were not accepted: {why}"));
    Err(anyhow::Error::from(error).context(format!("sending to {to}")))
}

impl Drop for Sender {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        (state.ends, state.is_abandoned) = (true, true);
        self.shared.changed.notify_all();
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Begins to send the series: asks the receiver first, so that a wrong token is known at once.
pub fn start(to: &str, arguments: &args::Watch, source: &str, capture_point: CapturePoint) -> Result<Sender> {
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

fn send_until_the_end(shared: &Shared, post: &Post, clock: &Clock) {
    let mut pause = PAUSE_MIN;
    loop {
        let mut state = shared.lock();
        while !state.is_new && state.backlog.is_empty() && !state.ends {
            state = shared.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        let is_done = state.backlog.is_empty() && !state.is_new;
        if state.is_abandoned || state.refusal.is_some() || (state.ends && is_done) {
            break;
        }
        drop(state);
        if send_once(shared, post, clock) {
            pause = PAUSE_MIN;
            continue;
        }
        let state = shared.lock();
        let was_ending = state.ends;
        let wait = if was_ending { PAUSE_MIN } else { pause };
        let nothing_new = |state: &mut State| !state.is_abandoned && state.ends == was_ending;
        drop(shared.changed.wait_timeout_while(state, wait, nothing_new));
        pause = (pause * 2).min(PAUSE_MAX);
    }
    shared.lock().has_ended = true;
    shared.changed.notify_all();
}

/// One message. True if it was taken.
fn send_once(shared: &Shared, post: &Post, clock: &Clock) -> bool {
    let (mut head, rows, is_all) = {
        let mut state = shared.lock();
        state.is_new = false;
        let rows: Vec<Row> = state.backlog.iter().take(ROWS_MAX).copied().collect();
        (state.head.clone(), rows, state.backlog.len() <= ROWS_MAX)
    };
    if !is_all {
        // The end comes with the last of them.
        head.end = None;
    }
    let answer = post.send(&head, &rows);
    let mut state = shared.lock();
    match answer {
        Answer::Taken => {
            // Some may have been given up while they were on their way: not lost after all.
            let first_held = state.backlog.front().map_or(state.next_index, |row| row.index);
            state.head.lost_seconds -= rows.iter().filter(|row| row.index < first_held).count() as u64;
            let last = rows.last().map(|row| row.index);
            while state.backlog.front().is_some_and(|row| Some(row.index) <= last) {
                state.backlog.pop_front();
            }
            (state.away_since, state.last_error) = (None, String::new());
            state.is_new |= !is_all;
            true
        }
        Answer::Away(why) => {
            state.is_new = true;
            state.away_since.get_or_insert(clock.now());
            state.last_error = why;
            false
        }
        Answer::Refused(why) => {
            state.refusal = Some(format!("{} refuses the series: {why}", shared.to));
            shared.changed.notify_all();
            false
        }
    }
}

/// How to reach the receiver.
struct Post {
    post: web::post::Post,
    has_token: bool,
}

enum Answer {
    Taken,
    /// Another time perhaps.
    Away(String),
    /// Never.
    Refused(String),
}

impl Post {
    fn new(to: &str, token: Option<&Token>) -> Result<Post> {
        let authorization = |token: &Token| -> Result<_> {
            let mut value = HeaderValue::from_str(&token.header())?;
            value.set_sensitive(true);
            Ok((AUTHORIZATION, value))
        };
        let headers = token.map(authorization).transpose()?.into_iter().collect();
        let receiver = Receiver { url: format!("{to}{PATH}"), headers, roots: Roots::System, timeout: WHOLE };
        Ok(Post { post: web::post::Post::new(receiver)?, has_token: token.is_some() })
    }

    fn send(&self, head: &Head, rows: &[Row]) -> Answer {
        let body = match message::body(head, rows) {
            Ok(body) => body,
            Err(error) => return Answer::Refused(error.to_string()),
        };
        let reply = match self.post.exchange("", &body, &[("content-type", CONTENT_TYPE)]) {
            Ok(reply) => reply,
            Err(Failure::Unreachable(why)) => return Answer::Away(why),
            Err(failure) => return Answer::Refused(failure.to_string()),
        };
        let (status, told) = (reply.status, reply.first_line());
        match status {
            200..=299 => Answer::Taken,
            401 if !self.has_token => {
                Answer::Refused("a token is required: --token-file, or YAMABIKO_TOKEN".to_owned())
            }
            401 => Answer::Refused("the token is wrong".to_owned()),
            400 | 413 => Answer::Refused(format!("{told} (status {status})")),
            408 | 429 | 500..=599 => Answer::Away(format!("status {status} {told}")),
            _ => Answer::Refused(format!("status {status}; is it a `yamabiko watch --from`?")),
        }
    }
}

/// Seconds kept while the receiver is away: ten minutes.
const BACKLOG: usize = 600;
/// Between two tries, at first and at most.
const PAUSE_MIN: Duration = Duration::from_millis(250);
const PAUSE_MAX: Duration = Duration::from_secs(8);
/// For a message with its answer.
const WHOLE: Duration = Duration::from_secs(6);
/// For the last seconds, at the end, and how often is looked whether they are there.
const PATIENCE: Duration = Duration::from_secs(6);
const GLANCE: Duration = Duration::from_millis(250);

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

    /// An address that nobody listens on.
    fn nobody() -> String {
        format!("http://{}", TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap())
    }

    #[test]
    fn send_queue_is_bounded_and_counts_dropped_seconds() {
        let sender = Sender::start(&nobody(), None, origin(), &View::default()).unwrap();
        for _ in 0..7 {
            sender.push(seconds(100), &View::default());
        }
        let (words, is_doubtful) = sender.state();
        assert!(is_doubtful && words.contains("600 s queued, 100 s lost"), "{words}");
        assert!(sender.refusal().is_none(), "it may come back");
        let state = sender.shared.lock();
        assert_eq!((state.backlog.front().unwrap().index, state.next_index), (100, 700));
        let error = outcome(&sender.shared.to, &state).unwrap_err();
        assert!(format!("{error:#}").contains("700 of 700 seconds were not accepted"), "{error:#}");
    }

    #[test]
    fn invalid_receiver_address_is_refused_immediately() {
        assert!(Sender::start("http://[::1", None, origin(), &View::default()).is_err());
    }
}
