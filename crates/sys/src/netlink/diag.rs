//! Listening TCP sockets and unconnected UDP sockets of a network namespace, by sock_diag(7): the kernel sends only
//! these, whereas /proc/net/tcp prints every connection as text. TCP_INFO of one connection: [`tcp_info`].
//!
//! ```text
//!   request:  nlmsghdr | inet_diag_req_v2 (family, protocol, state)       one dump for IPv4, one for IPv6
//!   answer:   nlmsghdr | inet_diag_msg | attributes  ..  NLMSG_DONE
//! ```

mod tcp_info;

use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use netlink_sys::{Socket, SocketAddr};
use nix::errno::Errno;

use crate::error::{Error, Result};

pub use tcp_info::TcpInfo;

/// A sock_diag connection to the kernel for the sockets of one network namespace: that of the thread that opened it.
pub struct SockDiag {
    socket: Socket,
    sequence: u32,
}

/// A TCP socket in state LISTEN, or a bound UDP socket without a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListeningSocket {
    /// The socket's local address; `0.0.0.0` and `::` are every address.
    pub address: IpAddr,
    /// The socket's port.
    pub port: u16,
    /// Whether an IPv6 socket accepts no IPv4 connections (IPV6_V6ONLY).
    pub v6_only: bool,
    /// The socket's inode, by which its owners are found in /proc.
    pub inode: u64,
}

impl SockDiag {
    /// Opens a connection for the calling thread's network namespace.
    ///
    /// # Errors
    /// The kernel has no sock_diag.
    pub fn open() -> Result<SockDiag> {
        let mut socket =
            Socket::new(netlink_sys::protocols::NETLINK_SOCK_DIAG).map_err(Error::of("socket NETLINK_SOCK_DIAG"))?;
        socket.bind_auto().map_err(Error::of("bind NETLINK_SOCK_DIAG"))?;
        socket.connect(&SocketAddr::new(0, 0)).map_err(Error::of("connect NETLINK_SOCK_DIAG"))?;
        Ok(SockDiag { socket, sequence: 0 })
    }

    /// All listening TCP sockets, of IPv4 and IPv6.
    ///
    /// # Errors
    /// The kernel cannot list TCP sockets (no inet_diag and tcp_diag), or its response is malformed.
    pub fn listening(&mut self) -> Result<Vec<ListeningSocket>> {
        self.dump(TCP)
    }

    /// All unconnected UDP sockets, of IPv4 and IPv6.
    ///
    /// # Errors
    /// The kernel cannot list UDP sockets (no inet_diag and udp_diag), or its response is malformed.
    pub fn unconnected_udp(&mut self) -> Result<Vec<ListeningSocket>> {
        self.dump(UDP)
    }

    fn dump(&mut self, kind: Kind) -> Result<Vec<ListeningSocket>> {
        let mut found = Vec::new();
        for family in [libc::AF_INET as u8, libc::AF_INET6 as u8] {
            self.sequence = self.sequence.wrapping_add(1);
            self.socket.send(&request(family, kind, self.sequence), 0).map_err(Error::of(CALL))?;
            while !self.receive(kind, &mut found)? {}
        }
        Ok(found)
    }

    /// Receives one datagram; returns whether it was the dump's last.
    fn receive(&mut self, kind: Kind, found: &mut Vec<ListeningSocket>) -> Result<bool> {
        let datagram = self.datagram()?;
        match parse(&datagram, kind, self.sequence, found) {
            Ok(is_last) => Ok(is_last),
            Err(answer) => Err(self.unexpected(answer, datagram.len())),
        }
    }

    fn datagram(&mut self) -> Result<Vec<u8>> {
        loop {
            match self.socket.recv_from_full() {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                other => return Ok(other.map_err(Error::of(CALL))?.0),
            }
        }
    }

    fn unexpected(&self, answer: Answer, bytes: usize) -> Error {
        match answer {
            Answer::Errno(errno) => Error::of(CALL)(errno),
            Answer::Malformed => Error::Unexpected { call: CALL.into(), answer: format!("{bytes} bytes") },
        }
    }
}

const CALL: &str = "list sockets (sock_diag)";

/// Why a datagram is not part of a dump.
#[derive(Debug, PartialEq, Eq)]
enum Answer {
    /// The kernel refused.
    Errno(Errno),
    /// The datagram is truncated, or not in the format.
    Malformed,
}

// linux/netlink.h and linux/inet_diag.h.
const HEADER_BYTES: usize = 16;
const REQUEST_BYTES: usize = HEADER_BYTES + 56;
const MESSAGE_BYTES: usize = 72;
const ATTRIBUTE_BYTES: usize = 4;
const SOCK_DIAG_BY_FAMILY: u16 = 20;
const TCP_LISTEN: u8 = 10;
/// UDP's state of a socket without a peer.
const TCP_CLOSE: u8 = 7;
const INET_DIAG_SKV6ONLY: u16 = 11;

/// The kind of sockets of a dump.
#[derive(Clone, Copy, Debug)]
struct Kind {
    protocol: u8,
    state: u8,
}

const TCP: Kind = Kind { protocol: libc::IPPROTO_TCP as u8, state: TCP_LISTEN };
const UDP: Kind = Kind { protocol: libc::IPPROTO_UDP as u8, state: TCP_CLOSE };

/// A request for all sockets of a family and kind.
fn request(family: u8, kind: Kind, sequence: u32) -> [u8; REQUEST_BYTES] {
    let mut bytes = [0; REQUEST_BYTES];
    let mut put = |at: usize, value: &[u8]| bytes[at..at + value.len()].copy_from_slice(value);
    put(0, &(REQUEST_BYTES as u32).to_ne_bytes());
    put(4, &SOCK_DIAG_BY_FAMILY.to_ne_bytes());
    put(6, &((libc::NLM_F_REQUEST | libc::NLM_F_DUMP) as u16).to_ne_bytes());
    put(8, &sequence.to_ne_bytes());
    // inet_diag_req_v2: family, protocol, extensions, padding, states; the socket's identity stays 0, which matches
    // any.
    put(HEADER_BYTES, &[family, kind.protocol]);
    put(HEADER_BYTES + 4, &(1u32 << kind.state).to_ne_bytes());
    bytes
}

/// Parses the messages of a datagram that respond to the request of this number; returns whether the dump ends with it.
fn parse(
    datagram: &[u8],
    kind: Kind,
    sequence: u32,
    found: &mut Vec<ListeningSocket>,
) -> std::result::Result<bool, Answer> {
    messages(datagram, sequence, |payload| {
        found.extend(socket(payload, kind.state)?);
        Ok(())
    })
}

/// Calls `handle` with the payload of each message of a datagram that describes a socket and responds to the request of
/// this number; returns whether a dump ends with it.
fn messages(
    mut datagram: &[u8],
    sequence: u32,
    mut handle: impl FnMut(&[u8]) -> std::result::Result<(), Answer>,
) -> std::result::Result<bool, Answer> {
    while !datagram.is_empty() {
        let length = u32_at(datagram, 0).ok_or(Answer::Malformed)? as usize;
        let message = datagram.get(..length).filter(|_| length >= HEADER_BYTES).ok_or(Answer::Malformed)?;
        // Messages begin at multiples of four bytes; the last need not be padded.
        datagram = datagram.get(length.next_multiple_of(4)..).unwrap_or_default();
        if u32_at(message, 8) != Some(sequence) {
            continue;
        }
        let payload = &message[HEADER_BYTES..];
        match i32::from(u16_at(message, 4).ok_or(Answer::Malformed)?) {
            libc::NLMSG_DONE => return Ok(true),
            libc::NLMSG_ERROR => {
                let code = u32_at(payload, 0).ok_or(Answer::Malformed)?.cast_signed();
                return Err(Answer::Errno(Errno::from_raw(code.saturating_neg())));
            }
            message if message == i32::from(SOCK_DIAG_BY_FAMILY) => handle(payload)?,
            _ => {}
        }
    }
    Ok(false)
}

/// The socket that an inet_diag_msg with its attributes describes; `None` for one in another state.
fn socket(payload: &[u8], required: u8) -> std::result::Result<Option<ListeningSocket>, Answer> {
    let (fixed, attributes) = payload.split_at_checked(MESSAGE_BYTES).ok_or(Answer::Malformed)?;
    // Family, state, timer, retransmissions; ports and addresses in network order from byte 4 on; the inode at the end.
    let (family, state) = (i32::from(fixed[0]), fixed[1]);
    if state != required {
        return Ok(None);
    }
    let port = u16::from_be_bytes([fixed[4], fixed[5]]);
    let address = match family {
        libc::AF_INET => IpAddr::V4(Ipv4Addr::new(fixed[8], fixed[9], fixed[10], fixed[11])),
        libc::AF_INET6 => {
            let bytes: [u8; 16] = fixed[8..24].try_into().map_err(|_| Answer::Malformed)?;
            IpAddr::V6(Ipv6Addr::from(bytes)).to_canonical()
        }
        _ => return Ok(None),
    };
    let inode = u64::from(u32_at(fixed, 68).ok_or(Answer::Malformed)?);
    let v6_only =
        attribute(attributes, INET_DIAG_SKV6ONLY)?.and_then(|value| value.first()).is_some_and(|set| *set != 0);
    Ok(Some(ListeningSocket { address, port, v6_only, inode }))
}

/// The value of the last attribute of this kind.
fn attribute(mut attributes: &[u8], wanted: u16) -> std::result::Result<Option<&[u8]>, Answer> {
    let mut found = None;
    while !attributes.is_empty() {
        let length = usize::from(u16_at(attributes, 0).ok_or(Answer::Malformed)?);
        let kind = u16_at(attributes, 2).ok_or(Answer::Malformed)?;
        let whole = attributes.get(..length).filter(|_| length >= ATTRIBUTE_BYTES).ok_or(Answer::Malformed)?;
        if kind == wanted {
            found = Some(&whole[ATTRIBUTE_BYTES..]);
        }
        attributes = attributes.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    Ok(found)
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, UdpSocket};

    use proptest::prelude::*;

    use super::*;

    /// One netlink message.
    fn message(kind: u16, sequence: u32, payload: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        bytes.extend((HEADER_BYTES as u32 + payload.len() as u32).to_ne_bytes());
        bytes.extend(kind.to_ne_bytes());
        bytes.extend(2u16.to_ne_bytes());
        bytes.extend(sequence.to_ne_bytes());
        bytes.extend([0; 4]);
        bytes.extend(payload);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    }

    /// An inet_diag_msg in the kernel's layout, followed by these attributes.
    fn diag(family: i32, state: u8, port: u16, address: &[u8], inode: u32, attributes: &[u8]) -> Vec<u8> {
        let mut bytes = vec![family as u8, state, 0, 0];
        bytes.extend(port.to_be_bytes());
        bytes.extend([0; 2]);
        bytes.extend(address);
        bytes.resize(MESSAGE_BYTES - 4, 0);
        bytes.extend(inode.to_ne_bytes());
        bytes.extend(attributes);
        bytes
    }

    fn attribute_of(kind: u16, payload: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        bytes.extend((ATTRIBUTE_BYTES as u16 + payload.len() as u16).to_ne_bytes());
        bytes.extend(kind.to_ne_bytes());
        bytes.extend(payload);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    }

    #[test]
    fn sock_diag_dump_is_read_to_its_end() {
        let v6_only = [attribute_of(8, &[0]), attribute_of(INET_DIAG_SKV6ONLY, &[1])].concat();
        let both = attribute_of(INET_DIAG_SKV6ONLY, &[0]);
        let datagram = [
            message(SOCK_DIAG_BY_FAMILY, 7, &diag(libc::AF_INET, TCP_LISTEN, 8080, &[198, 18, 0, 1], 77, &[])),
            // Established, of another request, and of another kind: none of them is a listener of this dump.
            message(SOCK_DIAG_BY_FAMILY, 7, &diag(libc::AF_INET, 1, 8081, &[198, 18, 0, 1], 78, &[])),
            message(SOCK_DIAG_BY_FAMILY, 6, &diag(libc::AF_INET, TCP_LISTEN, 8082, &[0; 4], 79, &[])),
            message(libc::NLMSG_NOOP as u16, 7, &[]),
            message(SOCK_DIAG_BY_FAMILY, 7, &diag(libc::AF_INET6, TCP_LISTEN, 80, &[0; 16], 9, &both)),
            message(SOCK_DIAG_BY_FAMILY, 7, &diag(libc::AF_INET6, TCP_LISTEN, 443, &[0; 16], 10, &v6_only)),
        ]
        .concat();
        let mut found = Vec::new();
        assert_eq!(parse(&datagram, TCP, 7, &mut found), Ok(false));
        let of = |address: &str, port: u16, v6_only: bool, inode: u64| ListeningSocket {
            address: address.parse().unwrap(),
            port,
            v6_only,
            inode,
        };
        let expected = [of("198.18.0.1", 8080, false, 77), of("::", 80, false, 9), of("::", 443, true, 10)];
        assert_eq!(found, expected);
        assert_eq!(parse(&message(libc::NLMSG_DONE as u16, 7, &[0; 4]), TCP, 7, &mut found), Ok(true));
        assert_eq!(found.len(), 3);
    }

    #[test]
    fn sock_diag_errors_and_malformed_responses_are_distinguished() {
        let refused = message(libc::NLMSG_ERROR as u16, 1, &(-libc::ENOENT).to_ne_bytes());
        let mut found = Vec::new();
        assert_eq!(parse(&refused, TCP, 1, &mut found), Err(Answer::Errno(Errno::ENOENT)));
        let whole =
            message(SOCK_DIAG_BY_FAMILY, 1, &diag(libc::AF_INET, TCP_LISTEN, 1, &[0; 4], 1, &attribute_of(8, &[0])));
        for cut in 1..whole.len() {
            let mut short = whole[..cut].to_vec();
            assert_eq!(parse(&short, TCP, 1, &mut found), Err(Answer::Malformed), "{cut} bytes of a longer message");
            // A header with a consistent length is still malformed.
            if (HEADER_BYTES..HEADER_BYTES + MESSAGE_BYTES).contains(&cut) {
                short[..4].copy_from_slice(&(cut as u32).to_ne_bytes());
                assert_eq!(parse(&short, TCP, 1, &mut found), Err(Answer::Malformed), "{cut} bytes");
            }
        }
        assert!(found.is_empty());
    }

    proptest! {
        #[test]
        fn sock_diag_parser_does_not_panic_on_any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..400), sequence: u32) {
            let mut found = Vec::new();
            let _ = parse(&bytes, TCP, sequence, &mut found);
            let mut framed = message(SOCK_DIAG_BY_FAMILY, sequence, &bytes);
            let _ = parse(&framed, TCP, sequence, &mut found);
            framed.truncate(bytes.len());
            let _ = parse(&framed, TCP, sequence, &mut found);
        }
    }

    #[test]
    fn kernel_lists_the_listening_sockets_of_this_process() {
        let (v4, v6) = (TcpListener::bind("127.0.0.1:0").unwrap(), TcpListener::bind("[::1]:0").unwrap());
        let mut diag = SockDiag::open().unwrap();
        let is_listed = |found: &[ListeningSocket], socket: &TcpListener| {
            let own = socket.local_addr().unwrap();
            found.iter().any(|it| (it.address, it.port) == (own.ip(), own.port()) && it.inode > 0)
        };
        let found = diag.listening().unwrap();
        assert!(is_listed(&found, &v4) && is_listed(&found, &v6), "{found:?}");
        let gone = v4.local_addr().unwrap();
        drop(v4);
        let found = diag.listening().unwrap();
        assert!(!found.iter().any(|it| (it.address, it.port) == (gone.ip(), gone.port())) && is_listed(&found, &v6));
    }

    #[test]
    fn kernel_lists_unconnected_udp_sockets() {
        let (open, connected) = (UdpSocket::bind("127.0.0.1:0").unwrap(), UdpSocket::bind("[::1]:0").unwrap());
        connected.connect("[::1]:9").unwrap();
        let found = SockDiag::open().unwrap().unconnected_udp().unwrap();
        let is_listed = |socket: &UdpSocket| {
            let own = socket.local_addr().unwrap();
            found.iter().any(|it| (it.address, it.port) == (own.ip(), own.port()) && it.inode > 0)
        };
        assert!(is_listed(&open) && !is_listed(&connected), "{found:?}");
    }
}
