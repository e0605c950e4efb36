//! An answer while it comes: filled by one task, read by all its clients.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::Notify;

use super::flight::Sharing;
use super::{Cached, FIELDS_MAX};
use crate::cache::{Finding, Head, Key, Rendered, Stored, Unsent};
use crate::dynamic::client::Client;
use crate::dynamic::upstream::{AnswerBody, Broken};
use crate::request::{Parsed, parse_within};

/// The body of an answer that may be stored, as far as it came. At most as much as one stored answer may have.
#[derive(Debug)]
pub(super) struct Filling {
    pub(super) head: Arc<Head>,
    /// Of the whole body, as the upstream told it.
    pub(super) length: Option<u64>,
    pieces: RefCell<Vec<Bytes>>,
    end: RefCell<Option<End>>,
    changed: Notify,
    /// Somebody reads who may take the rest over.
    has_first: Cell<bool>,
    /// Counts the pieces as long as somebody may read them.
    unsent: Unsent,
}

/// How a body ended.
#[derive(Debug)]
enum End {
    /// Whole.
    Whole(Stored),
    /// Too large to be kept. What follows `pieces` is for the first client alone, who takes it from here.
    Overflow(Option<Box<AnswerBody>>),
    /// The upstream broke off.
    Broken,
}

impl Filling {
    pub(super) fn new(head: Arc<Head>, length: Option<u64>, unsent: Unsent) -> Self {
        Filling {
            head,
            length,
            pieces: RefCell::default(),
            end: RefCell::default(),
            changed: Notify::new(),
            has_first: Cell::new(false),
            unsent,
        }
    }

    /// Tells `client` the head, and gives it the part of the body that `rendered` says, as it comes.
    pub(super) async fn stream(&self, rendered: &Rendered, fields: Bytes, finding: Finding, mut client: Client) {
        let is_first = !self.has_first.replace(true);
        if client.head(rendered.status, fields, rendered.length, finding).await.is_err() {
            return;
        }
        if rendered.body.is_empty() {
            return client.end();
        }
        let mut at = 0;
        loop {
            let piece = self.pieces.borrow().get(at).cloned();
            if let Some(piece) = piece {
                at += 1;
                if client.body(piece).await.is_err() {
                    return;
                }
                continue;
            }
            enum Now {
                Over,
                Cut,
                Rest(Box<AnswerBody>),
                Wait,
            }
            let now = match &mut *self.end.borrow_mut() {
                Some(End::Whole(_)) => Now::Over,
                Some(End::Overflow(rest)) if is_first => rest.take().map_or(Now::Cut, Now::Rest),
                Some(End::Overflow(_) | End::Broken) => Now::Cut,
                None => Now::Wait,
            };
            match now {
                Now::Over => return client.end(),
                Now::Cut => return client.broken(),
                Now::Rest(rest) => return pass_rest(rest, client).await,
                // Nothing else runs on this thread between the look and the wait.
                Now::Wait => self.changed.notified().await,
            }
        }
    }

    /// Waits for all of it; `None` if it turned out too large to be kept.
    ///
    /// # Errors
    /// The upstream broke off.
    pub(super) async fn whole(&self) -> Result<Option<Stored>, Broken> {
        loop {
            match &*self.end.borrow() {
                Some(End::Whole(stored)) => return Ok(Some(stored.clone())),
                Some(End::Overflow(_)) => return Ok(None),
                Some(End::Broken) => return Err(Broken),
                None => {}
            }
            self.changed.notified().await;
        }
    }

    /// Who still reads goes on from the one body that is kept.
    fn now_in(&self, body: &Bytes) {
        let mut at = 0;
        for piece in self.pieces.borrow_mut().iter_mut() {
            let end = at + piece.len();
            *piece = body.slice(at..end);
            at = end;
        }
        self.unsent.clear();
    }

    fn finish(&self, end: End) {
        *self.end.borrow_mut() = Some(end);
        self.changed.notify_waiters();
    }
}

async fn pass_rest(mut rest: Box<AnswerBody>, mut client: Client) {
    loop {
        match rest.next().await {
            Ok(Some(bytes)) => {
                if client.body(bytes).await.is_err() {
                    return;
                }
            }
            Ok(None) => return client.end(),
            Err(Broken) => return client.broken(),
        }
    }
}

/// Reads `body` to its end and stores the answer: also when the client that asked for it has gone, since others may come.
/// `request`: the head of the request that it answers.
pub(super) async fn fill(
    cached: Rc<Cached>,
    key: Key,
    request: Rc<[u8]>,
    sharing: Sharing,
    filling: Rc<Filling>,
    mut body: AnswerBody,
) {
    let mut total = 0;
    loop {
        match body.next().await {
            Ok(Some(bytes)) => {
                total += bytes.len();
                filling.unsent.grow(bytes.len());
                filling.pieces.borrow_mut().push(bytes);
                if total > cached.cache.spec().object_bytes_max {
                    // From the list first: nobody may follow any more.
                    drop(sharing);
                    return filling.finish(End::Overflow(Some(Box::new(body))));
                }
                filling.changed.notify_waiters();
            }
            Ok(None) => break,
            Err(Broken) => return filling.finish(End::Broken),
        }
    }
    if filling.length.is_some_and(|length| length != total as u64) {
        // The upstream's reader sees to this; what is not whole is never stored.
        return filling.finish(End::Broken);
    }
    // In one piece of exactly its size: pieces are parts of larger buffers, and would keep those.
    let mut whole = Vec::with_capacity(total);
    for piece in filling.pieces.borrow().iter() {
        whole.extend_from_slice(piece);
    }
    let body = cached.cache.counted(whole.into_boxed_slice());
    let stored = Stored { head: Arc::clone(&filling.head), body };
    filling.now_in(&stored.body);
    if !sharing.is_doomed()
        && let Parsed::Complete(request) = parse_within(&request, usize::MAX, FIELDS_MAX)
    {
        cached.cache.put(key, request.fields, stored.clone());
    }
    filling.finish(End::Whole(stored));
    drop(sharing);
}
