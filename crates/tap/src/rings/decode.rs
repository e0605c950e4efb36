//! Decodes records. A record may contain anything: invalid ones are discarded, and times that run backwards are
//! sorted.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use super::clock::Ticks;
use super::layout::{RECORD_BYTES, RECORD_WORDS, kind};
use crate::event::{Attempt, Caveats, Closed, EventKind, Opened, Role, Run, TcpCounts};

/// A record as read.
#[derive(Clone, Copy, Debug)]
pub struct Record(pub [u64; RECORD_WORDS]);

/// A part of the path of a program that is about to run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathPart {
    /// Index of the part, from 0.
    pub number: u32,
    /// Whether it is the last part.
    pub last: bool,
    /// Process number.
    pub pid: u32,
    /// Whether the library stays in the environment.
    pub preloaded: bool,
    /// Time in ticks.
    pub at: u64,
    /// The text up to the first zero.
    pub text: Vec<u8>,
}

/// A decoded record.
#[derive(Clone, Debug, PartialEq)]
pub enum Decoded {
    /// A complete event.
    Complete(EventKind),
    /// A part of [`EventKind::Executing`].
    Path(PathPart),
    /// An invalid record.
    Invalid,
}

impl Record {
    fn kind(&self) -> u8 {
        self.0[0] as u8
    }

    fn flag(&self, bit: u8) -> bool {
        (self.0[0] >> 8) as u8 & bit != 0
    }

    fn error(&self) -> i32 {
        i32::from((self.0[0] >> 16) as u16)
    }

    fn calls(&self) -> u32 {
        (self.0[0] >> 32) as u32
    }

    fn low(&self, word: usize) -> u32 {
        self.0[word] as u32
    }

    fn high(&self, word: usize) -> u32 {
        (self.0[word] >> 32) as u32
    }

    fn bytes(&self) -> [u8; RECORD_BYTES] {
        let mut bytes = [0; RECORD_BYTES];
        for (to, word) in bytes.chunks_exact_mut(8).zip(self.0) {
            to.copy_from_slice(&word.to_ne_bytes());
        }
        bytes
    }

    /// A C string of at most `length` bytes at `offset`.
    fn text(&self, offset: usize, length: usize) -> Vec<u8> {
        let bytes = self.bytes();
        let text = &bytes[offset..offset + length];
        text.iter().copied().take_while(|&byte| byte != 0).collect()
    }

    fn string(&self, offset: usize, length: usize) -> String {
        String::from_utf8_lossy(&self.text(offset, length)).into_owned()
    }

    fn address(&self, offset: usize, port: u16) -> SocketAddr {
        let mut octets = [0; 16];
        octets.copy_from_slice(&self.bytes()[offset..offset + 16]);
        address(octets, port)
    }

    /// The local address of an attempt, in two pieces around its end.
    fn local_address(&self) -> SocketAddr {
        let bytes = self.bytes();
        let mut octets = [0; 16];
        octets[..8].copy_from_slice(&bytes[24..32]);
        octets[8..].copy_from_slice(&bytes[40..48]);
        address(octets, self.calls() as u16)
    }

    /// The latest time in the record, in ticks.
    pub fn latest_ticks(&self) -> u64 {
        let [_, _, begin, third, fourth, ..] = self.0;
        match self.kind() {
            kind::SENT | kind::RECEIVED => begin.max(third).max(fourth),
            kind::CONNECTED | kind::CONNECT_FAILED | kind::POLLED => begin.max(fourth),
            kind::RESOLVED => begin.max(third),
            _ => begin,
        }
    }

    /// Decodes the record.
    pub fn decode(&self, ticks: &Ticks) -> Decoded {
        let [_, connection, begin, ..] = self.0;
        let at = ticks.at(begin);
        let what = match self.kind() {
            kind::LOADED => EventKind::Loaded { at, parent_pid: self.high(3), program: self.string(40, 16) },
            kind::FORKED => EventKind::Forked {
                at,
                parent_image: self.low(4),
                parent_pid: self.high(3),
                fork: self.high(4),
                program: self.string(40, 16),
            },
            kind::EXECUTING => {
                return Decoded::Path(PathPart {
                    number: self.calls(),
                    last: self.flag(2),
                    pid: connection as u32,
                    preloaded: self.flag(1),
                    at: begin,
                    text: self.text(24, 40),
                });
            }
            kind::FILTERED => EventKind::Filtered { at, parent_pid: self.high(3), program: self.string(40, 16) },
            kind::RESOLVED => EventKind::Resolved {
                begin: at,
                end: ticks.at(self.0[3]).max(at),
                name: self.string(32, 32),
                error: self.calls() as i32,
            },
            kind::OPENED => EventKind::Opened(self.opened(ticks)),
            kind::CONNECTED => EventKind::Connected(self.attempt(ticks)),
            kind::CONNECT_FAILED if self.flag(2) => EventKind::Withdrawn { connection, at },
            kind::CONNECT_FAILED => EventKind::ConnectFailed(self.attempt(ticks)),
            kind::SENT => EventKind::Sent(self.run(ticks)),
            kind::RECEIVED => EventKind::Received(self.run(ticks)),
            kind::SHUT => EventKind::Shut { connection, at, receive: self.flag(1), send: self.flag(2) },
            kind::CLOSED => EventKind::Closed(self.closed(ticks)),
            kind::LEAVING => EventKind::Leaving(self.closed(ticks)),
            kind::POLLED => {
                EventKind::Polled { at, blocked: ticks.duration(self.0[6], begin), calls: u64::from(self.calls()) }
            }
            kind::ASIDE => EventKind::Aside {
                at,
                datagram_sockets: self.low(3),
                uring_setups: self.high(3),
                unfollowed: self.low(4),
            },
            _ => return Decoded::Invalid,
        };
        Decoded::Complete(what)
    }

    fn opened(&self, ticks: &Ticks) -> Opened {
        let flags = self.0[0] >> 8;
        let ports = self.low(7);
        Opened {
            connection: self.0[1],
            at: ticks.at(self.0[2]),
            role: match flags & 3 {
                0 => Role::Connected,
                1 => Role::Accepted,
                _ => Role::Found,
            },
            local: self.address(24, ports as u16),
            peer: self.address(40, (ports >> 16) as u16),
            nonblocking: self.flag(4),
            inherited: self.flag(8),
        }
    }

    fn attempt(&self, ticks: &Ticks) -> Attempt {
        let [_, connection, begin, _, end, _, blocked, waited] = self.0;
        let at = ticks.at(begin);
        Attempt {
            connection,
            begin: at,
            end: ticks.at(end).max(at),
            blocked: ticks.duration(blocked, end),
            waited: ticks.duration(waited, end),
            error: self.error(),
            local: self.flag(1).then(|| self.local_address()),
        }
    }

    fn run(&self, ticks: &Ticks) -> Run {
        let [_, connection, begin, first, end, bytes, blocked, waited] = self.0;
        let at = ticks.at(begin);
        let first = ticks.at(first).max(at);
        Run {
            connection,
            begin: at,
            first,
            end: ticks.at(end).max(first),
            bytes,
            calls: u64::from(self.calls()),
            blocked: ticks.duration(blocked, end),
            waited: ticks.duration(waited, end),
            ended: self.flag(1),
            error: self.error(),
        }
    }

    fn closed(&self, ticks: &Ticks) -> Closed {
        let [_, connection, begin, _, sent, received, ..] = self.0;
        Closed {
            connection,
            begin: ticks.at(begin),
            tcp_counts: self.flag(1).then_some(TcpCounts {
                sent,
                received,
                retransmits: self.low(6),
                rtt_us: self.high(6),
            }),
            caveats: Caveats {
                stdio: self.flag(2),
                kernel_tls: self.flag(4),
                lost_sight: self.flag(8),
                sandboxed: self.flag(16),
                off_by_one: self.flag(32),
                shared: self.flag(64),
            },
            forks: [self.low(7), self.high(7)],
        }
    }
}

fn address(octets: [u8; 16], port: u16) -> SocketAddr {
    let ip = match Ipv6Addr::from(octets).to_canonical() {
        IpAddr::V6(ip) if ip.is_unspecified() && port == 0 => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        ip => ip,
    };
    SocketAddr::new(ip, port)
}
