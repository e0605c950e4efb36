//! The server over loopback, tested with raw bytes. All tests run with each engine: `tests/over_epoll.rs` and
//! `tests/over_uring.rs` include the files below, which is why they are named by path.
//!
//! No test waits for time to pass: it ends when the expected bytes have arrived. The read timeout is long and ends only
//! tests that would hang.

#[path = "tests/answers.rs"]
mod answers;
#[path = "tests/cached.rs"]
mod cached;
#[path = "tests/changes.rs"]
mod changes;
#[path = "tests/dynamic.rs"]
mod dynamic;
#[path = "tests/endings.rs"]
mod endings;
#[path = "tests/http2.rs"]
mod http2;
#[path = "tests/large.rs"]
mod large;
#[path = "tests/limits.rs"]
mod limits;
#[path = "tests/origin.rs"]
mod origin;
#[path = "tests/rfc.rs"]
mod rfc;
#[path = "tests/table.rs"]
mod table;

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsFd as _;
use std::path::Path;
use std::sync::mpsc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use nix::sys::eventfd::EventFd;

use super::ENGINE;
use crate::{Limits, ServeError, ServeSpec, serve};

/// A server on its own thread with its own directory; stopped when dropped.
struct Running {
    address: SocketAddr,
    directory: tempfile::TempDir,
    stop: std::sync::Arc<EventFd>,
    thread: Option<JoinHandle<Result<(), ServeError>>>,
}

impl Running {
    fn start() -> Self {
        Self::with(1, Limits::default())
    }

    fn with(threads: usize, limits: Limits) -> Self {
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join("hello.txt"), "hello\n").unwrap();
        let listen = "127.0.0.1:0".parse().unwrap();
        let spec = ServeSpec { threads, limits, engine: ENGINE, ..ServeSpec::new(directory.path(), listen) };
        let stop = std::sync::Arc::new(EventFd::new().unwrap());
        let (address_sender, address_receiver) = mpsc::channel();
        let stopped = std::sync::Arc::clone(&stop);
        let thread = thread::spawn(move || serve(&spec, stopped.as_fd(), |bound| address_sender.send(bound).unwrap()));
        Running { address: address_receiver.recv().unwrap(), directory, stop, thread: Some(thread) }
    }

    fn root(&self) -> &Path {
        self.directory.path()
    }

    fn connect(&self) -> Client {
        let stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        Client { stream, read: Vec::new() }
    }

    /// Sends `request` on a new connection and returns everything received.
    fn ask(&self, request: &str) -> String {
        let mut client = self.connect();
        client.send(request.as_bytes());
        String::from_utf8_lossy(&client.rest()).into_owned()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop.write(1).unwrap();
        let outcome = self.thread.take().unwrap().join();
        if !thread::panicking() {
            outcome.unwrap().unwrap();
        }
    }
}

/// The client's end of a connection.
struct Client {
    stream: TcpStream,
    read: Vec<u8>,
}

struct Response {
    head: String,
    body: Vec<u8>,
}

impl Client {
    fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).unwrap();
    }

    fn get(&mut self, path: &str) -> Response {
        self.send(format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n").as_bytes());
        self.response(true)
    }

    /// Reads one response, framed by its Content-Length.
    fn response(&mut self, has_body: bool) -> Response {
        let end = loop {
            if let Some(at) = self.read.windows(4).position(|window| window == b"\r\n\r\n") {
                break at + 4;
            }
            self.more();
        };
        let head = String::from_utf8(self.read.drain(..end).collect()).unwrap();
        let mut response = Response { head, body: Vec::new() };
        let length = if has_body { response.field("Content-Length").unwrap().parse().unwrap() } else { 0 };
        while self.read.len() < length {
            self.more();
        }
        response.body = self.read.drain(..length).collect();
        response
    }

    fn more(&mut self) {
        let mut buffer = [0; 65_536];
        let got = loop {
            match self.stream.read(&mut buffer) {
                // After SIGSTOP and SIGCONT a read with a timeout fails with EINTR.
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                outcome => break outcome.unwrap(),
            }
        };
        assert_ne!(got, 0, "the server closed after {:?}", String::from_utf8_lossy(&self.read));
        self.read.extend_from_slice(&buffer[..got]);
    }

    /// Everything up to the server's FIN.
    fn rest(&mut self) -> Vec<u8> {
        let mut rest = std::mem::take(&mut self.read);
        self.stream.read_to_end(&mut rest).unwrap();
        rest
    }
}

impl Response {
    fn status(&self) -> &str {
        self.head.lines().next().unwrap().strip_prefix("HTTP/1.1 ").unwrap()
    }

    fn field(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
    }
}
