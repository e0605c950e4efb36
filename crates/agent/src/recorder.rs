//! The recorder: moves records from the rings to the spool; a SIGKILL at any time neither loses nor duplicates a row.
//!
//! ```text
//!   rings ─round─▶ entry ─▶ journal ─▶ commit ─▶ Core::apply ─▶ rows ─▶ open batch ─▶ outbox ─▶ spool
//!                             │  killed before: the rings still have it            │  each batch has the number of
//!                             └▶ killed after: it is applied again                └▶ the last sealed entry
//! ```
//!
//! Sealing a batch is an entry of its own, so a restarted agent computes the same batches from the entries as the
//! killed one. Data that does not fit on the disk waits in memory, and no round is made meanwhile: the rings hold new
//! records, and count those beyond their capacity.

mod core;

use std::io;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tap::Only;
use tap::daemon_state::{DaemonState, Entry};

use self::core::Core;
pub(crate) use self::core::Counts;
use crate::clock::{ClockReading, Time};
use crate::disk::{Disk, is_full};
use crate::journal::{Journal, Reading};
use crate::snapshot::{self, Snapshot, StoredSnapshot};
use crate::spool::Spool;
use tap_protocol::{Gauges, Settings};

/// Source of events: [`tap::daemon_reader::DaemonReader`], or a test.
pub(crate) trait Source {
    /// Events since the last round; `None`: no events, and nothing waits for time to pass.
    fn round(&mut self, tap_state: &DaemonState) -> Option<Entry>;

    /// The entry is in the journal: its records can be removed from the rings.
    fn commit(&mut self, entry: &Entry);
}

/// An entry of the journal.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Record {
    /// A round of the rings.
    Round {
        /// Clock reading at the end of the round.
        clock: ClockReading,
        /// The events of the round.
        entry: Box<Entry>,
    },
    /// The open batch is sealed.
    Seal(ClockReading),
    /// These settings apply from now on.
    Settings(Settings),
    /// The machine was booted: open connections are cut, and times count from another zero.
    Boot(String),
}

/// Options of the agent's own command line.
#[derive(Clone, Debug)]
pub(crate) struct LocalOptions {
    /// Record connections that match one of these; empty: all.
    pub only: Vec<Only>,
    /// Hash addresses with this key.
    pub key: Option<[u8; 32]>,
    /// Rows of a batch at most.
    pub rows_max: usize,
}

impl Default for LocalOptions {
    /// Everything, for a manager.
    fn default() -> LocalOptions {
        LocalOptions { only: Vec::new(), key: None, rows_max: ROWS_MAX }
    }
}

/// Journal, collector and open batch.
#[derive(Debug)]
pub(crate) struct Recorder<T> {
    disk: Disk,
    journal: Journal,
    spool: Arc<Spool>,
    time: T,
    core: Core,
    /// New settings, not applied yet.
    pending_settings: Option<Settings>,
    /// A record that did not fit into the journal.
    unwritten: Option<(Vec<u8>, Record)>,
    sealed_at_ns: u64,
    snapshot_at_ns: u64,
    snapshot_bytes: u64,
}

impl<T: Time> Recorder<T> {
    /// Resumes where the last agent of the folder ended. `boot` identifies the machine's boot; `notes` receives
    /// reports of missing data.
    ///
    /// # Errors
    /// The disk failed, or is full.
    pub fn open(
        disk: &Disk,
        spool: Arc<Spool>,
        time: T,
        boot: &str,
        options: &LocalOptions,
        notes: &mut dyn FnMut(String),
    ) -> io::Result<Recorder<T>> {
        let stored = snapshot::read(disk)?;
        let is_unreadable = matches!(stored, StoredSnapshot::Unreadable);
        let snapshot = match stored {
            StoredSnapshot::Snapshot(snapshot) => *snapshot,
            StoredSnapshot::None | StoredSnapshot::Unreadable => initial_snapshot(options),
        };
        let from = snapshot.through;
        let last = spool.last();
        // All rows of a snapshot were sealed before it was written.
        let spool_was_removed = from > last.through;
        let mut core = Core::new(snapshot, spool.stream().seed, options);
        core.sealed_through(if spool_was_removed { u64::MAX } else { last.through }, last.partial);
        let (mut journal, reading) = Journal::open(disk, from, &mut |number, bytes| {
            let Ok(record) = postcard::from_bytes(bytes) else { return Ok(false) };
            core.apply(number, record);
            // Batches that do not fit on the disk wait until the end.
            match core.flush(&spool) {
                Err(error) if !is_full(&error) => Err(error),
                _ => Ok(true),
            }
        })?;
        // The entry whose rows are partly sealed must also exist.
        let sealed = last.through + u64::from(last.partial > 0);
        let is_behind = !spool_was_removed && journal.last() < sealed;
        let has_gap = is_unreadable || reading != Reading::Complete || is_behind;
        if spool_was_removed {
            notes("the spool was removed: unsent rows are lost and not counted".into());
        }
        if has_gap {
            // Open exchanges may already be sealed, in the missing entries.
            core.replace_tap_state(DaemonState::new(options.only.clone()));
            notes(
                "the journal has a gap (a power failure, another version, or a removed file): connections that were \
             open then have no row"
                    .into(),
            );
        }
        journal.skip_to(sealed)?;
        core.sealed_through(journal.last(), 0);
        let now = time.now();
        let mut recorder = Recorder {
            disk: disk.clone(),
            journal,
            spool,
            time,
            core,
            pending_settings: None,
            unwritten: None,
            sealed_at_ns: now.at_ns,
            snapshot_at_ns: now.at_ns,
            snapshot_bytes: 0,
        };
        let is_another_boot = recorder.core.boot() != boot;
        if is_another_boot {
            recorder.add(Record::Boot(boot.to_owned()))?;
        }
        if recorder.core.tap_state().only() != options.only.as_slice() {
            recorder.add(Record::Round { clock: now, entry: Box::new(Entry::only(options.only.clone())) })?;
        }
        if is_another_boot || has_gap {
            recorder.write_snapshot()?;
        }
        Ok(recorder)
    }

    /// A round: takes the records of the source, and seals and writes a snapshot when due. Returns the number of
    /// events.
    ///
    /// # Errors
    /// No disk space, or the disk failed: nothing is lost, and the next round retries.
    pub fn round(&mut self, source: &mut dyn Source) -> io::Result<usize> {
        self.core.flush(&self.spool)?;
        if let Some((bytes, record)) = self.unwritten.take() {
            self.add_bytes(bytes, record, Some(&mut *source))?;
        }
        let (now, last) = (self.time.now(), self.core.clock());
        if self.core.has_rows_or_losses() && now.suspended_ns.abs_diff(last.suspended_ns) > SUSPEND_MIN_NS {
            // The machine was suspended: earlier rows go into a batch with the clock difference of that time.
            self.add(Record::Seal(last))?;
        }
        let mut events = 0;
        if let Some(entry) = source.round(self.core.tap_state()) {
            events = entry.events.len();
            // The clock is read after the round, so that no row ends later than its batch is sealed.
            let record = Record::Round { clock: self.time.now(), entry: Box::new(entry) };
            self.add_with(record, Some(&mut *source))?;
        }
        if let Some(settings) = self.pending_settings.take()
            && self.core.settings().version != settings.version
        {
            // Rows selected under different settings are not in one batch.
            let outcome = self.seal().and_then(|()| self.add(Record::Settings(settings.clone())));
            if outcome.is_err() {
                self.pending_settings = Some(settings);
            }
            outcome?;
        }
        let now_ns = self.time.now().at_ns;
        if self.is_time_for_snapshot(now_ns) {
            self.write_snapshot()?;
        } else if self.is_time_to_seal(now_ns) {
            self.seal()?;
        }
        Ok(events)
    }

    /// Shuts down: seals all rows. Connections that programs have open stay open for the next agent.
    ///
    /// # Errors
    /// The same errors as of [`Recorder::round`].
    pub fn end(&mut self, source: &mut dyn Source) -> io::Result<()> {
        self.round(source)?;
        self.write_snapshot()
    }

    /// Applies these settings from the next round on.
    pub fn apply_settings(&mut self, settings: Settings) {
        self.pending_settings = Some(settings);
    }

    /// Seals the open batch, even if it is empty.
    fn seal(&mut self) -> io::Result<()> {
        let clock = self.time.now();
        self.sealed_at_ns = clock.at_ns;
        self.add(Record::Seal(clock))
    }

    fn is_time_to_seal(&self, now_ns: u64) -> bool {
        let since = now_ns.saturating_sub(self.sealed_at_ns);
        // Each batch is a file and a round trip: with many waiting batches, fewer and larger ones are sealed.
        let interval_factor = if self.spool.usage().batches > BACKLOG_BATCHES { BACKLOG_INTERVAL_FACTOR } else { 1 };
        let has_rows_or_losses = self.core.has_rows_or_losses() && since >= SEAL_INTERVAL_NS * interval_factor;
        self.core.is_full() || has_rows_or_losses || since >= HEARTBEAT_INTERVAL_NS * interval_factor
    }

    fn is_time_for_snapshot(&self, now_ns: u64) -> bool {
        let bytes = self.journal.bytes();
        let is_old = now_ns.saturating_sub(self.snapshot_at_ns) >= SNAPSHOT_INTERVAL_NS;
        // A large snapshot is rewritten only after many new entries.
        bytes >= JOURNAL_BYTES_MAX || (is_old && bytes > self.snapshot_bytes / 2)
    }

    /// Seals everything, writes a snapshot and restarts the journal.
    fn write_snapshot(&mut self) -> io::Result<()> {
        self.snapshot_at_ns = self.time.now().at_ns;
        self.seal()?;
        let snapshot = self.core.snapshot(self.journal.last());
        loop {
            match snapshot::write(&self.disk, snapshot) {
                Ok(bytes) => {
                    self.snapshot_bytes = bytes;
                    break;
                }
                Err(error) if !is_full(&error) || !self.spool.drop_oldest_rows()? => return Err(error),
                Err(_) => {}
            }
        }
        self.journal.restart()
    }

    fn add(&mut self, record: Record) -> io::Result<()> {
        self.add_with(record, None)
    }

    fn add_with(&mut self, record: Record, source: Option<&mut dyn Source>) -> io::Result<()> {
        let bytes = postcard::to_stdvec(&record).map_err(io::Error::other)?;
        self.add_bytes(bytes, record, source)
    }

    /// Writes a record to the journal, commits it at the source, and only then applies it.
    fn add_bytes(&mut self, bytes: Vec<u8>, record: Record, source: Option<&mut dyn Source>) -> io::Result<()> {
        let number = loop {
            match self.journal.add(&bytes) {
                Ok(number) => break number,
                Err(error) => {
                    // Dropping waiting rows frees space; without any, the records stay in the rings.
                    if !is_full(&error) || !self.spool.drop_oldest_rows().unwrap_or(false) {
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

    /// The state of the tap.
    pub fn tap_state(&self) -> &DaemonState {
        self.core.tap_state()
    }

    /// Number of the last entry.
    pub fn entries(&self) -> u64 {
        self.journal.last()
    }

    /// Row counts since the start.
    pub fn counts(&self) -> Counts {
        self.core.counts()
    }

    /// Current gauges.
    pub fn gauges(&self) -> Gauges {
        self.core.gauges()
    }

    /// The applied settings.
    pub fn settings(&self) -> &Settings {
        self.core.settings()
    }
}

/// The initial state without a snapshot.
fn initial_snapshot(options: &LocalOptions) -> Snapshot {
    Snapshot {
        through: 0,
        boot: String::new(),
        clock: ClockReading::default(),
        settings: Settings { version: 0, ..Settings::default() },
        tap: DaemonState::new(options.only.clone()),
    }
}

/// Rows of a batch: some 2 MB of JSON, a tenth of it compressed; a fourth of the manager's maximum. Tests use smaller
/// batches.
const ROWS_MAX: usize = if cfg!(test) { 50 } else { 5_000 };
/// Minimum clock difference that counts as a suspension of the machine: two clock reads cannot explain it.
const SUSPEND_MIN_NS: u64 = 100_000_000;
/// Maximum time for which rows wait for more rows in the same batch.
const SEAL_INTERVAL_NS: u64 = 1_000_000_000;
/// Time after which an empty batch is sent, as a heartbeat with gauges.
const HEARTBEAT_INTERVAL_NS: u64 = 10_000_000_000;
/// Waiting batches from which the manager counts as far behind, and the factor by which batches are then sealed less
/// often.
const BACKLOG_BATCHES: u64 = 600;
const BACKLOG_INTERVAL_FACTOR: u64 = 10;
/// Journal bytes after which a snapshot is written: about a second of work at restart.
const JOURNAL_BYTES_MAX: u64 = 64 << 20;
/// Age after which a snapshot is written.
const SNAPSHOT_INTERVAL_NS: u64 = 60_000_000_000;
