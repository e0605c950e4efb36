//! Failed connections and timeouts, and their causes as the load engine names them.

use std::io;
use std::net::IpAddr;

use load::{ConnectionKey, Load};
use schema::FailureCause;
use sys::clock::Clock;
use sys::socket::TcpSocket;
use units::Timestamp;

use super::LoadIo;
use crate::connect_call::ConnectCall;
use crate::drive::poller::PendingOperations;

impl LoadIo {
    /// Reports to the core how many bytes of long requests, whose timeout is at or before `now`, reached the server.
    pub(super) fn note_unacknowledged_at_timeout(&mut self, now: Timestamp) {
        let due: Vec<ConnectionKey> = self.load.timing_out(now).collect();
        for key in due {
            if let Some(Some(socket)) = self.sockets.get(key.index()) {
                note_unacknowledged(&mut self.load, key, &socket.tcp);
            }
        }
    }

    pub(super) fn drop_failed(&mut self, key: ConnectionKey, cause: FailureCause, clock: &Clock) {
        self.close_socket(key);
        let now = self.now(clock);
        self.load.handle_failure(now, key, cause);
    }

    /// Closes the socket, if it still exists.
    pub(super) fn close_socket(&mut self, key: ConnectionKey) {
        if let Some(slot) = self.sockets.get_mut(key.index())
            && slot.as_ref().is_some_and(|socket| socket.key == key)
            && let Some(socket) = slot.take()
            && self.on_ring
        {
            let pending = PendingOperations { receive: socket.receiving, write: socket.sending || socket.connecting };
            self.closing.push((socket.tcp, key, pending));
        }
    }

    pub(super) fn note_port(&mut self, key: ConnectionKey, client: u32, server: IpAddr, tcp: &TcpSocket) {
        // A connection without a port would have failed to connect: the captured connection then counts as missing.
        if self.records_ports
            && let Ok(port) = tcp.local_port()
        {
            self.note_connect_call(key, client, port, server);
        }
    }

    /// Records a connection's local port, by which it is found in the capture.
    pub(super) fn note_connect_call(&mut self, key: ConnectionKey, client: u32, port: u16, server: IpAddr) {
        if !self.records_ports {
            return;
        }
        if let (Some(connection), Some(handover)) = (self.load.connection_number(key), &mut self.handover) {
            handover.note_connect_call(ConnectCall { connection, client, port, server });
        }
    }
}

/// Why a connect failed.
pub(super) fn connect_cause(error: &io::Error) -> FailureCause {
    match error.raw_os_error() {
        // EAGAIN: the queue of a Unix socket is full.
        Some(libc::ECONNREFUSED | libc::EAGAIN) => FailureCause::ConnectRefused,
        Some(libc::ETIMEDOUT) => FailureCause::ConnectTimeout,
        Some(libc::EADDRNOTAVAIL | libc::EADDRINUSE) => FailureCause::NoPorts,
        Some(libc::EMFILE | libc::ENFILE) => FailureCause::NoDescriptors,
        Some(libc::ENOBUFS | libc::ENOMEM) => FailureCause::LocalError,
        _ => FailureCause::ConnectFailed,
    }
}

/// Why an established connection failed.
pub(super) fn stream_cause(error: &io::Error) -> FailureCause {
    match error.raw_os_error() {
        Some(libc::ECONNRESET | libc::EPIPE | libc::ECONNREFUSED) => FailureCause::Reset,
        Some(libc::ETIMEDOUT | libc::EHOSTUNREACH | libc::ENETUNREACH) => FailureCause::Reset,
        _ => FailureCause::LocalError,
    }
}

/// Reports to the core how many of a connection's bytes the peer has acknowledged.
pub(super) fn note_unacknowledged(load: &mut Load, key: ConnectionKey, socket: &TcpSocket) {
    // A socket that cannot report its queue counts as having sent everything.
    load.handle_unacknowledged(key, socket.unacknowledged().unwrap_or(0));
}
