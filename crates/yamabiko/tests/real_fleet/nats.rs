//! Agents publish to a real nats-server, from which managers read: every exchange once in each manager, also if any of
//! them is killed; what a stream has discarded is counted; what the server refuses is named.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use nix::sys::signal::Signal;
use serde_json::Value;

use super::once::{count, plan};
use crate::fleet::TEST_TIMEOUT;
use crate::fleet::parties::{self, Agent, Programs, listening, path, wait};
use crate::fleet::process::Process;
use crate::fleet::trial::{Plan, Trial};
use crate::support::readers;
use crate::support::workspace::{Workspace, yamabiko};

const TESTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests");

#[test]
fn every_exchange_is_in_both_managers_once_although_each_part_is_killed() {
    let _alone = Workspace::new();
    let size = (8, 24, 25);
    let fault_interval = Some(Duration::from_secs(3));
    let outcome = Trial::start(Plan { over_nats: true, fault_interval, ..plan(size) }).unwrap().run().unwrap();
    println!("{outcome:#?}");
    assert_eq!(outcome.failures(), [""; 0], "{:#}", outcome.found);
    assert_eq!(count(&outcome, "agents"), size.0 as u64);
    assert_eq!(count(&outcome, "exchanges"), (size.2 / 2) * 2 * size.1 * size.0 as u64);
    let faults = outcome.faults_injected;
    assert!(faults.nats_kills >= 2 && faults.manager_kills >= 3 && faults.agent_kills >= size.0, "{faults:?}");
    assert_eq!(outcome.between_managers["differing"], 0, "{:#}", outcome.between_managers);
    // Nobody has measured a clock, and no row claims it.
    assert_eq!((count(&outcome, "clocks_unknown"), count(&outcome, "clocks_wrong")), (size.0 as u64, 0));
}

/// The parts of a test on loopback.
struct Parts {
    _workspace: Workspace,
    out: PathBuf,
    rings: PathBuf,
    programs: Programs,
    _server: Process,
    ports: Vec<String>,
}

impl Parts {
    fn new() -> Parts {
        let workspace = Workspace::concurrent();
        let out = workspace.path().join("out");
        let programs = Programs::make(&Path::new(TESTS).join("support/fleet"), &out).unwrap();
        let words = programs.server(true);
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]);
        let server = Process::start(command, &out.join("server.log")).unwrap();
        let mut ports = Vec::new();
        wait("the talkers' server listens", || {
            let log = server.log_text();
            ports = log.lines().filter_map(|line| line.strip_prefix("port ")).map(str::to_owned).collect();
            Ok(log.contains("listening"))
        })
        .unwrap();
        Parts { rings: workspace.path().join("rings"), _workspace: workspace, out, programs, _server: server, ports }
    }

    fn agent(&self, data: &str, stream: Option<&str>) -> Agent {
        Agent {
            name: "laptop".into(),
            shift_s: 0,
            data: self.out.join(data),
            rings: self.rings.clone(),
            token: self.out.join("token"),
            log: self.out.join(format!("{data}.log")),
            stream: stream.map(str::to_owned),
        }
    }

    /// A manager with these further options; returns its address once it listens.
    fn manager(&self, name: &str, options: &[&str]) -> (Process, String) {
        let data = self.out.join(name);
        let log = self.out.join(format!("{name}.log"));
        let _ = fs::remove_file(&log);
        let words = [&parties::manager_arguments("127.0.0.1:0", "localhost", &data)[..], options].concat();
        let process = start(&words, &[], &log);
        let mut found = None;
        wait("the manager listens", || {
            process.still_runs()?;
            found = listening(&process.log_text());
            Ok(found.is_some())
        })
        .unwrap();
        (process, found.unwrap().agents)
    }

    /// A program under the agent makes exchanges and ends; returns their number.
    fn talk(&self, exchanges: u64, rate: u64) -> u64 {
        let account = self.out.join("laptop.till.csv");
        let words = self.programs.talker_at(0, &account, exchanges, rate, &self.ports);
        let mut tap = Command::new(yamabiko());
        tap.args(["tap", &format!("--agent={}", path(&self.rings)), "--"]).args(&words);
        let talker = Process::start(tap, &self.out.join("talker.log")).unwrap();
        talker.succeeds_within(TEST_TIMEOUT).unwrap();
        fs::read_to_string(&account).unwrap().lines().count() as u64 - 1
    }

    fn read(&self, name: &str, words: &[&str]) -> Value {
        let mut command = Command::new(readers::folder().join("venv/bin/python"));
        command.arg(format!("{TESTS}/readers/fleet.py")).arg(words[0]).arg(self.out.join(name)).args(&words[1..]);
        let output = command.env("PYTHONDONTWRITEBYTECODE", "1").output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice(&output.stdout).unwrap()
    }

    /// Waits until a manager has stored this many rows or counted them as missed.
    fn wait_for(&self, manager: &str, rows: u64) {
        wait(&format!("{manager} has {rows} rows"), || {
            let stored = self.read(manager, &["stored"]);
            let sum: u64 = ["rows", "missed"].iter().filter_map(|what| stored[*what].as_u64()).sum();
            Ok(sum >= rows)
        })
        .unwrap();
    }
}

/// Starts the program with these variables of NATS.
fn start(words: &[&str], variables: &[(&str, &str)], log: &Path) -> Process {
    let mut command = Command::new(yamabiko());
    command.args(words).envs(variables.iter().copied());
    Process::start(command, log).unwrap()
}

/// nats-server on loopback; returns its port.
pub fn nats(out: &Path, name: &str, options: &[&str]) -> (Process, String) {
    serve_nats(out, name, "-1", options)
}

/// The same at a port that it had before, with its data.
pub fn nats_at(out: &Path, name: &str, port: &str) -> Process {
    fs::remove_file(out.join(format!("{name}.log"))).unwrap();
    serve_nats(out, name, port, &["-js"]).0
}

fn serve_nats(out: &Path, name: &str, port: &str, options: &[&str]) -> (Process, String) {
    let mut command = Command::new("nats-server");
    command.args(["-a", "127.0.0.1", "-p", port, "-sd", path(&out.join(name))]).args(options);
    let process = Process::start(command, &out.join(format!("{name}.log"))).unwrap();
    let mut port = String::new();
    wait("nats-server is ready", || {
        process.still_runs()?;
        let log = process.log_text();
        let listens = "Listening for client connections on 127.0.0.1:";
        port = log.split(listens).nth(1).and_then(|rest| rest.lines().next()).unwrap_or_default().trim().to_owned();
        Ok(log.contains("Server is ready"))
    })
    .unwrap();
    (process, port)
}

#[test]
fn rows_are_those_that_a_manager_receives_from_the_agent_itself() {
    let parts = Parts::new();
    // Neither is there yet: the rows wait in the spool.
    let agent = parts.agent("agent", Some("nats://127.0.0.1:9/TAPS"));
    let process = start(&agent.arguments("", Path::new("")), &[], &agent.log);
    agent.ready(&process).unwrap();
    let rows = parts.talk(300, 100);
    process.end(Signal::SIGTERM, TEST_TIMEOUT).unwrap();
    assert!(fs::read_to_string(&agent.log).unwrap().contains("new rows wait in the spool"));
    let copied = Command::new("cp").arg("-r").args([&agent.data, &parts.out.join("copy")]).status().unwrap();
    assert!(copied.success());

    // A copy sends them to a manager.
    let (direct, address) = parts.manager("direct", &[]);
    parties::token(&yamabiko(), &parts.out.join("direct"), "laptop", "agent", &parts.out.join("token")).unwrap();
    let copy = parts.agent("copy", None);
    let (url, authority) = (format!("https://{address}"), parties::certificate(&parts.out.join("direct")));
    let sender = start(&copy.arguments(&url, &authority), &[], &copy.log);
    parts.wait_for("direct", rows);
    sender.end(Signal::SIGTERM, TEST_TIMEOUT).unwrap();
    direct.end(Signal::SIGTERM, TEST_TIMEOUT).unwrap();

    // The original publishes them, and two managers read.
    let (_nats, port) = nats(&parts.out, "nats", &["-js"]);
    let stream = format!("nats://127.0.0.1:{port}/TAPS");
    let managers = ["first", "second"].map(|name| parts.manager(name, &["--from", &stream]).0);
    let agent = parts.agent("agent", Some(&stream));
    let sender = start(&agent.arguments("", Path::new("")), &[], &agent.log);
    ["first", "second"].iter().for_each(|name| parts.wait_for(name, rows));
    sender.end(Signal::SIGTERM, TEST_TIMEOUT).unwrap();
    for manager in managers {
        manager.end(Signal::SIGTERM, TEST_TIMEOUT).unwrap();
    }

    let equal = |a: &str, b: &str, without: &[&str]| {
        let other = parts.out.join(b);
        let found = parts.read(a, &[&["differing", path(&other)], without].concat());
        assert_eq!((&found["differing"], &found["repeated"]), (&0.into(), &0.into()), "{a} {b}: {found}");
        assert_eq!(found["rows"], serde_json::json!([rows, rows]));
    };
    equal("first", "second", &[]);
    // Only what depends on the clock's comparison differs.
    equal("direct", "first", &["at_unix_ns", "opened_at_unix_ns", "zero_unix_ns", "clock_offset_ns"]);
    assert_eq!(parts.read("direct", &["clocks"])["measured"], rows);
    assert_eq!(parts.read("first", &["clocks"])["measured"], 0);
}

#[test]
fn rows_that_the_stream_discarded_before_they_were_read_are_counted() {
    let parts = Parts::new();
    let (_nats, port) = nats(&parts.out, "nats", &["-js"]);
    let stream = format!("nats://127.0.0.1:{port}/TAPS");
    // The first manager makes the stream, with limits of a few batches.
    let from = ["--from", &stream, "--stream-bytes", "64KB"];
    parts.manager("first", &from).0.end(Signal::SIGTERM, TEST_TIMEOUT).unwrap();
    let agent = parts.agent("agent", Some(&stream));
    let process = start(&agent.arguments("", Path::new("")), &[], &agent.log);
    agent.ready(&process).unwrap();
    let rows = parts.talk(6_000, 600);
    process.end(Signal::SIGTERM, TEST_TIMEOUT).unwrap();
    let (manager, _) = parts.manager("first", &from);
    parts.wait_for("first", rows);
    manager.end(Signal::SIGTERM, TEST_TIMEOUT).unwrap();
    let stored = parts.read("first", &["stored"]);
    let (kept, missed) = (stored["rows"].as_u64().unwrap(), stored["missed"].as_u64().unwrap());
    assert!(kept > 0 && missed > 0 && kept + missed == rows, "{rows}: {stored}");
    assert!(fs::read_to_string(parts.out.join("first.log")).unwrap().contains("counted as missed"));
}

#[test]
fn what_the_server_refuses_is_named() {
    let parts = Parts::new();
    let out = &parts.out;
    let refused = |what: &str, port: &str, variables: &[(&str, &str)], parts_of_text: &[&str]| {
        let stream = format!("nats://127.0.0.1:{port}/TAPS");
        let (data, log) = (out.join(format!("manager of {what}")), out.join(format!("{what}.txt")));
        let words = [&parties::manager_arguments("127.0.0.1:0", "localhost", &data)[..], &["--from", &stream]].concat();
        let process = start(&words, variables, &log);
        wait(what, || Ok(process.runs_or_succeeded().is_err())).unwrap();
        let text = process.log_text();
        assert!(parts_of_text.iter().all(|part| text.contains(part)) && !text.contains("secret"), "{what}: {text}");
    };
    let (_plain, port) = nats(out, "plain", &[]);
    refused("without JetStream", &port, &[], &["nats-server's option -js enables it"]);
    let (_closed, port) = nats(out, "closed", &["-js", "--user", "u", "--pass", "secret"]);
    refused("wrong password", &port, &[("NATS_USER", "u"), ("NATS_PASSWORD", "other")], &["uthorization"]);
    let config = out.join("permissions.conf");
    let users =
        "authorization { users = [{ user: u, password: p, permissions: { publish: [\"x\"], subscribe: [\">\"] } }] }";
    fs::write(&config, users).unwrap();
    let (_limited, port) = nats(out, "limited", &["-js", "-c", path(&config)]);
    let user = [("NATS_USER", "u"), ("NATS_PASSWORD", "p")];
    refused("without permission", &port, &user, &["refuses", "Permissions Violation"]);

    // An agent waits, and says why.
    let says = |what: &str, port: &str, expected: &str| {
        let stream = format!("nats://127.0.0.1:{port}/TAPS");
        let agent = parts.agent(what, Some(&stream));
        let process = start(&agent.arguments("", Path::new("")), &[], &agent.log);
        wait(what, || {
            process.still_runs()?;
            Ok(process.log_text().contains(expected))
        })
        .unwrap();
        process.end(Signal::SIGTERM, TEST_TIMEOUT).unwrap();
    };
    fs::write(&config, "max_payload: 65536").unwrap();
    let (_small, port) = nats(out, "small", &["-js", "-c", path(&config)]);
    says("small-messages", &port, "max_payload");
    let (_empty, port) = nats(out, "empty", &["-js"]);
    says("no-stream", &port, "no such stream yet");
}
