//! Sockets passed between processes, and sockets that no hook records.

use std::fs;

use serde_json::Value;

use super::peers::{compiled, server};
use crate::support::document::count;
use crate::support::servers::nginx;
use crate::support::workspace::{Workspace, str_of};

/// A program with arguments MODE HOST PORT that connects, sends a request, and passes the socket to `head` as its
/// standard input.
const PASSES: &str = r#"
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <fcntl.h>
#include <spawn.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
extern char **environ;
int main(int n, char **words) {
    const char *mode = words[1];
    struct sockaddr_in to = { .sin_family = AF_INET, .sin_port = htons(atoi(words[3])) };
    inet_pton(AF_INET, words[2], &to.sin_addr);
    int s = socket(AF_INET, SOCK_STREAM, 0), out = open("/dev/null", O_WRONLY);
    if (connect(s, (void *)&to, sizeof to)) return 1;
    char request[1000];
    memset(request, 'q', sizeof request);
    write(s, request, sizeof request);
    char *head[] = { "head", "-c", "50000", 0 };
    if (!strcmp(mode, "fork")) {
        if (!fork()) { dup2(s, 0); dup2(out, 1); execvp("head", head); _exit(9); }
        close(s);
    } else if (!strcmp(mode, "vfork")) {
        if (!vfork()) { dup2(s, 0); dup2(out, 1); execvp("head", head); _exit(9); }
        close(s);
    } else if (!strcmp(mode, "spawn")) {
        posix_spawn_file_actions_t actions;
        posix_spawn_file_actions_init(&actions);
        posix_spawn_file_actions_adddup2(&actions, s, 0);
        posix_spawn_file_actions_adddup2(&actions, out, 1);
        pid_t child;
        posix_spawnp(&child, "head", &actions, 0, head, environ);
        close(s);
    } else {
        dup2(s, 0); dup2(out, 1); close(s); execvp("head", head);
    }
    int status = 0;
    wait(&status);
    return WEXITSTATUS(status);
}
"#;

#[test]
fn a_socket_passed_between_processes_is_one_connection() {
    let workspace = Workspace::concurrent();
    let (program, address) = (compiled(&workspace, "passes", PASSES), server());
    let (host, port, file) = (address.ip().to_string(), address.port().to_string(), workspace.file("tap.json"));
    for mode in ["fork", "vfork", "spawn", "exec"] {
        workspace.run(&["tap", "--json", str_of(&file), "--", str_of(&program), mode, &host, &port]).success();
        let document: Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
        let client = &document["tap"]["client"];
        assert_eq!((count(client, "connections"), count(client, "exchanges")), (1, 1), "{mode}: {client:#}");
        let bytes = ["sent_bytes_total", "received_bytes_total"].map(|name| count(client, name));
        assert_eq!(bytes, [1_000, 50_000], "{mode}: {client:#}");
        assert_eq!(document["validity"]["verdict"], "valid", "{mode}: {document:#}");
    }
}

/// A program with arguments HOST PORT that makes one exchange by raw system calls.
const RAW: &str = r#"
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>
int main(int n, char **words) {
    struct sockaddr_in to = { .sin_family = AF_INET, .sin_port = htons(atoi(words[2])) };
    inet_pton(AF_INET, words[1], &to.sin_addr);
    int s = syscall(SYS_socket, AF_INET, SOCK_STREAM, 0);
    if (syscall(SYS_connect, s, &to, sizeof to)) return 1;
    const char *ask = "GET /10k.bin HTTP/1.0\r\n\r\n";
    syscall(SYS_write, s, ask, strlen(ask));
    char answer[4096];
    if (n > 3) while (syscall(SYS_read, s, answer, sizeof answer) > 0) { }
    return 0;
}
"#;

fn check_state<'a>(document: &'a Value, name: &str) -> Option<&'a Value> {
    document["validity"]["checks"].as_array().unwrap().iter().find(|check| check["name"] == name)
}

#[test]
fn connections_that_the_tap_missed_make_the_run_not_valid() {
    let workspace = Workspace::concurrent();
    let (program, address) = (compiled(&workspace, "raw", RAW), server());
    let (host, port, file) = (address.ip().to_string(), address.port().to_string(), workspace.file("tap.json"));
    workspace.run(&["tap", "--json", str_of(&file), "--", str_of(&program), &host, &port]).success();
    let document: Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    let check = check_state(&document, "tap_connections_counted").unwrap();
    assert_eq!(
        (&check["state"], &document["validity"]["verdict"]),
        (&"failed".into(), &"suspect".into()),
        "{document:#}"
    );
    assert!(check["why"].as_str().unwrap().contains("without the library"), "{check}");
}

#[test]
fn every_connection_in_a_private_network_namespace_is_recorded() {
    let workspace = Workspace::new();
    let server = nginx(&workspace);
    let program = compiled(&workspace, "raw", RAW);
    let report = workspace.file("net.json");
    let run = |script: &str| -> Value {
        let options = ["net", "--tap", "--rtt", "1ms", "--json", str_of(&report), "--server", &server, "--"];
        workspace.run(&[&options[..], &["sh", "-c", script]].concat()).success();
        serde_json::from_slice(&fs::read(&report).unwrap()).unwrap()
    };
    let curl = "curl -s -o /dev/null http://server:8080/10k.bin";
    let raw = format!("{} 198.18.0.1 8080 read", program.display());
    let document = run(&format!("{curl}; {curl}"));
    let check = check_state(&document, "tap_connections_counted").unwrap();
    assert_eq!((&check["state"], check["value"].as_f64()), (&"ok".into(), Some(0.0)), "{document:#}");
    // The untapped program is also found among others.
    let document = run(&format!("{curl}; {raw}; {curl}"));
    let check = check_state(&document, "tap_connections_counted").unwrap();
    assert_eq!((&check["state"], check["value"].as_f64()), (&"failed".into(), Some(1.0)), "{document:#}");
}
