//! Packets that wait for a packet that they acknowledge: see [`crate::waiting`].

use schema::Direction;
use units::time::saturating_nanos;

use super::Watch;
use crate::table::Index;
use crate::tcp::Segment;
use crate::waiting::{self, Waiting};

impl Watch {
    /// Holds a segment that acknowledges unseen bytes, or arrives while others wait.
    #[cold]
    pub(super) fn enqueue(&mut self, index: Index, direction: Direction, segment: &Segment<'_>, is_fragment: bool) {
        let reorder_ns = saturating_nanos(self.spec.reorder);
        let flow = self.table.flow(index);
        let since = flow.waiting.as_ref().and_then(|waiting| waiting.since());
        if since.is_some_and(|since| since.abs_diff(segment.at) > reorder_ns) {
            self.wait_policy.note(false);
            self.process_waiting(index, false);
            if !self.table.flow(index).acknowledges_unseen(direction, segment) {
                return self.receive_at(index, direction, segment, is_fragment);
            }
        }
        let flow = self.table.flow(index);
        let waiting = flow.waiting.as_ref();
        let may_pass = waiting.is_some_and(|waiting| waiting.awaits(direction) || waiting.may_be_passed());
        if may_pass && !flow.acknowledges_unseen(direction, segment) {
            self.receive_at(index, direction, segment, is_fragment);
            return self.process_ready(index, segment.number, segment.at);
        }
        let is_first = flow.waiting.is_none();
        if is_first && (reorder_ns == 0 || !self.wait_policy.allows()) {
            return self.receive_at(index, direction, segment, is_fragment);
        }
        let held = self.table.flow(index).waiting.as_ref().map_or(0, |waiting| waiting.bytes());
        let cost = waiting::cost(segment);
        let limits = &self.spec.limits;
        if held + cost > limits.held_per_direction || self.held + cost > limits.held_in_all {
            self.process_waiting(index, false);
            return self.receive_at(index, direction, segment, is_fragment);
        }
        self.held += cost;
        let flow = self.table.flow(index);
        let number = flow.number;
        flow.last_packet_at = self.series.clock();
        flow.waiting.get_or_insert_default().push(direction, is_fragment, segment);
        if is_first {
            self.note_waiting(index, number);
        }
    }

    /// Records a waiting connection. Most no longer wait at the next check.
    fn note_waiting(&mut self, index: Index, number: u64) {
        if self.waiting.len() >= self.waiting_most {
            let table = &mut self.table;
            self.waiting.retain(|&(index, number)| {
                let flow = table.flow(index);
                flow.number == number && flow.waiting.is_some()
            });
            self.waiting_most = (2 * self.waiting.len()).max(super::WAITING_MAX);
        }
        self.waiting.push((index, number));
    }

    /// Processes packets that need not wait any more, since packet `number` arrived at `at`.
    fn process_ready(&mut self, index: Index, number: u64, at: u64) {
        let flow = self.table.flow(index);
        let Some(waiting) = &flow.waiting else { return };
        let Some(front) = waiting.front() else { return };
        if flow.acknowledges_unseen(front.direction, &front.segment()) {
            return;
        }
        if let Some(early_ns @ 1..) = waiting.since().and_then(|since| at.checked_sub(since)) {
            self.reading.early_acks.note(number, early_ns);
        }
        self.wait_policy.note(true);
        self.process_waiting(index, true);
    }

    /// Processes waiting packets: all of them, or (`only_ready`) up to the next that must wait.
    pub(super) fn process_waiting(&mut self, index: Index, only_ready: bool) {
        let Some(mut waiting) = self.table.flow(index).waiting.take() else { return };
        while let Some(front) = waiting.front() {
            if only_ready && self.table.flow(index).acknowledges_unseen(front.direction, &front.segment()) {
                self.table.flow(index).waiting = Some(waiting);
                return;
            }
            if let Some(held) = waiting.pop() {
                self.held = self.held.saturating_sub(waiting::cost(&held.segment()));
                self.receive_at(index, held.direction, &held.segment(), held.is_fragment);
            }
        }
    }

    /// Ends every overdue wait: checked every second.
    pub(super) fn end_overdue(&mut self) {
        if self.waiting.is_empty() {
            return;
        }
        let now = self.series.now().as_nanos();
        let reorder_ns = saturating_nanos(self.spec.reorder);
        self.end_waits(|waiting| waiting.since().is_none_or(|since| now.saturating_sub(since) > reorder_ns));
    }

    /// Ends every wait.
    pub(super) fn end_waiting(&mut self) {
        self.end_waits(|_| true);
    }

    fn end_waits(&mut self, is_over: impl Fn(&Waiting) -> bool) {
        let mut flows = std::mem::take(&mut self.waiting);
        flows.retain(|&(index, number)| {
            let flow = self.table.flow(index);
            let Some(waiting) = flow.waiting.as_ref().filter(|_| flow.number == number) else { return false };
            let ends = is_over(waiting);
            if ends {
                self.wait_policy.note(false);
                self.process_waiting(index, false);
            }
            !ends
        });
        self.waiting = flows;
    }

    fn receive_at(&mut self, index: Index, direction: Direction, segment: &Segment<'_>, is_fragment: bool) {
        let key = self.table.key(index);
        self.receive(index, &key, direction, segment, is_fragment);
    }
}
