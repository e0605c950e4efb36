//! A QUIC connection that is decrypted: every piece is the plain text of one packet.
//!
//! ```text
//!   bit 0 way, bits 1 to 2 level, bit 3 the packet repeats the number before, bits 4.. time step; length (2 bytes), frames
//! ```

use super::outcome::{Outcome, SMALL, check_bounds, finish, udp};
use schema::{Direction, QuicPacket};
use units::Timestamp;
use watch::{Level, Sealer, Watch, WatchSpec, take_work};
use wire::link::LinkType;

/// Any frames give the same records and packets twice, within the limits, with work that is linear in their bytes.
pub fn run(bytes: &[u8]) {
    let bytes = &bytes[..bytes.len().min(8_192)];
    assert_eq!(read(bytes), read(bytes), "the same twice");
}

fn read(bytes: &[u8]) -> (Outcome, Vec<QuicPacket>) {
    let spec =
        WatchSpec { limits: SMALL, key_log: Some(Sealer::key_log()), quic_packets: true, ..WatchSpec::default() };
    let (mut watch, sealer) = (Watch::new(spec), Sealer::default());
    let mut at = 1_000_000;
    let (mut sent, mut packets) = (0, Vec::new());
    let mut send = |watch: &mut Watch, is_up: bool, datagram: &[u8], at: u64| {
        let (client, server) = (([198, 19, 0, 1], 40_000), ([198, 18, 0, 1], 443));
        let (source, destination) = if is_up { (client, server) } else { (server, client) };
        let packet = udp(source, destination, datagram);
        watch.handle_packet(Timestamp::from_nanos(at), LinkType::RawIp, &packet, packet.len() as u32);
        watch.take_quic_packets(&mut packets);
        check_bounds(watch, &SMALL);
        sent += 1;
    };
    let [hello, answer] = sealer.opening();
    send(&mut watch, true, &hello, at);
    send(&mut watch, false, &answer, at);
    // The ClientHello's padding is a constant cost.
    take_work();
    let (mut rest, mut number) = (bytes, 0);
    while let Some((&[control, high, low], after)) = rest.split_first_chunk::<3>() {
        let length = usize::from(u16::from_be_bytes([high, low])).min(after.len()).min(1_300);
        let (frames, after) = after.split_at(length);
        let direction = if control & 1 == 0 { Direction::Up } else { Direction::Down };
        let level = [Level::Data, Level::Handshake, Level::EarlyData, Level::Initial][usize::from(control >> 1 & 3)];
        number += u32::from(control & 8 == 0);
        at += u64::from(control >> 4) * 3_000_000_000;
        // The shortest payload from which a sample can be taken (RFC 9001, section 5.4.2).
        let frames = if frames.is_empty() { &[0][..] } else { frames };
        let is_up = direction == Direction::Up || level == Level::EarlyData;
        send(&mut watch, is_up, &sealer.datagram(level, direction, number, frames), at);
        rest = after;
    }
    let frames: usize = packets.iter().map(|packet| packet.frames.len()).sum();
    assert!(frames <= bytes.len() + 16, "a frame has a byte or more");
    let outcome = finish(watch, Timestamp::from_nanos(at));
    assert!(take_work() <= 64 * sent + 128 * bytes.len() as u64, "work is linear");
    (outcome, packets)
}
