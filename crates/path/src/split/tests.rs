use proptest::prelude::*;
use tcp::flags::{ACK, CWR, FIN, PSH};

use super::*;

/// Parameters of a generated super-packet.
#[derive(Clone, Copy, Debug)]
struct Recipe {
    v6: bool,
    payload: usize,
    mss: u16,
    options: usize,
    sequence: u32,
    identification: u16,
    flags: u8,
    partial: bool,
}

fn recipes() -> impl Strategy<Value = Recipe> {
    let payload = prop_oneof![0usize..3000, 0usize..60_000];
    let numbers = (any::<u32>(), any::<u16>(), any::<u8>());
    (any::<bool>(), payload, 1u16..9000, 0usize..11, numbers, any::<bool>()).prop_map(
        |(v6, payload, mss, options, (sequence, identification, flags), partial)| Recipe {
            v6,
            payload,
            // Thousands of one-byte segments would only take time.
            mss: mss.max((payload / 300) as u16).max(1),
            options: options * 4,
            sequence,
            identification,
            flags,
            partial,
        },
    )
}

/// vnet header and packet; the checksum field is partial or complete, as the kernel would have left it.
fn build(recipe: Recipe) -> (vnet::Header, Vec<u8>) {
    let transport = if recipe.v6 { 40 } else { 20 };
    let length = 20 + recipe.options + recipe.payload;
    let mut packet = vec![0u8; transport];
    if recipe.v6 {
        packet[0] = 0x60;
        packet[6..8].copy_from_slice(&[protocol::TCP, 64]);
        packet[8..40].copy_from_slice(&[0x20; 32]);
        packet[39] = 9;
    } else {
        packet[0] = 0x45;
        packet[4..6].copy_from_slice(&recipe.identification.to_be_bytes());
        packet[8..10].copy_from_slice(&[64, protocol::TCP]);
        packet[12..20].copy_from_slice(&[198, 18, 0, 1, 198, 19, 3, 7]);
    }
    packet.resize(transport + length, 0);
    let sum = if recipe.v6 {
        ipv6::Packet::new_resized(&mut packet).unwrap().pseudo_sum(protocol::TCP, length as u32)
    } else {
        let mut ip = ipv4::Packet::new_resized(&mut packet).unwrap();
        ip.fill_checksum();
        ip.pseudo_sum(protocol::TCP, length as u16)
    };
    packet[transport + 12] = (((20 + recipe.options) / 4) << 4) as u8;
    for (index, byte) in packet[transport + 20..].iter_mut().enumerate() {
        *byte = (index * 31 + index / 256) as u8;
    }
    let mut segment = tcp::Segment::new_checked(&mut packet[transport..]).unwrap();
    segment.set_source_port(80);
    segment.set_sequence(recipe.sequence);
    segment.set_flags(recipe.flags);
    let checksum = if recipe.partial { sum.fold() } else { sum.bytes(&packet[transport..]).checksum() };
    tcp::Segment::new_checked(&mut packet[transport..]).unwrap().set_checksum(checksum);
    let vnet = vnet::Header {
        flags: if recipe.partial { vnet::NEEDS_CSUM } else { 0 },
        gso_type: if recipe.v6 { vnet::GSO_TCPV6 } else { vnet::GSO_TCPV4 },
        hdr_len: 66,
        gso_size: recipe.mss,
        csum_start: if recipe.partial { transport as u16 } else { 0 },
        csum_offset: if recipe.partial { 16 } else { 0 },
    };
    (vnet, packet)
}

fn cut(vnet: vnet::Header, packet: &[u8]) -> Vec<Vec<u8>> {
    let whole = SuperPacket::new_checked(vnet, packet).expect("a super-packet");
    let frames: Vec<Vec<u8>> = (0..whole.segments())
        .map(|number| {
            let mut frame = vec![0xAA; vnet::LEN + whole.segment_len(number)];
            whole.write_segment(number, &mut frame);
            frame
        })
        .collect();
    let bytes: usize = frames.iter().map(|frame| frame.len() - vnet::LEN).sum();
    assert_eq!(bytes, whole.wire_bytes() as usize);
    frames
}

/// Completes a partial checksum, as the kernel does with a frame that it receives.
fn complete(frame: &[u8]) -> Vec<u8> {
    let (vnet, packet) = vnet::Header::split(frame).unwrap();
    let mut packet = packet.to_vec();
    if vnet.needs_checksum() {
        let start = usize::from(vnet.csum_start);
        let at = start + usize::from(vnet.csum_offset);
        let checksum = checksum::Sum::ZERO.bytes(&packet[start..]).checksum();
        packet[at..at + 2].copy_from_slice(&checksum.to_be_bytes());
    }
    packet
}

/// The sum over a whole packet of TCP or UDP with its pseudo-header, which is 0xFFFF when every checksum is right.
fn full_sum(packet: &[u8]) -> u16 {
    if packet[0] >> 4 == 6 {
        let ip = ipv6::Packet::new_checked(packet).unwrap();
        ip.pseudo_sum(packet[6], ip.payload_len() as u32).bytes(ip.payload()).fold()
    } else {
        let ip = ipv4::Packet::new_checked(packet).unwrap();
        assert!(ip.is_header_intact());
        ip.pseudo_sum(ip.protocol(), ip.payload().len() as u16).bytes(ip.payload()).fold()
    }
}

proptest! {
    /// The segments, joined, are the original; each is a complete packet with correct checksums.
    #[test]
    fn segments_of_a_super_packet_have_all_bytes_and_correct_checksums(recipe in recipes()) {
        let (vnet, packet) = build(recipe);
        let transport = if recipe.v6 { 40 } else { 20 };
        let headers = transport + 20 + recipe.options;
        let frames = cut(vnet, &packet);
        prop_assert_eq!(frames.len(), recipe.payload.div_ceil(usize::from(recipe.mss)).max(1));
        let mut payload = Vec::new();
        for (number, frame) in frames.iter().enumerate() {
            let (header, _) = vnet::Header::split(frame).unwrap();
            prop_assert_eq!((header.gso_type, header.gso_size), (vnet::GSO_NONE, 0));
            prop_assert_eq!(header.needs_checksum(), recipe.partial);
            let whole = complete(frame);
            prop_assert_eq!(full_sum(&whole), 0xFFFF);
            if !recipe.v6 {
                let ip = ipv4::Packet::new_checked(&whole).unwrap();
                prop_assert_eq!(ip.identification(), recipe.identification.wrapping_add(number as u16));
                prop_assert_eq!(ip.total_len(), whole.len());
            }
            let segment = tcp::Segment::new_checked(&whole[transport..]).unwrap();
            prop_assert_eq!(segment.sequence(), recipe.sequence.wrapping_add(payload.len() as u32));
            prop_assert_eq!(segment.options(), &packet[transport + 20..headers]);
            let (first, last) = (number == 0, number + 1 == frames.len());
            let cleared_flags = (if last { 0 } else { FIN | PSH }) | (if first { 0 } else { CWR });
            prop_assert_eq!(segment.flags(), recipe.flags & !cleared_flags);
            prop_assert!(last || segment.payload().len() == usize::from(recipe.mss));
            payload.extend_from_slice(segment.payload());
        }
        prop_assert_eq!(&payload[..], &packet[headers..]);
    }

    /// Any bytes behind any vnet header: rejected, or cut, without panic and without bytes from beyond the frame.
    #[test]
    fn super_packet_of_any_bytes_is_rejected_or_cut(
        recipe in recipes(), header: [u8; vnet::LEN], keep_header: bool,
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
    ) {
        let recipe = Recipe { payload: recipe.payload % 5000, ..recipe };
        let (mut vnet, mut packet) = if header[0] & 1 == 0 { build(recipe) } else { build_udp(recipe, true) };
        if !keep_header {
            vnet = vnet::Header::split(&header).unwrap().0;
        }
        for (at, byte) in damage {
            // Half of the damage is in the headers, where it matters.
            let length = if byte % 2 == 0 { packet.len() } else { packet.len().min(80) };
            packet[at.index(length)] = byte;
        }
        if let Some(whole) = SuperPacket::new_checked(vnet, &packet) {
            for number in [0, whole.segments() / 2, whole.segments() - 1] {
                let mut frame = vec![0; vnet::LEN + whole.segment_len(number)];
                whole.write_segment(number, &mut frame);
                prop_assert!(frame.len() <= vnet::LEN + packet.len());
            }
        }
    }
}

/// The same packet as a super-packet of UDP: its TCP header becomes 12 bytes of payload. `has_checksum`: as `partial` of
/// the recipe, otherwise the sender computed none.
fn build_udp(recipe: Recipe, has_checksum: bool) -> (vnet::Header, Vec<u8>) {
    let (vnet, mut packet) = build(Recipe { options: 0, ..recipe });
    let transport = if recipe.v6 { 40 } else { 20 };
    packet[if recipe.v6 { 6 } else { 9 }] = protocol::UDP;
    let mut datagram = udp::Datagram::new_resized(&mut packet[transport..]).unwrap();
    datagram.set_checksum(0);
    let length = datagram.len();
    let sum = if recipe.v6 {
        ipv6::Packet::new_checked(&packet).unwrap().pseudo_sum(protocol::UDP, length as u32)
    } else {
        ipv4::Packet::new_resized(&mut packet).unwrap().fill_checksum();
        ipv4::Packet::new_checked(&packet).unwrap().pseudo_sum(protocol::UDP, length as u16)
    };
    let checksum = match (recipe.partial, has_checksum) {
        (true, _) => sum.fold(),
        (false, true) => sum.bytes(&packet[transport..]).checksum().max(1),
        (false, false) => 0,
    };
    udp::Datagram::new_checked(&mut packet[transport..]).unwrap().set_checksum(checksum);
    let csum_offset = if recipe.partial { udp::CHECKSUM_OFFSET as u16 } else { 0 };
    (vnet::Header { gso_type: vnet::GSO_UDP, csum_offset, ..vnet }, packet)
}

proptest! {
    /// The datagrams have all bytes, the lengths, identifications and checksums of packets of their own.
    #[test]
    fn datagrams_of_a_super_packet_have_all_bytes_and_correct_checksums(recipe in recipes(), has_checksum: bool) {
        let (vnet, packet) = build_udp(recipe, has_checksum);
        let transport = if recipe.v6 { 40 } else { 20 };
        let mut payload = Vec::new();
        let frames = cut(vnet, &packet);
        for (number, frame) in frames.iter().enumerate() {
            let whole = complete(frame);
            if !recipe.v6 {
                let ip = ipv4::Packet::new_checked(&whole).unwrap();
                prop_assert_eq!(ip.identification(), recipe.identification.wrapping_add(number as u16));
                prop_assert_eq!(ip.total_len(), whole.len());
            }
            let datagram = udp::Datagram::new_checked(&whole[transport..]).unwrap();
            prop_assert_eq!(datagram.len(), whole.len() - transport);
            if recipe.partial || has_checksum {
                prop_assert_eq!(full_sum(&whole), 0xFFFF);
            } else {
                prop_assert_eq!(datagram.checksum(), 0);
            }
            let is_last = number + 1 == frames.len();
            prop_assert!(is_last || datagram.payload().len() == usize::from(recipe.mss));
            payload.extend_from_slice(datagram.payload());
        }
        prop_assert_eq!(&payload[..], &packet[transport + udp::HEADER..]);
    }
}

#[test]
fn only_consistent_tcp_super_packets_are_cut() {
    let recipe = Recipe {
        v6: false,
        payload: 3000,
        mss: 1448,
        options: 12,
        sequence: u32::MAX - 1000,
        identification: u16::MAX,
        flags: ACK | PSH,
        partial: true,
    };
    let (vnet, packet) = build(recipe);
    assert_eq!(cut(vnet, &packet).len(), 3);
    let is_rejected = |change: &dyn Fn(&mut vnet::Header, &mut Vec<u8>)| {
        let (mut vnet, mut packet) = (vnet, packet.clone());
        change(&mut vnet, &mut packet);
        SuperPacket::new_checked(vnet, &packet).is_none()
    };
    assert!(!is_rejected(&|vnet, _| vnet.gso_type |= vnet::GSO_ECN));
    assert!(is_rejected(&|vnet, _| vnet.gso_type = vnet::GSO_TCPV6));
    assert!(is_rejected(&|vnet, _| vnet.gso_type = vnet::GSO_UDP));
    assert!(is_rejected(&|vnet, _| vnet.gso_type = 3), "UDP fragmentation");
    assert!(is_rejected(&|vnet, _| vnet.gso_size = 0));
    assert!(is_rejected(&|vnet, _| vnet.csum_start = 24));
    assert!(is_rejected(&|vnet, _| vnet.csum_offset = 6));
    assert!(is_rejected(&|_, packet| packet[9] = protocol::UDP));
    assert!(is_rejected(&|_, packet| packet[6] = 0x20), "a fragment");
    assert!(is_rejected(&|_, packet| packet.truncate(3000)));
}
