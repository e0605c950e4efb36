//! Live counters of a path, for another thread to read while the event loop runs.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use path::{Counters, Network};
use schema::{Bucket, Direction, DropCause};
use stats::Histogram;
use units::time::saturating_nanos;

/// Counters of a path as of its last batch of packets. Each is exact; two of them may be of neighbouring batches.
#[derive(Debug, Default)]
pub struct PathLive {
    directions: [DirectionLive; 2],
    written: AtomicU64,
    late: AtomicU64,
    refused: AtomicU64,
    overflowed: AtomicU64,
    timing_errors: LiveTimingErrors,
}

/// Buckets of the timing error: up to 17 s, and all larger values in the last.
const BUCKETS: usize = 256;

#[derive(Debug)]
struct LiveTimingErrors([AtomicU64; BUCKETS]);

impl Default for LiveTimingErrors {
    fn default() -> Self {
        LiveTimingErrors(std::array::from_fn(|_| AtomicU64::new(0)))
    }
}

/// Timing error, counted by the event loop itself; buckets are an eighth of a value wide.
#[derive(Debug)]
pub struct TimingErrorCounts(Box<[u64; BUCKETS]>);

impl Default for TimingErrorCounts {
    fn default() -> Self {
        TimingErrorCounts(Box::new([0; BUCKETS]))
    }
}

impl TimingErrorCounts {
    #[inline]
    pub(super) fn add(&mut self, late: Duration) {
        let bucket = usize::from(Bucket::of(saturating_nanos(late)).0);
        self.0[bucket.min(BUCKETS - 1)] += 1;
    }
}

#[derive(Debug, Default)]
struct DirectionLive {
    packets: AtomicU64,
    bytes: AtomicU64,
    delivered: AtomicU64,
    delivered_bytes: AtomicU64,
    lost: AtomicU64,
    queue_full: AtomicU64,
    dropped: AtomicU64,
}

/// A reading of [`PathLive`] in one direction: wire packets, and bytes of IP packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Carried {
    /// Packets received.
    pub packets: u64,
    /// Bytes of the received packets.
    pub bytes: u64,
    /// Packets forwarded.
    pub delivered: u64,
    /// Bytes of the forwarded packets.
    pub delivered_bytes: u64,
    /// Packets dropped by configured loss.
    pub lost: u64,
    /// Packets dropped because a queue was full.
    pub queue_full: u64,
    /// Packets dropped for any cause.
    pub dropped: u64,
}

impl PathLive {
    /// The counters of one direction.
    pub fn carried(&self, direction: Direction) -> Carried {
        let DirectionLive { packets, bytes, delivered, delivered_bytes, lost, queue_full, dropped } =
            &self.directions[direction.index()];
        Carried {
            packets: load(packets),
            bytes: load(bytes),
            delivered: load(delivered),
            delivered_bytes: load(delivered_bytes),
            lost: load(lost),
            queue_full: load(queue_full),
            dropped: load(dropped),
        }
    }

    /// Writes, a big segment counted once.
    pub fn written(&self) -> u64 {
        load(&self.written)
    }

    /// Writes more than 1 ms after their packets were due.
    pub fn late(&self) -> u64 {
        load(&self.late)
    }

    /// Writes that the kernel refused.
    pub fn refused(&self) -> u64 {
        load(&self.refused)
    }

    /// Packets that did not fit into the ring at an end.
    pub fn overflowed(&self) -> u64 {
        load(&self.overflowed)
    }

    /// Timing error of the measured phase so far, accurate to a sixteenth; `None` if it is not published, or no packet
    /// has left.
    pub fn timing_errors(&self) -> Option<Histogram> {
        let mut timing_errors = Histogram::new();
        for (at, count) in self.timing_errors.0.iter().enumerate() {
            let bucket = Bucket(at as u16);
            timing_errors.record_n(u64::midpoint(bucket.from_ns(), bucket.to_ns() - 1), load(count));
        }
        (!timing_errors.is_empty()).then_some(timing_errors)
    }

    pub(super) fn store_timing_errors(&self, counts: &TimingErrorCounts) {
        self.timing_errors.0.iter().zip(counts.0.iter()).for_each(|(to, &count)| store(to, count));
    }

    pub(super) fn store(&self, network: &Network, late: u64, refused: u64, overflowed: u64) {
        for direction in Direction::BOTH {
            self.directions[direction.index()].store(network.counters(direction));
        }
        store(&self.written, network.timing_errors().all.len());
        store(&self.late, late);
        store(&self.refused, refused);
        store(&self.overflowed, overflowed);
    }
}

impl DirectionLive {
    fn store(&self, counters: &Counters) {
        store(&self.packets, counters.accepted);
        store(&self.bytes, counters.accepted_bytes);
        store(&self.delivered, counters.delivered);
        store(&self.delivered_bytes, counters.delivered_bytes);
        store(&self.lost, counters.dropped(DropCause::Loss));
        store(&self.queue_full, counters.dropped(DropCause::QueueFull));
        store(&self.dropped, counters.dropped_in_all());
    }
}

fn load(value: &AtomicU64) -> u64 {
    value.load(Ordering::Relaxed)
}

/// Stores a value. Only one thread writes, so no ordering is needed.
fn store(to: &AtomicU64, value: u64) {
    to.store(value, Ordering::Relaxed);
}
