//! TLS of one connection.

use std::io;
use std::sync::Arc;

use rustls::client::UnbufferedClientConnection;
use rustls::unbuffered::{ConnectionState, EncodeError, EncryptError, UnbufferedStatus};
use rustls::{ClientConfig, Error, HandshakeKind};
use rustls_pki_types::ServerName;
use sys::socket::TcpSocket;

use super::facts::Negotiated;

/// Events of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TlsEvent<'a> {
    /// The client's part of the handshake is finished. Reported once.
    Secured,
    /// Decrypted data of the server.
    Plain(&'a [u8]),
    /// close_notify: the server sends no more. Reported once.
    CloseNotify,
}

/// Size of a read buffer for sessions: the largest handshake message (64 KiB, RFC 8446, section 4) in records, and some
/// space.
pub(crate) const READ_BUFFER: usize = 96 << 10;

/// Capacity of the send buffer of an idle connection: a few requests.
const IDLE_CAPACITY_MAX: usize = 8 << 10;

/// Largest overhead of a record (RFC 8446, section 5.2), header included.
const RECORD_OVERHEAD: usize = 5 + 256;

/// TLS of one connection.
pub(crate) struct Session {
    connection: UnbufferedClientConnection,
    /// Incomplete records.
    incoming: Vec<u8>,
    /// Records to write, from `written` on.
    outgoing: Vec<u8>,
    written: usize,
    /// Bytes of the request that are encrypted in `outgoing`, not yet reported as sent.
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

    /// Writes the first message. Call [`Self::flush`] afterwards.
    pub(crate) fn begin(&mut self) -> Result<(), Error> {
        self.advance(&mut [], |_| {}).map(drop)
    }

    /// Copies stored incomplete records to the front of `buffer`, and returns their length. The next bytes of the
    /// socket belong after them.
    pub(crate) fn copy_incomplete_to(&self, buffer: &mut [u8]) -> usize {
        buffer[..self.incoming.len()].copy_from_slice(&self.incoming);
        self.incoming.len()
    }

    /// Bytes of stored incomplete records.
    pub(crate) fn incomplete_bytes(&self) -> usize {
        self.incoming.len()
    }

    /// Processes `bytes`, which begin with those that [`Self::copy_incomplete_to`] copied, and reports events. Call
    /// [`Self::flush`] afterwards.
    ///
    /// # Errors
    /// The session is over; an alert for the server may be ready to be written.
    pub(crate) fn receive(&mut self, bytes: &mut [u8], report: impl FnMut(TlsEvent<'_>)) -> Result<(), Error> {
        let used = self.advance(bytes, report)?;
        self.incoming.clear();
        self.incoming.extend_from_slice(&bytes[used..]);
        Ok(())
    }

    /// Encrypts the next bytes of a request; no earlier bytes may be pending.
    ///
    /// # Errors
    /// The session is over, or its keys are used up.
    pub(crate) fn seal(&mut self, plain: &[u8]) -> Result<(), Error> {
        debug_assert_eq!(self.sealed, 0, "the last part was reported as sent");
        // rustls keeps offsets into the incomplete records, so it must get them again.
        let mut incoming = std::mem::take(&mut self.incoming);
        let mut used = 0;
        let sealed = loop {
            let UnbufferedStatus { discard, state } = self.connection.process_tls_records(&mut incoming[used..]);
            match state {
                Ok(ConnectionState::WriteTraffic(mut traffic)) => {
                    let at = self.outgoing.len();
                    let mut space = plain.len() + RECORD_OVERHEAD;
                    break loop {
                        self.outgoing.resize(at + space, 0);
                        match traffic.encrypt(plain, &mut self.outgoing[at..]) {
                            Ok(length) => {
                                self.outgoing.truncate(at + length);
                                break Ok(());
                            }
                            Err(EncryptError::InsufficientSize(needed)) => space = needed.required_size,
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

    /// Writes pending output. True when all of it is written.
    ///
    /// # Errors
    /// The errors of send(2).
    pub(crate) fn flush(&mut self, tcp: &TcpSocket) -> io::Result<bool> {
        while self.written < self.outgoing.len() {
            match tcp.send(&self.outgoing[self.written..])? {
                Some(length) => self.written += length,
                None => return Ok(false),
            }
        }
        self.written = 0;
        self.outgoing.clear();
        self.outgoing.shrink_to(IDLE_CAPACITY_MAX);
        Ok(true)
    }

    /// Bytes of the request that the kernel has taken since the last call, if all is written.
    pub(crate) fn take_sent(&mut self) -> usize {
        if self.outgoing.is_empty() { std::mem::take(&mut self.sealed) } else { 0 }
    }

    /// Sends close_notify, if the server still reads and it fits: never waits.
    pub(crate) fn send_close_notify(&mut self, tcp: &TcpSocket) {
        // A server that has closed would respond with RST.
        if !self.secured || self.closed_by_peer || !self.outgoing.is_empty() {
            return;
        }
        let mut alert = [0; 64 + RECORD_OVERHEAD];
        let status = self.connection.process_tls_records(&mut self.incoming);
        if let Ok(ConnectionState::WriteTraffic(mut traffic)) = status.state
            && let Ok(length) = traffic.queue_close_notify(&mut alert)
        {
            // The connection is closed next in any case.
            let _ = tcp.send(&alert[..length]);
        }
    }

    /// Whether the handshake is finished.
    pub(crate) fn secured(&self) -> bool {
        self.secured
    }

    /// Whether the server has sent close_notify.
    pub(crate) fn closed_by_peer(&self) -> bool {
        self.closed_by_peer
    }

    /// Parameters negotiated by the handshake.
    pub(super) fn negotiated(&self) -> (Option<HandshakeKind>, Negotiated) {
        let negotiated = Negotiated {
            version: self.connection.protocol_version(),
            suite: self.connection.negotiated_cipher_suite(),
            alpn: self.connection.alpn_protocol().map(<[u8]>::to_vec),
        };
        (self.connection.handshake_kind(), negotiated)
    }

    /// Processes `bytes`; returns how many of them are consumed.
    fn advance(&mut self, bytes: &mut [u8], mut report: impl FnMut(TlsEvent<'_>)) -> Result<usize, Error> {
        let mut used = 0;
        loop {
            let UnbufferedStatus { mut discard, state } = self.connection.process_tls_records(&mut bytes[used..]);
            let waits = match state {
                Ok(ConnectionState::ReadTraffic(mut traffic)) => {
                    while let Some(record) = traffic.next_record() {
                        let record = record?;
                        discard += record.discard;
                        report(TlsEvent::Plain(record.payload));
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
                        report(TlsEvent::Secured);
                    }
                    true
                }
                Ok(ConnectionState::PeerClosed) => {
                    self.closed_by_peer = true;
                    if !self.secured {
                        return Err(Error::General("the server closed TLS in the middle of the handshake".into()));
                    }
                    report(TlsEvent::CloseNotify);
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

    /// Appends rustls' alert for the server to the output.
    fn take_alert(&mut self) {
        while self.connection.wants_write() {
            let status = self.connection.process_tls_records(&mut []);
            let Ok(ConnectionState::EncodeTlsData(mut data)) = status.state else { return };
            encode(&mut self.outgoing, |into| data.encode(into));
        }
    }
}

/// Appends the output of `encode`, which reports how much space it needs.
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
