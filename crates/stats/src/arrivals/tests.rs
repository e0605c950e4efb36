//! Tests with sequences of known loss, order and silence.

use proptest::prelude::*;

use super::*;
use crate::Rng;

const GAP_NS: u64 = 1_000_000;

/// The statistics of numbers 0 to `sent` - 1 at a constant rate, without those for which `lost` is true.
fn sequence(sent: u64, mut lost: impl FnMut(u64) -> bool) -> ArrivalsSeen {
    let mut arrivals = Arrivals::new(GAP_NS as f64);
    (0..sent).filter(|&number| !lost(number)).for_each(|number| arrivals.add(number, 5 + number * GAP_NS));
    arrivals.finish(sent)
}

#[test]
fn regular_arrivals_have_no_findings() {
    let statistics = sequence(10_000, |_| false);
    let expected = ArrivalsSeen {
        received: 10_000,
        longest_silence_ns: GAP_NS,
        silence_at_ns: 0,
        sent_in_silence: 1,
        late_after_silence: 1,
        ..ArrivalsSeen::default()
    };
    assert_eq!(statistics, expected);
    assert_eq!(
        (statistics.loss_period(), statistics.burst_length(), statistics.stall_ns(GAP_NS as f64)),
        (None, None, None)
    );
}

#[test]
fn periodic_loss_is_distinguished_from_random_loss() {
    let statistics = sequence(30_000, |number| number % 1000 == 999);
    assert_eq!((statistics.lost, statistics.bursts, statistics.longest_burst), (30, 30, 1));
    assert_eq!((statistics.loss_gap_mean, statistics.loss_gap_cv), (Some(1000.0), Some(0.0)));
    assert_eq!(statistics.loss_period(), Some(1000.0));
    assert_eq!((statistics.burst_length(), statistics.stall_ns(GAP_NS as f64)), (None, None));
    for stream in 0..200 {
        let mut rng = Rng::new(3, stream);
        let statistics = sequence(10_000, |_| rng.uniform() < 0.01);
        assert_eq!((statistics.loss_period(), statistics.burst_length()), (None, None), "{stream}: {statistics:?}");
        assert!((0.7..1.35).contains(&statistics.loss_gap_cv.unwrap()), "{stream}: {statistics:?}");
    }
}

/// A period needs at least twenty losses, and distances that vary by less than 5 %.
#[test]
fn period_detection_respects_its_limits() {
    let few = |losses| sequence(100_000, |number| number % 1000 == 999 && number < losses * 1000).loss_period();
    assert_eq!((few(LOSSES_MIN - 1), few(LOSSES_MIN)), (None, Some(1000.0)));
    // Alternating distances of 1000 - d and 1000 + d have a coefficient of variation of exactly d / 1000.
    for (off, period) in [(49, Some(1000.0)), (50, None), (51, None)] {
        let (mut at, mut lost) = (0, vec![0]);
        for turn in 0..40 {
            at += if turn % 2 == 0 { 1000 - off } else { 1000 + off };
            lost.push(at);
        }
        let statistics = sequence(50_000, |number| lost.contains(&number));
        assert!((statistics.loss_gap_cv.unwrap() - off as f64 / 1000.0).abs() < 1e-12, "{statistics:?}");
        assert_eq!(statistics.loss_period(), period, "{off}");
    }
    // If nothing arrives, the loss has no period.
    assert_eq!(sequence(5000, |_| true).loss_period(), None);
    assert_eq!(sequence(5000, |number| number > 100).loss_period(), None);
}

#[test]
fn loss_bursts_are_distinguished_from_random_loss() {
    let statistics = sequence(100_000, |number| number % 5000 < 10);
    assert_eq!((statistics.lost, statistics.bursts, statistics.longest_burst), (200, 20, 10));
    assert_eq!((statistics.burst_length(), statistics.loss_period()), (Some(10.0), None));
    // Losses in pairs have half as many runs as losses. Fewer than 20 losses are not classified.
    let pairs = |losses: u64| sequence(100_000, |number| number % 1000 < 2 && number / 1000 < losses / 2);
    assert_eq!(pairs(40).burst_length(), Some(2.0));
    assert_eq!(pairs(18).burst_length(), None);
    // Heavy random loss also has long runs.
    for stream in 0..50 {
        let mut rng = Rng::new(4, stream);
        assert_eq!(sequence(5000, |_| rng.uniform() < 0.5).burst_length(), None, "{stream}");
    }
}

/// A sequence that stalls after number 499 for `silence_ns`. Datagrams sent meanwhile arrive in a burst after the stall
/// if `delivered`, otherwise never.
fn stalled(gap_ns: u64, silence_ns: u64, delivered: bool) -> ArrivalsSeen {
    let mut arrivals = Arrivals::new(gap_ns as f64);
    let (last, sent) = (499 * gap_ns, 2000);
    for number in 0..sent {
        let due = number * gap_ns;
        let is_in = due > last && due < last + silence_ns;
        if delivered || !is_in {
            arrivals.add(number, if is_in { last + silence_ns } else { due });
        }
    }
    arrivals.finish(sent)
}

#[test]
fn a_stall_of_one_second_is_reported_with_its_outcome() {
    let statistics = stalled(GAP_NS, 1_000_000_000, true);
    assert_eq!((statistics.lost, statistics.reordered, statistics.duplicated), (0, 0, 0));
    assert_eq!((statistics.stall_ns(GAP_NS as f64), statistics.silence_at_ns), (Some(1_000_000_000), 499_000_000));
    assert_eq!(
        (statistics.sent_in_silence, statistics.late_after_silence, statistics.lost_in_silence()),
        (1000, 1000, 0)
    );
    let statistics = stalled(GAP_NS, 1_000_000_000, false);
    assert_eq!((statistics.lost, statistics.bursts, statistics.longest_burst), (999, 1, 999));
    // The datagram that ended the silence was sent at its end, and counts as sent in it and as arrived after it.
    assert_eq!(
        (statistics.sent_in_silence, statistics.late_after_silence, statistics.lost_in_silence()),
        (1000, 1, 999)
    );
    assert_eq!((statistics.stall_ns(GAP_NS as f64), statistics.silence_at_ns), (Some(1_000_000_000), 499_000_000));
}

/// The limit is 100 ms for a fast sequence and 50 gaps for a slow one.
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
    let statistics = sequence(1000, |number| number >= 800);
    assert_eq!((statistics.stall_ns(GAP_NS as f64), statistics.silence_at_ns), (Some(200 * GAP_NS), 799 * GAP_NS));
    assert_eq!((statistics.lost_in_silence(), statistics.late_after_silence), (200, 0));
    let statistics = sequence(1000, |number| number < 150);
    assert_eq!((statistics.stall_ns(GAP_NS as f64), statistics.silence_at_ns), (Some(150 * GAP_NS), 0));
    assert_eq!(statistics.lost_in_silence(), 150);
    let statistics = sequence(1000, |_| true);
    assert_eq!(
        (statistics.lost, statistics.stall_ns(GAP_NS as f64), statistics.lost_in_silence()),
        (1000, Some(1000 * GAP_NS), 1000)
    );
    assert_eq!(Arrivals::new(1.0).finish(0), ArrivalsSeen::default());
}

#[test]
fn reordered_and_duplicated_packets_are_counted() {
    let mut arrivals = Arrivals::new(1000.0);
    for (at, number) in [0, 1, 3, 2, 3, 3, 6, 5].into_iter().enumerate() {
        arrivals.add(number, at as u64 * 1000);
    }
    let statistics = arrivals.finish(8);
    assert_eq!((statistics.received, statistics.lost, statistics.duplicated, statistics.reordered), (6, 2, 2, 2));
    assert_eq!((statistics.bursts, statistics.longest_burst, statistics.loss_gap_mean), (2, 1, Some(3.0)));
}

/// The most delayed number that the window accepts, and the first that is too late.
#[test]
fn the_reorder_window_is_limited() {
    for (late, received) in [(1, 3), (0, 2)] {
        let mut arrivals = Arrivals::new(1.0);
        // Number 2 arrives first, so that numbers 0 and 1 are open.
        arrivals.add(2, 0);
        arrivals.add(WINDOW, 1);
        arrivals.add(late, 2);
        let statistics = arrivals.finish(WINDOW + 1);
        assert_eq!((statistics.received, statistics.reordered, statistics.duplicated), (received, 1, 0), "{late}");
        assert_eq!(statistics.received + statistics.lost, WINDOW + 1);
    }
}

#[test]
fn a_sequence_gap_of_any_length_is_handled_in_constant_time() {
    let mut arrivals = Arrivals::new(1e6);
    for number in [7, 1 << 40, (1 << 40) + 1, u64::MAX - 1, u64::MAX, 3] {
        arrivals.add(number, number / 2);
    }
    let statistics = arrivals.finish(0);
    assert_eq!((statistics.received, statistics.duplicated, statistics.reordered), (4, 1, 1));
    assert_eq!(statistics.lost, u64::MAX - 4);
}

proptest! {
    /// Every number is received or lost, and the statistics of losses equal those computed from a list.
    #[test]
    fn every_number_is_received_or_lost(
        sent in 1u64..400,
        lost in proptest::collection::vec(any::<bool>(), 400),
        swaps in proptest::collection::vec((0usize..400, 0usize..400), 0..20),
        again in proptest::collection::vec(0usize..400, 0..20),
        silence in 0u64..1000,
    ) {
        let mut numbers: Vec<u64> = (0..sent).filter(|&number| !lost[number as usize]).collect();
        let received = numbers.len() as u64;
        for (one, other) in swaps {
            if one.max(other) < numbers.len() {
                numbers.swap(one, other);
            }
        }
        let repeated: Vec<u64> = again.iter().filter_map(|&at| numbers.get(at).copied()).collect();
        numbers.extend(&repeated);
        let mut arrivals = Arrivals::new(1000.0);
        let mut at_ns = 77;
        for (index, &number) in numbers.iter().enumerate() {
            at_ns += if index == 100 { silence * 1000 } else { 1000 };
            arrivals.add(number, at_ns);
        }
        let statistics = arrivals.finish(sent);
        prop_assert_eq!((statistics.received, statistics.lost), (received, sent - received));
        prop_assert_eq!(statistics.duplicated, repeated.len() as u64);
        let expected: Vec<u64> = (0..sent).filter(|&number| lost[number as usize]).collect();
        let gaps: Vec<f64> = expected.windows(2).map(|pair| (pair[1] - pair[0]) as f64).collect();
        let bursts = expected.iter().enumerate().filter(|&(at, number)| at == 0 || expected[at - 1] + 1 != *number).count();
        prop_assert_eq!(statistics.bursts, bursts as u64);
        prop_assert_eq!(statistics.loss_gap_mean.is_some(), expected.len() >= 2);
        if let (Some(mean), Some(cv)) = (statistics.loss_gap_mean, statistics.loss_gap_cv) {
            let exact = gaps.iter().sum::<f64>() / gaps.len() as f64;
            let variance = gaps.iter().map(|gap| (gap - exact).powi(2)).sum::<f64>() / gaps.len() as f64;
            prop_assert!((mean - exact).abs() < 1e-9 && (cv - variance.sqrt() / exact).abs() < 1e-6, "{} {}", cv, variance);
        }
        prop_assert!(statistics.late_after_silence <= statistics.sent_in_silence && statistics.sent_in_silence <= sent);
    }

}

proptest! {
    // Each case has two million numbers.
    #![proptest_config(ProptestConfig::with_cases(16))]

    /// The sliding window gives the same statistics as a complete list.
    #[test]
    fn statistics_do_not_depend_on_the_length_of_the_sequence(period in 2u64..50_000, offset in 0u64..50_000) {
        let sent = 2 * WINDOW + 5000;
        let statistics = sequence(sent, |number| number % period == offset % period);
        let lost = (0..sent).filter(|number| number % period == offset % period).count() as u64;
        prop_assert_eq!((statistics.lost, statistics.received), (lost, sent - lost));
        prop_assert_eq!(statistics.loss_period().is_some(), lost >= LOSSES_MIN);
        prop_assert!(statistics.loss_period().is_none_or(|detected| detected == period as f64));
    }
}
