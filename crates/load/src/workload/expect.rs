//! Expectations that a complete response must meet for its request to count as completed.

use std::ops::RangeInclusive;

use schema::FailureCause;

/// The expectations of a response. The default has none.
#[derive(Clone, Debug, Default)]
pub struct Expect {
    /// Accepted ranges of the status; empty for any status.
    pub status: Vec<RangeInclusive<u16>>,
    /// Accepted bytes of the body, without the framing of chunks.
    pub length: Option<RangeInclusive<u64>>,
    /// Expected content of the body.
    pub body: Option<BodyExpected>,
}

/// The expected content of a body.
#[derive(Clone, Debug)]
pub enum BodyExpected {
    /// The body equals these bytes.
    Is(Box<[u8]>),
    /// The body contains these bytes.
    Contains(Box<[u8]>),
    /// The expression matches somewhere in the body.
    Matches(regex::bytes::Regex),
}

impl Expect {
    /// Whether there are no expectations.
    pub fn is_nothing(&self) -> bool {
        self.status.is_empty() && self.length.is_none() && self.body.is_none()
    }

    /// Whether the complete body must be stored.
    pub fn needs_body(&self) -> bool {
        self.body.is_some()
    }

    /// Checks a complete response: its status, the length of its body, and its body if it was stored.
    ///
    /// # Errors
    /// The first expectation that is not met, in the order status, length, body: a response has one cause of failure,
    /// and a wrong status explains a wrong body. An expected body that was too long to store fails.
    pub fn check(&self, status: u16, length: u64, body: Option<&[u8]>) -> Result<(), FailureCause> {
        if !self.status.is_empty() && !self.status.iter().any(|range| range.contains(&status)) {
            return Err(FailureCause::UnexpectedStatus);
        }
        if self.length.as_ref().is_some_and(|range| !range.contains(&length)) {
            return Err(FailureCause::UnexpectedLength);
        }
        match &self.body {
            Some(expected) if !body.is_some_and(|body| expected.matches(body)) => Err(FailureCause::UnexpectedBody),
            _ => Ok(()),
        }
    }
}

impl BodyExpected {
    /// Whether a body meets the expectation.
    pub fn matches(&self, body: &[u8]) -> bool {
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
        assert!(BodyExpected::Is(body[..].into()).matches(body) && !BodyExpected::Is(body[1..].into()).matches(body));
        assert!(BodyExpected::Contains(b"\x00\xfe"[..].into()).matches(body));
        assert!(BodyExpected::Contains(b""[..].into()).matches(b""));
        let matches = |expression| BodyExpected::Matches(regex::bytes::Regex::new(expression).unwrap()).matches(body);
        assert!(matches(r"<id>\d+</id>$") && matches(r"(?-u)^\xff") && !matches(r"^<id>"));
    }
}
