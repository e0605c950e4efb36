//! Corruption: one bit of a packet's transport segment is inverted, which the receiver's checksum detects.

use units::{Bytes, Probability, Timestamp};
use wire::{checksum, ipv4, ipv6, protocol, vnet};

use super::common::{exact_percent, percent};
use super::kind::{Built, EffectKind, Expected, OptionText, Sign, Site, Step, Stepwise, Symptom};
use super::{EffectSpec, SteppedEffect};
use crate::draw::{Chance, Draw};

/// Inverts one bit of some packets.
#[derive(Debug)]
pub(crate) struct Corruption {
    chance: Chance,
    /// Draws the bit to invert.
    bit: Draw,
}

impl Corruption {
    const STREAM: u64 = 3;
    const BIT_STREAM: u64 = 4;
}

impl EffectKind for Corruption {
    type Settings = Probability;
    type Form = Probability;

    const KEY: &'static str = "corrupt";
    const RANK: u8 = 2;
    const STREAMS: &'static [u64] = &[Self::STREAM, Self::BIT_STREAM];
    const SYMPTOM: Option<Symptom> = Some(Symptom { name: "corrupted", sign: Sign::WrongChecksum });
    const OPTION: Option<OptionText> =
        Some(OptionText { value_name: "P", help: "Corrupt packets with this probability, each way" });

    fn spec(form: Probability) -> EffectSpec {
        EffectSpec::Corrupt(form)
    }

    fn form(probability: &Probability) -> Probability {
        *probability
    }

    fn is_idle(probability: &Probability) -> bool {
        *probability == Probability::ZERO
    }

    fn describe(probability: &Probability) -> String {
        format!("{} corrupted", percent(probability.value()))
    }

    fn label(probability: &Probability) -> String {
        format!("corrupt {}", exact_percent(*probability))
    }

    fn expected(probability: &Probability) -> Expected {
        Expected { discarded: probability.value(), shown: probability.value(), ..Expected::NOTHING }
    }

    fn build<'a>(probability: &'a Probability, site: &mut Site<'_>) -> Option<Built<'a>> {
        let chance = site.chance(*probability, Self::STREAM);
        Some(Built::Stepped(SteppedEffect::Corrupt(Corruption { chance, bit: site.draw(Self::BIT_STREAM) })))
    }
}

impl Stepwise for Corruption {
    #[inline]
    fn handle(&mut self, at: Timestamp, _size: Bytes) -> Step {
        if self.chance.hit() { Step::Altered(Draw::new(self.bit.next())) } else { Step::Leaves(at) }
    }

    fn alter(frame: &mut [u8], draw: &mut Draw) -> bool {
        invert_bit(frame, draw)
    }
}

/// Inverts one bit, drawn uniformly, of the transport segment in `frame` (vnet header and wire packet). The IP header
/// stays intact, or the packet would never reach the receiver. False when the packet has no segment.
///
/// A checksum that the sender's kernel left partial is completed first, and the vnet header then makes no claim about
/// it: otherwise the receiver's kernel would accept the packet as intact.
fn invert_bit(frame: &mut [u8], draw: &mut Draw) -> bool {
    let Some((mut header, packet)) = vnet::Header::split(frame) else { return false };
    let Some((transport, end)) = segment(packet).filter(|&(transport, end)| transport < end) else { return false };
    let (bytes, packet) = frame.split_at_mut(vnet::LEN);
    let packet = &mut packet[..end];
    if header.needs_checksum() {
        complete(&header, packet);
    }
    header.flags &= !(vnet::NEEDS_CSUM | vnet::DATA_VALID);
    (header.csum_start, header.csum_offset) = (0, 0);
    bytes.copy_from_slice(&header.to_bytes());
    let bit = draw.below((end - transport) as u64 * 8) as usize;
    packet[transport + bit / 8] ^= 1 << (bit % 8);
    true
}

/// Start and end of the transport segment of an IP packet.
fn segment(packet: &[u8]) -> Option<(usize, usize)> {
    if packet.first()? >> 4 == 6 {
        let ip = ipv6::Packet::new_checked(packet).ok()?;
        // The transport header of a fragment may be in another fragment; the bytes behind the fragment header (8 bytes)
        // still belong to the segment.
        let transport = ip.transport().map_or(ipv6::HEADER + 8, |(_, transport)| transport);
        return Some((transport, ip.total_len()));
    }
    let ip = ipv4::Packet::new_checked(packet).ok()?;
    Some((ip.header_len(), ip.total_len()))
}

/// Completes the checksum that the vnet header describes: sums from `csum_start` and stores the result.
fn complete(header: &vnet::Header, packet: &mut [u8]) {
    let start = usize::from(header.csum_start);
    let at = start + usize::from(header.csum_offset);
    if at + 2 > packet.len() {
        return;
    }
    let is_udp = usize::from(header.csum_offset) == 6 && packet_protocol(packet) == Some(protocol::UDP);
    let checksum = match checksum::Sum::ZERO.bytes(&packet[start..]).checksum() {
        // In UDP, 0 means that there is no checksum (RFC 768).
        0 if is_udp => 0xFFFF,
        checksum => checksum,
    };
    packet[at..at + 2].copy_from_slice(&checksum.to_be_bytes());
}

fn packet_protocol(packet: &[u8]) -> Option<u8> {
    match packet.first()? >> 4 {
        6 => ipv6::Packet::new_checked(packet).ok()?.transport().map(|(protocol, _)| protocol),
        _ => Some(ipv4::Packet::new_checked(packet).ok()?.protocol()),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A TCP packet with its checksum complete or partial.
    fn packet(v6: bool, payload: &[u8], partial: bool) -> Vec<u8> {
        let network = if v6 { 40 } else { 20 };
        let length = 20 + payload.len();
        let mut packet = vec![0u8; network + length];
        packet[network + 12] = 5 << 4;
        packet[network + 20..].copy_from_slice(payload);
        let sum = if v6 {
            packet[0] = 0x60;
            packet[6] = protocol::TCP;
            packet[23] = 1;
            ipv6::Packet::new_resized(&mut packet).unwrap().pseudo_sum(protocol::TCP, length as u32)
        } else {
            packet[0] = 0x45;
            packet[9] = protocol::TCP;
            packet[12..20].copy_from_slice(&[198, 18, 0, 1, 198, 19, 0, 9]);
            let mut ip = ipv4::Packet::new_resized(&mut packet).unwrap();
            ip.fill_checksum();
            ip.pseudo_sum(protocol::TCP, length as u16)
        };
        let checksum = if partial { sum.fold() } else { sum.bytes(&packet[network..]).checksum() };
        packet[network + 16..network + 18].copy_from_slice(&checksum.to_be_bytes());
        let header = vnet::Header {
            flags: if partial { vnet::NEEDS_CSUM } else { vnet::DATA_VALID },
            csum_start: if partial { network as u16 } else { 0 },
            csum_offset: if partial { 16 } else { 0 },
            ..vnet::Header::default()
        };
        [&header.to_bytes()[..], &packet].concat()
    }

    proptest! {
        /// Exactly one bit of the segment differs from the uncorrupted packet, and every receiver detects it.
        #[test]
        fn corruption_inverts_one_bit_and_the_checksum_detects_it(
            v6: bool, partial: bool, seed: u64, payload in prop::collection::vec(any::<u8>(), 0..64),
        ) {
            let network = if v6 { 40 } else { 20 };
            let mut intact = packet(v6, &payload, partial);
            let mut frame = intact.clone();
            prop_assert!(invert_bit(&mut frame, &mut Draw::new(seed)));
            if partial {
                let (header, _) = vnet::Header::split(&intact).unwrap();
                complete(&header, &mut intact[vnet::LEN..]);
            }
            let (header, received) = vnet::Header::split(&frame).unwrap();
            prop_assert_eq!(header.flags, 0);
            let sent = &intact[vnet::LEN..];
            let differing: u32 = sent.iter().zip(received).map(|(a, b)| (a ^ b).count_ones()).sum();
            prop_assert_eq!((differing, &sent[..network]), (1, &received[..network]));
            let sum = |packet: &[u8]| {
                let length = packet.len() - network;
                let pseudo = if v6 {
                    ipv6::Packet::new_checked(packet).unwrap().pseudo_sum(protocol::TCP, length as u32)
                } else {
                    ipv4::Packet::new_checked(packet).unwrap().pseudo_sum(protocol::TCP, length as u16)
                };
                pseudo.bytes(&packet[network..]).fold()
            };
            prop_assert_eq!(sum(sent), 0xFFFF);
            prop_assert_ne!(sum(received), 0xFFFF);
        }

        /// Any bytes: no panic, and no change outside of the vnet header and the segment.
        #[test]
        fn corruption_of_any_bytes_changes_one_bit_or_nothing(mut frame in prop::collection::vec(any::<u8>(), 0..120)) {
            if let Some(first) = frame.get_mut(vnet::LEN) {
                *first = if *first % 2 == 0 { 0x45 } else { 0x60 };
            }
            let before = frame.clone();
            if !invert_bit(&mut frame, &mut Draw::new(1)) {
                prop_assert_eq!(frame, before);
            }
        }
    }

    #[test]
    fn corruption_leaves_a_packet_without_transport_segment_unchanged() {
        let mut frame = packet(false, &[], false);
        frame.truncate(vnet::LEN + 20);
        frame[vnet::LEN + 3] = 20;
        assert!(!invert_bit(&mut frame, &mut Draw::new(1)));
    }
}
