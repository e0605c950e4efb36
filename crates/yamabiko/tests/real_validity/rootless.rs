//! Runs of an unprivileged user: they work with a server of the testbed, and are otherwise refused with the fix.

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use serde_json::Value;

use crate::support::document::{assert_checks_passed, assert_fields, count, disturbed, number};
use crate::support::servers::{bench, net, nginx, yamabiko_serve_from};
use crate::support::user::{NOBODY, Tun, User};
use crate::support::workspace::{str_of, wait_until};

#[test]
fn an_unprivileged_user_measures_yamabiko_serve() {
    let user = User::new();
    let document = benched(&user, &yamabiko_serve_from(&user.program, &user.workspace));
    assert_eq!(document["server"]["source"], "/proc", "an unprivileged user has no control group");
}

#[test]
fn an_unprivileged_user_measures_nginx() {
    let user = User::new();
    benched(&user, &nginx(&user.workspace));
}

fn benched(user: &User, server: &str) -> Value {
    let options = "--rtt 30ms --clients 50 --rate 100/s --close --warmup 500ms -d 3s --json";
    let output = user.run(Tun::ForAll, &bench(server, options));
    output.assert_measured();
    let document = output.json();
    assert_checks_passed(&document, &["conservation", "no_unintended_drops"]);
    assert_checks_passed(&document, &["responses_whole", "server_alive", "records_stored"]);
    // The path of an unprivileged user has no real-time priority: the run must report delays caused by other processes.
    if !disturbed(&document) {
        assert_checks_passed(&document, &["rtt_as_configured"]);
    }
    assert_eq!(count(&document, "load.completed"), 300);
    assert_eq!(document["run"]["host"]["settings"]["privilege"], "user namespace");
    assert!(number(&document, "load.connect_ns.p50") > 30e6);
    assert_fields(&document);
    let dir = PathBuf::from(document["run"]["dir"].as_str().unwrap());
    for file in ["plan.toml", "summary.json", "requests.parquet"] {
        let owner = fs::metadata(dir.join(file)).unwrap().uid();
        assert_eq!(owner, NOBODY, "{file} belongs to the user who made it");
    }
    document
}

#[test]
fn an_unprivileged_user_runs_programs_at_the_far_end() {
    let user = User::new();
    let ping = user.run(Tun::ForAll, &net("--rtt 10ms", "ping -n -c 3 -i 0.2 server"));
    assert_eq!(ping.code, Some(0), "{ping}");
    assert!(ping.stdout.contains("3 received") && ping.stdout.contains("time=10."), "{ping}");
    let who = user.run(Tun::ForAll, &["net", "--", "sh", "-c", "id -u; exit 9"]);
    assert_eq!((who.code, who.stdout.trim()), (Some(9), "65534"), "the program runs as the same user: {who}");
}

#[test]
fn without_a_tun_device_no_path_is_available() {
    let user = User::concurrent();
    let server = yamabiko_serve_from(&user.program, &user.workspace);
    let fix = ["/dev/net/tun", "chmod"];
    user.run(Tun::ForRoot, &bench(&server, "-d 1s")).refused(2, &fix);
    user.run(Tun::ForRoot, &net("--rtt 1ms", "true")).refused(2, &fix);
    user.run(Tun::Missing, &net("", "true")).refused(2, &["/dev/net/tun"]);
    assert_eq!(
        fs::read_dir(user.workspace.runs()).unwrap().count(),
        0,
        "a run that could not be made is not in the run store"
    );
}

#[test]
fn without_a_control_group_no_cpu_limit_is_available() {
    let user = User::concurrent();
    let server = yamabiko_serve_from(&user.program, &user.workspace);
    user.run(Tun::ForAll, &bench(&server, "--server-cpu 50% -d 1s")).refused(2, &["--server-cpu", "root"]);
}

/// A service of this host or of another needs the host's network; this is reported before anything is requested or
/// started.
#[test]
fn targets_outside_the_testbed_need_root() {
    let user = User::concurrent();
    let service = TcpListener::bind("127.0.0.1:0").unwrap();
    service.set_nonblocking(true).unwrap();
    let port = service.local_addr().unwrap().port();
    let fix = ["this host's own network", "run as root", "--server", "for details run: yamabiko doctor"];
    for host in ["127.0.0.1", "[::1]", "192.0.2.1", "[2001:db8::1]"] {
        let url = format!("http://{host}:{port}/");
        let refused = user.run(Tun::ForAll, &["bench", &url, "--rtt", "10ms", "-d", "1s"]);
        refused.refused(2, &fix);
        let started = user.workspace.file("started");
        let to = host.trim_matches(['[', ']']);
        let touch = ["net", "--rtt", "10ms", "--to", to, "--", "touch", str_of(&started)];
        user.run(Tun::ForAll, &touch).refused(2, &fix);
        assert!(!started.exists(), "the program is not started");
    }
    assert!(service.accept().is_err(), "the service gets no connection");
    // Without a path any user may send requests to the service.
    let mut serving = user.workspace.start(&["serve", str_of(&user.workspace.www()), "--listen", "127.0.0.1:0"]);
    wait_until("the server prints its address", || serving.stderr().contains("http://") || serving.ended());
    let (_, url) = serving.stderr().split_once("http://").map(|(a, b)| (a.to_owned(), b.to_owned())).unwrap();
    let url = format!("http://{}10k.bin", url.split_whitespace().next().unwrap());
    let direct = user.run(Tun::Missing, &["bench", &url, "-n", "5", "--no-save", "--json"]);
    assert_eq!(direct.json()["load"]["completed"], 5, "{direct}");
    assert_eq!(fs::read_dir(user.workspace.runs()).unwrap().count(), 0, "a refused run is not stored");
}

/// If no path can be made, neither the server's command nor the program is started.
#[test]
fn an_impossible_path_is_refused_before_the_server_starts() {
    let user = User::concurrent();
    let started = user.workspace.file("started");
    let server = format!("touch {}; exec {}", started.display(), yamabiko_serve_from(&user.program, &user.workspace));
    for tun in [Tun::ForRoot, Tun::Missing] {
        user.run(tun, &bench(&server, "-d 1s")).refused(2, &["/dev/net/tun", "for details run: yamabiko doctor"]);
        user.run(tun, &["net", "--server", &server, "--", "touch", str_of(&started)]).refused(2, &["/dev/net/tun"]);
        user.run(tun, &["profile", "check", "lan"]).refused(2, &["/dev/net/tun"]);
        user.run(tun, &["demo", "-d", "1s", "--json"]).refused(2, &["/dev/net/tun"]);
    }
    assert!(!started.exists(), "nothing is started");
    assert_eq!(fs::read_dir(user.workspace.runs()).unwrap().count(), 0);
}

#[test]
fn watching_a_device_needs_root() {
    let user = User::concurrent();
    let fix = ["CAP_NET_RAW", "run as root", "for details run: yamabiko doctor"];
    user.run(Tun::ForAll, &["watch", "-i", "lo", "-d", "1s"]).refused(2, &fix);
    user.run(Tun::ForAll, &["profile", "learn", "-i", "lo", "-d", "1s"]).refused(2, &fix);
    // The message for a missing device does not refer to `doctor`.
    let misspelt = user.run(Tun::ForAll, &["watch", "-i", "no-such-device", "-d", "1s"]);
    misspelt.refused(2, &["no-such-device"]);
    assert!(!misspelt.stderr.contains("doctor"), "{misspelt}");
}
