//! Leader and members of a search in virtual time: trials one after another, over a network that loses, doubles and
//! reorders messages, with machines and a server that die within and between the trials.

mod simulation;

use std::time::Duration;

use coordination::{
    Effect, Identity, LOST_AFTER, Local, Over, READY_TIMEOUT, RECONNECT_TIMEOUT, SearchLeader, TRIAL_START_LEAD, Trial,
};

use simulation::{END_MS, Faults, GAP_MS, LOAD_MS, PREPARATION_MS, Simulation, TRIALS, now, prepared, text_of};

#[test]
fn every_trial_starts_together_and_is_complete_whatever_the_network_does() {
    for seed in 0..60 {
        let bad = seed % 4;
        let faults =
            Faults { loss: 0.1 * bad as f64, doubled: 0.1 * bad as f64, delay_ms_max: 150 * bad, ..Faults::default() };
        let done = Simulation::new(4, seed, faults).run();
        done.assert_consistent(&format!("seed {seed}"));
        let why = done.shards[0].trials.last().and_then(|trial| trial.over.as_ref()).map(text_of);
        assert_eq!((done.complete(), done.over(0)), (TRIALS, &Over::Complete), "seed {seed}: {why:?}");
        for index in 1..4 {
            // With lost messages a member may miss the end, and notices the silence.
            assert!(bad > 0 || *done.over(index) == Over::Complete, "seed {seed}: {:?}", done.over(index));
        }
        if bad == 0 {
            // The clocks twice, a preparation, the lead with that of the longest preparation, and the leader's own time.
            let least = TRIAL_START_LEAD.as_millis() as u64 + 2 * PREPARATION_MS + GAP_MS;
            assert!((least..least + 2_500).contains(&done.between_ms), "{}", done.between_ms);
            assert!(done.shards.iter().all(|shard| shard.notes.is_empty()));
        }
    }
}

#[test]
fn a_member_that_is_killed_in_a_trial_or_between_two_ends_the_search_by_its_name() {
    for (at, seed) in [((2, 1_000), 1), ((2, LOAD_MS as i64 + 100), 2), ((3, -1), 3), ((1, 10), 4)] {
        let done = Simulation::new(4, seed, Faults { kill: Some((2, at)), ..Faults::default() }).run();
        done.assert_consistent(&format!("{at:?}"));
        let last = done.shards[0].trials.last().unwrap();
        let why = text_of(last.over.as_ref().unwrap());
        assert!(why.contains("2/4") && !why.contains("1/4"), "{at:?}: {why}");
        assert!(done.complete() <= at.0, "{at:?}");
        for index in [1, 3] {
            assert!(text_of(done.over(index)).contains("2/4"), "{at:?}: {:?}", done.over(index));
        }
        assert!(done.now_ms < 60_000, "{at:?}: {} ms", done.now_ms);
    }
}

#[test]
fn members_of_a_killed_leader_end_within_a_bounded_time() {
    for (at, seed) in [((2, 1_000), 1), ((2, LOAD_MS as i64 + 60), 2), ((3, -1), 3)] {
        let mut simulation = Simulation::new(3, seed, Faults { kill: Some((0, at)), ..Faults::default() });
        while simulation.shards[0].is_alive {
            simulation.step();
        }
        let killed_ms = simulation.now_ms;
        let done = simulation.run();
        for index in [1, 2] {
            assert!(text_of(done.over(index)).contains("leader"), "{at:?}: {:?}", done.over(index));
        }
        // A load that runs is ended; its silent end is noticed again.
        let bound_ms = 2 * LOST_AFTER.as_millis() as u64 + 2_000;
        assert!(done.now_ms - killed_ms < bound_ms, "{at:?}: {} ms", done.now_ms - killed_ms);
    }
}

#[test]
fn a_server_that_restarts_in_a_trial_or_between_two_loses_no_trial() {
    for seed in 0..20 {
        for at in [(1, 500), (2, LOAD_MS as i64 - 100), (2, LOAD_MS as i64 + 100), (3, -1)] {
            for lasts_ms in [300, 4_000, 30_000] {
                let faults = Faults { outage: Some((at, lasts_ms)), delay_ms_max: 20, ..Faults::default() };
                let done = Simulation::new(3, seed, faults).run();
                let what = format!("seed {seed}: {at:?} for {lasts_ms} ms");
                done.assert_consistent(&what);
                assert_eq!((done.complete(), done.over(0)), (TRIALS, &Over::Complete), "{what}");
            }
        }
    }
}

#[test]
fn a_server_that_stays_away_ends_the_search_of_all() {
    for at in [(2, 500), (3, -1)] {
        let done = Simulation::new(3, 1, Faults { outage: Some((at, END_MS)), ..Faults::default() }).run();
        done.assert_consistent(&format!("{at:?}"));
        assert!(done.shards[0].trials.last().unwrap().over != Some(Over::Complete), "{at:?}");
        for index in [1, 2] {
            assert!(!text_of(done.over(index)).is_empty());
        }
        let bound = 2 * RECONNECT_TIMEOUT + READY_TIMEOUT + Duration::from_secs(60);
        assert!(Duration::from_millis(done.now_ms) < bound, "{at:?}: {} ms", done.now_ms);
    }
}

#[test]
fn a_shard_with_another_plan_or_another_file_is_named_and_makes_no_load() {
    let done = Simulation::new(3, 1, Faults { other_plan: Some(2), ..Faults::default() }).run();
    assert!(text_of(done.over(2)).contains("refused this shard"), "{:?}", done.over(2));
    assert!(done.shards[0].notes.iter().any(|note| note.contains("refused shard 2 on host2")));
    assert!(text_of(done.over(1)).contains("2/3"), "{:?}", done.over(1));
    assert!(done.shards.iter().flat_map(|shard| &shard.trials).all(|trial| trial.start_ns.is_none()));

    let done = Simulation::new(3, 1, Faults { other_file: Some((1, 3)), ..Faults::default() }).run();
    done.assert_consistent("another file");
    assert_eq!(done.complete(), 2);
    for index in [1, 2] {
        assert!(text_of(done.over(index)).contains("the trial of shard 1/3 is another"), "{:?}", done.over(index));
    }
}

#[test]
fn a_shard_that_cannot_make_a_trial_is_named_with_its_reason() {
    let done = Simulation::new(3, 1, Faults { cannot: Some((2, 2)), ..Faults::default() }).run();
    assert_eq!(done.complete(), 1);
    let why = text_of(done.shards[0].trials[1].over.as_ref().unwrap());
    assert!(why.contains("2/3") && why.contains("too few descriptors"), "{why}");
    assert!(text_of(done.over(1)).contains("too few descriptors"), "{:?}", done.over(1));
    assert!(done.now_ms < 30_000, "the others do not wait: {} ms", done.now_ms);

    let done = Simulation::new(3, 1, Faults { fails: Some((1, 2)), ..Faults::default() }).run();
    let why = text_of(done.shards[0].trials[1].over.as_ref().unwrap());
    assert!(why.contains("1/3") && why.contains("no ports left"), "{why}");
}

#[test]
fn an_interrupt_ends_the_search_of_all_and_names_who_left() {
    for at in [(2, 1_000), (3, -1)] {
        let done = Simulation::new(3, 1, Faults { interrupt: Some((0, at)), loss: 0.1, ..Faults::default() }).run();
        assert!(done.complete() <= at.0);
        for index in [1, 2] {
            assert!(done.shards[index].over.is_some());
        }
        assert!(done.now_ms < 60_000, "{at:?}: {} ms", done.now_ms);
    }
    // A member that leaves between two trials.
    let done = Simulation::new(3, 1, Faults { interrupt: Some((1, (3, -1))), ..Faults::default() }).run();
    assert!(text_of(done.over(0)).is_empty() && done.complete() == 2);
    let why = text_of(done.shards[0].trials[2].over.as_ref().unwrap());
    assert!(why.contains("1/3"), "{why}");
}

#[test]
fn of_two_leaders_in_one_session_the_later_one_yields() {
    let identity = |instance| Identity {
        index: 0,
        count: 2,
        instance,
        version: "1".into(),
        plan_digest: "plan".into(),
        host: "host".into(),
    };
    let leader = |instance, number| {
        let mut leader = SearchLeader::new(identity(instance));
        leader.local(now(0), Local::Connected(true));
        leader.local(now(0), Local::Trial(Trial { number, request: "x".into(), prepared: prepared(number, false) }));
        leader.tick(now(10));
        leader
    };
    // The newcomer has the smaller number, and is in its first trial.
    let (mut old, mut new) = (leader(2, 7), leader(1, 1));
    let said = |leader: &mut SearchLeader| {
        std::iter::from_fn(|| leader.effect()).find_map(|effect| match effect {
            Effect::ToMembers(message) => Some(message),
            _ => None,
        })
    };
    let (by_old, by_new) = (said(&mut old).unwrap(), said(&mut new).unwrap());
    old.receive_foreign(&by_new);
    new.receive_foreign(&by_old);
    assert!(!std::iter::from_fn(|| old.effect()).any(|effect| matches!(effect, Effect::TrialOver(_))));
    assert!(
        std::iter::from_fn(|| new.effect())
            .any(|effect| matches!(effect, Effect::TrialOver(Over::NotStarted(why)) if why.contains("another leader")))
    );
}

#[test]
fn a_trial_out_of_order_or_too_long_is_not_begun() {
    for (number, request) in [(0, "x".to_owned()), (1, "x".repeat(4097)), (1, "a\nb".to_owned())] {
        let identity = Identity {
            index: 0,
            count: 2,
            instance: 1,
            version: "1".into(),
            plan_digest: "plan".into(),
            host: "host".into(),
        };
        let mut leader = SearchLeader::new(identity);
        leader.local(now(0), Local::Trial(Trial { number, request, prepared: prepared(1, false) }));
        assert!(matches!(leader.effect(), Some(Effect::TrialOver(Over::NotStarted(_)))));
    }
}
