//! A web server that misbehaves on request: the path of the URL selects the fault.
//!
//! | path | behaviour |
//! |---|---|
//! | `/ok/SIZE` | 200, Content-Length, SIZE bytes; persistent connection |
//! | `/chunked/SIZE` | the same in chunks of 1000 bytes, with an extension |
//! | `/trailers` | chunked, with two trailer fields |
//! | `/close-delimited/SIZE` | no length: the body ends with the connection |
//! | `/http10` | an HTTP/1.0 response of five bytes, closed |
//! | `/continue` | 100, 103, then 200 |
//! | `/switching` | 101, then bytes of another protocol |
//! | `/204`, `/304` | no body; the 304 has a Content-Length |
//! | `/status/CODE` | that status, seven bytes |
//! | `/now-and-then` | 200 and 500 bytes, but every third response is cut short as by `/truncated` |
//! | `/truncated` | announces 1000 bytes, sends 500, FIN |
//! | `/rst` | announces 1000 bytes, sends 500, RST |
//! | `/early-close` | FIN right after the request |
//! | `/silent` | reads the request and never responds |
//! | `/stall` | announces 1000 bytes, sends 500, then nothing; the connection stays open |
//! | `/slow` | 30 bytes of body, one every 100 ms |
//! | `/trickle-head` | a head, one byte every 100 ms |
//! | `/garbage` | bytes that are not HTTP |
//! | `/endless-head` | header fields without end |
//! | `/endless-body` | chunks without end |
//! | `/huge-headers` | a complete head with 1 MiB of fields |
//! | `/conflicting-length` | two Content-Length fields that differ |
//! | `/bad-chunk` | a chunk size that is not a number |
//! | `/extra-bytes` | five bytes announced, more sent without a request |
//! | `/unasked` | a response before any request, then nothing; only with [`Hostile::always`] |
//!
//! A proxy is asked for other servers' URLs: with [`Hostile::always`] the requested URL does not matter.
//!
//! Any other path is a 404. The response to HEAD has no body. The server listens on loopback with one thread for each
//! connection. Dropping it closes the listener and all connections.

use std::collections::HashMap;
use std::io::{self, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// The running misbehaving server.
pub struct Hostile {
    address: SocketAddr,
    shared: Arc<Shared>,
    acceptor: Option<JoinHandle<()>>,
}

impl Hostile {
    /// Listens on a port of 127.0.0.1 that the kernel chooses.
    pub fn start() -> Self {
        Self::listen("127.0.0.1:0")
    }

    /// Listens on `address`, in the network namespace of the calling thread.
    pub fn listen(address: &str) -> Self {
        Self::serve(TcpListener::bind(address).expect("bind the hostile server"), None)
    }

    /// Responds to every request as to the one for `path`.
    pub fn always(path: &'static str) -> Self {
        Self::serve(TcpListener::bind("127.0.0.1:0").expect("bind the hostile server"), Some(path))
    }

    fn serve(listener: TcpListener, always: Option<&'static str>) -> Self {
        let address = listener.local_addr().expect("getsockname of the hostile server");
        let shared = Arc::new(Shared { always, ..Shared::default() });
        let acceptor = thread::spawn({
            let shared = Arc::clone(&shared);
            move || accept(&listener, &shared)
        });
        Hostile { address, shared, acceptor: Some(acceptor) }
    }

    /// The listening address.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// `http://ADDRESS/path`; `path` begins with a slash.
    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// Requests read so far.
    pub fn requests(&self) -> usize {
        self.shared.requests.load(Ordering::SeqCst)
    }

    /// Connections accepted so far.
    pub fn connections(&self) -> usize {
        self.shared.connections.load(Ordering::SeqCst)
    }
}

impl Drop for Hostile {
    fn drop(&mut self) {
        let threads = {
            let mut live = self.shared.live();
            live.ended = true;
            for stream in live.streams.values() {
                // An error means that the peer has reset the connection.
                let _ = stream.shutdown(Shutdown::Both);
            }
            std::mem::take(&mut live.threads)
        };
        self.shared.end.notify_all();
        // Wakes the acceptor, which then exits.
        let _ = TcpStream::connect(self.address);
        let acceptor = self.acceptor.take();
        for thread in acceptor.into_iter().chain(threads) {
            if thread.join().is_err() && !thread::panicking() {
                panic!("a thread of the hostile server panicked");
            }
        }
    }
}

#[derive(Default)]
struct Shared {
    live: Mutex<Live>,
    end: Condvar,
    requests: AtomicUsize,
    connections: AtomicUsize,
    /// Replaces the requested path.
    always: Option<&'static str>,
}

/// Connections and threads that the drop ends.
#[derive(Default)]
struct Live {
    ended: bool,
    streams: HashMap<usize, TcpStream>,
    threads: Vec<JoinHandle<()>>,
}

impl Shared {
    fn live(&self) -> MutexGuard<'_, Live> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sleeps, at most until the server ends.
    fn pause(&self, length: Duration) -> io::Result<()> {
        let (live, _) = self
            .end
            .wait_timeout_while(self.live(), length, |live| !live.ended)
            .unwrap_or_else(PoisonError::into_inner);
        if live.ended { Err(io::ErrorKind::Interrupted.into()) } else { Ok(()) }
    }
}

fn accept(listener: &TcpListener, shared: &Arc<Shared>) {
    for stream in listener.incoming() {
        let mut live = shared.live();
        if live.ended {
            return;
        }
        let Ok(stream) = stream else { continue };
        let Ok(copy) = stream.try_clone() else { continue };
        let number = shared.connections.fetch_add(1, Ordering::SeqCst);
        live.streams.insert(number, copy);
        live.threads.retain(|thread| !thread.is_finished());
        let shared = Arc::clone(shared);
        live.threads.push(thread::spawn(move || {
            // An error means that the client or the server has closed the connection: both are expected.
            let _ = converse(&stream, &shared);
            // Closing the last copy of the descriptor sends a FIN, or a RST if unread input remains.
            shared.live().streams.remove(&number);
        }));
    }
}

struct Request {
    path: String,
    head_only: bool,
}

enum Disposition {
    Keep,
    Close,
}

fn converse(stream: &TcpStream, shared: &Shared) -> io::Result<()> {
    stream.set_nodelay(true)?;
    if shared.always == Some("/unasked") {
        let mut out = stream;
        out.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nxxxxx")?;
        return until_closed(stream);
    }
    while let Some(line) = read_line(stream)? {
        let mut words = line.split(' ');
        let method = words.next().unwrap_or_default();
        let path = words.next().unwrap_or_default();
        let path = shared.always.unwrap_or(path).to_owned();
        let request = Request { path, head_only: method == "HEAD" };
        if request.path == "/rst" {
            shared.requests.fetch_add(1, Ordering::SeqCst);
            return reset(stream);
        }
        let mut body_length = 0;
        while let Some(field) = read_line(stream)?.filter(|field| !field.is_empty()) {
            if let Some((name, value)) = field.split_once(':')
                && name.eq_ignore_ascii_case("content-length")
            {
                body_length = value.trim().parse().unwrap_or(0);
            }
        }
        shared.requests.fetch_add(1, Ordering::SeqCst);
        io::copy(&mut stream.take(body_length), &mut io::sink())?;
        if let Disposition::Close = respond(&request, stream, shared)? {
            break;
        }
    }
    Ok(())
}

/// Behaves as the requested path selects.
fn respond(request: &Request, stream: &TcpStream, shared: &Shared) -> io::Result<Disposition> {
    let mut out = stream;
    let path = request.path.strip_prefix('/').unwrap_or_default();
    let (name, argument) = path.split_once('/').unwrap_or((path, ""));
    let size = argument.parse().unwrap_or(0);
    let body = |length: usize| if request.head_only { Vec::new() } else { vec![b'x'; length] };
    match name {
        "ok" => {
            out.write_all(format!("HTTP/1.1 200 OK\r\nContent-Length: {size}\r\n\r\n").as_bytes())?;
            out.write_all(&body(size))?;
        }
        "chunked" | "trailers" => {
            let size = if name == "trailers" { 2500 } else { size };
            let mut text = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n".to_vec();
            if !request.head_only {
                for chunk in vec![b'x'; size].chunks(1000) {
                    text.extend_from_slice(format!("{:X};extension=\"a\"\r\n", chunk.len()).as_bytes());
                    text.extend_from_slice(chunk);
                    text.extend_from_slice(b"\r\n");
                }
                text.extend_from_slice(b"0\r\n");
                if name == "trailers" {
                    text.extend_from_slice(b"Checksum: 1\r\nServer-Timing: a;dur=1\r\n");
                }
                text.extend_from_slice(b"\r\n");
            }
            out.write_all(&text)?;
        }
        "close-delimited" => {
            out.write_all(b"HTTP/1.1 200 OK\r\n\r\n")?;
            out.write_all(&body(size))?;
            return Ok(Disposition::Close);
        }
        "http10" => {
            out.write_all(b"HTTP/1.0 200 OK\r\nContent-Length: 5\r\n\r\n")?;
            out.write_all(&body(5))?;
            return Ok(Disposition::Close);
        }
        "continue" => {
            out.write_all(b"HTTP/1.1 100 Continue\r\n\r\n")?;
            out.write_all(b"HTTP/1.1 103 Early Hints\r\nLink: </a>; rel=preload\r\n\r\n")?;
            out.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n")?;
            out.write_all(&body(5))?;
        }
        "switching" => {
            out.write_all(b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: other\r\n\r\n")?;
            out.write_all(b"\x01\x02other protocol\x03")?;
            until_closed(stream)?;
            return Ok(Disposition::Close);
        }
        "204" => out.write_all(b"HTTP/1.1 204 No Content\r\n\r\n")?,
        "304" => out.write_all(b"HTTP/1.1 304 Not Modified\r\nContent-Length: 1000\r\n\r\n")?,
        "status" => {
            out.write_all(format!("HTTP/1.1 {argument} As Requested\r\nContent-Length: 7\r\n\r\n").as_bytes())?;
            out.write_all(&body(7))?;
        }
        "now-and-then" if !shared.requests.load(Ordering::SeqCst).is_multiple_of(3) => {
            out.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n")?;
            out.write_all(&body(500))?;
        }
        "truncated" | "stall" | "now-and-then" => {
            out.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")?;
            out.write_all(&body(500))?;
            if name == "stall" {
                until_closed(stream)?;
            }
            return Ok(Disposition::Close);
        }
        "early-close" => return Ok(Disposition::Close),
        "silent" => {
            until_closed(stream)?;
            return Ok(Disposition::Close);
        }
        "slow" => {
            out.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 30\r\n\r\n")?;
            trickle(&body(30), stream, shared)?;
        }
        "trickle-head" => {
            trickle(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", stream, shared)?;
            out.write_all(&body(5))?;
        }
        "garbage" => {
            out.write_all(b"\x16\x03\x01 what \x00 is \xff this\r\n\r\n\r\nHTTP/9 blah\r\n")?;
            return Ok(Disposition::Close);
        }
        "endless-head" => {
            out.write_all(b"HTTP/1.1 200 OK\r\n")?;
            loop {
                out.write_all(b"Again: and again\r\n")?;
            }
        }
        "endless-body" => {
            out.write_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")?;
            let chunk = [&b"1000\r\n"[..], &[b'x'; 0x1000], b"\r\n"].concat();
            loop {
                out.write_all(&chunk)?;
            }
        }
        "huge-headers" => {
            let field = format!("Large: {}\r\n", "x".repeat(1015));
            let fields = field.repeat((1 << 20) / field.len());
            out.write_all(format!("HTTP/1.1 200 OK\r\n{fields}Content-Length: 5\r\n\r\n").as_bytes())?;
            out.write_all(&body(5))?;
        }
        "conflicting-length" => {
            out.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 9\r\n\r\n")?;
            out.write_all(&body(9))?;
            return Ok(Disposition::Close);
        }
        "bad-chunk" => {
            out.write_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nxxxxx\r\nzz\r\nxx\r\n0\r\n\r\n")?;
            return Ok(Disposition::Close);
        }
        "extra-bytes" => {
            out.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nxxxxxand more without a request")?;
        }
        _ => {
            out.write_all(b"HTTP/1.1 404 Not Found\r\nContent-Length: 8\r\n\r\n")?;
            out.write_all(&body(8))?;
        }
    }
    Ok(Disposition::Keep)
}

/// Sends half a response and resets the connection. std cannot set SO_LINGER, but closing a socket with unread input
/// also resets the connection (RFC 2525, section 2.17), so this leaves the header fields of the request unread.
fn reset(stream: &TcpStream) -> io::Result<()> {
    stream.peek(&mut [0])?;
    let mut out = stream;
    out.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")?;
    out.write_all(&[b'x'; 500])
}

fn trickle(bytes: &[u8], stream: &TcpStream, shared: &Shared) -> io::Result<()> {
    let mut out = stream;
    for byte in bytes {
        shared.pause(Duration::from_millis(100))?;
        out.write_all(&[*byte])?;
    }
    Ok(())
}

/// Reads and discards until the client or the end of the server closes the connection.
fn until_closed(mut stream: &TcpStream) -> io::Result<()> {
    io::copy(&mut stream, &mut io::sink()).map(drop)
}

/// Reads a line, returned without its line end. `None` if the connection ended before it. Reads byte by byte, so that
/// the bytes after the line stay in the socket.
fn read_line(mut stream: &TcpStream) -> io::Result<Option<String>> {
    let mut line = Vec::new();
    let mut byte = [0];
    while stream.read(&mut byte)? == 1 {
        match byte[0] {
            b'\n' => return Ok(Some(String::from_utf8_lossy(&line).trim_end_matches('\r').to_owned())),
            other => line.push(other),
        }
    }
    Ok(None)
}
