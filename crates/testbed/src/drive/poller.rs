//! Events of the event loop: readiness by epoll, or completions by io_uring.
//!
//! Both engines watch the loop's own descriptors (timer, stop, the TUN devices). They differ in the sockets of the
//! load: with epoll the loop learns that a socket is ready, and makes one system call to receive and one to send; with
//! io_uring it gets the received data, and sends many requests with one system call. Received data is in a buffer of
//! the ring until the buffer is returned.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use load::ConnectionKey;
use sys::epoll::{Epoll, Event, Interest};
use sys::socket::TcpSocket;
use sys::udp::UdpSocket;
use sys::uring::{Buffer, Completion, Message, Ring, RingSpec};

use plan::Engine;

/// Most events of an iteration before the loop checks again what is due.
const EVENTS_PER_TURN: usize = 64;

/// Receive buffers of the ring: 4 MiB, in pieces that hold a usual response. The kernel uses them in turn, and with more of
/// them each response would be written to memory that no cache holds any more.
const RING_SPEC: RingSpec = RingSpec { operations: 1024, buffers: 512, buffer_bytes: 8192 };

/// The poller in use.
pub enum Poller {
    /// Readiness.
    Epoll(EpollPoller),
    /// Completions.
    Ring(Box<RingPoller>),
}

/// An event.
pub enum Ready {
    /// A descriptor of the loop is ready, by its token.
    Own(u64),
    /// A socket of the load is ready.
    Socket(Event),
    /// An operation on a socket of the load has completed.
    Completed(Completion),
}

/// epoll with its list of what is ready.
pub struct EpollPoller {
    epoll: Epoll,
    events: Vec<Event>,
}

/// A ring with its list of what has completed, and the requests it sends.
pub struct RingPoller {
    ring: Ring,
    completed: Vec<Option<Completion>>,
    /// Registered requests, by target.
    messages: Vec<Option<Message>>,
}

/// Kind of an operation on a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Multishot receive.
    Receive,
    /// Waiting for a connect to end, or for space to send.
    Writable,
    /// Sending a request that should fit.
    Send,
    /// Sending the rest of a request.
    SendWithRetries,
}

/// Pending operations on a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PendingOperations {
    /// A multishot receive.
    pub receive: bool,
    /// Waiting for a connect to end or for space to send, or sending the rest of a request.
    pub write: bool,
}

/// Token of a socket's completion: the position of its connection, and a part of the generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Addressee {
    /// [`ConnectionKey::index`].
    pub index: usize,
    generation: u32,
}

impl Addressee {
    /// Whether `key` is this connection.
    pub fn is(self, key: ConnectionKey) -> bool {
        let (_, addressee) = split_token(token(key, Operation::Receive));
        addressee == self
    }
}

impl Poller {
    /// The configured poller; by default io_uring if the kernel has it. `plain`: the load does not use TLS, which is
    /// not supported with io_uring.
    ///
    /// # Errors
    /// io_uring is configured and not available; no descriptor is available.
    pub fn new(engine: Engine, plain: bool) -> io::Result<Self> {
        let ring = match engine {
            Engine::Epoll => None,
            Engine::Auto if !plain => None,
            Engine::Auto => Ring::new(RING_SPEC).ok(),
            Engine::IoUring => Some(Ring::new(RING_SPEC)?),
        };
        Ok(match ring {
            Some(ring) => Poller::Ring(Box::new(RingPoller { ring, completed: Vec::new(), messages: Vec::new() })),
            None => Poller::Epoll(EpollPoller { epoll: Epoll::new()?, events: Vec::new() }),
        })
    }

    /// The name in a plan.
    pub fn engine(&self) -> Engine {
        match self {
            Poller::Epoll(_) => Engine::Epoll,
            Poller::Ring(_) => Engine::IoUring,
        }
    }

    /// Watches a descriptor of the loop. It must be read until it is empty, otherwise no further event is reported.
    ///
    /// # Errors
    /// The errors of epoll_ctl(2).
    pub fn watch_own(&mut self, fd: BorrowedFd<'_>, token: u64) -> io::Result<()> {
        match self {
            Poller::Epoll(poller) => poller.epoll.add(fd, Interest::READ.edge(), token),
            Poller::Ring(poller) => {
                poller.ring.poll_readable(fd, OWN << KIND_SHIFT | (token & OWN_MASK));
                Ok(())
            }
        }
    }

    /// Watches a socket whose connect has been called.
    ///
    /// # Errors
    /// The errors of epoll_ctl(2).
    pub fn watch_connecting(&mut self, socket: &TcpSocket, key: ConnectionKey) -> io::Result<()> {
        match self {
            Poller::Epoll(poller) => poller.epoll.add(socket.as_fd(), Interest::READ_WRITE.edge(), key.token()),
            Poller::Ring(poller) => {
                poller.ring.poll_writable(socket.as_fd(), token(key, Operation::Writable));
                Ok(())
            }
        }
    }

    /// Watches a UDP socket of HTTP/3.
    ///
    /// # Errors
    /// The errors of epoll_ctl(2); Unsupported with io_uring, which a plan with HTTP/3 does not have.
    pub fn watch_datagrams(&mut self, socket: &UdpSocket, key: ConnectionKey) -> io::Result<()> {
        match self {
            Poller::Epoll(poller) => poller.epoll.add(socket.as_fd(), Interest::READ_WRITE.edge(), key.token()),
            Poller::Ring(_) => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    /// Collects events, and waits for one if `wait`; returns their number.
    ///
    /// # Errors
    /// The errors of epoll_wait(2) and io_uring_enter(2).
    pub fn poll(&mut self, wait: bool) -> io::Result<usize> {
        self.poll_for(if wait { None } else { Some(Duration::ZERO) })
    }

    /// Collects events; if there are none, other threads may use the core: with io_uring for the time that a timer of
    /// the shortest length takes, with epoll not at all.
    ///
    /// # Errors
    /// As [`Self::poll`].
    pub fn poll_and_yield(&mut self) -> io::Result<usize> {
        self.poll_for(Some(Duration::from_nanos(1)))
    }

    /// Collects events; waits for one at most `time` (`None`: unlimited). epoll, which counts in milliseconds, waits
    /// without a limit or not at all.
    fn poll_for(&mut self, time: Option<Duration>) -> io::Result<usize> {
        match self {
            Poller::Epoll(EpollPoller { epoll, events }) => {
                events.resize(EVENTS_PER_TURN, Event::EMPTY);
                let ready = epoll.wait(events, if time.is_none() { -1 } else { 0 })?.len();
                events.truncate(ready);
                Ok(ready)
            }
            Poller::Ring(poller) => {
                poller.ring.wait(time)?;
                poller.completed.clear();
                while poller.completed.len() < EVENTS_PER_TURN
                    && let Some(completion) = poller.ring.next()
                {
                    poller.completed.push(Some(completion));
                }
                Ok(poller.completed.len())
            }
        }
    }

    /// Submits queued operations, and lets the kernel complete cancelled ones: sockets are referenced until then.
    ///
    /// # Errors
    /// The errors of io_uring_enter(2).
    pub fn flush(&mut self) -> io::Result<()> {
        match self {
            Poller::Epoll(_) => Ok(()),
            Poller::Ring(poller) => poller.ring.submit().and_then(|()| poller.ring.wait(Some(Duration::ZERO))),
        }
    }

    /// Whether the only event was on this descriptor of the loop.
    pub fn is_only(&self, own: u64) -> bool {
        match self {
            Poller::Epoll(poller) => matches!(&poller.events[..], [event] if event.token() == own),
            Poller::Ring(poller) => matches!(&poller.completed[..], [Some(one)] if own_token(one) == Some(own)),
        }
    }

    /// The event at this index, from 0 to the result of [`Self::poll`]. Once each.
    pub fn take_event(&mut self, index: usize, is_own: impl Fn(u64) -> bool) -> Option<Ready> {
        match self {
            Poller::Epoll(poller) => {
                let event = *poller.events.get(index)?;
                Some(if is_own(event.token()) { Ready::Own(event.token()) } else { Ready::Socket(event) })
            }
            Poller::Ring(poller) => {
                let completion = poller.completed.get_mut(index)?.take()?;
                Some(match own_token(&completion) {
                    Some(token) => Ready::Own(token),
                    None => Ready::Completed(completion),
                })
            }
        }
    }

    /// The ring, if there is one.
    pub fn ring(&mut self) -> Option<&mut RingPoller> {
        match self {
            Poller::Epoll(_) => None,
            Poller::Ring(poller) => Some(poller),
        }
    }
}

impl RingPoller {
    /// Starts receiving on an established connection.
    pub fn receive(&mut self, socket: &TcpSocket, key: ConnectionKey) {
        self.ring.receive(socket.as_fd(), token(key, Operation::Receive));
    }

    /// Queues a target's request for sending. Completes only if it could not be sent immediately.
    pub fn send(&mut self, socket: &TcpSocket, key: ConnectionKey, target: usize, request: &[u8]) {
        if self.messages.len() <= target {
            self.messages.resize(target + 1, None);
        }
        let ring = &mut self.ring;
        let message = *self.messages[target].get_or_insert_with(|| ring.register(request.into()));
        self.ring.send(socket.as_fd(), message, 0, request.len(), token(key, Operation::Send));
    }

    /// Sends the rest of a target's request, if it did not fit completely.
    pub fn send_rest(&mut self, socket: &TcpSocket, key: ConnectionKey, target: usize, from: usize, length: usize) {
        if let Some(Some(message)) = self.messages.get(target) {
            let token = token(key, Operation::SendWithRetries);
            self.ring.send_with_retries(socket.as_fd(), *message, from, length, token);
        }
    }

    /// Waits for space to send.
    pub fn wait_writable(&mut self, socket: &TcpSocket, key: ConnectionKey) {
        self.ring.poll_writable(socket.as_fd(), token(key, Operation::Writable));
    }

    /// Submits queued operations.
    ///
    /// # Errors
    /// The errors of io_uring_enter(2).
    pub fn submit(&mut self) -> io::Result<()> {
        self.ring.submit()
    }

    /// The received bytes of a completion.
    pub fn bytes(&self, buffer: &Buffer, length: usize) -> &[u8] {
        self.ring.bytes(buffer, length)
    }

    /// Returns a buffer.
    pub fn give_back(&mut self, buffer: Buffer) {
        self.ring.give_back(buffer);
    }

    /// Closes the socket of a connection, on which these operations are pending.
    pub fn close(&mut self, socket: TcpSocket, key: ConnectionKey, pending: PendingOperations) {
        let PendingOperations { receive, write } = pending;
        let tokens = [Operation::Receive, Operation::Writable, Operation::SendWithRetries].map(|one| token(key, one));
        let under_way = &tokens[usize::from(!receive)..if write { tokens.len() } else { 1 }];
        self.ring.cancel_and_close(socket.into_fd(), under_way);
    }
}

/// Connection and kind of a completion; `None` for the loop's own.
pub fn addressee(completion: &Completion) -> Option<(Operation, Addressee)> {
    let (kind, addressee) = split_token(completion.token);
    let operation = match kind {
        RECEIVE => Operation::Receive,
        WRITABLE => Operation::Writable,
        SEND => Operation::Send,
        SEND_WITH_RETRIES => Operation::SendWithRetries,
        _ => return None,
    };
    Some((operation, addressee))
}

/// kind (3 bits) | generation (28 bits) | index (31 bits), below 2^62.
fn token(key: ConnectionKey, operation: Operation) -> u64 {
    let kind = match operation {
        Operation::Receive => RECEIVE,
        Operation::Writable => WRITABLE,
        Operation::Send => SEND,
        Operation::SendWithRetries => SEND_WITH_RETRIES,
    };
    let generation = key.token() >> 32 & GENERATION_MASK;
    kind << KIND_SHIFT | generation << INDEX_BITS | key.index() as u64
}

fn split_token(token: u64) -> (u64, Addressee) {
    let index = (token & ((1 << INDEX_BITS) - 1)) as usize;
    (token >> KIND_SHIFT, Addressee { index, generation: (token >> INDEX_BITS & GENERATION_MASK) as u32 })
}

/// The loop's own token of a completion.
fn own_token(completion: &Completion) -> Option<u64> {
    (completion.token >> KIND_SHIFT == OWN).then_some(completion.token | !OWN_MASK)
}

const INDEX_BITS: u32 = 31;
const GENERATION_MASK: u64 = (1 << 28) - 1;
const KIND_SHIFT: u32 = 59;
const RECEIVE: u64 = 0;
const WRITABLE: u64 = 1;
const SEND: u64 = 2;
const SEND_WITH_RETRIES: u64 = 3;
const OWN: u64 = 4;
/// The loop's own tokens are the last 256.
const OWN_MASK: u64 = 0xff;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_encode_operation_and_connection() {
        for key in [0, 5 << 32 | 7, 0xffff_ffff << 32 | 0x7fff_ffff].map(ConnectionKey::from_token) {
            for operation in [Operation::Receive, Operation::Writable, Operation::Send, Operation::SendWithRetries] {
                let token = token(key, operation);
                assert!(token < 1 << 62);
                let completion = Completion { token, result: Ok(0), more: false, buffer: None, accepted: None };
                let (operation_back, to) = addressee(&completion).unwrap();
                assert_eq!((operation_back, to.index), (operation, key.index()));
                assert!(to.is(key) && own_token(&completion).is_none());
                let other = ConnectionKey::from_token(key.token() ^ 1 << 32);
                assert!(!to.is(other));
            }
        }
        let own = u64::MAX - 6;
        let token = OWN << KIND_SHIFT | (own & OWN_MASK);
        let completion = Completion { token, result: Ok(1), more: true, buffer: None, accepted: None };
        assert_eq!(own_token(&completion), Some(own));
        assert!(addressee(&completion).is_none());
    }
}
