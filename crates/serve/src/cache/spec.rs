//! How large the result cache may be, and what it does where the RFC leaves a choice.

use std::time::Duration;

/// The result cache as asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CacheSpec {
    /// Bytes that stored answers may take in all: bodies, fields, keys and the tables that hold them.
    pub memory_bytes: usize,
    /// The largest body that is stored, in bytes.
    pub object_bytes_max: usize,
    /// Where the origin says nothing about lifetimes: a tenth of the time since Last-Modified, at most this long
    /// (RFC 9111, section 4.2.2). `None`: such answers are not stored.
    pub heuristic_max: Option<Duration>,
    /// Clients may not demand a fetch or forbid storing: their Cache-Control and Pragma mean nothing (RFC 9111, section
    /// 5.2.1, leaves a cache that choice), but for only-if-cached.
    pub ignores_clients: bool,
}

impl Default for CacheSpec {
    /// 64 MiB, 4 MiB an answer, no heuristics, clients are heard.
    fn default() -> Self {
        CacheSpec { memory_bytes: 64 << 20, object_bytes_max: 4 << 20, heuristic_max: None, ignores_clients: false }
    }
}
