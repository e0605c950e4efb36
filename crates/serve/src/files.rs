//! The files of one directory: small ones in memory, large ones open and ready to be sent.
//!
//! A page is looked up by the path as the client wrote it, so that a hit costs one hash and no decoding. At most once
//! a second it is compared with the file's identity, size and time; when they differ it is read anew.

use std::cell::Cell;
use std::collections::{HashMap, VecDeque};
use std::fs::{File, Metadata};
use std::io::{self, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::rc::Rc;
use std::time::SystemTime;

use nix::libc::{EACCES, EINVAL, ELOOP, EMFILE, ENAMETOOLONG, ENFILE, ENOENT, ENOMEM, ENOTDIR, EPERM, EXDEV};
use sys::file::Root;

use crate::date::http_date;
use crate::media::content_type;
use crate::response::{Status, prepare_ok};
use crate::target::file_path;

/// The directory and what of it is at hand.
#[derive(Debug)]
pub(crate) struct Files {
    root: Root,
    pages: HashMap<Rc<[u8]>, Rc<Page>>,
    /// Keys of `pages`, oldest first: what to forget when there is too much.
    order: VecDeque<Rc<[u8]>>,
    held_bytes: usize,
    open_files: usize,
    /// Decoded path of the lookup under way.
    path: Vec<u8>,
}

/// What a path leads to.
#[derive(Debug)]
pub(crate) enum Found {
    /// A file.
    Page(Rc<Page>),
    /// A directory written without its slash.
    Directory,
    /// Nothing to be had.
    Nothing(Status),
}

/// A file ready to be sent.
#[derive(Debug)]
pub(crate) struct Page {
    /// As [`prepare_ok`] made it.
    pub(crate) head: Box<[u8]>,
    pub(crate) content: Content,
    stamp: Stamp,
    checked_at_s: Cell<u64>,
}

/// Where a page's bytes are.
#[derive(Debug)]
pub(crate) enum Content {
    /// In memory.
    Held(Box<[u8]>),
    /// In a file, this many, to be sent by the kernel.
    Stored(File, u64),
}

/// What identifies a version of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stamp {
    device: u64,
    inode: u64,
    length: u64,
    modified_s: i64,
    modified_ns: i64,
}

impl Files {
    /// Nothing at hand yet.
    pub(crate) fn new(root: Root) -> Self {
        Files {
            root,
            pages: HashMap::new(),
            order: VecDeque::new(),
            held_bytes: 0,
            open_files: 0,
            path: Vec::with_capacity(256),
        }
    }

    /// Looks up the path of a request. `now_s` counts seconds of any one clock.
    pub(crate) fn find(&mut self, path: &[u8], now_s: u64) -> Found {
        if let Some(page) = self.pages.get(path)
            && page.checked_at_s.get() == now_s
        {
            return Found::Page(Rc::clone(page));
        }
        self.check(path, now_s)
    }

    /// The slow way: asks the file system.
    fn check(&mut self, path: &[u8], now_s: u64) -> Found {
        if let Err(status) = file_path(path, &mut self.path) {
            return Found::Nothing(status);
        }
        if let Some(page) = self.pages.get(path) {
            let unchanged = match self.root.metadata(&self.path) {
                Ok(now) => Stamp::of(&now) == page.stamp,
                // A shortage of descriptors says nothing about the file.
                Err(error) => refusal(&error) == Status::Unavailable,
            };
            if unchanged {
                page.checked_at_s.set(now_s);
                return Found::Page(Rc::clone(page));
            }
            self.forget(path);
        }
        match self.load(now_s) {
            Ok(Some(page)) => {
                let page = Rc::new(page);
                self.remember(path, Rc::clone(&page));
                Found::Page(page)
            }
            Ok(None) if path.ends_with(b"/") => Found::Nothing(Status::NotFound),
            Ok(None) => Found::Directory,
            Err(status) => Found::Nothing(status),
        }
    }

    /// Opens `self.path`; `None` if it is a directory.
    fn load(&self, now_s: u64) -> Result<Option<Page>, Status> {
        let mut file = self.root.open_file(&self.path).map_err(|error| refusal(&error))?;
        let metadata = file.metadata().map_err(|error| refusal(&error))?;
        if metadata.is_dir() {
            return Ok(None);
        }
        if !metadata.is_file() {
            return Err(Status::NotFound);
        }
        let mut content = None;
        if metadata.len() <= HELD_MAX {
            // One byte more than fits, to notice a file that grew since; its length is what was read.
            let mut bytes = Vec::with_capacity(metadata.len() as usize + 1);
            (&mut file).take(HELD_MAX + 1).read_to_end(&mut bytes).map_err(|error| refusal(&error))?;
            if bytes.len() as u64 <= HELD_MAX {
                content = Some(Content::Held(bytes.into_boxed_slice()));
            }
        }
        let content = content.unwrap_or_else(|| Content::Stored(file, metadata.len()));
        let modified = http_date(metadata.modified().unwrap_or(SystemTime::UNIX_EPOCH));
        Ok(Some(Page {
            head: prepare_ok(content_type(&self.path), content.length(), &modified),
            content,
            stamp: Stamp::of(&metadata),
            checked_at_s: Cell::new(now_s),
        }))
    }

    fn remember(&mut self, path: &[u8], page: Rc<Page>) {
        let key: Rc<[u8]> = path.into();
        self.count(&page.content, true);
        self.order.push_back(Rc::clone(&key));
        self.pages.insert(key, page);
        while self.pages.len() > PAGES_MAX || self.held_bytes > HELD_TOTAL_MAX || self.open_files > OPEN_MAX {
            let Some(oldest) = self.order.pop_front() else { break };
            if let Some(page) = self.pages.remove(&oldest) {
                self.count(&page.content, false);
            }
        }
    }

    fn forget(&mut self, path: &[u8]) {
        if let Some(page) = self.pages.remove(path) {
            self.count(&page.content, false);
            self.order.retain(|key| &**key != path);
        }
    }

    fn count(&mut self, content: &Content, more: bool) {
        let (total, amount) = match content {
            Content::Held(bytes) => (&mut self.held_bytes, bytes.len()),
            Content::Stored(..) => (&mut self.open_files, 1),
        };
        *total = if more { *total + amount } else { *total - amount };
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
}

impl Stamp {
    fn of(metadata: &Metadata) -> Self {
        Stamp {
            device: metadata.dev(),
            inode: metadata.ino(),
            length: metadata.len(),
            modified_s: metadata.mtime(),
            modified_ns: metadata.mtime_nsec(),
        }
    }
}

/// What a client is told when a file cannot be opened or read.
fn refusal(error: &io::Error) -> Status {
    match error.raw_os_error() {
        Some(ENOENT | ENOTDIR | EXDEV | ELOOP | ENAMETOOLONG | EINVAL) => Status::NotFound,
        Some(EACCES | EPERM) => Status::Forbidden,
        Some(EMFILE | ENFILE | ENOMEM) => Status::Unavailable,
        _ => Status::Failed,
    }
}

/// Files up to this size are copied into memory; above it, sendfile costs less than the copy it saves.
const HELD_MAX: u64 = 64 << 10;
/// All files in memory of one worker.
const HELD_TOTAL_MAX: usize = 64 << 20;
/// Paths remembered; several may lead to one file, so this also bounds what odd spellings can cost.
const PAGES_MAX: usize = 4096;
/// Files held open by one worker. Responses under way keep theirs a little longer.
pub(crate) const OPEN_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn files() -> (tempfile::TempDir, Files) {
        let directory = tempfile::tempdir().unwrap();
        let files = Files::new(Root::open(directory.path()).unwrap());
        (directory, files)
    }

    fn text(found: Found) -> String {
        match found {
            Found::Page(page) => match &page.content {
                Content::Held(bytes) => String::from_utf8(bytes.to_vec()).unwrap(),
                Content::Stored(_, length) => format!("{length} bytes stored"),
            },
            Found::Directory => "directory".to_owned(),
            Found::Nothing(status) => status.line().to_owned(),
        }
    }

    #[test]
    fn a_change_is_seen_in_the_next_second_and_not_before() {
        let (directory, mut files) = files();
        let path = directory.path().join("a");
        fs::write(&path, "one").unwrap();
        assert_eq!(text(files.find(b"/a", 1)), "one");
        fs::write(&path, "three").unwrap();
        assert_eq!(text(files.find(b"/a", 1)), "one");
        assert_eq!(text(files.find(b"/a", 2)), "three");
        fs::remove_file(&path).unwrap();
        assert_eq!(text(files.find(b"/a", 3)), "404 Not Found");
        assert!(files.pages.is_empty() && files.order.is_empty() && files.held_bytes == 0);
        fs::write(&path, "four").unwrap();
        assert_eq!(text(files.find(b"/a", 3)), "four");
    }

    #[test]
    fn the_size_that_is_held_is_a_boundary() {
        let (directory, mut files) = files();
        fs::write(directory.path().join("fits"), vec![b'x'; HELD_MAX as usize]).unwrap();
        fs::write(directory.path().join("not"), vec![b'x'; HELD_MAX as usize + 1]).unwrap();
        assert_eq!(text(files.find(b"/fits", 1)).len(), HELD_MAX as usize);
        assert_eq!(text(files.find(b"/not", 1)), format!("{} bytes stored", HELD_MAX + 1));
        assert_eq!((files.held_bytes, files.open_files), (HELD_MAX as usize, 1));
    }

    #[test]
    fn the_oldest_are_forgotten() {
        let (directory, mut files) = files();
        for name in 0..=OPEN_MAX {
            fs::write(directory.path().join(name.to_string()), vec![0; HELD_MAX as usize + 1]).unwrap();
            files.find(format!("/{name}").as_bytes(), 1);
        }
        assert_eq!(files.open_files, OPEN_MAX);
        assert!(!files.pages.contains_key(b"/0".as_slice()) && files.pages.contains_key(b"/1".as_slice()));
        fs::write(directory.path().join("small"), "x").unwrap();
        for spelling in 0..PAGES_MAX + 10 {
            files.find(format!("{}small", "/".repeat(spelling % 3000 + 1)).as_bytes(), 2);
        }
        assert!(files.pages.len() <= PAGES_MAX && files.order.len() == files.pages.len());
    }

    #[test]
    fn directories_and_what_is_no_file() {
        let (directory, mut files) = files();
        fs::create_dir_all(directory.path().join("d/index.html")).unwrap();
        fs::write(directory.path().join("f"), "x").unwrap();
        nix::unistd::mkfifo(&directory.path().join("pipe"), nix::sys::stat::Mode::S_IRUSR).unwrap();
        assert_eq!(text(files.find(b"/d", 1)), "directory");
        assert_eq!(text(files.find(b"/d/", 1)), "404 Not Found");
        assert_eq!(text(files.find(b"/f/", 1)), "404 Not Found");
        assert_eq!(text(files.find(b"/pipe", 1)), "404 Not Found");
        assert_eq!(text(files.find(b"/../x", 1)), "404 Not Found");
    }
}
