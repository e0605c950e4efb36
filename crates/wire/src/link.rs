//! Link layers of captures, and the offset of the IP packet in each.
//!
//! Numbers are libpcap's LINKTYPE values (the tcpdump group's registry). Stacked VLAN tags are skipped; a protocol
//! other than IP is returned as [`Payload::Other`].

use crate::Error;
use crate::octets::u16_at;

/// The first header of a captured frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LinkType {
    /// BSD loopback: four bytes of address family in the byte order of the machine (0, and 108 in network order).
    Loopback,
    /// Ethernet II, optionally with VLAN tags (1).
    Ethernet,
    /// An IP packet without link header, version 4 or 6 (101; 12 and 14 in old files; 228 and 229 for one version).
    RawIp,
    /// Linux cooked capture, version 1: 16 bytes (113).
    LinuxCooked,
    /// Linux cooked capture, version 2: 20 bytes (276).
    LinuxCookedV2,
    /// PPP, optionally in HDLC framing (9, 50).
    Ppp,
    /// A PPPoE session's header and PPP (51).
    PppEther,
    /// Cisco HDLC (104).
    CiscoHdlc,
    /// MPLS labels (219).
    Mpls,
}

/// The payload of a frame, and its offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Payload {
    /// An IP packet starts at this offset; its version is in its first byte.
    Ip(usize),
    /// A frame of another protocol (its EtherType, or address family for loopback), which may contain an IP packet: see
    /// [`crate::tunnel`].
    Other(u16),
}

/// EtherType of IPv4.
pub const ETHERTYPE_IPV4: u16 = 0x0800;
/// EtherType of IPv6.
pub const ETHERTYPE_IPV6: u16 = 0x86DD;

impl LinkType {
    /// From the number in a capture file; `None` for an unsupported link layer.
    pub fn from_number(number: u16) -> Option<LinkType> {
        match number {
            0 | 108 => Some(LinkType::Loopback),
            1 => Some(LinkType::Ethernet),
            12 | 14 | 101 | 228 | 229 => Some(LinkType::RawIp),
            113 => Some(LinkType::LinuxCooked),
            276 => Some(LinkType::LinuxCookedV2),
            9 | 50 => Some(LinkType::Ppp),
            51 => Some(LinkType::PppEther),
            104 => Some(LinkType::CiscoHdlc),
            219 => Some(LinkType::Mpls),
            _ => None,
        }
    }

    /// The number written into capture files.
    pub fn number(self) -> u16 {
        match self {
            LinkType::Loopback => 0,
            LinkType::Ethernet => 1,
            LinkType::RawIp => 101,
            LinkType::LinuxCooked => 113,
            LinkType::LinuxCookedV2 => 276,
            LinkType::Ppp => 9,
            LinkType::PppEther => 51,
            LinkType::CiscoHdlc => 104,
            LinkType::Mpls => 219,
        }
    }

    /// Finds the payload of `frame`.
    ///
    /// # Errors
    /// The frame, or its part within the snaplen, ends inside the link header.
    #[inline]
    pub fn payload(self, frame: &[u8]) -> Result<Payload, Error> {
        match self {
            LinkType::RawIp => Ok(Payload::Ip(0)),
            LinkType::Ethernet => {
                need("Ethernet", frame, 14)?;
                after_tags(frame, u16_at(frame, 12..14), 14)
            }
            LinkType::LinuxCooked => {
                need("Linux cooked", frame, 16)?;
                after_tags(frame, u16_at(frame, 14..16), 16)
            }
            LinkType::LinuxCookedV2 => {
                need("Linux cooked v2", frame, 20)?;
                after_tags(frame, u16_at(frame, 0..2), 20)
            }
            LinkType::CiscoHdlc => {
                need("Cisco HDLC", frame, 4)?;
                after_tags(frame, u16_at(frame, 2..4), 4)
            }
            LinkType::Ppp | LinkType::PppEther => Ok(Payload::Other(0x880B)),
            LinkType::Mpls => Ok(Payload::Other(0x8847)),
            LinkType::Loopback => {
                need("loopback", frame, 4)?;
                let family = u32::from_le_bytes([frame[0], frame[1], frame[2], frame[3]]);
                // Written in the byte order of the capturing machine; the families in use are all below 256.
                let family = if family > 0xFFFF { family.swap_bytes() } else { family };
                match family {
                    2 | 10 | 24 | 28 | 30 => Ok(Payload::Ip(4)),
                    other => Ok(Payload::Other(other as u16)),
                }
            }
        }
    }
}

/// Skips VLAN tags (802.1Q, 802.1ad and its predecessor 0x9100) from the tag protocol or EtherType `kind`, whose value
/// starts at `at`.
#[inline]
fn after_tags(frame: &[u8], mut kind: u16, mut at: usize) -> Result<Payload, Error> {
    while matches!(kind, 0x8100 | 0x88A8 | 0x9100) {
        need("VLAN tag", frame, at + 4)?;
        kind = u16_at(frame, at + 2..at + 4);
        at += 4;
    }
    match kind {
        ETHERTYPE_IPV4 | ETHERTYPE_IPV6 => Ok(Payload::Ip(at)),
        other => Ok(Payload::Other(other)),
    }
}

#[inline]
fn need(header: &'static str, frame: &[u8], needed: usize) -> Result<(), Error> {
    if frame.len() < needed { Err(Error::Truncated { header, needed, available: frame.len() }) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(zeros: usize, rest: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0; zeros];
        bytes.extend(rest);
        bytes
    }

    #[test]
    fn ip_is_found_behind_every_link_layer() {
        assert_eq!(LinkType::Ethernet.payload(&frame(12, &[8, 0, 0x45])), Ok(Payload::Ip(14)));
        assert_eq!(LinkType::Ethernet.payload(&frame(12, &[0x86, 0xDD])), Ok(Payload::Ip(14)));
        assert_eq!(LinkType::Ethernet.payload(&frame(12, &[8, 6])), Ok(Payload::Other(0x0806)));
        assert_eq!(LinkType::LinuxCooked.payload(&frame(14, &[8, 0])), Ok(Payload::Ip(16)));
        assert_eq!(LinkType::LinuxCookedV2.payload(&[&[8u8, 0][..], &[0; 18]].concat()), Ok(Payload::Ip(20)));
        assert_eq!(LinkType::RawIp.payload(&[]), Ok(Payload::Ip(0)));
        assert_eq!(LinkType::Loopback.payload(&[2, 0, 0, 0]), Ok(Payload::Ip(4)));
        assert_eq!(LinkType::Loopback.payload(&[0, 0, 0, 30]), Ok(Payload::Ip(4)));
        assert_eq!(LinkType::Loopback.payload(&[7, 0, 0, 0]), Ok(Payload::Other(7)));
    }

    #[test]
    fn stacked_vlan_tags_are_skipped_within_the_frame_only() {
        let tagged = frame(12, &[0x88, 0xA8, 0, 1, 0x81, 0, 0, 2, 8, 0]);
        assert_eq!(LinkType::Ethernet.payload(&tagged), Ok(Payload::Ip(22)));
        assert!(LinkType::Ethernet.payload(&tagged[..21]).is_err());
        assert!(LinkType::Ethernet.payload(&tagged[..13]).is_err());
    }

    #[test]
    fn link_type_numbers_round_trip() {
        for link in [
            LinkType::Loopback,
            LinkType::Ethernet,
            LinkType::RawIp,
            LinkType::LinuxCooked,
            LinkType::LinuxCookedV2,
            LinkType::Ppp,
            LinkType::PppEther,
            LinkType::CiscoHdlc,
            LinkType::Mpls,
        ] {
            assert_eq!(LinkType::from_number(link.number()), Some(link));
        }
        assert_eq!(LinkType::from_number(147), None);
    }
}
