//! A generator that is stopped for some milliseconds at a time, in open and closed loops, with and without a path: the
//! effect on reported figures is excluded, or the run quantifies it.

use std::thread::sleep;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use serde_json::Value;

use crate::support::document::{assert_held, broken, check, count, number};
use crate::support::servers::{bench, own};
use crate::support::workspace::{Running, Workspace, wait_until};

/// Percentiles that ten seconds at 300/s and more know, and the share of the requests beyond each.
const KNOWN: [(&str, f64); 4] = [("p50", 0.5), ("p90", 0.1), ("p95", 0.05), ("p99", 0.01)];

/// Stops the program for `lasts` every `every`, from the first part of the run store on, until it has ended.
fn stopped(running: &mut Running, lasts: Duration, every: Duration) {
    while !running.ended() {
        let began = Instant::now();
        running.signal(Signal::SIGSTOP);
        sleep(lasts);
        running.signal(Signal::SIGCONT);
        sleep(every.saturating_sub(began.elapsed()));
    }
}

/// `yamabiko serve` for runs without a path.
fn served(workspace: &Workspace) -> (Running, String) {
    let www = workspace.www();
    let serving = workspace.start(&["serve", www.to_str().unwrap(), "--listen", "127.0.0.1:0"]);
    let mut url = String::new();
    wait_until("the server's address", || {
        let said = serving.stderr();
        let address = said.split_once("http://").and_then(|(_, rest)| rest.split_once('/'));
        url = address.map(|(address, _)| format!("http://{address}/10k.bin")).unwrap_or_default();
        !url.is_empty()
    });
    (serving, url)
}

/// What every judged percentile would be at least without the generator, as the run itself says.
fn assert_bounded(quiet: &Value, document: &Value, what: &str) {
    let requests = count(document, "load.response_time_ns.count") as f64;
    for (name, _) in KNOWN.into_iter().filter(|(_, beyond)| requests * beyond >= 20.0) {
        let of = |document: &Value, part: &str| number(document, &format!("load.{part}.{name}"));
        let (is, was) = (of(document, "response_time_ns"), of(quiet, "response_time_ns"));
        let bound = of(document, "generator_delay.response_time_ns");
        // Twice as long, or a millisecond longer, a machine may make it by itself.
        assert!(is - bound <= (2.0 * was).max(was + 1e6), "{what}: {name} is {is}, was {was}, bound {bound}");
        let material = (0.01 * is).max(50e3);
        if bound > material {
            assert!(
                broken(document).contains(&"generator_on_time"),
                "{what}: {name} {is} {bound}: {}",
                document["validity"]
            );
        }
    }
}

#[test]
fn a_short_stop_of_the_generator_is_reported_with_its_effect() {
    let workspace = Workspace::new();
    let server = own(&workspace);
    let (_serving, url) = served(&workspace);
    let far = ["--rtt 8ms -c 8 -d 3s --warmup 500ms --json", "--rtt 8ms --rate 400/s -d 3s --warmup 500ms --json"];
    let near = ["-c 2 -d 3s --warmup 500ms --json", "--rate 400/s -d 3s --warmup 500ms --json"];
    let far = far.map(|options| bench(&server, options));
    let near = near.map(|options| ["bench", &url].into_iter().chain(options.split_whitespace()).collect::<Vec<_>>());
    for arguments in far.iter().chain(&near) {
        let quiet = workspace.run(arguments).json();
        for (lasts_ms, every_ms) in [(3, 40), (5, 200), (8, 100), (15, 100), (30, 400)] {
            let mut running = workspace.start(arguments);
            stopped(&mut running, Duration::from_millis(lasts_ms), Duration::from_millis(every_ms));
            let document = running.finish().json();
            let what = format!("{lasts_ms} ms every {every_ms} ms: {}", arguments.join(" "));
            assert_bounded(&quiet, &document, &what);
            assert_held(&document, &["conservation"]);
            // What was stopped was seen, to a beat or so each time.
            let stalled = number(&document, "load.generator_delay.stalled_ns") / 1e9;
            let meant = 3.0 * lasts_ms as f64 / every_ms as f64;
            assert!(stalled > 0.6 * meant, "{what}: {stalled} s of {meant}");
            assert!(count(&document, "load.generator_delay.stall_max_ns") >= (lasts_ms - 1) * 1_000_000, "{what}");
            if count(&document, "load.generator_delay.stalled_ns") > 30_000_000 && document["load"]["loop"] == "closed"
            {
                assert!(broken(&document).contains(&"loop_not_stalled"), "{what}: {}", document["validity"]);
            }
        }
    }
}

/// Thirty of 15 ms in a closed loop whose pages take 8 ms: once valid, with a p99 of 17 ms.
#[test]
fn thirty_short_generator_stops_in_a_closed_loop_are_detected() {
    let workspace = Workspace::new();
    let server = own(&workspace);
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
        assert!(broken(&document).contains(&name), "{}", document["validity"]);
        // Of how many requests depends on the machine's speed, and so which figures they move.
        assert!(check(&document, name)["why"].as_str().unwrap().contains(" by up to "), "{}", document["validity"]);
    }
    assert!(count(&document, "load.generator_delay.stalls") >= 30);
}

/// Of two processes the one that carries the path is stopped: what the other has in flight waits with it.
#[test]
fn a_stopped_path_is_detected_by_every_load_process() {
    let workspace = Workspace::new();
    let server = own(&workspace);
    let mut limited = std::process::Command::new("prlimit");
    limited.arg("--nofile=256").arg(crate::support::workspace::yamabiko());
    limited.args(bench(&server, "--rtt 8ms --clients 200 -c 200 --rate 1000/s -d 4s --warmup 500ms --json"));
    let mut running = workspace.start_command(limited);
    stopped(&mut running, Duration::from_millis(10), Duration::from_millis(200));
    let document = running.finish().json();
    assert_eq!(document["run"]["host"]["settings"]["processes"], "2", "{document}");
    assert!(broken(&document).contains(&"generator_on_time"), "{}", document["validity"]);
    let delayed = count(&document, "load.generator_delay.response_time_ns.count") as f64;
    let all = count(&document, "load.response_time_ns.count") as f64;
    // A stop meets what is scheduled in it and what is in flight, which is half the other's: some 18 ms of each 200 and what follows.
    assert!(delayed > 0.08 * all, "{delayed} of {all}");
}
