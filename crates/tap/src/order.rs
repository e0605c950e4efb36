//! Events of many rings, put into the order of their times.
//!
//! Rings are drained one after the other: what a late ring holds may be later than what an early one got meanwhile. So
//! an event waits until a whole round has begun after its moment. A run of one connection is written before the next
//! one of it ends, so its runs keep their order, whichever threads told them.
//!
//! What waits is bounded by what the rings hold: a record that is dated later than it was read is none
//! ([`Rings::drain`](crate::rings::Rings::drain)), so whatever came in one round goes on in the next.

use serde::{Deserialize, Serialize};
use units::Timestamp;

use crate::event::{Event, Origin, What};

/// Events that wait for their turn.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct InOrder {
    waiting: Vec<(Timestamp, Event)>,
}

impl InOrder {
    /// Takes an event as it came out of a ring.
    pub fn push(&mut self, event: Event) {
        self.waiting.push((moment(&event.what), event));
    }

    /// Hands on, in order, what happened until `until`: the moment at which the last round of all rings began.
    pub fn release(&mut self, until: Timestamp, mut take: impl FnMut(Event)) {
        // Stable: what one thread told at one moment stays in its order.
        self.waiting.sort_by_key(|(moment, _)| *moment);
        let ready = self.waiting.partition_point(|(moment, _)| *moment <= until);
        self.waiting.drain(..ready).for_each(|(_, event)| take(event));
    }

    /// The same of all that is left.
    pub fn release_all(&mut self, take: impl FnMut(Event)) {
        self.release(Timestamp::MAX, take);
    }

    /// The same of what is left of some threads only, whenever it happened.
    pub fn release_of(&mut self, meant: impl Fn(&Origin) -> bool, mut take: impl FnMut(Event)) {
        self.waiting.sort_by_key(|(moment, _)| *moment);
        self.waiting.extract_if(.., |(_, event)| meant(&event.origin)).for_each(|(_, event)| take(event));
    }

    /// Events that wait.
    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Whether none waits.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }
}

/// When an event was over, which is when it could be told; zero for what has no moment.
pub(crate) fn moment(what: &What) -> Timestamp {
    match what {
        What::Loaded { at, .. }
        | What::Forked { at, .. }
        | What::Filtered { at, .. }
        | What::Executing { at, .. }
        | What::Shut { at, .. }
        | What::Withdrawn { at, .. }
        | What::Polled { at, .. }
        | What::Aside { at, .. } => *at,
        What::Resolved { end, .. } => *end,
        What::Opened(opened) => opened.at,
        What::Connected(attempt) | What::ConnectFailed(attempt) => attempt.end,
        What::Sent(run) | What::Received(run) => run.end,
        What::Closed(closed) | What::Left(closed) => closed.begin,
        What::Lost { .. } => Timestamp::ZERO,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::event::Origin;

    fn polled(image: u32, at: u64) -> Event {
        let what = What::Polled { at: Timestamp::from_nanos(at), blocked: Duration::ZERO, calls: 1 };
        Event { origin: Origin { image, pid: image, tid: image, space: 0 }, what }
    }

    #[test]
    fn events_of_several_rings_are_merged_by_time_and_the_newest_wait() {
        let mut order = InOrder::default();
        [polled(1, 10), polled(1, 30), polled(2, 5), polled(2, 20), polled(2, 31)]
            .into_iter()
            .for_each(|e| order.push(e));
        let mut seen = Vec::new();
        order.release(Timestamp::from_nanos(30), |event| seen.push(event));
        assert_eq!(seen, [polled(2, 5), polled(1, 10), polled(2, 20), polled(1, 30)]);
        assert_eq!(order.len(), 1);
        order.push(polled(1, 31));
        seen.clear();
        order.release_all(|event| seen.push(event));
        assert_eq!(seen, [polled(2, 31), polled(1, 31)], "what came first stays first");
        assert!(order.is_empty());
    }

    #[test]
    fn events_of_an_ended_process_are_released_early() {
        let mut order = InOrder::default();
        [polled(1, 40), polled(2, 10), polled(1, 30)].into_iter().for_each(|e| order.push(e));
        let mut seen = Vec::new();
        order.release_of(|origin| origin.image == 1, |event| seen.push(event));
        assert_eq!(seen, [polled(1, 30), polled(1, 40)]);
        order.release_all(|event| seen.push(event));
        assert_eq!(seen[2..], [polled(2, 10)]);
    }
}
