//! The secret shared by both ends, and the keys derived from it.
//!
//! ```text
//!   token --> K = HMAC(token, "yamabiko gateway 1")
//!             |-- HMAC(K, "client" | opening | both nonces)    the client's proof
//!             |-- HMAC(K, "server" | opening | both nonces)    the server's proof
//!             '-- HMAC(K, "up" or "down" | opening | both nonces) = keys of the connection, one per direction
//!                   '-- frames, tickets, number of the session, marks of datagrams: each with a label
//! ```
//!
//! HMAC is HMAC-SHA256 (RFC 2104); tags are compared in constant time.

use std::fmt;

use ring::hmac;
use ring::rand::{SecureRandom, SystemRandom};

use super::handshake::{Nonce, Opening};

/// The secret shared by both ends. It is never sent and never printed.
#[derive(Clone)]
pub struct Secret {
    key: hmac::Key,
    is_some: bool,
}

impl Secret {
    /// The secret of a token: at least 16 unpredictable bytes. An attacker that poses as a server can guess offline.
    pub fn new(token: &[u8]) -> Self {
        let token = hmac::Key::new(hmac::HMAC_SHA256, token);
        Secret { key: hmac::Key::new(hmac::HMAC_SHA256, hmac::sign(&token, LABEL).as_ref()), is_some: true }
    }

    /// No secret, for two ends on one host.
    pub fn none() -> Self {
        Secret { is_some: false, ..Secret::new(b"") }
    }

    /// A random secret and its token of 32 printable characters.
    ///
    /// # Panics
    /// The system has no random numbers.
    pub fn fresh() -> (Self, String) {
        let token = random::<16>().iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        (Secret::new(token.as_bytes()), token)
    }

    /// False for [`Secret::none`].
    pub fn is_some(&self) -> bool {
        self.is_some
    }

    /// Proof of one end that it knows the secret.
    pub(super) fn proof(&self, end: End, opening: &Opening, nonces: &Nonces) -> Tag {
        tag(&self.key, &[end.label(), &opening.purpose(), &nonces.server, &nonces.client])
    }

    /// Keys of a connection after both proofs.
    pub(super) fn keys(&self, opening: &Opening, nonces: &Nonces) -> Keys {
        let key = |way: &[u8]| {
            let key = tag(&self.key, &[way, &opening.purpose(), &nonces.server, &nonces.client]);
            hmac::Key::new(hmac::HMAC_SHA256, &key)
        };
        let up = key(b"up");
        let session = truncate(&tag(&up, &[b"session"]));
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
/// A truncated tag, for short messages.
pub type ShortTag = [u8; 16];

/// An end of the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    Client,
    Server,
}

impl End {
    fn label(self) -> &'static [u8] {
        match self {
            End::Client => b"client",
            End::Server => b"server",
        }
    }
}

/// Nonces of both ends, which make a handshake unique.
#[derive(Clone, Copy, Debug)]
pub(super) struct Nonces {
    pub(super) server: Nonce,
    pub(super) client: Nonce,
}

/// Keys of one connection.
#[derive(Clone)]
pub struct Keys {
    pub(super) up: hmac::Key,
    pub(super) down: hmac::Key,
    session: ShortTag,
}

impl Keys {
    /// Number of the session, which is not secret.
    pub fn session(&self) -> ShortTag {
        self.session
    }

    /// Tag of the ticket for one connection of a trial.
    pub fn ticket(&self, trial: u32, index: u32) -> ShortTag {
        truncate(&tag(&self.up, &[b"ticket", &trial.to_le_bytes(), &index.to_le_bytes()]))
    }

    /// Tag of the introduction of a trial.
    pub fn introduction(&self, trial: u32) -> ShortTag {
        truncate(&tag(&self.up, &[b"datagram", &trial.to_le_bytes()]))
    }

    /// Mark of a trial's datagrams of one kind.
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

/// HMAC of the concatenated parts.
pub(super) fn tag(key: &hmac::Key, parts: &[&[u8]]) -> Tag {
    let mut context = hmac::Context::with_key(key);
    parts.iter().for_each(|part| context.update(part));
    context.sign().as_ref().try_into().expect("SHA-256 has 32 bytes")
}

fn truncate(tag: &Tag) -> ShortTag {
    *tag.first_chunk().expect("32 bytes")
}

/// Random bytes of the operating system.
pub(super) fn random<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    SystemRandom::new().fill(&mut bytes).expect("getrandom(2) does not fail after boot");
    bytes
}

const LABEL: &[u8] = b"yamabiko gateway 1";
