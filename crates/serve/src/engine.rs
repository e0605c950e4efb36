//! The loops that move bytes between sockets and connections: one a thread, over io_uring or epoll.
//!
//! ```text
//!   listener ──▶ engine ──bytes──▶ Link ──▶ Connection         table.rs    connections, who was of use last, deadlines
//!                  ▲                 │                         wheel.rs    the deadlines
//!                  └────outbound─────┘                         callers.rs  connections by address
//! ```
//!
//! Both engines keep the same promises: connections in all and by address are bounded; where the bound in all is
//! reached, the connection that has been of no use longest makes room; one that is busy without end has its share of a
//! turn and then waits for the others; deadlines cost nothing until they come; a server that is asked to stop takes no
//! more connections, ends those that are idle, and finishes what it is busy with for a stated time.

pub(crate) mod callers;
pub(crate) mod epoll;
mod table;
pub(crate) mod turn;
pub(crate) mod uring;
mod wheel;

use std::io::{self, ErrorKind, IoSlice, Write as _};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd};
use std::time::Duration;

use nix::errno::Errno;
use nix::libc::{MSG_MORE, linger};
use nix::sys::socket::sockopt::Linger;
use nix::sys::socket::{MsgFlags, Shutdown, send, setsockopt, shutdown};
use sys::clock::Clock;
use sys::file::send_file;
use sys::sched::Precedence;
use sys::socket::Read;
use sys::uring::{Ring, RingSpec};
use units::Timestamp;

use crate::connection::{Desk, Outbound};
use crate::engine::callers::Callers;
use crate::engine::table::Table;
use crate::figures::Refusal;
use crate::link::Link;
use crate::spec::{Limits, ServeError, system};
use crate::tls::Tls;

/// How the server talks to the kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Engine {
    /// io_uring where the kernel has it, epoll otherwise.
    #[default]
    Auto,
    /// io_uring: one system call for all that is to be done at a moment. Linux 6.1 or later.
    Uring,
    /// epoll.
    Epoll,
}

impl Engine {
    /// The one that is used here: [`Engine::Auto`] looks what the kernel has.
    #[must_use]
    pub fn chosen(self) -> Engine {
        match self {
            Engine::Auto if Ring::new(RingSpec { operations: 8, buffers: 8, buffer_bytes: 64 }).is_ok() => {
                Engine::Uring
            }
            Engine::Auto => Engine::Epoll,
            asked => asked,
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

/// Who else answers on a worker's core.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Beside {
    Nobody,
    /// A dynamic program that takes turns with it.
    Equals,
    /// One that gives way to it.
    Lesser,
}

impl Beside {
    /// Schedules the calling worker accordingly: what may go first does, if the system lets it, and has a short slice
    /// in any case.
    fn stand(self, now: Timestamp) -> Precedence {
        if self != Beside::Nobody {
            sys::sched::shorten_slice();
        }
        if self == Beside::Lesser { Precedence::take(now) } else { Precedence::NONE }
    }
}

/// What all workers share.
#[derive(Debug)]
pub(crate) struct Ground<'a> {
    /// Non-blocking.
    pub(crate) listener: &'a TcpListener,
    /// Where it listens.
    pub(crate) local: SocketAddr,
    /// Readable when the server is to end; written once more, at once.
    pub(crate) stop: BorrowedFd<'a>,
    /// Readable when another worker failed.
    pub(crate) failed: BorrowedFd<'a>,
    pub(crate) tls: Option<&'a Tls>,
    pub(crate) limits: &'a Limits,
    pub(crate) callers: &'a Callers,
    /// Most connections of one worker.
    pub(crate) cap: usize,
    /// Answers are due at moments of their own.
    pub(crate) thinks: bool,
    pub(crate) clock: Clock,
    pub(crate) beside: Beside,
}

/// A connection of an engine, with its link.
pub(crate) trait Seat {
    fn link(&self) -> &Link;
    fn parts(&mut self) -> (&TcpStream, &mut Link);
}

/// What came of looking for one more connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Admitted {
    /// It is in the table.
    New(u64),
    /// There was one, but it is gone, or not welcome.
    Skipped,
    /// There was no descriptor for it, so another connection was let go: there is once that is closed.
    MadeRoom,
    /// Nobody waits.
    Nobody,
    /// None can be taken now: look again after [`ACCEPT_PAUSE`], or when one ends. Those that wait stay in the backlog.
    Pause,
}

impl Ground<'_> {
    /// Accepts a connection and makes room for it: beyond the bound in all, the connection that was of no use longest
    /// goes, by `let_go`.
    fn admit<C: Seat>(
        &self,
        table: &mut Table<C>,
        desk: &mut Desk,
        seat: impl FnOnce(TcpStream, Link) -> C,
        mut let_go: impl FnMut(u64, C),
    ) -> Result<Admitted, ServeError> {
        let now = desk.now;
        let spare_for = |seat: &C| seat.link().spare_since().map(|since| now.since(since));
        let mut instead = None;
        if table.length() >= self.cap {
            instead = table.oldest(GRACE, spare_for);
            if instead.is_none() {
                desk.books.counters().connection_refused(Refusal::Total);
                return Ok(Admitted::Pause);
            }
        }
        let (socket, peer) = match sys::socket::accept(self.listener.as_fd()) {
            Ok(accepted) => accepted,
            Err(error) => match NotAccepted::of(&error) {
                NotAccepted::Nobody => return Ok(Admitted::Nobody),
                NotAccepted::Gone => return Ok(Admitted::Skipped),
                // No bound of ours is reached, so others than our clients may be the cause: only what has been idle for
                // a while makes room.
                NotAccepted::Short => {
                    let Some(token) = table.oldest(LONG_IDLE, spare_for) else {
                        desk.books.counters().connection_refused(Refusal::Descriptors);
                        return Ok(Admitted::Pause);
                    };
                    desk.books.counters().connection_refused(Refusal::Displaced);
                    self.close(table, token, desk, &mut let_go);
                    return Ok(Admitted::MadeRoom);
                }
                NotAccepted::Unfit => return Err(system("accept4")(error)),
            },
        };
        let stream = TcpStream::from(socket);
        if !self.welcome(&stream, peer.ip()) {
            desk.books.counters().connection_refused(Refusal::PerAddress);
            return Ok(Admitted::Skipped);
        }
        if let Some(token) = instead {
            desk.books.counters().connection_refused(Refusal::Displaced);
            self.close(table, token, desk, &mut let_go);
        }
        // Only dynamic programs are told where they were asked.
        let local = if desk.front.is_some() && self.local.ip().is_unspecified() {
            sys::socket::local_address(stream.as_fd()).unwrap_or(self.local)
        } else {
            self.local
        };
        let Some(link) = Link::new(table.next_token(), peer, local, self.tls, desk) else {
            self.callers.leave(peer.ip());
            return Ok(Admitted::Skipped);
        };
        Ok(Admitted::New(table.insert(seat(stream, link))))
    }

    /// Lets a connection go.
    fn close<C: Seat>(&self, table: &mut Table<C>, token: u64, desk: &mut Desk, mut let_go: impl FnMut(u64, C)) {
        if let Some(mut seat) = table.remove(token) {
            let (stream, link) = seat.parts();
            link.leave(desk);
            self.callers.leave(link.peer().ip());
            if link.is_aborted() {
                reset(stream);
            }
            let_go(token, seat);
        }
    }

    /// Counts a connection in by its address; false when that has enough, and has been told so.
    fn welcome(&self, stream: &TcpStream, address: IpAddr) -> bool {
        let welcome = self.callers.enter(address);
        if !welcome && self.tls.is_none() {
            // Whether this arrives is up to the client: one that has sent its request already sees a reset instead,
            // since nobody waits here for it to take notice.
            let _ = (&*stream).write(TOO_MANY);
        }
        welcome
    }

    /// How often deadlines are looked at.
    fn tick(&self) -> Duration {
        if self.thinks {
            return TICK_THINKING;
        }
        let limits = self.limits;
        let shortest = limits.head_time.min(limits.idle_time).min(limits.stall_time).min(limits.body_time);
        (shortest / 4).clamp(TICK_MIN, TICK_MAX)
    }
}

/// Serves with `engine` until told to stop.
pub(crate) fn run(engine: Engine, ground: Ground<'_>, desk: Desk) -> Result<(), ServeError> {
    if engine != Engine::Epoll {
        // The kernel may have io_uring and still no memory for a ring of full size.
        match uring::ring() {
            Ok(ring) => return uring::Worker::new(ring, ground, desk).run(),
            Err(error) if engine == Engine::Uring => return Err(error),
            Err(_) => {}
        }
    }
    epoll::Worker::new(ground, desk)?.run()
}

/// Throws away what a client that was given its last answer goes on sending, for one turn of it.
///
/// # Errors
/// The connection is of no use any more.
fn discard(stream: &TcpStream, link: &mut Link, desk: &Desk) -> io::Result<Read> {
    let outcome = sys::socket::discard(stream.as_fd(), DISCARD_BYTES)?;
    match outcome {
        Read::Bytes(bytes) => link.discarded(desk, bytes),
        Read::End => link.ended(),
        Read::Later => {}
    }
    Ok(outcome)
}

/// Whether the client's kernel has everything that was said, the end included: then closing can take nothing of it from
/// the client, whatever the client still sends (RFC 9112, section 9.6).
fn has_all(stream: &TcpStream) -> bool {
    sys::socket::unacknowledged(stream.as_fd()).is_ok_and(|bytes| bytes == 0)
}

/// What became of an attempt to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sent {
    /// Everything.
    All,
    /// The kernel takes no more now.
    Blocked,
    /// The connection had its share of this turn.
    Enough,
}

/// Sends what a link has to say, by system calls, as far as the kernel takes it and the share of a turn goes. What is
/// taken in part only is not tried again where `short_is_full`: whoever waits for room asks how it is now, so nothing is
/// lost if there is some.
///
/// # Errors
/// The connection is of no use any more.
fn flush(stream: &TcpStream, link: &mut Link, desk: &mut Desk, short_is_full: bool) -> io::Result<Sent> {
    let mut allowance = TURN_BYTES;
    loop {
        let turn = desk.turn;
        let (taken, offered) = match link.outbound(desk) {
            Outbound::Nothing => return Ok(Sent::All),
            Outbound::Both(..) | Outbound::File { .. } if turn.is_over() => return Ok(Sent::Enough),
            outbound => (transmit(stream, &outbound)?, offered(&outbound)),
        };
        let Some(taken) = taken else { return Ok(Sent::Blocked) };
        link.sent(desk, taken);
        if short_is_full && taken < offered {
            return Ok(Sent::Blocked);
        }
        if taken >= allowance {
            return Ok(Sent::Enough);
        }
        allowance -= taken;
    }
}

/// Bytes that [`transmit`] hands over at once.
fn offered(outbound: &Outbound<'_>) -> usize {
    match outbound {
        Outbound::Nothing => 0,
        Outbound::Bytes(bytes, _) => bytes.len(),
        Outbound::Both(front, rest) => front.len() + rest.len(),
        Outbound::File { front, .. } if !front.is_empty() => front.len(),
        Outbound::File { range, .. } => usize::try_from(range.end - range.start).unwrap_or(usize::MAX).min(PIECE_BYTES),
    }
}

/// One system call's worth: how much was taken, `None` if the kernel takes nothing now.
fn transmit(stream: &TcpStream, outbound: &Outbound<'_>) -> io::Result<Option<usize>> {
    match outbound {
        Outbound::Nothing => Ok(Some(0)),
        Outbound::Bytes(bytes, more) => send_some(stream, bytes, *more),
        Outbound::Both(front, rest) => taken((&*stream).write_vectored(&[IoSlice::new(front), IoSlice::new(rest)])),
        // MSG_MORE: the head waits for the first bytes of the file instead of travelling alone.
        Outbound::File { front, range, .. } if !front.is_empty() => send_some(stream, front, !range.is_empty()),
        Outbound::File { file, page, range, .. } => {
            let count = usize::try_from(range.end - range.start).unwrap_or(usize::MAX).min(PIECE_BYTES);
            // Changed in place since its head was sent: the client would take two versions for one.
            if count as u64 == range.end - range.start && !page.is_intact() {
                return Err(ErrorKind::UnexpectedEof.into());
            }
            match send_file(stream.as_fd(), file.as_fd(), range.start, count)? {
                // The file was cut short after its length was announced: only breaking off tells the client.
                Some(0) => Err(ErrorKind::UnexpectedEof.into()),
                other => Ok(other),
            }
        }
    }
}

fn send_some(stream: &TcpStream, bytes: &[u8], more: bool) -> io::Result<Option<usize>> {
    let more = if more { MsgFlags::from_bits_retain(MSG_MORE) } else { MsgFlags::empty() };
    taken(send(stream.as_raw_fd(), bytes, MsgFlags::MSG_NOSIGNAL | more).map_err(io::Error::from))
}

/// `None` when the kernel takes nothing now.
fn taken(outcome: io::Result<usize>) -> io::Result<Option<usize>> {
    match outcome {
        Ok(0) => Err(ErrorKind::WriteZero.into()),
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(None),
        Err(error) if error.kind() == ErrorKind::Interrupted => Ok(Some(0)),
        Err(error) => Err(error),
    }
}

/// Makes closing throw away what the kernel holds for the client, and tell it so: megabytes that somebody takes a byte at
/// a time would stay there for hours.
fn reset(stream: &TcpStream) {
    // Where it fails the connection is gone already.
    let _ = setsockopt(stream, Linger, &linger { l_onoff: 1, l_linger: 0 });
}

/// What a failed accept means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NotAccepted {
    /// Nobody waits.
    Nobody,
    /// This one is gone; the next may be fine.
    Gone,
    /// Descriptors or memory are short: those that wait stay in the backlog meanwhile.
    Short,
    /// The server can take no more connections at all.
    Unfit,
}

impl NotAccepted {
    fn of(error: &io::Error) -> Self {
        match error.raw_os_error().map(Errno::from_raw) {
            // EINVAL: another worker has made the listener listen no more, and the sign to stop is on its way to this one.
            Some(Errno::EAGAIN | Errno::EINVAL) => NotAccepted::Nobody,
            Some(Errno::EMFILE | Errno::ENFILE | Errno::ENOBUFS | Errno::ENOMEM) => NotAccepted::Short,
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
            ) => NotAccepted::Gone,
            _ => NotAccepted::Unfit,
        }
    }
}

/// Makes a listening socket listen no more: those that try are refused at once instead of waiting for nobody.
fn refuse_more(listener: &TcpListener) {
    // Another worker may have done so before.
    let _ = shutdown(listener.as_raw_fd(), Shutdown::Both);
}

/// To an address that has its share of connections.
const TOO_MANY: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\nServer: yamabiko\r\nRetry-After: 5\r\n\
    Content-Length: 0\r\nConnection: close\r\n\r\n";
/// Bytes before other connections have their turn.
const TURN_BYTES: usize = 1 << 20;
/// Bytes of a file in one system call, between which the clock is looked at.
const PIECE_BYTES: usize = 1 << 20;
/// Room for what a connection sends in one turn: a burst of pipelined requests in one system call.
const INPUT_BYTES: usize = 16 << 10;
/// Thrown away in one turn of a connection.
const DISCARD_BYTES: usize = 64 << 10;
/// Rounds of receiving or answering before other connections have their turn.
const TURNS: usize = 64;
/// Events of the relay heard before other connections have their turn: while a client takes what it is sent as fast as it
/// comes, there is always one more.
const HEARD: usize = 64;
/// Connections accepted before those already open have their turn.
const ACCEPTS: usize = 64;
/// Connections accepted before the clock is looked at.
const ACCEPTS_AT_LEAST: usize = 4;
/// Descriptors may come free elsewhere in the system; asking more often would only burn time.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// A connection that was of use within this time makes no room for another, or a flood of new ones would put out those
/// of clients that only think for a moment.
const GRACE: Duration = Duration::from_secs(1);
/// See [`Ground::admit`].
const LONG_IDLE: Duration = Duration::from_secs(5);
/// How often deadlines are looked at.
const TICK_MIN: Duration = Duration::from_millis(10);
const TICK_MAX: Duration = Duration::from_secs(1);
/// The same where an answer is late by what a deadline is noticed late.
const TICK_THINKING: Duration = Duration::from_millis(1);

#[cfg(test)]
mod tests {
    use super::*;

    /// One worker of several does this when the server stops; the others may look once more before they hear of it.
    #[test]
    fn nobody_waits_at_a_listener_that_was_shut_down() {
        let listener = crate::listen::bind("127.0.0.1:0".parse().unwrap(), false).unwrap();
        assert_eq!(NotAccepted::of(&sys::socket::accept(listener.as_fd()).unwrap_err()), NotAccepted::Nobody);
        refuse_more(&listener);
        assert_eq!(NotAccepted::of(&sys::socket::accept(listener.as_fd()).unwrap_err()), NotAccepted::Nobody);
        let closed = io::Error::from_raw_os_error(Errno::EBADF as i32);
        assert_eq!(NotAccepted::of(&closed), NotAccepted::Unfit);
    }
}
