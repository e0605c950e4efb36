//! The TLS session of one connection.

use std::fmt;

use rustls::Error;
use rustls::server::UnbufferedServerConnection;
use rustls::unbuffered::{ConnectionState, EncodeError, EncryptError, UnbufferedStatus};

use super::{Records, Tls};

/// Why a session ended. The alert for the client is in the output already.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TlsFailure {
    /// The client sent plain HTTP and got a plain response.
    #[error("plain HTTP on a port for TLS")]
    PlainHttp,
    /// The handshake failed.
    #[error("TLS handshake: {0}")]
    Handshake(Error),
    /// The session broke after the handshake.
    #[error("TLS: {0}")]
    Broken(Error),
}

/// The TLS session of one connection, without I/O: ciphertext in and plaintext out, and vice versa.
///
/// After a failed call the session is over: the contents of `out` are sent to the client, followed by FIN. An idle
/// session stores keys and counters, and bytes only of an incomplete record.
pub(crate) struct Secure {
    connection: UnbufferedServerConnection,
    /// Incomplete records, and records of incomplete handshake messages.
    incoming: Vec<u8>,
    stage: Stage,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// No input yet.
    New,
    /// In the handshake.
    Handshake,
    /// Established.
    Open,
    /// The client sent close_notify; output is still possible.
    PeerClosed,
    /// No more output: close_notify was sent, or the session failed.
    Over,
}

impl Secure {
    /// A session for a newly accepted connection.
    ///
    /// # Errors
    /// None is known; rustls reserves them.
    pub(crate) fn new(tls: &Tls) -> Result<Self, TlsFailure> {
        let connection = UnbufferedServerConnection::new(tls.0.with_http2.clone()).map_err(TlsFailure::Handshake)?;
        Ok(Secure { connection, incoming: Vec::new(), stage: Stage::New })
    }

    /// Processes received bytes. Appends decrypted data to `plaintext`, and TLS records for the client (handshake,
    /// alerts) to `out`.
    ///
    /// The plaintext is never longer than the input.
    ///
    /// # Errors
    /// The session is over. Plaintext decrypted before the failure is in `plaintext` and authentic.
    pub(crate) fn received(
        &mut self,
        ciphertext: &[u8],
        plaintext: &mut Vec<u8>,
        out: &mut Records,
    ) -> Result<(), TlsFailure> {
        match self.stage {
            // RFC 8446, section 6.1: data after the closure alert is ignored.
            Stage::PeerClosed | Stage::Over => return Ok(()),
            Stage::New => {
                let Some(&first) = ciphertext.first() else { return Ok(()) };
                // A TLS record begins with its type, which is no letter.
                if first.is_ascii_uppercase() {
                    self.stage = Stage::Over;
                    out.extend_from_slice(PLAIN_HTTP);
                    return Err(TlsFailure::PlainHttp);
                }
                self.stage = Stage::Handshake;
            }
            Stage::Handshake | Stage::Open => {}
        }
        let mut bytes = std::mem::take(&mut self.incoming);
        bytes.extend_from_slice(ciphertext);
        match self.advance(&mut bytes, plaintext, out) {
            Ok(used) if used == bytes.len() => Ok(()),
            Ok(used) => {
                bytes.drain(..used);
                if self.stage == Stage::Handshake && bytes.len() > HANDSHAKE_BYTES_MAX {
                    return Err(
                        self.fail(Error::General("a handshake record of this length is not expected".into()), out)
                    );
                }
                bytes.shrink_to_fit();
                self.incoming = bytes;
                Ok(())
            }
            Err(error) => Err(self.fail(error, out)),
        }
    }

    /// Encrypts `plaintext` into `out`. Only after plaintext from the client: before, there is no key.
    ///
    /// # Errors
    /// The session is over, or its keys are used up.
    pub(crate) fn encrypt(&mut self, plaintext: &[u8], out: &mut Records) -> Result<(), TlsFailure> {
        if plaintext.is_empty() {
            return Ok(());
        }
        self.write(out, sealed_max(plaintext.len()), |traffic, room| traffic.encrypt(plaintext, room))
    }

    /// Appends close_notify, which distinguishes a complete end from a truncation; send it before FIN. Does nothing
    /// without an established session.
    pub(crate) fn close(&mut self, out: &mut Records) {
        if matches!(self.stage, Stage::Open | Stage::PeerClosed) {
            // An alert that cannot be written is dropped: only FIN follows.
            let _ = self.write(out, RECORD_OVERHEAD + 2, |traffic, room| traffic.queue_close_notify(room));
        }
        self.stage = Stage::Over;
    }

    /// Whether the client sent close_notify, the counterpart of FIN without TLS; a FIN without it means that the input
    /// was truncated.
    pub(crate) fn peer_closed(&self) -> bool {
        self.stage == Stage::PeerClosed
    }

    /// Whether the handshake is complete.
    pub(crate) fn established(&self) -> bool {
        matches!(self.stage, Stage::Open | Stage::PeerClosed)
    }

    /// Whether the handshake is complete and its ALPN chose HTTP/2.
    pub(crate) fn speaks_http2(&self) -> bool {
        self.established() && self.connection.alpn_protocol() == Some(b"h2")
    }

    /// Processes `bytes`; returns the number of bytes used.
    fn advance(&mut self, bytes: &mut [u8], plaintext: &mut Vec<u8>, out: &mut Records) -> Result<usize, Error> {
        let mut used = 0;
        loop {
            let UnbufferedStatus { mut discard, state } = self.connection.process_tls_records(&mut bytes[used..]);
            let mut waits = false;
            match state? {
                ConnectionState::ReadTraffic(mut traffic) => {
                    while let Some(record) = traffic.next_record() {
                        let record = record?;
                        discard += record.discard;
                        plaintext.extend_from_slice(record.payload);
                    }
                }
                ConnectionState::EncodeTlsData(mut data) => encode(out, |room| data.encode(room)),
                ConnectionState::TransmitTlsData(data) => data.done(),
                ConnectionState::WriteTraffic(_) => {
                    if self.stage == Stage::Handshake && !self.connection.is_handshaking() {
                        self.stage = Stage::Open;
                    }
                    waits = true;
                }
                ConnectionState::PeerClosed => {
                    if self.connection.is_handshaking() {
                        return Err(Error::General("the client closed TLS during the handshake".into()));
                    }
                    self.stage = Stage::PeerClosed;
                    // The following bytes are ignored.
                    return Ok(bytes.len());
                }
                _ => waits = true,
            }
            used += discard;
            if waits {
                return Ok(used);
            }
        }
    }

    /// Appends the output of `seal`, which gets `room` bytes of space.
    fn write(
        &mut self,
        out: &mut Records,
        room: usize,
        mut seal: impl FnMut(&mut WriteTraffic<'_>, &mut [u8]) -> Result<usize, EncryptError>,
    ) -> Result<(), TlsFailure> {
        if !self.established() {
            return Err(TlsFailure::Broken(Error::General("this session cannot send".into())));
        }
        // rustls remembers positions in the incomplete input, so it must get it again. It contains no complete record.
        let mut incoming = std::mem::take(&mut self.incoming);
        let mut used = 0;
        let outcome = loop {
            let UnbufferedStatus { discard, state } = self.connection.process_tls_records(&mut incoming[used..]);
            used += discard;
            match state {
                Ok(ConnectionState::WriteTraffic(mut traffic)) => {
                    break append(out, room, |room| seal(&mut traffic, room));
                }
                Ok(ConnectionState::EncodeTlsData(mut data)) => encode(out, |room| data.encode(room)),
                Ok(ConnectionState::TransmitTlsData(data)) => data.done(),
                Ok(_) => break Err(Error::General("this session cannot send".into())),
                Err(error) => break Err(error),
            }
        };
        incoming.drain(..used);
        self.incoming = incoming;
        outcome.map_err(|error| {
            self.stage = Stage::Over;
            TlsFailure::Broken(error)
        })
    }

    /// Ends the session: appends rustls' alert for the client.
    fn fail(&mut self, error: Error, out: &mut Records) -> TlsFailure {
        while self.connection.wants_write() {
            let status = self.connection.process_tls_records(&mut []);
            let Ok(ConnectionState::EncodeTlsData(mut data)) = status.state else { break };
            encode(out, |room| data.encode(room));
        }
        match std::mem::replace(&mut self.stage, Stage::Over) {
            Stage::Open | Stage::PeerClosed => TlsFailure::Broken(error),
            _ => TlsFailure::Handshake(error),
        }
    }
}

type WriteTraffic<'c> = rustls::unbuffered::WriteTraffic<'c, rustls::server::ServerConnectionData>;

impl fmt::Debug for Secure {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Secure").field("stage", &self.stage).finish_non_exhaustive()
    }
}

/// Maximum length of the records of that much plaintext.
pub(crate) fn sealed_max(plaintext: usize) -> usize {
    plaintext + plaintext.div_ceil(RECORD_BYTES) * RECORD_OVERHEAD
}

/// Appends the output of `encode`, which reports the space it needs.
fn encode(out: &mut Records, mut encode: impl FnMut(&mut [u8]) -> Result<usize, EncodeError>) {
    if let Err(EncodeError::InsufficientSize(needed)) = encode(&mut []) {
        // The reported space suffices.
        let _ = out.append_with(needed.required_size, encode);
    }
}

/// Appends the output of `seal` into `room` bytes, or as many as it requests.
fn append(
    out: &mut Records,
    mut room: usize,
    mut seal: impl FnMut(&mut [u8]) -> Result<usize, EncryptError>,
) -> Result<(), Error> {
    loop {
        match out.append_with(room, &mut seal) {
            Ok(()) => return Ok(()),
            Err(EncryptError::InsufficientSize(needed)) => room = needed.required_size,
            Err(EncryptError::EncryptExhausted) => return Err(Error::EncryptError),
        }
    }
}

/// The response to a plain HTTP request, as nginx gives one too.
const PLAIN_HTTP: &[u8] = b"HTTP/1.1 400 Bad Request\r\nServer: yamabiko\r\nContent-Type: text/plain; charset=utf-8\r\n\
    Content-Length: 68\r\nConnection: close\r\n\r\n400 Bad Request: this port speaks HTTPS; ask with https:// instead.\n";

/// Maximum bytes of an incomplete handshake: one full record. The longest real ClientHello, with post-quantum shares
/// and a ticket, is below 4 KiB, and a flood must not fill the memory.
const HANDSHAKE_BYTES_MAX: usize = 5 + RECORD_BYTES;
/// Maximum plaintext of a record.
const RECORD_BYTES: usize = 16 << 10;
/// Maximum overhead of a record with the cipher suites of rustls: header (5), type (1) or explicit nonce (8), tag (16).
const RECORD_OVERHEAD: usize = 5 + 8 + 16;
