//! One request of a connection with many (HTTP/2, HTTP/3) and its response, without frames.
//!
//! ```text
//!   fields ──RequestHead──▶ Stream::begin ─▶ Connection::respond        (as for a request of HTTP/1.1)
//!   content ──────────────▶ Stream::take_body      │
//!   fields ◀──HeadCache──── Stream::next_head ◀────┤  a head as HTTP/1.1 would send it
//!   content ◀────────────── Stream::body      ◀────┘  then content, without chunks
//! ```
//!
//! A stream is a [`Connection`] that gets one request and writes its response for a framing that marks the end itself.
//! So files, conditions, ranges, cache, relay, origin workloads, timeouts and the log are those of HTTP/1.1.

mod authority;
mod head_cache;
mod request_head;

use std::net::SocketAddr;
use std::rc::Rc;

use sys::file::append_from;
use units::Timestamp;

use crate::connection::{Connection, Outbound, WorkerContext};
use crate::dynamic::{Event, Ticket};
use crate::response::Status;
pub(crate) use authority::Authority;
pub(crate) use head_cache::{Encoding, HeadCache, HeadCaches};
use request_head::Announced;
pub(crate) use request_head::Completed;
pub(crate) use request_head::{RequestHead, is_trailer};

/// What a stream has of its connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ends {
    /// The engine's token of the connection.
    pub(crate) connection: u64,
    pub(crate) peer: SocketAddr,
    pub(crate) local: SocketAddr,
    pub(crate) secure: bool,
}

/// One request and its response.
#[derive(Debug)]
pub(crate) struct Stream {
    connection: Connection,
    announced: Announced,
    /// The final head was taken.
    head_taken: bool,
    /// Content of the request that was taken and not reported by [`Stream::forwarded`].
    unreported: usize,
}

/// What is left of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// A head or content, now or later.
    Unfinished,
    /// Everything was taken.
    Complete,
    /// The response cannot be completed: the stream is reset.
    Broken,
}

/// The request breaks rules of HTTP/2 or HTTP/3: the stream is reset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MalformedRequest;

/// The content of a response cannot be read: the stream is reset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BrokenBody;

impl Stream {
    /// Responds to the request of a complete `head`; `ended`: no content follows. `refusal`: what a well-formed request
    /// gets in place of its response. [`WorkerContext::out`] is empty before.
    ///
    /// # Errors
    /// The request is malformed.
    pub(crate) fn begin(
        ends: &Ends,
        stream: u64,
        context: &mut WorkerContext,
        head: &mut RequestHead,
        ended: bool,
        refusal: Option<Status>,
    ) -> Result<Stream, MalformedRequest> {
        let ticket = Ticket { connection: ends.connection, stream };
        let mut connection = Connection::of_stream(ticket, ends, context);
        let announced = head.announced(ended);
        match head.complete(ended) {
            Completed::Malformed => return Err(MalformedRequest),
            Completed::Refused(status, text) => connection.refuse(context, status, text),
            Completed::Request(request) => match refusal {
                None => connection.respond(context, &request),
                Some(status) => {
                    context.recorder.began();
                    connection.refuse_and_record(context, status, &request);
                }
            },
        }
        Ok(Stream { connection, announced, head_taken: false, unreported: 0 })
    }

    /// Takes content of the request; `ended`: nothing follows. [`WorkerContext::out`] is empty before.
    ///
    /// # Errors
    /// The content is longer or shorter than announced.
    pub(crate) fn take_body(
        &mut self,
        context: &mut WorkerContext,
        bytes: &[u8],
        ended: bool,
    ) -> Result<(), MalformedRequest> {
        self.unreported += bytes.len();
        match &mut self.announced {
            Announced::Nothing if bytes.is_empty() => Ok(()),
            Announced::Nothing => Err(MalformedRequest),
            Announced::Length(left) => {
                *left = left.checked_sub(bytes.len() as u64).ok_or(MalformedRequest)?;
                if ended && *left > 0 {
                    return Err(MalformedRequest);
                }
                if !bytes.is_empty() {
                    self.connection.take(context, bytes);
                }
                Ok(())
            }
            Announced::UntilEnd => {
                let mut chunk = std::mem::take(&mut context.chunk);
                chunk.clear();
                if !bytes.is_empty() {
                    crate::response::field(&mut chunk, format_args!("{:x}\r\n", bytes.len()));
                    chunk.extend_from_slice(bytes);
                    chunk.extend_from_slice(b"\r\n");
                }
                if ended {
                    chunk.extend_from_slice(b"0\r\n\r\n");
                }
                self.connection.take(context, &chunk);
                context.chunk = chunk;
                Ok(())
            }
        }
    }

    /// The bytes of content that were forwarded or dropped since the last call: the client may send as many.
    pub(crate) fn forwarded(&mut self) -> usize {
        let bytes = self.unreported.saturating_sub(self.connection.unread_bytes());
        self.unreported -= bytes;
        bytes
    }

    /// The bytes of content that [`Stream::forwarded`] has not reported.
    pub(crate) fn unreported(&self) -> usize {
        self.unreported
    }

    /// Processes an event of the relay. [`WorkerContext::out`] is empty before.
    pub(crate) fn relay_event(&mut self, context: &mut WorkerContext, event: Event) {
        self.connection.relay_event(context, event);
    }

    /// The next head, if there is one: an interim response, or the response itself.
    pub(crate) fn next_head<E: Encoding>(&mut self, context: &mut WorkerContext) -> Option<Rc<[u8]>> {
        if self.head_taken {
            return None;
        }
        let front = self.connection.front(&context.out);
        let end = memchr::memmem::find(front, b"\r\n\r\n")? + 4;
        // `HTTP/1.1 100`
        self.head_taken = front.get(9) != Some(&b'1');
        let is_common = !self.connection.is_relayed();
        let section = E::cache(&mut context.head_caches).section::<E>(&front[..end], is_common);
        self.connection.sent(context, end);
        Some(section)
    }

    /// Whether the final head was taken, and content is available.
    pub(crate) fn has_body(&self, context: &WorkerContext) -> bool {
        self.head_taken && !matches!(self.connection.outbound(context), Outbound::Nothing)
    }

    /// Appends available content to `into`, at most `most` bytes; returns the number of bytes.
    ///
    /// # Errors
    /// A file was truncated or changed after its head was sent.
    pub(crate) fn body(
        &mut self,
        context: &mut WorkerContext,
        into: &mut Vec<u8>,
        most: usize,
    ) -> Result<usize, BrokenBody> {
        let begin = into.len();
        loop {
            let room = most - (into.len() - begin);
            let at = into.len();
            if room == 0 {
                break;
            }
            match self.connection.outbound(context) {
                Outbound::Nothing => break,
                Outbound::Bytes(bytes, _) => into.extend_from_slice(&bytes[..bytes.len().min(room)]),
                Outbound::Both(front, rest) => {
                    into.extend_from_slice(&front[..front.len().min(room)]);
                    let room = room - (into.len() - at);
                    into.extend_from_slice(&rest[..rest.len().min(room)]);
                }
                Outbound::File { front, .. } if !front.is_empty() => {
                    into.extend_from_slice(&front[..front.len().min(room)]);
                }
                Outbound::File { file, page, range, .. } => {
                    let length = usize::try_from(range.end - range.start).unwrap_or(usize::MAX).min(room);
                    let read = append_from(file, range.start, length, into).map_err(|_| BrokenBody)?;
                    let is_last = read as u64 == range.end - range.start;
                    if (read == 0 && length > 0) || (is_last && !page.is_intact()) {
                        return Err(BrokenBody);
                    }
                }
            }
            let count = into.len() - at;
            self.connection.sent(context, count);
        }
        Ok(into.len() - begin)
    }

    /// Bytes of content that are available, after the head was taken.
    pub(crate) fn available(&self, context: &WorkerContext) -> u64 {
        if !self.head_taken {
            return 0;
        }
        match self.connection.outbound(context) {
            Outbound::Nothing => 0,
            Outbound::Bytes(bytes, _) => bytes.len() as u64,
            Outbound::Both(front, rest) => (front.len() + rest.len()) as u64,
            Outbound::File { front, range, .. } => front.len() as u64 + (range.end - range.start),
        }
    }

    /// Passes available content to `take`, at most `most` bytes, until it takes less than it is offered; `take` returns
    /// how many. Returns the bytes taken. A file is read only here.
    ///
    /// # Errors
    /// A file was truncated or changed after its head was sent.
    pub(crate) fn transfer(
        &mut self,
        context: &mut WorkerContext,
        most: usize,
        mut take: impl FnMut(&[u8]) -> usize,
    ) -> Result<usize, BrokenBody> {
        let mut chunk = std::mem::take(&mut context.chunk);
        let mut done = 0;
        while done < most {
            let room = most - done;
            let (offered, taken) = match self.connection.outbound(context) {
                Outbound::Nothing => break,
                Outbound::File { front: bytes @ [_, ..], .. }
                | Outbound::Both(bytes @ [_, ..], _)
                | Outbound::Both([], bytes)
                | Outbound::Bytes(bytes, _) => {
                    let bytes = &bytes[..bytes.len().min(room)];
                    (bytes.len(), take(bytes))
                }
                Outbound::File { file, page, range, .. } => {
                    let length = usize::try_from(range.end - range.start).unwrap_or(usize::MAX).min(room);
                    chunk.clear();
                    let read = append_from(file, range.start, length, &mut chunk).map_err(|_| BrokenBody)?;
                    let is_last = read as u64 == range.end - range.start;
                    if read == 0 || (is_last && !page.is_intact()) {
                        return Err(BrokenBody);
                    }
                    (read, take(&chunk[..read]))
                }
            };
            self.connection.sent(context, taken);
            done += taken;
            if taken < offered {
                break;
            }
        }
        context.chunk = chunk;
        Ok(done)
    }

    /// What is left.
    pub(crate) fn progress(&self, context: &WorkerContext) -> Progress {
        self.connection.progress(context, self.head_taken)
    }

    /// Ends the turn of an unfinished stream: as [`Connection::settle`].
    pub(crate) fn settle(&mut self, context: &mut WorkerContext) {
        self.connection.settle(context);
    }

    /// When the current timeout or think time expires.
    pub(crate) fn deadline(&self) -> Timestamp {
        self.connection.deadline()
    }

    /// The deadline has expired. [`WorkerContext::out`] is empty before.
    pub(crate) fn late(&mut self, context: &mut WorkerContext) {
        self.connection.late(context);
    }

    /// The stream ends, complete or not.
    pub(crate) fn leave(&mut self, context: &mut WorkerContext) {
        self.connection.leave_stream(context);
    }
}
