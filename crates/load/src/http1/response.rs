//! One response, from its first byte to its last.

use std::borrow::Cow;

use ::http1::chunked::ByClient;
use ::http1::response::{self as head, HEAD_BYTES_MAX};
use ::http1::{Asked, Between, Body, Chunked, Reason, Step};
use polymix::{CheckedResponse, Checker, Content, ReadDirective};
use schema::Method;

/// The reader of one response; [`Response::reset`] makes it ready for the next without giving its memory back.
#[derive(Debug)]
pub struct Response {
    method: Method,
    stage: Stage,
    status: u16,
    keep_alive: bool,
    interim: u8,
    /// Bytes of heads so far.
    head_bytes: u32,
    /// The final head is wanted as it came.
    keeps_head: bool,
    /// The body is wanted, without its framing.
    keeps_body: bool,
    /// The final head, once it is whole, if it is wanted.
    head: Vec<u8>,
    /// What has come of the body, if it is wanted and not too long.
    body: Vec<u8>,
    /// Bytes of the body so far, its framing not counted, but for chunks still being read.
    content: u64,
    /// The part of a head that has come so far, when it did not come in one piece.
    partial: Vec<u8>,
    /// Looks at the response where it lies.
    checker: Option<Box<Checker>>,
    /// It looks at the body as well.
    checks_body: bool,
    /// It wants no more: the response is to be left here.
    is_cut: bool,
    /// Stray empty lines before the response, or behind it.
    between: Between,
    /// Why what came is not a response.
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

/// How far a response has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// All bytes were taken and more must follow.
    More,
    /// The response is complete; its last byte was `consumed` bytes into what was fed.
    Whole {
        /// Bytes of the feed that belonged to it.
        consumed: usize,
    },
}

/// What kind of fault it is that what came is not a response; [`Response::fault`] has the reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Not HTTP/1, or its framing is broken.
    Malformed,
    /// The head is over [`HEAD_BYTES_MAX`] or has too many header lines, or interim responses do not end.
    HeadTooLarge,
}

/// What the server's closing makes of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AtClose {
    /// The close ended the body: the response is complete.
    Whole,
    /// Not a byte had come.
    Nothing,
    /// The close came too early.
    Short,
    /// What had come was no response at all.
    Malformed,
}

/// Longest body that is kept for the checks of a workload and for values taken from it; of a longer one only the length
/// is known. With ten thousand connections at this limit it is 10 GiB; pages and API answers are far below.
pub const BODY_KEPT_MAX: usize = 1 << 20;

/// What a reader keeps of its memory from one response to the next.
const MEMORY_KEPT: usize = 16 << 10;

/// Interim responses before a final one. A server that sends more is not going to answer.
const INTERIM_MAX: u8 = 32;

impl Default for Response {
    fn default() -> Self {
        Response::new(Method::Get)
    }
}

impl Response {
    /// Ready for the response to a request with `method`.
    pub fn new(method: Method) -> Self {
        Response {
            method,
            stage: Stage::Head,
            status: 0,
            keep_alive: false,
            interim: 0,
            head_bytes: 0,
            keeps_head: false,
            keeps_body: false,
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

    /// Ready for the next response on the same connection: the first half of a stray empty line is remembered.
    pub fn reset(&mut self, method: Method) {
        self.method = method;
        self.stage = Stage::Head;
        self.status = 0;
        self.keep_alive = false;
        self.interim = 0;
        self.head_bytes = 0;
        self.keeps_head = false;
        self.keeps_body = false;
        self.content = 0;
        (self.checker, self.checks_body, self.is_cut) = (None, false, false);
        self.fault = None;
        self.partial.clear();
        self.head.clear();
        self.body.clear();
        if self.body.capacity() > MEMORY_KEPT {
            self.body = Vec::new();
        }
    }

    /// Has the final head kept as it comes, for [`Self::head`]; until the next [`Self::reset`].
    pub fn keep_head(&mut self) {
        self.keeps_head = true;
    }

    /// Has the body kept as it comes, the framing of chunks removed, for [`Self::body`]; until the next
    /// [`Self::reset`]. To be called before the first byte is fed.
    pub fn keep_body(&mut self) {
        self.keeps_body = true;
    }

    /// Has `checker` look at the response where it lies: at its head, and at its body if `checks_body`. Until the next
    /// [`Self::reset`], or until [`Self::seen`]. To be called before the first byte is fed.
    pub fn look(&mut self, checker: Box<Checker>, checks_body: bool) {
        (self.checker, self.checks_body) = (Some(checker), checks_body);
    }

    /// What the checker saw, once, at the end of the response however it ended. A body that it did not look at is told by
    /// its length alone.
    pub fn seen(&mut self) -> Option<CheckedResponse> {
        let seen = self.checker.take()?.end();
        let unread = CheckedResponse { content: Content::NotCompared, body_bytes: self.body_length(), ..seen };
        Some(if self.checks_body { seen } else { unread })
    }

    /// Whether the checker wants no more: the client leaves the response here.
    pub fn is_cut(&self) -> bool {
        self.is_cut
    }

    /// The final head, its empty line included; empty if it was not asked for or is not whole.
    pub fn head(&self) -> &[u8] {
        &self.head
    }

    /// What has come of the body, if it was asked for and is not over [`BODY_KEPT_MAX`].
    pub fn body(&self) -> Option<&[u8]> {
        (self.keeps_body && self.body_length() <= BODY_KEPT_MAX as u64).then_some(&self.body)
    }

    /// Bytes of the body so far, the framing of chunks not counted.
    pub fn body_length(&self) -> u64 {
        match &self.stage {
            Stage::Chunked(chunked) => chunked.content(),
            Stage::Head | Stage::Length(_) | Stage::UntilClose | Stage::Whole => self.content,
        }
    }

    /// Bytes of heads read so far, those of interim responses included; only whole heads count.
    pub fn head_bytes(&self) -> u32 {
        self.head_bytes
    }

    /// Status of the final response; 0 until its head is whole.
    pub fn status(&self) -> u16 {
        self.status
    }

    /// Whether the connection may serve another request after this response, as far as the response says.
    pub fn keep_alive(&self) -> bool {
        self.keep_alive
    }

    /// Body bytes that can be thrown away unread because they are certain to come: the rest of a Content-Length. None
    /// of a body that is kept or looked at.
    pub fn discardable(&self) -> u64 {
        match self.stage {
            Stage::Length(left) if !self.keeps_body && !self.checks_body => left,
            Stage::Length(_) | Stage::Head | Stage::Chunked(_) | Stage::UntilClose | Stage::Whole => 0,
        }
    }

    /// Takes note of `bytes` body bytes thrown away unread, at most [`Self::discardable`].
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

    /// How many bytes at the beginning of `bytes` are stray empty lines, to be left out: of what follows a whole
    /// response in the same read, of what comes while none is awaited, and of the first bytes of the next one. Any byte
    /// behind them was sent for no request, or begins the next response. [`Self::feed`] leaves them out by itself.
    pub fn skip_stray_lines(&mut self, bytes: &[u8]) -> usize {
        let is_between = match self.stage {
            Stage::Whole => true,
            Stage::Head => self.partial.is_empty(),
            Stage::Length(_) | Stage::Chunked(_) | Stage::UntilClose => false,
        };
        if is_between { self.between.skip(bytes) } else { 0 }
    }

    /// Stray empty lines skipped since the last call.
    pub fn take_stray_lines(&mut self) -> u32 {
        self.between.take_lines()
    }

    /// The connection is another one: nothing that came on the one before counts.
    pub fn forget_connection(&mut self) {
        (self.between, self.fault) = (Between::default(), None);
    }

    /// Why [`Self::feed`] or [`Self::close`] found what came to be no response; until the next [`Self::reset`].
    pub fn fault(&self) -> Option<&::http1::Fault> {
        self.fault.as_deref()
    }

    /// Reads the next bytes.
    ///
    /// # Errors
    /// What came is not a response; the connection is of no further use.
    pub fn feed(&mut self, bytes: &[u8]) -> Result<Progress, Fault> {
        self.read(bytes).map_err(|fault| self.note(fault))
    }

    /// Keeps the reason.
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
                    if self.keeps_body {
                        keep(&mut self.body, &rest[..taken]);
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
                        if self.keeps_body {
                            keep(&mut self.body, &rest[range.clone()]);
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
                    if self.keeps_body {
                        keep(&mut self.body, rest);
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

    /// The server has closed its side.
    pub fn close(&mut self) -> AtClose {
        match self.stage {
            Stage::Head if self.partial.is_empty() && self.interim == 0 => AtClose::Nothing,
            Stage::Head => match head::parse(&self.partial, asked(self.method)) {
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

    /// Bytes taken when the head is whole; `None` when all were taken and it is not.
    fn feed_head(&mut self, bytes: &[u8]) -> Result<Option<usize>, ::http1::Fault> {
        if self.partial.is_empty() {
            // Nearly every head comes in one piece and is read where it lies.
            let stray = self.between.skip(bytes);
            let bytes = &bytes[stray..];
            if self.between.has_open_cr() && !bytes.is_empty() {
                return Err(::http1::Fault::new(Reason::StrayCr, b""));
            }
            let within_limit = &bytes[..bytes.len().min(HEAD_BYTES_MAX)];
            if let Some(head) = head::parse(within_limit, asked(self.method))? {
                return self.begin_body(&head, &within_limit[..head.length]).map(|()| Some(stray + head.length));
            }
            return self.keep_partial(bytes);
        }
        let had = self.partial.len();
        let room = HEAD_BYTES_MAX - had;
        let added = &bytes[..bytes.len().min(room)];
        self.partial.extend_from_slice(added);
        // Only a line's end can end a head, so that a trickle is parsed once a line and not once a byte.
        let worth_parsing = had < head::PREFIX.len() || added.contains(&b'\n') || self.partial.len() == HEAD_BYTES_MAX;
        if worth_parsing && let Some(head) = head::parse(&self.partial, asked(self.method))? {
            let partial = std::mem::take(&mut self.partial);
            let outcome = self.begin_body(&head, &partial[..head.length]);
            // Its memory serves the next head.
            self.partial = partial;
            self.partial.clear();
            return outcome.map(|()| Some(head.length - had));
        }
        if self.partial.len() == HEAD_BYTES_MAX { Err(too_long()) } else { Ok(None) }
    }

    fn keep_partial(&mut self, bytes: &[u8]) -> Result<Option<usize>, ::http1::Fault> {
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
        if self.keeps_head || self.checker.is_some() {
            self.keep_and_check_head(head.is_folded, bytes);
        }
        self.status = head.status;
        self.keep_alive = head.keep_alive;
        self.stage = match head.body {
            Body::None | Body::Length(0) => Stage::Whole,
            Body::Length(length) => Stage::Length(length),
            Body::Chunked => Stage::Chunked(Chunked::new()),
            // A tunnel is not asked for here.
            Body::UntilClose | Body::Tunnel => Stage::UntilClose,
        };
        Ok(())
    }

    /// Folded lines are one line to who reads the fields.
    fn keep_and_check_head(&mut self, is_folded: bool, bytes: &[u8]) {
        let mut bytes = Cow::Borrowed(bytes);
        if is_folded {
            head::unfold(bytes.to_mut());
        }
        if self.keeps_head {
            self.head.extend_from_slice(&bytes);
        }
        if let Some(checker) = &mut self.checker {
            checker.head(&bytes);
        }
    }
}

/// What of a request its response depends on.
fn asked(method: Method) -> Asked {
    if method == Method::Head { Asked::Head } else { Asked::Other }
}

#[cold]
fn too_long() -> ::http1::Fault {
    ::http1::Fault::new(Reason::HeadTooLong, HEAD_BYTES_MAX.to_string().as_bytes())
}

/// Has a piece of a body looked at; true if the client is to leave here.
fn check(checker: &mut Option<Box<Checker>>, piece: &[u8]) -> bool {
    checker.as_mut().is_some_and(|checker| checker.body(piece) == ReadDirective::Abort)
}

/// Adds to a kept body, no further than the limit.
fn keep(body: &mut Vec<u8>, more: &[u8]) {
    let room = BODY_KEPT_MAX.saturating_sub(body.len());
    body.extend_from_slice(&more[..more.len().min(room)]);
}
