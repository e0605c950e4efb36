//! Protection of QUIC packets (RFC 9001, section 5; RFC 9369, section 3.3).

use ring::aead::quic::HeaderProtectionKey;
use ring::aead::{AES_128_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use wire::quic::{ConnectionId, VERSION_1, VERSION_2, is_long};

use crate::crypto::{Keys, Secret, TAG, initial_secrets};

/// Names of keys in a version.
pub(super) struct Labels {
    key: &'static str,
    iv: &'static str,
    mask: &'static str,
    /// Of a key update.
    pub(super) update: &'static str,
}

/// The labels of a version.
pub(super) fn labels(version: u32) -> &'static Labels {
    if version == VERSION_2 { &LABELS_2 } else { &LABELS_1 }
}

const LABELS_1: Labels = Labels { key: "quic key", iv: "quic iv", mask: "quic hp", update: "quic ku" };
const LABELS_2: Labels = Labels { key: "quicv2 key", iv: "quicv2 iv", mask: "quicv2 hp", update: "quicv2 ku" };

/// Keys of one direction in one packet number space.
#[derive(Debug)]
pub(super) struct Protection {
    pub(super) keys: Keys,
    mask: Mask,
    /// The largest packet number that was decrypted, and one more; 0 before the first.
    pub(super) next_number: u64,
}

struct Mask(HeaderProtectionKey);

impl std::fmt::Debug for Mask {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Mask")
    }
}

/// The header of a packet without its protection.
#[derive(Clone, Copy, Debug)]
pub(super) struct Unmasked {
    pub(super) first: u8,
    pub(super) number: u64,
    number_length: usize,
}

impl Protection {
    pub(super) fn new(version: u32, secret: &Secret) -> Option<Protection> {
        let labels = labels(version);
        Some(Protection {
            keys: secret.keys(labels.key, labels.iv)?,
            mask: Mask(secret.mask(labels.mask)?),
            next_number: 0,
        })
    }

    /// The keys after an update: those of headers stay the same (RFC 9001, section 6).
    pub(super) fn updated_keys(version: u32, secret: &Secret) -> Option<Keys> {
        let labels = labels(version);
        secret.keys(labels.key, labels.iv)
    }

    /// The mask of the header of `packet`, whose packet number is at `number_at`; `None` if the packet is too short.
    pub(super) fn mask_of(&self, packet: &[u8], number_at: usize) -> Option<[u8; 5]> {
        // The sample begins where the longest packet number would end.
        let sample = packet.get(number_at + 4..number_at + 4 + SAMPLE)?;
        self.mask.0.new_mask(sample).ok()
    }

    /// Removes the protection of the header of `packet`, whose packet number is at `number_at`.
    pub(super) fn unmask(&self, packet: &[u8], number_at: usize) -> Option<Unmasked> {
        let mask = self.mask_of(packet, number_at)?;
        let bits = if is_long(packet[0]) { 0x0F } else { 0x1F };
        let first = packet[0] ^ mask[0] & bits;
        let number_length = usize::from(first & 3) + 1;
        let bytes = packet[number_at..number_at + number_length].iter().zip(&mask[1..]);
        let cut = bytes.fold(0u64, |number, (byte, mask)| number << 8 | u64::from(byte ^ mask));
        Some(Unmasked { first, number: whole_number(self.next_number, cut, number_length), number_length })
    }

    /// Decrypts a packet into `scratch` with `keys`, or its own; returns its number. See [`payload`].
    pub(super) fn open(
        &self,
        keys: Option<&Keys>,
        packet: &[u8],
        number_at: usize,
        header: Unmasked,
        scratch: &mut Vec<u8>,
    ) -> Option<u64> {
        let payload_at = number_at + header.number_length;
        scratch.clear();
        scratch.extend_from_slice(packet);
        scratch[0] = header.first;
        let number = header.number.to_be_bytes();
        scratch[number_at..payload_at].copy_from_slice(&number[8 - header.number_length..]);
        let (associated, sealed) = scratch.split_at_mut_checked(payload_at)?;
        if sealed.len() < TAG {
            return None;
        }
        keys.unwrap_or(&self.keys).open(header.number, associated, sealed)?;
        Some(header.number)
    }

    /// Records that a packet was decrypted.
    pub(super) fn note(&mut self, number: u64) {
        self.next_number = self.next_number.max(number + 1);
    }
}

/// The payload of the packet that was decrypted into `scratch`, and whose packet number is at `number_at`.
pub(super) fn payload(scratch: &[u8], number_at: usize) -> &[u8] {
    let start = number_at + usize::from(scratch.first().map_or(0, |first| first & 3)) + 1;
    scratch.get(start..scratch.len().saturating_sub(TAG)).unwrap_or(&[])
}

/// The packet number of which `length` bytes were sent: the one nearest to the next expected one (RFC 9000,
/// appendix A.3).
fn whole_number(expected: u64, cut: u64, length: usize) -> u64 {
    let window = 1u64 << (8 * length);
    let candidate = expected & !(window - 1) | cut;
    if candidate + window / 2 <= expected && candidate < (1 << 62) - window {
        candidate + window
    } else if candidate > expected + window / 2 && candidate >= window {
        candidate - window
    } else {
        candidate
    }
}

/// Keys of both directions for Initial packets, which anyone can derive; `None` in an unknown version.
pub(super) fn initial(version: u32, destination: &ConnectionId) -> Option<[Protection; 2]> {
    let salt = match version {
        VERSION_1 => &SALT_1,
        VERSION_2 => &SALT_2,
        _ => return None,
    };
    let [client, server] = initial_secrets(salt, destination.as_bytes());
    Some([Protection::new(version, &client)?, Protection::new(version, &server)?])
}

/// Whether a Retry packet is the response to an Initial packet with this destination (RFC 9001, section 5.8).
pub(super) fn is_retry_valid(version: u32, packet: &[u8], destination: &ConnectionId) -> bool {
    let (key, nonce) = if version == VERSION_2 { (&RETRY_KEY_2, RETRY_NONCE_2) } else { (&RETRY_KEY_1, RETRY_NONCE_1) };
    let Some(before) = packet.len().checked_sub(TAG) else { return false };
    let Ok(key) = UnboundKey::new(&AES_128_GCM, key) else { return false };
    let mut tag = packet[before..].to_vec();
    let pseudo = [&[destination.len() as u8], destination.as_bytes(), &packet[..before]].concat();
    let nonce = Nonce::assume_unique_for_key(nonce);
    LessSafeKey::new(key).open_in_place(nonce, Aad::from(pseudo), &mut tag).is_ok()
}

const SAMPLE: usize = 16;

#[rustfmt::skip]
const SALT_1: [u8; 20] = [
    0x38, 0x76, 0x2C, 0xF7, 0xF5, 0x59, 0x34, 0xB3, 0x4D, 0x17, 0x9A, 0xE6, 0xA4, 0xC8, 0x0C, 0xAD, 0xCC, 0xBB, 0x7F, 0x0A,
];
#[rustfmt::skip]
const SALT_2: [u8; 20] = [
    0x0D, 0xED, 0xE3, 0xDE, 0xF7, 0x00, 0xA6, 0xDB, 0x81, 0x93, 0x81, 0xBE, 0x6E, 0x26, 0x9D, 0xCB, 0xF9, 0xBD, 0x2E, 0xD9,
];
const RETRY_KEY_1: [u8; 16] =
    [0xBE, 0x0C, 0x69, 0x0B, 0x9F, 0x66, 0x57, 0x5A, 0x1D, 0x76, 0x6B, 0x54, 0xE3, 0x68, 0xC8, 0x4E];
const RETRY_NONCE_1: [u8; 12] = [0x46, 0x15, 0x99, 0xD3, 0x5D, 0x63, 0x2B, 0xF2, 0x23, 0x98, 0x25, 0xBB];
const RETRY_KEY_2: [u8; 16] =
    [0x8F, 0xB4, 0xB0, 0x1B, 0x56, 0xAC, 0x48, 0xE2, 0x60, 0xFB, 0xCB, 0xCE, 0xAD, 0x7C, 0xCC, 0x92];
const RETRY_NONCE_2: [u8; 12] = [0xD8, 0x69, 0x69, 0xBC, 0x2D, 0x7C, 0x6D, 0x99, 0x90, 0xEF, 0xB0, 0x4A];

#[cfg(test)]
mod tests;
