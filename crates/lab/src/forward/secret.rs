//! The secret that both ends have, and the keys that are made of it.

use std::fmt;

use ring::hmac;
use ring::rand::{SecureRandom, SystemRandom};

/// What both ends know. It is never sent, and never printed.
#[derive(Clone)]
pub struct Secret {
    key: hmac::Key,
    is_some: bool,
}

impl Secret {
    /// Of a token: 16 bytes or more that nobody can guess. Someone who answers as a server can try guesses at home.
    pub fn new(token: &[u8]) -> Self {
        Secret { key: hmac::Key::new(hmac::HMAC_SHA256, &mac(token, LABEL)), is_some: true }
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
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_some { "Secret" } else { "no secret" })
    }
}

fn mac(key: &[u8], text: &[u8]) -> [u8; 32] {
    let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), text);
    tag.as_ref().try_into().expect("SHA-256 has 32 bytes")
}

/// Bytes from the system's own source.
pub(super) fn random<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    SystemRandom::new().fill(&mut bytes).expect("getrandom(2) does not fail once the system has begun");
    bytes
}

const LABEL: &[u8] = b"yamabiko gateway 1";
