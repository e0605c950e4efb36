//! The two threads of alerts: one evaluates rules and writes the log, one delivers to the webhook. No other thread
//! waits for them.

use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use sys::clock::realtime_ns;
use web::post::Post;

use super::events::read;
use super::log_file::{BYTES_MAX, LogFile};
use super::rule_store::{evaluate, store_evaluated};
use super::signal::Signal;
use super::values::EvaluationTime;
use super::webhook::{self, Delivery};
use crate::data::Data;
use crate::error::{Error, Result};
use crate::notes::Notes;

/// Runs both threads until it is dropped.
pub struct AlertThreads {
    signal: Arc<Signal>,
    threads: Vec<JoinHandle<()>>,
}

impl AlertThreads {
    /// Starts the threads. Without a webhook only the log is written.
    ///
    /// # Errors
    /// No thread could be started.
    pub fn start(data: Arc<Data>, notes: Notes, webhook: Option<Post>) -> Result<AlertThreads> {
        let signal = Arc::new(Signal::default());
        let mut threads = AlertThreads { signal: signal.clone(), threads: Vec::new() };
        let evaluator = Evaluator {
            log: LogFile::new(data.folder(), BYTES_MAX),
            data: data.clone(),
            notes: notes.clone(),
            signal: signal.clone(),
            has_webhook: webhook.is_some(),
            started_ns: realtime_ns(),
        };
        threads.spawn("alerts", move || evaluator.run())?;
        if let Some(post) = webhook {
            threads.spawn("webhook", move || deliver_all(&data, &notes, &signal, &post))?;
        }
        Ok(threads)
    }

    fn spawn(&mut self, name: &'static str, run: impl FnOnce() + Send + 'static) -> Result<()> {
        let thread = thread::Builder::new().name(name.to_owned()).spawn(run).map_err(|_| Error::Thread(name))?;
        self.threads.push(thread);
        Ok(())
    }

    /// Ends both threads. Waits for a delivery in progress, at most its timeout. Undelivered events stay for the next
    /// start.
    pub fn stop(&mut self) {
        self.signal.end();
        for thread in self.threads.drain(..) {
            // A panicked thread has printed its message to stderr.
            let _ = thread.join();
        }
    }
}

impl Drop for AlertThreads {
    fn drop(&mut self) {
        self.stop();
    }
}

/// The evaluating thread.
pub(super) struct Evaluator {
    pub(super) data: Arc<Data>,
    pub(super) notes: Notes,
    pub(super) signal: Arc<Signal>,
    pub(super) log: LogFile,
    pub(super) has_webhook: bool,
    pub(super) started_ns: u64,
}

impl Evaluator {
    fn run(self) {
        let mut trouble = None;
        loop {
            let outcome = self.evaluate_once(realtime_ns());
            let error = outcome.err().map(|error| error.to_string());
            if error != trouble {
                if let Some(error) = &error {
                    self.notes.trouble(&format!("alerts: {error}"));
                }
                trouble = error;
            }
            if self.signal.wait(CHECK_INTERVAL, None) {
                return;
            }
        }
    }

    /// Evaluates the last settled minute, if not done yet, and writes new events to the log.
    pub(super) fn evaluate_once(&self, now_ns: u64) -> Result<()> {
        let end_s = (now_ns / 1_000_000_000).saturating_sub(SETTLE_TIME_S) / 60 * 60;
        let time = EvaluationTime { end_s, now_ns, started_ns: self.started_ns };
        let evaluated = self.data.read(|index| evaluate(index, time))?;
        if !evaluated.is_empty() {
            let has_events = self.data.change(|change| store_evaluated(change, &evaluated))?;
            if has_events {
                self.signal.notify();
            }
        }
        self.write_log()
    }

    fn write_log(&self) -> Result<()> {
        loop {
            let events =
                self.data.read(|index| read(index, "logged = 0 AND id > ?1 ORDER BY id", 0, LINES_PER_WRITE))?;
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
                    [last - EVENTS_STORED_MAX],
                )?;
                Ok(())
            })?;
        }
    }
}

/// The delivering thread: the oldest event first, each until it is accepted or abandoned.
fn deliver_all(data: &Data, notes: &Notes, signal: &Signal, post: &Post) {
    let mut last_error: Option<String> = None;
    let mut pause = (Duration::ZERO, None);
    while !signal.wait(pause.0, pause.1) {
        pause = (Duration::ZERO, None);
        let seen = signal.seen();
        match deliver_one(data, post, realtime_ns() / 1_000_000_000) {
            Ok(None) => pause = (IDLE_INTERVAL, Some(seen)),
            Ok(Some(Delivery::Accepted)) => {
                if last_error.take().is_some() {
                    notes.trouble(&format!("webhook {}: accepts events again", post.display_url()));
                }
            }
            Ok(Some(Delivery::Abandoned(why))) => {
                notes.trouble(&format!("webhook {}: an event was abandoned: {why}", post.display_url()));
            }
            Ok(Some(Delivery::Retry(retry_after, why))) => {
                // Printed once, not with each attempt.
                if last_error.as_ref() != Some(&why) {
                    notes.trouble(&format!("webhook {}: {why}; events wait and are retried", post.display_url()));
                    last_error = Some(why);
                }
                pause = (retry_after, None);
            }
            Err(error) => {
                notes.trouble(&format!("webhook: {error}"));
                pause = (IDLE_INTERVAL, None);
            }
        }
    }
}

/// Delivers the oldest waiting event once; `None`: no event waits.
pub(super) fn deliver_one(data: &Data, post: &Post, now_s: u64) -> Result<Option<Delivery>> {
    let Some((event, tries)) = data.read(webhook::next)? else { return Ok(None) };
    let age_s = now_s.saturating_sub(event.at_s);
    let delivery = webhook::deliver(post, &event, tries, age_s);
    data.change(|change| -> rusqlite::Result<()> {
        webhook::store_result(change, event.number, &delivery)?;
        webhook::bound(change)?;
        Ok(())
    })?;
    Ok(Some(delivery))
}

/// Interval between two checks whether a minute is settled.
const CHECK_INTERVAL: Duration = Duration::from_secs(2);
/// Interval between two checks for events without a signal: those of changed or removed rules.
const IDLE_INTERVAL: Duration = Duration::from_secs(2);
/// Time after the end of a minute at which it is evaluated: agents send each second, and rows reach their files some
/// seconds later.
const SETTLE_TIME_S: u64 = 30;
/// Maximum number of events written to the log in one step.
const LINES_PER_WRITE: usize = 500;
/// Events stored in the index after delivery.
const EVENTS_STORED_MAX: i64 = 10_000;
