//! The secret that both ends have, and the keys that are made of it.
//!
//! ```text
//!   token --> K = HMAC(token, "yamabiko gateway 1")
//!             |-- HMAC(K, "client" | opening | both nonces)    the client's proof
//!             |-- HMAC(K, "server" | opening | both nonces)    the server's
//!             '-- HMAC(K, "up" or "down" | opening | both nonces) = the keys of this one connection, each way
//!                   '-- frames, tickets, the session's number, the marks of datagrams: each with a word of its own before it
//! ```
//!
//! HMAC is HMAC-SHA256 (RFC 2104); tags are compared in constant time.

use std::fmt;

use ring::hmac;
use ring::rand::{SecureRandom, SystemRandom};

use super::handshake::{Nonce, Opening};

/// What both ends know. It is never sent, and never printed.
#[derive(Clone)]
pub struct Secret {
    key: hmac::Key,
    is_some: bool,
}

impl Secret {
    /// Of a token: 16 bytes or more that nobody can guess. Someone who answers as a server can try guesses at home.
    pub fn new(token: &[u8]) -> Self {
        let token = hmac::Key::new(hmac::HMAC_SHA256, token);
        Secret { key: hmac::Key::new(hmac::HMAC_SHA256, hmac::sign(&token, LABEL).as_ref()), is_some: true }
    }

    /// No secret: for two ends on one host.
    pub fn none() -> Self {
        Secret { is_some: false, ..Secret::new(b"") }
    }

    /// A new one, and the token that it is made of: 32 visible characters.
    ///
    /// # Panics
    /// The system has no random numbers.
    pub fn fresh() -> (Self, String) {
        let token = random::<16>().iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        (Secret::new(token.as_bytes()), token)
    }

    /// Whether there is one.
    pub fn is_some(&self) -> bool {
        self.is_some
    }

    /// The proof of one end.
    pub(super) fn proof(&self, end: End, opening: &Opening, nonces: &Nonces) -> Tag {
        tag(&self.key, &[end.word(), &opening.about(), &nonces.server, &nonces.client])
    }

    /// The keys of a connection of which both ends have given proof.
    pub(super) fn keys(&self, opening: &Opening, nonces: &Nonces) -> Keys {
        let key = |way: &[u8]| {
            let key = tag(&self.key, &[way, &opening.about(), &nonces.server, &nonces.client]);
            hmac::Key::new(hmac::HMAC_SHA256, &key)
        };
        let up = key(b"up");
        let session = cut(&tag(&up, &[b"session"]));
        Keys { up, down: key(b"down"), session }
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_some { "Secret" } else { "no secret" })
    }
}

/// HMAC-SHA256.
pub type Tag = [u8; 32];
/// A tag where bytes are dear.
pub type ShortTag = [u8; 16];

/// Who gives a proof.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    Client,
    Server,
}

impl End {
    fn word(self) -> &'static [u8] {
        match self {
            End::Client => b"client",
            End::Server => b"server",
        }
    }
}

/// What makes a handshake the only one of its kind.
#[derive(Clone, Copy, Debug)]
pub(super) struct Nonces {
    pub(super) server: Nonce,
    pub(super) client: Nonce,
}

/// The keys of one connection.
#[derive(Clone)]
pub struct Keys {
    pub(super) up: hmac::Key,
    pub(super) down: hmac::Key,
    session: ShortTag,
}

impl Keys {
    /// The session's number: no secret.
    pub fn session(&self) -> ShortTag {
        self.session
    }

    /// What lets one connection of a trial in.
    pub fn ticket(&self, trial: u32, index: u32) -> ShortTag {
        cut(&tag(&self.up, &[b"ticket", &trial.to_le_bytes(), &index.to_le_bytes()]))
    }

    /// What a client's first datagram of a trial proves itself with.
    pub fn introduction(&self, trial: u32) -> ShortTag {
        cut(&tag(&self.up, &[b"datagram", &trial.to_le_bytes()]))
    }

    /// What a trial's datagrams of one kind begin with.
    pub fn mark(&self, kind: &'static str, trial: u32) -> u64 {
        let tag = tag(&self.up, &[b"mark", kind.as_bytes(), &trial.to_le_bytes()]);
        u64::from_le_bytes(tag[..8].try_into().expect("eight bytes"))
    }
}

impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Keys")
    }
}

/// Of the parts one after the other.
pub(super) fn tag(key: &hmac::Key, parts: &[&[u8]]) -> Tag {
    let mut context = hmac::Context::with_key(key);
    parts.iter().for_each(|part| context.update(part));
    context.sign().as_ref().try_into().expect("SHA-256 has 32 bytes")
}

fn cut(tag: &Tag) -> ShortTag {
    *tag.first_chunk().expect("32 bytes")
}

/// Bytes from the system's own source.
pub(super) fn random<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    SystemRandom::new().fill(&mut bytes).expect("getrandom(2) does not fail once the system has begun");
    bytes
}

const LABEL: &[u8] = b"yamabiko gateway 1";
