//! A TCP stream through the path.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use sys::clock::monotonic_ns;
use sys::namespace::NetNamespace;
use sys::socket::TcpSocket;

use crate::topology::{self, SERVER};

const PORT: u16 = 7009;
/// MTU, and its TCP payload: IPv4, TCP and timestamps take 52 bytes.
const WIRE_BYTES: f64 = 1500.0;
const DATA_BYTES: f64 = 1448.0;

/// Bits of IP packets per second during `duration`, including slow start and headers of full packets; 0 without a
/// connection. A shorter time would be wrong: data behind a lost packet is delivered in one piece, so that a
/// part of the time may seem to have more than the link carried.
pub(super) fn run(
    client_net: &NetNamespace,
    server_net: &NetNamespace,
    client: u32,
    up: bool,
    duration: Duration,
) -> io::Result<f64> {
    let server = SocketAddr::new(SERVER.into(), PORT);
    let listener = server_net.run(|| TcpListener::bind(server)).map_err(io::Error::other)??;
    let source = topology::client_address(client, SERVER.into());
    let socket = client_net.run(|| TcpSocket::connect(Some(source), server)).map_err(io::Error::other)??;
    let at_client = TcpStream::from(socket.into_fd());
    at_client.set_nonblocking(false)?;
    listener.set_nonblocking(true)?;
    let Some(at_server) = accept(&listener)? else { return Ok(0.0) };
    let (sender, receiver) = if up { (at_client, at_server) } else { (at_server, at_client) };
    for stream in [&sender, &receiver] {
        stream.set_nonblocking(false)?;
        stream.set_read_timeout(Some(Duration::from_millis(50)))?;
        stream.set_write_timeout(Some(Duration::from_millis(50)))?;
    }
    let end = monotonic_ns() + duration.as_nanos() as u64;
    let bytes = std::thread::scope(|scope| {
        scope.spawn(|| {
            let block = vec![b'y'; 64 << 10];
            // After a timeout the loop checks the clock again; a broken stream shows as a low rate.
            while monotonic_ns() < end {
                if let Err(error) = (&sender).write(&block)
                    && !is_temporary(&error)
                {
                    break;
                }
            }
        });
        let mut block = vec![0; 64 << 10];
        let mut bytes = 0u64;
        while monotonic_ns() < end {
            match (&receiver).read(&mut block) {
                Ok(0) => break,
                Ok(read) => bytes += read as u64,
                Err(error) if is_temporary(&error) => {}
                Err(_) => break,
            }
        }
        bytes
    });
    Ok(bytes as f64 * 8.0 / duration.as_secs_f64() * WIRE_BYTES / DATA_BYTES)
}

fn is_temporary(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut | io::ErrorKind::Interrupted)
}

/// Accepts a connection; `None` if the handshake was lost repeatedly.
fn accept(listener: &TcpListener) -> io::Result<Option<TcpStream>> {
    let end = monotonic_ns() + ACCEPT_TIMEOUT.as_nanos() as u64;
    loop {
        match listener.accept() {
            Ok((stream, _)) => return Ok(Some(stream)),
            Err(error) if !is_temporary(&error) => return Err(error),
            Err(_) if monotonic_ns() > end => return Ok(None),
            Err(_) => std::thread::sleep(Duration::from_millis(2)),
        }
    }
}

/// Longest wait for a connection: SYNs are repeated after 1, 3 and 7 s.
const ACCEPT_TIMEOUT: Duration = Duration::from_millis(7500);
