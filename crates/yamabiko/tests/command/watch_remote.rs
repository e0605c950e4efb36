//! `watch --from`: seconds received over HTTP are stored and printed, and invalid ones are refused.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use crate::support::document::count;
use crate::support::workspace::{Running, TEST_TIMEOUT, Workspace, str_of, wait_until};
use nix::sys::signal::Signal;
use schema::{WatchPart, WatchSecond};
use serde_json::{Value, json};

const TOKEN: &str = "correct-horse-battery-staple";
const SESSION: &str = "0123456789abcdef0123456789abcdef";

/// A receiver with a token, and its address.
fn receiver(workspace: &Workspace) -> (Running, SocketAddr) {
    let token = token_file(workspace, TOKEN);
    listening(workspace.start(&["watch", "--from", "127.0.0.1:0", "--token-file", str_of(&token)]))
}

fn listening(receiver: Running) -> (Running, SocketAddr) {
    let mut address = None;
    wait_until("the receiver prints its address", || {
        address = receiver.stderr().split_whitespace().find_map(|word| word.parse().ok());
        address.is_some()
    });
    (receiver, address.unwrap())
}

fn token_file(workspace: &Workspace, token: &str) -> PathBuf {
    let path = workspace.file("token");
    fs::write(&path, format!("{token}\n")).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    path
}

fn second(index: u64) -> WatchSecond {
    WatchSecond {
        second: 1_795_167_005 + index,
        watched_ns: 1_000_000_000,
        packets: 100 + index,
        connections_mean: 1.0 / (3.0 + index as f64),
        connections_max: 1,
        ..WatchSecond::default()
    }
}

/// A message with these seconds, optionally marked as the last one.
fn message(indices: &[u64], is_last: bool) -> String {
    let totals =
        WatchPart { source: "eth0".into(), capture_point: "server".into(), packets: 603, ..WatchPart::default() };
    let mut body = json!({
        "schema": "yamabiko.series/1", "session": SESSION, "host": "edge/1",
        "machine": { "kernel": "Linux 6.1", "cpu": "a machine", "cores": 4, "memory_bytes": 1 },
        "started_at_ns": 1_795_167_005_000_000_000u64, "elapsed_ns": 6_000_000_000u64, "lost_seconds": 0,
        "end": is_last.then(|| json!({ "interrupted": false, "failure": null })), "totals": totals, "rtt": [],
    })
    .to_string();
    for &index in indices {
        let mut row = serde_json::to_value(second(index)).unwrap();
        row["index"] = index.into();
        body += &format!("\n{row}");
    }
    body
}

/// Sends a request; returns the complete response.
fn request(address: SocketAddr, head: &str, body: &[u8]) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
    stream.write_all(head.as_bytes()).unwrap();
    // A receiver that refuses the request may close the connection before all of it is sent.
    let _ = stream.write_all(body);
    let mut response = Vec::new();
    let _ = stream.read_to_end(&mut response);
    String::from_utf8_lossy(&response).into_owned()
}

fn head(authorization: &str, kind: &str, length: usize) -> String {
    format!(
        "POST /v1/series HTTP/1.1\r\nHost: x\r\nConnection: close\r\nAuthorization: {authorization}\r\n\
         Content-Type: {kind}\r\nContent-Length: {length}\r\n\r\n"
    )
}

#[track_caller]
fn post(address: SocketAddr, body: &str, status: u16) -> String {
    let head = head(&format!("Bearer {TOKEN}"), "application/x-ndjson", body.len());
    let response = request(address, &head, body.as_bytes());
    assert!(response.starts_with(&format!("HTTP/1.1 {status} ")), "{response}");
    response
}

fn entries(workspace: &Workspace) -> usize {
    fs::read_dir(workspace.runs()).unwrap().count()
}

fn document(workspace: &Workspace) -> Value {
    workspace.run(&["report", "--json"]).success().json()
}

#[test]
fn a_remote_series_is_stored_per_second_and_gaps_are_reported() {
    let workspace = Workspace::concurrent();
    let (receiver, address) = receiver(&workspace);
    post(address, &message(&[], false), 204);
    post(address, &message(&[0, 1], false), 204);
    // A repeated message, as after a lost response; then a gap.
    post(address, &message(&[0, 1, 2], false), 204);
    post(address, &message(&[5], true), 204);
    post(address, &message(&[5], true), 204);
    wait_until("the series has ended", || receiver.stderr().contains("has ended, stored as"));
    receiver.signal(Signal::SIGINT);
    let output = receiver.finish().success();
    assert!(output.stderr.contains("edge/1: "), "one line per second: {output}");
    assert!(output.stdout.contains("edge/1: eth0") && output.stdout.contains("2 s"), "{output}");
    assert_eq!(entries(&workspace), 1);
    let document = document(&workspace);
    assert_eq!(count(&document, "watch.packets"), 603);
    assert_eq!(document["validity"]["verdict"], "suspect");
    assert_eq!(document["run"]["host"]["cores"], 4);
    let dir = PathBuf::from(document["run"]["dir"].as_str().unwrap());
    assert!(dir.file_name().unwrap().to_str().unwrap().contains("watch-edge"), "{}", dir.display());
    let stored: Vec<WatchSecond> = store::read_watch_series(&dir).unwrap().map(Result::unwrap).collect();
    assert_eq!(stored, [0, 1, 2, 5].map(second));
}

#[test]
fn data_without_the_token_is_not_stored() {
    let workspace = Workspace::concurrent();
    let (receiver, address) = receiver(&workspace);
    let body = message(&[0], false);
    for wrong in ["Bearer wrong-wrong-wrong-wrong", "", "Basic Og==", &format!("Bearer {TOKEN}x")] {
        let response = request(address, &head(wrong, "application/x-ndjson", body.len()), body.as_bytes());
        assert!(response.starts_with("HTTP/1.1 401 "), "{response}");
    }
    wait_until("the receiver reports the refusal", || receiver.stderr().contains("refused 127.0.0.1:"));
    assert!(receiver.stderr().contains("wrong token"), "{}", receiver.stderr());
    assert!(!receiver.stderr().contains(TOKEN));
    receiver.signal(Signal::SIGTERM);
    receiver.finish().success();
    assert_eq!(entries(&workspace), 0);
}

#[test]
fn malformed_messages_are_refused_and_disturb_no_other_sender() {
    let workspace = Workspace::concurrent();
    let (receiver, address) = receiver(&workspace);
    // Peers that send nothing, or half of a message.
    let silent: Vec<TcpStream> = (0..20).map(|_| TcpStream::connect(address).unwrap()).collect();
    (&silent[0]).write_all(b"POST /v1/series HTTP/1.1\r\nHost").unwrap();
    (&silent[1]).write_all(b"\x16\x03\x01\x02\x00\x01\x00").unwrap();
    let bearer = format!("Bearer {TOKEN}");
    assert!(post(address, "garbage", 400).contains("line 1"));
    assert!(post(address, "", 400).contains("empty"));
    assert!(post(address, &message(&[3, 2], false), 400).contains("line 3"));
    let other = message(&[], false).replace("yamabiko.series/1", "yamabiko.series/9");
    assert!(post(address, &other, 400).contains("one version at both ends"));
    let response = request(address, &head(&bearer, "application/x-ndjson", 1 << 30), &[b'x'; 4096]);
    assert!(response.starts_with("HTTP/1.1 413 "), "{response}");
    // Without Content-Length, the receiver counts the received bytes.
    let chunked = head(&bearer, "application/x-ndjson", 0).replace("Content-Length: 0", "Transfer-Encoding: chunked");
    let body = format!("100000\r\n{}\r\n0\r\n\r\n", "y".repeat(0x10_0000));
    let response = request(address, &chunked, body.as_bytes());
    assert!(response.is_empty() || response.starts_with("HTTP/1.1 413 "), "{response}");
    let response = request(address, &head(&bearer, "text/plain", 2), b"{}");
    assert!(response.starts_with("HTTP/1.1 415 "), "{response}");
    let get = format!("GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\nAuthorization: {bearer}\r\n\r\n");
    assert!(request(address, &get, b"").starts_with("HTTP/1.1 404 "));
    assert_eq!(entries(&workspace), 0);
    post(address, &message(&[0], true), 204);
    wait_until("the valid series is stored", || entries(&workspace) == 1);
    receiver.signal(Signal::SIGINT);
    receiver.finish().success();
}

#[test]
fn data_of_a_disconnected_sender_stays_stored() {
    let workspace = Workspace::concurrent();
    let token = token_file(&workspace, TOKEN);
    // The token can also be in an environment variable.
    let mut command = workspace.command(&["watch", "--from", "127.0.0.1:0", "--name", "edge"]);
    command.env("YAMABIKO_TOKEN", fs::read_to_string(token).unwrap());
    let (receiver, address) = listening(workspace.start_command(command));
    post(address, &message(&[0, 1, 2], false), 204);
    wait_until("the receiver prints the series", || receiver.stderr().contains("edge/1"));
    receiver.signal(Signal::SIGINT);
    receiver.finish().success();
    let document = document(&workspace);
    assert_eq!(document["validity"]["verdict"], "suspect", "{document}");
    let dir = PathBuf::from(document["run"]["dir"].as_str().unwrap());
    assert_eq!(store::read_watch_series(&dir).unwrap().map(Result::unwrap).count(), 3);
}

#[test]
fn an_unwritable_run_store_stops_storing_only() {
    let workspace = Workspace::concurrent();
    let (receiver, address) = receiver(&workspace);
    fs::remove_dir(workspace.runs()).unwrap();
    fs::write(workspace.runs(), "in the way").unwrap();
    post(address, &message(&[0, 1], false), 204);
    post(address, &message(&[2], true), 204);
    wait_until("the series has ended", || receiver.stderr().contains("has ended"));
    receiver.signal(Signal::SIGINT);
    let output = receiver.finish();
    assert_eq!(output.code, Some(2), "{output}");
    assert!(output.stdout.contains("edge/1: eth0") && output.stdout.contains("603"), "{output}");
    assert!(output.stderr.contains("no longer stored") && output.stderr.contains("the files are not"), "{output}");
}

#[test]
fn listening_beyond_loopback_needs_a_token() {
    let workspace = Workspace::concurrent();
    workspace.run(&["watch", "--from", "0.0.0.0:0"]).refused(1, &["0.0.0.0:0", "needs a token", "--token-file"]);
    workspace.run(&["watch", "--from", "[::]:0"]).refused(1, &["needs a token"]);
    let short = token_file(&workspace, "short");
    workspace.run(&["watch", "--from", "0", "--token-file", str_of(&short)]).refused(1, &["16 to 256", "/dev/urandom"]);
    workspace.run(&["watch", "--from", "0", "--token-file", "/no/such"]).refused(1, &["/no/such", "No such file"]);
    workspace.run(&["watch", "-r", "x", "--to", "http://h"]).refused(1, &["cannot be used with"]);
    workspace.run(&["watch", "--from", "1", "--csv", "x"]).refused(1, &["cannot be used with"]);
    workspace.run(&["watch", "-i", "lo", "--to", "https://h"]).refused(1, &["no TLS"]);
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    workspace.run(&["watch", "--from", &address]).refused(2, &[&address, "in use"]);
    // With --json, one document is printed, also without received data.
    let output = workspace.run(&["watch", "--from", "0", "-d", "200ms", "--json"]).success();
    assert_eq!(output.json()["watches"], json!([]));
}

#[test]
fn a_series_beyond_the_limit_is_refused_until_one_ends() {
    let workspace = Workspace::concurrent();
    let (receiver, address) = receiver(&workspace);
    let of = |nth: usize, is_last| message(&[], is_last).replace(SESSION, &format!("{nth:032x}"));
    for nth in 0..64 {
        // With a full queue the receiver asks the sender to retry.
        wait_until("the message is accepted", || post_any(address, &of(nth, false)) == 204);
    }
    let refused = post(address, &of(64, false), 503);
    assert!(refused.contains("64 series are being received already"), "{refused}");
    post(address, &of(3, false), 204);
    post(address, &of(3, true), 204);
    wait_until("the next series is accepted", || post_any(address, &of(64, false)) == 204);
    receiver.signal(Signal::SIGINT);
    receiver.finish().success();
}

/// The status of the response.
fn post_any(address: SocketAddr, body: &str) -> u16 {
    let head = head(&format!("Bearer {TOKEN}"), "application/x-ndjson", body.len());
    let response = request(address, &head, body.as_bytes());
    response.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or_else(|| panic!("{response}"))
}
