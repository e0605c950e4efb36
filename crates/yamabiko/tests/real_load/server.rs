//! The server under test, limited and stalled: a CPU limit, and two seconds without progress.

use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use schema::RequestRecord;

use crate::support::document::{assert_checks_passed, count, number};
use crate::support::processes::{signal_all, stat, wait_for_server};
use crate::support::servers::{PAGE, bench, nginx};
use crate::support::workspace::{Workspace, str_of};

#[test]
fn a_cpu_limit_of_20_percent_limits_nginx() {
    let workspace = Workspace::new();
    let server = nginx(&workspace);
    let mut bench = workspace.start(&bench(&server, "--server-cpu 20% -c 64 --close -d 4s --json"));
    let server_pids = wait_for_server(&mut bench, "nginx", 2);
    let cpu = || server_pids.iter().map(|&pid| stat(pid).map_or(Duration::ZERO, |stat| stat.cpu)).sum::<Duration>();
    sleep(Duration::from_secs(1));
    let (from, cpu_from) = (Instant::now(), cpu());
    sleep(Duration::from_millis(2500));
    let share = (cpu() - cpu_from).as_secs_f64() / from.elapsed().as_secs_f64();

    let document = bench.finish().json();
    assert_checks_passed(&document, &["conservation", "server_alive", "responses_whole", "no_unintended_drops"]);
    let used = number(&document, "server.cpu_user_s") + number(&document, "server.cpu_system_s");
    let reported = used / number(&document, "run.duration_s");
    // The limit is 20 ms of every 100 ms; the last period may be counted partly.
    assert!((0.16..0.23).contains(&reported), "the document reports {reported}");
    assert!((0.16..0.23).contains(&share), "/proc reports {share}");
    let throttled_s = number(&document, "server.throttled_s");
    assert!(throttled_s > 1.0, "64 connections need more than the limit: {throttled_s}");
    assert!(count(&document, "load.completed") > 500, "{}", document["load"]["completed"]);
}

/// The server warms up without a limit and is limited in the measured phase, as `predict` does.
#[test]
fn a_cpu_limit_can_apply_to_the_measured_phase_only() {
    let workspace = Workspace::new();
    let plan = workspace.file("held.toml");
    let text = format!(
        "[load]\nurl = {:?}\nconnections = 64\nclose = true\nwarmup = \"3s\"\nduration = \"3s\"\n[path]\nrtt = \"0ms\"\n\
         [server]\ncommand = {:?}\ncpu_measured = \"10%\"\n",
        PAGE,
        nginx(&workspace)
    );
    std::fs::write(&plan, text).unwrap();
    let mut run = workspace.start(&["run", str_of(&plan), "--json"]);
    let server_pids = wait_for_server(&mut run, "nginx", 2);
    let cpu = || server_pids.iter().map(|&pid| stat(pid).map_or(Duration::ZERO, |stat| stat.cpu)).sum::<Duration>();
    // The limit applies from half a second before the measured phase.
    let (from, cpu_from) = (Instant::now(), cpu());
    sleep(Duration::from_millis(1500));
    let warm = (cpu() - cpu_from).as_secs_f64() / from.elapsed().as_secs_f64();
    let document = run.finish().json();
    let used = number(&document, "server.cpu_user_s") + number(&document, "server.cpu_system_s");
    let reported = used / number(&document, "run.duration_s");
    assert!((0.07..0.13).contains(&reported), "the document reports {reported}");
    assert!(warm > 0.15, "the server uses {warm} of a core in the warm-up");
    assert!(number(&document, "server.throttled_s") > 1.0, "{}", document["server"]);
}

#[test]
fn a_server_stall_appears_in_full_in_the_response_times() {
    let workspace = Workspace::new();
    let server = nginx(&workspace);
    let mut bench = workspace.start(&bench(&server, "--rtt 20ms --rate 200/s --warmup 500ms -d 6s --json"));
    let server_pids = wait_for_server(&mut bench, "nginx", 2);
    sleep(Duration::from_millis(2500));
    signal_all(&server_pids, Signal::SIGSTOP);
    let stopped = Instant::now();
    sleep(Duration::from_secs(2));
    signal_all(&server_pids, Signal::SIGCONT);
    let stall_s = stopped.elapsed().as_secs_f64();

    let document = bench.finish().json();
    assert_checks_passed(&document, &["conservation", "littles_law_requests", "responses_whole", "server_alive"]);
    // The schedule continued during the stall, and no request was omitted.
    assert_eq!(count(&document, "load.offered_requests"), 1200);
    assert_eq!(count(&document, "load.completed"), 1200);
    let longest_s = number(&document, "load.response_time_ns.max") / 1e9;
    assert!((stall_s - 0.1..stall_s + 0.5).contains(&longest_s), "stalled {stall_s} s, longest response {longest_s} s");
    // 1 % of 1200 requests are the first 12 of the stall, those of 60 ms.
    let p99_s = number(&document, "load.response_time_ns.p99") / 1e9;
    assert!((stall_s - 0.2..=longest_s).contains(&p99_s), "p99 {p99_s}, stalled {stall_s}");
    // Every request scheduled more than a second before the end of the stall waits more than a second. A slow recovery
    // may add some after it.
    let mut rows: Vec<RequestRecord> = store::read_requests(Path::new(document["run"]["dir"].as_str().unwrap()))
        .unwrap()
        .map(Result::unwrap)
        .collect();
    rows.sort_by_key(|row| row.scheduled_at);
    let is_late = |row: &RequestRecord| row.response_time_ns() > 1_000_000_000;
    let late = rows.iter().filter(|row| is_late(row)).count();
    let due = 200.0 * (stall_s - 1.0);
    assert!(late as f64 >= 0.95 * due, "{late} responses over 1 s, at least {due} were due in time for it");
    // The recovery takes at most 0.5 s.
    assert!(late as f64 <= 1.1 * due + 100.0, "{late} responses over 1 s, {due} were due in time for it");
    let (first, last) = (rows.iter().position(is_late).unwrap(), rows.iter().rposition(is_late).unwrap());
    assert!(late as f64 >= 0.98 * (last - first + 1) as f64, "{late} responses over 1 s of {first}..={last}");
    let longest = |rows: &[RequestRecord]| rows.iter().map(RequestRecord::response_time_ns).max().unwrap_or(0);
    assert!(longest(&rows[last + 1..]) <= 1_000_000_000 && longest(&rows[..first]) <= 1_000_000_000);
    // Requests are sent on time during the stall: the delay is the server's, not the generator's.
    assert!(number(&document, "load.send_lag_ns.p90") < 5e6, "{}", document["load"]["send_lag_ns"]);
    // The service times contain the stall, too, since no request waits for a connection.
    assert!(number(&document, "load.service_time_ns.max") / 1e9 > stall_s - 0.1);
}
