//! A scripted upstream for tests.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;

/// Stops when dropped, once its connections are closed by the relay.
pub(super) struct Upstream {
    pub(super) address: SocketAddr,
    stop: Arc<AtomicBool>,
    accepted: Arc<AtomicUsize>,
    thread: Option<JoinHandle<()>>,
}

/// A connection at the upstream's end.
pub(super) struct Peer {
    pub(super) stream: BufReader<TcpStream>,
    /// The connection's number, from 0.
    pub(super) number: usize,
}

impl Upstream {
    /// Runs `work` for each connection on its own thread.
    pub(super) fn start(work: impl Fn(Peer) + Clone + Send + 'static) -> Upstream {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (stop, accepted) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let (stopping, counted) = (Arc::clone(&stop), Arc::clone(&accepted));
        let thread = std::thread::spawn(move || {
            for stream in listener.incoming() {
                if stopping.load(Ordering::Acquire) {
                    return;
                }
                let Ok(stream) = stream else { continue };
                let (work, number) = (work.clone(), counted.fetch_add(1, Ordering::AcqRel));
                std::thread::spawn(move || work(Peer { stream: BufReader::new(stream), number }));
            }
        });
        Upstream { address, stop, accepted, thread: Some(thread) }
    }

    /// Responds to each request with `answer` of its head, and leaves the connection open.
    pub(super) fn responding(answer: impl Fn(&str) -> String + Clone + Send + 'static) -> Upstream {
        Upstream::start(move |mut peer| {
            while let Some(head) = peer.head() {
                peer.write(answer(&head).as_bytes());
            }
        })
    }

    pub(super) fn accepted(&self) -> usize {
        self.accepted.load(Ordering::Acquire)
    }
}

impl Drop for Upstream {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        let _ = TcpStream::connect(self.address);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Peer {
    /// The next request head with its empty line; `None` when the connection is closed.
    pub(super) fn head(&mut self) -> Option<String> {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if self.stream.read_line(&mut head).unwrap_or(0) == 0 {
                return None;
            }
        }
        Some(head)
    }

    /// This number of bytes of a body; fewer if the connection ends.
    pub(super) fn body(&mut self, length: usize) -> Vec<u8> {
        let mut body = Vec::new();
        let _ = (&mut self.stream).take(length as u64).read_to_end(&mut body);
        body
    }

    /// Everything until the relay closes or resets the connection.
    pub(super) fn rest(&mut self) -> Vec<u8> {
        let (mut rest, mut piece) = (Vec::new(), [0; 4096]);
        while let Ok(length @ 1..) = self.stream.read(&mut piece) {
            rest.extend_from_slice(&piece[..length]);
        }
        rest
    }

    pub(super) fn write(&mut self, bytes: &[u8]) {
        // Some tests expect a closed connection.
        let _ = self.stream.get_mut().write_all(bytes);
    }

    pub(super) fn close(self) {
        let _ = self.stream.get_ref().shutdown(Shutdown::Both);
    }
}

/// A small response.
pub(super) fn ok(body: &str) -> String {
    format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len())
}
