//! No view panics on any bytes, before or after its fields were overwritten with any values.

use proptest::prelude::*;
use wire::{ipv4, ipv6, tcp, udp, vnet};

/// Random bytes, half of them with a first byte that passes the version check.
fn bytes() -> impl Strategy<Value = Vec<u8>> {
    (prop::collection::vec(any::<u8>(), 0..200), prop::sample::select(vec![0u8, 0x45, 0x46, 0x4F, 0x60])).prop_map(
        |(mut bytes, first)| {
            if let (Some(byte), 1..) = (bytes.first_mut(), first) {
                *byte = first;
            }
            bytes
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn ipv4_does_not_panic_on_any_bytes(mut bytes in bytes(), length: u16) {
        if let Ok(mut packet) = ipv4::Packet::new_checked(&mut bytes) {
            prop_assert!(packet.header_len() + packet.payload().len() == packet.total_len());
            let _ = (packet.source(), packet.destination(), packet.is_header_intact(), packet.is_fragment());
            packet.fill_checksum();
            prop_assert!(packet.is_header_intact());
            packet.set_total_len(length);
            let _ = (packet.payload().len(), packet.payload_mut().len());
        }
    }

    #[test]
    fn ipv6_does_not_panic_on_any_bytes(mut bytes in bytes(), length: u16) {
        if let Ok(mut packet) = ipv6::Packet::new_checked(&mut bytes) {
            if let Some((_, at)) = packet.transport() {
                prop_assert!(at <= packet.total_len());
            }
            packet.set_payload_len(length);
            let _ = (packet.payload().len(), packet.transport(), packet.pseudo_sum(6, u32::from(length)));
        }
    }

    #[test]
    fn tcp_and_udp_do_not_panic_on_any_bytes(mut bytes in bytes(), length: u16) {
        if let Ok(mut segment) = tcp::Segment::new_checked(&mut bytes) {
            prop_assert!(segment.header_len() + segment.payload().len() > 0);
            segment.set_flags(length as u8);
            let _ = (segment.options(), segment.payload(), segment.window(), segment.acknowledgement());
        }
        if let Ok(mut datagram) = udp::Datagram::new_checked(&mut bytes) {
            datagram.set_len(length);
            let _ = datagram.payload();
        }
        let _ = vnet::Header::split(&bytes);
    }
}
