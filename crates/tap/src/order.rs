//! Sorts the events of many rings by time.
//!
//! Rings are drained one after the other: a later ring may hold earlier events than an earlier ring received
//! meanwhile. So an event waits until a whole round has started after its time. A run of a connection is written
//! before the next one ends, so its runs keep their order across threads.
//!
//! The rings bound the waiting events: a record dated later than it was read is discarded
//! ([`Rings::drain`](crate::rings::Rings::drain)), so the events of one round are released in the next.

use serde::{Deserialize, Serialize};
use units::Timestamp;

use crate::event::{Event, Origin, What};

/// Waiting events.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct InOrder {
    waiting: Vec<(Timestamp, Event)>,
}

impl InOrder {
    /// Adds an event from a ring.
    pub fn push(&mut self, event: Event) {
        self.waiting.push((moment(&event.what), event));
    }

    /// Passes on, in order, the events until `until`: the time at which the last round of all rings started.
    pub fn release(&mut self, until: Timestamp, mut take: impl FnMut(Event)) {
        // A stable sort keeps the order of one thread's events with equal times.
        self.waiting.sort_by_key(|(moment, _)| *moment);
        let ready = self.waiting.partition_point(|(moment, _)| *moment <= until);
        self.waiting.drain(..ready).for_each(|(_, event)| take(event));
    }

    /// Passes on all remaining events.
    pub fn release_all(&mut self, take: impl FnMut(Event)) {
        self.release(Timestamp::MAX, take);
    }

    /// Passes on the remaining events of some threads, whatever their times.
    pub fn release_of(&mut self, meant: impl Fn(&Origin) -> bool, mut take: impl FnMut(Event)) {
        self.waiting.sort_by_key(|(moment, _)| *moment);
        self.waiting.extract_if(.., |(_, event)| meant(&event.origin)).for_each(|(_, event)| take(event));
    }

    /// Number of waiting events.
    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Whether no event waits.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }
}

/// When an event ended, which is when it could be recorded; zero without a time.
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
