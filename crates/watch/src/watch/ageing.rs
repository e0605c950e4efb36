//! Connections that end without a packet: idle ones, and the oldest if the table is full.

use schema::RecordEnd;
use units::time::saturating_nanos;

use super::{EVICTION_CANDIDATES, SECOND, Watch};
use crate::out::Out;
use crate::table::Index;

impl Watch {
    #[cold]
    pub(super) fn evict_one(&mut self) {
        self.counts.evicted += 1;
        if let Some(index) = self.table.first_closed() {
            return self.end(index, RecordEnd::Closed);
        }
        let mut due = std::mem::take(&mut self.due);
        self.table.soonest(EVICTION_CANDIDATES, &mut due);
        let silent = due.drain(..).min_by_key(|&index| self.table.flow(index).last_packet_at);
        self.due = due;
        if let Some(index) = silent {
            self.end(index, RecordEnd::Evicted);
        }
    }

    /// Records closed connections after their linger time, and open ones that are idle.
    #[cold]
    pub(super) fn age(&mut self) {
        self.end_overdue();
        self.age_quic();
        let now = self.series.clock();
        let linger = saturating_nanos(self.spec.linger);
        while let Some(index) = self.table.first_closed() {
            if now.saturating_sub(self.table.flow(index).over_at) < linger {
                break;
            }
            self.end(index, RecordEnd::Closed);
        }
        let mut due = std::mem::take(&mut self.due);
        self.table.turn(now / SECOND, &mut due);
        for index in due.drain(..) {
            let last_packet_at = self.table.flow(index).last_packet_at;
            if now.saturating_sub(last_packet_at) >= self.idle_timeout() {
                self.end(index, RecordEnd::Idle);
            } else {
                let second = self.next_check(last_packet_at);
                self.table.schedule(index, second);
            }
        }
        self.due = due;
    }

    /// The second in which a connection with its last packet at `last_packet_at` is checked: when it will have been
    /// idle.
    pub(super) fn next_check(&self, last_packet_at: u64) -> u64 {
        last_packet_at.saturating_add(self.idle_timeout()).div_ceil(SECOND)
    }

    pub(super) fn idle_timeout(&self) -> u64 {
        saturating_nanos(self.spec.idle_timeout).max(SECOND)
    }

    /// Removes a connection and records it.
    pub(super) fn end(&mut self, index: Index, end: RecordEnd) {
        self.process_waiting(index, false);
        let key = self.table.remove(index);
        // Recorded in place: its memory is reused only later.
        let flow = self.table.flow(index);
        let mut out = Out {
            at: self.series.now().as_nanos(),
            packet: self.number,
            connection: flow.number,
            key: &key,
            client_is_second: flow.client_is_second,
            limits: &self.spec.limits,
            secrets: &mut self.secrets,
            later_protocols: self.spec.later_protocols,
            stores_words: self.spec.words,
            series: &mut self.series,
            reading: &mut self.reading,
            words: &mut self.words,
            requests: &mut self.requests,
            quic_packets: &mut self.quic_packets,
            held: &mut self.held,
        };
        self.connections.push(flow.record([key.end(false), key.end(true)], end, &mut out));
    }
}
