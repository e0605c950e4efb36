//! MAX over epoll.

use std::collections::VecDeque;
use std::io::{ErrorKind, Read as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use sys::clock::Clock;
use units::Timestamp;

use super::reader::Reader;
use super::{PENDING_RESPONSES_MAX, ResponseRef, Responses};
use crate::spec::{Limits, ServeError, system};

/// Serves until one of `stops` is readable.
pub(super) fn run(listener: TcpListener, stops: [BorrowedFd<'_>; 2], answers: &Responses) -> Result<(), ServeError> {
    let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).map_err(system("epoll_create1"))?;
    let watch =
        |fd: BorrowedFd<'_>, flags, token| epoll.add(fd, EpollEvent::new(flags, token)).map_err(system("epoll_ctl"));
    for stop in stops {
        watch(stop, EpollFlags::EPOLLIN, STOP)?;
    }
    watch(listener.as_fd(), EpollFlags::EPOLLIN, LISTENER)?;
    let clock = Clock::start();
    let mut connections: Vec<Option<Connection>> = Vec::new();
    let mut free: Vec<usize> = Vec::new();
    let mut input = vec![0; INPUT_BYTES];
    let mut events = vec![EpollEvent::empty(); EVENTS];
    let mut swept_at = clock.now();
    loop {
        let ready = match epoll.wait(&mut events, EpollTimeout::from(TICK_MS)) {
            Ok(ready) => ready,
            Err(nix::errno::Errno::EINTR) => 0,
            Err(errno) => return Err(system("epoll_wait")(errno)),
        };
        let now = clock.now();
        for event in &events[..ready] {
            match event.data() {
                STOP => return Ok(()),
                LISTENER => {
                    for _ in 0..ACCEPTS {
                        // None is waiting, or accepting failed: waiting connections stay in the backlog for the next
                        // attempt.
                        let Ok((stream, _)) = listener.accept() else { break };
                        let index = free.pop().unwrap_or_else(|| {
                            connections.push(None);
                            connections.len() - 1
                        });
                        let flags = EpollFlags::EPOLLIN | EpollFlags::EPOLLOUT | EpollFlags::EPOLLET;
                        let watched = stream
                            .set_nonblocking(true)
                            .and_then(|()| Ok(epoll.add(&stream, EpollEvent::new(flags, index as u64))?));
                        match watched {
                            Ok(()) => connections[index] = Some(Connection::new(stream, now)),
                            Err(_) => free.push(index),
                        }
                    }
                }
                token => {
                    let index = token as usize;
                    let Some(Some(connection)) = connections.get_mut(index) else { continue };
                    connection.seen_at = now;
                    if !connection.advance(&mut input, answers) {
                        connections[index] = None;
                        free.push(index);
                    }
                }
            }
        }
        if now.since(swept_at) >= Duration::from_secs(1) {
            swept_at = now;
            let limits = Limits::default();
            for (index, slot) in connections.iter_mut().enumerate() {
                let timeouts = match slot {
                    Some(connection) if connection.finishing => LINGER,
                    Some(connection) if !connection.owed.is_empty() => limits.stall_time,
                    Some(connection) if connection.reader.is_idle() => limits.idle_time,
                    Some(_) => limits.head_time,
                    None => continue,
                };
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
    reader: Reader,
    owed: VecDeque<ResponseRef>,
    /// Bytes of the first pending response that the kernel accepted.
    sent: usize,
    finishing: bool,
    seen_at: Timestamp,
}

impl Connection {
    fn new(stream: TcpStream, now: Timestamp) -> Self {
        Connection { stream, reader: Reader::default(), owed: VecDeque::new(), sent: 0, finishing: false, seen_at: now }
    }

    /// Reads all input and sends all possible output; false when the connection is finished.
    fn advance(&mut self, input: &mut [u8], answers: &Responses) -> bool {
        loop {
            if !self.send(answers) || self.owed.len() > PENDING_RESPONSES_MAX {
                return false;
            }
            match self.stream.read(input) {
                Ok(0) => return false,
                Ok(length) => self.reader.take(&input[..length], answers, |answer| self.owed.push_back(answer)),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return true,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => return false,
            }
        }
    }

    fn send(&mut self, answers: &Responses) -> bool {
        while let Some(&answer) = self.owed.front() {
            match answers.send(&self.stream, answer, self.sent) {
                Ok(Some(taken)) => self.sent += taken,
                Ok(None) => return true,
                Err(_) => return false,
            }
            if self.sent == answer.length {
                self.sent = 0;
                self.owed.pop_front();
                if answer.last {
                    self.finishing = true;
                    return self.stream.shutdown(Shutdown::Write).is_ok();
                }
            }
        }
        true
    }
}

/// Tokens of other descriptors.
const LISTENER: u64 = u64::MAX;
const STOP: u64 = u64::MAX - 1;
const EVENTS: usize = 512;
const ACCEPTS: usize = 64;
const TICK_MS: u16 = 1000;
const INPUT_BYTES: usize = 64 << 10;
/// Time after which a silent client is disconnected after FIN.
const LINGER: Duration = Duration::from_secs(5);
