//! `yamabiko cache` against proxies that refuse, hang, reset, send invalid data, loop or are killed, and without a
//! proxy: each is reported with its cause, the sweep ends in bounded time, and no files or processes remain.

use std::fs;
use std::net::TcpListener;
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::Duration;

use crate::support::document::count;
use crate::support::hostile::Hostile;
use crate::support::leftovers::Leftovers;
use crate::support::proxy::{Fault, Proxy, non_ephemeral_listener};
use crate::support::serving::Serving;
use crate::support::workspace::{Output, Running, Workspace, wait_until};
use nix::sys::signal::Signal;
use nix::sys::socket::{
    AddressFamily, Backlog, SockFlag, SockType, SockaddrIn, bind, connect, getsockname, listen, socket,
};
use serde_json::Value;

/// Maximum duration of a point of one minute that its failures end after a second or two, on a machine with concurrent
/// tests: below that minute.
const MAX_DURATION: Duration = Duration::from_secs(55);

/// The proxy's behaviour, the resulting failure cause, and the kind of wrong response if it is one.
type Behaviour = (&'static str, &'static str, Option<&'static str>);

const BEHAVIOURS: [Behaviour; 24] = [
    // The server responds, but is not a proxy.
    ("/ok/1000", "unexpected_body", Some("foreign")),
    ("/chunked/2500", "unexpected_body", Some("foreign")),
    ("/close-delimited/3000", "unexpected_body", Some("foreign")),
    ("/http10", "unexpected_body", Some("foreign")),
    ("/204", "unexpected_status", Some("foreign")),
    ("/304", "unexpected_status", Some("false_not_modified")),
    ("/status/404", "unexpected_status", None),
    // The proxy cannot reach the origin.
    ("/status/502", "unexpected_status", None),
    ("/status/504", "unexpected_status", None),
    // The proxy hangs, or sends slowly.
    ("/silent", "response_timeout", None),
    ("/stall", "response_timeout", None),
    ("/slow", "response_timeout", None),
    ("/trickle-head", "response_timeout", None),
    ("/endless-body", "response_timeout", None),
    // The proxy closes or resets the connection.
    ("/early-close", "closed_before_response", None),
    ("/truncated", "closed_early", None),
    ("/rst", "reset", None),
    // The proxy sends invalid data.
    ("/garbage", "malformed", None),
    ("/switching", "malformed", None),
    ("/conflicting-length", "malformed", None),
    ("/bad-chunk", "malformed", None),
    ("/extra-bytes", "unsolicited_data", None),
    ("/endless-head", "head_too_large", None),
    ("/huge-headers", "head_too_large", None),
];

/// An origin with a workspace of its own, separate from the workspaces that are checked for leftovers.
fn origin() -> (Workspace, Serving) {
    let workspace = Workspace::concurrent();
    let command = workspace.command(&[
        "serve",
        "--workload",
        "polymix-1",
        "--seed",
        "1",
        "--think",
        "none",
        "--listen",
        "127.0.0.1:0",
    ]);
    let origin = Serving::start_command(&workspace, command);
    (workspace, origin)
}

/// Starts a sweep in its own workspace, with its own folder for temporary data.
fn start(workspace: &Workspace, origin: &Serving, proxy: &str, rest: &[&str]) -> Running {
    start_by(workspace, origin, &["--proxy", proxy], rest)
}

/// Starts a sweep in its own workspace, with its own folder for temporary data; `front` contains the options that
/// select the proxy.
fn start_by(workspace: &Workspace, origin: &Serving, front: &[&str], rest: &[&str]) -> Running {
    let passing = workspace.path().join("passing");
    fs::create_dir_all(&passing).unwrap();
    let at = origin.address.to_string();
    let words = ["cache", "--origin-at", &at, "--think", "none", "--warmup", "0"];
    let mut command = workspace.command(&[&words[..], front, rest].concat());
    command.env("TMPDIR", passing);
    workspace.start_command(command)
}

/// No process or temporary folder of a workspace's sweeps remains, and only complete runs are in the run store.
fn assert_nothing_left(workspace: &Workspace) {
    assert_eq!(Leftovers::new(workspace.path()).processes(), []);
    let inside = |folder: &std::path::Path| -> Vec<_> {
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect()
    };
    assert_eq!(inside(&workspace.path().join("passing")), [""; 0].map(std::path::PathBuf::from));
    for run in inside(&workspace.runs()).iter().filter(|path| path.is_dir()) {
        assert!(run.join("summary.json").exists(), "{}", run.display());
        // An incomplete table is a folder of parts.
        assert!(inside(run).iter().all(|path| path.is_file()), "{:?}", inside(run));
    }
}

fn point(document: &Value) -> &Value {
    &document["cache"]["points"][0]
}

/// Causes of failed requests.
fn errors(document: &Value) -> Vec<&str> {
    point(document)["errors"].as_object().unwrap().keys().map(String::as_str).collect()
}

fn has_failed(document: &Value, name: &str) -> bool {
    let checks = document["validity"]["checks"].as_array().unwrap();
    checks.iter().any(|check| check["name"].as_str().unwrap().ends_with(name) && check["state"] == "failed")
}

/// Asserts that every request failed with `cause`, that the text report contains the cause, and that the failures ended
/// the point.
fn assert_point_failed(workspace: &Workspace, output: &Output, what: &str, cause: &str) -> Value {
    assert_eq!(output.code, Some(3), "{what}: {output}");
    assert!(output.elapsed < MAX_DURATION, "{what}: {:?}", output.elapsed);
    assert!(!output.stderr.contains(|c: char| c.is_control() && c != '\n'), "{what}: {output}");
    let document = output.json();
    let one = point(&document);
    assert_eq!(errors(&document), [cause], "{what}: {one}");
    assert_eq!((one["error_ratio"].as_f64(), &one["ended_early"]), (Some(1.0), &Value::Bool(true)), "{what}: {one}");
    assert!(has_failed(&document, "server_answers") || has_failed(&document, "origin reached"), "{what}: {output}");
    let report = workspace.run(&["report", document["run"]["id"].as_str().unwrap()]);
    let words = cause.replace('_', " ");
    let unwrapped = report.stdout.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(unwrapped.contains(&format!("No responses: {words}")), "{what}: {report}");
    document
}

#[test]
fn each_misbehaviour_of_a_cache_is_reported() {
    let (_origin_workspace, origin) = origin();
    // A thread for each: a run's duration must not include the wait for the runs before it.
    std::thread::scope(|scope| {
        for behaviour in BEHAVIOURS {
            let origin = &origin;
            scope.spawn(move || misbehaviour_of_a_cache_is_reported(origin, behaviour));
        }
    });
}

fn misbehaviour_of_a_cache_is_reported(origin: &Serving, (path, cause, wrong): Behaviour) {
    let (workspace, proxy) = (Workspace::concurrent(), Hostile::always(path));
    // Only servers that never respond get a short timeout: on a loaded machine other requests must not time out.
    let timeout = if cause == "response_timeout" { "500ms" } else { "30s" };
    let rest = ["--rate", "40/s", "-d", "60s", "--timeout", timeout, "--json"];
    let output = start(&workspace, origin, &proxy.address().to_string(), &rest).finish();
    let document = assert_point_failed(&workspace, &output, path, cause);
    let found: Vec<&String> = point(&document)["wrong"].as_object().unwrap().keys().collect();
    assert_eq!(found, wrong.into_iter().collect::<Vec<_>>(), "{path}");
    assert!(has_failed(&document, "origin reached"), "{path}");
    if let Some(status) = path.strip_prefix("/status/") {
        let name = format!("error_statuses.{status}");
        assert_eq!(count(point(&document), &name), count(point(&document), "requests"), "{path}");
        let report = workspace.run(&["report", document["run"]["id"].as_str().unwrap()]);
        let unwrapped = report.stdout.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(unwrapped.contains(&format!("unexpected status ({status})")), "{report}");
    }
    assert!(proxy.requests() > 0);
    assert_nothing_left(&workspace);
}

#[test]
fn other_faults_of_a_cache_are_reported() {
    let (_origin_workspace, origin) = origin();
    let origin = &origin;
    std::thread::scope(|scope| {
        scope.spawn(|| a_response_before_the_request_is_rejected(origin));
        scope.spawn(|| a_proxy_before_the_wrong_origin_is_reported(origin));
        scope.spawn(|| a_silent_proxy_is_waited_for_no_longer_than_configured(origin));
        scope.spawn(|| a_forwarding_loop_is_reported(origin, Fault::Loops, "response_timeout"));
        scope.spawn(|| a_forwarding_loop_is_reported(origin, Fault::RedirectsToItself, "unexpected_status"));
    });
}

/// A response that a server sends before any request.
fn a_response_before_the_request_is_rejected(origin: &Serving) {
    let workspace = Workspace::concurrent();
    let proxy = Hostile::always("/unasked");
    let rest = ["--rate", "40/s", "-d", "60s", "--json"];
    let output = start(&workspace, origin, &proxy.address().to_string(), &rest).finish();
    assert_eq!(output.code, Some(3), "{output}");
    let document = output.json();
    // The cause depends on timing: the bytes arrive before the request, or count as a response of another server.
    assert!(errors(&document).iter().all(|cause| ["malformed", "unexpected_body"].contains(cause)), "{output}");
    assert_eq!(point(&document)["error_ratio"], 1.0, "{output}");
    assert!(has_failed(&document, "origin reached"), "{output}");
    assert_nothing_left(&workspace);
}

#[test]
fn an_unreachable_cache_is_reported() {
    let ((_origin_workspace, origin), workspace) = (origin(), Workspace::concurrent());
    let rest = ["--rate", "40/s", "-d", "60s", "--connect-timeout", "500ms", "--json"];
    let closed = non_ephemeral_listener().local_addr().unwrap().to_string();
    let (full, _connections) = full();
    let running = [
        // A port without a listener.
        ("connect_refused", start(&workspace, &origin, &closed, &rest)),
        // No host has this address, and no route leads to it.
        ("connect_failed", start(&workspace, &origin, "255.255.255.255:3128", &rest)),
        // A listener with a full queue that never accepts.
        ("connect_timeout", start(&workspace, &origin, &full, &rest)),
    ];
    // A label of a host name has at most 63 characters, so no resolver is contacted.
    let name = format!("{}.invalid:3128", "x".repeat(64));
    start(&workspace, &origin, &name, &["--rate", "40/s", "--json"])
        .finish()
        .refused(1, &["xxxx.invalid", "no address"]);
    for (cause, run) in running {
        assert_point_failed(&workspace, &run.finish(), "no proxy", cause);
    }
    assert_nothing_left(&workspace);
}

/// A listening socket with a full queue, and the connections that fill the queue.
fn full() -> (String, Vec<OwnedFd>) {
    let new = || {
        socket(AddressFamily::Inet, SockType::Stream, SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK, None).unwrap()
    };
    let listener = new();
    bind(listener.as_raw_fd(), &SockaddrIn::new(127, 0, 0, 1, 0)).unwrap();
    listen(&listener, Backlog::new(0).unwrap()).unwrap();
    let address: SockaddrIn = getsockname(listener.as_raw_fd()).unwrap();
    let mut sockets = vec![listener];
    for _ in 0..4 {
        let client = new();
        // The connect may stay in progress.
        let _ = connect(client.as_raw_fd(), &address);
        sockets.push(client);
    }
    (address.to_string(), sockets)
}

/// A proxy that forwards to itself, and a proxy that redirects to the requested URL.
fn a_forwarding_loop_is_reported(origin: &Serving, fault: Fault, cause: &str) {
    let (workspace, proxy) = (Workspace::concurrent(), Proxy::forward(fault));
    let timeout = if cause == "response_timeout" { "500ms" } else { "30s" };
    let rest = ["--rate", "40/s", "-d", "60s", "--timeout", timeout, "--json"];
    let output = start(&workspace, origin, &proxy.address().to_string(), &rest).finish();
    let document = assert_point_failed(&workspace, &output, &format!("{fault:?}"), cause);
    assert!(has_failed(&document, "origin reached"), "{output}");
    assert_nothing_left(&workspace);
}

#[test]
fn a_restarted_cache_fails_the_requests_of_its_downtime() {
    let ((_origin_workspace, origin), workspace) = (origin(), Workspace::concurrent());
    let mut proxy = Proxy::forward(Fault::None);
    let rest = ["--rate", "100/s", "-d", "4s", "--stop-errors", "none", "--json"];
    let run = start(&workspace, &origin, &proxy.address().to_string(), &rest);
    wait_until("the proxy has responded to some requests", || proxy.counters().requests > 60);
    proxy.kill();
    let before = proxy.counters().requests;
    std::thread::sleep(Duration::from_millis(700));
    proxy.restart();
    let output = run.finish();
    output.assert_measured();
    let document = output.json();
    let one = point(&document);
    assert!(count(one, "errors.connect_refused") > 0, "{one}");
    // Some requests were in flight when the proxy was killed.
    let known = ["connect_refused", "reset", "closed_early", "closed_before_response"];
    assert!(errors(&document).iter().all(|cause| known.contains(cause)), "{one}");
    assert!(proxy.counters().requests > before, "the restarted proxy gets requests: {one}");
    assert!(count(one, "answered") > before, "{one}");
    // Stored responses are still correct after the restart; interrupted ones may be fetched again.
    let wrong = one["wrong"].as_object().unwrap();
    assert!(wrong.keys().all(|kind| kind == "false_miss"), "{one}");
    assert_nothing_left(&workspace);
}

/// Ctrl-C ends a sweep of a hanging proxy early.
#[test]
fn ctrl_c_ends_a_sweep_of_a_silent_cache() {
    let ((_origin_workspace, origin), workspace) = (origin(), Workspace::concurrent());
    let proxy = Hostile::always("/silent");
    let at = proxy.address().to_string();
    let run = start(&workspace, &origin, &at, &["--rate", "40,50/s", "-d", "60s", "--json"]);
    wait_until("requests hang", || proxy.requests() > 20);
    run.signal(Signal::SIGINT);
    let since = std::time::Instant::now();
    while since.elapsed() < Duration::from_millis(500) {
        std::thread::sleep(Duration::from_millis(50));
    }
    run.signal(Signal::SIGINT);
    let output = run.finish();
    assert!(output.elapsed < Duration::from_secs(25), "earlier than the response timeout of 30 s: {output}");
    assert_eq!(output.code, Some(3), "{output}");
    let document = output.json();
    assert_eq!(document["run"]["interrupted"], true, "{output}");
    assert_eq!(document["cache"]["points"].as_array().unwrap().len(), 1, "{output}");
    assert_eq!(errors(&document), ["aborted"], "{output}");
    assert_nothing_left(&workspace);
}

/// A proxy before an origin with another seed: every body differs from the expected one.
fn a_proxy_before_the_wrong_origin_is_reported(origin: &Serving) {
    let unused_address = non_ephemeral_listener().local_addr().unwrap();
    let other_workspace = Workspace::concurrent();
    let words = ["serve", "--workload", "polymix-1", "--seed", "2", "--think", "none", "--listen", "127.0.0.1:0"];
    let other = Serving::start_command(&other_workspace, other_workspace.command(&words));
    for (to, cause, wrong) in
        [(unused_address, "unexpected_status", None), (other.address, "unexpected_body", Some("wrong_body"))]
    {
        let (workspace, proxy) = (Workspace::concurrent(), Proxy::reverse(Fault::None, to));
        let front = ["--reverse", &format!("http://{}", proxy.address())];
        let rest = ["--rate", "40/s", "-d", "60s", "--json"];
        let output = start_by(&workspace, origin, &front, &rest).finish();
        assert_eq!(output.code, Some(3), "{output}");
        let document = output.json();
        assert!(errors(&document).contains(&cause), "{output}");
        assert!(has_failed(&document, "origin reached"), "{output}");
        let found = point(&document)["wrong"].as_object().unwrap();
        assert!(wrong.is_none_or(|wrong| found.contains_key(wrong)), "{output}");
        assert_nothing_left(&workspace);
    }
}

/// A listening port does not prove that a proxy runs.
fn a_silent_proxy_is_waited_for_no_longer_than_configured(origin: &Serving) {
    let workspace = Workspace::concurrent();
    // The kernel completes connections, and the proxy never accepts them.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let rest = ["--rate", "40/s", "-d", "60s", "--timeout", "500ms", "--no-save", "--json"];
    let output = start(&workspace, origin, &silent.local_addr().unwrap().to_string(), &rest).finish();
    assert_eq!(output.code, Some(3), "{output}");
    assert!(output.elapsed < MAX_DURATION, "{output}");
    assert_eq!(errors(&output.json()), ["response_timeout"], "{output}");
    assert_nothing_left(&workspace);
}
