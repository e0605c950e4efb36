//! An agent from its start to its end: locks, threads, and what is told.
//!
//! ```text
//!   keeper thread: Station ─▶ Keeper ─▶ spool          sender thread: spool ─▶ Sender ─▶ manager
//!   this thread: waits for the end, and writes status.json each second
//! ```

use std::fs::{DirBuilder, File};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender as Orders, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use http::Uri;
use http::header::AUTHORIZATION;
use sys::clock::{boot_id, monotonic_ns, realtime_ns};
use tap::Only;
use tap::rings::{Capacity, Found};
use tap::standing::{Entry, Standing};
use tap::station::Station;
use web::post::{Post, Receiver as Address, Roots, is_loopback};

use crate::clock::Own as Machine;
use crate::disk::{Disk, Lasting};
use crate::keeper::{Keeper, Source, Ways};
use crate::link::Wire;
use crate::sender::{Own, Sender};
use crate::spool::{Spool, random};
use crate::stand::Stand;
use crate::status::{FILE, LOCK, Rows, Status};
use crate::{AgentError, token};

/// What an agent is to do.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The manager's URL. http:// only on loopback.
    pub manager: String,
    /// The file of its token.
    pub token: PathBuf,
    /// Certificates to trust; the system's where there is none.
    pub ca: Option<PathBuf>,
    /// The folder that programs are given.
    pub folder: PathBuf,
    /// Where journal and spool are.
    pub data: PathBuf,
    /// Bound of the spool, in bytes.
    pub spool_bytes: u64,
    /// Connections that one of these means; all where there is none.
    pub only: Vec<Only>,
    /// What stands for addresses.
    pub addresses: Addresses,
    /// Threads of all programs that may use sockets at once.
    pub threads: u32,
}

/// What stands for addresses in rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Addresses {
    /// Themselves.
    Plain,
    /// Hashes under a key that this agent draws and keeps: they mean nothing to anybody else.
    Hashed,
    /// Hashes under the key in this file: agents with the same file have the same hashes.
    HashedBy(PathBuf),
}

/// An agent at work.
pub struct Agent {
    plan: Plan,
    name: String,
    stand: Arc<Stand>,
    spool: Arc<Spool>,
    disk: Disk,
    started_unix_ns: u64,
    keeper: (Orders<()>, JoinHandle<()>),
    sender: JoinHandle<()>,
    /// Held for as long as this lives.
    _lock: File,
}

impl Agent {
    /// Takes the folders, goes on where the last agent of them was, and starts. `say` tells the user a line, from any thread.
    ///
    /// # Errors
    /// What is wrong with the plan; another agent has one of the folders; a folder, the ring or the disk cannot be had.
    pub fn start(plan: Plan, say: impl Fn(&str) + Send + Sync + 'static) -> Result<Agent, AgentError> {
        let manager = base(&plan.manager)?;
        let token = token::read(&plan.token)?;
        let name = token.name.clone();
        let post = post(&manager, &plan, token)?;
        let lock = lock(&plan.data)?;
        let in_data = |source| AgentError::Io { what: format!("opening {}", plan.data.display()), source };
        let disk = Disk::open(&plan.data).map_err(in_data)?;
        let ways = Ways { only: plan.only.clone(), key: key(&plan.addresses, &disk)? };
        let boot = boot_id().map_err(|error| AgentError::Environment(error.to_string()))?;
        let mut notes = |line: String| say(&line);
        let spool = Arc::new(Spool::open(&disk, &name, plan.spool_bytes, &mut notes).map_err(in_data)?);
        let keeper = Keeper::open(&disk, spool.clone(), Machine, &boot, &ways, &mut notes).map_err(in_data)?;
        let capacity = capacity(plan.threads);
        let station = Station::open(&plan.folder, capacity, keeper.standing())?;
        let stand = Arc::new(Stand::new(Box::new(say), realtime_ns));
        if station.found() == Found::Replaced {
            stand.say("the ring was made anew (of another boot, version or number of threads): programs that have the old one are not seen until they start again");
        }
        stand.keeper(&keeper);
        let own = Own { boot, host: host(), kernel: kernel(), version: env!("CARGO_PKG_VERSION").to_owned() };
        let again = {
            let (manager, plan, name) = (manager.clone(), plan.clone(), name.clone());
            Box::new(move || again(&manager, &plan, &name).map_err(|error| error.to_string()))
        };
        let link = Wire::new(post, &name, again);
        let sender = Sender::new(link, Machine, spool.clone(), stand.clone(), disk.clone(), own);
        let sender = spawn("send", move || sender.run())?;
        let (orders, inbox) = channel();
        let mut at_rings = AtRings { station };
        let keeping = stand.clone();
        let keeper = spawn("keep", move || keep(keeper, &mut at_rings, &inbox, &keeping))?;
        Ok(Agent {
            plan: Plan { manager, ..plan },
            name,
            stand,
            spool,
            disk,
            started_unix_ns: realtime_ns(),
            keeper: (orders, keeper),
            sender,
            _lock: lock,
        })
    }

    /// The agent's name, which stands in its token.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Runs until `wait`, which is given a second each time, says that it is to end. Then what was seen is sealed and, for some
    /// seconds, sent; what is not waits in the spool. What is open at the programs is gone on with by the next agent.
    ///
    /// # Errors
    /// A thread has ended by itself: a fault of the program.
    pub fn run(self, mut wait: impl FnMut(Duration) -> bool) -> Result<(), AgentError> {
        let broke = || self.keeper.1.is_finished() || self.sender.is_finished();
        loop {
            self.write_status();
            if !wait(STATUS) {
                break;
            }
            if broke() {
                return Err(AgentError::Environment(
                    "a thread of the agent ended by itself; its folder is whole".into(),
                ));
            }
        }
        // It may only be gone by a panic, which the join tells.
        let _ = self.keeper.0.send(());
        let is_kept = self.keeper.1.join().is_ok();
        self.spool.end();
        let (told, ended) = channel::<()>();
        let sender = self.sender;
        let watcher = spawn("end", move || {
            let _ = sender.join();
            drop(told);
        })?;
        // A manager that does not answer is not waited for.
        let _ = ended.recv_timeout(LAST_WORDS);
        drop(watcher);
        write_status(&self.plan, &self.name, &self.stand, &self.spool, &self.disk, self.started_unix_ns);
        if is_kept { Ok(()) } else { Err(AgentError::Environment("the keeper ended by itself".into())) }
    }

    fn write_status(&self) {
        write_status(&self.plan, &self.name, &self.stand, &self.spool, &self.disk, self.started_unix_ns);
    }
}

fn write_status(plan: &Plan, name: &str, stand: &Stand, spool: &Spool, disk: &Disk, started_unix_ns: u64) {
    let parts = stand.now();
    let status = Status {
        format: Status::FORMAT.to_owned(),
        at_unix_ns: realtime_ns(),
        started_unix_ns,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        pid: std::process::id(),
        name: name.to_owned(),
        manager: plan.manager.clone(),
        folder: plan.folder.display().to_string(),
        stream: spool.stream().id,
        link: parts.link,
        spool: spool.stand(),
        rows: Rows {
            made: parts.counts.made,
            sent: parts.sent,
            filtered: parts.counts.filtered,
            not_drawn: parts.counts.not_drawn,
            dropped: spool.rows_dropped(),
        },
        levels: parts.levels,
        settings: parts.settings,
        hashes_addresses: plan.addresses != Addresses::Plain,
        entries: parts.entries,
        clock_offset_ns: parts.clock.map(|clock| clock.off_ns),
        clock_error_ns: parts.clock.map(|clock| clock.error_ns),
        troubles: parts.troubles,
    };
    // The next second has another.
    let _ = serde_json::to_vec(&status).map(|text| disk.put(FILE, &text, Lasting::No));
}

/// The rings, as the keeper reads them.
struct AtRings {
    station: Station,
}

impl Source for AtRings {
    fn round(&mut self, standing: &Standing) -> Option<Entry> {
        self.station.round(standing)
    }

    fn commit(&mut self, entry: &Entry) {
        self.station.commit(entry);
    }
}

/// The keeper's thread, until it is ordered to end.
fn keep(mut keeper: Keeper<Machine>, rings: &mut AtRings, inbox: &Receiver<()>, stand: &Stand) {
    let (mut pause, mut told_at) = (ROUND_BUSY, None);
    while inbox.recv_timeout(pause) == Err(RecvTimeoutError::Timeout) {
        tell_of_rings(rings, stand, &mut told_at);
        if let Some(settings) = stand.wanted() {
            keeper.go_by(settings);
        }
        match keeper.round(rings) {
            Ok(events) => {
                stand.trouble_is_over(DATA);
                // Nobody looks at it live: the rings hold seconds.
                let is_behind = rings.station.is_behind();
                pause = if is_behind {
                    // Rings were full: what is left of them is read at once.
                    Duration::ZERO
                } else if events > 0 {
                    ROUND_BUSY
                } else {
                    (pause * 2).clamp(ROUND_BUSY, ROUND_IDLE)
                };
            }
            Err(error) => {
                stand.trouble(DATA, &format!("{error}; programs' rings keep what they can, and count the rest"));
                pause = ROUND_TROUBLED;
            }
        }
        stand.keeper(&keeper);
    }
    if let Err(error) = keeper.end(rings) {
        stand.trouble(DATA, &format!("{error}; the next agent goes on from the journal"));
    }
    stand.keeper(&keeper);
}

/// Says what became of rings that programs have spoilt.
fn tell_of_rings(rings: &mut AtRings, stand: &Stand, told_at: &mut Option<u64>) {
    let now = monotonic_ns();
    // At most once in NOTES_NS: a program may corrupt its ring all the time.
    if told_at.is_some_and(|told| now - told < NOTES_NS) {
        return;
    }
    let notes = rings.station.take_notes();
    if !notes.is_empty() {
        *told_at = Some(now);
        notes.iter().for_each(|note| stand.say(note));
    }
}

/// A URL that the paths of the API can be added to.
///
/// # Errors
/// What is wrong with it.
pub fn base(typed: &str) -> Result<String, AgentError> {
    let wrong = |why: &str| AgentError::Plan(format!("--manager: {why}"));
    let uri: Uri = typed.parse().map_err(|_| wrong("a URL is wanted, such as https://manager.example:7443/"))?;
    if uri.host().is_none_or(str::is_empty) || !matches!(uri.scheme_str(), Some("http" | "https")) {
        return Err(wrong("a whole URL is wanted, such as https://manager.example:7443/"));
    }
    if uri.authority().is_some_and(|authority| authority.as_str().contains('@')) || uri.query().is_some() {
        return Err(wrong("neither a user nor a query belongs into it: the token is in --token FILE"));
    }
    if uri.scheme_str() == Some("http") && !is_loopback(typed) {
        return Err(wrong(
            "http is for loopback only, as the token would be readable on the way: use https, with --ca FILE for a certificate of the manager's own",
        ));
    }
    Ok(typed.trim_end_matches('/').to_owned())
}

fn post(manager: &str, plan: &Plan, token: token::Token) -> Result<Post, AgentError> {
    let roots = plan.ca.clone().map_or(Roots::System, Roots::File);
    let headers = vec![(AUTHORIZATION, token.header)];
    Ok(Post::new(Address { url: manager.to_owned(), headers, roots, timeout: ANSWER })?)
}

/// The same with the token and the certificates as they are now.
fn again(manager: &str, plan: &Plan, name: &str) -> Result<Post, AgentError> {
    let token = token::read(&plan.token)?;
    if token.name != name {
        let why =
            format!("{} has the token of another agent now: start this one again to be that", plan.token.display());
        return Err(AgentError::Plan(why));
    }
    post(manager, plan, token)
}

/// The data folder, for this agent alone.
fn lock(data: &Path) -> Result<File, AgentError> {
    let failed = |source| AgentError::Io { what: format!("opening {}", data.display()), source };
    DirBuilder::new().recursive(true).mode(0o700).create(data).map_err(failed)?;
    let mut options = File::options();
    let file = options.write(true).create(true).truncate(false).mode(0o600).open(data.join(LOCK)).map_err(failed)?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(std::fs::TryLockError::WouldBlock) => Err(AgentError::Plan(format!(
            "another agent runs with {}: each needs a --data and a --folder of its own",
            data.display()
        ))),
        Err(std::fs::TryLockError::Error(source)) => Err(failed(source)),
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
                    "{} is too short for a key: {KEY_MIN} bytes at least (head -c 32 /dev/urandom | base64)",
                    path.display()
                );
                return Err(AgentError::Plan(why));
            }
            Ok(digest(text))
        }
        Addresses::Hashed => {
            let failed = |source| AgentError::Io { what: "keeping the key of hashes".into(), source };
            if let Some(kept) = disk.get(KEY, 64).map_err(failed)?.filter(|kept| kept.len() == 32) {
                return Ok(digest(&kept));
            }
            let fresh = random::<32>().map_err(failed)?;
            disk.put(KEY, &fresh, Lasting::Yes).map_err(failed)?;
            Ok(digest(&fresh))
        }
    }
}

/// Rings for so many threads. A large one holds a minute of 250 records a second, so long may an agent be away.
fn capacity(threads: u32) -> Capacity {
    let slots = threads.clamp(1, LARGE_RINGS);
    Capacity { records: RECORDS, slots, small_slots: threads.saturating_sub(slots), ready: slots.min(READY) }
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

const DATA: &str = "journal and spool";
const KEY: &str = "key";
/// Of text that nobody guesses.
const KEY_MIN: usize = 16;
/// Where something was told a moment ago, where nothing was for some rounds, and where the disk fails.
const ROUND_BUSY: Duration = Duration::from_millis(20);
const ROUND_IDLE: Duration = Duration::from_millis(100);
const ROUND_TROUBLED: Duration = Duration::from_millis(500);
const STATUS: Duration = Duration::from_secs(1);
/// Between two lines about rings that programs spoil.
const NOTES_NS: u64 = 60_000_000_000;
/// For one request and its answer.
const ANSWER: Duration = Duration::from_secs(30);
/// For what is sealed at the end.
const LAST_WORDS: Duration = Duration::from_secs(5);
/// 1 MB each, as far as it is used.
const RECORDS: u32 = 16_384;
const LARGE_RINGS: u32 = 256;
/// Whole from the start: those of the first that come may be in a hurry.
const READY: u32 = 2;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_manager_is_https_or_on_loopback() {
        for (typed, url) in [
            ("https://manager.example:7443/", "https://manager.example:7443"),
            ("https://manager.example/taps/", "https://manager.example/taps"),
            ("http://127.0.0.1:80", "http://127.0.0.1:80"),
            ("http://[::1]:80/", "http://[::1]:80"),
        ] {
            assert_eq!(base(typed).unwrap(), url);
        }
        for wrong in
            ["", "manager:7443", "ftp://m/", "http://192.0.2.1/", "https://u:p@m/", "https://m/?a=b", "https://"]
        {
            let error = base(wrong).unwrap_err().to_string();
            assert!(error.starts_with("--manager"), "{wrong}: {error}");
        }
    }

    #[test]
    fn a_key_is_drawn_once_or_read() {
        let folder = tempfile::tempdir().unwrap();
        let disk = Disk::open(folder.path()).unwrap();
        assert_eq!(key(&Addresses::Plain, &disk).unwrap(), None);
        let drawn = key(&Addresses::Hashed, &disk).unwrap();
        assert!(drawn.is_some() && key(&Addresses::Hashed, &disk).unwrap() == drawn);
        let file = folder.path().join("shared");
        std::fs::write(&file, "0123456789abcdef\n").unwrap();
        let by = Addresses::HashedBy(file.clone());
        std::fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(0o644)).unwrap();
        assert!(key(&by, &disk).is_err(), "others may read it");
        std::fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
        let read = key(&by, &disk).unwrap();
        assert!(read.is_some() && read != drawn);
        std::fs::write(&file, "short\n").unwrap();
        assert!(key(&by, &disk).is_err());
    }

    #[test]
    fn one_agent_a_folder() {
        let folder = tempfile::tempdir().unwrap();
        let first = lock(folder.path()).unwrap();
        assert!(lock(folder.path()).unwrap_err().to_string().contains("another agent"));
        drop(first);
        assert!(lock(folder.path()).is_ok());
    }

    #[test]
    fn rings_are_as_many_as_threads() {
        let all = |threads| {
            let capacity = capacity(threads);
            capacity.slots + capacity.small_slots
        };
        assert_eq!([1, 16, 256, 1_280].map(all), [1, 16, 256, 1_280]);
    }
}
