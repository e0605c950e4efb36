//! HTTP framing: turns of any bytes, each `way and way of cutting, length, bytes`, on one connection without loss.

use super::outcome::{Outcome, finish, watch};
use super::packets::{ACK, FIN, SYN, segment};
use schema::Framing;
use units::Timestamp;
use watch::{Limits, take_work};
use wire::link::LinkType;

/// The same requests come out however the turns are cut into segments; cut captures keep the books balanced.
pub fn run(bytes: &[u8]) {
    let bytes = &bytes[..bytes.len().min(16_384)];
    let whole = read(bytes, Cut::Whole, usize::MAX);
    for cut in [Cut::Bytes, Cut::Told] {
        let apart = read(bytes, cut, usize::MAX);
        // All of it, times too: every segment of a turn has the same. Where a direction was lost, its next start is
        // looked for in the first segment of a turn, whatever its size: from there on the cutting counts.
        let exact = whole.requests.iter().take_while(|request| request.complete && request.framing == Framing::Exact);
        for (at, request) in exact.enumerate() {
            assert_eq!(apart.requests.get(at), Some(request), "{cut:?}");
        }
        for (apart, whole) in apart.connections.iter().zip(&whole.connections) {
            // A hello that comes in very many pieces is given up; its name is then unknown, never another.
            assert!(apart.server_name.is_none() || apart.server_name == whole.server_name);
            assert_eq!(apart.up.unique_bytes, whole.up.unique_bytes);
            assert_eq!(apart.down.unique_bytes, whole.down.unique_bytes);
        }
    }
    for snap in [64, 96] {
        read(bytes, Cut::Told, snap);
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cut {
    Whole,
    Bytes,
    Told,
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
        // Lengths of up to 4 KB in one byte: small ones exactly.
        let length = if *length < 200 { usize::from(*length) } else { (usize::from(*length) - 196) * 64 };
        let (mut turn, after) = rest.split_at(length.min(rest.len()));
        bytes = after;
        let mut seed = u32::from(*kind) | 1;
        while !turn.is_empty() {
            seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let size = match cut {
                Cut::Whole => turn.len(),
                Cut::Bytes => 1,
                Cut::Told => 1 + (seed >> 16) as usize % 60,
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
