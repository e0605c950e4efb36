//! Round trips by the spin bit (RFC 9000, section 17.4; RFC 9312, section 4.2).
//!
//! The client inverts the bit that it receives, the server repeats it: seen anywhere on the way, it changes once per
//! round trip. Reordered packets make it change back for a short time: changes sooner after the last one than a quarter
//! of the handshake's round trip, or of the mean sample if that is smaller, are ignored. Ends that do not use the bit
//! leave it constant, or set it at random: if it changes with 30 to 70 % of the packets there is no figure, which also
//! excludes connections with two or three packets a round trip. An end that pauses makes the sample longer, as a
//! delayed acknowledgement does; so the smallest samples are round trips, and the mean is an upper bound.
//!
//! An end that repeats a random bit shows a slower random bit: where one direction is random, neither has a figure.

use schema::RttSummary;

/// The spin bit of one direction.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Spin {
    last: Option<bool>,
    /// Time of the last change that counts.
    changed_at: Option<u64>,
    samples: RttSummary,
    packets: u64,
    /// Changes, ignored ones included.
    changes: u64,
}

impl Spin {
    /// Processes the bit of a packet. `handshake_ns` is the round trip of the handshake.
    pub(super) fn note(&mut self, bit: bool, at: u64, handshake_ns: Option<u64>) {
        self.packets += 1;
        if self.last.replace(bit).is_none_or(|last| last == bit) {
            return;
        }
        self.changes += 1;
        let Some(before) = self.changed_at else {
            self.changed_at = Some(at);
            return;
        };
        let known = [self.samples.mean_ns(), handshake_ns].into_iter().flatten().min().unwrap_or(0);
        let sample = at.saturating_sub(before);
        if sample >= (known / 4).max(1) {
            self.samples.record(sample);
            self.changed_at = Some(at);
        }
    }

    /// The samples of both directions of a connection, if they are round trips.
    pub(super) fn summaries(directions: &[Spin; 2]) -> [RttSummary; 2] {
        if directions.iter().any(Spin::is_random) { Default::default() } else { directions.map(|spin| spin.samples) }
    }

    fn is_random(&self) -> bool {
        let percent = self.changes * 100 / self.packets.max(1);
        self.packets >= DECISIVE_PACKETS && RANDOM_PERCENT.contains(&percent)
    }
}

/// Share of packets that a random bit changes with.
const RANDOM_PERCENT: std::ops::RangeInclusive<u64> = 30..=70;
/// Packets from which on that share is distinctive.
const DECISIVE_PACKETS: u64 = 16;

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn changes_are_round_trips_and_those_by_reordering_are_ignored() {
        let mut spin = Spin::default();
        for packet in 0..1000u64 {
            // 50 ms a round trip, a packet every millisecond; each tenth packet arrives 2 ms late.
            let sent = if packet % 10 == 1 { packet.saturating_sub(2) } else { packet };
            spin.note(sent / 50 % 2 == 1, packet * MS, Some(50 * MS));
        }
        let [samples, _] = Spin::summaries(&[spin, Spin::default()]);
        assert!((18..=19).contains(&samples.count), "{samples:?}");
        assert!(samples.min_ns >= 48 * MS && samples.max_ns <= 52 * MS, "{samples:?}");
    }

    #[test]
    fn alternating_bits_of_one_packet_a_round_trip_are_samples() {
        let mut spin = Spin::default();
        (0..100).for_each(|packet| spin.note(packet % 2 == 1, packet * 50 * MS, None));
        let [samples, _] = Spin::summaries(&[spin, Spin::default()]);
        assert_eq!((samples.count, samples.max_ns), (98, 50 * MS));
    }

    #[test]
    fn constant_and_random_bits_give_no_figure() {
        let (mut constant, mut random, mut state) = (Spin::default(), Spin::default(), 1u64);
        for packet in 0..1000 {
            constant.note(true, packet * MS, Some(50 * MS));
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            random.note(state >> 63 == 1, packet * MS, Some(50 * MS));
        }
        assert_eq!(Spin::summaries(&[constant, random]).map(|summary| summary.count), [0, 0]);
    }

    /// A client draws each bit; the server repeats the last one of each burst in a hundred packets.
    #[test]
    fn repeated_random_bits_give_no_figure() {
        let (mut client, mut server, mut state) = (Spin::default(), Spin::default(), 1u64);
        for burst in 0..100 {
            let mut bit = false;
            for packet in 0..10 {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                bit = state >> 63 == 1;
                client.note(bit, burst * 20 * MS + packet, Some(60 * MS));
            }
            for packet in 0..100 {
                server.note(bit, burst * 20 * MS + 20 + packet, Some(60 * MS));
            }
        }
        assert!(server.samples.count > 20, "{server:?}");
        assert_eq!(Spin::summaries(&[client, server]).map(|summary| summary.count), [0, 0]);
    }
}
