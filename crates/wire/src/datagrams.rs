//! A captured UDP super-packet, divided into the datagrams that the kernel had not yet divided.

use crate::{ipv4, ipv6, protocol, udp};

/// Passes each datagram of the IP packet `packet`, a super-packet of `original_length` bytes of which possibly fewer were
/// captured, to `each`: its bytes, as far as they were captured, and its own original length. Every datagram but the last
/// has `size` bytes of payload. What is not such a packet is passed on as it is.
///
/// IP and UDP lengths and IPv4 identification and checksum are those of the datagram; the UDP checksum stays the
/// super-packet's, which is not a valid one. `scratch` is memory to be used again.
pub fn divide(packet: &[u8], original_length: u32, size: u16, scratch: &mut Vec<u8>, mut each: impl FnMut(&[u8], u32)) {
    let whole = |headers: &usize| original_length as usize > *headers;
    let Some(headers) = (if size > 0 { headers(packet).filter(whole) } else { None }) else {
        return each(packet, original_length);
    };
    let (size, all) = (usize::from(size), original_length as usize - headers);
    let (heads, captured) = packet.split_at(headers);
    for (number, from) in (0..all).step_by(size).enumerate() {
        let length = headers + size.min(all - from);
        let payload = captured.get(from..).unwrap_or_default();
        scratch.clear();
        scratch.extend_from_slice(heads);
        rewrite(scratch, headers, length, number);
        scratch.extend_from_slice(&payload[..payload.len().min(length - headers)]);
        each(scratch, length as u32);
    }
}

/// Bytes of the IP and UDP headers of a packet that is not a fragment, if both were captured.
fn headers(packet: &[u8]) -> Option<usize> {
    let (carried, transport) = match packet.first()? >> 4 {
        4 => {
            let header = usize::from(packet[0] & 0x0F) * 4;
            let is_fragment = u16::from_be_bytes([*packet.get(6)?, *packet.get(7)?]) & 0x3FFF != 0;
            (*packet.get(9).filter(|_| header >= ipv4::HEADER_MIN && !is_fragment)?, header)
        }
        6 => (*packet.get(6)?, ipv6::HEADER),
        _ => return None,
    };
    let end = transport + udp::HEADER;
    (carried == protocol::UDP && end <= packet.len()).then_some(end)
}

/// Makes the headers those of datagram `number`, with `length` bytes in all.
fn rewrite(heads: &mut [u8], headers: usize, length: usize, number: usize) {
    let of_udp = headers - udp::HEADER;
    let put = |heads: &mut [u8], at: usize, value: usize| {
        // A longer one does not exist: it would not have been captured as one packet.
        heads[at..at + 2].copy_from_slice(&(value as u16).to_be_bytes());
    };
    put(heads, of_udp + 4, length - of_udp);
    if heads[0] >> 4 == 6 {
        return put(heads, 4, length - ipv6::HEADER);
    }
    put(heads, 2, length);
    let identification = u16::from_be_bytes([heads[4], heads[5]]).wrapping_add(number as u16);
    put(heads, 4, usize::from(identification));
    put(heads, 10, 0);
    let checksum = crate::checksum::Sum::ZERO.bytes(&heads[..of_udp]).checksum();
    put(heads, 10, usize::from(checksum));
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A super-packet with this payload.
    fn super_packet(is_v6: bool, payload: &[u8]) -> Vec<u8> {
        let udp = udp::HEADER + payload.len();
        let mut packet = if is_v6 {
            let mut header = vec![0x60, 0, 0, 0, 0, 0, protocol::UDP, 64];
            header.extend([0x20; 32]);
            header[4..6].copy_from_slice(&(udp as u16).to_be_bytes());
            header
        } else {
            let mut header = vec![0x45, 2, 0, 0, 0xFF, 0xFE, 0x40, 0, 64, protocol::UDP, 0, 0];
            header.extend([198, 18, 0, 1, 198, 19, 0, 1]);
            header[2..4].copy_from_slice(&((20 + udp) as u16).to_be_bytes());
            header
        };
        packet.extend([0x01, 0xBB, 0x9C, 0x40]);
        packet.extend((udp as u16).to_be_bytes());
        packet.extend([0xAB, 0xCD]);
        packet.extend(payload);
        packet
    }

    proptest! {
        #[test]
        fn datagrams_are_complete_packets_with_all_bytes_in_order(
            is_v6: bool, payload in prop::collection::vec(any::<u8>(), 1..5_000), size in 1_u16..2_000, kept in 0_usize..6_000,
        ) {
            let packet = super_packet(is_v6, &payload);
            let (mut all, mut lengths, mut count) = (Vec::new(), 0, 0);
            divide(&packet, packet.len() as u32, size, &mut Vec::new(), |datagram, length| {
                assert_eq!(datagram.len(), length as usize);
                let udp = if is_v6 {
                    let ip = ipv6::Packet::new_checked(datagram).unwrap();
                    assert_eq!(ip.total_len(), datagram.len());
                    ip.payload().to_vec()
                } else {
                    let ip = ipv4::Packet::new_checked(datagram).unwrap();
                    assert_eq!(ip.identification(), 0xFFFE_u16.wrapping_add(count));
                    assert!(ip.total_len() == datagram.len() && ip.is_header_intact());
                    ip.payload().to_vec()
                };
                let datagram = udp::Datagram::new_checked(&udp).unwrap();
                assert_eq!(datagram.len(), udp.len());
                assert!(datagram.payload().len() <= usize::from(size));
                all.extend_from_slice(datagram.payload());
                count += 1;
            });
            prop_assert_eq!(&all, &payload);
            prop_assert_eq!(usize::from(count), payload.len().div_ceil(size.into()));
            // Of a truncated one every datagram is still counted, with its length.
            let cut = &packet[..packet.len().min(kept)];
            divide(cut, packet.len() as u32, size, &mut Vec::new(), |datagram, length| {
                assert!(datagram.len() <= length as usize);
                lengths += u64::from(length);
            });
            let headers = packet.len() - payload.len();
            let each = if cut.len() < headers { 1 } else { u64::from(count) };
            prop_assert_eq!(lengths, payload.len() as u64 + each * headers as u64);
        }

        #[test]
        fn any_bytes_are_divided_or_passed_on(
            bytes in prop::collection::vec(any::<u8>(), 0..200), length: u16, size: u16,
        ) {
            let mut count = 0;
            divide(&bytes, length.into(), size, &mut Vec::new(), |_, _| count += 1);
            prop_assert!(count > 0 && count <= u32::from(length).max(1));
        }
    }

    #[test]
    fn other_packets_are_passed_on_whole() {
        let packet = super_packet(false, &[7; 100]);
        let count = |packet: &[u8], size: u16| {
            let mut count = 0;
            divide(packet, packet.len() as u32, size, &mut Vec::new(), |_, _| count += 1);
            count
        };
        assert_eq!((count(&packet, 50), count(&packet, 0)), (2, 1));
        for (at, value) in [(9, protocol::TCP), (6, 0x20), (0, 0x44), (0, 0x55)] {
            let mut other = packet.clone();
            other[at] = value;
            assert_eq!(count(&other, 50), 1, "{at}");
        }
    }
}
