//! Servers whose misbehaviour looks like good service: they drop requests, send extra responses, respond before they
//! have read the request, or leave closing to the client. The tests compare the run's report with the server's own
//! counts.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use serde_json::Value;

use crate::support::document::{check, count};
use crate::support::workspace::{Output, Workspace};

const OK: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";

/// Counts of the server.
#[derive(Default)]
struct ServerCounts {
    requests: AtomicU64,
    body_bytes: AtomicU64,
}

/// A server with a thread for each connection. The threads end with the test process.
struct LyingServer {
    address: SocketAddr,
    counts: Arc<ServerCounts>,
}

impl LyingServer {
    /// Starts a server that calls `talk` for each accepted connection.
    fn start(talk: impl Fn(&mut Connection) + Send + Sync + 'static) -> LyingServer {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (counts, talk) = (Arc::new(ServerCounts::default()), Arc::new(talk));
        let shared_counts = Arc::clone(&counts);
        thread::spawn(move || {
            for stream in listener.incoming() {
                let (counts, talk) = (Arc::clone(&shared_counts), Arc::clone(&talk));
                let stream = stream.unwrap();
                stream.set_nodelay(true).unwrap();
                thread::spawn(move || talk(&mut Connection { stream, read: Vec::new(), counts }));
            }
        });
        LyingServer { address, counts }
    }

    fn url(&self) -> String {
        format!("http://{}/", self.address)
    }

    fn requests(&self) -> u64 {
        self.counts.requests.load(Ordering::Relaxed)
    }
}

struct Connection {
    stream: TcpStream,
    read: Vec<u8>,
    counts: Arc<ServerCounts>,
}

impl Connection {
    /// Reads a request head; returns the length of the body. `None` if the client has closed the connection.
    fn head(&mut self) -> Option<usize> {
        loop {
            if let Some(end) = self.read.windows(4).position(|window| window == b"\r\n\r\n") {
                let head = String::from_utf8(self.read.drain(..end + 4).collect()).unwrap();
                let length = head.lines().find_map(|line| line.strip_prefix("Content-Length: "));
                self.counts.requests.fetch_add(1, Ordering::Relaxed);
                return Some(length.map_or(0, |length| length.parse().unwrap()));
            }
            self.read_more()?;
        }
    }

    /// Reads a request body. `None` if the client has closed the connection.
    fn body(&mut self, length: usize) -> Option<()> {
        while self.read.len() < length {
            self.read_more()?;
        }
        self.read.drain(..length);
        self.counts.body_bytes.fetch_add(length as u64, Ordering::Relaxed);
        Some(())
    }

    fn read_more(&mut self) -> Option<()> {
        let mut buffer = [0; 64 << 10];
        match self.stream.read(&mut buffer) {
            Ok(0) | Err(_) => None,
            Ok(length) => {
                self.read.extend_from_slice(&buffer[..length]);
                Some(())
            }
        }
    }

    /// Sends bytes; returns false if the client has closed the connection.
    fn send(&mut self, bytes: &[u8]) -> bool {
        self.stream.write_all(bytes).is_ok()
    }
}

fn failed(document: &Value, cause: &str) -> u64 {
    document["load"]["failed"][cause].as_u64().unwrap_or(0)
}

fn verdict(document: &Value) -> &str {
    document["validity"]["verdict"].as_str().unwrap()
}

/// The server reads every third request on a persistent connection and closes the connection, after some time or
/// immediately: each is a failure, and the load's number of sent requests equals the server's number of received ones.
#[test]
fn requests_dropped_by_the_server_are_failures() {
    for hesitates in [Duration::ZERO, Duration::from_millis(50)] {
        let server = LyingServer::start(move |connection| {
            for nth in 1.. {
                if connection.head().is_none() {
                    return;
                }
                if nth % 3 == 0 {
                    return thread::sleep(hesitates);
                }
                if !connection.send(OK) {
                    return;
                }
            }
        });
        for shape in [&["--rate", "100/s", "--clients", "4"][..], &["-c", "4"]] {
            let before = server.requests();
            let url = server.url();
            let arguments = ["bench", &url, "-n", "200", "--warmup", "0s", "--slo", "errors < 0.1%", "--json"];
            let document = Workspace::concurrent().run(&[&arguments, shape].concat()).json();
            let (sent, received) = (count(&document, "load.requests_sent"), server.requests() - before);
            assert_eq!((sent, count(&document, "load.requests_retried")), (received, 0), "{shape:?}: {document}");
            assert!((60..=67).contains(&failed(&document, "closed_before_response")), "{shape:?}: {document}");
            assert_eq!(document["slo"]["met"], false);
            assert_eq!(check(&document, "error_rate")["state"], "failed");
            assert_ne!(verdict(&document), "valid");
        }
    }
}

/// A server that closes the connection after every response without announcing it. The client detects the close while
/// the connection is idle: no request fails, and none is retried. Only if the server's thread stalled before the close
/// can a request arrive first, which the server counts.
#[test]
fn an_unannounced_close_after_each_response_is_no_failure() {
    let before_close = Arc::new(AtomicU64::new(0));
    let counter = Arc::clone(&before_close);
    let server = LyingServer::start(move |connection| {
        if connection.head().is_some() && connection.send(OK) {
            connection.stream.shutdown(std::net::Shutdown::Write).unwrap();
            while connection.read_more().is_some() {
                counter.fetch_add(1, Ordering::Relaxed);
            }
        }
    });
    let arguments = ["--rate", "50/s", "--clients", "1", "--warmup", "0s", "-n", "50", "--json"];
    let document = Workspace::concurrent().run(&[&["bench", &server.url()], &arguments[..]].concat()).json();
    let before_close = before_close.load(Ordering::Relaxed);
    // Without the detection, 49 requests would be sent on connections that are closed.
    assert!(before_close < 10, "{before_close}: {document}");
    assert_eq!(count(&document, "load.completed"), 50 - before_close, "{document}");
    assert_eq!(failed(&document, "closed_before_response"), before_close, "{document}");
    assert_eq!(count(&document, "load.requests_sent") - count(&document, "load.requests_retried"), 50, "{document}");
}

/// Unrequested responses between two requests, after a response, or before the first request.
#[test]
fn unrequested_responses_make_the_run_invalid() {
    type Talk = fn(&mut Connection);
    let late: Talk = |connection| {
        while connection.head().is_some() {
            thread::sleep(Duration::from_millis(10));
            let is_sent = connection.send(OK);
            thread::sleep(Duration::from_millis(2));
            if !is_sent || !connection.send(OK) {
                return;
            }
        }
    };
    let first: Talk = |connection| {
        connection.send(OK);
        while connection.head().is_some() {
            thread::sleep(Duration::from_millis(10));
            if !connection.send(OK) {
                return;
            }
        }
    };
    for talk in [late, first] {
        let server = LyingServer::start(talk);
        for shape in [&["--rate", "20/s", "--warmup", "0s"][..], &["-c", "4"]] {
            let url = server.url();
            let document =
                Workspace::concurrent().run(&[&["bench", &url, "-n", "40", "--json"], shape].concat()).json();
            assert_eq!(verdict(&document), "invalid", "{shape:?}: {document}");
            assert_eq!(check(&document, "responses_solicited")["state"], "failed", "{shape:?}: {document}");
            assert!(count(&document, "load.unsolicited.responses") > 0);
        }
    }
}

/// A server that responds to an upload after the head, and one that reads it completely.
#[test]
fn responses_before_the_end_of_an_upload_are_early_responses() {
    let workspace = Workspace::concurrent();
    let body = workspace.path().join("upload");
    std::fs::write(&body, vec![b'u'; 4 << 20]).unwrap();
    let upload = |server: &LyingServer| -> Output {
        let url = server.url();
        workspace.run(&["bench", &url, "--body", body.to_str().unwrap(), "-c", "2", "-n", "20", "--json"])
    };
    let ignoring = LyingServer::start(|connection| {
        if connection.head().is_some() && connection.send(OK) {
            // The client must receive the response before the end of the connection.
            thread::sleep(Duration::from_secs(30));
        }
    });
    let document = upload(&ignoring).json();
    assert_eq!((count(&document, "load.completed"), count(&document, "load.early_responses")), (20, 20), "{document}");
    assert_eq!(check(&document, "early_responses")["state"], "failed");
    assert_ne!(verdict(&document), "valid");
    // Socket buffers hold some megabytes; the rest was not acknowledged.
    assert!(count(&document, "load.bytes_sent") < 20 * (4 << 20), "{document}");

    let reading = LyingServer::start(|connection| {
        while let Some(length) = connection.head() {
            if connection.body(length).is_none() || !connection.send(OK) {
                return;
            }
        }
    });
    let document = upload(&reading).json();
    assert_eq!((count(&document, "load.completed"), count(&document, "load.early_responses")), (20, 0), "{document}");
    assert_eq!(reading.counts.body_bytes.load(Ordering::Relaxed), 20 * (4 << 20));
    assert!(count(&document, "load.bytes_sent") > 20 * (4 << 20), "{document}");
}

/// The server announces the end of each connection, and leaves closing to the client.
#[test]
fn a_client_closes_an_announced_connection_that_the_server_leaves_open() {
    for response in [
        "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 5\r\n\r\nhello",
        "HTTP/1.0 200 OK\r\nContent-Length: 5\r\n\r\nhello",
    ] {
        let server = LyingServer::start(move |connection| {
            while connection.head().is_some() {
                connection.send(response.as_bytes());
            }
        });
        for extra in [&[][..], &["--close"]] {
            let url = server.url();
            let document = Workspace::concurrent()
                .run(&[&["bench", &url, "-c", "1", "-n", "30", "--json"], extra].concat())
                .json();
            assert_eq!(count(&document, "load.completed"), 30);
            // A client that waits for the server's close would need a second.
            assert!(count(&document, "load.connection_duration_ns.p50") < 500_000_000, "{document}");
        }
    }
}

/// Errors of every kind are in the headline and make the run suspect.
#[test]
fn timeouts_and_error_statuses_are_both_errors() {
    let silent = LyingServer::start(|connection| {
        while connection.head().is_some() {
            let nth = connection.counts.requests.load(Ordering::Relaxed);
            if nth % 2 == 0 && !connection.send(OK) {
                return;
            }
        }
    });
    let arguments = ["--rate", "20/s", "--warmup", "0s", "-n", "20", "--timeout", "300ms"];
    let output = Workspace::concurrent().run(&[&["bench", &silent.url()], &arguments[..]].concat());
    let text = output.stdout.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(text.contains("50.0 % failed") && text.contains("response timeout x 10"), "{output}");
    assert!(!text.starts_with("VALID"), "{output}");
    let failing = LyingServer::start(|connection| {
        while connection.head().is_some() {
            connection.send(b"HTTP/1.1 500 Internal Server Error\r\nContent-Length: 0\r\n\r\n");
        }
    });
    let output = Workspace::concurrent().run(&[&["bench", &failing.url()], &arguments[..]].concat());
    assert!(output.stdout.contains("100 % had a status other than 2xx"), "{output}");
    assert!(!output.stdout.contains("none failed"), "{output}");
}
