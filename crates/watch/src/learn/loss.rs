//! How much is lost on the way, from what is seen of it: data sent again, and data that came late into a hole.
//!
//! One observer does not see a loss, only its repair, and which repair depends on the side. Of the sender beside the
//! capture every transmission is seen: what was lost is **sent again**, less what the receiver says it had already
//! (D-SACK, RFC 2883). Of the sender at the far end only what arrived is seen: what was lost leaves a hole that is
//! **filled late**.
//!
//! Bias. Sent again is too much: after a timeout TCP sends again more than was lost, and a receiver without D-SACK
//! does not say so. Filled late is too much where packets overtake each other, and too little where the last packet of
//! a message was lost, since then there is no hole: for requests of one packet it says next to nothing. Both count
//! data only, not lone acknowledgements. Losses come in bursts; one probability for each packet is not how they came.

use schema::{ConnectionRecord, Sent};

use crate::CapturePoint;

/// Loss in one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Loss {
    /// Packets with payload, as captured: a super-packet the kernel had not yet cut counts once.
    pub data_packets: u64,
    /// Their payload, repetitions included.
    pub data_bytes: u64,
    /// Packets that repeated bytes seen before.
    pub repeated_packets: u64,
    /// Payload that had been seen before.
    pub repeated_bytes: u64,
    /// Repetitions the receiver said it had no need of.
    pub needless_packets: u64,
    /// Packets that filled a hole.
    pub late_packets: u64,
    /// Packets that were lost, as estimated.
    pub lost_packets: u64,
    /// Share of what was sent that was lost, 0 to 1: the estimate for a profile's `loss`.
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
    /// Packets on the wire: data by the largest segment, where several were captured as one.
    segments: u64,
}

impl LossSums {
    pub(super) fn add(&mut self, record: &ConnectionRecord) {
        self.up.add(&record.up, &record.down);
        self.down.add(&record.down, &record.up);
    }

    /// Of what clients sent.
    pub(super) fn up(&self, point: CapturePoint) -> Loss {
        self.up.estimate(point != CapturePoint::AtServer, point != CapturePoint::AtClient)
    }

    /// Of what servers sent.
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
        // What the peer takes in one segment bounds what is sent; without its SYN, Ethernet's.
        let largest = u64::from(peer.mss.unwrap_or(SEGMENT).max(1));
        self.segments += sent.data_packets.max(sent.payload_bytes / largest);
    }

    /// `after`: packets pass the capture and may then be lost. `before`: they may be lost before they come to it.
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

    fn close(got: f64, wanted: f64) {
        assert!((got - wanted).abs() < 1e-9, "{got} for {wanted}");
    }

    /// The same record means other losses at other places.
    #[test]
    fn what_is_lost_depends_on_where_one_looks_from() {
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
    fn nothing_sent_is_nothing_lost() {
        assert_eq!(LossSums::default().up(CapturePoint::Between), Loss::default());
    }

    /// A super-packet of 64 KB is one packet to the capture and 45 to the wire.
    #[test]
    fn super_packets_are_counted_by_what_the_peer_takes() {
        let mut sums = LossSums::default();
        let down = Sent { data_packets: 1, payload_bytes: 64_000, out_of_order_packets: 1, ..Sent::default() };
        let up = Sent { mss: Some(1000), ..Sent::default() };
        sums.add(&ConnectionRecord { up, down, ..crate::learn::tests::record() });
        close(sums.down(CapturePoint::AtClient).share, 1.0 / 65.0);
    }
}
