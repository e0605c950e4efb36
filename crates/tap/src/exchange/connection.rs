//! One connection, and its exchange in flight.

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
    /// Number of the connection within the run, from 0.
    pub(super) number: u64,
    /// The index of the rings of the user whose program reported it first.
    pub(super) index: u32,
    /// Images that hold its descriptor.
    pub(super) holders: Vec<u32>,
    /// When its last known holder closed it, or was found to have left it, if an unreported forked child may hold it.
    pub(super) lingering: Option<Timestamp>,
    /// Whether the connection counts as concurrent; the owner of this struct maintains it.
    pub(super) counted: bool,
    /// Whether the program inherited the connection, and no recorded program had it before. Without any use such a
    /// connection has no row.
    pub(super) is_bystander: bool,
    role: Role,
    /// Common fields of all its rows; lookup and connect time until the first row took them.
    base: TapExchange,
    is_established: bool,
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

/// How a connection ended.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    /// close was called at this time.
    Closed(Timestamp),
    /// The program ended normally at this time, and the connection with it.
    Left(Timestamp),
    /// The end of the program was detected at this time.
    ProcessEnded(Timestamp),
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
            is_established: role != Role::Connected,
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

    /// Notes that `image` uses the connection.
    pub(super) fn used_by(&mut self, image: u32) {
        self.user = image;
    }

    /// Notes that `image` has closed the connection; others may still hold it.
    pub(super) fn closed_by(&mut self, image: u32, at: Timestamp) {
        self.closer = Some((image, at));
    }

    /// Time of the last known activity of the connection.
    pub(super) fn last_activity_at(&self) -> Timestamp {
        let times_of = |row: &TapExchange| [Some(row.opened_at), row.sent_last_at, row.received_last_at];
        let reported = [self.peer_ended, self.closer.map(|(_, at)| at), self.leaving.iter().map(|(_, at)| *at).max()];
        let rows = [Some(&self.base), self.current.as_ref()].into_iter().flatten().flat_map(times_of);
        rows.chain(reported).flatten().max().unwrap_or_default()
    }

    /// Whether an image that has not reported leaving holds the connection. True between a close and the detection that
    /// it was the last.
    pub(super) fn is_in_process(&self) -> bool {
        self.lingering.is_none()
            && (self.holders.is_empty() || !self.holders.iter().all(|image| self.has_reported_leaving(*image)))
    }

    /// Whether the program is the client or the server of this connection.
    pub(super) fn side(&self) -> TapSide {
        self.base.side
    }

    /// Whether an exchange is in flight.
    pub(super) fn is_in_flight(&self) -> bool {
        self.current.as_ref().is_some_and(|row| row.error.is_none() && has_request(row) && !has_response(row))
    }

    pub(super) fn connected(&mut self, attempt: &Attempt) {
        self.is_established = true;
        self.set_local_address(attempt);
        self.base.setup_ns = Some(attempt.end.as_nanos().saturating_sub(attempt.begin.as_nanos()));
    }

    /// Sets the local address, which was unknown when the connect was reported.
    fn set_local_address(&mut self, attempt: &Attempt) {
        if attempt.local.is_some() {
            self.base.local = attempt.local;
            // Another thread started the exchange before this one's connect returned.
            if let Some(row) = &mut self.current {
                row.local = attempt.local;
            }
        }
    }

    /// The row of a failed connect.
    pub(super) fn connect_failed(mut self, attempt: &Attempt, done: &mut Vec<TapExchange>) {
        self.set_local_address(attempt);
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
        self.transferred(TapSide::Client, run, done);
    }

    pub(super) fn received(&mut self, run: &Run, done: &mut Vec<TapExchange>) {
        self.received = self.received.saturating_add(run.bytes);
        self.transferred(TapSide::Server, run, done);
        if run.ended {
            self.peer_ended.get_or_insert(run.end);
        }
    }

    /// Adds a run of calls. `client_side`: the side for which a run of this direction is a request.
    fn transferred(&mut self, client_side: TapSide, run: &Run, done: &mut Vec<TapExchange>) {
        let is_request = self.base.side == client_side;
        if run.bytes == 0 && run.error == 0 {
            // The other end closed its direction: a run without data.
            if let Some(row) = &mut self.current {
                add_cost(row, run);
            }
            return;
        }
        // Bytes were transferred, or an error implies a connection.
        self.is_established = true;
        if is_request {
            if self.current.as_ref().is_some_and(|row| has_response(row) || row.outcome == TapOutcome::Greeting) {
                if run.bytes == 0 && self.base.side == TapSide::Server {
                    // The client side failed between two requests: the error belongs to no exchange.
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
        let row = self.current.as_mut().expect("an exchange was started above");
        add_cost(row, run);
        if run.bytes > 0 {
            let (first, last, bytes) = match client_side {
                TapSide::Client => (&mut row.sent_first_at, &mut row.sent_last_at, &mut row.sent_bytes),
                TapSide::Server => (&mut row.received_first_at, &mut row.received_last_at, &mut row.received_bytes),
            };
            // Sent data begins with a call, received data with a return.
            first.get_or_insert(if client_side == TapSide::Client { run.begin } else { run.first });
            *last = Some(run.end.max(last.unwrap_or(run.end)));
            *bytes = bytes.saturating_add(run.bytes);
        }
        if run.error != 0 && row.error.is_none() {
            row.error = Some(TapError::Errno(run.error));
            if run.bytes == 0 && client_side == TapSide::Client && row.sent_first_at.is_none() {
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

    pub(super) fn leave_reported(&mut self, image: u32, closed: &Closed) {
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

    /// Finishes the connection: the last holder called close.
    pub(super) fn closed(self, at: Timestamp, done: &mut Vec<TapExchange>) {
        self.finish(End::Closed(at), done);
    }

    /// Notes that `image` has ended; others may still hold the connection.
    pub(super) fn image_ended(&mut self, image: u32, at: Timestamp) {
        self.holders.retain(|holder| *holder != image);
        if self.user == image && !self.has_reported_leaving(image) {
            self.vanished = Some(at);
        }
    }

    /// Finishes the connection: the process of the last holder has ended.
    pub(super) fn abandoned(self, image: u32, at: Timestamp, done: &mut Vec<TapExchange>) {
        let reported = match self.closer {
            // A leaving image reports its time, and an inheriting child that never used it reports nothing: the
            // connection is over when the last image released it, which is not always the one detected last.
            _ if self.has_reported_leaving(image) => self.last_reported_end(),
            Some((closer, _)) if closer == self.user && image != closer => self.last_reported_end(),
            _ => None,
        };
        self.finish(reported.unwrap_or(End::ProcessEnded(at)), done);
    }

    fn has_reported_leaving(&self, image: u32) -> bool {
        self.leaving.iter().any(|(other, _)| *other == image)
    }

    /// The latest reported close or leave, or a later unreported end of its user.
    fn last_reported_end(&self) -> Option<End> {
        let last_leave = self.leaving.iter().map(|(_, at)| *at).max();
        let last_close = self.closer.map(|(_, at)| at);
        if self.vanished > last_leave.max(last_close) {
            self.vanished.map(End::ProcessEnded)
        } else if last_close >= last_leave {
            last_close.map(End::Closed)
        } else {
            last_leave.map(End::Left)
        }
    }

    /// Whether processes that have not reported may hold the connection.
    pub(super) fn may_be_shared(&self) -> bool {
        self.caveats.shared
    }

    /// Finishes the connection without a close event: it was closed or left, or is open at the end of the run.
    pub(super) fn end_without_close(self, done: &mut Vec<TapExchange>) {
        let end = match self.lingering {
            None => End::RunEnded,
            // Inherited over exec, with no further report.
            Some(at) => self.last_reported_end().unwrap_or(End::ProcessEnded(at)),
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
            End::Closed(at) | End::Left(at) | End::ProcessEnded(at) => Some(at),
            End::RunEnded => None,
        };
        row.retransmits = self.tcp_counts.map(|tcp_counts| tcp_counts.retransmits.into());
        row.unseen_bytes = self.unseen_bytes(row.error.is_some());
        done.push(row);
    }

    fn without_exchange(&mut self, end: End) -> TapExchange {
        let is_established = self.is_established;
        let error = self.error;
        let row = self.take_base();
        let (outcome, error) = match (is_established, end, error) {
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
            (None, End::Closed(_) | End::Left(_)) if has_response(&row) => (TapOutcome::Succeeded, None),
            (None, _) if self.is_farewell(&row, end) => (TapOutcome::Farewell, None),
            (None, End::Left(_) | End::ProcessEnded(_) | End::RunEnded) => (TapOutcome::Cut, None),
            (None, End::Closed(_)) => {
                // At a client the peer responds; at a server this program responds.
                let peer_ended_first = self.peer_ended.is_some();
                let responder_closed_first = peer_ended_first == (row.side == TapSide::Client);
                let error = if responder_closed_first { TapError::NoResponse } else { TapError::GivenUp };
                (TapOutcome::Failed, Some(error))
            }
        };
        TapExchange { outcome, error, ..row }
    }

    /// Whether the client side sent this before closing, without waiting for a response. Only after an exchange: an
    /// unanswered first request is a failure.
    fn is_farewell(&self, row: &TapExchange, end: End) -> bool {
        let (End::Closed(closed) | End::Left(closed)) = end else { return false };
        if has_response(row) || row.exchange.unwrap_or(0) == 0 {
            return false;
        }
        let (data_first, data_last, closed_at) = match row.side {
            TapSide::Client => (row.sent_first_at, row.sent_last_at, closed),
            TapSide::Server => (row.received_first_at, row.received_last_at, self.peer_ended.unwrap_or(closed)),
        };
        // No response can come from an end that has closed its direction.
        let is_after_peer_end = row.side == TapSide::Client
            && self.peer_ended.zip(data_first).is_some_and(|(peer_end, sent)| sent >= peer_end);
        let closes_without_waiting =
            row.error.is_none() && data_last.is_some_and(|sent| closed_at.since(sent) < FAREWELL_WAIT_MAX);
        is_after_peer_end || closes_without_waiting
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

/// Whether a request has begun.
fn has_request(row: &TapExchange) -> bool {
    match row.side {
        TapSide::Client => row.sent_first_at.is_some(),
        TapSide::Server => row.received_first_at.is_some(),
    }
}

/// Whether the response has begun.
fn has_response(row: &TapExchange) -> bool {
    match row.side {
        TapSide::Client => row.received_bytes > 0,
        TapSide::Server => row.sent_bytes > 0,
    }
}

/// A client that closes sooner than this after its last data did not wait for a response: no program has so short a
/// timeout.
const FAREWELL_WAIT_MAX: Duration = Duration::from_millis(10);
