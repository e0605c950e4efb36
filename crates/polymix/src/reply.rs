//! Identities in header fields: the request id, and the identity of every response.

use serde::{Deserialize, Serialize};

use crate::{Object, RequestId, Variant};

/// Header field of the request id: `<run>.<sequence>` in hexadecimal ([`RequestId::write`]). Never in Vary.
pub const REQUEST_ID_FIELD: &str = "X-Yamabiko-Request-Id";

/// Header field of the identity of a response: see [`ResponseIdentity`].
pub const IDENTITY_FIELD: &str = "X-Yamabiko";

/// Identity of a response: `<world>.<kind><object>.<version>.<variant>.<run>.<sequence>.<unix_ms>`, such as
/// `1f3a.A2b7.3.p.1.9c4.18c2f5a3e10`. Numbers are hexadecimal, kinds letters from `A` on, variants `p` and `g`. Run and
/// sequence are `-` on a 304, and `~` for a request without id.
///
/// A response generated for another request is a hit (Web Polygraph's rule). A 304 of the origin has no request id, so
/// that a renewed copy keeps the id of its first fetch, or has none, and counts as a hit. A response to a request
/// without id is recognized as a hit by its time only.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResponseIdentity {
    /// World.
    pub world: u32,
    /// Object.
    pub object: Object,
    /// Version of the object.
    pub version: u32,
    /// Content coding that the origin chose.
    pub variant: Variant,
    /// The request for which it was generated; `None` on a 304 and for a request without id.
    pub request_id: Option<RequestId>,
    /// Whether it is the identity of a 304, which a renewed copy adopts. Never with a request id.
    pub renewed: bool,
    /// Time of generation, Unix time in milliseconds.
    pub generated_unix_ms: u64,
}

/// Placeholder of the request id on a 304.
const RENEWED: &[u8] = b"-.-";
/// Placeholder of the request id for a request without one.
const WITHOUT_REQUEST_ID: &[u8] = b"~.~";

impl ResponseIdentity {
    /// Appends the field's value. Kinds are below 26.
    pub fn write(&self, into: &mut Vec<u8>) {
        write_hex(u64::from(self.world), into);
        into.extend_from_slice(&[b'.', letter(self.object.kind)]);
        write_hex(self.object.number, into);
        into.push(b'.');
        write_hex(u64::from(self.version), into);
        into.extend_from_slice(match self.variant {
            Variant::Plain => b".p.",
            Variant::Gzip => b".g.",
        });
        match self.request_id {
            Some(request_id) => request_id.write(into),
            None if self.renewed => into.extend_from_slice(RENEWED),
            None => into.extend_from_slice(WITHOUT_REQUEST_ID),
        }
        into.push(b'.');
        write_hex(self.generated_unix_ms, into);
    }

    /// Parses exactly the form of [`ResponseIdentity::write`].
    pub fn read(value: &[u8]) -> Option<ResponseIdentity> {
        let (world, rest) = read_number(value)?;
        let (&kind, rest) = rest.strip_prefix(b".")?.split_first()?;
        let (number, rest) = read_hex(rest)?;
        let (version, rest) = read_number(rest.strip_prefix(b".")?)?;
        let (variant, rest) = match rest.split_at_checked(3)? {
            (b".p.", rest) => (Variant::Plain, rest),
            (b".g.", rest) => (Variant::Gzip, rest),
            _ => return None,
        };
        let (request_id, renewed, rest) = if let Some(rest) = rest.strip_prefix(RENEWED) {
            (None, true, rest)
        } else if let Some(rest) = rest.strip_prefix(WITHOUT_REQUEST_ID) {
            (None, false, rest)
        } else {
            let (request_id, rest) = read_request_id(rest)?;
            (Some(request_id), false, rest)
        };
        let (generated_unix_ms, rest) = read_hex(rest.strip_prefix(b".")?)?;
        let object = Object { kind: read_letter(kind)?, number };
        rest.is_empty().then_some(ResponseIdentity {
            world,
            object,
            version,
            variant,
            request_id,
            renewed,
            generated_unix_ms,
        })
    }
}

impl RequestId {
    /// Appends the value of [`REQUEST_ID_FIELD`].
    pub fn write(&self, into: &mut Vec<u8>) {
        write_hex(u64::from(self.run), into);
        into.push(b'.');
        write_hex(self.sequence, into);
    }

    /// Parses exactly the form of [`RequestId::write`].
    pub fn read(value: &[u8]) -> Option<RequestId> {
        let (request_id, rest) = read_request_id(value)?;
        rest.is_empty().then_some(request_id)
    }
}

fn read_request_id(value: &[u8]) -> Option<(RequestId, &[u8])> {
    let (run, rest) = read_number(value)?;
    let (sequence, rest) = read_hex(rest.strip_prefix(b".")?)?;
    Some((RequestId { run, sequence }, rest))
}

/// Letter of a kind; kinds are below 26.
pub(crate) fn letter(kind: u8) -> u8 {
    debug_assert!(kind < 26, "a workload has 26 kinds at most");
    b'A' + kind
}

/// Kind of a letter.
pub(crate) fn read_letter(letter: u8) -> Option<u8> {
    letter.is_ascii_uppercase().then(|| letter - b'A')
}

/// Appends a number in hexadecimal, without leading zeros.
pub(crate) fn write_hex(number: u64, into: &mut Vec<u8>) {
    let digits = (64 - number.leading_zeros()).div_ceil(4).max(1);
    for digit in (0..digits).rev() {
        into.push(b"0123456789abcdef"[(number >> (4 * digit) & 15) as usize]);
    }
}

/// Parses a number as written by [`write_hex`]; returns it and the rest. Each number has one form, so that texts can be
/// compared.
pub(crate) fn read_hex(text: &[u8]) -> Option<(u64, &[u8])> {
    let mut number = 0u64;
    let mut digits = 0;
    for &byte in text {
        let digit = match byte {
            b'0'..=b'9' => byte - b'0',
            b'a'..=b'f' => byte - b'a' + 10,
            _ => break,
        };
        digits += 1;
        if digits > 16 || (digits == 2 && number == 0) {
            return None;
        }
        number = number << 4 | u64::from(digit);
    }
    (digits > 0).then(|| (number, &text[digits..]))
}

fn read_number(text: &[u8]) -> Option<(u32, &[u8])> {
    let (number, rest) = read_hex(text)?;
    Some((u32::try_from(number).ok()?, rest))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{CacheWorkload, World};

    fn request_id() -> impl Strategy<Value = RequestId> {
        (any::<u32>(), any::<u64>()).prop_map(|(run, sequence)| RequestId { run, sequence })
    }

    fn object() -> impl Strategy<Value = Object> {
        (0..26u8, any::<u64>()).prop_map(|(kind, number)| Object { kind, number })
    }

    fn identity() -> impl Strategy<Value = ResponseIdentity> {
        let facts = (any::<u32>(), object(), any::<u32>(), any::<bool>());
        let maker = (proptest::option::of(request_id()), any::<bool>());
        (facts, maker, any::<u64>()).prop_map(
            |((world, object, version, gzip), (request_id, is_304), generated_unix_ms)| {
                let variant = if gzip { Variant::Gzip } else { Variant::Plain };
                ResponseIdentity {
                    world,
                    object,
                    version,
                    variant,
                    request_id,
                    renewed: is_304 && request_id.is_none(),
                    generated_unix_ms,
                }
            },
        )
    }

    proptest! {
        #[test]
        fn identities_and_request_ids_round_trip(identity in identity(), request_id in request_id()) {
            let mut bytes = Vec::new();
            identity.write(&mut bytes);
            prop_assert_eq!(ResponseIdentity::read(&bytes), Some(identity));
            bytes.push(b' ');
            prop_assert_eq!(ResponseIdentity::read(&bytes), None);
            bytes.clear();
            request_id.write(&mut bytes);
            prop_assert_eq!(RequestId::read(&bytes), Some(request_id));
        }

        #[test]
        fn identity_with_a_changed_byte_is_another_identity_or_invalid(
            identity in identity(),
            at: prop::sample::Index,
            byte: u8,
        ) {
            let mut bytes = Vec::new();
            identity.write(&mut bytes);
            let at = at.index(bytes.len());
            prop_assume!(bytes[at] != byte);
            bytes[at] = byte;
            prop_assert_ne!(ResponseIdentity::read(&bytes), Some(identity));
        }

        #[test]
        fn object_paths_round_trip(kind in 0..4u8, number: u64, id: u32) {
            let world = World::new(CacheWorkload::polymix(4).into(), 1, id);
            let object = Object { kind, number };
            let mut path = Vec::new();
            world.write_path(object, &mut path);
            prop_assert_eq!(World::read_path(&path), Some((id, object)));
        }
    }

    #[test]
    fn response_identity_has_the_documented_form() {
        let object = Object { kind: 0, number: 0x2b7 };
        let request_id = Some(RequestId { run: 1, sequence: 0x9c4 });
        let identity = ResponseIdentity {
            world: 0x1f3a,
            object,
            version: 3,
            variant: Variant::Plain,
            request_id,
            renewed: false,
            generated_unix_ms: 0x18c_2f5a_3e10,
        };
        let mut bytes = Vec::new();
        identity.write(&mut bytes);
        assert_eq!(bytes, b"1f3a.A2b7.3.p.1.9c4.18c2f5a3e10");
        bytes.clear();
        ResponseIdentity { request_id: None, renewed: true, variant: Variant::Gzip, ..identity }.write(&mut bytes);
        assert_eq!(bytes, b"1f3a.A2b7.3.g.-.-.18c2f5a3e10");
        bytes.clear();
        ResponseIdentity { request_id: None, ..identity }.write(&mut bytes);
        assert_eq!(bytes, b"1f3a.A2b7.3.p.~.~.18c2f5a3e10");
    }

    #[test]
    fn malformed_identities_and_paths_are_rejected() {
        for value in [
            "",
            "1f3a",
            "1f3a.A2b7.3.p.1.9c4",
            "1f3a.A2b7.3.p.1.9c4.",
            "1F3a.A2b7.3.p.1.9c4.1",
            "1f3a.a2b7.3.p.1.9c4.1",
            "01f3a.A2b7.3.p.1.9c4.1",
            "1f3a.A2b7.3.x.1.9c4.1",
            "1f3a.A2b7.3.p.-.9c4.1",
            "1f3a.A2b7.3.p.~.9c4.1",
            "1f3a.A2b7.3.p.~.-.1",
            "100000000.A1.3.p.1.1.1",
            "1.A11112222333344445.3.p.1.1.1",
            "1.A1.3.p.1.1.1.1",
            "1.A1.3.p.1.1.1, 1.A1.3.p.1.1.1",
        ] {
            assert_eq!(ResponseIdentity::read(value.as_bytes()), None, "{value}");
        }
        for path in
            ["", "/", "/y/", "/y/1", "/y/1/", "/y/1/A", "/y/1/A2/", "/y/1/A2b7html", "/y/01/A1", "/y/1/a1", "/x/1/A1"]
        {
            assert_eq!(World::read_path(path.as_bytes()), None, "{path}");
        }
        assert_eq!(World::read_path(b"/y/1f3a/A2b7"), Some((0x1f3a, Object { kind: 0, number: 0x2b7 })));
        assert_eq!(World::read_path(b"/y/1f3a/A2b7.html?x"), Some((0x1f3a, Object { kind: 0, number: 0x2b7 })));
    }
}
