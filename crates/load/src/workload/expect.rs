//! What a response must be for its request to count as done.

use std::ops::RangeInclusive;

/// What is expected of a whole response. The default expects nothing.
#[derive(Clone, Debug, Default)]
pub struct Expect {
    /// Its status is in one of these; empty: any status.
    pub status: Vec<RangeInclusive<u16>>,
    /// Bytes of its body, the framing of chunks not counted.
    pub length: Option<RangeInclusive<u64>>,
    /// Its body.
    pub body: Option<BodyExpected>,
}

/// What is expected of a body.
#[derive(Clone, Debug)]
pub enum BodyExpected {
    /// It is this, byte for byte.
    Is(Box<[u8]>),
    /// It holds this.
    Contains(Box<[u8]>),
    /// This matches somewhere in it.
    Matches(regex::bytes::Regex),
}

impl Expect {
    /// Whether nothing is expected.
    pub fn is_nothing(&self) -> bool {
        self.status.is_empty() && self.length.is_none() && self.body.is_none()
    }

    /// Whether the body must be kept until it is whole.
    pub fn needs_body(&self) -> bool {
        self.body.is_some()
    }
}
