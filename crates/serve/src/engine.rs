//! Event loops that move bytes between sockets and connections: one per thread, over io_uring or epoll.
//!
//! ```text
//!   listener ──▶ engine ──bytes──▶ Link ──▶ Connection         table.rs    connections by last use, deadlines
//!                  ▲                 │                         wheel.rs    timer wheel
//!                  └────outbound─────┘                         address_counts.rs  connections by address
//!   quic.rs            HTTP/3: its own sockets and threads beside either engine
//! ```
//!
//! Both engines behave alike: connections are limited in total and by address; at the total limit the longest idle
//! connection is displaced; an endlessly busy connection yields after its share of a turn; a deadline costs nothing
//! before it expires; a stopping server accepts no connections, closes idle ones, and finishes responses in progress
//! within the stop time.

pub(crate) mod address_counts;
pub(crate) mod epoll;
pub(crate) mod quic;
pub(crate) mod sending;
pub(crate) mod table;
pub(crate) mod turn;
pub(crate) mod unsent;
pub(crate) mod uring;
mod wheel;

use std::io::{self, Write as _};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd};
use std::time::Duration;

use nix::errno::Errno;
use nix::libc::linger;
use nix::sys::socket::sockopt::Linger;
use nix::sys::socket::{Shutdown, setsockopt, shutdown};
use sys::clock::Clock;
use sys::sched::Precedence;
use sys::socket::Read;
use sys::uring::{Ring, RingSpec};
use units::Timestamp;

use crate::connection::WorkerContext;
use crate::engine::address_counts::AddressCounts;
use crate::engine::sending::{Sent, flush};
use crate::engine::table::Table;
use crate::figures::Refusal;
use crate::link::Link;
use crate::spec::{Limits, ServeError, system};
use crate::tls::Tls;

/// How the server talks to the kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Engine {
    /// io_uring if the kernel supports it, otherwise epoll.
    #[default]
    Auto,
    /// io_uring: one system call for all operations of a turn. Linux 6.1 or later.
    Uring,
    /// epoll.
    Epoll,
}

impl Engine {
    /// The engine in use: [`Engine::Auto`] checks the kernel.
    #[must_use]
    pub fn chosen(self) -> Engine {
        match self {
            Engine::Auto if Ring::new(RingSpec { operations: 8, buffers: 8, buffer_bytes: 64 }).is_ok() => {
                Engine::Uring
            }
            Engine::Auto => Engine::Epoll,
            engine => engine,
        }
    }

    /// As on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Engine::Auto => "auto",
            Engine::Uring => "io_uring",
            Engine::Epoll => "epoll",
        }
    }
}

/// The dynamic program that competes for a worker's core.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Competitor {
    NoneWaiting,
    /// A program with the same priority.
    EqualPriority,
    /// A program with lower priority.
    LowPriority,
}

impl Competitor {
    /// Sets the scheduling of the calling worker: higher priority, if permitted, and a short time slice in any case.
    fn apply(self, now: Timestamp) -> Precedence {
        if self != Competitor::NoneWaiting {
            sys::sched::shorten_slice();
        }
        if self == Competitor::LowPriority { Precedence::acquire(now) } else { Precedence::NONE }
    }
}

/// State shared by all workers.
#[derive(Debug)]
pub(crate) struct WorkerEnv<'a> {
    /// Non-blocking.
    pub(crate) listener: &'a TcpListener,
    /// The bound address.
    pub(crate) local: SocketAddr,
    /// Readable when the server stops; a second write ends it immediately.
    pub(crate) stop: BorrowedFd<'a>,
    /// Readable when another worker failed.
    pub(crate) failed: BorrowedFd<'a>,
    pub(crate) tls: Option<&'a Tls>,
    pub(crate) limits: &'a Limits,
    pub(crate) address_counts: &'a AddressCounts,
    /// Connection limit of one worker.
    pub(crate) cap: usize,
    /// Responses have scheduled times (think times).
    pub(crate) thinks: bool,
    pub(crate) clock: Clock,
    pub(crate) competitor: Competitor,
}

/// A connection of an engine, with its link.
pub(crate) trait HasLink {
    fn link(&self) -> &Link;
    fn parts(&mut self) -> (&TcpStream, &mut Link);
}

/// Result of an attempt to accept a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AcceptResult {
    /// The connection is in the table.
    New(u64),
    /// A connection was accepted, but it failed or was refused.
    Skipped,
    /// No descriptor was available, so another connection was displaced: a descriptor is free once it is closed.
    MadeRoom,
    /// No connection is waiting.
    NoneWaiting,
    /// None can be accepted now: retry after [`ACCEPT_PAUSE`], or when a connection ends. Waiting ones stay in the
    /// backlog.
    Pause,
}

impl WorkerEnv<'_> {
    /// Accepts a connection. At the total limit the longest idle connection is displaced by `release`.
    fn admit<C: HasLink>(
        &self,
        table: &mut Table<C>,
        context: &mut WorkerContext,
        new_client: impl FnOnce(TcpStream, Link) -> C,
        mut release: impl FnMut(u64, C),
    ) -> Result<AcceptResult, ServeError> {
        let now = context.now;
        let spare_for = |client: &C| client.link().idle_since().map(|since| now.since(since));
        let mut instead = None;
        if table.length() >= self.cap {
            instead = table.oldest(ABORT_DELAY, spare_for);
            if instead.is_none() {
                context.recorder.counters().connection_refused(Refusal::Total);
                return Ok(AcceptResult::Pause);
            }
        }
        let (socket, peer) = match sys::socket::accept(self.listener.as_fd()) {
            Ok(accepted) => accepted,
            Err(error) => match AcceptError::of(&error) {
                AcceptError::NoneWaiting => return Ok(AcceptResult::NoneWaiting),
                AcceptError::Gone => return Ok(AcceptResult::Skipped),
                // No limit of this server is reached, so other processes may use the descriptors: only a connection
                // that has been idle for a while is displaced.
                AcceptError::Short => {
                    let Some(token) = table.oldest(LONG_IDLE, spare_for) else {
                        context.recorder.counters().connection_refused(Refusal::Descriptors);
                        return Ok(AcceptResult::Pause);
                    };
                    context.recorder.counters().connection_refused(Refusal::Displaced);
                    self.close(table, token, context, &mut release);
                    return Ok(AcceptResult::MadeRoom);
                }
                AcceptError::Fatal => return Err(system("accept4")(error)),
            },
        };
        let stream = TcpStream::from(socket);
        if !self.welcome(&stream, peer.ip()) {
            context.recorder.counters().connection_refused(Refusal::PerAddress);
            return Ok(AcceptResult::Skipped);
        }
        if let Some(token) = instead {
            context.recorder.counters().connection_refused(Refusal::Displaced);
            self.close(table, token, context, &mut release);
        }
        // Only dynamic programs need the local address.
        let local = if context.front.is_some() && self.local.ip().is_unspecified() {
            sys::socket::local_address(stream.as_fd()).unwrap_or(self.local)
        } else {
            self.local
        };
        let Some(link) = Link::new(table.next_token(), peer, local, self.tls, context) else {
            self.address_counts.leave(peer.ip());
            return Ok(AcceptResult::Skipped);
        };
        Ok(AcceptResult::New(table.insert(new_client(stream, link))))
    }

    /// Removes a connection.
    fn close<C: HasLink>(
        &self,
        table: &mut Table<C>,
        token: u64,
        context: &mut WorkerContext,
        mut release: impl FnMut(u64, C),
    ) {
        if let Some(mut client) = table.remove(token) {
            let (stream, link) = client.parts();
            link.leave(context);
            self.address_counts.leave(link.peer().ip());
            if link.is_aborted() {
                reset(stream);
            }
            release(token, client);
        }
    }

    /// Counts a connection for its address; false if the address is at its limit and was refused.
    fn welcome(&self, stream: &TcpStream, address: IpAddr) -> bool {
        let welcome = self.address_counts.enter(address);
        if !welcome && self.tls.is_none() {
            // Delivery is not guaranteed: a client that has already sent its request sees a reset, since nothing here
            // waits for the client.
            let _ = (&*stream).write(TOO_MANY_CONNECTIONS);
        }
        welcome
    }

    /// Interval of deadline checks.
    fn tick(&self) -> Duration {
        if self.thinks {
            return TICK_THINKING;
        }
        let limits = self.limits;
        let shortest = limits.head_time.min(limits.idle_time).min(limits.stall_time).min(limits.body_time);
        (shortest / 4).clamp(TICK_MIN, TICK_MAX)
    }
}

/// Serves with `engine` until stopped.
pub(crate) fn run(engine: Engine, env: WorkerEnv<'_>, context: WorkerContext) -> Result<(), ServeError> {
    if engine != Engine::Epoll {
        // The kernel may support io_uring and lack memory for a ring of full size.
        match uring::ring() {
            Ok(ring) => return uring::Worker::new(ring, env, context).run(),
            Err(error) if engine == Engine::Uring => return Err(error),
            Err(_) => {}
        }
    }
    epoll::Worker::new(env, context)?.run()
}

/// Discards input after the last response, for one turn.
///
/// # Errors
/// The connection is unusable.
fn discard(stream: &TcpStream, link: &mut Link, context: &WorkerContext) -> io::Result<Read> {
    let outcome = sys::socket::discard(stream.as_fd(), DISCARD_BYTES)?;
    match outcome {
        Read::Bytes(bytes) => link.discarded(context, bytes),
        Read::End => link.ended(),
        Read::Later => {}
    }
    Ok(outcome)
}

/// Records the bytes in the kernel at the beginning of a stall timeout. A new timeout begins only after progress.
fn begin_stall_timeout(stream: &TcpStream, link: &mut Link) {
    if link.begins_stall_timeout() {
        link.stall_timeout_began(sys::socket::unacknowledged(stream.as_fd()).unwrap_or(0));
    }
}

/// The deadline of a connection has expired. Bytes that the client's kernel acknowledged are progress, although too few
/// for the socket to become writable: a slow client may take minutes for half of the kernel's buffer.
fn late(stream: &TcpStream, link: &mut Link, context: &mut WorkerContext) {
    let progress = link.is_stalled(context.now)
        && sys::socket::unacknowledged(stream.as_fd()).is_ok_and(|bytes| link.has_progressed(context, bytes));
    if !progress {
        link.late(context);
    }
}

/// Whether the client's kernel has acknowledged everything including FIN: closing then destroys no response, whatever
/// the client still sends (RFC 9112, section 9.6).
fn has_all(stream: &TcpStream) -> bool {
    sys::socket::unacknowledged(stream.as_fd()).is_ok_and(|bytes| bytes == 0)
}

/// Makes the close drop the kernel's send buffer and send a reset: megabytes that a client reads byte by byte would
/// stay there for hours.
fn reset(stream: &TcpStream) {
    // On failure the connection is closed already.
    let _ = setsockopt(stream, Linger, &linger { l_onoff: 1, l_linger: 0 });
}

/// Meaning of a failed accept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AcceptError {
    /// No connection is waiting.
    NoneWaiting,
    /// This connection failed; the next one may succeed.
    Gone,
    /// Out of descriptors or memory: connections stay in the backlog.
    Short,
    /// The server cannot accept connections any more.
    Fatal,
}

impl AcceptError {
    fn of(error: &io::Error) -> Self {
        match error.raw_os_error().map(Errno::from_raw) {
            // EINVAL: another worker has shut the listener down, and this worker's stop signal follows.
            Some(Errno::EAGAIN | Errno::EINVAL) => AcceptError::NoneWaiting,
            Some(Errno::EMFILE | Errno::ENFILE | Errno::ENOBUFS | Errno::ENOMEM) => AcceptError::Short,
            // accept(2): errors of the connection itself come this way.
            Some(
                Errno::EINTR
                | Errno::ECONNABORTED
                | Errno::EPERM
                | Errno::EPROTO
                | Errno::ENETDOWN
                | Errno::ENETUNREACH
                | Errno::EHOSTDOWN
                | Errno::EHOSTUNREACH
                | Errno::ENONET
                | Errno::ENOPROTOOPT
                | Errno::EOPNOTSUPP
                | Errno::ETIMEDOUT,
            ) => AcceptError::Gone,
            _ => AcceptError::Fatal,
        }
    }
}

/// Shuts a listening socket down: new connections are refused immediately instead of waiting.
fn refuse_more(listener: &TcpListener) {
    // Another worker may have done it already.
    let _ = shutdown(listener.as_raw_fd(), Shutdown::Both);
}

/// Response to an address at its connection limit.
const TOO_MANY_CONNECTIONS: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\nServer: yamabiko\r\nRetry-After: 5\r\n\
    Content-Length: 0\r\nConnection: close\r\n\r\n";
/// Receive buffer of one connection per turn: a burst of pipelined requests in one system call.
const INPUT_BYTES: usize = 16 << 10;
/// Bytes discarded per turn of a connection.
const DISCARD_BYTES: usize = 64 << 10;
/// Rounds of receiving and responding per turn of a connection.
const ROUNDS_PER_TURN: usize = 64;
/// Relay events per turn: while a client reads as fast as content arrives, there is always another event.
const RELAY_EVENTS_MAX: usize = 64;
/// Connections accepted per turn.
const ACCEPTS_PER_TURN: usize = 64;
/// Connections accepted before the clock is checked.
const ACCEPTS_PER_TURN_MIN: usize = 4;
/// Descriptors may become free elsewhere; more frequent attempts only cost CPU time.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// A connection used within this time is not displaced; otherwise a flood of new connections would displace clients
/// that pause briefly.
const ABORT_DELAY: Duration = Duration::from_secs(1);
/// See [`WorkerEnv::admit`].
const LONG_IDLE: Duration = Duration::from_secs(5);
/// Interval of deadline checks.
const TICK_MIN: Duration = Duration::from_millis(10);
const TICK_MAX: Duration = Duration::from_secs(1);
/// The same with think times, where a late check delays a response.
const TICK_THINKING: Duration = Duration::from_millis(1);

#[cfg(test)]
mod tests {
    use super::*;

    /// The stopping worker shuts the listener down; other workers may call accept once more.
    #[test]
    fn a_shut_down_listener_accepts_no_connection() {
        let listener = crate::listen::bind("127.0.0.1:0".parse().unwrap(), false).unwrap();
        assert_eq!(AcceptError::of(&sys::socket::accept(listener.as_fd()).unwrap_err()), AcceptError::NoneWaiting);
        refuse_more(&listener);
        assert_eq!(AcceptError::of(&sys::socket::accept(listener.as_fd()).unwrap_err()), AcceptError::NoneWaiting);
        let closed = io::Error::from_raw_os_error(Errno::EBADF as i32);
        assert_eq!(AcceptError::of(&closed), AcceptError::Fatal);
    }
}
