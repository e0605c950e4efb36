//! Import of runs from an archive.
//!
//! ```text
//!   archive --> gunzip, counted --> headers, contents --> .import-N/  (in the run store, no run's name)
//!                                                            '-- when all of it is read and valid: renamed, run by run
//! ```
//!
//! The archive is untrusted. An import refuses:
//!
//! - names that are absolute, contain `..`, are outside of a folder with a run id, or have control characters;
//! - links, devices, pipes, and names that occur twice;
//! - more than [`FILES_MAX`] files, or more unpacked bytes than the limit;
//! - a gzip or a tar header with a wrong checksum, and any data after the end.
//!
//! Permissions and owners in the archive are ignored: this program creates all files anew in a new folder. Each run
//! gets a marker of this import (`origin.rs`), so that references in its document to local runs are not trusted.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process;
use std::rc::Rc;
use std::time::{Duration, UNIX_EPOCH};

use flate2::bufread::GzDecoder;
use stats::Rng;

use super::header::{self, BLOCK, Kind};
use crate::run_store::{LETTER_COUNT, is_plain_id, is_run_folder, letters};
use crate::{Result, RunStore, StoreError, origin};

/// Options of an import.
#[derive(Clone, Copy, Debug, Default)]
pub struct Import {
    /// Largest unpacked size in bytes. Default: a hundred times the archive's own size plus 64 MiB, at most 16 GiB.
    pub bytes_max: Option<u64>,
    /// Give a run whose id exists in the run store already other letters. Without this such an import fails and imports
    /// nothing. The files of the run keep the old id.
    pub rename: bool,
    /// Seed for the letters of new ids.
    pub seed_for_letters: u64,
}

/// A run that was imported.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Imported {
    /// Id of the run in the archive.
    pub was: String,
    /// Id of the run in the run store.
    pub id: String,
}

/// Imports the runs of an archive into the run store: all of them or none.
///
/// # Errors
/// [`StoreError::Archive`] if the archive is invalid, or the run store cannot be written. Either way nothing is
/// imported.
pub fn import(run_store: &RunStore, archive: impl Read, name: &str, how: Import) -> Result<Vec<Imported>> {
    let root = run_store.root();
    fs::create_dir_all(root).map_err(|source| StoreError::io("mkdir", root, source))?;
    let root = fs::canonicalize(root).map_err(|source| StoreError::io("realpath", root, source))?;
    sweep(&root);
    let staging = Staging::new(&root)?;
    let refused = |why: String| StoreError::Archive { archive: name.to_owned(), why };
    let ids = unpack(archive, &root, &staging.path, &how).map_err(|fault| match fault {
        Fault::Archive(why) => refused(why),
        Fault::RunStore(error) => error,
    })?;
    if ids.is_empty() {
        return Err(refused("it contains no run".to_owned()));
    }
    for id in &ids {
        if !is_run_folder(&staging.path.join(id)) {
            return Err(refused(format!(
                "its folder {id} is not a run: it has neither plan.toml nor summary.json nor tables"
            )));
        }
    }
    let mark = staging.mark(how.seed_for_letters)?;
    for id in &ids {
        origin::mark(&staging.path.join(id), &mark)?;
    }
    sync_folders(&staging.path).map_err(|source| StoreError::io("fsync", &staging.path, source))?;
    let mut rng = Rng::named(how.seed_for_letters, "import");
    let mut done: Vec<Imported> = Vec::new();
    for was in ids {
        let outcome = settle(&root, &staging.path, &was, how.rename, &mut rng);
        match outcome {
            Ok(id) => done.push(Imported { was, id }),
            Err(error) => {
                // All or none: runs already renamed into the run store return to the staging folder, which is then
                // removed.
                for run in &done {
                    let _ = fs::rename(root.join(&run.id), staging.path.join(&run.was));
                }
                return Err(error);
            }
        }
    }
    File::open(&root).and_then(|root| root.sync_all()).map_err(|source| StoreError::io("fsync", &root, source))?;
    Ok(done)
}

/// Makes the folder's entries durable; the contents are durable already.
fn sync_folders(folder: &Path) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            sync_folders(&entry.path())?;
        }
    }
    File::open(folder)?.sync_all()
}

/// Moves an unpacked run into the run store.
fn settle(root: &Path, staging: &Path, was: &str, rename: bool, rng: &mut Rng) -> Result<String> {
    let mut id = was.to_owned();
    while root.join(&id).symlink_metadata().is_ok() {
        if !rename {
            return Err(taken(was));
        }
        id = format!("{}{}", &was[..was.len() - LETTER_COUNT], letters(rng));
    }
    let (from, to) = (staging.join(was), root.join(&id));
    fs::rename(&from, &to).map_err(|source| StoreError::io("rename", &to, source))?;
    Ok(id)
}

fn taken(id: &str) -> StoreError {
    let why = "the run store already has a run with this id; --rename imports it under a new id. Nothing was imported"
        .to_owned();
    StoreError::Refused { what: id.to_owned(), why }
}

/// A staging folder: locked, so that another import does not remove it, and removed with its contents on drop.
struct Staging {
    path: PathBuf,
    lock: File,
}

impl Staging {
    fn new(root: &Path) -> Result<Self> {
        let mut number = process::id();
        loop {
            let path = root.join(format!("{STAGING_PREFIX}{number}"));
            match fs::create_dir(&path) {
                Ok(()) => {
                    let lock = File::open(&path).map_err(|source| StoreError::io("open", &path, source))?;
                    let _ = lock.try_lock();
                    return Ok(Staging { path, lock });
                }
                Err(source) if source.kind() == io::ErrorKind::AlreadyExists => number = number.wrapping_add(1),
                Err(source) => return Err(StoreError::io("mkdir", &path, source)),
            }
        }
    }
}

impl Staging {
    /// Distinguishes this import from every other one of this run store.
    fn mark(&self, seed: u64) -> Result<String> {
        let found = self.lock.metadata().map_err(|source| StoreError::io("stat", &self.path, source))?;
        Ok(format!("{seed:016x}-{}-{}.{:09}", found.ino(), found.ctime(), found.ctime_nsec()))
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.path);
    }
}

/// Removes staging folders of killed imports.
fn sweep(root: &Path) {
    for entry in fs::read_dir(root).into_iter().flatten().flatten() {
        let is_staging = entry.file_name().to_str().is_some_and(|name| name.starts_with(STAGING_PREFIX));
        let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
        if is_staging && is_folder && File::open(entry.path()).is_ok_and(|folder| folder.try_lock().is_ok()) {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

enum Fault {
    /// The archive cannot be read, or is invalid.
    Archive(String),
    /// The run store cannot be written.
    RunStore(StoreError),
}

/// Unpacks the archive into `staging`; the ids of its runs, in order.
fn unpack(archive: impl Read, root: &Path, staging: &Path, how: &Import) -> std::result::Result<Vec<String>, Fault> {
    let read = Rc::new(Cell::new(0));
    let counted = Counted { inner: archive, read: Rc::clone(&read) };
    let mut tar =
        Unpacked { gzip: GzDecoder::new(BufReader::new(counted)), unpacked: 0, read, bytes_max: how.bytes_max };
    let mut ids = BTreeSet::new();
    let mut files = 0_u64;
    loop {
        let mut block = [0; BLOCK];
        tar.exactly(&mut block)?;
        let Some(header) = header::parse(&block).map_err(|why| Fault::Archive(why.to_owned()))? else { break };
        let shown = String::from_utf8_lossy(&header.name).into_owned();
        let bad = |why: String| Fault::Archive(format!("its file `{shown}` {why}"));
        let parts = path_parts(&header.name).map_err(&bad)?;
        let Some((id, inside)) = parts.split_first() else { continue };
        if !is_plain_id(id) {
            return Err(bad("is not in a folder with the name of a run".to_owned()));
        }
        // An existing id is reported before gigabytes are read.
        if !how.rename && root.join(id).symlink_metadata().is_ok() {
            return Err(Fault::RunStore(taken(id)));
        }
        files += 1;
        if files > FILES_MAX {
            return Err(Fault::Archive(format!("it has more than {FILES_MAX} files")));
        }
        let path = parts.iter().fold(staging.to_owned(), |path, part| path.join(part));
        match header.kind {
            Kind::Folder if header.size == 0 => {
                fs::create_dir_all(&path).map_err(|source| Fault::RunStore(StoreError::io("mkdir", &path, source)))?;
            }
            Kind::File if inside.is_empty() => return Err(bad("is a file, not a run's folder".to_owned())),
            Kind::File => tar.file(&path, header.size, header.mtime, &bad)?,
            Kind::Folder => return Err(bad("is a folder with contents".to_owned())),
            Kind::Other(kind) => return Err(bad(format!("is {kind}"))),
        }
        ids.insert((*id).to_owned());
    }
    tar.end()?;
    Ok(ids.into_iter().collect())
}

/// The parts of a path without `..`.
fn path_parts(name: &[u8]) -> std::result::Result<Vec<&str>, String> {
    let name = str::from_utf8(name).map_err(|_| "has a name that is not text".to_owned())?;
    if name.starts_with('/') {
        return Err("has an absolute path".to_owned());
    }
    let name = name.strip_prefix("./").unwrap_or(name);
    let name = name.strip_suffix('/').unwrap_or(name);
    if name.is_empty() || name == "." {
        return Ok(Vec::new());
    }
    let parts: Vec<&str> = name.split('/').collect();
    if parts.len() > DEPTH_MAX {
        return Err(format!("is more than {DEPTH_MAX} folders deep"));
    }
    match parts.iter().find_map(|part| part_refusal(part)) {
        Some(why) => Err(why.to_owned()),
        None => Ok(parts),
    }
}

/// Why a file name is invalid.
pub(super) fn part_refusal(part: &str) -> Option<&'static str> {
    match part {
        "" | "." => Some("has an empty part in its path"),
        ".." => Some("leaves its folder (..)"),
        part if part.len() > 255 => Some("has a name of more than 255 bytes"),
        part if part.chars().any(char::is_control) => Some("has control characters in its name"),
        _ => None,
    }
}

/// Reader of the unpacked bytes of the gzip, up to the size limit.
struct Unpacked<R: BufRead> {
    gzip: GzDecoder<R>,
    /// Bytes unpacked.
    unpacked: u64,
    /// Compressed bytes read.
    read: Rc<Cell<u64>>,
    bytes_max: Option<u64>,
}

impl<R: BufRead> Unpacked<R> {
    fn some(&mut self, buffer: &mut [u8]) -> std::result::Result<usize, Fault> {
        let count = self.gzip.read(buffer).map_err(|error| Fault::Archive(unreadable(&error)))?;
        self.unpacked += count as u64;
        let bound = self.bytes_max.unwrap_or_else(|| (64 * MIB + 100 * self.read.get()).min(BYTES_MAX));
        if self.unpacked > bound {
            let why = format!("unpacked it is larger than {bound} bytes; --limit allows more");
            return Err(Fault::Archive(why));
        }
        Ok(count)
    }

    fn exactly(&mut self, mut buffer: &mut [u8]) -> std::result::Result<(), Fault> {
        while !buffer.is_empty() {
            match self.some(buffer)? {
                0 => return Err(Fault::Archive("it is truncated".to_owned())),
                count => buffer = &mut buffer[count..],
            }
        }
        Ok(())
    }

    fn file(
        &mut self,
        path: &Path,
        size: u64,
        mtime: u64,
        bad: &impl Fn(String) -> Fault,
    ) -> std::result::Result<(), Fault> {
        let failed = |operation: &'static str, path: &Path, source: io::Error| match source.kind() {
            io::ErrorKind::AlreadyExists | io::ErrorKind::NotADirectory => bad("comes twice".to_owned()),
            _ => Fault::RunStore(StoreError::io(operation, path, source)),
        };
        let folder = path.parent().expect("below the staging folder");
        fs::create_dir_all(folder).map_err(|source| failed("mkdir", folder, source))?;
        let mut file = File::create_new(path).map_err(|source| failed("create", path, source))?;
        let mut remaining = size;
        let mut buffer = vec![0; 64 * 1024];
        while remaining > 0 {
            let length = buffer.len().min(usize::try_from(remaining).unwrap_or(usize::MAX));
            self.exactly(&mut buffer[..length])?;
            file.write_all(&buffer[..length]).map_err(|source| failed("write", path, source))?;
            remaining -= length as u64;
        }
        self.exactly(&mut [0; BLOCK][..header::padding(size)])?;
        if let Some(time) = UNIX_EPOCH.checked_add(Duration::from_secs(mtime)) {
            // A modification time that this file system cannot store is not an error.
            let _ = file.set_modified(time);
        }
        file.sync_all().map_err(|source| failed("fsync", path, source))
    }

    /// Expects only zeros, then the end of the gzip (which verifies its checksum), then the end of the file.
    fn end(mut self) -> std::result::Result<(), Fault> {
        let mut buffer = [0; 4096];
        loop {
            let count = self.some(&mut buffer)?;
            if count == 0 {
                break;
            }
            if buffer[..count].iter().any(|&byte| byte != 0) {
                return Err(Fault::Archive("it has data after its end".to_owned()));
            }
        }
        let mut rest = self.gzip.into_inner();
        match rest.fill_buf() {
            Ok([]) => Ok(()),
            Ok(_) => Err(Fault::Archive("it has data after its end".to_owned())),
            Err(error) => Err(Fault::Archive(unreadable(&error))),
        }
    }
}

fn unreadable(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::InvalidInput | io::ErrorKind::InvalidData => format!("it is not a valid gzip file: {error}"),
        io::ErrorKind::UnexpectedEof => "it is truncated".to_owned(),
        _ => error.to_string(),
    }
}

/// A reader that counts bytes.
struct Counted<R> {
    inner: R,
    read: Rc<Cell<u64>>,
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(buffer)?;
        self.read.set(self.read.get() + count as u64);
        Ok(count)
    }
}

/// Name prefix of a staging folder: hidden, and never a run id.
const STAGING_PREFIX: &str = ".import-";
/// A killed run of a day has tens of thousands of parts.
const FILES_MAX: u64 = 200_000;
/// Path components: the run's folder, a table's folder, a part, and one spare.
pub(super) const DEPTH_MAX: usize = 4;
const MIB: u64 = 1024 * 1024;
/// A run of an hour at 10,000 requests a second takes about a tenth of this.
const BYTES_MAX: u64 = 16 * 1024 * MIB;
