//! The server: its door, at which everybody may knock and few are heard, and one session at a time behind it.
//!
//! ```text
//!   TCP --> [ door: one thread ] -- the magic, the secret --> control: [ session: a thread of its own ]
//!             | a ticket that is good: one byte, closed                      ^
//!             | a stream that is waited for -------------------------------->|
//!   UDP ----> | an introduction that is good: a socket connected to it ----->'
//! ```
//!
//! Whoever knocks costs one slot of a bounded number for at most [`PATIENCE`]; who has not the secret is sent nothing but 32
//! bytes of chance, and that only after the magic. To others than the session's own address no datagram is ever sent.

mod slots;

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

use super::datagram::Introduction;
use super::frame::{FrameDirection, FrameWriter};
use super::handshake::{Answering, HandshakeStep, Opening, Ticket, Wrong};
use super::line::{self, Heard, Line};
use super::message::ToClient;
use super::secret::{Keys, Tag};
use super::session::Service;
use super::session_table::{Guest, SessionTable};
use super::{ServerEvent, ServerSpec};
use slots::{Failures, Knock, Slots};
use testbed::TestbedError;

/// See [`super::serve`].
pub(super) fn serve(
    spec: &ServerSpec,
    stop: BorrowedFd<'_>,
    tell: &mut dyn FnMut(ServerEvent),
) -> Result<(), TestbedError> {
    if !spec.secret.is_some() && !spec.listen.ip().is_loopback() {
        return Err(TestbedError::plan(format_args!(
            "{} can be reached from other hosts: that needs a token (--token-file, or YAMABIKO_TOKEN)",
            spec.listen
        )));
    }
    let (listener, datagrams) = listen(spec.listen)?;
    let at = listener.local_addr().map_err(TestbedError::system("getsockname"))?;
    let mut door = Door {
        spec,
        at,
        listener,
        datagrams,
        epoll: Epoll::new().map_err(TestbedError::system("epoll_create1"))?,
        session_table: SessionTable::default(),
        slots: Slots::default(),
        failures: Failures::default(),
        parting: VecDeque::new(),
        session: None,
        served: 0,
        refused: 0,
        told_ns: 0,
        tell,
    };
    (door.tell)(ServerEvent::Listening { at });
    door.run(stop).map_err(TestbedError::system("serving"))
}

/// Both sockets, at the same port.
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
            // Another program may have the UDP port of the number that was drawn for TCP.
            Err(_) if at.port() == 0 && tries < PORT_TRIES => tries += 1,
            Err(error) => return Err(TestbedError::system(&format!("listening on {chosen} with UDP"))(error)),
        }
    }
}

struct Door<'a> {
    spec: &'a ServerSpec,
    at: SocketAddr,
    listener: TcpListener,
    datagrams: UdpSocket,
    epoll: Epoll,
    session_table: SessionTable,
    slots: Slots,
    failures: Failures,
    /// Those who were told that another is being served, and when.
    parting: VecDeque<(u64, TcpStream)>,
    session: Option<Running>,
    served: u32,
    refused: u64,
    told_ns: u64,
    tell: &'a mut dyn FnMut(ServerEvent),
}

/// A session and its thread.
struct Running {
    peer: SocketAddr,
    stop: Arc<Wake>,
    thread: JoinHandle<String>,
}

impl Door<'_> {
    fn run(&mut self, stop: BorrowedFd<'_>) -> io::Result<()> {
        let end_ns = self.spec.lasts.map(|lasts| monotonic_ns().saturating_add(lasts.as_nanos() as u64));
        self.epoll.add(stop, Interest::READ, STOP)?;
        self.epoll.add(self.listener.as_fd(), Interest::READ, LISTENER)?;
        self.epoll.add(self.datagrams.as_fd(), Interest::READ, DATAGRAMS)?;
        let (mut events, mut swept_ns) = (vec![Event::EMPTY; 128], 0);
        loop {
            let mut stopped = end_ns.is_some_and(|end_ns| monotonic_ns() >= end_ns);
            for event in self.epoll.wait(&mut events, TURN.as_millis() as i32)? {
                match event.token() {
                    STOP => stopped = true,
                    LISTENER => self.accept(),
                    DATAGRAMS => self.introductions(),
                    token => self.hear(token),
                }
            }
            let now = monotonic_ns();
            if now - swept_ns >= TURN.as_nanos() as u64 {
                swept_ns = now;
                self.parting.retain(|(since_ns, _)| now - since_ns < PARTING.as_nanos() as u64);
                for peer in self.slots.sweep(now, PATIENCE.as_nanos() as u64) {
                    self.refuse(peer, "said too little for too long");
                }
            }
            self.session_table.tell_door_cpu(thread_cpu_time());
            self.look_at_session(stopped);
            if stopped || self.spec.sessions.is_some_and(|sessions| self.served >= sessions) {
                return Ok(());
            }
        }
    }

    /// As many as wait, some at a time: those who have been let in are heard in between.
    fn accept(&mut self) {
        for _ in 0..ACCEPTED_AT_ONCE {
            let (socket, peer) = match sys::socket::accept(self.listener.as_fd()) {
                Ok(accepted) => accepted,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(_) => {
                    // No descriptor left, or a peer that was gone at once.
                    thread::sleep(Duration::from_millis(1));
                    return;
                }
            };
            self.knock(socket, peer);
        }
    }

    fn knock(&mut self, socket: OwnedFd, peer: SocketAddr) {
        let now = monotonic_ns();
        let of_guest = self.session_table.is_guest(peer.ip());
        if !of_guest && self.failures.bars(peer.ip(), now) {
            return self.refuse(peer, "wrong secrets before: its address is shut out for a minute");
        }
        if let Some(other) = self.slots.make_room(of_guest) {
            self.refuse(other, "too many said nothing");
        }
        let stream = TcpStream::from(socket);
        let knock = Knock { stream, peer, since_ns: now, of_guest, answering: Answering::new(&self.spec.secret) };
        let (token, stream) = self.slots.put(knock);
        if self.epoll.add(stream.as_fd(), Interest::READ, FIRST_SLOT + token).is_err() {
            self.slots.take(token);
            return;
        }
        // What a client has to say is often there already.
        self.hear(FIRST_SLOT + token);
    }

    /// Something is there, or the end, of one who knocked.
    fn hear(&mut self, token: u64) {
        let token = token - FIRST_SLOT;
        let Some(knock) = self.slots.get(token) else { return };
        let mut room = [0; 64];
        let wants = knock.answering.wants().min(room.len());
        let step = match knock.stream.read(&mut room[..wants]) {
            Ok(0) => HandshakeStep::Refuse(Wrong::NotOurs),
            Ok(length) => knock.answering.take(&room[..length]),
            Err(error) if line::passing(&error) => return,
            Err(_) => HandshakeStep::Refuse(Wrong::NotOurs),
        };
        match step {
            HandshakeStep::Wait => {}
            HandshakeStep::Challenge(nonce) => {
                // A new connection's buffer has room for 32 bytes.
                let sent = knock.stream.write(&nonce).is_ok_and(|length| length == nonce.len());
                if !sent {
                    self.slots.take(token);
                } else if let Some(other) = self.slots.make_room_for_handshake(token) {
                    self.refuse(other, "too many handshakes at once");
                }
            }
            HandshakeStep::Refuse(wrong) => {
                let Some(knock) = self.slots.take(token) else { return };
                if wrong == Wrong::Secret {
                    self.failures.add(knock.peer.ip(), monotonic_ns());
                }
                self.refuse(knock.peer, &wrong.to_string());
            }
            HandshakeStep::Ticket(ticket) => {
                if let Some(knock) = self.slots.take(token) {
                    self.admit(knock, &ticket);
                }
            }
            HandshakeStep::Proven { opening, keys, proof } => {
                let Some(knock) = self.slots.take(token) else { return };
                let _ = self.epoll.remove(knock.stream.as_fd());
                match opening {
                    Opening::Control => self.begin(knock, *keys, &proof),
                    Opening::Stream { session, trial, index } => self.join(knock, &proof, session, trial, index),
                }
            }
        }
    }

    fn admit(&mut self, mut knock: Knock, ticket: &Ticket) {
        let good = knock.of_guest && self.session_table.look().as_mut().is_some_and(|guest| guest.admits(ticket));
        if good {
            let _ = knock.stream.write(b"!");
        } else {
            self.refuse(knock.peer, "its ticket is not good");
        }
    }

    fn join(&mut self, mut knock: Knock, proof: &Tag, session: [u8; 16], trial: u32, index: u32) {
        let mut session_table = self.session_table.look();
        let guest = session_table.as_mut().filter(|guest| guest.is_at(knock.peer.ip()));
        let good = guest.is_some_and(|guest| {
            // The session has it before its bearer hears that it is let in: what that one says next finds it there.
            guest.admits_stream(&session, trial, index)
                && knock.stream.try_clone().is_ok_and(|stream| {
                    guest.inbox.try_send(Heard::Stream { index, stream }).is_ok() && knock.stream.write(proof).is_ok()
                })
        });
        drop(session_table);
        if !good {
            self.refuse(knock.peer, "no such stream is waited for");
        }
    }

    fn begin(&mut self, mut knock: Knock, keys: Keys, proof: &Tag) {
        let peer = knock.peer;
        // One that has ended may not have been looked at yet.
        self.look_at_session(false);
        if let Some(running) = &self.session {
            let busy = ToClient::Busy {
                by: SocketAddr::new(running.peer.ip().to_canonical(), running.peer.port()).to_string(),
            };
            let text = serde_json::to_vec(&busy).expect("a message is JSON");
            let _ =
                knock.stream.write(&[&proof[..], &FrameWriter::new(&keys, FrameDirection::Down).write(&text)].concat());
            // Closed at once, what its client says meanwhile would be answered by a reset, which may overtake this.
            if self.parting.len() == PARTING_MAX {
                self.parting.pop_front();
            }
            self.parting.push_back((monotonic_ns(), knock.stream));
            return self.refuse(peer, "another client is being served");
        }
        match self.start(knock, keys, proof) {
            Ok(running) => {
                self.session = Some(running);
                (self.tell)(ServerEvent::Begun { peer });
            }
            Err(error) => self.refuse(peer, &error.to_string()),
        }
    }

    fn start(&self, mut knock: Knock, keys: Keys, proof: &Tag) -> io::Result<Running> {
        let (peer, local) = (knock.peer, knock.stream.local_addr()?.ip());
        let stop = Arc::new(Wake::new()?);
        let (inbox, receiver) = line::inbox();
        knock.stream.write_all(proof)?;
        let line = Line::start(knock.stream, &keys, FrameDirection::Down, (inbox.clone(), receiver))?;
        *self.session_table.look() = Some(Guest { peer, local, keys: keys.clone(), inbox, awaited: None });
        let service = Service::new(line, keys, self.session_table.clone(), Arc::clone(&stop));
        let started = thread::Builder::new().name("session".to_owned()).spawn(|| service.run());
        match started {
            Ok(thread) => Ok(Running { peer, stop, thread }),
            Err(error) => {
                *self.session_table.look() = None;
                Err(error)
            }
        }
    }

    /// Takes note of its end; with `stop` makes it end.
    fn look_at_session(&mut self, stop: bool) {
        let Some(running) = self.session.take_if(|running| stop || running.thread.is_finished()) else { return };
        running.stop.wake();
        *self.session_table.look() = None;
        let how = running.thread.join().unwrap_or_else(|_| "failed: see above".to_owned());
        self.served += 1;
        (self.tell)(ServerEvent::Ended { peer: running.peer, how });
    }

    /// Datagrams that came to nobody's own socket: of a trial that waits for its first, or a stranger's.
    fn introductions(&mut self) {
        let mut room = [0; 64];
        for _ in 0..DATAGRAMS_AT_ONCE {
            // Longer ones are cut to 64 bytes, which no introduction has.
            let Ok((length, from)) = self.datagrams.recv_from(&mut room) else { return };
            let Some(introduction) = Introduction::read(&room[..length]) else { continue };
            let mut session_table = self.session_table.look();
            let Some(guest) = session_table.as_mut().filter(|guest| guest.is_at(from.ip())) else { continue };
            if !guest.admits_datagrams(&introduction) {
                continue;
            }
            let socket = bind_shared(own_address(self.at, guest.local)).and_then(|socket| {
                socket.connect(from)?;
                Ok(socket)
            });
            if let Ok(socket) = socket {
                let (trial, port) = (introduction.trial, from.port());
                let _ = guest.inbox.try_send(Heard::Introduced { trial, port, socket });
            }
        }
    }

    /// At most one line a second, however many knock.
    fn refuse(&mut self, peer: SocketAddr, why: &str) {
        self.refused += 1;
        let now = monotonic_ns();
        if self.told_ns == 0 || now - self.told_ns >= 1_000_000_000 {
            self.told_ns = now;
            (self.tell)(ServerEvent::Refused { peer, why: why.to_owned(), in_all: self.refused });
        }
    }
}

impl Drop for Door<'_> {
    fn drop(&mut self) {
        self.look_at_session(true);
    }
}

/// The address at which the control connection came in, at the server's port, of the family that the server listens with.
fn own_address(at: SocketAddr, local: IpAddr) -> SocketAddr {
    SocketAddr::new(if at.ip().is_unspecified() { local } else { at.ip() }, at.port())
}

const STOP: u64 = 0;
const LISTENER: u64 = 1;
const DATAGRAMS: u64 = 2;
const FIRST_SLOT: u64 = 3;
const TURN: Duration = Duration::from_millis(50);
/// Time to show the magic and the secret.
const PATIENCE: Duration = Duration::from_secs(5);
/// Time to hear that another client is being served.
const PARTING: Duration = Duration::from_secs(1);
const PARTING_MAX: usize = 8;
const ACCEPTED_AT_ONCE: usize = 64;
const DATAGRAMS_AT_ONCE: usize = 64;
/// Ports drawn until one is free for both.
const PORT_TRIES: u32 = 16;
