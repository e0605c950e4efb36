//! `bench --shard` and `merge`: parts of a load on loopback, joined, refused, missing.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use nix::sys::signal::Signal;
use serde_json::Value;

use crate::support::canned_responses::{Server, response};
use crate::support::document::{assert_checks_passed, check, count};
use crate::support::workspace::{Running, Workspace, str_of, wait_until};

/// A time far enough ahead for a few shards to prepare.
fn soon() -> String {
    let at = SystemTime::now() + Duration::from_secs(4);
    at.duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs().to_string()
}

/// Options of a load of 300 requests/s.
const LOAD: &str = "-r 300/s -d 2s --warmup 500ms --arrivals poisson";

fn start(workspace: &Workspace, url: &str, shard: &str, start_at: &str, options: &str) -> Running {
    let mut arguments = vec!["bench", url, "--shard", shard, "--start-at", start_at, "--json"];
    arguments.extend(options.split_whitespace());
    workspace.start(&arguments)
}

/// The run's folder, from its document.
fn folder(document: &Value) -> PathBuf {
    PathBuf::from(document["run"]["dir"].as_str().unwrap())
}

fn made(workspace: &Workspace, url: &str, count: u32, options: &str) -> Vec<Value> {
    let at = soon();
    let running: Vec<Running> =
        (0..count).map(|index| start(workspace, url, &format!("{index}/{count}"), &at, options)).collect();
    running.into_iter().map(|running| running.finish().json()).collect()
}

fn merge(workspace: &Workspace, runs: &[PathBuf], options: &[&str]) -> Value {
    let runs = runs.iter().map(str_of);
    let arguments: Vec<&str> = ["merge", "--json"].into_iter().chain(options.iter().copied()).chain(runs).collect();
    workspace.run_json(&arguments)
}

/// Sequence number, scheduled time, client and URL of each request, by number.
fn rows(run: &Path) -> Vec<(u64, u64, u32, u32)> {
    let rows = store::read_requests(run).unwrap().map(Result::unwrap);
    let mut rows: Vec<_> = rows.map(|row| (row.sequence, row.scheduled_at.as_nanos(), row.client, row.url)).collect();
    rows.sort_unstable();
    rows
}

#[test]
fn three_shards_together_make_the_rows_of_one_and_merge_into_one_run() {
    let workspace = Workspace::concurrent();
    let server = Server::start(|_| response("200 OK", 100));
    let options = format!("{LOAD} --seed 7 --cookies --clients 12");
    let whole = made(&workspace, &server.url(), 1, &options);
    let shards = made(&workspace, &server.url(), 3, &options);
    let folders: Vec<PathBuf> = shards.iter().map(folder).collect();
    let output = workspace.path().join("whole");
    let merged = merge(&workspace, &folders, &["-o", str_of(&output)]);
    assert_eq!(folder(&merged), output);
    // The same requests, each of them once, at the same times on the run's clock.
    assert_eq!(rows(&output), rows(&folder(&whole[0])));
    assert_checks_passed(
        &merged,
        &["shards_complete", "shards_ended_together", "shards_cover_schedule", "shards_aligned", "conservation"],
    );
    let sum = |path: &str| shards.iter().map(|shard| count(shard, path)).sum::<u64>();
    for path in ["load.offered_requests", "load.completed", "load.bytes_received", "load.connections_opened"] {
        assert_eq!(count(&merged, path), sum(path), "{path}");
    }
    assert_eq!(count(&merged, "load.offered_requests"), count(&shards[1], "run.shard.arrivals_of_all"));
    assert_eq!(count(&merged, "load.response_time_ns.count"), count(&merged, "load.completed"));
    assert_eq!(count(&merged, "run.recorded.requests"), rows(&output).len() as u64);
    // Each shard says what it is a part of, and the whole says what its parts were.
    for (index, shard) in shards.iter().enumerate() {
        assert_eq!(count(shard, "run.shard.index"), index as u64);
        assert_eq!(shard["run"]["shard"]["plan_digest"], shards[0]["run"]["shard"]["plan_digest"]);
        assert_eq!(merged["run"]["shards"][index]["run"], shard["run"]["id"]);
        assert_eq!(merged["run"]["shards"][index]["offered_requests"], shard["load"]["offered_requests"]);
    }
    assert!(merged["run"].get("shard").is_none() && merged["run"]["shards"].as_array().unwrap().len() == 3);
    // The histogram has every value, and the largest of all shards.
    let histogram = store::read_histogram(&output, "response_time").unwrap();
    assert_eq!(histogram.len(), count(&merged, "load.response_time_ns.count"));
    let max = shards.iter().map(|shard| count(shard, "load.response_time_ns.max")).max().unwrap();
    assert_eq!(count(&merged, "load.response_time_ns.max"), max);
    let series = store::read_series(&output).unwrap().map(Result::unwrap);
    assert_eq!(series.map(|second| second.offered).sum::<u64>(), rows(&output).len() as u64);
    for file in
        ["requests/shard=0/requests.parquet", "requests/shard=2/requests.parquet", "series.parquet", "plan.toml"]
    {
        assert!(output.join(file).is_file(), "{file}");
    }
    assert!(
        !fs::read_to_string(output.join("plan.toml")).unwrap().contains("[shard]"),
        "the plan is that of the whole"
    );
    let text = workspace.run(&["report", str_of(&output)]);
    assert!(text.stdout.contains("3 of 3 parts of the load on 1 machines"), "{text}");
    let text = workspace.run(&["report", str_of(&folders[1])]);
    assert!(text.stdout.contains("part 1/3 of the load alone"), "{text}");
}

#[test]
fn a_closed_loop_is_divided_by_connections_and_requests() {
    let workspace = Workspace::concurrent();
    let server = Server::start(|_| response("200 OK", 10));
    let shards = made(&workspace, &server.url(), 2, "-c 5 -n 101");
    let offered: Vec<u64> = shards.iter().map(|shard| count(shard, "load.offered_requests")).collect();
    assert_eq!(offered, [51, 50]);
    let merged = merge(&workspace, &shards.iter().map(folder).collect::<Vec<_>>(), &[]);
    assert_eq!((count(&merged, "load.completed"), server.heads().len()), (101, 101));
    assert_eq!(check(&merged, "shards_ended_together")["state"], "not_applicable");
    assert_eq!(check(&merged, "shards_cover_schedule")["state"], "not_applicable");
}

#[test]
fn runs_of_different_loads_and_repeated_shards_are_refused() {
    let workspace = Workspace::concurrent();
    let server = Server::start(|_| response("200 OK", 10));
    let (at, load) = (soon(), "-r 50/s -d 1s --warmup 0s");
    let start = |shard: &str, options: &str| start(&workspace, &server.url(), shard, &at, &format!("{load} {options}"));
    let running = [
        start("0/2", ""),
        start("0/2", ""),
        start("1/2", "--seed 2"),
        start("1/2", "--cookies"),
        start("1/3", ""),
        // The name and the settings of the machine are no part of the load.
        start("1/2", "--name other --wait sleep"),
    ];
    let folders: Vec<PathBuf> = running.into_iter().map(|running| folder(&running.finish().json())).collect();
    let [first, twice, seed, plan, number, second] = &folders[..] else { unreachable!("six runs") };
    let refused = |runs: &[&PathBuf], words: &[&str]| {
        let runs: Vec<&str> = runs.iter().map(|run| str_of(*run)).collect();
        workspace.run(&[&["merge"], &runs[..]].concat()).refused(1, words);
    };
    refused(&[first, twice], &["shard 0/2 is given twice"]);
    refused(&[first, first], &["shard 0/2 is given twice"]);
    refused(&[first, seed], &["not shards of one load", "the seed of", "is 2"]);
    refused(&[first, plan], &["not shards of one load", "the plan (its digest)"]);
    refused(&[first, number], &["not shards of one load", "number of shards"]);
    merge(&workspace, &[first.clone(), second.clone()], &[]);
    // Another start is another run.
    let other = made(&workspace, &server.url(), 2, load);
    refused(&[first, &folder(&other[1])], &["not shards of one load", "the start of"]);
    // A run of a whole load, a damaged state.
    let alone = workspace.run_json(&["bench", &server.url(), "-c", "1", "-n", "3", "--json"]);
    refused(&[first, &folder(&alone)], &["is not the run of a shard"]);
    let state = second.join("shard.state");
    let mut bytes = fs::read(&state).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&state, &bytes).unwrap();
    refused(&[first, second], &["its checksum is wrong"]);
    fs::remove_file(&state).unwrap();
    refused(&[first, second], &["has no shard.state"]);
    let existing = workspace.path().join("www");
    workspace.run(&["merge", str_of(first), "-o", str_of(&existing)]).refused(1, &["www", "it exists already"]);
}

#[test]
fn a_missing_or_killed_shard_makes_the_whole_invalid_by_name() {
    let workspace = Workspace::concurrent();
    let server = Server::start(|_| response("200 OK", 10));
    let at = soon();
    let running: Vec<Running> = (0..3)
        .map(|index| start(&workspace, &server.url(), &format!("{index}/4"), &at, "-r 100/s -d 4s --warmup 0s"))
        .collect();
    let killed_run = || {
        let mut runs = fs::read_dir(workspace.runs()).unwrap().flatten().map(|run| run.path());
        runs.find(|run| fs::read_to_string(run.join("plan.toml")).is_ok_and(|plan| plan.contains("shard = \"2/4\"")))
    };
    wait_until("the third shard has made requests", || {
        killed_run().is_some_and(|run| run.join("requests/000001.parquet").exists())
    });
    running[2].signal(Signal::SIGKILL);
    let killed = killed_run().unwrap();
    let mut running = running.into_iter();
    let mut folders: Vec<PathBuf> = running.by_ref().take(2).map(|running| folder(&running.finish().json())).collect();
    drop(running);
    folders.push(killed.clone());
    let runs: Vec<&str> = folders.iter().map(str_of).collect();
    for (option, verdict, state) in [(None, "invalid", 3), (Some("--allow-missing"), "suspect", 0)] {
        let arguments: Vec<&str> = ["merge", "--json"].into_iter().chain(option).chain(runs.iter().copied()).collect();
        let output = workspace.run(&arguments);
        let merged = output.json();
        let complete = check(&merged, "shards_complete");
        assert_eq!((&complete["state"], complete["value"].as_f64()), (&"failed".into(), Some(2.0)), "{complete}");
        assert!(complete["why"].as_str().unwrap().contains("(2/4, 3/4)"), "{complete}");
        let shards = &merged["run"]["shards"];
        assert_eq!((&shards[2]["verdict"], &shards[3]["verdict"]), (&"missing".into(), &"missing".into()));
        assert_eq!(shards[2]["run"], killed.file_name().unwrap().to_str().unwrap());
        // Its part of the load is missing, not estimated.
        assert_eq!(count(&merged, "load.offered_requests"), 200, "{}", merged["load"]);
        if merged["validity"]["verdict"] != "invalid" || option.is_none() {
            assert_eq!((&merged["validity"]["verdict"], output.code), (&verdict.into(), Some(state)), "{output}");
        }
    }
    workspace.run(&["merge", str_of(&killed)]).refused(1, &["none of these runs has a result"]);
}

#[test]
fn a_start_that_passed_or_is_too_near_is_refused_and_nothing_is_sent() {
    let workspace = Workspace::concurrent();
    let server = Server::start(|_| response("200 OK", 10));
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    let refused = |shard: &[&str], at: &str, words: &[&str]| {
        let url = server.url();
        let arguments = [&["bench", &url, "-r", "10/s", "-d", "1s", "--start-at", at], shard].concat();
        workspace.run(&arguments).refused(1, words);
    };
    refused(&["--shard", "0/2"], "2026-01-01T00:00:00Z", &["2026-01-01T00:00:00Z", "has passed"]);
    refused(&[], &(now.as_secs() - 1).to_string(), &["has passed"]);
    refused(&[], "tomorrow", &["--start-at", "expected a time such as"]);
    for (options, words) in [
        (&["--shard", "2/2", "--start-at", "4000000000"][..], &["shard 2 of 2", "0 to 1"][..]),
        (&["--shard", "0/2"], &["--start-at"]),
        (&["--shard", "0/8", "--start-at", "4000000000", "-c", "7"], &["connections (-c) = 7", "8 shards"]),
        (&["--shard", "0/8", "--start-at", "4000000000", "--server", "x", "--rtt", "1ms"], &["--server", "by itself"]),
        (
            &["--shard", "0/8", "--start-at", "4000000000", "-r", "9/s", "--rtt", "1ms", "--clients", "7"],
            &["clients = 7"],
        ),
        (
            &["--shard", "0/8", "--start-at", "4000000000", "--rtt", "1ms", "-c", "16", "--clients", "12"],
            &["multiple of the 8"],
        ),
    ] {
        workspace.run(&[&["bench", &server.url(), "-d", "1s"], options].concat()).refused(1, words);
    }
    assert_eq!(server.heads().len(), 0);
    // A wait ends with Ctrl-C, without a run.
    let at = (now.as_secs() + 3_600).to_string();
    let waiting = workspace.start(&["bench", &server.url(), "-r", "10/s", "-d", "1s", "--start-at", &at]);
    wait_until("the run waits", || fs::read_dir(workspace.runs()).unwrap().count() == 1);
    std::thread::sleep(Duration::from_millis(300));
    waiting.signal(Signal::SIGINT);
    let output = waiting.finish();
    assert_eq!(output.code, Some(2), "{output}");
    assert!(output.stderr.contains("interrupted before the start"), "{output}");
    assert_eq!(fs::read_dir(workspace.runs()).unwrap().count(), 0);
    assert_eq!(server.heads().len(), 0);
}

#[test]
fn a_plan_file_has_the_shard_and_refuses_a_capacity() {
    let workspace = Workspace::concurrent();
    let url = "http://127.0.0.1:9/";
    let plan = workspace
        .run(&["bench", url, "-r", "8/s", "--shard", "3/8", "--start-at", "2030-01-01T00:00:00Z", "--print-plan"])
        .success();
    assert!(plan.stdout.contains("[shard]\nshard = \"3/8\"\nstart_at = \"2030-01-01T00:00:00Z\""), "{plan}");
    let file = workspace.file("plan.toml");
    let text = "[load]\nurl = \"http://127.0.0.1:9/\"\nduration = \"1s\"\n[shard]\nshard = \"0/2\"\n";
    fs::write(&file, text).unwrap();
    workspace.run(&["run", str_of(&file)]).refused(1, &["--shard", "needs start_at"]);
    fs::write(&file, format!("{text}start_at = \"2030-01-01\"\n")).unwrap();
    workspace.run(&["run", str_of(&file)]).refused(1, &["plan.toml:6", "RFC 3339"]);
    fs::write(&file, format!("slo = \"p99 < 1s\"\n{text}start_at = \"2030-01-01T00:00:00Z\"\n[capacity]\n")).unwrap();
    workspace.run(&["run", str_of(&file)]).refused(1, &["start_at", "[capacity]", "--coordinate"]);
}
