//! QUIC packets as far as an observer without keys can read them (RFC 8999, RFC 9000 section 17, RFC 9369).
//!
//! ```text
//!   long header    1 | type .. | version (4) | length, destination ID | length, source ID | by type: token, length ..
//!   short header   0 | spin bit .. | destination ID, whose length only its owner knows | encrypted
//! ```
//!
//! Several packets may share a datagram: all but the last have a long header with a length.

/// A connection ID: at most 20 bytes in versions 1 and 2.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectionId {
    length: u8,
    bytes: [u8; CONNECTION_ID_MAX],
}

impl ConnectionId {
    /// The ID of these bytes; `None` if there are more than 20.
    pub fn new(id: &[u8]) -> Option<ConnectionId> {
        let mut bytes = [0; CONNECTION_ID_MAX];
        bytes.get_mut(..id.len())?.copy_from_slice(id);
        Some(ConnectionId { length: id.len() as u8, bytes })
    }

    /// Its bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.length)]
    }

    /// Number of its bytes: 0 to 20.
    pub fn len(&self) -> usize {
        self.length.into()
    }

    /// Whether it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }
}

impl std::fmt::Debug for ConnectionId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.as_bytes().iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// Whether a datagram or packet begins with a long header.
#[inline]
pub fn is_long(first: u8) -> bool {
    first & 0x80 != 0
}

/// The part of a long header that every version has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LongHeader {
    /// The first byte; its low bits may be protected.
    pub first: u8,
    /// Version; 0 for version negotiation.
    pub version: u32,
    /// Destination connection ID.
    pub destination: ConnectionId,
    /// Source connection ID.
    pub source: ConnectionId,
    /// Offset just past it.
    pub end: usize,
}

impl LongHeader {
    /// Parses the header at the start of `packet`; `None` if it is not one, or not complete, or has an ID of more than
    /// 20 bytes.
    pub fn parse(packet: &[u8]) -> Option<LongHeader> {
        let (&first, rest) = packet.split_first().filter(|(first, _)| is_long(**first))?;
        let (version, rest) = rest.split_first_chunk::<4>()?;
        let (destination, rest) = id(rest)?;
        let (source, rest) = id(rest)?;
        let end = packet.len() - rest.len();
        Some(LongHeader { first, version: u32::from_be_bytes(*version), destination, source, end })
    }

    /// The type of the packet; `None` in versions whose types are unknown.
    pub fn kind(&self) -> Option<LongKind> {
        let code = self.first >> 4 & 3;
        match self.version {
            0 => None,
            VERSION_2 => Some([LongKind::Retry, LongKind::Initial, LongKind::ZeroRtt, LongKind::Handshake]),
            VERSION_1 => Some([LongKind::Initial, LongKind::ZeroRtt, LongKind::Handshake, LongKind::Retry]),
            _ => None,
        }
        .map(|kinds| kinds[usize::from(code)])
    }
}

/// Types of packets with a long header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LongKind {
    /// Initial: the first flight, protected with public keys.
    Initial,
    /// 0-RTT data.
    ZeroRtt,
    /// Handshake.
    Handshake,
    /// Retry: the server asks the client to prove its address.
    Retry,
}

/// The part of an Initial, 0-RTT or Handshake packet behind [`LongHeader`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LongBody<'a> {
    /// The token of an Initial packet.
    pub token: &'a [u8],
    /// Offset in the packet of the packet number, which is protected.
    pub number_at: usize,
    /// Length of packet number and protected payload; the packet ends there.
    pub length: usize,
}

impl<'a> LongBody<'a> {
    /// Parses the part behind `header` of `packet`, of which `on_wire` bytes were in the datagram from its start.
    /// `None` if it was not captured, or exceeds the datagram.
    pub fn parse(packet: &'a [u8], header: &LongHeader, kind: LongKind, on_wire: usize) -> Option<LongBody<'a>> {
        let mut rest = packet.get(header.end..)?;
        let mut token: &[u8] = &[];
        if kind == LongKind::Initial {
            let length = usize::try_from(varint(&mut rest)?).ok()?;
            (token, rest) = rest.split_at_checked(length)?;
        }
        let length = usize::try_from(varint(&mut rest)?).ok()?;
        let number_at = packet.len() - rest.len();
        (length <= on_wire.checked_sub(number_at)?).then_some(LongBody { token, number_at, length })
    }
}

/// Reads an integer of variable length (RFC 9000, section 16) and shortens `bytes` by it; `None` if it is incomplete.
pub fn varint(bytes: &mut &[u8]) -> Option<u64> {
    let &first = bytes.first()?;
    let length = 1usize << (first >> 6);
    let (number, rest) = bytes.split_at_checked(length)?;
    *bytes = rest;
    Some(number[1..].iter().fold(u64::from(first & 0x3F), |value, &byte| value << 8 | u64::from(byte)))
}

/// Whether a version is reserved to exercise version negotiation (RFC 9000, section 15).
pub fn is_reserved(version: u32) -> bool {
    version & 0x0F0F_0F0F == 0x0A0A_0A0A
}

fn id(bytes: &[u8]) -> Option<(ConnectionId, &[u8])> {
    let (&length, rest) = bytes.split_first()?;
    let (id, rest) = rest.split_at_checked(length.into())?;
    Some((ConnectionId::new(id)?, rest))
}

/// RFC 9000.
pub const VERSION_1: u32 = 1;
/// RFC 9369.
pub const VERSION_2: u32 = 0x6B33_43CF;
/// Bytes of the longest connection ID.
pub const CONNECTION_ID_MAX: usize = 20;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn integers_of_the_standard_are_decoded() {
        // RFC 9000, appendix A.1.
        for (mut bytes, value) in [
            (&[0xC2, 0x19, 0x7C, 0x5E, 0xFF, 0x14, 0xE8, 0x8C][..], 151_288_809_941_952_652),
            (&[0x9D, 0x7F, 0x3E, 0x7D], 494_878_333),
            (&[0x7B, 0xBD], 15_293),
            (&[0x25], 37),
            (&[0x40, 0x25], 37),
        ] {
            assert_eq!(varint(&mut bytes), Some(value));
            assert!(bytes.is_empty());
        }
        assert_eq!(varint(&mut &[0x40][..]), None);
        assert_eq!(varint(&mut &[][..]), None);
    }

    #[test]
    fn long_header_ends_behind_its_ids_and_its_kind_depends_on_the_version() {
        let mut packet = vec![0xC3, 0, 0, 0, 1, 2, 7, 8, 1, 9, 0, 0x41, 0];
        let header = LongHeader::parse(&packet).unwrap();
        assert_eq!((header.destination.as_bytes(), header.source.as_bytes()), (&[7, 8][..], &[9][..]));
        assert_eq!((header.end, header.kind()), (10, Some(LongKind::Initial)));
        let body = LongBody::parse(&packet, &header, LongKind::Initial, 13 + 256).unwrap();
        assert_eq!((body.token, body.number_at, body.length), (&[][..], 13, 256));
        assert_eq!(LongBody::parse(&packet, &header, LongKind::Initial, 13 + 255), None);
        packet[1..5].copy_from_slice(&VERSION_2.to_be_bytes());
        assert_eq!(LongHeader::parse(&packet).unwrap().kind(), Some(LongKind::Retry));
        for length in 0..10 {
            assert_eq!(LongHeader::parse(&packet[..length]), None);
        }
        packet[5] = 21;
        packet.resize(60, 0);
        assert_eq!(LongHeader::parse(&packet), None, "an ID of 21 bytes");
    }

    proptest! {
        #[test]
        fn any_bytes_are_parsed_within_their_bounds(bytes in prop::collection::vec(any::<u8>(), 0..80), on_wire in 0usize..200) {
            if let Some(header) = LongHeader::parse(&bytes) {
                prop_assert!(header.end <= bytes.len());
                for kind in [LongKind::Initial, LongKind::Handshake] {
                    if let Some(body) = LongBody::parse(&bytes, &header, kind, on_wire) {
                        prop_assert!(body.number_at + body.length <= on_wire);
                    }
                }
            }
        }
    }
}
