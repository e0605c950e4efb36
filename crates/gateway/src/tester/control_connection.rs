//! The control connection of a session: messages in both directions, and keep-alives that detect a lost peer.
//!
//! ```text
//!   any thread --send--> [ frames ] ==TCP==> [ reader thread ] --> inbox --> owner of the session
//!                            ^                    |
//!                            '-- keep-alive, 4 a second, also as a datagram while a trial has a UDP socket
//! ```
//!
//! The peer is lost if nothing authentic arrives from it for [`PEER_TIMEOUT`], or if the connection ends. Every sender
//! checks [`Liveness::is_lost`] before it sends. While packets saturate one direction, TCP acknowledgements may be lost
//! for longer than the timeout; datagrams of the trial therefore count as signs of life as well.

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

/// An item of a session's inbox.
pub(super) enum InboxItem {
    /// A message of the peer.
    Message(Vec<u8>),
    /// An authenticated stream of a trial.
    Stream {
        /// Index of the stream.
        index: u32,
        /// Its connection.
        stream: TcpStream,
    },
    /// A socket that receives the client's datagrams of a trial.
    DatagramSocket {
        /// Number of the trial.
        trial: u32,
        /// The client's port as seen by the server, after address translation.
        port: u16,
        /// The connected socket.
        socket: UdpSocket,
    },
}

/// The control connection of a session, closed when dropped.
pub(super) struct ControlConnection {
    liveness: Liveness,
    inbox: Receiver<InboxItem>,
    reader: Option<JoinHandle<()>>,
}

/// Whether the peer is alive, shared by all threads of a session.
#[derive(Clone)]
pub(super) struct Liveness(Arc<Shared>);

struct Shared {
    stream: TcpStream,
    frames: Mutex<FrameWriter>,
    last_activity_ns: AtomicU64,
    lost: OnceLock<String>,
    is_lost: AtomicBool,
    is_closing: AtomicBool,
    /// Socket for keep-alive datagrams, if a trial has one.
    keep_alive: Mutex<Option<KeepAliveSocket>>,
}

struct KeepAliveSocket {
    socket: Arc<UdpSocket>,
    mark: u64,
    number: u64,
    sender: datagrams::Sender,
}

/// Why the peer is lost.
#[derive(Clone, Debug)]
pub(super) struct PeerLost(pub(super) String);

/// Sending end of a session's inbox.
pub(super) type Inbox = SyncSender<InboxItem>;

/// An inbox: sending and receiving end.
pub(super) fn inbox() -> (Inbox, Receiver<InboxItem>) {
    sync_channel(INBOX_CAPACITY)
}

impl ControlConnection {
    /// Starts the reader thread of a connection after its handshake. `own` is the direction in which this end sends.
    pub(super) fn start(
        stream: TcpStream,
        keys: &Keys,
        own: FrameDirection,
        (inbox, receiver): (Inbox, Receiver<InboxItem>),
    ) -> std::io::Result<ControlConnection> {
        stream.set_nonblocking(false)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(POLL_INTERVAL))?;
        stream.set_write_timeout(Some(WRITE_TIMEOUT))?;
        let other = if own == FrameDirection::Up { FrameDirection::Down } else { FrameDirection::Up };
        let frames = FrameReader::new(keys, other);
        let shared = Arc::new(Shared {
            stream,
            frames: Mutex::new(FrameWriter::new(keys, own)),
            last_activity_ns: AtomicU64::new(monotonic_ns()),
            lost: OnceLock::new(),
            is_lost: AtomicBool::new(false),
            is_closing: AtomicBool::new(false),
            keep_alive: Mutex::new(None),
        });
        let for_reader = Arc::clone(&shared);
        let reader = thread::Builder::new().name("control".to_owned()).spawn(move || {
            for_reader.read_frames(frames, &inbox);
        })?;
        Ok(ControlConnection { liveness: Liveness(shared), inbox: receiver, reader: Some(reader) })
    }

    /// A handle for other threads.
    pub(super) fn liveness(&self) -> Liveness {
        self.liveness.clone()
    }

    /// Sends a message.
    pub(super) fn send(&self, message: &impl Serialize) -> Result<(), PeerLost> {
        let text = serde_json::to_vec(message).expect("messages are valid JSON");
        self.liveness.0.send(&text);
        self.liveness.loss().map_or(Ok(()), Err)
    }

    /// The next item of the inbox; `None` after `timeout`. Items that arrived before the peer was lost are returned
    /// first.
    pub(super) fn receive(&self, timeout: Duration) -> Result<Option<InboxItem>, PeerLost> {
        match self.inbox.recv_timeout(timeout) {
            Ok(item) => Ok(Some(item)),
            Err(RecvTimeoutError::Timeout) => match self.liveness.loss() {
                None => Ok(None),
                // The peer was lost after its last message was stored, which may have happened after the timeout.
                Some(lost) => self.inbox.try_recv().map(Some).map_err(|_| lost),
            },
            Err(RecvTimeoutError::Disconnected) => {
                Err(self.liveness.loss().unwrap_or_else(|| PeerLost("the connection was closed".to_owned())))
            }
        }
    }

    /// Sets the socket on which keep-alive datagrams are sent as well, with their mark; `None`: none are sent.
    pub(super) fn set_keep_alive_socket(&self, socket: Option<(Arc<UdpSocket>, u64)>) {
        let keep_alive = socket.map(|(socket, mark)| KeepAliveSocket {
            socket,
            mark,
            number: 0,
            sender: datagrams::Sender::default(),
        });
        *self.liveness.0.keep_alive.lock().unwrap_or_else(PoisonError::into_inner) = keep_alive;
    }
}

impl Drop for ControlConnection {
    fn drop(&mut self) {
        self.liveness.0.is_closing.store(true, Ordering::Relaxed);
        let _ = self.liveness.0.stream.shutdown(Shutdown::Both);
        if let Some(reader) = self.reader.take() {
            // A panic of the thread was printed on stderr already.
            let _ = reader.join();
        }
    }
}

impl Liveness {
    /// Records that something authentic has arrived from the peer.
    pub(super) fn record_activity(&self) {
        self.0.last_activity_ns.store(monotonic_ns(), Ordering::Relaxed);
    }

    /// Whether the peer is lost, so that nothing may be sent any more.
    pub(super) fn is_lost(&self) -> bool {
        self.0.is_lost.load(Ordering::Relaxed)
    }

    /// Why the peer is lost; `None` if it is alive.
    pub(super) fn loss(&self) -> Option<PeerLost> {
        self.0.lost.get().cloned().map(PeerLost)
    }
}

impl Shared {
    fn read_frames(&self, mut frames: FrameReader, inbox: &Inbox) {
        let mut buffer = vec![0; 16 << 10];
        let mut keep_alive_ns = monotonic_ns();
        while !self.is_closing.load(Ordering::Relaxed) && !self.is_lost.load(Ordering::Relaxed) {
            match (&self.stream).read(&mut buffer) {
                Ok(0) => self.mark_lost("it closed the connection"),
                Ok(length) => {
                    frames.push(&buffer[..length]);
                    self.deliver(&mut frames, inbox);
                }
                Err(error) if is_temporary(&error) => {}
                Err(error) => self.mark_lost(describe(&error)),
            }
            let now = monotonic_ns();
            if now.saturating_sub(keep_alive_ns) >= KEEP_ALIVE_INTERVAL.as_nanos() as u64 {
                keep_alive_ns = now;
                self.keep_alive();
            }
            // Check the time after reading: if this process was stopped, messages of the peer may be waiting.
            if now.saturating_sub(self.last_activity_ns.load(Ordering::Relaxed)) > PEER_TIMEOUT.as_nanos() as u64 {
                self.mark_lost(format_args!("nothing was received from it for {} s", PEER_TIMEOUT.as_secs()));
            }
        }
    }

    fn deliver(&self, frames: &mut FrameReader, inbox: &Inbox) {
        loop {
            let text = match frames.next() {
                Ok(Some(text)) => text,
                Ok(None) => return,
                Err(error) => return self.mark_lost(error),
            };
            self.last_activity_ns.store(monotonic_ns(), Ordering::Relaxed);
            if text != KEEP_ALIVE && inbox.try_send(InboxItem::Message(text)).is_err() {
                return self.mark_lost("it sent too many messages");
            }
        }
    }

    fn keep_alive(&self) {
        self.send(KEEP_ALIVE);
        let mut keep_alive = self.keep_alive.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(KeepAliveSocket { socket, mark, number, sender }) = &mut *keep_alive {
            let datagram = Datagram { mark: *mark, number: *number, sent_ns: 0 }.write();
            // A keep-alive that does not fit into the send buffer is dropped.
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
            // A frame may be sent in part, which makes later frames unreadable.
            self.mark_lost(describe(&error));
        }
    }

    fn mark_lost(&self, why: impl std::fmt::Display) {
        if !self.is_closing.load(Ordering::Relaxed) {
            let _ = self.lost.set(why.to_string());
        }
        self.is_lost.store(true, Ordering::Relaxed);
        let _ = self.stream.shutdown(Shutdown::Both);
    }
}

/// Describes why a connection ended.
fn describe(error: &std::io::Error) -> String {
    match error.kind() {
        ErrorKind::ConnectionReset | ErrorKind::BrokenPipe => "it closed the connection".to_owned(),
        _ if is_temporary(error) => "it does not read any more".to_owned(),
        _ => error.to_string(),
    }
}

/// Whether an error is temporary: a timeout or a signal interrupted the call.
pub(super) fn is_temporary(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted)
}

/// [`super::message::ToServer::Alive`] and [`super::message::ToClient::Alive`].
const KEEP_ALIVE: &[u8] = br#"{"do":"alive"}"#;
/// Interval of the keep-alives.
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_millis(250);
/// Time without a sign of life after which the peer is lost: twelve keep-alives.
pub(super) const PEER_TIMEOUT: Duration = Duration::from_secs(3);
/// Interval at which the reader checks the time.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// Write timeout. Frames are small and rare, so that a peer that accepts none for this long does not read.
const WRITE_TIMEOUT: Duration = Duration::from_secs(1);
/// Capacity of a session's inbox.
const INBOX_CAPACITY: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tester::message::{ToClient, ToServer};

    #[test]
    fn keep_alive_bytes_parse_as_alive_messages() {
        assert_eq!(serde_json::to_vec(&ToServer::Alive {}).unwrap(), KEEP_ALIVE);
        assert_eq!(serde_json::to_vec(&ToClient::Alive {}).unwrap(), KEEP_ALIVE);
    }
}
