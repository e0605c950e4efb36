//! Requests that are written once in advance.

use crate::rendering::Rendering;
use crate::request;
use crate::spec::LoadSpec;

/// The bytes of requests that are the same every time, in one buffer that never moves.
#[derive(Debug)]
pub(crate) struct Prepared {
    bytes: Box<[u8]>,
    /// End offset of each request. A request that is not prepared has the length 0.
    ends: Box<[usize]>,
}

/// Maximum number of prepared requests: the first of the workload. Others are written when they are sent, into a buffer
/// of their connection, which takes a fraction of a microsecond. Preparing a log's million different URLs would take
/// some 150 MB and several seconds, for requests that are sent once or twice.
pub(crate) const PREPARED_MAX: usize = 1 << 16;

impl Prepared {
    pub(crate) fn new(spec: &LoadSpec) -> Self {
        let mut bytes = Vec::new();
        let ends = spec.workload.requests.iter().take(PREPARED_MAX).map(|request| {
            if request.is_literal() {
                request::write(spec, &Rendering::literal(request), &mut bytes);
            }
            bytes.len()
        });
        let ends = ends.collect();
        Prepared { bytes: bytes.into_boxed_slice(), ends }
    }

    /// A request's bytes; empty if it is not prepared.
    pub(crate) fn of(&self, request: usize) -> &[u8] {
        let Some(&end) = self.ends.get(request) else { return &[] };
        let start = request.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.bytes[start..end]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::tests::plain;
    use crate::workload::{Piece, RequestSpec, Template};
    use crate::{Target, Workload};

    #[test]
    fn literal_requests_are_prepared_and_templates_are_not() {
        let mut spec =
            plain(Workload::of(["http://a/1", "http://a/2", "http://b/3"].map(|u| Target::parse(u).unwrap())));
        spec.workload.requests[1].path = Template { pieces: vec![Piece::Text(b"/"[..].into()), Piece::Client] };
        let prepared = Prepared::new(&spec);
        assert!(prepared.of(0).starts_with(b"GET /1 HTTP/1.1\r\nHost: a\r\n") && prepared.of(0).ends_with(b"\r\n\r\n"));
        assert_eq!(prepared.of(1), b"");
        assert!(prepared.of(2).starts_with(b"GET /3 HTTP/1.1\r\nHost: b\r\n") && prepared.of(2).ends_with(b"\r\n\r\n"));
        assert_eq!(prepared.of(3), b"");
    }

    #[test]
    fn prepared_requests_are_bounded() {
        let request = RequestSpec::get(Target::parse("http://a/1").unwrap());
        let mut spec = plain(Workload::of([]));
        spec.workload.requests = vec![request; PREPARED_MAX + 1];
        let prepared = Prepared::new(&spec);
        assert!(!prepared.of(PREPARED_MAX - 1).is_empty());
        assert!(prepared.of(PREPARED_MAX).is_empty());
    }
}
