//! What a response must be for its request to count as done.

use std::ops::RangeInclusive;

use schema::FailureCause;

/// What is expected of a complete response. The default expects nothing.
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

    /// Holds a complete response against what is expected: its status, the bytes of its body, and its body where it was
    /// kept.
    ///
    /// # Errors
    /// The first of these that is otherwise, in the order status, length, body: one response has one cause, and a wrong
    /// status explains a wrong body. A body that is expected and was not kept, because it was too long, is otherwise.
    pub fn check(&self, status: u16, length: u64, body: Option<&[u8]>) -> Result<(), FailureCause> {
        if !self.status.is_empty() && !self.status.iter().any(|range| range.contains(&status)) {
            return Err(FailureCause::UnexpectedStatus);
        }
        if self.length.as_ref().is_some_and(|range| !range.contains(&length)) {
            return Err(FailureCause::UnexpectedLength);
        }
        match &self.body {
            Some(expected) if !body.is_some_and(|body| expected.holds(body)) => Err(FailureCause::UnexpectedBody),
            _ => Ok(()),
        }
    }
}

impl BodyExpected {
    /// Whether a body is so.
    pub fn holds(&self, body: &[u8]) -> bool {
        match self {
            BodyExpected::Is(whole) => **whole == *body,
            BodyExpected::Contains(part) => memchr::memmem::find(body, part).is_some(),
            BodyExpected::Matches(expression) => expression.is_match(body),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_failed_expectation_is_the_cause() {
        let expect = Expect {
            status: vec![200..=299, 304..=304],
            length: Some(3..=5),
            body: Some(BodyExpected::Contains(b"ell"[..].into())),
        };
        assert!(expect.needs_body() && !expect.is_nothing());
        for (status, length, body, found) in [
            (200, 5, Some(&b"hello"[..]), Ok(())),
            (304, 3, Some(b"ell"), Ok(())),
            (300, 0, None, Err(FailureCause::UnexpectedStatus)),
            (303, 5, Some(b"hello"), Err(FailureCause::UnexpectedStatus)),
            (299, 2, Some(b"ell"), Err(FailureCause::UnexpectedLength)),
            (299, 6, Some(b"hello!"), Err(FailureCause::UnexpectedLength)),
            (200, 5, Some(b"hallo"), Err(FailureCause::UnexpectedBody)),
            (200, 5, None, Err(FailureCause::UnexpectedBody)),
        ] {
            assert_eq!(expect.check(status, length, body), found, "{status} {length} {body:?}");
        }
        assert_eq!(Expect::default().check(599, u64::MAX, None), Ok(()));
    }

    #[test]
    fn expected_bodies_are_compared_as_bytes() {
        let body = b"\xff\x00\xfe<id>7</id>";
        assert!(BodyExpected::Is(body[..].into()).holds(body) && !BodyExpected::Is(body[1..].into()).holds(body));
        assert!(BodyExpected::Contains(b"\x00\xfe"[..].into()).holds(body));
        assert!(BodyExpected::Contains(b""[..].into()).holds(b""));
        let matches = |expression| BodyExpected::Matches(regex::bytes::Regex::new(expression).unwrap()).holds(body);
        assert!(matches(r"<id>\d+</id>$") && matches(r"(?-u)^\xff") && !matches(r"^<id>"));
    }
}
