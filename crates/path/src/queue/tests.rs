mod codel;
mod pie;
mod rates;
mod trace;

use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;
use units::{BitRate, Bytes, Timestamp};

use super::*;
use crate::effect::{ClosedEffect, Fate, Rate};
use crate::spec::{self, Bottleneck};

const NO_START: Start = Start(None);

fn ms(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

fn constant(bits: u64) -> RateSpec {
    RateSpec::Constant(BitRate::from_bits_per_second(bits).unwrap())
}

/// A queue at `rate` without changes.
fn queue(rate: RateSpec, limit: QueueLimit, discipline: Discipline) -> Queue<usize> {
    Queue::new(&Bottleneck { rate, queue: spec::Queue { limit, discipline } }, None, Draw::new(9))
}

const HOUR: QueueLimit = QueueLimit::Time(Duration::from_secs(3600));

/// The fate of each packet, in order of arrival: when it left, or the cause of its drop.
type Fates = Vec<Result<u64, DropCause>>;

/// Offers packets of (time, bytes) to a queue and lets it run empty. Each packet gets exactly one fate.
fn run(queue: &mut Queue<usize>, packets: &[(u64, u32)], start: Start) -> Fates {
    let mut fates: Vec<Option<Result<u64, DropCause>>> = vec![None; packets.len()];
    let leave = |fates: &mut Vec<Option<Result<u64, DropCause>>>, packet: usize, outcome| {
        let fate = match outcome {
            Outcome::Leaves(at) => Ok(at),
            Outcome::Dropped(cause) => Err(cause),
        };
        assert!(fates[packet].replace(fate).is_none(), "a packet has two fates");
    };
    for (number, &(at, bytes)) in packets.iter().enumerate() {
        queue.advance(at, start, &mut |packet, outcome| leave(&mut fates, packet, outcome));
        if let Err((packet, cause)) = queue.offer(at, number, bytes, start) {
            assert_eq!(packet, number);
            leave(&mut fates, number, Outcome::Dropped(cause));
        }
    }
    queue.advance(u64::MAX, start, &mut |packet, outcome| leave(&mut fates, packet, outcome));
    assert_eq!((queue.next(), queue.drain().count()), (None, 0));
    fates.into_iter().map(|fate| fate.expect("every packet has a fate")).collect()
}

/// Packets of (time in nanoseconds, bytes) with gaps up to `gap_ns`.
fn packets(gap_ns: u64, count: usize) -> impl Strategy<Value = Vec<(u64, u32)>> {
    // Bursts, steady streams and pauses.
    let gap = prop_oneof![1 => Just(0u64), 4 => 0..gap_ns, 1 => 0..gap_ns * 30];
    prop::collection::vec((gap, 40u32..=1500), 1..count).prop_map(|packets| {
        let mut now = 0;
        packets
            .into_iter()
            .map(|(gap, bytes)| {
                now += gap;
                (now, bytes)
            })
            .collect()
    })
}

#[test]
fn queue_limit_in_packets_counts_the_packet_being_sent() {
    // 1250 bytes are 1 ms.
    let mut queue = queue(constant(10_000_000), QueueLimit::Packets(3), Discipline::DropTail);
    let packets: Vec<(u64, u32)> = [0, 0, 0, 0, 999_999, 1_000_000, 1_000_000].map(|at| (at, 1250)).to_vec();
    let fates = run(&mut queue, &packets, NO_START);
    let full = Err(DropCause::QueueFull);
    assert_eq!(fates, [Ok(1_000_000), Ok(2_000_000), Ok(3_000_000), full, full, Ok(4_000_000), full]);
    let mut queue = self::queue(constant(10_000_000), QueueLimit::Packets(0), Discipline::DropTail);
    let fates = run(&mut queue, &[(0, 1250), (1, 1250), (1_000_000, 1250)], NO_START);
    assert_eq!(fates, [Ok(1_000_000), full, Ok(2_000_000)], "an idle link takes any packet");
}

#[test]
fn drained_queue_returns_packets_in_order() {
    let mut queue = queue(constant(10_000_000), HOUR, Discipline::DropTail);
    (0..3).for_each(|number| queue.offer(0, number, 1250, NO_START).unwrap());
    assert_eq!(queue.drain().collect::<Vec<_>>(), [0, 1, 2]);
    assert_eq!(queue.next(), None);
    queue.offer(5, 3, 1250, NO_START).unwrap();
    assert_eq!(queue.next(), Some(1_000_005));
}

proptest! {
    /// At a constant rate, the queue that stores packets treats every packet like the closed form.
    #[test]
    fn stored_queue_at_constant_rate_equals_the_closed_form(
        bits in 100_000u64..1_000_000_000,
        by_bytes: bool,
        limit in 0u64..50_000,
        packets in packets(2_000_000, 200),
    ) {
        let limit = match by_bytes {
            true => QueueLimit::Bytes(Bytes(limit)),
            false => QueueLimit::Time(Duration::from_nanos(limit * 2_000)),
        };
        let fates = run(&mut queue(constant(bits), limit, Discipline::DropTail), &packets, NO_START);
        let closed = ClosedEffect::Rate(Rate::new(BitRate::from_bits_per_second(bits).unwrap(), limit));
        let mut state = [0; 2];
        for (&(at, bytes), fate) in packets.iter().zip(fates) {
            let expected = match closed.handle(&mut state, Timestamp::from_nanos(at), Bytes(u64::from(bytes))) {
                Fate::Leaves(leaves) => Ok(leaves.as_nanos()),
                Fate::Dropped(cause) => Err(cause),
            };
            prop_assert_eq!(fate, expected);
        }
    }
}
