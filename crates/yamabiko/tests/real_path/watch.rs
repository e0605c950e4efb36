//! `watch -i`: live with a real server and real clients, on loopback and at the server's end of a path.

use std::collections::HashMap;
use std::fs;
use std::process::Command;

use crate::support::document::{count, number};
use crate::support::processes::{descendants, network, start_in_network, wait_for_server};
use crate::support::servers::{PORT, yamabiko_serve};
use crate::support::workspace::{Output, Running, Workspace, str_of, wait_until, yamabiko};
use nix::sys::signal::Signal;
use serde_json::Value;

#[test]
fn watch_measures_curl_on_loopback() {
    let workspace = Workspace::concurrent_as_root();
    let server = workspace.start(&["serve", str_of(&workspace.www()), "--listen", "127.0.0.1:0"]);
    let mut url = String::new();
    wait_until("the server prints its address", || {
        url = server.stderr().split_whitespace().find(|word| word.starts_with("http://")).unwrap_or("").to_owned();
        !url.is_empty()
    });
    let port = url.trim_end_matches('/').rsplit(':').next().unwrap().to_owned();
    let log = workspace.file("requests.csv");
    let watch = workspace.start(&["watch", "-i", "lo", "--port", &port, "--csv", str_of(&log)]);
    wait_until_capturing(&watch);
    for _ in 0..20 {
        run(&workspace, &["curl", "-s", "-o", "/dev/null", &format!("{url}10k.bin"), &format!("{url}no-such-page")]);
    }
    watch.signal(Signal::SIGINT);
    let output = watch.finish().success();
    assert!(output.stdout.contains("200 x 20, 404 x 20"), "{output}");
    let document = workspace.run(&["report", "--json"]).json();
    // curl reuses its connection for the second page.
    assert_counts(&document, 20, &[("200", 20), ("404", 20)]);
    assert_eq!(count(&document, "watch.by_direction"), 0, "the capture has complete packets");
    assert_eq!(fs::read_to_string(log).unwrap().lines().count(), 41);
    server.signal(Signal::SIGINT);
    server.finish();
}

/// At the server's end of a path, with truncated packets: the measured RTT is the configured one, and no packet is
/// lost.
#[test]
fn watch_measures_at_the_server_end_of_a_path() {
    let workspace = Workspace::new();
    let [go, done] = ["go", "done"].map(|name| workspace.file(name));
    // The last FIN arrives 24 ms after the page; a second is more than enough.
    let script = format!(
        "while [ ! -e {go} ]; do sleep 0.05; done\n\
         for i in $(seq 20); do curl -s -o /dev/null http://server:{PORT}/100k.bin; done\n\
         sleep 1; touch {go}.over; while [ ! -e {done} ]; do sleep 0.05; done",
        go = go.display(),
        done = done.display(),
    );
    let mut net =
        workspace.start(&["net", "--rtt", "48ms", "--server", &yamabiko_serve(&workspace), "--", "sh", "-c", &script]);
    let pid = wait_for_server(&mut net, "serve", 1)[0];
    let program = yamabiko();
    let watch = start_in_network(&workspace, pid, &[str_of(&program), "watch", "-i", "s0", "--port", "8080"]);
    wait_until_capturing(&watch);
    fs::write(&go, "").unwrap();
    wait_until("every page is fetched", || go.with_extension("over").exists());
    watch.signal(Signal::SIGINT);
    watch.finish().success();
    let retransmitted = retransmissions(net.pid());
    fs::write(&done, "").unwrap();
    net.finish().success();
    let document = workspace.run(&["report", "--json"]).json();
    assert_counts(&document, 20, &[("200", 20)]);
    let rtt_ms = number(&document, "watch.handshake_rtt_ns.p50") / 1e6;
    assert!((47.9..50.0).contains(&rtt_ms), "{rtt_ms} ms");
    // No retransmissions, or those of a paused machine that delayed acknowledgements.
    assert!(count(&document, "watch.retransmitted") <= retransmitted, "{retransmitted}");
    // Sequential connections of some RTTs each.
    let mean = number(&document, "watch.connections.mean");
    assert!(mean > 0.2 && mean <= 1.0, "{mean}");
    // Each page has 100 KB plus headers.
    assert!(count(&document, "watch.bytes") > 20 * 100 * 1024);
}

/// Number of TCP segments retransmitted so far, in the networks of all descendants of this process.
fn retransmissions(pid: i32) -> u64 {
    let networks: HashMap<_, _> = descendants(pid).into_iter().filter_map(|pid| Some((network(pid)?, pid))).collect();
    assert!(networks.len() >= 2, "client and server: {networks:?}");
    let again = |pid: &i32| {
        let text = fs::read_to_string(format!("/proc/{pid}/net/snmp")).unwrap();
        let tcp: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("Tcp: ")).collect();
        let at = tcp[0].split(' ').position(|name| name == "RetransSegs").unwrap();
        tcp[1].split(' ').nth(at).unwrap().parse::<u64>().unwrap()
    };
    networks.values().map(again).sum()
}

#[test]
fn watch_ends_after_its_time_and_refuses_an_unprivileged_user() {
    let workspace = Workspace::concurrent_as_root();
    let document = workspace.run(&["watch", "-i", "lo", "--port", "9", "-d", "1s", "--json"]).success().json();
    assert!((1.0..10.0).contains(&number(&document, "run.duration_s")), "{document}");
    assert_eq!(count(&document, "watch.packets"), 0);
    workspace.run(&["watch", "-i", "no-such-device"]).refused(2, &["find device no-such-device"]);
    let program = yamabiko();
    let unprivileged = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", str_of(&program)];
    let arguments = [&unprivileged[..], &["watch", "-i", "lo"]].concat();
    run(&workspace, &arguments).refused(2, &["socket AF_PACKET", "CAP_NET_RAW"]);
}

/// Runs a program and waits for its end.
fn run(workspace: &Workspace, command: &[&str]) -> Output {
    let mut process = Command::new(command[0]);
    process.args(&command[1..]);
    workspace.start_command(process).finish()
}

fn wait_until_capturing(watch: &Running) {
    wait_until("the capture is open", || watch.stderr().contains("capturing on "));
}

fn assert_counts(document: &Value, connections: u64, statuses: &[(&str, u64)]) {
    assert_eq!(count(document, "watch.connections.count"), connections, "{document}");
    assert_eq!(document["watch"]["connections"]["states"], serde_json::json!({ "SF": connections }));
    assert_eq!(count(document, "watch.handshake_rtt_ns.count"), connections);
    let seen: Vec<(&str, u64)> =
        statuses.iter().map(|&(name, _)| (name, count(document, &format!("watch.status.{name}")))).collect();
    assert_eq!(seen, statuses);
    assert_eq!((count(document, "watch.capture_drops"), count(document, "watch.missing_bytes")), (0, 0));
    assert_eq!(document["validity"]["verdict"], "valid");
}
