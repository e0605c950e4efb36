//! Writes packets into a pcapng file on a separate thread.
//!
//! ```text
//!   packets --> chunk of whole blocks --> queue of 8 --> thread: write(2)
//! ```
//!
//! While the queue is full ([`Recorder::is_full`]) the caller must not read more packets from their source. For a live
//! capture the kernel's ring then fills, and packets beyond it count as lost by the capture, in the figures and in the
//! file. Memory is bounded by the queue and a block of the ring. After a failure to write, the file is truncated after
//! its last whole block, so that it stays readable.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use nix::fcntl::OFlag;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use sys::signal::Interrupts;
use units::Timestamp;
use wire::capture::write;
use wire::link::LinkType;

/// A pcapng file being written.
pub struct Recorder<'a> {
    name: String,
    snap_length: u32,
    interrupts: &'a Interrupts,
    chunk: Vec<u8>,
    chunks: Option<SyncSender<Vec<u8>>>,
    thread: Option<JoinHandle<io::Result<()>>>,
    interfaces: Vec<(LinkType, String)>,
    packets: u64,
    last_at: Timestamp,
    failure: Option<anyhow::Error>,
    /// Whether `second_passed` has returned the failure.
    is_failure_reported: bool,
}

impl<'a> Recorder<'a> {
    /// Creates the file. `snap_length` is the most bytes captured of a packet, 0 if unknown.
    ///
    /// # Errors
    /// The file cannot be created, or is a pipe without a reader.
    pub fn create(path: &Path, snap_length: u32, interrupts: &'a Interrupts) -> Result<Recorder<'a>> {
        let name = path.display().to_string();
        let file = open(path).with_context(|| format!("creating {name}"))?;
        let (chunks, queue) = sync_channel(QUEUED_CHUNKS_MAX);
        let thread = thread::Builder::new().name("pcapng".into()).spawn(move || write_chunks(file, &queue))?;
        let mut chunk = Vec::with_capacity(CHUNK_BYTES + CHUNK_BYTES / 4);
        write::section(&mut chunk, concat!("yamabiko ", env!("CARGO_PKG_VERSION")));
        Ok(Recorder {
            name,
            snap_length,
            interrupts,
            chunk,
            chunks: Some(chunks),
            thread: Some(thread),
            interfaces: Vec::new(),
            packets: 0,
            last_at: Timestamp::ZERO,
            failure: None,
            is_failure_reported: false,
        })
    }

    /// Describes a capturing interface, so that it is in the file even without packets. Returns its index.
    pub fn interface(&mut self, link: LinkType, device: &str) -> u32 {
        if let Some(at) = self.interfaces.iter().position(|(known, name)| *known == link && name == device) {
            return at as u32;
        }
        // A capture file may name any number of devices; beyond INTERFACES_MAX their names are omitted.
        let device = if self.interfaces.len() < INTERFACES_MAX { device } else { "" };
        if device.is_empty()
            && let Some(at) = self.interfaces.iter().position(|(known, name)| *known == link && name.is_empty())
        {
            return at as u32;
        }
        write::interface(&mut self.chunk, link, self.snap_length, device);
        self.interfaces.push((link, device.to_owned()));
        (self.interfaces.len() - 1) as u32
    }

    /// Adds a packet.
    #[inline]
    pub fn packet(&mut self, link: LinkType, device: &str, at: Timestamp, bytes: &[u8], original_length: u32) {
        if self.failure.is_some() {
            return;
        }
        let index = self.interface(link, device);
        write::packet(&mut self.chunk, index, at, bytes, original_length);
        self.packets += 1;
        self.last_at = self.last_at.max(at);
        if self.chunk.len() >= CHUNK_BYTES {
            self.offer();
        }
    }

    /// Whether the file is written more slowly than packets arrive: the queue is full.
    pub fn is_full(&mut self) -> bool {
        if self.chunk.len() >= CHUNK_BYTES {
            self.offer();
        }
        self.chunk.len() >= CHUNK_BYTES
    }

    /// Waits until the queue is no longer full. After Ctrl-C at most [`WRITE_TIMEOUT`]: a pipe may never be read again.
    pub fn wait_for_space(&mut self) {
        let mut timeout = WRITE_TIMEOUT;
        while self.is_full() && self.wait_unless_timed_out(&mut timeout) {}
    }

    /// Queues the packets so far, unless the queue is full: a crash loses only later packets. Returns the first
    /// failure, once.
    pub fn second_passed(&mut self) -> Option<String> {
        if !self.chunk.is_empty() {
            self.offer();
        }
        if std::mem::replace(&mut self.is_failure_reported, self.failure.is_some()) {
            return None;
        }
        self.failure.as_ref().map(|failure| format!("{failure:#}; the capture continues without this file"))
    }

    /// Number of packets written or queued.
    pub fn packets(&self) -> u64 {
        self.packets
    }

    /// Ends the file with a statistics block: the capture lost `drops` packets and ended at `at`.
    ///
    /// # Errors
    /// Something could not be written.
    pub fn finish(mut self, drops: u64, at: Timestamp) -> Result<()> {
        if self.failure.is_none() {
            if self.interfaces.is_empty() {
                self.interface(LinkType::RawIp, "");
            }
            write::statistics(&mut self.chunk, 0, at.max(self.last_at), drops);
            let mut timeout = WRITE_TIMEOUT;
            self.offer();
            while !self.chunk.is_empty() && self.wait_unless_timed_out(&mut timeout) {
                self.offer();
            }
        }
        self.chunks = None;
        if self.failure.is_none() && self.ends_in_time() {
            self.take_thread_result();
        }
        self.failure.map_or(Ok(()), Err)
    }

    /// Queues the chunk for the thread, unless the queue is full.
    fn offer(&mut self) {
        let Some(chunks) = &self.chunks else { return self.chunk.clear() };
        match chunks.try_send(std::mem::take(&mut self.chunk)) {
            Ok(()) => self.chunk.reserve(CHUNK_BYTES + CHUNK_BYTES / 4),
            Err(TrySendError::Full(chunk)) => self.chunk = chunk,
            Err(TrySendError::Disconnected(_)) => self.fail(),
        }
    }

    /// Waits for [`QUEUE_POLL_INTERVAL`]. False, with a failure set, once `timeout` has passed after Ctrl-C.
    fn wait_unless_timed_out(&mut self, timeout: &mut Duration) -> bool {
        self.interrupts.wait(QUEUE_POLL_INTERVAL);
        if self.interrupts.count() > 0 {
            *timeout = timeout.saturating_sub(QUEUE_POLL_INTERVAL);
            if timeout.is_zero() || self.interrupts.count() > 1 {
                let error = io::Error::new(ErrorKind::TimedOut, "the reader or device accepts no more data");
                self.failure = Some(anyhow::Error::from(error).context(format!("writing {}", self.name)));
                (self.chunks, self.chunk) = (None, Vec::new());
                return false;
            }
        }
        true
    }

    /// Waits until the thread has written the queue. False if it does not in time.
    fn ends_in_time(&mut self) -> bool {
        let mut timeout = WRITE_TIMEOUT;
        while self.thread.as_ref().is_some_and(|thread| !thread.is_finished()) {
            if !self.wait_unless_timed_out(&mut timeout) {
                return false;
            }
        }
        true
    }

    fn fail(&mut self) {
        (self.chunks, self.chunk) = (None, Vec::new());
        self.take_thread_result();
    }

    fn take_thread_result(&mut self) {
        let what = format!("writing {}", self.name);
        self.failure = match self.thread.take().map(JoinHandle::join) {
            None | Some(Ok(Ok(()))) => None,
            Some(Ok(Err(error))) => Some(anyhow::Error::from(error).context(what)),
            Some(Err(_)) => Some(anyhow!("{what}: the writing thread failed")),
        };
    }
}

/// Opens the output. A pipe is opened and written without blocking, so that Ctrl-C always works.
fn open(path: &Path) -> Result<File> {
    let is_pipe = path.metadata().is_ok_and(|metadata| metadata.file_type().is_fifo());
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true);
    if is_pipe {
        options.custom_flags(OFlag::O_NONBLOCK.bits());
    }
    options.open(path).map_err(|error| match error.raw_os_error() {
        Some(code) if is_pipe && code == nix::libc::ENXIO => {
            anyhow!("no process reads this pipe: start its reader first")
        }
        _ => anyhow::Error::from(error),
    })
}

/// Writes chunks until the queue's sender is dropped. After a failure a regular file is truncated to whole blocks.
fn write_chunks(mut file: File, queue: &Receiver<Vec<u8>>) -> io::Result<()> {
    let mut whole = 0;
    while let Ok(chunk) = queue.recv() {
        if let Err(error) = write_all(&mut file, &chunk) {
            if file.metadata().is_ok_and(|metadata| metadata.is_file()) {
                // Only the failure to write is reported.
                let _ = file.set_len(whole);
            }
            return Err(error);
        }
        whole += chunk.len() as u64;
    }
    Ok(())
}

fn write_all(file: &mut File, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match file.write(bytes) {
            Ok(0) => return Err(ErrorKind::WriteZero.into()),
            Ok(written) => bytes = &bytes[written..],
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                let mut writable = [PollFd::new(file.as_fd(), PollFlags::POLLOUT)];
                poll(&mut writable, PollTimeout::NONE)?;
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Bytes of a chunk from which it is queued.
const CHUNK_BYTES: usize = 1 << 20;
/// Most chunks that wait for the thread.
const QUEUED_CHUNKS_MAX: usize = 8;
/// Time between two checks whether the queue has space.
const QUEUE_POLL_INTERVAL: Duration = Duration::from_millis(5);
/// How long writing may block after Ctrl-C.
const WRITE_TIMEOUT: Duration = Duration::from_secs(3);
/// Most interfaces that are described with their names.
const INTERFACES_MAX: usize = 256;
