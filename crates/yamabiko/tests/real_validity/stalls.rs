//! Runs whose generator is stopped for some milliseconds at a time, in open and closed loops, with and without
//! a path: the run shows that its figures are not affected, or quantifies the effect.

use std::thread::sleep;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use serde_json::Value;

use crate::support::document::{assert_checks_passed, check, checks_not_ok, count, number};
use crate::support::servers::{bench, yamabiko_serve};
use crate::support::workspace::{Running, Workspace, wait_until};

/// Percentiles that ten seconds at 300/s determine, and the share of the requests above each.
const PERCENTILES: [(&str, f64); 4] = [("p50", 0.5), ("p90", 0.1), ("p95", 0.05), ("p99", 0.01)];

/// Stops the program for `duration` in intervals of `interval`, from the first stored part until the program has ended.
fn stop_repeatedly(running: &mut Running, duration: Duration, interval: Duration) {
    while !running.ended() {
        let began = Instant::now();
        running.signal(Signal::SIGSTOP);
        sleep(duration);
        running.signal(Signal::SIGCONT);
        sleep(interval.saturating_sub(began.elapsed()));
    }
}

/// `yamabiko serve` for runs without a path.
fn served(workspace: &Workspace) -> (Running, String) {
    let www = workspace.www();
    let serving = workspace.start(&["serve", www.to_str().unwrap(), "--listen", "127.0.0.1:0"]);
    let mut url = String::new();
    wait_until("the server prints its address", || {
        let stderr = serving.stderr();
        let address = stderr.split_once("http://").and_then(|(_, rest)| rest.split_once('/'));
        url = address.map(|(address, _)| format!("http://{address}/10k.bin")).unwrap_or_default();
        !url.is_empty()
    });
    (serving, url)
}

/// Asserts that every percentile is within the bound that the run reports for the generator's effect.
fn assert_bounded(quiet: &Value, document: &Value, what: &str) {
    let requests = count(document, "load.response_time_ns.count") as f64;
    for (name, _) in PERCENTILES.into_iter().filter(|(_, beyond)| requests * beyond >= 20.0) {
        let of = |document: &Value, part: &str| number(document, &format!("load.{part}.{name}"));
        let (is, was) = (of(document, "response_time_ns"), of(quiet, "response_time_ns"));
        let bound = of(document, "generator_delay.response_time_ns");
        // A busy machine alone can double a percentile, or add a millisecond.
        assert!(is - bound <= (2.0 * was).max(was + 1e6), "{what}: {name} is {is}, was {was}, bound {bound}");
        let material = (0.01 * is).max(50e3);
        if bound > material {
            assert!(
                checks_not_ok(document).contains(&"generator_on_time"),
                "{what}: {name} {is} {bound}: {}",
                document["validity"]
            );
        }
    }
}

#[test]
fn a_short_stop_of_the_generator_is_reported_with_its_effect() {
    let workspace = Workspace::new();
    let server = yamabiko_serve(&workspace);
    let (_serving, url) = served(&workspace);
    let far = ["--rtt 8ms -c 8 -d 3s --warmup 500ms --json", "--rtt 8ms --rate 400/s -d 3s --warmup 500ms --json"];
    let near = ["-c 2 -d 3s --warmup 500ms --json", "--rate 400/s -d 3s --warmup 500ms --json"];
    let far = far.map(|options| bench(&server, options));
    let near = near.map(|options| ["bench", &url].into_iter().chain(options.split_whitespace()).collect::<Vec<_>>());
    for arguments in far.iter().chain(&near) {
        let quiet = workspace.run(arguments).json();
        for (lasts_ms, every_ms) in [(3, 40), (5, 200), (8, 100), (15, 100), (30, 400)] {
            let mut running = workspace.start(arguments);
            stop_repeatedly(&mut running, Duration::from_millis(lasts_ms), Duration::from_millis(every_ms));
            let document = running.finish().json();
            let what = format!("{lasts_ms} ms every {every_ms} ms: {}", arguments.join(" "));
            assert_bounded(&quiet, &document, &what);
            assert_checks_passed(&document, &["conservation"]);
            // The run reports the stops, each to within about one measuring interval.
            let stalled = number(&document, "load.generator_delay.stalled_ns") / 1e9;
            let expected_s = 3.0 * lasts_ms as f64 / every_ms as f64;
            assert!(stalled > 0.6 * expected_s, "{what}: {stalled} s of {expected_s}");
            // A stall counts from the next scheduled request: with 400 requests per second, on average 2.5 ms after the
            // stop began. In a run with several stops, some begin shortly before a scheduled request.
            let longest_ns = count(&document, "load.generator_delay.stall_max_ns");
            assert!(longest_ns >= lasts_ms * 750_000, "{what}: the longest stall is {longest_ns} ns");
            if count(&document, "load.generator_delay.stalled_ns") > 30_000_000 && document["load"]["loop"] == "closed"
            {
                assert!(checks_not_ok(&document).contains(&"loop_not_stalled"), "{what}: {}", document["validity"]);
            }
        }
    }
}

/// Thirty stops of 15 ms in a closed loop with response times of 8 ms. An early version called such a run valid, with a
/// p99 of 17 ms.
#[test]
fn thirty_short_generator_stops_in_a_closed_loop_are_detected() {
    let workspace = Workspace::new();
    let server = yamabiko_serve(&workspace);
    let mut running = workspace.start(&bench(&server, "--rtt 8ms -c 1 -d 10s --warmup 0s --json"));
    sleep(Duration::from_secs(1));
    for _ in 0..30 {
        assert!(!running.ended());
        running.signal(Signal::SIGSTOP);
        sleep(Duration::from_millis(15));
        running.signal(Signal::SIGCONT);
        sleep(Duration::from_millis(185));
    }
    let document = running.finish().json();
    assert_ne!(document["validity"]["verdict"], "valid");
    for name in ["generator_on_time", "loop_not_stalled"] {
        assert!(checks_not_ok(&document).contains(&name), "{}", document["validity"]);
        // The number of requests, and so the affected percentiles, depend on the machine's speed.
        assert!(check(&document, name)["why"].as_str().unwrap().contains(" by up to "), "{}", document["validity"]);
    }
    assert!(count(&document, "load.generator_delay.stalls") >= 30);
}

/// Of two load processes, the one that also runs the path is stopped: requests in flight of the other one wait,
/// too.
#[test]
fn a_stopped_path_is_detected_by_every_load_process() {
    let workspace = Workspace::new();
    let server = yamabiko_serve(&workspace);
    let mut limited = std::process::Command::new("prlimit");
    limited.arg("--nofile=256").arg(crate::support::workspace::yamabiko());
    limited.args(bench(&server, "--rtt 8ms --clients 200 -c 200 --rate 1000/s -d 4s --warmup 500ms --json"));
    let mut running = workspace.start_command(limited);
    stop_repeatedly(&mut running, Duration::from_millis(10), Duration::from_millis(200));
    let document = running.finish().json();
    assert_eq!(document["run"]["host"]["settings"]["processes"], "2", "{document}");
    assert!(checks_not_ok(&document).contains(&"generator_on_time"), "{}", document["validity"]);
    let delayed = count(&document, "load.generator_delay.response_time_ns.count") as f64;
    let all = count(&document, "load.response_time_ns.count") as f64;
    // A stop affects requests that are scheduled during it or in flight, half of which are the other process's: those
    // of about 18 ms of each 200 ms.
    assert!(delayed > 0.08 * all, "{delayed} of {all}");
}
