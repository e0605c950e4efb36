//! Keys of TLS 1.3 and QUIC, derived from secrets (RFC 8446 section 7.3, RFC 9001 section 5).

use ring::aead::quic::{AES_128 as MASK_AES_128, AES_256 as MASK_AES_256, CHACHA20 as MASK_CHACHA20};
use ring::aead::quic::{Algorithm as MaskAlgorithm, HeaderProtectionKey};
use ring::aead::{self, Aad, LessSafeKey, Nonce, UnboundKey};
use ring::hkdf;

/// A cipher suite that can be decrypted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Suite {
    Aes128,
    Aes256,
    ChaCha20,
}

impl Suite {
    /// The suite of TLS 1.3 with this number.
    pub(crate) fn of_tls13(number: u16) -> Option<Suite> {
        match number {
            0x1301 => Some(Suite::Aes128),
            0x1302 => Some(Suite::Aes256),
            0x1303 => Some(Suite::ChaCha20),
            _ => None,
        }
    }

    fn hash(self) -> hkdf::Algorithm {
        if self == Suite::Aes256 { hkdf::HKDF_SHA384 } else { hkdf::HKDF_SHA256 }
    }

    pub(crate) fn aead(self) -> &'static aead::Algorithm {
        match self {
            Suite::Aes128 => &aead::AES_128_GCM,
            Suite::Aes256 => &aead::AES_256_GCM,
            Suite::ChaCha20 => &aead::CHACHA20_POLY1305,
        }
    }

    fn mask(self) -> &'static MaskAlgorithm {
        match self {
            Suite::Aes128 => &MASK_AES_128,
            Suite::Aes256 => &MASK_AES_256,
            Suite::ChaCha20 => &MASK_CHACHA20,
        }
    }

    /// Length of a traffic secret: that of the hash.
    pub(crate) fn secret_length(self) -> usize {
        if self == Suite::Aes256 { 48 } else { 32 }
    }
}

/// A traffic secret, from which keys follow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Secret {
    pub(crate) suite: Suite,
    bytes: Vec<u8>,
}

impl Secret {
    /// `None` if the length is not that of the suite's hash.
    pub(crate) fn new(suite: Suite, bytes: &[u8]) -> Option<Secret> {
        (bytes.len() == suite.secret_length()).then(|| Secret { suite, bytes: bytes.to_vec() })
    }

    /// HKDF-Expand-Label without context.
    pub(crate) fn expand<const LENGTH: usize>(&self, label: &str) -> [u8; LENGTH] {
        let mut out = [0; LENGTH];
        self.expand_into(label, &mut out);
        out
    }

    fn expand_into(&self, label: &str, out: &mut [u8]) {
        expand(&hkdf::Prk::new_less_safe(self.suite.hash(), &self.bytes), label, out);
    }

    /// The secret after a key update, with the label of the protocol.
    pub(crate) fn next(&self, label: &str) -> Secret {
        let mut bytes = vec![0; self.bytes.len()];
        self.expand_into(label, &mut bytes);
        Secret { suite: self.suite, bytes }
    }

    /// The keys that protect records or packets.
    pub(crate) fn keys(&self, key_label: &str, iv_label: &str) -> Option<Keys> {
        let mut key = vec![0; self.suite.aead().key_len()];
        self.expand_into(key_label, &mut key);
        Keys::new(self.suite, &key, self.expand(iv_label))
    }

    /// The key that protects headers of QUIC packets.
    pub(crate) fn mask(&self, label: &str) -> Option<HeaderProtectionKey> {
        let mut key = vec![0; self.suite.mask().key_len()];
        self.expand_into(label, &mut key);
        HeaderProtectionKey::new(self.suite.mask(), &key).ok()
    }
}

/// The secrets of client and server for Initial packets, which follow from a connection ID.
pub(crate) fn initial_secrets(salt: &[u8; 20], id: &[u8]) -> [Secret; 2] {
    let prk = hkdf::Salt::new(hkdf::HKDF_SHA256, salt).extract(id);
    ["client in", "server in"].map(|label| {
        let mut bytes = vec![0; 32];
        expand(&prk, label, &mut bytes);
        Secret { suite: Suite::Aes128, bytes }
    })
}

/// An AEAD key and the initialization vector of its nonces.
pub(crate) struct Keys {
    key: LessSafeKey,
    iv: [u8; 12],
}

impl std::fmt::Debug for Keys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Keys")
    }
}

impl Keys {
    pub(crate) fn new(suite: Suite, key: &[u8], iv: [u8; 12]) -> Option<Keys> {
        Some(Keys { key: LessSafeKey::new(UnboundKey::new(suite.aead(), key).ok()?), iv })
    }

    /// Decrypts `sealed` in place; `None` if it was not sealed with this key and number, behind `header`.
    pub(crate) fn open<'a>(&self, number: u64, header: &[u8], sealed: &'a mut [u8]) -> Option<&'a mut [u8]> {
        self.open_with(self.nonce(number), header, sealed)
    }

    /// The same with a nonce that does not follow from a number alone.
    pub(crate) fn open_with<'a>(&self, nonce: [u8; 12], header: &[u8], sealed: &'a mut [u8]) -> Option<&'a mut [u8]> {
        self.key.open_in_place(Nonce::assume_unique_for_key(nonce), Aad::from(header), sealed).ok()
    }

    /// The nonce of a number (RFC 8446, section 5.3).
    fn nonce(&self, number: u64) -> [u8; 12] {
        let mut nonce = self.iv;
        for (byte, part) in nonce[4..].iter_mut().zip(number.to_be_bytes()) {
            *byte ^= part;
        }
        nonce
    }

    /// Encrypts, for tests.
    #[cfg(any(test, feature = "count-work"))]
    pub(crate) fn seal(&self, number: u64, header: &[u8], plain: &[u8]) -> Vec<u8> {
        let mut bytes = plain.to_vec();
        let nonce = Nonce::assume_unique_for_key(self.nonce(number));
        self.key.seal_in_place_append_tag(nonce, Aad::from(header), &mut bytes).expect("a short plain text");
        bytes
    }
}

fn expand(prk: &hkdf::Prk, label: &str, out: &mut [u8]) {
    let length = (out.len() as u16).to_be_bytes();
    let label_length = [(TLS13.len() + label.len()) as u8];
    let info = [&length[..], &label_length, TLS13.as_bytes(), label.as_bytes(), &[0]];
    // Fails only for outputs of more than 255 hashes.
    let filled = prk.expand(&info, Length(out.len())).and_then(|okm| okm.fill(out));
    debug_assert!(filled.is_ok(), "{label}");
}

/// Length of an output of HKDF.
struct Length(usize);

impl hkdf::KeyType for Length {
    fn len(&self) -> usize {
        self.0
    }
}

const TLS13: &str = "tls13 ";
/// Length of the tag that an AEAD appends.
pub(crate) const TAG: usize = 16;
