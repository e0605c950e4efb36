//! The TCP state machine: every eight bytes are one segment between two pairs of endpoints, with any sequence number
//! and time.
//!
//! ```text
//!   kind             sequence  acknowledgement  length/8  step of time  options
//!   bits 0 way, 1 port, 2.. FIN SYN RST ACK, 6 snap, 7 far
//! ```
//!
//! The sequence number determines the payload, as with a real sender: requests in one direction, responses in the
//! other.

use super::outcome::{Outcome, SMALL, check_bounds, finish, watch};
use units::Timestamp;
use watch::take_work;
use wire::link::LinkType;

/// The records do not depend on the initial sequence numbers of the two ends.
pub fn run(bytes: &[u8]) {
    let plain = read(bytes, [0, 0]);
    assert_eq!(plain, read(bytes, [0, 0]), "the same twice");
    assert_eq!(plain, read(bytes, [0xFFFF_FF80, 0x7FFF_FFF0]), "with other initial sequence numbers");
}

fn read(bytes: &[u8], shift: [u32; 2]) -> Outcome {
    let mut watch = watch(SMALL);
    let (mut at, mut last, mut fed, mut count) = (100_000u64, 0, 0, 0);
    for &code in bytes.as_chunks::<8>().0.iter().take(2000) {
        // Time also goes backwards, and sometimes far forwards.
        at = match code[6] {
            255 => at + 400_000,
            step => at.saturating_add_signed(i64::from(step.wrapping_sub(16) as i8)),
        };
        last = last.max(at);
        let (packet, kept) = segment(code, at, shift);
        fed += u64::from(code[5]) * 8;
        count += 1;
        watch.handle_packet(
            Timestamp::from_nanos(at * 1_000_000),
            LinkType::RawIp,
            &packet[..kept],
            packet.len() as u32,
        );
        check_bounds(&watch, &SMALL);
    }
    let outcome = finish(watch, Timestamp::from_nanos(last * 1_000_000));
    let seen: u64 = outcome.connections.iter().map(|record| record.up.payload_bytes + record.down.payload_bytes).sum();
    assert_eq!(seen, fed);
    assert!(take_work() <= 64 * count + 8 * fed, "work is linear");
    outcome
}

/// The packet, and the number of captured bytes.
fn segment(code: [u8; 8], at: u64, shift: [u32; 2]) -> (Vec<u8>, usize) {
    let [kind, s1, s0, ack, ack_high, length, _, options] = code;
    let is_up = kind & 1 == 0;
    let [own, peer] = if is_up { shift } else { [shift[1], shift[0]] };
    let flags = kind >> 2 & 0x07 | kind >> 1 & 0x10;
    let far = if kind & 0x80 != 0 { 0x3FFF_0000 } else { 0 };
    let sequence = u32::from(u16::from_be_bytes([s1 & 0x3F, s0])) + far;
    let acknowledgement = u32::from(u16::from_be_bytes([ack_high & 0x3F, ack]));
    let mut packet = vec![0x45, 0, 0, 0, 0, 0, 0x40, 0, 64, 6, 0, 0];
    let ends = [([198, 19, 0, 1], 40_000 + u16::from(kind >> 1 & 1)), ([198, 18, 0, 1], 80)];
    let [source, destination] = if is_up { ends } else { [ends[1], ends[0]] };
    packet.extend(source.0);
    packet.extend(destination.0);
    packet.extend(source.1.to_be_bytes());
    packet.extend(destination.1.to_be_bytes());
    packet.extend(sequence.wrapping_add(own).to_be_bytes());
    packet.extend((if flags & 0x10 != 0 { acknowledgement.wrapping_add(peer) } else { 0 }).to_be_bytes());
    packet.extend([0x50, flags]);
    packet.extend((if options & 4 != 0 { 0u16 } else { 1000 }).to_be_bytes());
    packet.extend([0; 4]);
    if options & 1 != 0 {
        packet.extend([1, 1, 8, 10]);
        packet.extend((at as u32).to_be_bytes());
        packet.extend(u32::from(options >> 3).to_be_bytes());
    }
    if options & 2 != 0 {
        let left = acknowledgement.wrapping_add(peer).wrapping_add(u32::from(options >> 4) * 8).wrapping_sub(32);
        packet.extend([1, 1, 5, 18]);
        for edge in [left, left.wrapping_add(8), left.wrapping_sub(8), left.wrapping_add(24)] {
            packet.extend(edge.to_be_bytes());
        }
    }
    let header = packet.len();
    packet[32] = ((header - 20) / 4 * 16) as u8;
    let text = if is_up { UP } else { DOWN };
    let start = sequence as usize;
    packet.extend(text.iter().cycle().skip(start % text.len()).take(usize::from(length) * 8));
    let total = packet.len() as u16;
    packet[2..4].copy_from_slice(&total.to_be_bytes());
    let kept = if kind & 0x40 != 0 { (header + 24).min(packet.len()) } else { packet.len() };
    (packet, kept)
}

const UP: &[u8] = b"GET /page HTTP/1.1\r\nHost: a\r\n\r\nPOST / HTTP/1.1\r\nContent-Length: 9\r\n\r\nsome body";
const DOWN: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nbodyHTTP/1.1 100 Go on\r\n\r\n\
                      HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3;x\r\nabc\r\n0\r\nT: x\r\n\r\n";
