//! Runs that end by SIGKILL at any time, or by one or two Ctrl-C. No processes or devices remain, and stored rows are
//! not lost.

use std::collections::HashSet;
use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::sleep;
use std::time::Duration;

use nix::sys::signal::Signal;
use serde_json::Value;
use stats::Rng;

use crate::support::document::{assert_checks_passed, assert_checks_passed_or_disturbed, check, count, number};
use crate::support::leftovers::{Leftovers, control_groups, devices, mounts, wait_until_groups_are_empty};
use crate::support::processes::{signal_all, wait_for_server};
use crate::support::servers::{bench, nginx, nginx_in, yamabiko_serve};
use crate::support::workspace::{Workspace, set_mode, wait_until};

const KILLS: usize = 100;
/// Number of concurrent runs: the kernel's removal of namespaces takes most of the time.
const CONCURRENT_RUNS: usize = 4;
/// The latest kill time: the run has offered load for about a second.
const WINDOW_MS: u64 = 1500;
/// The approximate time in which the testbed is built: half of the kill times are within it.
const BUILDING_MS: u64 = 200;

#[test]
fn sigkill_at_a_hundred_times_leaves_nothing_behind() {
    let workspace = Workspace::new();
    let mounts_before = mounts();
    let mut rng = Rng::named(7, "kill times");
    let window_ms = |number| if number % 4 < 2 { WINDOW_MS } else { BUILDING_MS };
    let kill_times: Vec<Duration> =
        (0..KILLS).map(|number| Duration::from_micros(rng.below(window_ms(number) * 1000))).collect();
    let (next, killed) = (AtomicUsize::new(0), std::sync::Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..CONCURRENT_RUNS {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    let Some(&kill_time) = kill_times.get(number) else { return };
                    let outcome = kill_one(&workspace, number, kill_time);
                    killed.lock().unwrap().push(outcome);
                }
            });
        }
    });
    let killed = killed.into_inner().unwrap();
    let (is_stored, complete) =
        (killed.iter().filter(|it| it.is_stored).count(), killed.iter().filter(|it| it.networks > 1).count());
    println!("{KILLS} killed: {is_stored} of them in the run store, {complete} with both ends of the testbed");
    assert!((20..KILLS).contains(&complete), "kill times must be before and after the testbed is built: {complete}");
    assert_eq!(devices(), Vec::<&str>::new());
    assert_eq!(mounts(), mounts_before);

    // The next run removes the control groups, and nothing prevents it from starting.
    let pids = killed.iter().map(|it| it.pid).collect();
    wait_until_groups_are_empty(&pids);
    let next = workspace.run_json(&bench(&nginx(&workspace), "--server-cpu 90% -n 100 --json"));
    assert_eq!(count(&next, "load.completed"), 100);
    assert_eq!(control_groups(&pids), Vec::<std::path::PathBuf>::new());

    // The run store distinguishes a killed run from an ended one and from a running one.
    let runs = workspace.run(&["runs", "--json"]).success().json();
    for run in runs["runs"].as_array().unwrap() {
        let expected = if run["id"] == next["run"]["id"] { "finished" } else { "unfinished" };
        assert_eq!(run["state"], expected, "{run}");
        assert_eq!(run["rows"].as_u64().unwrap_or(0), readable_rows(run), "{run}");
    }
    assert_eq!(runs["runs"].as_array().unwrap().len(), is_stored + 1);
}

struct KilledRun {
    pid: i32,
    /// Number of network namespaces of the run when it was killed.
    networks: usize,
    /// Whether the run was in the run store already.
    is_stored: bool,
}

fn kill_one(workspace: &Workspace, number: usize, kill_time: Duration) -> KilledRun {
    // All names have one length, so that none is a prefix of another.
    let name = format!("victim-{number:03}");
    let folder = workspace.path().join(&name);
    fs::create_dir_all(folder.join("var")).unwrap();
    set_mode(&folder.join("var"), 0o777);
    // Every second server starts children that try to survive.
    let server = match number % 2 {
        0 => nginx_in(workspace, &folder),
        _ => format!(
            "(setsid sh -c 'trap \"\" TERM HUP INT; sleep 1000' &); setsid sleep 1000 & {}",
            yamabiko_serve(workspace)
        ),
    };
    let options = format!("--server-cpu 80% --rtt 20ms --rate 200/s --close --warmup 100ms -d 60s --name {name}");
    let mut command = workspace.command(&bench(&server, &options));
    command.current_dir(&folder).env("VICTIM", &folder);
    let mut leftovers = Leftovers::new(&folder);
    let mut victim = workspace.start_command(command);
    sleep(kill_time);
    assert!(!victim.ended(), "the run ended by itself: {}", victim.stderr());
    leftovers.note_networks(victim.pid());
    victim.signal(Signal::SIGKILL);
    let pid = victim.pid();
    assert_eq!(victim.finish().signal, Some(9));
    leftovers.wait_until_gone();
    let is_of_victim = |entry: fs::DirEntry| entry.file_name().to_string_lossy().contains(&format!("-{name}-"));
    let is_stored = fs::read_dir(workspace.runs()).into_iter().flatten().flatten().any(is_of_victim);
    KilledRun { pid, networks: leftovers.networks(), is_stored }
}

#[test]
fn row_groups_closed_before_sigkill_are_readable() {
    let workspace = Workspace::new();
    let server = nginx(&workspace);
    let run = workspace.start(&bench(&server, "--server-cpu 90% --rtt 20ms --rate 300/s --warmup 0s -d 60s"));
    let second_part = |entry: fs::DirEntry| entry.path().join("requests/000002.parquet").exists();
    wait_until("two parts are closed", || fs::read_dir(workspace.runs()).unwrap().flatten().any(second_part));
    // Check of the search itself: it finds the processes of a live run: the program, init, and nginx with a worker.
    let mut leftovers = Leftovers::new(workspace.path());
    leftovers.note_networks(run.pid());
    let (living, pids) = (leftovers.processes(), HashSet::from([run.pid()]));
    assert!(living.len() >= 4 && leftovers.networks() == 2, "{living:?}");
    assert!(!control_groups(&pids).is_empty());
    run.signal(Signal::SIGKILL);
    run.finish();
    leftovers.wait_until_gone();

    let runs = workspace.run(&["runs", "--json"]).success().json();
    let run = &runs["runs"][0];
    assert_eq!(run["state"], "unfinished");
    let rows = count(run, "rows");
    // Two parts of one or two seconds each, at 300/s; later rows are lost.
    assert!((400..2000).contains(&rows), "{run}");
    assert_eq!(readable_rows(run), rows);
    let table = workspace.run(&["runs"]).success();
    assert!(table.stdout.contains("unfinished") && table.stdout.contains("readable"), "{table}");
    let report = workspace.run(&["report", "last"]);
    assert_eq!(report.stderr.trim_end().lines().count(), 1, "{report}");
    assert!(report.code == Some(1) || report.code == Some(2), "{report}");
    assert!(Path::new(run["dir"].as_str().unwrap()).join("plan.toml").is_file());
}

#[test]
fn ctrl_c_ends_the_measurement_with_a_report() {
    let workspace = Workspace::new();
    let server = nginx(&workspace);
    let mut bench = workspace.start(&bench(&server, "--rtt 50ms --rate 100/s --warmup 200ms -d 60s --json"));
    wait_for_server(&mut bench, "nginx", 2);
    sleep(Duration::from_secs(2));
    bench.signal(Signal::SIGINT);
    let output = bench.finish();
    assert!(output.elapsed < Duration::from_secs(15), "{:?}", output.elapsed);
    let document = output.json();
    assert_eq!(document["run"]["interrupted"], true);
    let actual_s = number(&document, "run.duration_s");
    assert!((0.5..10.0).contains(&actual_s), "{actual_s}");
    // The run waits for requests in flight, which are in the result.
    let offered = number(&document, "load.offered_requests");
    assert!((offered - 100.0 * actual_s).abs() <= 2.0, "{offered} in {actual_s} s");
    assert_eq!(number(&document, "load.completed"), offered);
    assert_checks_passed(&document, &["conservation", "responses_whole", "server_alive", "records_stored"]);
    assert_checks_passed_or_disturbed(&document, &["rtt_as_configured"]);
    let valid = document["validity"]["verdict"] == "valid";
    assert!(output.code == Some(0) || !valid && output.code == Some(3), "{output}");
    assert_eq!(workspace.run_json(&["report", "last", "--json"]), document);
}

#[test]
fn a_second_ctrl_c_ends_the_run_immediately() {
    let workspace = Workspace::new();
    let server = nginx(&workspace);
    let mut bench = workspace.start(&bench(&server, "--rtt 20ms --rate 100/s --warmup 0s -d 60s --json"));
    let server_pids = wait_for_server(&mut bench, "nginx", 2);
    sleep(Duration::from_secs(1));
    // The server has stopped responding: the first Ctrl-C waits up to 30 s for requests in flight.
    signal_all(&server_pids, Signal::SIGSTOP);
    sleep(Duration::from_millis(500));
    bench.signal(Signal::SIGINT);
    sleep(Duration::from_secs(1));
    assert!(!bench.ended(), "after one signal the program waits for requests in flight");
    bench.signal(Signal::SIGINT);
    let second_signal = std::time::Instant::now();
    let output = bench.finish();
    assert!(
        second_signal.elapsed() < Duration::from_secs(5),
        "the second signal ends the program immediately, not after {:?}",
        second_signal.elapsed()
    );
    let document = output.json();
    assert_eq!(document["run"]["interrupted"], true);
    assert_checks_passed(&document, &["conservation"]);
    // Requests of 0.5 s without a response are counted.
    let aborted =
        document["load"]["failed"]["aborted"].as_u64().unwrap_or(0) + count(&document, "load.in_flight_at_end");
    assert!((30..200).contains(&aborted), "{}", document["load"]["failed"]);
    assert!(count(&document, "load.completed") > 50);
    let _ = check(&document, "server_alive");
    let left: Vec<i32> =
        server_pids.into_iter().filter(|pid| Path::new(&format!("/proc/{pid}/exe")).exists()).collect();
    assert_eq!(left, Vec::<i32>::new(), "a stopped server ends with the run");
}

/// Number of readable rows of a run of the list.
fn readable_rows(run: &Value) -> u64 {
    let dir = Path::new(run["dir"].as_str().unwrap());
    match run["state"] == "unfinished" {
        true => store::read_requests(dir).unwrap().map(Result::unwrap).count() as u64,
        false => 0,
    }
}
