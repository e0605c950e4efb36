//! The folder of all runs.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use stats::Rng;

use crate::calendar::Utc;
use crate::folder::{PLAN, SUMMARY};
use crate::standing::STANDING;
use crate::{Result, RunEntry, RunFolder, StoreError};

/// All runs under one folder, one folder each, named `<yyyymmdd-hhmmss>-<name>-<4 letters>` by the moment of their
/// start (UTC), so that names sort by time.
#[derive(Clone, Debug)]
pub struct Book {
    root: PathBuf,
}

impl Book {
    /// The book of this user: `$YAMABIKO_RUNS`, else `$XDG_DATA_HOME/yamabiko/runs`, else
    /// `~/.local/share/yamabiko/runs`, else `./yamabiko-runs`. Nothing is created yet.
    ///
    /// # Errors
    /// None today; a later version may have to read an index.
    pub fn open() -> Result<Book> {
        Ok(Book { root: root_from(|name| env::var_os(name)) })
    }

    /// A book at a folder of the caller's choice.
    pub fn at(root: impl Into<PathBuf>) -> Book {
        Book { root: root.into() }
    }

    /// The folder of all runs.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Makes the folder of a new run. Of `name`, letters, digits and dashes are kept. The four letters keep apart runs
    /// that start in the same second; they are drawn from the seed, and drawn again while the name is taken.
    ///
    /// # Errors
    /// The folder cannot be made: no permission, full disk.
    pub fn create(&self, name: &str, started: SystemTime, seed_for_letters: u64) -> Result<RunFolder> {
        fs::create_dir_all(&self.root).map_err(|source| StoreError::io("mkdir", &self.root, source))?;
        // Absolute, so that the printed path and the one in the document hold wherever they are read.
        let root = fs::canonicalize(&self.root).map_err(|source| StoreError::io("realpath", &self.root, source))?;
        let (moment, name) = (Utc::from_system(started).compact(), plain_name(name));
        let mut rng = Rng::named(seed_for_letters, "run id");
        loop {
            let letters: String = (0..LETTERS).map(|_| char::from(b'a' + rng.below(26) as u8)).collect();
            let path = root.join(format!("{moment}-{name}-{letters}"));
            match fs::create_dir(&path) {
                Ok(()) => return RunFolder::new(path, started),
                Err(source) if source.kind() == io::ErrorKind::AlreadyExists => {}
                Err(source) => return Err(StoreError::io("mkdir", &path, source)),
            }
        }
    }

    /// Every run, oldest first. A book that is not there yet has none.
    ///
    /// # Errors
    /// A folder cannot be read.
    pub fn list(&self) -> Result<Vec<RunEntry>> {
        self.ids()?.iter().map(|id| RunEntry::look(&self.root.join(id))).collect()
    }

    /// The folder of every run, oldest first, without a look into them.
    ///
    /// # Errors
    /// The folder of all runs cannot be read.
    pub fn dirs(&self) -> Result<Vec<PathBuf>> {
        Ok(self.ids()?.iter().map(|id| self.root.join(id)).collect())
    }

    /// The folder of one run: by `last`, by its id, by the beginning of its id, or by its path.
    ///
    /// # Errors
    /// [`StoreError::NoSuchRun`], [`StoreError::Ambiguous`], or the book cannot be read.
    pub fn find(&self, asked: &str) -> Result<PathBuf> {
        let no_such_run = || StoreError::NoSuchRun { asked: asked.to_owned(), root: self.root.clone() };
        let mut ids = self.ids()?;
        if asked == "last" {
            return ids.pop().map(|id| self.root.join(id)).ok_or_else(no_such_run);
        }
        if ids.iter().any(|id| id == asked) {
            return Ok(self.root.join(asked));
        }
        if is_run_folder(Path::new(asked)) {
            return Ok(PathBuf::from(asked));
        }
        ids.retain(|id| !asked.is_empty() && id.starts_with(asked));
        match &ids[..] {
            [] => Err(no_such_run()),
            [id] => Ok(self.root.join(id)),
            _ => {
                ids.truncate(5);
                Err(StoreError::Ambiguous { asked: asked.to_owned(), candidates: ids })
            }
        }
    }

    /// Names of the run folders, by moment of start. Within one second the letters say nothing about order, so the
    /// moment at which the plan was written decides.
    fn ids(&self) -> Result<Vec<String>> {
        let entries = match fs::read_dir(&self.root) {
            Ok(entries) => entries,
            Err(source) if source.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(source) => return Err(StoreError::io("opendir", &self.root, source)),
        };
        let mut ids = entries
            .map(|entry| entry.map(|entry| entry.file_name().to_string_lossy().into_owned()))
            .collect::<io::Result<Vec<_>>>()
            .map_err(|source| StoreError::io("readdir", &self.root, source))?;
        ids.retain(|id| has_id_shape(id) && self.root.join(id).is_dir());
        ids.sort_by_cached_key(|id| (id[..MOMENT].to_owned(), self.begun(id), id.clone()));
        Ok(ids)
    }

    fn begun(&self, id: &str) -> Option<SystemTime> {
        let dir = self.root.join(id);
        fs::metadata(dir.join(PLAN)).or_else(|_| fs::metadata(&dir)).and_then(|metadata| metadata.modified()).ok()
    }
}

fn root_from(variable: impl Fn(&str) -> Option<OsString>) -> PathBuf {
    let set = |name: &str| variable(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    if let Some(root) = set("YAMABIKO_RUNS") {
        return root;
    }
    // The XDG specification: a relative path there is to be ignored.
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

fn has_id_shape(id: &str) -> bool {
    let bytes = id.as_bytes();
    let digits = |range: std::ops::Range<usize>| bytes[range].iter().all(u8::is_ascii_digit);
    bytes.is_ascii()
        && bytes.len() > MOMENT + LETTERS + 2
        && digits(0..8)
        && bytes[8] == b'-'
        && digits(9..MOMENT)
        && bytes[MOMENT] == b'-'
        && bytes[bytes.len() - LETTERS - 1] == b'-'
}

fn is_run_folder(path: &Path) -> bool {
    [PLAN, SUMMARY, STANDING, "requests", "requests.parquet", "taps", "taps.parquet"]
        .iter()
        .any(|name| path.join(name).exists())
}

/// Length of `yyyymmdd-hhmmss`.
const MOMENT: usize = 15;
const LETTERS: usize = 4;
/// Long enough to tell runs apart, short enough for a list.
const NAME_MAX: usize = 40;

#[cfg(test)]
mod tests {
    use super::*;

    fn root(variables: &[(&str, &str)]) -> PathBuf {
        root_from(|name| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| OsString::from(value)))
    }

    #[test]
    fn the_root_is_the_first_that_is_set() {
        let all = [("YAMABIKO_RUNS", "here"), ("XDG_DATA_HOME", "/data"), ("HOME", "/home/me")];
        assert_eq!(root(&all), Path::new("here"));
        assert_eq!(root(&all[1..]), Path::new("/data/yamabiko/runs"));
        assert_eq!(root(&all[2..]), Path::new("/home/me/.local/share/yamabiko/runs"));
        assert_eq!(root(&[]), Path::new("yamabiko-runs"));
        assert_eq!(root(&[("YAMABIKO_RUNS", ""), ("XDG_DATA_HOME", "relative")]), Path::new("yamabiko-runs"));
    }

    #[test]
    fn names_become_plain() {
        assert_eq!(plain_name("bench"), "bench");
        assert_eq!(plain_name("../..//etc/passwd"), "etc-passwd");
        assert_eq!(plain_name("甲子園 2001\u{1b}[31m"), "2001-31m");
        assert_eq!(plain_name("---"), "run");
        assert_eq!(plain_name(&"x".repeat(100)).len(), NAME_MAX);
    }

    #[test]
    fn shapes_of_ids() {
        assert!(has_id_shape("20261120-093005-bench-abcd"));
        assert!(!has_id_shape("20261120-093005-abcd"));
        assert!(!has_id_shape("lost+found"));
        assert!(!has_id_shape("2026112x-093005-bench-abcd"));
        assert!(!has_id_shape(""));
    }
}
