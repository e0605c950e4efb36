//! Keys of TLS 1.2 (RFC 5246, section 6.3), for suites with an AEAD.

use ring::hmac;

use crate::crypto::{Keys, Suite, TAG};

/// Protection of one direction.
#[derive(Debug)]
pub(super) struct Keys12 {
    keys: Keys,
    iv: [u8; 12],
    suite: Suite,
}

/// The suite of TLS 1.2 with this number, and whether its hash is SHA-384; `None` without an AEAD.
pub(super) fn suite(number: u16) -> Option<(Suite, bool)> {
    match number {
        // RSA, DHE-RSA, ECDHE-ECDSA, ECDHE-RSA; with AES-128-GCM, AES-256-GCM.
        0x009C | 0x009E | 0xC02B | 0xC02F => Some((Suite::Aes128, false)),
        0x009D | 0x009F | 0xC02C | 0xC030 => Some((Suite::Aes256, true)),
        // ECDHE-RSA, ECDHE-ECDSA, DHE-RSA.
        0xCCA8..=0xCCAA => Some((Suite::ChaCha20, false)),
        _ => None,
    }
}

/// The keys of client and server.
pub(super) fn keys(master: &[u8], client: &[u8; 32], server: &[u8; 32], number: u16) -> Option<[Keys12; 2]> {
    let (suite, is_sha384) = suite(number)?;
    let algorithm = if is_sha384 { hmac::HMAC_SHA384 } else { hmac::HMAC_SHA256 };
    let (key_length, iv_length) = (suite.aead().key_len(), if suite == Suite::ChaCha20 { 12 } else { 4 });
    let seed = [&b"key expansion"[..], server, client].concat();
    let block = expand(algorithm, master, &seed, 2 * (key_length + iv_length));
    let (own_keys, own_ivs) = block.split_at(2 * key_length);
    let of = |direction: usize| {
        let mut iv = [0; 12];
        iv[..iv_length].copy_from_slice(&own_ivs[direction * iv_length..][..iv_length]);
        Some(Keys12 { keys: Keys::new(suite, &own_keys[direction * key_length..][..key_length], iv)?, iv, suite })
    };
    Some([of(0)?, of(1)?])
}

impl Keys12 {
    /// Decrypts the content of a record in place (RFC 5288; RFC 7905).
    pub(super) fn open<'a>(&self, sequence: u64, header: [u8; 5], content: &'a mut [u8]) -> Option<&'a mut [u8]> {
        let explicit = if self.suite == Suite::ChaCha20 { 0 } else { 8 };
        let length = content.len().checked_sub(explicit + TAG)?;
        let (nonce_part, sealed) = content.split_at_mut(explicit);
        let mut associated = [0; 13];
        associated[..8].copy_from_slice(&sequence.to_be_bytes());
        associated[8..11].copy_from_slice(&header[..3]);
        associated[11..].copy_from_slice(&(length as u16).to_be_bytes());
        if explicit == 0 {
            return self.keys.open(sequence, &associated, sealed);
        }
        let mut nonce = self.iv;
        nonce[4..].copy_from_slice(nonce_part);
        self.keys.open_with(nonce, &associated, sealed)
    }
}

/// P_hash of RFC 5246, section 5.
fn expand(algorithm: hmac::Algorithm, secret: &[u8], seed: &[u8], length: usize) -> Vec<u8> {
    let key = hmac::Key::new(algorithm, secret);
    let mut a = hmac::sign(&key, seed);
    let mut out = Vec::with_capacity(length + 64);
    while out.len() < length {
        out.extend_from_slice(hmac::sign(&key, &[a.as_ref(), seed].concat()).as_ref());
        a = hmac::sign(&key, a.as_ref());
    }
    out.truncate(length);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expansion_is_that_of_the_published_vector() {
        // The test vector for the PRF with SHA-256 that the TLS working group published (mailing list, 2009).
        let hex = |text: &str| -> Vec<u8> {
            text.as_bytes()
                .chunks(2)
                .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap())
                .collect()
        };
        let seed = [&b"test label"[..], &hex("a0ba9f936cda311827a6f796ffd5198c")].concat();
        let out = expand(hmac::HMAC_SHA256, &hex("9bbe436ba940f017b17652849a71db35"), &seed, 100);
        assert_eq!(out[..32], hex("e3f229ba727be17b8d122620557cd453c2aab21d07c3d495329b52d4e61edb5a")[..]);
    }
}
