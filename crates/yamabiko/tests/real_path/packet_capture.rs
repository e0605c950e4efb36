//! The packet capture of every run: packets at the server's end, compared with the load's own figures.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::support::document::{
    assert_checks_passed, assert_checks_passed_or_disturbed, assert_fields, check, count, disturbed, number,
};
use crate::support::servers::{apache, bench, nginx, yamabiko_serve};
use crate::support::workspace::{Workspace, str_of};

/// Counts on which load and capture must agree on any machine.
const EXACT_CHECKS: [&str; 5] = [
    "wire_capture_drops",
    "vantage_points_agree_requests",
    "vantage_points_agree_connections",
    "littles_law_wire_requests",
    "littles_law_wire_connections",
];
/// Checks that a busy machine can fail.
const TIMING_CHECKS: [&str; 2] = ["vantage_points_agree_service_time", "rtt_at_server_as_configured"];

fn dir(document: &Value) -> PathBuf {
    PathBuf::from(document["run"]["dir"].as_str().unwrap())
}

/// The load of Koshien (ENMA) with one connection per request, over the RTTs of a real audience.
#[test]
fn packet_capture_agrees_with_the_load_for_one_connection_per_request() {
    let workspace = Workspace::new();
    for server in [yamabiko_serve(&workspace), nginx(&workspace)] {
        let options = "--path koshien-2001 --clients 100 --rate 110/s --close --warmup 2s -d 4s --json";
        let document = workspace.run_json(&bench(&server, options));
        assert_fields(&document);
        assert_checks_passed(&document, &EXACT_CHECKS);
        if !disturbed(&document) {
            assert_checks_passed(&document, &TIMING_CHECKS);
        }
        // 110/s were offered for 4 s; the measured phase on the wire is the same span, one delay later.
        assert_eq!(count(&document, "load.completed"), 440);
        assert!(count(&document, "watch.requests").abs_diff(440) < 40, "{}", document["watch"]);
        assert!(count(&document, "watch.connections.count").abs_diff(440) < 40);
        assert_eq!(document["watch"]["connections"]["states"].as_object().unwrap().keys().collect::<Vec<_>>(), ["SF"]);
        assert_eq!((count(&document, "watch.by_direction"), count(&document, "watch.incomplete")), (0, 0));
        // The number of concurrent connections on the wire is that of the load, one delay later: the means are equal.
        let (wire, load) = (number(&document, "watch.connections.mean"), number(&document, "load.connections.mean"));
        assert!((wire - load).abs() < 0.25 * load, "{wire} on the wire, {load} at the load");
        assert_tables_complete(&dir(&document), &document);
    }
}

/// Asserts that the tables contain every connection and request of the run, with its client, by the run's clock.
fn assert_tables_complete(dir: &Path, document: &Value) {
    let connections: Vec<_> = store::read_connections(dir).unwrap().map(Result::unwrap).collect();
    let requests: Vec<_> = store::read_requests(dir).unwrap().map(Result::unwrap).collect();
    let wire: Vec<_> = store::read_wire_requests(dir).unwrap().map(Result::unwrap).collect();
    assert_eq!(wire.len(), requests.len());
    assert_eq!(connections.len(), requests.len(), "one connection per request");
    let mut by_client = vec![[0u32; 2]; 100];
    for connection in &connections {
        let client = connection.client_index.expect("a client of the testbed") as usize;
        assert!(connection.client.to_string().starts_with("198.19.0."));
        by_client[client][0] += 1;
        assert!(connection.closed_at.is_some(), "the close is captured in both directions");
    }
    requests.iter().for_each(|request| by_client[request.client as usize][1] += 1);
    assert!(by_client.iter().all(|[wire, load]| wire == load), "{by_client:?}");
    let last = requests.iter().map(|request| request.done_at).max().unwrap();
    assert!(wire.iter().all(|request| request.response_last_at.unwrap() < last), "times by the run's clock");
    let series: Vec<_> = store::read_watch_series(dir).unwrap().map(Result::unwrap).collect();
    assert_eq!(series.iter().map(|second| second.requests).sum::<u64>(), wire.len() as u64);
    assert_eq!(series[0].second, 0);
    assert!(series.len() as f64 >= number(document, "run.duration_s"));
}

/// Persistent connections, also with Apache, whose response heads are longer.
#[test]
fn packet_capture_agrees_with_the_load_for_persistent_connections() {
    let workspace = Workspace::new();
    for server in [nginx(&workspace), apache(&workspace)] {
        let document =
            workspace.run_json(&bench(&server, "--rtt 20ms --clients 20 --rate 200/s --warmup 1s -d 3s --json"));
        assert_checks_passed(&document, &EXACT_CHECKS);
        assert_eq!(count(&document, "watch.by_direction"), 0);
        if !disturbed(&document) {
            assert_checks_passed(&document, &TIMING_CHECKS[..1]);
        }
    }
    // A closed loop at full speed.
    let document = workspace.run_json(&bench(&nginx(&workspace), "--rtt 5ms -c 20 -d 2s --json"));
    assert_checks_passed(
        &document,
        &["wire_capture_drops", "vantage_points_agree_requests", "vantage_points_agree_connections"],
    );
}

/// Both ends: the path's timing from the capture, compared with its own report.
#[test]
fn packet_capture_measures_the_timing_of_the_path() {
    let workspace = Workspace::new();
    let options = "--rtt 48ms --clients 50 --rate 200/s --close --warmup 1s -d 3s --watch both --json";
    let document = workspace.run_json(&bench(&nginx(&workspace), options));
    assert_fields(&document);
    assert_checks_passed(&document, &EXACT_CHECKS);
    let outside = &document["path"]["packet_capture"];
    assert!(count(outside, "matched") > 3000, "{outside}");
    // Packets in transit when the run ended.
    assert!(count(outside, "unmatched") < 50, "{outside}");
    for direction in ["up_ns", "down_ns"] {
        // No packet is early, except for the histogram's rounding.
        assert!(count(outside, &format!("{direction}.min")) > 23_900_000, "{outside}");
        assert!(disturbed(&document) || number(outside, &format!("{direction}.p50")) < 25_000_000.0, "{outside}");
    }
    assert!(document["path"]["measured_rtt_source"].as_str().unwrap().contains("captured"));
}

#[test]
fn packet_capture_can_be_switched_off() {
    let workspace = Workspace::new();
    let document = workspace.run_json(&bench(
        &yamabiko_serve(&workspace),
        "--rtt 1ms --rate 50/s -d 1s --warmup 100ms --watch none --json",
    ));
    assert_eq!(document["watch"], Value::Null);
    assert_eq!(check(&document, "vantage_points_agree_requests")["state"], "not_applicable");
    workspace
        .run(&["bench", "http://127.0.0.1:1/", "--watch", "both", "-d", "1s"])
        .refused(1, &["--watch", "--rtt 0ms"]);
    assert_eq!(workspace.run(&["bench", "http://127.0.0.1:1/", "--watch", "everywhere"]).code, Some(1));
}

/// A capture ring of one block overflows: the run reports that and bases no check on the captured packets.
#[test]
fn a_capture_ring_that_drops_packets_makes_the_run_suspect() {
    let workspace = Workspace::new();
    let server = yamabiko_serve(&workspace);
    let plan = workspace
        .run(&bench(&server, "--rtt 0ms --rate 4000/s --close -d 3s --print-plan"))
        .success()
        .stdout
        .replace("ring = \"32MiB\"", "ring = \"64KiB\"");
    assert!(plan.contains("64KiB"), "{plan}");
    let file = workspace.file("small.toml");
    fs::write(&file, plan).unwrap();
    let document = workspace.run_json(&["run", str_of(&file), "--json"]);
    assert_ne!(document["validity"]["verdict"], "valid");
    let drops = check(&document, "wire_capture_drops");
    assert_eq!(drops["state"], "failed", "{drops}");
    assert!(drops["why"].as_str().unwrap().contains("ring"), "{drops}");
    assert!(count(&document, "watch.capture_drops") > 0);
    for name in ["vantage_points_agree_requests", "littles_law_wire_connections"] {
        assert_eq!(check(&document, name)["state"], "could_not_run", "{name}");
    }
    assert_checks_passed(&document, &["conservation"]);
}

/// The server sends each response twice. The load reads one and closes the connection; the capture reports both.
#[test]
fn an_unrequested_response_is_reported_by_the_packet_capture() {
    let workspace = Workspace::new();
    let script = workspace.file("twice.py");
    fs::write(&script, SENDS_TWICE).unwrap();
    let server = format!("exec python3 {}", script.display());
    let document = workspace.run_json(&bench(&server, "--rtt 10ms --rate 50/s --warmup 0s -d 2s --json"));
    assert_eq!(document["validity"]["verdict"], "invalid");
    let requests = check(&document, "vantage_points_agree_requests");
    assert_eq!(requests["state"], "failed", "{requests}");
    assert!(requests["why"].as_str().unwrap().contains("unsolicited responses"), "{requests}");
    // One response after the other: the second has no request. Both in one read: the request fails with unsolicited
    // data.
    let unsolicited = document["load"]["failed"]["unsolicited_data"].as_u64().unwrap_or(0);
    assert_eq!(count(&document, "load.completed") + unsolicited, 100, "{}", document["load"]);
}

const SENDS_TWICE: &str = r#"
import socket, threading, time
listener = socket.create_server(("0.0.0.0", 8080), backlog=512)
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"
def serve(peer):
    peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    with peer:
        while peer.recv(4096):
            peer.sendall(ANSWER)
            time.sleep(0.003)
            peer.sendall(ANSWER)
while True:
    threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()
"#;

/// A connection closed before its response is a failed request, and no disagreement of load and capture.
#[test]
fn an_early_close_of_the_server_is_reported_by_the_packet_capture() {
    let workspace = Workspace::new();
    let script = workspace.file("early.py");
    fs::write(&script, CLOSES_EARLY).unwrap();
    let server = format!("exec python3 {}", script.display());
    let document = workspace.run_json(&bench(&server, "--rtt 10ms --rate 50/s --close --warmup 0s -d 2s --json"));
    assert!(count(&document, "load.failed.closed_early") > 10, "{}", document["load"]["failed"]);
    assert_checks_passed(&document, &["vantage_points_agree_requests", "vantage_points_agree_connections"]);
    assert!(count(&document, "watch.incomplete") > 10, "{}", document["watch"]);
}

const CLOSES_EARLY: &str = r#"
import socket, threading
listener = socket.create_server(("0.0.0.0", 8080), backlog=512)
def serve(peer, whole):
    with peer:
        peer.recv(4096)
        peer.sendall(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 5\r\n\r\n" + (b"hello" if whole else b"he"))
count = 0
while True:
    count += 1
    threading.Thread(target=serve, args=(listener.accept()[0], count % 3 != 0), daemon=True).start()
"#;

/// The capture works for any program: arrivals and connections of httperf, as at the server of Koshien (ENMA).
#[test]
fn packet_capture_measures_a_program_at_the_far_end() {
    let workspace = Workspace::new();
    let (server, json) = (apache(&workspace), workspace.file("net.json"));
    let options = ["net", "--rtt", "48ms", "--server", &server, "--json", str_of(&json), "--"];
    let program = "httperf --server server --port 8080 --uri /10k.bin --rate 110 --num-conns 440 --timeout 5";
    let arguments: Vec<&str> = options.into_iter().chain(program.split_whitespace()).collect();
    workspace.run(&arguments).success();
    let document: Value = serde_json::from_slice(&fs::read(&json).unwrap()).unwrap();
    assert_checks_passed(&document, &["wire_capture_drops"]);
    assert_checks_passed_or_disturbed(&document, &["littles_law_wire_connections"]);
    let watch = &document["watch"];
    assert_eq!(
        (count(watch, "connections.count"), count(watch, "requests"), count(watch, "responses")),
        (440, 440, 440)
    );
    assert!(number(watch, "handshake_rtt_ns.min") > 47.9e6, "{watch}");
    assert!(number(watch, "connections.mean") > 5.0, "{watch}");
    // Other protocols than HTTP are captured as connections only.
    let json = workspace.file("plain.json");
    let (script, server) =
        (workspace.file("plain.py"), format!("exec python3 {}", workspace.file("plain.py").display()));
    fs::write(&script, NOT_HTTP).unwrap();
    let talk = "for i in 1 2 3 4 5; do exec 3<>/dev/tcp/198.18.0.1/9 && break; sleep 0.2; done; read -u 3";
    let options = ["net", "--rtt", "1ms", "--server", &server, "--json", str_of(&json), "--", "bash", "-c", talk];
    workspace.run(&options).success();
    let document: Value = serde_json::from_slice(&fs::read(&json).unwrap()).unwrap();
    assert!(count(&document, "watch.connections.count") >= 1, "{document}");
    assert_eq!(count(&document, "watch.requests"), 0);
}

const NOT_HTTP: &str = r#"
import socket
listener = socket.create_server(("0.0.0.0", 9))
while True:
    with listener.accept()[0] as peer:
        peer.sendall(b"220 not HTTP\n")
"#;
