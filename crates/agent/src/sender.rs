//! The sender: sends the oldest batch to the manager until it is stored, then the next. One request at a time.
//!
//! ```text
//!   hello ─▶ the manager's position in the stream ─▶ batch, batch, batch ..      failure: a pause, and hello again
//! ```
//!
//! After a lost response the batch is sent again, and the manager responds that it has the number.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use crate::clock::{ClockOffset, Time};
use crate::disk::Disk;
use crate::link::{Accepted, Greeting, Link, RequestError, StreamPosition};
use crate::selection;
use crate::shared_status::{Connection, SharedStatus};
use crate::spool::{PendingBatch, Spool, StreamFit, random};
use tap_protocol::{Hello, Refusal, RefusalReason, Settings};

/// Identity of the agent and its machine.
#[derive(Clone, Debug)]
pub(crate) struct AgentIdentity {
    pub boot: String,
    pub host: String,
    pub kernel: String,
    pub version: String,
}

/// Sends batches and receives settings.
pub(crate) struct Sender<L, T> {
    link: L,
    time: T,
    spool: Arc<Spool>,
    shared: Arc<SharedStatus>,
    disk: Disk,
    offset: ClockOffset,
    identity: AgentIdentity,
    /// Whether the manager has reported its position in the stream, with no failure since.
    is_synchronized: bool,
    /// The next pause after a failure.
    pause: Duration,
    /// A batch rejected once as invalid, which is retried: one of the two clocks may have been set at that time.
    retried_as_invalid: Option<u64>,
    /// A batch that the manager rejected even without rows: it is sent with counts only.
    counts_only: Option<u64>,
    /// Version of invalid settings that were already reported.
    rejected_settings: u64,
}

/// The next step of the sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NextStep {
    /// Continue immediately.
    Continue,
    /// Wait for a batch.
    WaitForBatch,
    /// Wait for this time.
    Pause(Duration),
}

impl<L: Link, T: Time> Sender<L, T> {
    /// A sender that has not contacted the manager yet.
    pub fn new(
        link: L,
        time: T,
        spool: Arc<Spool>,
        shared: Arc<SharedStatus>,
        disk: Disk,
        identity: AgentIdentity,
    ) -> Self {
        let offset = ClockOffset::open(&disk, &identity.boot);
        let pause = PAUSE_MIN;
        Sender {
            link,
            time,
            spool,
            shared,
            disk,
            offset,
            identity,
            is_synchronized: false,
            pause,
            retried_as_invalid: None,
            counts_only: None,
            rejected_settings: 0,
        }
    }

    /// Sends until the agent ends, and then the waiting batches while there is no failure.
    pub fn run(mut self) {
        let mut continues = true;
        loop {
            continues = match self.step() {
                NextStep::Continue => continues,
                NextStep::WaitForBatch if continues => self.spool.wait_for_batch(POLL_INTERVAL),
                // When the agent ends, one more attempt follows without the rest of the pause.
                NextStep::Pause(pause) if continues => self.spool.pause(pause),
                NextStep::WaitForBatch | NextStep::Pause(_) => return,
            };
        }
    }

    /// Sends one request.
    pub fn step(&mut self) -> NextStep {
        let outcome = if self.is_synchronized { self.batch() } else { self.hello() };
        outcome.unwrap_or_else(|error| {
            self.shared.trouble("the spool", &error.to_string());
            NextStep::Pause(PAUSE_DISK)
        })
    }

    fn hello(&mut self) -> io::Result<NextStep> {
        let now = self.time.now();
        let hello = Hello {
            stream: self.spool.stream().id,
            boot: self.identity.boot.clone(),
            host: self.identity.host.clone(),
            version: self.identity.version.clone(),
            kernel: self.identity.kernel.clone(),
            spool: self.spool.usage(),
            now_ns: now.at_ns,
            zero_own_unix_ns: now.zero_own_unix_ns,
            settings: self.shared.settings_version(),
        };
        let sent = self.time.boot_ns();
        match self.link.hello(&hello) {
            Ok(Greeting { position, settings, times }) => {
                self.update_clock(sent, times);
                match position {
                    StreamPosition::Through(through) => self.resume_after(through)?,
                    StreamPosition::AtLeast(through) => self.report(self.spool.resume_in_log(through)?),
                }
                self.apply_settings(settings);
                self.is_synchronized = true;
                self.shared.connected();
                Ok(NextStep::Continue)
            }
            Err(error) => Ok(self.trouble(error)),
        }
    }

    fn batch(&mut self) -> io::Result<NextStep> {
        let counts_only = self.counts_only;
        let Some(first) = self.spool.oldest(false)? else { return Ok(NextStep::WaitForBatch) };
        let waiting = match counts_only {
            Some(number) if number == first.number => self.spool.oldest(true)?.unwrap_or(first),
            _ => first,
        };
        let zero = self.offset.zero(&waiting.boot, &waiting.clock);
        let sent = self.time.boot_ns();
        match self.link.batch(&waiting, zero) {
            Ok(Accepted { settings, times }) => {
                self.update_clock(sent, times);
                self.spool.stored(waiting.number)?;
                self.shared.stored(waiting.rows);
                self.apply_settings(settings);
                self.pause = PAUSE_MIN;
                Ok(NextStep::Continue)
            }
            Err(RequestError::Refused(refusal, after)) => self.refused(&waiting, refusal, after),
            Err(error) => Ok(self.trouble(error)),
        }
    }

    fn refused(&mut self, waiting: &PendingBatch, refusal: Refusal, after: Option<Duration>) -> io::Result<NextStep> {
        match refusal.error {
            // A batch truncated meanwhile differs from what the manager may have received before.
            RefusalReason::Conflict if !waiting.is_truncated => {
                self.report_new_stream(self.spool.start_separate_stream()?);
                Ok(NextStep::Continue)
            }
            RefusalReason::AlreadyStored | RefusalReason::Conflict => {
                // An earlier attempt arrived after the manager had reported its position.
                self.shared.stored(waiting.rows);
                match refusal.stored_through.filter(|through| *through >= waiting.sequence) {
                    Some(through) => self.resume_after(through)?,
                    None => self.spool.stored(waiting.number)?,
                }
                Ok(NextStep::Continue)
            }
            RefusalReason::SequenceGap
                if refusal.stored_through.is_some_and(|through| through + 1 != waiting.sequence) =>
            {
                self.resume_after(refusal.stored_through.unwrap_or_default())?;
                Ok(NextStep::Continue)
            }
            RefusalReason::InvalidValue if self.retried_as_invalid != Some(waiting.number) => {
                self.retried_as_invalid = Some(waiting.number);
                self.is_synchronized = false;
                Ok(NextStep::Continue)
            }
            RefusalReason::Malformed | RefusalReason::InvalidValue | RefusalReason::TooLarge
                if !waiting.is_truncated =>
            {
                self.spool.set_aside(waiting.number)?;
                let folder = self.spool.refused().display().to_string();
                self.shared.print(&format!(
                    "the manager rejects a batch of {} rows ({}): stored in {folder}, and its rows are counted as \
                     dropped",
                    waiting.rows, refusal.message,
                ));
                Ok(NextStep::Continue)
            }
            RefusalReason::Malformed | RefusalReason::InvalidValue | RefusalReason::TooLarge
                if self.counts_only != Some(waiting.number) =>
            {
                self.counts_only = Some(waiting.number);
                Ok(NextStep::Continue)
            }
            _ => Ok(self.trouble(RequestError::Refused(refusal, after))),
        }
    }

    /// Reports the failure once; returns the pause before the next attempt.
    fn trouble(&mut self, error: RequestError) -> NextStep {
        self.is_synchronized = false;
        match error {
            RequestError::Unreachable(why, after) => {
                self.shared.lost(Connection::Away, &why);
                self.next_pause(after)
            }
            RequestError::NotAManager(why) => {
                self.shared.lost(Connection::NotAManager, &why);
                NextStep::Pause(REFUSED_PAUSE)
            }
            RequestError::Refused(Refusal { error, message, .. }, after) => match error {
                RefusalReason::TooManyRequests
                | RefusalReason::Unavailable
                | RefusalReason::SequenceGap
                | RefusalReason::AlreadyStored
                | RefusalReason::Conflict => {
                    self.shared.lost(Connection::Away, &message);
                    self.next_pause(after)
                }
                RefusalReason::Unauthenticated | RefusalReason::Forbidden => {
                    self.shared
                        .lost(Connection::Refused, &format!("{message} (token: --token FILE, read again each minute)"));
                    if let Err(why) = self.link.renew() {
                        self.shared.trouble("the token", &why);
                    }
                    NextStep::Pause(REFUSED_PAUSE)
                }
                RefusalReason::NotFound | RefusalReason::MethodNotAllowed | RefusalReason::UnsupportedMediaType => {
                    let why = format!("{message}; is --manager the address of the manager?");
                    self.shared.lost(Connection::NotAManager, &why);
                    NextStep::Pause(REFUSED_PAUSE)
                }
                RefusalReason::Malformed | RefusalReason::InvalidValue | RefusalReason::TooLarge => {
                    let why = format!("{message}; does the manager have the same version as this agent?");
                    self.shared.lost(Connection::Refused, &why);
                    NextStep::Pause(REFUSED_PAUSE)
                }
            },
        }
    }

    /// The next pause: doubled after each failure and random, so that agents do not return to a manager together.
    fn next_pause(&mut self, after: Option<Duration>) -> NextStep {
        let pause = after.map_or(self.pause, |after| after.clamp(PAUSE_MIN, REFUSED_PAUSE));
        self.pause = (self.pause * 2).min(PAUSE_MAX);
        // Without random bytes all agents wait for the same time.
        let share = random::<1>().map_or(1.0, |[byte]| 0.5 + f64::from(byte) / 510.0);
        NextStep::Pause(pause.mul_f64(share))
    }

    fn resume_after(&mut self, stored_through: u64) -> io::Result<()> {
        self.report(self.spool.resume_after(stored_through)?);
        Ok(())
    }

    fn report(&self, fit: StreamFit) {
        match fit {
            StreamFit::Continues => {}
            StreamFit::ManagerBehind => self.shared.print(
                "the manager lacks batches that were sent and are no longer in the spool (another manager, or an older \
                 copy of its data): a new stream starts",
            ),
            StreamFit::ManagerAhead(rows) => self.report_new_stream(rows),
        }
    }

    fn report_new_stream(&self, rows: u64) {
        self.shared.print(&format!(
            "the receiver has batches of this stream that this agent did not send (a copy of the data directory is in \
             use, or this one is an older state): a new stream starts, and {rows} rows that it may already \
             have are counted as dropped",
        ));
    }

    fn apply_settings(&mut self, settings: Option<Settings>) {
        let Some(settings) = settings else { return };
        if settings.version == self.rejected_settings {
            return;
        }
        match selection::check(&settings) {
            Ok(()) => self.shared.set_pending_settings(settings),
            Err(why) => {
                self.rejected_settings = settings.version;
                self.shared.print(&format!("the manager's settings are not applied: {why}"));
            }
        }
    }

    fn update_clock(&mut self, sent: i64, times: Option<(u64, u64)>) {
        let Some((received, answered)) = times else { return };
        self.offset.add_response(sent, self.time.boot_ns(), received, answered);
        // The estimate is saved for rows that wait over a reboot. After an error the next response saves it again.
        let _ = self.offset.save(&self.disk);
        let now = self.time.now();
        self.shared.clock(self.offset.zero(&self.identity.boot, &now), &now);
    }
}

/// Pause after the first failure, and its maximum while the manager is unreachable.
const PAUSE_MIN: Duration = Duration::from_millis(500);
const PAUSE_MAX: Duration = Duration::from_secs(30);
/// Pause after a failure that the operator must fix.
const REFUSED_PAUSE: Duration = Duration::from_secs(60);
/// Pause if the spool cannot be read.
const PAUSE_DISK: Duration = Duration::from_secs(5);
/// Maximum wait for a batch, which wakes the sender; the interval covers the case that no batch is sealed.
const POLL_INTERVAL: Duration = Duration::from_secs(60);
