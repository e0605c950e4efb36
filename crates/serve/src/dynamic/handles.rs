//! The worker's side: route lookup, and the two channels between worker and relay.
//!
//! ```text
//!   RelayHandle ==commands, tokio's channel==> relay     RelayHandle <==events, std's channel== WorkerHandle
//!                                                        ^---- eventfd, written when the worker may be asleep
//! ```
//!
//! Neither side waits for the other. [`ANSWER_WINDOW`](super::ANSWER_WINDOW) and [`BODY_WINDOW`](super::BODY_WINDOW)
//! limit each exchange, the number of connections limits the exchanges, and [`UNREAD_MAX`] limits requests that the
//! relay has not started.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};

use bytes::Bytes;
use nix::sys::eventfd::{EfdFlags, EventFd};
use tokio::sync::mpsc::UnboundedSender;

use super::admission::LoadState;
use super::route::Prefixes;
use super::spec::Route;
use super::upstream::Failure;
use super::usage::{Counts, count};
use super::{Event, RelayRequest, Ticket};
use crate::cache::Finding;

/// A command from a worker to the relay.
#[derive(Debug)]
pub(super) enum RelayCommand {
    /// Start an exchange.
    RelayRequest(usize, RelayRequest),
    /// A piece of the request's body.
    Body(usize, Ticket, Bytes),
    /// The request's body is complete.
    BodyEnded(usize, Ticket),
    /// Drop the exchange: the client disconnected, or its request is malformed.
    Cancel(usize, Ticket),
    /// The client read that many bytes of the response.
    Taken(usize, Ticket, usize),
    /// The server stops.
    Stop,
}

/// What workers know without asking the relay.
#[derive(Debug)]
pub(super) struct SharedRouting {
    prefixes: Prefixes,
    /// Counters and load state of each route.
    routes: Vec<(Arc<Counts>, Arc<LoadState>)>,
    /// Requests sent to the relay and not started.
    unread: AtomicUsize,
}

/// A request that the relay has received and not started.
#[derive(Debug)]
pub(super) struct UnstartedRequest(Arc<SharedRouting>);

/// A worker's access to the relay.
#[derive(Debug)]
pub(crate) struct RelayHandle {
    worker: usize,
    routing: Arc<SharedRouting>,
    orders: UnboundedSender<RelayCommand>,
    events: Receiver<(Ticket, Event)>,
    wake_signal: Arc<WakeSignal>,
    /// Events for requests that a stopped relay cannot process.
    lost: VecDeque<(Ticket, Event)>,
}

/// The relay's access to a worker.
#[derive(Clone, Debug)]
pub(super) struct WorkerHandle {
    events: Sender<(Ticket, Event)>,
    wake_signal: Arc<WakeSignal>,
}

/// Wakes a worker once for any number of events.
#[derive(Debug)]
struct WakeSignal {
    descriptor: EventFd,
    rung: AtomicBool,
}

impl SharedRouting {
    /// For these routes, with their counters and load states.
    pub(super) fn new(routes: &[Route], counted: Vec<(Arc<Counts>, Arc<LoadState>)>) -> Self {
        SharedRouting { prefixes: Prefixes::new(routes), routes: counted, unread: AtomicUsize::new(0) }
    }
}

impl UnstartedRequest {
    /// A request that [`RelayHandle::send_request`] counted.
    pub(super) fn of(routing: &Arc<SharedRouting>) -> Self {
        UnstartedRequest(Arc::clone(routing))
    }
}

impl Drop for UnstartedRequest {
    fn drop(&mut self) {
        self.0.unread.fetch_sub(1, Ordering::Relaxed);
    }
}

impl RelayHandle {
    /// Both ends of the channels of worker number `worker`.
    pub(super) fn pair(
        worker: usize,
        routing: Arc<SharedRouting>,
        orders: UnboundedSender<RelayCommand>,
    ) -> io::Result<(RelayHandle, WorkerHandle)> {
        let descriptor = EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)?;
        let wake_signal = Arc::new(WakeSignal { descriptor, rung: AtomicBool::new(false) });
        let (sender, events) = channel();
        let back = WorkerHandle { events: sender, wake_signal: Arc::clone(&wake_signal) };
        let lost = VecDeque::new();
        Ok((RelayHandle { worker, routing, orders, events, wake_signal, lost }, back))
    }

    /// The route of a normalised path (`target::plain`: decoded, slashes merged, dot segments resolved); `None` for a
    /// file. One comparison per route.
    pub(crate) fn routed(&self, path: &[u8]) -> Option<usize> {
        self.routing.prefixes.find(path)
    }

    /// The refusal of a request without the relay: status, field lines and text. With a cache the relay may have a
    /// response although the upstream is full, so `is_cached` checks less.
    pub(crate) fn refusal(&self, route: usize, is_cached: bool) -> Option<(u16, Bytes, Bytes)> {
        let (counts, load_state) = &self.routing.routes[route];
        let is_full = (!is_cached && load_state.is_full()) || self.routing.unread.load(Ordering::Relaxed) >= UNREAD_MAX;
        if !is_full {
            return None;
        }
        count(&counts.refused_full);
        Some(Failure::busy(load_state.retry_after_s()).page())
    }

    /// Starts an exchange.
    pub(crate) fn send_request(&mut self, request: RelayRequest) {
        let (ticket, head_only) = (request.ticket, request.head.starts_with(b"HEAD "));
        self.routing.unread.fetch_add(1, Ordering::Relaxed);
        if self.order(RelayCommand::RelayRequest(self.worker, request)) {
            return;
        }
        drop(UnstartedRequest::of(&self.routing));
        // A failed relay ends itself, not the static server: clients get an error response.
        let (status, fields, text) = Failure::lost().page();
        let length = Some(text.len() as u64);
        self.lost.push_back((ticket, Event::Head { status, fields, length, finding: Finding::NONE }));
        if !head_only {
            self.lost.push_back((ticket, Event::Body(text)));
        }
        self.lost.push_back((ticket, Event::End));
        let _ = self.wake_signal.descriptor.write(1);
    }

    /// Forwards a piece of the request's body: at most the bytes that `Room` events of this ticket permit.
    pub(crate) fn body(&mut self, ticket: Ticket, bytes: &[u8]) {
        self.order(RelayCommand::Body(self.worker, ticket, Bytes::copy_from_slice(bytes)));
    }

    /// The request's body is complete.
    pub(crate) fn body_ended(&mut self, ticket: Ticket) {
        self.order(RelayCommand::BodyEnded(self.worker, ticket));
    }

    /// Cancels an exchange: closes its upstream connection and frees its slot. Also for an incomplete or malformed
    /// request body, which the upstream must not see as complete.
    pub(crate) fn cancel(&mut self, ticket: Ticket) {
        self.order(RelayCommand::Cancel(self.worker, ticket));
    }

    /// The client read that many bytes of [`Event::Body`]: the window grows by them.
    pub(crate) fn taken(&mut self, ticket: Ticket, bytes: usize) {
        self.order(RelayCommand::Taken(self.worker, ticket, bytes));
    }

    /// Readable when [`RelayHandle::next`] may have an event. Level-triggered until [`RelayHandle::next`] returns
    /// `None`.
    pub(crate) fn wake_fd(&self) -> BorrowedFd<'_> {
        self.wake_signal.descriptor.as_fd()
    }

    /// Call once when the descriptor is readable, then [`RelayHandle::next`] until it is empty.
    pub(crate) fn woken(&mut self) {
        // Read first: a signal between the two operations wakes the next wait.
        let _ = self.wake_signal.descriptor.read();
        self.wake_signal.rung.store(false, Ordering::SeqCst);
    }

    /// The next event.
    pub(crate) fn next(&mut self) -> Option<(Ticket, Event)> {
        self.events.try_recv().ok().or_else(|| self.lost.pop_front())
    }

    /// Makes [`RelayHandle::wake_fd`] readable again: events may remain for another turn.
    pub(crate) fn wake_again(&self) {
        // At most one unread write besides the relay's: the counter cannot overflow.
        let _ = self.wake_signal.descriptor.write(1);
    }

    /// False if the relay has stopped.
    fn order(&self, order: RelayCommand) -> bool {
        self.orders.send(order).is_ok()
    }
}

impl WorkerHandle {
    /// Sends an event to the worker. Never blocks.
    pub(super) fn send_event(&self, ticket: Ticket, event: Event) {
        // A stopped worker needs no event.
        if self.events.send((ticket, event)).is_ok() && !self.wake_signal.rung.swap(true, Ordering::SeqCst) {
            // One unread write at a time: the counter cannot overflow.
            let _ = self.wake_signal.descriptor.write(1);
        }
    }
}

/// Requests that the relay may be behind: a flood of short-lived clients must not fill the channel. Their heads use a
/// few MiB at most.
const UNREAD_MAX: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;
    use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
    use tokio::sync::mpsc::unbounded_channel;

    use crate::request::Body;

    fn routing() -> Arc<SharedRouting> {
        Arc::new(SharedRouting::new(&["/=http://h:1".parse().unwrap()], vec![Default::default()]))
    }

    fn request(front: &mut RelayHandle, ticket: Ticket) {
        let any = "127.0.0.1:1".parse().unwrap();
        let head = b"GET / HTTP/1.1\r\nHost: h\r\n\r\n".as_slice().into();
        front.send_request(RelayRequest {
            ticket,
            route: 0,
            head,
            body: Body::None,
            peer: any,
            local: any,
            secure: false,
        });
    }

    fn readable(front: &RelayHandle) -> bool {
        poll(&mut [PollFd::new(front.wake_fd(), PollFlags::POLLIN)], PollTimeout::ZERO).unwrap() == 1
    }

    #[test]
    fn without_a_relay_clients_get_an_error_response() {
        let (orders, commands) = unbounded_channel();
        let (mut front, back) = RelayHandle::pair(0, routing(), orders).unwrap();
        drop((commands, back));
        request(&mut front, 4.into());
        assert!(readable(&front));
        front.woken();
        assert!(matches!(front.next(), Some((Ticket { connection: 4, stream: 0 }, Event::Head { status: 502, .. }))));
        assert!(matches!(front.next(), Some((Ticket { connection: 4, stream: 0 }, Event::Body(_)))));
        assert!(matches!(front.next(), Some((Ticket { connection: 4, stream: 0 }, Event::End))));
        assert!(front.next().is_none());
    }

    #[test]
    fn an_overloaded_relay_gets_no_further_requests() {
        let (orders, mut commands) = unbounded_channel();
        let routing = routing();
        let (mut front, _back) = RelayHandle::pair(0, Arc::clone(&routing), orders).unwrap();
        for ticket in 0..UNREAD_MAX as u64 {
            assert!(front.refusal(0, true).is_none());
            request(&mut front, ticket.into());
        }
        let (status, fields, _) = front.refusal(0, true).unwrap();
        assert!(status == 503 && fields.windows(12).any(|part| part == b"Retry-After:"));
        assert!(matches!(commands.try_recv(), Ok(RelayCommand::RelayRequest(0, _))));
        drop(UnstartedRequest::of(&routing));
        assert!(front.refusal(0, true).is_none());
        assert_eq!(routing.routes[0].0.read(String::new()).refused_full, 1);
    }

    #[test]
    fn the_wake_signal_fires_once_until_its_events_are_read() {
        let (orders, mut commands) = unbounded_channel();
        let (mut front, back) = RelayHandle::pair(3, routing(), orders).unwrap();
        assert!(!readable(&front));
        back.send_event(7.into(), Event::End);
        back.send_event(8.into(), Event::Broken);
        assert!(readable(&front));
        front.woken();
        assert!(!readable(&front));
        assert!(matches!(front.next(), Some((Ticket { connection: 7, stream: 0 }, Event::End))));
        // An event sent while the worker reads events must not be lost.
        back.send_event(9.into(), Event::End);
        assert!(readable(&front));
        assert!(matches!(front.next(), Some((Ticket { connection: 8, stream: 0 }, Event::Broken))));
        assert!(matches!(front.next(), Some((Ticket { connection: 9, stream: 0 }, Event::End))));
        assert!(front.next().is_none());
        front.cancel(7.into());
        assert!(matches!(commands.try_recv(), Ok(RelayCommand::Cancel(3, Ticket { connection: 7, .. }))));
    }
}

/// A fake relay for tests of the worker.
#[cfg(test)]
#[derive(Debug)]
pub(crate) struct FakeRelay(tokio::sync::mpsc::UnboundedReceiver<RelayCommand>);

/// A call of a worker to the fake relay.
#[cfg(test)]
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum RelayCall {
    /// The head of a request.
    RelayRequest(Box<[u8]>),
    /// A piece of the body.
    Body(Bytes),
    /// The body is complete.
    BodyEnded,
    /// The exchange is cancelled.
    Cancel,
    /// Bytes of the response that the client read.
    Taken(usize),
}

#[cfg(test)]
impl FakeRelay {
    /// A fake relay with one route.
    pub(crate) fn new(route: &str) -> (RelayHandle, FakeRelay) {
        let (orders, receiver) = tokio::sync::mpsc::unbounded_channel();
        let routing = Arc::new(SharedRouting::new(&[route.parse().unwrap()], vec![Default::default()]));
        let (front, _back) = RelayHandle::pair(0, routing, orders).unwrap();
        (front, FakeRelay(receiver))
    }

    /// The next call.
    pub(crate) fn next(&mut self) -> Option<RelayCall> {
        Some(match self.0.try_recv().ok()? {
            RelayCommand::RelayRequest(_, request) => RelayCall::RelayRequest(request.head),
            RelayCommand::Body(_, _, bytes) => RelayCall::Body(bytes),
            RelayCommand::BodyEnded(..) => RelayCall::BodyEnded,
            RelayCommand::Cancel(..) => RelayCall::Cancel,
            RelayCommand::Taken(_, _, bytes) => RelayCall::Taken(bytes),
            RelayCommand::Stop => return None,
        })
    }
}
