//! How the server found a loss (RFC 9002, section 6): by acknowledgements of later packets, or by its probe timer.

use schema::share::Cause;

/// Packets that elicit acknowledgements, and the acknowledgements.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Recovery {
    /// Number and departure of the server's packets that elicit an ACK, by number; later numbers leave later.
    pub(super) sent: Vec<(u64, u64)>,
    /// For each ACK in order of its arrival at the server: arrival, first and last number of each range.
    pub(super) acks: Vec<(u64, Vec<(u64, u64)>)>,
}

impl Recovery {
    /// What ended the wait for the lost packet `number`, which left at `left` and whose bytes left again at `again`.
    ///
    /// Without a packet that followed within a round trip nothing could report the loss, whatever told of it in the end:
    /// an ACK of the probe, or the probe with the bytes itself. `None`: the packet is not known.
    pub(crate) fn cause(&self, number: u64, left: u64, again: u64, rtt: u64) -> Option<Cause> {
        let next = self.sent.partition_point(|(other, _)| *other <= number);
        let later = self.sent.get(next);
        if later.is_none_or(|(_, at)| *at > left.saturating_add(rtt) || *at >= again) {
            return Some(Cause::TailLoss);
        }
        let before = self.acks.partition_point(|(at, _)| *at <= again);
        let first = self.acks.partition_point(|(at, _)| *at < left);
        let is_reported = self.acks[first.min(before)..before]
            .iter()
            .any(|(_, ranges)| ranges.iter().any(|(_, last)| *last > number));
        Some(if is_reported { Cause::FastRetransmit } else { Cause::RetransmissionTimeout })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probes_are_told_from_losses_that_acknowledgements_report() {
        let recovery = Recovery {
            sent: vec![(1, 0), (2, 1), (3, 2), (4, 120), (5, 300)],
            acks: vec![(60, vec![(0, 0)]), (62, vec![(3, 3), (0, 1)]), (400, vec![(5, 5), (3, 3)])],
        };
        assert_eq!(recovery.cause(2, 1, 63, 60), Some(Cause::FastRetransmit));
        assert_eq!(recovery.cause(2, 1, 61, 60), Some(Cause::RetransmissionTimeout), "before the report");
        assert_eq!(recovery.cause(3, 2, 120, 60), Some(Cause::TailLoss), "by the probe itself");
        assert_eq!(recovery.cause(4, 120, 400, 60), Some(Cause::TailLoss), "after the ACK of a probe");
        assert_eq!(recovery.cause(5, 300, 500, 60), Some(Cause::TailLoss));
    }
}
