//! The agent as a whole against a scripted ring and a scripted manager, killed between any two calls that matter.
//!
//! What the manager has at the end is what an agent that nobody killed would have brought: each row once. Where the bound of the
//! spool, a full disk, the filter or a refusal took rows, their counts are exact.

mod script;

use std::sync::Arc;
use std::sync::atomic::Ordering;

use stats::Rng;

use self::script::{Manager, Ring, ScriptLink, TestTime, World, atoms};
use crate::disk::Disk;
use crate::disk::fuse::Fuse;
use crate::keeper::{Keeper, Ways};
use crate::sender::{Next, Own, Sender};
use crate::spool::Spool;
use crate::stand::Stand;
use tap_protocol::Settings;

/// One agent's life, until its fuse burns through (`false`), or all is sent.
fn life(world: &World, fuse: &Fuse, random: &mut Rng) -> bool {
    let Some(disk) = Disk::with_fuse(&world.data, fuse).ok() else { return false };
    let mut silent = |_: String| {};
    let Ok(spool) = Spool::open(&disk, "web-1", world.spool_bytes, &mut silent) else { return false };
    let spool = Arc::new(spool);
    let time = TestTime(world.time.clone());
    let opened = Keeper::open(&disk, spool.clone(), time.clone(), &world.boot, &Ways::default(), &mut silent);
    let Ok(mut keeper) = opened else { return false };
    let mut ring = Ring { world: world.clone(), fuse: fuse.clone() };
    let stand = Arc::new(Stand::new(Box::new(|_| {}), || 1));
    stand.keeper(&keeper);
    let link = ScriptLink { manager: world.manager.clone(), fuse: fuse.clone() };
    let own = Own { boot: world.boot.clone(), host: "h".into(), kernel: "k".into(), version: "v".into() };
    let mut sender = Sender::new(link, time, spool.clone(), stand.clone(), disk.clone(), own);
    loop {
        if fuse.is_dead() {
            return false;
        }
        if random.below(10) < 6 {
            if let Some(settings) = stand.wanted() {
                keeper.go_by(settings);
            }
            let is_over = ring.is_over(keeper.standing());
            let outcome = keeper.round(&mut ring);
            stand.keeper(&keeper);
            if is_over && outcome.is_ok() {
                break;
            }
        } else {
            sender.step();
        }
        fuse.fill(world.is_full(random));
    }
    fuse.fill(false);
    world.manager.lock().unwrap().away = false;
    if world.leaves_the_rest || keeper.end(&mut ring).is_err() {
        return !fuse.is_dead();
    }
    while spool.stand().batches > 0 {
        if fuse.is_dead() {
            return false;
        }
        assert!(sender.step() != Next::Batch || spool.stand().batches == 0);
    }
    true
}

/// Lives until all is sent; the first `kills` of them end early.
fn lives(world: &World, seed: u64, kills: u64) -> u64 {
    let mut random = Rng::new(seed, 1);
    let mut killed = 0;
    loop {
        let fuse = Fuse::default();
        if killed < kills {
            // Some die at the start, some late.
            let most = if random.below(3) == 0 { 30 } else { 400 };
            fuse.light(random.below(most));
        }
        if life(world, &fuse, &mut random) {
            return killed;
        }
        assert!(killed < kills, "an agent that nobody killed did not come to its end");
        killed += 1;
    }
}

fn undisturbed(world: &World) -> Manager {
    let world = world.again();
    lives(&world, 0, 0);
    let manager = world.manager.lock().unwrap();
    manager.clone()
}

#[test]
fn killed_anywhere_each_row_is_there_once() {
    let mut lost_answers = 0;
    for seed in 0..4 {
        let world = World::new(atoms(seed, 300));
        let expected = undisturbed(&world);
        assert!(expected.rows.len() > 500, "{}", expected.rows.len());
        world.manager.lock().unwrap().fails(seed);
        let killed = lives(&world, seed, 25);
        assert!(killed > 5, "{killed}");
        let manager = world.manager.lock().unwrap();
        assert_eq!(manager.sorted(), expected.sorted(), "seed {seed}");
        assert_eq!(manager.programs, expected.programs, "seed {seed}");
        assert_eq!(manager.lacks, expected.lacks, "seed {seed}");
        assert_eq!(manager.streams.len(), 1, "a stream goes on");
        lost_answers += manager.lost_answers;
    }
    assert!(lost_answers > 20, "{lost_answers}");
}

#[test]
fn killed_at_every_single_step_of_a_short_life() {
    let world = World::new(atoms(3, 16));
    let expected = undisturbed(&world);
    let mut steps = 0;
    loop {
        let world = world.again();
        let mut random = Rng::new(9, 1);
        let fuse = Fuse::default();
        fuse.light(steps);
        let is_whole = life(&world, &fuse, &mut random);
        if !is_whole {
            assert!(life(&world, &Fuse::default(), &mut random));
        }
        let manager = world.manager.lock().unwrap();
        assert_eq!(manager.sorted(), expected.sorted(), "killed at step {steps}");
        assert_eq!(manager.programs, expected.programs, "killed at step {steps}");
        if is_whole {
            break;
        }
        steps += 1;
    }
    assert!(steps > 50, "{steps}");
}

#[test]
fn what_the_bound_takes_is_counted_exactly() {
    for seed in 0..4 {
        let mut world = World::new(atoms(seed, 300));
        let expected = undisturbed(&world);
        world.spool_bytes = 128 << 10;
        {
            let mut manager = world.manager.lock().unwrap();
            manager.fails(seed);
            manager.away = true;
        }
        lives(&world, seed, 20);
        let manager = world.manager.lock().unwrap();
        let total = expected.rows.len() as u64;
        assert_eq!(manager.rows.len() as u64 + manager.lacks.rows_dropped, total, "seed {seed}");
        assert!(manager.lacks.rows_dropped > total / 4 && !manager.rows.is_empty(), "{:?}", manager.lacks);
        assert!(manager.rows.iter().all(|row| expected.rows.contains(row)) && manager.is_without_doubles());
        assert_eq!(manager.programs, expected.programs, "counts of joined batches are whole");
        assert_eq!(manager.lacks.records, expected.lacks.records);
    }
}

#[test]
fn what_settings_leave_out_is_counted_exactly() {
    for seed in 0..3 {
        let world = World::new(atoms(seed, 300));
        let expected = undisturbed(&world);
        {
            let mut manager = world.manager.lock().unwrap();
            manager.fails(seed);
            manager.new_settings = vec![
                (8, Settings { version: 2, programs: vec!["one".into(), "two".into()], ..Settings::default() }),
                (20, Settings { version: 3, share: 0.5, ..Settings::default() }),
                (32, Settings { version: 4, share: 7.0, ..Settings::default() }),
            ];
        }
        lives(&world, seed, 15);
        let manager = world.manager.lock().unwrap();
        let lacks = manager.lacks;
        let sum = manager.rows.len() as u64 + lacks.rows_filtered + lacks.rows_not_drawn + lacks.rows_dropped;
        assert_eq!(sum, expected.rows.len() as u64, "seed {seed}");
        assert!(lacks.rows_filtered > 0 && lacks.rows_not_drawn > 0 && lacks.rows_dropped == 0, "{lacks:?}");
        assert!(manager.is_without_doubles() && manager.gone_by.contains(&3) && !manager.gone_by.contains(&4));
    }
}

#[test]
fn a_full_disk_costs_counted_rows_at_most() {
    for seed in 0..4 {
        let mut world = World::new(atoms(seed, 300));
        let expected = undisturbed(&world);
        world.full_share = 3;
        world.manager.lock().unwrap().fails(seed);
        lives(&world, seed, 10);
        let manager = world.manager.lock().unwrap();
        assert_eq!(manager.rows.len() as u64 + manager.lacks.rows_dropped, expected.rows.len() as u64, "seed {seed}");
        assert!(manager.is_without_doubles());
        assert_eq!(manager.programs, expected.programs, "seed {seed}");
    }
}

#[test]
fn a_reboot_cuts_what_is_open_once() {
    for seed in 0..4 {
        let run = |kills: u64| {
            let mut world = World::new(atoms(seed, 300));
            world.limit.store(150, Ordering::SeqCst);
            world.leaves_the_rest = kills > 0;
            lives(&world, seed, kills);
            world.boot = "another".into();
            world.leaves_the_rest = false;
            world.has_new_rings(300);
            lives(&world, seed + 1, kills);
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
fn what_the_manager_refuses_is_set_aside_and_counted() {
    for seed in 0..4 {
        let world = World::new(atoms(seed, 300));
        let expected = undisturbed(&world);
        {
            let mut manager = world.manager.lock().unwrap();
            manager.fails(seed);
            manager.poison = vec![5, 6, 20];
            manager.takes_bare_ones_only = vec![6];
        }
        lives(&world, seed, 10);
        let manager = world.manager.lock().unwrap();
        assert_eq!(manager.rows.len() as u64 + manager.lacks.rows_dropped, expected.rows.len() as u64, "seed {seed}");
        assert!(manager.lacks.rows_dropped > 0 && manager.is_without_doubles());
        let aside = std::fs::read_dir(world.data.join("spool/refused")).unwrap().count();
        assert_eq!(aside, 3);
    }
}

#[test]
fn a_manager_that_went_back_gets_a_new_stream_from_there() {
    let world = World::new(atoms(1, 300));
    world.limit.store(150, Ordering::SeqCst);
    lives(&world, 1, 0);
    let lost = world.manager.lock().unwrap().goes_back();
    assert!(lost > 0);
    world.limit.store(300, Ordering::SeqCst);
    lives(&world, 2, 0);
    let manager = world.manager.lock().unwrap();
    assert_eq!(manager.streams.len(), 2);
    assert_eq!(manager.rows.len() + lost, undisturbed(&world).rows.len());
    assert!(manager.is_without_doubles());
}

#[test]
fn two_copies_of_a_folder_part_ways() {
    // One goes on, then the other, from the same state: both have new rows under the same numbers.
    let world = World::new(atoms(1, 200));
    world.limit.store(100, Ordering::SeqCst);
    lives(&world, 1, 0);
    let mut copy = world.clone();
    copy.data = world.data.with_file_name("copy");
    let output = std::process::Command::new("cp").arg("-r").args([&world.data, &copy.data]).status().unwrap();
    assert!(output.success());
    let before = world.manager.lock().unwrap().rows.len();
    world.has_new_rings(200);
    lives(&world, 2, 0);
    let between = world.manager.lock().unwrap().rows.len();
    // The same happens to the copy, whose machine is another.
    copy.manager.lock().unwrap().forgets_rows();
    copy.has_rings_of(100);
    lives(&copy, 3, 0);
    let manager = world.manager.lock().unwrap();
    assert_eq!(manager.streams.len(), 2);
    assert_eq!(manager.rows.len(), between - before, "each row of the copy");
    assert_eq!(manager.lacks.rows_dropped, 0, "nothing waited");
}
