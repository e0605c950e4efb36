//! Any bytes as a capture file, analysed as by `watch -r`.

use super::outcome::{Outcome, SMALL, check_bounds, finish};
use units::Timestamp;
use watch::{Watch, WatchSpec, take_work};
use wire::capture::packets;
use wire::link::LinkType;

/// Limits hold, counts are consistent, the work is linear, and a second analysis gives the same records.
pub fn run(bytes: &[u8]) {
    assert_eq!(read(bytes, true), read(bytes, true));
    read(bytes, false);
}

/// `duplicates`: whether duplicated packets are left out.
fn read(bytes: &[u8], duplicates: bool) -> Outcome {
    take_work();
    let mut watch = Watch::new(WatchSpec { limits: SMALL, duplicates, ..WatchSpec::default() });
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
