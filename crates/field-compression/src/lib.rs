//! Field compression of HTTP/2 (HPACK, RFC 7541) and HTTP/3 (QPACK, RFC 9204), without I/O and without state but that
//! of the tables.
//!
//! ```text
//!   hpack   sections of HTTP/2, decoded with the dynamic table ── static table ─┐
//!   qpack   sections of HTTP/3, static table only ─────────────── static table ─┤
//!     string    literals: plain or Huffman                                      │ watch has decoders of its own over
//!       integer, huffman                                                        │ these: it keeps few fields, and a
//!     table     the dynamic table: entries up to a size ────────────────────────┘ capture may lack insertions
//! ```
//!
//! What a peer can cause is bounded by the caller's limits and by the length of its input: a string grows to at most
//! 8/5 of its bytes, the dynamic table to its capacity.
#![forbid(unsafe_code)]

pub mod hpack;
pub mod huffman;
pub mod integer;
pub mod qpack;
pub mod string;
pub mod table;

/// A field section, or a part of it, that contradicts its specification or ends too early.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a field section is malformed")]
pub struct Malformed;
