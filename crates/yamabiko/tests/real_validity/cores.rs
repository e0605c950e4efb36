//! Other programs on the server's core: the run names them and does not attribute their CPU time to the server.

use std::process::Command;

use serde_json::Value;
use sys::sched::Cores;

use crate::support::document::{check, checks_not_ok, number};
use crate::support::servers::{bench, nginx};
use crate::support::workspace::{Running, Workspace, yamabiko};

/// The core of the server and the core of the generator, in a run with two cores.
fn two_cores() -> [usize; 2] {
    match *Cores::allowed().unwrap().list() {
        [first, second, ..] => [first, second],
        _ => panic!("these tests need two cores"),
    }
}

/// A run on these two cores only.
fn run(workspace: &Workspace, options: &str) -> Value {
    let [server_core, client_core] = two_cores();
    let mut command = Command::new("taskset");
    let server = nginx(workspace);
    command.args(["-c", &format!("{server_core},{client_core}")]).arg(yamabiko()).args(bench(&server, options));
    let output = workspace.start_command(command).finish();
    output.assert_measured();
    let document = output.json();
    assert_eq!(document["run"]["host"]["server_cores"], server_core.to_string(), "{output}");
    document
}

/// A generator that polls for its next packet uses all of its core, and works for a small part of the time.
#[test]
fn polling_is_not_counted_as_work_of_the_generator() {
    let workspace = Workspace::new();
    let options = "--rtt 20ms --clients 20 --rate 100/s -d 2s --warmup 500ms --json";
    for wait in ["sleep", "hybrid", "spin"] {
        let document = run(&workspace, &format!("{options} --wait {wait}"));
        let busy = check(&document, "client_cpu");
        assert!(busy["state"] == "ok" && number(busy, "value") < 0.6, "{wait}: {busy}");
    }
}

/// A shell script on the server's core, started by the command prefix `before`; it ends when dropped.
fn on_server_core(workspace: &Workspace, before: &[&str], script: &str) -> Running {
    let mut command = Command::new("taskset");
    command.args(["-c", &two_cores()[0].to_string()]).args(before).args(["sh", "-c", script]);
    workspace.start_command(command)
}

const BUSY_LOOP: &str = "while :; do :; done";

/// A real-time program that uses the core for some tens of milliseconds at a time.
#[test]
fn a_program_that_competes_for_the_servers_core_is_named() {
    let workspace = Workspace::new();
    let now_and_then = "while :; do i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done; sleep 0.3; done";
    let hog = on_server_core(&workspace, &["chrt", "-f", "50"], now_and_then);
    let document = run(&workspace, "--rtt 20ms --clients 20 --rate 200/s -d 4s --warmup 500ms --json");
    assert_ne!(document["validity"]["verdict"], "valid");
    assert!(checks_not_ok(&document).contains(&"server_cores_undisturbed"), "{}", document["validity"]);
    let why = check(&document, "server_cores_undisturbed")["why"].as_str().unwrap();
    assert!(why.contains(&format!("(pid {})", hog.pid())), "{why}");
    let cores = &document["server"]["cores"];
    assert!(number(cores, "delayed_longest_ns") > 5e6, "{cores}");
    let waited = number(cores, "run_queue_wait_s");
    assert!(number(cores, "delayed_by_others_s") > 0.02 && waited > 0.02, "{cores}");
    // The text report names the program, too.
    let shown = workspace.run(&["report", "last"]);
    assert!(shown.stdout.contains(&format!("(pid {})", hog.pid())), "{shown}");
}

/// Four runs of one server, the last two with a niced busy loop on its core: the loop's CPU time is not attributed to
/// the server, and the uncertainty is in the interval.
#[test]
fn a_busy_loop_on_the_servers_core_is_not_attributed_to_the_server() {
    let workspace = Workspace::new();
    let options = "--rtt 10ms --clients 20 --rate 100/s -d 3s --warmup 500ms --json";
    run(&workspace, options);
    let quiet = run(&workspace, options);
    let hog = on_server_core(&workspace, &["nice", "-n", "19"], BUSY_LOOP);
    run(&workspace, options);
    let niced = run(&workspace, options);
    drop(hog);
    assert_ne!(niced["validity"]["verdict"], "valid");
    assert!(checks_not_ok(&niced).contains(&"server_cpu_attributable"), "{}", niced["validity"]);
    let why = check(&niced, "server_cpu_attributable")["why"].as_str().unwrap();
    // On a busy machine a niced loop is not the first program in the message.
    assert!(why.contains("(pid "), "{why}");
    // The loop had nearly all of the core: 10 ms for each request.
    let each = |document: &Value| number(document, "server.cpu_us_per_request");
    let interval =
        |document: &Value| [0, 1].map(|end| document["server"]["cpu_us_per_request_interval"][end].as_f64().unwrap());
    let others = niced["server"]["cores"]["other_processes_s"][0].as_f64().unwrap();
    assert!(others > 1.0, "{}", niced["server"]);
    assert!(each(&niced) < 3_000.0, "{}", niced["server"]);
    let (a, b) = (interval(&quiet), interval(&niced));
    assert!(a[0] <= b[1] && b[0] <= a[1], "{a:?} and {b:?} do not overlap");
    let compared = workspace.run_json(&["compare", "last~3,last~2", "last~1,last", "--json", "--no-save"]);
    let metrics = compared["compare"]["metrics"].as_array().unwrap();
    let cpu = metrics.iter().find(|metric| metric["short"] == "cpu").unwrap();
    assert!(["no_difference_shown", "not_known"].contains(&str_in(cpu, "verdict")), "{cpu}");
}

fn str_in<'a>(value: &'a Value, field: &str) -> &'a str {
    value[field].as_str().unwrap()
}
