//! The client of an exchange: events to its worker, and its request body.

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

use super::handles::WorkerHandle;
use super::upstream::Failure;
use super::{BODY_WINDOW, Event, Ticket};
use crate::cache::Finding;

/// The client has disconnected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Disconnected;

/// One waiting client. Each method sends an [`Event`] to its worker. Dropping it before the end reports a broken
/// response: a response is never silently truncated.
#[derive(Debug)]
pub(crate) struct Client {
    ticket: Ticket,
    back: WorkerHandle,
    /// Bytes that may be sent before the client reads more; closed when the client disconnects.
    window: Arc<Semaphore>,
    /// HEAD: the client gets no content.
    head_only: bool,
    stage: ResponseStage,
}

/// Sends interim responses before the final one; [`super::interim`] limits their number.
#[derive(Clone, Debug)]
pub(crate) struct Hints {
    ticket: Ticket,
    back: WorkerHandle,
    window: Arc<Semaphore>,
}

impl Hints {
    /// Sends an interim response: status, and field lines with CRLF.
    pub(super) fn send_interim(&self, status: u16, fields: Bytes) {
        if !self.window.is_closed() {
            self.back.send_event(self.ticket, Event::Interim { status, fields });
        }
    }
}

/// How much of the response was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ResponseStage {
    Nothing,
    Head { bodyless: bool },
    Everything,
}

impl Client {
    pub(super) fn new(ticket: Ticket, back: WorkerHandle, window: Arc<Semaphore>, head_only: bool) -> Self {
        Client { ticket, back, window, head_only, stage: ResponseStage::Nothing }
    }

    /// A sender for interim responses, for as long as this client has no response.
    pub(crate) fn hints(&self) -> Hints {
        Hints { ticket: self.ticket, back: self.back.clone(), window: Arc::clone(&self.window) }
    }

    /// Sends the head, once. `fields` and `length` as in [`Event::Head`].
    ///
    /// # Errors
    /// The client has disconnected.
    pub(crate) async fn head(
        &mut self,
        status: u16,
        fields: Bytes,
        length: Option<u64>,
        finding: Finding,
    ) -> Result<(), Disconnected> {
        self.present()?;
        let bodyless = self.head_only || matches!(status, 204 | 304);
        self.back.send_event(self.ticket, Event::Head { status, fields, length, finding });
        self.stage = ResponseStage::Head { bodyless };
        Ok(())
    }

    /// Sends content, as fast as the client reads it.
    ///
    /// # Errors
    /// The client has disconnected.
    pub(crate) async fn body(&mut self, mut bytes: Bytes) -> Result<(), Disconnected> {
        if !matches!(self.stage, ResponseStage::Head { bodyless: false }) {
            return self.present();
        }
        while !bytes.is_empty() {
            let piece = bytes.split_to(bytes.len().min(PIECE));
            let room = self.window.acquire_many(piece.len() as u32).await.map_err(|_| Disconnected)?;
            room.forget();
            self.back.send_event(self.ticket, Event::Body(piece));
        }
        Ok(())
    }

    /// Ends a complete response.
    pub(crate) fn end(&mut self) {
        self.finish(Event::End);
    }

    /// Ends an incomplete response.
    pub(crate) fn broken(&mut self) {
        self.finish(Event::Broken);
    }

    /// Checks the connection.
    ///
    /// # Errors
    /// The client has disconnected.
    pub(crate) fn present(&self) -> Result<(), Disconnected> {
        if self.window.is_closed() { Err(Disconnected) } else { Ok(()) }
    }

    fn finish(&mut self, event: Event) {
        if self.stage != ResponseStage::Everything {
            self.stage = ResponseStage::Everything;
            if self.present().is_ok() {
                self.back.send_event(self.ticket, event);
            }
        }
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        if self.stage == ResponseStage::Nothing && self.present().is_ok() {
            // An internal error: the task of the exchange ended without a response.
            let (status, fields, text) = Failure::lost().page();
            let length = Some(text.len() as u64);
            self.back.send_event(self.ticket, Event::Head { status, fields, length, finding: Finding::NONE });
            if !self.head_only {
                self.back.send_event(self.ticket, Event::Body(text));
            }
            self.finish(Event::End);
        } else {
            self.finish(Event::Broken);
        }
    }
}

/// A piece of a request body.
#[derive(Debug)]
pub(super) enum Piece {
    Bytes(Bytes),
    End,
}

/// The request body. The client gets permission to send as the upstream reads.
#[derive(Debug)]
pub(crate) struct RequestBody {
    /// The source of its pieces; `None` without a body.
    source: Option<(Ticket, WorkerHandle, UnboundedReceiver<Piece>)>,
    /// Remaining bytes, if the client announced a length.
    left: Option<u64>,
    opened: bool,
    /// Pieces received while the request was queued.
    ahead: VecDeque<Piece>,
    /// Reserved bytes for these pieces, and the shared counter.
    aside: usize,
    aside_of_all: BufferedBytes,
    progress: Progress,
}

/// Reserved bytes for early request bodies, over all exchanges with an upstream.
#[derive(Clone, Debug, Default)]
pub(super) struct BufferedBytes(Rc<Cell<usize>>);

/// Time of the last progress, shared by the body and the task that waits for the response.
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
    /// `length`: announced by the client, not 0; `None` for a chunked body.
    pub(super) fn new(
        ticket: Ticket,
        back: WorkerHandle,
        pieces: UnboundedReceiver<Piece>,
        length: Option<u64>,
    ) -> Self {
        let mut body = RequestBody::none();
        (body.source, body.left) = (Some((ticket, back, pieces)), length);
        body
    }

    /// No body.
    pub(super) fn none() -> Self {
        RequestBody {
            source: None,
            left: Some(0),
            opened: false,
            ahead: VecDeque::new(),
            aside: 0,
            aside_of_all: BufferedBytes::default(),
            progress: Progress::new(),
        }
    }

    /// Lets the client begin, and buffers a small body completely or the first [`BODY_WINDOW`] of a large one: a slow
    /// client then occupies no slot at the upstream. When the shared limit is reached, the body is read after the
    /// request has its slot.
    pub(super) async fn buffer_body(&mut self, of_all: &BufferedBytes) {
        let most = self.left.map_or(BODY_WINDOW, |left| usize::try_from(left).unwrap_or(usize::MAX).min(BODY_WINDOW));
        if self.source.is_none() || of_all.0.get() + most > BUFFERED_BODIES_MAX {
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

    /// Releases reserved bytes.
    fn release(&mut self, bytes: usize) {
        let bytes = bytes.min(self.aside);
        self.aside -= bytes;
        self.aside_of_all.0.set(self.aside_of_all.0.get() - bytes);
    }

    /// Remaining bytes; `None` for a chunked body.
    pub(super) fn length(&self) -> Option<u64> {
        self.left
    }

    /// Just before the upstream request: lets the client begin. Later calls have no effect.
    pub(super) fn open(&mut self) {
        if !self.opened
            && let Some((ticket, back, _)) = &self.source
        {
            back.send_event(*ticket, Event::Room(BODY_WINDOW));
        }
        self.opened = true;
        self.progress.touch();
    }

    pub(super) fn progress(&self) -> Progress {
        self.progress.clone()
    }

    /// The next piece; `None` at the end.
    pub(super) async fn next(&mut self) -> Option<Result<Bytes, IncompleteBody>> {
        std::future::poll_fn(|cx| self.poll_next(cx)).await
    }

    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, IncompleteBody>>> {
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
            // More bytes than announced are a parsing error of the worker: they must not reach the upstream.
            Some(Piece::Bytes(bytes)) if self.left.is_none_or(|left| left >= bytes.len() as u64) => {
                self.left = self.left.map(|left| left - bytes.len() as u64);
                back.send_event(*ticket, Event::Room(bytes.len()));
                Poll::Ready(Some(Ok(bytes)))
            }
            Some(Piece::End) if self.left.is_none_or(|left| left == 0) => {
                self.source = None;
                self.left = Some(0);
                Poll::Ready(None)
            }
            Some(_) | None => {
                self.source = None;
                Poll::Ready(Some(Err(IncompleteBody)))
            }
        }
    }
}

impl Drop for RequestBody {
    fn drop(&mut self) {
        self.release(usize::MAX);
    }
}

/// The client's body is incomplete.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the client's body is incomplete")]
pub(crate) struct IncompleteBody;

impl Body for RequestBody {
    type Data = Bytes;
    type Error = IncompleteBody;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, IncompleteBody>>> {
        self.poll_next(cx).map(|piece| piece.map(|outcome| outcome.map(Frame::data)))
    }

    fn is_end_stream(&self) -> bool {
        self.source.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        self.left.map_or_else(SizeHint::default, SizeHint::with_exact)
    }
}

/// Limit of early request bodies per upstream: those of 256 clients, or of more with small ones.
const BUFFERED_BODIES_MAX: usize = 16 << 20;
/// Bytes of one event: small enough that a window holds several.
pub(super) const PIECE: usize = 64 << 10;
