//! Tags of a run: words that a user assigns, stored in the run's folder.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::Read;
use std::path::Path;

use crate::{Result, StoreError, files};

/// The tags of the run in `dir`, sorted. Invalid lines of the file are ignored.
pub fn read_tags(dir: &Path) -> Vec<String> {
    let mut text = Vec::new();
    // The read is bounded: a device or pipe of that name must not block a list of runs.
    let path = dir.join(TAGS);
    if path.symlink_metadata().is_ok_and(|metadata| metadata.is_file())
        && let Ok(file) = File::open(path)
    {
        let _ = file.take(FILE_MAX).read_to_end(&mut text);
    }
    let text = String::from_utf8_lossy(&text);
    let tags: BTreeSet<&str> = text.lines().map(str::trim).filter(|tag| refusal(tag).is_none()).collect();
    tags.into_iter().take(TAGS_MAX).map(str::to_owned).collect()
}

/// Adds tags to the run in `dir` and removes others; returns the resulting tags. Concurrent changes by several programs
/// are safe: each locks the run store at `root` for the change.
///
/// # Errors
/// A tag is not a valid word, there would be more than 64, or the file cannot be written.
pub fn change_tags(root: &Path, dir: &Path, added: &[String], removed: &[String]) -> Result<Vec<String>> {
    for tag in added {
        if let Some(why) = refusal(tag) {
            return Err(StoreError::Refused { what: format!("the tag `{tag}`"), why });
        }
    }
    // On file systems without locks (some network file systems) two concurrent changes may lose one.
    let run_store = File::open(root).map_err(|source| StoreError::io("open", root, source))?;
    let _ = run_store.lock();
    let mut tags: BTreeSet<String> = read_tags(dir).into_iter().collect();
    tags.retain(|tag| !removed.contains(tag));
    tags.extend(added.iter().cloned());
    if tags.len() > TAGS_MAX {
        let why = format!("a run has {TAGS_MAX} tags at most; `yamabiko runs untag` removes some");
        return Err(StoreError::Refused { what: dir.display().to_string(), why });
    }
    let text: String = tags.iter().map(|tag| format!("{tag}\n")).collect();
    files::write_whole(&dir.join(TAGS), text.as_bytes())?;
    Ok(tags.into_iter().collect())
}

/// Why a word is not a valid tag.
fn refusal(tag: &str) -> Option<String> {
    if tag.is_empty() || tag.chars().count() > LENGTH_MAX {
        return Some(format!("a tag has 1 to {LENGTH_MAX} characters"));
    }
    let good = |c: char| c.is_alphanumeric() || "-_.:/=@+#%".contains(c);
    if tag.starts_with('-') || !tag.chars().all(good) {
        return Some("a tag is one word of letters, digits and -_.:/=@+#%, and does not begin with a dash".to_owned());
    }
    None
}

/// Name of the tag file in the run's folder: one tag a line.
pub(crate) const TAGS: &str = "tags.txt";
const TAGS_MAX: usize = 64;
/// Longest tag in characters.
const LENGTH_MAX: usize = 64;
/// Largest size in bytes of a valid tag file: the most tags, all of 4-byte characters.
const FILE_MAX: u64 = (TAGS_MAX * (4 * LENGTH_MAX + 2)) as u64;

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn strings(words: &[&str]) -> Vec<String> {
        words.iter().map(|&word| word.to_owned()).collect()
    }

    #[test]
    fn tags_are_added_and_removed() {
        let dir = tempfile::tempdir().unwrap();
        let change =
            |added: &[&str], removed: &[&str]| change_tags(dir.path(), dir.path(), &strings(added), &strings(removed));
        assert_eq!(read_tags(dir.path()), [""; 0]);
        assert_eq!(change(&["v1.2", "甲子園", "v1.2"], &[]).unwrap(), ["v1.2", "甲子園"]);
        assert_eq!(change(&["host=a"], &["v1.2", "never-there"]).unwrap(), ["host=a", "甲子園"]);
        assert_eq!(read_tags(dir.path()), ["host=a", "甲子園"]);
    }

    #[test]
    fn invalid_tags_are_refused_and_ignored_in_files() {
        let dir = tempfile::tempdir().unwrap();
        let long = "x".repeat(LENGTH_MAX + 1);
        for wrong in ["", "two words", "-x", "a\u{1b}[31m", "a\nb", "a,b", &long] {
            let refused = change_tags(dir.path(), dir.path(), &strings(&[wrong]), &[]);
            assert!(matches!(refused, Err(StoreError::Refused { .. })), "{wrong:?}");
        }
        change_tags(dir.path(), dir.path(), &strings(&[&long[1..]]), &[]).unwrap();
        fs::write(dir.path().join(TAGS), format!("good\nt\u{1b}wo\n{long}\n\n  also-good \r\n")).unwrap();
        assert_eq!(read_tags(dir.path()), ["also-good", "good"]);
    }

    #[test]
    fn number_and_length_of_tags_are_limited() {
        let dir = tempfile::tempdir().unwrap();
        let many = |count: usize| (0..count).map(|number| format!("t{number}")).collect::<Vec<_>>();
        assert_eq!(change_tags(dir.path(), dir.path(), &many(TAGS_MAX), &[]).unwrap().len(), TAGS_MAX);
        assert!(change_tags(dir.path(), dir.path(), &many(TAGS_MAX + 1), &[]).is_err());
        fs::write(dir.path().join(TAGS), "y\n".repeat(1_000_000)).unwrap();
        assert_eq!(read_tags(dir.path()), ["y"]);
        // A link to a device that never ends instead of a file.
        fs::remove_file(dir.path().join(TAGS)).unwrap();
        std::os::unix::fs::symlink("/dev/zero", dir.path().join(TAGS)).unwrap();
        assert_eq!(read_tags(dir.path()), [""; 0]);
    }

    #[test]
    fn concurrent_tag_changes_lose_nothing() {
        let dir = tempfile::tempdir().unwrap();
        std::thread::scope(|scope| {
            for number in 0..8 {
                let path = dir.path();
                scope.spawn(move || change_tags(path, path, &[format!("t{number}")], &[]).unwrap());
            }
        });
        assert_eq!(read_tags(dir.path()).len(), 8);
    }
}
