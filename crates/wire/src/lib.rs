//! Checked views of packet bytes: IPv4, IPv6, TCP, UDP, checksums, the header that a TUN device puts before a packet;
//! and for observers: link layers, truncated packets, the TLS server name, capture files.
//!
//! This crate parses bytes; other crates interpret them (`path` forwards packets, `watch` analyses connections). A view
//! is created by `new_checked`, the only function that can fail; afterwards every accessor stays within the bytes,
//! whatever they contain. The views do not copy, allocate or panic on any input, and there is no unsafe code.
//!
//! ```text
//!   vnet header (10 bytes) | IPv4 or IPv6 header | TCP or UDP header | payload
//!   vnet::Header             ipv4 / ipv6           tcp / udp
//! ```
//!
//! An observer's packets have a link layer and may be truncated: [`capture`] reads them from files, [`link`] finds the
//! IP packet, [`ip`] parses its headers even if later bytes are missing, and [`tunnel`] finds the packet inside of an
//! encapsulation.
//!
//! Read [`ipv4`] first: the other views are made the same way. Byte offsets have names in each file's private
//! `field` module, and numbers are in network byte order unless a type says otherwise.

pub mod capture;
pub mod checksum;
pub mod datagrams;
mod error;
pub mod ip;
pub mod ipv4;
pub mod ipv6;
pub mod link;
mod octets;
pub mod quic;
pub mod tcp;
pub mod tls;
pub mod tunnel;
pub mod udp;
pub mod vnet;

pub use error::Error;

/// Protocol numbers in IPv4's protocol and IPv6's next header (IANA).
pub mod protocol {
    /// ICMP for IPv4.
    pub const ICMP: u8 = 1;
    /// TCP.
    pub const TCP: u8 = 6;
    /// UDP.
    pub const UDP: u8 = 17;
    /// ICMP for IPv6.
    pub const ICMPV6: u8 = 58;
}
