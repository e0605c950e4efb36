//! Field compression of HTTP/2 (HPACK, RFC 7541) and HTTP/3 (QPACK, RFC 9204): Huffman code, integers, tables.
//!
//! ```text
//!   field section ──hpack::Decoder──▶ FieldSink (a request's head)
//!   a response's head ──hpack::encode_field──▶ field section
//! ```
//!
//! Responses use the static tables only, so that equal heads have equal encodings, which are reused: see
//! `multiplexed/head_cache.rs`. Requests may use the dynamic table of HPACK.

pub(crate) mod hpack;
pub(crate) mod huffman;
pub(crate) mod integer;
#[cfg(test)]
mod tests;

/// Takes the fields of a section in their order. Names and values are any bytes: the sink checks them.
pub(crate) trait FieldSink {
    /// One field.
    fn field(&mut self, name: &[u8], value: &[u8]);
}

/// A field section that cannot be decoded: the connection ends, since its tables are unknown from here on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a field section is malformed")]
pub(crate) struct MalformedSection;
