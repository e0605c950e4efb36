//! One version of a file, ready to send: its head, its bytes, its precompressed variants.

use std::cell::Cell;
use std::fs::{File, Metadata};
use std::hash::{BuildHasher as _, Hasher as _};
use std::io::Read as _;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::rc::Rc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use foldhash::quality::FixedState;
use sys::file::Root;
use units::Timestamp;

use super::{IN_MEMORY_BYTES_MAX, refusal};
use crate::date::http_date;
use crate::media::{UNKNOWN, content_type, is_compressible};
use crate::response::{Prepared, Status};
use crate::sniff::{SNIFFED_BYTES, sniff};

/// A file ready to send.
#[derive(Debug)]
pub(crate) struct Page {
    /// Prepared heads, without Date and Connection.
    pub(crate) head: Prepared,
    pub(crate) content: Content,
    /// The strong entity tag with its quotes; `None` if the file changed too recently (see [`Stamp`]).
    pub(crate) etag: Option<Box<str>>,
    /// Seconds since 1970 of the last change, if Last-Modified is sent: not in the second of the change, in which a
    /// further change would be invisible.
    pub(crate) modified_s: Option<i64>,
    /// The page's content coding.
    pub(crate) coding: Option<Coding>,
    /// Its precompressed variants.
    pub(crate) variants: Vec<Rc<Page>>,
    stamp: Stamp,
    young: bool,
    /// The turn of the worker's loop, by its time, in which the file was last found to be this version.
    intact_at: Cell<Option<Timestamp>>,
}

/// Where a page's bytes are.
#[derive(Debug)]
pub(crate) enum Content {
    /// In memory.
    Held(Box<[u8]>),
    /// In a file of this length, sent by the kernel.
    Stored(File, u64),
}

/// A content coding, best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Coding {
    Brotli,
    Gzip,
}

/// Identity of a version of a file. It includes the inode's change time, which no program can set: a file with restored
/// size and modification time is recognised as new.
///
/// Kernel times advance in steps of up to 10 ms, those of some file systems in steps of up to 2 s; a second change
/// within a step is invisible. So a stamp younger than [`RECENT_CHANGE`] is not trusted: the page is read again at its
/// next check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stamp {
    device: u64,
    inode: u64,
    length: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Page {
    /// Opens the file at `path` below `root` and, if `with_variants`, its precompressed variants; `None` for a
    /// directory. Restores `path`.
    ///
    /// # Errors
    /// The status for the client.
    pub(super) fn load(root: &Root, path: &mut Vec<u8>, with_variants: bool) -> Result<Option<Self>, Status> {
        let now = wall_clock();
        let Some((content, stamp)) = read(root, path)? else { return Ok(None) };
        let (kind, guessed) = match content_type(path) {
            Some(kind) => (kind, false),
            None => (content.sniffed().unwrap_or(UNKNOWN), true),
        };
        let mut variants = Vec::new();
        if with_variants && is_compressible(kind) {
            for coding in Coding::ALL {
                let length = path.len();
                path.extend_from_slice(coding.extension());
                let twin = read(root, path);
                path.truncate(length);
                // An unreadable variant, or one older than the file, is ignored.
                if let Ok(Some((twin, twin_stamp))) = twin
                    && twin_stamp.modified >= stamp.modified
                {
                    variants.push(Rc::new(Page::new(twin, twin_stamp, (kind, guessed), Some(coding), Vec::new(), now)));
                }
            }
        }
        Ok(Some(Page::new(content, stamp, (kind, guessed), None, variants, now)))
    }

    fn new(
        content: Content,
        stamp: Stamp,
        kind: (&'static str, bool),
        coding: Option<Coding>,
        variants: Vec<Rc<Page>>,
        now: Duration,
    ) -> Self {
        let young = stamp.changed_recently(now);
        let etag = match &content {
            // A digest of the content is valid immediately after a change.
            Content::Held(bytes) => Some(tag(bytes.len() as u64, coding, &[bytes])),
            Content::Stored(..) if young => None,
            Content::Stored(_, length) => {
                Some(tag(*length, coding, &stamp.bytes().each_ref().map(<[u8; 8]>::as_slice)))
            }
        };
        let modified_s = (stamp.modified.0 < now.as_secs().cast_signed()).then_some(stamp.modified.0);
        let modified =
            modified_s.map(|unix| http_date(UNIX_EPOCH + Duration::from_secs(u64::try_from(unix).unwrap_or(0))));
        let varies = coding.is_some() || !variants.is_empty();
        let head =
            Prepared::new(kind, content.length(), etag.as_deref(), modified.as_ref(), coding.map(Coding::name), varies);
        Page { head, content, etag, modified_s, coding, variants, stamp, young, intact_at: Cell::new(None) }
    }

    /// Whether the file is still the version of the sent head: checked for a [`Content::Stored`] page before its last
    /// bytes. If not, only a reset tells the client. A file that grew counts as appended to: the announced bytes are
    /// those of its old version. Costs one fstat(2).
    pub(crate) fn is_intact(&self) -> bool {
        let Content::Stored(file, length) = &self.content else { return true };
        file.metadata().is_ok_and(|now| {
            let now = Stamp::of(&now);
            now.modified == self.stamp.modified && now.length == *length || now.length > *length
        })
    }

    /// The file was found to be this version in the turn of `now`.
    pub(crate) fn found_intact(&self, now: Timestamp) {
        self.intact_at.set(Some(now));
    }

    /// As [`Page::is_intact`], without a system call in a turn in which that was found already: a file that is sent in
    /// the turn of its request is checked once.
    pub(crate) fn is_intact_at(&self, now: Timestamp) -> bool {
        self.intact_at.get() == Some(now) || self.is_intact()
    }

    /// Whether this page was made from the version with this stamp, and the stamp can be trusted.
    pub(super) fn is_of(&self, stamp: &Stamp) -> bool {
        self.stamp == *stamp && !self.young
    }

    /// See [`Stamp`].
    pub(super) fn changed_recently(&self) -> bool {
        self.young
    }

    /// Whether the variants of the file at `path` are those of this page.
    pub(super) fn variants_are_unchanged(&self, root: &Root, path: &mut Vec<u8>) -> bool {
        if !self.head.may_vary() {
            return true;
        }
        let length = path.len();
        Coding::ALL.iter().all(|coding| {
            path.extend_from_slice(coding.extension());
            let now = root.metadata(path).ok().filter(Metadata::is_file).map(|now| Stamp::of(&now));
            path.truncate(length);
            let held = self.variants.iter().find(|page| page.coding == Some(*coding));
            match (held, now) {
                (Some(page), Some(now)) => page.is_of(&now),
                // A variant older than the file stays unused.
                (None, Some(now)) => now.modified < self.stamp.modified,
                (held, None) => held.is_none(),
            }
        })
    }

    /// Bytes in memory and open files, variants included.
    pub(super) fn weight(&self) -> (usize, usize) {
        let own = match &self.content {
            Content::Held(bytes) => (self.head.bytes() + bytes.len(), 0),
            Content::Stored(..) => (self.head.bytes(), 1),
        };
        self.variants.iter().map(|page| page.weight()).fold(own, |sum, one| (sum.0 + one.0, sum.1 + one.1))
    }
}

impl Content {
    /// Bytes.
    pub(crate) fn length(&self) -> u64 {
        match self {
            Content::Held(bytes) => bytes.len() as u64,
            Content::Stored(_, length) => *length,
        }
    }

    fn sniffed(&self) -> Option<&'static str> {
        match self {
            Content::Held(bytes) => sniff(bytes, true),
            Content::Stored(file, _) => {
                let mut start = [0; SNIFFED_BYTES];
                let length = file.read_at(&mut start, 0).ok()?;
                sniff(&start[..length], false)
            }
        }
    }
}

impl Coding {
    /// In the order of preference.
    pub(crate) const ALL: [Coding; 2] = [Coding::Brotli, Coding::Gzip];

    /// The name for Content-Encoding.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Coding::Brotli => "br",
            Coding::Gzip => "gzip",
        }
    }

    fn extension(self) -> &'static [u8] {
        match self {
            Coding::Brotli => b".br",
            Coding::Gzip => b".gz",
        }
    }
}

impl Stamp {
    pub(super) fn of(metadata: &Metadata) -> Self {
        Stamp {
            device: metadata.dev(),
            inode: metadata.ino(),
            length: metadata.len(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        }
    }

    /// `now`: since 1970. A modification time in the future was set deliberately and is ignored; a change time in the
    /// future follows a clock that was set back, and counts as recent.
    fn changed_recently(&self, now: Duration) -> bool {
        let since = now.saturating_sub(RECENT_CHANGE).as_secs().cast_signed();
        self.changed.0 >= since || (since..=now.as_secs().cast_signed()).contains(&self.modified.0)
    }

    /// The identity without the file's location: two servers on one file system agree.
    fn bytes(&self) -> [[u8; 8]; 4] {
        [self.modified.0, self.modified.1, self.changed.0, self.changed.1].map(i64::to_le_bytes)
    }
}

/// Reads the file at `path` if it is small, or keeps it open; `None` for a directory.
fn read(root: &Root, path: &[u8]) -> Result<Option<(Content, Stamp)>, Status> {
    // Opening a device may have side effects (a tape rewinds, a watchdog starts), so its type is checked first.
    let kind = root.metadata(path).map_err(|error| refusal(&error))?;
    if kind.is_dir() {
        return Ok(None);
    }
    if !kind.is_file() {
        return Err(Status::NotFound);
    }
    let mut attempt = 1;
    loop {
        let mut file = root.open_file(path).map_err(|error| refusal(&error))?;
        let metadata = file.metadata().map_err(|error| refusal(&error))?;
        if metadata.is_dir() {
            return Ok(None);
        }
        if !metadata.is_file() {
            return Err(Status::NotFound);
        }
        let stamp = Stamp::of(&metadata);
        if stamp.length > IN_MEMORY_BYTES_MAX {
            return Ok(Some((Content::Stored(file, stamp.length), stamp)));
        }
        // One more byte than the length, to notice a growing file.
        let mut bytes = Vec::with_capacity(stamp.length as usize + 1);
        (&mut file).take(stamp.length + 1).read_to_end(&mut bytes).map_err(|error| refusal(&error))?;
        let after = file.metadata().map_err(|error| refusal(&error))?;
        let whole = bytes.len() as u64 == stamp.length && Stamp::of(&after) == stamp;
        // A file that never stops changing is sent as read: its head describes exactly these bytes.
        if whole || attempt == READ_ATTEMPTS {
            bytes.truncate(stamp.length as usize);
            return Ok(Some((Content::Held(bytes.into_boxed_slice()), stamp)));
        }
        attempt += 1;
    }
}

/// An entity tag: length and digest. The seed is fixed, so that all workers and restarts compute the same tag; a fast
/// hash suffices, since no attacker benefits from collisions.
fn tag(length: u64, coding: Option<Coding>, parts: &[&[u8]]) -> Box<str> {
    let mut digest = FixedState::default().build_hasher();
    // A variant never has the tag of its file, even with identical bytes.
    digest.write_u8(coding.map_or(0, |coding| 1 + coding as u8));
    parts.iter().for_each(|part| digest.write(part));
    format!("\"{length:x}-{:016x}\"", digest.finish()).into_boxed_str()
}

#[allow(clippy::disallowed_methods, reason = "times of files are times of the wall clock")]
fn wall_clock() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// Minimum age of a trusted stamp: the coarsest file system times in use (FAT), and far more than a tick.
const RECENT_CHANGE: Duration = Duration::from_secs(2);
/// Attempts to read a file that changes meanwhile.
const READ_ATTEMPTS: usize = 4;
