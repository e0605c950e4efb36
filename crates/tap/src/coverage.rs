//! Which processes cannot be seen, and why: read from /proc and from the program's file.
//!
//! A recorded process reports itself ([`EventKind::Loaded`](crate::event::EventKind::Loaded)). The loader silently
//! skips a library that it cannot use, and a program without a loader never looks for one; this module determines both
//! from the outside. Activity of a recorded process that bypasses the hooks shows in the TCP counters of each
//! connection ([`TcpCounts`](crate::event::TcpCounts)).

mod elf;
mod ring_processes;

use std::fmt;
use std::fs;
use std::io::Read as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use nix::sys::resource::{RLIM_INFINITY, Resource, getrlimit};
use sys::accounting::{ProcessStat, descendants};

use crate::folder::{LIBRARY_NAME, PREFIX};

pub use ring_processes::{RingProcesses, ScanResult};

/// Why a program does not load the library.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Unseen {
    /// Linked statically: no loader runs.
    Static,
    /// A Go program without C code: it has no loader and makes system calls itself.
    Go,
    /// The program's loader belongs to another libc, which cannot load a library built for glibc.
    OtherLibc(String),
    /// Built for another architecture, such as 32-bit x86.
    OtherMachine,
    /// Set-user-ID, set-group-ID or with file capabilities: the loader then ignores LD_PRELOAD.
    Privileged,
    /// The program's environment lacks the library: the parent set another environment.
    NotPreloaded,
    /// The program has the library and could not map the ring: a memory limit, or another root directory.
    NoRing,
    /// The program was started with a system call filter that may kill it for a call of the library.
    Filtered,
    /// No reason is known.
    Unexplained,
}

impl fmt::Display for Unseen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unseen::Static => f.write_str("linked statically"),
            Unseen::Go => f.write_str("a Go program, which makes system calls without libc"),
            Unseen::OtherLibc(loader) => write!(f, "its loader is {loader}, not the loader of glibc"),
            Unseen::OtherMachine => f.write_str("built for another architecture than the tap library"),
            Unseen::Privileged => f.write_str(
                "set-user-ID, set-group-ID or with file capabilities: the loader ignores \
             LD_PRELOAD",
            ),
            Unseen::NotPreloaded => f.write_str("started with another environment, without LD_PRELOAD"),
            Unseen::NoRing => f.write_str("the ring could not be mapped: a memory limit, or another root directory"),
            Unseen::Filtered => f.write_str("started with a system call filter (seccomp): not recorded"),
            Unseen::Unexplained => f.write_str("did not report that it loaded the tap library"),
        }
    }
}

/// Why a program that loaded the library is recorded only in part.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Partial {
    /// A Go program with C code: the C code is seen, Go's own system calls are not.
    Go,
    /// The process has this number of io_uring rings: the kernel takes requests from memory, without function calls.
    Uring(usize),
    /// The program is linked with liburing.
    UringLibrary,
}

impl fmt::Display for Partial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Partial::Go => f.write_str("a Go program, which makes system calls without libc"),
            Partial::UringLibrary => f.write_str("linked with liburing, whose system calls bypass libc"),
            Partial::Uring(1) => f.write_str("uses an io_uring ring, which bypasses libc"),
            Partial::Uring(rings) => write!(f, "uses {rings} io_uring rings, which bypass libc"),
        }
    }
}

/// A running process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Process {
    /// Process number in this PID namespace.
    pub pid: i32,
    /// Process number in its innermost PID namespace: that of [`Origin`](crate::event::Origin).
    pub inner_pid: u32,
    /// Start in clock ticks since boot: together with `pid` it identifies the process.
    pub started_ticks: u64,
    /// Short name of the program, as in /proc/PID/comm.
    pub program: String,
}

/// Process `root` and its running descendants. One pass over /proc: processes that start or end meanwhile may be
/// missing.
pub fn living(root: i32) -> Vec<Process> {
    let mut pids = descendants(root);
    pids.push(root);
    pids.into_iter().filter_map(process).collect()
}

fn process(pid: i32) -> Option<Process> {
    let stat = ProcessStat::read(pid).filter(runs)?;
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let inner = status.lines().find_map(|line| line.strip_prefix("NSpid:")?.split_whitespace().last()?.parse().ok());
    let program = fs::read_to_string(format!("/proc/{pid}/comm")).ok()?;
    Some(Process {
        pid,
        inner_pid: inner.unwrap_or(pid.unsigned_abs()),
        started_ticks: stat.start_ticks,
        program: program.trim_end_matches('\n').to_owned(),
    })
}

/// Whether the process exists and is not a zombie. `pid` is a number of this namespace; 0 is unknown and counts as
/// alive.
pub fn is_alive(pid: u32) -> bool {
    pid == 0 || i32::try_from(pid).ok().and_then(ProcessStat::read).is_some_and(|stat| runs(&stat))
}

fn runs(stat: &ProcessStat) -> bool {
    !matches!(stat.state, 'Z' | 'X' | 'x')
}

/// Why `process` is not recorded. `None` if library and ring are mapped there, and if the process has ended. A
/// process that just starts has mapped neither: call this after some time.
pub fn reason(process: &Process) -> Option<Unseen> {
    reason_for_ring(process, &|line| contains(line, PREFIX.as_bytes()) && contains(line, b"/ring"))
}

/// Like [`reason`], for any ring: `is_ring` recognizes the ring in a line of /proc/PID/maps.
fn reason_for_ring(process: &Process, is_ring: &dyn Fn(&[u8]) -> bool) -> Option<Unseen> {
    let proc = PathBuf::from(format!("/proc/{}", process.pid));
    let maps = fs::read(proc.join("maps")).ok()?;
    if maps.split(|&byte| byte == b'\n').any(is_ring) {
        return None;
    }
    if contains(&maps, LIBRARY_NAME.as_bytes()) {
        return Some(Unseen::NoRing);
    }
    let why = elf_of(&proc.join("exe")).and_then(|elf| elf.unseen());
    if why.is_some() || ProcessStat::read(process.pid).is_none_or(|stat| stat.start_ticks != process.started_ticks) {
        return why;
    }
    // The environment at exec; later changes by the program are not visible.
    let environment = fs::read(proc.join("environ")).unwrap_or_default();
    let is_inherited = environment
        .split(|&byte| byte == 0)
        .any(|line| line.strip_prefix(b"LD_PRELOAD=").is_some_and(|list| contains(list, LIBRARY_NAME.as_bytes())));
    if !is_inherited {
        return Some(Unseen::NotPreloaded);
    }
    // After the environment: a program that changed its user on exec is not readable.
    let file = fs::metadata(proc.join("exe"));
    let privileged = file.is_ok_and(|file| file.permissions().mode() & 0o6000 != 0);
    Some(if privileged { Unseen::Privileged } else { Unseen::Unexplained })
}

/// Why a running `process` may bypass the hooks, whether or not it has done so.
pub fn partial(process: &Process) -> Option<Partial> {
    let rings = uring_descriptors(process.pid);
    if rings > 0 {
        return Some(Partial::Uring(rings));
    }
    elf_of(Path::new(&format!("/proc/{}/exe", process.pid))).filter(elf::Elf::is_go_program).map(|_| Partial::Go)
}

/// Like [`partial`], for a program that may have ended, as far as its file shows.
pub fn partial_by_file(path: &Path) -> Option<Partial> {
    let elf = elf_of(&on_path(path)?)?;
    if elf.has_uring() {
        return Some(Partial::UringLibrary);
    }
    elf.is_go_program().then_some(Partial::Go)
}

/// Number of descriptors of `pid` that are io_uring rings, which bypass all hooks. Only the lowest descriptors are
/// read: rings are created before connections, and reading 100,000 descriptors takes too long.
pub fn uring_descriptors(pid: i32) -> usize {
    let entries = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten().take(DESCRIPTORS_MAX);
    let is_uring = |link: PathBuf| link.as_os_str().as_bytes().starts_with(b"anon_inode:[io_uring]");
    entries.filter(|entry| fs::read_link(entry.path()).is_ok_and(is_uring)).count()
}

/// Why a program started from `path` with the library in its environment would not load it; `None` if there is no
/// such program. A name without a slash is looked up on PATH; for a script the interpreter counts.
pub fn why_not(path: &Path) -> Option<Unseen> {
    let mut file = on_path(path)?;
    // A script's interpreter may be a script: the kernel follows five.
    for _ in 0..5 {
        let metadata = fs::metadata(&file).ok().filter(|file| file.is_file())?;
        if metadata.permissions().mode() & 0o111 == 0 {
            return None;
        }
        if let Some(interpreter) = interpreter(&file) {
            // The script's own permission bits and capabilities do not count.
            file = interpreter;
            continue;
        }
        let elf = elf_of(&file)?;
        let privileged = metadata.mode() & 0o6000 != 0 || has_capabilities(&file);
        let why = elf.unseen().or_else(|| privileged.then_some(Unseen::Privileged));
        return Some(why.unwrap_or_else(unexplained));
    }
    None
}

/// Why an ended program could not map the ring: a limit on address space, inherited from this process, explains it.
fn unexplained() -> Unseen {
    match getrlimit(Resource::RLIMIT_AS) {
        Ok((limit, _)) if limit != RLIM_INFINITY => Unseen::NoRing,
        _ => Unseen::Unexplained,
    }
}

fn on_path(name: &Path) -> Option<PathBuf> {
    if name.as_os_str().as_bytes().contains(&b'/') {
        return Some(name.to_owned());
    }
    let folders = std::env::var_os("PATH")?;
    std::env::split_paths(&folders).map(|folder| folder.join(name)).find(|file| file.is_file())
}

/// The interpreter that `#!` names.
fn interpreter(file: &Path) -> Option<PathBuf> {
    let mut start = Vec::new();
    open(file)?.take(256).read_to_end(&mut start).ok()?;
    let line = start.strip_prefix(b"#!")?.split(|&byte| byte == b'\n').next()?.trim_ascii_start();
    let name = line.split(|byte| byte.is_ascii_whitespace()).next().filter(|name| !name.is_empty())?;
    Some(PathBuf::from(std::ffi::OsStr::from_bytes(name)))
}

/// File capabilities make a program as privileged as set-user-ID does.
fn has_capabilities(file: &Path) -> bool {
    let Ok(file) = std::ffi::CString::new(file.as_os_str().as_bytes()) else { return false };
    // SAFETY: both strings end in a zero; a buffer of no bytes returns the length only.
    let length = unsafe { libc::getxattr(file.as_ptr(), c"security.capability".as_ptr(), std::ptr::null_mut(), 0) };
    length > 0
}

fn elf_of(file: &Path) -> Option<elf::Elf> {
    elf::Elf::read(&open(file)?)
}

/// Opens a program file without waiting, in case it has become a pipe.
fn open(file: &Path) -> Option<fs::File> {
    fs::OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY).open(file).ok()
}

fn contains(text: &[u8], part: &[u8]) -> bool {
    text.windows(part.len()).any(|window| window == part)
}

const DESCRIPTORS_MAX: usize = 4_096;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_test_process_is_reported_as_alive_with_its_name() {
        let own = i32::try_from(std::process::id()).unwrap();
        assert!(is_alive(std::process::id()) && !is_alive(u32::MAX));
        let found = living(own).into_iter().find(|process| process.pid == own).unwrap();
        assert!(!found.program.is_empty() && found.started_ticks > 0);
        assert_eq!(uring_descriptors(own), 0);
        // A test process has no library, and no parent that preloaded it.
        assert_eq!(reason(&found), Some(Unseen::NotPreloaded));
        assert_eq!(reason(&Process { pid: i32::MAX, ..found }), None);
    }

    #[test]
    fn the_reason_for_an_unseen_program_is_read_from_its_file() {
        assert_eq!(why_not(Path::new("/bin/sh")), Some(Unseen::Unexplained));
        assert_eq!(why_not(Path::new("sh")), Some(Unseen::Unexplained));
        assert_eq!(why_not(Path::new("/no/such/program")), None);
        assert_eq!(why_not(Path::new("no-such-program-at-all")), None);
        assert_eq!(why_not(Path::new("/etc/passwd")), None);
        let folder = tempfile::tempdir().unwrap();
        let script = folder.path().join("script");
        fs::write(&script, "#! /bin/sh -e\nexit 0\n").unwrap();
        assert_eq!(why_not(&script), None, "a script without execute permission");
        fs::set_permissions(&script, fs::Permissions::from_mode(0o6755)).unwrap();
        assert_eq!(why_not(&script), Some(Unseen::Unexplained), "the script's own set-user-ID bit does not count");
        let shell = folder.path().join("shell");
        fs::copy("/bin/sh", &shell).unwrap();
        fs::set_permissions(&shell, fs::Permissions::from_mode(0o4755)).unwrap();
        assert_eq!(why_not(&shell), Some(Unseen::Privileged));
    }
}
