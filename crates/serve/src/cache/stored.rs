//! One stored response.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use units::Timestamp;

use super::directives::ResponseDirectives;
use super::fields::{is_named, lines, push};
use super::policy::Terms;
use super::vary::Vary;

/// The times of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Received {
    /// Time at which the request was sent.
    pub(crate) requested_at: Timestamp,
    /// Time at which the head of the response was complete.
    pub(crate) at: Timestamp,
    /// The wall clock at that time, in seconds since 1970.
    pub(crate) unix_s: u64,
}

/// The head of a stored response; immutable. Validation creates a new one.
#[derive(Debug)]
pub(crate) struct Head {
    pub(crate) status: u16,
    /// Lines `Name: value CRLF`, without Age and fields of the connection.
    pub(crate) fields: Box<[u8]>,
    pub(crate) vary: Vary,
    pub(crate) terms: Terms,
    pub(crate) received: Received,
}

/// A stored response.
#[derive(Clone, Debug)]
pub(crate) struct Stored {
    pub(crate) head: Arc<Head>,
    /// The complete body.
    pub(crate) body: Bytes,
}

impl Head {
    /// Built from the lines of a received response.
    pub(crate) fn new(status: u16, fields: &[u8], vary: Vary, terms: Terms, received: Received) -> Self {
        let withheld = ResponseDirectives::of(lines(fields)).no_cache_fields;
        let mut stored_fields = Vec::with_capacity(fields.len());
        for (name, value) in lines(fields) {
            // Age is computed for every response. Fields named by no-cache are for the first client only (RFC 9111,
            // section 5.2.2.4).
            if !is_named(name, b"age") && !withheld.iter().any(|one| is_named(name, one)) {
                push(&mut stored_fields, name, value);
            }
        }
        Head { status, fields: stored_fields.into(), vary, terms, received }
    }

    /// Current age: the age on arrival plus the time since (RFC 9111, section 4.2.3).
    pub(crate) fn age(&self, now: Timestamp) -> Duration {
        self.terms.initial_age.saturating_add(now.since(self.received.at))
    }

    /// Remaining freshness; the staleness as an error.
    pub(crate) fn left(&self, now: Timestamp) -> Result<Duration, Duration> {
        let (age, lifetime) = (self.age(now), self.terms.lifetime);
        if lifetime > age { Ok(lifetime - age) } else { Err(age - lifetime) }
    }

    /// Remaining freshness in seconds, negative when stale, for Cache-Status.
    pub(crate) fn ttl_s(&self, now: Timestamp) -> i64 {
        match self.left(now) {
            Ok(left) => left.as_secs() as i64,
            Err(over) => -(over.as_secs() as i64),
        }
    }

    /// Bytes in memory.
    pub(crate) fn bytes(&self) -> usize {
        let counts_of_arc = 2 * size_of::<usize>();
        size_of::<Head>() + counts_of_arc + self.fields.len() + self.vary.heap_bytes() + self.terms.heap_bytes()
    }
}

impl Stored {
    /// Bytes on the heap.
    pub(crate) fn bytes(&self) -> usize {
        self.head.bytes() + self.body.len()
    }
}
