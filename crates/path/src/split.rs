//! Super-packets: one TCP segment, or several UDP datagrams, of up to 64 KB that the kernel did not divide into wire
//! packets.
//!
//! ```text
//!   vnet | IP | TCP | payload ....................        gso_size = MSS
//!   vnet'| IP'| TCP'| first MSS    vnet'| IP'| TCP'| next MSS   ...   | the rest
//! ```
//! Of UDP every piece is a datagram of the sender.
//!
//! Loss, rate and queue act on wire packets. A super-packet that is lost as one, or sent as one, would emulate another
//! network: at 1 % loss it gives a quarter too much goodput. So links with any such effect cut their super-packets
//! here, as the kernel's own segmentation does: total length, IPv4 identification counting up, sequence number, FIN and
//! PSH on the last segment only, CWR on the first only, UDP lengths, checksums.

use wire::{checksum, ipv4, ipv6, protocol, tcp, udp, vnet};

/// A checked super-packet, without its vnet header.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SuperPacket<'a> {
    packet: &'a [u8],
    vnet: vnet::Header,
    version: Version,
    /// [`protocol::TCP`] or [`protocol::UDP`].
    protocol: u8,
    /// Where the header of TCP or UDP starts.
    transport: usize,
    /// Offset of the payload: the length of the headers of every segment.
    payload: usize,
    /// Payload bytes of every segment but the last; at least 1.
    size: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Version {
    V4,
    V6,
}

impl<'a> SuperPacket<'a> {
    /// Parses `packet`, whose vnet header announces GSO, as a super-packet. `None` for another kind of GSO, no
    /// segment size, another protocol or version than announced, a fragment, inconsistent lengths, or a partial
    /// checksum outside of the header of TCP or UDP.
    pub(crate) fn new_checked(vnet: vnet::Header, packet: &'a [u8]) -> Option<Self> {
        let is_v6 = packet.first()? >> 4 == 6;
        let (version, protocol) = match vnet.gso() {
            vnet::GSO_TCPV4 => (Version::V4, protocol::TCP),
            vnet::GSO_TCPV6 => (Version::V6, protocol::TCP),
            vnet::GSO_UDP if is_v6 => (Version::V6, protocol::UDP),
            vnet::GSO_UDP => (Version::V4, protocol::UDP),
            _ => return None,
        };
        let (carried, transport, total) = match version {
            Version::V4 => {
                let ip = ipv4::Packet::new_checked(packet).ok().filter(|ip| !ip.is_fragment())?;
                (ip.protocol(), ip.header_len(), ip.total_len())
            }
            Version::V6 => {
                let ip = ipv6::Packet::new_checked(packet).ok()?;
                let (carried, transport) = ip.transport()?;
                (carried, transport, ip.total_len())
            }
        };
        let packet = packet.get(..total).filter(|_| carried == protocol)?;
        let (header, checksum) = match protocol {
            protocol::TCP => {
                (tcp::Segment::new_checked(packet.get(transport..)?).ok()?.header_len(), tcp::CHECKSUM_OFFSET)
            }
            _ => {
                udp::Datagram::new_checked(packet.get(transport..)?).ok()?;
                (udp::HEADER, udp::CHECKSUM_OFFSET)
            }
        };
        let partial_elsewhere = vnet.needs_checksum()
            && (usize::from(vnet.csum_start), usize::from(vnet.csum_offset)) != (transport, checksum);
        if vnet.gso_size == 0 || partial_elsewhere {
            return None;
        }
        let payload = transport + header;
        Some(SuperPacket { packet, vnet, version, protocol, transport, payload, size: usize::from(vnet.gso_size) })
    }

    /// Number of wire packets; at least 1.
    #[inline]
    pub(crate) fn segments(&self) -> u32 {
        (self.packet.len() - self.payload).div_ceil(self.size).max(1) as u32
    }

    /// IP bytes of all its wire packets together.
    #[inline]
    pub(crate) fn wire_bytes(&self) -> u32 {
        (self.packet.len() - self.payload) as u32 + self.segments() * self.payload as u32
    }

    /// IP bytes of wire packet `number`, counted from 0.
    #[inline]
    pub(crate) fn segment_len(&self, number: u32) -> usize {
        let from = self.from(number);
        self.payload + self.packet.len().min(from + self.size) - from
    }

    /// Writes wire packet `number` with its vnet header into `frame`, which must be as long as both.
    pub(crate) fn write_segment(&self, number: u32, frame: &mut [u8]) {
        let (header, packet) = frame.split_at_mut(vnet::LEN);
        header.copy_from_slice(&self.segment_vnet().to_bytes());
        let from = self.from(number);
        let (headers, payload) = packet.split_at_mut(self.payload);
        headers.copy_from_slice(&self.packet[..self.payload]);
        payload.copy_from_slice(&self.packet[from..from + payload.len()]);
        self.rewrite_network(number, packet);
        self.rewrite_transport(number, packet);
    }

    fn from(&self, number: u32) -> usize {
        self.payload + number as usize * self.size
    }

    fn segment_vnet(&self) -> vnet::Header {
        vnet::Header { gso_type: vnet::GSO_NONE, gso_size: 0, hdr_len: 0, ..self.vnet }
    }

    fn rewrite_network(&self, number: u32, packet: &mut [u8]) {
        match self.version {
            Version::V4 => {
                let mut ip = ipv4::Packet::new_resized(packet).expect("headers checked before the cut");
                ip.set_identification(ip.identification().wrapping_add(number as u16));
                ip.fill_checksum();
            }
            Version::V6 => {
                ipv6::Packet::new_resized(packet).expect("headers checked before the cut");
            }
        }
    }

    fn rewrite_transport(&self, number: u32, packet: &mut [u8]) {
        let transport = &mut packet[self.transport..];
        let length = transport.len() as u16;
        if self.protocol == protocol::UDP {
            let mut datagram = udp::Datagram::new_resized(&mut *transport).expect("headers checked before the cut");
            let before = datagram.checksum();
            if before == 0 && !self.vnet.needs_checksum() {
                // The sender computed none.
                return;
            }
            datagram.set_checksum(0);
            let checksum = match self.checksum(before, length, || self.pseudo_sum(length).bytes(transport).checksum()) {
                0 if !self.vnet.needs_checksum() => 0xFFFF,
                checksum => checksum,
            };
            udp::Datagram::new_checked(transport).expect("checked above").set_checksum(checksum);
            return;
        }
        let mut segment = tcp::Segment::new_checked(&mut *transport).expect("headers checked before the cut");
        let offset = number.wrapping_mul(self.size as u32);
        segment.set_sequence(segment.sequence().wrapping_add(offset));
        let mut flags = segment.flags();
        if number + 1 < self.segments() {
            flags &= !(tcp::flags::FIN | tcp::flags::PSH);
        }
        if number > 0 {
            flags &= !tcp::flags::CWR;
        }
        segment.set_flags(flags);
        let before = segment.checksum();
        segment.set_checksum(0);
        let checksum = self.checksum(before, length, || self.pseudo_sum(length).bytes(transport).checksum());
        tcp::Segment::new_checked(transport).expect("checked above").set_checksum(checksum);
    }

    /// The checksum of a segment of `length` bytes, of which the super-packet's was `before`.
    fn checksum(&self, before: u16, length: u16, whole: impl FnOnce() -> u16) -> u16 {
        if self.vnet.needs_checksum() {
            // The field holds the sum of the pseudo-header, of which only the length has changed (RFC 1624).
            let of_all = (self.packet.len() - self.transport) as u16;
            checksum::adjust_partial(before, of_all, length)
        } else {
            whole()
        }
    }

    /// The sum of the pseudo-header of a segment of `length` bytes.
    fn pseudo_sum(&self, length: u16) -> checksum::Sum {
        match self.version {
            Version::V4 => ipv4::Packet::new_checked(self.packet).map(|ip| ip.pseudo_sum(self.protocol, length)),
            Version::V6 => {
                ipv6::Packet::new_checked(self.packet).map(|ip| ip.pseudo_sum(self.protocol, u32::from(length)))
            }
        }
        .expect("headers checked before the cut")
    }
}

#[cfg(test)]
mod tests;
