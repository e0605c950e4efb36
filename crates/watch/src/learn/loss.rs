//! Packet loss, estimated from retransmissions and from data that filled a hole.
//!
//! An observer does not see a loss, only its repair, which depends on the capture point. Of the sender near the capture
//! every transmission is seen: a lost packet is **retransmitted**, except for those that the receiver reports as
//! duplicates (D-SACK, RFC 2883). Of the distant sender only arriving packets are seen: a lost packet leaves a hole
//! that is **filled late**.
//!
//! Bias. Retransmissions overestimate: after a timeout TCP retransmits more than was lost, and a receiver without
//! D-SACK does not report it. Late data overestimates with reordering, and underestimates if the last packet of a
//! message was lost, which leaves no hole: for requests of one packet it is of little use. Both count data only, not
//! pure acknowledgements. Losses occur in bursts, which a single probability does not describe.

use schema::{ConnectionRecord, Sent};

use crate::CapturePoint;

/// Packet loss in one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Loss {
    /// Packets with payload, as captured: a super-packet that the kernel had not yet segmented counts once.
    pub data_packets: u64,
    /// Their payload, including retransmissions.
    pub data_bytes: u64,
    /// Packets that repeated bytes seen before.
    pub repeated_packets: u64,
    /// Payload that had been seen before.
    pub repeated_bytes: u64,
    /// Retransmissions that the receiver reported as duplicates.
    pub needless_packets: u64,
    /// Packets that filled a hole.
    pub late_packets: u64,
    /// Estimated number of lost packets.
    pub lost_packets: u64,
    /// Estimated share of lost packets, 0 to 1: a profile's `loss`.
    pub share: f64,
}

/// Sums over connections, up and down.
#[derive(Debug, Default)]
pub(super) struct LossSums {
    up: Sums,
    down: Sums,
}

#[derive(Debug, Default)]
struct Sums {
    loss: Loss,
    /// Packets on the wire: payload divided by the largest segment, if several were captured as one.
    segments: u64,
}

impl LossSums {
    pub(super) fn add(&mut self, record: &ConnectionRecord) {
        self.up.add(&record.up, &record.down);
        self.down.add(&record.down, &record.up);
    }

    /// Loss of the clients' packets.
    pub(super) fn up(&self, point: CapturePoint) -> Loss {
        self.up.estimate(point != CapturePoint::AtServer, point != CapturePoint::AtClient)
    }

    /// Loss of the servers' packets.
    pub(super) fn down(&self, point: CapturePoint) -> Loss {
        self.down.estimate(point != CapturePoint::AtClient, point != CapturePoint::AtServer)
    }
}

impl Sums {
    fn add(&mut self, sent: &Sent, peer: &Sent) {
        let loss = &mut self.loss;
        loss.data_packets += sent.data_packets;
        loss.data_bytes = loss.data_bytes.saturating_add(sent.payload_bytes);
        loss.repeated_packets += sent.retransmitted_packets;
        loss.repeated_bytes = loss.repeated_bytes.saturating_add(sent.retransmitted_bytes);
        loss.needless_packets += peer.duplicate_sacks.min(sent.retransmitted_packets);
        loss.late_packets += sent.out_of_order_packets;
        // The peer's maximum segment size; without its SYN, Ethernet's.
        let largest = u64::from(peer.mss.unwrap_or(SEGMENT).max(1));
        self.segments += sent.data_packets.max(sent.payload_bytes / largest);
    }

    /// `after`: packets pass the capture and may be lost afterwards. `before`: they may be lost before.
    fn estimate(&self, after: bool, before: bool) -> Loss {
        let mut loss = self.loss;
        let share = |part: f64, whole: f64| if whole > 0.0 { (part / whole).clamp(0.0, 1.0) } else { 0.0 };
        let mut passed = 1.0;
        if after {
            let needed = loss.repeated_packets.saturating_sub(loss.needless_packets);
            loss.lost_packets += needed;
            let bytes = loss.repeated_bytes as f64 * share(needed as f64, loss.repeated_packets as f64);
            passed *= 1.0 - share(bytes, loss.data_bytes as f64);
        }
        if before {
            loss.lost_packets += loss.late_packets;
            passed *= 1.0 - share(loss.late_packets as f64, (self.segments + loss.late_packets) as f64);
        }
        loss.share = 1.0 - passed;
        loss
    }
}

const SEGMENT: u16 = 1460;

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(packets: u64, repeated: u64, late: u64) -> Sent {
        Sent {
            data_packets: packets,
            payload_bytes: packets * 1000,
            retransmitted_packets: repeated,
            retransmitted_bytes: repeated * 1000,
            out_of_order_packets: late,
            ..Sent::default()
        }
    }

    fn close(measured: f64, expected: f64) {
        assert!((measured - expected).abs() < 1e-9, "{measured} for {expected}");
    }

    /// The same record means other losses at other capture points.
    #[test]
    fn loss_estimate_depends_on_the_capture_point() {
        let mut sums = LossSums::default();
        let mut up = sent(99, 5, 1);
        up.duplicate_sacks = 4;
        let base = ConnectionRecord { up, down: sent(1000, 24, 10), ..crate::learn::tests::record() };
        sums.add(&base);
        close(sums.down(CapturePoint::AtServer).share, 0.02);
        assert_eq!(sums.down(CapturePoint::AtServer).lost_packets, 20);
        close(sums.up(CapturePoint::AtServer).share, 0.01);
        close(sums.down(CapturePoint::AtClient).share, 10.0 / 1010.0);
        close(sums.up(CapturePoint::AtClient).share, 5.0 / 99.0);
        close(sums.down(CapturePoint::Between).share, 1.0 - 0.98 * (1000.0 / 1010.0));
        assert_eq!(sums.down(CapturePoint::Between).lost_packets, 30);
    }

    #[test]
    fn loss_without_packets_is_zero() {
        assert_eq!(LossSums::default().up(CapturePoint::Between), Loss::default());
    }

    /// A super-packet of 64 KB is one captured packet and 45 packets on the wire.
    #[test]
    fn super_packets_count_as_segments_of_the_peers_mss() {
        let mut sums = LossSums::default();
        let down = Sent { data_packets: 1, payload_bytes: 64_000, out_of_order_packets: 1, ..Sent::default() };
        let up = Sent { mss: Some(1000), ..Sent::default() };
        sums.add(&ConnectionRecord { up, down, ..crate::learn::tests::record() });
        close(sums.down(CapturePoint::AtClient).share, 1.0 / 65.0);
    }
}
