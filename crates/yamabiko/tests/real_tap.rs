//! The third witness at the far end of a path: what the program's sockets saw is what the wire carried.
#![allow(clippy::disallowed_methods, reason = "tests of the whole program wait for it")]

mod support;

use std::fs;

use serde_json::Value;
use support::document::{count, number};
use support::lab::{Room, str_of};
use support::servers::{net, nginx};

#[test]
fn programs_and_wire_agree_to_the_byte() {
    let room = Room::new();
    let server = nginx(&room);
    let report = room.file("net.json");
    let run = |program: &str| -> Value {
        let options = ["net", "--tap", "--rtt", "20ms", "--json", str_of(&report), "--server", &server, "--"];
        room.run(&[&options[..], &["sh", "-c", program]].concat()).success();
        serde_json::from_slice(&fs::read(&report).unwrap()).unwrap()
    };
    let state = |document: &Value, name: &str| {
        let checks = document["validity"]["checks"].as_array().unwrap().clone();
        let check = checks.into_iter().find(|check| check["name"] == name).unwrap();
        (check["state"].as_str().unwrap().to_owned(), check["value"].as_f64())
    };

    let page = "http://server:8080/100k.bin";
    let document = run(&format!("curl -s -o /dev/null -o /dev/null {page} {page}; curl -s -o /dev/null {page}"));
    for name in ["tap_connections_agree", "tap_bytes_agree"] {
        assert_eq!(state(&document, name), ("ok".to_owned(), Some(0.0)), "{document:#}");
    }
    let client = &document["tap"]["client"];
    assert_eq!((count(client, "connections"), count(client, "exchanges")), (2, 3), "{client:#}");
    // A round trip is in the set-up, another between the call that sends and the answer. (Not in the wait alone: a call
    // may return late, when what it sent is on its way.)
    assert!(
        count(client, "setup_ns.min") >= 20_000_000 && count(client, "response_ns.min") >= 20_000_000,
        "{client:#}"
    );
    assert!(count(client, "connection_duration_ns.min") >= 40_000_000);
    assert!(number(client, "send_ns.p50") < 20e6, "a request that fits the buffer is sent at once");
    assert_eq!(count(client, "unseen_bytes"), 0);

    // A program that goes round the library is on the wire all the same.
    let source = room.file("round.c");
    fs::write(&source, ROUND).unwrap();
    let program = room.file("round");
    let built = std::process::Command::new("cc").arg("-o").args([&program, &source]).status().unwrap();
    assert!(built.success());
    let document = run(str_of(&program));
    assert_eq!(state(&document, "tap_bytes_agree").0, "failed", "{document:#}");
    let programs = document["tap"]["programs"].as_array().unwrap();
    let partial = programs.iter().find(|program| program["name"] == "round").unwrap();
    assert_eq!(partial["coverage"], "partial", "{partial}");
}

#[test]
fn a_path_without_the_tap_says_nothing_of_it() {
    let room = Room::new();
    let report = room.file("net.json");
    room.run(&net(&format!("--rtt 1ms --json {}", str_of(&report)), "true")).success();
    let document: Value = serde_json::from_slice(&fs::read(&report).unwrap()).unwrap();
    assert!(document.get("tap").is_none());
}

/// Connects by the library, then reads and writes by raw system calls.
const ROUND: &str = r#"
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>
int main(void) {
    struct sockaddr_in to = { .sin_family = AF_INET, .sin_port = htons(8080) };
    inet_pton(AF_INET, "198.18.0.1", &to.sin_addr);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (connect(fd, (struct sockaddr *)&to, sizeof to) != 0) return 1;
    const char *ask = "GET /10k.bin HTTP/1.0\r\n\r\n";
    syscall(SYS_write, fd, ask, strlen(ask));
    char buffer[4096];
    while (syscall(SYS_read, fd, buffer, sizeof buffer) > 0) { }
    close(fd);
    return 0;
}
"#;
