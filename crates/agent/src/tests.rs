//! The whole agent with a scripted ring and a scripted manager, killed between any two file operations.
//!
//! In the end the manager has exactly what an agent that was never killed would have sent: each row once. Rows dropped
//! because of the spool limit, a full disk, the filter or a refusal are counted exactly.

mod log;
mod script;

use std::sync::Arc;
use std::sync::atomic::Ordering;

use stats::Rng;

use self::log::ScriptLog;
use self::script::{Manager, Ring, ScriptLink, TestTime, World, entries};
use crate::disk::Disk;
use crate::disk::crash_point::CrashPoint;
use crate::link::Link;
use crate::log_link::LogLink;
use crate::recorder::{LocalOptions, Recorder};
use crate::sender::{AgentIdentity, NextStep, Sender};
use crate::shared_status::{Receives, SharedStatus};
use crate::spool::Spool;
use tap_protocol::Settings;

/// Runs an agent until its crash point (`false`), or until everything is sent (`true`).
fn run_agent(world: &World, crash_point: &CrashPoint, random: &mut Rng) -> bool {
    let Some(disk) = Disk::with_crash_point(&world.data, crash_point).ok() else { return false };
    let mut silent = |_: String| {};
    let Ok(spool) = Spool::open(&disk, "web-1", world.spool_bytes, &mut silent) else { return false };
    let spool = Arc::new(spool);
    let time = TestTime(world.time.clone());
    let opened = Recorder::open(&disk, spool.clone(), time.clone(), &world.boot, &LocalOptions::default(), &mut silent);
    let Ok(mut recorder) = opened else { return false };
    let mut ring = Ring { world: world.clone(), crash_point: crash_point.clone() };
    let shared = Arc::new(SharedStatus::new(Box::new(|_| {}), || 1, Receives::Manager));
    shared.recorder(&recorder);
    let link: Box<dyn Link> = match &world.log {
        Some(log) => {
            let log = ScriptLog { log: log.clone(), crash_point: crash_point.clone() };
            Box::new(LogLink::new(log, "T".to_owned(), "web-1".to_owned()))
        }
        None => Box::new(ScriptLink { manager: world.manager.clone(), crash_point: crash_point.clone() }),
    };
    let identity =
        AgentIdentity { boot: world.boot.clone(), host: "h".into(), kernel: "k".into(), version: "v".into() };
    let mut sender = Sender::new(link, time, spool.clone(), shared.clone(), disk.clone(), identity);
    loop {
        if crash_point.has_crashed() {
            return false;
        }
        if random.below(10) < 6 {
            if let Some(settings) = shared.pending_settings() {
                recorder.apply_settings(settings);
            }
            let is_over = ring.is_over(recorder.tap_state());
            let outcome = recorder.round(&mut ring);
            shared.recorder(&recorder);
            if is_over && outcome.is_ok() {
                break;
            }
        } else {
            sender.step();
        }
        crash_point.fill(world.is_full(random));
    }
    crash_point.fill(false);
    world.manager.lock().unwrap().is_unreachable = false;
    if let Some(log) = &world.log {
        log.lock().unwrap().is_away = false;
    }
    if world.leaves_waiting_rows || recorder.end(&mut ring).is_err() {
        return !crash_point.has_crashed();
    }
    while spool.usage().batches > 0 {
        if crash_point.has_crashed() {
            return false;
        }
        assert!(sender.step() != NextStep::WaitForBatch || spool.usage().batches == 0);
    }
    true
}

/// Runs agents until everything is sent; the first `kills` of them end early.
fn run_agents(world: &World, seed: u64, kills: u64) -> u64 {
    let mut random = Rng::new(seed, 1);
    let mut killed = 0;
    loop {
        let crash_point = CrashPoint::default();
        if killed < kills {
            // Some agents crash at the start, some late.
            let steps_max = if random.below(3) == 0 { 30 } else { 400 };
            crash_point.crash_after(random.below(steps_max));
        }
        if run_agent(world, &crash_point, &mut random) {
            return killed;
        }
        assert!(killed < kills, "an agent without a crash point did not finish");
        killed += 1;
    }
}

fn run_without_kills(world: &World) -> Manager {
    let world = world.fresh_copy();
    run_agents(&world, 0, 0);
    let manager = world.manager.lock().unwrap();
    manager.clone()
}

#[test]
fn agents_killed_at_random_steps_deliver_each_row_once() {
    let mut lost_responses = 0;
    for seed in 0..4 {
        let world = World::new(entries(seed, 300));
        let expected = run_without_kills(&world);
        assert!(expected.rows.len() > 500, "{}", expected.rows.len());
        world.manager.lock().unwrap().fail_randomly(seed);
        let killed = run_agents(&world, seed, 25);
        assert!(killed > 5, "{killed}");
        let manager = world.manager.lock().unwrap();
        assert_eq!(manager.sorted(), expected.sorted(), "seed {seed}");
        assert_eq!(manager.programs, expected.programs, "seed {seed}");
        assert_eq!(manager.losses, expected.losses, "seed {seed}");
        assert_eq!(manager.streams.len(), 1, "the stream continues after a kill");
        lost_responses += manager.lost_responses;
    }
    assert!(lost_responses > 20, "{lost_responses}");
}

#[test]
fn an_agent_killed_at_every_step_of_a_short_run_delivers_each_row_once() {
    let world = World::new(entries(3, 16));
    let expected = run_without_kills(&world);
    let mut steps = 0;
    loop {
        let world = world.fresh_copy();
        let mut random = Rng::new(9, 1);
        let crash_point = CrashPoint::default();
        crash_point.crash_after(steps);
        let is_complete = run_agent(&world, &crash_point, &mut random);
        if !is_complete {
            assert!(run_agent(&world, &CrashPoint::default(), &mut random));
        }
        let manager = world.manager.lock().unwrap();
        assert_eq!(manager.sorted(), expected.sorted(), "killed at step {steps}");
        assert_eq!(manager.programs, expected.programs, "killed at step {steps}");
        if is_complete {
            break;
        }
        steps += 1;
    }
    assert!(steps > 50, "{steps}");
}

#[test]
fn rows_dropped_by_the_spool_limit_are_counted_exactly() {
    for seed in 0..4 {
        let mut world = World::new(entries(seed, 300));
        let expected = run_without_kills(&world);
        world.spool_bytes = 128 << 10;
        {
            let mut manager = world.manager.lock().unwrap();
            manager.fail_randomly(seed);
            manager.is_unreachable = true;
        }
        run_agents(&world, seed, 20);
        let manager = world.manager.lock().unwrap();
        let total = expected.rows.len() as u64;
        assert_eq!(manager.rows.len() as u64 + manager.losses.rows_dropped, total, "seed {seed}");
        assert!(manager.losses.rows_dropped > total / 4 && !manager.rows.is_empty(), "{:?}", manager.losses);
        assert!(manager.rows.iter().all(|row| expected.rows.contains(row)) && manager.has_no_duplicates());
        assert_eq!(manager.programs, expected.programs, "counts of joined batches are complete");
        assert_eq!(manager.losses.records, expected.losses.records);
    }
}

#[test]
fn rows_excluded_by_settings_are_counted_exactly() {
    for seed in 0..3 {
        let world = World::new(entries(seed, 300));
        let expected = run_without_kills(&world);
        {
            let mut manager = world.manager.lock().unwrap();
            manager.fail_randomly(seed);
            manager.new_settings = vec![
                (8, Settings { version: 2, programs: vec!["one".into(), "two".into()], ..Settings::default() }),
                (20, Settings { version: 3, share: 0.5, ..Settings::default() }),
                (32, Settings { version: 4, share: 7.0, ..Settings::default() }),
            ];
        }
        run_agents(&world, seed, 15);
        let manager = world.manager.lock().unwrap();
        let losses = manager.losses;
        let sum = manager.rows.len() as u64 + losses.rows_filtered + losses.rows_not_drawn + losses.rows_dropped;
        assert_eq!(sum, expected.rows.len() as u64, "seed {seed}");
        assert!(losses.rows_filtered > 0 && losses.rows_not_drawn > 0 && losses.rows_dropped == 0, "{losses:?}");
        assert!(
            manager.has_no_duplicates() && manager.settings_used.contains(&3) && !manager.settings_used.contains(&4)
        );
    }
}

#[test]
fn a_full_disk_loses_only_counted_rows() {
    for seed in 0..4 {
        let mut world = World::new(entries(seed, 300));
        let expected = run_without_kills(&world);
        world.full_share = 3;
        world.manager.lock().unwrap().fail_randomly(seed);
        run_agents(&world, seed, 10);
        let manager = world.manager.lock().unwrap();
        assert_eq!(manager.rows.len() as u64 + manager.losses.rows_dropped, expected.rows.len() as u64, "seed {seed}");
        assert!(manager.has_no_duplicates());
        assert_eq!(manager.programs, expected.programs, "seed {seed}");
    }
}

#[test]
fn a_reboot_cuts_each_open_connection_once() {
    for seed in 0..4 {
        let run = |kills: u64| {
            let mut world = World::new(entries(seed, 300));
            world.limit.store(150, Ordering::SeqCst);
            world.leaves_waiting_rows = kills > 0;
            run_agents(&world, seed, kills);
            world.boot = "another".into();
            world.leaves_waiting_rows = false;
            world.replace_rings(300);
            run_agents(&world, seed + 1, kills);
            let manager = world.manager.lock().unwrap();
            manager.clone()
        };
        let (expected, manager) = (run(0), run(8));
        assert_eq!(manager.sorted(), expected.sorted(), "seed {seed}");
        assert!(manager.rows.iter().any(|row| row.contains("\"cut\"")));
        assert_eq!(manager.boots, ["another".to_owned(), "first".to_owned()].into());
    }
}

#[test]
fn batches_rejected_by_the_manager_are_stored_aside_and_counted() {
    for seed in 0..4 {
        let world = World::new(entries(seed, 300));
        let expected = run_without_kills(&world);
        {
            let mut manager = world.manager.lock().unwrap();
            manager.fail_randomly(seed);
            manager.rejected = vec![5, 6, 20];
            manager.rejected_with_programs = vec![6];
        }
        run_agents(&world, seed, 10);
        let manager = world.manager.lock().unwrap();
        assert_eq!(manager.rows.len() as u64 + manager.losses.rows_dropped, expected.rows.len() as u64, "seed {seed}");
        assert!(manager.losses.rows_dropped > 0 && manager.has_no_duplicates());
        let rejected_files = std::fs::read_dir(world.data.join("spool/refused")).unwrap().count();
        assert_eq!(rejected_files, 3);
    }
}

#[test]
fn a_manager_restored_from_backup_gets_a_new_stream() {
    let world = World::new(entries(1, 300));
    world.limit.store(150, Ordering::SeqCst);
    run_agents(&world, 1, 0);
    let lost = world.manager.lock().unwrap().restore_older_state();
    assert!(lost > 0);
    world.limit.store(300, Ordering::SeqCst);
    run_agents(&world, 2, 0);
    let manager = world.manager.lock().unwrap();
    assert_eq!(manager.streams.len(), 2);
    assert_eq!(manager.rows.len() + lost, run_without_kills(&world).rows.len());
    assert!(manager.has_no_duplicates());
}

#[test]
fn two_copies_of_a_data_folder_use_separate_streams() {
    // One agent continues, then the other, from the same state: both have new rows under the same numbers.
    let world = World::new(entries(1, 200));
    world.limit.store(100, Ordering::SeqCst);
    run_agents(&world, 1, 0);
    let mut copy = world.clone();
    copy.data = world.data.with_file_name("copy");
    let output = std::process::Command::new("cp").arg("-r").args([&world.data, &copy.data]).status().unwrap();
    assert!(output.success());
    let before = world.manager.lock().unwrap().rows.len();
    world.replace_rings(200);
    run_agents(&world, 2, 0);
    let between = world.manager.lock().unwrap().rows.len();
    // A copy of the folder on another machine sends the same events.
    copy.manager.lock().unwrap().forget_rows();
    copy.set_tail(100);
    run_agents(&copy, 3, 0);
    let manager = world.manager.lock().unwrap();
    assert_eq!(manager.streams.len(), 2);
    assert_eq!(manager.rows.len(), between - before, "each row of the copy is stored once");
    assert_eq!(manager.losses.rows_dropped, 0, "no batch waited in the copied spool");
}
