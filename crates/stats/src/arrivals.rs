//! Analyses the arrival of a sequence of numbered datagrams: loss, reordering, duplication, silences and their
//! patterns.
//!
//! The sender numbers datagrams from 0 without gaps and sends them at a constant rate. The receiver reports number and
//! time of each arrival. Only a window of bits is stored, so the memory does not depend on the length of the sequence.
//!
//! ```text
//!   numbers   0 ............ floor ........................ highest
//!             settled:        | open: may arrive late,       |  not received yet: lost
//!             received, lost  | or again                     |  at the end of the sequence
//! ```
//!
//! The methods of [`ArrivalsSeen`] classify the results; the limit of each is a constant of this module.

use serde::{Deserialize, Serialize};

/// Follows one sequence of datagrams at its receiver.
#[derive(Clone, Debug)]
pub struct Arrivals {
    gap_ns: f64,
    /// Bits of the received numbers: number n is bit n mod [`WINDOW`].
    received_bits: Vec<u64>,
    /// The lowest number that is still open.
    floor: u64,
    /// One more than the highest number received.
    end: u64,
    received: u64,
    duplicated: u64,
    reordered: u64,
    losses: Losses,
    first: Option<(u64, u64)>,
    last_ns: u64,
    silence: Silence,
}

/// Statistics of the arrivals of a sequence.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ArrivalsSeen {
    /// Distinct numbers that arrived.
    pub received: u64,
    /// Numbers sent that did not arrive.
    pub lost: u64,
    /// Repeated arrivals of a number.
    pub duplicated: u64,
    /// Arrivals after a higher number. An arrival more than [`WINDOW`] numbers late is counted here and also as lost,
    /// since it is unknown whether its number arrived before.
    pub reordered: u64,
    /// Mean distance between consecutive lost numbers; absent with fewer than two.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loss_gap_mean: Option<f64>,
    /// Coefficient of variation of those distances (population standard deviation over mean): 0 for periodic loss,
    /// about 1 for random loss. Absent with fewer than two lost numbers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loss_gap_cv: Option<f64>,
    /// Number of runs of consecutive lost numbers; a single lost number is a run.
    pub bursts: u64,
    /// Length of the longest run.
    pub longest_burst: u64,
    /// Longest time without an arrival during the sequence, in nanoseconds of the receiver's clock. Before the first
    /// and after the last arrival it is the number of missing datagrams times the mean gap.
    pub longest_silence_ns: u64,
    /// Beginning of the longest silence, in nanoseconds from the beginning of the sequence.
    pub silence_at_ns: u64,
    /// Numbers sent during the longest silence, by the sender's rate.
    pub sent_in_silence: u64,
    /// Of these, the numbers that arrived after the silence.
    pub late_after_silence: u64,
}

/// Maximum distance of a late arrival from the highest number: 7 s at 150,000 per second, 128 KB of memory.
pub const WINDOW: u64 = 1 << 20;
/// Minimum losses for a classification as periodic or in bursts.
pub const LOSSES_MIN: u64 = 20;
/// Loss is periodic if the coefficient of variation of the distances is below this. Random loss never is: for 20 random
/// distances it is below 0.3 once in a million.
pub const PERIODIC_CV: f64 = 0.05;
/// A silence is a stall if it is longer than this, in nanoseconds, and than [`STALL_GAPS_MIN`] mean gaps.
pub const STALL_NS_MIN: u64 = 100_000_000;
/// Minimum length of a stall in mean gaps between datagrams.
pub const STALL_GAPS_MIN: f64 = 50.0;

impl Arrivals {
    /// A sequence with the mean gap `expected_gap_ns` between datagrams, in nanoseconds: finite and above 0.
    pub fn new(expected_gap_ns: f64) -> Self {
        Arrivals {
            gap_ns: if expected_gap_ns.is_finite() { expected_gap_ns.max(1e-3) } else { 1.0 },
            received_bits: vec![0; (WINDOW / 64) as usize],
            floor: 0,
            end: 0,
            received: 0,
            duplicated: 0,
            reordered: 0,
            losses: Losses::default(),
            first: None,
            last_ns: 0,
            silence: Silence::default(),
        }
    }

    /// Adds the arrival of a number at a time of the receiver's clock, not before earlier calls. The cost is
    /// proportional to the numbers skipped since the highest, up to [`WINDOW`]; a caller who knows the length of the
    /// sequence should not pass higher numbers.
    pub fn add(&mut self, number: u64, at_ns: u64) {
        // `end`, one more than the highest number, must fit into u64.
        let number = number.min(u64::MAX - 1);
        self.silence_until(at_ns);
        if number < self.floor {
            self.reordered += 1;
            return;
        }
        if number >= self.end {
            self.end = number + 1;
            self.settle(self.end.saturating_sub(WINDOW));
        } else if self.contains(number) {
            self.duplicated += 1;
            return;
        } else {
            self.reordered += 1;
        }
        self.set(number, true);
        self.received += 1;
        if self.silence.numbers().contains(&number) {
            self.silence.late += 1;
        }
        self.first.get_or_insert((number, at_ns));
    }

    /// Distinct numbers that arrived so far.
    pub fn received(&self) -> u64 {
        self.received
    }

    /// The statistics after numbers 0 to `sent` - 1 were sent and no more arrivals are expected. If higher numbers
    /// arrived, the sequence is taken to end with the highest.
    pub fn finish(&self, sent: u64) -> ArrivalsSeen {
        let sent = sent.max(self.end);
        let mut losses = self.losses;
        for number in self.floor..self.end {
            if !self.contains(number) {
                losses.add(number, 1);
            }
        }
        losses.add(self.end, sent - self.end);
        let silence = self.longest_silence(sent);
        ArrivalsSeen {
            received: self.received,
            lost: losses.count,
            duplicated: self.duplicated,
            reordered: self.reordered,
            loss_gap_mean: losses.gap_mean(),
            loss_gap_cv: losses.gap_cv(),
            bursts: losses.bursts,
            longest_burst: losses.longest,
            longest_silence_ns: silence.lasted_ns,
            silence_at_ns: silence.at_ns,
            sent_in_silence: silence.sent.min(sent.saturating_sub(silence.after)),
            late_after_silence: silence.late,
        }
    }

    /// Records the silence since the last arrival, before the new arrival is counted.
    fn silence_until(&mut self, at_ns: u64) {
        if let Some((first, first_ns)) = self.first {
            let lasted_ns = at_ns.saturating_sub(self.last_ns);
            if lasted_ns > self.silence.lasted_ns {
                self.silence = Silence {
                    lasted_ns,
                    at_ns: (self.last_ns - first_ns).saturating_add(self.time_of(first)),
                    after: self.end,
                    sent: (lasted_ns as f64 / self.gap_ns) as u64,
                    late: 0,
                };
            }
        }
        self.last_ns = self.last_ns.max(at_ns);
    }

    /// The longest silence, including the times before the first and after the last arrival, which are computed from
    /// the missing numbers.
    fn longest_silence(&self, sent: u64) -> Silence {
        let Some((first, first_ns)) = self.first else {
            return Silence { lasted_ns: self.time_of(sent), sent, ..Silence::default() };
        };
        let before =
            Silence { lasted_ns: self.time_of(first), sent: first, late: self.below(first), ..Silence::default() };
        let missing = sent - self.end;
        let after = Silence {
            lasted_ns: self.time_of(missing),
            at_ns: (self.last_ns - first_ns).saturating_add(self.time_of(first)),
            after: self.end,
            sent: missing,
            late: 0,
        };
        [before, after]
            .into_iter()
            .fold(self.silence, |longest, other| if other.lasted_ns > longest.lasted_ns { other } else { longest })
    }

    /// Received numbers below `number` in the window.
    fn below(&self, number: u64) -> u64 {
        (self.floor..number).filter(|&number| self.contains(number)).count() as u64
    }

    /// The sender's time for this many datagrams.
    fn time_of(&self, numbers: u64) -> u64 {
        (numbers as f64 * self.gap_ns) as u64
    }

    /// Settles all numbers below `floor`: those not received are lost.
    fn settle(&mut self, floor: u64) {
        let known = floor.min(self.floor.saturating_add(WINDOW));
        while self.floor < known {
            if !self.contains(self.floor) {
                self.losses.add(self.floor, 1);
            }
            self.set(self.floor, false);
            self.floor += 1;
        }
        if floor > self.floor {
            // A gap longer than the window, which is now empty, is settled in one step.
            self.losses.add(self.floor, floor - self.floor);
            self.floor = floor;
        }
    }

    fn contains(&self, number: u64) -> bool {
        let bit = number % WINDOW;
        self.received_bits[(bit / 64) as usize] >> (bit % 64) & 1 == 1
    }

    fn set(&mut self, number: u64, is_received: bool) {
        let bit = number % WINDOW;
        let word = &mut self.received_bits[(bit / 64) as usize];
        *word = *word & !(1 << (bit % 64)) | u64::from(is_received) << (bit % 64);
    }
}

impl ArrivalsSeen {
    /// Share of the numbers sent that were lost, 0 to 1; 0 if none was sent.
    pub fn loss(&self) -> f64 {
        match self.received + self.lost {
            0 => 0.0,
            sent => self.lost as f64 / sent as f64,
        }
    }

    /// The period of periodic loss in datagrams. Loss is periodic with at least [`LOSSES_MIN`] lost numbers whose
    /// distances vary less than [`PERIODIC_CV`] and are more than 1 on average (consecutive losses have no period).
    pub fn loss_period(&self) -> Option<f64> {
        let (mean, cv) = (self.loss_gap_mean?, self.loss_gap_cv?);
        (self.lost >= LOSSES_MIN && cv < PERIODIC_CV && mean > 1.0).then_some(mean)
    }

    /// Mean length of the runs of lost numbers, if they are longer than in random loss: at least [`LOSSES_MIN`] losses,
    /// and so few runs that random loss has as few less than once in a million (five standard deviations).
    ///
    /// With independent loss of probability p, each of L losses ends its run with probability 1 - p. The expected
    /// number of runs is L (1 - p), with a variance below L p (1 - p).
    pub fn burst_length(&self) -> Option<f64> {
        if self.lost < LOSSES_MIN || self.received == 0 {
            return None;
        }
        let (lost, loss) = (self.lost as f64, self.loss());
        let runs_min = lost * (1.0 - loss) - 5.0 * (lost * loss * (1.0 - loss)).sqrt() - 1.0;
        ((self.bursts as f64) < runs_min).then(|| lost / self.bursts as f64)
    }

    /// The longest silence in nanoseconds, if it is longer than [`STALL_NS_MIN`] and [`STALL_GAPS_MIN`] mean gaps. The
    /// gateway caused it only if the sender was on time.
    pub fn stall_ns(&self, expected_gap_ns: f64) -> Option<u64> {
        let bound = (STALL_GAPS_MIN * expected_gap_ns).max(STALL_NS_MIN as f64);
        (self.longest_silence_ns as f64 > bound).then_some(self.longest_silence_ns)
    }

    /// Numbers sent during the longest silence that never arrived.
    pub fn lost_in_silence(&self) -> u64 {
        self.sent_in_silence.saturating_sub(self.late_after_silence)
    }
}

/// The longest time without an arrival so far.
#[derive(Clone, Copy, Debug, Default)]
struct Silence {
    lasted_ns: u64,
    at_ns: u64,
    /// One more than the highest number before the silence.
    after: u64,
    /// Numbers sent during the silence.
    sent: u64,
    /// Of these, the numbers that arrived later.
    late: u64,
}

impl Silence {
    fn numbers(&self) -> std::ops::Range<u64> {
        self.after..self.after.saturating_add(self.sent)
    }
}

/// Statistics of lost numbers, which are added in ascending order.
#[derive(Clone, Copy, Debug, Default)]
struct Losses {
    count: u64,
    last: Option<u64>,
    /// The first distance. Sums are of differences to it, so that squares stay exact.
    shift: f64,
    sum: f64,
    sum_of_squares: f64,
    bursts: u64,
    run: u64,
    longest: u64,
}

impl Losses {
    /// Adds `length` consecutive lost numbers from `number` on.
    fn add(&mut self, number: u64, length: u64) {
        if length == 0 {
            return;
        }
        let distance = self.last.map(|last| number - last);
        if distance == Some(1) {
            self.run += length;
        } else {
            self.bursts += 1;
            self.run = length;
        }
        if let Some(distance) = distance {
            self.distances(distance as f64, 1);
        }
        self.distances(1.0, length - 1);
        self.longest = self.longest.max(self.run);
        self.count += length;
        self.last = Some(number + (length - 1));
    }

    fn distances(&mut self, distance: f64, times: u64) {
        if times > 0 && self.count < 2 && self.sum == 0.0 && self.shift == 0.0 {
            self.shift = distance;
        }
        let from_shift = distance - self.shift;
        self.sum += from_shift * times as f64;
        self.sum_of_squares += from_shift * from_shift * times as f64;
    }

    fn gap_mean(&self) -> Option<f64> {
        (self.count >= 2).then(|| self.shift + self.sum / (self.count - 1) as f64)
    }

    fn gap_cv(&self) -> Option<f64> {
        let mean = self.gap_mean()?;
        let distances = (self.count - 1) as f64;
        let variance = (self.sum_of_squares / distances - (self.sum / distances).powi(2)).max(0.0);
        Some(variance.sqrt() / mean)
    }
}

#[cfg(test)]
mod tests;
