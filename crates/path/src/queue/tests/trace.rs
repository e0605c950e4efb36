//! Traces against mahimahi's own algorithm for its link queue, written again.

use std::collections::VecDeque;

use super::*;
use crate::spec::DeliveryTrace;

/// mahimahi's `LinkQueue`: when each packet leaves, by iterating over every opportunity.
fn reference(times_ms: &[u64], packets: &[(u64, u32)]) -> Fates {
    let mut fates: Fates = vec![Err(DropCause::Shutdown); packets.len()];
    let mut queue: VecDeque<(usize, u64)> = VecDeque::new();
    let mut in_transit: Option<(usize, u64)> = None;
    let (mut base, mut next) = (0, 0);
    let mut arrivals = packets.iter().enumerate().peekable();
    while arrivals.peek().is_some() || !queue.is_empty() || in_transit.is_some() {
        let this_delivery = (base + times_ms[next]) * 1_000_000;
        while let Some((number, &(_, bytes))) = arrivals.next_if(|(_, (at, _))| *at < this_delivery) {
            queue.push_back((number, u64::from(bytes) + 4));
        }
        next += 1;
        if next == times_ms.len() {
            (base, next) = (base + times_ms[times_ms.len() - 1], 0);
        }
        let mut bytes_left = 1504;
        while bytes_left > 0 {
            let Some((number, left)) = in_transit.take().or_else(|| queue.pop_front()) else { break };
            let sent = left.min(bytes_left);
            bytes_left -= sent;
            if left == sent {
                fates[number] = Ok(this_delivery);
            } else {
                in_transit = Some((number, left - sent));
            }
        }
    }
    fates
}

fn trace(times_ms: &[u64]) -> RateSpec {
    RateSpec::Trace(Arc::new(DeliveryTrace::new(times_ms.to_vec()).unwrap()))
}

/// Rising times, sometimes repeated.
fn times() -> impl Strategy<Value = Vec<u64>> {
    let steps = prop::collection::vec(prop_oneof![Just(0u64), 0u64..4, 0u64..60], 1..40);
    steps.prop_map(|steps| {
        let mut now = 0;
        let mut times: Vec<u64> = steps
            .into_iter()
            .map(|step| {
                now += step;
                now
            })
            .collect();
        if now == 0 {
            times.push(7);
        }
        times
    })
}

proptest! {
    /// Packet by packet like mahimahi's link queue.
    #[test]
    fn trace_departures_equal_those_of_mahimahi(times in times(), packets in packets(4_000_000, 300)) {
        let fates = run(&mut queue(trace(&times), HOUR, Discipline::DropTail), &packets, NO_START);
        prop_assert_eq!(fates, reference(&times, &packets));
    }

    /// Packets on whole milliseconds, where arrivals and opportunities coincide.
    #[test]
    fn packet_arriving_exactly_at_a_trace_opportunity_misses_it(
        times in times(), gaps in prop::collection::vec((0u64..5, 40u32..=1500), 1..100),
    ) {
        let mut now = 0;
        let packets: Vec<(u64, u32)> = gaps.into_iter().map(|(gap, bytes)| {
            now += gap * 1_000_000;
            (now, bytes)
        }).collect();
        let fates = run(&mut queue(trace(&times), HOUR, Discipline::DropTail), &packets, NO_START);
        prop_assert_eq!(fates, reference(&times, &packets));
    }
}

#[test]
fn small_packets_share_a_trace_opportunity_and_large_ones_span_two() {
    let mut link = queue(trace(&[10, 20, 30]), HOUR, Discipline::DropTail);
    // Each 752 bytes with overhead: two per opportunity. The third takes the rest of the second opportunity.
    let fates = run(&mut link, &[(0, 748), (0, 748), (0, 1500), (0, 1)], NO_START);
    assert_eq!(fates, [Ok(10_000_000), Ok(10_000_000), Ok(20_000_000), Ok(30_000_000)]);
    let mut link = queue(trace(&[10, 20, 30]), HOUR, Discipline::DropTail);
    let fates = run(&mut link, &[(0, 100), (0, 1500), (45_000_000, 9)], NO_START);
    assert_eq!(fates, [Ok(10_000_000), Ok(20_000_000), Ok(50_000_000)]);
}

#[test]
fn queue_limit_counts_the_remainder_of_a_packet_that_spans_opportunities() {
    let limit = QueueLimit::Bytes(Bytes(1500));
    let mut link = queue(trace(&[10, 20, 30, 40]), limit, Discipline::DropTail);
    let full = Err(DropCause::QueueFull);
    // At 10 ms the first packet leaves and all of the second but 4 bytes: 1496 more fit, 1497 do not.
    let fates = run(&mut link, &[(0, 96), (0, 1404), (0, 1), (12_000_000, 1497), (12_000_000, 1496)], NO_START);
    assert_eq!(fates, [Ok(10_000_000), Ok(20_000_000), full, full, Ok(20_000_000)]);
}

#[test]
fn queue_limit_in_time_counts_until_the_opportunity_of_the_first_byte() {
    let mut link = queue(trace(&[10, 20, 30, 40]), QueueLimit::Time(ms(20)), Discipline::DropTail);
    let fates = run(&mut link, &[(0, 1500), (0, 1500), (0, 1500), (9_999_999, 1500), (10_000_000, 1500)], NO_START);
    // The third packet would wait for 30 ms; just before 10 ms it is 20.000001 ms, and then 20.
    let full = Err(DropCause::QueueFull);
    assert_eq!(fates, [Ok(10_000_000), Ok(20_000_000), full, full, Ok(30_000_000)]);
}

#[test]
fn trace_restarts_at_the_start_of_the_measured_phase() {
    let mut link = queue(trace(&[10, 30]), HOUR, Discipline::DropTail);
    link.offer(0, 0, 1500, NO_START).unwrap();
    link.offer(0, 1, 1500, NO_START).unwrap();
    let mut left = Vec::new();
    let mut see = |packet, outcome| left.push((packet, outcome));
    link.advance(15_000_000, NO_START, &mut see);
    // The second packet would have left at 30 ms; at 16 ms the trace restarts.
    let start = Start(Some(Timestamp::from_nanos(16_000_000)));
    link.restart(start);
    assert_eq!(link.next(), Some(26_000_000));
    link.advance(26_000_000, start, &mut see);
    assert_eq!(left, [(0, Outcome::Leaves(10_000_000)), (1, Outcome::Leaves(26_000_000))]);
    link.offer(26_000_000, 2, 1500, start).unwrap();
    assert_eq!(link.next(), Some(46_000_000));
}
