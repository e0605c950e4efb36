//! Bytes through TCP connections, as fast as they go.
//!
//! The receiver has the window and the say: it counts what it reads within it, and ends the connection after it. So a
//! sender whose `go` came early or late changes nothing.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use sys::clock::monotonic_ns;
use sys::datagrams::{abort_on_close, buffers, set_buffers};

use super::line::passing;
use super::work::{Halt, LOOK};

/// What one stream brought.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Brought {
    pub(super) bytes: u64,
    pub(super) from_ns: u64,
    pub(super) to_ns: u64,
    /// When it ended, if that was before the window did.
    pub(super) broken_ns: Option<u64>,
}

/// Makes a connection ready, before its first byte: its buffers, no waiting for more to send, looks at the clock, and an
/// end that throws away what is queued. Returns the buffers as they are then.
pub(super) fn prepare(stream: &TcpStream, socket_bytes: Option<u32>) -> std::io::Result<[u32; 2]> {
    stream.set_nonblocking(false)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(LOOK))?;
    stream.set_write_timeout(Some(LOOK))?;
    abort_on_close(stream)?;
    if let Some(bytes) = socket_bytes {
        set_buffers(stream, bytes)?;
    }
    buffers(stream)
}

/// Writes messages until the receiver ends it, or long after it should have.
pub(super) fn send(mut stream: TcpStream, message_bytes: usize, lasts: Duration, halt: &Halt) {
    let message = vec![b'y'; message_bytes];
    let end_ns = monotonic_ns() + (lasts + GRACE).as_nanos() as u64;
    while !halt.is_set() && monotonic_ns() < end_ns {
        match stream.write(&message) {
            Err(error) if !passing(&error) => return,
            _ => {}
        }
    }
}

/// Reads until the window ends, and closes.
pub(super) fn receive(mut stream: TcpStream, message_bytes: usize, window_ns: [u64; 2], halt: &Halt) -> Brought {
    let mut room = vec![0; message_bytes.min(ROOM_MAX)];
    let [from_ns, to_ns] = window_ns;
    let mut brought = Brought { from_ns, to_ns, ..Brought::default() };
    loop {
        if halt.is_set() {
            brought.to_ns = monotonic_ns().clamp(from_ns, to_ns);
            return brought;
        }
        let read = stream.read(&mut room);
        let now = monotonic_ns();
        if now >= to_ns {
            return brought;
        }
        match read {
            Ok(length @ 1..) => {
                halt.pulse().hear();
                if now >= from_ns {
                    brought.bytes += length as u64;
                }
            }
            Err(error) if passing(&error) => {}
            Ok(0) | Err(_) => {
                brought.broken_ns = Some(now.max(from_ns));
                return brought;
            }
        }
    }
}

/// How much longer than asked a sender goes on while the receiver does not end it: its `go` may have been lost and repeated.
const GRACE: Duration = Duration::from_secs(3);
/// Read at once, at most.
const ROOM_MAX: usize = 1 << 20;
