//! The sender: sends the oldest batch to the manager until it is stored, then the next. One request at a time.
//!
//! ```text
//!   hello ─▶ where the manager is in the stream ─▶ batch, batch, batch ..      trouble: a pause, and hello again
//! ```
//!
//! After a lost response the batch is sent again, and the manager responds that it has the number.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use crate::clock::{Offset, Time};
use crate::disk::Disk;
use crate::link::{Link, RequestError};
use crate::selection;
use crate::shared_status::{Connection, SharedStatus};
use crate::spool::{Spool, StreamFit, Waiting, random};
use tap_protocol::{Hello, Refusal, Settings, Stored, Welcome, Why};

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
    offset: Offset,
    own: AgentIdentity,
    /// Whether the manager has reported its position in the stream, with no failure since.
    is_known: bool,
    /// The next pause after a failure.
    pause: Duration,
    /// A batch rejected once as invalid: one of the two clocks may have been set at that time.
    doubted: Option<u64>,
    /// A batch of which the manager rejected even the head.
    bare: Option<u64>,
    /// Version of invalid settings that were already reported.
    no_good: u64,
}

/// The next step of the sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// Continue immediately.
    Step,
    /// Wait for a batch.
    Batch,
    /// Wait for this time.
    Pause(Duration),
}

impl<L: Link, T: Time> Sender<L, T> {
    /// A sender that has not contacted the manager yet.
    pub fn new(link: L, time: T, spool: Arc<Spool>, shared: Arc<SharedStatus>, disk: Disk, own: AgentIdentity) -> Self {
        let offset = Offset::open(&disk, &own.boot);
        let pause = PAUSE_MIN;
        Sender {
            link,
            time,
            spool,
            shared,
            disk,
            offset,
            own,
            is_known: false,
            pause,
            doubted: None,
            bare: None,
            no_good: 0,
        }
    }

    /// Sends until the agent ends, and then the waiting batches while there is no failure.
    pub fn run(mut self) {
        let mut goes_on = true;
        loop {
            goes_on = match self.step() {
                Next::Step => goes_on,
                Next::Batch if goes_on => self.spool.wait_for_batch(POLL_INTERVAL),
                // At the end one more attempt, without the rest of the pause.
                Next::Pause(pause) if goes_on => self.spool.pause(pause),
                Next::Batch | Next::Pause(_) => return,
            };
        }
    }

    /// Sends one request.
    pub fn step(&mut self) -> Next {
        let outcome = if self.is_known { self.batch() } else { self.hello() };
        outcome.unwrap_or_else(|error| {
            self.shared.trouble("the spool", &error.to_string());
            Next::Pause(PAUSE_DISK)
        })
    }

    fn hello(&mut self) -> io::Result<Next> {
        let now = self.time.now();
        let hello = Hello {
            stream: self.spool.stream().id,
            boot: self.own.boot.clone(),
            host: self.own.host.clone(),
            version: self.own.version.clone(),
            kernel: self.own.kernel.clone(),
            spool: self.spool.usage(),
            now_ns: now.at_ns,
            zero_own_unix_ns: now.zero_own_unix_ns,
            settings: self.shared.settings_version(),
        };
        let sent = self.time.boot_ns();
        match self.link.hello(&hello) {
            Ok(Welcome { stored_through, settings, received_unix_ns, answered_unix_ns }) => {
                self.heard(sent, received_unix_ns, answered_unix_ns);
                self.resume_after(stored_through)?;
                self.apply_settings(Some(settings));
                self.is_known = true;
                self.shared.connected();
                Ok(Next::Step)
            }
            Err(unheard) => Ok(self.trouble(unheard)),
        }
    }

    fn batch(&mut self) -> io::Result<Next> {
        let bare = self.bare;
        let Some(first) = self.spool.oldest(false)? else { return Ok(Next::Batch) };
        let waiting = match bare {
            Some(number) if number == first.number => self.spool.oldest(true)?.unwrap_or(first),
            _ => first,
        };
        let zero = self.offset.zero(&waiting.boot, &waiting.moment);
        let sent = self.time.boot_ns();
        match self.link.batch(&waiting.body, zero) {
            Ok(Stored { settings, received_unix_ns, answered_unix_ns, .. }) => {
                self.heard(sent, received_unix_ns, answered_unix_ns);
                self.spool.stored(waiting.number)?;
                self.shared.stored(waiting.rows);
                self.apply_settings(settings);
                self.pause = PAUSE_MIN;
                Ok(Next::Step)
            }
            Err(RequestError::Refused(refusal, after)) => self.refused(&waiting, refusal, after),
            Err(unheard) => Ok(self.trouble(unheard)),
        }
    }

    fn refused(&mut self, waiting: &Waiting, refusal: Refusal, after: Option<Duration>) -> io::Result<Next> {
        match refusal.error {
            // A batch truncated meanwhile differs from what the manager may have received before.
            Why::Conflict if !waiting.is_cut => {
                self.ahead(self.spool.start_separate_stream()?);
                Ok(Next::Step)
            }
            Why::AlreadyStored | Why::Conflict => {
                // An earlier attempt was still on its way when the manager reported its position.
                self.shared.stored(waiting.rows);
                match refusal.stored_through.filter(|through| *through >= waiting.sequence) {
                    Some(through) => self.resume_after(through)?,
                    None => self.spool.stored(waiting.number)?,
                }
                Ok(Next::Step)
            }
            Why::SequenceGap if refusal.stored_through.is_some_and(|through| through + 1 != waiting.sequence) => {
                self.resume_after(refusal.stored_through.unwrap_or_default())?;
                Ok(Next::Step)
            }
            Why::InvalidValue if self.doubted != Some(waiting.number) => {
                self.doubted = Some(waiting.number);
                self.is_known = false;
                Ok(Next::Step)
            }
            Why::Malformed | Why::InvalidValue | Why::TooLarge if !waiting.is_cut => {
                self.spool.set_aside(waiting.number)?;
                let folder = self.spool.refused().display().to_string();
                self.shared.say(&format!(
                    "the manager rejects a batch of {} rows ({}): stored in {folder}, and its rows are counted as \
                     dropped",
                    waiting.rows, refusal.message,
                ));
                Ok(Next::Step)
            }
            Why::Malformed | Why::InvalidValue | Why::TooLarge if self.bare != Some(waiting.number) => {
                self.bare = Some(waiting.number);
                Ok(Next::Step)
            }
            _ => Ok(self.trouble(RequestError::Refused(refusal, after))),
        }
    }

    /// Reports the failure once; returns the pause before the next attempt.
    fn trouble(&mut self, unheard: RequestError) -> Next {
        self.is_known = false;
        match unheard {
            RequestError::Away(why, after) => {
                self.shared.lost(Connection::Away, &why);
                self.next_pause(after)
            }
            RequestError::NotAManager(why) => {
                self.shared.lost(Connection::NotAManager, &why);
                Next::Pause(REFUSED_PAUSE)
            }
            RequestError::Refused(Refusal { error, message, .. }, after) => match error {
                Why::TooManyRequests | Why::Unavailable | Why::SequenceGap | Why::AlreadyStored | Why::Conflict => {
                    self.shared.lost(Connection::Away, &message);
                    self.next_pause(after)
                }
                Why::Unauthenticated | Why::Forbidden => {
                    self.shared
                        .lost(Connection::Refused, &format!("{message} (token: --token FILE, read again each minute)"));
                    if let Err(why) = self.link.renew() {
                        self.shared.trouble("the token", &why);
                    }
                    Next::Pause(REFUSED_PAUSE)
                }
                Why::NotFound | Why::MethodNotAllowed | Why::UnsupportedMediaType => {
                    let why = format!("{message}; is --manager the address of the manager?");
                    self.shared.lost(Connection::NotAManager, &why);
                    Next::Pause(REFUSED_PAUSE)
                }
                Why::Malformed | Why::InvalidValue | Why::TooLarge => {
                    let why = format!("{message}; does the manager have the same version as this agent?");
                    self.shared.lost(Connection::Refused, &why);
                    Next::Pause(REFUSED_PAUSE)
                }
            },
        }
    }

    /// Doubled each time, and random, so that agents do not return to a manager all at the same time.
    fn next_pause(&mut self, after: Option<Duration>) -> Next {
        let longest = after.map_or(self.pause, |after| after.clamp(PAUSE_MIN, REFUSED_PAUSE));
        self.pause = (self.pause * 2).min(PAUSE_MAX);
        // Without random bytes all agents wait for the same time.
        let share = random::<1>().map_or(1.0, |[byte]| 0.5 + f64::from(byte) / 510.0);
        Next::Pause(longest.mul_f64(share))
    }

    fn resume_after(&mut self, stored_through: u64) -> io::Result<()> {
        match self.spool.resume_after(stored_through)? {
            StreamFit::Continues => {}
            StreamFit::Lacks => self.shared.say(
                "the manager lacks batches that were sent and are no longer in the spool (another manager, or an older \
                 copy of its data): a new stream starts",
            ),
            StreamFit::ManagerAhead(rows) => self.ahead(rows),
        }
        Ok(())
    }

    fn ahead(&self, rows: u64) {
        self.shared.say(&format!(
            "the manager has batches of this stream that this agent did not send (a copy of the data directory is in \
             use, or this one is an older state): a new stream starts, and {rows} rows that the manager may already \
             have are counted as dropped",
        ));
    }

    fn apply_settings(&mut self, settings: Option<Settings>) {
        let Some(settings) = settings else { return };
        if settings.version == self.no_good {
            return;
        }
        match selection::check(&settings) {
            Ok(()) => self.shared.want(settings),
            Err(why) => {
                self.no_good = settings.version;
                self.shared.say(&format!("the manager's settings are not applied: {why}"));
            }
        }
    }

    fn heard(&mut self, sent: i64, received: u64, answered: u64) {
        self.offset.hear(sent, self.time.boot_ns(), received, answered);
        // For rows that wait over a reboot; the next response saves it again.
        let _ = self.offset.keep(&self.disk);
        let now = self.time.now();
        self.shared.clock(self.offset.zero(&self.own.boot, &now), &now);
    }
}

/// Pause after the first failure, and its maximum while the manager is unreachable.
const PAUSE_MIN: Duration = Duration::from_millis(500);
const PAUSE_MAX: Duration = Duration::from_secs(30);
/// Pause after a failure that the operator must fix.
const REFUSED_PAUSE: Duration = Duration::from_secs(60);
/// Pause if the spool cannot be read.
const PAUSE_DISK: Duration = Duration::from_secs(5);
/// A batch wakes the sender; this interval covers the case that none ever comes.
const POLL_INTERVAL: Duration = Duration::from_secs(60);
