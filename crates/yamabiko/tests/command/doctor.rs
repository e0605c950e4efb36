//! `doctor` as any user, anywhere: one document or one page, the matching status, nothing stored.

use std::collections::BTreeSet;
use std::fs;

use serde_json::Value;

use crate::support::lab::{Output, Room};

fn quick(room: &Room, more: &[&str]) -> Output {
    let arguments: Vec<&str> = ["doctor", "--quick"].iter().chain(more).copied().collect();
    let output = room.run(&arguments);
    assert!(matches!(output.code, Some(0 | 2)) && output.stderr.is_empty(), "{output}");
    output
}

fn names(list: &Value, key: &str) -> BTreeSet<String> {
    list.as_array().unwrap().iter().map(|entry| entry[key].as_str().unwrap().to_owned()).collect()
}

#[test]
fn doctor_prints_one_json_document_with_a_matching_exit_status() {
    let room = Room::shared();
    let output = quick(&room, &["--json"]);
    let document = output.json();
    assert_eq!(document["schema"], "yamabiko.doctor/2");
    assert!(document["host"]["cores"].as_u64().unwrap() >= 1);
    assert!(document.get("measured").is_none(), "nothing was measured, so nothing is said");
    let main = document["verbs"].as_array().unwrap().iter().find(|verb| verb["verb"] == "bench --server").unwrap();
    assert_eq!(output.code == Some(0), main["state"] != "no", "{output}");
    // Whatever machine this is, these are looked at; docs/concepts/doctor.md has a line on each.
    let looked_at = names(&document["findings"], "name");
    for name in ["privilege", "real-time class", "capture", "host network", "tun", "control groups"]
        .into_iter()
        .chain(["congestion control", "kernel", "cores", "memory", "virtualisation", "descriptors", "ports"])
        .chain(["book", "io_uring", "clock"])
    {
        assert!(looked_at.contains(name), "{name} is not in {looked_at:?}");
    }
    for finding in document["findings"].as_array().unwrap() {
        let state = finding["state"].as_str().unwrap();
        assert!(["fine", "worth_knowing", "lacking"].contains(&state), "{finding}");
        assert_eq!(finding.get("touches").is_none(), state == "fine", "{finding}");
    }
    for verb in document["verbs"].as_array().unwrap() {
        let state = verb["state"].as_str().unwrap();
        assert!(["works", "in_part", "no"].contains(&state), "{verb}");
        assert_eq!(verb.get("why").is_none(), state == "works", "{verb}");
    }
    assert_eq!(fs::read_dir(room.runs()).unwrap().count(), 0, "a look is no run");
}

#[test]
fn doctor_prints_the_result_first() {
    let room = Room::shared();
    let output = quick(&room, &[]);
    let first = output.stdout.split_whitespace().next().unwrap();
    assert_eq!(first, if output.code == Some(0) { "READY" } else { "LACKING" }, "{output}");
    for word in ["rights", "network", "machine", "time", "privilege", "bench --server"] {
        assert!(output.stdout.contains(word), "{word}\n{output}");
    }
    assert!(!output.stdout.contains('\u{1b}') && !output.stdout.contains("late:"), "{output}");
}

/// Every finding and every verb that a document may have is explained.
#[test]
fn every_doctor_check_is_documented() {
    let page = include_str!("../../../../docs/concepts/doctor.md");
    let document = quick(&Room::shared(), &["--json"]).json();
    for name in names(&document["findings"], "name").iter().chain(&names(&document["verbs"], "verb")) {
        assert!(page.contains(&format!("| `{name}` |")), "`{name}` is not in docs/concepts/doctor.md");
    }
}

#[test]
fn doctor_reports_an_unwritable_run_store() {
    let room = Room::shared();
    let mut command = room.command(&["doctor", "--quick", "--json"]);
    // /proc takes no folders, not even root's.
    command.env("YAMABIKO_RUNS", "/proc/runs").stdin(std::process::Stdio::null());
    let child = command.output().unwrap();
    let document: Value = serde_json::from_slice(&child.stdout).unwrap();
    let book = document["findings"].as_array().unwrap().iter().find(|finding| finding["name"] == "book").unwrap();
    assert!(book["found"].as_str().unwrap().contains("/proc/runs"), "{book}");
}

#[test]
fn doctor_refuses_unknown_options() {
    let room = Room::shared();
    room.run(&["doctor", "--mend"]).refused(1, &["'--mend'", "yamabiko doctor --help"]);
    room.run(&["doctor", "eth0"]).refused(1, &["'eth0'"]);
    let help = room.run(&["doctor", "--help"]).success();
    assert!(help.stdout.contains("--quick") && help.stdout.contains("Exit status"), "{help}");
}
