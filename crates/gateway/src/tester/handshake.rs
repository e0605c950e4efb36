//! How the two ends find out that the other has the secret, before either says anything else.
//!
//! ```text
//!   client > server   opening: "YBKGATE1" kind:u8 [a stream: session:16 trial:u32 index:u32]
//!   server > client   nonce:32
//!   client > server   nonce:32  proof:32
//!   server > client   proof:32
//!
//!   client > server   "YBKTICK1" trial:u32 index:u32 ticket:16          one of thousands of connections: no handshake
//!   server > client   one byte
//! ```
//!
//! Numbers are little endian. The server hears bytes and answers by [`Answering`], which owns nothing: whoever does not
//! open with the magic is sent nothing, whoever has not the secret 32 bytes of chance, a recorded handshake is worth
//! nothing (the server's nonce is another), and a server that does not know the secret cannot give the last proof.

use std::fmt;

use subtle::ConstantTimeEq;

use super::secret::{End, Keys, Nonces, Secret, ShortTag, Tag, random};

/// Chance of one end.
pub type Nonce = [u8; 32];

/// What the client wants of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Opening {
    /// A session.
    Control,
    /// To be one of a trial's streams.
    Stream {
        /// The session's number.
        session: ShortTag,
        /// The trial's.
        trial: u32,
        /// Its own among the trial's.
        index: u32,
    },
}

impl Opening {
    /// The first bytes of the connection.
    pub fn write(&self) -> Vec<u8> {
        [&MAGIC[..], &self.about()].concat()
    }

    /// What follows the magic, and is part of every proof.
    pub(super) fn about(&self) -> Vec<u8> {
        match self {
            Opening::Control => vec![CONTROL],
            Opening::Stream { session, trial, index } => {
                [&[STREAM][..], session, &trial.to_le_bytes(), &index.to_le_bytes()].concat()
            }
        }
    }
}

/// What lets a short connection of a trial in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticket {
    /// The trial's number.
    pub trial: u32,
    /// Its own among the trial's connections: each once.
    pub index: u32,
    /// Proof.
    pub tag: ShortTag,
}

impl Ticket {
    /// Its length.
    pub const BYTES: usize = 32;

    /// All that its bearer sends.
    pub fn write(&self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[..8].copy_from_slice(&TICKET_MAGIC);
        bytes[8..12].copy_from_slice(&self.trial.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.index.to_le_bytes());
        bytes[16..].copy_from_slice(&self.tag);
        bytes
    }
}

/// What a server is to do next with a connection that it knows nothing of.
pub enum HandshakeStep {
    /// Read on.
    Wait,
    /// Send this: the opening is whole.
    Challenge(Nonce),
    /// The client has the secret. To be sent this, which gives the server's own proof, before anything else.
    Proven {
        /// What it wants.
        opening: Opening,
        /// The connection's keys.
        keys: Box<Keys>,
        /// The proof.
        proof: Tag,
    },
    /// A ticket, not looked at yet.
    Ticket(Ticket),
    /// Close it, and send nothing.
    Refuse(Wrong),
}

/// Why a connection is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wrong {
    /// It does not begin as it should, or goes on where it should wait.
    NotOurs,
    /// Its proof is none.
    Secret,
}

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Wrong::NotOurs => "what it says is not our protocol",
            Wrong::Secret => "wrong secret",
        })
    }
}

/// The server's side of one handshake: bytes in, what to do out.
pub struct Answering {
    secret: Secret,
    nonce: Nonce,
    opening: Option<Opening>,
    held: [u8; LONGEST],
    length: usize,
}

impl Answering {
    /// With a nonce of its own.
    pub fn new(secret: &Secret) -> Self {
        Answering::with_nonce(secret, random())
    }

    /// With a nonce that is told: for tests.
    pub fn with_nonce(secret: &Secret, nonce: Nonce) -> Self {
        Answering { secret: secret.clone(), nonce, opening: None, held: [0; LONGEST], length: 0 }
    }

    /// Whether the opening has come, so that a nonce was sent.
    pub fn is_open(&self) -> bool {
        self.opening.is_some()
    }

    /// How many bytes may be read for the next [`Answering::take`]: what the client may send before it must wait for us.
    pub fn wants(&self) -> usize {
        if self.is_open() { PROOF - self.length } else { OPENING_MAX - self.length }
    }

    /// Takes bytes, [`Answering::wants`] of them at most; more are a breach of the protocol.
    pub fn take(&mut self, bytes: &[u8]) -> HandshakeStep {
        if bytes.len() > self.wants() {
            return HandshakeStep::Refuse(Wrong::NotOurs);
        }
        self.held[self.length..self.length + bytes.len()].copy_from_slice(bytes);
        self.length += bytes.len();
        match self.opening {
            None => self.open(),
            Some(opening) if self.length == PROOF => self.judge(opening),
            Some(_) => HandshakeStep::Wait,
        }
    }

    fn open(&mut self) -> HandshakeStep {
        let held = &self.held[..self.length];
        if held.len() < 8 {
            let begins = MAGIC.starts_with(held) || TICKET_MAGIC.starts_with(held);
            return if begins { HandshakeStep::Wait } else { HandshakeStep::Refuse(Wrong::NotOurs) };
        }
        let (magic, about) = held.split_at(8);
        let length = match about.first() {
            _ if magic == TICKET_MAGIC => Ticket::BYTES - 8,
            _ if magic != MAGIC => return HandshakeStep::Refuse(Wrong::NotOurs),
            None => return HandshakeStep::Wait,
            Some(&CONTROL) => 1,
            Some(&STREAM) => OPENING_MAX - 8,
            Some(_) => return HandshakeStep::Refuse(Wrong::NotOurs),
        };
        match about.len() {
            got if got < length => return HandshakeStep::Wait,
            got if got > length => return HandshakeStep::Refuse(Wrong::NotOurs),
            _ => {}
        }
        if magic == TICKET_MAGIC {
            return HandshakeStep::Ticket(Ticket {
                trial: number(about, 0),
                index: number(about, 4),
                tag: array(about, 8),
            });
        }
        self.opening = Some(if about[0] == CONTROL {
            Opening::Control
        } else {
            Opening::Stream { session: array(about, 1), trial: number(about, 17), index: number(about, 21) }
        });
        self.length = 0;
        HandshakeStep::Challenge(self.nonce)
    }

    fn judge(&self, opening: Opening) -> HandshakeStep {
        let nonces = Nonces { server: self.nonce, client: array(&self.held, 0) };
        let expected = self.secret.proof(End::Client, &opening, &nonces);
        if !bool::from(expected.ct_eq(&self.held[32..PROOF])) {
            return HandshakeStep::Refuse(Wrong::Secret);
        }
        let keys = Box::new(self.secret.keys(&opening, &nonces));
        HandshakeStep::Proven { opening, keys, proof: self.secret.proof(End::Server, &opening, &nonces) }
    }
}

/// The client's side, once the server's nonce is there.
pub struct Proof {
    expected: Tag,
    keys: Keys,
    bytes: [u8; PROOF],
}

impl Proof {
    /// Of knowing the secret, for a connection that was opened so.
    pub fn new(secret: &Secret, opening: &Opening, server: Nonce) -> Self {
        Proof::with_nonce(secret, opening, server, random())
    }

    /// With a nonce of this end that is told: for tests.
    pub fn with_nonce(secret: &Secret, opening: &Opening, server: Nonce, client: Nonce) -> Self {
        let nonces = Nonces { server, client };
        let mut bytes = [0; PROOF];
        bytes[..32].copy_from_slice(&nonces.client);
        bytes[32..].copy_from_slice(&secret.proof(End::Client, opening, &nonces));
        Proof { expected: secret.proof(End::Server, opening, &nonces), keys: secret.keys(opening, &nonces), bytes }
    }

    /// What is sent.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The connection's keys, if the server's answer proves that it has the secret too.
    pub fn accept(self, answer: &Tag) -> Option<Keys> {
        bool::from(self.expected.ct_eq(answer)).then_some(self.keys)
    }
}

fn number(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(array(bytes, at))
}

/// The caller has seen that they are there.
fn array<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    bytes[at..at + N].try_into().expect("so many bytes")
}

/// What every connection of ours begins with; its last letter is the protocol's.
pub const MAGIC: [u8; 8] = *b"YBKGATE1";
/// What one with a ticket begins with.
pub const TICKET_MAGIC: [u8; 8] = *b"YBKTICK1";
const CONTROL: u8 = 0;
const STREAM: u8 = 1;
/// A stream's opening; tickets are shorter.
const OPENING_MAX: usize = 8 + 1 + 16 + 4 + 4;
/// A nonce and a tag.
const PROOF: usize = 64;
const LONGEST: usize = if PROOF > OPENING_MAX { PROOF } else { OPENING_MAX };

#[cfg(test)]
mod tests;
