//! HTTP: framing, pairing, unknown parts, the TLS server name.

#[path = "support/packets.rs"]
mod support;

use support::*;
use watch::{Limits, WatchSpec};

const GET: &[u8] = b"GET /a HTTP/1.1\r\nHost: x.org\r\n\r\n";
const OK: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";

/// The requests of an exchange of (sender, bytes) on a connection opened before and closed after.
fn requests_seen(messages: &[(bool, &[u8])]) -> Vec<String> {
    talk(messages).outcome().requests_seen()
}

fn talk(messages: &[(bool, &[u8])]) -> Talk {
    let mut talk = Talk::new();
    talk.open();
    for (from_client, bytes) in messages {
        talk.send_data(*from_client, bytes);
    }
    talk.close();
    talk
}

#[test]
fn request_has_four_times_and_its_strings() {
    let mut talk = Talk::new();
    talk.open().send(CLIENT, ACK, &GET[..9]).wait(3).send(CLIENT, ACK, &GET[9..]).wait(20);
    talk.send(SERVER, ACK, &OK[..40]).wait(4).send(SERVER, ACK, &OK[40..]).wait(9).close();
    let outcome = talk.outcome();
    assert_eq!(outcome.requests_seen(), ["GET /a 200 exact"]);
    let request = &outcome.requests[0];
    assert_eq!((request.request_first_at, request.request_last_at), (Some(millis(1050)), Some(millis(1053))));
    assert_eq!((request.response_first_at, request.response_last_at), (Some(millis(1073)), Some(millis(1077))));
    assert_eq!((request.service_time_ns(), request.host.as_deref()), (Some(24_000_000), Some(&b"x.org"[..])));
    assert_eq!((request.request_bytes, request.response_bytes), (GET.len() as u64, OK.len() as u64));
    assert_eq!((request.connection, request.index, outcome.connection().requests), (0, 0, 1));
}

#[test]
fn response_framing_follows_http() {
    let chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\nA: b\r\n\r\n";
    let head = b"HEAD /h HTTP/1.1\r\n\r\n";
    let long = b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n";
    let not_modified = b"HTTP/1.1 304 Not Modified\r\nContent-Length: 99\r\n\r\n";
    let no_content = b"HTTP/1.1 204 No Content\r\n\r\n";
    assert_eq!(
        requests_seen(&[
            (CLIENT, GET),
            (SERVER, chunked),
            (CLIENT, head),
            (SERVER, long),
            (CLIENT, GET),
            (SERVER, not_modified),
            (CLIENT, GET),
            (SERVER, no_content),
            (CLIENT, GET),
            (SERVER, OK),
        ]),
        ["GET /a 200 exact", "HEAD /h 200 exact", "GET /a 304 exact", "GET /a 204 exact", "GET /a 200 exact"]
    );
}

#[test]
fn response_ends_with_the_connection_or_is_incomplete() {
    let until_close = b"HTTP/1.0 200 OK\r\n\r\nas long as it lasts";
    assert_eq!(requests_seen(&[(CLIENT, GET), (SERVER, until_close)]), ["GET /a 200 exact"]);
    assert_eq!(requests_seen(&[(CLIENT, GET), (SERVER, &OK[..40])]), ["GET /a 200 exact incomplete"]);
    assert_eq!(requests_seen(&[(CLIENT, GET)]), ["GET /a ? exact incomplete"]);
    let mut reset = Talk::new();
    reset.open().send_data(CLIENT, GET).send_data(SERVER, until_close).send(SERVER, RST, b"");
    assert_eq!(reset.outcome().requests_seen(), ["GET /a 200 exact incomplete"]);
}

#[test]
fn lists_folds_and_long_heads_are_framed_like_in_the_load() {
    let many = format!("HTTP/1.1 200 OK\r\n{}Content-Length: 5\r\n\r\nhello", "X: y\r\n".repeat(600));
    let long = format!("HTTP/1.1 200 OK\r\nX: {}\r\nContent-Length: 5\r\n\r\nhello", "y".repeat(60_000));
    for response in [
        "HTTP/1.1 200 OK\r\nContent-Length: 5, 5\r\n\r\nhello",
        "HTTP/1.1 200 OK\r\nContent-Length:\r\n 5\r\n\r\nhello",
        "HTTP/1.1 200 OK\r\nX: one\r\n Content-Length: 6\r\nContent-Length: 5\r\n\r\nhello",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked, chunked\r\n\r\n0000000000000005\r\nhello\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding:\r\n chunked\r\n\r\n0\r\n\r\n",
        "\r\nHTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello\r\n",
        &many,
        &long,
    ] {
        let seen = requests_seen(&[(CLIENT, GET), (SERVER, response.as_bytes()), (CLIENT, GET), (SERVER, OK)]);
        assert_eq!(seen, ["GET /a 200 exact", "GET /a 200 exact"], "{}", &response[..response.len().min(80)]);
    }
}

#[test]
fn response_with_invalid_framing_lasts_until_the_client_sends() {
    for fields in [
        "Content-Length: +5",
        "Content-Length: 5\r\nContent-Length: 6",
        "Content-Length : 5",
        "Content-Length: 5\0",
        "Content-Length:",
        "Transfer-Encoding: chunked;q=1",
    ] {
        let response = format!("HTTP/1.1 200 OK\r\n{fields}\r\n\r\nhello");
        let seen = requests_seen(&[(CLIENT, GET), (SERVER, response.as_bytes()), (CLIENT, GET), (SERVER, OK)]);
        assert_eq!(seen, ["GET /a 200 by_direction", "GET /a 200 exact"], "{fields}");
    }
    let old = b"HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n";
    assert_eq!(requests_seen(&[(CLIENT, GET), (SERVER, old)]), ["GET /a 200 by_direction"]);
}

#[test]
fn interim_responses_belong_to_the_final_one() {
    let post = b"POST /p HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\n";
    let outcome =
        talk(&[(CLIENT, post), (SERVER, b"HTTP/1.1 100 Continue\r\n\r\n"), (CLIENT, b"body"), (SERVER, OK)]).outcome();
    assert_eq!(outcome.requests_seen(), ["POST /p 200 exact"]);
    let request = &outcome.requests[0];
    assert_eq!((request.request_bytes, request.response_bytes), (post.len() as u64 + 4, 25 + OK.len() as u64));
    assert!(request.response_first_at > request.request_last_at);
}

#[test]
fn early_response_is_recorded_after_its_request_ends() {
    let post = b"POST /p HTTP/1.1\r\nContent-Length: 4\r\n\r\nbo";
    assert_eq!(
        requests_seen(&[(CLIENT, post), (SERVER, OK), (CLIENT, b"dy"), (CLIENT, GET), (SERVER, OK)]),
        ["POST /p 200 exact", "GET /a 200 exact"]
    );
}

#[test]
fn pipelined_requests_pair_in_order() {
    let requests = [GET, b"GET /b HTTP/1.1\r\n\r\n", b"GET /c HTTP/1.1\r\n\r\n"].concat();
    let responses = [OK, b"HTTP/1.1 404 No\r\nContent-Length: 0\r\n\r\n", OK].concat();
    assert_eq!(
        requests_seen(&[(CLIENT, &requests), (SERVER, &responses)]),
        ["GET /a 200 exact", "GET /b 404 exact", "GET /c 200 exact"]
    );
}

#[test]
fn too_many_pipelined_requests_end_the_analysis_of_the_connection() {
    let spec = WatchSpec { limits: Limits { pipelined: 4, ..Limits::default() }, ..WatchSpec::default() };
    let many = GET.repeat(9);
    let outcome = talk(&[(CLIENT, &many), (SERVER, OK)]).outcome_with(spec, 65_536);
    assert_eq!(outcome.requests.len(), 4);
    assert!(outcome.requests.iter().all(|request| !request.complete));
}

#[test]
fn stream_after_a_protocol_switch_is_not_parsed() {
    let upgrade = b"GET /chat HTTP/1.1\r\nUpgrade: websocket\r\nConnection: upgrade\r\n\r\n";
    let switch = b"HTTP/1.1 101 Switching Protocols\r\n\r\n\x81\x05GET /";
    assert_eq!(
        requests_seen(&[(CLIENT, upgrade), (SERVER, switch), (CLIENT, GET), (SERVER, OK)]),
        ["GET /chat 101 exact"]
    );
    let connect = b"CONNECT x.org:443 HTTP/1.1\r\n\r\n";
    let opened = b"HTTP/1.1 200 Opened\r\nContent-Length: 5\r\n\r\n";
    assert_eq!(
        requests_seen(&[(CLIENT, connect), (SERVER, opened), (CLIENT, GET), (SERVER, OK)]),
        ["CONNECT x.org:443 200 exact"]
    );
    let refused = b"HTTP/1.1 403 No\r\nContent-Length: 0\r\n\r\n";
    assert_eq!(
        requests_seen(&[(CLIENT, connect), (SERVER, refused), (CLIENT, GET), (SERVER, OK)]),
        ["CONNECT x.org:443 403 exact", "GET /a 200 exact"]
    );
}

#[test]
fn other_protocols_give_no_requests() {
    for first in [
        &b"SSH-2.0-x\r\n"[..],
        b"EHLO there\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"\0\x01\x02",
        b"get / HTTP/1.1\r\n\r\n",
    ] {
        let outcome = talk(&[(CLIENT, first), (SERVER, b"whatever"), (CLIENT, GET), (SERVER, OK)]).outcome();
        assert_eq!((outcome.requests_seen().len(), outcome.connection().requests), (0, 0), "{first:?}");
        assert_eq!(outcome.seconds.iter().map(|row| row.requests).sum::<u64>(), 0);
    }
    assert!(requests_seen(&[(SERVER, b"220 mail ready\r\n"), (CLIENT, GET)]).is_empty());
}

#[test]
fn head_beyond_the_snaplen_is_unknown_and_later_ones_are_paired() {
    let long = b"GET /a/path/that/is/longer/than/what/was/kept HTTP/1.1\r\nHost: x.org\r\n\r\n";
    let body =
        [&b"HTTP/1.1 200 OK\r\nServer: one\r\nDate: now\r\nContent-Length: 3000\r\n\r\n"[..], &[b'x'; 800]].concat();
    let rest = vec![b'x'; 2200];
    let messages: [(bool, &[u8]); 6] =
        [(CLIENT, long), (SERVER, &body), (SERVER, &rest), (CLIENT, long), (SERVER, &body), (SERVER, &rest)];
    let talk = talk(&messages);
    assert_eq!(talk.outcome().requests.len(), 2);
    // 40 bytes of headers: 32 of each payload.
    let outcome = talk.outcome_with(WatchSpec::default(), 72);
    assert_eq!(outcome.requests_seen(), ["GET ? 200 by_direction", "GET ? 200 by_direction"]);
    for (snapped, whole) in outcome.requests.iter().zip(&talk.outcome().requests) {
        assert_eq!(snapped.response_bytes, whole.response_bytes);
        assert_eq!(snapped.request_bytes, whole.request_bytes);
        assert_eq!(
            (snapped.request_last_at, snapped.response_last_at),
            (whole.request_last_at, whole.response_last_at)
        );
    }
    // The heads fit: nothing is lost.
    let outcome = talk.outcome_with(WatchSpec::default(), 40 + long.len());
    assert!(
        outcome.requests_seen().iter().all(|requests_seen| requests_seen.ends_with("200 exact")),
        "{:?}",
        outcome.requests_seen()
    );
    // No payload was captured: no request is inferred.
    assert!(talk.outcome_with(WatchSpec::default(), 40).requests.is_empty());
}

#[test]
fn connection_open_before_the_capture_is_parsed_from_the_next_request() {
    let mut talk = Talk::new();
    talk.send_data(SERVER, b"end of some body")
        .send_data(CLIENT, GET)
        .send_data(SERVER, OK)
        .send_data(CLIENT, GET)
        .send_data(SERVER, OK);
    assert_eq!(talk.outcome().requests_seen(), ["GET /a 200 exact", "GET /a 200 exact"]);
    let mut talk = Talk::new();
    talk.send_data(SERVER, OK).send_data(CLIENT, GET).send_data(SERVER, OK);
    assert_eq!(talk.outcome().requests_seen(), ["? ? 200 exact", "GET /a 200 exact"]);
}

#[test]
fn hole_in_a_body_is_skipped_and_one_in_a_head_is_marked() {
    let long = [&b"HTTP/1.1 200 OK\r\nContent-Length: 3000\r\n\r\n"[..], &[b'x'; 3000]].concat();
    for (lost, requests_seen) in [(1000..2000, "GET /a 200 exact"), (10..1000, "GET /a ? by_direction")] {
        let mut talk = Talk::new();
        talk.open().send_data(CLIENT, GET);
        talk.send(SERVER, ACK, &long[..lost.start]);
        talk.server.next += lost.len() as u32;
        talk.send(SERVER, ACK, &long[lost.end..]).wait(10).send(CLIENT, ACK, b"");
        talk.send_data(CLIENT, GET).send_data(SERVER, OK).close();
        let outcome = talk.outcome();
        assert_eq!(outcome.requests_seen(), [requests_seen, "GET /a 200 exact"]);
        assert_eq!(outcome.connection().down.missing_bytes, lost.len() as u64);
    }
}

#[test]
fn server_name_of_a_client_hello_is_recorded() {
    let name = b"www.example.org";
    let mut extension = vec![0, 0, 0, (name.len() + 5) as u8, 0, (name.len() + 3) as u8, 0, 0, name.len() as u8];
    extension.extend(name);
    let mut body = vec![3, 3];
    body.extend([0; 32]);
    body.extend([0, 0, 2, 0x13, 1, 1, 0, 0, extension.len() as u8]);
    body.extend(extension);
    let mut hello = vec![22, 3, 1, 0, body.len() as u8 + 4, 1, 0, 0, body.len() as u8];
    hello.extend(body);
    for cut in [hello.len(), 20, 1] {
        let messages: Vec<(bool, &[u8])> = hello.chunks(cut).map(|part| (CLIENT, part)).collect();
        let name = talk(&messages).outcome().connection().server_name.clone();
        // A hello in 60 and more pieces is not parsed further.
        let expected = (hello.len().div_ceil(cut) < 64).then_some(&b"www.example.org"[..]);
        assert_eq!(name.as_deref(), expected, "pieces of {cut}");
    }
}
