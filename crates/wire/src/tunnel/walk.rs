//! Follows a frame from header to header.

use super::{DEPTH_MAX, Innermost, Tunnel, Tunnels, Unread};
use crate::link::{ETHERTYPE_IPV4, ETHERTYPE_IPV6, LinkType};
use crate::octets::u16_at;
use crate::{Error, ip, protocol};

/// The kind of the bytes at the walker's position.
#[derive(Clone, Copy)]
enum Next {
    Ethernet,
    /// By an EtherType; a small value is a length, and so IEEE 802.2.
    Typed(u16),
    Ip,
    Mpls,
    Ppp,
    Gre,
    Done(Innermost),
}

/// Follows a frame to its innermost packet.
pub(super) fn walk(link: LinkType, frame: &[u8], original_length: usize) -> Result<Innermost, Error> {
    let mut walk = Walk { frame, at: 0, end: original_length, tunnels: Tunnels::default(), is_fragment: false };
    let mut next = walk.begin(link)?;
    for _ in 0..DEPTH_MAX {
        next = match next {
            Next::Ethernet => walk.ethernet()?,
            Next::Typed(kind) => walk.typed(kind)?,
            Next::Ip => walk.ip()?,
            Next::Mpls => walk.mpls()?,
            Next::Ppp => walk.ppp()?,
            Next::Gre => walk.gre()?,
            Next::Done(innermost) => return Ok(innermost),
        };
    }
    match next {
        Next::Done(innermost) => Ok(innermost),
        _ => Ok(Innermost::Unread(Unread::Depth)),
    }
}

struct Walk<'a> {
    frame: &'a [u8],
    at: usize,
    /// End of the content, by the header around this position.
    end: usize,
    tunnels: Tunnels,
    /// Inside the first fragment of a packet: lengths may exceed it.
    is_fragment: bool,
}

impl<'a> Walk<'a> {
    fn begin(&mut self, link: LinkType) -> Result<Next, Error> {
        Ok(match link {
            LinkType::Ethernet => Next::Ethernet,
            LinkType::RawIp => Next::Ip,
            LinkType::LinuxCooked => Next::Typed(u16_at(self.take("Linux cooked", 16)?, 14..16)),
            LinkType::LinuxCookedV2 => Next::Typed(u16_at(self.take("Linux cooked v2", 20)?, 0..2)),
            LinkType::CiscoHdlc => Next::Typed(u16_at(self.take("Cisco HDLC", 4)?, 2..4)),
            LinkType::Ppp => Next::Ppp,
            LinkType::PppEther => self.pppoe()?,
            LinkType::Mpls => Next::Mpls,
            LinkType::Loopback => match link.payload(self.frame)? {
                crate::link::Payload::Ip(start) => {
                    self.take("loopback", start)?;
                    Next::Ip
                }
                crate::link::Payload::Other(family) => unread(Unread::Family(family)),
            },
        })
    }

    /// The next `length` bytes, which are consumed.
    fn take(&mut self, header: &'static str, length: usize) -> Result<&'a [u8], Error> {
        let needed = self.at + length;
        if needed > self.end {
            return Err(Error::Length { field: header, value: length, available: self.end - self.at });
        }
        let bytes = self.frame.get(self.at..needed);
        let bytes = bytes.ok_or(Error::Truncated { header, needed, available: self.frame.len() })?;
        self.at = needed;
        Ok(bytes)
    }

    /// The next byte, which is not consumed.
    fn peek(&self, header: &'static str) -> Result<u8, Error> {
        let byte = self.frame.get(self.at).copied();
        byte.ok_or(Error::Truncated { header, needed: self.at + 1, available: self.frame.len() })
    }

    fn ethernet(&mut self) -> Result<Next, Error> {
        Ok(Next::Typed(u16_at(self.take("Ethernet", 14)?, 12..14)))
    }

    fn typed(&mut self, kind: u16) -> Result<Next, Error> {
        Ok(match kind {
            ETHERTYPE_IPV4 | ETHERTYPE_IPV6 => Next::Ip,
            0x8100 | 0x88A8 | 0x9100 | 0x9200 => Next::Typed(u16_at(self.take("VLAN tag", 4)?, 2..4)),
            0x8847 | 0x8848 => Next::Mpls,
            0x8864 => self.pppoe()?,
            0x6558 => self.within(Tunnel::Other, Next::Ethernet),
            // 802.1ah: flags and service identifier, then the customer's frame.
            0x88E7 => {
                self.take("I-TAG", 4)?;
                self.within(Tunnel::Other, Next::Ethernet)
            }
            0x8926 => Next::Typed(u16_at(self.take("VN-Tag", 6)?, 4..6)),
            0x893F => Next::Typed(u16_at(self.take("E-TAG", 8)?, 6..8)),
            0x894F => self.nsh()?,
            0x880B => Next::Ppp,
            ..0x0600 => self.llc()?,
            _ => unread(Unread::EtherType(kind)),
        })
    }

    /// IEEE 802.2, of which SNAP (RFC 1042) is followed.
    fn llc(&mut self) -> Result<Next, Error> {
        let head = self.take("LLC", 3)?;
        Ok(match head {
            [0xAA, 0xAA, 3] => {
                let snap = self.take("SNAP", 5)?;
                match &snap[..3] {
                    // The second is that of bridge tunnels (802.1H).
                    [0, 0, 0] | [0, 0, 0xF8] if u16_at(snap, 3..5) >= 0x0600 => Next::Typed(u16_at(snap, 3..5)),
                    _ => unread(Unread::Llc(0xAA)),
                }
            }
            [6, 6, 3] => Next::Ip,
            [sap, ..] => unread(Unread::Llc(*sap)),
            [] => unread(Unread::Llc(0)),
        })
    }

    fn nsh(&mut self) -> Result<Next, Error> {
        let head = self.take("NSH", 8)?;
        let length = usize::from(head[1] & 0x3F) * 4;
        let kind = head[3];
        self.take("NSH", length.saturating_sub(8))?;
        Ok(self.numbered(kind, Unread::EtherType(0x894F)))
    }

    /// Protocol numbers of NSH (RFC 8300), shared by VXLAN-GPE.
    fn numbered(&mut self, kind: u8, otherwise: Unread) -> Next {
        match kind {
            1 | 2 => self.within(Tunnel::Other, Next::Ip),
            3 => self.within(Tunnel::Other, Next::Ethernet),
            4 => Next::Typed(0x894F),
            5 => Next::Mpls,
            _ => unread(otherwise),
        }
    }

    fn pppoe(&mut self) -> Result<Next, Error> {
        let head = self.take("PPPoE", 6)?;
        // Version and type 1; code 0 is a session's data.
        if head[0] != 0x11 || head[1] != 0 {
            return Ok(unread(Unread::EtherType(0x8864)));
        }
        self.shorten(usize::from(u16_at(head, 4..6)), "PPPoE length")?;
        self.tunnels.add(Tunnel::Pppoe);
        Ok(Next::Ppp)
    }

    fn ppp(&mut self) -> Result<Next, Error> {
        if self.peek("PPP")? == 0xFF {
            // Address and control, unless compressed by negotiation (RFC 1662).
            self.take("PPP", 2)?;
        }
        let first = self.peek("PPP")?;
        // The protocol field's first byte is even, its last one odd; a leading zero may be compressed.
        let kind = if first & 1 == 1 {
            self.take("PPP", 1)?;
            u16::from(first)
        } else {
            u16_at(self.take("PPP", 2)?, 0..2)
        };
        Ok(match kind {
            0x0021 | 0x0057 => self.within(Tunnel::Other, Next::Ip),
            0x0281 | 0x0283 => Next::Mpls,
            _ => unread(Unread::Ppp(kind)),
        })
    }

    fn mpls(&mut self) -> Result<Next, Error> {
        self.tunnels.add(Tunnel::Mpls);
        for _ in 0..LABELS_MAX {
            let is_last = self.take("MPLS label", 4)?[2] & 1 == 1;
            if !is_last {
                continue;
            }
            // The protocol behind the last label is known only by its first bits (RFC 4928).
            return Ok(match self.peek("MPLS payload")? >> 4 {
                4 | 6 if self.looks_like_ip() => Next::Ip,
                0 => {
                    self.take("pseudowire control word", 4)?;
                    Next::Ethernet
                }
                1 => unread(Unread::EtherType(0x8847)),
                _ => Next::Ethernet,
            });
        }
        Ok(unread(Unread::Depth))
    }

    /// Whether an IP header is here: an Ethernet address may begin with the same four bits.
    fn looks_like_ip(&self) -> bool {
        let rest = self.frame.get(self.at..).unwrap_or(&[]);
        match ip::Packet::parse(rest, self.available()) {
            Ok(packet) => rest.len() < 20 || packet.protocol != 0 || rest[0] >> 4 == 6,
            // A truncated header cannot be checked.
            Err(error) => matches!(error, Error::Truncated { .. }),
        }
    }

    fn ip(&mut self) -> Result<Next, Error> {
        let start = self.at;
        let rest = self.frame.get(start..).unwrap_or(&[]);
        let mut packet = ip::Packet::parse(rest, self.available())?;
        match packet.fragment {
            Some(fragment) if fragment.offset > 0 => return Ok(Next::Done(Innermost::LaterFragment)),
            Some(_) => self.is_fragment = true,
            None => {}
        }
        self.end = start + packet.total_len;
        self.at = start + packet.transport_at;
        // AH of IPv4; that of IPv6 is an extension header and was skipped.
        for _ in 0..AUTHENTICATIONS_MAX {
            if packet.protocol != AUTHENTICATION {
                break;
            }
            let head = self.take("AH", 12)?;
            let length = (usize::from(head[1]) + 2) * 4;
            self.take("AH", length.saturating_sub(12))?;
            packet.protocol = head[0];
            packet.transport_at = self.at - start;
        }
        Ok(match packet.protocol {
            protocol::TCP => Next::Done(Innermost::Tcp { at: start, packet, tunnels: self.tunnels }),
            protocol::UDP => self.udp(start, packet)?,
            IPV4 | IPV6 => self.within(Tunnel::IpInIp, Next::Ip),
            GRE => Next::Gre,
            MPLS => Next::Mpls,
            ETHER_IP => {
                self.take("EtherIP", 2)?;
                self.within(Tunnel::Other, Next::Ethernet)
            }
            other => unread(Unread::Protocol(other)),
        })
    }

    fn udp(&mut self, start: usize, packet: ip::Packet) -> Result<Next, Error> {
        let head = self.take("UDP", 8)?;
        let (source, destination) = (u16_at(head, 0..2), u16_at(head, 2..4));
        let otherwise = Unread::Udp(source.min(destination));
        match destination {
            // 8472 is Linux's own port, from before the assignment; 4790 is VXLAN-GPE's.
            4789 | 8472 | 4790 => self.vxlan(otherwise),
            6081 => self.geneve(otherwise),
            2152 => self.gtp(otherwise),
            6635 => Ok(Next::Mpls),
            4754 => Ok(Next::Gre),
            _ => Ok(Next::Done(Innermost::Udp { at: start, packet, tunnels: self.tunnels })),
        }
    }

    fn vxlan(&mut self, otherwise: Unread) -> Result<Next, Error> {
        let head = self.take("VXLAN", 8)?;
        // The network identifier is always present; with the P flag a byte names the next protocol.
        if head[0] & 0x08 == 0 {
            return Ok(unread(otherwise));
        }
        self.tunnels.add(Tunnel::Vxlan);
        Ok(if head[0] & 0x04 == 0 { Next::Ethernet } else { self.numbered(head[3], otherwise) })
    }

    fn geneve(&mut self, otherwise: Unread) -> Result<Next, Error> {
        let head = self.take("GENEVE", 8)?;
        if head[0] >> 6 != 0 {
            return Ok(unread(otherwise));
        }
        self.take("GENEVE options", usize::from(head[0] & 0x3F) * 4)?;
        Ok(match u16_at(head, 2..4) {
            0x6558 => self.within(Tunnel::Geneve, Next::Ethernet),
            kind => self.within(Tunnel::Geneve, Next::Typed(kind)),
        })
    }

    fn gtp(&mut self, otherwise: Unread) -> Result<Next, Error> {
        let head = self.take("GTP-U", 8)?;
        // Version 1, and a user's packet.
        if head[0] >> 4 != 3 || head[1] != 255 {
            return Ok(unread(otherwise));
        }
        if head[0] & 7 != 0 {
            let mut next = self.take("GTP-U options", 4)?[3];
            for _ in 0..GTP_EXTENSIONS_MAX {
                if next == 0 {
                    break;
                }
                let length = usize::from(self.peek("GTP-U extension")?) * 4;
                let extension = self.take("GTP-U extension", length.max(4))?;
                next = extension[extension.len() - 1];
            }
        }
        Ok(self.within(Tunnel::Gtp, Next::Ip))
    }

    fn gre(&mut self) -> Result<Next, Error> {
        let head = self.take("GRE", 4)?;
        let (flags, kind) = (u16_at(head, 0..2), u16_at(head, 2..4));
        let has = |flag: u16| flags & flag != 0;
        // Source routing was removed in 2000 (RFC 2784); versions beyond 1 do not exist.
        if has(0x4000) || flags & 7 > 1 {
            return Ok(unread(Unread::Protocol(GRE)));
        }
        let options = [has(0x8000), has(0x2000), has(0x1000), flags & 7 == 1 && has(0x0080)];
        self.take("GRE options", 4 * options.into_iter().filter(|is_there| *is_there).count())?;
        Ok(match kind {
            // Type II has a header and numbers its packets, type I has neither.
            0x88BE => {
                self.take("ERSPAN", if has(0x1000) { 8 } else { 0 })?;
                self.within(Tunnel::Erspan, Next::Ethernet)
            }
            0x22EB => {
                let is_longer = self.take("ERSPAN", 12)?[11] & 1 == 1;
                self.take("ERSPAN", if is_longer { 8 } else { 0 })?;
                self.within(Tunnel::Erspan, Next::Ethernet)
            }
            // WCCP: version 2 puts four bytes before the packet.
            0x883E => {
                if self.peek("WCCP")? >> 4 != 4 {
                    self.take("WCCP", 4)?;
                }
                self.within(Tunnel::Gre, Next::Ip)
            }
            0x6558 => self.within(Tunnel::Gre, Next::Ethernet),
            kind => self.within(Tunnel::Gre, Next::Typed(kind)),
        })
    }

    fn within(&mut self, tunnel: Tunnel, next: Next) -> Next {
        if tunnel != Tunnel::Other || self.tunnels == Tunnels::default() {
            self.tunnels.add(tunnel);
        }
        next
    }

    /// Limits the content to `length` bytes, by the header just consumed.
    fn shorten(&mut self, length: usize, field: &'static str) -> Result<(), Error> {
        let available = self.end - self.at;
        if length > available && !self.is_fragment {
            return Err(Error::Length { field, value: length, available });
        }
        self.end = self.at + length;
        Ok(())
    }

    /// Maximum length of an IP packet at this position.
    fn available(&self) -> usize {
        let available = self.end - self.at;
        if self.is_fragment { available.max(usize::from(u16::MAX)) } else { available }
    }
}

fn unread(what: Unread) -> Next {
    Next::Done(Innermost::Unread(what))
}

const IPV4: u8 = 4;
const IPV6: u8 = 41;
const GRE: u8 = 47;
const AUTHENTICATION: u8 = 51;
const ETHER_IP: u8 = 97;
const MPLS: u8 = 137;
/// More labels than any network stacks.
const LABELS_MAX: usize = 16;
const AUTHENTICATIONS_MAX: usize = 4;
const GTP_EXTENSIONS_MAX: usize = 8;
