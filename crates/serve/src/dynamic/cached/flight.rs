//! One fetch that many may wait for.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::{Rc, Weak};
use std::time::Duration;

use tokio::sync::Notify;
use units::Timestamp;

use super::filling::Filling;
use super::{FIELDS_MAX, Failure};
use crate::cache::{Head, Key, Question, Stored, Usable, usable};
use crate::request::{Parsed, parse_within};

/// The fetches under way, by key.
#[derive(Debug, Default)]
pub(super) struct Flights(RefCell<HashMap<Key, Vec<Rc<Flight>>>>);

/// One of them.
#[derive(Debug)]
pub(super) struct Flight {
    /// The head of the request it is for.
    head: Rc<[u8]>,
    landing: RefCell<Option<Landing>>,
    changed: Notify,
    /// What it fetches was changed meanwhile: nobody may follow any more, and nothing is stored.
    doomed: Cell<bool>,
    /// Nobody waits for it: its answer is expected to be for one client.
    alone: bool,
}

/// How a fetch turned out, for those who wait for it.
#[derive(Clone, Debug)]
pub(super) enum Landing {
    /// The stored answer holds.
    Kept(Stored),
    /// The answer is coming and may be shared.
    Shared(Rc<Filling>),
    /// It is the leader's alone.
    Alone,
    /// The upstream answered that it failed.
    Errored,
    /// It could not be asked.
    Failed(Failure),
    /// The leader's client went away before the answer came.
    Abandoned,
}

impl Flights {
    /// A fetch whose answer this request may hope for: of the same key, not doomed, and, as far as is known by now, for
    /// the same values of the selecting fields. `known`: the head of a stored answer of this key.
    pub(super) fn find(
        &self,
        key: &Key,
        question: &Question<'_>,
        known: Option<&Head>,
        arrived_at: Timestamp,
        now: Timestamp,
    ) -> Option<Rc<Flight>> {
        let flights = self.0.borrow();
        let joinable = |flight: &&Rc<Flight>| match &*flight.landing.borrow() {
            _ if flight.alone => false,
            None => flight.is_for(question, known),
            Some(Landing::Shared(filling)) => may_have(&filling.head, question, arrived_at, now),
            // Over, and about to be taken from the list.
            Some(_) => false,
        };
        flights.get(key)?.iter().find(joinable).cloned()
    }

    /// What these fetches bring is out of date before it is there.
    pub(super) fn doom(&self, key: &Key) {
        for flight in self.0.borrow_mut().remove(key).into_iter().flatten() {
            flight.doomed.set(true);
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

/// Whether a request may have an answer that came for another one: it must select it, and it must be fresh for it. What a
/// client demands of an answer's age is met by one that came from the origin after he asked.
pub(super) fn may_have(head: &Head, question: &Question<'_>, arrived_at: Timestamp, now: Timestamp) -> bool {
    if !head.vary.selects(&question.lines()) {
        return false;
    }
    let came_after = head.received.at >= arrived_at;
    let demands = &question.demands;
    match usable(head, question, now) {
        Usable::Fresh => true,
        Usable::Validate(_) if came_after && !head.terms.validate_always => {
            let least = demands.min_fresh_s.map_or(Duration::ZERO, Duration::from_secs);
            head.left(now).is_ok_and(|left| left >= least)
        }
        _ => false,
    }
}

impl Flight {
    fn is_for(&self, question: &Question<'_>, known: Option<&Head>) -> bool {
        let Some(known) = known else { return true };
        // What is stored was selected by the same fields that this request has; was the leader's request like that too?
        let Parsed::Complete(leader) = parse_within(&self.head, usize::MAX, FIELDS_MAX) else { return false };
        known.vary.selects(&leader.fields.lines()) == known.vary.selects(&question.lines())
    }

    /// Waits until it is known how it turned out.
    pub(super) async fn landed(&self) -> Landing {
        loop {
            // Nothing else runs on this thread between the look and the wait.
            let landing = self.landing.borrow().clone();
            match landing {
                Some(landing) => return landing,
                None => self.changed.notified().await,
            }
        }
    }

    /// Whether its answer may not be stored.
    pub(super) fn is_doomed(&self) -> bool {
        self.doomed.get()
    }

    fn land(&self, landing: Landing) {
        *self.landing.borrow_mut() = Some(landing);
        self.changed.notify_waiters();
    }
}

/// The leader's hold on a flight: dropped before it landed, the leader's client has gone, and the next one leads.
#[derive(Debug)]
pub(super) struct Leading {
    flights: Rc<Flights>,
    key: Key,
    flight: Rc<Flight>,
}

/// A flight whose answer is being shared; in the list until it is whole.
#[derive(Debug)]
pub(super) struct Sharing {
    flights: Weak<Flights>,
    key: Key,
    flight: Rc<Flight>,
}

impl Leading {
    /// A new flight, for the request with this head.
    pub(super) fn new(flights: &Rc<Flights>, key: &Key, head: &Rc<[u8]>) -> Self {
        Leading::enlist(flights, key, head, false)
    }

    /// One that nobody may follow; it is known only so that it can be doomed.
    pub(super) fn alone(flights: &Rc<Flights>, key: &Key, head: &Rc<[u8]>) -> Self {
        Leading::enlist(flights, key, head, true)
    }

    fn enlist(flights: &Rc<Flights>, key: &Key, head: &Rc<[u8]>, alone: bool) -> Self {
        let flight = Rc::new(Flight {
            head: Rc::clone(head),
            landing: RefCell::new(None),
            changed: Notify::new(),
            doomed: Cell::new(false),
            alone,
        });
        flights.0.borrow_mut().entry(key.clone()).or_default().push(Rc::clone(&flight));
        Leading { flights: Rc::clone(flights), key: key.clone(), flight }
    }

    pub(super) fn flight(&self) -> &Flight {
        &self.flight
    }

    /// Others may be waiting for it.
    pub(super) fn has_followers(&self) -> bool {
        !self.flight.alone
    }

    /// It turned out like this.
    pub(super) fn land(self, landing: Landing) {
        self.flight.land(landing);
    }

    /// Its answer is coming; whoever may have it at this moment may follow.
    pub(super) fn share(self, filling: &Rc<Filling>, now: Timestamp) -> Sharing {
        let can_be_reused = !filling.head.terms.validate_always && filling.head.left(now).is_ok();
        self.flight.land(if can_be_reused { Landing::Shared(Rc::clone(filling)) } else { Landing::Alone });
        let sharing =
            Sharing { flights: Rc::downgrade(&self.flights), key: self.key.clone(), flight: Rc::clone(&self.flight) };
        if !self.flight.is_doomed() {
            // Dropping takes it from the list; those who come while it streams find it there again, and so does who
            // changes what it fetches.
            let (flights, key) = (Rc::clone(&self.flights), self.key.clone());
            drop(self);
            flights.0.borrow_mut().entry(key).or_default().push(Rc::clone(&sharing.flight));
        }
        sharing
    }
}

impl Drop for Leading {
    fn drop(&mut self) {
        if self.flight.landing.borrow().is_none() {
            self.flight.land(Landing::Abandoned);
        }
        self.flights.remove(&self.key, &self.flight);
    }
}

impl Sharing {
    pub(super) fn is_doomed(&self) -> bool {
        self.flight.is_doomed()
    }
}

impl Drop for Sharing {
    fn drop(&mut self) {
        if let Some(flights) = self.flights.upgrade() {
            flights.remove(&self.key, &self.flight);
        }
    }
}
