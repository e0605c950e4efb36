//! Fields of the origin's responses.
//!
//! | field | when |
//! |---|---|
//! | Date | always; of this second, so that no Last-Modified is later |
//! | X-Yamabiko | stamp with the request id; without it on 304 and for requests without an id |
//! | Last-Modified, ETag | of objects that have them, on 200 and 304 |
//! | Expires, Cache-Control | `public` with Expires or max-age, or `private, no-store` |
//! | Vary: Accept-Encoding | of the workload's kinds that vary, for every client |
//! | Content-Encoding: gzip | of compressed kinds, for clients that accept it |
//!
//! A 304 has no request id: a cache that copies the field to its stored response would otherwise attribute that
//! response to the revalidating request. Uncacheable objects and responses to POST are `private, no-store`. Range is
//! ignored, which is permitted (RFC 9110, section 14.2).

use polymix::{ResponseIdentity, Variant, Vary, Version, World};

use super::{ObjectRequest, Origin};
use crate::date::http_date_s;
use crate::file_response::{COPY_MAX, Reply, Tail, WorkloadBody, names};
use crate::request::Method;
use crate::response::{Persistence, SERVER, VARY, line};

/// Whether a response ends before its announced length, as the workload plans.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Truncation {
    No,
    Yes,
}

impl Origin {
    /// Writes the response's head to `out`, and a short body too. After a truncated response the connection closes.
    pub fn answer(
        &mut self,
        request: &ObjectRequest,
        persistence: Persistence,
        out: &mut Vec<u8>,
    ) -> (Reply, Truncation) {
        let now_ms = self.now();
        let now_s = self.date_s;
        let date = self.date;
        let world = self.world(request.world);
        let object = request.object;
        let kind = &world.spec.kinds[usize::from(object.kind)];
        let version = world.version(object, now_s);
        let variant = world.variant(object, request.gzip);
        let modified_s = world.has_last_modified(object).then_some(version.modified_s);
        let etag = world.has_etag(object).then(|| etag(object, version, variant));
        let same = match (&request.tags, request.since_s) {
            (Some(tags), _) => &**tags == b"*" || etag.as_ref().is_some_and(|etag| names(tags, etag.as_bytes())),
            (None, Some(since_s)) => modified_s.is_some_and(|modified_s| modified_s <= since_s),
            (None, None) => false,
        };
        out.extend_from_slice(if same { b"HTTP/1.1 304 Not Modified\r\n" } else { b"HTTP/1.1 200 OK\r\n" });
        out.extend_from_slice(SERVER);
        out.extend_from_slice(&date);
        let request_id = request.request_id.filter(|_| !same);
        out.extend_from_slice(IDENTITY_FIELD);
        let number = version.number;
        ResponseIdentity {
            world: request.world,
            object,
            version: number,
            variant,
            request_id,
            renewed: same,
            generated_unix_ms: now_ms,
        }
        .write(out);
        out.extend_from_slice(b"\r\n");
        if let Some(modified_s) = modified_s {
            line(out, b"Last-Modified: ", &http_date_s(modified_s));
        }
        if let Some(etag) = &etag {
            line(out, b"ETag: ", etag.as_bytes());
        }
        lifetime(world, request, version, out);
        if kind.vary == Vary::AcceptEncoding {
            out.extend_from_slice(VARY);
        }
        let (mut reply, mut cut) = (Reply { status: 304, content_bytes: 0, body: None }, Truncation::No);
        let mut body = None;
        if !same {
            reply.status = 200;
            let whole = world.body(object, version, variant);
            line(out, b"Content-Type: ", kind.media_type.as_bytes());
            if variant == Variant::Gzip {
                out.extend_from_slice(b"Content-Encoding: gzip\r\n");
            }
            out.extend_from_slice(b"Content-Length: ");
            decimal(whole.length(), out);
            out.extend_from_slice(b"\r\n");
            if request.method != Method::Head {
                let mut end = whole.length();
                // An empty body cannot be truncated.
                let planned = request.request_id.filter(|_| request.method == Method::Get && end > 0);
                if let Some(at) = planned.and_then(|ask| world.origin_aborts(ask)) {
                    end = at.min(end - 1);
                    cut = Truncation::Yes;
                }
                reply.content_bytes = end;
                body = Some(WorkloadBody::new(whole, end));
            }
        }
        out.extend_from_slice(persistence.field());
        out.extend_from_slice(b"\r\n");
        if let Some(mut body) = body {
            if reply.content_bytes <= COPY_MAX as u64 {
                while !body.rest().is_empty() {
                    let length = body.rest().len();
                    out.extend_from_slice(body.rest());
                    body.advance(length);
                }
            } else {
                reply.body = Some(Tail::WorkloadBody(Box::new(body)));
            }
        }
        self.tally.with(|counts| counts.answer(request.world, !same, reply.content_bytes, cut == Truncation::Yes));
        (reply, cut)
    }
}

/// The cache lifetime of the response.
fn lifetime(world: &World, request: &ObjectRequest, version: Version, out: &mut Vec<u8>) {
    // A POST has its own object, which is never requested again.
    if request.method == Method::Post || !world.cacheable(request.object) {
        out.extend_from_slice(b"Cache-Control: private, no-store\r\n");
        return;
    }
    match (version.max_age_s, version.expires_s) {
        (Some(seconds), _) => {
            out.extend_from_slice(b"Cache-Control: public, max-age=");
            decimal(seconds, out);
            out.extend_from_slice(b"\r\n");
        }
        (None, Some(expires_s)) => {
            out.extend_from_slice(b"Cache-Control: public\r\n");
            line(out, b"Expires: ", &http_date_s(expires_s));
        }
        (None, None) => out.extend_from_slice(b"Cache-Control: public\r\n"),
    }
}

/// A strong tag: different bodies have different tags.
fn etag(object: polymix::Object, version: Version, variant: Variant) -> String {
    let coded = if variant == Variant::Gzip { "-gzip" } else { "" };
    format!("\"{:x}-{:x}-{:x}{coded}\"", object.kind, object.number, version.number)
}

/// Appends a number. Hand-written because it is used three times per response.
fn decimal(value: u64, out: &mut Vec<u8>) {
    let mut digits = [0; 20];
    let (mut at, mut rest) = (digits.len(), value);
    loop {
        at -= 1;
        digits[at] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[at..]);
}

/// [`polymix::IDENTITY_FIELD`] as the beginning of a field line.
const IDENTITY_FIELD: &[u8] = b"X-Yamabiko: ";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_in_decimal() {
        for value in [0, 1, 9, 10, 13_107, u64::MAX] {
            let mut out = Vec::new();
            decimal(value, &mut out);
            assert_eq!(String::from_utf8(out).unwrap(), value.to_string());
        }
    }

    #[test]
    fn the_identity_field_has_the_name_that_polymix_reads() {
        assert_eq!(IDENTITY_FIELD, format!("{}: ", polymix::IDENTITY_FIELD).as_bytes());
    }
}
