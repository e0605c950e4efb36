//! The two threads of alerts: one judges and writes the log, one tells the webhook. Nobody else waits for them.

use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use sys::clock::realtime_ns;
use web::post::Post;

use super::book::{judge, keep};
use super::events::read;
use super::log_file::{BYTES_MAX, LogFile};
use super::signal::Signal;
use super::values::Moment;
use super::webhook::{self, Told};
use crate::data::Data;
use crate::error::{Error, Result};
use crate::notes::Notes;

/// Judges rules as long as it is there.
pub struct Keeper {
    signal: Arc<Signal>,
    threads: Vec<JoinHandle<()>>,
}

impl Keeper {
    /// Begins. Without a webhook the log alone is written.
    ///
    /// # Errors
    /// No thread can be had.
    pub fn start(data: Arc<Data>, notes: Notes, webhook: Option<Post>) -> Result<Keeper> {
        let signal = Arc::new(Signal::default());
        let mut keeper = Keeper { signal: signal.clone(), threads: Vec::new() };
        let judging = Judging {
            log: LogFile::new(data.folder(), BYTES_MAX),
            data: data.clone(),
            notes: notes.clone(),
            signal: signal.clone(),
            has_webhook: webhook.is_some(),
            listens_since_ns: realtime_ns(),
        };
        keeper.spawn("alerts", move || judging.run())?;
        if let Some(post) = webhook {
            keeper.spawn("webhook", move || tell_all(&data, &notes, &signal, &post))?;
        }
        Ok(keeper)
    }

    fn spawn(&mut self, name: &'static str, run: impl FnOnce() + Send + 'static) -> Result<()> {
        let thread = thread::Builder::new().name(name.to_owned()).spawn(run).map_err(|_| Error::Thread(name))?;
        self.threads.push(thread);
        Ok(())
    }

    /// Ends both threads; a message that is under way is waited for, which takes its timeout at most. What was not told will be the next
    /// time.
    pub fn stop(&mut self) {
        self.signal.end();
        for thread in self.threads.drain(..) {
            // One that broke has said so on stderr.
            let _ = thread.join();
        }
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.stop();
    }
}

/// The thread that judges.
pub(super) struct Judging {
    pub(super) data: Arc<Data>,
    pub(super) notes: Notes,
    pub(super) signal: Arc<Signal>,
    pub(super) log: LogFile,
    pub(super) has_webhook: bool,
    pub(super) listens_since_ns: u64,
}

impl Judging {
    fn run(self) {
        let mut trouble = None;
        loop {
            let outcome = self.turn(realtime_ns());
            let said = outcome.err().map(|error| error.to_string());
            if said != trouble {
                if let Some(said) = &said {
                    self.notes.trouble(&format!("alerts: {said}"));
                }
                trouble = said;
            }
            if self.signal.wait(TURN, None) {
                return;
            }
        }
    }

    /// Judges the last minute that is settled, if it was not judged yet, and writes what is not in the log.
    pub(super) fn turn(&self, now_ns: u64) -> Result<()> {
        let end_s = (now_ns / 1_000_000_000).saturating_sub(SETTLE_S) / 60 * 60;
        let moment = Moment { end_s, now_ns, listens_since_ns: self.listens_since_ns };
        let judged = self.data.read(|index| judge(index, moment))?;
        if !judged.is_empty() {
            let happened = self.data.change(|change| keep(change, &judged))?;
            if happened {
                self.signal.happened();
            }
        }
        self.write_log()
    }

    fn write_log(&self) -> Result<()> {
        loop {
            let events = self.data.read(|index| read(index, "logged = 0 AND id > ?1 ORDER BY id", 0, LINES_AT_ONCE))?;
            let (Some(first), Some(last)) = (events.first(), events.last()) else { return Ok(()) };
            let (first, last) = (first.number, last.number);
            self.log.append(&events)?;
            self.data.change(|change| -> rusqlite::Result<()> {
                change.execute("UPDATE alert_log SET logged = 1 WHERE id >= ?1 AND id <= ?2", [first, last])?;
                if !self.has_webhook {
                    change.execute("UPDATE alert_log SET told = 2 WHERE told = 0 AND id <= ?1", [last])?;
                }
                change.execute(
                    "DELETE FROM alert_log WHERE id <= ?1 AND told > 0 AND logged = 1",
                    [last - EVENTS_KEPT],
                )?;
                Ok(())
            })?;
        }
    }
}

/// The thread that tells: the oldest first, each until it is taken or given up.
fn tell_all(data: &Data, notes: &Notes, signal: &Signal, post: &Post) {
    let mut said: Option<String> = None;
    let mut pause = (Duration::ZERO, None);
    while !signal.wait(pause.0, pause.1) {
        pause = (Duration::ZERO, None);
        let seen = signal.seen();
        match tell_one(data, post, realtime_ns() / 1_000_000_000) {
            Ok(None) => pause = (IDLE, Some(seen)),
            Ok(Some(Told::Taken)) => {
                if said.take().is_some() {
                    notes.trouble(&format!("webhook {}: takes events again", post.shown()));
                }
            }
            Ok(Some(Told::GivenUp(why))) => {
                notes.trouble(&format!("webhook {}: an event was given up: {why}", post.shown()));
            }
            Ok(Some(Told::Again(wanted, why))) => {
                // Once, not with each try.
                if said.as_ref() != Some(&why) {
                    notes.trouble(&format!("webhook {}: {why}; events wait and are tried again", post.shown()));
                    said = Some(why);
                }
                pause = (wanted, None);
            }
            Err(error) => {
                notes.trouble(&format!("webhook: {error}"));
                pause = (IDLE, None);
            }
        }
    }
}

/// Tells the oldest event that waits, once; `None`: none waits.
pub(super) fn tell_one(data: &Data, post: &Post, now_s: u64) -> Result<Option<Told>> {
    let Some((event, tries)) = data.read(webhook::next)? else { return Ok(None) };
    let age_s = now_s.saturating_sub(event.at_s);
    let told = webhook::tell(post, &event, tries, age_s);
    data.change(|change| -> rusqlite::Result<()> {
        webhook::keep(change, event.number, &told)?;
        webhook::bound(change)?;
        Ok(())
    })?;
    Ok(Some(told))
}

/// Between two looks whether a minute is settled.
const TURN: Duration = Duration::from_secs(2);
/// Between two looks for events where nobody said that there are any: those of rules that were changed or removed.
const IDLE: Duration = Duration::from_secs(2);
/// A minute is judged so long after its end: agents send each second, and rows are placed some seconds later.
const SETTLE_S: u64 = 30;
/// Events written to the log at once.
const LINES_AT_ONCE: usize = 500;
/// Events kept in the index once all have them.
const EVENTS_KEPT: i64 = 10_000;
