//! Runs this program under its own tap: the program restarts in place with the library loaded.
//!
//! ```text
//!   image 1: Folder, Rings ── exec: same file, arguments, number ──> image 2: the loader, Loaded ──> enter() ──> Own
//! ```
//!
//! The loader reads LD_PRELOAD once, so a running program cannot load the library later. Call [`enter`] before any
//! action with side effects, such as reading a stream or creating a file.
//!
//! Programs started by the second image are not recorded: the previous environment is restored.

use std::ffi::{OsStr, OsString};
use std::os::fd::RawFd;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::Command;

use sys::clock::Clock;

use crate::error::{Error, Result};
use crate::folder::Folder;
use crate::rings::{Capacity, Rings};

/// Marks the second image: `PID:FD`, its process number and the descriptor of the folder's lock.
const SELF_TAP_VARIABLE: &str = "YAMABIKO_TAP_OWN";

/// The second image: the library is loaded and writes here.
#[derive(Debug)]
pub struct SelfTap {
    folder: Folder,
}

impl SelfTap {
    /// The tap's folder, and the reader of its rings. Times are on `clock`; earlier ones become its zero.
    ///
    /// # Errors
    /// The ring's file cannot be mapped.
    pub fn into_rings(self, clock: Clock) -> Result<(Folder, Rings)> {
        let rings = Rings::open(&self.folder, clock)?;
        Ok((self.folder, rings))
    }
}

/// In the first image, restarts the program and does not return. In the second image, returns immediately.
///
/// # Errors
/// No folder can hold the library; or the library was not loaded, since the program has capabilities or is
/// set-user-ID; or it already runs under a tap; or it has other threads, which exec would end.
pub fn enter(capacity: Capacity) -> Result<SelfTap> {
    if let Some(self_tap) = second_image()? {
        return Ok(self_tap);
    }
    if std::env::var_os(TAP_VARIABLE).is_some() {
        return Err(Error::UnderTap);
    }
    require_one_thread()?;
    let (folder, rings) = Rings::create_somewhere(Clock::start(), capacity)?;
    drop(rings);
    let program = std::env::current_exe().map_err(Error::file("find", "/proc/self/exe".as_ref()))?;
    let lock = folder.set_kept_over_exec(true)?;
    let mut arguments = std::env::args_os();
    let mut command = Command::new(&program);
    command.arg0(arguments.next().unwrap_or_default()).args(arguments);
    command.envs(folder.environment(std::env::var_os(PRELOAD_VARIABLE).as_deref()));
    command.env(SELF_TAP_VARIABLE, format!("{}:{lock}", std::process::id()));
    sys::inherited::restore_in(&mut command);
    // Only a failure returns.
    let error = command.exec();
    let _ = folder.set_kept_over_exec(false);
    Err(Error::file("start again", &program)(error))
}

/// The second image; `None` in the first.
fn second_image() -> Result<Option<SelfTap>> {
    let Some((pid, lock)) = std::env::var_os(SELF_TAP_VARIABLE).as_deref().and_then(read_mark) else { return Ok(None) };
    if pid != std::process::id() {
        // Inherited from an ancestor that did not remove it.
        return Ok(None);
    }
    require_one_thread()?;
    let path = PathBuf::from(std::env::var_os(TAP_VARIABLE).unwrap_or_default());
    let folder = Folder::adopt(path, lock)?;
    let preload = std::env::var_os(PRELOAD_VARIABLE).unwrap_or_default();
    let before = without_library(&preload, folder.library().as_os_str());
    // SAFETY: this process has one thread, as just checked, so no other thread reads the environment.
    unsafe {
        std::env::remove_var(SELF_TAP_VARIABLE);
        std::env::remove_var(TAP_VARIABLE);
        match before {
            Some(before) => std::env::set_var(PRELOAD_VARIABLE, before),
            None => std::env::remove_var(PRELOAD_VARIABLE),
        }
    }
    if Rings::images_of(&folder)? == 0 {
        return Err(Error::NotLoaded);
    }
    Ok(Some(SelfTap { folder }))
}

fn read_mark(mark: &OsStr) -> Option<(u32, RawFd)> {
    let (pid, lock) = mark.to_str()?.split_once(':')?;
    Some((pid.parse().ok()?, lock.parse().ok()?))
}

/// The previous LD_PRELOAD; `None`: there was none.
fn without_library(preload: &OsStr, library: &OsStr) -> Option<OsString> {
    match preload.as_bytes().strip_prefix(library.as_bytes()) {
        None => Some(preload.to_owned()).filter(|preload| !preload.is_empty()),
        Some(rest) => rest.strip_prefix(b":").map(|rest| OsString::from_vec(rest.to_vec())),
    }
}

fn require_one_thread() -> Result<()> {
    let tasks = std::fs::read_dir("/proc/self/task").map_err(Error::file("read", "/proc/self/task".as_ref()))?;
    match tasks.count() {
        1 => Ok(()),
        threads => Err(Error::Threads { threads }),
    }
}

const TAP_VARIABLE: &str = "YAMABIKO_TAP";
const PRELOAD_VARIABLE: &str = "LD_PRELOAD";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_previous_ld_preload_is_restored() {
        let library = OsStr::new("/dev/shm/x/libyamabiko_tap.so");
        assert_eq!(without_library(library, library), None);
        assert_eq!(
            without_library(OsStr::new("/dev/shm/x/libyamabiko_tap.so:/a.so /b.so"), library),
            Some("/a.so /b.so".into())
        );
        assert_eq!(without_library(OsStr::new(""), library), None, "an empty variable counts as no previous value");
        assert_eq!(without_library(OsStr::new("/a.so"), library), Some("/a.so".into()));
    }

    #[test]
    fn the_self_tap_variable_has_two_numbers() {
        assert_eq!(read_mark(OsStr::new("17:5")), Some((17, 5)));
        for mark in ["", "17", "17:", ":5", "x:5", "17:5:"] {
            assert_eq!(read_mark(OsStr::new(mark)), None, "{mark}");
        }
    }
}
