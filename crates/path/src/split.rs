//! Super-packets: one TCP segment of up to 64 KB that the kernel did not segment into wire packets.
//!
//! ```text
//!   vnet | IP | TCP | payload ....................        gso_size = MSS
//!   vnet'| IP'| TCP'| first MSS    vnet'| IP'| TCP'| next MSS   ...   | the rest
//! ```
//! Loss, rate and queue act on wire packets. A super-packet that is lost as one, or sent as one, would emulate another
//! network: at 1 % loss it gives a quarter too much goodput. So links with any such effect cut their super-packets
//! here, as the kernel's own segmentation does: total length, IPv4 identification counting up, sequence number, FIN and
//! PSH on the last segment only, CWR on the first only, checksums.

use wire::{checksum, ipv4, ipv6, protocol, tcp, vnet};

/// A checked TCP super-packet, without its vnet header.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SuperPacket<'a> {
    packet: &'a [u8],
    vnet: vnet::Header,
    version: Version,
    /// Where the TCP header starts.
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
    /// Parses `packet`, whose vnet header announces GSO, as a TCP super-packet. `None` for another kind of GSO, no
    /// segment size, another protocol or version than announced, a fragment, inconsistent lengths, or a partial
    /// checksum outside of the TCP header.
    pub(crate) fn new_checked(vnet: vnet::Header, packet: &'a [u8]) -> Option<Self> {
        let (version, transport, total) = match vnet.gso() {
            vnet::GSO_TCPV4 => {
                let ip = ipv4::Packet::new_checked(packet).ok()?;
                if ip.protocol() != protocol::TCP || ip.is_fragment() {
                    return None;
                }
                (Version::V4, ip.header_len(), ip.total_len())
            }
            vnet::GSO_TCPV6 => {
                let ip = ipv6::Packet::new_checked(packet).ok()?;
                let (transport_protocol, transport) = ip.transport()?;
                if transport_protocol != protocol::TCP {
                    return None;
                }
                (Version::V6, transport, ip.total_len())
            }
            _ => return None,
        };
        let packet = packet.get(..total)?;
        let segment = tcp::Segment::new_checked(packet.get(transport..)?).ok()?;
        let partial_elsewhere = vnet.needs_checksum()
            && (usize::from(vnet.csum_start), usize::from(vnet.csum_offset)) != (transport, tcp::CHECKSUM_OFFSET);
        if vnet.gso_size == 0 || partial_elsewhere {
            return None;
        }
        let payload = transport + segment.header_len();
        Some(SuperPacket { packet, vnet, version, transport, payload, size: usize::from(vnet.gso_size) })
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
        let whole = (self.packet.len() - self.transport) as u16;
        let transport = &mut packet[self.transport..];
        let length = transport.len() as u16;
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
        if self.vnet.needs_checksum() {
            // The field holds the sum of the pseudo-header, of which only the length has changed (RFC 1624).
            segment.set_checksum(checksum::adjust_partial(segment.checksum(), whole, length));
        } else {
            segment.set_checksum(0);
            let checksum = self.pseudo_sum(length).bytes(transport).checksum();
            tcp::Segment::new_checked(transport).expect("checked above").set_checksum(checksum);
        }
    }

    /// The sum of the pseudo-header of a segment of `length` bytes.
    fn pseudo_sum(&self, length: u16) -> checksum::Sum {
        match self.version {
            Version::V4 => ipv4::Packet::new_checked(self.packet).map(|ip| ip.pseudo_sum(protocol::TCP, length)),
            Version::V6 => {
                ipv6::Packet::new_checked(self.packet).map(|ip| ip.pseudo_sum(protocol::TCP, u32::from(length)))
            }
        }
        .expect("headers checked before the cut")
    }
}

#[cfg(test)]
mod tests;
