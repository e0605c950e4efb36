//! One direction of the link between client and server.

use std::collections::BTreeMap;
use std::time::Duration;

use units::Timestamp;

/// One direction of a link.
#[derive(Default)]
pub struct Link {
    pub delay: Duration,
    /// Bytes per second.
    pub rate: Option<u64>,
    free_at: u64,
    count: u64,
    /// Whether the n-th packet is dropped.
    pub drops: Option<Box<dyn FnMut(u64) -> bool>>,
    packets: BTreeMap<(u64, u64), (u8, Vec<u8>)>,
}

impl Link {
    pub fn new(delay: Duration) -> Self {
        Link { delay, ..Link::default() }
    }

    pub fn send(&mut self, now: Timestamp, ecn: u8, packet: Vec<u8>) {
        self.count += 1;
        if self.drops.as_mut().is_some_and(|drops| drops(self.count)) {
            return;
        }
        let takes = self.rate.map_or(0, |rate| packet.len() as u64 * 1_000_000_000 / rate);
        self.free_at = self.free_at.max(now.as_nanos()) + takes;
        let at = self.free_at + self.delay.as_nanos() as u64;
        self.packets.insert((at, self.count), (ecn, packet));
    }

    pub fn next(&self) -> Option<u64> {
        self.packets.keys().next().map(|(at, _)| *at)
    }

    pub fn due(&mut self, now: Timestamp) -> Option<(u8, Vec<u8>)> {
        let first = self.packets.first_entry().filter(|entry| entry.key().0 <= now.as_nanos())?;
        Some(first.remove())
    }
}
