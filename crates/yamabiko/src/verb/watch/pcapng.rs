//! Packets into a pcapng file, by a thread of its own.
//!
//! ```text
//!   packets --> chunk of whole blocks --> queue of 8 --> thread: write(2)
//! ```
//!
//! While the queue is full ([`Recorder::is_full`]) no more packets are to be taken from their source: for a live capture
//! the kernel's ring then fills, and what finds no room in it is counted as lost by the capture, in the figures and in
//! the file. Memory stays at the queue's and a block of the ring.
//! A file that cannot be written on is cut after its last whole block, so that it stays readable.

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
    is_told: bool,
}

impl<'a> Recorder<'a> {
    /// Creates the file. `snap_length` is the most bytes kept of a packet, 0 if that is not known.
    ///
    /// # Errors
    /// It cannot be created, or is a pipe that nobody reads.
    pub fn create(path: &Path, snap_length: u32, interrupts: &'a Interrupts) -> Result<Recorder<'a>> {
        let name = path.display().to_string();
        let file = open(path).with_context(|| format!("creating {name}"))?;
        let (chunks, queue) = sync_channel(QUEUE);
        let thread = thread::Builder::new().name("pcapng".into()).spawn(move || write_chunks(file, &queue))?;
        let mut chunk = Vec::with_capacity(CHUNK + CHUNK / 4);
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
            is_told: false,
        })
    }

    /// Describes an interface that packets may come from, so that it is in the file even if none does.
    pub fn interface(&mut self, link: LinkType, device: &str) -> u32 {
        if let Some(at) = self.interfaces.iter().position(|(known, name)| *known == link && name == device) {
            return at as u32;
        }
        // A file may name any number of devices; beyond this many their names are left out.
        let device = if self.interfaces.len() < INTERFACES { device } else { "" };
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
        if self.chunk.len() >= CHUNK {
            self.offer();
        }
    }

    /// Whether the file does not keep up.
    pub fn is_full(&mut self) -> bool {
        if self.chunk.len() >= CHUNK {
            self.offer();
        }
        self.chunk.len() >= CHUNK
    }

    /// Waits until there is room. After Ctrl-C only for a while: a pipe may never be read again.
    pub fn wait_for_room(&mut self) {
        let mut timeout = WRITE_TIMEOUT;
        while self.is_full() && self.is_worth_waiting(&mut timeout) {}
    }

    /// Hands on what has come, as far as there is room: what a crash can cost is what came since. Gives the first
    /// failure once.
    pub fn second_passed(&mut self) -> Option<String> {
        if !self.chunk.is_empty() {
            self.offer();
        }
        if std::mem::replace(&mut self.is_told, self.failure.is_some()) {
            return None;
        }
        self.failure.as_ref().map(|failure| format!("{failure:#}; the capture continues without this file"))
    }

    /// Packets written or about to be.
    pub fn packets(&self) -> u64 {
        self.packets
    }

    /// Ends the file with what the capture lost, `drops` packets.
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
            while !self.chunk.is_empty() && self.is_worth_waiting(&mut timeout) {
                self.offer();
            }
        }
        self.chunks = None;
        if self.failure.is_none() && self.ends_in_time() {
            self.fail_if_failed();
        }
        self.failure.map_or(Ok(()), Err)
    }

    /// Gives the chunk to the thread, if it takes one now.
    fn offer(&mut self) {
        let Some(chunks) = &self.chunks else { return self.chunk.clear() };
        match chunks.try_send(std::mem::take(&mut self.chunk)) {
            Ok(()) => self.chunk.reserve(CHUNK + CHUNK / 4),
            Err(TrySendError::Full(chunk)) => self.chunk = chunk,
            Err(TrySendError::Disconnected(_)) => self.fail(),
        }
    }

    /// Waits a little. False, and a failure, when the user wants to end and has waited long enough.
    fn is_worth_waiting(&mut self, timeout: &mut Duration) -> bool {
        self.interrupts.wait(NAP);
        if self.interrupts.count() > 0 {
            *timeout = timeout.saturating_sub(NAP);
            if timeout.is_zero() || self.interrupts.count() > 1 {
                let error = io::Error::new(ErrorKind::TimedOut, "it takes nothing any more");
                self.failure = Some(anyhow::Error::from(error).context(format!("writing {}", self.name)));
                (self.chunks, self.chunk) = (None, Vec::new());
                return false;
            }
        }
        true
    }

    /// Waits for the thread to write what is queued.
    fn ends_in_time(&mut self) -> bool {
        let mut timeout = WRITE_TIMEOUT;
        while self.thread.as_ref().is_some_and(|thread| !thread.is_finished()) {
            if !self.is_worth_waiting(&mut timeout) {
                return false;
            }
        }
        true
    }

    fn fail(&mut self) {
        (self.chunks, self.chunk) = (None, Vec::new());
        self.fail_if_failed();
    }

    fn fail_if_failed(&mut self) {
        let what = format!("writing {}", self.name);
        self.failure = match self.thread.take().map(JoinHandle::join) {
            None | Some(Ok(Ok(()))) => None,
            Some(Ok(Err(error))) => Some(anyhow::Error::from(error).context(what)),
            Some(Err(_)) => Some(anyhow!("{what}: the writing thread failed")),
        };
    }
}

/// A pipe is opened without waiting for its reader, and written to without waiting, so that Ctrl-C always works.
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

/// Writes until the sender is gone. After a failure a file is cut to whole blocks.
fn write_chunks(mut file: File, queue: &Receiver<Vec<u8>>) -> io::Result<()> {
    let mut whole = 0;
    while let Ok(chunk) = queue.recv() {
        if let Err(error) = write_all(&mut file, &chunk) {
            if file.metadata().is_ok_and(|metadata| metadata.is_file()) {
                // The failure to write is what is told.
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
                let mut room = [PollFd::new(file.as_fd(), PollFlags::POLLOUT)];
                poll(&mut room, PollTimeout::NONE)?;
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Bytes handed to the thread at once.
const CHUNK: usize = 1 << 20;
/// Chunks that wait for the thread.
const QUEUE: usize = 8;
/// Between two looks whether there is room.
const NAP: Duration = Duration::from_millis(5);
/// How long a file may take nothing once the user wants to end.
const WRITE_TIMEOUT: Duration = Duration::from_secs(3);
/// Interfaces described with their names.
const INTERFACES: usize = 256;
