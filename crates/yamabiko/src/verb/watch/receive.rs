//! `--from`: receives the series that other hosts send, shows and keeps them.
//!
//! ```text
//!   senders --HTTP--> listening thread: token, bounds, parse --> events (bounded) --> here: one series a sender
//!                                                                                      view, Parquet, document
//! ```
//!
//! A series ends with its sender's word, or when its sender has not been heard of for longer than it would keep
//! trying. What was received is kept whatever happens.

mod http;
mod series;
mod sessions;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::Duration;

use anyhow::{Result, anyhow, bail};
use report::figures::plain;
use schema::WatchDocument;
use serde_json::json;
use sys::clock::Clock;
use sys::signal::Interrupts;

use super::face::Face;
use super::message::Message;
use super::view::View;
use crate::args;
use crate::exit::{self, Exit};
use crate::live_child::Live;
use crate::terminal;
use crate::token::Token;
use crate::verb::bench::print;
use http::{Event, Listener};
use series::Series;
use sessions::Sessions;

/// Receives until the duration is over or Ctrl-C.
pub fn run(arguments: &args::Watch, address: SocketAddr, interrupts: &Interrupts, page: &Live) -> Result<Exit> {
    let token = Token::find(arguments.token_file.as_deref())?;
    if token.is_none() && !address.ip().is_loopback() {
        bail!("{address} is reachable from other hosts, which needs a token (--token-file, or YAMABIKO_TOKEN)");
    }
    let (events, incoming) = sync_channel(EVENTS);
    let guard = if token.is_some() { "with the token" } else { "from this host, without a token" };
    let sessions = Sessions::new(SERIES);
    let listener = Listener::start(address, token, events, sessions.clone())?;
    let address = listener.address();
    let waiting = format!("listening on {address} for `watch --to http://{address}` {guard} (Ctrl-C ends it)");
    let mut room = Room {
        arguments,
        page,
        clock: Clock::start(),
        face: Face::open(arguments.json, arguments.plain, waiting),
        series: Vec::new(),
        sessions,
        ended: Vec::new(),
        documents: Vec::new(),
        failure: None,
        refused: 0,
        told: 0,
        told_at: 0.0,
        left_out: 0,
    };
    let outcome = room.receive(&incoming, interrupts);
    // Whoever is turned away from here on comes again elsewhere, or says that it was. What was taken is kept.
    drop(listener);
    room.drain(&incoming);
    while !room.series.is_empty() {
        room.end(0);
    }
    let Room { face, documents, left_out, failure, .. } = room;
    face.close();
    show(&documents, arguments.json)?;
    if left_out > 0 {
        terminal::say(format_args!("{left_out} more series are stored, not shown"));
    }
    outcome?;
    if let Some(failure) = failure {
        return Err(failure.context("the figures are complete, the files are not"));
    }
    let mut exits = documents.iter().map(|document| exit::of_validity(&document.validity));
    Ok(exits.find(|exit| *exit != Exit::Success).unwrap_or(Exit::Success))
}

fn show(documents: &[WatchDocument], json: bool) -> Result<()> {
    if json {
        let document = json!({ "schema": schema::document::SCHEMA, "watches": documents });
        return print(&(serde_json::to_string_pretty(&document)? + "\n"));
    }
    documents.iter().try_for_each(|document| super::show(document, false))
}

/// The series at hand, and what is seen of them.
struct Room<'a> {
    arguments: &'a args::Watch,
    /// Where the series that came last is seen, too.
    page: &'a Live,
    clock: Clock,
    face: Face,
    series: Vec<Series>,
    /// Which of them hold a place.
    sessions: Sessions,
    /// Sessions that ended: their last message may come again.
    ended: Vec<String>,
    documents: Vec<WatchDocument>,
    /// The first that something could not be kept with.
    failure: Option<anyhow::Error>,
    refused: u64,
    /// Of them, told; and when.
    told: u64,
    told_at: f64,
    left_out: u64,
}

impl Room<'_> {
    fn receive(&mut self, incoming: &Receiver<Event>, interrupts: &Interrupts) -> Result<()> {
        let mut second = 0;
        loop {
            match incoming.recv_timeout(TURN) {
                Ok(Event::Message(message)) => self.take(*message),
                Ok(Event::Refused(peer, why)) => self.refuse(peer, &why),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => bail!("the listening thread failed"),
            }
            let elapsed_s = self.clock.now().as_secs_f64();
            if elapsed_s as u64 != second {
                second = elapsed_s as u64;
                self.second_passed(elapsed_s);
            }
            let over = self.arguments.duration.is_some_and(|duration| elapsed_s >= duration.as_secs_f64());
            if over || interrupts.count() > 0 {
                return Ok(());
            }
        }
    }

    /// What had been taken when the end came.
    fn drain(&mut self, incoming: &Receiver<Event>) {
        while let Ok(event) = incoming.try_recv() {
            if let Event::Message(message) = event {
                self.take(*message);
            }
        }
    }

    fn take(&mut self, message: Message) {
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
                if let Some(text) = series.trouble() {
                    self.face.note(&text);
                }
                if let Some(dir) = series.dir() {
                    self.page.show(dir);
                }
                self.series.push(series);
                self.series.len() - 1
            }
        };
        let series = &mut self.series[at];
        let is_fresh = series.take(message, now_s);
        let view = Arc::new(series.view(now_s));
        if series.has_ended() {
            self.end(at);
        }
        if is_fresh {
            let views = self.views(now_s);
            self.face.show(&views, &[view]);
        }
    }

    fn second_passed(&mut self, now_s: f64) {
        while let Some(at) = self.series.iter().position(|series| series.is_given_up(now_s)) {
            self.end(at);
        }
        for series in &mut self.series {
            if let Some(text) = series.second_passed() {
                self.face.note(&text);
            }
        }
        self.tell_refused(now_s);
        let views = self.views(now_s);
        self.face.show(&views, &[]);
    }

    fn views(&self, now_s: f64) -> Vec<Arc<View>> {
        self.series.iter().map(|series| Arc::new(series.view(now_s))).collect()
    }

    fn end(&mut self, at: usize) {
        let series = self.series.remove(at);
        if self.ended.len() == ENDED {
            self.ended.remove(0);
        }
        self.sessions.end(series.session());
        self.ended.push(series.session().to_owned());
        let (document, failure) = series.finish();
        let source = plain(&document.watch.source);
        self.face.note(&format!("the series of {source} has ended{}", kept(&document)));
        if let Some(failure) = failure {
            self.failure.get_or_insert(failure.context(source));
        }
        if self.documents.len() < DOCUMENTS {
            self.documents.push(document);
        } else {
            self.left_out += 1;
        }
    }

    /// At most one line a second, however many knock.
    fn refuse(&mut self, peer: SocketAddr, why: &str) {
        self.refused += 1;
        let now_s = self.clock.now().as_secs_f64();
        if self.told == 0 || now_s - self.told_at >= 1.0 {
            (self.told, self.told_at) = (self.refused, now_s);
            self.face.note(&format!("refused {peer}: {} ({} refused in all)", plain(why), self.refused));
        }
    }

    /// Those that were not told when they came.
    fn tell_refused(&mut self, now_s: f64) {
        if self.refused > self.told && now_s - self.told_at >= 1.0 {
            let more = self.refused - self.told;
            (self.told, self.told_at) = (self.refused, now_s);
            self.face.note(&format!("refused {more} more ({} in all)", self.refused));
        }
    }
}

fn kept(document: &WatchDocument) -> String {
    if document.run.id.is_empty() { String::new() } else { format!(", stored as {}", document.run.id) }
}

/// What an ending says of a sender that went away.
fn silent() -> anyhow::Error {
    anyhow!("its sender disappeared without ending the series")
}

/// Events that wait, at most: with messages of half a megabyte, 32 MB.
const EVENTS: usize = 64;
/// Series at once.
const SERIES: usize = 64;
/// Sessions remembered after their end.
const ENDED: usize = 256;
/// Documents printed at the end.
const DOCUMENTS: usize = 256;
const TURN: Duration = Duration::from_millis(100);
