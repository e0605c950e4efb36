//! The event loop: one thread over epoll.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use sys::clock::Clock;
use units::Timestamp;

use super::responding::{ProcessResult, Responder};
use crate::spec::{Limits, ServeError, system};
use crate::tls::{Records, Secure, Tls};

/// State shared by all connections.
struct WorkerContext {
    responding: Responder,
    input: Vec<u8>,
    plain: Vec<u8>,
    out: Vec<u8>,
    sealed: Records,
}

/// Serves until `stop` is readable.
pub(super) fn run(
    listener: &TcpListener,
    stop: BorrowedFd<'_>,
    responding: Responder,
    tls: Option<&Tls>,
    clock: Clock,
) -> Result<(), ServeError> {
    let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).map_err(system("epoll_create1"))?;
    let watch = |fd: BorrowedFd<'_>, token| {
        epoll.add(fd, EpollEvent::new(EpollFlags::EPOLLIN, token)).map_err(system("epoll_ctl"))
    };
    watch(stop, STOP)?;
    watch(listener.as_fd(), LISTENER)?;
    let mut context = WorkerContext {
        responding,
        input: vec![0; INPUT_BYTES],
        plain: Vec::new(),
        out: Vec::new(),
        sealed: Records::default(),
    };
    let mut connections: Vec<Option<Connection>> = Vec::new();
    let mut free: Vec<usize> = Vec::new();
    let mut events = vec![EpollEvent::empty(); EVENTS];
    let mut swept_at = clock.now();
    loop {
        let ready = match epoll.wait(&mut events, EpollTimeout::from(TICK_MS)) {
            Ok(ready) => ready,
            Err(nix::errno::Errno::EINTR) => 0,
            Err(errno) => return Err(system("epoll_wait")(errno)),
        };
        let now = clock.now();
        context.responding.begin(now);
        for event in &events[..ready] {
            match event.data() {
                STOP => return Ok(()),
                LISTENER => {
                    for _ in 0..ACCEPTS {
                        // None is waiting, or accepting failed: waiting connections stay in the backlog for the next
                        // attempt.
                        let Ok((stream, peer)) = listener.accept() else { break };
                        let Some(connection) = Connection::new(stream, peer, tls, now) else { continue };
                        let index = free.pop().unwrap_or_else(|| {
                            connections.push(None);
                            connections.len() - 1
                        });
                        let flags = EpollFlags::EPOLLIN | EpollFlags::EPOLLOUT | EpollFlags::EPOLLET;
                        let watched = connection.stream.set_nonblocking(true).is_ok()
                            && epoll.add(&connection.stream, EpollEvent::new(flags, index as u64)).is_ok();
                        match watched {
                            true => connections[index] = Some(connection),
                            false => free.push(index),
                        }
                    }
                }
                token => {
                    let index = token as usize;
                    let Some(Some(connection)) = connections.get_mut(index) else { continue };
                    connection.seen_at = now;
                    if !connection.advance(&mut context) {
                        connections[index] = None;
                        free.push(index);
                    }
                }
            }
        }
        if now.since(swept_at) >= Duration::from_secs(1) {
            swept_at = now;
            context.responding.tick();
            let timeouts = Limits::default().idle_time;
            for (index, slot) in connections.iter_mut().enumerate() {
                if slot.as_ref().is_some_and(|connection| now.since(connection.seen_at) >= timeouts) {
                    *slot = None;
                    free.push(index);
                }
            }
        }
    }
}

struct Connection {
    stream: TcpStream,
    peer: SocketAddr,
    secure: Option<Box<Secure>>,
    /// The beginning of a head.
    partial: Vec<u8>,
    /// Bytes that the kernel did not accept yet.
    unsent: Vec<u8>,
    /// The last response was made.
    last: bool,
    seen_at: Timestamp,
}

impl Connection {
    fn new(stream: TcpStream, peer: SocketAddr, tls: Option<&Tls>, now: Timestamp) -> Option<Self> {
        let secure = tls.map(Secure::new).transpose().ok()?.map(Box::new);
        Some(Connection { stream, peer, secure, partial: Vec::new(), unsent: Vec::new(), last: false, seen_at: now })
    }

    /// Reads all input and sends all possible output; false when the connection is finished.
    fn advance(&mut self, context: &mut WorkerContext) -> bool {
        loop {
            if !self.flush() {
                return false;
            }
            if !self.unsent.is_empty() {
                return true;
            }
            match self.stream.read(&mut context.input) {
                Ok(0) => return false,
                // Input after the last response is ignored.
                Ok(_) if self.last => {}
                Ok(length) => {
                    if !self.received(context, length) {
                        return false;
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return true,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => return false,
            }
        }
    }

    fn received(&mut self, context: &mut WorkerContext, length: usize) -> bool {
        context.out.clear();
        let Some(secure) = &mut self.secure else {
            let input = std::mem::take(&mut context.input);
            self.answer(&input[..length], &mut context.responding, &mut context.out);
            context.input = input;
            return self.send(&context.out);
        };
        context.plain.clear();
        context.sealed.clear();
        let opened = secure.received(&context.input[..length], &mut context.plain, &mut context.sealed).is_ok();
        let plain = std::mem::take(&mut context.plain);
        if opened && !plain.is_empty() {
            self.answer(&plain, &mut context.responding, &mut context.out);
        }
        context.plain = plain;
        let Some(secure) = &mut self.secure else { return false };
        let mut sealed = context.out.is_empty() || secure.encrypt(&context.out, &mut context.sealed).is_ok();
        sealed &= opened && !secure.peer_closed();
        if self.last {
            secure.close(&mut context.sealed);
        }
        self.send(&context.sealed) && sealed
    }

    /// Responds to every complete request.
    fn answer(&mut self, bytes: &[u8], responding: &mut Responder, out: &mut Vec<u8>) {
        let joined;
        let mut rest = if self.partial.is_empty() {
            bytes
        } else {
            self.partial.extend_from_slice(bytes);
            joined = std::mem::take(&mut self.partial);
            &joined
        };
        while !rest.is_empty() && !self.last {
            match responding.take(rest, self.peer, out) {
                ProcessResult::Incomplete if rest.len() > PARTIAL_MAX => self.last = true,
                ProcessResult::Incomplete => {
                    self.partial.extend_from_slice(rest);
                    break;
                }
                ProcessResult::Answered { bytes, last } => {
                    rest = &rest[bytes..];
                    self.last = last;
                }
            }
        }
    }

    fn send(&mut self, bytes: &[u8]) -> bool {
        let mut rest = bytes;
        while !rest.is_empty() {
            match self.stream.write(rest) {
                Ok(taken) => rest = &rest[taken..],
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    self.unsent.extend_from_slice(rest);
                    return true;
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => return false,
            }
        }
        !self.last || self.stream.shutdown(Shutdown::Write).is_ok()
    }

    fn flush(&mut self) -> bool {
        if self.unsent.is_empty() {
            return true;
        }
        let unsent = std::mem::take(&mut self.unsent);
        self.send(&unsent)
    }
}

/// Tokens of other descriptors.
const LISTENER: u64 = u64::MAX;
const STOP: u64 = u64::MAX - 1;
const EVENTS: usize = 512;
const ACCEPTS: usize = 64;
const TICK_MS: u16 = 1000;
const INPUT_BYTES: usize = 64 << 10;
/// Maximum length of an incomplete head.
const PARTIAL_MAX: usize = 32 << 10;
