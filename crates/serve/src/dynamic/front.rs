//! The worker's side: which paths are dynamic, and the two mailboxes between worker and relay.
//!
//! ```text
//!   Front ==orders, tokio's channel==> relay          Front <==events, std's channel== Back
//!                                                       ^---- eventfd, written when the worker may be asleep
//! ```
//!
//! Neither side ever waits for the other. What is under way is bounded by credit
//! ([`ANSWER_WINDOW`](super::ANSWER_WINDOW), [`BODY_WINDOW`](super::BODY_WINDOW)) for each exchange and by the number of
//! connections; what clients ask and leave again before the relay has looked at it, by [`UNREAD_MAX`].

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};

use bytes::Bytes;
use nix::sys::eventfd::{EfdFlags, EventFd};
use tokio::sync::mpsc::UnboundedSender;

use super::account::{Counts, count};
use super::admission::Door;
use super::route::Prefixes;
use super::spec::Route;
use super::upstream::Failure;
use super::{Ask, Event, Ticket};
use crate::cache::Finding;

/// What a worker tells the relay.
#[derive(Debug)]
pub(super) enum Order {
    /// Answer this.
    Ask(usize, Ask),
    /// More of the request's body.
    Body(usize, Ticket, Bytes),
    /// The request's body is whole.
    BodyEnded(usize, Ticket),
    /// The client is gone, or its request turned out broken: drop all of it.
    Cancel(usize, Ticket),
    /// The client took so many bytes of the answer.
    Taken(usize, Ticket, usize),
    /// The server ends.
    Stop,
}

/// What workers know without asking the relay.
#[derive(Debug)]
pub(super) struct Entrance {
    prefixes: Prefixes,
    /// Of each route its figures, and the door of its upstream.
    routes: Vec<(Arc<Counts>, Arc<Door>)>,
    /// Requests that were handed over and that the relay has not begun with.
    unread: AtomicUsize,
}

/// A request that the relay has taken, but not begun with.
#[derive(Debug)]
pub(super) struct Unread(Arc<Entrance>);

/// A worker's access to the relay.
#[derive(Debug)]
pub(crate) struct Front {
    worker: usize,
    entrance: Arc<Entrance>,
    orders: UnboundedSender<Order>,
    events: Receiver<(Ticket, Event)>,
    bell: Arc<Bell>,
    /// Events for requests that no relay takes any more.
    lost: VecDeque<(Ticket, Event)>,
}

/// The relay's access to a worker.
#[derive(Clone, Debug)]
pub(super) struct Back {
    events: Sender<(Ticket, Event)>,
    bell: Arc<Bell>,
}

/// Wakes a worker, once for however many events.
#[derive(Debug)]
struct Bell {
    descriptor: EventFd,
    rung: AtomicBool,
}

impl Entrance {
    /// For these routes, and as many figures and doors.
    pub(super) fn new(routes: &[Route], counted: Vec<(Arc<Counts>, Arc<Door>)>) -> Self {
        Entrance { prefixes: Prefixes::new(routes), routes: counted, unread: AtomicUsize::new(0) }
    }
}

impl Unread {
    /// One that was counted by [`Front::ask`].
    pub(super) fn of(entrance: &Arc<Entrance>) -> Self {
        Unread(Arc::clone(entrance))
    }
}

impl Drop for Unread {
    fn drop(&mut self) {
        self.0.unread.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Front {
    /// Both sides of the mailboxes of worker number `worker`.
    pub(super) fn pair(
        worker: usize,
        entrance: Arc<Entrance>,
        orders: UnboundedSender<Order>,
    ) -> io::Result<(Front, Back)> {
        let descriptor = EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)?;
        let bell = Arc::new(Bell { descriptor, rung: AtomicBool::new(false) });
        let (sender, events) = channel();
        let back = Back { events: sender, bell: Arc::clone(&bell) };
        let lost = VecDeque::new();
        Ok((Front { worker, entrance, orders, events, bell, lost }, back))
    }

    /// The route of a path in its plain form (`target::plain`: decoded, slashes merged, dot parts resolved); `None` when it
    /// is a file's. A comparison for each route.
    pub(crate) fn routed(&self, path: &[u8]) -> Option<usize> {
        self.entrance.prefixes.find(path)
    }

    /// Why a request for this route is to be refused at once, without the relay: status, field lines and text of the answer.
    /// With a cache the relay may have an answer although the upstream takes no more, so `is_cached` asks less.
    pub(crate) fn refusal(&self, route: usize, is_cached: bool) -> Option<(u16, Bytes, Bytes)> {
        let (counts, door) = &self.entrance.routes[route];
        let is_full = (!is_cached && door.is_full()) || self.entrance.unread.load(Ordering::Relaxed) >= UNREAD_MAX;
        if !is_full {
            return None;
        }
        count(&counts.refused_full);
        Some(Failure::busy(door.retry_after_s()).page())
    }

    /// Hands a request over.
    pub(crate) fn ask(&mut self, ask: Ask) {
        let (ticket, head_only) = (ask.ticket, ask.head.starts_with(b"HEAD "));
        self.entrance.unread.fetch_add(1, Ordering::Relaxed);
        if self.order(Order::Ask(self.worker, ask)) {
            return;
        }
        drop(Unread::of(&self.entrance));
        // The relay failed, which ends it, not the static server: clients are told instead of waiting.
        let (status, fields, text) = Failure::lost().page();
        let length = Some(text.len() as u64);
        self.lost.push_back((ticket, Event::Head { status, fields, length, finding: Finding::NONE }));
        if !head_only {
            self.lost.push_back((ticket, Event::Body(text)));
        }
        self.lost.push_back((ticket, Event::End));
        let _ = self.bell.descriptor.write(1);
    }

    /// Passes more of the request's body on: at most as much as the `Room` events of this ticket left.
    pub(crate) fn body(&mut self, ticket: Ticket, bytes: &[u8]) {
        self.order(Order::Body(self.worker, ticket, Bytes::copy_from_slice(bytes)));
    }

    /// The request's body was whole.
    pub(crate) fn body_ended(&mut self, ticket: Ticket) {
        self.order(Order::BodyEnded(self.worker, ticket));
    }

    /// Ends an exchange whose answer nobody wants any more. Its upstream connection is closed, its place is free. Also
    /// for a request whose body breaks off or turns out malformed: the upstream never sees it as whole.
    pub(crate) fn cancel(&mut self, ticket: Ticket) {
        self.order(Order::Cancel(self.worker, ticket));
    }

    /// So many bytes of [`Event::Body`] have gone to the client: as many more may come.
    pub(crate) fn taken(&mut self, ticket: Ticket, bytes: usize) {
        self.order(Order::Taken(self.worker, ticket, bytes));
    }

    /// Readable when [`Front::next`] may have something. Level-triggered until [`Front::next`] has said `None`.
    pub(crate) fn wake_fd(&self) -> BorrowedFd<'_> {
        self.bell.descriptor.as_fd()
    }

    /// Call once when the descriptor was readable, then [`Front::next`] until it is empty.
    pub(crate) fn woken(&mut self) {
        // Read first: a bell rung between the two is heard at the next wait.
        let _ = self.bell.descriptor.read();
        self.bell.rung.store(false, Ordering::SeqCst);
    }

    /// The next event.
    pub(crate) fn next(&mut self) -> Option<(Ticket, Event)> {
        self.events.try_recv().ok().or_else(|| self.lost.pop_front())
    }

    /// Makes [`Front::wake_fd`] readable once more: something may be left, for another turn.
    pub(crate) fn wake_again(&self) {
        // At most one unread write beside that of the relay: the counter cannot overflow.
        let _ = self.bell.descriptor.write(1);
    }

    /// False when the relay is gone.
    fn order(&self, order: Order) -> bool {
        self.orders.send(order).is_ok()
    }
}

impl Back {
    /// Tells the worker. Never waits.
    pub(super) fn tell(&self, ticket: Ticket, event: Event) {
        // A worker that ended needs nothing.
        if self.events.send((ticket, event)).is_ok() && !self.bell.rung.swap(true, Ordering::SeqCst) {
            // One unread write at a time: the counter cannot overflow.
            let _ = self.bell.descriptor.write(1);
        }
    }
}

/// Requests that the relay may be behind by: a flood of clients that ask and go must not fill the mailbox. Their heads
/// take a few MiB at most, unless they are longer than any browser's.
const UNREAD_MAX: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;
    use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
    use tokio::sync::mpsc::unbounded_channel;

    use crate::request::Body;

    fn entrance() -> Arc<Entrance> {
        Arc::new(Entrance::new(&["/=http://h:1".parse().unwrap()], vec![Default::default()]))
    }

    fn ask(front: &mut Front, ticket: Ticket) {
        let any = "127.0.0.1:1".parse().unwrap();
        let head = b"GET / HTTP/1.1\r\nHost: h\r\n\r\n".as_slice().into();
        front.ask(Ask { ticket, route: 0, head, body: Body::None, peer: any, local: any, secure: false });
    }

    fn readable(front: &Front) -> bool {
        poll(&mut [PollFd::new(front.wake_fd(), PollFlags::POLLIN)], PollTimeout::ZERO).unwrap() == 1
    }

    #[test]
    fn without_a_relay_clients_are_told() {
        let (orders, heard) = unbounded_channel();
        let (mut front, back) = Front::pair(0, entrance(), orders).unwrap();
        drop((heard, back));
        ask(&mut front, 4);
        assert!(readable(&front));
        front.woken();
        assert!(matches!(front.next(), Some((4, Event::Head { status: 502, .. }))));
        assert!(matches!(front.next(), Some((4, Event::Body(_)))));
        assert!(matches!(front.next(), Some((4, Event::End))));
        assert!(front.next().is_none());
    }

    #[test]
    fn a_relay_that_is_far_behind_is_asked_no_more() {
        let (orders, mut heard) = unbounded_channel();
        let entrance = entrance();
        let (mut front, _back) = Front::pair(0, Arc::clone(&entrance), orders).unwrap();
        for ticket in 0..UNREAD_MAX as u64 {
            assert!(front.refusal(0, true).is_none());
            ask(&mut front, ticket);
        }
        let (status, fields, _) = front.refusal(0, true).unwrap();
        assert!(status == 503 && fields.windows(12).any(|part| part == b"Retry-After:"));
        assert!(matches!(heard.try_recv(), Ok(Order::Ask(0, _))));
        drop(Unread::of(&entrance));
        assert!(front.refusal(0, true).is_none());
        assert_eq!(entrance.routes[0].0.read(String::new()).refused_full, 1);
    }

    #[test]
    fn the_bell_rings_once_for_many_events_and_again_after_they_were_heard() {
        let (orders, mut heard) = unbounded_channel();
        let (mut front, back) = Front::pair(3, entrance(), orders).unwrap();
        assert!(!readable(&front));
        back.tell(7, Event::End);
        back.tell(8, Event::Broken);
        assert!(readable(&front));
        front.woken();
        assert!(!readable(&front));
        assert!(matches!(front.next(), Some((7, Event::End))));
        // Told while the worker is still taking events out: it must not be lost, seen or not in this round.
        back.tell(9, Event::End);
        assert!(readable(&front));
        assert!(matches!(front.next(), Some((8, Event::Broken))));
        assert!(matches!(front.next(), Some((9, Event::End))));
        assert!(front.next().is_none());
        front.cancel(7);
        assert!(matches!(heard.try_recv(), Ok(Order::Cancel(3, 7))));
    }
}

/// A worker's access to a relay that a test plays.
#[cfg(test)]
#[derive(Debug)]
pub(crate) struct Played(tokio::sync::mpsc::UnboundedReceiver<Order>);

/// What a worker told a played relay.
#[cfg(test)]
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Told {
    /// The head of a request.
    Ask(Box<[u8]>),
    /// More of its body.
    Body(Bytes),
    /// All of its body has come.
    BodyEnded,
    /// Nobody wants the answer.
    Cancel,
    /// So much of the answer has gone.
    Taken(usize),
}

#[cfg(test)]
impl Played {
    /// For one route.
    pub(crate) fn new(route: &str) -> (Front, Played) {
        let (orders, receiver) = tokio::sync::mpsc::unbounded_channel();
        let entrance = Arc::new(Entrance::new(&[route.parse().unwrap()], vec![Default::default()]));
        let (front, _back) = Front::pair(0, entrance, orders).unwrap();
        (front, Played(receiver))
    }

    /// What was told next.
    pub(crate) fn next(&mut self) -> Option<Told> {
        Some(match self.0.try_recv().ok()? {
            Order::Ask(_, ask) => Told::Ask(ask.head),
            Order::Body(_, _, bytes) => Told::Body(bytes),
            Order::BodyEnded(..) => Told::BodyEnded,
            Order::Cancel(..) => Told::Cancel,
            Order::Taken(_, _, bytes) => Told::Taken(bytes),
            Order::Stop => return None,
        })
    }
}
