//! One connection's TLS.

use std::fmt;

use rustls::Error;
use rustls::server::UnbufferedServerConnection;
use rustls::unbuffered::{ConnectionState, EncodeError, EncryptError, UnbufferedStatus};

use super::Tls;

/// Why a session is over. What the client is to be told about it is in the output already.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TlsFailure {
    /// The client spoke plain HTTP, and was answered in kind.
    #[error("plain HTTP on a port for TLS")]
    PlainHttp,
    /// The handshake failed.
    #[error("TLS handshake: {0}")]
    Handshake(Error),
    /// The session broke after the handshake.
    #[error("TLS: {0}")]
    Broken(Error),
}

/// One connection's TLS, without I/O: ciphertext in and plaintext out, and the other way round.
///
/// After a failure of any call the session is over: what was put into `out` is for the client, then comes FIN.
/// An idle session keeps keys and a few counters; bytes only while a record has come in part.
pub(crate) struct Secure {
    connection: UnbufferedServerConnection,
    /// Records read and not whole; of a handshake also those whose message is not.
    incoming: Vec<u8>,
    stage: Stage,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Nothing came yet.
    New,
    /// Shaking hands.
    Handshake,
    /// Plaintext goes both ways.
    Open,
    /// The client said that it sends no more; plaintext still goes to it.
    PeerClosed,
    /// Nothing goes to the client any more: goodbye was said, or it failed.
    Over,
}

impl Secure {
    /// A session for a connection that was just accepted.
    ///
    /// # Errors
    /// None is known; rustls reserves them.
    pub(crate) fn new(tls: &Tls) -> Result<Self, TlsFailure> {
        let connection = UnbufferedServerConnection::new(tls.0.config.clone()).map_err(TlsFailure::Handshake)?;
        Ok(Secure { connection, incoming: Vec::new(), stage: Stage::New })
    }

    /// Takes in what the client sent. Appends what it says to `plaintext`, and what TLS has to say to the client
    /// (records of the handshake, alerts) to `out`.
    ///
    /// What is appended to `plaintext` is never more than what came in.
    ///
    /// # Errors
    /// The session is over. Plaintext that was opened before the failure is in `plaintext` and is genuine.
    pub(crate) fn received(
        &mut self,
        ciphertext: &[u8],
        plaintext: &mut Vec<u8>,
        out: &mut Vec<u8>,
    ) -> Result<(), TlsFailure> {
        match self.stage {
            // RFC 8446, section 6.1: data after the closure alert is ignored.
            Stage::PeerClosed | Stage::Over => return Ok(()),
            Stage::New => {
                let Some(&first) = ciphertext.first() else { return Ok(()) };
                // A record of TLS begins with its type, which is no letter.
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

    /// Appends `plaintext` to `out` in records. Only after plaintext has come from the client: before, there is nothing
    /// to answer and no key to answer with.
    ///
    /// # Errors
    /// The session is over, or was, or its keys are used up.
    pub(crate) fn encrypt(&mut self, plaintext: &[u8], out: &mut Vec<u8>) -> Result<(), TlsFailure> {
        if plaintext.is_empty() {
            return Ok(());
        }
        self.write(out, sealed_max(plaintext.len()), |traffic, room| traffic.encrypt(plaintext, room))
    }

    /// Appends the goodbye that tells a whole end from one that was cut off (close_notify); to be sent before FIN.
    /// Nothing where no session came about, or it is over.
    pub(crate) fn close(&mut self, out: &mut Vec<u8>) {
        if matches!(self.stage, Stage::Open | Stage::PeerClosed) {
            // What cannot be said any more is not waited for: FIN alone follows.
            let _ = self.write(out, RECORD_OVERHEAD + 2, |traffic, room| traffic.queue_close_notify(room));
        }
        self.stage = Stage::Over;
    }

    /// Whether the client said that it sends no more (close_notify). To the connection above this is what FIN is without
    /// TLS; a FIN without it means that somebody cut the client's words short.
    pub(crate) fn peer_closed(&self) -> bool {
        self.stage == Stage::PeerClosed
    }

    /// Whether the handshake is finished: plaintext may come and go.
    pub(crate) fn established(&self) -> bool {
        matches!(self.stage, Stage::Open | Stage::PeerClosed)
    }

    /// Works through `bytes`; how many of them are done with.
    fn advance(&mut self, bytes: &mut [u8], plaintext: &mut Vec<u8>, out: &mut Vec<u8>) -> Result<usize, Error> {
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
                    // What follows is not for us.
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

    /// Appends what `seal` writes, for which it is given `room` bytes.
    fn write(
        &mut self,
        out: &mut Vec<u8>,
        room: usize,
        mut seal: impl FnMut(&mut WriteTraffic<'_>, &mut [u8]) -> Result<usize, EncryptError>,
    ) -> Result<(), TlsFailure> {
        if !self.established() {
            return Err(TlsFailure::Broken(Error::General("this session cannot send".into())));
        }
        // rustls knows places in what was kept, so it must see it again. It holds no whole record.
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

    /// The session is over: appends what rustls wants to tell the client about it.
    fn fail(&mut self, error: Error, out: &mut Vec<u8>) -> TlsFailure {
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

/// The most that so much plaintext becomes as records.
pub(crate) fn sealed_max(plaintext: usize) -> usize {
    plaintext + plaintext.div_ceil(RECORD_BYTES) * RECORD_OVERHEAD
}

/// Appends what `encode` writes, for which it says how much room it needs.
fn encode(out: &mut Vec<u8>, mut encode: impl FnMut(&mut [u8]) -> Result<usize, EncodeError>) {
    let at = out.len();
    if let Err(EncodeError::InsufficientSize(needed)) = encode(&mut []) {
        out.resize(at + needed.required_size, 0);
        let length = encode(&mut out[at..]).unwrap_or(0);
        out.truncate(at + length);
    }
}

/// Appends what `seal` writes into `room` bytes, or as many as it asks for.
fn append(
    out: &mut Vec<u8>,
    mut room: usize,
    mut seal: impl FnMut(&mut [u8]) -> Result<usize, EncryptError>,
) -> Result<(), Error> {
    let at = out.len();
    loop {
        out.resize(at + room, 0);
        match seal(&mut out[at..]) {
            Ok(length) => {
                out.truncate(at + length);
                return Ok(());
            }
            Err(EncryptError::InsufficientSize(needed)) => room = needed.required_size,
            Err(EncryptError::EncryptExhausted) => {
                out.truncate(at);
                return Err(Error::EncryptError);
            }
        }
    }
}

/// The answer to a request in plain HTTP; nginx gives one too, and it has spared many an hour.
const PLAIN_HTTP: &[u8] = b"HTTP/1.1 400 Bad Request\r\nServer: yamabiko\r\nContent-Type: text/plain; charset=utf-8\r\n\
    Content-Length: 68\r\nConnection: close\r\n\r\n400 Bad Request: this port speaks HTTPS; ask with https:// instead.\n";

/// What a handshake may keep waiting: one record in full. The longest honest hello, with post-quantum shares and a
/// ticket, is below 4 KiB; and who sends so much for nothing shall not fill the memory with it.
const HANDSHAKE_BYTES_MAX: usize = 5 + RECORD_BYTES;
/// What a record carries at most.
const RECORD_BYTES: usize = 16 << 10;
/// What the suites of rustls add to a record at most: header (5), type (1) or explicit nonce (8), tag (16).
const RECORD_OVERHEAD: usize = 5 + 8 + 16;
