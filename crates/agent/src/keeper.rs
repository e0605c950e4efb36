//! The keeper: from the rings to the spool, so that a SIGKILL at any moment neither loses nor doubles a row.
//!
//! ```text
//!   rings ─round─▶ entry ─▶ journal ─▶ commit ─▶ Core::apply ─▶ rows ─▶ open batch ─▶ outbox ─▶ spool
//!                             │  killed before: the rings have it still           │  each batch says through which
//!                             └▶ killed after: it is applied again                └▶ entry rows are sealed: these are not made again
//! ```
//!
//! When a batch is sealed is an entry of its own, so what a restarted agent makes of the entries is what the killed one did. What finds no
//! room on the disk waits here, and while something waits no round is made: the rings have what comes, and count what
//! they cannot take.

mod core;

use std::io;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tap::Only;
use tap::standing::{Entry, Standing};

use self::core::Core;
pub(crate) use self::core::Counts;
use crate::clock::{Moment, Time};
use crate::disk::{Disk, is_full};
use crate::journal::{Journal, Reading};
use crate::snapshot::{self, Found, Snapshot};
use crate::spool::Spool;
use tap_protocol::{Levels, Settings};

/// Where events come from: [`tap::station::Station`], or what a test makes up.
pub(crate) trait Source {
    /// What was told since the last round; `None`: nothing, and nothing waits.
    fn round(&mut self, standing: &Standing) -> Option<Entry>;

    /// The entry is written down: what it had will not be asked for again.
    fn commit(&mut self, entry: &Entry);
}

/// An entry of the journal.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Record {
    /// A round of the rings, and when it was over.
    Round {
        /// When.
        moment: Moment,
        /// What it brought.
        entry: Box<Entry>,
    },
    /// The open batch is sealed.
    Seal(Moment),
    /// These settings are gone by from now on.
    Settings(Settings),
    /// The machine was started: what was open is cut, and moments count from another zero.
    Boot(String),
}

/// How an agent chooses and hides, by its own command line.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ways {
    /// Connections that one of these means; all where there is none.
    pub only: Vec<Only>,
    /// Addresses are hashed under this key.
    pub key: Option<[u8; 32]>,
}

/// Journal, collector and open batch.
#[derive(Debug)]
pub(crate) struct Keeper<T> {
    disk: Disk,
    journal: Journal,
    spool: Arc<Spool>,
    time: T,
    core: Core,
    /// Wanted, and not gone by yet.
    wanted: Option<Settings>,
    /// Found no room in the journal.
    unwritten: Option<(Vec<u8>, Record)>,
    sealed_at_ns: u64,
    snapshot_at_ns: u64,
    snapshot_bytes: u64,
}

impl<T: Time> Keeper<T> {
    /// Goes on where the last agent of the folder was. `boot` is the machine's; `notes` is told what is missing.
    ///
    /// # Errors
    /// The disk failed, or is full.
    pub fn open(
        disk: &Disk,
        spool: Arc<Spool>,
        time: T,
        boot: &str,
        ways: &Ways,
        notes: &mut dyn FnMut(String),
    ) -> io::Result<Keeper<T>> {
        let found = snapshot::read(disk)?;
        let is_unreadable = matches!(found, Found::Unreadable);
        let snapshot = match found {
            Found::Snapshot(snapshot) => *snapshot,
            Found::None | Found::Unreadable => blank(ways),
        };
        let from = snapshot.through;
        let last = spool.last();
        // All that is in a snapshot was sealed before.
        let was_taken_away = from > last.through;
        let mut core = Core::new(snapshot, spool.stream().seed, ways);
        core.sealed_through(if was_taken_away { u64::MAX } else { last.through }, last.partial);
        let (mut journal, reading) = Journal::open(disk, from, &mut |number, bytes| {
            let Ok(record) = postcard::from_bytes(bytes) else { return Ok(false) };
            core.apply(number, record);
            // What finds no room waits for the end.
            match core.flush(&spool) {
                Err(error) if !is_full(&error) => Err(error),
                _ => Ok(true),
            }
        })?;
        // The entry of which some rows are sealed has to be there too.
        let sealed = last.through + u64::from(last.partial > 0);
        let is_behind = !was_taken_away && journal.last() < sealed;
        let is_torn = is_unreadable || reading != Reading::Whole || is_behind;
        if was_taken_away {
            notes("the spool was taken away: rows that were not sent are lost, and not counted".into());
        }
        if is_torn {
            // What the collector had open may be sealed already, in entries that are missing.
            core.forget(Standing::new(ways.only.clone()));
            notes("the journal has a gap (a power cut, another version, or a file was taken away): connections that were open then are not told".into());
        }
        journal.skip_to(sealed)?;
        core.sealed_through(journal.last(), 0);
        let now = time.now();
        let mut keeper = Keeper {
            disk: disk.clone(),
            journal,
            spool,
            time,
            core,
            wanted: None,
            unwritten: None,
            sealed_at_ns: now.at_ns,
            snapshot_at_ns: now.at_ns,
            snapshot_bytes: 0,
        };
        let is_another_boot = keeper.core.boot() != boot;
        if is_another_boot {
            keeper.add(Record::Boot(boot.to_owned()))?;
        }
        if keeper.core.standing().only() != ways.only.as_slice() {
            keeper.add(Record::Round { moment: now, entry: Box::new(Entry::only(ways.only.clone())) })?;
        }
        if is_another_boot || is_torn {
            keeper.keep_snapshot()?;
        }
        Ok(keeper)
    }

    /// A round: takes what the source has, seals and keeps a snapshot where it is time. Gives how many events there were.
    ///
    /// # Errors
    /// No room, or the disk failed: nothing is lost, and the next round tries again.
    pub fn round(&mut self, source: &mut dyn Source) -> io::Result<usize> {
        self.core.flush(&self.spool)?;
        if let Some((bytes, record)) = self.unwritten.take() {
            self.add_bytes(bytes, record, Some(&mut *source))?;
        }
        let (now, last) = (self.time.now(), self.core.moment());
        if self.core.has_news() && now.suspended_ns.abs_diff(last.suspended_ns) > SLEPT_NS {
            // The machine slept: rows from before are in a batch that says how far the clocks were apart then.
            self.add(Record::Seal(last))?;
        }
        let mut events = 0;
        if let Some(entry) = source.round(self.core.standing()) {
            events = entry.events.len();
            // After the round: no row ends later than its batch is sealed.
            let record = Record::Round { moment: self.time.now(), entry: Box::new(entry) };
            self.add_with(record, Some(&mut *source))?;
        }
        if let Some(settings) = self.wanted.take()
            && self.core.settings().version != settings.version
        {
            // Rows chosen by others are not in one batch with these.
            let outcome = self.seal().and_then(|()| self.add(Record::Settings(settings.clone())));
            if outcome.is_err() {
                self.wanted = Some(settings);
            }
            outcome?;
        }
        let now_ns = self.time.now().at_ns;
        if self.is_time_for_snapshot(now_ns) {
            self.keep_snapshot()?;
        } else if self.is_time_to_seal(now_ns) {
            self.seal()?;
        }
        Ok(events)
    }

    /// Ends in order: what is there is sealed. What is open at the programs stays open, for the next agent.
    ///
    /// # Errors
    /// As of [`Keeper::round`].
    pub fn end(&mut self, source: &mut dyn Source) -> io::Result<()> {
        self.round(source)?;
        self.keep_snapshot()
    }

    /// From the next round on these are gone by.
    pub fn go_by(&mut self, settings: Settings) {
        self.wanted = Some(settings);
    }

    /// Seals the open batch, also an empty one.
    fn seal(&mut self) -> io::Result<()> {
        let moment = self.time.now();
        self.sealed_at_ns = moment.at_ns;
        self.add(Record::Seal(moment))
    }

    fn is_time_to_seal(&self, now_ns: u64) -> bool {
        let since = now_ns.saturating_sub(self.sealed_at_ns);
        // Each batch is a file and a round trip: with many waiting, fewer and larger ones.
        let slower = if self.spool.stand().batches > BATCHES_FEW { SLOWER } else { 1 };
        let has_news = self.core.has_news() && since >= SEAL_NS * slower;
        self.core.is_full() || has_news || since >= HEARTBEAT_NS * slower
    }

    fn is_time_for_snapshot(&self, now_ns: u64) -> bool {
        let bytes = self.journal.bytes();
        let is_old = now_ns.saturating_sub(self.snapshot_at_ns) >= SNAPSHOT_NS;
        // One that is large is worth its writing only when much came since.
        bytes >= JOURNAL_MAX || (is_old && bytes > self.snapshot_bytes / 2)
    }

    /// Makes a snapshot, with everything sealed, and begins the journal anew.
    fn keep_snapshot(&mut self) -> io::Result<()> {
        self.snapshot_at_ns = self.time.now().at_ns;
        self.seal()?;
        let snapshot = self.core.snapshot(self.journal.last());
        loop {
            match snapshot::write(&self.disk, snapshot) {
                Ok(bytes) => {
                    self.snapshot_bytes = bytes;
                    break;
                }
                Err(error) if !is_full(&error) || !self.spool.let_go()? => return Err(error),
                Err(_) => {}
            }
        }
        self.journal.begin_anew()
    }

    fn add(&mut self, record: Record) -> io::Result<()> {
        self.add_with(record, None)
    }

    fn add_with(&mut self, record: Record, source: Option<&mut dyn Source>) -> io::Result<()> {
        let bytes = postcard::to_stdvec(&record).map_err(io::Error::other)?;
        self.add_bytes(bytes, record, source)
    }

    /// Writes a record down, lets the source know, and only then does what it says.
    fn add_bytes(&mut self, bytes: Vec<u8>, record: Record, source: Option<&mut dyn Source>) -> io::Result<()> {
        let number = loop {
            match self.journal.add(&bytes) {
                Ok(number) => break number,
                Err(error) => {
                    // Rows that wait make room; where there are none, the rings have to bear it.
                    if !is_full(&error) || !self.spool.let_go().unwrap_or(false) {
                        self.unwritten = Some((bytes, record));
                        return Err(error);
                    }
                }
            }
        };
        if let (Some(source), Record::Round { entry, .. }) = (source, &record) {
            source.commit(entry);
        }
        self.core.apply(number, record);
        self.core.flush(&self.spool)
    }

    /// The collector.
    pub fn standing(&self) -> &Standing {
        self.core.standing()
    }

    /// The last entry's number.
    pub fn entries(&self) -> u64 {
        self.journal.last()
    }

    /// What became of rows since the start.
    pub fn counts(&self) -> Counts {
        self.core.counts()
    }

    /// Levels of this moment.
    pub fn levels(&self) -> Levels {
        self.core.levels()
    }

    /// What is gone by.
    pub fn settings(&self) -> &Settings {
        self.core.settings()
    }
}

/// Where nothing was kept.
fn blank(ways: &Ways) -> Snapshot {
    Snapshot {
        through: 0,
        boot: String::new(),
        moment: Moment::default(),
        settings: Settings { version: 0, ..Settings::default() },
        standing: Standing::new(ways.only.clone()),
    }
}

/// More than two reads of two clocks are apart.
const SLEPT_NS: u64 = 100_000_000;
/// Rows wait so long for others.
const SEAL_NS: u64 = 1_000_000_000;
/// A batch without rows: that the agent lives, and how its machine stands.
const HEARTBEAT_NS: u64 = 10_000_000_000;
/// Batches that wait without the manager being far behind, and by how much rarer they are sealed beyond.
const BATCHES_FEW: u64 = 600;
const SLOWER: u64 = 10;
/// What a restart may have to read again: of a second's work.
const JOURNAL_MAX: u64 = 64 << 20;
/// Or so long.
const SNAPSHOT_NS: u64 = 60_000_000_000;
