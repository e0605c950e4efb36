//! Invariants for any packets.

#[path = "support/packets.rs"]
mod support;

use proptest::prelude::*;
use support::*;
use units::Timestamp;
use watch::{Limits, Watch, WatchSpec};
use wire::link::LinkType;

const LINKS: [LinkType; 5] =
    [LinkType::RawIp, LinkType::Ethernet, LinkType::LinuxCooked, LinkType::LinuxCookedV2, LinkType::Loopback];

fn small() -> WatchSpec {
    let limits = Limits { flows: 8, held_per_direction: 4096, held_in_all: 16_384, holes: 4, pipelined: 4, streams: 4 };
    WatchSpec { limits, ..WatchSpec::default() }
}

/// Both directions of a connection with requests of every kind.
fn script() -> Vec<(bool, Vec<u8>)> {
    let body = vec![b'b'; 3000];
    vec![
        (CLIENT, b"GET /a HTTP/1.1\r\nHost: one\r\n\r\n".to_vec()),
        (SERVER, [&b"HTTP/1.1 200 OK\r\nContent-Length: 3000\r\n\r\n"[..], &body].concat()),
        (
            CLIENT,
            [&b"POST /b HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nBB8\r\n"[..], &body, b"\r\n0\r\n\r\n"].concat(),
        ),
        (SERVER, b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n".to_vec()),
        (CLIENT, b"HEAD /c HTTP/1.1\r\n\r\nGET /d HTTP/1.1\r\n\r\n".to_vec()),
        (SERVER, b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nHTTP/1.1 304 Same\r\n\r\n".to_vec()),
        (CLIENT, b"GET /e HTTP/1.1\r\n\r\n".to_vec()),
        (SERVER, b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5;x=y\r\nhello\r\n0\r\nT: v\r\n\r\n".to_vec()),
        (CLIENT, b"GET /f HTTP/1.0\r\n\r\n".to_vec()),
        (SERVER, [&b"HTTP/1.0 200 OK\r\n\r\n"[..], &body].concat()),
    ]
}

const REQUESTS_SEEN: [&str; 6] = [
    "GET /a 200 exact",
    "POST /b 204 exact",
    "HEAD /c 200 exact",
    "GET /d 304 exact",
    "GET /e 200 exact",
    "GET /f 200 exact",
];

/// The script in segments of the given sizes, in turn; acknowledged at the end of each part.
fn segmented(sizes: &[usize]) -> Talk {
    let (mut talk, mut sizes) = (Talk::new(), sizes.iter().copied().cycle());
    talk.open();
    for (from_client, bytes) in script() {
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            let (part, after) = rest.split_at(sizes.next().unwrap_or(1).min(rest.len()));
            talk.send(from_client, ACK, part);
            rest = after;
        }
        talk.wait(5).send(!from_client, ACK, b"");
    }
    talk.send(SERVER, FIN | ACK, b"").send(CLIENT, FIN | ACK, b"").send(SERVER, ACK, b"");
    talk
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn any_segmentation_gives_the_same_requests(sizes in prop::collection::vec(1usize..1500, 1..12)) {
        let outcome = segmented(&sizes).outcome();
        prop_assert_eq!(outcome.requests_seen(), REQUESTS_SEEN);
        let bytes: Vec<_> = outcome.requests.iter().map(|request| (request.request_bytes, request.response_bytes)).collect();
        let whole = segmented(&[100_000]).outcome();
        let expected: Vec<_> = whole.requests.iter().map(|request| (request.request_bytes, request.response_bytes)).collect();
        prop_assert_eq!(bytes, expected);
        prop_assert_eq!(outcome.connection().down.unique_bytes, whole.connection().down.unique_bytes);
    }

    /// Data segments of one turn in any order and some of them twice; acknowledgements keep their places.
    #[test]
    fn reordering_and_repetition_change_no_request(size in 50usize..800, keys in prop::collection::vec(any::<u32>(), 400),
                                                   twice in prop::collection::vec(prop::bool::weighted(0.1), 400)) {
        let straight = segmented(&[size]);
        let mut turns: Vec<Vec<(u64, Packet)>> = vec![Vec::new()];
        for packet in &straight.packets {
            if packet.1.payload.is_empty() {
                turns.push(vec![packet.clone()]);
                turns.push(Vec::new());
            } else {
                turns.last_mut().unwrap().push(packet.clone());
            }
        }
        let mut shuffled = straight.clone();
        let (mut keys, mut twice) = (keys.iter().cycle(), twice.iter().cycle());
        shuffled.packets = turns.into_iter().flat_map(|turn| {
            let mut turn: Vec<_> = turn.into_iter().flat_map(|packet| {
                let copies = 1 + usize::from(*twice.next().unwrap());
                vec![packet; copies]
            }).map(|packet| (*keys.next().unwrap(), packet)).collect();
            turn.sort_by_key(|(key, _)| *key);
            turn.into_iter().map(|(_, packet)| packet)
        }).collect();
        let (outcome, expected) = (shuffled.outcome(), straight.outcome());
        prop_assert_eq!(outcome.requests_seen(), REQUESTS_SEEN);
        let (found, expected) = (outcome.connection(), expected.connection());
        prop_assert_eq!((found.up.unique_bytes, found.down.unique_bytes), (expected.up.unique_bytes, expected.down.unique_bytes));
        prop_assert_eq!((found.up.missing_bytes, found.down.missing_bytes, found.state), (0, 0, expected.state));
    }

    /// Lost packets of the capture may lose strings, but never the balance of counts.
    #[test]
    fn lost_and_truncated_packets_keep_the_counts_balanced(keep in prop::collection::vec(prop::bool::weighted(0.8), 200),
                                                         snap in 40usize..300, size in 20usize..900) {
        let mut talk = segmented(&[size]);
        let mut keep = keep.iter().cycle();
        talk.packets.retain(|_| *keep.next().unwrap());
        let outcome = talk.outcome_with(WatchSpec::default(), snap);
        let sum = |of: fn(&schema::WatchSecond) -> u64| outcome.seconds.iter().map(of).sum::<u64>();
        prop_assert!(outcome.requests.len() <= 14);
        prop_assert_eq!(sum(|row| row.packets), talk.packets.len() as u64);
        prop_assert_eq!(sum(|row| row.responses), outcome.requests.iter().filter(|request| request.complete).count() as u64);
    }

    #[test]
    fn random_bytes_never_panic(packets in prop::collection::vec((any::<u64>(), 0usize..5, prop::collection::vec(any::<u8>(), 0..120), any::<u32>()), 0..40)) {
        let mut watch = Watch::new(small());
        for (at, link, bytes, length) in &packets {
            watch.handle_packet(Timestamp::from_nanos(*at), LINKS[*link], bytes, *length);
        }
        prop_assert_eq!(watch.live().counts.packets, packets.len() as u64);
        finish(watch, Timestamp::MAX);
    }

    /// Valid headers with random contents between few ends: every path of the TCP state machine, in any order.
    #[test]
    fn random_segments_never_panic(packets in prop::collection::vec(
        (0u64..4000, any::<bool>(), 0u16..3, any::<u8>(), 0u32..3000, 0u32..3000, 0usize..11, 0usize..200, any::<bool>()), 0..200)) {
        let mut watch = Watch::new(small());
        let texts = script();
        for (step, (at, from_client, port, flags, sequence, acknowledgement, text, snap, wild)) in packets.iter().enumerate() {
            let talk = Talk::from_port(50_000 + port);
            let mut packet = talk.make(*from_client, *flags & 0x17, texts.get(*text).map_or(&[][..], |(_, text)| text));
            let far = if *wild { 0x7FFF_FF00 } else { 0 };
            packet.sequence = sequence.wrapping_add(far);
            packet.acknowledgement = acknowledgement.wrapping_add(far);
            packet.window = (step % 3) as u16;
            let bytes = packet.bytes();
            let captured = (40 + snap * 20).min(bytes.len());
            watch.handle_packet(millis(at + 10 * step as u64), LinkType::RawIp, &bytes[..captured], bytes.len() as u32);
            prop_assert!(watch.live().flows_held <= 8 && watch.live().bytes_held <= 16_384);
        }
        finish(watch, millis(10_000));
    }
}
