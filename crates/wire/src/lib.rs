//! Checked views of packet bytes: IPv4, IPv6, TCP, UDP, checksums, the header a TUN device puts before a packet; and
//! what an observer needs besides: link layers, snapped packets, the TLS server name, capture files.
//!
//! Two faces of a packet: these are the bytes; what they mean is the business of the rooms above (`path` sends them
//! on, `watch` reads connections out of them). A view is made by `new_checked`, which is the only place that can
//! fail; after it every accessor stays inside the bytes it was given, whatever they hold. The views do not copy,
//! allocate or panic on any input, and there is no unsafe code.
//!
//! ```text
//!   vnet header (10 bytes) | IPv4 or IPv6 header | TCP or UDP header | payload
//!   vnet::Header             ipv4 / ipv6           tcp / udp
//! ```
//!
//! An observer's packets come with their link layer and may be cut short: [`capture`] reads them out of files,
//! [`link`] finds the IP packet, [`ip`] reads its headers whatever is missing after them, and [`tunnel`] finds the packet
//! inside where another protocol lies around it.
//!
//! Read [`ipv4`] first: the other views are made the same way. Byte offsets have names in each file's private
//! `field` module, and numbers are in network byte order unless a type says otherwise.

pub mod capture;
pub mod checksum;
mod error;
pub mod ip;
pub mod ipv4;
pub mod ipv6;
pub mod link;
mod octets;
pub mod tcp;
pub mod tls;
pub mod tunnel;
pub mod udp;
pub mod vnet;

pub use error::Error;

/// Protocol numbers as IPv4's protocol and IPv6's next header carry them (IANA).
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
