//! Leader and members in virtual time, over a network that loses, doubles and reorders messages, with machines and a
//! server that die.

mod simulation;
mod table;

use coordination::record::largest_difference;
use coordination::{Local, Over};

use simulation::{END_MS, Faults, STEP_MS, Simulation, now, over};

#[test]
fn all_start_together_and_every_run_is_fetched_once_whatever_the_network_does() {
    for seed in 0..100 {
        let bad = seed % 4;
        let faults =
            Faults { loss: 0.1 * bad as f64, doubled: 0.1 * bad as f64, delay_ms_max: 150 * bad, ..Faults::default() };
        let shards = Simulation::new(4, seed, faults).run();
        let start = shards[0].start_ns;
        for (index, shard) in shards.iter().enumerate() {
            assert_eq!((shard.start_ns, shard.ran, shard.is_aborted), (start, true, false), "seed {seed}: {index}");
        }
        assert_eq!(over(&shards[0]), &Over::Complete, "seed {seed}");
        let mut fetched = shards[0].fetched.clone();
        fetched.sort_unstable();
        assert_eq!(fetched, [1, 2, 3], "seed {seed}");
        if bad == 0 {
            assert!(shards.iter().all(|shard| over(shard) == &Over::Complete && shard.notes.is_empty()));
        }
    }
}

#[test]
fn a_member_with_another_plan_is_refused_by_name_and_no_load_is_made() {
    let shards = Simulation::new(3, 1, Faults { other_plan: Some(2), ..Faults::default() }).run();
    assert!(matches!(over(&shards[2]), Over::NotStarted(why) if why.contains("plan")), "{:?}", shards[2].over);
    assert!(shards[0].notes.iter().any(|note| note.contains("refused shard 2 on host2")), "{:?}", shards[0].notes);
    assert!(matches!(over(&shards[0]), Over::NotStarted(why) if why.contains("2/3") && !why.contains("1/3")));
    assert!(matches!(over(&shards[1]), Over::NotStarted(why) if why.contains("2/3")));
    assert!(shards.iter().all(|shard| shard.start_ns.is_none()));
}

#[test]
fn an_absent_member_is_named_when_the_time_is_over() {
    let shards = Simulation::new(3, 1, Faults { absent: Some(1), ..Faults::default() }).run();
    assert!(matches!(over(&shards[0]), Over::NotStarted(why) if why.contains("1/3") && !why.contains("2/3")));
    assert!(shards.iter().all(|shard| shard.start_ns.is_none()));
    // Without a leader members end too.
    let shards = Simulation::new(3, 1, Faults { absent: Some(0), ..Faults::default() }).run();
    assert!(matches!(over(&shards[1]), Over::NotStarted(why) if why.contains("no leader")));
}

#[test]
fn a_killed_member_is_missing_and_the_others_go_on_unless_its_loss_aborts() {
    for abort_on_lost in [false, true] {
        let faults = Faults { kills: vec![(2, 3_000)], abort_on_lost, ..Faults::default() };
        let shards = Simulation::new(4, 5, faults).run();
        assert_eq!(over(&shards[0]), &Over::Incomplete(vec!["shard 2/4 was lost".into()]));
        for index in [0, 1, 3] {
            assert_eq!((shards[index].ran, shards[index].is_aborted), (true, abort_on_lost), "{index}");
        }
        assert_eq!(over(&shards[1]), &Over::Complete);
        assert!(shards[0].notes.iter().any(|note| note.contains("lost shard 2/4")));
    }
}

#[test]
fn members_of_a_killed_leader_make_their_load_and_end() {
    for abort_on_lost in [false, true] {
        let faults = Faults { kills: vec![(0, 3_000)], abort_on_lost, ..Faults::default() };
        let shards = Simulation::new(3, 5, faults).run();
        for shard in &shards[1..] {
            assert!(matches!(over(shard), Over::Incomplete(why) if why[0].contains("leader")), "{:?}", shard.over);
            assert_eq!((shard.ran, shard.is_aborted), (true, abort_on_lost));
            assert!(shard.clocks.before.is_some() && shard.clocks.after.is_none());
        }
    }
}

#[test]
fn a_server_that_restarts_loses_nothing_and_one_that_stays_away_ends_the_wait() {
    // During the load, and over its end.
    for outage in [(3_000, 12_000), (3_000, 30_000), (18_000, 60_000)] {
        let shards = Simulation::new(3, 9, Faults { outage: Some(outage), ..Faults::default() }).run();
        for shard in &shards {
            assert_eq!((over(shard), shard.ran, shard.is_aborted), (&Over::Complete, true, false), "{outage:?}");
        }
    }
    let shards = Simulation::new(3, 9, Faults { outage: Some((3_000, END_MS)), ..Faults::default() }).run();
    assert!(matches!(over(&shards[0]), Over::Incomplete(missing) if missing.len() == 2), "{:?}", shards[0].over);
    assert!(matches!(over(&shards[1]), Over::Incomplete(why) if why[0].contains("NATS")));
    assert!(shards.iter().all(|shard| shard.ran));
}

#[test]
fn a_server_lost_right_after_the_start_was_set_starts_all_or_none() {
    for from in 0..60 {
        // The outage is counted from the start, which is seconds after its decision: here it begins with the decision.
        let mut simulation = Simulation::new(3, from, Faults { delay_ms_max: 80, ..Faults::default() });
        while simulation.shards[0].start_ns.is_none() {
            simulation.step();
        }
        for _ in 0..from {
            simulation.step();
        }
        simulation.is_up = false;
        for shard in &mut simulation.shards {
            shard.machine.local(now(simulation.now_ms, shard.offset_ns), Local::Connected(false));
        }
        let shards = simulation.run();
        let leader_ran = shards[0].ran && !shards[0].is_aborted;
        if leader_ran {
            assert!(shards.iter().all(|shard| shard.start_ns == shards[0].start_ns), "{from}: all have the start");
        } else {
            assert!(matches!(over(&shards[0]), Over::NotStarted(why) if why.contains("confirmation")), "{from}");
        }
    }
}

#[test]
fn an_interrupt_at_the_leader_ends_the_load_of_all() {
    let faults = Faults { interrupt_leader_after_ms: Some(5_000), loss: 0.2, ..Faults::default() };
    let shards = Simulation::new(4, 3, faults).run();
    assert!(shards[1..].iter().all(|shard| shard.is_aborted && shard.ran));
    assert_eq!(shards[0].fetched.len(), 3);
}

#[test]
fn a_clock_that_is_off_is_found_and_bounded() {
    let offsets_ns = vec![0, 50_000_000, -1_234_567, 0];
    for (seed, delay_ms_max) in (0..40).map(|seed| (seed, 10 * (seed % 4))) {
        let faults = Faults { offsets_ns: offsets_ns.clone(), delay_ms_max, loss: 0.05, ..Faults::default() };
        let shards = Simulation::new(4, seed, faults).run();
        for (shard, &offset) in shards.iter().zip(&offsets_ns).skip(1) {
            // A member whose final message was lost has measured both.
            for estimate in [shard.clocks.before, shard.clocks.after].into_iter().flatten() {
                // The simulation reads clocks in steps.
                let error = estimate.offset_ns.abs_diff(offset);
                assert!(error <= estimate.bound_ns + STEP_MS * 1_000_000, "seed {seed}: {estimate:?} {offset}");
            }
        }
        let difference = largest_difference(shards[1..].iter().map(|shard| shard.clocks));
        assert!(difference.is_none_or(|difference| difference >= 51_000_000), "{difference:?}");
    }
}
