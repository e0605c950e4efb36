//! What arrived of a row of numbered datagrams: loss, order, repetition and silence, and how they look.
//!
//! The sender numbers from 0 without a gap and at an even pace; the receiver says of each arrival which number it has and
//! when it came. Nothing is kept but a window of bits, so that an hour at any rate takes as much memory as a second.
//!
//! ```text
//!   numbers   0 ............ floor ........................ highest
//!             settled: here   | still open: may arrive late, |  not seen yet: lost
//!             or lost         | or again                     |  once the row is over
//! ```
//!
//! What the figures mean is judged by the methods of [`ArrivalsSeen`]; each has its bound as a constant beside it.

use serde::{Deserialize, Serialize};

/// Follows one row of datagrams at its receiver.
#[derive(Clone, Debug)]
pub struct Arrivals {
    gap_ns: f64,
    /// Bit of number n: at n mod [`WINDOW`].
    here: Vec<u64>,
    /// The least number that is still open.
    floor: u64,
    /// One more than the highest number seen.
    end: u64,
    received: u64,
    duplicated: u64,
    reordered: u64,
    losses: Losses,
    first: Option<(u64, u64)>,
    last_ns: u64,
    silence: Silence,
}

/// What arrived, in figures.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ArrivalsSeen {
    /// Different numbers that arrived.
    pub received: u64,
    /// Numbers sent that did not.
    pub lost: u64,
    /// Arrivals of a number that had arrived before.
    pub duplicated: u64,
    /// Arrivals after a higher number. One that came more than [`WINDOW`] numbers late is counted here and, since nobody
    /// knows any more whether it is the first of its number, as lost.
    pub reordered: u64,
    /// Mean distance from one lost number to the next; absent with fewer than two.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loss_gap_mean: Option<f64>,
    /// Coefficient of variation of those distances (population's standard deviation over mean): 0 for every n-th, about 1
    /// for loss by chance. Absent with fewer than two.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loss_gap_cv: Option<f64>,
    /// Runs of lost numbers; a lone one is a run.
    pub bursts: u64,
    /// The longest of them.
    pub longest_burst: u64,
    /// Longest time without an arrival while the row went on, in nanoseconds of the receiver's clock. Before the first
    /// and after the last arrival by the sender's pace: the numbers missing there times the mean gap.
    pub longest_silence_ns: u64,
    /// When it began, in nanoseconds after the beginning of the row.
    pub silence_at_ns: u64,
    /// Numbers that were to be sent during the longest silence, by the sender's pace.
    pub sent_in_silence: u64,
    /// Of them, those that arrived after it.
    pub late_after_silence: u64,
}

/// Numbers between the highest seen and the last that may still arrive late: 7 s of 150,000 a second, 128 KB of memory.
pub const WINDOW: u64 = 1 << 20;
/// Losses needed to call them periodic or in bursts.
pub const LOSSES_MIN: u64 = 20;
/// Loss is periodic where the distances between lost numbers vary less: by chance alone it is never so (20 distances drawn
/// by chance vary less than 0.3 once in a million).
pub const PERIODIC_CV: f64 = 0.05;
/// A silence counts as a stand-still beyond this, in nanoseconds, and beyond [`SILENT_GAPS`].
pub const SILENT_NS: u64 = 100_000_000;
/// Mean gaps between datagrams without one.
pub const SILENT_GAPS: f64 = 50.0;

impl Arrivals {
    /// Of a row whose numbers follow each other at this mean distance in time, in nanoseconds: finite and above 0.
    pub fn new(expected_gap_ns: f64) -> Self {
        Arrivals {
            gap_ns: if expected_gap_ns.is_finite() { expected_gap_ns.max(1e-3) } else { 1.0 },
            here: vec![0; (WINDOW / 64) as usize],
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

    /// A number arrived at a moment of the receiver's clock, no earlier than those told before. Takes a time in proportion
    /// to the numbers left out since the highest, [`WINDOW`] of them at most: a caller who knows how many are sent passes on
    /// no higher ones.
    pub fn add(&mut self, number: u64, at_ns: u64) {
        // One past the highest must be a number too.
        let number = number.min(u64::MAX - 1);
        self.silence_until(at_ns);
        if number < self.floor {
            self.reordered += 1;
            return;
        }
        if number >= self.end {
            self.end = number + 1;
            self.settle(self.end.saturating_sub(WINDOW));
        } else if self.is_here(number) {
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

    /// Different numbers that arrived so far.
    pub fn received(&self) -> u64 {
        self.received
    }

    /// The figures, when numbers 0 to `sent` - 1 were sent and no more are waited for. (Where higher ones arrived than were
    /// sent, the row is taken to be as long as they say.)
    pub fn finish(&self, sent: u64) -> ArrivalsSeen {
        let sent = sent.max(self.end);
        let mut losses = self.losses;
        for number in self.floor..self.end {
            if !self.is_here(number) {
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

    /// Takes note of the time since the last arrival, before this one is counted.
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

    /// With the time before the first arrival and after the last, as the numbers missing there tell it.
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

    /// Numbers below this one that are here, as far as the window tells.
    fn below(&self, number: u64) -> u64 {
        (self.floor..number).filter(|&number| self.is_here(number)).count() as u64
    }

    /// How long the sender takes for so many.
    fn time_of(&self, numbers: u64) -> u64 {
        (numbers as f64 * self.gap_ns) as u64
    }

    /// Closes all numbers below `floor`: what is not here is lost.
    fn settle(&mut self, floor: u64) {
        let known = floor.min(self.floor.saturating_add(WINDOW));
        while self.floor < known {
            if !self.is_here(self.floor) {
                self.losses.add(self.floor, 1);
            }
            self.set(self.floor, false);
            self.floor += 1;
        }
        if floor > self.floor {
            // Left out in one leap, longer than the window, which is empty now.
            self.losses.add(self.floor, floor - self.floor);
            self.floor = floor;
        }
    }

    fn is_here(&self, number: u64) -> bool {
        let bit = number % WINDOW;
        self.here[(bit / 64) as usize] >> (bit % 64) & 1 == 1
    }

    fn set(&mut self, number: u64, here: bool) {
        let bit = number % WINDOW;
        let word = &mut self.here[(bit / 64) as usize];
        *word = *word & !(1 << (bit % 64)) | u64::from(here) << (bit % 64);
    }
}

impl ArrivalsSeen {
    /// Share of the numbers sent that were lost, 0 to 1; 0 of none.
    pub fn loss(&self) -> f64 {
        match self.received + self.lost {
            0 => 0.0,
            sent => self.lost as f64 / sent as f64,
        }
    }

    /// Every how many-th is lost, where loss is periodic: at least [`LOSSES_MIN`] of them, at distances that vary less than
    /// [`PERIODIC_CV`], and more than one apart (all of a row lost is no period).
    pub fn loss_period(&self) -> Option<f64> {
        let (mean, cv) = (self.loss_gap_mean?, self.loss_gap_cv?);
        (self.lost >= LOSSES_MIN && cv < PERIODIC_CV && mean > 1.0).then_some(mean)
    }

    /// Mean length of the runs of lost numbers, where they are longer than loss by chance makes them: at least
    /// [`LOSSES_MIN`] losses, and so few runs that chance gives as few less than once in a million (five deviations).
    ///
    /// Under independent loss of share p, of L losses each ends its run with probability 1 - p: L (1 - p) runs are
    /// expected, with variance below L p (1 - p).
    pub fn burst_length(&self) -> Option<f64> {
        if self.lost < LOSSES_MIN || self.received == 0 {
            return None;
        }
        let (lost, loss) = (self.lost as f64, self.loss());
        let least = lost * (1.0 - loss) - 5.0 * (lost * loss * (1.0 - loss)).sqrt() - 1.0;
        ((self.bursts as f64) < least).then(|| lost / self.bursts as f64)
    }

    /// The longest silence in nanoseconds, where it is longer than both [`SILENT_NS`] and [`SILENT_GAPS`] mean gaps of the
    /// row. It is the gateway's only if the sender was on time.
    pub fn stall_ns(&self, expected_gap_ns: f64) -> Option<u64> {
        let bound = (SILENT_GAPS * expected_gap_ns).max(SILENT_NS as f64);
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
    /// One more than the highest number before it.
    after: u64,
    /// Numbers sent during it.
    sent: u64,
    /// Of them, here.
    late: u64,
}

impl Silence {
    fn numbers(&self) -> std::ops::Range<u64> {
        self.after..self.after.saturating_add(self.sent)
    }
}

/// Lost numbers, told in rising order.
#[derive(Clone, Copy, Debug, Default)]
struct Losses {
    count: u64,
    last: Option<u64>,
    /// Of the distances: the first, to which the others are compared so that squares stay exact, and sums of differences.
    shift: f64,
    sum: f64,
    sum_of_squares: f64,
    bursts: u64,
    run: u64,
    longest: u64,
}

impl Losses {
    /// `length` numbers from `number` on.
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
