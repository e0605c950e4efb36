//! Creates rings for users without one: a program connects, the kernel tells its user, and that user gets a file.
//!
//! ```text
//!   program of user 33:  open ring.33: no such file ──connect──> FOLDER/ask      the kernel: process 4711 of user 33
//!                        open ring.33             <── "33" ────  ring.33 made, mode 0600, given to user 33
//! ```
//!
//! Programs connect only while their user has no file, and only at their start: a collector that hangs, or a full
//! socket, costs them a fifth of a second at most, and then they run without being recorded. No data of the program
//! is read here.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{ErrorKind, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _, fchown};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{getsockopt, sockopt};
use nix::unistd::geteuid;
use sys::accounting::ProcessStat;

use super::ring_file::{FIRST, INDEX_END, RingFile, Set};
use crate::error::{Error, Result};

/// Which programs of other users get a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// All programs of the machine.
    AllPrograms,
    /// Only descendants of this process.
    Descendants,
}

/// Handle of the serving thread. The thread ends when the handle is dropped.
#[derive(Debug)]
pub(super) struct RingServer {
    created: Receiver<RingFile>,
    /// Closed to end the thread.
    end: Option<UnixStream>,
    thread: Option<JoinHandle<()>>,
}

/// The file of each user.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Users {
    /// The next index.
    pub next: u32,
    /// The index of each user's file.
    pub index: BTreeMap<u32, u32>,
}

impl RingServer {
    /// Opens the socket in `folder` and serves requests. `users` have files already.
    pub fn start(folder: &Path, set: Set, users: Users, policy: Policy) -> Result<RingServer> {
        let path = folder.join(SOCKET_NAME);
        let _ = fs::remove_file(&path);
        let listener = UnixListener::bind(&path).map_err(Error::file("bind", &path))?;
        listener.set_nonblocking(true).map_err(Error::file("set O_NONBLOCK of", &path))?;
        // Independent of the umask. A connection can only request a ring.
        fs::set_permissions(&path, Permissions::from_mode(0o666)).map_err(Error::file("change the mode of", &path))?;
        let (end, end_signal) = UnixStream::pair().map_err(Error::file("create a socket next to", &path))?;
        let (created, ring_files) = channel();
        let maker = RingMaker { folder: folder.to_owned(), set, users, policy, created, recreations: BTreeMap::new() };
        let thread =
            std::thread::Builder::new().name("tap-ask".into()).spawn(move || maker.run(&listener, &end_signal));
        let thread = thread.map_err(Error::file("start a thread for", &path))?;
        Ok(RingServer { created: ring_files, end: Some(end), thread: Some(thread) })
    }

    /// Requests a ring for this process itself: its own file was removed.
    pub fn request(folder: &Path) {
        // The thread creates the file first and passes it on like all others. On a failure there is none.
        let _ = UnixStream::connect(folder.join(SOCKET_NAME));
    }

    /// Files created since the last call.
    pub fn created(&self) -> impl Iterator<Item = RingFile> + '_ {
        self.created.try_iter()
    }
}

impl Drop for RingServer {
    fn drop(&mut self) {
        drop(self.end.take());
        if let Some(thread) = self.thread.take() {
            // After a panic of the thread no request is served any more.
            let _ = thread.join();
        }
    }
}

/// State of the thread.
struct RingMaker {
    folder: PathBuf,
    set: Set,
    users: Users,
    policy: Policy,
    created: Sender<RingFile>,
    /// How often each user's file was recreated.
    recreations: BTreeMap<u32, u32>,
}

impl RingMaker {
    fn run(mut self, listener: &UnixListener, end_signal: &UnixStream) {
        loop {
            let mut waits =
                [PollFd::new(listener.as_fd(), PollFlags::POLLIN), PollFd::new(end_signal.as_fd(), PollFlags::POLLIN)];
            // After an interruption the loop polls again.
            let _ = poll(&mut waits, PollTimeout::NONE);
            if waits[1].any() == Some(true) {
                return;
            }
            match listener.accept() {
                Ok((stream, _)) => self.respond(stream),
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
                // No descriptor is left: programs that connect meanwhile give up.
                Err(_) => drop(poll(&mut waits[1..], OUT_OF_DESCRIPTORS_MS)),
            }
        }
    }

    /// Sends the user's number, as this process sees it; a program that receives none continues without a ring.
    fn respond(&mut self, mut stream: UnixStream) {
        let Ok(peer) = getsockopt(&stream, sockopt::PeerCredentials) else { return };
        if self.policy == Policy::Descendants && !is_descendant(peer.pid()) {
            return;
        }
        if self.has_file(peer.uid()) || self.create_ring(peer.uid()).is_ok() {
            let _ = stream.set_nonblocking(true).and_then(|()| stream.write_all(&peer.uid().to_ne_bytes()));
        }
    }

    /// Whether the user has a file. The reader removes a truncated one.
    fn has_file(&self, user: u32) -> bool {
        let size = fs::symlink_metadata(path_of(&self.folder, user)).map(|file| file.len());
        self.users.index.contains_key(&user) && size.is_ok_and(|size| size == self.set.shape.file_bytes())
    }

    fn create_ring(&mut self, user: u32) -> Result<()> {
        let path = path_of(&self.folder, user);
        let limit_reached = || Error::file("make", &path)(ErrorKind::QuotaExceeded.into());
        let times_created = self.recreations.entry(user).or_default();
        let is_new = !self.users.index.contains_key(&user);
        if *times_created > RECREATED_MAX
            || self.users.next >= INDEX_END
            || (is_new && self.users.index.len() >= USERS_MAX)
        {
            return Err(limit_reached());
        }
        *times_created += 1;
        let index = self.users.next;
        self.users.next += 1;
        self.users.index.insert(user, index);
        // The index is stored before the file exists, so that an index is never reused.
        self.users.write(&self.folder)?;
        let ring_file = create(&self.folder, &self.set, index, user)?;
        // Without a reader the file is useless.
        let _ = self.created.send(ring_file);
        Ok(())
    }
}

/// Creates a file for `user`.
pub(super) fn create(folder: &Path, set: &Set, index: u32, user: u32) -> Result<RingFile> {
    let (path, new) = (path_of(folder, user), folder.join(format!("{NEW}.{index}")));
    let _ = fs::remove_file(&new);
    let file = OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(&new);
    let file = file.map_err(Error::file("create", &new))?;
    let handle = file.try_clone().map_err(Error::file("open", &new))?;
    let created = RingFile::fill(file, &new, set, index, user, 0).and_then(|ring_file| {
        if user != geteuid().as_raw() {
            fchown(&handle, Some(user), None).map_err(Error::file("set the owner of", &new))?;
        }
        fs::rename(&new, &path).map_err(Error::file("rename to", &path))?;
        Ok(ring_file)
    });
    if created.is_err() {
        let _ = fs::remove_file(&new);
    }
    created
}

/// Path of a user's file: it has the user's number in its name, except for the tap's user.
pub(super) fn path_of(folder: &Path, user: u32) -> PathBuf {
    if user == geteuid().as_raw() { folder.join("ring") } else { folder.join(format!("ring.{user}")) }
}

impl Users {
    /// The initial table: only the tap's user has a file.
    pub fn first() -> Users {
        Users { next: FIRST + 1, index: BTreeMap::from([(geteuid().as_raw(), FIRST)]) }
    }

    /// Reads the stored users; empty if they are invalid.
    pub fn read(folder: &Path) -> Users {
        let text = fs::read_to_string(folder.join(USERS_NAME)).unwrap_or_default();
        let mut users = Users::default();
        for line in text.lines() {
            let mut words = line.split(' ').map(str::parse::<u32>);
            match (words.next(), words.next()) {
                (Some(Ok(index)), Some(Ok(user))) => drop(users.index.insert(user, index)),
                (Some(Ok(next)), None) => users.next = next,
                _ => {}
            }
        }
        users
    }

    /// Stores the users for the next reader.
    pub fn write(&self, folder: &Path) -> Result<()> {
        let (path, new) = (folder.join(USERS_NAME), folder.join(format!("{USERS_NAME}.new")));
        let lines = self.index.iter().map(|(user, index)| format!("{index} {user}\n"));
        let text: String = std::iter::once(format!("{}\n", self.next)).chain(lines).collect();
        let _ = fs::remove_file(&new);
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new);
        let wrote = file.and_then(|mut file: File| file.write_all(text.as_bytes()));
        wrote.and_then(|()| fs::rename(&new, &path)).map_err(Error::file("write", &path))
    }
}

/// Whether a process descends from this one.
fn is_descendant(pid: i32) -> bool {
    let this_process = std::process::id().cast_signed();
    let mut pid = pid;
    for _ in 0..ANCESTORS_MAX {
        if pid == this_process {
            return true;
        }
        match ProcessStat::read(pid) {
            Some(stat) if pid > 1 => pid = stat.parent,
            _ => return false,
        }
    }
    false
}

/// Name of the socket in the folder.
const SOCKET_NAME: &str = "ask";
/// Name of the file with the users.
const USERS_NAME: &str = "users";
/// Name of a file under construction.
const NEW: &str = "ring.new";
/// Maximum other users: each may use as much memory as the tap's rings.
const USERS_MAX: usize = 64;
/// Maximum times that a truncated file is recreated for a user.
const RECREATED_MAX: u32 = 3;
/// Maximum parents that are checked: more than any program has.
const ANCESTORS_MAX: usize = 1_000;
/// Pause before the next accept when no descriptor is left.
const OUT_OF_DESCRIPTORS_MS: u8 = 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_users_file_reads_back() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(Users::read(folder.path()), Users::default());
        let users = Users { next: 7, index: BTreeMap::from([(33, 1), (65_534, 6)]) };
        users.write(folder.path()).unwrap();
        assert_eq!(Users::read(folder.path()), users);
        let mode = fs::metadata(folder.path().join(USERS_NAME)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn a_process_is_its_own_descendant_and_init_is_not_a_descendant() {
        assert!(is_descendant(std::process::id().cast_signed()));
        assert!(!is_descendant(1) && !is_descendant(0) && !is_descendant(i32::MAX));
    }
}
