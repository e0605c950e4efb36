//! First-in, first-out queues of connections, as linked lists in one array.
//!
//! All timeouts are constant, so deadlines expire in the order in which they are set, and a queue needs no heap. A
//! connection is in at most one queue at a time, depending on its state, so one pair of links per connection is enough.
//! Removal from the middle is immediate: with lazy removal, 100,000 requests per second and a timeout of 30 s would
//! leave three million stale entries.

use units::Timestamp;

/// The queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Queue {
    /// By connect deadline.
    Connecting,
    /// By response deadline.
    Awaiting,
    /// By the time at which they became idle.
    Idle,
}

/// All queues over all connection slots.
#[derive(Debug)]
pub(crate) struct Queues {
    nodes: Vec<Node>,
    ends: [Ends; 3],
}

#[derive(Clone, Copy, Debug)]
struct Node {
    at: Timestamp,
    previous: u32,
    next: u32,
    queue: Option<Queue>,
}

#[derive(Clone, Copy, Debug)]
struct Ends {
    first: u32,
    last: u32,
}

/// Marks the end of a list.
const NONE: u32 = u32::MAX;

impl Queues {
    pub(crate) fn new() -> Self {
        Queues { nodes: Vec::new(), ends: [Ends { first: NONE, last: NONE }; 3] }
    }

    /// Appends slot `index`, which must be in no queue. `at` must not be before the time of the queue's last slot.
    pub(crate) fn push(&mut self, queue: Queue, index: u32, at: Timestamp) {
        if self.nodes.len() <= index as usize {
            let empty = Node { at: Timestamp::ZERO, previous: NONE, next: NONE, queue: None };
            self.nodes.resize(index as usize + 1, empty);
        }
        debug_assert!(self.nodes[index as usize].queue.is_none(), "slot {index} is in a queue already");
        let ends = &mut self.ends[queue as usize];
        let previous = std::mem::replace(&mut ends.last, index);
        if previous == NONE {
            ends.first = index;
        } else {
            debug_assert!(self.nodes[previous as usize].at <= at, "deadlines of one queue are set in order");
            self.nodes[previous as usize].next = index;
        }
        self.nodes[index as usize] = Node { at, previous, next: NONE, queue: Some(queue) };
    }

    /// Removes slot `index` from its queue, if it is in one.
    pub(crate) fn remove(&mut self, index: u32) {
        let Some(node) = self.nodes.get_mut(index as usize) else { return };
        let Some(queue) = node.queue.take() else { return };
        let (previous, next) = (node.previous, node.next);
        if previous == NONE {
            self.ends[queue as usize].first = next;
        } else {
            self.nodes[previous as usize].next = next;
        }
        if next == NONE {
            self.ends[queue as usize].last = previous;
        } else {
            self.nodes[next as usize].previous = previous;
        }
    }

    /// Whether slot `index` is in a queue.
    pub(crate) fn holds(&self, index: u32) -> bool {
        self.nodes.get(index as usize).is_some_and(|node| node.queue.is_some())
    }

    /// The first slot of a queue, with its time.
    pub(crate) fn first(&self, queue: Queue) -> Option<(u32, Timestamp)> {
        let first = self.ends[queue as usize].first;
        (first != NONE).then(|| (first, self.nodes[first as usize].at))
    }

    /// The slots of a queue, in order, each with its time.
    pub(crate) fn iter(&self, queue: Queue) -> impl Iterator<Item = (u32, Timestamp)> + '_ {
        let node = |index: u32| (index != NONE).then_some(index);
        let slots = std::iter::successors(node(self.ends[queue as usize].first), move |&index| {
            node(self.nodes[index as usize].next)
        });
        slots.map(|index| (index, self.nodes[index as usize].at))
    }

    /// Earliest deadline of all queues that have one (Idle has none).
    pub(crate) fn next_deadline(&self) -> Option<Timestamp> {
        [Queue::Connecting, Queue::Awaiting].into_iter().filter_map(|queue| Some(self.first(queue)?.1)).min()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// The queues behave like plain deques for any sequence of insertions and removals.
        #[test]
        fn intrusive_queues_agree_with_a_reference_model(
            steps in prop::collection::vec((0u32..16, 0usize..4), 1..300),
        ) {
            let names = [Queue::Connecting, Queue::Awaiting, Queue::Idle];
            let mut queues = Queues::new();
            let mut model: [VecDeque<(u32, Timestamp)>; 3] = Default::default();
            for (now, (index, what)) in steps.into_iter().enumerate() {
                let at = Timestamp::from_nanos(now as u64);
                queues.remove(index);
                for queue in &mut model {
                    queue.retain(|&(other, _)| other != index);
                }
                if what < 3 {
                    queues.push(names[what], index, at);
                    model[what].push_back((index, at));
                }
                for (queue, plain) in names.iter().zip(&model) {
                    prop_assert!(queues.iter(*queue).eq(plain.iter().copied()));
                    prop_assert_eq!(queues.first(*queue), plain.front().copied());
                }
                prop_assert_eq!(queues.next_deadline(), model[..2].iter().filter_map(|q| Some(q.front()?.1)).min());
            }
            for (queue, plain) in names.iter().zip(&mut model) {
                while let Some((index, at)) = queues.first(*queue) {
                    prop_assert_eq!(plain.pop_front(), Some((index, at)));
                    queues.remove(index);
                }
                prop_assert!(plain.is_empty());
            }
        }
    }
}
