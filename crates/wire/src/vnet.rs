//! The header that a TUN device with IFF_VNET_HDR puts before every packet (`struct virtio_net_hdr`).
//!
//! It describes work that the kernel has left undone: a partial checksum, or a super-packet of up to 64 KB to be
//! segmented. Numbers are in the byte order of the machine, the default of TUN. Source: Linux
//! `include/uapi/linux/virtio_net.h`; virtio 1.2, section 5.1.6.

/// Length of the header.
pub const LEN: usize = 10;

/// `flags`: the checksum field holds the sum of the pseudo-header only; see [`Header::csum_start`].
pub const NEEDS_CSUM: u8 = 1;
/// `flags`: the checksum was verified already.
pub const DATA_VALID: u8 = 2;

/// `gso_type`: one packet.
pub const GSO_NONE: u8 = 0;
/// `gso_type`: TCP over IPv4, to be cut into segments of `gso_size`.
pub const GSO_TCPV4: u8 = 1;
/// `gso_type`: TCP over IPv6, to be cut into segments of `gso_size`.
pub const GSO_TCPV6: u8 = 4;
/// `gso_type`: UDP over IPv4 or IPv6, to be divided into datagrams of `gso_size` (Linux 6.2).
pub const GSO_UDP: u8 = 5;
/// `gso_type`, added to another: the segments carry ECN.
pub const GSO_ECN: u8 = 0x80;

/// The header's values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Header {
    /// [`NEEDS_CSUM`], [`DATA_VALID`].
    pub flags: u8,
    /// [`GSO_NONE`], [`GSO_TCPV4`], [`GSO_TCPV6`], [`GSO_UDP`], optionally with [`GSO_ECN`].
    pub gso_type: u8,
    /// Length of the headers of every segment: a hint of the sender, not reliable.
    pub hdr_len: u16,
    /// Payload bytes of every segment but the last.
    pub gso_size: u16,
    /// With [`NEEDS_CSUM`]: where summing starts, in bytes from the start of the IP packet.
    pub csum_start: u16,
    /// With [`NEEDS_CSUM`]: where the checksum goes, in bytes from `csum_start`.
    pub csum_offset: u16,
}

impl Header {
    /// Splits a frame into its header and the packet; `None` when it is shorter than a header.
    pub fn split(frame: &[u8]) -> Option<(Header, &[u8])> {
        let (bytes, packet) = frame.split_first_chunk::<LEN>()?;
        let number = |at: usize| u16::from_ne_bytes([bytes[at], bytes[at + 1]]);
        let header = Header {
            flags: bytes[0],
            gso_type: bytes[1],
            hdr_len: number(2),
            gso_size: number(4),
            csum_start: number(6),
            csum_offset: number(8),
        };
        Some((header, packet))
    }

    /// The bytes of the header.
    pub fn to_bytes(self) -> [u8; LEN] {
        let mut bytes = [0; LEN];
        bytes[0] = self.flags;
        bytes[1] = self.gso_type;
        for (at, number) in [(2, self.hdr_len), (4, self.gso_size), (6, self.csum_start), (8, self.csum_offset)] {
            bytes[at..at + 2].copy_from_slice(&number.to_ne_bytes());
        }
        bytes
    }

    /// True when the checksum is still to be completed.
    pub fn needs_checksum(&self) -> bool {
        self.flags & NEEDS_CSUM != 0
    }

    /// The GSO type without the ECN mark.
    pub fn gso(&self) -> u8 {
        self.gso_type & !GSO_ECN
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn vnet_header_reads_back(bytes: [u8; LEN], packet in prop::collection::vec(any::<u8>(), 0..9)) {
            let frame = [&bytes[..], &packet].concat();
            let (header, rest) = Header::split(&frame).unwrap();
            prop_assert_eq!(header.to_bytes(), bytes);
            prop_assert_eq!(rest, packet);
        }
    }

    #[test]
    fn frame_shorter_than_its_vnet_header_is_none() {
        assert_eq!(Header::split(&[0; 9]), None);
        assert_eq!(Header::split(&[0; 10]), Some((Header::default(), &[][..])));
    }
}
