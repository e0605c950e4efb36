//! Whatever makes the figures of a run wrong is reported, and the run is not valid.

use std::collections::BTreeSet;
use std::fs;
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use serde_json::Value;

use crate::support::document::{assert_checks_passed, check, checks_not_ok, count, disturbed, number};
use crate::support::processes::wait_for_server;
use crate::support::servers::{bench, yamabiko_serve};
use crate::support::workspace::{Output, Running, TEST_TIMEOUT, Workspace, str_of, wait_until, yamabiko};

/// Asserts that the run is not valid and that each of these checks failed; returns the document.
fn assert_not_valid(output: &Output, names: &[&str]) -> Value {
    let document = output.json();
    assert_ne!(document["validity"]["verdict"], "valid", "{output}");
    let invalid = document["validity"]["verdict"] == "invalid";
    assert_eq!(output.code, Some(if invalid { 3 } else { 0 }), "{output}");
    for name in names {
        assert!(checks_not_ok(&document).contains(name), "check `{name}` passed: {output}");
        assert!(check(&document, name)["why"].as_str().unwrap().len() > 20, "{output}");
    }
    assert_checks_passed(&document, &["conservation"]);
    document
}

/// Peak memory of a process until it ends, in kB.
fn peak_kb(running: &mut Running) -> u64 {
    let (started, mut peak) = (Instant::now(), 0);
    while !running.ended() && started.elapsed() < TEST_TIMEOUT {
        let status = fs::read_to_string(format!("/proc/{}/status", running.pid())).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let now = line.and_then(|line| line.trim().trim_end_matches(" kB").parse().ok());
        peak = peak.max(now.unwrap_or(0));
        sleep(Duration::from_millis(10));
    }
    peak
}

/// A higher rate than any test machine can offer: the generator reports its timing error and ends.
#[test]
fn an_overloaded_generator_makes_the_run_not_valid() {
    let workspace = Workspace::new();
    let serving = workspace.start(&["serve", str_of(&workspace.www()), "--listen", "127.0.0.1:0"]);
    let mut address = String::new();
    wait_until("the server prints its address", || {
        let stderr = serving.stderr();
        address =
            stderr.split_once("http://").and_then(|(_, rest)| rest.split_once('/')).map_or("", |(it, _)| it).to_owned();
        !address.is_empty()
    });
    let url = format!("http://{address}/10k.bin");
    for rate in ["400000/s", "1000000000/s"] {
        let bounds = ["-d", "1s", "--timeout", "1s", "--connect-timeout", "1s", "--json"];
        let arguments: Vec<&str> = ["bench", &url, "--rate", rate].into_iter().chain(bounds).collect();
        let mut running = workspace.start(&arguments);
        let peak_kb = peak_kb(&mut running);
        let output = running.finish();
        assert_not_valid(&output, &["generator_on_time"]);
        assert_eq!(output.code, Some(3), "{output}");
        assert!(peak_kb < 2_000_000, "{peak_kb} kB");
    }
}

#[test]
fn a_connection_limit_of_the_load_is_reported() {
    let workspace = Workspace::new();
    let server = yamabiko_serve(&workspace);
    // One connection can carry 20 requests per second with this RTT.
    let options = "--rtt 50ms -c 1 --rate 100/s -d 1s --warmup 0s --json";
    let document = assert_not_valid(&workspace.run(&bench(&server, options)), &["connection_cap"]);
    assert!(number(&document, "load.backlog.max") > 25.0);
    // Waiting for the connection is not a delay of the generator.
    let send_lag_ns = number(&document, "load.send_lag_ns.p50");
    assert!(send_lag_ns > 100e6, "{}", document["load"]);
    // On a busy machine the generator's own delay accumulates in the queue, but it remains a small part of the wait.
    let own_delay_ns = number(&document, "load.generator_delay.response_time_ns.p50");
    assert!(own_delay_ns < 0.1 * send_lag_ns, "{own_delay_ns} of {send_lag_ns} ns: {}", document["load"]);
    assert_checks_passed(&document, &["littles_law_requests", "no_unintended_drops", "server_alive"]);
    assert!(check(&document, "connection_cap")["why"].as_str().unwrap().contains("-c"));
}

#[test]
fn exhausted_descriptors_of_the_load_are_reported() {
    let workspace = Workspace::new();
    let server = yamabiko_serve(&workspace);
    let mut limited = Command::new("prlimit");
    limited
        .arg("--nofile=140")
        .arg(yamabiko())
        .args(bench(&server, "--rtt 50ms --rate 500/s -d 1s --warmup 0s --json"));
    let document = assert_not_valid(&workspace.start_command(limited).finish(), &["connection_cap"]);
    assert!(check(&document, "connection_cap")["why"].as_str().unwrap().contains("ulimit -n"));
    assert_eq!(count(&document, "load.connections.max"), 12, "the free descriptors of 140");
}

#[test]
fn exhausted_client_ports_are_reported() {
    let workspace = Workspace::new();
    let script = "ip link set lo up && echo '40000 40009' > /proc/sys/net/ipv4/ip_local_port_range && \
                  { \"$0\" serve www --listen 127.0.0.1:8080 2>/dev/null & } && \
                  until \"$0\" bench http://127.0.0.1:8080/10k.bin -c 1 -n 1 --no-save > /dev/null 2>&1; do :; done && \
                  exec \"$0\" bench http://127.0.0.1:8080/10k.bin -c 64 -d 1s --json";
    let mut alone = Command::new("unshare");
    // A PID namespace, too, so that the server ends with the run.
    alone.args(["--net", "--pid", "--fork", "--kill-child", "sh", "-c", script]).arg(yamabiko());
    let document = assert_not_valid(&workspace.start_command(alone).finish(), &["client_descriptors_and_ports"]);
    assert_eq!(document["validity"]["verdict"], "invalid");
    assert!(count(&document, "load.failed.no_ports") >= 54);
    assert!(check(&document, "client_descriptors_and_ports")["why"].as_str().unwrap().contains("without a free port"));
}

/// The whole program is stopped, as by a debugger or a suspended machine.
#[test]
fn a_stall_of_the_generator_is_reported() {
    let workspace = Workspace::new();
    let server = yamabiko_serve(&workspace);
    let running = start_measuring(&workspace, &bench(&server, "--rtt 5ms --rate 500/s -d 4s --warmup 0s --json"));
    running.signal(Signal::SIGSTOP);
    sleep(Duration::from_millis(300));
    running.signal(Signal::SIGCONT);
    let document = assert_not_valid(&running.finish(), &["loop_not_stalled"]);
    assert!(number(check(&document, "loop_not_stalled"), "value") > 250e6);
    assert_eq!(count(&document, "load.completed"), 2000, "delayed requests are not lost");
    // The response times contain the complete stall.
    assert!(number(&document, "load.response_time_ns.max") > 250e6);
}

/// The server floods the path with packets while the path is stopped: the device's queue overflows.
#[test]
fn packets_dropped_by_an_overflowing_device_queue_are_reported() {
    let workspace = Workspace::new();
    let flood = "bash -c 'while :; do echo flood > /dev/udp/198.19.0.1/9; done' 2>/dev/null & ";
    let server = format!("{flood}{}", yamabiko_serve(&workspace));
    let mut running = start_measuring(&workspace, &bench(&server, "--rtt 5ms --rate 100/s -d 4s --warmup 0s --json"));
    let inside = wait_for_server(&mut running, "serve", 1)[0];
    running.signal(Signal::SIGSTOP);
    wait_until("packets dropped at s0", || dropped(inside) > 0);
    running.signal(Signal::SIGCONT);
    let document = assert_not_valid(&running.finish(), &["no_unintended_drops", "loop_not_stalled"]);
    assert_eq!(document["validity"]["verdict"], "invalid");
    assert!(number(check(&document, "no_unintended_drops"), "value") >= 1.0);
}

/// Packets dropped by the server's device.
fn dropped(pid: i32) -> u64 {
    let devices = fs::read_to_string(format!("/proc/{pid}/net/dev")).unwrap();
    let line = devices.lines().find_map(|line| line.trim().strip_prefix("s0:")).unwrap();
    line.split_whitespace().nth(11).unwrap().parse().unwrap()
}

#[test]
fn a_crash_of_the_server_is_reported() {
    let workspace = Workspace::new();
    let server = format!("timeout 2 {}", yamabiko_serve(&workspace).trim_start_matches("exec "));
    let options = "--rate 200/s -d 4s --warmup 0s --timeout 1s --connect-timeout 1s --json";
    let output = workspace.run(&bench(&server, options));
    let document = assert_not_valid(&output, &["server_alive"]);
    assert!(check(&document, "server_alive")["why"].as_str().unwrap().contains("exit status 124"), "{output}");
    assert!(count(&document, "load.completed") > 0 && count(&document, "load.failed.connect_refused") > 0, "{output}");
}

/// The run store's disk fills up during a run: the result is printed completely, and earlier data are readable.
#[test]
fn a_full_disk_during_a_run_is_reported() {
    let workspace = Workspace::new();
    let script = "mount -t tmpfs -o size=4m none runs && {
        { until ls runs/*/requests/000001.parquet; do sleep 0.1; done; cat /dev/zero > runs/full; } > /dev/null 2>&1 &
        \"$0\" \"$@\"; status=$?
        \"$0\" report last > out/again 2>&1; rm -f runs/full; cp -r runs out/copy; exit $status; }";
    let server = yamabiko_serve(&workspace);
    let mut tiny = Command::new("unshare");
    tiny.args(["-m", "sh", "-c", script]).arg(yamabiko());
    tiny.args(bench(&server, "--rate 2000/s -d 5s --warmup 0s --json"));
    let output = workspace.start_command(tiny).finish();
    let document = assert_not_valid(&output, &["records_stored"]);
    assert!(check(&document, "records_stored")["why"].as_str().unwrap().contains("no space left"), "{output}");
    assert_eq!(count(&document, "load.completed"), 10_000, "{output}");
    // The catalogue is in the same folder.
    let mut copied = fs::read_dir(workspace.file("copy")).unwrap().map(|entry| entry.unwrap().path());
    let stored = copied.find(|path| path.is_dir()).unwrap();
    let rows = store::read_requests(&stored).unwrap().map(Result::unwrap).count();
    assert!((1..=10_000).contains(&rows), "{rows} of 10000 rows can be read");
    // Space that is freed at the end of the run may be enough for the summary.
    let again = fs::read_to_string(workspace.file("again")).unwrap();
    assert!(again.contains("no space left") || again.contains("closed parts are readable"), "{again}");
}

#[test]
fn two_concurrent_testbeds_do_not_disturb_each_other() {
    let workspace = Workspace::new();
    let server = yamabiko_serve(&workspace);
    let arguments = bench(&server, "--rtt 10ms --clients 20 --rate 100/s -d 2s --warmup 500ms --json");
    let running = [workspace.start(&arguments), workspace.start(&arguments)];
    let documents = running.map(|run| run.finish().json());
    let of = |name: &str| documents.iter().map(|document| document["run"][name].to_string()).collect::<BTreeSet<_>>();
    assert_eq!((of("id").len(), of("dir").len()), (2, 2));
    for document in &documents {
        assert_eq!(count(document, "load.completed"), 200);
        assert_checks_passed(document, &["conservation", "no_unintended_drops", "server_alive", "records_stored"]);
        assert_checks_passed(document, &["responses_whole"]);
        // Two testbeds share the cores: a run may be suspect, but not invalid.
        for name in ["rtt_as_configured", "littles_law_requests", "littles_law_connections"] {
            let check = check(document, name);
            assert!(check["state"] == "ok" || check["weight"] == "suspect" || disturbed(document), "{check}");
        }
    }
}

/// Starts a run and waits until its first second or two are stored: the load is running.
fn start_measuring(workspace: &Workspace, arguments: &[&str]) -> Running {
    let mut running = workspace.start(arguments);
    wait_until("the first part of a table is stored", || {
        assert!(!running.ended(), "the program exited early: {}", running.stderr());
        let mut runs = fs::read_dir(workspace.runs()).unwrap().flatten();
        runs.any(|run| run.path().join("requests/000001.parquet").exists())
    });
    running
}
