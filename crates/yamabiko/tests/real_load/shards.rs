//! One load from several processes: more connections than one process may have, one plan, one result; nothing remains
//! if one process is killed.

use std::fs;
use std::process::Command;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use schema::RunPhase;

use crate::support::document::{assert_checks_passed, count, number};
use crate::support::processes::{children, descendants, stat};
use crate::support::servers::PORT;
use crate::support::workspace::{Running, Workspace, str_of, wait_until, yamabiko};

/// Checks that must pass on a busy machine, too.
const CHECKS_ON_ANY_MACHINE: [&str; 8] = [
    "open_connections_established",
    "conservation",
    "littles_law_requests",
    "littles_law_connections",
    "no_unintended_drops",
    "vantage_points_agree_requests",
    "vantage_points_agree_connections",
    "records_stored",
];

/// Limit of open files per process, enough for a thousand connections.
const OPEN_FILES: u32 = 1128;

/// Starts a run of 3,000 connections from 300 addresses, with at most a thousand per process.
fn start(workspace: &Workspace, seconds: u32) -> Running {
    let own = yamabiko();
    let own = str_of(&own);
    let server = format!("exec {own} serve --max 1KiB --listen 0.0.0.0:{PORT} --processes 5");
    let options = "--rtt 5ms --open-connections 3000 --clients 300 --rate 1500/s --warmup 500ms --json";
    let mut command = Command::new("/bin/sh");
    command.args(["-c", &format!("ulimit -n {OPEN_FILES}; exec \"$0\" \"$@\""), own, "bench"]);
    command.args([&format!("http://server:{PORT}/"), "--server", &server]);
    command.args(options.split_whitespace()).args(["-d", &format!("{seconds}s")]);
    workspace.start_command(command)
}

/// The processes of the run's shards, once there are two.
fn shards(running: &Running) -> Vec<i32> {
    let is_shard =
        |pid: &i32| fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name.trim() == "yamabiko-shard");
    let find = || children(running.pid()).into_iter().filter(is_shard).collect::<Vec<_>>();
    wait_until("two shards in processes of their own", || find().len() == 2);
    find()
}

#[test]
fn three_shards_measure_three_thousand_connections_as_one_run() {
    let workspace = Workspace::new();
    let document = start(&workspace, 2).finish().json();
    assert_checks_passed(&document, &CHECKS_ON_ANY_MACHINE);
    assert_eq!(document["run"]["host"]["settings"]["processes"], "3");
    assert_eq!(
        (count(&document, "load.open_connections.connections"), count(&document, "load.open_connections.failed")),
        (3000, 0)
    );
    assert_eq!(count(&document, "load.open_connections.processes"), 3);
    assert_eq!(count(&document, "load.offered_requests"), 3000);
    assert_eq!(count(&document, "load.completed"), 3000);
    assert_eq!(count(&document, "load.connections_opened"), 0, "all connections are opened before the measured phase");
    assert!(number(&document, "load.open_connections.kernel_bytes_each") > 0.0);
    // The table has the records of every process.
    assert_eq!(count(&document, "run.recorded.requests"), count(&document, "run.recorded.of"));
    assert!(count(&document, "run.recorded.of") > 3000);
}

#[test]
fn shard_processes_end_with_a_killed_run() {
    let workspace = Workspace::new();
    let running = start(&workspace, 30);
    shards(&running);
    let all = descendants(running.pid());
    running.signal(Signal::SIGKILL);
    wait_until("every process of the run has exited", || {
        all.iter().all(|&pid| stat(pid).is_none_or(|stat| stat.state == 'Z'))
    });
}

#[test]
fn ctrl_c_to_the_process_group_ends_the_run_with_its_result() {
    let workspace = Workspace::new();
    let running = start(&workspace, 60);
    let shards = shards(&running);
    wait_until("the measured phase has begun", || {
        let mut runs = fs::read_dir(workspace.runs()).unwrap().flatten();
        let progress = runs.find_map(|run| store::read_progress(&run.path()).ok().flatten());
        progress.is_some_and(|progress| progress.phase == RunPhase::Measured)
    });
    std::thread::sleep(Duration::from_secs(1));
    // timeout(1) and service managers signal the process group, too.
    shards.iter().for_each(|&shard| kill(Pid::from_raw(shard), Signal::SIGTERM).unwrap());
    running.signal(Signal::SIGTERM);
    let document = running.finish().json();
    assert_eq!(document["run"]["interrupted"], true);
    assert_checks_passed(
        &document,
        &["conservation", "open_connections_established", "littles_law_requests", "records_stored"],
    );
    let (offered, actual_s) = (count(&document, "load.offered_requests"), number(&document, "run.duration_s"));
    assert!((offered as f64 - 1500.0 * actual_s).abs() <= 2.0 && actual_s < 30.0, "{offered} in {actual_s} s");
    assert_eq!(count(&document, "load.completed"), offered);
}

#[test]
fn a_killed_shard_ends_the_run_with_a_report() {
    let workspace = Workspace::new();
    let running = start(&workspace, 30);
    let shards = shards(&running);
    kill(Pid::from_raw(shards[0]), Signal::SIGKILL).unwrap();
    let output = running.finish();
    assert_eq!(output.code, Some(2), "{output}");
    assert!(output.stderr.contains("in its own process") && output.stdout.is_empty(), "{output}");
}
