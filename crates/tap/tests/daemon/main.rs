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
use tap::daemon_state::{Change, DaemonState, Entry};
use tap::rings::Capacity;
use tap::{DaemonReader, folder::DaemonFolder};
use tempfile::TempDir;

const RING_CAPACITY: Capacity = Capacity { records: 1024, slots: 32, small_slots: 0, ready: 1 };

/// An agent, its folder and its stored data.
struct Agent {
    parent: TempDir,
    reader: Option<DaemonReader>,
    state: DaemonState,
    /// Stored state, and in `journal` the entries since: what survives the agent.
    snapshot: Vec<u8>,
    journal: Vec<Vec<u8>>,
    rows: Vec<TapExchange>,
}

/// The step of its last round before which an agent is killed.
#[derive(Clone, Copy)]
enum KillBefore {
    Journal,
    Commit,
    Apply,
}

impl Agent {
    fn new() -> Agent {
        let parent = tempfile::tempdir().unwrap();
        // Programs of other users and in other namespaces must reach the folder.
        std::fs::set_permissions(parent.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        let state = DaemonState::new(Vec::new());
        let snapshot = postcard::to_stdvec(&state).unwrap();
        let mut agent = Agent { parent, reader: None, state, snapshot, journal: Vec::new(), rows: Vec::new() };
        agent.start();
        agent
    }

    fn path(&self) -> PathBuf {
        self.parent.path().join("tap")
    }

    fn start(&mut self) {
        self.reader = Some(DaemonReader::open(&self.path(), RING_CAPACITY, &self.state).unwrap());
    }

    fn round(&mut self) {
        let reader = self.reader.as_mut().unwrap();
        if let Some(entry) = reader.round(&self.state) {
            self.journal.push(postcard::to_stdvec(&entry).unwrap());
            reader.commit(&entry);
            self.state.apply(&entry, &mut self.rows);
        }
    }

    /// Kills the agent in a round, and restarts it from its disk. The same rows are computed again.
    fn kill_and_restart(&mut self, kill_point: KillBefore) {
        let mut reader = self.reader.take().unwrap();
        if let Some(entry) = reader.round(&self.state)
            && !matches!(kill_point, KillBefore::Journal)
        {
            self.journal.push(postcard::to_stdvec(&entry).unwrap());
            if matches!(kill_point, KillBefore::Apply) {
                reader.commit(&entry);
            }
        }
        drop(reader);
        let before = std::mem::take(&mut self.rows);
        self.state = postcard::from_bytes(&self.snapshot).unwrap();
        for entry in &self.journal {
            let entry: Entry = postcard::from_bytes(entry).unwrap();
            self.state.apply(&entry, &mut self.rows);
        }
        assert_eq!(self.rows[..before.len()], before);
        self.start();
    }

    fn until(&mut self, what: &str, condition: impl Fn(&Agent) -> bool) {
        for _ in 0..60_000 {
            self.round();
            if condition(self) {
                return;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        panic!("the condition never became true: {what}; {:?}, {:?}", self.state.gauges(), self.rows);
    }

    fn environment(&self) -> [(&'static str, std::ffi::OsString); 2] {
        DaemonFolder::environment_of(&self.path(), None).unwrap()
    }

    /// Rows of a client program, in the order of exchanges.
    fn exchanges(&self) -> Vec<(u64, u32, TapOutcome, u64)> {
        let fields = |row: &TapExchange| Some((row.connection?, row.exchange?, row.outcome, row.sent_bytes));
        let client = self.rows.iter().filter(|row| row.program.as_deref() == Some("held"));
        client.filter_map(fields).collect()
    }

    fn images_with_number(&self, pid: u32) -> usize {
        self.state.images().filter(|(_, owner, _)| owner.pid == pid).count()
    }
}

/// A client program with one connection that executes commands. It ends with the test.
struct TestClient {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl TestClient {
    fn start(command: &mut Command) -> TestClient {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (input, output) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
        let mut client = TestClient { child, input, output };
        client.expect_line("ready");
        client
    }

    fn expect_line(&mut self, word: &str) {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        assert_eq!(line.trim_end(), word);
    }

    fn command(&mut self, word: &str) {
        writeln!(self.input, "{word}").unwrap();
        self.expect_line(if word == "exec" { "ready" } else { word });
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

impl Drop for TestClient {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn program() -> PathBuf {
    compiled("held", &[])
}

fn client(agent: &Agent, port: u16) -> TestClient {
    TestClient::start(Command::new(program()).arg(port.to_string()).envs(agent.environment()))
}

/// The first process of a new PID namespace, which ends with `unshare`.
fn in_namespace(agent: &Agent, port: u16) -> TestClient {
    let mut command = Command::new("unshare");
    if !nix::unistd::geteuid().is_root() {
        command.args(["--user", "--map-root-user"]);
    }
    command.args(["--fork", "--pid", "--mount-proc", "--kill-child=KILL"]).arg(program()).arg(port.to_string());
    TestClient::start(command.envs(agent.environment()))
}

#[test]
fn agents_killed_at_any_step_record_each_exchange_once() {
    let mut agent = Agent::new();
    let mut client = client(&agent, server());
    let kill_points = [KillBefore::Journal, KillBefore::Commit, KillBefore::Apply];
    for number in 0..60 {
        client.command("ask");
        match number % 4 {
            3 => agent.kill_and_restart(kill_points[number / 4 % 3]),
            // Twice in a row, without an agent in between.
            2 if number % 8 == 2 => agent.kill_and_restart(KillBefore::Journal),
            _ => agent.round(),
        }
    }
    // No agent runs while these exchanges happen.
    agent.reader = None;
    (0..40).for_each(|_| client.command("ask"));
    client.end();
    agent.start();
    agent.until("all exchanges are rows", |agent| agent.exchanges().len() == 100);
    let all = agent.exchanges();
    assert_eq!(all.iter().map(|row| row.1).collect::<Vec<_>>(), (0..100).collect::<Vec<_>>());
    assert!(all.iter().all(|row| (row.0, row.2) == (0, TapOutcome::Succeeded)), "{all:?}");
    assert_eq!(agent.state.take_lost(), tap::daemon_state::Lost::default());
    agent.until("the program's end is detected", |agent| agent.state.gauges().processes == 0);
}

#[test]
fn a_killed_process_is_detected_and_its_ring_becomes_free() {
    let mut agent = Agent::new();
    let port = server();
    let (mut first, mut second) = (client(&agent, port), client(&agent, port));
    first.command("ask");
    second.command("ask");
    agent.until("both programs are known", |agent| agent.state.gauges().open == 2);
    first.kill();
    agent.until("the killed program's end is detected", |agent| agent.state.gauges().processes == 1);
    let row = &agent.rows[0];
    assert_eq!((row.outcome, row.last, row.closed_at.is_some()), (TapOutcome::Cut, true, true));
    second.command("ask");
    agent.until("the other program is still recorded", |agent| agent.rows.len() == 2);
    // Slots are reused: more programs than slots start and are killed.
    for _ in 0..RING_CAPACITY.slots {
        drop(client(&agent, port));
    }
    agent.until("the ends of all killed programs are detected", |agent| agent.state.gauges().processes == 1);
    let mut last = client(&agent, port);
    last.command("ask");
    last.end();
    agent.until("the last program's exchange is a row", |agent| {
        agent.exchanges().last().is_some_and(|row| row.2 == TapOutcome::Succeeded)
    });
    second.end();
}

#[test]
fn after_exec_rows_carry_the_name_of_the_new_program() {
    let mut agent = Agent::new();
    let mut client = client(&agent, server());
    client.command("ask");
    client.command("exec");
    client.command("ask");
    client.command("exec");
    client.command("again");
    client.command("ask");
    client.end();
    agent.until("the program's end is detected", |agent| agent.state.gauges().processes == 0);
    let all = agent.exchanges();
    assert_eq!(all.iter().map(|row| (row.0, row.1)).collect::<BTreeSet<_>>().len(), all.len(), "{all:?}");
    assert_eq!(all.iter().map(|row| row.3).collect::<Vec<_>>(), [20, 20, 20], "{all:?}");
}

#[test]
fn equal_pids_in_two_pid_namespaces_are_separate_processes() {
    let mut agent = Agent::new();
    let port = server();
    let (mut first, mut second) = (in_namespace(&agent, port), in_namespace(&agent, port));
    first.command("ask");
    second.command("ask");
    agent.until("both programs are known", |agent| agent.images_with_number(1) == 2 && agent.state.gauges().open == 2);
    let spaces: BTreeSet<u32> = agent.state.images().map(|(_, owner, _)| owner.space).collect();
    assert_eq!(spaces.len(), 3, "two new namespaces, and the one of `unshare`: {spaces:?}");
    // Several checks pass, and no process counts as ended.
    let before = agent.journal.len();
    agent.until("some time passes", |agent| agent.journal.len() > before + 3);
    assert_eq!((agent.images_with_number(1), agent.rows.len()), (2, 0));
    first.kill();
    agent.until("the first program's end is detected", |agent| agent.images_with_number(1) == 1);
    assert_eq!(agent.rows.len(), 1);
    second.command("ask");
    agent.until("the second program is still recorded", |agent| agent.rows.len() == 2);
    assert_eq!((agent.rows[1].outcome, agent.rows[1].pid), (TapOutcome::Succeeded, 1));
    // A restarted agent still knows both programs.
    agent.kill_and_restart(KillBefore::Journal);
    second.kill();
    agent.until("the second program's end is detected", |agent| agent.state.gauges().processes == 0);
}

#[test]
fn an_unseen_program_is_listed_with_the_reason() {
    let mut agent = Agent::new();
    let fixed = compiled("held", &["-static"]);
    let script = format!("{} 1; env -i /bin/true; /no/such/program; exit 0", fixed.display());
    let mut shell = Command::new("/bin/sh");
    let status = shell.arg("-c").arg(script).envs(agent.environment()).stderr(Stdio::null()).status().unwrap();
    assert!(status.success());
    let mut reported: Vec<Change> = Vec::new();
    for _ in 0..60_000 {
        agent.round();
        reported.extend(agent.state.take_programs());
        if reported.iter().filter(|change| change.unseen > 0).count() >= 2 {
            break;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    let name = fixed.file_name().unwrap().to_str().unwrap();
    let why =
        |name: &str| reported.iter().find(|change| change.name == name && change.unseen > 0).map(|it| it.why.as_str());
    assert_eq!(why(&name[..name.len().min(15)]), Some("linked statically"), "{reported:?}");
    assert!(why("true").is_some_and(|why| why.contains("without LD_PRELOAD")), "{reported:?}");
    assert!(reported.iter().any(|change| change.name == "sh" && change.seen >= 1), "{reported:?}");
    assert!(
        reported.iter().all(|change| change.name != "program"),
        "a program that does not exist was not started: {reported:?}"
    );
}

/// A program started outside the tap with a system call filter, as in a container.
fn with_a_filter(agent: &Agent, port: u16, allowed: Option<&str>) -> TestClient {
    let [(_, library), (name, folder)] = agent.environment();
    let mut command = Command::new(program());
    command.arg(port.to_string()).env("HELD_PRELOAD", library).env(name, folder);
    command.envs(allowed.map(|number| ("YAMABIKO_TAP_FILTERS", number)));
    TestClient::start(&mut command)
}

#[test]
fn a_program_with_a_seccomp_filter_is_not_recorded_unless_the_filter_is_declared_harmless() {
    let own_filters = std::fs::read_to_string("/proc/self/status").unwrap();
    let own_filters = own_filters
        .lines()
        .find_map(|line| line.strip_prefix("Seccomp_filters:")?.trim().parse::<u32>().ok())
        .unwrap_or(0);
    let mut agent = Agent::new();
    let port = server();
    let mut filtered = with_a_filter(&agent, port, None);
    filtered.command("ask");
    filtered.end();
    let mut followed = with_a_filter(&agent, port, Some(&(own_filters + 1).to_string()));
    followed.command("ask");
    followed.end();
    agent.until("the second program's exchange is a row", |agent| !agent.rows.is_empty());
    assert_eq!(agent.exchanges().len(), 1, "{:?}", agent.rows);
    let reported = agent.state.take_programs();
    let client = reported.iter().find(|change| change.name == "held").unwrap();
    assert_eq!((client.seen, client.unseen), (1, 1));
    assert!(client.why.contains("seccomp"), "{client:?}");
}

#[test]
fn a_second_agent_is_rejected_and_programs_stay_recorded_after_a_library_update() {
    let mut agent = Agent::new();
    let mut client = client(&agent, server());
    let error =
        DaemonReader::open(&agent.path(), RING_CAPACITY, &DaemonState::new(Vec::new())).unwrap_err().to_string();
    assert!(error.contains(&format!("process {}", std::process::id())), "{error}");
    agent.reader = None;
    // The folder contains the library of an agent of another version.
    std::fs::write(agent.path().join("libyamabiko_tap.so.other"), "other").unwrap();
    std::fs::rename(agent.path().join("libyamabiko_tap.so.other"), agent.path().join("libyamabiko_tap.so")).unwrap();
    agent.start();
    client.command("ask");
    client.end();
    agent.until("the exchange is a row", |agent| agent.exchanges().len() == 1);
    assert!(Path::new(&agent.environment()[0].1).metadata().unwrap().len() > 10_000, "the agent restored its library");
}
