//! An agent and a manager of one unprivileged user: a program's exchanges are stored exactly once, although both
//! are killed. `real_fleet` has tests with many agents and network cuts.

use std::fs;
use std::path::Path;
use std::process::Command;

use nix::sys::signal::Signal;
use serde_json::Value;

use crate::fleet::TEST_TIMEOUT;
use crate::fleet::parties::{self, Agent, Programs, listening, wait};
use crate::fleet::process::Process;
use crate::support::workspace::{Workspace, str_of, yamabiko};

const TESTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests");

fn start(words: &[&str], log: &Path) -> Process {
    let mut command = Command::new(yamabiko());
    command.args(words);
    Process::start(command, log).unwrap()
}

/// Starts a manager; returns its address once it listens.
fn manager(data: &Path, at: &str, log: &Path) -> (Process, String) {
    // Output of earlier processes is ignored.
    let _ = fs::remove_file(log);
    let process = start(&parties::manager_arguments(at, "localhost", data), log);
    let mut found = None;
    wait("the manager listens", || {
        process.still_runs()?;
        found = listening(&process.log_text());
        Ok(found.is_some())
    })
    .unwrap();
    (process, found.unwrap().agents)
}

fn stored_rows(data: &Path) -> u64 {
    let script = format!("{TESTS}/readers/fleet.py");
    let output = Command::new("python3").args([&script, "stored", str_of(data)]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice::<Value>(&output.stdout).unwrap()["rows"].as_u64().unwrap()
}

#[test]
fn killing_agent_and_manager_loses_and_duplicates_no_rows() {
    let workspace = Workspace::concurrent();
    let out = workspace.path().join("out");
    let data = out.join("manager");
    fs::create_dir(&data).unwrap();
    let token = out.join("token");
    parties::token(&yamabiko(), &data, "laptop", "agent", &token).unwrap();
    let log = out.join("manager.log");
    let (first, address) = manager(&data, "127.0.0.1:0", &log);
    let agent = Agent {
        name: "laptop".into(),
        shift_s: 0,
        data: out.join("agent"),
        rings: workspace.path().join("rings"),
        token,
        log: out.join("agent.log"),
        stream: None,
    };
    let (url, authority) = (format!("https://{address}"), parties::certificate(&data));
    let agent_arguments = agent.arguments(&url, &authority);
    let agent_process = start(&agent_arguments, &agent.log);
    agent.ready(&agent_process).unwrap();

    let programs = Programs::make(&Path::new(TESTS).join("support/fleet"), &out).unwrap();
    let server = programs.server(true);
    let mut command = Command::new(&server[0]);
    command.args(&server[1..]);
    let server = Process::start(command, &out.join("server.log")).unwrap();
    let mut ports = Vec::new();
    wait("the talkers' server listens", || {
        let log = server.log_text();
        ports = log.lines().filter_map(|line| line.strip_prefix("port ")).map(str::to_owned).collect();
        Ok(log.contains("listening"))
    })
    .unwrap();
    let account = out.join("laptop.till.csv");
    let words = programs.talker_at(0, &account, 200, 50, &ports);
    let mut tap = Command::new(yamabiko());
    tap.args(["tap", &format!("--agent={}", str_of(&agent.rings)), "--"]).args(&words);
    let talker = Process::start(tap, &out.join("talker.log")).unwrap();

    wait("some rows are stored", || Ok(stored_rows(&data) > 0)).unwrap();
    agent_process.end(Signal::SIGKILL, TEST_TIMEOUT).unwrap();
    first.end(Signal::SIGKILL, TEST_TIMEOUT).unwrap();
    let agent_process = start(&agent_arguments, &agent.log);
    let (second, _) = manager(&data, &address, &log);
    talker.succeeds_within(TEST_TIMEOUT).unwrap();
    let lines = fs::read_to_string(&account).unwrap().lines().count() as u64 - 1;
    assert!(lines > 200);
    wait("all rows are stored", || Ok(stored_rows(&data) >= lines)).unwrap();
    // Both exit regularly, and no row is duplicated.
    agent_process.end(Signal::SIGTERM, TEST_TIMEOUT).unwrap();
    second.end(Signal::SIGTERM, TEST_TIMEOUT).unwrap();
    assert_eq!(stored_rows(&data), lines);
}
