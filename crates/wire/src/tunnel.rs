//! Tunnels: finds the TCP or UDP packet of a frame inside any supported encapsulation.
//!
//! ```text
//!   Ethernet | IPv4 | UDP 4789 | VXLAN | Ethernet | VLAN | IPv6 | TCP
//!   `-------------------- walked ------------------------'      `- Innermost::Tcp
//! ```
//!
//! Supported are VLAN tags (802.1Q, 802.1ad, 802.1ah, VN-Tag), LLC/SNAP, MPLS, PPPoE, PPP, NSH; IP in IP of both
//! versions in either, AH, GRE (versions 0 and 1), ERSPAN (types I to III), EtherIP, VXLAN (with its GPE form), GENEVE,
//! GTP-U, MPLS and GRE over UDP. A frame with another payload gives [`Unread`]. At most [`DEPTH_MAX`] headers are
//! followed, each within the lengths of the previous one, so that a hostile frame costs no more than an ordinary one.
//!
//! An observer first tries [`LinkType::payload`] and [`ip::Packet::parse`], which suffice for a frame without a tunnel,
//! and uses this module for the rest.

mod names;
mod walk;

use crate::link::LinkType;
use crate::{Error, ip};

/// The innermost content of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Innermost {
    /// A TCP packet.
    Tcp {
        /// Offset in the frame of its IP header.
        at: usize,
        /// Its IP header; `transport_at` is that of the TCP header, behind any AH.
        packet: ip::Packet,
        /// The encapsulation around it.
        tunnels: Tunnels,
    },
    /// A UDP packet that is not a known tunnel.
    Udp {
        /// Offset in the frame of its IP header.
        at: usize,
        /// Its IP header; `transport_at` is that of the UDP header, behind any AH.
        packet: ip::Packet,
        /// The encapsulation around it.
        tunnels: Tunnels,
    },
    /// A later fragment of an IP packet, which has no transport header.
    LaterFragment,
    /// An unsupported protocol.
    Unread(Unread),
}

/// A kind of encapsulation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Tunnel {
    /// VXLAN, or its generic protocol extension (RFC 7348, draft-ietf-nvo3-vxlan-gpe).
    Vxlan,
    /// GENEVE (RFC 8926).
    Geneve,
    /// GRE (RFC 2784, 2890, 2637), over IP or UDP.
    Gre,
    /// ERSPAN, types I to III.
    Erspan,
    /// IP in IP, either version in either (RFC 2003, 2473, 4213).
    IpInIp,
    /// MPLS labels (RFC 3032), also over IP, UDP or GRE.
    Mpls,
    /// PPPoE sessions (RFC 2516).
    Pppoe,
    /// GTP-U (3GPP TS 29.281).
    Gtp,
    /// Any other supported one: EtherIP, NSH, PPP, provider backbone bridges.
    Other,
}

impl Tunnel {
    /// All kinds.
    pub const ALL: [Tunnel; 9] = [
        Tunnel::Vxlan,
        Tunnel::Geneve,
        Tunnel::Gre,
        Tunnel::Erspan,
        Tunnel::IpInIp,
        Tunnel::Mpls,
        Tunnel::Pppoe,
        Tunnel::Gtp,
        Tunnel::Other,
    ];

    /// The name in output and JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Tunnel::Vxlan => "VXLAN",
            Tunnel::Geneve => "GENEVE",
            Tunnel::Gre => "GRE",
            Tunnel::Erspan => "ERSPAN",
            Tunnel::IpInIp => "IP in IP",
            Tunnel::Mpls => "MPLS",
            Tunnel::Pppoe => "PPPoE",
            Tunnel::Gtp => "GTP-U",
            Tunnel::Other => "other",
        }
    }
}

/// The kinds of encapsulation around a packet, each once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tunnels(u16);

impl Tunnels {
    /// Whether the packet is inside of `tunnel`.
    pub fn has(self, tunnel: Tunnel) -> bool {
        self.0 & 1 << tunnel as u16 != 0
    }

    fn add(&mut self, tunnel: Tunnel) {
        self.0 |= 1 << tunnel as u16;
    }
}

/// An unsupported protocol of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Unread {
    /// A protocol over Ethernet, by its EtherType.
    EtherType(u16),
    /// An IEEE 802.2 frame, by its destination service access point.
    Llc(u8),
    /// A protocol over PPP.
    Ppp(u16),
    /// A protocol over IP.
    Protocol(u8),
    /// A UDP datagram, by the smaller of its ports, which usually is the service's.
    Udp(u16),
    /// An address family of BSD loopback that is not IP.
    Family(u16),
    /// A link layer, by its LINKTYPE number.
    Link(u16),
    /// Too many headers.
    Depth,
}

impl LinkType {
    /// Follows `frame`, of which `original_length` bytes were on the wire, to the packet inside.
    ///
    /// # Errors
    /// A header was not captured in full ([`Error::Truncated`]), or is inconsistent with the lengths around it.
    pub fn innermost(self, frame: &[u8], original_length: usize) -> Result<Innermost, Error> {
        walk::walk(self, frame, original_length)
    }
}

/// Maximum number of headers in one frame, labels and tags included. A packet of an overlay network inside another has
/// about ten.
pub const DEPTH_MAX: usize = 24;

#[cfg(test)]
mod tests;
