//! Removal of a run.

use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};

use schema::RunPhase;

use crate::folder::SUMMARY;
use crate::run_store::has_id_shape;
use crate::{Result, RunStore, StoreError, read_progress};

/// Removes the run in `dir`, a folder of `run_store`. The folder is renamed first, so that a list shows the run
/// completely or not at all. Remains of an earlier killed removal are removed as well. Links in the folder are removed,
/// not followed.
///
/// # Errors
/// [`StoreError::Refused`] if `dir` is not in the run store, is a link, or the run is still running. Also I/O errors.
pub fn remove(run_store: &RunStore, dir: &Path) -> Result<()> {
    let (root, id) = place_of(run_store, dir)?;
    let dir = root.join(&id);
    let _alone = lock_exclusively(&dir, &id)?;
    // A killed removal of the same run may have left the target of the rename.
    sweep(&root);
    let aside = root.join(format!("{REMOVED_PREFIX}{id}"));
    fs::rename(&dir, &aside).map_err(|source| StoreError::io("rename", &dir, source))?;
    fs::remove_dir_all(&aside).map_err(|source| StoreError::io("rmdir", &aside, source))?;
    File::open(&root).and_then(|root| root.sync_all()).map_err(|source| StoreError::io("fsync", &root, source))
}

/// Checks whether [`remove`] can remove the run now.
///
/// # Errors
/// The errors of [`remove`].
pub fn removable(run_store: &RunStore, dir: &Path) -> Result<()> {
    let (root, id) = place_of(run_store, dir)?;
    lock_exclusively(&root.join(&id), &id).map(drop)
}

/// The run store's folder and the run's name in it.
fn place_of(run_store: &RunStore, dir: &Path) -> Result<(PathBuf, String)> {
    let refused = |why: &str| StoreError::Refused { what: dir.display().to_string(), why: why.to_owned() };
    let root =
        fs::canonicalize(run_store.root()).map_err(|source| StoreError::io("realpath", run_store.root(), source))?;
    let id = dir.file_name().and_then(|name| name.to_str()).filter(|id| has_id_shape(id));
    let parent = dir.parent().map(|parent| if parent.as_os_str().is_empty() { Path::new(".") } else { parent });
    let inside = parent.is_some_and(|parent| fs::canonicalize(parent).is_ok_and(|parent| parent == root));
    let Some(id) = id.filter(|_| inside) else {
        return Err(refused("it is not a run of this run store; to delete it anyway, remove the folder yourself"));
    };
    let found = fs::symlink_metadata(root.join(id)).map_err(|source| StoreError::io("stat", dir, source))?;
    if found.is_symlink() {
        return Err(refused("it is a symbolic link; remove the link yourself (rm), which leaves the run"));
    }
    Ok((root, id.to_owned()))
}

/// Opens the run's folder and locks it exclusively, as a running run does.
fn lock_exclusively(dir: &Path, id: &str) -> Result<File> {
    let lock = File::open(dir).map_err(|source| StoreError::io("open", dir, source))?;
    let why = match lock.try_lock() {
        Ok(()) => return Ok(lock),
        Err(TryLockError::WouldBlock) => "it is still running, or another process reads it; wait until it ends",
        // Without locks, a run with a summary counts as ended unless its progress file reports a phase before the end:
        // a capacity search writes both files while it runs.
        Err(TryLockError::Error(error)) if error.kind() == io::ErrorKind::Unsupported => {
            let is_running = read_progress(dir).ok().flatten().is_some_and(|progress| progress.phase != RunPhase::Done);
            if dir.join(SUMMARY).exists() && !is_running {
                return Ok(lock);
            }
            "it may still be running: no end was written, and this file system has no locks; remove the folder yourself"
        }
        Err(TryLockError::Error(source)) => return Err(StoreError::io("flock", dir, source)),
    };
    Err(StoreError::Refused { what: id.to_owned(), why: why.to_owned() })
}

/// Removes the remains of killed removals, and ignores errors.
fn sweep(root: &Path) {
    for entry in fs::read_dir(root).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let is_remains = name.to_str().and_then(|name| name.strip_prefix(REMOVED_PREFIX)).is_some_and(has_id_shape);
        let folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
        // A removal in progress has locked its folder.
        if is_remains && folder && File::open(entry.path()).is_ok_and(|folder| folder.try_lock().is_ok()) {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

/// Name prefix of a folder that is being removed: hidden, and never a run id.
const REMOVED_PREFIX: &str = ".removed-";
