//! `--from`: receives the series that other hosts send, shows and stores them.
//!
//! ```text
//!   senders --HTTP--> listening thread: token, limits, parse --> events (bounded) --> this thread: a series per sender
//!                                                                                      view, Parquet, document
//! ```
//!
//! A series ends with its sender's last message, or when its sender was silent for longer than it would retry. Received
//! seconds are stored however a series ends.

mod http;
mod nats;
mod series;
mod sessions;

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::Duration;

use anyhow::{Result, anyhow, bail};
use report::figures::plain;
use schema::WatchDocument;
use serde_json::json;
use sys::clock::Clock;
use sys::signal::Interrupts;

use super::display::Display;
use super::message::Message;
use super::view::View;
use crate::args::{self, ReceiveFrom};
use crate::exit::{self, Exit};
use crate::live_child::LivePage;
use crate::terminal;
use crate::token::Token;
use crate::verb::bench::print;
use http::{Event, Listener};
use nats::StreamListener;
use series::Series;
use sessions::Sessions;

/// Receives until the duration is over or until Ctrl-C.
pub fn run(arguments: &args::Watch, from: &ReceiveFrom, interrupts: &Interrupts, page: &LivePage) -> Result<Exit> {
    let (events, incoming) = sync_channel(EVENT_QUEUE_MAX);
    let sessions = Sessions::new(CONCURRENT_SERIES_MAX);
    let (listener, waiting) = start(arguments, from, events, sessions.clone())?;
    let mut collector = Collector {
        arguments,
        page,
        clock: Clock::start(),
        display: Display::open(arguments.json, arguments.plain, waiting),
        series: Vec::new(),
        sessions,
        ended: Vec::new(),
        documents: Vec::new(),
        failure: None,
        refused: 0,
        refused_reported: 0,
        refused_reported_at_s: 0.0,
        not_shown: 0,
    };
    let outcome = collector.receive(&incoming, interrupts);
    // A sender refused from here on retries or reports the refusal itself. Messages accepted before are stored.
    drop(listener);
    collector.drain(&incoming);
    while !collector.series.is_empty() {
        collector.end_series(0);
    }
    let Collector { display, documents, not_shown, failure, .. } = collector;
    display.close();
    show(&documents, arguments.json)?;
    if not_shown > 0 {
        terminal::print_message(format_args!("{not_shown} more series are stored, not shown"));
    }
    outcome?;
    if let Some(failure) = failure {
        return Err(failure.context("the figures are complete, the files are not"));
    }
    let mut exits = documents.iter().map(|document| exit::of_validity(&document.validity));
    Ok(exits.find(|exit| *exit != Exit::Success).unwrap_or(Exit::Success))
}

/// What receives messages, until it is dropped.
#[expect(dead_code, reason = "a receiver ends when it is dropped")]
enum Receiving {
    Http(Listener),
    Stream(StreamListener),
}

/// Starts to receive; returns also a text for the time without a message.
fn start(
    arguments: &args::Watch,
    from: &ReceiveFrom,
    events: SyncSender<Event>,
    sessions: Sessions,
) -> Result<(Receiving, String)> {
    match from {
        ReceiveFrom::Stream(address) => {
            if arguments.token_file.is_some() {
                bail!("--token-file is for senders over HTTP: NATS has its own credentials (NATS_CREDS, NATS_USER ..)");
            }
            let listener = StreamListener::start(address, events, sessions)?;
            Ok((Receiving::Stream(listener), format!("reading {address} for `watch --to {address}` (Ctrl-C ends it)")))
        }
        ReceiveFrom::Listen(address) => {
            let token = Token::find(arguments.token_file.as_deref())?;
            if token.is_none() && !address.ip().is_loopback() {
                bail!("{address} is reachable from other hosts, which needs a token (--token-file, or YAMABIKO_TOKEN)");
            }
            let guard = if token.is_some() { "with the token" } else { "from this host, without a token" };
            let listener = Listener::start(*address, token, events, sessions)?;
            let address = listener.address();
            let waiting = format!("listening on {address} for `watch --to http://{address}` {guard} (Ctrl-C ends it)");
            Ok((Receiving::Http(listener), waiting))
        }
    }
}

fn show(documents: &[WatchDocument], json: bool) -> Result<()> {
    if json {
        let document = json!({ "schema": schema::document::SCHEMA, "watches": documents });
        return print(&(serde_json::to_string_pretty(&document)? + "\n"));
    }
    documents.iter().try_for_each(|document| super::show(document, false))
}

/// The series being received, and their display.
struct Collector<'a> {
    arguments: &'a args::Watch,
    /// The live page, which shows the series that began last.
    page: &'a LivePage,
    clock: Clock,
    display: Display,
    series: Vec<Series>,
    /// Limits concurrent and new sessions.
    sessions: Sessions,
    /// The latest sessions that ended: their last message may be repeated.
    ended: Vec<String>,
    documents: Vec<WatchDocument>,
    /// The first failure to store a series.
    failure: Option<anyhow::Error>,
    /// Refused requests.
    refused: u64,
    /// Refused requests that the messages have reported.
    refused_reported: u64,
    /// When a message last reported refused requests, in seconds of the run's clock.
    refused_reported_at_s: f64,
    /// Ended series beyond [`PRINTED_DOCUMENTS_MAX`].
    not_shown: u64,
}

impl Collector<'_> {
    fn receive(&mut self, incoming: &Receiver<Event>, interrupts: &Interrupts) -> Result<()> {
        let mut second = 0;
        loop {
            match incoming.recv_timeout(EVENT_TIMEOUT) {
                Ok(Event::Message(message)) => self.handle_message(*message),
                Ok(Event::Refused(peer, why)) => self.refuse(&peer, &why),
                Ok(Event::Note(text)) => self.display.note(&text),
                Ok(Event::Failed(why)) => bail!(why),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => bail!("the listening thread failed"),
            }
            let elapsed_s = self.clock.now().as_secs_f64();
            if elapsed_s as u64 != second {
                second = elapsed_s as u64;
                self.second_passed(elapsed_s);
            }
            let is_over = self.arguments.duration.is_some_and(|duration| elapsed_s >= duration.as_secs_f64());
            if is_over || interrupts.count() > 0 {
                return Ok(());
            }
        }
    }

    /// Handles the messages that were accepted before the end.
    fn drain(&mut self, incoming: &Receiver<Event>) {
        while let Ok(event) = incoming.try_recv() {
            if let Event::Message(message) = event {
                self.handle_message(*message);
            }
        }
    }

    fn handle_message(&mut self, message: Message) {
        let now_s = self.clock.now().as_secs_f64();
        let session = &message.head.session;
        if self.ended.contains(session) {
            self.sessions.end(session);
            return;
        }
        let at = match self.series.iter().position(|series| series.session() == session) {
            Some(at) => at,
            None => {
                let series = Series::begin(&message.head, self.arguments);
                if let Some(text) = series.storage_failure() {
                    self.display.note(&text);
                }
                if let Some(dir) = series.dir() {
                    self.page.show(dir);
                }
                self.series.push(series);
                self.series.len() - 1
            }
        };
        let series = &mut self.series[at];
        let has_new_seconds = series.handle_message(message, now_s);
        let view = Arc::new(series.view(now_s));
        if series.has_ended() {
            self.end_series(at);
        }
        if has_new_seconds {
            let views = self.views(now_s);
            self.display.show(&views, &[view]);
        }
    }

    fn second_passed(&mut self, now_s: f64) {
        while let Some(at) = self.series.iter().position(|series| series.is_abandoned(now_s)) {
            self.end_series(at);
        }
        for series in &mut self.series {
            if let Some(text) = series.second_passed() {
                self.display.note(&text);
            }
        }
        self.report_refused(now_s);
        let views = self.views(now_s);
        self.display.show(&views, &[]);
    }

    fn views(&self, now_s: f64) -> Vec<Arc<View>> {
        self.series.iter().map(|series| Arc::new(series.view(now_s))).collect()
    }

    fn end_series(&mut self, at: usize) {
        let series = self.series.remove(at);
        if self.ended.len() == ENDED_SESSIONS_MAX {
            self.ended.remove(0);
        }
        self.sessions.end(series.session());
        self.ended.push(series.session().to_owned());
        let (document, failure) = series.finish();
        let source = plain(&document.watch.source);
        self.display.note(&format!("the series of {source} has ended{}", stored_as(&document)));
        if let Some(failure) = failure {
            self.failure.get_or_insert(failure.context(source));
        }
        if self.documents.len() < PRINTED_DOCUMENTS_MAX {
            self.documents.push(document);
        } else {
            self.not_shown += 1;
        }
    }

    /// Counts a refused request and reports it, with at most one message a second.
    fn refuse(&mut self, peer: &str, why: &str) {
        self.refused += 1;
        let now_s = self.clock.now().as_secs_f64();
        if self.refused_reported == 0 || now_s - self.refused_reported_at_s >= 1.0 {
            (self.refused_reported, self.refused_reported_at_s) = (self.refused, now_s);
            self.display.note(&format!("refused {}: {} ({} refused in all)", plain(peer), plain(why), self.refused));
        }
    }

    /// Reports the refused requests that no message has reported yet.
    fn report_refused(&mut self, now_s: f64) {
        if self.refused > self.refused_reported && now_s - self.refused_reported_at_s >= 1.0 {
            let more = self.refused - self.refused_reported;
            (self.refused_reported, self.refused_reported_at_s) = (self.refused, now_s);
            self.display.note(&format!("refused {more} more ({} in all)", self.refused));
        }
    }
}

fn stored_as(document: &WatchDocument) -> String {
    if document.run.id.is_empty() { String::new() } else { format!(", stored as {}", document.run.id) }
}

/// The failure of a series whose sender disappeared.
fn sender_disappeared() -> anyhow::Error {
    anyhow!("its sender disappeared without ending the series")
}

/// Most events that wait: with messages of half a megabyte, 32 MB.
const EVENT_QUEUE_MAX: usize = 64;
/// Most series received concurrently.
const CONCURRENT_SERIES_MAX: usize = 64;
/// Most ended sessions that are remembered.
const ENDED_SESSIONS_MAX: usize = 256;
/// Most documents printed at the end.
const PRINTED_DOCUMENTS_MAX: usize = 256;
/// How long to wait for an event before the clock is checked.
const EVENT_TIMEOUT: Duration = Duration::from_millis(100);
