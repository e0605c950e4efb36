//! `doctor` on any machine, as any user: one document or one page, the exit status, and no stored run.

use std::collections::BTreeSet;
use std::fs;

use serde_json::Value;

use crate::support::workspace::{Output, Workspace};

fn run_quick_doctor(workspace: &Workspace, more: &[&str]) -> Output {
    let arguments: Vec<&str> = ["doctor", "--quick"].iter().chain(more).copied().collect();
    let output = workspace.run(&arguments);
    assert!(matches!(output.code, Some(0 | 2)) && output.stderr.is_empty(), "{output}");
    output
}

fn values_of(list: &Value, key: &str) -> BTreeSet<String> {
    list.as_array().unwrap().iter().map(|entry| entry[key].as_str().unwrap().to_owned()).collect()
}

#[test]
fn doctor_json_is_one_document_with_matching_exit_status() {
    let workspace = Workspace::concurrent();
    let output = run_quick_doctor(&workspace, &["--json"]);
    let document = output.json();
    assert_eq!(document["schema"], "yamabiko.doctor/2");
    assert!(document["host"]["cores"].as_u64().unwrap() >= 1);
    assert!(document.get("measured").is_none(), "--quick measures nothing");
    let main = document["verbs"].as_array().unwrap().iter().find(|verb| verb["verb"] == "bench --server").unwrap();
    assert_eq!(output.code == Some(0), main["state"] != "missing", "{output}");
    // These findings exist on every machine; docs/concepts/doctor.md has a line on each.
    let finding_names = values_of(&document["findings"], "name");
    for name in ["privilege", "real-time class", "capture", "host network", "tun", "control groups"]
        .into_iter()
        .chain(["congestion control", "kernel", "cores", "memory", "virtualisation", "descriptors", "ports"])
        .chain(["run store", "io_uring", "clock"])
    {
        assert!(finding_names.contains(name), "{name} is not in {finding_names:?}");
    }
    for finding in document["findings"].as_array().unwrap() {
        let state = finding["state"].as_str().unwrap();
        assert!(["ok", "worth_knowing", "missing"].contains(&state), "{finding}");
        assert_eq!(finding.get("touches").is_none(), state == "ok", "{finding}");
    }
    for verb in document["verbs"].as_array().unwrap() {
        let state = verb["state"].as_str().unwrap();
        assert!(["ok", "partial", "missing"].contains(&state), "{verb}");
        assert_eq!(verb.get("why").is_none(), state == "ok", "{verb}");
    }
    assert_eq!(fs::read_dir(workspace.runs()).unwrap().count(), 0, "doctor must not store a run");
}

#[test]
fn doctor_text_begins_with_ready_or_missing() {
    let workspace = Workspace::concurrent();
    let output = run_quick_doctor(&workspace, &[]);
    let first = output.stdout.split_whitespace().next().unwrap();
    assert_eq!(first, if output.code == Some(0) { "READY" } else { "MISSING" }, "{output}");
    for word in ["rights", "network", "machine", "time", "privilege", "bench --server"] {
        assert!(output.stdout.contains(word), "{word}\n{output}");
    }
    assert!(!output.stdout.contains('\u{1b}') && !output.stdout.contains("timer:"), "{output}");
}

/// docs/concepts/doctor.md explains every finding and every verb.
#[test]
fn the_page_of_doctor_has_a_line_on_each_finding_and_verb() {
    let page = include_str!("../../../../docs/concepts/doctor.md");
    let document = run_quick_doctor(&Workspace::concurrent(), &["--json"]).json();
    for name in values_of(&document["findings"], "name").iter().chain(&values_of(&document["verbs"], "verb")) {
        assert!(page.contains(&format!("| `{name}` |")), "`{name}` is not in docs/concepts/doctor.md");
    }
}

#[test]
fn a_run_store_that_is_not_writable_is_a_finding() {
    let workspace = Workspace::concurrent();
    let mut command = workspace.command(&["doctor", "--quick", "--json"]);
    // Not even root can create a directory in /proc.
    command.env("YAMABIKO_RUNS", "/proc/runs").stdin(std::process::Stdio::null());
    let child = command.output().unwrap();
    let document: Value = serde_json::from_slice(&child.stdout).unwrap();
    let store = document["findings"].as_array().unwrap().iter().find(|finding| finding["name"] == "run store").unwrap();
    assert!(store["found"].as_str().unwrap().contains("/proc/runs"), "{store}");
}

#[test]
fn doctor_refuses_unknown_arguments() {
    let workspace = Workspace::concurrent();
    workspace.run(&["doctor", "--fix"]).refused(1, &["'--fix'", "yamabiko doctor --help"]);
    workspace.run(&["doctor", "eth0"]).refused(1, &["'eth0'"]);
    let help = workspace.run(&["doctor", "--help"]).success();
    assert!(help.stdout.contains("--quick") && help.stdout.contains("Exit status"), "{help}");
}
