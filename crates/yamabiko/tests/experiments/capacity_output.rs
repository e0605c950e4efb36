//! `yamabiko capacity` against a server of known capacity on loopback, without privilege: output, stored run, and
//! resuming after an interruption. A busy machine may disturb trials, so no figure is checked.

use std::fs;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::support::model_server::ModelServer;
use crate::support::workspace::{TEST_TIMEOUT, Workspace};
use nix::sys::signal::Signal;
use serde_json::Value;

/// Trials of half a second, and a wide bracket.
const SHORT: &[&str] = &[
    "--slo",
    "p50 < 100ms, errors < 5%",
    "--start",
    "100/s",
    "--max",
    "2000/s",
    "--short",
    "500ms",
    "--trial",
    "500ms",
    "--confirm",
    "500ms",
    "--width",
    "30%",
    "--searches",
    "2",
    "--warmup",
    "100ms",
    "--connect-timeout",
    "2s",
    "--timeout",
    "2s",
];

fn capacity(workspace: &Workspace, url: &str, more: &[&str]) -> crate::support::workspace::Output {
    let words: Vec<&str> =
        ["capacity", url].into_iter().chain(SHORT.iter().copied()).chain(more.iter().copied()).collect();
    workspace.run(&words)
}

/// Arguments of a capacity search without the bracket.
fn search_arguments<'a>(url: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    let at = SHORT.iter().position(|word| *word == "--start").unwrap();
    let short = SHORT.iter().enumerate().filter(|(index, _)| !(at..at + 4).contains(index)).map(|(_, word)| *word);
    ["capacity", url].into_iter().chain(short).chain(more.iter().copied()).collect()
}

fn trials(document: &Value) -> &Vec<Value> {
    document["capacity"]["trials"].as_array().unwrap()
}

/// The folder of the only capacity search in the run store.
fn folder(workspace: &Workspace) -> PathBuf {
    let runs = fs::read_dir(workspace.runs()).unwrap().map(|entry| entry.unwrap().path());
    let mut with: Vec<PathBuf> = runs.filter(|run| run.join("trials.jsonl").exists()).collect();
    assert_eq!(with.len(), 1, "{with:?}");
    with.remove(0)
}

fn lines(folder: &Path) -> Vec<Value> {
    let text = fs::read_to_string(folder.join("trials.jsonl")).unwrap_or_default();
    text.split_inclusive('\n')
        .filter(|line| line.ends_with('\n'))
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

#[test]
fn a_capacity_search_is_stored_and_reported_again_completely() {
    let workspace = Workspace::concurrent();
    let server = ModelServer::start(4, Duration::from_millis(20));
    let output = capacity(&workspace, &server.url(), &["--json", "--no-overload"]);
    output.assert_measured();
    assert_eq!(output.stderr, "", "{output}");
    let document = output.json();
    assert_eq!(document["schema"], "yamabiko.run/2");
    let part = &document["capacity"];
    assert_eq!((part["objective"].as_str(), part["find"].as_str()), (Some("p50 < 100ms, errors < 5%"), Some("rate")));
    assert!(part["bound_by"]["name"].is_string() && part["warmup_s"] == 0.1, "{part:#}");
    assert!(!trials(&document).is_empty());
    for trial in trials(&document) {
        assert!(["good", "bad", "client", "void"].contains(&trial["verdict"].as_str().unwrap()), "{trial}");
        assert!(trial["load"].as_f64().unwrap() > 0.0 && trial["response_time_ns"]["count"].is_u64(), "{trial}");
        assert_eq!(trial["verdict"] == "good", trial["why"].as_array().unwrap().is_empty(), "{trial}");
    }
    let checks: Vec<&str> = document["validity"]["checks"]
        .as_array()
        .unwrap()
        .iter()
        .map(|check| check["name"].as_str().unwrap())
        .collect();
    for name in [
        "generator_headroom",
        "search_converged",
        "confirmed",
        "trials_valid",
        "warmup_enough",
        "searches_alike",
        "host_undisturbed",
    ] {
        assert!(checks.contains(&name), "{name}: {checks:?}");
    }
    assert_eq!((part["unit"].as_str(), &part["result"]), (Some("1/s"), &part["rate_per_s"]));
    if part["converged"] == true {
        let rate = part["rate_per_s"].as_f64().unwrap();
        let [low, high] = [0, 1].map(|end| part["interval"][end].as_f64().unwrap());
        // No disturbance explains half or twice the capacity.
        assert!((100.0..400.0).contains(&rate) && low <= high, "{rate} {low} {high}");
        assert_eq!(part["searches"].as_array().unwrap().len(), 2);
    }
    // The journal has the same trials, after a line on the machine.
    let folder = folder(&workspace);
    let journal = lines(&folder);
    assert!(journal[0]["begun"]["version"].is_string(), "{}", journal[0]);
    assert_eq!(journal.iter().filter_map(|line| line.get("trial")).cloned().collect::<Vec<_>>(), *trials(&document));
    // Long trials are stored as runs of their own.
    for run in trials(&document).iter().filter_map(|trial| trial["run"].as_str()) {
        assert!(workspace.runs().join(run).join("summary.json").exists(), "{run}");
    }
    let id = document["run"]["id"].as_str().unwrap();
    assert_eq!(workspace.run(&["report", id, "--json"]).json(), document);
    let again = workspace.run(&["report", id]);
    assert!(again.stdout.contains("p50 < 100ms, errors < 5%") && again.stdout.contains("short"), "{again}");
    let page = fs::read_to_string(folder.join("report.html")).unwrap();
    // Void trials and trials that the client limited are not in the plot.
    let judged = |trial: &Value| {
        let is_one = |name: &str, of: &[&str]| of.iter().any(|word| trial[name] == *word);
        is_one("verdict", &["good", "bad"]) && is_one("stage", &["short", "long", "confirmation", "overload"])
    };
    assert_eq!(page.contains("Response time against load"), trials(&document).iter().any(judged), "{document:#}");
    assert!(page.contains("Every trial"));
    workspace.run(&["report", id, "--export", "hlog", "-"]).refused(1, &["several runs"]);
    workspace.run(&["runs"]).stdout.contains(id).then_some(()).expect("the list contains the search");
}

#[test]
fn an_interrupted_capacity_search_is_stored_and_resumes() {
    let workspace = Workspace::concurrent();
    let server = ModelServer::start(4, Duration::from_millis(20));
    let url = server.url();
    let words: Vec<&str> =
        ["capacity", &url].into_iter().chain(SHORT.iter().copied()).chain(["--no-overload", "--json"]).collect();
    let running = workspace.start(&words);
    let began = Instant::now();
    let made = || {
        let runs = fs::read_dir(workspace.runs()).unwrap().map(|entry| entry.unwrap().path().join("trials.jsonl"));
        runs.filter_map(|file| fs::read_to_string(file).ok()).map(|text| text.matches('\n').count()).max().unwrap_or(0)
    };
    while made() < 3 {
        assert!(began.elapsed() < TEST_TIMEOUT, "a trial completes before the timeout");
        sleep(Duration::from_millis(20));
    }
    running.signal(Signal::SIGINT);
    let output = running.finish();
    assert_eq!(output.code, Some(3), "{output}");
    let first = output.json();
    assert_eq!(
        (&first["run"]["interrupted"], &first["capacity"]["converged"]),
        (&Value::from(true), &Value::from(false))
    );
    assert!(first["capacity"]["notes"][0].as_str().unwrap().starts_with("Stopped early"), "{first:#}");
    // An incomplete last line of the journal counts as no trial.
    let journal = folder(&workspace).join("trials.jsonl");
    let text = fs::read_to_string(&journal).unwrap();
    fs::write(&journal, format!("{text}{{\"trial\":{{\"stage\":")).unwrap();
    let output = workspace.run(&["capacity", "--resume", first["run"]["id"].as_str().unwrap(), "--json"]);
    output.assert_measured();
    let complete = output.json();
    assert_eq!(trials(&complete)[..trials(&first).len()], trials(&first)[..]);
    assert!(trials(&complete).len() > trials(&first).len());
    assert_eq!(complete["capacity"]["resumed_at"].as_array().unwrap().len(), 1);
    assert_eq!((&complete["run"]["id"], &complete["run"]["command"]), (&first["run"]["id"], &first["run"]["command"]));
}

#[test]
fn a_capacity_search_by_users_uses_the_think_time() {
    let workspace = Workspace::concurrent();
    // Capacity 200/s, think time 300 ms, response time up to 100 ms: about 80 users.
    let server = ModelServer::start(4, Duration::from_millis(20));
    let more = ["--find", "users", "--think", "300ms", "--no-overload", "--start", "40", "--max", "400", "--json"];
    let output = workspace.run(&search_arguments(&server.url(), &more));
    output.assert_measured();
    let document = output.json();
    let part = &document["capacity"];
    assert_eq!((part["find"].as_str(), part["unit"].as_str()), (Some("users"), Some("users")));
    let of_users = trials(&document).iter().filter(|trial| trial["stage"] == "short");
    for trial in of_users {
        assert_eq!(trial["load"].as_f64().unwrap().fract(), 0.0, "{trial}");
        // A trial lasts at least three think times, independent of --trial.
        assert_eq!(trial["planned_s"].as_f64(), Some(0.9), "{trial}");
    }
    if part["converged"] == true {
        let (users, rate) = (part["result"].as_f64().unwrap(), part["rate_per_s"].as_f64().unwrap());
        assert!((40.0..=160.0).contains(&users) && rate <= users / 0.3, "{users} users, {rate}/s");
    }
    let id = document["run"]["id"].as_str().unwrap();
    let again = workspace.run(&["report", id]);
    assert!(again.stdout.contains(" users"), "{again}");
}

#[test]
fn capacity_searches_open_connections_and_new_connections() {
    let workspace = Workspace::concurrent();
    let server = ModelServer::start(4, Duration::from_millis(1));
    let more = ["--find", "connections", "--start", "10", "--max", "20", "--json"];
    let output = workspace.run(&search_arguments(&server.url(), &more));
    assert_eq!(output.code, Some(3), "{output}");
    let document = output.json();
    let part = &document["capacity"];
    assert_eq!((part["find"].as_str(), part["unit"].as_str()), (Some("connections"), Some("connections")));
    // Rates up to 20 hold, so the capacity is unknown, and the result reports that.
    assert!(part["result"].is_null() && part["notes"].as_array().is_some_and(|notes| !notes.is_empty()), "{part:#}");
    for trial in trials(&document).iter().filter(|trial| trial["verdict"] == "good" && trial["load"] == 20.0) {
        assert!((trial["connections"].as_f64().unwrap() - 20.0).abs() < 0.5, "{trial}");
    }
    let more = ["--find", "new-connections", "--start", "20/s", "--max", "40/s", "--no-limit", "--json"];
    let output = workspace.run(&search_arguments(&server.url(), &more));
    assert_eq!(output.code, Some(3), "{output}");
    assert_eq!(output.json()["capacity"]["find"], "new-connections");
}

#[test]
fn a_printed_capacity_plan_reads_back_and_contradictions_are_refused() {
    let workspace = Workspace::concurrent();
    let url = "http://127.0.0.1:9/";
    let printed = capacity(&workspace, url, &["--print-plan"]);
    assert_eq!(printed.code, Some(0), "{printed}");
    let file = workspace.file("plan.toml");
    fs::write(&file, &printed.stdout).unwrap();
    let file = file.to_str().unwrap();
    for words in [&["capacity", file, "--print-plan"][..], &["run", file, "--print-plan"]] {
        assert_eq!(workspace.run(words).stdout, printed.stdout, "{words:?}");
    }
    let wider = workspace.run(&["capacity", file, "--width", "10%", "--slo", "p90 < 1s", "--print-plan"]);
    assert!(wider.stdout.contains("width = 0.1") && wider.stdout.contains("p90 < 1s"), "{wider}");
    workspace.run(&["capacity", file, "--clients", "7"]).refused(1, &["a plan file"]);
    workspace.run(&["capacity", url]).refused(1, &["objective", "--slo"]);
    workspace.run(&["capacity", url, "--slo", "errors < 1%"]).refused(1, &["response times"]);
    workspace.run(&["capacity", url, "--slo", "p99 < 1s", "--rate", "10/s"]).refused(1, &["--rate", "--start"]);
    workspace.run(&["capacity", url, "--slo", "p99 < 1s", "-d", "10s"]).refused(1, &["--trial"]);
    workspace.run(&["capacity", url, "--slo", "p99 < 1s", "--each", "rtt:48"]).refused(1, &["48"]);
    workspace
        .run(&["capacity", url, "--slo", "p99.99 < 1s", "--max", "10/s"])
        .refused(1, &["too few requests", "--trial"]);
    let find_arguments = |find: &'static str| ["capacity", url, "--slo", "p99 < 1s", "--find", find];
    workspace.run(&find_arguments("users")).refused(1, &["--think"]);
    workspace.run(&find_arguments("sessions")).refused(1, &["new-connections"]);
    workspace
        .run(&[&find_arguments("users")[..], &["--think", "7s", "--clients", "5"]].concat())
        .refused(1, &["--clients"]);
    workspace
        .run(&[&find_arguments("users")[..], &["--think", "7s", "--start", "10/s"]].concat())
        .refused(1, &["whole number"]);
    workspace.run(&[&find_arguments("connections")[..], &["--think", "7s"]].concat()).refused(1, &["--find users"]);
    workspace.run(&[&find_arguments("connections")[..], &["--close"]].concat()).refused(1, &["--close"]);
    workspace.run(&[&find_arguments("new-connections")[..], &["--keepalive"]].concat()).refused(1, &["--keepalive"]);
    let printed = workspace
        .run(&[&find_arguments("users")[..], &["--think", "exponential:7s", "--max", "500", "--print-plan"]].concat());
    assert!(printed.stdout.contains("find = \"users\"") && printed.stdout.contains("70s"), "{printed}");
    fs::write(file, &printed.stdout).unwrap();
    assert_eq!(workspace.run(&["capacity", file, "--print-plan"]).stdout, printed.stdout);
    workspace.run(&["capacity", "--resume", "nothing"]).refused(1, &["nothing"]);
    // No server listens: the first trial gets no response, and the result reports that.
    let refused = workspace.run(&["capacity", url, "--slo", "p99 < 1s", "--json"]);
    assert_eq!(refused.code, Some(3), "{refused}");
}
