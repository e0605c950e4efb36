//! Socket I/O of the load with a proxy's tunnel: CONNECT, between the connection to the proxy and TLS.

use load::ConnectionKey;
use schema::FailureCause;
use sys::clock::Clock;
use sys::socket::Read;

use super::{LoadIo, stream_cause};
use crate::drive::tunnel::{ProxyResponse, Tunnelling};

impl LoadIo {
    /// Adds a tunnel for each connection to a secure target.
    pub fn with_tunnel(mut self, tunnelling: Option<Tunnelling>) -> Self {
        self.tunnelling = tunnelling;
        self
    }

    /// Sends CONNECT on an established connection to a proxy. Without a proxy, starts the TLS handshake.
    pub(super) fn begin_tunnel(&mut self, key: ConnectionKey, clock: &Clock) {
        let (Some(Some(socket)), Some(tunnelling)) = (self.sockets.get_mut(key.index()), &self.tunnelling) else {
            return self.begin_handshake(key, clock);
        };
        let target = &self.load.targets()[socket.target];
        socket.tunnel = Some(Box::new(tunnelling.begin(&target.host, target.port)));
        self.write_tunnel(key, clock);
    }

    /// Writes the rest of CONNECT.
    pub(super) fn write_tunnel(&mut self, key: ConnectionKey, clock: &Clock) {
        let Some(Some(socket)) = self.sockets.get_mut(key.index()) else { return };
        let Some(tunnel) = &mut socket.tunnel else { return };
        while !tunnel.unwritten().is_empty() {
            match socket.tcp.send(tunnel.unwritten()) {
                Ok(Some(taken)) => tunnel.note_written(taken),
                // The socket reports when it accepts more.
                Ok(None) => return,
                Err(error) => return self.drop_failed(key, stream_cause(&error), clock),
            }
        }
    }

    /// Reads the proxy's response. True if the tunnel is open, and TLS has begun.
    pub(super) fn read_tunnel(&mut self, key: ConnectionKey, clock: &Clock) -> bool {
        loop {
            let Some(Some(socket)) = self.sockets.get_mut(key.index()) else { return false };
            let Some(tunnel) = &mut socket.tunnel else { return false };
            let response = match socket.tcp.read(&mut self.buffer) {
                Ok(Read::Bytes(length)) => tunnel.receive(&self.buffer[..length]),
                Ok(Read::Later) => return false,
                Ok(Read::End) => {
                    self.drop_failed(key, FailureCause::ConnectFailed, clock);
                    return false;
                }
                Err(error) => {
                    self.drop_failed(key, stream_cause(&error), clock);
                    return false;
                }
            };
            match response {
                ProxyResponse::Incomplete => {}
                ProxyResponse::Open => {
                    socket.tunnel = None;
                    self.begin_handshake(key, clock);
                    return true;
                }
                ProxyResponse::Refused(status) => {
                    self.close_socket(key);
                    let now = self.now(clock);
                    self.load.handle_refused(now, key, status);
                    return false;
                }
                ProxyResponse::Malformed => {
                    self.drop_failed(key, FailureCause::Malformed, clock);
                    return false;
                }
            }
        }
    }
}
