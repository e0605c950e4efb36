//! `capacity` over three machines (network namespaces) that meet over a real nats-server, against a server of known
//! capacity: 4 workers of 20 ms, 200/s.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use serde_json::Value;

use super::coordination::{Volume, kill, nats, store};
use super::machines::{Lan, SERVER, served};
use crate::support::document::assert_known_capacity;
use crate::support::workspace::{Running, Workspace, str_of, wait_until, yamabiko};

/// Shards of a search. The fourth machine of the network searches alone.
const SHARDS: usize = 3;
/// Time for a search of some ten trials of seconds, on a busy machine.
const SEARCH_TIMEOUT: Duration = Duration::from_secs(400);

/// A search with short trials.
const SEARCH: &[&str] = &[
    "--slo",
    "p90 < 60ms, errors < 1%",
    "--start",
    "120/s",
    "--short",
    "1s",
    "--trial",
    "3s",
    "--confirm",
    "0s",
    "--width",
    "5%",
    "--searches",
    "1",
    "--warmup",
    "300ms",
    "--no-overload",
    "--seed",
    "7",
];

/// The model server at the server's address, port 8080.
fn model(workspace: &Workspace, lan: &Lan) -> Running {
    let model = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/model-server/model.py");
    let running = workspace.start_command(lan.server.command("python3", &[str_of(&model), "--listen", "0.0.0.0:8080"]));
    wait_until("the model server listens", || running.stdout().contains("listening"));
    running
}

/// Starts a machine's shard of a search, with a run store of its own, which is its working directory if it is shared.
fn start(workspace: &Workspace, lan: &Lan, index: usize, volume: Volume, url: &str, options: &[&str]) -> Running {
    let runs = store(workspace, index);
    fs::create_dir_all(&runs).unwrap();
    let (variable, program) = (format!("YAMABIKO_RUNS={}", runs.display()), yamabiko());
    let (shard, nats) = (format!("{index}/{SHARDS}"), format!("nats://{SERVER}/test"));
    let mount = "mount -t tmpfs runs \"$0\" && exec env \"$@\"";
    let mut arguments = match volume {
        Volume::Shared => vec!["env", "-C", str_of(&runs)],
        Volume::Private => vec!["unshare", "-m", "sh", "-c", mount, str_of(&runs)],
    };
    arguments.extend([&*variable, str_of(&program), "capacity", url, "--shard", &shard, "--coordinate", &nats]);
    arguments.extend(options);
    if index == 0 {
        arguments.push("--json");
    }
    let command: Command = lan.machines[index].command(arguments[0], &arguments[1..]);
    workspace.start_command(command)
}

fn start_all(workspace: &Workspace, lan: &Lan, volume: Volume) -> Vec<Running> {
    let url = format!("http://{SERVER}:8080/");
    // The leader's runs are read by the test.
    let of = |index| if index == 0 { Volume::Shared } else { volume };
    (0..SHARDS).map(|index| start(workspace, lan, index, of(index), &url, SEARCH)).collect()
}

fn trials(document: &Value) -> &Vec<Value> {
    document["capacity"]["trials"].as_array().unwrap()
}

/// Folders of runs in a store.
fn runs(store: &Path) -> Vec<String> {
    let names = fs::read_dir(store).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.filter(|name| !name.starts_with('.')).collect()
}

fn lines_of_trials(stderr: &str) -> usize {
    stderr.lines().filter(|line| line.contains("this shard offered")).count()
}

/// Waits until a member has made so many trials.
fn wait_for_trials(member: &Running, count: usize) {
    let deadline = Instant::now() + SEARCH_TIMEOUT;
    while lines_of_trials(&member.stderr()) < count {
        assert!(Instant::now() < deadline, "timeout waiting for {count} trials: {}", member.stderr());
        sleep(Duration::from_millis(20));
    }
}

#[test]
fn three_machines_find_the_capacity_that_one_finds() {
    let workspace = Workspace::new();
    let lan = Lan::new(&workspace);
    let _model = model(&workspace, &lan);
    let _nats = nats(&workspace, &lan);
    let running = start_all(&workspace, &lan, Volume::Private);
    let outputs: Vec<_> = running.into_iter().map(|running| running.finish_within(SEARCH_TIMEOUT)).collect();
    let three = outputs[0].json();
    assert_known_capacity(&three);
    // A trial that was disturbed may have ended before its load.
    let is_made = |trial: &&Value| trial["verdict"] != "void";
    let (all, made) = (trials(&three).len(), trials(&three).iter().filter(is_made).count());
    for output in &outputs[1..] {
        assert!(output.code == Some(0) && (made..=all).contains(&lines_of_trials(&output.stderr)), "{output}");
        assert!(output.stderr.contains("the search is complete"), "{output}");
    }
    // The merged runs of long trials are stored with the search, and no parts.
    let leaders = store(&workspace, 0);
    let long: Vec<&Value> = trials(&three).iter().filter(|trial| trial["stage"] == "long").collect();
    let stored = long.iter().copied().filter(is_made).count() + 1..=long.len() + 1;
    assert!(!long.is_empty() && stored.contains(&runs(&leaders).len()), "{stored:?} {:?}", runs(&leaders));
    for trial in long.into_iter().filter(is_made) {
        let run = trial["run"].as_str().unwrap();
        let text = fs::read_to_string(leaders.join(run).join("summary.json")).unwrap();
        let document: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(document["run"]["shards"].as_array().unwrap().len(), SHARDS);
        let offered = document["load"]["offered_requests"].as_f64().unwrap();
        let planned = trial["load"].as_f64().unwrap() * trial["planned_s"].as_f64().unwrap();
        assert!((offered - planned).abs() <= 2.0, "{offered} of {planned}");
        let rows = ::store::read_requests(&leaders.join(run)).unwrap().count();
        assert!(rows as f64 >= offered, "{rows} rows of {offered} requests and a warm-up");
    }
    // Nothing of the parts is left.
    assert!(fs::read_dir(&leaders).unwrap().all(|entry| {
        let name = entry.unwrap().file_name().into_string().unwrap();
        !name.starts_with(".coordination-")
    }));
    let url = format!("http://{SERVER}:8080/");
    let arguments = [&["capacity", &url, "--json"][..], SEARCH].concat();
    let one = lan.machines[3].start(&workspace, &arguments).finish_within(SEARCH_TIMEOUT).json();
    assert_known_capacity(&one);
}

#[test]
fn a_killed_member_ends_the_search_by_its_name_with_the_result_so_far() {
    let workspace = Workspace::concurrent_as_root();
    let lan = Lan::new(&workspace);
    let _model = model(&workspace, &lan);
    let _nats = nats(&workspace, &lan);
    let mut running = start_all(&workspace, &lan, Volume::Shared);
    wait_for_trials(&running[1], 2);
    kill(&running.remove(2));
    let outputs: Vec<_> = running.into_iter().map(|running| running.finish_within(SEARCH_TIMEOUT)).collect();
    let document = outputs[0].json();
    assert_eq!((outputs[0].code, document["validity"]["verdict"].as_str()), (Some(3), Some("invalid")), "{document:#}");
    let notes = document["capacity"]["notes"].to_string();
    assert!(notes.contains("the search stopped") && notes.contains("2/3"), "{notes}");
    assert!(trials(&document).len() >= 2 && document["capacity"]["converged"] == false);
    // A trial in which the shard was lost is void by its name; between two trials there is none.
    for trial in trials(&document).iter().filter(|trial| trial["verdict"] == "void") {
        assert!(trial["why"].to_string().contains("(2/3)"), "{trial}");
    }
    assert_eq!(outputs[1].code, Some(3), "{}", outputs[1]);
    assert!(outputs[1].stderr.contains("2/3"), "{}", outputs[1]);
}

#[test]
fn members_of_a_killed_leader_end() {
    let workspace = Workspace::concurrent_as_root();
    let lan = Lan::new(&workspace);
    let _model = model(&workspace, &lan);
    let _nats = nats(&workspace, &lan);
    let mut running = start_all(&workspace, &lan, Volume::Shared);
    wait_for_trials(&running[1], 1);
    kill(&running.remove(0));
    for running in running {
        let output = running.finish_within(Duration::from_secs(60));
        assert_ne!(output.code, Some(0), "{output}");
        assert!(output.stderr.contains("the leader (shard 0) was lost"), "{output}");
    }
}

#[test]
fn a_nats_server_that_is_killed_and_started_again_does_not_end_the_search() {
    let workspace = Workspace::new();
    let lan = Lan::new(&workspace);
    let _model = model(&workspace, &lan);
    let server = nats(&workspace, &lan);
    let running = start_all(&workspace, &lan, Volume::Private);
    // The first time right after a trial, the second time three seconds later.
    let mut server = Some(server);
    for (made, pause) in [(1, Duration::ZERO), (3, Duration::from_secs(3))] {
        wait_for_trials(&running[1], made);
        sleep(pause);
        kill(server.as_ref().unwrap());
        drop(server.take());
        server = Some(nats(&workspace, &lan));
    }
    let outputs: Vec<_> = running.into_iter().map(|running| running.finish_within(SEARCH_TIMEOUT)).collect();
    assert!(outputs[0].stderr.contains("NATS is connected again"), "{}", outputs[0]);
    assert_known_capacity(&outputs[0].json());
    assert!(outputs[1..].iter().all(|output| output.code == Some(0)), "{}", outputs[1]);
}

#[test]
fn an_interrupt_at_the_leader_ends_the_search_of_all_and_resume_continues_it() {
    let workspace = Workspace::new();
    let lan = Lan::new(&workspace);
    let _model = model(&workspace, &lan);
    let _nats = nats(&workspace, &lan);
    let running = start_all(&workspace, &lan, Volume::Shared);
    // The leader has judged the first trial then. After a third one, the search may be over on a busy machine: two
    // disturbed trials of the same load end it.
    wait_for_trials(&running[1], 2);
    running[0].signal(Signal::SIGINT);
    let outputs: Vec<_> = running.into_iter().map(|running| running.finish_within(SEARCH_TIMEOUT)).collect();
    let partial = outputs[0].json();
    assert_eq!(partial["run"]["interrupted"], true, "{partial:#}");
    assert!(!trials(&partial).is_empty(), "{partial:#}");
    for output in &outputs[1..] {
        assert_eq!(output.code, Some(3), "{output}");
        assert!(output.stderr.contains("shard 0 was interrupted"), "{output}");
    }
    let url = format!("http://{SERVER}:8080/");
    let running: Vec<Running> = (0..SHARDS)
        .map(|index| match index {
            0 => {
                let (runs, program) = (format!("YAMABIKO_RUNS={}", store(&workspace, 0).display()), yamabiko());
                let (shard, nats) = (format!("0/{SHARDS}"), format!("nats://{SERVER}/test"));
                let options = ["--resume", "last", "--shard", &shard, "--coordinate", &nats, "--json"];
                let arguments = [&[&*runs, str_of(&program), "capacity"][..], &options].concat();
                workspace.start_command(lan.machines[0].command("env", &arguments))
            }
            _ => start(&workspace, &lan, index, Volume::Shared, &url, SEARCH),
        })
        .collect();
    let outputs: Vec<_> = running.into_iter().map(|running| running.finish_within(SEARCH_TIMEOUT)).collect();
    let whole = outputs[0].json();
    assert_known_capacity(&whole);
    let kept = trials(&partial).len();
    assert_eq!(trials(&whole)[..kept], trials(&partial)[..], "the trials before the interrupt");
}

/// Starts a machine's shard with a body from a file that has the same name on all machines.
fn start_with_body(workspace: &Workspace, lan: &Lan, index: usize, content: &str) -> Running {
    fs::create_dir_all(store(workspace, index)).unwrap();
    fs::write(store(workspace, index).join(".body"), content).unwrap();
    let options = [SEARCH, &["-m", "POST", "--body", "@/proc/self/cwd/.body"]].concat();
    start(workspace, lan, index, Volume::Shared, &format!("http://{SERVER}/10k.bin"), &options)
}

#[test]
fn a_shard_with_another_objective_or_another_file_is_refused_by_name_and_nothing_is_sent() {
    let workspace = Workspace::concurrent_as_root();
    let lan = Lan::new(&workspace);
    let _nginx = lan.server.nginx(&workspace, "machines", &["listen 80;"]);
    let _nats = nats(&workspace, &lan);
    let url = format!("http://{SERVER}/10k.bin");
    let other: Vec<&str> =
        SEARCH.iter().map(|word| if *word == "p90 < 60ms, errors < 1%" { "p90 < 61ms" } else { *word }).collect();
    for is_file in [false, true] {
        let [leader, member] = match is_file {
            true => [(0, "same"), (1, "other")].map(|(index, body)| start_with_body(&workspace, &lan, index, body)),
            false => [(0, SEARCH), (1, &other)]
                .map(|(index, options)| start(&workspace, &lan, index, Volume::Shared, &url, options)),
        };
        member.finish_within(SEARCH_TIMEOUT).refused(1, &["refused this shard", "its plan is another"]);
        wait_until("the leader reports it", || leader.stderr().contains("refused shard 1"));
        leader.signal(Signal::SIGINT);
        leader.finish_within(SEARCH_TIMEOUT);
    }
    assert_eq!(served(&workspace), 0);
}

#[test]
fn a_file_that_changes_on_one_machine_between_two_trials_ends_the_search_by_its_shard() {
    let workspace = Workspace::concurrent_as_root();
    let lan = Lan::new(&workspace);
    // Static files have an answer to POST.
    let _nginx = lan.server.nginx(&workspace, "machines", &["listen 80; error_page 405 =200 $uri;"]);
    let _nats = nats(&workspace, &lan);
    let running: Vec<Running> = (0..SHARDS).map(|index| start_with_body(&workspace, &lan, index, "same")).collect();
    wait_for_trials(&running[1], 1);
    fs::write(store(&workspace, 1).join(".body"), "other").unwrap();
    let outputs: Vec<_> = running.into_iter().map(|running| running.finish_within(SEARCH_TIMEOUT)).collect();
    let document = outputs[0].json();
    let notes = document["capacity"]["notes"].to_string();
    assert!(notes.contains("the trial of shard 1/3 is another"), "{notes}");
    assert!(!trials(&document).is_empty());
    for output in &outputs[1..] {
        assert_eq!(output.code, Some(3), "{output}");
        assert!(output.stderr.contains("the trial of shard 1/3 is another"), "{output}");
    }
}

#[test]
fn hosts_and_a_start_are_refused_and_so_is_a_server_of_the_testbed() {
    let workspace = Workspace::concurrent();
    let url = "http://192.0.2.1/";
    let slo = ["--slo", "p99 < 200ms"];
    let refused = |options: &[&str], words: &[&str]| {
        let arguments = [&["capacity", url][..], &slo, options].concat();
        workspace.run(&arguments).refused(1, words);
    };
    refused(&["--hosts", "a,b"], &["--hosts", "--coordinate"]);
    refused(&["--shard", "0/2", "--start-at", "2030-01-01T00:00:00Z"], &["--start-at", "--coordinate"]);
    let nats = ["--shard", "0/2", "--coordinate", "nats://127.0.0.1:1"];
    refused(&[&nats[..], &["--server", "nginx", "--rtt", "0ms"]].concat(), &["--server", "shard"]);
    refused(&[&nats[..], &["--no-save"]].concat(), &["--no-save"]);
    refused(&["--abort-on-lost"], &["--abort-on-lost"]);
    refused(&["--shard", "0/2", "--coordinate", "http://h"], &["nats://"]);
}
