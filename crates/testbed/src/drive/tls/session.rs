//! One connection's TLS.

use std::io;
use std::sync::Arc;

use rustls::client::UnbufferedClientConnection;
use rustls::unbuffered::{ConnectionState, EncodeError, EncryptError, UnbufferedStatus};
use rustls::{ClientConfig, Error, HandshakeKind};
use rustls_pki_types::ServerName;
use sys::socket::TcpSocket;

use super::facts::Settled;

/// What a session has to tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum News<'a> {
    /// The handshake is finished as far as sending goes. Once.
    Secured,
    /// What the server says, opened.
    Plain(&'a [u8]),
    /// The server sends no more. Once.
    CloseNotify,
}

/// What a read buffer for sessions must hold: the largest message of a handshake (64 KiB, RFC 8446, section 4) in
/// records, and something to go on with.
pub(crate) const READ_BUFFER: usize = 96 << 10;

/// Memory for sending that a connection keeps when all is sent: a few requests.
const KEPT_MAX: usize = 8 << 10;

/// What a record adds to what is in it, at most (RFC 8446, section 5.2), with its header.
const RECORD_OVERHEAD: usize = 5 + 256;

/// One connection's TLS.
pub(crate) struct Session {
    connection: UnbufferedClientConnection,
    /// Records read and not whole.
    incoming: Vec<u8>,
    /// Records to write, from `written` on.
    outgoing: Vec<u8>,
    written: usize,
    /// Bytes of the request that are sealed in `outgoing`, not yet reported as sent.
    sealed: usize,
    secured: bool,
    closed_by_peer: bool,
}

impl Session {
    pub(super) fn new(config: Arc<ClientConfig>, name: ServerName<'static>) -> Result<Self, Error> {
        Ok(Session {
            connection: UnbufferedClientConnection::new(config, name)?,
            incoming: Vec::new(),
            outgoing: Vec::new(),
            written: 0,
            sealed: 0,
            secured: false,
            closed_by_peer: false,
        })
    }

    /// Writes the first message. To be followed by [`Self::flush`].
    pub(crate) fn begin(&mut self) -> Result<(), Error> {
        self.advance(&mut [], |_| {}).map(drop)
    }

    /// Lays what was kept of the records at the front of `buffer`; how long that is. The next bytes of the socket
    /// belong behind it.
    pub(crate) fn lay_out(&self, buffer: &mut [u8]) -> usize {
        buffer[..self.incoming.len()].copy_from_slice(&self.incoming);
        self.incoming.len()
    }

    /// Takes in `bytes`, which begin with what [`Self::lay_out`] laid there, and says what they mean. To be followed
    /// by [`Self::flush`].
    ///
    /// # Errors
    /// The session is over; an alert for the server may be in the way to it.
    pub(crate) fn receive(&mut self, bytes: &mut [u8], tell: impl FnMut(News<'_>)) -> Result<(), Error> {
        let used = self.advance(bytes, tell)?;
        self.incoming.clear();
        self.incoming.extend_from_slice(&bytes[used..]);
        Ok(())
    }

    /// Seals the next bytes of a request, of which nothing must be under way.
    ///
    /// # Errors
    /// The session is over, or its keys are used up.
    pub(crate) fn seal(&mut self, plain: &[u8]) -> Result<(), Error> {
        debug_assert_eq!(self.sealed, 0, "the last part was reported as sent");
        // rustls knows places in what was kept, so it must see it again.
        let mut incoming = std::mem::take(&mut self.incoming);
        let mut used = 0;
        let sealed = loop {
            let UnbufferedStatus { discard, state } = self.connection.process_tls_records(&mut incoming[used..]);
            match state {
                Ok(ConnectionState::WriteTraffic(mut traffic)) => {
                    let at = self.outgoing.len();
                    let mut room = plain.len() + RECORD_OVERHEAD;
                    break loop {
                        self.outgoing.resize(at + room, 0);
                        match traffic.encrypt(plain, &mut self.outgoing[at..]) {
                            Ok(length) => {
                                self.outgoing.truncate(at + length);
                                break Ok(());
                            }
                            Err(EncryptError::InsufficientSize(needed)) => room = needed.required_size,
                            Err(EncryptError::EncryptExhausted) => {
                                self.outgoing.truncate(at);
                                break Err(Error::EncryptError);
                            }
                        }
                    };
                }
                Ok(ConnectionState::EncodeTlsData(mut data)) => encode(&mut self.outgoing, |into| data.encode(into)),
                Ok(ConnectionState::TransmitTlsData(data)) => data.done(),
                Ok(_) => break Err(Error::General("the connection cannot be written to".into())),
                Err(error) => break Err(error),
            }
            used += discard;
        };
        incoming.drain(..used);
        self.incoming = incoming;
        sealed?;
        self.sealed = plain.len();
        Ok(())
    }

    /// Writes what is to be written. True when all of it is.
    ///
    /// # Errors
    /// Those of send(2).
    pub(crate) fn flush(&mut self, tcp: &TcpSocket) -> io::Result<bool> {
        while self.written < self.outgoing.len() {
            match tcp.send(&self.outgoing[self.written..])? {
                Some(length) => self.written += length,
                None => return Ok(false),
            }
        }
        self.written = 0;
        self.outgoing.clear();
        self.outgoing.shrink_to(KEPT_MAX);
        Ok(true)
    }

    /// Bytes of the request that the kernel has taken since the last call, if all is written.
    pub(crate) fn take_sent(&mut self) -> usize {
        if self.outgoing.is_empty() { std::mem::take(&mut self.sealed) } else { 0 }
    }

    /// Tells the server that no more comes, if it still listens and a word fits in: never waits.
    pub(crate) fn say_goodbye(&mut self, tcp: &TcpSocket) {
        // To a server that has closed it would be answered with RST.
        if !self.secured || self.closed_by_peer || !self.outgoing.is_empty() {
            return;
        }
        let mut word = [0; 64 + RECORD_OVERHEAD];
        let status = self.connection.process_tls_records(&mut self.incoming);
        if let Ok(ConnectionState::WriteTraffic(mut traffic)) = status.state
            && let Ok(length) = traffic.queue_close_notify(&mut word)
        {
            // The connection is closed next, whatever becomes of this.
            let _ = tcp.send(&word[..length]);
        }
    }

    /// Whether the handshake was finished.
    pub(crate) fn secured(&self) -> bool {
        self.secured
    }

    /// Whether the server said that it sends no more.
    pub(crate) fn closed_by_peer(&self) -> bool {
        self.closed_by_peer
    }

    /// What the handshake settled.
    pub(super) fn settled(&self) -> (Option<HandshakeKind>, Settled) {
        let settled = Settled {
            version: self.connection.protocol_version(),
            suite: self.connection.negotiated_cipher_suite(),
            alpn: self.connection.alpn_protocol().map(<[u8]>::to_vec),
        };
        (self.connection.handshake_kind(), settled)
    }

    /// Works through `bytes`; how many of them are done with.
    fn advance(&mut self, bytes: &mut [u8], mut tell: impl FnMut(News<'_>)) -> Result<usize, Error> {
        let mut used = 0;
        loop {
            let UnbufferedStatus { mut discard, state } = self.connection.process_tls_records(&mut bytes[used..]);
            let waits = match state {
                Ok(ConnectionState::ReadTraffic(mut traffic)) => {
                    while let Some(record) = traffic.next_record() {
                        let record = record?;
                        discard += record.discard;
                        tell(News::Plain(record.payload));
                    }
                    false
                }
                Ok(ConnectionState::EncodeTlsData(mut data)) => {
                    encode(&mut self.outgoing, |into| data.encode(into));
                    false
                }
                Ok(ConnectionState::TransmitTlsData(data)) => {
                    data.done();
                    false
                }
                Ok(ConnectionState::WriteTraffic(_)) => {
                    if !std::mem::replace(&mut self.secured, true) {
                        tell(News::Secured);
                    }
                    true
                }
                Ok(ConnectionState::PeerClosed) => {
                    self.closed_by_peer = true;
                    if !self.secured {
                        return Err(Error::General("the server closed TLS in the middle of the handshake".into()));
                    }
                    tell(News::CloseNotify);
                    false
                }
                Ok(_) => true,
                Err(error) => {
                    self.take_alert();
                    return Err(error);
                }
            };
            used += discard;
            if waits {
                return Ok(used);
            }
        }
    }

    /// What rustls wants to tell the server about an error.
    fn take_alert(&mut self) {
        while self.connection.wants_write() {
            let status = self.connection.process_tls_records(&mut []);
            let Ok(ConnectionState::EncodeTlsData(mut data)) = status.state else { return };
            encode(&mut self.outgoing, |into| data.encode(into));
        }
    }
}

/// Appends what `encode` writes, for which it says how much room it needs.
fn encode(outgoing: &mut Vec<u8>, mut encode: impl FnMut(&mut [u8]) -> Result<usize, EncodeError>) {
    let at = outgoing.len();
    if let Err(EncodeError::InsufficientSize(needed)) = encode(&mut []) {
        outgoing.resize(at + needed.required_size, 0);
        let length = encode(&mut outgoing[at..]).unwrap_or(0);
        outgoing.truncate(at + length);
    }
}

#[cfg(test)]
mod tests;
