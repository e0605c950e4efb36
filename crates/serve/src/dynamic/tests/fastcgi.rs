//! Tests with a FastCGI program that sends correct and incorrect records.

use super::upstream::Peer;
use super::*;

/// A record of request 1.
fn record(kind: u8, content: &[u8], padding: u8) -> Vec<u8> {
    let length = (content.len() as u16).to_be_bytes();
    let mut bytes = vec![1, kind, 0, 1, length[0], length[1], padding, 0];
    bytes.extend_from_slice(content);
    bytes.resize(bytes.len() + usize::from(padding), 0);
    bytes
}

const STDOUT: u8 = 6;
const STDERR: u8 = 7;

fn end(protocol: u8) -> Vec<u8> {
    record(3, &[0, 0, 0, 0, protocol, 0, 0, 0], 0)
}

/// A request as received by the program: undecoded parameters and STDIN; `None` at the end of the connection.
fn request(peer: &mut Peer) -> Option<(Vec<u8>, Vec<u8>)> {
    let (mut params, mut stdin) = (Vec::new(), Vec::new());
    loop {
        let header = peer.body(8);
        let [1, kind, 0, 1, high, low, padding, 0] = header[..] else { return None };
        let length = usize::from(u16::from_be_bytes([high, low]));
        let content = peer.body(length);
        peer.body(usize::from(padding));
        match (kind, length) {
            (5, 0) => return Some((params, stdin)),
            (4, _) => params.extend(content),
            (5, _) => stdin.extend(content),
            (1, 8) => assert_eq!(content[..3], [0, 1, 1], "the responder role on a persistent connection"),
            other => panic!("{other:?}"),
        }
    }
}

fn program(answer: impl Fn(&str, &[u8]) -> Vec<u8> + Clone + Send + 'static) -> Upstream {
    Upstream::start(move |mut peer| {
        while let Some((params, stdin)) = request(&mut peer) {
            peer.write(&answer(&String::from_utf8_lossy(&params), &stdin));
        }
    })
}

fn before(upstream: &Upstream) -> TestWorker {
    TestWorker::new(&[format!("/app=fastcgi://{}/srv/main.php", upstream.address)], |_| {})
}

#[test]
fn a_response_in_fragmented_records_is_reassembled() {
    let upstream = program(|params, _| {
        assert!(params.contains("SCRIPT_FILENAME/srv/main.php") && params.contains("PATH_INFO/x y"), "{params}");
        let text = b"Status: 404 Gone Fishing\r\nContent-Type: text/x\r\n\r\nbody and more";
        let mut bytes: Vec<u8> = text.chunks(7).flat_map(|piece| record(STDOUT, piece, 3)).collect();
        bytes.splice(0..0, record(STDERR, b"PHP Warning: \x1b[31mred\n", 1));
        bytes.extend(record(STDOUT, b"", 0));
        bytes.extend(end(0));
        bytes
    });
    let mut worker = before(&upstream);
    for _ in 0..3 {
        let response = worker.get("/app/x%20y");
        assert_eq!(
            (response.status, response.length, response.text(), response.whole),
            (404, None, "body and more", true)
        );
        assert!(response.fields.starts_with("Content-Type: text/x\r\nDate: "));
        worker.route_counters_when(|counters| counters.in_flight == 0);
    }
    let counters = worker.route_counters_when(|counters| counters.answered == 3);
    assert_eq!((counters.connects + counters.reused, counters.failed), (3, 0));
}

#[test]
fn request_bodies_reach_fastcgi_and_chunked_ones_get_a_length() {
    let upstream = program(|params, stdin| {
        let stated = params.split("CONTENT_LENGTH").nth(1).unwrap();
        let stated: String = stated.chars().take_while(char::is_ascii_digit).collect();
        let text = format!("\r\n{stated} {}", stdin.len());
        [record(STDOUT, text.as_bytes(), 0), end(0)].concat()
    });
    let mut worker = before(&upstream);
    let body = vec![b'x'; 2 * BODY_WINDOW + 1];
    let known = worker.request("POST /app HTTP/1.1\r\nHost: h\r\nContent-Length: 131073\r\n\r\n", Body::Bytes(131_073));
    worker.send(known, &body);
    assert_eq!(worker.all(known).text(), "131073 131073");
    let chunked = worker.request("POST /app HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n", Body::Chunked);
    worker.send(chunked, &body);
    assert_eq!(worker.all(chunked).text(), "131073 131073");
    let too_long = worker.request("POST /app HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n", Body::Chunked);
    worker.send(too_long, &vec![b'x'; 2 << 20]);
    assert_eq!(worker.all(too_long).status, 413);
}

#[test]
fn fastcgi_failures_give_error_responses() {
    let short = [record(STDOUT, b"Content-Length: 9\r\n\r\nhalf", 0), end(0)].concat();
    let long = [record(STDOUT, b"Content-Length: 2\r\n\r\nmore", 0), end(0)].concat();
    for (bytes, status, whole) in [
        (short, 200, false),
        (long, 200, false),
        (record(STDOUT, b"A: 1\r\n\r\nhalf", 0), 200, false),
        (end(0), 502, true),
        (end(2), 503, true),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec(), 502, true),
        (record(STDOUT, b"no head at all", 0), 502, true),
        (record(STDOUT, &[b'x'; 65_000], 0).repeat(3), 502, true),
    ] {
        let shown = bytes[..bytes.len().min(60)].to_vec();
        let upstream = Upstream::start(move |mut peer| {
            request(&mut peer);
            peer.write(&bytes);
            peer.close();
        });
        let response = before(&upstream).get("/app");
        assert_eq!((response.status, response.whole), (status, whole), "{shown:?}");
    }
}

#[test]
fn head_responses_have_no_content_and_missing_scripts_give_404() {
    let upstream = program(|_, _| [record(STDOUT, b"Content-Length: 4\r\n\r\nbody", 0), end(0)].concat());
    let served = tempfile::tempdir().unwrap();
    std::fs::create_dir(served.path().join("php")).unwrap();
    std::fs::write(served.path().join("php/a.php"), "").unwrap();
    std::fs::write(served.path().join("php/photo.jpg"), "").unwrap();
    let mut worker = TestWorker::below(served.path(), &[format!("/php=fastcgi://{}", upstream.address)], |_| {});
    let ticket = worker.request("HEAD /php/a.php HTTP/1.1\r\nHost: h\r\n\r\n", Body::None);
    let response = worker.all(ticket);
    assert_eq!((response.status, response.length, response.text(), response.whole), (200, Some(4), "", true));
    assert_eq!(worker.get("/php/a.php/info").text(), "body");
    for path in ["/php/b.php", "/php/photo.jpg/x.php", "/php/", "/php/photo.jpg"] {
        assert_eq!(worker.get(path).status, 404, "{path}");
    }
}

#[test]
fn fastcgi_heads_beyond_the_limit_are_refused() {
    let upstream = program(|params, _| {
        let many = params.contains("PATH_INFO/many");
        let text = if many { "a:\n".repeat(30_000) } else { format!("A: {}\n", "x".repeat(66_000)) } + "\nbody";
        let mut bytes: Vec<u8> = text.as_bytes().chunks(60_000).flat_map(|piece| record(STDOUT, piece, 0)).collect();
        bytes.extend(end(0));
        bytes
    });
    let mut worker = before(&upstream);
    for path in ["/app/many", "/app/long"] {
        let response = worker.get(path);
        assert_eq!((response.status, response.text(), response.whole), (502, "502 Bad Gateway\n", true), "{path}");
    }
    let counters = worker.route_counters_when(|counters| counters.in_flight == 0);
    assert_eq!((counters.failed, counters.answered), (2, 0));
}
