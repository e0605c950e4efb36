//! The run store: the directory of all stored runs.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use stats::Rng;

use crate::calendar::compact;
use crate::folder::{PLAN, SUMMARY};
use crate::listing::{self, Listing};
use crate::progress::PROGRESS_FILE;
use crate::{Result, RunEntry, RunFolder, StoreError};

/// All runs under one folder, one folder each, named `<yyyymmdd-hhmmss>-<name>-<4 letters>` by the time of their
/// start (UTC), so that names sort by time.
#[derive(Clone, Debug)]
pub struct RunStore {
    root: PathBuf,
}

/// Number of runs before the last run: 0 for `last`, N for `last~N`.
fn before_last(name: &str) -> Option<usize> {
    match name.strip_prefix("last")? {
        "" => Some(0),
        rest => rest.strip_prefix('~')?.parse().ok(),
    }
}

impl RunStore {
    /// The run store of this user: `$YAMABIKO_RUNS`, else `$XDG_DATA_HOME/yamabiko/runs`, else
    /// `~/.local/share/yamabiko/runs`, else `./yamabiko-runs`. Nothing is created yet.
    ///
    /// # Errors
    /// None today; a later version may have to read an index.
    pub fn open() -> Result<RunStore> {
        Ok(RunStore { root: root_from(|name| env::var_os(name)) })
    }

    /// The run store in the folder `root`.
    pub fn at(root: impl Into<PathBuf>) -> RunStore {
        RunStore { root: root.into() }
    }

    /// The folder of all runs.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Creates the folder of a new run. The id contains the letters, digits and dashes of `name`. Four random letters
    /// from the seed distinguish runs that start in the same second; they are drawn until the id is unused.
    ///
    /// # Errors
    /// The folder cannot be created: no permission, full disk.
    pub fn create(&self, name: &str, started: SystemTime, seed_for_letters: u64) -> Result<RunFolder> {
        fs::create_dir_all(&self.root).map_err(|source| StoreError::io("mkdir", &self.root, source))?;
        // The path is absolute, so that printed and stored paths are valid in any working directory.
        let root = fs::canonicalize(&self.root).map_err(|source| StoreError::io("realpath", &self.root, source))?;
        let (time, name) = (compact(started), plain_name(name));
        let mut rng = Rng::named(seed_for_letters, "run id");
        loop {
            let letters = letters(&mut rng);
            let path = root.join(format!("{time}-{name}-{letters}"));
            match fs::create_dir(&path) {
                Ok(()) => return RunFolder::new(path, started),
                Err(source) if source.kind() == io::ErrorKind::AlreadyExists => {}
                Err(source) => return Err(StoreError::io("mkdir", &path, source)),
            }
        }
    }

    /// Every run, oldest first; empty if the folder does not exist.
    ///
    /// # Errors
    /// A folder cannot be read.
    pub fn list(&self) -> Result<Vec<RunEntry>> {
        Ok(self.listing()?.entries)
    }

    /// Every run, with the number of folders read: unchanged folders come from the catalogue, the others update it.
    ///
    /// # Errors
    /// A folder cannot be read. A broken catalogue is not an error.
    pub fn listing(&self) -> Result<Listing> {
        listing::by_catalogue(&self.root, &self.ids()?)
    }

    /// Every run, read from the folders alone; the catalogue is neither read nor written.
    ///
    /// # Errors
    /// A folder cannot be read.
    pub fn listing_of_folders(&self) -> Result<Listing> {
        listing::by_folders(&self.root, &self.ids()?)
    }

    /// Rebuilds the catalogue from the folders.
    ///
    /// # Errors
    /// A folder cannot be read, or the catalogue cannot be written.
    pub fn rebuild(&self) -> Result<Listing> {
        listing::rebuilt(&self.root, &self.ids()?)
    }

    /// The folder of every run, oldest first, without reading them.
    ///
    /// # Errors
    /// The folder of all runs cannot be read.
    pub fn dirs(&self) -> Result<Vec<PathBuf>> {
        Ok(self.ids()?.iter().map(|id| self.root.join(id)).collect())
    }

    /// The folder of one run: by `last`, by `last~N` (the N-th before it, of any verb), by its id, by the beginning of
    /// its id, or by its path.
    ///
    /// # Errors
    /// [`StoreError::NoSuchRun`], [`StoreError::Ambiguous`], or the run store cannot be read.
    pub fn find(&self, name: &str) -> Result<PathBuf> {
        let no_such_run = || StoreError::NoSuchRun { name: name.to_owned(), root: self.root.clone() };
        let mut ids = self.ids()?;
        if let Some(back) = before_last(name) {
            let found = ids.iter().rev().nth(back);
            return found.map(|id| self.root.join(id)).ok_or_else(no_such_run);
        }
        if ids.iter().any(|id| id == name) {
            return Ok(self.root.join(name));
        }
        if is_run_folder(Path::new(name)) {
            return Ok(PathBuf::from(name));
        }
        ids.retain(|id| !name.is_empty() && id.starts_with(name));
        match &ids[..] {
            [] => Err(no_such_run()),
            [id] => Ok(self.root.join(id)),
            _ => {
                ids.truncate(5);
                Err(StoreError::Ambiguous { prefix: name.to_owned(), candidates: ids })
            }
        }
    }

    /// Names of the run folders, by time of start. Within one second the letters have no order, so the
    /// time at which the plan was written decides.
    fn ids(&self) -> Result<Vec<String>> {
        let entries = match fs::read_dir(&self.root) {
            Ok(entries) => entries,
            Err(source) if source.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(source) => return Err(StoreError::io("opendir", &self.root, source)),
        };
        let mut ids = Vec::new();
        for entry in entries {
            let entry = entry.map_err(|source| StoreError::io("readdir", &self.root, source))?;
            let Ok(id) = entry.file_name().into_string() else { continue };
            // The directory entry has the file type; only a link needs a stat call.
            let folder =
                entry.file_type().is_ok_and(|kind| kind.is_dir() || kind.is_symlink() && entry.path().is_dir());
            if folder && has_id_shape(&id) {
                ids.push(id);
            }
        }
        ids.sort();
        // Most runs are the only one of their second: only the others need the time of their plan.
        for second in ids.chunk_by_mut(|a, b| a[..TIME_LENGTH] == b[..TIME_LENGTH]) {
            if second.len() > 1 {
                second.sort_by_cached_key(|id| (self.begun(id), id.clone()));
            }
        }
        Ok(ids)
    }

    fn begun(&self, id: &str) -> Option<SystemTime> {
        let dir = self.root.join(id);
        fs::metadata(dir.join(PLAN)).or_else(|_| fs::metadata(&dir)).and_then(|metadata| metadata.modified()).ok()
    }
}

/// Draws the letters that distinguish runs of the same second.
pub(crate) fn letters(rng: &mut Rng) -> String {
    (0..LETTER_COUNT).map(|_| char::from(b'a' + rng.below(26) as u8)).collect()
}

fn root_from(variable: impl Fn(&str) -> Option<OsString>) -> PathBuf {
    let set = |name: &str| variable(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    if let Some(root) = set("YAMABIKO_RUNS") {
        return root;
    }
    // The XDG specification requires to ignore a relative path.
    let data = set("XDG_DATA_HOME")
        .filter(|path| path.is_absolute())
        .or_else(|| set("HOME").filter(|path| path.is_absolute()).map(|home| home.join(".local/share")));
    data.map_or_else(|| PathBuf::from("yamabiko-runs"), |data| data.join("yamabiko/runs"))
}

/// A name that is safe in a path, a shell and a terminal.
fn plain_name(name: &str) -> String {
    let mut plain = String::new();
    for c in name.chars() {
        match c.to_ascii_lowercase() {
            c if c.is_ascii_alphanumeric() => plain.push(c),
            _ if plain.is_empty() || plain.ends_with('-') => {}
            _ => plain.push('-'),
        }
        if plain.len() == NAME_MAX {
            break;
        }
    }
    let plain = plain.trim_end_matches('-');
    if plain.is_empty() { "run".to_owned() } else { plain.to_owned() }
}

/// Whether a name has the form of a run id.
pub(crate) fn has_id_shape(id: &str) -> bool {
    let bytes = id.as_bytes();
    let digits = |range: std::ops::Range<usize>| bytes[range].iter().all(u8::is_ascii_digit);
    bytes.is_ascii()
        && bytes.len() > TIME_LENGTH + LETTER_COUNT + 2
        && digits(0..8)
        && bytes[8] == b'-'
        && digits(9..TIME_LENGTH)
        && bytes[TIME_LENGTH] == b'-'
        && bytes[bytes.len() - LETTER_COUNT - 1] == b'-'
}

/// Whether a name is a run id with only letters, digits and dashes, as [`RunStore::create`] makes it.
pub(crate) fn is_plain_id(id: &str) -> bool {
    has_id_shape(id) && id.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
}

/// Whether a folder has files of a run.
pub(crate) fn is_run_folder(path: &Path) -> bool {
    [PLAN, SUMMARY, PROGRESS_FILE, "requests", "requests.parquet", "taps", "taps.parquet"]
        .iter()
        .any(|name| path.join(name).exists())
}

/// Length of `yyyymmdd-hhmmss`.
pub(crate) const TIME_LENGTH: usize = 15;
pub(crate) const LETTER_COUNT: usize = 4;
/// Longest name part of an id in characters: long enough to distinguish runs, short enough for a list.
const NAME_MAX: usize = 40;

#[cfg(test)]
mod tests {
    use super::*;

    fn root(variables: &[(&str, &str)]) -> PathBuf {
        root_from(|name| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| OsString::from(value)))
    }

    #[test]
    fn the_root_is_the_first_variable_that_is_set() {
        let all = [("YAMABIKO_RUNS", "here"), ("XDG_DATA_HOME", "/data"), ("HOME", "/home/me")];
        assert_eq!(root(&all), Path::new("here"));
        assert_eq!(root(&all[1..]), Path::new("/data/yamabiko/runs"));
        assert_eq!(root(&all[2..]), Path::new("/home/me/.local/share/yamabiko/runs"));
        assert_eq!(root(&[]), Path::new("yamabiko-runs"));
        assert_eq!(root(&[("YAMABIKO_RUNS", ""), ("XDG_DATA_HOME", "relative")]), Path::new("yamabiko-runs"));
    }

    #[test]
    fn run_names_keep_letters_digits_and_dashes() {
        assert_eq!(plain_name("bench"), "bench");
        assert_eq!(plain_name("../..//etc/passwd"), "etc-passwd");
        assert_eq!(plain_name("甲子園 2001\u{1b}[31m"), "2001-31m");
        assert_eq!(plain_name("---"), "run");
        assert_eq!(plain_name(&"x".repeat(100)).len(), NAME_MAX);
    }

    #[test]
    fn run_ids_are_recognized() {
        assert!(has_id_shape("20261120-093005-bench-abcd"));
        assert!(!has_id_shape("20261120-093005-abcd"));
        assert!(!has_id_shape("lost+found"));
        assert!(!has_id_shape("2026112x-093005-bench-abcd"));
        assert!(!has_id_shape(""));
    }
}
