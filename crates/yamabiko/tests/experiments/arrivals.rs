//! Phases, replays and exports from end to end, against a scripted server on loopback.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::net::TcpListener;
use std::time::{Duration, Instant};

use crate::support::document::{check, count};
use crate::support::scripted::{Scripted, response};
use crate::support::workspace::{Workspace, str_of};
use nix::sys::signal::Signal;
use serde_json::Value;

fn run(workspace: &Workspace, arguments: &[&str]) -> Value {
    let document = workspace.run_json(&[arguments, &["--json"]].concat());
    assert_eq!(check(&document, "conservation")["state"], "ok", "{document}");
    document
}

#[test]
fn results_of_phases_add_up_in_document_page_and_exports() {
    let workspace = Workspace::concurrent();
    let server = Scripted::start(|_| response("200 OK", &[], b"page"));
    let url = server.url("/");
    let phases =
        ["--phase", "calm: 600ms at 50/s", "--phase", "400ms ramp to 150/s", "--phase", "spike 200ms at 400/s"];
    let document = run(&workspace, &[&["bench", &url, "--warmup", "200ms"], &phases[..]].concat());
    let parts = document["load"]["by_phase"].as_array().unwrap();
    let brief: Vec<(&str, u64)> =
        parts.iter().map(|part| (part["name"].as_str().unwrap(), part["offered_requests"].as_u64().unwrap())).collect();
    // With equal gaps the count is the integral of the rate, within one request at each border.
    assert_eq!(brief.iter().map(|part| part.0).collect::<Vec<_>>(), ["calm", "50/s to 150/s", "spike 400/s"]);
    for ((_, offered), expected) in brief.iter().zip([30, 40, 80]) {
        assert!(offered.abs_diff(expected) <= 1, "{brief:?}");
    }
    assert_eq!(brief.iter().map(|part| part.1).sum::<u64>(), count(&document, "load.offered_requests"));
    assert_eq!(document["run"]["duration_s"], 1.2);

    let id = document["run"]["id"].as_str().unwrap();
    let screen = workspace.run(&["report", id]).stdout;
    assert!(screen.contains("by phase") && screen.contains("spike 400/s"), "{screen}");
    let page = workspace.run(&["report", id, "--html", "-"]).stdout;
    assert!(page.contains("By phase") && page.contains("Response time by offered rate"));

    let fortio: Value =
        serde_json::from_str(&workspace.run(&["report", id, "--export", "fortio", "-"]).stdout).unwrap();
    assert_eq!(fortio["RetCodes"]["200"], document["load"]["completed"]);
    assert_eq!(fortio["DurationHistogram"]["Count"], document["load"]["response_time_ns"]["count"]);
    assert_eq!((&fortio["URL"], &fortio["RunType"]), (&Value::from(url.as_str()), &Value::from("HTTP")));
    let log = workspace.path().join("out.hlog");
    workspace.run(&["report", id, "--export", "hlog", str_of(&log)]);
    assert!(fs::read_to_string(&log).unwrap().contains("HISTF"));
    assert!(workspace.run(&["report", id, "--export", "xml", "-"]).stderr.contains("there are fortio, hlog"));
}

#[test]
fn an_access_log_is_replayed_request_by_request() {
    let workspace = Workspace::concurrent();
    let server = Scripted::start(|request| {
        let body: &[u8] = if request.method == "HEAD" { b"" } else { b"page" };
        response("200 OK", &[], body)
    });
    let mut log = String::new();
    for number in 0..60 {
        let (client, method) = (number % 3, if number % 10 == 9 { "HEAD" } else { "GET" });
        let time = f64::from(number) / 50.0;
        log += &format!(
            "{{\"time\":{time:.3},\"client\":\"c{client}\",\"method\":\"{method}\",\"uri\":\"/p/{}\"}}\n",
            number % 7
        );
    }
    log += "not a line\n";
    let file = workspace.path().join("access.log");
    fs::write(&file, &log).unwrap();
    let document = run(&workspace, &["bench", &server.url("/"), "--replay", str_of(&file), "--time-scale", "0.5"]);
    let replay = &document["load"]["replay"];
    assert_eq!((replay["lines"].as_u64(), replay["requests_logged"].as_u64()), (Some(61), Some(60)));
    assert_eq!(replay["left_out"]["not of the log's format"], 1);
    assert_eq!(count(&document, "load.completed"), 60);
    let mut expected = BTreeMap::<(String, String), u64>::new();
    for number in 0..60u32 {
        let method = if number % 10 == 9 { "HEAD" } else { "GET" };
        *expected.entry((method.into(), format!("/p/{}", number % 7))).or_default() += 1;
    }
    let mut measured = BTreeMap::new();
    for request in server.requests() {
        *measured.entry((request.method, request.target)).or_default() += 1;
    }
    assert_eq!(measured, expected);
}

#[test]
fn a_har_recording_is_replayed_as_sessions() {
    let workspace = Workspace::concurrent();
    let server = Scripted::start(|_| response("200 OK", &[], b"page"));
    let entry = |at: &str, path: &str| {
        format!(
            "{{\"startedDateTime\":\"2026-11-21T00:00:{at}Z\",\"request\":{{\"method\":\"GET\",\
             \"url\":\"https://shop.example{path}\",\"headers\":[{{\"name\":\"X-Page\",\"value\":\"{path}\"}}]}}}}"
        )
    };
    let entries = [entry("00.000", "/"), entry("00.050", "/a.css"), entry("00.050", "/b.js"), entry("00.200", "/next")];
    let file = workspace.path().join("visit.har");
    fs::write(&file, format!("{{\"log\":{{\"entries\":[{}]}}}}", entries.join(","))).unwrap();
    let arguments = ["bench", &server.url("/"), "--har", str_of(&file), "--rate", "10/s", "-d", "1s", "--warmup", "0s"];
    let document = run(&workspace, &arguments);
    assert_eq!((count(&document, "load.har.entries"), count(&document, "load.har.requests")), (4, 4));
    let mut paths = BTreeMap::<String, u64>::new();
    for request in server.requests() {
        assert_eq!(request.field("x-page").as_deref(), Some(request.target.as_str()));
        *paths.entry(request.target).or_default() += 1;
    }
    // Ten sessions begin; those that begin in the last 0.2 s end with the measured phase.
    assert_eq!(paths["/"], 10, "{paths:?}");
    assert!(paths["/a.css"] == paths["/b.js"] && (7..=10).contains(&paths["/next"]), "{paths:?}");
}

#[test]
fn ctrl_c_while_a_log_is_read_ends_the_run() {
    let workspace = Workspace::concurrent();
    let server = Scripted::start(|_| response("200 OK", &[], b"page"));
    let log = workspace.path().join("log.pipe");
    nix::unistd::mkfifo(&log, nix::sys::stat::Mode::S_IRWXU).unwrap();
    let options = ["bench", &server.url("/"), "--replay", str_of(&log), "--loops", "600", "--json"];
    let running = workspace.start(&options);
    let mut lines = fs::OpenOptions::new().write(true).open(&log).unwrap();
    // The program handles the signal while it reads the log.
    running.signal(Signal::SIGINT);
    lines
        .write_all(b"{\"time\":0.0,\"client\":\"c\",\"uri\":\"/\"}\n{\"time\":0.9,\"client\":\"c\",\"uri\":\"/\"}\n")
        .unwrap();
    drop(lines);
    let output = running.finish();
    assert!(output.elapsed < Duration::from_secs(30), "the run ends before its ten minutes: {output}");
    assert_eq!(output.json()["run"]["interrupted"], true);
}

#[test]
fn a_second_ctrl_c_in_the_warm_up_ends_the_run_immediately() {
    let workspace = Workspace::concurrent();
    for threads in ["1", "2"] {
        // The server accepts connections and never responds.
        let silent = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/", silent.local_addr().unwrap());
        let options = ["bench", &url, "--rate", "50/s", "--warmup", "60s", "-d", "1s", "--threads", threads, "--json"];
        let mut running = workspace.start(&options);
        let held = silent.accept().unwrap();
        running.signal(Signal::SIGINT);
        std::thread::sleep(Duration::from_secs(1));
        assert!(!running.ended(), "after one signal the program waits for requests in flight");
        running.signal(Signal::SIGINT);
        let second_signal = Instant::now();
        let output = running.finish();
        assert!(
            second_signal.elapsed() < Duration::from_secs(10),
            "the second signal ends the program immediately, not after {:?}",
            second_signal.elapsed()
        );
        let document = output.json();
        assert_eq!((count(&document, "load.offered_requests"), &document["run"]["duration_s"]), (0, &Value::from(0.0)));
        assert_eq!(check(&document, "conservation")["state"], "ok", "{document}");
        drop(held);
    }
}

#[test]
fn contradictory_options_are_refused_with_the_fix() {
    let workspace = Workspace::concurrent();
    for (arguments, why) in [
        (&["--rate", "5/s", "--phase", "1s at 5/s"][..], "leave one of the two out"),
        (&["--phase", "at 5/s"], "no duration"),
        (&["--sweep", "5"], "100..1000/s:100/s"),
        (&["--arrivals", "bursts"], "needs a rate"),
        (&["--rate", "5/s", "--arrivals", "poisson", "--bursts", "factor=2"], "leave one of the two out"),
        (&["--rate", "5/s", "--bursts", "factor=50"], "from 1 to 10"),
        (&["--replay", "/nonexistent.log"], "/nonexistent.log"),
        (&["--har", "/nonexistent.har"], "/nonexistent.har"),
        (&["--rate-file", "/nonexistent.csv"], "/nonexistent.csv"),
    ] {
        let output = workspace.run(&[&["bench", "http://127.0.0.1:9/", "--no-save"], arguments].concat());
        assert!(output.stderr.contains(why), "{arguments:?}: {}", output.stderr);
    }
}
