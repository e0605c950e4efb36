//! HTTP/3 by hand: streams, heads that wait, resets, holes.

use proptest::prelude::*;
use schema::WireRequest;
use wire::ip::Addresses;

use super::*;
use crate::interned::Words;
use crate::key::Key;
use crate::out::Context;
use crate::reading::Reading;
use crate::secrets::SecretStore;
use crate::series::Series;
use crate::{CapturePoint, Limits};

const UP: Direction = Direction::Up;
const DOWN: Direction = Direction::Down;

/// What a connection is lent.
struct Bench {
    http: Http3,
    series: Series,
    reading: Reading,
    words: Words,
    requests: Vec<WireRequest>,
    held: usize,
    limits: Limits,
    at: u64,
}

impl Bench {
    fn new() -> Bench {
        Bench {
            http: Http3::new(),
            series: Series::new(),
            reading: Reading::default(),
            words: Words::new(),
            requests: Vec::new(),
            held: 0,
            limits: Limits::default(),
            at: 0,
        }
    }

    fn with(&mut self, then: impl FnOnce(&mut Http3, &mut Out<'_>)) -> &mut Bench {
        self.at += 1;
        let (key, _) = Key::new(Addresses::V4([198, 19, 0, 1], [198, 18, 0, 1]), 40_000, 443);
        let mut context = Context {
            at: self.at,
            packet: 1,
            next_connection: 0,
            idle_timeout_ns: 0,
            capture_point: CapturePoint::AtServer,
            limits: &self.limits,
            secrets: &mut SecretStore::default(),
            later_protocols: true,
            stores_words: true,
            series: &mut self.series,
            reading: &mut self.reading,
            words: &mut self.words,
            requests: &mut self.requests,
            quic_packets: &mut crate::quic::PacketLog::default(),
            held: &mut self.held,
        };
        then(&mut self.http, &mut context.out(&key, 0, false));
        assert!(self.held <= self.limits.held_in_all);
        self
    }

    fn send(&mut self, direction: Direction, id: u64, offset: u64, bytes: &[u8], ends: bool) -> &mut Bench {
        self.with(|http, out| http.receive(direction, id, offset, bytes, ends, out))
    }

    /// Ends the connection; method, path, status and framing of every request, in the order of ending.
    fn finish(&mut self) -> Vec<String> {
        self.with(|http, out| http.finish(out));
        assert_eq!((self.held, self.series.gauges()), (0, [0, 0, 0]));
        let word = |word: &Option<std::sync::Arc<[u8]>>| {
            word.as_deref().map_or("?".to_owned(), |word| String::from_utf8_lossy(word).into_owned())
        };
        let line = |request: &WireRequest| {
            let status = request.status.map_or("?".to_owned(), |status| status.to_string());
            let mark = if request.complete { "" } else { " incomplete" };
            format!("{} {} {status} {}{mark}", word(&request.method), word(&request.path), request.framing.as_str())
        };
        self.requests.iter().map(line).collect()
    }
}

fn frame(kind: u8, content: &[u8]) -> Vec<u8> {
    [&[kind, 0x40, content.len() as u8], content].concat()
}

/// GET with this path, as literals.
fn get(path: &str) -> Vec<u8> {
    frame(1, &[&[0, 0, 0xD1, 0xD7, 0x51, path.len() as u8], path.as_bytes()].concat())
}

/// Status 200.
fn ok() -> Vec<u8> {
    frame(1, &[0, 0, 0xD9])
}

#[test]
fn request_is_paired_on_its_stream_with_its_bytes_and_times() {
    let mut bench = Bench::new();
    let response = [ok(), frame(0, b"hello"), frame(0x21, b"grease"), frame(0, b"!")].concat();
    bench.send(UP, 0, 0, &get("/a"), true).send(DOWN, 0, 0, &response[..9], false);
    bench.send(DOWN, 0, 9, &response[9..], true);
    assert_eq!(bench.finish(), ["GET /a 200 exact"]);
    let seen = &bench.requests[0];
    assert_eq!((seen.http_version, seen.stream, seen.index), (3, Some(0), 0));
    assert_eq!((seen.request_bytes, seen.response_bytes), (get("/a").len() as u64, response.len() as u64));
    let at = |at: Option<units::Timestamp>| at.map(units::Timestamp::as_nanos);
    let times = [seen.request_first_at, seen.request_last_at, seen.response_first_at, seen.response_last_at].map(at);
    assert_eq!(times, [Some(1), Some(1), Some(2), Some(3)]);
}

#[test]
fn packets_in_any_order_end_a_response_with_its_last_byte() {
    let mut bench = Bench::new();
    let response = [ok(), frame(0, &[7; 60])].concat();
    bench.send(UP, 4, 0, &get("/a"), true);
    bench.send(DOWN, 4, 20, &response[20..], true).send(DOWN, 4, 0, &response[..10], false);
    bench.send(DOWN, 4, 30, &response[30..40], false).send(DOWN, 4, 10, &response[10..20], false);
    assert_eq!(bench.requests.len(), 1);
    assert_eq!(bench.requests[0].response_last_at.map(units::Timestamp::as_nanos), Some(5));
    bench.send(DOWN, 4, 0, &response, true).send(UP, 4, 0, &get("/a"), true);
    assert_eq!(bench.finish(), ["GET /a 200 exact"], "repeated packets begin nothing");
}

#[test]
fn longer_piece_of_a_body_replaces_a_shorter_one_that_was_stored() {
    let mut bench = Bench::new();
    let response = [ok(), frame(0, &[7; 60])].concat();
    bench.send(UP, 0, 0, &get("/a"), true).send(DOWN, 0, 30, &response[30..40], false);
    bench.send(DOWN, 0, 0, &response[..12], false).send(DOWN, 0, 30, &response[30..], true);
    bench.send(DOWN, 0, 12, &response[12..30], false);
    assert_eq!(bench.finish(), ["GET /a 200 exact"]);
}

/// Megabytes are in transit at a distance when a packet is lost: of bodies nothing is kept, whatever frames they have.
#[test]
fn hole_in_a_body_needs_no_memory_for_what_follows() {
    let mut bench = Bench::new();
    bench.limits = Limits { held_per_direction: 1000, ..Limits::default() };
    let body: Vec<u8> = (0..200).flat_map(|number| frame(0, &[number; 200])).collect();
    let response = [ok(), body, frame(1, &[0, 0])].concat();
    bench.send(UP, 0, 0, &get("/a"), true);
    // The second hole ends with a frame's head, which is missing only until then.
    let holes = [(300, 350), (20_350, 20_400), (30_000, 30_201)];
    let mut at = 0;
    for (start, end) in holes {
        bench.send(DOWN, 0, at as u64, &response[at..start], false);
        at = end;
    }
    for (offset, piece) in (at..).step_by(100).zip(response[at..at + 600].chunks(100)) {
        bench.send(DOWN, 0, offset as u64, piece, false);
    }
    for (start, end) in holes.into_iter().rev() {
        bench.send(DOWN, 0, start as u64, &response[start..end], false);
    }
    let rest = at + 600;
    bench.send(DOWN, 0, rest as u64, &response[rest..], true);
    assert_eq!(bench.finish(), ["GET /a 200 exact"]);
    assert_eq!(bench.requests[0].response_bytes, response.len() as u64);
}

#[test]
fn head_waits_for_the_entries_that_it_refers_to() {
    let mut bench = Bench::new();
    // Settings of the server: a table of 220 bytes for the client's encoder.
    bench.send(DOWN, 3, 0, &[0, 4, 3, 1, 0x40, 220], false);
    // RFC 9204, appendix B.2.
    let head = frame(1, &[0x03, 0x81, 0x10, 0x11, 0xD1]);
    bench.send(UP, 0, 0, &head, true).send(DOWN, 0, 0, &ok(), true);
    assert!(bench.requests.is_empty());
    let stream = [&[2, 0x3F, 0xBD, 0x01, 0xC0, 0x0F][..], b"www.example.com\xC1\x0C/sample/path"].concat();
    bench.send(UP, 2, 0, &stream[..25], false);
    assert!(bench.requests.is_empty());
    bench.send(UP, 2, 25, &stream[25..], false);
    assert_eq!(bench.requests.len(), 1);
    assert_eq!(bench.requests[0].host.as_deref(), Some(&b"www.example.com"[..]));
    bench.send(UP, 4, 0, &frame(1, &[0x05, 0x81, 0x10]), true).send(DOWN, 4, 0, &ok(), true);
    assert_eq!(bench.finish(), ["GET /sample/path 200 exact", "? ? 200 frames_missing"]);
    assert_eq!(bench.reading.undecoded_heads, 1);
}

#[test]
fn resets_goaway_and_holes_leave_requests_incomplete() {
    let mut bench = Bench::new();
    for (id, path) in [(0, "/0"), (4, "/4"), (8, "/8"), (12, "/12"), (16, "/16")] {
        bench.send(UP, id, 0, &get(path), id != 12);
    }
    bench.with(|http, out| http.reset(DOWN, 0, out));
    bench.send(DOWN, 4, 0, &ok(), false).send(DOWN, 4, 100, b"x", true);
    bench.send(DOWN, 3, 0, &[0, 4, 0, 7, 1, 16], false);
    // Interim, then final; the client gives up its body.
    bench.send(DOWN, 12, 0, &[frame(1, &[0, 0, 0xFF, 0]), ok()].concat(), true);
    bench.with(|http, out| http.reset(UP, 12, out));
    let seen = bench.finish();
    assert_eq!(
        seen,
        [
            "GET /0 ? exact incomplete",
            "GET /16 ? exact incomplete",
            "GET /12 200 exact",
            "GET /4 200 exact incomplete",
            "GET /8 ? exact incomplete"
        ]
    );
}

#[test]
fn streams_and_memory_are_bounded() {
    let mut bench = Bench::new();
    bench.limits = Limits { streams: 4, held_per_direction: 1000, held_in_all: 60_000, ..Limits::default() };
    bench.send(UP, 0, 0, &frame(1, &[0; 60])[..10], false);
    for piece in 0..100u64 {
        bench.send(UP, 0, 20 + 10 * piece, &[1; 9], false);
    }
    bench.send(UP, 4, 0, &[1, 0x80, 1, 0, 0], false);
    for piece in 0..100u64 {
        bench.send(UP, 4, 5 + 100 * piece, &[0; 100], false);
    }
    for id in 0..9 {
        bench.send(UP, 4 * id, 0, &get("/a"), true);
    }
    assert!(bench.finish().len() <= 4);
}

proptest! {
    /// However streams are cut and reordered, the requests are those of the whole streams.
    #[test]
    fn cuts_and_order_change_no_request(order in prop::collection::vec((0usize..3, 0usize..200, 1usize..50), 0..60)) {
        let mut bench = Bench::new();
        let streams: Vec<[Vec<u8>; 2]> = (0..3u64)
            .map(|id| [get(&format!("/{id}")), [ok(), frame(0, &[7; 80]), frame(0, &[8; 50])].concat()])
            .collect();
        for (which, at, length) in order {
            for (direction, bytes) in [UP, DOWN].into_iter().zip(&streams[which]) {
                let (from, to) = (at.min(bytes.len()), (at + length).min(bytes.len()));
                // A response comes after its request has begun.
                if direction == UP || bench.http.streams.contains_key(&(4 * which as u64)) {
                    bench.send(direction, 4 * which as u64, from as u64, &bytes[from..to], to == bytes.len());
                }
            }
        }
        for (id, [up, down]) in (0..).zip(&streams) {
            bench.send(UP, 4 * id, 0, up, true).send(DOWN, 4 * id, 0, down, true);
        }
        let mut seen = bench.finish();
        seen.sort();
        prop_assert_eq!(seen, ["GET /0 200 exact", "GET /1 200 exact", "GET /2 200 exact"]);
        prop_assert!(bench.requests.iter().all(|request| request.response_bytes == streams[0][1].len() as u64));
    }

    #[test]
    fn any_pieces_are_survived(
        pieces in prop::collection::vec((any::<bool>(), 0u64..20, 0u64..200, prop::collection::vec(any::<u8>(), 0..60), any::<bool>()), 0..60),
    ) {
        let mut bench = Bench::new();
        bench.limits = Limits { streams: 4, held_per_direction: 500, held_in_all: 20_000, ..Limits::default() };
        for (is_up, id, offset, bytes, ends) in pieces {
            bench.send(if is_up { UP } else { DOWN }, id, offset, &bytes, ends);
            if bytes.len() > 55 {
                bench.with(|http, out| http.reset(if is_up { UP } else { DOWN }, id, out));
            }
        }
        bench.finish();
    }
}
