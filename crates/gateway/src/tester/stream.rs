//! Test of throughput: bytes through TCP connections as fast as possible.
//!
//! The receiver determines the measured window: it counts the bytes that it reads within the window and closes the
//! connection after it. A sender that starts early or late does not change the result.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use sys::clock::monotonic_ns;
use sys::datagrams::{abort_on_close, buffers, set_buffers};

use super::control_connection::is_temporary;
use super::worker::{STOP_CHECK_INTERVAL, StopFlag};

/// Bytes received on one stream.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct StreamResult {
    pub(super) bytes: u64,
    pub(super) from_ns: u64,
    pub(super) to_ns: u64,
    /// Time at which the stream ended, if before the end of the window.
    pub(super) broken_ns: Option<u64>,
}

/// Sets the socket options of a connection before its first byte: buffers, no delay, timeouts, and a close that
/// discards queued data. Returns the actual send and receive buffer.
pub(super) fn prepare(stream: &TcpStream, socket_bytes: Option<u32>) -> std::io::Result<[u32; 2]> {
    stream.set_nonblocking(false)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(STOP_CHECK_INTERVAL))?;
    stream.set_write_timeout(Some(STOP_CHECK_INTERVAL))?;
    abort_on_close(stream)?;
    if let Some(bytes) = socket_bytes {
        set_buffers(stream, bytes)?;
    }
    buffers(stream)
}

/// Writes until the receiver closes the connection, or [`GRACE_PERIOD`] after the end of the trial.
pub(super) fn send(mut stream: TcpStream, message_bytes: usize, lasts: Duration, stop: &StopFlag) {
    let message = vec![b'y'; message_bytes];
    let end_ns = monotonic_ns() + (lasts + GRACE_PERIOD).as_nanos() as u64;
    while !stop.is_set() && monotonic_ns() < end_ns {
        match stream.write(&message) {
            Err(error) if !is_temporary(&error) => return,
            _ => {}
        }
    }
}

/// Reads until the window ends, then closes.
pub(super) fn receive(
    mut stream: TcpStream,
    message_bytes: usize,
    window_ns: [u64; 2],
    stop: &StopFlag,
) -> StreamResult {
    let mut buffer = vec![0; message_bytes.min(READ_BYTES_MAX)];
    let [from_ns, to_ns] = window_ns;
    let mut result = StreamResult { from_ns, to_ns, ..StreamResult::default() };
    loop {
        if stop.is_set() {
            result.to_ns = monotonic_ns().clamp(from_ns, to_ns);
            return result;
        }
        let read = stream.read(&mut buffer);
        let now = monotonic_ns();
        if now >= to_ns {
            return result;
        }
        match read {
            Ok(length @ 1..) => {
                stop.liveness().record_activity();
                if now >= from_ns {
                    result.bytes += length as u64;
                }
            }
            Err(error) if is_temporary(&error) => {}
            Ok(0) | Err(_) => {
                result.broken_ns = Some(now.max(from_ns));
                return result;
            }
        }
    }
}

/// Time after the end of the trial for which a sender continues: the `Go` message of the receiver may have been
/// retransmitted.
const GRACE_PERIOD: Duration = Duration::from_secs(3);
/// Largest read.
const READ_BYTES_MAX: usize = 1 << 20;
