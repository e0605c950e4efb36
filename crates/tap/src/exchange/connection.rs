//! One connection, and the exchange under way on it.

use std::time::Duration;

use schema::{TapError, TapExchange, TapOutcome, TapSide};
use serde::{Deserialize, Serialize};
use units::Timestamp;
use units::time::saturating_nanos;

use crate::event::{Attempt, Caveats, Closed, Role, Run, TcpCounts};
use crate::rings::INDEX_SHIFT;

/// An open connection, as far as known.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Connection {
    /// Its number in the run.
    pub(super) number: u64,
    /// The index of the rings of the user whose program reported it first.
    pub(super) index: u32,
    /// Images that hold its descriptor.
    pub(super) holders: Vec<u32>,
    /// When its last known holder closed it, or was found to have left it, if an unreported forked child may hold it.
    pub(super) lingering: Option<Timestamp>,
    /// Whether it counts as concurrent; maintained by its owner.
    pub(super) counted: bool,
    /// Its program inherited it, no recorded program had it before, and it may stay unused: then it has no row.
    pub(super) is_bystander: bool,
    role: Role,
    /// Common fields of all its rows; lookup and connect time until the first row took them.
    base: TapExchange,
    made: bool,
    /// The current exchange, or the last.
    current: Option<TapExchange>,
    /// Number of exchanges.
    count: u32,
    sent: u64,
    received: u64,
    /// When the other end was seen to close its direction.
    peer_ended: Option<Timestamp>,
    /// An error outside of any exchange.
    error: Option<i32>,
    tcp_counts: Option<TcpCounts>,
    caveats: Caveats,
    /// Images that reported leaving, and when.
    leaving: Vec<(u32, Timestamp)>,
    /// The image that used it last.
    user: u32,
    /// The image that closed it last, and when.
    closer: Option<(u32, Timestamp)>,
    /// When its user was found to have ended without a report, while others still held it.
    vanished: Option<Timestamp>,
}

/// Why the last exchange of a connection is the last.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    /// close was called at this time.
    Closed(Timestamp),
    /// Its program ended normally at this time, and with it the connection.
    Left(Timestamp),
    /// Its program was found to have ended at this time.
    Gone(Timestamp),
    /// The run ended.
    RunEnded,
}

impl Connection {
    pub(super) fn new(number: u64, role: Role, image: u32, mut base: TapExchange) -> Self {
        base.connection = Some(number);
        Connection {
            number,
            index: image >> INDEX_SHIFT,
            holders: vec![image],
            lingering: None,
            counted: true,
            is_bystander: false,
            role,
            base,
            made: role != Role::Connected,
            current: None,
            count: 0,
            sent: 0,
            received: 0,
            peer_ended: None,
            error: None,
            tcp_counts: None,
            caveats: Caveats::default(),
            leaving: Vec::new(),
            user: image,
            closer: None,
            vanished: None,
        }
    }

    /// Adds a holder; returns true if it is new.
    pub(super) fn hold(&mut self, image: u32) -> bool {
        let new = !self.holders.contains(&image);
        if new {
            self.holders.push(image);
            self.lingering = None;
        }
        new
    }

    /// `image` uses it.
    pub(super) fn used_by(&mut self, image: u32) {
        self.user = image;
    }

    /// `image` has closed it; others may hold it.
    pub(super) fn closed_by(&mut self, image: u32, at: Timestamp) {
        self.closer = Some((image, at));
    }

    /// The time of its last known activity.
    pub(super) fn heard_at(&self) -> Timestamp {
        let moments = |row: &TapExchange| [Some(row.opened_at), row.sent_last_at, row.received_last_at];
        let told = [self.peer_ended, self.closer.map(|(_, at)| at), self.leaving.iter().map(|(_, at)| *at).max()];
        let rows = [Some(&self.base), self.current.as_ref()].into_iter().flatten().flat_map(moments);
        rows.chain(told).flatten().max().unwrap_or_default()
    }

    /// Whether an image holds it that has not reported leaving. True between a close and the detection that it was
    /// the last.
    pub(super) fn is_in_process(&self) -> bool {
        self.lingering.is_none() && (self.holders.is_empty() || !self.holders.iter().all(|image| self.has_left(*image)))
    }

    /// Which end this is.
    pub(super) fn side(&self) -> TapSide {
        self.base.side
    }

    /// Whether an exchange is in flight.
    pub(super) fn is_in_flight(&self) -> bool {
        self.current.as_ref().is_some_and(|row| row.error.is_none() && asked(row) && !answered(row))
    }

    pub(super) fn connected(&mut self, attempt: &Attempt) {
        self.made = true;
        self.own_end(attempt);
        self.base.setup_ns = Some(attempt.end.as_nanos().saturating_sub(attempt.begin.as_nanos()));
    }

    /// A connect reported without a local address has one by now.
    fn own_end(&mut self, attempt: &Attempt) {
        if attempt.local.is_some() {
            self.base.local = attempt.local;
            // Another thread started the exchange before this one's connect returned.
            if let Some(row) = &mut self.current {
                row.local = attempt.local;
            }
        }
    }

    /// The row of a failed connect.
    pub(super) fn not_made(mut self, attempt: &Attempt, done: &mut Vec<TapExchange>) {
        self.own_end(attempt);
        let row = self.take_base();
        done.push(TapExchange {
            last: true,
            blocked_ns: saturating_nanos(attempt.blocked.saturating_add(attempt.waited)),
            outcome: TapOutcome::Failed,
            error: Some(TapError::Errno(attempt.error)),
            closed_at: Some(attempt.end),
            ..row
        });
    }

    pub(super) fn sent(&mut self, run: &Run, done: &mut Vec<TapExchange>) {
        self.sent = self.sent.saturating_add(run.bytes);
        self.moved(TapSide::Client, run, done);
    }

    pub(super) fn received(&mut self, run: &Run, done: &mut Vec<TapExchange>) {
        self.received = self.received.saturating_add(run.bytes);
        self.moved(TapSide::Server, run, done);
        if run.ended {
            self.peer_ended.get_or_insert(run.end);
        }
    }

    /// `asker`: the side for which a run of this direction is a request.
    fn moved(&mut self, asker: TapSide, run: &Run, done: &mut Vec<TapExchange>) {
        let is_request = self.base.side == asker;
        if run.bytes == 0 && run.error == 0 {
            // The other end's close, which is no data.
            if let Some(row) = &mut self.current {
                add_cost(row, run);
            }
            return;
        }
        // Bytes were transferred, or an error implies a connection.
        self.made = true;
        if is_request {
            if self.current.as_ref().is_some_and(|row| answered(row) || row.outcome == TapOutcome::Greeting) {
                if run.bytes == 0 && self.base.side == TapSide::Server {
                    // The client side failed between two requests: that belongs to no exchange.
                    self.error = Some(run.error);
                    return;
                }
                self.next(done);
            }
            if self.current.is_none() {
                if run.bytes == 0 && self.base.side == TapSide::Server {
                    self.error = Some(run.error);
                    return;
                }
                self.begin(TapOutcome::Succeeded);
            }
        } else if self.current.is_none() {
            if run.bytes == 0 {
                self.error = Some(run.error);
                return;
            }
            self.begin(TapOutcome::Greeting);
        }
        let row = self.current.as_mut().expect("one was begun");
        add_cost(row, run);
        if run.bytes > 0 {
            let (first, last, bytes) = match asker {
                TapSide::Client => (&mut row.sent_first_at, &mut row.sent_last_at, &mut row.sent_bytes),
                TapSide::Server => (&mut row.received_first_at, &mut row.received_last_at, &mut row.received_bytes),
            };
            // Sent data begins with a call, received data with a return.
            first.get_or_insert(if asker == TapSide::Client { run.begin } else { run.first });
            *last = Some(run.end.max(last.unwrap_or(run.end)));
            *bytes = bytes.saturating_add(run.bytes);
        }
        if run.error != 0 && row.error.is_none() {
            row.error = Some(TapError::Errno(run.error));
            if run.bytes == 0 && asker == TapSide::Client && row.sent_first_at.is_none() {
                // A request of which nothing could be sent counts as attempted.
                (row.sent_first_at, row.sent_last_at) = (Some(run.begin), Some(run.end));
            }
        }
    }

    /// Starts an exchange. `outcome` tells whether it has a request; the rest is decided at its end.
    fn begin(&mut self, outcome: TapOutcome) {
        let base = self.take_base();
        self.current = Some(TapExchange { exchange: Some(self.count), outcome, ..base });
        self.count += 1;
    }

    /// Ends the current exchange, since another one started.
    fn next(&mut self, done: &mut Vec<TapExchange>) {
        if let Some(mut row) = self.current.take() {
            if row.error.is_some() {
                row.outcome = TapOutcome::Failed;
            }
            done.push(row);
        }
    }

    pub(super) fn left(&mut self, image: u32, closed: &Closed) {
        self.counted(closed);
        self.leaving.retain(|(other, _)| *other != image);
        self.leaving.push((image, closed.begin));
    }

    /// Stores TCP's counters: of several closes the last has the totals.
    pub(super) fn counted(&mut self, closed: &Closed) {
        if closed.tcp_counts.is_some() {
            self.tcp_counts = closed.tcp_counts;
        }
        let (all, new) = (&mut self.caveats, closed.caveats);
        all.stdio |= new.stdio;
        all.kernel_tls |= new.kernel_tls;
        all.lost_sight |= new.lost_sight;
        all.sandboxed |= new.sandboxed;
        all.off_by_one |= new.off_by_one;
        all.shared |= new.shared;
    }

    /// The last holder called close.
    pub(super) fn closed(self, at: Timestamp, done: &mut Vec<TapExchange>) {
        self.finish(End::Closed(at), done);
    }

    /// `image` has ended; others may hold it.
    pub(super) fn gone(&mut self, image: u32, at: Timestamp) {
        self.holders.retain(|holder| *holder != image);
        if self.user == image && !self.has_left(image) {
            self.vanished = Some(at);
        }
    }

    /// The last holder has ended.
    pub(super) fn abandoned(self, image: u32, at: Timestamp, done: &mut Vec<TapExchange>) {
        let told = match self.closer {
            // A leaving image reports its time, and an inheriting child that never used it reports nothing: the
            // connection is over when the last image released it, which is not always the one detected last.
            _ if self.has_left(image) => self.last_word(),
            Some((closer, _)) if closer == self.user && image != closer => self.last_word(),
            _ => None,
        };
        self.finish(told.unwrap_or(End::Gone(at)), done);
    }

    fn has_left(&self, image: u32) -> bool {
        self.leaving.iter().any(|(other, _)| *other == image)
    }

    /// The latest reported close or leave, or a later unreported end of its user.
    fn last_word(&self) -> Option<End> {
        let left = self.leaving.iter().map(|(_, at)| *at).max();
        let closed = self.closer.map(|(_, at)| at);
        if self.vanished > left.max(closed) {
            self.vanished.map(End::Gone)
        } else if closed >= left {
            closed.map(End::Closed)
        } else {
            left.map(End::Left)
        }
    }

    /// Whether unreported processes may hold it.
    pub(super) fn may_be_shared(&self) -> bool {
        self.caveats.shared
    }

    /// No more events follow: it was closed or left, or it is open at the end of the run.
    pub(super) fn over(self, done: &mut Vec<TapExchange>) {
        let end = match self.lingering {
            None => End::RunEnded,
            // Inherited over exec, with no further report.
            Some(at) => self.last_word().unwrap_or(End::Gone(at)),
        };
        self.finish(end, done);
    }

    fn finish(mut self, end: End, done: &mut Vec<TapExchange>) {
        if self.is_bystander && self.current.is_none() && self.sent == 0 && self.received == 0 {
            return;
        }
        let mut row = match self.current.take() {
            Some(row) => self.last_exchange(row, end),
            None => self.without_exchange(end),
        };
        row.last = true;
        row.connection_bytes = Some(self.sent.saturating_add(self.received));
        row.closed_at = match end {
            End::Closed(at) | End::Left(at) | End::Gone(at) => Some(at),
            End::RunEnded => None,
        };
        row.retransmits = self.tcp_counts.map(|tcp_counts| tcp_counts.retransmits.into());
        row.unseen_bytes = self.unseen_bytes(row.error.is_some());
        done.push(row);
    }

    fn without_exchange(&mut self, end: End) -> TapExchange {
        let made = self.made;
        let error = self.error;
        let row = self.take_base();
        let (outcome, error) = match (made, end, error) {
            (_, _, Some(number)) if row.side == TapSide::Client => (TapOutcome::Failed, Some(TapError::Errno(number))),
            (true, ..) => (TapOutcome::Unused, None),
            (false, End::Closed(_), _) => (TapOutcome::Failed, Some(TapError::GivenUp)),
            (false, ..) => (TapOutcome::Cut, None),
        };
        TapExchange { outcome, error, ..row }
    }

    fn last_exchange(&self, row: TapExchange, end: End) -> TapExchange {
        if row.outcome == TapOutcome::Greeting && row.error.is_none() {
            return row;
        }
        let (outcome, error) = match (row.error, end) {
            (Some(_), _) if self.is_farewell(&row, end) => (TapOutcome::Farewell, None),
            (Some(error), _) => (TapOutcome::Failed, Some(error)),
            (None, End::Closed(_) | End::Left(_)) if answered(&row) => (TapOutcome::Succeeded, None),
            (None, _) if self.is_farewell(&row, end) => (TapOutcome::Farewell, None),
            (None, End::Left(_) | End::Gone(_) | End::RunEnded) => (TapOutcome::Cut, None),
            (None, End::Closed(_)) => {
                // At a client the other end responds, at a server this one.
                let peer_ended_first = self.peer_ended.is_some();
                let asked_end_closed = peer_ended_first == (row.side == TapSide::Client);
                let error = if asked_end_closed { TapError::NoResponse } else { TapError::GivenUp };
                (TapOutcome::Failed, Some(error))
            }
        };
        TapExchange { outcome, error, ..row }
    }

    /// Whether the client side sent this before closing, without waiting for a response. Only after an exchange: an
    /// unanswered first request is a failure.
    fn is_farewell(&self, row: &TapExchange, end: End) -> bool {
        let (End::Closed(closed) | End::Left(closed)) = end else { return false };
        if answered(row) || row.exchange.unwrap_or(0) == 0 {
            return false;
        }
        let (said_first, said_last, left) = match row.side {
            TapSide::Client => (row.sent_first_at, row.sent_last_at, closed),
            TapSide::Server => (row.received_first_at, row.received_last_at, self.peer_ended.unwrap_or(closed)),
        };
        // No response can come from an end that has closed its direction.
        let after_the_end =
            row.side == TapSide::Client && self.peer_ended.zip(said_first).is_some_and(|(ended, said)| said >= ended);
        let at_once = row.error.is_none() && said_last.is_some_and(|said| left.since(said) < FAREWELL_WAIT_MAX);
        after_the_end || at_once
    }

    /// Bytes that TCP counted beyond those of the hooks; `None` if they cannot be compared.
    fn unseen_bytes(&self, failed: bool) -> Option<u64> {
        let tcp_counts = self.tcp_counts?;
        if self.role == Role::Found || self.caveats.kernel_tls {
            return None;
        }
        let sent = tcp_counts.sent.saturating_sub(self.sent);
        let received = tcp_counts.received.saturating_sub(self.received);
        // After an error the kernel discards unread data, and counts it as read.
        let received = if failed || self.error.is_some() { 0 } else { received };
        let tolerated = u64::from(self.caveats.off_by_one);
        Some(sent.saturating_add(received.saturating_sub(tolerated)))
    }

    /// The common fields of a row; lookup and connect time go to the first row.
    fn take_base(&mut self) -> TapExchange {
        let row = self.base.clone();
        self.base.lookup_ns = None;
        self.base.setup_ns = None;
        row
    }
}

fn add_cost(row: &mut TapExchange, run: &Run) {
    row.calls = row.calls.saturating_add(run.calls);
    row.blocked_ns = row.blocked_ns.saturating_add(saturating_nanos(run.blocked.saturating_add(run.waited)));
}

/// Whether there was a request.
fn asked(row: &TapExchange) -> bool {
    match row.side {
        TapSide::Client => row.sent_first_at.is_some(),
        TapSide::Server => row.received_first_at.is_some(),
    }
}

/// Whether the response has begun.
fn answered(row: &TapExchange) -> bool {
    match row.side {
        TapSide::Client => row.received_bytes > 0,
        TapSide::Server => row.sent_bytes > 0,
    }
}

/// An end that closes sooner than this after its last data did not wait for a response: no program's timeout is so
/// short.
const FAREWELL_WAIT_MAX: Duration = Duration::from_millis(10);
