use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;

fn at(nanos: u64) -> Timestamp {
    Timestamp::from_nanos(nanos)
}

#[test]
fn wheel_entry_is_one_cache_line() {
    assert_eq!(size_of::<Entry<crate::network::PacketInTransit>>(), 64);
    assert_eq!(size_of::<Entry<crate::network::Event>>(), 64);
}

#[test]
fn wheel_releases_no_entry_early() {
    let mut wheel = Wheel::new();
    wheel.push(at(0), at(10_000), 'a');
    assert_eq!(wheel.next_due(), Some(at(10_000)));
    assert_eq!(wheel.pop(at(9_999)), None);
    assert_eq!(wheel.pop(at(10_000)), Some((at(10_000), 'a')));
    assert_eq!(wheel.next_due(), None);
}

#[test]
fn wheel_keeps_the_order_across_its_horizon() {
    let last = (SLOTS << SLOT_BITS) - 1;
    let mut wheel = Wheel::new();
    for (value, due) in [(0, last + 2), (1, last + 1), (2, last), (3, 5 * last)] {
        wheel.push(at(0), at(due), value);
    }
    let order: Vec<i32> = std::iter::from_fn(|| wheel.pop(Timestamp::MAX)).map(|(_, value)| value).collect();
    assert_eq!(order, [2, 1, 0, 3]);
}

#[test]
fn empty_wheel_after_a_pause_places_entries_within_the_horizon() {
    let mut wheel = Wheel::new();
    wheel.push(at(3_600_000_000_000), at(3_600_024_000_000), ());
    assert!(wheel.beyond.is_empty());
}

#[test]
fn wheel_accepts_the_largest_timestamp() {
    let mut wheel = Wheel::new();
    wheel.push(at(0), Timestamp::MAX, 1);
    wheel.push(at(0), at(7), 2);
    assert_eq!(wheel.pop(Timestamp::MAX), Some((at(7), 2)));
    assert_eq!(wheel.pop(Timestamp::MAX), Some((Timestamp::MAX, 1)));
}

proptest! {
    /// Against a sorted set: the same entries, in order of (due, arrival), with the same next due time at every step.
    #[test]
    fn wheel_equals_a_sorted_set(
        steps in prop::collection::vec((0u64..40_000, 0usize..6, any::<u64>(), 0usize..4), 1..400),
    ) {
        let (mut wheel, mut model) = (Wheel::new(), BTreeSet::new());
        let mut now = 0;
        for (number, (gap, kind, random, pops)) in steps.into_iter().enumerate() {
            now += if random % 97 == 0 { gap * 50_000 } else { gap };
            // Due now, within a slot, a few slots ahead, anywhere within the horizon, beyond it, in the past.
            let due = match kind {
                0 => now,
                1 => now + random % 4096,
                2 => now + random % 40_000,
                3 => now + random % (1 << 30),
                4 => now + random % (1 << 33),
                _ => now.saturating_sub(random % 10_000),
            };
            wheel.push(at(now), at(due), number);
            model.insert((due, number));
            for _ in 0..pops {
                prop_assert_eq!(wheel.next_due(), model.first().map(|&(due, _)| at(due)));
                let expected = model.first().copied().filter(|&(due, _)| due <= now);
                if let Some(first) = expected {
                    model.remove(&first);
                }
                prop_assert_eq!(wheel.pop(at(now)), expected.map(|(due, number)| (at(due), number)));
            }
        }
        for (due, number) in model {
            prop_assert_eq!(wheel.next_due(), Some(at(due)));
            prop_assert_eq!(wheel.pop(Timestamp::MAX), Some((at(due), number)));
        }
        prop_assert_eq!(wheel.pop(Timestamp::MAX), None);
    }
}
