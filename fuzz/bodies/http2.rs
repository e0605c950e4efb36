//! HTTP/2 on one connection: every piece is the next bytes of one side, or a part that the capture lost.
//!
//! ```text
//!   first byte: bit 0 seen from its start, with the preface; bit 1 short snap length
//!   pieces: bit 0 way, bit 1 lost, bits 2.. length up to 63, then that many bytes
//! ```

use super::outcome::{Outcome, SMALL, check_bounds, finish, watch};
use units::Timestamp;
use watch::take_work;
use wire::link::LinkType;

/// Any bytes give the same records twice, within the limits, with work that is linear in their number.
pub fn run(bytes: &[u8]) {
    let bytes = &bytes[..bytes.len().min(8192)];
    assert_eq!(read(bytes), read(bytes), "the same twice");
}

fn read(bytes: &[u8]) -> Outcome {
    let mut watch = watch(SMALL);
    let mut ends = [1000u32, 500_000];
    let (mut at, mut count, mut fed) = (1_000_000, 0, 0);
    let Some((&first, mut rest)) = bytes.split_first() else { return finish(watch, Timestamp::from_nanos(at)) };
    let snap = if first & 2 != 0 { 40 + 24 } else { usize::MAX };
    let mut send = |is_up: bool, flags: u8, payload: &[u8], lost: bool, ends: &mut [u32; 2]| {
        at += 1_000_000;
        let own = usize::from(!is_up);
        if !lost {
            let packet = packet(is_up, *ends, flags, payload);
            let kept = packet.len().min(snap);
            watch.handle_packet(Timestamp::from_nanos(at), LinkType::RawIp, &packet[..kept], packet.len() as u32);
            check_bounds(&watch, &SMALL);
            count += 1;
            fed += payload.len() as u64;
        }
        ends[own] = ends[own].wrapping_add(payload.len() as u32 + u32::from(flags & 2 != 0));
    };
    if first & 1 != 0 {
        send(true, 2, b"", false, &mut ends);
        send(false, 0x12, b"", false, &mut ends);
        send(true, 0x10, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", false, &mut ends);
    }
    while let Some((&control, after)) = rest.split_first() {
        let (piece, after) = after.split_at(after.len().min(usize::from(control >> 2)));
        let (is_up, lost) = (control & 1 == 0, control & 2 != 0);
        send(is_up, 0x10, piece, lost, &mut ends);
        if lost {
            // Acknowledged, so that the loss is the capture's.
            send(!is_up, 0x10, b"", false, &mut ends);
        }
        rest = after;
    }
    let outcome = finish(watch, Timestamp::from_nanos(at));
    // A lost direction marks each open request, of which there are four.
    assert!(take_work() <= 256 * count + 64 * fed, "work is linear");
    outcome
}

fn packet(is_up: bool, [up, down]: [u32; 2], flags: u8, payload: &[u8]) -> Vec<u8> {
    let ends = [([198, 19, 0, 1], 40_000u16), ([198, 18, 0, 1], 80)];
    let ([source, destination], [own, peer]) =
        if is_up { (ends, [up, down]) } else { ([ends[1], ends[0]], [down, up]) };
    let mut packet = vec![0x45, 0];
    packet.extend((40 + payload.len() as u16).to_be_bytes());
    packet.extend([0, 0, 0x40, 0, 64, 6, 0, 0]);
    packet.extend(source.0);
    packet.extend(destination.0);
    packet.extend(source.1.to_be_bytes());
    packet.extend(destination.1.to_be_bytes());
    packet.extend(own.to_be_bytes());
    packet.extend((if flags & 0x10 != 0 { peer } else { 0 }).to_be_bytes());
    packet.extend([0x50, flags, 4, 0, 0, 0, 0, 0]);
    packet.extend(payload);
    packet
}
