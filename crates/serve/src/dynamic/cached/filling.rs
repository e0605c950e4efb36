//! A response while it arrives: filled by one task, read by all its clients.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::Notify;

use super::flight::SharedFetch;
use super::{Cached, FIELDS_MAX};
use crate::cache::{Finding, Head, Key, Rendered, Stored, Unsent};
use crate::dynamic::client::Client;
use crate::dynamic::upstream::{Broken, UpstreamBody};
use crate::request::{Parsed, parse_within};

/// The received part of a storable response; at most as large as one stored response.
#[derive(Debug)]
pub(super) struct Filling {
    pub(super) head: Arc<Head>,
    /// Length of the complete body, from the upstream's head.
    pub(super) length: Option<u64>,
    pieces: RefCell<Vec<Bytes>>,
    end: RefCell<Option<End>>,
    changed: Notify,
    /// A reader exists that can take over the rest.
    has_first: Cell<bool>,
    /// Counts the pieces while they may be read.
    unsent: Unsent,
}

/// How a body ended.
#[derive(Debug)]
enum End {
    /// Complete.
    Complete(Stored),
    /// Too large to be stored. The first client alone reads the part after `pieces`.
    Overflow(Option<Box<UpstreamBody>>),
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

    /// Sends `client` the head and the range of the body in `rendered`, as it arrives.
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
            enum NextStep {
                Complete,
                Truncated,
                Rest(Box<UpstreamBody>),
                Wait,
            }
            let now = match &mut *self.end.borrow_mut() {
                Some(End::Complete(_)) => NextStep::Complete,
                Some(End::Overflow(rest)) if is_first => rest.take().map_or(NextStep::Truncated, NextStep::Rest),
                Some(End::Overflow(_) | End::Broken) => NextStep::Truncated,
                None => NextStep::Wait,
            };
            match now {
                NextStep::Complete => return client.end(),
                NextStep::Truncated => return client.broken(),
                NextStep::Rest(rest) => return pass_rest(rest, client).await,
                // No other task runs between this check and the wait.
                NextStep::Wait => self.changed.notified().await,
            }
        }
    }

    /// Waits for the complete body; `None` if it is too large to be stored.
    ///
    /// # Errors
    /// The upstream broke off.
    pub(super) async fn whole(&self) -> Result<Option<Stored>, Broken> {
        loop {
            match &*self.end.borrow() {
                Some(End::Complete(stored)) => return Ok(Some(stored.clone())),
                Some(End::Overflow(_)) => return Ok(None),
                Some(End::Broken) => return Err(Broken),
                None => {}
            }
            self.changed.notified().await;
        }
    }

    /// Readers continue in the one stored body.
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

async fn pass_rest(mut rest: Box<UpstreamBody>, mut client: Client) {
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

/// Reads `body` to its end and stores the response, even if its client has disconnected. `request`: the head of the
/// request.
pub(super) async fn fill(
    cached: Rc<Cached>,
    key: Key,
    request: Rc<[u8]>,
    sharing: SharedFetch,
    filling: Rc<Filling>,
    mut body: UpstreamBody,
) {
    let mut total = 0;
    loop {
        match body.next().await {
            Ok(Some(bytes)) => {
                total += bytes.len();
                filling.unsent.grow(bytes.len());
                filling.pieces.borrow_mut().push(bytes);
                if total > cached.cache.spec().object_bytes_max {
                    // Leave the list first: new clients must not follow.
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
        // The upstream code checks the length too; an incomplete body is never stored.
        return filling.finish(End::Broken);
    }
    // Copied into one buffer of the exact size: pieces are slices of larger buffers, which they would keep.
    let mut whole = Vec::with_capacity(total);
    for piece in filling.pieces.borrow().iter() {
        whole.extend_from_slice(piece);
    }
    let body = cached.cache.counted(whole.into_boxed_slice());
    let stored = Stored { head: Arc::clone(&filling.head), body };
    filling.now_in(&stored.body);
    if !sharing.is_invalidated()
        && let Parsed::Complete(request) = parse_within(&request, usize::MAX, FIELDS_MAX)
    {
        cached.cache.put(key, request.fields, stored.clone());
    }
    filling.finish(End::Complete(stored));
    drop(sharing);
}
