//! Decides about each delivery of a reader. A state machine without a connection.
//!
//! A delivery has two numbers of the server. The *stream sequence* numbers the stream's messages; those that a reader
//! does not select, and those that the limits discarded, are missing. The *consumer sequence* numbers deliveries to this
//! reader, repeated ones too, without a gap. So:
//!
//! | delivery | |
//! |---|---|
//! | consumer sequence not the next | deliveries were lost on the way: begin again after the position |
//! | stream sequence at or before the position | seen: skipped |
//! | otherwise | taken: the position is its stream sequence |
//!
//! Without the first rule a lost delivery would be repeated only after later ones, and by then count as discarded.

/// What a reader does with a delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delivery {
    /// It is new.
    Take,
    /// It was taken before.
    Skip,
    /// Deliveries before it are missing: the reader begins again.
    Restart,
}

/// The position of a reader.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cursor {
    through: u64,
    consumer: u64,
}

impl Cursor {
    /// A reader that has just begun after this stream sequence.
    pub fn after(through: u64) -> Cursor {
        Cursor { through, consumer: 0 }
    }

    /// Stream sequence of the last message that was taken.
    pub fn through(&self) -> u64 {
        self.through
    }

    /// Decides about a delivery.
    pub fn delivered(&mut self, stream_sequence: u64, consumer_sequence: u64) -> Delivery {
        if consumer_sequence != self.consumer + 1 {
            return Delivery::Restart;
        }
        self.consumer = consumer_sequence;
        if stream_sequence <= self.through {
            return Delivery::Skip;
        }
        self.through = stream_sequence;
        Delivery::Take
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeated_deliveries_are_skipped_and_discarded_messages_are_no_gap() {
        let mut cursor = Cursor::after(4);
        assert_eq!(cursor.delivered(5, 1), Delivery::Take);
        assert_eq!(cursor.delivered(9, 2), Delivery::Take, "6 to 8 are of others, or were discarded");
        assert_eq!(cursor.delivered(5, 3), Delivery::Skip);
        assert_eq!(cursor.delivered(10, 4), Delivery::Take);
        assert_eq!(cursor.through(), 10);
    }

    #[test]
    fn a_lost_delivery_restarts_the_reader_before_a_later_message_is_taken() {
        let mut cursor = Cursor::after(0);
        assert_eq!(cursor.delivered(1, 1), Delivery::Take);
        assert_eq!(cursor.delivered(3, 3), Delivery::Restart);
        assert_eq!(cursor.through(), 1);
        // A second reader under the same name takes deliveries away.
        let mut cursor = Cursor::after(1);
        assert_eq!(cursor.delivered(2, 2), Delivery::Restart);
    }

    /// A server that loses deliveries, repeats them, and discards messages, and a reader that is killed: every message
    /// that was not discarded is taken once, in order.
    #[test]
    fn every_message_that_exists_is_taken_once_and_in_order() {
        for seed in 1..200_u64 {
            let mut state = seed;
            let mut draw = |n: u64| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                (state >> 33) % n
            };
            let exists: Vec<u64> = (1..=60).filter(|_| draw(5) > 0).collect();
            let (mut taken, mut stored) = (Vec::new(), 0);
            while stored < *exists.last().unwrap() {
                let mut cursor = Cursor::after(stored);
                let mut next = exists.iter().position(|sequence| *sequence > stored).unwrap();
                let mut consumer = 0;
                // Until the reader is killed: what it took and did not store is taken again.
                let mut held = Vec::new();
                for _ in 0..draw(40) {
                    let repeats = draw(6) == 0 && next > 0;
                    let Some(&sequence) = exists.get(if repeats { next - 1 } else { next }) else { break };
                    next += usize::from(!repeats);
                    consumer += 1;
                    if draw(12) == 0 {
                        continue;
                    }
                    match cursor.delivered(sequence, consumer) {
                        Delivery::Take => held.push(sequence),
                        Delivery::Skip => {}
                        Delivery::Restart => break,
                    }
                    if draw(3) == 0 {
                        taken.append(&mut held);
                        stored = cursor.through();
                    }
                }
            }
            assert_eq!(taken, exists, "seed {seed}");
        }
    }
}
