//! Served files: opened beneath one directory only, and sent to a socket by the kernel.

use std::fs::{File, Metadata};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{OFlag, OpenHow, ResolveFlag, open, openat2};
use nix::sys::stat::Mode;

/// A directory beneath which files may be opened. Neither `..`, nor a symbolic link, nor a rename that races with the
/// lookup escapes from it: the kernel rejects such paths (RESOLVE_BENEATH of openat2(2), Linux 5.6).
#[derive(Debug)]
pub struct Root {
    directory: OwnedFd,
    /// Absolute, symbolic links as typed: a link may point to another directory later.
    path: PathBuf,
}

impl Root {
    /// Opens `directory` and checks that this kernel supports openat2.
    ///
    /// # Errors
    /// The errors of open(2) and getcwd(2); ENOSYS or EPERM if openat2 is missing or filtered.
    pub fn open(directory: &Path) -> io::Result<Self> {
        let path = std::path::absolute(directory)?;
        let root = Root { directory: open_directory(&path)?, path };
        root.beneath(b".", OFlag::O_PATH)?;
        Ok(root)
    }

    /// Reopens the root if its path now leads to another directory: a symbolic link was changed, or the directory was
    /// removed and recreated. Returns whether the root is another directory now.
    ///
    /// The comparison is safe against reuse of inode numbers: the root's own inode is held open.
    ///
    /// # Errors
    /// The errors of stat(2) and open(2); the root stays unchanged. ENOENT: the path does not exist.
    pub fn follow(&mut self) -> io::Result<bool> {
        let identity = |metadata: &Metadata| (metadata.dev(), metadata.ino());
        let own = self.metadata(b".")?;
        if identity(&std::fs::metadata(&self.path)?) == identity(&own) {
            return Ok(false);
        }
        self.directory = open_directory(&self.path)?;
        Ok(true)
    }

    /// The root's path: absolute, with symbolic links as typed.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Opens `relative` for reading. A FIFO does not block and a terminal does not become the controlling one; the
    /// caller checks the kind of the file.
    ///
    /// # Errors
    /// The errors of openat2(2): EXDEV when the path leads out of the root, ENOENT, ENOTDIR, ELOOP, ENAMETOOLONG,
    /// EACCES, EMFILE; EINVAL for a path with a NUL byte.
    pub fn open_file(&self, relative: &[u8]) -> io::Result<File> {
        self.beneath(relative, OFlag::O_RDONLY | OFlag::O_NONBLOCK | OFlag::O_NOCTTY)
    }

    /// The metadata of `relative`, without opening it for reading.
    ///
    /// # Errors
    /// The errors of [`Root::open_file`] and of fstat(2).
    pub fn metadata(&self, relative: &[u8]) -> io::Result<Metadata> {
        self.beneath(relative, OFlag::O_PATH)?.metadata()
    }

    fn beneath(&self, relative: &[u8], flags: OFlag) -> io::Result<File> {
        let how = OpenHow::new()
            .flags(flags | OFlag::O_CLOEXEC)
            .resolve(ResolveFlag::RESOLVE_BENEATH | ResolveFlag::RESOLVE_NO_MAGICLINKS);
        // EAGAIN: a concurrent rename raced with a `..` in the path, so the kernel could not check it. openat2(2)
        // recommends a retry; the number of retries is limited, because renames may never stop.
        let mut last = Errno::EAGAIN;
        for _ in 0..ATTEMPTS {
            match openat2(&self.directory, relative, how) {
                Ok(fd) => return Ok(File::from(fd)),
                Err(errno @ (Errno::EAGAIN | Errno::EINTR)) => last = errno,
                Err(errno) => return Err(errno.into()),
            }
        }
        Err(last.into())
    }
}

fn open_directory(path: &Path) -> io::Result<OwnedFd> {
    Ok(open(path, OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC, Mode::empty())?)
}

/// Sends up to `count` bytes of `file`, from `offset` on, to `socket`, by sendfile(2): returns the number of bytes
/// accepted, `Some(0)` at the end of the file, `None` if the socket's buffer is full. The file's own position is not
/// used.
///
/// # Errors
/// The errors of sendfile(2); EPIPE raises SIGPIPE as well, which Rust programs ignore by default.
pub fn send_file(socket: BorrowedFd<'_>, file: BorrowedFd<'_>, offset: u64, count: usize) -> io::Result<Option<usize>> {
    let mut offset = libc::off64_t::try_from(offset).map_err(|_| io::Error::from_raw_os_error(libc::EOVERFLOW))?;
    loop {
        // SAFETY: both descriptors are open for the call, and `offset` outlives it.
        let sent = unsafe { libc::sendfile64(socket.as_raw_fd(), file.as_raw_fd(), &raw mut offset, count) };
        if sent >= 0 {
            return Ok(Some(sent as usize));
        }
        let error = io::Error::last_os_error();
        match error.kind() {
            // Nothing was sent, and the socket is not full: a caller that waits for writability would wait forever.
            io::ErrorKind::Interrupted => {}
            io::ErrorKind::WouldBlock => return Ok(None),
            _ => return Err(error),
        }
    }
}

/// Appends up to `most` bytes of `file`, from `offset` on, to `into`: returns how many, 0 at the end of the file. Memory
/// is not zeroed first. The file's own position is not used.
///
/// # Errors
/// The errors of pread(2); `into` keeps its bytes.
pub fn append_from(file: &File, offset: u64, most: usize, into: &mut Vec<u8>) -> io::Result<usize> {
    let offset = libc::off64_t::try_from(offset).map_err(|_| io::Error::from_raw_os_error(libc::EOVERFLOW))?;
    into.reserve(most);
    loop {
        let spare = into.spare_capacity_mut().as_mut_ptr();
        // SAFETY: the descriptor is open, and `most` bytes were reserved at `spare`.
        let read = unsafe { libc::pread64(file.as_raw_fd(), spare.cast(), most, offset) };
        if let Ok(read) = usize::try_from(read) {
            // SAFETY: the kernel wrote `read` of the reserved bytes.
            unsafe { into.set_len(into.len() + read) };
            return Ok(read);
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}

/// Maximum number of lookups that race with a rename.
const ATTEMPTS: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read as _;
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsFd as _;
    use std::os::unix::fs::symlink;

    fn error_of(outcome: io::Result<File>) -> i32 {
        outcome.unwrap_err().raw_os_error().unwrap()
    }

    #[test]
    fn no_path_escapes_from_the_root() {
        let outside = tempfile::tempdir().unwrap();
        std::fs::write(outside.path().join("secret"), "x").unwrap();
        let inside = outside.path().join("root");
        std::fs::create_dir_all(inside.join("a")).unwrap();
        std::fs::write(inside.join("here"), "y").unwrap();
        symlink("../secret", inside.join("relative")).unwrap();
        symlink(outside.path().join("secret"), inside.join("absolute")).unwrap();
        symlink("..", inside.join("up")).unwrap();
        symlink("../here", inside.join("a/back")).unwrap();
        let root = Root::open(&inside).unwrap();
        for path in ["../secret", "a/../../secret", "relative", "absolute", "up/secret", "/etc/passwd", "a/../.."] {
            assert_eq!(error_of(root.open_file(path.as_bytes())), libc::EXDEV, "{path}");
        }
        // Within the root, both `..` and links work.
        for path in ["here", "a/../here", "a/back"] {
            assert_eq!(root.open_file(path.as_bytes()).unwrap().metadata().unwrap().len(), 1, "{path}");
        }
        assert_eq!(root.metadata(b"here").unwrap().len(), 1);
        assert_eq!(error_of(root.open_file(b"absent")), libc::ENOENT);
        assert_eq!(error_of(root.open_file(b"here\0")), libc::EINVAL);
    }

    #[test]
    fn root_follows_a_changed_link_and_a_recreated_directory() {
        let all = tempfile::tempdir().unwrap();
        let (link, next) = (all.path().join("current"), all.path().join("next"));
        for release in ["r1", "r2"] {
            std::fs::create_dir(all.path().join(release)).unwrap();
            std::fs::write(all.path().join(release).join("f"), release).unwrap();
        }
        let text = |root: &Root| std::io::read_to_string(root.open_file(b"f").unwrap()).unwrap();
        symlink("r1", &link).unwrap();
        let mut root = Root::open(&link).unwrap();
        assert!(!root.follow().unwrap(), "the root has not moved");
        symlink("r2", &next).unwrap();
        std::fs::rename(&next, &link).unwrap();
        assert_eq!(text(&root), "r1", "the old root until `follow` is called");
        assert!(root.follow().unwrap());
        assert_eq!(text(&root), "r2");
        // Recreated under the same name, possibly with the inode number of the old one.
        for content in ["x", "y", "z"] {
            std::fs::remove_dir_all(all.path().join("r2")).unwrap();
            assert_eq!(root.follow().unwrap_err().kind(), io::ErrorKind::NotFound);
            std::fs::create_dir(all.path().join("r2")).unwrap();
            std::fs::write(all.path().join("r2/f"), content).unwrap();
            assert!(root.follow().unwrap());
            assert_eq!(text(&root), content);
        }
    }

    #[test]
    fn opening_a_fifo_does_not_block() {
        let directory = tempfile::tempdir().unwrap();
        nix::unistd::mkfifo(&directory.path().join("pipe"), Mode::S_IRUSR).unwrap();
        let root = Root::open(directory.path()).unwrap();
        assert!(!root.open_file(b"pipe").unwrap().metadata().unwrap().is_file());
    }

    #[test]
    fn bytes_of_a_file_are_appended_from_an_offset_up_to_its_end() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("f"), "0123456789").unwrap();
        let file = Root::open(directory.path()).unwrap().open_file(b"f").unwrap();
        let mut bytes = b"head ".to_vec();
        for (offset, most, read) in [(2, 3, 3), (8, 100, 2), (10, 100, 0), (4, 0, 0), (11, 1, 0)] {
            assert_eq!(append_from(&file, offset, most, &mut bytes).unwrap(), read, "{offset}");
        }
        assert_eq!(bytes, b"head 23489");
        let error = append_from(&file, u64::MAX, 1, &mut bytes).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EOVERFLOW));
        let unreadable = std::fs::OpenOptions::new().write(true).open(directory.path().join("f")).unwrap();
        assert_eq!(append_from(&unreadable, 0, 1, &mut bytes).unwrap_err().raw_os_error(), Some(libc::EBADF));
        assert_eq!(bytes, b"head 23489");
    }

    #[test]
    fn send_file_starts_at_an_offset_and_reports_the_end() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("f"), "0123456789").unwrap();
        let file = Root::open(directory.path()).unwrap().open_file(b"f").unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (server, _) = listener.accept().unwrap();
        assert_eq!(send_file(server.as_fd(), file.as_fd(), 4, 100).unwrap(), Some(6));
        assert_eq!(send_file(server.as_fd(), file.as_fd(), 10, 100).unwrap(), Some(0));
        assert!(send_file(server.as_fd(), file.as_fd(), u64::MAX, 1).is_err());
        drop(server);
        let mut received = String::new();
        client.read_to_string(&mut received).unwrap();
        assert_eq!(received, "456789");
    }
}
