//! The log of `serve`: an access log that `bench --replay` accepts, its rotation, the totals.

use std::fs;
use std::io::Write as _;
use std::path::Path;

use load::replay::parse_combined;
use nix::sys::signal::Signal;

use crate::support::serving::Serving;
use crate::support::workspace::{Workspace, str_of, wait_until};

fn lines_of(path: &Path) -> Vec<String> {
    fs::read_to_string(path).unwrap_or_default().lines().map(str::to_owned).collect()
}

#[test]
fn the_access_log_of_serve_can_be_replayed() {
    let workspace = Workspace::concurrent();
    let log = workspace.file("access.log");
    let serving = Serving::start(&workspace, &["--log", str_of(&log), "--log-format", "extended"]);
    let mut client = serving.connect();
    client.get("/10k.bin", "Referer: http://a/\"b\\\r\nUser-Agent: \u{e9} x\r\n").unwrap();
    client.get("/none?q=%22", "").unwrap();
    client.stream.write_all(b"no HTTP at all\r\n\r\n").unwrap();
    // Log lines are written within a second, also by an idle server.
    wait_until("three lines are in the log", || lines_of(&log).len() == 3);
    let lines = lines_of(&log);
    let first = parse_combined(&lines[0]).unwrap();
    assert_eq!((&*first.client, &*first.method, &*first.target), ("127.0.0.1", "GET", "/10k.bin"));
    assert_eq!((first.status, first.bytes, first.has_fraction), (Some(200), Some(10 << 10), false));
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_nanos() as i128;
    assert!((now - first.at_unix_ns).abs() < 3_600_000_000_000, "the time in {} is the current time", lines[0]);
    assert!(
        lines[0].contains("\"http://a/\\\"b\\\\\" \"\\xc3\\xa9 x\" ") && lines[0].ends_with(" - - complete"),
        "{}",
        lines[0]
    );
    let second = parse_combined(&lines[1]).unwrap();
    assert_eq!((&*second.target, second.status), ("/none?q=%22", Some(404)));
    assert!(lines[2].contains("\"no HTTP at all\" 400 "), "{}", lines[2]);
    assert!(parse_combined(&lines[2]).is_err());

    let url = format!("http://{}/", serving.address);
    let document = workspace.run(&["bench", &url, "--replay", str_of(&log), "--no-save", "--json"]).json();
    let replay = &document["load"]["replay"];
    assert_eq!((replay["lines"].as_u64(), replay["requests_logged"].as_u64()), (Some(3), Some(2)), "{replay}");
    wait_until("the replayed requests are logged", || lines_of(&log).len() == 5);
    assert_eq!(parse_combined(&lines_of(&log)[3]).unwrap().target, "/10k.bin");
}

#[test]
fn sighup_reopens_a_rotated_log() {
    let workspace = Workspace::concurrent();
    let (log, rotated) = (workspace.file("access.log"), workspace.file("access.log.1"));
    let serving = Serving::start(&workspace, &["--log", str_of(&log), "--log-anonymous"]);
    let mut client = serving.connect();
    client.get("/10k.bin?one", "").unwrap();
    wait_until("the first line is written", || lines_of(&log).len() == 1);
    fs::rename(&log, &rotated).unwrap();
    serving.running.signal(Signal::SIGHUP);
    wait_until("the log is reopened", || serving.running.stderr().contains("opened anew"));
    client.get("/10k.bin?two", "").unwrap();
    drop(client);
    let status = serving.connect().get("/-/status", "").unwrap();
    let document: serde_json::Value = serde_json::from_slice(&status.body).unwrap();
    assert_eq!(document["requests"]["by_kind"]["static"]["2xx"], 2);
    serving.running.signal(Signal::SIGTERM);
    let stderr = serving.running.finish().success().stderr;
    assert!(stderr.contains("served 3 requests"), "{stderr}");
    let (old, new) = (lines_of(&rotated), lines_of(&log));
    assert!(old.len() == 1 && old[0].starts_with("127.0.0.0 ") && old[0].contains("?one"), "{old:?}");
    assert!(new.len() == 2 && new[0].contains("?two") && new[1].contains("/-/status"), "{new:?}");
}

#[test]
fn ineffective_log_and_cache_options_are_refused() {
    let workspace = Workspace::concurrent();
    let www = workspace.www();
    let www = str_of(&www);
    let refuse = |options: &[&str], words: &[&str]| {
        workspace.run(&[&["serve", www][..], options].concat()).refused(1, words);
    };
    refuse(&["--log-format", "extended"], &["--log"]);
    refuse(&["--cache"], &["--dynamic"]);
    refuse(&["--dynamic", "/a=http://127.0.0.1:1", "--cache-memory", "1MiB"], &["--cache"]);
    refuse(&["--dynamic", "/a=http://127.0.0.1:1", "--cache", "--cache-memory", "1KiB"], &["at least 64KiB"]);
    refuse(&["--log", "/no/such/folder/log"], &["access log", "/no/such/folder/log"]);
}
