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

use crate::event::{Event, EventKind, Origin};

/// Waiting events.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct InOrder {
    waiting: Vec<(Timestamp, Event)>,
}

impl InOrder {
    /// Adds an event from a ring.
    pub fn push(&mut self, event: Event) {
        self.waiting.push((event_time(&event.what), event));
    }

    /// Passes the events until `until` to `apply`, in the order of time. `until` is when the last round of all rings
    /// started.
    pub fn release(&mut self, until: Timestamp, mut apply: impl FnMut(Event)) {
        // A stable sort keeps the order of one thread's events with equal times.
        self.waiting.sort_by_key(|(time, _)| *time);
        let ready = self.waiting.partition_point(|(time, _)| *time <= until);
        self.waiting.drain(..ready).for_each(|(_, event)| apply(event));
    }

    /// Passes all remaining events to `apply`.
    pub fn release_all(&mut self, apply: impl FnMut(Event)) {
        self.release(Timestamp::MAX, apply);
    }

    /// Passes the remaining events of the selected threads to `apply`, whatever their times.
    pub fn release_of(&mut self, is_selected: impl Fn(&Origin) -> bool, mut apply: impl FnMut(Event)) {
        self.waiting.sort_by_key(|(time, _)| *time);
        self.waiting.extract_if(.., |(_, event)| is_selected(&event.origin)).for_each(|(_, event)| apply(event));
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
pub(crate) fn event_time(what: &EventKind) -> Timestamp {
    match what {
        EventKind::Loaded { at, .. }
        | EventKind::Forked { at, .. }
        | EventKind::Filtered { at, .. }
        | EventKind::Executing { at, .. }
        | EventKind::Shut { at, .. }
        | EventKind::Withdrawn { at, .. }
        | EventKind::Polled { at, .. }
        | EventKind::Aside { at, .. } => *at,
        EventKind::Resolved { end, .. } => *end,
        EventKind::Opened(opened) => opened.at,
        EventKind::Connected(attempt) | EventKind::ConnectFailed(attempt) => attempt.end,
        EventKind::Sent(run) | EventKind::Received(run) => run.end,
        EventKind::Closed(closed) | EventKind::Leaving(closed) => closed.begin,
        EventKind::Lost { .. } => Timestamp::ZERO,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::event::Origin;

    fn polled(image: u32, at: u64) -> Event {
        let what = EventKind::Polled { at: Timestamp::from_nanos(at), blocked: Duration::ZERO, calls: 1 };
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
        assert_eq!(seen, [polled(2, 31), polled(1, 31)], "events with equal times keep their order");
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
