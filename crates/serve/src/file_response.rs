//! The response of a file server: status, fields, and the location of the content.
//!
//! ```text
//!   Request ──method──▶ Files::find ──conditions──▶ range ──▶ Reply      (RFC 9110, section 13.2.2: in this order)
//!            204, 405, 501  301, 404, 406  304, 412   206, 416
//! ```

mod conditions;
mod encoding;
mod ranges;

use std::collections::VecDeque;
use std::ops::Range;
use std::rc::Rc;

use crate::files::{Coding, Content, Files, Found, Page};
use crate::request::{Fields, Method, Request};
use crate::response::{
    ALLOW, Persistence, SERVER, Status, VARY, field, line, write_head, write_moved, write_refusal_with,
};
use conditions::{PreconditionResult, evaluate, range_applies};
pub(crate) use conditions::{modified_since, names};
use encoding::{Accepted, NotAcceptable};
use ranges::{RequestedRange, requested_range};

/// A response whose head has been written.
#[derive(Debug)]
pub(crate) struct Reply {
    /// The status code.
    pub(crate) status: u16,
    /// Bytes of content, as an access log counts them. 0 for a response without content.
    pub(crate) content_bytes: u64,
    /// Content that does not follow the head in the output buffer.
    pub(crate) body: Option<Tail>,
}

/// Content after the output buffer.
#[derive(Debug)]
pub(crate) enum Tail {
    /// A range of a file.
    Page(Rc<Page>, Range<u64>),
    /// Ranges of a file with text between them, in this order (multipart/byteranges).
    Pieces(VecDeque<Piece>),
    /// The rest of a stored response.
    Stored(bytes::Bytes),
    /// The rest of a workload object's body.
    WorkloadBody(Box<WorkloadBody>),
    /// Pending content of the relay or of an origin with think time.
    Awaited,
}

/// A range of a generated body.
#[derive(Debug)]
pub(crate) struct WorkloadBody {
    body: polymix::Body,
    at: u64,
    end: u64,
}

impl WorkloadBody {
    /// The first `end` bytes of a body, which is at least as long.
    pub(crate) fn new(body: polymix::Body, end: u64) -> Self {
        WorkloadBody { body, at: 0, end }
    }

    /// The next bytes; empty only at the end.
    pub(crate) fn rest(&self) -> &[u8] {
        let piece = self.body.piece(self.at);
        &piece[..piece.len().min(usize::try_from(self.length()).unwrap_or(usize::MAX))]
    }

    /// Remaining bytes.
    pub(crate) fn length(&self) -> u64 {
        self.end - self.at
    }

    /// Marks bytes as sent.
    pub(crate) fn advance(&mut self, bytes: usize) {
        self.at += bytes as u64;
    }
}

impl Tail {
    /// Bytes of content, as far as they are available.
    pub(crate) fn content_bytes(&self) -> u64 {
        let length = |range: &Range<u64>| range.end - range.start;
        match self {
            Tail::Page(_, range) => length(range),
            Tail::Pieces(pieces) => pieces
                .iter()
                .map(|piece| match piece {
                    Piece::Text(text) => text.len() as u64,
                    Piece::Page(_, range) => length(range),
                })
                .sum(),
            Tail::Stored(bytes) => bytes.len() as u64,
            Tail::WorkloadBody(body) => body.length(),
            Tail::Awaited => 0,
        }
    }
}

/// One piece of content.
#[derive(Debug)]
pub(crate) enum Piece {
    /// Text of this response.
    Text(Box<[u8]>),
    /// A range of a file.
    Page(Rc<Page>, Range<u64>),
}

/// Responds to `request` from `files`: appends the head to `out`, and short content too. Content of at most
/// `copy_max` bytes is short. `now_s` counts seconds of any
/// one clock; `date` is the Date field with its line end.
pub(crate) fn answer(
    files: &mut Files,
    request: &Request<'_>,
    copy_max: usize,
    now_s: u64,
    date: &[u8],
    persistence: Persistence,
    out: &mut Vec<u8>,
) -> Reply {
    let mut writer = Writer { head_only: request.method == Method::Head, copy_max, date, persistence, out };
    match request.method {
        Method::Get | Method::Head => {}
        // The allowed methods are the same for every path and for the server as a whole.
        Method::Options => return writer.options(),
        Method::Unknown => return writer.refuse(Status::NotImplemented, b""),
        _ => return writer.refuse(Status::MethodNotAllowed, ALLOW),
    }
    let page = match files.find(request.path, now_s) {
        Found::Page(page) => page,
        Found::Directory => return writer.moved(request),
        Found::Nothing(status) => return writer.refuse(status, b""),
    };
    let fields = &request.fields;
    let page = match fields.accept_encoding {
        None => page,
        // Without a weight no coding is excluded.
        Some(value) if page.variants.is_empty() && memchr::memchr(b';', value).is_none() && !fields.repeated => page,
        Some(value) => match select(page, fields, value) {
            Ok(page) => page,
            Err(NotAcceptable) => return writer.refuse(Status::NotAcceptable, VARY),
        },
    };
    if !fields.conditional {
        return writer.whole(page);
    }
    let year_now = year(date);
    match evaluate(fields, &page, year_now) {
        PreconditionResult::Failed => return writer.refuse(Status::PreconditionFailed, page.head.validators()),
        PreconditionResult::NotModified => return writer.not_modified(&page),
        PreconditionResult::Proceed => {}
    }
    let length = page.content.length();
    let requested_range = match fields.range {
        // RFC 9110, section 14.2: GET only, and a single Range field.
        Some(value)
            if request.method == Method::Get
                && !(fields.repeated && fields.values(b"range").nth(1).is_some())
                && range_applies(fields, &page, year_now) =>
        {
            requested_range(value, length)
        }
        _ => RequestedRange::Whole,
    };
    match requested_range {
        RequestedRange::Whole => writer.whole(page),
        RequestedRange::Parts(parts) => match parts.as_slice() {
            [part] => writer.part(page, part.clone()),
            _ => writer.parts(&page, &parts, &files.boundary()),
        },
        RequestedRange::Nothing => {
            let range = format!("Content-Range: bytes */{length}\r\n");
            writer.refuse(Status::RangeNotSatisfiable, range.as_bytes())
        }
    }
}

/// Whether a client prefers gzip to the identity coding.
pub(crate) fn takes_gzip(fields: &Fields<'_>) -> bool {
    let Some(value) = fields.accept_encoding else { return false };
    let mut accepted = Accepted::default();
    accepted.take(value);
    if fields.repeated {
        fields.values(b"accept-encoding").skip(1).for_each(|value| accepted.take(value));
    }
    accepted.choose([Coding::Gzip].into_iter()) == Ok(Some(Coding::Gzip))
}

/// The page or the precompressed variant that the client prefers.
fn select(page: Rc<Page>, fields: &Fields<'_>, value: &[u8]) -> Result<Rc<Page>, NotAcceptable> {
    let mut accepted = Accepted::default();
    if fields.repeated {
        fields.values(b"accept-encoding").for_each(|value| accepted.take(value));
    } else {
        accepted.take(value);
    }
    match accepted.choose(page.variants.iter().filter_map(|twin| twin.coding))? {
        None => Ok(page),
        Some(coding) => {
            Ok(page.variants.iter().find(|twin| twin.coding == Some(coding)).map_or(page.clone(), Rc::clone))
        }
    }
}

/// The year of a Date field.
pub(crate) fn year(date: &[u8]) -> i64 {
    date.get(18..22).and_then(|digits| std::str::from_utf8(digits).ok()?.parse().ok()).unwrap_or(1970)
}

/// Parameters of all heads of one response.
struct Writer<'a> {
    head_only: bool,
    copy_max: usize,
    date: &'a [u8],
    persistence: Persistence,
    out: &'a mut Vec<u8>,
}

impl Writer<'_> {
    fn refuse(&mut self, status: Status, more: &[u8]) -> Reply {
        let content_bytes = write_refusal_with(self.out, status, more, self.date, self.persistence, self.head_only);
        Reply { status: status.code(), content_bytes, body: None }
    }

    fn begin(&mut self, line: &[u8]) {
        self.out.extend_from_slice(line);
        self.out.extend_from_slice(SERVER);
    }

    fn end(&mut self) {
        write_head(self.out, b"", self.date, self.persistence);
    }

    fn options(&mut self) -> Reply {
        self.begin(b"HTTP/1.1 204 No Content\r\n");
        self.out.extend_from_slice(ALLOW);
        self.end();
        Reply { status: 204, content_bytes: 0, body: None }
    }

    fn moved(&mut self, request: &Request<'_>) -> Reply {
        write_moved(self.out, request.path, request.query, self.date, self.persistence);
        Reply { status: 301, content_bytes: 0, body: None }
    }

    fn not_modified(&mut self, page: &Page) -> Reply {
        self.begin(b"HTTP/1.1 304 Not Modified\r\n");
        self.out.extend_from_slice(page.head.validators());
        self.end();
        Reply { status: 304, content_bytes: 0, body: None }
    }

    fn whole(&mut self, page: Rc<Page>) -> Reply {
        write_head(self.out, page.head.whole(), self.date, self.persistence);
        let length = page.content.length();
        if self.head_only {
            return Reply { status: 200, content_bytes: 0, body: None };
        }
        self.content(200, page, 0..length)
    }

    fn part(&mut self, page: Rc<Page>, part: Range<u64>) -> Reply {
        self.begin(PARTIAL);
        self.out.extend_from_slice(page.head.validators());
        self.out.extend_from_slice(page.head.kind());
        let (last, length) = (part.end - 1, page.content.length());
        let bytes = part.end - part.start;
        field(
            self.out,
            format_args!("Content-Range: bytes {}-{last}/{length}\r\nContent-Length: {bytes}\r\n", part.start),
        );
        self.end();
        self.content(206, page, part)
    }

    /// Appends the content to the head, or returns it as a tail.
    fn content(&mut self, status: u16, page: Rc<Page>, part: Range<u64>) -> Reply {
        let content_bytes = part.end - part.start;
        let body = match &page.content {
            // Copying little content is cheaper than a second element of the system call.
            Content::Held(bytes) if content_bytes <= self.copy_max as u64 => {
                self.out.extend_from_slice(&bytes[part.start as usize..part.end as usize]);
                None
            }
            _ if content_bytes == 0 => None,
            _ => Some(Tail::Page(page, part)),
        };
        Reply { status, content_bytes, body }
    }

    /// RFC 9110, section 14.6. No part contains `boundary`.
    fn parts(&mut self, page: &Rc<Page>, parts: &[Range<u64>], boundary: &str) -> Reply {
        let length = page.content.length();
        let mut pieces = VecDeque::with_capacity(2 * parts.len() + 1);
        let mut content_bytes = 0;
        for part in parts {
            let mut text = Vec::with_capacity(160);
            field(&mut text, format_args!("\r\n--{boundary}\r\nContent-Type: {}\r\n", page.head.media_type()));
            field(&mut text, format_args!("Content-Range: bytes {}-{}/{length}\r\n\r\n", part.start, part.end - 1));
            content_bytes += text.len() as u64 + (part.end - part.start);
            pieces.push_back(Piece::Text(text.into()));
            pieces.push_back(Piece::Page(Rc::clone(page), part.clone()));
        }
        let last = format!("\r\n--{boundary}--\r\n").into_bytes();
        content_bytes += last.len() as u64;
        pieces.push_back(Piece::Text(last.into()));
        self.begin(PARTIAL);
        self.out.extend_from_slice(page.head.validators());
        field(self.out, format_args!("Content-Type: multipart/byteranges; boundary={boundary}\r\n"));
        if let Some(coding) = page.head.coding() {
            line(self.out, b"Content-Encoding: ", coding.as_bytes());
        }
        field(self.out, format_args!("Content-Length: {content_bytes}\r\n"));
        self.end();
        Reply { status: 206, content_bytes, body: Some(Tail::Pieces(pieces)) }
    }
}

/// Content up to this size is copied behind its head.
pub(crate) const COPY_MAX: usize = 16 << 10;
const PARTIAL: &[u8] = b"HTTP/1.1 206 Partial Content\r\n";

#[cfg(test)]
mod tests;
