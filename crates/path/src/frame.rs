//! Classification of a frame: its client, and its size in wire packets.

use std::net::IpAddr;

use schema::{Direction, DropCause};
use wire::{ipv4, ipv6, vnet};

use crate::split::SuperPacket;

/// A parsed frame from a TUN device.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Frame<'a> {
    /// The client's address: the source going up, the destination going down.
    pub client: IpAddr,
    pub wire: OnWire,
    /// Set when the kernel left the segmentation into wire packets to the device.
    pub super_packet: Option<SuperPacket<'a>>,
}

/// The size of a frame in wire packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OnWire {
    pub packets: u32,
    /// IP bytes.
    pub bytes: u32,
}

/// The longest frame: a vnet header and the longest IPv6 packet, whose payload length does not include its header.
pub(crate) const FRAME_MAX: usize = vnet::LEN + ipv6::HEADER + 65_535;

impl OnWire {
    /// One wire packet.
    #[inline]
    pub(crate) fn one(bytes: usize) -> Self {
        OnWire { packets: 1, bytes: bytes as u32 }
    }

    /// The count for a frame that cannot be parsed: one packet of all its bytes.
    pub(crate) fn unknown(frame: &[u8]) -> Self {
        OnWire::one(frame.len().saturating_sub(vnet::LEN))
    }
}

impl<'a> Frame<'a> {
    /// Reads the headers of `frame`.
    ///
    /// # Errors
    /// `Malformed` when it is not an IP packet of at most [`FRAME_MAX`] bytes or not the super-packet that its vnet
    /// header announces.
    #[inline]
    pub(crate) fn parse(direction: Direction, frame: &'a [u8]) -> Result<Self, DropCause> {
        let (vnet, packet) =
            vnet::Header::split(frame).filter(|_| frame.len() <= FRAME_MAX).ok_or(DropCause::Malformed)?;
        let (client, length) = if packet.first().is_some_and(|byte| byte >> 4 == 6) {
            let ip = ipv6::Packet::new_checked(packet).map_err(|_| DropCause::Malformed)?;
            let client = match direction {
                Direction::Up => ip.source(),
                Direction::Down => ip.destination(),
            };
            (IpAddr::V6(client), ip.total_len())
        } else {
            let ip = ipv4::Packet::new_checked(packet).map_err(|_| DropCause::Malformed)?;
            let client = match direction {
                Direction::Up => ip.source(),
                Direction::Down => ip.destination(),
            };
            (IpAddr::V4(client), ip.total_len())
        };
        if vnet.gso() == vnet::GSO_NONE {
            return Ok(Frame { client, wire: OnWire::one(length), super_packet: None });
        }
        let whole = SuperPacket::new_checked(vnet, packet).ok_or(DropCause::Malformed)?;
        let wire = OnWire { packets: whole.segments(), bytes: whole.wire_bytes() };
        Ok(Frame { client, wire, super_packet: Some(whole) })
    }
}
