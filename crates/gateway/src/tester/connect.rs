//! Test of new connections: connect, send a ticket, receive one byte, closed by the server; a fixed number
//! concurrently.

use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::time::Duration;

use sys::clock::monotonic_ns;
use sys::epoll::{Epoll, Event, Interest};
use sys::socket::{Read, TcpSocket};

use super::handshake::Ticket;
use super::packet::error_text;
use super::report::ExchangesReport;
use super::secret::Keys;
use super::session_table::TICKETS;
use super::transact::ExchangeCounter;
use super::worker::StopFlag;

/// Parameters of the test.
pub(super) struct ConnectionTest {
    pub(super) to: SocketAddr,
    pub(super) keys: Keys,
    pub(super) trial: u32,
    pub(super) parallel: usize,
    pub(super) lasts: Duration,
}

/// A connection attempt in progress.
struct Attempt {
    socket: TcpSocket,
    ticket: Ticket,
    begun_ns: u64,
    connected: bool,
}

/// Makes connections from the network namespace of the calling thread until the time is over.
///
/// The kernel retransmits an unanswered SYN after 1 s; the attempt fails after [`CONNECTION_TIMEOUT`].
pub(super) fn run(spec: &ConnectionTest, stop: &StopFlag) -> io::Result<ExchangesReport> {
    let epoll = Epoll::new()?;
    let mut attempts: Vec<Option<Attempt>> = (0..spec.parallel).map(|_| None).collect();
    let (mut events, mut next) = (vec![Event::EMPTY; spec.parallel.max(1)], 0u32);
    let mut counter = ExchangeCounter::new(spec.lasts);
    let mut timeouts_checked_ns = 0;
    while !stop.is_set() && !counter.is_over() {
        for (slot, attempt) in attempts.iter_mut().enumerate().filter(|(_, attempt)| attempt.is_none()) {
            if next as usize >= TICKETS {
                break;
            }
            match start_attempt(spec, next) {
                Ok(begun) => {
                    // Edge-triggered: writable when connected, readable when the byte or the end has arrived.
                    epoll.add(begun.socket.as_fd(), Interest::READ_WRITE.edge(), slot as u64)?;
                    *attempt = Some(begun);
                }
                Err(error) => {
                    counter.record_failure(error_text(&error));
                    // No free port or no route: try again in the next iteration.
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
                    counter.record(attempt.begun_ns, monotonic_ns());
                    stop.liveness().record_activity();
                }
                Err(error) => counter.record_failure(error_text(&error)),
            }
            *slot = None;
        }
        let now = monotonic_ns();
        if now - timeouts_checked_ns > TIMEOUT_CHECK_INTERVAL_NS {
            timeouts_checked_ns = now;
            for slot in &mut attempts {
                if slot.as_ref().is_some_and(|attempt| now - attempt.begun_ns > CONNECTION_TIMEOUT.as_nanos() as u64) {
                    counter.record_failure("timed out".to_owned());
                    *slot = None;
                }
            }
        }
    }
    Ok(counter.finish())
}

fn start_attempt(spec: &ConnectionTest, index: u32) -> io::Result<Attempt> {
    let ticket = Ticket { trial: spec.trial, index, tag: spec.keys.ticket(spec.trial, index) };
    let begun_ns = monotonic_ns();
    Ok(Attempt { socket: TcpSocket::connect(None, spec.to)?, ticket, begun_ns, connected: false })
}

/// Advances an attempt. True when the response has arrived.
fn advance(attempt: &mut Attempt) -> io::Result<bool> {
    if !attempt.connected {
        attempt.socket.take_error()?;
        match attempt.socket.send(&attempt.ticket.write()) {
            Ok(Some(Ticket::BYTES)) => attempt.connected = true,
            Ok(Some(_)) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(None) => return Ok(false),
            // Not connected yet: the event belongs to an earlier socket.
            Err(error) if error.kind() == io::ErrorKind::NotConnected => return Ok(false),
            Err(error) => return Err(error),
        }
    }
    match attempt.socket.read(&mut [0; 4])? {
        Read::Bytes(_) => Ok(true),
        Read::Later => Ok(false),
        Read::End => Err(io::Error::new(io::ErrorKind::UnexpectedEof, "closed without a response")),
    }
}

/// Timeout of a connection: one lost SYN is tolerated, two are not.
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(2);
const TIMEOUT_CHECK_INTERVAL_NS: u64 = 50_000_000;
