//! The control connection of a session: messages both ways, and the certainty that the other end is there.
//!
//! ```text
//!   any thread --send--> [ frames ] ==TCP==> [ reader thread ] --> inbox --> whoever has the session
//!                            ^                    |
//!                            '-- alive, 4 a second, also as a datagram while a trial has a socket for it
//! ```
//!
//! Whoever hears nothing that the other end alone can have sent for [`SILENCE`], or sees the connection end, has lost it:
//! [`Pulse::is_lost`] is what every sender looks at before it sends. While a flood fills one direction, TCP's own
//! acknowledgements may be lost in it for longer than that, so datagrams of a trial count as signs of life as well.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream, UdpSocket};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use serde::Serialize;
use sys::clock::monotonic_ns;
use sys::datagrams;

use super::datagram::Datagram;
use super::frame::{FrameDirection, FrameReader, FrameWriter};
use super::secret::Keys;

/// What a session is told.
pub(super) enum Heard {
    /// A message of the other end.
    Text(Vec<u8>),
    /// One of a trial's streams, which has proved itself.
    Stream {
        /// Which of them.
        index: u32,
        /// It.
        stream: TcpStream,
    },
    /// A socket that hears the client's datagrams of this trial.
    Introduced {
        /// The trial.
        trial: u32,
        /// The client's port, as it is seen here.
        port: u16,
        /// The socket, connected.
        socket: UdpSocket,
    },
}

/// A session's control connection. Closed when it is dropped.
pub(super) struct Line {
    pulse: Pulse,
    inbox: Receiver<Heard>,
    reader: Option<JoinHandle<()>>,
}

/// Whether the other end is there: for every thread of a session.
#[derive(Clone)]
pub(super) struct Pulse(Arc<Shared>);

struct Shared {
    stream: TcpStream,
    frames: Mutex<FrameWriter>,
    heard_ns: AtomicU64,
    lost: OnceLock<String>,
    is_lost: AtomicBool,
    over: AtomicBool,
    /// Where signs of life are sent as datagrams too.
    beat: Mutex<Option<Beat>>,
}

struct Beat {
    socket: Arc<UdpSocket>,
    mark: u64,
    number: u64,
    sender: datagrams::Sender,
}

/// Why the other end is lost.
#[derive(Clone, Debug)]
pub(super) struct Lost(pub(super) String);

/// A way to put something into a session's inbox.
pub(super) type Inbox = SyncSender<Heard>;

/// An inbox and its other end.
pub(super) fn inbox() -> (Inbox, Receiver<Heard>) {
    sync_channel(INBOX)
}

impl Line {
    /// Begins to listen on a connection whose handshake is done; `own` is the way in which this end sends.
    pub(super) fn start(
        stream: TcpStream,
        keys: &Keys,
        own: FrameDirection,
        (inbox, receiver): (Inbox, Receiver<Heard>),
    ) -> std::io::Result<Line> {
        stream.set_nonblocking(false)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(TURN))?;
        stream.set_write_timeout(Some(WRITE))?;
        let other = if own == FrameDirection::Up { FrameDirection::Down } else { FrameDirection::Up };
        let frames = FrameReader::new(keys, other);
        let shared = Arc::new(Shared {
            stream,
            frames: Mutex::new(FrameWriter::new(keys, own)),
            heard_ns: AtomicU64::new(monotonic_ns()),
            lost: OnceLock::new(),
            is_lost: AtomicBool::new(false),
            over: AtomicBool::new(false),
            beat: Mutex::new(None),
        });
        let listening = Arc::clone(&shared);
        let reader = thread::Builder::new().name("control".to_owned()).spawn(move || {
            listening.listen(frames, &inbox);
        })?;
        Ok(Line { pulse: Pulse(shared), inbox: receiver, reader: Some(reader) })
    }

    /// A handle for other threads.
    pub(super) fn pulse(&self) -> Pulse {
        self.pulse.clone()
    }

    /// Sends a message.
    pub(super) fn send(&self, message: &impl Serialize) -> Result<(), Lost> {
        let text = serde_json::to_vec(message).expect("messages hold nothing that JSON does not");
        self.pulse.0.send(&text);
        self.pulse.loss().map_or(Ok(()), Err)
    }

    /// The next that is heard, `None` after `timeout`. What came before the other end was lost is heard first.
    pub(super) fn receive(&self, timeout: Duration) -> Result<Option<Heard>, Lost> {
        match self.inbox.recv_timeout(timeout) {
            Ok(heard) => Ok(Some(heard)),
            Err(RecvTimeoutError::Timeout) => match self.pulse.loss() {
                None => Ok(None),
                // ServerEvent after the last message was put in, which may have been just now.
                Some(lost) => self.inbox.try_recv().map(Some).map_err(|_| lost),
            },
            Err(RecvTimeoutError::Disconnected) => {
                Err(self.pulse.loss().unwrap_or_else(|| Lost("the connection was closed".to_owned())))
            }
        }
    }

    /// Sends signs of life on this socket too, from now on; on none with `None`.
    pub(super) fn beat_on(&self, socket: Option<(Arc<UdpSocket>, u64)>) {
        let beat = socket.map(|(socket, mark)| Beat { socket, mark, number: 0, sender: datagrams::Sender::default() });
        *self.pulse.0.beat.lock().unwrap_or_else(PoisonError::into_inner) = beat;
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        self.pulse.0.over.store(true, Ordering::Relaxed);
        let _ = self.pulse.0.stream.shutdown(Shutdown::Both);
        if let Some(reader) = self.reader.take() {
            // Its panic has been told on stderr; there is nobody else to tell.
            let _ = reader.join();
        }
    }
}

impl Pulse {
    /// Takes note of something that only the other end can have sent.
    pub(super) fn hear(&self) {
        self.0.heard_ns.store(monotonic_ns(), Ordering::Relaxed);
    }

    /// Whether nothing may be sent any more.
    pub(super) fn is_lost(&self) -> bool {
        self.0.is_lost.load(Ordering::Relaxed)
    }

    /// Why it is lost.
    pub(super) fn loss(&self) -> Option<Lost> {
        self.0.lost.get().cloned().map(Lost)
    }
}

impl Shared {
    fn listen(&self, mut frames: FrameReader, inbox: &Inbox) {
        let mut buffer = vec![0; 16 << 10];
        let mut beat_ns = monotonic_ns();
        while !self.over.load(Ordering::Relaxed) && !self.is_lost.load(Ordering::Relaxed) {
            match (&self.stream).read(&mut buffer) {
                Ok(0) => self.lose("it closed the connection"),
                Ok(length) => {
                    frames.take(&buffer[..length]);
                    self.hand_on(&mut frames, inbox);
                }
                Err(error) if passing(&error) => {}
                Err(error) => self.lose(told(&error)),
            }
            let now = monotonic_ns();
            if now.saturating_sub(beat_ns) >= BEAT.as_nanos() as u64 {
                beat_ns = now;
                self.beat();
            }
            // Read before looked at: who was stopped itself for a while must not blame the other.
            if now.saturating_sub(self.heard_ns.load(Ordering::Relaxed)) > SILENCE.as_nanos() as u64 {
                self.lose(format_args!("nothing was heard of it for {} s", SILENCE.as_secs()));
            }
        }
    }

    fn hand_on(&self, frames: &mut FrameReader, inbox: &Inbox) {
        loop {
            let text = match frames.next() {
                Ok(Some(text)) => text,
                Ok(None) => return,
                Err(error) => return self.lose(error),
            };
            self.heard_ns.store(monotonic_ns(), Ordering::Relaxed);
            if text != ALIVE && inbox.try_send(Heard::Text(text)).is_err() {
                return self.lose("it says more than there is to say");
            }
        }
    }

    fn beat(&self) {
        self.send(ALIVE);
        let mut beat = self.beat.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(Beat { socket, mark, number, sender }) = &mut *beat {
            let datagram = Datagram { mark: *mark, number: *number, sent_ns: 0 }.write();
            // One that has no room is not worth more.
            let _ = sender.send(socket.as_fd(), &[&datagram]);
            *number += 1;
        }
    }

    fn send(&self, text: &[u8]) {
        let mut frames = self.frames.lock().unwrap_or_else(PoisonError::into_inner);
        if self.is_lost.load(Ordering::Relaxed) {
            return;
        }
        let frame = frames.write(text);
        if let Err(error) = (&self.stream).write_all(&frame) {
            // A part of a frame may be out: nothing after it would be understood.
            self.lose(told(&error));
        }
    }

    fn lose(&self, why: impl std::fmt::Display) {
        if !self.over.load(Ordering::Relaxed) {
            let _ = self.lost.set(why.to_string());
        }
        self.is_lost.store(true, Ordering::Relaxed);
        let _ = self.stream.shutdown(Shutdown::Both);
    }
}

/// An end, however the kernel calls it.
fn told(error: &std::io::Error) -> String {
    match error.kind() {
        ErrorKind::ConnectionReset | ErrorKind::BrokenPipe => "it closed the connection".to_owned(),
        _ if passing(error) => "it takes nothing any more".to_owned(),
        _ => error.to_string(),
    }
}

/// What a look at the clock or a signal ends is no failure.
pub(super) fn passing(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted)
}

/// [`super::message::ToServer::Alive`] and [`super::message::ToClient::Alive`].
const ALIVE: &[u8] = br#"{"do":"alive"}"#;
/// How often each end shows that it is there.
const BEAT: Duration = Duration::from_millis(250);
/// Without a sign for so long, the other end is lost: a dozen signs.
pub(super) const SILENCE: Duration = Duration::from_secs(3);
/// How often the reader looks at the clock.
const TURN: Duration = Duration::from_millis(50);
/// Frames are small and rare: who takes none for so long is not reading.
const WRITE: Duration = Duration::from_secs(1);
/// Things that wait in a session's inbox, at most.
const INBOX: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tester::message::{ToClient, ToServer};

    #[test]
    fn keep_alive_bytes_parse_as_alive_messages() {
        assert_eq!(serde_json::to_vec(&ToServer::Alive {}).unwrap(), ALIVE);
        assert_eq!(serde_json::to_vec(&ToClient::Alive {}).unwrap(), ALIVE);
    }
}
