//! The table of all shards, as the leader's live page shows it.

use coordination::Over;
use schema::document::ClockOffset;
use schema::{ShardProgress, ShardState};

use crate::simulation::{Faults, LOAD_MS, STEP_MS, Simulation, over, progress, rate};

/// Whether a shard's figures are those that it reported, and its rates those at which it works.
fn assert_true(shard: &ShardProgress, what: &str) {
    let index = shard.index as usize;
    if let (Some(offered), Some(achieved)) = (shard.offered_per_s, shard.achieved_per_s) {
        // Whole requests, between reports that are at least a tick apart.
        assert!((offered - rate(index) as f64).abs() < 1e-6, "{what}: {shard:?}");
        assert!((achieved - rate(index) as f64 / 2.0).abs() <= 50.0, "{what}: {shard:?}");
    }
    let times = progress(index, LOAD_MS).response_time.unwrap();
    assert!(shard.response_time.is_none_or(|own| (own.p50_ns, own.p99_ns) == (times.p50_ns, times.p99_ns)), "{what}");
    assert!(shard.errors.is_none_or(|errors| errors <= LOAD_MS / 1_000), "{what}: {shard:?}");
    assert_eq!(shard.host.is_empty(), shard.state == ShardState::Absent, "{what}: {shard:?}");
}

#[test]
fn every_shard_has_its_own_figures_and_the_sums_are_of_those_that_are_known() {
    for seed in 0..40 {
        let bad = seed % 4;
        let offsets_ns = vec![0, 30_000_000, -7_000_000, 1];
        let faults = Faults {
            loss: 0.1 * bad as f64,
            doubled: 0.1 * bad as f64,
            delay_ms_max: 150 * bad,
            offsets_ns: offsets_ns.clone(),
            ..Faults::default()
        };
        let shards = Simulation::new(4, seed, faults).run();
        let tables = &shards[0].tables;
        assert!(tables.len() as u64 > LOAD_MS / 1_000, "seed {seed}");
        for (at_ms, table) in tables {
            let what = format!("seed {seed}, {at_ms} ms");
            assert_eq!(table.shards.iter().map(|shard| shard.index).collect::<Vec<_>>(), [0, 1, 2, 3], "{what}");
            table.shards.iter().for_each(|shard| assert_true(shard, &what));
            let known = table.shards.iter().filter_map(|shard| shard.offered_per_s);
            assert_eq!(table.total.with_rates as usize, known.clone().count(), "{what}");
            assert_eq!(table.total.offered_per_s, known.reduce(|a, b| a + b), "{what}");
            for (shard, truth) in table.shards.iter().zip(&offsets_ns).skip(1) {
                // The simulation reads clocks in steps.
                let step = STEP_MS as i64 * 1_000_000;
                let is_within =
                    |clock: ClockOffset| (clock.interval().0 - step..=clock.interval().1 + step).contains(truth);
                assert!(shard.clock.is_none_or(is_within), "{what}: {shard:?}");
            }
        }
        // All were seen at work together, and at the end nobody works.
        assert!(
            tables.iter().any(|(_, table)| table.total.offered_per_s.is_some_and(|sum| (sum - 10_000.0).abs() < 1e-6)),
            "seed {seed}"
        );
        let last = &tables.last().unwrap().1;
        assert!(
            last.shards
                .iter()
                .all(|shard| shard.state == ShardState::Done && shard.clock.is_some() == (shard.index > 0))
        );
        assert_eq!((last.total.with_rates, last.total.offered_per_s), (0, None), "seed {seed}");
    }
}

#[test]
fn states_follow_each_other() {
    let shards = Simulation::new(3, 5, Faults { delay_ms_max: 30, ..Faults::default() }).run();
    let mut seen: Vec<ShardState> = shards[0].tables.iter().map(|(_, table)| table.shards[1].state).collect();
    seen.dedup();
    let all = [
        ShardState::Absent,
        ShardState::Preparing,
        ShardState::Ready,
        ShardState::Waiting,
        ShardState::Warmup,
        ShardState::Measured,
        ShardState::Drain,
        ShardState::Sending,
        ShardState::Done,
    ];
    // States shorter than a second may be missed.
    let at: Vec<usize> = seen.iter().map(|state| all.iter().position(|known| known == state).unwrap()).collect();
    assert!(at.is_sorted() && at.len() >= 5, "{seen:?}");
}

#[test]
fn a_killed_shard_has_no_rates_and_is_lost() {
    let killed_ms = 6_000;
    let shards = Simulation::new(3, 2, Faults { kills: vec![(2, killed_ms)], ..Faults::default() }).run();
    assert!(matches!(over(&shards[0]), Over::Incomplete(missing) if missing[0].contains("2/3")));
    let start_ms = shards[0].ends_at_ms.unwrap() - LOAD_MS;
    let (mut old, mut lost) = (0, 0);
    for (at_ms, table) in &shards[0].tables {
        let shard = &table.shards[2];
        let silent_ms = at_ms.saturating_sub(start_ms + killed_ms);
        // Its last message may be a second old when it is killed.
        if silent_ms > 5_000 {
            old += 1;
            assert_eq!((shard.offered_per_s, shard.achieved_per_s), (None, None), "{silent_ms} ms: {shard:?}");
            assert!(shard.silent_s.unwrap() >= silent_ms / 1_000, "{silent_ms} ms: {shard:?}");
            assert!((4..=6).contains(&shard.errors.unwrap()), "as it last reported: {shard:?}");
        }
        if silent_ms > 11_000 {
            lost += 1;
            assert_eq!(shard.state, ShardState::Lost, "{silent_ms} ms");
        }
    }
    assert!(old > 5 && lost > 2, "{old} {lost}");
    let last = &shards[0].tables.last().unwrap().1;
    assert_eq!(last.shards[2].state, ShardState::Lost);
    assert_eq!(last.shards[1].state, ShardState::Done);
}
