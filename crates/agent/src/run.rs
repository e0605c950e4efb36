//! Starts and runs an agent: locks, threads, and printed lines.
//!
//! ```text
//!   recorder thread: rings ─▶ Recorder ─▶ spool          sender thread: spool ─▶ Sender ─▶ manager
//!   this thread: waits for the end, and writes status.json each second
//! ```

use std::fs::{DirBuilder, File};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender as StopSender, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use sys::clock::{boot_id, monotonic_ns, realtime_ns};
use sys::file_lock::FileLock;
use tap::Only;
use tap::daemon_reader::DaemonReader;
use tap::daemon_state::{DaemonState, Entry};
use tap::rings::{Adoption, Capacity};

use crate::clock::SystemClocks;
use crate::destination::{Destination, link_of};
use crate::disk::{Disk, Durability};
use crate::log_link;
use crate::recorder::{LocalOptions, Recorder, Source};
use crate::sender::{AgentIdentity, Sender};
use crate::shared_status::{Receives, SharedStatus};
use crate::spool::{Spool, random};
use crate::status::{FILE, LOCK, Rows, Status};
use crate::{AgentError, token};

/// Configuration of an agent.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Where its rows go.
    pub to: Destination,
    /// The tap folder for programs.
    pub folder: PathBuf,
    /// Folder of journal and spool.
    pub data: PathBuf,
    /// Limit of the spool in bytes.
    pub spool_bytes: u64,
    /// Record connections that match one of these; empty: all.
    pub only: Vec<Only>,
    /// How rows contain addresses.
    pub addresses: Addresses,
    /// Maximum number of threads of all programs that use sockets at the same time.
    pub threads: u32,
}

/// How rows contain addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Addresses {
    /// Unchanged.
    Plain,
    /// Hashed with a random key of this agent, which is stored in its data folder.
    Hashed,
    /// Hashed with the key in this file: agents with the same file produce the same hashes.
    HashedBy(PathBuf),
}

/// A running agent.
pub struct Agent {
    plan: Plan,
    name: String,
    shared: Arc<SharedStatus>,
    spool: Arc<Spool>,
    disk: Disk,
    started_unix_ns: u64,
    recorder: (StopSender<()>, JoinHandle<()>),
    sender: JoinHandle<()>,
    /// Locked while the agent runs.
    _lock: FileLock,
}

impl Agent {
    /// Locks the folders, resumes where the last agent ended, and starts. `print` prints a line; any thread may call
    /// it.
    ///
    /// # Errors
    /// The configuration is invalid; another agent uses one of the folders; a folder, the ring or the disk is
    /// unavailable.
    pub fn start(plan: Plan, print: impl Fn(&str) + Send + Sync + 'static) -> Result<Agent, AgentError> {
        let (name, link) = link_of(&plan.to)?;
        let lock = lock(&plan.data)?;
        let in_data = |source| AgentError::Io { what: format!("opening {}", plan.data.display()), source };
        let disk = Disk::open(&plan.data).map_err(in_data)?;
        let mut options =
            LocalOptions { only: plan.only.clone(), key: key(&plan.addresses, &disk)?, ..LocalOptions::default() };
        let mut receiver = Receives::Manager;
        if matches!(plan.to, Destination::Stream { .. }) {
            (options.rows_max, receiver) = (log_link::ROWS_MAX, Receives::Stream);
        }
        let boot = boot_id().map_err(|error| AgentError::Environment(error.to_string()))?;
        let mut notes = |line: String| print(&line);
        let spool = Arc::new(Spool::open(&disk, &name, plan.spool_bytes, &mut notes).map_err(in_data)?);
        let recorder =
            Recorder::open(&disk, spool.clone(), SystemClocks, &boot, &options, &mut notes).map_err(in_data)?;
        let capacity = capacity(plan.threads);
        let reader = DaemonReader::open(&plan.folder, capacity, recorder.tap_state())?;
        let shared = Arc::new(SharedStatus::new(Box::new(print), realtime_ns, receiver));
        if reader.adoption() == Adoption::Replaced {
            shared.print(
                "the ring was recreated (another boot, version or number of threads): programs that use the old \
             one are not recorded until they restart",
            );
        }
        shared.recorder(&recorder);
        let identity =
            AgentIdentity { boot, host: host(), kernel: kernel(), version: env!("CARGO_PKG_VERSION").to_owned() };
        let sender = Sender::new(link, SystemClocks, spool.clone(), shared.clone(), disk.clone(), identity);
        let sender = spawn("send", move || sender.run())?;
        let (stop, stop_receiver) = channel();
        let mut source = RingSource { reader };
        let recorder_status = shared.clone();
        let recorder = spawn("record", move || run_recorder(recorder, &mut source, &stop_receiver, &recorder_status))?;
        Ok(Agent {
            plan,
            name,
            shared,
            spool,
            disk,
            started_unix_ns: realtime_ns(),
            recorder: (stop, recorder),
            sender,
            _lock: lock,
        })
    }

    /// The agent's name, which is part of its token.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Runs until `wait`, called with a second each time, returns true. Then all rows are sealed and, for some
    /// seconds, sent; the rest waits in the spool. The next agent continues with the connections that are open.
    ///
    /// # Errors
    /// A thread ended unexpectedly: a bug of the program.
    pub fn run(self, mut wait: impl FnMut(Duration) -> bool) -> Result<(), AgentError> {
        let has_thread_ended = || self.recorder.1.is_finished() || self.sender.is_finished();
        loop {
            self.write_status();
            if !wait(STATUS_INTERVAL) {
                break;
            }
            if has_thread_ended() {
                return Err(AgentError::Environment(
                    "a thread of the agent ended unexpectedly; its data directory is intact".into(),
                ));
            }
        }
        // The thread can be missing only after a panic, which the join reports.
        let _ = self.recorder.0.send(());
        let recorder_ended = self.recorder.1.join().is_ok();
        self.spool.end();
        let (finished, sender_finished) = channel::<()>();
        let sender = self.sender;
        let watcher = spawn("end", move || {
            let _ = sender.join();
            drop(finished);
        })?;
        // The thread may wait for a manager that does not respond.
        let _ = sender_finished.recv_timeout(SHUTDOWN_FLUSH_TIMEOUT);
        drop(watcher);
        write_status(&self.plan, &self.name, &self.shared, &self.spool, &self.disk, self.started_unix_ns);
        if recorder_ended {
            Ok(())
        } else {
            Err(AgentError::Environment("the recorder thread ended unexpectedly".into()))
        }
    }

    fn write_status(&self) {
        write_status(&self.plan, &self.name, &self.shared, &self.spool, &self.disk, self.started_unix_ns);
    }
}

fn write_status(plan: &Plan, name: &str, shared: &SharedStatus, spool: &Spool, disk: &Disk, started_unix_ns: u64) {
    let parts = shared.now();
    let status = Status {
        format: Status::FORMAT.to_owned(),
        at_unix_ns: realtime_ns(),
        started_unix_ns,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        pid: std::process::id(),
        name: name.to_owned(),
        manager: plan.to.text(),
        folder: plan.folder.display().to_string(),
        stream: spool.stream().id,
        link: parts.link,
        spool: spool.usage(),
        rows: Rows {
            made: parts.counts.recorded,
            sent: parts.sent,
            filtered: parts.counts.filtered,
            not_drawn: parts.counts.not_drawn,
            dropped: spool.rows_dropped(),
        },
        gauges: parts.gauges,
        settings: parts.settings,
        hashes_addresses: plan.addresses != Addresses::Plain,
        entries: parts.entries,
        clock_offset_ns: parts.clock.map(|clock| clock.offset_ns),
        clock_error_ns: parts.clock.map(|clock| clock.error_ns),
        troubles: parts.troubles,
    };
    // A failed write is retried a second later.
    let _ = serde_json::to_vec(&status).map(|text| disk.put(FILE, &text, Durability::No));
}

/// The rings as a source of the recorder.
struct RingSource {
    reader: DaemonReader,
}

impl Source for RingSource {
    fn round(&mut self, tap_state: &DaemonState) -> Option<Entry> {
        self.reader.round(tap_state)
    }

    fn commit(&mut self, entry: &Entry) {
        self.reader.commit(entry);
    }
}

/// The recorder's thread: makes rounds until `stop_receiver` receives a message.
fn run_recorder(
    mut recorder: Recorder<SystemClocks>,
    rings: &mut RingSource,
    stop_receiver: &Receiver<()>,
    shared: &SharedStatus,
) {
    let (mut pause, mut last_notes_at) = (ROUND_BUSY, None);
    while stop_receiver.recv_timeout(pause) == Err(RecvTimeoutError::Timeout) {
        report_ring_problems(rings, shared, &mut last_notes_at);
        if let Some(settings) = shared.pending_settings() {
            recorder.apply_settings(settings);
        }
        match recorder.round(rings) {
            Ok(events) => {
                shared.trouble_is_over(DATA_SUBJECT);
                // Rounds need not be frequent: no display is live, and the rings hold the records of several seconds.
                let is_behind = rings.reader.is_behind();
                pause = if is_behind {
                    // Rings were full: the rest is read immediately.
                    Duration::ZERO
                } else if events > 0 {
                    ROUND_BUSY
                } else {
                    (pause * 2).clamp(ROUND_BUSY, ROUND_IDLE)
                };
            }
            Err(error) => {
                shared.trouble(
                    DATA_SUBJECT,
                    &format!("{error}; the rings of the programs store what fits, and count the rest"),
                );
                pause = ROUND_AFTER_ERROR;
            }
        }
        shared.recorder(&recorder);
    }
    if let Err(error) = recorder.end(rings) {
        shared.trouble(DATA_SUBJECT, &format!("{error}; the next agent continues from the journal"));
    }
    shared.recorder(&recorder);
}

/// Prints notes about rings that programs have corrupted.
fn report_ring_problems(rings: &mut RingSource, shared: &SharedStatus, last_notes_at: &mut Option<u64>) {
    let now = monotonic_ns();
    // At most once per NOTES_INTERVAL_NS: a program may corrupt its ring repeatedly.
    if last_notes_at.is_some_and(|last| now - last < NOTES_INTERVAL_NS) {
        return;
    }
    let notes = rings.reader.take_notes();
    if !notes.is_empty() {
        *last_notes_at = Some(now);
        notes.iter().for_each(|note| shared.print(note));
    }
}

/// Locks the data folder for this agent.
fn lock(data: &Path) -> Result<FileLock, AgentError> {
    let failed = |source| AgentError::Io { what: format!("opening {}", data.display()), source };
    DirBuilder::new().recursive(true).mode(0o700).create(data).map_err(failed)?;
    let mut options = File::options();
    let file = options.write(true).create(true).truncate(false).mode(0o600).open(data.join(LOCK)).map_err(failed)?;
    match FileLock::exclusive(file) {
        Ok(lock) => Ok(lock),
        Err((_, std::fs::TryLockError::WouldBlock)) => Err(AgentError::Plan(format!(
            "another agent runs with {}: each agent needs its own --data and --folder",
            data.display()
        ))),
        Err((_, std::fs::TryLockError::Error(source))) => Err(failed(source)),
    }
}

fn key(addresses: &Addresses, disk: &Disk) -> Result<Option<[u8; 32]>, AgentError> {
    let digest = |bytes: &[u8]| {
        let digest = ring::digest::digest(&ring::digest::SHA256, bytes);
        Some(*digest.as_ref().first_chunk::<32>().expect("SHA-256 has 32 bytes"))
    };
    match addresses {
        Addresses::Plain => Ok(None),
        Addresses::HashedBy(path) => {
            let bytes = token::secret(path)?;
            let text = bytes.trim_ascii_end();
            if text.len() < KEY_MIN {
                let why = format!(
                    "{} is too short for a key: at least {KEY_MIN} bytes expected (head -c 32 /dev/urandom | base64)",
                    path.display()
                );
                return Err(AgentError::Plan(why));
            }
            Ok(digest(text))
        }
        Addresses::Hashed => {
            let failed = |source| AgentError::Io { what: "storing the key of address hashes".into(), source };
            if let Some(stored) = disk.get(KEY, 64).map_err(failed)?.filter(|stored| stored.len() == 32) {
                return Ok(digest(&stored));
            }
            let generated = random::<32>().map_err(failed)?;
            disk.put(KEY, &generated, Durability::Yes).map_err(failed)?;
            Ok(digest(&generated))
        }
    }
}

/// Ring capacity for this number of threads. A large ring holds a minute of 250 records a second, the longest
/// tolerated absence of an agent.
fn capacity(threads: u32) -> Capacity {
    let slots = threads.clamp(1, LARGE_RINGS);
    Capacity { records: RING_RECORDS, slots, small_slots: threads.saturating_sub(slots), ready: slots.min(READY_RINGS) }
}

fn spawn(name: &str, body: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>, AgentError> {
    let started = thread::Builder::new().name(name.into()).spawn(body);
    started.map_err(|source| AgentError::Io { what: "starting a thread".into(), source })
}

fn host() -> String {
    nix::unistd::gethostname().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}

fn kernel() -> String {
    nix::sys::utsname::uname().map(|name| name.release().to_string_lossy().into_owned()).unwrap_or_default()
}

/// Subject of messages about the data folder.
const DATA_SUBJECT: &str = "journal and spool";
/// File of the generated hash key.
const KEY: &str = "key";
/// Minimum bytes of a key file, so that it cannot be guessed.
const KEY_MIN: usize = 16;
/// Time between rounds: after events, after some rounds without events, and after a disk failure.
const ROUND_BUSY: Duration = Duration::from_millis(20);
const ROUND_IDLE: Duration = Duration::from_millis(100);
const ROUND_AFTER_ERROR: Duration = Duration::from_millis(500);
const STATUS_INTERVAL: Duration = Duration::from_secs(1);
/// Time between two lines about corrupted rings.
const NOTES_INTERVAL_NS: u64 = 60_000_000_000;
/// Time to send the last batches at shutdown.
const SHUTDOWN_FLUSH_TIMEOUT: Duration = Duration::from_secs(5);
/// Records of a large ring: 1 MB each if used completely.
const RING_RECORDS: u32 = 16_384;
/// Number of large rings.
const LARGE_RINGS: u32 = 256;
/// Large rings with all their memory from the start, for the first threads.
const READY_RINGS: u32 = 2;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_hash_key_is_generated_once_or_read_from_a_file() {
        let folder = tempfile::tempdir().unwrap();
        let disk = Disk::open(folder.path()).unwrap();
        assert_eq!(key(&Addresses::Plain, &disk).unwrap(), None);
        let generated_key = key(&Addresses::Hashed, &disk).unwrap();
        assert!(generated_key.is_some() && key(&Addresses::Hashed, &disk).unwrap() == generated_key);
        let file = folder.path().join("shared");
        std::fs::write(&file, "0123456789abcdef\n").unwrap();
        let key_file = Addresses::HashedBy(file.clone());
        std::fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(0o644)).unwrap();
        assert!(key(&key_file, &disk).is_err(), "a key file that other users may read is rejected");
        std::fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
        let key_of_file = key(&key_file, &disk).unwrap();
        assert!(key_of_file.is_some() && key_of_file != generated_key);
        std::fs::write(&file, "short\n").unwrap();
        assert!(key(&key_file, &disk).is_err());
    }

    #[test]
    fn a_data_folder_accepts_one_agent_at_a_time() {
        let folder = tempfile::tempdir().unwrap();
        let first = lock(folder.path()).unwrap();
        assert!(lock(folder.path()).unwrap_err().to_string().contains("another agent"));
        drop(first);
        assert!(lock(folder.path()).is_ok());
    }

    #[test]
    fn ring_capacity_follows_the_number_of_threads() {
        let all = |threads| {
            let capacity = capacity(threads);
            capacity.slots + capacity.small_slots
        };
        assert_eq!([1, 16, 256, 1_280].map(all), [1, 16, 256, 1_280]);
    }
}
