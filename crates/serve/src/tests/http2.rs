//! HTTP/2 over loopback: many streams, large files, small windows, the end of the server. Frames are written by hand.

use std::collections::HashMap;

use field_compression::hpack::{Decoder, encode_field};

use super::*;

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const GOAWAY: u8 = 7;
const WINDOW_UPDATE: u8 = 8;

/// A frame: type, flags, stream, payload.
type Frame = (u8, u8, u32, Vec<u8>);

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = (payload.len() as u32).to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

fn request(stream: u32, method: &str, path: &str, ended: bool) -> Vec<u8> {
    let mut section = Vec::new();
    for (name, value) in [(":method", method), (":scheme", "http"), (":authority", "x"), (":path", path)] {
        encode_field(name.as_bytes(), value.as_bytes(), &mut section);
    }
    frame(HEADERS, 4 | u8::from(ended), stream, &section)
}

/// A connection whose client has sent preface, settings with this window of a stream, and a large window of the
/// connection.
fn connect(server: &Running, window: u32) -> Client {
    let mut client = server.connect();
    client.send(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
    client.send(&frame(4, 0, 0, &[&[0, 4][..], &window.to_be_bytes()].concat()));
    client.send(&frame(WINDOW_UPDATE, 0, 0, &(1u32 << 30).to_be_bytes()));
    client
}

/// The next frame that is neither SETTINGS nor WINDOW_UPDATE.
fn next_frame(client: &mut Client) -> Frame {
    loop {
        while client.read.len() < 9 {
            client.more();
        }
        let length = u32::from_be_bytes([0, client.read[0], client.read[1], client.read[2]]) as usize;
        while client.read.len() < 9 + length {
            client.more();
        }
        let bytes: Vec<u8> = client.read.drain(..9 + length).collect();
        let stream = u32::from_be_bytes(bytes[5..9].try_into().unwrap());
        if bytes[3] != 4 && bytes[3] != WINDOW_UPDATE {
            return (bytes[3], bytes[4], stream, bytes[9..].to_vec());
        }
    }
}

/// The status of a section.
fn status(section: &[u8]) -> String {
    let mut status = String::new();
    Decoder::default()
        .decode(section, 4096, |name, value| {
            if name == b":status" {
                status = String::from_utf8(value.to_vec()).unwrap();
            }
        })
        .unwrap();
    status
}

/// Reads until `streams` streams have ended: status and content of each. After each `granted` bytes of a stream its
/// window grows by as many.
fn responses(client: &mut Client, streams: usize, granted: u32) -> HashMap<u32, (String, Vec<u8>)> {
    let mut responses: HashMap<u32, (String, Vec<u8>)> = HashMap::new();
    let mut left: HashMap<u32, u32> = HashMap::new();
    let mut ended = 0;
    while ended < streams {
        let (kind, flags, stream, payload) = next_frame(client);
        match kind {
            HEADERS => drop(responses.insert(stream, (status(&payload), Vec::new()))),
            DATA => {
                responses.get_mut(&stream).unwrap().1.extend_from_slice(&payload);
                let read = left.entry(stream).or_default();
                *read += payload.len() as u32;
                if granted > 0 && *read >= granted && flags & 1 == 0 {
                    client.send(&frame(WINDOW_UPDATE, 0, stream, &std::mem::take(read).to_be_bytes()));
                }
            }
            other => panic!("a frame of kind {other}: {payload:?}"),
        }
        ended += usize::from(flags & 1 == 1);
    }
    responses
}

fn content(length: usize) -> Vec<u8> {
    (0..length).map(|at| (at ^ at >> 8 ^ at >> 16) as u8).collect()
}

#[test]
fn many_streams_get_their_files() {
    let server = Running::start();
    let sizes = [0, 100, 16 << 10, (16 << 10) + 1, 200_000, 1 << 20];
    for size in sizes {
        fs::write(server.root().join(size.to_string()), content(size)).unwrap();
    }
    for (window, granted) in [(1 << 30, 0), (65_535, 20_000), (1000, 500)] {
        let mut client = connect(&server, window);
        let streams = 60;
        for number in 0..streams {
            client.send(&request(2 * number + 1, "GET", &format!("/{}", sizes[number as usize % sizes.len()]), true));
        }
        let responses = responses(&mut client, streams as usize, granted);
        for number in 0..streams {
            let (status, body) = &responses[&(2 * number + 1)];
            let expected = content(sizes[number as usize % sizes.len()]);
            assert!(status == "200" && *body == expected, "{window}: {} of {}", body.len(), expected.len());
        }
    }
}

#[test]
fn requests_one_after_the_other_use_one_connection() {
    let server = Running::start();
    let mut client = connect(&server, 65_535);
    for number in 0..300 {
        let (stream, path) = (2 * number + 1, if number % 3 == 0 { "/absent" } else { "/hello.txt" });
        client.send(&request(stream, if number % 5 == 0 { "HEAD" } else { "GET" }, path, true));
        let (kind, flags, of, payload) = next_frame(&mut client);
        let expected = if number % 3 == 0 { "404" } else { "200" };
        assert_eq!((kind, of, status(&payload).as_str()), (HEADERS, stream, expected));
        assert_eq!(flags & 1 == 1, number % 5 == 0, "only HEAD has no content");
        if number % 5 > 0 {
            let (kind, flags, of, payload) = next_frame(&mut client);
            assert_eq!((kind, flags, of), (DATA, 1, stream));
            assert!(number % 3 == 0 || payload == b"hello\n");
        }
    }
}

/// The content of a request for a file is discarded, and its window grows.
#[test]
fn a_request_with_much_content_does_not_block_the_connection() {
    let server = Running::with(1, Limits { body_bytes: 64 << 20, ..Limits::default() });
    let mut client = connect(&server, 65_535);
    client.send(&request(1, "POST", "/hello.txt", false));
    let (_, _, _, payload) = next_frame(&mut client);
    assert_eq!(status(&payload), "405");
    assert_eq!(next_frame(&mut client).0, DATA);
    // As a client that does not see the reset: within the window of the connection.
    for _ in 0..12 {
        client.send(&frame(DATA, 0, 1, &[b'x'; 16 << 10]));
    }
    let (kind, _, _, code) = next_frame(&mut client);
    assert_eq!((kind, &code[..]), (RST_STREAM, &[0, 0, 0, 0][..]));
    client.send(&request(3, "GET", "/hello.txt", true));
    assert_eq!(responses(&mut client, 1, 0)[&3], ("200".to_owned(), b"hello\n".to_vec()));
}

/// The kernel's buffer is full again and again, each time with records of all streams.
#[test]
fn large_files_of_many_streams_arrive_over_tls() {
    let made = rcgen::generate_simple_self_signed(["server".to_owned()]).unwrap();
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str| directory.path().join(name);
    fs::write(file("cert.pem"), made.cert.pem()).unwrap();
    fs::write(file("key.pem"), made.signing_key.serialize_pem()).unwrap();
    fs::write(file("big"), content(6 << 20)).unwrap();
    let tls = Some(crate::Tls::load(&file("cert.pem"), &file("key.pem")).unwrap());
    let spec = ServeSpec { tls, engine: ENGINE, ..ServeSpec::new(directory.path(), "127.0.0.1:0".parse().unwrap()) };
    let stop = std::sync::Arc::new(EventFd::new().unwrap());
    let (address_sender, address_receiver) = mpsc::channel();
    let stopped = std::sync::Arc::clone(&stop);
    let thread = thread::spawn(move || serve(&spec, stopped.as_fd(), |bound| address_sender.send(bound).unwrap()));
    let mut roots = rustls::RootCertStore::empty();
    roots.add(made.cert.der().clone()).unwrap();
    let provider = std::sync::Arc::new(rustls::crypto::ring::default_provider());
    let mut config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![b"h2".to_vec()];
    let session = rustls::ClientConnection::new(std::sync::Arc::new(config), "server".try_into().unwrap()).unwrap();
    let stream = TcpStream::connect(address_receiver.recv().unwrap()).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let mut stream = rustls::StreamOwned::new(session, stream);
    let grant = frame(WINDOW_UPDATE, 0, 0, &(1u32 << 30).to_be_bytes());
    let settings = frame(4, 0, 0, &[&[0, 4][..], &(1u32 << 30).to_be_bytes()].concat());
    let requests: Vec<u8> = (0..4).flat_map(|number| request(2 * number + 1, "GET", "/big", true)).collect();
    stream.write_all(&[b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", &settings[..], &grant, &requests].concat()).unwrap();
    let mut bodies: HashMap<u32, Vec<u8>> = HashMap::new();
    let mut ended = 0;
    while ended < 4 {
        let mut head = [0; 9];
        stream.read_exact(&mut head).unwrap();
        let mut payload = vec![0; u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize];
        stream.read_exact(&mut payload).unwrap();
        if head[3] == DATA {
            bodies.entry(u32::from_be_bytes(head[5..].try_into().unwrap())).or_default().extend_from_slice(&payload);
            ended += usize::from(head[4] & 1);
        }
    }
    assert!(bodies.len() == 4 && bodies.values().all(|body| *body == content(6 << 20)));
    drop(stream);
    stop.write(1).unwrap();
    thread.join().unwrap().unwrap();
}

#[test]
fn a_stopping_server_finishes_its_streams() {
    let server = Running::start();
    fs::write(server.root().join("big"), content(4 << 20)).unwrap();
    let mut client = connect(&server, 100_000);
    client.send(&request(1, "GET", "/big", true));
    let (kind, _, _, payload) = next_frame(&mut client);
    assert_eq!((kind, status(&payload).as_str()), (HEADERS, "200"));
    let mut body = Vec::new();
    while body.len() < 100_000 {
        body.extend(next_frame(&mut client).3);
    }
    server.stop.write(1).unwrap();
    let (kind, _, _, payload) = next_frame(&mut client);
    assert_eq!((kind, &payload[..]), (GOAWAY, &[0, 0, 0, 1, 0, 0, 0, 0][..]));
    client.send(&frame(WINDOW_UPDATE, 0, 1, &(8u32 << 20).to_be_bytes()));
    while body.len() < 4 << 20 {
        let (kind, _, _, payload) = next_frame(&mut client);
        assert_eq!(kind, DATA);
        body.extend(payload);
    }
    assert!(body == content(4 << 20));
    assert!(client.rest().is_empty(), "the server closes the connection");
}

#[test]
fn an_error_of_the_client_ends_the_connection_after_goaway() {
    let server = Running::start();
    let mut client = connect(&server, 65_535);
    client.send(&frame(6, 0, 0, b"short"));
    let (kind, _, _, payload) = next_frame(&mut client);
    assert_eq!((kind, &payload[4..]), (GOAWAY, &[0, 0, 0, 6][..]));
    assert!(client.rest().is_empty());
}

#[test]
fn a_client_without_window_is_reset_after_the_stall_time() {
    let server = Running::with(1, Limits { stall_time: Duration::from_millis(300), ..Limits::default() });
    let mut client = connect(&server, 0);
    client.send(&request(1, "GET", "/hello.txt", true));
    assert_eq!(next_frame(&mut client).0, HEADERS);
    let (kind, _, stream, _) = next_frame(&mut client);
    assert_eq!((kind, stream), (RST_STREAM, 1));
    client.send(&request(3, "HEAD", "/hello.txt", true));
    assert_eq!(next_frame(&mut client).0, HEADERS);
}
