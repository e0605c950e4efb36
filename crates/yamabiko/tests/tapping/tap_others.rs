//! `tap` compared with other measurements of the same program: strace, the kernel's counters, a complete process group.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::{JoinHandle, sleep};
use std::time::Duration;

use crate::support::document::{check, count};
use crate::support::workspace::{Workspace, str_of, wait_until};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

/// Compiles a test program of the interposer.
fn compiled(workspace: &Workspace, name: &str) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../tap/tests/programs/{name}.c"));
    let program = workspace.file(name);
    let built = Command::new("cc").args(["-O1", "-w", "-pthread", "-o"]).args([&program, &source]).status().unwrap();
    assert!(built.success());
    program
}

/// A server that responds to one connection after some time with 20,061 bytes in several pieces, and closes it.
fn slow_server() -> (u16, JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let serving = std::thread::spawn(move || {
        let (mut socket, _) = listener.accept().unwrap();
        assert!(socket.read(&mut [0; 1000]).unwrap() > 0);
        sleep(Duration::from_millis(30));
        for piece in [61, 5_000, 15_000] {
            socket.write_all(&vec![b'y'; piece]).unwrap();
            sleep(Duration::from_millis(5));
        }
    });
    (port, serving)
}

fn document(file: &Path) -> Value {
    serde_json::from_slice(&fs::read(file).unwrap()).unwrap()
}

fn program<'a>(document: &'a Value, name: &str) -> &'a Value {
    let programs = document["tap"]["programs"].as_array().unwrap();
    programs.iter().find(|program| program["name"] == name).unwrap_or_else(|| panic!("{document:#}"))
}

#[test]
fn io_uring_operations_mark_a_connection_as_partial() {
    let workspace = Workspace::concurrent();
    let (port, serving) = slow_server();
    let file = workspace.file("tap.json");
    let uring = compiled(&workspace, "uring");
    let output = workspace.run(&["tap", "--json", str_of(&file), "--", str_of(&uring), &port.to_string()]);
    serving.join().unwrap();
    assert_eq!((output.code, output.stdout.as_str()), (Some(0), "20061\n"), "{output}");
    let document = document(&file);
    assert_eq!(check(&document, "tap_coverage")["state"], "failed");
    let named = program(&document, "uring");
    assert_eq!(named["coverage"], "partial", "{named}");
    // No hook has recorded request or response.
    assert!(named["why"].as_str().unwrap().contains("20084 bytes counted by TCP that no hook recorded"), "{named}");
    assert_eq!(count(&document, "tap.client.unseen_bytes"), 20_084);
}

/// A system call in strace's output; times in microseconds.
#[derive(Clone, Debug)]
struct Call {
    name: String,
    entered: u64,
    returned: u64,
    text: String,
}

fn micros(seconds: &str) -> u64 {
    let (seconds_part, part) = seconds.split_once('.').unwrap();
    seconds_part.parse::<u64>().unwrap() * 1_000_000 + part.parse::<u64>().unwrap()
}

/// Lines of `strace -ttt -T`: `1700000000.000001 read(3, "..", 10) = 10 <0.000005>`.
fn calls(file: &Path) -> Vec<Call> {
    let text = fs::read_to_string(file).unwrap();
    let call = |line: &str| {
        let (at, rest) = line.split_once(' ')?;
        let (name, _) = rest.split_once('(')?;
        let (_, lasted) = rest.rsplit_once(" <")?;
        let entered = micros(at);
        let returned = entered + micros(lasted.strip_suffix('>')?);
        Some(Call { name: name.to_owned(), entered, returned, text: line.to_owned() })
    };
    text.lines().filter_map(call).collect()
}

/// The hooks read the clock between two calls that strace records: each time of the tap is between two times of strace,
/// whose distance is strace's own overhead.
#[test]
fn tap_times_agree_with_strace_within_the_overhead_of_strace() {
    let workspace = Workspace::concurrent();
    let (port, serving) = slow_server();
    let (file, trace) = (workspace.file("tap.json"), workspace.file("strace"));
    let talk = compiled(&workspace, "talk");
    let port = port.to_string();
    let strace = ["strace", "-ttt", "-T", "-o", str_of(&trace), str_of(&talk), "plain", &port];
    let output = workspace.run(&[&["tap", "--json", str_of(&file), "--"], &strace[..]].concat());
    serving.join().unwrap();
    assert_eq!((output.code, output.stdout.as_str()), (Some(0), "20061\n"), "{output}");
    let calls = calls(&trace);
    let first = |name: &str| {
        let found = calls.iter().position(|call| call.name == name);
        found.unwrap_or_else(|| panic!("no {name} in {calls:#?}"))
    };
    let connect = first("connect");
    let on_socket = |name: &str| {
        let own = |call: &Call| call.name == name && call.text.contains(&format!("{name}(3"));
        let at: Vec<_> = (connect..calls.len()).filter(|&at| own(&calls[at])).collect();
        assert!(!at.is_empty(), "no {name} in {calls:#?}");
        at
    };
    let (write, reads, close) = (on_socket("write")[0], on_socket("read"), on_socket("close")[0]);
    // The last read returns end-of-file; the read before it returns the last byte.
    let last = reads[reads.len() - 2];
    let client = &document(&file)["tap"]["client"];
    let within = |name: &str, from: usize, (to_earliest, to_latest): (u64, u64)| {
        let (from_latest, from_earliest) = (calls[from].entered, calls[from - 1].returned);
        let tap_us = count(client, &format!("{name}.max")) as f64 / 1e3;
        // Four times truncated to microseconds, and the rate of the wall clock.
        let (least, most) = (to_earliest.saturating_sub(from_latest) as f64, (to_latest - from_earliest) as f64);
        let slack = 4.0 + most * 0.001;
        println!("{name}: {tap_us:.1} us; by strace from {least} to {most} us");
        assert!(tap_us >= least - slack && tap_us <= most + slack, "{name}: {tap_us} of {least}..{most}\n{calls:#?}");
    };
    let return_of = |at: usize| (calls[at].returned, calls[at + 1].entered);
    within("setup_ns", connect, return_of(connect));
    within("send_ns", write, return_of(write));
    within("response_ns", write, return_of(last));
    // The close follows the last read and further system calls of the hook.
    within("connection_duration_ns", connect, (calls[reads[reads.len() - 1]].returned, calls[close].entered));
    assert!(count(client, "response_ns.max") > 30_000_000);
}

/// `timeout`, and a shell that ends a job, signal the whole process group, so the program already has the
/// signal.
#[test]
fn a_signal_to_the_process_group_arrives_once() {
    let workspace = Workspace::concurrent();
    let script = "import signal, sys, time\n\
                  seen = []\n\
                  signal.signal(signal.SIGTERM, lambda *_: seen.append(1))\n\
                  print('ready', file=sys.stderr, flush=True)\n\
                  while not seen: time.sleep(0.01)\n\
                  time.sleep(0.5)\n\
                  print(len(seen))\n";
    for to_group in [true, false] {
        let mut command = workspace.command(&["tap", "--no-save", "--", "python3", "-c", script]);
        command.process_group(0);
        let running = workspace.start_command(command);
        wait_until("the program is ready", || running.stderr().contains("ready"));
        let pid = running.pid();
        kill(Pid::from_raw(if to_group { -pid } else { pid }), Signal::SIGTERM).unwrap();
        let output = running.finish();
        assert_eq!(
            (output.code, output.stdout.as_str()),
            (Some(0), "1\n"),
            "signal to the group: {to_group}\n{output}"
        );
    }
}

/// Several signals in quick succession: each arrives while the tap still handles the one before.
#[test]
fn rapid_signals_to_the_process_group_are_not_duplicated() {
    let workspace = Workspace::concurrent();
    let script = "import signal, sys, time\n\
                  seen = {s: 0 for s in (signal.SIGUSR1, signal.SIGUSR2, signal.SIGTERM)}\n\
                  def note(s, _): seen[s] += 1\n\
                  for s in seen: signal.signal(s, note)\n\
                  print('ready', file=sys.stderr, flush=True)\n\
                  while not seen[signal.SIGTERM]: time.sleep(0.01)\n\
                  time.sleep(0.1)\n\
                  print(*seen.values())\n";
    let mut command = workspace.command(&["tap", "--no-save", "--", "python3", "-c", script]);
    command.process_group(0);
    let running = workspace.start_command(command);
    wait_until("the program is ready", || running.stderr().contains("ready"));
    let group = Pid::from_raw(-running.pid());
    let rounds = 30;
    for round in 0..rounds {
        kill(group, Signal::SIGUSR1).unwrap();
        // About as long as the tap remembers a signal.
        sleep(Duration::from_micros(4_500 + 50 * round));
        kill(group, Signal::SIGUSR2).unwrap();
        sleep(Duration::from_millis(8));
    }
    kill(group, Signal::SIGTERM).unwrap();
    let output = running.finish();
    let counts: Vec<u64> = output.stdout.split_whitespace().map(|n| n.parse().unwrap()).collect();
    // Fewer signals if the kernel merged two of them before the program handled the first.
    assert!(counts[0] >= 1 && counts[0] <= rounds && counts[1] >= 1 && counts[1] <= rounds, "{counts:?}");
    assert_eq!(counts[2], 1);
}

/// A program that truncates the file of the rings stops only its own recording.
#[test]
fn a_program_that_truncates_the_ring_stops_recording_only() {
    let workspace = Workspace::concurrent();
    let file = workspace.file("tap.json");
    // `truncate` runs without the library, since it would destroy its own ring.
    let script = "LD_PRELOAD= exec truncate -s 0 \"$YAMABIKO_TAP/ring\"";
    let output = workspace.run(&["tap", "--json", str_of(&file), "--", "env", "-u", "LD_PRELOAD", "sh", "-c", script]);
    assert_eq!((output.code, output.signal), (Some(0), None), "{output}");
    let document = document(&file);
    assert_eq!(document["validity"]["verdict"], "invalid");
    assert_eq!(check(&document, "tap_ring")["state"], "failed");
}
