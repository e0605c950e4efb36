//! The server of the tester: a listener thread that authenticates connections, and one session at a time.
//!
//! ```text
//!   TCP --> [ listener thread ] -- magic and secret --> control connection: [ session thread ]
//!             | valid ticket: one byte, closed                               ^
//!             | expected stream -------------------------------------------->|
//!   UDP ----> | valid introduction: a socket connected to its sender ------->'
//! ```
//!
//! The number of unauthenticated connections is limited; each is closed after [`HANDSHAKE_TIMEOUT`]. A peer without the
//! secret receives 32 random bytes at most, and these only after it has sent the magic. Datagrams are sent to the
//! address of the session's client only.

mod pending;

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use sys::clock::{monotonic_ns, thread_cpu_time};
use sys::datagrams::bind_shared;
use sys::epoll::{Epoll, Event, Interest};
use sys::signal::Wake;

use super::control_connection::{self, ControlConnection, InboxItem};
use super::datagram::Introduction;
use super::frame::{FrameDirection, FrameWriter};
use super::handshake::{HandshakeStep, Opening, RejectReason, ServerHandshake, Ticket};
use super::message::ToClient;
use super::secret::{Keys, Tag};
use super::session::ServerSession;
use super::session_table::{CurrentClient, SessionTable};
use super::{ServerEvent, ServerSpec};
use pending::{FailedAttempts, PendingConnection, PendingConnections};
use testbed::TestbedError;

/// See [`super::serve`].
pub(super) fn serve(
    spec: &ServerSpec,
    stop: BorrowedFd<'_>,
    on_event: &mut dyn FnMut(ServerEvent),
) -> Result<(), TestbedError> {
    if !spec.secret.is_some() && !spec.listen.ip().is_loopback() {
        return Err(TestbedError::plan(format_args!(
            "{} can be reached from other hosts: that needs a token (--token-file, or YAMABIKO_TOKEN)",
            spec.listen
        )));
    }
    let (listener, datagrams) = listen(spec.listen)?;
    let at = listener.local_addr().map_err(TestbedError::system("getsockname"))?;
    let mut listener_thread = ListenerThread {
        spec,
        at,
        listener,
        datagrams,
        epoll: Epoll::new().map_err(TestbedError::system("epoll_create1"))?,
        session_table: SessionTable::default(),
        pending: PendingConnections::default(),
        failures: FailedAttempts::default(),
        lingering: VecDeque::new(),
        session: None,
        served: 0,
        rejected: 0,
        reported_ns: 0,
        on_event,
    };
    (listener_thread.on_event)(ServerEvent::Listening { at });
    listener_thread.run(stop).map_err(TestbedError::system("serving"))
}

/// Opens the TCP and the UDP socket on the same port.
fn listen(at: SocketAddr) -> Result<(TcpListener, UdpSocket), TestbedError> {
    let mut tries = 0;
    loop {
        let listener = TcpListener::bind(at).map_err(TestbedError::system(&format!("listening on {at} with TCP")))?;
        let chosen = listener.local_addr().map_err(TestbedError::system("getsockname"))?;
        match bind_shared(chosen) {
            Ok(datagrams) => {
                for result in [listener.set_nonblocking(true), datagrams.set_nonblocking(true)] {
                    result.map_err(TestbedError::system("fcntl O_NONBLOCK"))?;
                }
                return Ok((listener, datagrams));
            }
            // Another program may use the UDP port with the number that the kernel chose for TCP.
            Err(_) if at.port() == 0 && tries < PORT_TRIES => tries += 1,
            Err(error) => return Err(TestbedError::system(&format!("listening on {chosen} with UDP"))(error)),
        }
    }
}

struct ListenerThread<'a> {
    spec: &'a ServerSpec,
    at: SocketAddr,
    listener: TcpListener,
    datagrams: UdpSocket,
    epoll: Epoll,
    session_table: SessionTable,
    pending: PendingConnections,
    failures: FailedAttempts,
    /// Rejected connections that are closed after [`LINGER_TIME`], with the time of their rejection.
    lingering: VecDeque<(u64, TcpStream)>,
    session: Option<RunningSession>,
    served: u32,
    rejected: u64,
    reported_ns: u64,
    on_event: &'a mut dyn FnMut(ServerEvent),
}

/// A session and its thread.
struct RunningSession {
    peer: SocketAddr,
    stop: Arc<Wake>,
    thread: JoinHandle<String>,
}

impl ListenerThread<'_> {
    fn run(&mut self, stop: BorrowedFd<'_>) -> io::Result<()> {
        let end_ns = self.spec.lasts.map(|lasts| monotonic_ns().saturating_add(lasts.as_nanos() as u64));
        self.epoll.add(stop, Interest::READ, STOP)?;
        self.epoll.add(self.listener.as_fd(), Interest::READ, LISTENER)?;
        self.epoll.add(self.datagrams.as_fd(), Interest::READ, DATAGRAMS)?;
        let (mut events, mut expired_check_ns) = (vec![Event::EMPTY; 128], 0);
        loop {
            let mut stopped = end_ns.is_some_and(|end_ns| monotonic_ns() >= end_ns);
            for event in self.epoll.wait(&mut events, POLL_INTERVAL.as_millis() as i32)? {
                match event.token() {
                    STOP => stopped = true,
                    LISTENER => self.accept(),
                    DATAGRAMS => self.receive_introductions(),
                    token => self.read_pending(token),
                }
            }
            let now = monotonic_ns();
            if now - expired_check_ns >= POLL_INTERVAL.as_nanos() as u64 {
                expired_check_ns = now;
                self.lingering.retain(|(since_ns, _)| now - since_ns < LINGER_TIME.as_nanos() as u64);
                for peer in self.pending.remove_expired(now, HANDSHAKE_TIMEOUT.as_nanos() as u64) {
                    self.reject(peer, "the handshake timed out");
                }
            }
            self.session_table.set_listener_cpu(thread_cpu_time());
            self.reap_session(stopped);
            if stopped || self.spec.sessions.is_some_and(|sessions| self.served >= sessions) {
                return Ok(());
            }
        }
    }

    /// Accepts waiting connections, a limited number at a time so that other events are handled in between.
    fn accept(&mut self) {
        for _ in 0..ACCEPTS_PER_EVENT {
            let (socket, peer) = match sys::socket::accept(self.listener.as_fd()) {
                Ok(accepted) => accepted,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(_) => {
                    // No file descriptor is free, or the peer has disconnected.
                    thread::sleep(Duration::from_millis(1));
                    return;
                }
            };
            self.add_pending(socket, peer);
        }
    }

    fn add_pending(&mut self, socket: OwnedFd, peer: SocketAddr) {
        let now = monotonic_ns();
        let is_client_address = self.session_table.is_current_client(peer.ip());
        if !is_client_address && self.failures.is_blocked(peer.ip(), now) {
            return self.reject(peer, "its address is blocked for a minute after three wrong secrets");
        }
        if let Some(other) = self.pending.evict_for_new(is_client_address) {
            self.reject(other, "closed in favour of a newer connection: too many without a handshake");
        }
        let stream = TcpStream::from(socket);
        let connection = PendingConnection {
            stream,
            peer,
            since_ns: now,
            is_client_address,
            handshake: ServerHandshake::new(&self.spec.secret),
        };
        let (token, stream) = self.pending.add(connection);
        if self.epoll.add(stream.as_fd(), Interest::READ, FIRST_PENDING + token).is_err() {
            self.pending.remove(token);
            return;
        }
        // The client's first bytes have often arrived already.
        self.read_pending(FIRST_PENDING + token);
    }

    /// Reads from a pending connection that is readable or closed.
    fn read_pending(&mut self, token: u64) {
        let token = token - FIRST_PENDING;
        let Some(connection) = self.pending.get(token) else { return };
        let mut buffer = [0; 64];
        let bytes_wanted = connection.handshake.bytes_wanted().min(buffer.len());
        let step = match connection.stream.read(&mut buffer[..bytes_wanted]) {
            Ok(0) => HandshakeStep::Refuse(RejectReason::InvalidProtocol),
            Ok(length) => connection.handshake.receive(&buffer[..length]),
            Err(error) if control_connection::is_temporary(&error) => return,
            Err(_) => HandshakeStep::Refuse(RejectReason::InvalidProtocol),
        };
        match step {
            HandshakeStep::Wait => {}
            HandshakeStep::Challenge(nonce) => {
                // The send buffer of a new connection has space for 32 bytes.
                let sent = connection.stream.write(&nonce).is_ok_and(|length| length == nonce.len());
                if !sent {
                    self.pending.remove(token);
                } else if let Some(other) = self.pending.evict_for_handshake(token) {
                    self.reject(other, "too many concurrent handshakes");
                }
            }
            HandshakeStep::Refuse(reason) => {
                let Some(connection) = self.pending.remove(token) else { return };
                if reason == RejectReason::WrongSecret {
                    self.failures.add(connection.peer.ip(), monotonic_ns());
                }
                self.reject(connection.peer, &reason.to_string());
            }
            HandshakeStep::Ticket(ticket) => {
                if let Some(connection) = self.pending.remove(token) {
                    self.finish_ticket(connection, &ticket);
                }
            }
            HandshakeStep::Proven { opening, keys, proof } => {
                let Some(connection) = self.pending.remove(token) else { return };
                let _ = self.epoll.remove(connection.stream.as_fd());
                match opening {
                    Opening::Control => self.begin_session(connection, *keys, &proof),
                    Opening::Stream { session, trial, index } => {
                        self.finish_stream(connection, &proof, session, trial, index)
                    }
                }
            }
        }
    }

    fn finish_ticket(&mut self, mut connection: PendingConnection, ticket: &Ticket) {
        let is_valid = connection.is_client_address
            && self.session_table.lock_client().as_mut().is_some_and(|client| client.accept_ticket(ticket));
        if is_valid {
            let _ = connection.stream.write(b"!");
        } else {
            self.reject(connection.peer, "invalid ticket");
        }
    }

    fn finish_stream(
        &mut self,
        mut connection: PendingConnection,
        proof: &Tag,
        session: [u8; 16],
        trial: u32,
        index: u32,
    ) {
        let mut session_table = self.session_table.lock_client();
        let client = session_table.as_mut().filter(|client| client.has_address(connection.peer.ip()));
        let is_valid = client.is_some_and(|client| {
            // Pass the stream to the session before the client learns that it is accepted: the session then has it
            // when the next message arrives.
            client.accept_stream(&session, trial, index)
                && connection.stream.try_clone().is_ok_and(|stream| {
                    client.inbox.try_send(InboxItem::Stream { index, stream }).is_ok()
                        && connection.stream.write(proof).is_ok()
                })
        });
        drop(session_table);
        if !is_valid {
            self.reject(connection.peer, "the stream is not expected");
        }
    }

    fn begin_session(&mut self, mut connection: PendingConnection, keys: Keys, proof: &Tag) {
        let peer = connection.peer;
        // The previous session may have ended since the last check.
        self.reap_session(false);
        if let Some(running) = &self.session {
            let busy = ToClient::Busy {
                by: SocketAddr::new(running.peer.ip().to_canonical(), running.peer.port()).to_string(),
            };
            let text = serde_json::to_vec(&busy).expect("a message is JSON");
            let _ = connection
                .stream
                .write(&[&proof[..], &FrameWriter::new(&keys, FrameDirection::Down).write(&text)].concat());
            // Close the connection later: data that arrives after a close is answered with a reset, which may overtake
            // this message.
            if self.lingering.len() == LINGERING_MAX {
                self.lingering.pop_front();
            }
            self.lingering.push_back((monotonic_ns(), connection.stream));
            return self.reject(peer, "another session is active");
        }
        match self.start_session(connection, keys, proof) {
            Ok(running) => {
                self.session = Some(running);
                (self.on_event)(ServerEvent::Begun { peer });
            }
            Err(error) => self.reject(peer, &error.to_string()),
        }
    }

    fn start_session(&self, mut connection: PendingConnection, keys: Keys, proof: &Tag) -> io::Result<RunningSession> {
        let (peer, local) = (connection.peer, connection.stream.local_addr()?.ip());
        let stop = Arc::new(Wake::new()?);
        let (inbox, receiver) = control_connection::inbox();
        connection.stream.write_all(proof)?;
        let control =
            ControlConnection::start(connection.stream, &keys, FrameDirection::Down, (inbox.clone(), receiver))?;
        *self.session_table.lock_client() =
            Some(CurrentClient { peer, local, keys: keys.clone(), inbox, expected: None });
        let session = ServerSession::new(control, keys, self.session_table.clone(), Arc::clone(&stop));
        let started = thread::Builder::new().name("session".to_owned()).spawn(|| session.run());
        match started {
            Ok(thread) => Ok(RunningSession { peer, stop, thread }),
            Err(error) => {
                *self.session_table.lock_client() = None;
                Err(error)
            }
        }
    }

    /// Reports the end of the session, if it has ended; with `stop` ends it first.
    fn reap_session(&mut self, stop: bool) {
        let Some(running) = self.session.take_if(|running| stop || running.thread.is_finished()) else { return };
        running.stop.wake();
        *self.session_table.lock_client() = None;
        let how = running.thread.join().unwrap_or_else(|_| "failed: see above".to_owned());
        self.served += 1;
        (self.on_event)(ServerEvent::Ended { peer: running.peer, how });
    }

    /// Receives datagrams without a connected socket: introductions of the current trial, and those of unknown peers,
    /// which are ignored.
    fn receive_introductions(&mut self) {
        let mut buffer = [0; 64];
        for _ in 0..DATAGRAMS_PER_EVENT {
            // Longer datagrams are truncated to 64 bytes, which is not the length of an introduction.
            let Ok((length, from)) = self.datagrams.recv_from(&mut buffer) else { return };
            let Some(introduction) = Introduction::read(&buffer[..length]) else { continue };
            let mut session_table = self.session_table.lock_client();
            let Some(client) = session_table.as_mut().filter(|client| client.has_address(from.ip())) else { continue };
            if !client.accept_introduction(&introduction) {
                continue;
            }
            let socket = bind_shared(local_address(self.at, client.local)).and_then(|socket| {
                socket.connect(from)?;
                Ok(socket)
            });
            if let Ok(socket) = socket {
                let (trial, port) = (introduction.trial, from.port());
                let _ = client.inbox.try_send(InboxItem::DatagramSocket { trial, port, socket });
            }
        }
    }

    /// Counts a rejected connection; reports at most one a second.
    fn reject(&mut self, peer: SocketAddr, why: &str) {
        self.rejected += 1;
        let now = monotonic_ns();
        if self.reported_ns == 0 || now - self.reported_ns >= 1_000_000_000 {
            self.reported_ns = now;
            (self.on_event)(ServerEvent::Refused { peer, why: why.to_owned(), in_all: self.rejected });
        }
    }
}

impl Drop for ListenerThread<'_> {
    fn drop(&mut self) {
        self.reap_session(true);
    }
}

/// The local address of the control connection with the server's port, in the address family of the listening socket.
fn local_address(at: SocketAddr, local: IpAddr) -> SocketAddr {
    SocketAddr::new(if at.ip().is_unspecified() { local } else { at.ip() }, at.port())
}

const STOP: u64 = 0;
const LISTENER: u64 = 1;
const DATAGRAMS: u64 = 2;
const FIRST_PENDING: u64 = 3;
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// Time limit of the handshake.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);
/// Time before a rejected connection is closed, in which its client reads the reason.
const LINGER_TIME: Duration = Duration::from_secs(1);
const LINGERING_MAX: usize = 8;
const ACCEPTS_PER_EVENT: usize = 64;
const DATAGRAMS_PER_EVENT: usize = 64;
/// Attempts to find a port that is free for TCP and UDP.
const PORT_TRIES: u32 = 16;
