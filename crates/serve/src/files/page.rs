//! One version of a file, ready to be sent: its head, its bytes, its compressed twins.

use std::fs::{File, Metadata};
use std::hash::{BuildHasher as _, Hasher as _};
use std::io::Read as _;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::rc::Rc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use foldhash::quality::FixedState;
use sys::file::Root;

use super::{HELD_MAX, PROMOTED_MAX, PROMOTED_MIN, refusal};
use crate::date::http_date;
use crate::media::{UNKNOWN, content_type, is_compressible};
use crate::response::{Prepared, Status};
use crate::sniff::{SNIFFED_BYTES, sniff};

/// A file ready to be sent.
#[derive(Debug)]
pub(crate) struct Page {
    /// Heads, ready but for Date and Connection.
    pub(crate) head: Prepared,
    pub(crate) content: Content,
    /// The strong entity tag with its quotes; `None` where the file is too young for one (see [`Stamp`]).
    pub(crate) etag: Option<Box<str>>,
    /// Seconds since 1970 of the last change, where Last-Modified says so: not in the second of the change, in which
    /// a further one would go unseen.
    pub(crate) modified_s: Option<i64>,
    /// How this page is compressed.
    pub(crate) coding: Option<Coding>,
    /// Its compressed twins.
    pub(crate) variants: Vec<Rc<Page>>,
    stamp: Stamp,
    young: bool,
}

/// Where a page's bytes are.
#[derive(Debug)]
pub(crate) enum Content {
    /// In memory.
    Held(Box<[u8]>),
    /// In a file, this many, to be sent by the kernel.
    Stored(File, u64),
}

/// A content coding, best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Coding {
    Brotli,
    Gzip,
}

/// What identifies a version of a file. The time of the last change of the inode is part of it: nobody can set it,
/// so a file that was given its old size and time of modification again does not pass for the old one.
///
/// The kernel's times move in steps of up to 10 ms, those of some file systems in steps of up to 2 s; a second change
/// within a step leaves no trace. So a stamp younger than [`YOUNG`] proves nothing later: the page is read anew when
/// it is next checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stamp {
    device: u64,
    inode: u64,
    length: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Page {
    /// Opens the file at `path` below `root` and, if `with_variants`, its compressed twins; `None` if it is a
    /// directory. `path` is as it was afterwards.
    ///
    /// # Errors
    /// What the client is to be told.
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
                // One that cannot be read, or is older than the file, is not a twin of it.
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
        let young = stamp.is_young(now);
        let etag = match &content {
            // A digest of what is sent is as good a moment after a change as a year after it.
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
        Page { head, content, etag, modified_s, coding, variants, stamp, young }
    }

    /// Whether the file still is the version whose head was sent: to be asked of a [`Content::Stored`] page when its
    /// last bytes are about to be sent. If not, only breaking off tells the client. A file that grew is taken for one
    /// that was appended to: the bytes announced are still those of its old version. Costs one fstat(2).
    pub(crate) fn is_intact(&self) -> bool {
        let Content::Stored(file, length) = &self.content else { return true };
        file.metadata().is_ok_and(|now| {
            let now = Stamp::of(&now);
            now.modified == self.stamp.modified && now.length == *length || now.length > *length
        })
    }

    /// The same page with its bytes in memory, if it is a file of a size for which that is worth while, and still
    /// the version it was. Head and tag remain: a client cannot tell.
    pub(super) fn promoted(&self) -> Option<Self> {
        let Content::Stored(file, length) = &self.content else { return None };
        if self.young || !(PROMOTED_MIN..=PROMOTED_MAX).contains(length) {
            return None;
        }
        let mut bytes = vec![0; usize::try_from(*length).ok()?];
        file.read_exact_at(&mut bytes, 0).ok()?;
        if Stamp::of(&file.metadata().ok()?) != self.stamp {
            return None;
        }
        Some(Page {
            head: self.head.clone(),
            content: Content::Held(bytes.into_boxed_slice()),
            etag: self.etag.clone(),
            variants: self.variants.clone(),
            ..*self
        })
    }

    /// Whether this page was made from the version of a file that has this stamp, and the stamp can be trusted.
    pub(super) fn is_of(&self, stamp: &Stamp) -> bool {
        self.stamp == *stamp && !self.young
    }

    /// See [`Stamp`].
    pub(super) fn is_young(&self) -> bool {
        self.young
    }

    /// Whether the twins of the file at `path` are those of this page.
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
                // One that is older than the file stays unused.
                (None, Some(now)) => now.modified < self.stamp.modified,
                (held, None) => held.is_none(),
            }
        })
    }

    /// Bytes in memory and files held open, twins included.
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

    /// As Content-Encoding calls it.
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

    /// `now`: since 1970. A time of modification in the future was set by somebody, and says nothing; one of the last
    /// change there is a clock that was set back, and no older until that is past.
    fn is_young(&self, now: Duration) -> bool {
        let since = now.saturating_sub(YOUNG).as_secs().cast_signed();
        self.changed.0 >= since || (since..=now.as_secs().cast_signed()).contains(&self.modified.0)
    }

    /// What a version is told by, without the place of the file: two servers that share one file system agree.
    fn bytes(&self) -> [[u8; 8]; 4] {
        [self.modified.0, self.modified.1, self.changed.0, self.changed.1].map(i64::to_le_bytes)
    }
}

/// Reads the file at `path`, small enough, or leaves it open; `None` if it is a directory.
fn read(root: &Root, path: &[u8]) -> Result<Option<(Content, Stamp)>, Status> {
    // Opening a device may have an effect (a tape rewinds, a watchdog starts), so the kind is looked at first.
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
        if stamp.length > HELD_MAX {
            return Ok(Some((Content::Stored(file, stamp.length), stamp)));
        }
        // One byte more than was announced, to notice a file that grows.
        let mut bytes = Vec::with_capacity(stamp.length as usize + 1);
        (&mut file).take(stamp.length + 1).read_to_end(&mut bytes).map_err(|error| refusal(&error))?;
        let after = file.metadata().map_err(|error| refusal(&error))?;
        let whole = bytes.len() as u64 == stamp.length && Stamp::of(&after) == stamp;
        // A file that is written without end is sent as it was read: the head says what follows it, whatever that is.
        if whole || attempt == READS {
            bytes.truncate(stamp.length as usize);
            return Ok(Some((Content::Held(bytes.into_boxed_slice()), stamp)));
        }
        attempt += 1;
    }
}

/// An entity tag: length and digest. The seed is fixed, so that every worker and every start of the server gives the
/// same file the same tag; the hash is a fast one, because nobody gains by making two versions of a file agree.
fn tag(length: u64, coding: Option<Coding>, parts: &[&[u8]]) -> Box<str> {
    let mut digest = FixedState::default().build_hasher();
    // A twin never has the tag of its file, were it the same to the byte.
    digest.write_u8(coding.map_or(0, |coding| 1 + coding as u8));
    parts.iter().for_each(|part| digest.write(part));
    format!("\"{length:x}-{:016x}\"", digest.finish()).into_boxed_str()
}

#[allow(clippy::disallowed_methods, reason = "times of files are times of the wall clock")]
fn wall_clock() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// How old a stamp has to be: the coarsest times of a file system in use (FAT), and thereby far more than a tick.
const YOUNG: Duration = Duration::from_secs(2);
/// Times a file is read that changes while it is read.
const READS: usize = 4;
