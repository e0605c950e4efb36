//! The sender: the oldest batch to the manager until it has it, then the next. One request at a time.
//!
//! ```text
//!   hello ─▶ where the manager is in the stream ─▶ batch, batch, batch ..      trouble: a pause, and hello again
//! ```
//!
//! What is not known is asked: an answer that was lost makes the batch be sent again, and the manager says that it has the number.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use crate::choose;
use crate::clock::{Offset, Time};
use crate::disk::Disk;
use crate::link::{Link, Unheard};
use crate::spool::{Fit, Spool, Waiting, random};
use crate::stand::{Connection, Stand};
use tap_protocol::{Hello, Refusal, Settings, Stored, Welcome, Why};

/// Who this is.
#[derive(Clone, Debug)]
pub(crate) struct Own {
    pub boot: String,
    pub host: String,
    pub kernel: String,
    pub version: String,
}

/// Sends; and hears what the manager wants.
pub(crate) struct Sender<L, T> {
    link: L,
    time: T,
    spool: Arc<Spool>,
    stand: Arc<Stand>,
    disk: Disk,
    offset: Offset,
    own: Own,
    /// The manager has said where it is, and no trouble since.
    is_known: bool,
    /// The next pause, if there is trouble.
    pause: Duration,
    /// A batch that the manager called impossible, once: one of the two clocks may have been set just then.
    doubted: Option<u64>,
    /// A batch of which the manager took not even the head.
    bare: Option<u64>,
    /// Version of settings that were no good, and told so.
    no_good: u64,
}

/// What to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// Another step at once.
    Step,
    /// When there is a batch.
    Batch,
    /// After this time.
    Pause(Duration),
}

impl<L: Link, T: Time> Sender<L, T> {
    /// Knows nothing of the manager yet.
    pub fn new(link: L, time: T, spool: Arc<Spool>, stand: Arc<Stand>, disk: Disk, own: Own) -> Self {
        let offset = Offset::open(&disk, &own.boot);
        let pause = PAUSE_MIN;
        Sender {
            link,
            time,
            spool,
            stand,
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

    /// Sends until the agent ends, and then what waits, for as long as there is no trouble.
    pub fn run(mut self) {
        let mut goes_on = true;
        loop {
            goes_on = match self.step() {
                Next::Step => goes_on,
                Next::Batch if goes_on => self.spool.wait_for_batch(LOOK),
                // At the end one more try, without the rest of the pause.
                Next::Pause(pause) if goes_on => self.spool.pause(pause),
                Next::Batch | Next::Pause(_) => return,
            };
        }
    }

    /// One request.
    pub fn step(&mut self) -> Next {
        let outcome = if self.is_known { self.batch() } else { self.hello() };
        outcome.unwrap_or_else(|error| {
            self.stand.trouble("the spool", &error.to_string());
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
            spool: self.spool.stand(),
            now_ns: now.at_ns,
            zero_own_unix_ns: now.zero_own_unix_ns,
            settings: self.stand.settings_version(),
        };
        let sent = self.time.boot_ns();
        match self.link.hello(&hello) {
            Ok(Welcome { stored_through, settings, received_unix_ns, answered_unix_ns }) => {
                self.heard(sent, received_unix_ns, answered_unix_ns);
                self.go_on_from(stored_through)?;
                self.go_by(Some(settings));
                self.is_known = true;
                self.stand.connected();
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
                self.stand.stored(waiting.rows);
                self.go_by(settings);
                self.pause = PAUSE_MIN;
                Ok(Next::Step)
            }
            Err(Unheard::Refused(refusal, after)) => self.refused(&waiting, refusal, after),
            Err(unheard) => Ok(self.trouble(unheard)),
        }
    }

    fn refused(&mut self, waiting: &Waiting, refusal: Refusal, after: Option<Duration>) -> io::Result<Next> {
        match refusal.error {
            // One that was cut meanwhile differs from what the manager may have had of it before.
            Why::Other if !waiting.is_cut => {
                self.ahead(self.spool.part_ways()?);
                Ok(Next::Step)
            }
            Why::Replayed | Why::Other => {
                // An earlier try was still on its way when the manager was asked.
                self.stand.stored(waiting.rows);
                match refusal.stored_through.filter(|through| *through >= waiting.sequence) {
                    Some(through) => self.go_on_from(through)?,
                    None => self.spool.stored(waiting.number)?,
                }
                Ok(Next::Step)
            }
            Why::OutOfTurn if refusal.stored_through.is_some_and(|through| through + 1 != waiting.sequence) => {
                self.go_on_from(refusal.stored_through.unwrap_or_default())?;
                Ok(Next::Step)
            }
            Why::Impossible if self.doubted != Some(waiting.number) => {
                self.doubted = Some(waiting.number);
                self.is_known = false;
                Ok(Next::Step)
            }
            Why::Malformed | Why::Impossible | Why::TooLarge if !waiting.is_cut => {
                self.spool.set_aside(waiting.number)?;
                let folder = self.spool.refused().display().to_string();
                self.stand.say(&format!(
                    "the manager refuses a batch of {} rows ({}): it is set aside in {folder}, and its rows are counted as dropped",
                    waiting.rows, refusal.message,
                ));
                Ok(Next::Step)
            }
            Why::Malformed | Why::Impossible | Why::TooLarge if self.bare != Some(waiting.number) => {
                self.bare = Some(waiting.number);
                Ok(Next::Step)
            }
            _ => Ok(self.trouble(Unheard::Refused(refusal, after))),
        }
    }

    /// Says what is wrong, once, and how long to wait.
    fn trouble(&mut self, unheard: Unheard) -> Next {
        self.is_known = false;
        match unheard {
            Unheard::Away(why, after) => {
                self.stand.lost(Connection::Away, &why);
                self.next_pause(after)
            }
            Unheard::Stranger(why) => {
                self.stand.lost(Connection::Stranger, &why);
                Next::Pause(PAUSE_LONG)
            }
            Unheard::Refused(Refusal { error, message, .. }, after) => match error {
                Why::TooMany | Why::Unavailable | Why::OutOfTurn | Why::Replayed | Why::Other => {
                    self.stand.lost(Connection::Away, &message);
                    self.next_pause(after)
                }
                Why::Unauthorised | Why::Forbidden => {
                    self.stand
                        .lost(Connection::Refused, &format!("{message} (token: --token FILE, read anew each minute)"));
                    if let Err(why) = self.link.renew() {
                        self.stand.trouble("the token", &why);
                    }
                    Next::Pause(PAUSE_LONG)
                }
                Why::NotFound | Why::Method | Why::MediaType => {
                    let why = format!("{message}; is --manager the manager's address?");
                    self.stand.lost(Connection::Stranger, &why);
                    Next::Pause(PAUSE_LONG)
                }
                Why::Malformed | Why::Impossible | Why::TooLarge => {
                    let why = format!("{message}; is the manager of this agent's version?");
                    self.stand.lost(Connection::Refused, &why);
                    Next::Pause(PAUSE_LONG)
                }
            },
        }
    }

    /// Longer each time, and not the same for agents that lost the same manager at the same moment.
    fn next_pause(&mut self, after: Option<Duration>) -> Next {
        let longest = after.map_or(self.pause, |after| after.clamp(PAUSE_MIN, PAUSE_LONG));
        self.pause = (self.pause * 2).min(PAUSE_MAX);
        // Without random bytes all wait alike.
        let share = random::<1>().map_or(1.0, |[byte]| 0.5 + f64::from(byte) / 510.0);
        Next::Pause(longest.mul_f64(share))
    }

    fn go_on_from(&mut self, stored_through: u64) -> io::Result<()> {
        match self.spool.go_on_from(stored_through)? {
            Fit::GoesOn => {}
            Fit::Lacks => self.stand.say(
                "the manager lacks batches that were sent and are not here any more (another manager, or an older copy of its data): \
                 a new stream is begun",
            ),
            Fit::IsAhead(rows) => self.ahead(rows),
        }
        Ok(())
    }

    fn ahead(&self, rows: u64) {
        self.stand.say(&format!(
            "the manager has batches of this stream that were not sent from here (a copy of the agent's folder at work, or an older state of it): a \
             new stream is begun, and {rows} rows that may be there already are counted as dropped",
        ));
    }

    fn go_by(&mut self, settings: Option<Settings>) {
        let Some(settings) = settings else { return };
        if settings.version == self.no_good {
            return;
        }
        match choose::check(&settings) {
            Ok(()) => self.stand.want(settings),
            Err(why) => {
                self.no_good = settings.version;
                self.stand.say(&format!("the manager's settings are not gone by: {why}"));
            }
        }
    }

    fn heard(&mut self, sent: i64, received: u64, answered: u64) {
        self.offset.hear(sent, self.time.boot_ns(), received, answered);
        // For rows that wait over a reboot; the next answer tries again.
        let _ = self.offset.keep(&self.disk);
        let now = self.time.now();
        self.stand.clock(self.offset.zero(&self.own.boot, &now), &now);
    }
}

/// After the first failure, and at most where nothing answers.
const PAUSE_MIN: Duration = Duration::from_millis(500);
const PAUSE_MAX: Duration = Duration::from_secs(30);
/// Where somebody has to do something.
const PAUSE_LONG: Duration = Duration::from_secs(60);
/// Where the spool cannot be read.
const PAUSE_DISK: Duration = Duration::from_secs(5);
/// A batch wakes the sender; this is for the case that none ever comes.
const LOOK: Duration = Duration::from_secs(60);
