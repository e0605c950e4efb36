//! Servers whose misbehaviour looks like good service: they drop requests, send extra responses, respond before they
//! have read the request, or leave closing to the client. They count what they did, and the run's report is compared
//! with it.

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

/// What the server saw.
#[derive(Default)]
struct Truth {
    requests: AtomicU64,
    body_bytes: AtomicU64,
}

/// A server with a thread for each connection; threads end with the test's process.
struct Liar {
    address: SocketAddr,
    truth: Arc<Truth>,
}

impl Liar {
    /// `talk` has each connection, from its being accepted.
    fn start(talk: impl Fn(&mut Connection) + Send + Sync + 'static) -> Liar {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (truth, talk) = (Arc::new(Truth::default()), Arc::new(talk));
        let kept = Arc::clone(&truth);
        thread::spawn(move || {
            for stream in listener.incoming() {
                let (truth, talk) = (Arc::clone(&kept), Arc::clone(&talk));
                let stream = stream.unwrap();
                stream.set_nodelay(true).unwrap();
                thread::spawn(move || talk(&mut Connection { stream, read: Vec::new(), truth }));
            }
        });
        Liar { address, truth }
    }

    fn url(&self) -> String {
        format!("http://{}/", self.address)
    }

    fn requests(&self) -> u64 {
        self.truth.requests.load(Ordering::Relaxed)
    }
}

struct Connection {
    stream: TcpStream,
    read: Vec<u8>,
    truth: Arc<Truth>,
}

impl Connection {
    /// Reads a head; the length of the body that is to follow. `None`: the client has closed.
    fn head(&mut self) -> Option<usize> {
        loop {
            if let Some(end) = self.read.windows(4).position(|window| window == b"\r\n\r\n") {
                let head = String::from_utf8(self.read.drain(..end + 4).collect()).unwrap();
                let length = head.lines().find_map(|line| line.strip_prefix("Content-Length: "));
                self.truth.requests.fetch_add(1, Ordering::Relaxed);
                return Some(length.map_or(0, |length| length.parse().unwrap()));
            }
            self.more()?;
        }
    }

    /// Reads a body.
    fn body(&mut self, length: usize) -> Option<()> {
        while self.read.len() < length {
            self.more()?;
        }
        self.read.drain(..length);
        self.truth.body_bytes.fetch_add(length as u64, Ordering::Relaxed);
        Some(())
    }

    fn more(&mut self) -> Option<()> {
        let mut buffer = [0; 64 << 10];
        match self.stream.read(&mut buffer) {
            Ok(0) | Err(_) => None,
            Ok(length) => {
                self.read.extend_from_slice(&buffer[..length]);
                Some(())
            }
        }
    }

    /// False if the client has gone.
    fn say(&mut self, bytes: &[u8]) -> bool {
        self.stream.write_all(bytes).is_ok()
    }
}

fn failed(document: &Value, cause: &str) -> u64 {
    document["load"]["failed"][cause].as_u64().unwrap_or(0)
}

fn verdict(document: &Value) -> &str {
    document["validity"]["verdict"].as_str().unwrap()
}

/// Every third request on a persistent connection is read and dropped, after a while or immediately: each is a failure,
/// and the load's number of sent requests equals the server's number of received ones.
#[test]
fn requests_dropped_by_the_server_are_failures() {
    for hesitates in [Duration::ZERO, Duration::from_millis(50)] {
        let server = Liar::start(move |connection| {
            for nth in 1.. {
                if connection.head().is_none() {
                    return;
                }
                if nth % 3 == 0 {
                    return thread::sleep(hesitates);
                }
                if !connection.say(OK) {
                    return;
                }
            }
        });
        for shape in [&["--rate", "100/s", "--clients", "4"][..], &["-c", "4"]] {
            let before = server.requests();
            let url = server.url();
            let arguments = ["bench", &url, "-n", "200", "--warmup", "0s", "--slo", "errors < 0.1%", "--json"];
            let document = Workspace::shared().run(&[&arguments, shape].concat()).json();
            let (sent, received) = (count(&document, "load.requests_sent"), server.requests() - before);
            assert_eq!((sent, count(&document, "load.requests_retried")), (received, 0), "{shape:?}: {document}");
            assert!((60..=67).contains(&failed(&document, "closed_before_response")), "{shape:?}: {document}");
            assert_eq!(document["slo"]["met"], false);
            assert_eq!(check(&document, "error_rate")["state"], "failed");
            assert_ne!(verdict(&document), "valid");
        }
    }
}

/// A server that closes behind every response without a word, seen while the connection is idle: nothing fails, nothing is retried.
#[test]
fn an_unannounced_close_after_each_response_is_no_failure() {
    let server = Liar::start(|connection| {
        if connection.head().is_some() && connection.say(OK) {
            connection.stream.shutdown(std::net::Shutdown::Write).unwrap();
            while connection.more().is_some() {}
        }
    });
    let arguments = ["--rate", "50/s", "--clients", "1", "--warmup", "0s", "-n", "50", "--json"];
    let document = Workspace::shared().run(&[&["bench", &server.url()], &arguments[..]].concat()).json();
    assert_eq!(count(&document, "load.completed"), 50, "{document}");
    assert_eq!(count(&document, "load.requests_sent") - count(&document, "load.requests_retried"), 50, "{document}");
}

/// More responses than requests, between two requests, behind a response, or before the first request.
#[test]
fn unrequested_responses_make_the_run_invalid() {
    type Talk = fn(&mut Connection);
    let late: Talk = |connection| {
        while connection.head().is_some() {
            thread::sleep(Duration::from_millis(10));
            let said = connection.say(OK);
            thread::sleep(Duration::from_millis(2));
            if !said || !connection.say(OK) {
                return;
            }
        }
    };
    let first: Talk = |connection| {
        connection.say(OK);
        while connection.head().is_some() {
            thread::sleep(Duration::from_millis(10));
            if !connection.say(OK) {
                return;
            }
        }
    };
    for talk in [late, first] {
        let server = Liar::start(talk);
        for shape in [&["--rate", "20/s", "--warmup", "0s"][..], &["-c", "4"]] {
            let url = server.url();
            let document = Workspace::shared().run(&[&["bench", &url, "-n", "40", "--json"], shape].concat()).json();
            assert_eq!(verdict(&document), "invalid", "{shape:?}: {document}");
            assert_eq!(check(&document, "responses_solicited")["state"], "failed", "{shape:?}: {document}");
            assert!(count(&document, "load.unsolicited.responses") > 0);
        }
    }
}

/// A server that responds to an upload after the head, and one that reads it completely.
#[test]
fn responses_before_the_end_of_an_upload_are_early_responses() {
    let workspace = Workspace::shared();
    let body = workspace.path().join("upload");
    std::fs::write(&body, vec![b'u'; 4 << 20]).unwrap();
    let upload = |server: &Liar| -> Output {
        let url = server.url();
        workspace.run(&["bench", &url, "--body", body.to_str().unwrap(), "-c", "2", "-n", "20", "--json"])
    };
    let ignoring = Liar::start(|connection| {
        if connection.head().is_some() && connection.say(OK) {
            // The client is to see the response before the end of the connection.
            thread::sleep(Duration::from_secs(30));
        }
    });
    let document = upload(&ignoring).json();
    assert_eq!((count(&document, "load.completed"), count(&document, "load.early_responses")), (20, 20), "{document}");
    assert_eq!(check(&document, "early_responses")["state"], "failed");
    assert_ne!(verdict(&document), "valid");
    // The kernels between may hold some megabytes, and did not acknowledge the rest.
    assert!(count(&document, "load.bytes_sent") < 20 * (4 << 20), "{document}");

    let reading = Liar::start(|connection| {
        while let Some(length) = connection.head() {
            if connection.body(length).is_none() || !connection.say(OK) {
                return;
            }
        }
    });
    let document = upload(&reading).json();
    assert_eq!((count(&document, "load.completed"), count(&document, "load.early_responses")), (20, 0), "{document}");
    assert_eq!(reading.truth.body_bytes.load(Ordering::Relaxed), 20 * (4 << 20));
    assert!(count(&document, "load.bytes_sent") > 20 * (4 << 20), "{document}");
}

/// The server announces the end of each connection, and leaves closing to the client.
#[test]
fn a_client_closes_an_announced_connection_that_the_server_leaves_open() {
    for response in [
        "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 5\r\n\r\nhello",
        "HTTP/1.0 200 OK\r\nContent-Length: 5\r\n\r\nhello",
    ] {
        let server = Liar::start(move |connection| {
            while connection.head().is_some() {
                connection.say(response.as_bytes());
            }
        });
        for extra in [&[][..], &["--close"]] {
            let url = server.url();
            let document =
                Workspace::shared().run(&[&["bench", &url, "-c", "1", "-n", "30", "--json"], extra].concat()).json();
            assert_eq!(count(&document, "load.completed"), 30);
            // Where the client waited for the server to close it was a second.
            assert!(count(&document, "load.connection_duration_ns.p50") < 500_000_000, "{document}");
        }
    }
}

/// Errors of every kind are in the headline and cast doubt.
#[test]
fn timeouts_and_error_statuses_are_both_errors() {
    let silent = Liar::start(|connection| {
        while connection.head().is_some() {
            let nth = connection.truth.requests.load(Ordering::Relaxed);
            if nth % 2 == 0 && !connection.say(OK) {
                return;
            }
        }
    });
    let arguments = ["--rate", "20/s", "--warmup", "0s", "-n", "20", "--timeout", "300ms"];
    let output = Workspace::shared().run(&[&["bench", &silent.url()], &arguments[..]].concat());
    let text = output.stdout.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(text.contains("50.0 % failed") && text.contains("response timeout x 10"), "{output}");
    assert!(!text.starts_with("VALID"), "{output}");
    let failing = Liar::start(|connection| {
        while connection.head().is_some() {
            connection.say(b"HTTP/1.1 500 Internal Server Error\r\nContent-Length: 0\r\n\r\n");
        }
    });
    let output = Workspace::shared().run(&[&["bench", &failing.url()], &arguments[..]].concat());
    assert!(output.stdout.contains("100 % had a status other than 2xx"), "{output}");
    assert!(!output.stdout.contains("none failed"), "{output}");
}
