//! What a file server answers to a request: status, fields, and where the bytes are.
//!
//! ```text
//!   Request ──method──▶ Files::find ──conditions──▶ range ──▶ Reply      (RFC 9110, section 13.2.2: in this order)
//!              405, 501      301, 404      304, 412    206, 416
//! ```

use std::collections::VecDeque;
use std::ops::Range;
use std::rc::Rc;

use crate::files::{Content, Files, Found, Page};
use crate::request::{Method, Request};
use crate::response::{Fate, Status, write_head, write_moved, write_refusal};

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
    /// What comes from the relay for this ticket (`dynamic::Ticket`).
    Awaited(u64),
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
    let head_only = request.method == Method::Head;
    let refused = |out: &mut Vec<u8>, status: Status| {
        write_refusal(out, status, date, fate, head_only);
        Reply { status: status.code(), content_bytes: 0, body: None }
    };
    match request.method {
        Method::Get | Method::Head => {}
        Method::Unknown => return refused(out, Status::NotImplemented),
        _ => return refused(out, Status::MethodNotAllowed),
    }
    match files.find(request.path, now_s) {
        Found::Nothing(status) => refused(out, status),
        Found::Directory => {
            write_moved(out, request.path, date, fate);
            Reply { status: 301, content_bytes: 0, body: None }
        }
        Found::Page(page) => {
            write_head(out, page.head.whole(), date, fate);
            let length = page.content.length();
            if head_only {
                return Reply { status: 200, content_bytes: 0, body: None };
            }
            let body = match &page.content {
                // Copying a little is cheaper than a second element in the system call.
                Content::Held(bytes) if bytes.len() <= COPY_MAX => {
                    out.extend_from_slice(bytes);
                    None
                }
                _ => Some(Tail::Page(page, 0..length)),
            };
            Reply { status: 200, content_bytes: length, body }
        }
    }
}

/// Content up to this size is copied behind its head.
pub(crate) const COPY_MAX: usize = 16 << 10;
