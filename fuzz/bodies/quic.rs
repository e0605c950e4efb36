//! QUIC between few ends: every piece is a UDP datagram of one side.
//!
//! ```text
//!   bit 0 way, bits 1 to 2 client's port, bit 3 short snap length, bits 4.. time step; length (2 bytes), the datagram
//! ```

use super::outcome::{Outcome, SMALL, check_bounds, finish, udp, watch};
use units::Timestamp;
use watch::take_work;
use wire::link::LinkType;

/// Any datagrams give the same records twice, within the limits, with work that is linear in their bytes.
pub fn run(bytes: &[u8]) {
    let bytes = &bytes[..bytes.len().min(16_384)];
    assert_eq!(read(bytes), read(bytes), "the same twice");
}

fn read(bytes: &[u8]) -> Outcome {
    let mut watch = watch(SMALL);
    let (mut rest, mut at, mut count) = (bytes, 1_000_000, 0);
    while let Some((&[control, high, low], after)) = rest.split_first_chunk::<3>() {
        let length = usize::from(u16::from_be_bytes([high, low])).min(after.len()).min(2000);
        let (datagram, after) = after.split_at(length);
        let client = ([198, 19, 0, 1], 40_000 + u16::from(control >> 1 & 3));
        let server = ([198, 18, 0, 1], 443);
        let (source, destination) = if control & 1 == 0 { (client, server) } else { (server, client) };
        let packet = udp(source, destination, datagram);
        let kept = if control & 8 != 0 { packet.len().min(28 + 600) } else { packet.len() };
        at += u64::from(control >> 4) * 3_000_000_000;
        watch.handle_packet(Timestamp::from_nanos(at), LinkType::RawIp, &packet[..kept], packet.len() as u32);
        check_bounds(&watch, &SMALL);
        count += 1;
        rest = after;
    }
    let mut records = Vec::new();
    watch.take_quic_connections(&mut records);
    let counts = watch.live().counts;
    let outcome = finish(watch, Timestamp::from_nanos(at));
    assert!(records.len() as u64 <= counts.quic_connections);
    assert!(take_work() <= 64 * count + 64 * bytes.len() as u64, "work is linear");
    outcome
}
