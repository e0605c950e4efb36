//! Tests of [`Pairs`] with simulated clocks: a counter of 3 GHz, and a monotonic clock that is slewed.

use super::*;

const S: u64 = 1_000_000_000;

fn of(all: &[(u64, u64)]) -> Pairs {
    let pairs = all.iter().map(|&(ticks, monotonic_ns)| Pair { ticks, monotonic_ns }).collect();
    Pairs { pairs, thin_at: 1_000 }
}

fn add(pairs: &mut Pairs, pair: Pair) {
    pairs.add(pair);
}

#[test]
fn times_are_interpolated_between_clock_pairs_and_extrapolated_beyond() {
    let pairs = of(&[(1000, 5 * S), (3_000_001_000, 6 * S), (9_000_001_000, 8 * S)]);
    assert_eq!(pairs.at(1000), 5_000_000_000);
    assert_eq!(pairs.at(1_500_001_000), 5_500_000_000);
    assert_eq!(pairs.at(3_000_001_000), 6_000_000_000);
    assert_eq!(pairs.at(12_000_001_000), 9_000_000_000);
    assert_eq!(pairs.at(0), 4_999_999_667);
    assert_eq!(pairs.at(u64::MAX) / S, 6_148_914_696);
    assert_eq!((pairs.duration_ns(3_000, u64::MAX), pairs.ticks_of(1_000)), (1_000, 3_000));
    assert_eq!(
        (Pairs::default().at(7), Pairs::default().ticks_of(7)),
        (7, 7),
        "without a rate, ticks count as nanoseconds"
    );
}

/// A monotonic clock that the kernel slews by at most 500 in a million, in both directions.
struct Slewed {
    /// Times of the changes, in true nanoseconds, and the clock's value there.
    turns: Vec<(u64, u64)>,
}

impl Slewed {
    /// Changes at these times.
    fn new(lengths: impl Iterator<Item = u64>) -> Slewed {
        let mut turns = vec![(0, 0)];
        for length in lengths {
            let (at, clock_ns) = *turns.last().unwrap();
            turns.push((at + length, clock_ns + Slewed::run(turns.len(), length)));
        }
        Slewed { turns }
    }

    fn run(turn: usize, length: u64) -> u64 {
        let slew = length / 1_000_000 * 500;
        if turn.is_multiple_of(2) { length + slew } else { length - slew }
    }

    fn pair(&self, at: u64) -> Pair {
        let turn = self.turns.partition_point(|(from, _)| *from <= at);
        let (from, clock_ns) = self.turns[turn - 1];
        Pair { ticks: at * 3, monotonic_ns: clock_ns + Slewed::run(turn, at - from) }
    }
}

#[test]
fn years_of_clock_pairs_are_thinned_out_and_old_times_stay_accurate() {
    // The rate changes every 37 s to 50 min, by a fixed sequence.
    let lengths = (1..6_000u64).map(|turn| (turn * 7_919 % 2_963 + 37) * S);
    let clock = Slewed::new(lengths);
    let days = 20;
    let end = days * 86_400;
    assert!(clock.turns.last().unwrap().0 > end * S);
    let mut pairs = Pairs::default();
    for second in 0..end {
        pairs.add(clock.pair(second * S + second % 7));
        if second % 50_000 == 0 {
            assert!(pairs.len() <= 1_100, "{} after {second} s", pairs.len());
        }
    }
    assert!((300..=1_100).contains(&pairs.len()), "{}", pairs.len());
    let now = (end - 1) * S;
    for step in 1..20_000u64 {
        let age = step * step * step % now;
        let exact = clock.pair(now - age);
        let off = pairs.at(exact.ticks).abs_diff(exact.monotonic_ns);
        // Neighbouring pairs are at most a 32nd of their age apart; the rate differs by 1 in 1,000; a quarter of
        // both.
        let distance = (age / 32).max(2 * S);
        let bound = distance / 1_000 / 4 + 2_000;
        assert!(off <= bound, "{off} ns off at an age of {} s, {bound} expected", age / S);
    }
    // The main use: within the last minute, 2 s apart.
    let exact = clock.pair(now - 30 * S + 123);
    assert!(pairs.at(exact.ticks).abs_diff(exact.monotonic_ns) < 1_000_000);
}

#[test]
fn times_during_days_without_a_reader_are_interpolated() {
    // The clock slews by 1 in a million more from the middle of the absence on, as a disciplined clock does.
    let mut pairs = Pairs::default();
    let pair = |second: u64| {
        let turned = 3_600 + 36 * 3_600;
        let extra = second.saturating_sub(turned) * 1_000;
        Pair { ticks: second * S * 3, monotonic_ns: second * S + extra }
    };
    (0..3_600).for_each(|second| add(&mut pairs, pair(second)));
    let written = postcard::to_stdvec(&pairs).unwrap();
    let mut pairs: Pairs = postcard::from_bytes(&written).unwrap();
    let back = 3_600 + 72 * 3_600;
    (0..10).for_each(|second| add(&mut pairs, pair(back + second)));
    for second in (3_600..back).step_by(601) {
        let exact = pair(second);
        let off = pairs.at(exact.ticks).abs_diff(exact.monotonic_ns);
        assert!(off <= 72 * 3_600 * 1_000 / 4 + 10, "{off} ns");
    }
    let exact = pair(back + 9);
    assert!(
        pairs.at(exact.ticks - 1_500_000).abs_diff(exact.monotonic_ns - 500_000) <= 2,
        "after the reset the conversion is exact again"
    );
}

#[test]
fn a_suspended_machine_is_detected_by_the_clock_rate() {
    // The counter continues for eight hours while the monotonic clock stops.
    let mut pairs = Pairs::default();
    let awake = |ms: u64, slept: u64| Pair { ticks: (ms * 1_000_000 + slept) * 3, monotonic_ns: ms * 1_000_000 };
    let slept = 8 * 3_600 * S;
    (0..10_000).step_by(5).for_each(|ms| add(&mut pairs, awake(ms, 0)));
    (10_005..10_500).step_by(5).for_each(|ms| add(&mut pairs, awake(ms, slept)));
    for (ms, was) in [(9_000, 0), (9_990, 0), (10_010, slept), (10_490, slept)] {
        let exact = awake(ms, was);
        let off = pairs.at(exact.ticks).abs_diff(exact.monotonic_ns);
        assert!(off <= 5_000_000, "{off} ns off at {ms} ms");
    }
    // The opposite: the counter was reset.
    let reset = |ms: u64| Pair { ticks: (ms - 10_000) * 3_000_000, monotonic_ns: ms * 1_000_000 };
    (10_505..13_000).step_by(5).for_each(|ms| add(&mut pairs, reset(ms)));
    for ms in [10_510, 11_000, 12_990] {
        let off = pairs.at(reset(ms).ticks).abs_diff(reset(ms).monotonic_ns);
        assert!(off <= 5_000_000, "{off} ns off at {ms} ms");
    }
    assert!(pairs.ticks_of(1_000).abs_diff(3_000) <= 30);
}

#[test]
fn a_redundant_clock_pair_is_not_stored() {
    let mut pairs = Pairs::default();
    let pair = |ms: u64| Pair { ticks: ms * 3_000_000, monotonic_ns: ms * 1_000_000 };
    let stored = (1..=10_000).step_by(5).filter(|ms| pairs.add(pair(*ms))).count();
    assert!((10..=13).contains(&stored), "one pair a second is stored: {stored}");
    assert!(!pairs.add(pair(9_000)), "a pair older than the latest is not stored");
    assert_eq!(pairs.last(), Some(pair(9_996)));
}
