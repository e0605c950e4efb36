//! Queue of records from the capture thread to the recorder.
//!
//! Adding never waits, because a ring that is not read overflows. A recorder without CPU time, next to a busy loop,
//! would let the queue grow with every request: it is bounded, and records that do not fit are counted.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};

use super::WireBatch;

/// Most queued records of connections and requests: about 1 GB, as much as the loop's own records.
const QUEUED_RECORDS_MAX: usize = 4 << 20;

/// The capture thread's end.
#[derive(Debug)]
pub struct Outlet {
    sender: Sender<WireBatch>,
    queued: Arc<AtomicUsize>,
    max: usize,
}

/// The recorder's end.
#[derive(Debug)]
pub struct Inlet {
    receiver: Receiver<WireBatch>,
    queued: Arc<AtomicUsize>,
}

/// Creates both ends.
pub fn queue() -> (Outlet, Inlet) {
    with_capacity(QUEUED_RECORDS_MAX)
}

fn with_capacity(max: usize) -> (Outlet, Inlet) {
    let (sender, receiver) = channel();
    let queued = Arc::new(AtomicUsize::new(0));
    (Outlet { sender, queued: Arc::clone(&queued), max }, Inlet { receiver, queued })
}

impl Outlet {
    /// Adds a batch; returns how many of its records did not fit and are lost. Seconds always fit.
    pub(super) fn push_batch(&self, mut batch: WireBatch) -> u64 {
        let mut lost = 0;
        if self.queued.load(Ordering::Relaxed) + batch.records() > self.max {
            lost = batch.records() as u64;
            (batch.requests, batch.connections) = (Vec::new(), Vec::new());
            batch.quic_connections = Vec::new();
        }
        if batch.records() > 0 || !batch.seconds.is_empty() {
            self.queued.fetch_add(batch.records(), Ordering::Relaxed);
            // Sending fails only if the recorder has ended; records are useless then.
            let _ = self.sender.send(batch);
        }
        lost
    }
}

impl Inlet {
    /// The next batch, if there is one.
    pub fn try_take(&self) -> Option<WireBatch> {
        self.receiver.try_recv().ok().inspect(|batch| self.note_received(batch))
    }

    /// The next batch; `None` when the capture thread has ended.
    pub fn next_batch(&self) -> Option<WireBatch> {
        self.receiver.recv().ok().inspect(|batch| self.note_received(batch))
    }

    fn note_received(&self, batch: &WireBatch) {
        self.queued.fetch_sub(batch.records(), Ordering::Relaxed);
    }
}

impl WireBatch {
    fn records(&self) -> usize {
        self.requests.len() + self.connections.len() + self.quic_connections.len()
    }
}

#[cfg(test)]
mod tests {
    use schema::{Framing, WatchSecond, WireRequest};

    use super::*;

    fn batch(requests: usize) -> WireBatch {
        let request = WireRequest {
            connection: 0,
            client: "198.19.0.1:5000".parse().unwrap(),
            server: "198.18.0.1:80".parse().unwrap(),
            index: 0,
            request_first_at: None,
            request_last_at: None,
            response_first_at: None,
            response_last_at: None,
            method: None,
            host: None,
            path: None,
            minor_version: None,
            http_version: 1,
            stream: None,
            referer: None,
            user_agent: None,
            status: None,
            request_bytes: 0,
            response_bytes: 0,
            framing: Framing::Exact,
            complete: false,
        };
        WireBatch { requests: vec![request; requests], seconds: vec![WatchSecond::default()], ..WireBatch::default() }
    }

    #[test]
    fn records_that_a_blocked_recorder_does_not_take_are_bounded_and_counted() {
        let (outlet, inlet) = with_capacity(10);
        assert_eq!([outlet.push_batch(batch(6)), outlet.push_batch(batch(4)), outlet.push_batch(batch(1))], [0, 0, 1]);
        let sizes = |batch: Option<WireBatch>| batch.map(|batch| (batch.requests.len(), batch.seconds.len()));
        assert_eq!(sizes(inlet.try_take()), Some((6, 1)));
        assert_eq!(outlet.push_batch(batch(6)), 0, "the queue has space again");
        drop(outlet);
        let rest: Vec<_> = std::iter::from_fn(|| sizes(inlet.next_batch())).collect();
        assert_eq!(rest, [(4, 1), (0, 1), (6, 1)]);
    }

    #[test]
    fn empty_batches_are_not_queued() {
        let (outlet, inlet) = with_capacity(10);
        assert_eq!(outlet.push_batch(WireBatch::default()), 0);
        assert!(inlet.try_take().is_none());
    }
}
