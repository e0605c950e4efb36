//! When a congestion window grows.

use std::any::Any;
use std::sync::Arc;
use std::time::Instant;

use quinn_proto::RttEstimator;
use quinn_proto::congestion::{Controller, ControllerFactory, ControllerMetrics};

/// A congestion control whose window grows if it was used when packets were sent.
///
/// quinn-proto grows the window only if data waits to be sent when an acknowledgement arrives. After the last byte of a
/// response none waits, so a window of the size of the responses would stop growing and pace all later ones. RFC 9002,
/// section 7.8, excludes growth only if the window was underutilized. Here, as in Linux in slow start, a window is
/// underutilized if it is larger than twice the maximum of bytes in flight during the last two round trips.
#[derive(Debug)]
pub struct GrowsWhenUsed<F>(Arc<F>);

impl<F> GrowsWhenUsed<F> {
    /// Decides for the controllers that `factory` builds.
    pub fn new(factory: F) -> Self {
        GrowsWhenUsed(Arc::new(factory))
    }
}

impl<F: ControllerFactory + Send + Sync + 'static> ControllerFactory for GrowsWhenUsed<F> {
    fn build(self: Arc<Self>, now: Instant, current_mtu: u16) -> Box<dyn Controller> {
        Box::new(Used {
            inner: Arc::clone(&self.0).build(now, current_mtu),
            acknowledged: Vec::new(),
            round_began: now,
            most: [0; 2],
        })
    }
}

struct Used {
    inner: Box<dyn Controller>,
    /// Packets of the current acknowledgement: when they were sent, and their bytes.
    acknowledged: Vec<(Instant, u64, RttEstimator)>,
    round_began: Instant,
    /// Most bytes in flight in this round trip and the one before.
    most: [u64; 2],
}

impl Controller for Used {
    fn on_sent(&mut self, now: Instant, bytes: u64, last_packet_number: u64) {
        self.inner.on_sent(now, bytes, last_packet_number);
    }

    fn on_ack(&mut self, _: Instant, sent: Instant, bytes: u64, _: bool, rtt: &RttEstimator) {
        self.acknowledged.push((sent, bytes, *rtt));
    }

    fn on_end_acks(&mut self, now: Instant, in_flight: u64, app_limited: bool, largest: Option<u64>) {
        let bytes: u64 = self.acknowledged.iter().map(|&(_, bytes, _)| bytes).sum();
        self.most[0] = self.most[0].max(in_flight.saturating_add(bytes));
        let was_used = self.most[0].max(self.most[1]).saturating_mul(2) >= self.inner.window();
        // The buffer is used again: this runs for every acknowledgement.
        let mut acknowledged = std::mem::take(&mut self.acknowledged);
        for (sent, bytes, rtt) in acknowledged.drain(..) {
            self.inner.on_ack(now, sent, bytes, !was_used, &rtt);
            if sent >= self.round_began {
                self.round_began = now;
                self.most = [0, self.most[0]];
            }
        }
        self.acknowledged = acknowledged;
        self.inner.on_end_acks(now, in_flight, app_limited, largest);
    }

    fn on_congestion_event(&mut self, now: Instant, sent: Instant, is_persistent_congestion: bool, lost_bytes: u64) {
        self.inner.on_congestion_event(now, sent, is_persistent_congestion, lost_bytes);
    }

    fn on_mtu_update(&mut self, new_mtu: u16) {
        self.inner.on_mtu_update(new_mtu);
    }

    fn window(&self) -> u64 {
        self.inner.window()
    }

    fn metrics(&self) -> ControllerMetrics {
        self.inner.metrics()
    }

    fn clone_box(&self) -> Box<dyn Controller> {
        Box::new(Used {
            inner: self.inner.clone_box(),
            acknowledged: self.acknowledged.clone(),
            round_began: self.round_began,
            most: self.most,
        })
    }

    fn initial_window(&self) -> u64 {
        self.inner.initial_window()
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self.inner.into_any()
    }
}
