//! A capture file from its first byte to the records, as `watch -r` reads it.

use super::outcome::{Outcome, SMALL, check_bounds, finish, watch};
use units::Timestamp;
use watch::take_work;
use wire::capture::packets;
use wire::link::LinkType;

/// Bounds hold, books balance, the work is linear, and a second reading gives the same.
pub fn run(bytes: &[u8]) {
    assert_eq!(read(bytes), read(bytes));
}

fn read(bytes: &[u8]) -> Outcome {
    let mut watch = watch(SMALL);
    let (mut last, mut count) = (Timestamp::ZERO, 0);
    for packet in packets(bytes).map_while(Result::ok) {
        let Some(link) = LinkType::from_number(packet.link) else { continue };
        watch.handle_packet(packet.at, link, packet.bytes, packet.original_length);
        check_bounds(&watch, &SMALL);
        (last, count) = (last.max(packet.at), count + 1);
    }
    let outcome = finish(watch, last);
    assert!(take_work() <= 64 * count + 8 * bytes.len() as u64);
    outcome
}
