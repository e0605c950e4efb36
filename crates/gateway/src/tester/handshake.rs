//! The handshake in which both ends prove to each other that they know the secret.
//!
//! ```text
//!   client > server   opening: "YBKGATE1" kind:u8 [a stream: session:16 trial:u32 index:u32]
//!   server > client   nonce:32
//!   client > server   nonce:32  proof:32
//!   server > client   proof:32
//!
//!   client > server   "YBKTICK1" trial:u32 index:u32 ticket:16   instead of a handshake, in trials of connections
//!   server > client   one byte
//! ```
//!
//! Numbers are little endian. [`ServerHandshake`] is the server's side without I/O. A client that does not begin with
//! the magic receives nothing, and a client without the secret 32 random bytes. A recorded handshake cannot be
//! replayed, since the server's nonce differs. A server without the secret cannot send the last proof.

use std::fmt;

use subtle::ConstantTimeEq;

use super::secret::{End, Keys, Nonces, Secret, ShortTag, Tag, random};

/// Random bytes chosen by one end.
pub type Nonce = [u8; 32];

/// Purpose of a connection, sent by the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Opening {
    /// The control connection of a session.
    Control,
    /// A stream of a trial.
    Stream {
        /// Number of the session.
        session: ShortTag,
        /// Number of the trial.
        trial: u32,
        /// Index among the streams of the trial.
        index: u32,
    },
}

impl Opening {
    /// The first bytes of the connection.
    pub fn write(&self) -> Vec<u8> {
        [&MAGIC[..], &self.purpose()].concat()
    }

    /// The bytes after the magic, which every proof covers.
    pub(super) fn purpose(&self) -> Vec<u8> {
        match self {
            Opening::Control => vec![CONTROL],
            Opening::Stream { session, trial, index } => {
                [&[STREAM][..], session, &trial.to_le_bytes(), &index.to_le_bytes()].concat()
            }
        }
    }
}

/// Authentication of a short connection of a trial.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticket {
    /// Number of the trial.
    pub trial: u32,
    /// Index among the connections of the trial; each is valid once.
    pub index: u32,
    /// Proof of the secret.
    pub tag: ShortTag,
}

impl Ticket {
    /// Length of a ticket.
    pub const BYTES: usize = 32;

    /// The only bytes that the client sends on the connection.
    pub fn write(&self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[..8].copy_from_slice(&TICKET_MAGIC);
        bytes[8..12].copy_from_slice(&self.trial.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.index.to_le_bytes());
        bytes[16..].copy_from_slice(&self.tag);
        bytes
    }
}

/// What the server does next with an unauthenticated connection.
pub enum HandshakeStep {
    /// Wait for more bytes.
    Wait,
    /// The opening is complete: send this nonce.
    Challenge(Nonce),
    /// The client has proved that it knows the secret. Send the server's proof before any other data.
    Proven {
        /// Purpose of the connection.
        opening: Opening,
        /// Keys of the connection.
        keys: Box<Keys>,
        /// The server's proof.
        proof: Tag,
    },
    /// A ticket, not verified yet.
    Ticket(Ticket),
    /// Close the connection without sending anything.
    Refuse(RejectReason),
}

/// Why a connection is rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RejectReason {
    /// The bytes violate the protocol, or arrived before the server's nonce was sent.
    InvalidProtocol,
    /// The proof is invalid.
    WrongSecret,
}

impl fmt::Display for RejectReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            RejectReason::InvalidProtocol => "not the protocol of the gateway tester",
            RejectReason::WrongSecret => "wrong secret",
        })
    }
}

/// The server's side of one handshake: consumes received bytes and returns the next step.
pub struct ServerHandshake {
    secret: Secret,
    nonce: Nonce,
    opening: Option<Opening>,
    received: [u8; RECEIVED_MAX],
    length: usize,
}

impl ServerHandshake {
    /// A handshake with a random nonce.
    pub fn new(secret: &Secret) -> Self {
        ServerHandshake::with_nonce(secret, random())
    }

    /// A handshake with this nonce, for tests.
    pub fn with_nonce(secret: &Secret, nonce: Nonce) -> Self {
        ServerHandshake { secret: secret.clone(), nonce, opening: None, received: [0; RECEIVED_MAX], length: 0 }
    }

    /// Whether the opening has been received, so that the nonce is sent.
    pub fn is_open(&self) -> bool {
        self.opening.is_some()
    }

    /// Limit of bytes for the next call of [`ServerHandshake::receive`]: those that the client may send before it must
    /// wait.
    pub fn bytes_wanted(&self) -> usize {
        if self.is_open() { PROOF_BYTES - self.length } else { OPENING_MAX - self.length }
    }

    /// Consumes received bytes. More than [`ServerHandshake::bytes_wanted`] violate the protocol.
    pub fn receive(&mut self, bytes: &[u8]) -> HandshakeStep {
        if bytes.len() > self.bytes_wanted() {
            return HandshakeStep::Refuse(RejectReason::InvalidProtocol);
        }
        self.received[self.length..self.length + bytes.len()].copy_from_slice(bytes);
        self.length += bytes.len();
        match self.opening {
            None => self.read_opening(),
            Some(opening) if self.length == PROOF_BYTES => self.verify(opening),
            Some(_) => HandshakeStep::Wait,
        }
    }

    fn read_opening(&mut self) -> HandshakeStep {
        let received = &self.received[..self.length];
        if received.len() < 8 {
            let is_prefix = MAGIC.starts_with(received) || TICKET_MAGIC.starts_with(received);
            return if is_prefix { HandshakeStep::Wait } else { HandshakeStep::Refuse(RejectReason::InvalidProtocol) };
        }
        let (magic, purpose) = received.split_at(8);
        let length = match purpose.first() {
            _ if magic == TICKET_MAGIC => Ticket::BYTES - 8,
            _ if magic != MAGIC => return HandshakeStep::Refuse(RejectReason::InvalidProtocol),
            None => return HandshakeStep::Wait,
            Some(&CONTROL) => 1,
            Some(&STREAM) => OPENING_MAX - 8,
            Some(_) => return HandshakeStep::Refuse(RejectReason::InvalidProtocol),
        };
        match purpose.len() {
            len if len < length => return HandshakeStep::Wait,
            len if len > length => return HandshakeStep::Refuse(RejectReason::InvalidProtocol),
            _ => {}
        }
        if magic == TICKET_MAGIC {
            return HandshakeStep::Ticket(Ticket {
                trial: number(purpose, 0),
                index: number(purpose, 4),
                tag: array(purpose, 8),
            });
        }
        self.opening = Some(if purpose[0] == CONTROL {
            Opening::Control
        } else {
            Opening::Stream { session: array(purpose, 1), trial: number(purpose, 17), index: number(purpose, 21) }
        });
        self.length = 0;
        HandshakeStep::Challenge(self.nonce)
    }

    fn verify(&self, opening: Opening) -> HandshakeStep {
        let nonces = Nonces { server: self.nonce, client: array(&self.received, 0) };
        let expected = self.secret.proof(End::Client, &opening, &nonces);
        if !bool::from(expected.ct_eq(&self.received[32..PROOF_BYTES])) {
            return HandshakeStep::Refuse(RejectReason::WrongSecret);
        }
        let keys = Box::new(self.secret.keys(&opening, &nonces));
        HandshakeStep::Proven { opening, keys, proof: self.secret.proof(End::Server, &opening, &nonces) }
    }
}

/// The client's side of the handshake after the server's nonce.
pub struct Proof {
    expected: Tag,
    keys: Keys,
    bytes: [u8; PROOF_BYTES],
}

impl Proof {
    /// The proof for a connection with this opening, with a random client nonce.
    pub fn new(secret: &Secret, opening: &Opening, server: Nonce) -> Self {
        Proof::with_nonce(secret, opening, server, random())
    }

    /// The proof with this client nonce, for tests.
    pub fn with_nonce(secret: &Secret, opening: &Opening, server: Nonce, client: Nonce) -> Self {
        let nonces = Nonces { server, client };
        let mut bytes = [0; PROOF_BYTES];
        bytes[..32].copy_from_slice(&nonces.client);
        bytes[32..].copy_from_slice(&secret.proof(End::Client, opening, &nonces));
        Proof { expected: secret.proof(End::Server, opening, &nonces), keys: secret.keys(opening, &nonces), bytes }
    }

    /// The bytes to send: client nonce and proof.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The keys of the connection, if the server's proof is valid.
    pub fn accept(self, answer: &Tag) -> Option<Keys> {
        bool::from(self.expected.ct_eq(answer)).then_some(self.keys)
    }
}

fn number(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(array(bytes, at))
}

/// The `N` bytes at `at`. The caller has checked the length.
fn array<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    bytes[at..at + N].try_into().expect("a slice of N bytes")
}

/// First bytes of every connection; the last digit is the version of the handshake.
pub const MAGIC: [u8; 8] = *b"YBKGATE1";
/// First bytes of a connection with a ticket.
pub const TICKET_MAGIC: [u8; 8] = *b"YBKTICK1";
const CONTROL: u8 = 0;
const STREAM: u8 = 1;
/// Length of the opening of a stream, the longest one; tickets are shorter.
const OPENING_MAX: usize = 8 + 1 + 16 + 4 + 4;
/// Length of the client's nonce and proof.
const PROOF_BYTES: usize = 64;
const RECEIVED_MAX: usize = if PROOF_BYTES > OPENING_MAX { PROOF_BYTES } else { OPENING_MAX };

#[cfg(test)]
mod tests;
