//! Shards on machines (network namespaces) with run stores of their own that meet over a real nats-server: its death,
//! and those of members and of the leader.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use nix::sys::signal::Signal;
use serde_json::Value;

use super::machines::{Lan, MACHINES, SERVER, folder, served};
use crate::support::document::{assert_checks_passed, check, count};
use crate::support::workspace::{Running, Workspace, str_of, wait_until, yamabiko};

/// Time for a start, a load of seconds, the silence of a lost shard and the collection of the runs.
pub const TIMEOUT: Duration = Duration::from_secs(180);

/// nats-server with JetStream at the server's address, with its data in a folder of the workspace.
pub fn nats(workspace: &Workspace, lan: &Lan) -> Running {
    let data = workspace.file("nats");
    nats_with(workspace, lan, &["-js", "-sd", str_of(&data)])
}

/// nats-server at the server's address with these options.
pub fn nats_with(workspace: &Workspace, lan: &Lan, options: &[&str]) -> Running {
    let arguments = [&["-a", SERVER, "-p", "4222"][..], options].concat();
    let running = workspace.start_command(lan.server.command("nats-server", &arguments));
    wait_until("nats-server is ready", || running.stderr().contains("Server is ready"));
    running
}

/// Whether the other machines see a machine's run store.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Volume {
    Shared,
    /// A file system in a mount namespace of its own.
    Private,
}

/// Starts a machine's shard with a run store of its own. `settings`: variables of its environment.
pub fn start(workspace: &Workspace, lan: &Lan, place: (usize, Volume), settings: &[&str], options: &str) -> Running {
    start_with(workspace, lan, place, settings, &options.split_whitespace().collect::<Vec<_>>())
}

/// The same with options that contain spaces.
pub fn start_with(
    workspace: &Workspace,
    lan: &Lan,
    (index, volume): (usize, Volume),
    settings: &[&str],
    options: &[&str],
) -> Running {
    let runs = store(workspace, index);
    fs::create_dir_all(&runs).unwrap();
    let mount = "mount -t tmpfs runs \"$0\" && exec env \"$@\"";
    let (variable, program) = (format!("YAMABIKO_RUNS={}", runs.display()), yamabiko());
    let (url, shard) = (format!("http://{SERVER}/10k.bin"), format!("{index}/{MACHINES}"));
    let nats = format!("nats://{SERVER}/test");
    let mut arguments = match volume {
        Volume::Shared => vec!["env"],
        Volume::Private => vec!["unshare", "-m", "sh", "-c", mount, str_of(&runs)],
    };
    arguments.push(&variable);
    arguments.extend(settings);
    arguments.extend([str_of(&program), "bench", &url, "--shard", &shard, "--coordinate", &nats, "--json"]);
    arguments.extend(options);
    let command: Command = lan.machines[index].command(arguments[0], &arguments[1..]);
    workspace.start_command(command)
}

pub fn start_all(workspace: &Workspace, lan: &Lan, volume: Volume, options: &str) -> Vec<Running> {
    (0..MACHINES).map(|index| start(workspace, lan, (index, volume_of(index, volume)), &[], options)).collect()
}

/// The leader's runs are read by the test.
fn volume_of(index: usize, of_members: Volume) -> Volume {
    if index == 0 { Volume::Shared } else { of_members }
}

pub fn store(workspace: &Workspace, index: usize) -> PathBuf {
    workspace.file(&format!("runs{index}"))
}

/// The number that a process has in the namespace of the test: env and nsenter replace themselves.
pub fn kill(running: &Running) {
    running.signal(Signal::SIGKILL);
}

/// Each shard's measured clock: offset and bound before and after, in ns.
pub fn clocks(merged: &Value) -> Vec<[(i64, i64); 2]> {
    let shards = merged["run"]["shards"].as_array().unwrap();
    let estimate = |shard: &Value, when: &str| {
        let clock = &shard["coordination"]["clock"][when];
        (clock["offset_ns"].as_i64().unwrap(), clock["bound_ns"].as_i64().unwrap())
    };
    shards.iter().map(|shard| [estimate(shard, "before"), estimate(shard, "after")]).collect()
}

#[test]
fn machines_that_meet_over_nats_make_one_load_and_the_leader_merges_it() {
    let workspace = Workspace::new();
    let lan = Lan::new(&workspace);
    let _nginx = lan.server.nginx(&workspace, "machines", &["listen 80;"]);
    let _nats = nats(&workspace, &lan);
    // Shard 2's clock is read 50 ms ahead.
    let options = "-r 200/s -d 4s --warmup 1s --arrivals poisson";
    let ahead = ["YAMABIKO_TEST_CLOCK_OFFSET_NS=50000000"];
    let running: Vec<Running> = (0..MACHINES)
        .map(|index| {
            let place = (index, volume_of(index, Volume::Private));
            start(&workspace, &lan, place, if index == 2 { &ahead } else { &[] }, options)
        })
        .collect();
    let outputs: Vec<_> = running.into_iter().map(|running| running.finish_within(TIMEOUT)).collect();
    let merged = outputs[0].json();
    assert_checks_passed(&merged, &["shards_complete", "shards_ended_together", "shards_cover_schedule"]);
    // All requests of the whole, each once, as the server counted them; the warm-up is in the table too.
    let rows: Vec<schema::RequestRecord> =
        ::store::read_requests(&folder(&merged)).unwrap().map(Result::unwrap).collect();
    assert_eq!(rows.len(), served(&workspace));
    let sequences: BTreeSet<u64> = rows.iter().map(|row| row.sequence).collect();
    assert_eq!(sequences, (0..rows.len() as u64).collect());
    // Every offset is within its bound of the true one: the machines share a clock.
    for (index, clock) in clocks(&merged).into_iter().enumerate() {
        let truth = if index == 2 { 50_000_000 } else { 0 };
        for (offset, bound) in clock {
            assert!((offset - truth).abs() <= bound, "shard {index}: {offset} +- {bound}");
            assert!(bound < 20_000_000, "shard {index}: {bound}");
        }
    }
    let aligned = check(&merged, "shards_aligned");
    assert_eq!(aligned["state"], "failed", "{aligned}");
    assert!(aligned["value"].as_f64().unwrap() >= 49e6, "{aligned}");
    // What coordination costs is in the document.
    for shard in merged["run"]["shards"].as_array().unwrap() {
        let cost = &shard["coordination"];
        let share = cost["cpu_s"].as_f64().unwrap() / cost["wall_s"].as_f64().unwrap();
        eprintln!("shard {}: {:.3} % of a core", shard["index"], share * 100.0);
        assert!(share < 0.5, "{cost}");
    }
    // Nobody shares a file system: the leader has the runs that the members sent, and the whole.
    assert_eq!(fs::read_dir(store(&workspace, 0)).unwrap().count(), MACHINES + 1);
}

#[test]
fn a_killed_member_is_missing_by_name_and_with_abort_on_lost_ends_all() {
    let workspace = Workspace::concurrent_as_root();
    let lan = Lan::new(&workspace);
    let _nginx = lan.server.nginx(&workspace, "machines", &["listen 80;"]);
    let _nats = nats(&workspace, &lan);
    let mut running = start_all(&workspace, &lan, Volume::Shared, "-r 40/s -d 25s --warmup 0s --abort-on-lost");
    wait_until("the load has begun", || served(&workspace) > 40);
    kill(&running.remove(3));
    let outputs: Vec<_> = running.into_iter().map(|running| running.finish_within(TIMEOUT)).collect();
    let merged = outputs[0].json();
    assert_eq!(merged["validity"]["verdict"], "invalid");
    assert!(check(&merged, "shards_complete")["why"].as_str().unwrap().contains("(3/4)"), "{merged}");
    assert!(outputs[0].stderr.contains("lost shard 3/4"), "{}", outputs[0].stderr);
    for output in &outputs[1..] {
        assert_eq!(output.json()["run"]["interrupted"], true, "{output}");
    }
    assert_eq!(merged["run"]["shards"].as_array().unwrap().len(), MACHINES);
    let offered = count(&merged, "load.offered_requests");
    assert!(offered < 40 * 25 * 3 / 4, "the load of all ended early: {offered}");
}

#[test]
fn members_of_a_killed_leader_keep_their_runs() {
    let workspace = Workspace::concurrent_as_root();
    let lan = Lan::new(&workspace);
    let _nginx = lan.server.nginx(&workspace, "machines", &["listen 80;"]);
    let _nats = nats(&workspace, &lan);
    let mut running = start_all(&workspace, &lan, Volume::Shared, "-r 100/s -d 14s --warmup 0s");
    wait_until("the load has begun", || served(&workspace) > 100);
    kill(&running.remove(0));
    let outputs: Vec<_> = running.into_iter().map(|running| running.finish_within(TIMEOUT)).collect();
    for output in &outputs {
        assert!(output.stderr.contains("the leader (shard 0) was lost"), "{output}");
        assert_eq!(count(&output.json(), "load.offered_requests"), 100 * 14 / MACHINES as u64);
    }
    let runs: Vec<PathBuf> = outputs.iter().map(|output| folder(&output.json())).collect();
    let arguments: Vec<&str> = ["merge", "--json"].into_iter().chain(runs.iter().map(str_of)).collect();
    let merged = workspace.run_json(&arguments);
    assert!(check(&merged, "shards_complete")["why"].as_str().unwrap().contains("(0/4)"), "{merged}");
}

#[test]
fn a_nats_server_that_is_killed_and_started_again_loses_nothing() {
    let workspace = Workspace::concurrent_as_root();
    let lan = Lan::new(&workspace);
    let _nginx = lan.server.nginx(&workspace, "machines", &["listen 80;"]);
    let server = nats(&workspace, &lan);
    let running = start_all(&workspace, &lan, Volume::Private, "-r 100/s -d 12s --warmup 0s");
    wait_until("the load has begun", || served(&workspace) > 100);
    kill(&server);
    drop(server);
    wait_until("the loss is noticed", || running[0].stderr().contains("NATS is lost"));
    let _server = nats(&workspace, &lan);
    let outputs: Vec<_> = running.into_iter().map(|running| running.finish_within(TIMEOUT)).collect();
    let merged = outputs[0].json();
    assert_checks_passed(
        &merged,
        &["shards_complete", "shards_ended_together", "shards_cover_schedule", "shards_aligned"],
    );
    assert_eq!(count(&merged, "load.offered_requests"), 1200);
    assert!(clocks(&merged).iter().flatten().all(|(offset, bound)| offset.abs() <= *bound));
}

#[test]
fn a_shard_with_another_plan_is_refused_by_name_and_nothing_is_sent() {
    let workspace = Workspace::concurrent_as_root();
    let lan = Lan::new(&workspace);
    let _nginx = lan.server.nginx(&workspace, "machines", &["listen 80;"]);
    let _nats = nats(&workspace, &lan);
    let leader = start(&workspace, &lan, (0, Volume::Shared), &[], "-r 100/s -d 2s");
    let other = start(&workspace, &lan, (1, Volume::Shared), &[], "-r 101/s -d 2s");
    other.finish_within(TIMEOUT).refused(1, &["refused this shard", "its plan is another"]);
    wait_until("the leader reports it", || leader.stderr().contains("refused shard 1"));
    leader.signal(Signal::SIGINT);
    let output = leader.finish_within(TIMEOUT);
    assert_eq!((output.code, output.stdout.as_str()), (Some(1), ""), "{output}");
    assert!(output.stderr.contains("the load was not started: shard 0 was interrupted"), "{output}");
    assert_eq!(served(&workspace), 0);
}
