//! Taking a run out of the book.

use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};

use schema::RunPhase;

use crate::folder::SUMMARY;
use crate::run_store::has_id_shape;
use crate::{Result, RunStore, StoreError, read_progress};

/// Removes the run in `dir`, a folder of `book`. It is renamed first, so that whatever happens the list shows it whole or
/// not at all; what an earlier removal left is removed as well. Links in it are removed, and never followed.
///
/// # Errors
/// [`StoreError::Refused`] if it is not in the book, is a link, or goes on; or it cannot be removed.
pub fn remove(book: &RunStore, dir: &Path) -> Result<()> {
    let (root, id) = place_of(book, dir)?;
    let dir = root.join(&id);
    let _alone = alone(&dir, &id)?;
    // A removal of the same run that was killed may have left it where this one puts it.
    sweep(&root);
    let aside = root.join(format!("{ASIDE}{id}"));
    fs::rename(&dir, &aside).map_err(|source| StoreError::io("rename", &dir, source))?;
    fs::remove_dir_all(&aside).map_err(|source| StoreError::io("rmdir", &aside, source))?;
    File::open(&root).and_then(|root| root.sync_all()).map_err(|source| StoreError::io("fsync", &root, source))
}

/// Whether [`remove`] would remove it now.
///
/// # Errors
/// Those for which it would not.
pub fn removable(book: &RunStore, dir: &Path) -> Result<()> {
    let (root, id) = place_of(book, dir)?;
    alone(&root.join(&id), &id).map(drop)
}

/// The book's folder and the run's name in it.
fn place_of(book: &RunStore, dir: &Path) -> Result<(PathBuf, String)> {
    let refused = |why: &str| StoreError::Refused { what: dir.display().to_string(), why: why.to_owned() };
    let root = fs::canonicalize(book.root()).map_err(|source| StoreError::io("realpath", book.root(), source))?;
    let id = dir.file_name().and_then(|name| name.to_str()).filter(|id| has_id_shape(id));
    let parent = dir.parent().map(|parent| if parent.as_os_str().is_empty() { Path::new(".") } else { parent });
    let inside = parent.is_some_and(|parent| fs::canonicalize(parent).is_ok_and(|parent| parent == root));
    let Some(id) = id.filter(|_| inside) else {
        return Err(refused("it is not a run of the book; remove the folder yourself if you mean to"));
    };
    let found = fs::symlink_metadata(root.join(id)).map_err(|source| StoreError::io("stat", dir, source))?;
    if found.is_symlink() {
        return Err(refused("it is a link to somewhere else; remove the link yourself (rm), which leaves the run"));
    }
    Ok((root, id.to_owned()))
}

/// The run's folder, locked as a run that goes on would lock it.
fn alone(dir: &Path, id: &str) -> Result<File> {
    let lock = File::open(dir).map_err(|source| StoreError::io("open", dir, source))?;
    let why = match lock.try_lock() {
        Ok(()) => return Ok(lock),
        Err(TryLockError::WouldBlock) => "it goes on, or is being read whole, in another process; wait for its end",
        // A file system without locks cannot say whether a run goes on; one that has its summary does not, unless its standing says so: a
        // search writes both while it goes.
        Err(TryLockError::Error(error)) if error.kind() == io::ErrorKind::Unsupported => {
            let goes_on = read_progress(dir).ok().flatten().is_some_and(|standing| standing.phase != RunPhase::Done);
            if dir.join(SUMMARY).exists() && !goes_on {
                return Ok(lock);
            }
            "nothing says that it ended, and this file system cannot tell whether it goes on; remove the folder yourself"
        }
        Err(TryLockError::Error(source)) => return Err(StoreError::io("flock", dir, source)),
    };
    Err(StoreError::Refused { what: id.to_owned(), why: why.to_owned() })
}

/// Removes what removals that were killed have left. Their failure is no failure of this one.
fn sweep(root: &Path) {
    for entry in fs::read_dir(root).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let left = name.to_str().and_then(|name| name.strip_prefix(ASIDE)).is_some_and(has_id_shape);
        let folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
        // A removal that is under way holds its folder.
        if left && folder && File::open(entry.path()).is_ok_and(|folder| folder.try_lock().is_ok()) {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

/// Begins the name of a folder that is being removed: no run's name, and hidden.
const ASIDE: &str = ".removed-";
