//! Configuration of the result cache.

use std::time::Duration;

/// Configuration of the result cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CacheSpec {
    /// Limit of all memory of stored responses: bodies, fields, keys and tables.
    pub memory_bytes: usize,
    /// The largest body that is stored, in bytes.
    pub object_bytes_max: usize,
    /// Heuristic lifetime without an explicit one: a tenth of the time since Last-Modified, at most this long (RFC
    /// 9111, section 4.2.2). `None`: such responses are not stored.
    pub heuristic_max: Option<Duration>,
    /// Ignore the clients' Cache-Control and Pragma, except only-if-cached (RFC 9111, section 5.2.1, permits it):
    /// clients can neither force a fetch nor forbid storing.
    pub ignores_clients: bool,
}

impl Default for CacheSpec {
    /// 64 MiB, 4 MiB a response, no heuristics, clients' directives honoured.
    fn default() -> Self {
        CacheSpec { memory_bytes: 64 << 20, object_bytes_max: 4 << 20, heuristic_max: None, ignores_clients: false }
    }
}
