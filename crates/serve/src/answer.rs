//! What a file server answers to a request: status, fields, and where the bytes are.
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
use crate::response::{ALLOW, Fate, SERVER, Status, VARY, field, line, write_head, write_moved, write_refusal_with};
use conditions::{Verdict, evaluate, range_applies};
pub(crate) use conditions::{modified_since, names};
use encoding::{Accepted, NotAcceptable};
use ranges::{Wanted, wanted};

/// An answer whose head has been written.
#[derive(Debug)]
pub(crate) struct Reply {
    /// The status code.
    pub(crate) status: u16,
    /// Bytes of content, wherever they are: what an access log counts. 0 for an answer that ends with its head.
    pub(crate) content_bytes: u64,
    /// Content that has not been written behind the head.
    pub(crate) body: Option<Tail>,
}

/// Content that follows what has been written.
#[derive(Debug)]
pub(crate) enum Tail {
    /// This part of a file.
    Page(Rc<Page>, Range<u64>),
    /// Parts of a file with text between them, in this order (multipart/byteranges).
    Pieces(VecDeque<Piece>),
    /// What is left of a stored result.
    Stored(bytes::Bytes),
    /// What is left of an object's body.
    Matter(Box<Matter>),
    /// What comes from the relay, or from an origin that thinks.
    Awaited,
}

/// A part of a mix's matter, from here to where it ends.
#[derive(Debug)]
pub(crate) struct Matter {
    body: polymix::Body,
    at: u64,
    end: u64,
}

impl Matter {
    /// The first `end` bytes of a body, which has as many.
    pub(crate) fn new(body: polymix::Body, end: u64) -> Self {
        Matter { body, at: 0, end }
    }

    /// The bytes that come next; nothing only at the end.
    pub(crate) fn rest(&self) -> &[u8] {
        let piece = self.body.piece(self.at);
        &piece[..piece.len().min(usize::try_from(self.length()).unwrap_or(usize::MAX))]
    }

    /// Bytes that are left.
    pub(crate) fn length(&self) -> u64 {
        self.end - self.at
    }

    /// So many of them are sent.
    pub(crate) fn advance(&mut self, bytes: usize) {
        self.at += bytes as u64;
    }
}

impl Tail {
    /// Bytes of content in it, as far as they are there.
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
            Tail::Matter(matter) => matter.length(),
            Tail::Awaited => 0,
        }
    }
}

/// One piece of content.
#[derive(Debug)]
pub(crate) enum Piece {
    /// Text made for this answer.
    Text(Box<[u8]>),
    /// This part of a file.
    Page(Rc<Page>, Range<u64>),
}

/// Answers `request` from `files`: appends the head to `out`, and the content too where it is short. `now_s` counts
/// seconds of any one clock; `date` is the Date field with its line end.
pub(crate) fn answer(
    files: &mut Files,
    request: &Request<'_>,
    now_s: u64,
    date: &[u8],
    fate: Fate,
    out: &mut Vec<u8>,
) -> Reply {
    let mut writer = Writer { head_only: request.method == Method::Head, date, fate, out };
    match request.method {
        Method::Get | Method::Head => {}
        // What may be done is the same for every path, and for the server as a whole.
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
        // Without a weight nothing is excluded.
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
        Verdict::Failed => return writer.refuse(Status::PreconditionFailed, page.head.validators()),
        Verdict::NotModified => return writer.not_modified(&page),
        Verdict::Proceed => {}
    }
    let length = page.content.length();
    let wanted = match fields.range {
        // RFC 9110, section 14.2: of GET only; and one Range, not several.
        Some(value)
            if request.method == Method::Get
                && !(fields.repeated && fields.values(b"range").nth(1).is_some())
                && range_applies(fields, &page, year_now) =>
        {
            wanted(value, length)
        }
        _ => Wanted::Whole,
    };
    match wanted {
        Wanted::Whole => writer.whole(page),
        Wanted::Parts(parts) => match parts.as_slice() {
            [part] => writer.part(page, part.clone()),
            _ => writer.parts(&page, &parts, &files.boundary()),
        },
        Wanted::Nothing => {
            let range = format!("Content-Range: bytes */{length}\r\n");
            writer.refuse(Status::RangeNotSatisfiable, range.as_bytes())
        }
    }
}

/// Whether a client would rather have gzip than the bytes as they are.
pub(crate) fn takes_gzip(fields: &Fields<'_>) -> bool {
    let Some(value) = fields.accept_encoding else { return false };
    let mut accepted = Accepted::default();
    accepted.take(value);
    if fields.repeated {
        fields.values(b"accept-encoding").skip(1).for_each(|value| accepted.take(value));
    }
    accepted.choose([Coding::Gzip].into_iter()) == Ok(Some(Coding::Gzip))
}

/// The page or the compressed twin of it that the client likes best.
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

/// The year that a Date field says.
pub(crate) fn year(date: &[u8]) -> i64 {
    date.get(18..22).and_then(|digits| std::str::from_utf8(digits).ok()?.parse().ok()).unwrap_or(1970)
}

/// What all heads of one answer need.
struct Writer<'a> {
    head_only: bool,
    date: &'a [u8],
    fate: Fate,
    out: &'a mut Vec<u8>,
}

impl Writer<'_> {
    fn refuse(&mut self, status: Status, more: &[u8]) -> Reply {
        let content_bytes = write_refusal_with(self.out, status, more, self.date, self.fate, self.head_only);
        Reply { status: status.code(), content_bytes, body: None }
    }

    fn begin(&mut self, line: &[u8]) {
        self.out.extend_from_slice(line);
        self.out.extend_from_slice(SERVER);
    }

    fn end(&mut self) {
        write_head(self.out, b"", self.date, self.fate);
    }

    fn options(&mut self) -> Reply {
        self.begin(b"HTTP/1.1 204 No Content\r\n");
        self.out.extend_from_slice(ALLOW);
        self.end();
        Reply { status: 204, content_bytes: 0, body: None }
    }

    fn moved(&mut self, request: &Request<'_>) -> Reply {
        write_moved(self.out, request.path, request.query, self.date, self.fate);
        Reply { status: 301, content_bytes: 0, body: None }
    }

    fn not_modified(&mut self, page: &Page) -> Reply {
        self.begin(b"HTTP/1.1 304 Not Modified\r\n");
        self.out.extend_from_slice(page.head.validators());
        self.end();
        Reply { status: 304, content_bytes: 0, body: None }
    }

    fn whole(&mut self, page: Rc<Page>) -> Reply {
        write_head(self.out, page.head.whole(), self.date, self.fate);
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

    /// The content, behind the head or still to come.
    fn content(&mut self, status: u16, page: Rc<Page>, part: Range<u64>) -> Reply {
        let content_bytes = part.end - part.start;
        let body = match &page.content {
            // Copying a little is cheaper than a second element in the system call.
            Content::Held(bytes) if content_bytes <= COPY_MAX as u64 => {
                self.out.extend_from_slice(&bytes[part.start as usize..part.end as usize]);
                None
            }
            _ if content_bytes == 0 => None,
            _ => Some(Tail::Page(page, part)),
        };
        Reply { status, content_bytes, body }
    }

    /// RFC 9110, section 14.6. `boundary` stands in none of the parts.
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
