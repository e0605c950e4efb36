//! Rates that change: the bytes sent are the integral of the rate.

use super::*;
use crate::spec::{Change, ChangeKind, ChangedLinks, Factor};

fn change(at: u64, duration: Option<u64>, factor: f64) -> Change {
    let kind = ChangeKind::Rate(Factor::new(factor).unwrap());
    let ns = Duration::from_nanos;
    Change { at: ns(at), duration: duration.map(ns), place: ChangedLinks::Shared(0), kind }
}

fn changing(bits: u64, changes: &[Change], limit: QueueLimit) -> Queue<usize> {
    let timeline = Arc::new(Timeline::new(&changes.iter().collect::<Vec<_>>()));
    let queue = spec::Queue { limit, ..spec::Queue::default() };
    Queue::new(&Bottleneck { rate: constant(bits), queue }, Some(timeline), Draw::new(1))
}

#[test]
fn rate_change_applies_to_the_remainder_of_the_packet_being_sent() {
    // 1250 bytes per millisecond; from 1.5 ms on a quarter of that, from 5.5 ms on the first rate again.
    let mut queue = changing(10_000_000, &[change(1_500_000, Some(4_000_000), 0.25)], HOUR);
    let start = Start(Some(Timestamp::ZERO));
    let fates = run(&mut queue, &[(0, 1250); 4], start);
    // Half of the second packet takes 2 ms (1.5 to 3.5), half of the third the other 2, its rest half a millisecond.
    assert_eq!(fates, [Ok(1_000_000), Ok(3_500_000), Ok(6_000_000), Ok(7_000_000)]);
}

#[test]
fn start_set_during_a_packet_applies_to_its_remainder() {
    let mut queue = changing(10_000_000, &[change(0, None, 0.5)], HOUR);
    queue.offer(0, 0, 1250, NO_START).unwrap();
    assert_eq!(queue.next(), Some(1_000_000));
    queue.restart(Start(Some(Timestamp::from_nanos(400_000))));
    assert_eq!(queue.next(), Some(1_600_000));
}

#[test]
fn queue_limit_in_time_includes_future_rate_changes() {
    // 2500 bytes wait; at the rate that begins in 1 ms they take 1 + 10 ms.
    let start = Start(Some(Timestamp::ZERO));
    let fates = |limit| {
        let mut queue = changing(10_000_000, &[change(1_000_000, None, 0.1)], QueueLimit::Time(limit));
        run(&mut queue, &[(0, 1250), (0, 1250), (0, 1)], start)
    };
    assert!(fates(ms(11))[2].is_ok());
    assert_eq!(fates(Duration::from_nanos(10_999_999))[2], Err(DropCause::QueueFull));
}

proptest! {
    /// Each packet leaves in the nanosecond in which its last bit has been sent at the current rates, without gaps
    /// while packets wait.
    #[test]
    fn bytes_sent_are_the_integral_of_the_changing_rate(
        bits in 100_000u64..100_000_000,
        changes in prop::collection::vec((0u64..300_000_000, prop::option::of(1u64..100_000_000), 0.05f64..4.0), 0..6),
        start_ns in 0u64..50_000_000,
        packets in packets(3_000_000, 150),
    ) {
        let changes: Vec<Change> =
            changes.into_iter().map(|(at, duration, factor)| change(at, duration, factor)).collect();
        let timeline = Timeline::new(&changes.iter().collect::<Vec<_>>());
        let start = Start(Some(Timestamp::from_nanos(start_ns)));
        let mut times: Vec<u64> = changes
            .iter()
            .flat_map(|change| [Some(change.at), change.duration.map(|duration| change.at + duration)])
            .flatten()
            .map(|time| start_ns + time.as_nanos() as u64)
            .collect();
        times.sort_unstable();
        // Bits times 10^9 that can be sent from `from` to `to`.
        let sendable = |from: u64, to: u64| -> u128 {
            let inner = times.iter().copied().filter(|&time| from < time && time < to);
            let ends: Vec<u64> = [from].into_iter().chain(inner).chain([to]).collect();
            ends.windows(2)
                .map(|pair| {
                    let rate = (bits as f64 * timeline.at(start, pair[0]).rate).round().max(1.0) as u128;
                    rate * u128::from(pair[1] - pair[0])
                })
                .sum()
        };
        let fates = run(&mut changing(bits, &changes, HOUR), &packets, start);
        let (mut busy_since, mut work, mut last) = (0, 0u128, 0);
        for (&(at, bytes), fate) in packets.iter().zip(fates) {
            let leaves = fate.expect("nothing is dropped");
            if at >= last {
                (busy_since, work) = (at, 0);
            }
            work += u128::from(bytes) * BYTE;
            prop_assert!(sendable(busy_since, leaves) >= work, "the packet leaves early");
            prop_assert!(sendable(busy_since, leaves - 1) < work, "the packet leaves late");
            last = leaves;
        }
    }
}
