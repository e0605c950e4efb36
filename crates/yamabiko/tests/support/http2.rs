//! An HTTP/2 server without encryption that runs a script frame by frame, so that it can send what no library would.

use std::io::{self, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

pub const DATA: u8 = 0;
pub const HEADERS: u8 = 1;
pub const RST_STREAM: u8 = 3;
pub const SETTINGS: u8 = 4;
pub const PING: u8 = 6;
pub const GOAWAY: u8 = 7;
pub const WINDOW_UPDATE: u8 = 8;
pub const CONTINUATION: u8 = 9;

pub const END_STREAM: u8 = 1;
pub const END_HEADERS: u8 = 4;

/// `:status: 200` of HPACK's static table.
pub const STATUS_200: &[u8] = &[0x88];

/// The behaviour of the server on one connection, until it ends.
pub type Script = fn(&mut Connection) -> io::Result<()>;

/// The running server. Dropping it closes the listener and all connections.
pub struct Http2Server {
    address: SocketAddr,
    shared: Arc<Shared>,
    acceptor: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    ended: AtomicBool,
    connections: AtomicUsize,
    live: Mutex<Vec<(TcpStream, JoinHandle<()>)>>,
}

/// A connection whose preface has been read.
pub struct Connection {
    pub stream: TcpStream,
}

/// The header of a received frame.
pub struct Frame {
    pub kind: u8,
    pub flags: u8,
    pub stream: u32,
}

impl Http2Server {
    /// Listens on a port of 127.0.0.1 that the kernel chooses.
    pub fn start(script: Script) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("bind the HTTP/2 server");
        let address = listener.local_addr().expect("getsockname of the HTTP/2 server");
        let shared = Arc::new(Shared::default());
        let acceptor = thread::spawn({
            let shared = Arc::clone(&shared);
            move || {
                for stream in listener.incoming() {
                    let Ok(stream) = stream else { return };
                    if shared.ended.load(Ordering::SeqCst) {
                        return;
                    }
                    shared.connections.fetch_add(1, Ordering::SeqCst);
                    let copy = stream.try_clone().expect("a copy of the descriptor, to close the connection");
                    let thread = thread::spawn(move || {
                        // An error means that the client closed the connection, which ends the script.
                        let _ = Connection::begin(stream).and_then(|mut connection| script(&mut connection));
                    });
                    shared.live.lock().unwrap_or_else(PoisonError::into_inner).push((copy, thread));
                }
            }
        });
        Http2Server { address, shared, acceptor: Some(acceptor) }
    }

    pub fn url(&self) -> String {
        format!("http://{}/", self.address)
    }

    /// Connections accepted so far.
    pub fn connections(&self) -> usize {
        self.shared.connections.load(Ordering::SeqCst)
    }
}

impl Drop for Http2Server {
    fn drop(&mut self) {
        self.shared.ended.store(true, Ordering::SeqCst);
        // Wakes the acceptor, which then exits.
        let _ = TcpStream::connect(self.address);
        let acceptor = self.acceptor.take().map(JoinHandle::join);
        let live = std::mem::take(&mut *self.shared.live.lock().unwrap_or_else(PoisonError::into_inner));
        for (stream, thread) in live {
            // An error means that the peer has reset the connection.
            let _ = stream.shutdown(Shutdown::Both);
            assert!(thread.join().is_ok() || thread::panicking(), "a script panicked");
        }
        assert!(acceptor.is_none_or(|ended| ended.is_ok()) || thread::panicking(), "the acceptor panicked");
    }
}

impl Connection {
    fn begin(mut stream: TcpStream) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        let mut preface = [0; 24];
        stream.read_exact(&mut preface)?;
        assert_eq!(&preface, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
        Ok(Connection { stream })
    }

    /// Sends SETTINGS: pairs of identifier and value.
    pub fn settings(&mut self, settings: &[(u16, u32)]) -> io::Result<()> {
        let payload: Vec<u8> =
            settings.iter().flat_map(|(id, value)| [&id.to_be_bytes()[..], &value.to_be_bytes()].concat()).collect();
        self.send(SETTINGS, 0, 0, &payload)
    }

    pub fn send(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) -> io::Result<()> {
        self.stream.write_all(&frame(kind, flags, stream, payload))
    }

    /// Reads the next frame. End of file is an error.
    pub fn read(&mut self) -> io::Result<Frame> {
        let mut head = [0; 9];
        self.stream.read_exact(&mut head)?;
        let mut payload = vec![0; (head[0] as usize) << 16 | (head[1] as usize) << 8 | head[2] as usize];
        self.stream.read_exact(&mut payload)?;
        let stream = u32::from_be_bytes(head[5..].try_into().unwrap());
        Ok(Frame { kind: head[3], flags: head[4], stream })
    }

    /// The stream of the next request. Other frames are ignored.
    pub fn request(&mut self) -> io::Result<u32> {
        loop {
            let frame = self.read()?;
            if frame.kind == HEADERS {
                return Ok(frame.stream);
            }
        }
    }

    /// Responds with status 200 and body `hello`.
    pub fn respond(&mut self, stream: u32) -> io::Result<()> {
        self.stream.write_all(&respond(stream))
    }

    pub fn goaway(&mut self, last: u32, code: u32) -> io::Result<()> {
        self.send(GOAWAY, 0, 0, &[last.to_be_bytes(), code.to_be_bytes()].concat())
    }

    /// Reads and discards until the client closes the connection.
    pub fn sink(&mut self) -> io::Result<()> {
        loop {
            self.read()?;
        }
    }
}

pub fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut bytes = (payload.len() as u32).to_be_bytes()[1..].to_vec();
    bytes.extend([kind, flags]);
    bytes.extend(stream.to_be_bytes());
    bytes.extend(payload);
    bytes
}

pub fn respond(stream: u32) -> Vec<u8> {
    [frame(HEADERS, END_HEADERS, stream, STATUS_200), frame(DATA, END_STREAM, stream, b"hello")].concat()
}
