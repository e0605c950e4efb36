//! The probes' server: echoes datagrams, sends floods, and writes to each TCP connection until it closes.

use std::io::{self, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use nix::libc::linger;
use nix::sys::socket::setsockopt;
use nix::sys::socket::sockopt::{Linger, SndBufForce, TcpCongestion};
use serde::{Deserialize, Serialize};
use sys::clock::monotonic_ns;

use super::PORT;

/// First byte of a datagram that a listening server echoes, before the measurement.
pub const HELLO: u8 = b'H';
/// First byte of a datagram to be echoed.
pub const ECHO: u8 = b'E';
/// First byte of a request for a flood; the rest is [`FloodRequest`].
pub const FLOOD: u8 = b'F';
/// First byte of a datagram that ends the server.
pub const QUIT: u8 = b'Q';
/// Bytes of one write to a TCP connection.
const WRITE_BYTES: usize = 256 << 10;
/// The paper's congestion control; the kernel's default may be another.
const CONGESTION_CONTROL: &str = "cubic";

/// A flood as requested by a client.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct FloodRequest {
    /// Datagrams a second.
    pub per_s: f64,
    /// Payload in bytes.
    pub payload: usize,
    /// Length.
    pub seconds: f64,
}

/// Serves until a client sends [`QUIT`].
pub fn serve(send_buffer: Option<usize>) -> io::Result<()> {
    let udp = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, PORT))?;
    sys::socket::set_receive_buffer(&udp, super::RECEIVE_BUFFER)?;
    let tcp = TcpListener::bind((Ipv4Addr::UNSPECIFIED, PORT))?;
    let congestion = setsockopt(&tcp, TcpCongestion, &CONGESTION_CONTROL.into());
    congestion.map_err(|error| io::Error::other(format!("TCP_CONGESTION {CONGESTION_CONTROL}: {error}")))?;
    if let Some(bytes) = send_buffer {
        // Without the privilege the kernel's limit applies.
        let _ = setsockopt(&tcp, SndBufForce, &bytes);
    }
    let block: Arc<[u8]> = vec![b'y'; WRITE_BYTES].into();
    thread::spawn(move || {
        for stream in tcp.incoming().flatten() {
            let block = Arc::clone(&block);
            let _ = thread::Builder::new().stack_size(64 << 10).spawn(move || write(stream, &block));
        }
    });
    let mut packet = [0u8; 2048];
    loop {
        let (length, from) = match udp.recv_from(&mut packet) {
            Ok(received) => received,
            // A client that has ended: its port is unreachable.
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => continue,
            Err(error) => return Err(error),
        };
        match packet[..length] {
            // With a full queue towards the clients an echo is lost.
            [HELLO | ECHO, ..] => drop(udp.send_to(&packet[..length], from)),
            [FLOOD, ref request @ ..] => {
                let request = serde_json::from_slice(request).map_err(io::Error::other)?;
                let socket = udp.try_clone()?;
                thread::spawn(move || flood(&socket, from, request));
            }
            [QUIT, ..] => return Ok(()),
            _ => {}
        }
    }
}

/// Writes until the client closes the connection. The end is a reset: what is queued then, up to the send buffer,
/// would otherwise stay in the kernel's memory for minutes and slow the next flows down.
fn write(mut stream: TcpStream, block: &[u8]) {
    let _ = setsockopt(&stream, Linger, &linger { l_onoff: 1, l_linger: 0 });
    while stream.write_all(block).is_ok() {}
}

/// Sends numbered datagrams at a constant rate; late ones immediately.
fn flood(socket: &UdpSocket, to: SocketAddr, request: FloodRequest) {
    let mut packet = vec![0u8; request.payload.clamp(8, 60_000)];
    let start = monotonic_ns();
    let count = (request.per_s * request.seconds) as u64;
    for number in 0..count {
        let due = start + (number as f64 * 1e9 / request.per_s) as u64;
        let now = monotonic_ns();
        if now < due {
            thread::sleep(Duration::from_nanos(due - now));
        }
        packet[..8].copy_from_slice(&number.to_le_bytes());
        let _ = socket.send_to(&packet, to);
    }
}
