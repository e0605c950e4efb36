//! Persistent connections, pipelining and closing.

use super::*;

const GET: &str = "GET /hello.txt HTTP/1.1\r\nHost: x\r\n\r\n";

#[test]
fn pipelined_requests_get_responses_in_order() {
    let server = Running::start();
    // Copied, in-memory and open bodies in turn, more than the buffers hold.
    let sizes = [10usize, 20_000, 200_000, 300_000, 0];
    for size in sizes {
        fs::write(server.root().join(size.to_string()), vec![b'0' + (size % 7) as u8; size]).unwrap();
    }
    let mut client = server.connect();
    let mut sender = client.stream.try_clone().unwrap();
    let rounds = 60;
    // A separate thread: the server stops reading while its output is not read.
    let writer = thread::spawn(move || {
        for round in 0..rounds * sizes.len() {
            let size = sizes[round % sizes.len()];
            sender.write_all(format!("GET /{size} HTTP/1.1\r\nHost: x\r\n\r\n").as_bytes()).unwrap();
        }
    });
    for round in 0..rounds * sizes.len() {
        let size = sizes[round % sizes.len()];
        let response = client.response(true);
        assert_eq!(response.body.len(), size);
        assert!(response.body.iter().all(|&byte| byte == b'0' + (size % 7) as u8));
    }
    writer.join().unwrap();
}

#[test]
fn ten_thousand_pipelined_small_requests_get_responses_in_order() {
    let server = Running::start();
    let mut client = server.connect();
    let mut sender = client.stream.try_clone().unwrap();
    let writer = thread::spawn(move || sender.write_all(GET.repeat(10_000).as_bytes()).unwrap());
    for _ in 0..10_000 {
        assert_eq!(client.response(true).body, b"hello\n");
    }
    writer.join().unwrap();
}

/// Small responses that the kernel accepts in part, while further requests wait.
#[test]
fn a_slow_reader_gets_small_responses_in_order() {
    let server = Running::start();
    let content = |file: usize| -> Vec<u8> { (0..3000).map(|at| (at * 7 + file * 13) as u8).collect() };
    for file in 0..10 {
        fs::write(server.root().join(file.to_string()), content(file)).unwrap();
    }
    let mut client = server.connect();
    let mut other = server.connect();
    let mut others_bytes = 0;
    client.stream.set_nodelay(true).unwrap();
    // One at a time, until the responses exceed the buffers.
    let rounds = 2500;
    for round in 0..rounds {
        client.send(format!("GET /{} HTTP/1.1\r\nHost: x\r\n\r\n", round % 10).as_bytes());
        let response = other.get("/hello.txt");
        others_bytes += response.head.len() + response.body.len();
    }
    let mut bytes = 0;
    for round in 0..rounds {
        let response = client.response(true);
        assert!(response.body == content(round % 10), "answer {round}");
        bytes += response.head.len() + response.body.len();
    }
    // A returned and resent response is counted once.
    let status = String::from_utf8(other.get("/-/status").body).unwrap();
    let sent_bytes = status.split("\"sent\":").nth(1).unwrap().trim_start().split([',', '}', '\n']).next().unwrap();
    assert_eq!(sent_bytes.parse::<usize>().unwrap(), bytes + others_bytes, "{status}");
}

#[test]
fn a_request_split_at_any_byte_is_one_request() {
    let server = Running::start();
    let mut client = server.connect();
    client.stream.set_nodelay(true).unwrap();
    for cut in 1..GET.len() {
        let (first, second) = GET.split_at(cut);
        client.send(first.as_bytes());
        client.send(second.as_bytes());
        assert_eq!(client.response(true).body, b"hello\n");
    }
    // One and a half requests, then the other half.
    let (first, second) = GET.split_at(9);
    client.send(format!("{GET}{first}").as_bytes());
    assert_eq!(client.response(true).body, b"hello\n");
    client.send(second.as_bytes());
    assert_eq!(client.response(true).body, b"hello\n");
}

#[test]
fn connection_close_ends_the_connection_after_the_response() {
    let server = Running::start();
    let closing = server.ask("GET /hello.txt HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    assert!(closing.contains("\r\nConnection: close\r\n") && closing.ends_with("\r\n\r\nhello\n"));
    let old = server.ask("GET /hello.txt HTTP/1.0\r\n\r\n");
    assert!(old.contains("\r\nConnection: close\r\n") && old.ends_with("hello\n"));
    let mut persistent = server.connect();
    for _ in 0..2 {
        persistent.send(b"GET /hello.txt HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
        assert_eq!(persistent.response(true).field("Connection"), Some("keep-alive"));
    }
}

#[test]
fn a_file_in_memory_arrives_completely_before_the_close() {
    let server = Running::start();
    fs::write(server.root().join("big"), vec![b'x'; 5_000_000]).unwrap();
    // Requests after the last one get no response and cause no reset.
    let request = "GET /big HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
    let response_text = server.ask(&format!("{request}{}", GET.repeat(2000)));
    assert_eq!(response_text.split_once("\r\n\r\n").unwrap().1.len(), 5_000_000);
}

#[test]
fn request_bodies_for_files_are_discarded() {
    let server = Running::start();
    let mut client = server.connect();
    let body = "GET /nothing HTTP/1.1\r\n\r\n".repeat(10_000);
    let request = format!("GET /hello.txt HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n{body}{GET}", body.len());
    client.send(request.as_bytes());
    assert_eq!(client.response(true).body, b"hello\n");
    assert_eq!(client.response(true).body, b"hello\n");
    // Also in chunks.
    let chunked = "GET /hello.txt HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nGET /\r\n0\r\n\r\n";
    client.send(format!("{chunked}{GET}").as_bytes());
    assert_eq!(client.response(true).body, b"hello\n");
    assert_eq!(client.response(true).body, b"hello\n");
    // A body announced with 100-continue is refused: the response says so, and the connection closes.
    let held = "PUT /hello.txt HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n";
    assert!(server.ask(held).starts_with("HTTP/1.1 405 Method Not Allowed\r\n"));
}

#[test]
fn a_client_that_half_closes_gets_all_responses() {
    let server = Running::start();
    fs::write(server.root().join("big"), vec![b'x'; 3_000_000]).unwrap();
    let mut client = server.connect();
    client.send(format!("GET /big HTTP/1.1\r\nHost: x\r\n\r\n{GET}GET /hel").as_bytes());
    client.stream.shutdown(std::net::Shutdown::Write).unwrap();
    assert_eq!(client.response(true).body.len(), 3_000_000);
    assert_eq!(client.response(true).body, b"hello\n");
    assert!(client.rest().is_empty());
}

#[test]
fn a_file_truncated_during_transfer_resets_the_connection() {
    let server = Running::start();
    let path = server.root().join("big");
    // More than the socket buffers of both ends.
    fs::write(&path, vec![b'x'; 64 << 20]).unwrap();
    let mut client = server.connect();
    client.send(b"GET /big HTTP/1.1\r\nHost: x\r\n\r\n");
    client.more();
    fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(1000).unwrap();
    // FIN or reset, but fewer bytes than announced, and no hang.
    let mut rest = Vec::new();
    let _ = client.stream.read_to_end(&mut rest);
    assert!(rest.len() < 64 << 20);
    assert_eq!(server.connect().get("/hello.txt").body, b"hello\n");
}

#[test]
fn stopping_closes_open_connections() {
    let server = Running::with(2, Limits::default());
    let mut clients: Vec<_> = (0..5).map(|_| server.connect()).collect();
    for client in &mut clients {
        client.get("/hello.txt");
    }
    drop(server);
    for client in &mut clients {
        assert!(client.rest().is_empty());
    }
}
