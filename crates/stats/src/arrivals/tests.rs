//! Rows of arrivals with known loss, order and silence.

use proptest::prelude::*;

use super::*;
use crate::Rng;

const GAP_NS: u64 = 1_000_000;

/// Numbers 0 to `sent` - 1 at an even pace, without those that `lost` names.
fn row(sent: u64, mut lost: impl FnMut(u64) -> bool) -> ArrivalsSeen {
    let mut arrivals = Arrivals::new(GAP_NS as f64);
    (0..sent).filter(|&number| !lost(number)).for_each(|number| arrivals.add(number, 5 + number * GAP_NS));
    arrivals.finish(sent)
}

#[test]
fn regular_arrivals_have_no_findings() {
    let seen = row(10_000, |_| false);
    let expected = ArrivalsSeen {
        received: 10_000,
        longest_silence_ns: GAP_NS,
        silence_at_ns: 0,
        sent_in_silence: 1,
        late_after_silence: 1,
        ..ArrivalsSeen::default()
    };
    assert_eq!(seen, expected);
    assert_eq!((seen.loss_period(), seen.burst_length(), seen.stall_ns(GAP_NS as f64)), (None, None, None));
}

#[test]
fn periodic_loss_is_distinguished_from_random_loss() {
    let seen = row(30_000, |number| number % 1000 == 999);
    assert_eq!((seen.lost, seen.bursts, seen.longest_burst), (30, 30, 1));
    assert_eq!((seen.loss_gap_mean, seen.loss_gap_cv), (Some(1000.0), Some(0.0)));
    assert_eq!(seen.loss_period(), Some(1000.0));
    assert_eq!((seen.burst_length(), seen.stall_ns(GAP_NS as f64)), (None, None));
    for stream in 0..200 {
        let mut rng = Rng::new(3, stream);
        let seen = row(10_000, |_| rng.uniform() < 0.01);
        assert_eq!((seen.loss_period(), seen.burst_length()), (None, None), "{stream}: {seen:?}");
        assert!((0.7..1.35).contains(&seen.loss_gap_cv.unwrap()), "{stream}: {seen:?}");
    }
}

/// Twenty losses are the least that have a period; distances that vary by 5 % are no period any more.
#[test]
fn period_detection_respects_its_limits() {
    let few = |losses| row(100_000, |number| number % 1000 == 999 && number < losses * 1000).loss_period();
    assert_eq!((few(LOSSES_MIN - 1), few(LOSSES_MIN)), (None, Some(1000.0)));
    // Distances of 1000 - d and 1000 + d in turn: their coefficient of variation is d / 1000 exactly.
    for (off, period) in [(49, Some(1000.0)), (50, None), (51, None)] {
        let (mut at, mut lost) = (0, vec![0]);
        for turn in 0..40 {
            at += if turn % 2 == 0 { 1000 - off } else { 1000 + off };
            lost.push(at);
        }
        let seen = row(50_000, |number| lost.contains(&number));
        assert!((seen.loss_gap_cv.unwrap() - off as f64 / 1000.0).abs() < 1e-12, "{seen:?}");
        assert_eq!(seen.loss_period(), period, "{off}");
    }
    // Nothing arrives: that is no period of one.
    assert_eq!(row(5000, |_| true).loss_period(), None);
    assert_eq!(row(5000, |number| number > 100).loss_period(), None);
}

#[test]
fn loss_bursts_are_distinguished_from_random_loss() {
    let seen = row(100_000, |number| number % 5000 < 10);
    assert_eq!((seen.lost, seen.bursts, seen.longest_burst), (200, 20, 10));
    assert_eq!((seen.burst_length(), seen.loss_period()), (Some(10.0), None));
    // Pairs: half as many runs as losses. With 38 losses chance would do that too seldom, with fewer than 20 nobody asks.
    let pairs = |losses: u64| row(100_000, |number| number % 1000 < 2 && number / 1000 < losses / 2);
    assert_eq!(pairs(40).burst_length(), Some(2.0));
    assert_eq!(pairs(18).burst_length(), None);
    // Heavy loss by chance has runs of its own.
    for stream in 0..50 {
        let mut rng = Rng::new(4, stream);
        assert_eq!(row(5000, |_| rng.uniform() < 0.5).burst_length(), None, "{stream}");
    }
}

/// The row stalls after number 499, for so long, and what was sent meanwhile comes in a rush or never.
fn stalled(gap_ns: u64, silence_ns: u64, kept: bool) -> ArrivalsSeen {
    let mut arrivals = Arrivals::new(gap_ns as f64);
    let (last, sent) = (499 * gap_ns, 2000);
    for number in 0..sent {
        let due = number * gap_ns;
        let is_in = due > last && due < last + silence_ns;
        if kept || !is_in {
            arrivals.add(number, if is_in { last + silence_ns } else { due });
        }
    }
    arrivals.finish(sent)
}

#[test]
fn a_stall_of_one_second_is_reported_with_its_outcome() {
    let seen = stalled(GAP_NS, 1_000_000_000, true);
    assert_eq!((seen.lost, seen.reordered, seen.duplicated), (0, 0, 0));
    assert_eq!((seen.stall_ns(GAP_NS as f64), seen.silence_at_ns), (Some(1_000_000_000), 499_000_000));
    assert_eq!((seen.sent_in_silence, seen.late_after_silence, seen.lost_in_silence()), (1000, 1000, 0));
    let seen = stalled(GAP_NS, 1_000_000_000, false);
    assert_eq!((seen.lost, seen.bursts, seen.longest_burst), (999, 1, 999));
    // The one that ended it was sent at its end, and is of both.
    assert_eq!((seen.sent_in_silence, seen.late_after_silence, seen.lost_in_silence()), (1000, 1, 999));
    assert_eq!((seen.stall_ns(GAP_NS as f64), seen.silence_at_ns), (Some(1_000_000_000), 499_000_000));
}

/// 100 ms where the row is quick, 50 gaps where it is slow.
#[test]
fn stall_detection_respects_its_limits() {
    for (gap_ns, bound_ms) in [(1_000_000, 100), (10_000_000, 500)] {
        let of = |silence_ms: u64| {
            stalled(gap_ns, silence_ms * 1_000_000, true).stall_ns(gap_ns as f64).map(|ns| ns / 1_000_000)
        };
        assert_eq!([of(bound_ms - 1), of(bound_ms)], [None, None]);
        assert_eq!(of(bound_ms + 1), Some(bound_ms + 1));
    }
}

#[test]
fn silence_counts_at_both_ends_of_the_sequence() {
    let seen = row(1000, |number| number >= 800);
    assert_eq!((seen.stall_ns(GAP_NS as f64), seen.silence_at_ns), (Some(200 * GAP_NS), 799 * GAP_NS));
    assert_eq!((seen.lost_in_silence(), seen.late_after_silence), (200, 0));
    let seen = row(1000, |number| number < 150);
    assert_eq!((seen.stall_ns(GAP_NS as f64), seen.silence_at_ns), (Some(150 * GAP_NS), 0));
    assert_eq!(seen.lost_in_silence(), 150);
    let seen = row(1000, |_| true);
    assert_eq!((seen.lost, seen.stall_ns(GAP_NS as f64), seen.lost_in_silence()), (1000, Some(1000 * GAP_NS), 1000));
    assert_eq!(Arrivals::new(1.0).finish(0), ArrivalsSeen::default());
}

#[test]
fn reordered_and_duplicated_packets_are_counted() {
    let mut arrivals = Arrivals::new(1000.0);
    for (at, number) in [0, 1, 3, 2, 3, 3, 6, 5].into_iter().enumerate() {
        arrivals.add(number, at as u64 * 1000);
    }
    let seen = arrivals.finish(8);
    assert_eq!((seen.received, seen.lost, seen.duplicated, seen.reordered), (6, 2, 2, 2));
    assert_eq!((seen.bursts, seen.longest_burst, seen.loss_gap_mean), (2, 1, Some(3.0)));
}

/// The last number that may still come late, and the first that is too late.
#[test]
fn the_reorder_window_is_limited() {
    for (late, received) in [(1, 3), (0, 2)] {
        let mut arrivals = Arrivals::new(1.0);
        // Number 2 first, so that both are open at the beginning.
        arrivals.add(2, 0);
        arrivals.add(WINDOW, 1);
        arrivals.add(late, 2);
        let seen = arrivals.finish(WINDOW + 1);
        assert_eq!((seen.received, seen.reordered, seen.duplicated), (received, 1, 0), "{late}");
        assert_eq!(seen.received + seen.lost, WINDOW + 1);
    }
}

#[test]
fn a_sequence_gap_of_any_length_is_handled_in_constant_time() {
    let mut arrivals = Arrivals::new(1e6);
    for number in [7, 1 << 40, (1 << 40) + 1, u64::MAX - 1, u64::MAX, 3] {
        arrivals.add(number, number / 2);
    }
    let seen = arrivals.finish(0);
    assert_eq!((seen.received, seen.duplicated, seen.reordered), (4, 1, 1));
    assert_eq!(seen.lost, u64::MAX - 4);
}

proptest! {
    /// Every number is received or lost, every arrival the first, another or too late; and the figures of the losses are
    /// those of a list of them.
    #[test]
    fn every_request_ends_exactly_once(
        sent in 1u64..400,
        lost in proptest::collection::vec(any::<bool>(), 400),
        swaps in proptest::collection::vec((0usize..400, 0usize..400), 0..20),
        again in proptest::collection::vec(0usize..400, 0..20),
        silence in 0u64..1000,
    ) {
        let mut numbers: Vec<u64> = (0..sent).filter(|&number| !lost[number as usize]).collect();
        let here = numbers.len() as u64;
        for (one, other) in swaps {
            if one.max(other) < numbers.len() {
                numbers.swap(one, other);
            }
        }
        let repeated: Vec<u64> = again.iter().filter_map(|&at| numbers.get(at).copied()).collect();
        numbers.extend(&repeated);
        let mut arrivals = Arrivals::new(1000.0);
        let mut at_ns = 77;
        for (place, &number) in numbers.iter().enumerate() {
            at_ns += if place == 100 { silence * 1000 } else { 1000 };
            arrivals.add(number, at_ns);
        }
        let seen = arrivals.finish(sent);
        prop_assert_eq!((seen.received, seen.lost), (here, sent - here));
        prop_assert_eq!(seen.duplicated, repeated.len() as u64);
        let expected: Vec<u64> = (0..sent).filter(|&number| lost[number as usize]).collect();
        let gaps: Vec<f64> = expected.windows(2).map(|pair| (pair[1] - pair[0]) as f64).collect();
        let bursts = expected.iter().enumerate().filter(|&(at, number)| at == 0 || expected[at - 1] + 1 != *number).count();
        prop_assert_eq!(seen.bursts, bursts as u64);
        prop_assert_eq!(seen.loss_gap_mean.is_some(), expected.len() >= 2);
        if let (Some(mean), Some(cv)) = (seen.loss_gap_mean, seen.loss_gap_cv) {
            let exact = gaps.iter().sum::<f64>() / gaps.len() as f64;
            let variance = gaps.iter().map(|gap| (gap - exact).powi(2)).sum::<f64>() / gaps.len() as f64;
            prop_assert!((mean - exact).abs() < 1e-9 && (cv - variance.sqrt() / exact).abs() < 1e-6, "{} {}", cv, variance);
        }
        prop_assert!(seen.late_after_silence <= seen.sent_in_silence && seen.sent_in_silence <= sent);
    }

}

proptest! {
    // Two million numbers a case.
    #![proptest_config(ProptestConfig::with_cases(16))]

    /// A window that slides gives the same figures as one that holds all.
    #[test]
    fn statistics_do_not_depend_on_the_length_of_the_sequence(period in 2u64..50_000, offset in 0u64..50_000) {
        let sent = 2 * WINDOW + 5000;
        let seen = row(sent, |number| number % period == offset % period);
        let lost = (0..sent).filter(|number| number % period == offset % period).count() as u64;
        prop_assert_eq!((seen.lost, seen.received), (lost, sent - lost));
        prop_assert_eq!(seen.loss_period().is_some(), lost >= LOSSES_MIN);
        prop_assert!(seen.loss_period().is_none_or(|found| found == period as f64));
    }
}
