//! Invariants of any path under any traffic.

#[path = "common/frames.rs"]
mod frames;
#[path = "common/specs.rs"]
mod specs;
#[path = "common/traffic.rs"]
mod traffic;

use std::collections::HashMap;
use std::mem;
use std::time::Duration;

use path::{EffectSpec, LinkSpec, PathSpec, Propagation};
use proptest::prelude::*;
use schema::Direction;
use traffic::{LoopBehavior, ObservedDeparture, arrivals, run};
use units::Timestamp;

/// When the measured phase begins, and the arrival before which it is set.
fn start() -> impl Strategy<Value = Option<(Timestamp, usize)>> {
    prop::option::of((0u64..500_000_000, 0usize..40).prop_map(|(at, before)| (Timestamp::from_nanos(at), before)))
}

fn sorted(mut observed: Vec<ObservedDeparture>) -> Vec<ObservedDeparture> {
    observed.sort_unstable();
    observed
}

/// The shortest possible delay over `link`, without any queue, while nothing changes.
fn shortest(link: &LinkSpec) -> Duration {
    let propagation = match &link.propagation {
        Propagation::Constant(delay) => *delay,
        Propagation::OverTime(series) => series.points().iter().map(|(_, delay)| *delay).min().unwrap(),
    };
    let delays = link.effects.iter().map(|effect| match effect {
        EffectSpec::Delay(delay) => *delay,
        _ => Duration::ZERO,
    });
    (propagation + delays.sum::<Duration>()).saturating_sub(link.jitter())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// Packets are conserved after every step, and none remains: accepted and duplicated, delivered, dropped by cause.
    #[test]
    fn packets_are_conserved_on_any_path(path in specs::path(), arrivals in arrivals(6), seed: u64, start in start()) {
        let (observed, network) = run(&path, &arrivals, seed, LoopBehavior { start, ..LoopBehavior::default() });
        let mut delivered = 0;
        for direction in Direction::BOTH {
            let counters = network.counters(direction);
            prop_assert_eq!((counters.in_transit, counters.in_transit_bytes, counters.overflowed), (0, 0, 0));
            delivered += counters.delivered;
        }
        prop_assert!(observed.len() as u64 <= delivered);
        prop_assert!(observed.is_sorted_by_key(|departure| departure.due));
    }

    /// A loop that polls late sees the same departures, due at the same times: timing errors never add up.
    #[test]
    fn late_polling_does_not_change_departure_times(
        path in specs::path(), arrivals in arrivals(6), seed: u64, start in start(), every in 2usize..60,
    ) {
        let punctual = run(&path, &arrivals, seed, LoopBehavior { every: 1, start }).0;
        let late = run(&path, &arrivals, seed, LoopBehavior { every, start }).0;
        prop_assert_eq!(sorted(punctual), sorted(late));
    }

    /// The same seed gives the same departures in the same order.
    #[test]
    fn same_seed_gives_the_same_departures(path in specs::path(), arrivals in arrivals(6), seed: u64, start in start()) {
        let again = |behavior| run(&path, &arrivals, seed, behavior).0;
        let behavior = LoopBehavior { start, ..LoopBehavior::default() };
        prop_assert_eq!(again(behavior), again(behavior));
    }

    /// Without shared links, a client's departures are the same without the traffic of other clients.
    #[test]
    fn departures_of_a_client_do_not_depend_on_other_clients(clients in specs::clients(), arrivals in arrivals(6), seed: u64) {
        let path = PathSpec::new(clients);
        let mut alone = arrivals.clone();
        let mut skipped_ns = 0;
        alone.retain_mut(|arrival| {
            arrival.pause_ns += mem::take(&mut skipped_ns);
            let keep = arrival.client % path.clients.len() as u32 == 0;
            if !keep {
                skipped_ns = arrival.pause_ns;
            }
            keep
        });
        let ours = |observed: Vec<ObservedDeparture>| -> Vec<(Timestamp, Timestamp, usize, usize)> {
            let ours = observed.iter().filter(|departure| departure.client == 0);
            ours.map(|d| (d.due, d.arrived, d.direction, d.frame.len())).collect()
        };
        let behavior = LoopBehavior::default();
        prop_assert_eq!(ours(run(&path, &arrivals, seed, behavior).0), ours(run(&path, &alone, seed, behavior).0));
    }

    /// No packet arrives before its link's delay has passed; without reordering, packets arrive in the order sent.
    #[test]
    fn no_packet_is_early_or_out_of_order(clients in specs::clients(), arrivals in arrivals(6), seed: u64) {
        let path = PathSpec::new(clients);
        let (observed, _) = run(&path, &arrivals, seed, LoopBehavior::default());
        let mut last: HashMap<(u32, usize), Timestamp> = HashMap::new();
        for departure in &observed {
            let client = &path.clients[departure.client as usize];
            let link = [&client.up, &client.down][departure.direction];
            prop_assert!(departure.due >= departure.arrived + shortest(link), "a packet leaves early");
            let reorders = link.effects.iter().any(|effect| matches!(effect, EffectSpec::Reorder(_)));
            if let Some(before) = last.insert((departure.client, departure.direction), departure.arrived) {
                prop_assert!(reorders || before <= departure.arrived, "a packet was overtaken");
            }
        }
    }
}
