//! The way back to one waiting client, and the body it sends, as an exchange sees them.

use std::cell::Cell;
use std::collections::VecDeque;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use tokio::sync::Semaphore;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::time::Instant;

use super::front::Back;
use super::upstream::Failure;
use super::{BODY_WINDOW, Event, Ticket};
use crate::cache::Finding;

/// The client is gone: nobody wants the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Gone;

/// One waiting client. Everything said here becomes an [`Event`] for its worker. Dropped before the end of the answer, it
/// says so: an answer is never silently short.
#[derive(Debug)]
pub(crate) struct Client {
    ticket: Ticket,
    back: Back,
    /// Bytes that may be sent before the client takes some; closed when it is gone.
    window: Arc<Semaphore>,
    /// It wants no content: HEAD.
    head_only: bool,
    said: Said,
}

/// The way of interim responses, which go before the answer; how many is bounded by [`super::interim`].
#[derive(Clone, Debug)]
pub(crate) struct Hints {
    ticket: Ticket,
    back: Back,
    window: Arc<Semaphore>,
}

impl Hints {
    /// An interim response: its status, and its field lines, each with its CRLF.
    pub(super) fn tell(&self, status: u16, fields: Bytes) {
        if !self.window.is_closed() {
            self.back.tell(self.ticket, Event::Interim { status, fields });
        }
    }
}

/// How far an answer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Said {
    Nothing,
    Head { bodyless: bool },
    Everything,
}

impl Client {
    pub(super) fn new(ticket: Ticket, back: Back, window: Arc<Semaphore>, head_only: bool) -> Self {
        Client { ticket, back, window, head_only, said: Said::Nothing }
    }

    /// A way to send hints before the answer: for as long as this client has no answer.
    pub(crate) fn hints(&self) -> Hints {
        Hints { ticket: self.ticket, back: self.back.clone(), window: Arc::clone(&self.window) }
    }

    /// The answer begins: once. `fields` and `length` as in [`Event::Head`].
    ///
    /// # Errors
    /// The client is gone.
    pub(crate) async fn head(
        &mut self,
        status: u16,
        fields: Bytes,
        length: Option<u64>,
        finding: Finding,
    ) -> Result<(), Gone> {
        self.present()?;
        let bodyless = self.head_only || matches!(status, 204 | 304);
        self.back.tell(self.ticket, Event::Head { status, fields, length, finding });
        self.said = Said::Head { bodyless };
        Ok(())
    }

    /// Content, as fast as the client takes it.
    ///
    /// # Errors
    /// The client is gone.
    pub(crate) async fn body(&mut self, mut bytes: Bytes) -> Result<(), Gone> {
        if !matches!(self.said, Said::Head { bodyless: false }) {
            return self.present();
        }
        while !bytes.is_empty() {
            let piece = bytes.split_to(bytes.len().min(PIECE));
            let room = self.window.acquire_many(piece.len() as u32).await.map_err(|_| Gone)?;
            room.forget();
            self.back.tell(self.ticket, Event::Body(piece));
        }
        Ok(())
    }

    /// The answer is whole.
    pub(crate) fn end(&mut self) {
        self.finish(Event::End);
    }

    /// The answer will not become whole.
    pub(crate) fn broken(&mut self) {
        self.finish(Event::Broken);
    }

    /// Whether it still waits.
    ///
    /// # Errors
    /// It does not.
    pub(crate) fn present(&self) -> Result<(), Gone> {
        if self.window.is_closed() { Err(Gone) } else { Ok(()) }
    }

    fn finish(&mut self, event: Event) {
        if self.said != Said::Everything {
            self.said = Said::Everything;
            if self.present().is_ok() {
                self.back.tell(self.ticket, event);
            }
        }
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        if self.said == Said::Nothing && self.present().is_ok() {
            // A fault of ours: the task that should have answered is gone.
            let (status, fields, text) = Failure::lost().page();
            let length = Some(text.len() as u64);
            self.back.tell(self.ticket, Event::Head { status, fields, length, finding: Finding::NONE });
            if !self.head_only {
                self.back.tell(self.ticket, Event::Body(text));
            }
            self.finish(Event::End);
        } else {
            self.finish(Event::Broken);
        }
    }
}

/// A piece of a request's body on its way to the upstream.
#[derive(Debug)]
pub(super) enum Piece {
    Bytes(Bytes),
    End,
}

/// The body of a request, as the client sends it. The client is told to go on as the upstream takes it.
#[derive(Debug)]
pub(crate) struct RequestBody {
    /// Where its pieces come from; nowhere when there is none.
    source: Option<(Ticket, Back, UnboundedReceiver<Piece>)>,
    /// Bytes still to come, when the client said how many.
    left: Option<u64>,
    opened: bool,
    /// What came before its turn.
    ahead: VecDeque<Piece>,
    /// The bytes that are set aside for that, and those of all.
    aside: usize,
    aside_of_all: Ahead,
    progress: Progress,
}

/// Bytes that are set aside for what clients send before their turn, over all exchanges with an upstream.
#[derive(Clone, Debug, Default)]
pub(super) struct Ahead(Rc<Cell<usize>>);

/// When something last moved, shared between the body and who waits for the answer.
#[derive(Clone, Debug)]
pub(super) struct Progress(Rc<Cell<Instant>>);

impl Progress {
    pub(super) fn new() -> Self {
        Progress(Rc::new(Cell::new(Instant::now())))
    }

    pub(super) fn touch(&self) {
        self.0.set(Instant::now());
    }

    pub(super) fn last(&self) -> Instant {
        self.0.get()
    }
}

impl RequestBody {
    /// `length`: what the client said, not 0; `None` for a chunked body.
    pub(super) fn new(ticket: Ticket, back: Back, pieces: UnboundedReceiver<Piece>, length: Option<u64>) -> Self {
        let mut body = RequestBody::none();
        (body.source, body.left) = (Some((ticket, back, pieces)), length);
        body
    }

    /// No body at all.
    pub(super) fn none() -> Self {
        RequestBody {
            source: None,
            left: Some(0),
            opened: false,
            ahead: VecDeque::new(),
            aside: 0,
            aside_of_all: Ahead::default(),
            progress: Progress::new(),
        }
    }

    /// Lets the client begin, and takes in all of a small body, or the first [`BODY_WINDOW`] of a large one: so a client that
    /// is slow with it holds no place at the upstream meanwhile. Where all together have sent so much ahead that there is no
    /// room for more, the body comes when its turn has come, as large ones do.
    pub(super) async fn gather(&mut self, of_all: &Ahead) {
        let most = self.left.map_or(BODY_WINDOW, |left| usize::try_from(left).unwrap_or(usize::MAX).min(BODY_WINDOW));
        if self.source.is_none() || of_all.0.get() + most > AHEAD_MAX {
            return;
        }
        of_all.0.set(of_all.0.get() + most);
        (self.aside, self.aside_of_all) = (most, of_all.clone());
        self.open();
        let mut came = 0;
        while came < BODY_WINDOW
            && let Some((_, _, pieces)) = &mut self.source
            && let Some(piece) = pieces.recv().await
        {
            let ended = match &piece {
                Piece::Bytes(bytes) => {
                    came += bytes.len();
                    false
                }
                Piece::End => true,
            };
            self.ahead.push_back(piece);
            if ended {
                break;
            }
        }
    }

    /// So much of what was set aside is free again.
    fn release(&mut self, bytes: usize) {
        let bytes = bytes.min(self.aside);
        self.aside -= bytes;
        self.aside_of_all.0.set(self.aside_of_all.0.get() - bytes);
    }

    /// Bytes still to come; `None` when the client did not say.
    pub(super) fn length(&self) -> Option<u64> {
        self.left
    }

    /// The upstream is about to be asked: the client may begin. Later calls do nothing more.
    pub(super) fn open(&mut self) {
        if !self.opened
            && let Some((ticket, back, _)) = &self.source
        {
            back.tell(*ticket, Event::Room(BODY_WINDOW));
        }
        self.opened = true;
        self.progress.touch();
    }

    pub(super) fn progress(&self) -> Progress {
        self.progress.clone()
    }

    /// The next piece; `None` at the end.
    pub(super) async fn next(&mut self) -> Option<Result<Bytes, BodyCut>> {
        std::future::poll_fn(|cx| self.poll_next(cx)).await
    }

    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, BodyCut>>> {
        let Some((_, _, pieces)) = &mut self.source else { return Poll::Ready(None) };
        let piece = match self.ahead.pop_front() {
            None => ready!(pieces.poll_recv(cx)),
            some => some,
        };
        if let Some(Piece::Bytes(bytes)) = &piece {
            self.release(bytes.len());
        }
        self.progress.touch();
        let Some((ticket, back, _)) = &self.source else { return Poll::Ready(None) };
        match piece {
            // A worker that passes on more than was announced has parsed wrongly: never let it reach the upstream.
            Some(Piece::Bytes(bytes)) if self.left.is_none_or(|left| left >= bytes.len() as u64) => {
                self.left = self.left.map(|left| left - bytes.len() as u64);
                back.tell(*ticket, Event::Room(bytes.len()));
                Poll::Ready(Some(Ok(bytes)))
            }
            Some(Piece::End) if self.left.is_none_or(|left| left == 0) => {
                self.source = None;
                self.left = Some(0);
                Poll::Ready(None)
            }
            Some(_) | None => {
                self.source = None;
                Poll::Ready(Some(Err(BodyCut)))
            }
        }
    }
}

impl Drop for RequestBody {
    fn drop(&mut self) {
        self.release(usize::MAX);
    }
}

/// The client's body broke off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the client's body broke off")]
pub(crate) struct BodyCut;

impl Body for RequestBody {
    type Data = Bytes;
    type Error = BodyCut;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyCut>>> {
        self.poll_next(cx).map(|piece| piece.map(|outcome| outcome.map(Frame::data)))
    }

    fn is_end_stream(&self) -> bool {
        self.source.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        self.left.map_or_else(SizeHint::default, SizeHint::with_exact)
    }
}

/// What may be set aside at an upstream for bodies before their turn: those of 256 clients, or of more with small ones.
const AHEAD_MAX: usize = 16 << 20;
/// Bytes told in one event: small enough that a window holds several.
pub(super) const PIECE: usize = 64 << 10;
