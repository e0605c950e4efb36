//! Parses one response, from its first byte to its last.

use std::borrow::Cow;

use ::http1::chunked::ByClient;
use ::http1::response::{self as head, HEAD_BYTES_MAX};
use ::http1::{Between, Body, Chunked, Reason, RequestMethod, Step};
use polymix::{CheckedResponse, Checker, Content, ReadDirective};
use schema::Method;

/// The parser of one response. [`Response::reset`] prepares it for the next one and keeps its buffers.
#[derive(Debug)]
pub struct Response {
    method: Method,
    stage: Stage,
    status: u16,
    keep_alive: bool,
    interim: u8,
    /// Bytes of heads so far.
    head_bytes: u32,
    /// Whether the unmodified final head is stored.
    stores_head: bool,
    /// Whether the body is stored, without its framing.
    stores_body: bool,
    /// The complete final head, if it is stored.
    head: Vec<u8>,
    /// The body received so far, if it is stored and not too long.
    body: Vec<u8>,
    /// Bytes of the body so far, without its framing. During a chunked body, `stage` has the number instead.
    content: u64,
    /// The part of a head received so far, if it did not arrive in one piece.
    partial: Vec<u8>,
    /// Verifies the response in place.
    checker: Option<Box<Checker>>,
    /// Whether the checker verifies the body as well.
    checks_body: bool,
    /// Whether the client aborts the response here, as the checker decided.
    is_cut: bool,
    /// State of stray empty lines before or after the response.
    between: Between,
    /// Why the input is not a valid response.
    fault: Option<Box<::http1::Fault>>,
}

#[derive(Debug)]
enum Stage {
    Head,
    Length(u64),
    Chunked(Chunked<ByClient>),
    UntilClose,
    Whole,
}

/// The progress of a response after some input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// All input was consumed, and the response is incomplete.
    More,
    /// The response is complete.
    Whole {
        /// Bytes of the input that belong to the response.
        consumed: usize,
    },
}

/// The kind of fault of an invalid response; [`Response::fault`] has the reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The input is not HTTP/1, or its framing is invalid.
    Malformed,
    /// The head exceeds [`HEAD_BYTES_MAX`], has too many header lines, or follows too many interim responses.
    HeadTooLarge,
}

/// The state of a response when the server closes the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AtClose {
    /// The close ended the body: the response is complete.
    Whole,
    /// No byte was received.
    Nothing,
    /// The response is incomplete.
    Short,
    /// The received bytes are not a valid response.
    Malformed,
}

/// Maximum bytes of a body that are stored for checks and extracted values. Of a longer body only the length is known.
/// Ten thousand connections at this limit use 10 GiB; pages and API responses are far smaller.
pub const BODY_STORED_MAX: usize = 1 << 20;

/// Maximum body buffer that is kept for the next response.
const BODY_BUFFER_KEPT_MAX: usize = 16 << 10;

/// Maximum interim responses before a final one. A server that sends more never sends a final one.
const INTERIM_MAX: u8 = 32;

impl Default for Response {
    fn default() -> Self {
        Response::new(Method::Get)
    }
}

impl Response {
    /// A parser for the response to a request with `method`.
    pub fn new(method: Method) -> Self {
        Response {
            method,
            stage: Stage::Head,
            status: 0,
            keep_alive: false,
            interim: 0,
            head_bytes: 0,
            stores_head: false,
            stores_body: false,
            head: Vec::new(),
            body: Vec::new(),
            content: 0,
            partial: Vec::new(),
            checker: None,
            checks_body: false,
            is_cut: false,
            between: Between::default(),
            fault: None,
        }
    }

    /// Prepares for the next response on the same connection. The first half of a stray empty line is remembered.
    pub fn reset(&mut self, method: Method) {
        self.method = method;
        self.stage = Stage::Head;
        self.status = 0;
        self.keep_alive = false;
        self.interim = 0;
        self.head_bytes = 0;
        self.stores_head = false;
        self.stores_body = false;
        self.content = 0;
        (self.checker, self.checks_body, self.is_cut) = (None, false, false);
        self.fault = None;
        self.partial.clear();
        self.head.clear();
        self.body.clear();
        if self.body.capacity() > BODY_BUFFER_KEPT_MAX {
            self.body = Vec::new();
        }
    }

    /// Stores the unmodified final head for [`Self::head`], until the next [`Self::reset`].
    pub fn store_head(&mut self) {
        self.stores_head = true;
    }

    /// Stores the body, without the framing of chunks, for [`Self::body`], until the next [`Self::reset`]. Call before
    /// the first input.
    pub fn store_body(&mut self) {
        self.stores_body = true;
    }

    /// Verifies the response in place with `checker`: its head, and its body if `checks_body`. Until the next
    /// [`Self::reset`] or [`Self::take_checked`]. Call before the first input.
    pub fn attach_checker(&mut self, checker: Box<Checker>, checks_body: bool) {
        (self.checker, self.checks_body) = (Some(checker), checks_body);
    }

    /// Takes the checker's result at the end of the response, also of an incomplete one. For a body that was not
    /// verified the result contains only the length.
    pub fn take_checked(&mut self) -> Option<CheckedResponse> {
        let checked = self.checker.take()?.end();
        let unread = CheckedResponse { content: Content::NotCompared, body_bytes: self.body_length(), ..checked };
        Some(if self.checks_body { checked } else { unread })
    }

    /// Whether the client aborts the response here, as the checker decided.
    pub fn is_cut(&self) -> bool {
        self.is_cut
    }

    /// The final head with its empty line; empty if it is not stored or incomplete.
    pub fn head(&self) -> &[u8] {
        &self.head
    }

    /// The body received so far, if it is stored and does not exceed [`BODY_STORED_MAX`].
    pub fn body(&self) -> Option<&[u8]> {
        (self.stores_body && self.body_length() <= BODY_STORED_MAX as u64).then_some(&self.body)
    }

    /// Bytes of the body so far, without the framing of chunks.
    pub fn body_length(&self) -> u64 {
        match &self.stage {
            Stage::Chunked(chunked) => chunked.content(),
            Stage::Head | Stage::Length(_) | Stage::UntilClose | Stage::Whole => self.content,
        }
    }

    /// Bytes of complete heads so far, interim responses included.
    pub fn head_bytes(&self) -> u32 {
        self.head_bytes
    }

    /// Status of the final response; 0 until its head is complete.
    pub fn status(&self) -> u16 {
        self.status
    }

    /// Whether the response allows another request on the connection.
    pub fn keep_alive(&self) -> bool {
        self.keep_alive
    }

    /// Number of body bytes that can be discarded unread: the rest of a Content-Length. 0 for a body that is stored or
    /// verified.
    pub fn discardable(&self) -> u64 {
        match self.stage {
            Stage::Length(left) if !self.stores_body && !self.checks_body => left,
            Stage::Length(_) | Stage::Head | Stage::Chunked(_) | Stage::UntilClose | Stage::Whole => 0,
        }
    }

    /// Counts `bytes` body bytes that were discarded unread, at most [`Self::discardable`].
    pub fn discard(&mut self, bytes: u64) -> Progress {
        if let Stage::Length(left) = &mut self.stage {
            *left = left.saturating_sub(bytes);
            self.content = self.content.saturating_add(bytes);
            if *left == 0 {
                self.stage = Stage::Whole;
            }
        }
        if matches!(self.stage, Stage::Whole) { Progress::Whole { consumed: 0 } } else { Progress::More }
    }

    /// Returns how many bytes at the beginning of `bytes` belong to stray empty lines, for the caller to skip. Stray
    /// lines may follow a complete response in the same read, arrive while no response is pending, or precede the next
    /// response. A byte after them is unsolicited or begins the next response. [`Self::feed`] skips them by itself.
    pub fn skip_stray_lines(&mut self, bytes: &[u8]) -> usize {
        let is_between = match self.stage {
            Stage::Whole => true,
            Stage::Head => self.partial.is_empty(),
            Stage::Length(_) | Stage::Chunked(_) | Stage::UntilClose => false,
        };
        if is_between { self.between.skip(bytes) } else { 0 }
    }

    /// Returns the number of stray empty lines skipped since the last call.
    pub fn take_stray_lines(&mut self) -> u32 {
        self.between.take_lines()
    }

    /// Discards all state of the previous connection.
    pub fn forget_connection(&mut self) {
        (self.between, self.fault) = (Between::default(), None);
    }

    /// Why [`Self::feed`] or [`Self::close`] found the response invalid; until the next [`Self::reset`].
    pub fn fault(&self) -> Option<&::http1::Fault> {
        self.fault.as_deref()
    }

    /// Parses the next input.
    ///
    /// # Errors
    /// The input is not a valid response; the connection must be closed.
    pub fn feed(&mut self, bytes: &[u8]) -> Result<Progress, Fault> {
        self.read(bytes).map_err(|fault| self.note(fault))
    }

    /// Stores the reason of a fault.
    #[cold]
    fn note(&mut self, fault: ::http1::Fault) -> Fault {
        self.fault = Some(Box::new(fault));
        if fault.is_head_too_large() { Fault::HeadTooLarge } else { Fault::Malformed }
    }

    fn read(&mut self, bytes: &[u8]) -> Result<Progress, ::http1::Fault> {
        let mut consumed = 0;
        loop {
            let rest = &bytes[consumed..];
            match &mut self.stage {
                Stage::Head => match self.feed_head(rest)? {
                    Some(taken) => consumed += taken,
                    None => return Ok(Progress::More),
                },
                Stage::Length(left) => {
                    let taken = usize::try_from(*left).unwrap_or(usize::MAX).min(rest.len());
                    *left -= taken as u64;
                    let whole = *left == 0;
                    consumed += taken;
                    self.content += taken as u64;
                    if self.stores_body {
                        store(&mut self.body, &rest[..taken]);
                    }
                    if self.checks_body {
                        self.is_cut |= check(&mut self.checker, &rest[..taken]);
                    }
                    if !whole {
                        return Ok(Progress::More);
                    }
                    self.stage = Stage::Whole;
                }
                Stage::Chunked(chunked) => match chunked.step(rest)? {
                    Step::More => return Ok(Progress::More),
                    Step::Data(range) => {
                        consumed += range.end;
                        if self.stores_body {
                            store(&mut self.body, &rest[range.clone()]);
                        }
                        if self.checks_body && !self.is_cut {
                            self.is_cut = check(&mut self.checker, &rest[range]);
                        }
                    }
                    Step::End(taken) => {
                        consumed += taken;
                        self.content = chunked.content();
                        self.stage = Stage::Whole;
                    }
                },
                Stage::UntilClose => {
                    self.content = self.content.saturating_add(rest.len() as u64);
                    if self.stores_body {
                        store(&mut self.body, rest);
                    }
                    if self.checks_body {
                        self.is_cut |= check(&mut self.checker, rest);
                    }
                    return Ok(Progress::More);
                }
                Stage::Whole => return Ok(Progress::Whole { consumed }),
            }
        }
    }

    /// Handles the server's close of the connection.
    pub fn close(&mut self) -> AtClose {
        match self.stage {
            Stage::Head if self.partial.is_empty() && self.interim == 0 => AtClose::Nothing,
            Stage::Head => match head::parse(&self.partial, framing_method(self.method)) {
                Ok(_) => AtClose::Short,
                Err(fault) => {
                    self.note(fault);
                    AtClose::Malformed
                }
            },
            Stage::Length(_) | Stage::Chunked(_) => AtClose::Short,
            Stage::UntilClose | Stage::Whole => AtClose::Whole,
        }
    }

    /// Returns the bytes consumed if the head is complete, or `None` if it is not and all input was consumed.
    fn feed_head(&mut self, bytes: &[u8]) -> Result<Option<usize>, ::http1::Fault> {
        if self.partial.is_empty() {
            // Nearly every head arrives in one piece and is parsed in place.
            let stray = self.between.skip(bytes);
            let bytes = &bytes[stray..];
            if self.between.has_open_cr() && !bytes.is_empty() {
                return Err(::http1::Fault::new(Reason::StrayCr, b""));
            }
            let within_limit = &bytes[..bytes.len().min(HEAD_BYTES_MAX)];
            if let Some(head) = head::parse(within_limit, framing_method(self.method))? {
                return self.begin_body(&head, &within_limit[..head.length]).map(|()| Some(stray + head.length));
            }
            return self.store_partial(bytes);
        }
        let had = self.partial.len();
        let room = HEAD_BYTES_MAX - had;
        let added = &bytes[..bytes.len().min(room)];
        self.partial.extend_from_slice(added);
        // A head can only end with a line. So a head that arrives slowly is parsed once per line, not once per byte.
        let worth_parsing = had < head::PREFIX.len() || added.contains(&b'\n') || self.partial.len() == HEAD_BYTES_MAX;
        if worth_parsing && let Some(head) = head::parse(&self.partial, framing_method(self.method))? {
            let partial = std::mem::take(&mut self.partial);
            let outcome = self.begin_body(&head, &partial[..head.length]);
            // The buffer is reused for the next head.
            self.partial = partial;
            self.partial.clear();
            return outcome.map(|()| Some(head.length - had));
        }
        if self.partial.len() == HEAD_BYTES_MAX { Err(too_long()) } else { Ok(None) }
    }

    fn store_partial(&mut self, bytes: &[u8]) -> Result<Option<usize>, ::http1::Fault> {
        if bytes.len() >= HEAD_BYTES_MAX {
            return Err(too_long());
        }
        self.partial.extend_from_slice(bytes);
        Ok(None)
    }

    fn begin_body(&mut self, head: &head::Head, bytes: &[u8]) -> Result<(), ::http1::Fault> {
        self.head_bytes = self.head_bytes.saturating_add(head.length as u32);
        if head.is_interim() {
            self.interim += 1;
            let is_last = self.interim > INTERIM_MAX;
            return if is_last { Err(::http1::Fault::new(Reason::TooManyInterim, b"32")) } else { Ok(()) };
        }
        if self.stores_head || self.checker.is_some() {
            self.store_and_check_head(head.is_folded, bytes);
        }
        self.status = head.status;
        self.keep_alive = head.keep_alive;
        self.stage = match head.body {
            Body::None | Body::Length(0) => Stage::Whole,
            Body::Length(length) => Stage::Length(length),
            Body::Chunked => Stage::Chunked(Chunked::new()),
            // Only a response to CONNECT or Upgrade opens a tunnel, and the load engine sends neither.
            Body::UntilClose | Body::Tunnel => Stage::UntilClose,
        };
        Ok(())
    }

    /// Stores and verifies a head, with folded lines joined.
    fn store_and_check_head(&mut self, is_folded: bool, bytes: &[u8]) {
        let mut bytes = Cow::Borrowed(bytes);
        if is_folded {
            head::unfold(bytes.to_mut());
        }
        if self.stores_head {
            self.head.extend_from_slice(&bytes);
        }
        if let Some(checker) = &mut self.checker {
            checker.head(&bytes);
        }
    }
}

/// The method, as far as the framing of its response depends on it.
fn framing_method(method: Method) -> RequestMethod {
    if method == Method::Head { RequestMethod::Head } else { RequestMethod::Other }
}

#[cold]
fn too_long() -> ::http1::Fault {
    ::http1::Fault::new(Reason::HeadTooLong, HEAD_BYTES_MAX.to_string().as_bytes())
}

/// Verifies a piece of a body; true if the client aborts the response here.
fn check(checker: &mut Option<Box<Checker>>, piece: &[u8]) -> bool {
    checker.as_mut().is_some_and(|checker| checker.body(piece) == ReadDirective::Abort)
}

/// Adds to a stored body, up to the limit.
fn store(body: &mut Vec<u8>, more: &[u8]) {
    let room = BODY_STORED_MAX.saturating_sub(body.len());
    body.extend_from_slice(&more[..more.len().min(room)]);
}
