//! Limits built on purpose with a real server and kernel TCP, each to be named by one run of `explain`.

use std::fs;

use serde_json::Value;

use crate::support::servers::yamabiko_serve;
use crate::support::workspace::{Workspace, str_of};

/// A run of `explain` against a server with a file of `bytes` bytes; its JSON document.
fn explained(workspace: &Workspace, server: &str, bytes: usize, options: &str) -> Value {
    fs::write(workspace.www().join("file.bin"), vec![b'x'; bytes]).unwrap();
    let mut words = vec!["explain", "http://server:8080/file.bin", "--server", server, "--json"];
    words.extend(options.split_whitespace());
    workspace.run_json(&words)
}

/// The cause or limit that dominates the median response, and its share of the time.
fn median_limit(document: &Value) -> (String, f64) {
    let group = &document["summary"]["percentiles"][0];
    let dominant = &group["dominant"];
    let limit = &dominant["limit"];
    let name = limit.as_str().or(limit["of"].as_str()).unwrap_or_default().to_owned();
    (name, dominant["time_ns"].as_f64().unwrap() / group["response_time_ns"].as_f64().unwrap())
}

/// The share of the median response that is unknown.
fn unknown(document: &Value) -> f64 {
    let group = &document["summary"]["percentiles"][0];
    let share = group["shares"].as_array().unwrap().iter().find(|share| share["cause"] == "unknown");
    share.map_or(0.0, |share| share["time_ns"].as_f64().unwrap() / group["response_time_ns"].as_f64().unwrap())
}

#[test]
fn explain_names_the_initial_window_of_a_new_connection() {
    let workspace = Workspace::new();
    let options = "--rtt 60ms --server-tcp initcwnd=2 --close -r 10/s -d 4s";
    let document = explained(&workspace, &yamabiko_serve(&workspace), 100_000, options);
    let (limit, share) = median_limit(&document);
    assert!(limit == "congestion_window" && share > 0.4, "{limit} {share}: {}", document["summary"]["sentence"]);
    let sentence = document["summary"]["sentence"].as_str().unwrap();
    assert!(sentence.contains("initial window is 2 segments"), "{sentence}");
    assert!(unknown(&document) < 0.05, "{document}");
}

#[test]
fn explain_names_the_rate_of_a_slow_link() {
    let workspace = Workspace::new();
    let options = "--rtt 20ms --down 2Mbit --close -r 1/s -d 5s --clients 20";
    let document = explained(&workspace, &yamabiko_serve(&workspace), 200_000, options);
    let (limit, share) = median_limit(&document);
    assert!(limit == "bottleneck_rate" && share > 0.7, "{limit} {share}: {}", document["summary"]["sentence"]);
    assert!(unknown(&document) < 0.05, "{document}");
}

/// wrk2's example of coordinated omission: a server that stops for 1.4 s.
#[test]
fn explain_names_a_server_that_stops_for_1400_ms_at_p99() {
    let workspace = Workspace::new();
    let serve = yamabiko_serve(&workspace);
    let serve = serve.strip_prefix("exec ").unwrap();
    let stopped = format!("{serve} & p=$!; sleep 4; kill -STOP $p; sleep 1.4; kill -CONT $p; wait $p");
    let document = explained(&workspace, &stopped, 10_000, "--rtt 20ms -r 50/s -d 6s");
    let sentence = document["summary"]["sentence"].as_str().unwrap();
    assert!(sentence.contains("the median response"), "{sentence}");
    let tail = sentence.split("Of the p99 response of 1.").nth(1);
    assert!(tail.is_some_and(|tail| tail.ends_with("% is server processing.")), "{sentence}");
}

#[test]
fn explain_of_a_stored_run_is_that_of_the_run_itself() {
    let workspace = Workspace::new();
    fs::write(workspace.www().join("file.bin"), vec![b'x'; 50_000]).unwrap();
    let server = yamabiko_serve(&workspace);
    let words =
        ["bench", "http://server:8080/file.bin", "--server", &server, "--rtt", "30ms", "-r", "20/s", "-d", "2s"];
    let run = workspace.run_json(&[&words[..], &["--explain", "--json"]].concat());
    let again = workspace.run_json(&["explain", "last", "--json"]);
    assert_eq!(run["explain"]["summary"], again["summary"]);
    let page = workspace.file("page.html");
    workspace.run(&["explain", "last", "--html", str_of(&page)]).success();
    let html = fs::read_to_string(&page).unwrap();
    assert!(html.contains("Single responses") && html.contains("sent by the server"));
}
