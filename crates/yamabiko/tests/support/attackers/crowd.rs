//! A crowd of connections.

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

/// How a crowd is made up.
pub struct Crowd {
    /// Concurrent members.
    pub size: usize,
    /// New ones in one go at most.
    pub at_once: usize,
    /// From one round to the next.
    pub pace: Duration,
    /// Receive buffer, where it is to be small.
    pub workspace: Option<usize>,
    /// Members that leave do so with a reset.
    pub resets: bool,
}

/// One connection of an attacker.
pub struct Member {
    stream: TcpStream,
    /// What number of the crowd it is, those that left included.
    pub number: u64,
    /// Bytes it has sent.
    pub sent: u64,
    /// Bytes it has read.
    pub read: u64,
    /// Bytes sent and read by the crowd, for its tally.
    moved: (u64, u64),
    status: Option<String>,
}

/// What becomes of a member.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Next {
    Stays,
    Leaves,
}

impl Member {
    /// Sends as much of `bytes` as goes now; how much that was.
    pub fn send(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let sent = later(self.stream.write(bytes))?;
        self.sent += sent as u64;
        self.moved.0 += sent as u64;
        Ok(sent)
    }

    /// Looks whether the server has reset the connection, without reading.
    ///
    /// # Errors
    /// It has.
    pub fn look(&self) -> io::Result<()> {
        self.stream.take_error()?.map_or(Ok(()), Err)
    }

    /// Reads at most so many bytes of what has come; how much that was.
    ///
    /// # Errors
    /// The server has ended the connection.
    pub fn read(&mut self, most: usize) -> io::Result<usize> {
        let mut buffer = [0; 16 << 10];
        let most = most.min(buffer.len());
        let got = match self.stream.read(&mut buffer[..most]) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            outcome => later(outcome)?,
        };
        if self.read == 0 && got > 0 {
            let line = &buffer[..got.min(12)];
            let http = line.strip_prefix(b"HTTP/1.1 ").and_then(|code| code.get(..3));
            self.status = http.map(|code| String::from_utf8_lossy(code).into_owned());
        }
        self.read += got as u64;
        self.moved.1 += got as u64;
        Ok(got)
    }
}

/// Runs a crowd until `stop`.
pub fn crowd(
    target: &Target,
    stop: &AtomicBool,
    of: &Crowd,
    mut habit: impl FnMut(&mut Member) -> io::Result<Next>,
) -> Tally {
    let mut tally = Tally::default();
    let mut members: Vec<Member> = Vec::new();
    // What a shell gives is often a thousand.
    if let Ok((_, hard)) = getrlimit(Resource::RLIMIT_NOFILE) {
        let _ = setrlimit(Resource::RLIMIT_NOFILE, hard, hard);
    }
    let size = of.size.min(target.members_max);
    while !stop.load(Ordering::Relaxed) {
        let began = Instant::now();
        for _ in 0..of.at_once.min(size - members.len()) {
            let from = source(target, tally.begun);
            match open(target.address, from, of) {
                Ok(stream) => {
                    members.push(Member { stream, number: tally.begun, sent: 0, read: 0, moved: (0, 0), status: None });
                    tally.begun += 1;
                }
                Err(_) => {
                    tally.not_begun += 1;
                    break;
                }
            }
        }
        tally.members_max = tally.members_max.max(members.len());
        members.retain_mut(|member| {
            let next = habit(member);
            let (sent, read) = std::mem::take(&mut member.moved);
            tally.sent_bytes += sent;
            tally.read_bytes += read;
            if let Some(status) = member.status.take() {
                *tally.answered.entry(status).or_default() += 1;
            }
            tally.sent_away += u64::from(next.is_err());
            matches!(next, Ok(Next::Stays))
        });
        // Not below this, or it would be a loop around two system calls.
        sleep(of.pace.saturating_sub(began.elapsed()).max(Duration::from_micros(50)));
    }
    tally
}

/// A connection under way, which never blocks.
fn open(to: SocketAddr, from: Option<IpAddr>, of: &Crowd) -> io::Result<TcpStream> {
    let family = if to.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 };
    let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
    let made: OwnedFd = socket(family, SockType::Stream, flags, None)?;
    if let Some(workspace) = of.workspace {
        setsockopt(&made, RcvBuf, &workspace)?;
    }
    if of.resets {
        setsockopt(&made, Linger, &nix::libc::linger { l_onoff: 1, l_linger: 0 })?;
    }
    if let Some(from) = from {
        // The port is chosen at connect, for both addresses together. One chosen by bind would be taken from everybody on
        // this machine who binds nothing, for as long as the connection is remembered (TIME_WAIT, a minute).
        setsockopt(&made, IpBindAddressNoPort, &true)?;
        bind(made.as_raw_fd(), &SockaddrStorage::from(SocketAddr::new(from, 0)))?;
    }
    match connect(made.as_raw_fd(), &SockaddrStorage::from(to)) {
        Ok(()) | Err(Errno::EINPROGRESS) => Ok(made.into()),
        Err(errno) => Err(errno.into()),
    }
}

/// What is not possible now is nothing, and no error.
fn later(outcome: io::Result<usize>) -> io::Result<usize> {
    match outcome {
        Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => Ok(0),
        outcome => outcome,
    }
}
