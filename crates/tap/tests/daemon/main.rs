//! A tap daemon with programs that it did not start, while programs and agents start and end.
#![allow(clippy::disallowed_methods, reason = "these tests wait for real processes")]

#[path = "../transparent/support.rs"]
mod support;

use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use schema::{TapExchange, TapOutcome};
use support::{compiled, server};
use tap::rings::Capacity;
use tap::standing::{Change, Entry, Standing};
use tap::{Station, folder::DaemonFolder};
use tempfile::TempDir;

const RING_CAPACITY: Capacity = Capacity { records: 1024, slots: 32, small_slots: 0, ready: 1 };

/// An agent with its disk.
struct Agent {
    parent: TempDir,
    station: Option<Station>,
    standing: Standing,
    /// State and entries since: what survives the agent.
    snapshot: Vec<u8>,
    journal: Vec<Vec<u8>>,
    rows: Vec<TapExchange>,
}

/// What an agent has done of its last round when it dies.
#[derive(Clone, Copy)]
enum Death {
    Unwritten,
    Uncommitted,
    Unapplied,
}

impl Agent {
    fn new() -> Agent {
        let parent = tempfile::tempdir().unwrap();
        // So that programs of other users and in other namespaces can reach it.
        std::fs::set_permissions(parent.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        let standing = Standing::new(Vec::new());
        let snapshot = postcard::to_stdvec(&standing).unwrap();
        let mut agent = Agent { parent, station: None, standing, snapshot, journal: Vec::new(), rows: Vec::new() };
        agent.start();
        agent
    }

    fn path(&self) -> PathBuf {
        self.parent.path().join("tap")
    }

    fn start(&mut self) {
        self.station = Some(Station::open(&self.path(), RING_CAPACITY, &self.standing).unwrap());
    }

    fn round(&mut self) {
        let station = self.station.as_mut().unwrap();
        if let Some(entry) = station.round(&self.standing) {
            self.journal.push(postcard::to_stdvec(&entry).unwrap());
            station.commit(&entry);
            self.standing.apply(&entry, &mut self.rows);
        }
    }

    /// Dies in a round, and restarts from its disk. Rows are computed again, with the same result.
    fn dies(&mut self, death: Death) {
        let mut station = self.station.take().unwrap();
        if let Some(entry) = station.round(&self.standing)
            && !matches!(death, Death::Unwritten)
        {
            self.journal.push(postcard::to_stdvec(&entry).unwrap());
            if matches!(death, Death::Unapplied) {
                station.commit(&entry);
            }
        }
        drop(station);
        let before = std::mem::take(&mut self.rows);
        self.standing = postcard::from_bytes(&self.snapshot).unwrap();
        for entry in &self.journal {
            let entry: Entry = postcard::from_bytes(entry).unwrap();
            self.standing.apply(&entry, &mut self.rows);
        }
        assert_eq!(self.rows[..before.len()], before);
        self.start();
    }

    fn until(&mut self, what: &str, holds: impl Fn(&Agent) -> bool) {
        for _ in 0..60_000 {
            self.round();
            if holds(self) {
                return;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        panic!("never: {what}; {:?}, {:?}", self.standing.gauges(), self.rows);
    }

    fn environment(&self) -> [(&'static str, std::ffi::OsString); 2] {
        DaemonFolder::environment_of(&self.path(), None).unwrap()
    }

    /// Rows of a client program, in the order of exchanges.
    fn exchanges(&self) -> Vec<(u64, u32, TapOutcome, u64)> {
        let told = |row: &TapExchange| Some((row.connection?, row.exchange?, row.outcome, row.sent_bytes));
        let held = self.rows.iter().filter(|row| row.program.as_deref() == Some("held"));
        held.filter_map(told).collect()
    }

    fn images_with_number(&self, pid: u32) -> usize {
        self.standing.images().filter(|(_, owner, _)| owner.pid == pid).count()
    }
}

/// A program that holds a connection and executes commands. It ends with the test.
struct Held {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Held {
    fn start(command: &mut Command) -> Held {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (input, output) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
        let mut held = Held { child, input, output };
        held.hears("ready");
        held
    }

    fn hears(&mut self, word: &str) {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        assert_eq!(line.trim_end(), word);
    }

    fn tell(&mut self, word: &str) {
        writeln!(self.input, "{word}").unwrap();
        self.hears(if word == "exec" { "ready" } else { word });
    }

    fn end(mut self) {
        writeln!(self.input, "end").unwrap();
        assert!(self.child.wait().unwrap().success());
    }

    fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn program() -> PathBuf {
    compiled("held", &[])
}

fn held(agent: &Agent, port: u16) -> Held {
    Held::start(Command::new(program()).arg(port.to_string()).envs(agent.environment()))
}

/// The first process of a new PID namespace, which ends with `unshare`.
fn in_namespace(agent: &Agent, port: u16) -> Held {
    let mut command = Command::new("unshare");
    if !nix::unistd::geteuid().is_root() {
        command.args(["--user", "--map-root-user"]);
    }
    command.args(["--fork", "--pid", "--mount-proc", "--kill-child=KILL"]).arg(program()).arg(port.to_string());
    Held::start(command.envs(agent.environment()))
}

#[test]
fn agents_killed_at_any_step_record_each_exchange_once() {
    let mut agent = Agent::new();
    let mut held = held(&agent, server());
    let deaths = [Death::Unwritten, Death::Uncommitted, Death::Unapplied];
    for number in 0..60 {
        held.tell("ask");
        match number % 4 {
            3 => agent.dies(deaths[number / 4 % 3]),
            // Twice in a row, without an agent in between.
            2 if number % 8 == 2 => agent.dies(Death::Unwritten),
            _ => agent.round(),
        }
    }
    // No agent runs meanwhile.
    agent.station = None;
    (0..40).for_each(|_| held.tell("ask"));
    held.end();
    agent.start();
    agent.until("all are rows", |agent| agent.exchanges().len() == 100);
    let all = agent.exchanges();
    assert_eq!(all.iter().map(|row| row.1).collect::<Vec<_>>(), (0..100).collect::<Vec<_>>());
    assert!(all.iter().all(|row| (row.0, row.2) == (0, TapOutcome::Succeeded)), "{all:?}");
    assert_eq!(agent.standing.take_lost(), tap::standing::Lost::default());
    agent.until("it is gone", |agent| agent.standing.gauges().processes == 0);
}

#[test]
fn a_killed_process_is_detected_and_its_ring_becomes_free() {
    let mut agent = Agent::new();
    let port = server();
    let (mut first, mut second) = (held(&agent, port), held(&agent, port));
    first.tell("ask");
    second.tell("ask");
    agent.until("both are there", |agent| agent.standing.gauges().open == 2);
    first.kill();
    agent.until("the killed one is gone", |agent| agent.standing.gauges().processes == 1);
    let row = &agent.rows[0];
    assert_eq!((row.outcome, row.last, row.closed_at.is_some()), (TapOutcome::Cut, true, true));
    second.tell("ask");
    agent.until("the other goes on", |agent| agent.rows.len() == 2);
    // Its slot is reused: more programs than there are slots come and are killed.
    for _ in 0..RING_CAPACITY.slots {
        drop(held(&agent, port));
    }
    agent.until("all of them are gone", |agent| agent.standing.gauges().processes == 1);
    let mut last = held(&agent, port);
    last.tell("ask");
    last.end();
    agent
        .until("the last is a row", |agent| agent.exchanges().last().is_some_and(|row| row.2 == TapOutcome::Succeeded));
    second.end();
}

#[test]
fn after_exec_rows_carry_the_name_of_the_new_program() {
    let mut agent = Agent::new();
    let mut held = held(&agent, server());
    held.tell("ask");
    held.tell("exec");
    held.tell("ask");
    held.tell("exec");
    held.tell("again");
    held.tell("ask");
    held.end();
    agent.until("it is gone", |agent| agent.standing.gauges().processes == 0);
    let all = agent.exchanges();
    assert_eq!(all.iter().map(|row| (row.0, row.1)).collect::<BTreeSet<_>>().len(), all.len(), "{all:?}");
    assert_eq!(all.iter().map(|row| row.3).collect::<Vec<_>>(), [20, 20, 20], "{all:?}");
}

#[test]
fn equal_pids_in_two_pid_namespaces_are_separate_processes() {
    let mut agent = Agent::new();
    let port = server();
    let (mut first, mut second) = (in_namespace(&agent, port), in_namespace(&agent, port));
    first.tell("ask");
    second.tell("ask");
    agent.until("both are there", |agent| agent.images_with_number(1) == 2 && agent.standing.gauges().open == 2);
    let spaces: BTreeSet<u32> = agent.standing.images().map(|(_, owner, _)| owner.space).collect();
    assert_eq!(spaces.len(), 3, "two of their own, and this one, where `unshare` is: {spaces:?}");
    // Several checks pass, and no process counts as ended.
    let before = agent.journal.len();
    agent.until("some time passes", |agent| agent.journal.len() > before + 3);
    assert_eq!((agent.images_with_number(1), agent.rows.len()), (2, 0));
    first.kill();
    agent.until("the first is gone", |agent| agent.images_with_number(1) == 1);
    assert_eq!(agent.rows.len(), 1);
    second.tell("ask");
    agent.until("the second goes on", |agent| agent.rows.len() == 2);
    assert_eq!((agent.rows[1].outcome, agent.rows[1].pid), (TapOutcome::Succeeded, 1));
    // A restarted agent knows them, too.
    agent.dies(Death::Unwritten);
    second.kill();
    agent.until("the second is gone", |agent| agent.standing.gauges().processes == 0);
}

#[test]
fn an_unseen_program_is_listed_with_the_reason() {
    let mut agent = Agent::new();
    let fixed = compiled("held", &["-static"]);
    let script = format!("{} 1; env -i /bin/true; /no/such/program; exit 0", fixed.display());
    let mut shell = Command::new("/bin/sh");
    let status = shell.arg("-c").arg(script).envs(agent.environment()).stderr(Stdio::null()).status().unwrap();
    assert!(status.success());
    let mut told: Vec<Change> = Vec::new();
    for _ in 0..60_000 {
        agent.round();
        told.extend(agent.standing.take_programs());
        if told.iter().filter(|change| change.unseen > 0).count() >= 2 {
            break;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    let name = fixed.file_name().unwrap().to_str().unwrap();
    let why =
        |name: &str| told.iter().find(|change| change.name == name && change.unseen > 0).map(|it| it.why.as_str());
    assert_eq!(why(&name[..name.len().min(15)]), Some("linked statically"), "{told:?}");
    assert!(why("true").is_some_and(|why| why.contains("without LD_PRELOAD")), "{told:?}");
    assert!(told.iter().any(|change| change.name == "sh" && change.seen >= 1), "{told:?}");
    assert!(told.iter().all(|change| change.name != "program"), "what was not there was not started: {told:?}");
}

/// A program started outside the tap with a system call filter, as in a container.
fn with_a_filter(agent: &Agent, port: u16, allowed: Option<&str>) -> Held {
    let [(_, library), (name, folder)] = agent.environment();
    let mut command = Command::new(program());
    command.arg(port.to_string()).env("HELD_PRELOAD", library).env(name, folder);
    command.envs(allowed.map(|number| ("YAMABIKO_TAP_FILTERS", number)));
    Held::start(&mut command)
}

#[test]
fn a_program_with_a_seccomp_filter_is_not_recorded_unless_the_filter_is_declared_harmless() {
    let own = std::fs::read_to_string("/proc/self/status").unwrap();
    let own =
        own.lines().find_map(|line| line.strip_prefix("Seccomp_filters:")?.trim().parse::<u32>().ok()).unwrap_or(0);
    let mut agent = Agent::new();
    let port = server();
    let mut left_alone = with_a_filter(&agent, port, None);
    left_alone.tell("ask");
    left_alone.end();
    let mut followed = with_a_filter(&agent, port, Some(&(own + 1).to_string()));
    followed.tell("ask");
    followed.end();
    agent.until("the second is a row", |agent| !agent.rows.is_empty());
    assert_eq!(agent.exchanges().len(), 1, "{:?}", agent.rows);
    let told = agent.standing.take_programs();
    let held = told.iter().find(|change| change.name == "held").unwrap();
    assert_eq!((held.seen, held.unseen), (1, 1));
    assert!(held.why.contains("seccomp"), "{held:?}");
}

#[test]
fn a_second_agent_is_rejected_and_programs_stay_recorded_after_a_library_update() {
    let mut agent = Agent::new();
    let mut held = held(&agent, server());
    let error = Station::open(&agent.path(), RING_CAPACITY, &Standing::new(Vec::new())).unwrap_err().to_string();
    assert!(error.contains(&format!("process {}", std::process::id())), "{error}");
    agent.station = None;
    // As left by an agent of another version.
    std::fs::write(agent.path().join("libyamabiko_tap.so.other"), "other").unwrap();
    std::fs::rename(agent.path().join("libyamabiko_tap.so.other"), agent.path().join("libyamabiko_tap.so")).unwrap();
    agent.start();
    held.tell("ask");
    held.end();
    agent.until("it is a row", |agent| agent.exchanges().len() == 1);
    assert!(Path::new(&agent.environment()[0].1).metadata().unwrap().len() > 10_000, "the library is ours again");
}
