//! HTTP/2 in clear: frames, pairing by stream, heads that cannot be decoded, loss in the capture.

#[path = "support/frames.rs"]
mod frames;
#[path = "support/packets.rs"]
mod support;

use frames::*;
use proptest::prelude::*;
use schema::Framing;
use support::*;
use watch::{Limits, Watch, WatchSpec};
use wire::link::LinkType;

/// A connection that the client began with its preface, and the server with its settings.
fn talk() -> Talk {
    let mut talk = Talk::new();
    talk.open().send_data(CLIENT, &preface()).send_data(SERVER, &frame(SETTINGS, 0, 0, &[]));
    talk
}

#[test]
fn request_has_the_times_bytes_and_strings_of_its_stream() {
    let mut talk = talk();
    let start = talk.at;
    let request = head(1, END_STREAM, &request("GET", "/a", "x.org"));
    talk.send(CLIENT, ACK, &request[..5]).wait(3).send(CLIENT, ACK, &request[5..]).wait(20);
    let response = [head(1, 0, &status(200)), frame(DATA, 0, 1, b"hello"), frame(DATA, END_STREAM, 1, b"!")].concat();
    talk.send(SERVER, ACK, &response[..20]).wait(4).send(SERVER, ACK, &response[20..]).wait(9).close();
    let outcome = talk.outcome();
    assert_eq!(outcome.requests_seen(), ["GET /a 200 exact"]);
    let seen = &outcome.requests[0];
    assert_eq!((seen.request_first_at, seen.request_last_at), (Some(millis(start)), Some(millis(start + 3))));
    assert_eq!((seen.response_first_at, seen.response_last_at), (Some(millis(start + 23)), Some(millis(start + 27))));
    assert_eq!((seen.service_time_ns(), seen.host.as_deref()), (Some(24_000_000), Some(&b"x.org"[..])));
    assert_eq!((seen.request_bytes, seen.response_bytes), (request.len() as u64, response.len() as u64));
    assert_eq!((seen.http_version, seen.stream, seen.index, seen.minor_version), (2, Some(1), 0, None));
    assert_eq!(seen.user_agent.as_deref(), Some(&b"test"[..]));
    assert_eq!(outcome.connection().requests, 1);
    let [requests, responses] = outcome
        .seconds
        .iter()
        .fold([0, 0], |[requests, responses], second| [requests + second.requests, responses + second.responses]);
    assert_eq!((requests, responses), (1, 1));
}

#[test]
fn concurrent_streams_are_paired_by_number_and_recorded_as_they_end() {
    let mut talk = talk();
    let requests: Vec<u8> = ["/a", "/b", "/c"]
        .iter()
        .zip([1, 3, 5])
        .flat_map(|(path, id)| head(id, END_STREAM, &request("GET", path, "h")))
        .collect();
    talk.send_data(CLIENT, &requests);
    talk.send_data(SERVER, &[head(5, 0, &status(200)), head(1, 0, &status(404)), frame(DATA, 0, 5, b"some")].concat());
    talk.send_data(SERVER, &[frame(DATA, END_STREAM, 1, b"no"), head(3, END_STREAM, &status(204))].concat());
    talk.send_data(SERVER, &frame(DATA, END_STREAM, 5, b"more")).close();
    assert_eq!(talk.outcome().requests_seen(), ["GET /a 404 exact", "GET /b 204 exact", "GET /c 200 exact"]);
}

#[test]
fn bodies_trailers_interim_responses_padding_and_continuations_are_followed() {
    let mut talk = talk();
    let block = request("POST", "/p", "h");
    let (first, rest) = block.split_at(7);
    let (second, third) = rest.split_at(3);
    // Padded, with a priority, in three frames.
    let padded = [&[2][..], &[0, 0, 0, 0, 9], first, &[0, 0]].concat();
    let begin = [
        frame(HEADERS, PADDED | PRIORITY, 1, &padded),
        frame(CONTINUATION, 0, 1, second),
        frame(CONTINUATION, END_HEADERS, 1, third),
    ]
    .concat();
    let body = [frame(DATA, PADDED, 1, b"\x03body\0\0\0"), head(1, END_STREAM, &field("x-sum", "7"))].concat();
    talk.send_data(CLIENT, &begin).send_data(SERVER, &head(1, 0, &status(100)));
    talk.send_data(CLIENT, &body);
    let response =
        [head(1, 0, &status(200)), frame(DATA, 0, 1, b"ok"), head(1, END_STREAM, &field("x-sum", "8"))].concat();
    talk.send_data(SERVER, &response).close();
    let outcome = talk.outcome();
    assert_eq!(outcome.requests_seen(), ["POST /p 200 exact"]);
    let seen = &outcome.requests[0];
    assert_eq!(seen.request_bytes, (begin.len() + body.len()) as u64);
    assert_eq!(seen.response_bytes, (head(1, 0, &status(100)).len() + response.len()) as u64);
    assert!(seen.response_first_at > seen.request_last_at);
}

#[test]
fn early_response_waits_for_the_end_of_its_request() {
    let mut talk = talk();
    talk.send_data(CLIENT, &head(1, 0, &request("POST", "/p", "h")));
    talk.send_data(SERVER, &head(1, END_STREAM, &status(413)));
    assert!(talk.outcome().requests[0].request_last_at.is_none());
    let mut reset = talk.clone();
    reset.send_data(SERVER, &frame(RST_STREAM, 0, 1, &[0; 4])).close();
    let seen = reset.outcome();
    assert_eq!((seen.requests_seen(), seen.requests[0].request_last_at), (vec!["POST /p 413 exact".into()], None));
    talk.send_data(CLIENT, &frame(DATA, END_STREAM, 1, b"late")).close();
    assert_eq!(talk.outcome().requests_seen(), ["POST /p 413 exact"]);
}

#[test]
fn reset_streams_and_those_above_a_goaway_are_incomplete() {
    let mut talk = talk();
    for id in [1, 3, 5, 7] {
        talk.send_data(CLIENT, &head(id, END_STREAM, &request("GET", &format!("/{id}"), "h")));
    }
    talk.send_data(SERVER, &[head(1, 0, &status(200)), frame(DATA, 0, 1, b"part")].concat());
    talk.send_data(CLIENT, &frame(RST_STREAM, 0, 1, &[0, 0, 0, 8]));
    // Sent before the reset arrived.
    talk.send_data(SERVER, &frame(DATA, END_STREAM, 1, b"rest"));
    talk.send_data(SERVER, &frame(GOAWAY, 0, 0, &[0, 0, 0, 3, 0, 0, 0, 0]));
    talk.send_data(SERVER, &head(3, END_STREAM, &status(200))).close();
    assert_eq!(
        talk.outcome().requests_seen(),
        ["GET /1 200 exact incomplete", "GET /7 ? exact incomplete", "GET /5 ? exact incomplete", "GET /3 200 exact"]
    );
}

#[test]
fn promises_are_decoded_and_are_no_requests() {
    let mut talk = talk();
    talk.send_data(CLIENT, &head(1, END_STREAM, &request("GET", "/a", "h")));
    // The promise inserts a field, to which the response refers.
    let promise = [&[0, 0, 0, 2][..], &indexed_literal(":status", "203")].concat();
    talk.send_data(SERVER, &frame(PUSH_PROMISE, END_HEADERS, 1, &promise));
    talk.send_data(SERVER, &[head(2, END_STREAM, &status(200)), head(1, END_STREAM, &[0x80 | 62])].concat()).close();
    assert_eq!(talk.outcome().requests_seen(), ["GET /a 203 exact"]);
}

#[test]
fn upgrade_from_http1_continues_on_stream_1() {
    let get = b"GET /u HTTP/1.1\r\nHost: h\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: \r\n\r\n";
    let switch = b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nupgrade: h2c\r\n\r\n";
    let settings = frame(SETTINGS, 0, 0, &[]);
    for is_one_segment in [true, false] {
        let mut talk = Talk::new();
        talk.open().send_data(CLIENT, get);
        if is_one_segment {
            talk.send_data(SERVER, &[switch, &settings[..]].concat());
        } else {
            talk.send_data(SERVER, switch).send_data(SERVER, &settings);
        }
        talk.send_data(CLIENT, &preface()).send_data(CLIENT, &head(3, END_STREAM, &request("GET", "/v", "h")));
        talk.send_data(SERVER, &[head(1, END_STREAM, &status(200)), head(3, END_STREAM, &status(404))].concat());
        talk.close();
        let outcome = talk.outcome();
        assert_eq!(outcome.requests_seen(), ["GET /u 200 exact", "GET /v 404 exact"]);
        let versions: Vec<_> =
            outcome.requests.iter().map(|seen| (seen.http_version, seen.stream, seen.index)).collect();
        assert_eq!(versions, [(2, Some(1), 0), (2, Some(3), 1)]);
        assert_eq!(outcome.connection().requests, 2);
    }
}

#[test]
fn preface_in_any_pieces_and_after_the_servers_settings_begins_http2() {
    let all = [preface(), head(1, END_STREAM, &request("GET", "/a", "h"))].concat();
    let response = head(1, END_STREAM, &status(200));
    for cut in [1, 2, 3, 10, 24, 30, all.len()] {
        let mut talk = Talk::new();
        talk.open();
        for piece in all.chunks(cut) {
            talk.send_data(CLIENT, piece);
        }
        talk.send_data(SERVER, &[frame(SETTINGS, 0, 0, &[]), response.clone()].concat()).close();
        assert_eq!(talk.outcome().requests_seen(), ["GET /a 200 exact"], "pieces of {cut}");
    }
    let mut talk = Talk::new();
    talk.open().send_data(SERVER, &frame(SETTINGS, 0, 0, &[0, 3, 0, 0, 0, 9])).send_data(CLIENT, &all);
    talk.send_data(SERVER, &response).close();
    assert_eq!(talk.outcome().requests_seen(), ["GET /a 200 exact"]);
    let mut other = Talk::new();
    other.open().send_data(CLIENT, b"PRI * HTTP/2.0\r\n\r\nXX\r\n\r\n").send_data(CLIENT, &all);
    assert!(other.outcome().requests.is_empty());
}

#[test]
fn connection_open_before_the_capture_is_read_from_its_next_heads_and_nothing_is_guessed() {
    let mut talk = Talk::new();
    talk.send_data(SERVER, b"end of some frame").send_data(CLIENT, b"\0\0\x04\x08\0\0\0\0\0\0\0\x10\0");
    // The path is an entry that was inserted before the capture.
    let known = [vec![0x82, 0x80 | 62], indexed_literal(":authority", "x.org")].concat();
    talk.send_data(CLIENT, &head(9, END_STREAM, &known));
    talk.send_data(SERVER, &[head(9, 0, &status(200)), frame(DATA, END_STREAM, 9, b"ok")].concat());
    talk.send_data(CLIENT, &head(11, END_STREAM, &[0x82, 0x84, 0x80 | 62]));
    talk.send_data(SERVER, &head(11, END_STREAM, &[0x80 | 70]));
    let mut watch = Watch::new(WatchSpec::default());
    talk.feed(&mut watch, 65_536);
    assert_eq!(watch.reading().undecoded_heads, 2);
    let outcome = finish(watch, millis(talk.at));
    assert_eq!(outcome.requests_seen(), ["GET ? 200 frames_missing", "GET / ? frames_missing"]);
    assert_eq!(outcome.requests[0].host.as_deref(), Some(&b"x.org"[..]));
    assert_eq!(outcome.requests[1].host.as_deref(), Some(&b"x.org"[..]), "inserted since the capture began");
}

#[test]
fn response_to_an_unseen_request_is_recorded_once() {
    let mut talk = Talk::new();
    talk.send_data(CLIENT, b"in some frame");
    talk.send_data(SERVER, &[head(5, 0, &status(200)), frame(DATA, END_STREAM, 5, b"ok")].concat());
    talk.send_data(CLIENT, &head(7, END_STREAM, &request("GET", "/b", "h")));
    talk.send_data(SERVER, &head(7, END_STREAM, &status(304)));
    assert_eq!(talk.outcome().requests_seen(), ["? ? 200 exact", "GET /b 304 exact"]);
}

#[test]
fn segments_that_are_not_frames_do_not_begin_http2() {
    let good = head(1, END_STREAM, &request("GET", "/a", "h"));
    let mut wrong = [good.clone(), good.clone(), good.clone(), good.clone()];
    wrong[0].pop();
    wrong[1][8] = 2;
    wrong[2].extend([0, 0, 1, 77, 0, 0, 0, 0, 1, 7]);
    wrong[3][9] = 0x80;
    for bytes in wrong {
        let mut talk = Talk::new();
        talk.send_data(CLIENT, &bytes).send_data(SERVER, &head(1, END_STREAM, &request("GET", "/x", "h")));
        assert!(talk.outcome().requests.is_empty(), "{bytes:?}");
    }
}

#[test]
fn hole_in_a_body_is_skipped_and_one_in_frames_is_marked() {
    let response =
        [head(1, 0, &status(200)), frame(DATA, 0, 1, &[7; 3000]), frame(DATA, END_STREAM, 1, b"end")].concat();
    let late = [head(3, 0, &status(200)), frame(DATA, END_STREAM, 3, b"ok")].concat();
    let expected = [(100..2000, "GET /a 200 exact"), (3033..3036, "GET /a 200 frames_missing incomplete")];
    for (lost, first) in expected {
        let mut talk = talk();
        talk.send_data(CLIENT, &head(1, END_STREAM, &request("GET", "/a", "h")));
        talk.send(SERVER, ACK, &response[..lost.start]);
        talk.server.next += lost.len() as u32;
        talk.send(SERVER, ACK, &response[lost.end..]).wait(10).send(CLIENT, ACK, b"");
        talk.send_data(CLIENT, &head(3, END_STREAM, &request("GET", "/b", "h")));
        talk.send_data(SERVER, &late).close();
        let outcome = talk.outcome();
        let mut seen = outcome.requests_seen();
        seen.sort();
        assert_eq!(seen, [first, "GET /b 200 exact"]);
        assert_eq!(outcome.connection().down.missing_bytes, lost.len() as u64);
    }
}

#[test]
fn snap_length_loses_heads_and_the_next_segment_is_read_again() {
    let mut talk = talk();
    let far = [frame(DATA, 0, 1, &[7; 500]), head(1, END_STREAM, &field("x", "y"))].concat();
    talk.send_data(CLIENT, &head(1, END_STREAM, &request("GET", "/a", "h")));
    talk.send_data(SERVER, &head(1, 0, &status(200))).send_data(SERVER, &far);
    talk.send_data(CLIENT, &head(3, END_STREAM, &request("GET", "/b", "h")));
    talk.send_data(SERVER, &head(3, END_STREAM, &status(200))).close();
    assert_eq!(talk.outcome().requests_seen(), ["GET /a 200 exact", "GET /b 200 exact"]);
    let snapped = talk.outcome_with(WatchSpec::default(), 40 + 128);
    assert_eq!(snapped.requests_seen(), ["GET /b 200 exact", "GET /a 200 frames_missing incomplete"]);
}

#[test]
fn analysis_of_http1_alone_leaves_http2_unread() {
    let spec = WatchSpec { later_protocols: false, ..WatchSpec::default() };
    let mut talk = talk();
    talk.send_data(CLIENT, &head(1, END_STREAM, &request("GET", "/a", "x.org")));
    talk.send_data(SERVER, &head(1, END_STREAM, &status(200))).close();
    let outcome = talk.outcome_with(spec, 65_536);
    assert_eq!((outcome.requests.len(), outcome.connection().requests), (0, 0));
}

#[test]
fn contradictory_frames_end_the_reading_of_a_direction() {
    let bad = [
        frame(SETTINGS, 0, 1, &[]),
        frame(HEADERS, END_HEADERS, 0, &[0x82]),
        frame(RST_STREAM, 0, 1, &[0; 5]),
        frame(CONTINUATION, END_HEADERS, 1, &[0x82]),
        frame(HEADERS, END_HEADERS | PADDED, 3, &[9, 0x82]),
        [frame(HEADERS, 0, 3, &[0x82]), frame(DATA, 0, 1, b"x")].concat(),
        head(3, END_STREAM, &[0x80]),
    ];
    for bad in bad {
        let mut talk = talk();
        talk.send_data(CLIENT, &head(1, END_STREAM, &request("GET", "/a", "h"))).send_data(CLIENT, &bad).close();
        let seen = talk.outcome().requests_seen();
        assert_eq!(seen[0], "GET /a ? frames_missing incomplete", "{bad:?}");
    }
}

#[test]
fn too_many_streams_end_the_analysis_and_endless_heads_are_bounded() {
    let limits = Limits { streams: 4, held_per_direction: 10_000, held_in_all: 20_000, ..Limits::default() };
    let spec = WatchSpec { limits, ..WatchSpec::default() };
    let mut many = talk();
    for id in 0..9 {
        many.send_data(CLIENT, &head(2 * id + 1, END_STREAM, &request("GET", "/a", "h")));
    }
    let outcome = many.close().outcome_with(spec.clone(), 65_536);
    assert_eq!(outcome.requests.len(), 4);
    let mut endless = talk();
    endless.send_data(CLIENT, &frame(HEADERS, 0, 1, &request("GET", "/a", "h")));
    for _ in 0..50 {
        endless.send_data(CLIENT, &frame(CONTINUATION, 0, 1, &[0; 1000]));
    }
    let mut watch = Watch::new(spec);
    for (at, packet) in &endless.packets {
        let bytes = packet.bytes();
        watch.handle_packet(millis(*at), LinkType::RawIp, &bytes, bytes.len() as u32);
        assert!(watch.live().bytes_held <= 20_000);
    }
    assert_eq!(finish(watch, millis(endless.at)).requests_seen(), ["? ? ? frames_missing incomplete"]);
}

proptest! {
    /// However segments are cut, retransmitted and reordered, the records are those of the whole stream.
    #[test]
    fn cuts_of_the_stream_change_no_record(cuts in prop::collection::vec(1usize..60, 1..40), swap in 0usize..20) {
        let ids = [1, 3, 5, 7];
        let up: Vec<u8> = preface().into_iter().chain(ids.iter().flat_map(|&id| {
            let block = [request("POST", &format!("/{id}"), "h"), indexed_literal("x-own", "some value")].concat();
            [head(id, 0, &block), frame(DATA, END_STREAM, id, &[7; 40])].concat()
        })).collect();
        let down: Vec<u8> = frame(SETTINGS, 0, 0, &[]).into_iter().chain(ids.iter().flat_map(|&id| {
            [head(id, 0, &status(200)), frame(DATA, END_STREAM, id, &[7; 70])].concat()
        })).collect();
        let mut talk = Talk::new();
        talk.open();
        for (from_client, all) in [(CLIENT, &up), (SERVER, &down)] {
            let (mut at, first) = (0, talk.packets.len());
            for &cut in cuts.iter().cycle() {
                if at >= all.len() { break; }
                let end = (at + cut).min(all.len());
                talk.send(from_client, ACK, &all[at..end]);
                at = end;
            }
            let count = talk.packets.len() - first;
            if count > 2 {
                talk.packets.swap(first + swap % (count - 1), first + swap % (count - 1) + 1);
            }
            talk.wait(10).send(!from_client, ACK, b"");
        }
        let outcome = talk.close().outcome();
        let expected: Vec<String> = ids.iter().map(|id| format!("POST /{id} 200 exact")).collect();
        prop_assert_eq!(outcome.requests_seen(), expected);
        let bytes: u64 = outcome.requests.iter().map(|seen| seen.request_bytes).sum();
        prop_assert_eq!(bytes, up.len() as u64 - preface().len() as u64);
    }

    /// Any bytes in place of some of the stream's neither panic nor hold memory, and every request has one record.
    #[test]
    fn changed_bytes_are_survived(changes in prop::collection::vec((0usize..400, any::<u8>()), 0..6), is_up: bool, snap in 40usize..400) {
        let mut talk = talk();
        let mut bytes: Vec<u8> = [1, 3, 5].iter().flat_map(|&id| {
            [head(id, 0, &request("POST", "/a", "h")), frame(DATA, END_STREAM, id, b"body")].concat()
        }).collect();
        for (at, value) in changes {
            let at = at % bytes.len();
            bytes[at] = value;
        }
        for piece in bytes.chunks(90) {
            talk.send_data(is_up, piece);
        }
        let outcome = talk.close().outcome_with(WatchSpec::default(), snap);
        let requests: u64 = outcome.seconds.iter().map(|second| second.requests).sum();
        let own = outcome.requests.iter().filter(|seen| seen.request_first_at.is_some()).count();
        prop_assert_eq!(own as u64, requests);
        prop_assert!(outcome.requests.iter().all(|seen| seen.framing != Framing::ByDirection));
    }
}
