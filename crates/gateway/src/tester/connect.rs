//! New connections: connect, a ticket up, one byte down, closed by the server; so many under way at once.

use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::time::Duration;

use sys::clock::monotonic_ns;
use sys::epoll::{Epoll, Event, Interest};
use sys::socket::{Read, TcpSocket};

use super::handshake::Ticket;
use super::packet::name;
use super::secret::Keys;
use super::seen::ExchangesSeen;
use super::session_table::TICKETS;
use super::transact::Counts;
use super::work::Halt;

/// Where to, and with what.
pub(super) struct Connecting {
    pub(super) to: SocketAddr,
    pub(super) keys: Keys,
    pub(super) trial: u32,
    pub(super) parallel: usize,
    pub(super) lasts: Duration,
}

/// One under way.
struct Attempt {
    socket: TcpSocket,
    ticket: Ticket,
    begun_ns: u64,
    connected: bool,
}

/// Makes connections from the calling thread's network, for so long.
///
/// A connect that is not answered is repeated by the kernel after 1 s and given up here after [`PATIENCE`].
pub(super) fn run(spec: &Connecting, halt: &Halt) -> io::Result<ExchangesSeen> {
    let epoll = Epoll::new()?;
    let mut attempts: Vec<Option<Attempt>> = (0..spec.parallel).map(|_| None).collect();
    let (mut events, mut next) = (vec![Event::EMPTY; spec.parallel.max(1)], 0u32);
    let mut counts = Counts::new(spec.lasts);
    let mut looked_ns = 0;
    while !halt.is_set() && !counts.is_over() {
        for (slot, attempt) in attempts.iter_mut().enumerate().filter(|(_, attempt)| attempt.is_none()) {
            if next as usize >= TICKETS {
                break;
            }
            match begin(spec, next) {
                Ok(begun) => {
                    // Edges: writable when it is connected, readable when the byte or the end is there.
                    epoll.add(begun.socket.as_fd(), Interest::READ_WRITE.edge(), slot as u64)?;
                    *attempt = Some(begun);
                }
                Err(error) => {
                    counts.failed(name(&error));
                    // No port, no way: again with the next turn.
                    next += 1;
                    break;
                }
            }
            next += 1;
        }
        for event in epoll.wait(&mut events, 1)? {
            let slot = &mut attempts[event.token() as usize];
            let Some(attempt) = slot else { continue };
            match advance(attempt) {
                Ok(false) => continue,
                Ok(true) => {
                    counts.done(attempt.begun_ns, monotonic_ns());
                    halt.pulse().hear();
                }
                Err(error) => counts.failed(name(&error)),
            }
            *slot = None;
        }
        let now = monotonic_ns();
        if now - looked_ns > LOOK_NS {
            looked_ns = now;
            for slot in &mut attempts {
                if slot.as_ref().is_some_and(|attempt| now - attempt.begun_ns > PATIENCE.as_nanos() as u64) {
                    counts.failed("timed out".to_owned());
                    *slot = None;
                }
            }
        }
    }
    Ok(counts.seen())
}

fn begin(spec: &Connecting, index: u32) -> io::Result<Attempt> {
    let ticket = Ticket { trial: spec.trial, index, tag: spec.keys.ticket(spec.trial, index) };
    let begun_ns = monotonic_ns();
    Ok(Attempt { socket: TcpSocket::connect(None, spec.to)?, ticket, begun_ns, connected: false })
}

/// True once the answer is there.
fn advance(attempt: &mut Attempt) -> io::Result<bool> {
    if !attempt.connected {
        attempt.socket.take_error()?;
        match attempt.socket.send(&attempt.ticket.write()) {
            Ok(Some(Ticket::BYTES)) => attempt.connected = true,
            Ok(Some(_)) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(None) => return Ok(false),
            // Not connected yet: an event of before.
            Err(error) if error.kind() == io::ErrorKind::NotConnected => return Ok(false),
            Err(error) => return Err(error),
        }
    }
    match attempt.socket.read(&mut [0; 4])? {
        Read::Bytes(_) => Ok(true),
        Read::Later => Ok(false),
        Read::End => Err(io::Error::new(io::ErrorKind::UnexpectedEof, "closed without an answer")),
    }
}

/// A connection that is not made by then has failed: one SYN lost is borne, two are not.
const PATIENCE: Duration = Duration::from_secs(2);
const LOOK_NS: u64 = 50_000_000;
