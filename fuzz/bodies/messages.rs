//! HTTP framing: turns of any bytes on one connection without loss, each as: direction and seed of the cuts, length,
//! bytes.

use super::outcome::{Outcome, finish, watch};
use super::packets::{ACK, FIN, SYN, segment};
use schema::Framing;
use units::Timestamp;
use watch::{Limits, take_work};
use wire::link::LinkType;

/// The requests do not depend on the segments into which the turns are cut. With truncated packets the counts are
/// consistent.
pub fn run(bytes: &[u8]) {
    let bytes = &bytes[..bytes.len().min(16_384)];
    let whole = read(bytes, Cut::Whole, usize::MAX);
    for cut in [Cut::Bytes, Cut::Random] {
        let apart = read(bytes, cut, usize::MAX);
        // Times are equal, too: all segments of a turn have the same time. After a framing error the next message is
        // searched in the first segment of a turn, of any size: from there on the result depends on the cuts.
        let exact = whole.requests.iter().take_while(|request| request.complete && request.framing == Framing::Exact);
        for (at, request) in exact.enumerate() {
            assert_eq!(apart.requests.get(at), Some(request), "{cut:?}");
        }
        for (apart, whole) in apart.connections.iter().zip(&whole.connections) {
            // A ClientHello in very many segments is not parsed: its name is then unknown, never a wrong one.
            assert!(apart.server_name.is_none() || apart.server_name == whole.server_name);
            assert_eq!(apart.up.unique_bytes, whole.up.unique_bytes);
            assert_eq!(apart.down.unique_bytes, whole.down.unique_bytes);
        }
    }
    for snap in [64, 96] {
        read(bytes, Cut::Random, snap);
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cut {
    Whole,
    Bytes,
    Random,
}

fn read(mut bytes: &[u8], cut: Cut, snap: usize) -> Outcome {
    let mut watch = watch(Limits::default());
    let (mut next, mut at, mut fed, mut count) = ([1000u32, 5000], 0u64, 0, 0u64);
    let mut send = |watch: &mut watch::Watch, at: u64, next: &mut [u32; 2], way: usize, flags: u8, payload: &[u8]| {
        let packet = segment(way, *next, flags, payload);
        let kept = packet.len().min(snap);
        watch.handle_packet(Timestamp::from_nanos(at), LinkType::RawIp, &packet[..kept], packet.len() as u32);
        next[way] += payload.len() as u32 + u32::from(flags & 3 != 0);
        count += 1;
        fed += payload.len() as u64;
    };
    for (way, flags) in [(0, SYN), (1, SYN | ACK), (0, ACK)] {
        send(&mut watch, at, &mut next, way, flags, b"");
    }
    while let [kind, length, rest @ ..] = bytes {
        at += 1_000_000;
        let way = usize::from(kind & 1);
        // One byte codes lengths up to 4 KB, small ones exactly.
        let length = if *length < 200 { usize::from(*length) } else { (usize::from(*length) - 196) * 64 };
        let (mut turn, after) = rest.split_at(length.min(rest.len()));
        bytes = after;
        let mut seed = u32::from(*kind) | 1;
        while !turn.is_empty() {
            seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let size = match cut {
                Cut::Whole => turn.len(),
                Cut::Bytes => 1,
                Cut::Random => 1 + (seed >> 16) as usize % 60,
            };
            let (part, rest) = turn.split_at(size.min(turn.len()));
            send(&mut watch, at, &mut next, way, ACK, part);
            turn = rest;
        }
        send(&mut watch, at, &mut next, 1 - way, ACK, b"");
    }
    for way in [1, 0] {
        send(&mut watch, at, &mut next, way, FIN | ACK, b"");
    }
    let outcome = finish(watch, Timestamp::from_nanos(at));
    assert!(take_work() <= 16 * count + 16 * fed, "work is linear");
    outcome
}
