//! An HTTP server for tests: sends scripted responses, and returns the received requests.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, channel};
use std::thread;

/// The server.
pub(super) struct TestServer {
    pub(super) url: String,
    requests: Receiver<ReceivedRequest>,
}

/// A received request.
pub(super) struct ReceivedRequest {
    /// Request line and headers, in lower case.
    pub(super) head: String,
    pub(super) body: Vec<u8>,
}

/// A scripted response: status, headers (each with its end of line) and body.
pub(super) type ScriptedResponse = (u16, &'static str, Vec<u8>);

/// 200 without a body.
pub(super) const OK_RESPONSE: ScriptedResponse = (200, "", Vec::new());

impl TestServer {
    /// Serves as many requests as there are responses, then closes.
    pub(super) fn start(responses: Vec<ScriptedResponse>) -> TestServer {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let (request_sender, requests) = channel();
        thread::spawn(move || {
            for (status, headers, body) in responses {
                let (mut stream, _) = listener.accept().unwrap();
                let request = read(&mut stream);
                let head = format!(
                    "HTTP/1.1 {status} Scripted\r\n{headers}Content-Length: {}\r\nConnection: close\r\n\r\n",
                    body.len()
                );
                stream.write_all(head.as_bytes()).unwrap();
                stream.write_all(&body).unwrap();
                if request_sender.send(request).is_err() {
                    return;
                }
            }
        });
        TestServer { url, requests }
    }

    /// Waits for the next request.
    pub(super) fn next(&self) -> ReceivedRequest {
        self.requests.recv().expect("the server received a request")
    }
}

fn read(stream: &mut TcpStream) -> ReceivedRequest {
    let mut received = Vec::new();
    let mut part = [0; 4096];
    loop {
        let count = stream.read(&mut part).unwrap();
        assert!(count > 0, "the request ended early");
        received.extend_from_slice(&part[..count]);
        let Some(end) = received.windows(4).position(|four| four == b"\r\n\r\n") else { continue };
        let head = String::from_utf8_lossy(&received[..end]).to_lowercase();
        let length = head.lines().find_map(|line| line.strip_prefix("content-length:")?.trim().parse::<usize>().ok());
        let body_at = end + 4;
        while received.len() < body_at + length.unwrap_or(0) {
            let count = stream.read(&mut part).unwrap();
            assert!(count > 0, "the body ended early");
            received.extend_from_slice(&part[..count]);
        }
        return ReceivedRequest { head, body: received.split_off(body_at) };
    }
}
