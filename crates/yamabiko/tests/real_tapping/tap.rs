//! The tap at the clients' end of a path: the program's socket calls agree with the packet capture.

use std::fs;

use crate::support::document::{assert_checks_passed, count, number};
use crate::support::servers::{net, nginx};
use crate::support::workspace::{Workspace, set_mode, str_of, yamabiko};
use serde_json::Value;

#[test]
fn tapped_programs_and_packet_capture_agree_to_the_byte() {
    let workspace = Workspace::new();
    let server = nginx(&workspace);
    let report = workspace.file("net.json");
    let run_at = |rtt: &str, program: &[&str]| -> Value {
        let options = ["net", "--tap", "--rtt", rtt, "--json", str_of(&report), "--server", &server, "--"];
        workspace.run(&[&options[..], program].concat()).success();
        serde_json::from_slice(&fs::read(&report).unwrap()).unwrap()
    };
    let run = |program: &str| run_at("20ms", &["sh", "-c", program]);
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
    assert_eq!(state(&document, "littles_law_tap_connections").0, "ok", "{document:#}");
    let client = &document["tap"]["client"];
    assert_eq!((count(client, "connections"), count(client, "exchanges")), (2, 3), "{client:#}");
    // Connect takes one round trip, and another passes between the sending call and the response. (The wait alone can
    // be shorter: a sending call may return late, when its data are in transit.)
    assert!(
        count(client, "setup_ns.min") >= 20_000_000 && count(client, "response_ns.min") >= 20_000_000,
        "{client:#}"
    );
    assert!(count(client, "connection_duration_ns.min") >= 40_000_000);
    assert!(number(client, "send_ns.p50") < 20e6, "a request that fits into the buffer is sent immediately");
    assert_eq!(count(client, "unseen_bytes"), 0);

    // Waiting connects count as concurrent connections: half of the time here.
    let script = "import socket\nfor _ in range(4):\n    s = socket.create_connection(('server', 8080))\n    \
                  s.sendall(b'GET /10k.bin HTTP/1.0\\r\\n\\r\\n')\n    while s.recv(65536): pass\n    s.close()\n";
    let document = run_at("100ms", &["python3", "-c", script]);
    assert_checks_passed(&document, &["littles_law_tap_connections", "tap_connections_agree", "tap_bytes_agree"]);
    let client = &document["tap"]["client"];
    assert_eq!((count(client, "connections"), count(client, "exchanges")), (4, 4), "{client:#}");
    assert!(count(client, "setup_ns.min") >= 100_000_000, "{client:#}");

    // The capture also has the packets of a program that bypasses the library.
    let source = workspace.file("round.c");
    fs::write(&source, RAW_CALLS).unwrap();
    let program = workspace.file("round");
    let built = std::process::Command::new("cc").arg("-o").args([&program, &source]).status().unwrap();
    assert!(built.success());
    let document = run(str_of(&program));
    assert_eq!(state(&document, "tap_bytes_agree").0, "failed", "{document:#}");
    let programs = document["tap"]["programs"].as_array().unwrap();
    let partial = programs.iter().find(|program| program["name"] == "round").unwrap();
    assert_eq!(partial["coverage"], "partial", "{partial}");
}

/// Figures on which load, its own sockets and the capture must agree on any machine.
const TAPS: [&str; 8] = [
    "tap_loaded",
    "tap_drops",
    "tap_coverage",
    "tap_agrees_with_load_connections",
    "tap_agrees_with_load_requests",
    "tap_agrees_with_load_bytes",
    "tap_connections_agree",
    "tap_bytes_agree",
];

#[test]
fn load_sockets_and_packet_capture_agree_in_every_process() {
    let workspace = Workspace::new();
    // Processes of the testbed are not tapped: the server itself reports it.
    let seen = workspace.file("environment");
    let server = format!("env > {}; {}", str_of(&seen), nginx(&workspace));
    // The limit of 64 connections per process gives two shards in separate processes.
    let options = "--rtt 5ms --clients 100 -c 150 --rate 300/s --close --warmup 500ms -d 1s --tap --json";
    let own = yamabiko();
    let mut command = std::process::Command::new("/bin/sh");
    command.args(["-c", "ulimit -n 192; exec \"$0\" \"$@\"", str_of(&own), "bench", "http://server:8080/10k.bin"]);
    command.args(["--server", &server]).args(options.split_whitespace());
    let document = workspace.start_command(command).finish().json();
    assert_checks_passed(&document, &TAPS);
    assert_checks_passed(&document, &["littles_law_tap_connections", "littles_law_connections"]);
    assert_eq!(document["run"]["host"]["settings"]["processes"], "3");
    let client = &document["tap"]["client"];
    assert!(
        count(client, "exchanges") > 300 && count(client, "connections") == count(client, "exchanges"),
        "{client:#}"
    );
    // Both measure one round trip for the set-up. The load counts connections of the measured phase, the tap all.
    let (load, tap) = (number(&document, "load.connect_ns.p50"), number(client, "setup_ns.p50"));
    assert!((load / tap - 1.0).abs() < 0.2, "{load} and {tap}");
    let programs = document["tap"]["programs"].as_array().unwrap();
    let all: Vec<_> = programs.iter().map(|one| (&one["coverage"], &one["processes"])).collect();
    assert_eq!(all, [(&"seen".into(), &3.into())], "{programs:?}");
    let environment = fs::read_to_string(seen).unwrap();
    assert!(!environment.contains("LD_PRELOAD") && !environment.contains("YAMABIKO_TAP"), "{environment}");
}

#[test]
fn a_run_without_tap_has_no_tap_figures() {
    let workspace = Workspace::new();
    let report = workspace.file("net.json");
    workspace.run(&net(&format!("--rtt 1ms --json {}", str_of(&report)), "true")).success();
    let document: Value = serde_json::from_slice(&fs::read(&report).unwrap()).unwrap();
    assert!(document.get("tap").is_none());
}

#[test]
fn a_setuid_program_is_reported_as_not_tapped() {
    let workspace = Workspace::new();
    let (source, program, report) =
        (workspace.file("other.c"), workspace.file("other-user"), workspace.file("tap.json"));
    fs::write(&source, "#include <unistd.h>\nint main(void) { return geteuid() != getuid() ? 4 : 5; }").unwrap();
    let built = std::process::Command::new("cc").arg("-o").args([&program, &source]).status().unwrap();
    assert!(built.success());
    std::os::unix::fs::chown(&program, Some(65_534), None).unwrap();
    set_mode(&program, 0o4755);
    let script = format!("{}; exit $?", program.display());
    let output = workspace.run(&["tap", "--json", str_of(&report), "--", "sh", "-c", &script]);
    assert_eq!(output.code, Some(4), "the folder's file system may not be mounted nosuid: {output}");
    let document: Value = serde_json::from_slice(&fs::read(&report).unwrap()).unwrap();
    let programs = document["tap"]["programs"].as_array().unwrap();
    let named = programs.iter().find(|program| program["name"] == "other-user").unwrap();
    assert_eq!(named["coverage"], "unseen", "{named}");
    assert!(named["why"].as_str().unwrap().starts_with("set-user-ID"), "{named}");
}

/// A tap reserves about 18 MB.
#[test]
fn a_second_tap_uses_another_folder_when_shared_memory_is_full() {
    let workspace = Workspace::new();
    let (up, go) = (workspace.file("up"), workspace.file("go"));
    // A folder that any user may write to is refused.
    let spare = workspace.path().join("spare");
    fs::create_dir(&spare).unwrap();
    let script = format!(
        "mount -t tmpfs -o size=28m tmpfs /dev/shm && unset XDG_RUNTIME_DIR && export TMPDIR={spare}\n\
         $0 tap --no-save --output {dir}/one -- sh -c 'echo $YAMABIKO_TAP; echo > {up}; until [ -e {go} ]; do sleep 0.05; done' &\n\
         until [ -e {up} ]; do sleep 0.05; done\n\
         $0 tap --no-save --output {dir}/two -- sh -c 'echo $YAMABIKO_TAP'; echo $?\n\
         touch {go}; wait $!; echo $?; ls {spare} | grep -c yamabiko-tap; ls /dev/shm\n",
        spare = spare.display(),
        dir = workspace.path().join("out").display(),
        up = up.display(),
        go = go.display()
    );
    let mut command = std::process::Command::new("unshare");
    command.args(["-m", "sh", "-c", &script]).arg(yamabiko());
    let output = workspace.start_command(command).finish();
    let lines: Vec<&str> = output.stdout.lines().collect();
    let [first, second, "0", "0", "0"] = lines[..] else { panic!("{output}") };
    assert!(first.starts_with("/dev/shm/yamabiko-tap-"), "{output}");
    assert!(second.starts_with(str_of(&spare.join("yamabiko-tap-"))), "{output}");
}

/// A program that connects by libc, then reads and writes by raw system calls.
const RAW_CALLS: &str = r#"
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
    const char *request = "GET /10k.bin HTTP/1.0\r\n\r\n";
    syscall(SYS_write, fd, request, strlen(request));
    char buffer[4096];
    while (syscall(SYS_read, fd, buffer, sizeof buffer) > 0) { }
    close(fd);
    return 0;
}
"#;
