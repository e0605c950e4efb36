//! The concurrent connections of an attack.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::socket::sockopt::{IpBindAddressNoPort, Linger, RcvBuf};
use nix::sys::socket::{AddressFamily, SockFlag, SockType, SockaddrStorage, bind, connect, setsockopt, socket};

use super::{Tally, Target, source};

/// How an attack opens and closes its connections.
pub struct Crowd {
    /// Concurrent connections.
    pub size: usize,
    /// Maximum number of new connections in each round.
    pub max_new: usize,
    /// Time between the starts of two rounds.
    pub interval: Duration,
    /// Size of the receive buffer in bytes. `None` is the kernel's default.
    pub receive_buffer: Option<usize>,
    /// Whether closing a connection resets it.
    pub resets: bool,
}

/// One connection of an attacker.
pub struct Member {
    stream: TcpStream,
    /// Number of the connection, from 0, closed ones included.
    pub number: u64,
    /// Sent bytes.
    pub sent: u64,
    /// Received bytes.
    pub read: u64,
    /// Bytes sent and received since the last addition to the tally.
    untallied_bytes: (u64, u64),
    status: Option<String>,
}

/// Whether the attacker keeps or closes a connection.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum NextAction {
    KeepOpen,
    Close,
}

impl Member {
    /// Sends as much of `bytes` as the socket accepts now; returns the number of bytes.
    pub fn send(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let sent = zero_if_not_ready(self.stream.write(bytes))?;
        self.sent += sent as u64;
        self.untallied_bytes.0 += sent as u64;
        Ok(sent)
    }

    /// Checks whether the server has reset the connection, without reading.
    ///
    /// # Errors
    /// The server has reset it.
    pub fn check_not_reset(&self) -> io::Result<()> {
        self.stream.take_error()?.map_or(Ok(()), Err)
    }

    /// Reads at most `most` bytes of the received data; returns the number of bytes.
    ///
    /// # Errors
    /// The server has closed the connection.
    pub fn read(&mut self, most: usize) -> io::Result<usize> {
        let mut buffer = [0; 16 << 10];
        let most = most.min(buffer.len());
        let length = match self.stream.read(&mut buffer[..most]) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            outcome => zero_if_not_ready(outcome)?,
        };
        if self.read == 0 && length > 0 {
            let line = &buffer[..length.min(12)];
            let http = line.strip_prefix(b"HTTP/1.1 ").and_then(|code| code.get(..3));
            self.status = http.map(|code| String::from_utf8_lossy(code).into_owned());
        }
        self.read += length as u64;
        self.untallied_bytes.1 += length as u64;
        Ok(length)
    }
}

/// Keeps `of.size` connections open and calls `habit` for each in every round, until `stop` is true.
pub fn crowd(
    target: &Target,
    stop: &AtomicBool,
    of: &Crowd,
    mut habit: impl FnMut(&mut Member) -> io::Result<NextAction>,
) -> Tally {
    let mut tally = Tally::default();
    let mut members: Vec<Member> = Vec::new();
    // A shell's limit of open files is often 1,024.
    if let Ok((_, hard)) = getrlimit(Resource::RLIMIT_NOFILE) {
        let _ = setrlimit(Resource::RLIMIT_NOFILE, hard, hard);
    }
    let size = of.size.min(target.max_concurrent);
    while !stop.load(Ordering::Relaxed) {
        let began = Instant::now();
        for _ in 0..of.max_new.min(size - members.len()) {
            let from = source(target, tally.opened);
            match open(target.address, from, of) {
                Ok(stream) => {
                    members.push(Member {
                        stream,
                        number: tally.opened,
                        sent: 0,
                        read: 0,
                        untallied_bytes: (0, 0),
                        status: None,
                    });
                    tally.opened += 1;
                }
                Err(_) => {
                    tally.not_opened += 1;
                    break;
                }
            }
        }
        tally.max_concurrent = tally.max_concurrent.max(members.len());
        members.retain_mut(|member| {
            let next = habit(member);
            let (sent, read) = std::mem::take(&mut member.untallied_bytes);
            tally.sent_bytes += sent;
            tally.read_bytes += read;
            if let Some(status) = member.status.take() {
                *tally.responses.entry(status).or_default() += 1;
            }
            tally.closed_by_server += u64::from(next.is_err());
            matches!(next, Ok(NextAction::KeepOpen))
        });
        // The minimum prevents a busy loop of two system calls.
        sleep(of.interval.saturating_sub(began.elapsed()).max(Duration::from_micros(50)));
    }
    tally
}

/// Begins a non-blocking connect.
fn open(to: SocketAddr, from: Option<IpAddr>, of: &Crowd) -> io::Result<TcpStream> {
    let family = if to.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 };
    let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
    let made: OwnedFd = socket(family, SockType::Stream, flags, None)?;
    if let Some(receive_buffer) = of.receive_buffer {
        setsockopt(&made, RcvBuf, &receive_buffer)?;
    }
    if of.resets {
        setsockopt(&made, Linger, &nix::libc::linger { l_onoff: 1, l_linger: 0 })?;
    }
    if let Some(from) = from {
        // The kernel chooses the port in connect, for the pair of addresses. A port chosen by bind would be unavailable
        // to all other sockets that do not bind, for as long as the connection is in TIME_WAIT: one minute.
        setsockopt(&made, IpBindAddressNoPort, &true)?;
        bind(made.as_raw_fd(), &SockaddrStorage::from(SocketAddr::new(from, 0)))?;
    }
    match connect(made.as_raw_fd(), &SockaddrStorage::from(to)) {
        Ok(()) | Err(Errno::EINPROGRESS) => Ok(made.into()),
        Err(errno) => Err(errno.into()),
    }
}

/// Maps `WouldBlock` and `Interrupted` to 0 bytes.
fn zero_if_not_ready(outcome: io::Result<usize>) -> io::Result<usize> {
    match outcome {
        Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => Ok(0),
        outcome => outcome,
    }
}
