//! As an unprivileged user: everything works with a server of the testbed, and anything else is refused with the fix.

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use serde_json::Value;

use crate::support::document::{assert_fields, assert_held, count, disturbed, number};
use crate::support::servers::{bench, net, nginx, own_from};
use crate::support::user::{NOBODY, Tun, User};
use crate::support::workspace::{str_of, wait_until};

#[test]
fn an_unprivileged_user_measures_yamabiko_serve() {
    let user = User::new();
    let document = benched(&user, &own_from(&user.program, &user.workspace));
    assert_eq!(document["server"]["source"], "/proc", "an ordinary user has no control group");
}

#[test]
fn an_unprivileged_user_measures_nginx() {
    let user = User::new();
    benched(&user, &nginx(&user.workspace));
}

fn benched(user: &User, server: &str) -> Value {
    let options = "--rtt 30ms --clients 50 --rate 100/s --close --warmup 500ms -d 3s --json";
    let output = user.run(Tun::ForAll, &bench(server, options));
    assert!(matches!(output.code, Some(0 | 3)), "{output}");
    let document = output.json();
    assert_held(&document, &["conservation", "no_unintended_drops"]);
    assert_held(&document, &["responses_whole", "server_alive", "records_stored"]);
    // An ordinary user's path has no right to come before others: where they keep it waiting, the run must say so.
    if !disturbed(&document) {
        assert_held(&document, &["rtt_as_configured"]);
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
    let pinged = user.run(Tun::ForAll, &net("--rtt 10ms", "ping -n -c 3 -i 0.2 server"));
    assert_eq!(pinged.code, Some(0), "{pinged}");
    assert!(pinged.stdout.contains("3 received") && pinged.stdout.contains("time=10."), "{pinged}");
    let who = user.run(Tun::ForAll, &["net", "--", "sh", "-c", "id -u; exit 9"]);
    assert_eq!((who.code, who.stdout.trim()), (Some(9), "65534"), "it is who it was: {who}");
}

#[test]
fn without_a_tun_device_no_path_is_available() {
    let user = User::beside();
    let server = own_from(&user.program, &user.workspace);
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
    let user = User::beside();
    let server = own_from(&user.program, &user.workspace);
    user.run(Tun::ForAll, &bench(&server, "--server-cpu 50% -d 1s")).refused(2, &["--server-cpu", "root"]);
}

/// A service of this host or of another needs the host's network; this is reported before anything is requested or
/// started.
#[test]
fn targets_outside_the_testbed_need_root() {
    let user = User::beside();
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
        assert!(!started.exists(), "the program was not started");
    }
    assert!(service.accept().is_err(), "nobody asked the service");
    // Without a path any user may request it.
    let mut serving = user.workspace.start(&["serve", str_of(&user.workspace.www()), "--listen", "127.0.0.1:0"]);
    wait_until("the server says where it is", || serving.stderr().contains("http://") || serving.ended());
    let (_, url) = serving.stderr().split_once("http://").map(|(a, b)| (a.to_owned(), b.to_owned())).unwrap();
    let url = format!("http://{}10k.bin", url.split_whitespace().next().unwrap());
    let direct = user.run(Tun::Missing, &["bench", &url, "-n", "5", "--no-save", "--json"]);
    assert_eq!(direct.json()["load"]["completed"], 5, "{direct}");
    assert_eq!(fs::read_dir(user.workspace.runs()).unwrap().count(), 0, "what was refused is not in the run store");
}

/// Where no path can be made, neither the server's command nor the program is started.
#[test]
fn an_impossible_path_is_refused_before_the_server_starts() {
    let user = User::beside();
    let started = user.workspace.file("started");
    let server = format!("touch {}; exec {}", started.display(), own_from(&user.program, &user.workspace));
    for tun in [Tun::ForRoot, Tun::Missing] {
        user.run(tun, &bench(&server, "-d 1s")).refused(2, &["/dev/net/tun", "for details run: yamabiko doctor"]);
        user.run(tun, &["net", "--server", &server, "--", "touch", str_of(&started)]).refused(2, &["/dev/net/tun"]);
        user.run(tun, &["profile", "check", "lan"]).refused(2, &["/dev/net/tun"]);
        user.run(tun, &["demo", "-d", "1s", "--json"]).refused(2, &["/dev/net/tun"]);
    }
    assert!(!started.exists(), "something was started");
    assert_eq!(fs::read_dir(user.workspace.runs()).unwrap().count(), 0);
}

#[test]
fn watching_a_device_needs_root() {
    let user = User::beside();
    let fix = ["CAP_NET_RAW", "run as root", "for details run: yamabiko doctor"];
    user.run(Tun::ForAll, &["watch", "-i", "lo", "-d", "1s"]).refused(2, &fix);
    user.run(Tun::ForAll, &["profile", "learn", "-i", "lo", "-d", "1s"]).refused(2, &fix);
    // The doctor has nothing to say of a device that is not there.
    let misspelt = user.run(Tun::ForAll, &["watch", "-i", "no-such-device", "-d", "1s"]);
    misspelt.refused(2, &["no-such-device"]);
    assert!(!misspelt.stderr.contains("doctor"), "{misspelt}");
}
