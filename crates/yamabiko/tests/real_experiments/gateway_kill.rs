//! A gateway testbed that is killed while it is built or while it runs leaves nothing on the machine.

use std::collections::HashSet;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::thread::sleep;
use std::time::Duration;

use nix::sys::signal::Signal;

use crate::support::leftovers::{Leftovers, control_groups, devices, mounts, wait_until_groups_are_empty};
use crate::support::processes::{command_line, descendants};
use crate::support::workspace::{Running, Workspace, wait_until};

/// Kill times in ms: while networks, emulated network card, rules and sandboxes are created.
const KILL_TIMES_MS: [u64; 9] = [4, 10, 18, 28, 40, 55, 75, 110, 200];

#[test]
fn a_killed_gateway_experiment_leaves_no_processes_or_networks() {
    let workspace = Workspace::new();
    let (mounts_before, tables_before) = (mounts(), tables());
    let mut pids = HashSet::new();
    for (number, kill_time_ms) in KILL_TIMES_MS.into_iter().enumerate() {
        let folder = folder(&workspace, number);
        let victim = start(&workspace, &folder);
        sleep(Duration::from_millis(kill_time_ms));
        pids.insert(kill(victim, Leftovers::new(&folder)).0);
    }
    // One kill of the complete testbed: three networks, the emulated network card, and programs that try to survive.
    let folder = folder(&workspace, KILL_TIMES_MS.len());
    let mut victim = start(&workspace, &folder);
    let runs = |name: &str| descendants(victim.pid()).into_iter().any(|pid| command_line(pid).trim() == name);
    // The testbed does not wait for leftovers.
    wait_until("the testbed's programs run", || {
        [1001, 1002, 1003].iter().all(|seconds| runs(&format!("sleep {seconds}")))
    });
    let named = |name: &str| {
        let is = |pid: &i32| fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|comm| comm.trim() == name);
        descendants(victim.pid()).iter().filter(|pid| is(pid)).count()
    };
    assert_eq!((named("yamabiko-host"), named("yamabiko-init")), (1, 3));
    assert!(!victim.ended(), "the run ended by itself: {}", victim.stderr());
    assert!(!control_groups(&HashSet::from([victim.pid()])).is_empty());
    let (pid, networks) = kill(victim, Leftovers::new(&folder));
    pids.insert(pid);
    assert_eq!(networks, 3);

    assert_eq!(devices(), Vec::<&str>::new());
    assert_eq!((mounts(), tables()), (mounts_before, tables_before));
    // The next run removes the control groups, and nothing prevents it from starting.
    wait_until_groups_are_empty(&pids);
    workspace.run(&["gateway", "--", "true"]).success();
    assert_eq!(control_groups(&pids), Vec::<std::path::PathBuf>::new());
}

/// Kill during a measurement: proxy and load with their files, the server's end, the temporary run store.
#[test]
fn a_gateway_experiment_killed_while_measuring_leaves_no_files() {
    let workspace = Workspace::new();
    let folder = folder(&workspace, 0);
    let words = "gateway --condition nat-proxy-loaded --link 10Mbit --tests stream --no-save";
    let mut command = workspace.command(&words.split(' ').collect::<Vec<_>>());
    command.current_dir(&folder).env("VICTIM", &folder).env("TMPDIR", &folder);
    let victim = workspace.start_command(command);
    let runs = |word: &str| descendants(victim.pid()).into_iter().any(|pid| command_line(pid).contains(word));
    wait_until("the proxy is loaded", || runs("(squid-") || runs("squid -N"));
    wait_until("the load runs", || runs(" run --json --no-save "));
    assert!(fs::read_dir(&folder).unwrap().count() >= 2);
    kill(victim, Leftovers::new(&folder));
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 0, "no files remain");
}

fn folder(workspace: &Workspace, number: usize) -> std::path::PathBuf {
    let folder = workspace.path().join(format!("victim-{number}"));
    fs::create_dir(&folder).unwrap();
    folder
}

fn start(workspace: &Workspace, folder: &Path) -> Running {
    let stays = |seconds: u32| format!("(setsid sh -c 'trap \"\" TERM HUP INT; sleep {seconds}' &)");
    let (setup, server) = (stays(1001), format!("{}; exec sleep 1000", stays(1002)));
    let script = format!("{}; exec sleep 1000", stays(1003));
    let words = ["gateway", "--condition", "nat", "--setup", &setup, "--server", &server, "--", "sh", "-c", &script];
    let mut command = workspace.command(&words);
    command.current_dir(folder).env("VICTIM", folder);
    workspace.start_command(command)
}

/// Kills the run and waits until none of its processes exists; returns its process number and its number of networks.
fn kill(victim: Running, mut leftovers: Leftovers) -> (i32, usize) {
    leftovers.note_networks(victim.pid());
    let pid = victim.pid();
    victim.signal(Signal::SIGKILL);
    let ended = victim.finish();
    assert_eq!(ended.signal, Some(9), "the run ended by itself: {ended}");
    leftovers.wait_until_gone();
    (pid, leftovers.networks())
}

/// Firewall tables of this machine.
fn tables() -> String {
    let output = Command::new("nft").args(["list", "tables"]).output().expect("nft is installed (nftables)");
    String::from_utf8(output.stdout).unwrap()
}
