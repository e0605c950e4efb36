//! Control groups limit the CPU share of a command, count its resource usage, and are removed.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use sys::cgroup::{Cgroup, Limits, Weight, sweep};
use sys::sandbox::{Exit, Sandbox};

use crate::check::{ended, shell, start, wait_until};

pub fn cpu_share_is_limited() {
    let limits = Limits { cpu: Some("20%".parse().unwrap()), ..Limits::default() };
    let group = Cgroup::create("burner", limits).unwrap();
    assert_eq!(group.period(), Duration::from_millis(5));
    let started = Instant::now();
    let sandbox = burner(&group);
    std::thread::sleep(Duration::from_secs(2));
    let usage = group.usage().unwrap();
    let elapsed = started.elapsed().as_secs_f64();
    sandbox.stop(Duration::ZERO);
    let used = (usage.user + usage.system).as_secs_f64();
    let share = used / elapsed;
    println!("note: configured share 20 %, measured {:.1} %, throttled {:?}", share * 100.0, usage.throttled.unwrap());
    // Two busy loops that need two cores: a fifth of one core, and at most one slice more on each core.
    assert!(share < 0.24, "{share}");
    assert!(usage.throttled.unwrap() > Duration::ZERO);
    let periods = usage.periods.unwrap();
    assert!(periods.throttled > 0 && periods.throttled <= periods.all, "{periods:?}");
    assert!(usage.memory_max.is_none_or(|bytes| bytes > 4096));
}

/// A command above the memory limit is killed; one below is not.
pub fn memory_is_limited() {
    let bound = 24 << 20;
    let takes = |megabytes: u64| {
        let group = Cgroup::create("eater", Limits { memory: Some(bound), ..Limits::default() }).unwrap();
        let mut spec = shell(&format!("x=$(head -c {}M /dev/zero | tr '\\0' x); test ${{#x}} -gt 1", megabytes));
        spec.cgroup = Some(&group);
        let mut sandbox = start(spec);
        let exit = ended(&mut sandbox);
        let most = group.usage().unwrap().memory_max.unwrap();
        println!("note: {megabytes} MB within 24 MiB: {exit:?}, at most {most} bytes");
        assert!(most <= bound, "{most}");
        exit
    };
    assert_eq!(takes(1), Exit::Code(0));
    assert_ne!(takes(64), Exit::Code(0));
}

pub fn usage_includes_dead_processes() {
    let group = Cgroup::create("dead", Limits::default()).unwrap();
    let mut spec = shell("(ulimit -t 1; while :; do :; done); exit 3");
    spec.cgroup = Some(&group);
    let mut sandbox = start(spec);
    assert_eq!(ended(&mut sandbox), Exit::Code(3));
    let by_group = group.usage().unwrap();
    let by_group = by_group.user + by_group.system;
    let by_proc = sandbox.usage();
    let by_proc = by_proc.user + by_proc.system;
    println!("note: the same work by control group {by_group:?}, by /proc {by_proc:?}");
    assert!(by_group > Duration::from_millis(900));
    assert!(by_group.abs_diff(by_proc) < Duration::from_millis(40), "{by_group:?} {by_proc:?}");
}

pub fn group_is_removed_on_drop() {
    let limits = Limits { cpu: Some("1%".parse().unwrap()), weight: Weight::Least, ..Limits::default() };
    let group = Cgroup::create("gone", limits).unwrap();
    assert_eq!(group.period(), Duration::from_millis(100));
    let directories = directories(&group);
    let read_file = |file: &str| directories.iter().find_map(|d| fs::read_to_string(d.join(file)).ok());
    let is_idle = |idle: &str| read_file("cpu.idle").is_some_and(|text| text.trim() == idle);
    let least = |weight: Option<String>| weight.is_some_and(|text| matches!(text.trim(), "1" | "2"));
    assert!(is_idle("1") || least(read_file("cpu.weight")) || least(read_file("cpu.shares")));
    group.remove_cpu_limit();
    assert!(is_idle("0") || !(least(read_file("cpu.weight")) || least(read_file("cpu.shares"))));
    let most = || {
        [read_file("cpu.weight"), read_file("cpu.shares")]
            .iter()
            .flatten()
            .any(|it| ["10000", "262144"].contains(&it.trim()))
    };
    group.set_weight(Weight::Most).unwrap();
    assert!(most());
    group.set_weight(Weight::Usual).unwrap();
    assert!(!most());
    assert!(!directories.is_empty() && directories.iter().all(|d| d.is_dir()));
    // The name is in use: another group is created, and removed, next to it.
    let second = Cgroup::create("gone", Limits::default()).unwrap();
    let others = self::directories(&second);
    assert!(others.iter().all(|d| d.is_dir() && d.to_str().unwrap().ends_with("gone_2")), "{others:?}");
    drop(second);
    assert!(others.iter().all(|d| !d.exists()) && directories.iter().all(|d| d.is_dir()));
    burner(&group).stop(Duration::ZERO);
    // A group that a program within it created and could not remove, because it was killed.
    for directory in &directories {
        fs::create_dir_all(directory.join("yamabiko-3-2-7-dynamic/below")).unwrap();
    }
    drop(group);
    assert!(directories.iter().all(|d| !d.exists()));
}

pub fn sweep_removes_groups_of_dead_processes_only() {
    let group = Cgroup::create("living", Limits::default()).unwrap();
    let directory = directories(&group).remove(0);
    let own = directory.file_name().unwrap().to_str().unwrap();
    let [_, namespace, pid, started, ..] = own.split('-').collect::<Vec<_>>()[..] else { panic!("{own}") };
    let of_dead = format!("yamabiko-{namespace}-4194999-1-server");
    let dead = directory.with_file_name(&of_dead);
    fs::create_dir(&dead).unwrap();
    // Started at another time: the number is this process's, but of an earlier process.
    let earlier = directory.with_file_name(format!("yamabiko-{namespace}-{pid}-1-server"));
    fs::create_dir(&earlier).unwrap();
    // In a sandbox, where such a process may be alive.
    let unknown = directory.with_file_name(format!("yamabiko-1-4194999-{started}-server"));
    fs::create_dir(&unknown).unwrap();
    // A run of another session, which had its own directory in the hierarchy.
    let session = directory.with_file_name("a-session");
    let elsewhere = session.join(&of_dead);
    fs::create_dir_all(&elsewhere).unwrap();
    // A server in the dead process's group had created one for a program, and both were killed with it.
    fs::create_dir_all(dead.join("yamabiko-3-2-7-dynamic")).unwrap();
    assert!(sweep().unwrap() >= 4);
    assert!(!dead.exists() && !earlier.exists() && !elsewhere.exists() && directory.exists());
    assert!(unknown.exists());
    fs::remove_dir(unknown).unwrap();
    fs::remove_dir(session).unwrap();
}

fn burner(group: &Cgroup) -> Sandbox {
    let mut spec = shell("while :; do :; done & while :; do :; done");
    spec.cgroup = Some(group);
    let sandbox = start(spec);
    wait_until("it is in the group", || {
        group.procs_paths().iter().all(|file| fs::read_to_string(file).unwrap().lines().count() >= 2)
    });
    sandbox
}

fn directories(group: &Cgroup) -> Vec<PathBuf> {
    group.procs_paths().iter().map(|file| file.parent().map(Path::to_path_buf).unwrap()).collect()
}
