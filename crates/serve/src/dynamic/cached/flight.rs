//! One upstream request that several clients may wait for.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::{Rc, Weak};
use std::time::Duration;

use tokio::sync::Notify;
use units::Timestamp;

use super::filling::Filling;
use super::{FIELDS_MAX, Failure};
use crate::cache::{Head, Key, RequestDirectives, Stored, Usable, usable};
use crate::request::{Parsed, parse_within};

/// The fetches in flight, by key.
#[derive(Debug, Default)]
pub(super) struct Flights(RefCell<HashMap<Key, Vec<Rc<Flight>>>>);

/// One fetch in flight.
#[derive(Debug)]
pub(super) struct Flight {
    /// The head of its request.
    head: Rc<[u8]>,
    result: RefCell<Option<FetchResult>>,
    changed: Notify,
    /// An unsafe request may have changed the target meanwhile: no request may wait for this fetch, and its response is
    /// not stored.
    invalidated: Cell<bool>,
    /// No client may wait for it: its response is expected to be for one client.
    alone: bool,
}

/// Result of a fetch for its followers.
#[derive(Clone, Debug)]
pub(super) enum FetchResult {
    /// The stored response is still valid.
    StillValid(Stored),
    /// The response is arriving and may be shared.
    Shared(Rc<Filling>),
    /// The response is for the leader only.
    Alone,
    /// The upstream sent a server error.
    Errored,
    /// The upstream was not reachable.
    Failed(Failure),
    /// The leader's client disconnected before the response.
    Abandoned,
}

impl Flights {
    /// A fetch whose response may serve this request: same key, not invalidated and, as far as known, the same values
    /// of the selecting fields. `known`: the head of a stored response of this key.
    pub(super) fn find(
        &self,
        key: &Key,
        directives: &RequestDirectives<'_>,
        known: Option<&Head>,
        arrived_at: Timestamp,
        now: Timestamp,
    ) -> Option<Rc<Flight>> {
        let flights = self.0.borrow();
        let joinable = |flight: &&Rc<Flight>| match &*flight.result.borrow() {
            _ if flight.alone => false,
            None => flight.is_for(directives, known),
            Some(FetchResult::Shared(filling)) => may_have(&filling.head, directives, arrived_at, now),
            // Completed, and about to leave the list.
            Some(_) => false,
        };
        flights.get(key)?.iter().find(joinable).cloned()
    }

    /// Invalidates the responses of fetches in flight.
    pub(super) fn invalidate(&self, key: &Key) {
        for flight in self.0.borrow_mut().remove(key).into_iter().flatten() {
            flight.invalidated.set(true);
        }
    }

    fn remove(&self, key: &Key, flight: &Rc<Flight>) {
        let mut flights = self.0.borrow_mut();
        if let Some(list) = flights.get_mut(key) {
            list.retain(|one| !Rc::ptr_eq(one, flight));
            if list.is_empty() {
                flights.remove(key);
            }
        }
    }
}

/// Whether a request may use a response to another request: the response must be selected by it and fresh for it. A
/// client's demand on the age is met by a response that left the origin after its request.
pub(super) fn may_have(head: &Head, directives: &RequestDirectives<'_>, arrived_at: Timestamp, now: Timestamp) -> bool {
    if !head.vary.selects(&directives.lines()) {
        return false;
    }
    let came_after = head.received.at >= arrived_at;
    let demands = &directives.demands;
    match usable(head, directives, now) {
        Usable::Fresh => true,
        Usable::Validate(_) if came_after && !head.terms.validate_always => {
            let least = demands.min_fresh_s.map_or(Duration::ZERO, Duration::from_secs);
            head.left(now).is_ok_and(|left| left >= least)
        }
        _ => false,
    }
}

impl Flight {
    fn is_for(&self, directives: &RequestDirectives<'_>, known: Option<&Head>) -> bool {
        let Some(known) = known else { return true };
        // The stored response was selected by the fields of this request; the leader's request must match too.
        let Parsed::Complete(leader) = parse_within(&self.head, usize::MAX, FIELDS_MAX) else { return false };
        known.vary.selects(&leader.fields.lines()) == known.vary.selects(&directives.lines())
    }

    /// Waits for the result.
    pub(super) async fn fetched(&self) -> FetchResult {
        loop {
            // No other task runs between this check and the wait.
            let result = self.result.borrow().clone();
            match result {
                Some(result) => return result,
                None => self.changed.notified().await,
            }
        }
    }

    /// Whether the response must not be stored.
    pub(super) fn is_invalidated(&self) -> bool {
        self.invalidated.get()
    }

    fn complete(&self, result: FetchResult) {
        *self.result.borrow_mut() = Some(result);
        self.changed.notify_waiters();
    }
}

/// Leadership of a fetch: dropped without a result when the leader's client disconnects; a follower then leads.
#[derive(Debug)]
pub(super) struct Leader {
    flights: Rc<Flights>,
    key: Key,
    flight: Rc<Flight>,
}

/// A fetch whose response is being shared; listed until it is complete.
#[derive(Debug)]
pub(super) struct SharedFetch {
    flights: Weak<Flights>,
    key: Key,
    flight: Rc<Flight>,
}

impl Leader {
    /// A new fetch for the request with this head.
    pub(super) fn new(flights: &Rc<Flights>, key: &Key, head: &Rc<[u8]>) -> Self {
        Leader::register(flights, key, head, false)
    }

    /// A fetch without followers; listed only so that it can be invalidated.
    pub(super) fn alone(flights: &Rc<Flights>, key: &Key, head: &Rc<[u8]>) -> Self {
        Leader::register(flights, key, head, true)
    }

    fn register(flights: &Rc<Flights>, key: &Key, head: &Rc<[u8]>, alone: bool) -> Self {
        let flight = Rc::new(Flight {
            head: Rc::clone(head),
            result: RefCell::new(None),
            changed: Notify::new(),
            invalidated: Cell::new(false),
            alone,
        });
        flights.0.borrow_mut().entry(key.clone()).or_default().push(Rc::clone(&flight));
        Leader { flights: Rc::clone(flights), key: key.clone(), flight }
    }

    pub(super) fn flight(&self) -> &Flight {
        &self.flight
    }

    /// Whether other clients may wait for it.
    pub(super) fn has_followers(&self) -> bool {
        !self.flight.alone
    }

    /// Sets the result.
    pub(super) fn complete(self, result: FetchResult) {
        self.flight.complete(result);
    }

    /// Shares the arriving response with all requests that may use it now.
    pub(super) fn share(self, filling: &Rc<Filling>, now: Timestamp) -> SharedFetch {
        let can_be_reused = !filling.head.terms.validate_always && filling.head.left(now).is_ok();
        self.flight.complete(if can_be_reused { FetchResult::Shared(Rc::clone(filling)) } else { FetchResult::Alone });
        let sharing = SharedFetch {
            flights: Rc::downgrade(&self.flights),
            key: self.key.clone(),
            flight: Rc::clone(&self.flight),
        };
        if !self.flight.is_invalidated() {
            // Dropping the leader removes the fetch from the list; it is listed again, for later requests and for
            // invalidation while it streams.
            let (flights, key) = (Rc::clone(&self.flights), self.key.clone());
            drop(self);
            flights.0.borrow_mut().entry(key).or_default().push(Rc::clone(&sharing.flight));
        }
        sharing
    }
}

impl Drop for Leader {
    fn drop(&mut self) {
        if self.flight.result.borrow().is_none() {
            self.flight.complete(FetchResult::Abandoned);
        }
        self.flights.remove(&self.key, &self.flight);
    }
}

impl SharedFetch {
    pub(super) fn is_invalidated(&self) -> bool {
        self.flight.is_invalidated()
    }
}

impl Drop for SharedFetch {
    fn drop(&mut self) {
        if let Some(flights) = self.flights.upgrade() {
            flights.remove(&self.key, &self.flight);
        }
    }
}
