//! A path in this host's network: nothing remains after the run, and a second path, an occupied network and an
//! unprivileged user are refused.

use std::fs;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use stats::Rng;

use crate::support::document::count;
use crate::support::host::{Hosts, REMOTE, REMOTE_V6};
use crate::support::workspace::{Output, Workspace, set_mode, str_of, wait_until, yamabiko};

/// The latest kill time, when load is offered; half of the kill times are within the building of the path.
const WINDOW_MS: u64 = 700;
const BUILDING_MS: u64 = 60;
const KILLS: u64 = 32;

#[test]
fn sigkill_at_any_time_leaves_nothing_on_the_host() {
    let workspace = Workspace::new();
    let hosts = Hosts::new(&workspace);
    let _here = hosts.host.nginx(&workspace, "here", &["listen 127.0.0.1:8081; listen [::]:8084;"]);
    let _there = hosts.remote.nginx(&workspace, "there", &["listen [::]:8080 ipv6only=off;"]);
    let before = hosts.host.snapshot();
    let urls = [
        "http://127.0.0.1:8081/10k.bin".to_owned(),
        format!("http://{}:8080/10k.bin", REMOTE[0]),
        "http://[::1]:8084/10k.bin".to_owned(),
        format!("http://[{REMOTE_V6}]:8080/10k.bin"),
    ];
    let mut rng = Rng::named(11, "kill times");
    let mut built = 0;
    for number in 0..KILLS {
        let url = urls[(number % 4) as usize].as_str();
        let options = "--rtt 10ms --rate 200/s --close --warmup 0s -d 60s --no-save";
        let mut victim = if number % 8 < 4 {
            hosts.host.start(&workspace, &[&["bench", url], &options.split(' ').collect::<Vec<_>>()[..]].concat())
        } else {
            hosts.host.start(&workspace, &["net", "--rtt", "10ms", "--to", url, "--", "sleep", "1000"])
        };
        let window_ms = if number / 4 % 2 == number % 2 { WINDOW_MS } else { BUILDING_MS };
        sleep(Duration::from_micros(rng.below(window_ms * 1000)));
        assert!(!victim.ended(), "the run ended by itself: {}", victim.stderr());
        built += u64::from(hosts.host.has_device("yamabiko"));
        victim.signal(Signal::SIGKILL);
        victim.finish();
        // The kernel removes a namespace asynchronously.
        let mut changes = Vec::new();
        let deadline = Instant::now() + Duration::from_secs(20);
        while Instant::now() < deadline {
            changes = hosts.host.changes(&before);
            if changes.is_empty() {
                break;
            }
        }
        assert_eq!(changes, Vec::<String>::new());
    }
    println!("{KILLS} killed, {built} of them with the path's device on the host");
    assert!((4..=KILLS).contains(&built), "some kill times must be after the path is built: {built}");
    // The next run is not prevented.
    let next = ["bench", &urls[1], "--rtt", "10ms", "-n", "20", "--json", "--no-save"];
    assert_eq!(count(&hosts.host.yamabiko(&workspace, &next).json(), "load.completed"), 20);
    hosts.host.assert_unchanged(&before);
}

/// The service continues after the run: the last connections that the clients closed must be closed at the service,
/// too, with any RTT, with and without packet capture.
#[test]
fn no_connections_to_the_service_remain_after_a_run() {
    let workspace = Workspace::new();
    let hosts = Hosts::new(&workspace);
    let _nginx = hosts.host.nginx(&workspace, "nginx", &["listen 127.0.0.1:8081;"]);
    let url = "http://127.0.0.1:8081/10k.bin";
    for watch in ["server", "none"] {
        let options = ["--rtt", "120ms", "-c", "4", "-n", "8", "--watch", watch, "--json", "--no-save"];
        let output = hosts.host.yamabiko(&workspace, &[&["bench", url], &options[..]].concat());
        assert_eq!(count(&output.json(), "load.completed"), 8, "{output}");
        let net = ["net", "--rtt", "120ms", "--watch", watch, "--to", url, "--", "curl", "-s", "-o", "/dev/null"];
        let net = hosts.host.yamabiko(&workspace, &[&net[..], &["http://server:8081/10k.bin"]].concat());
        assert_eq!(net.code, Some(0), "{net}");
        // A socket of the service would wait for the clients' packets for minutes.
        wait_until("all sockets to clients are in TIME_WAIT", || {
            let sockets = hosts.host.output_of("cat", &["/proc/net/tcp"]);
            let mut lines = sockets.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
            // 198.19.0.0/16 in the byte order of the table; 06 is TIME_WAIT.
            !lines.any(|fields| fields[2][4..8] == *"13C6" && fields[3] != "06")
        });
    }
}

#[test]
fn a_second_path_or_an_occupied_network_is_refused_by_name() {
    let workspace = Workspace::concurrent_as_root();
    let hosts = Hosts::new(&workspace);
    let _nginx = hosts.host.nginx(&workspace, "nginx", &["listen 127.0.0.1:8081;"]);
    let url = "http://127.0.0.1:8081/10k.bin";
    let bench = ["bench", url, "--rtt", "5ms", "-n", "20", "--json"];
    let mut first = hosts.host.start(&workspace, &["net", "--to", url, "--", "sleep", "1000"]);
    wait_until("the first run has created its device", || {
        assert!(!first.ended(), "the run ended early: {}", first.stderr());
        hosts.host.has_device("yamabiko0")
    });
    wait_until("the first run has added its route", || hosts.host.ip(&["route"]).contains("198.19.0.0/16"));
    hosts.host.yamabiko(&workspace, &bench).refused(2, &["another yamabiko", "yamabiko0"]);
    hosts.host.yamabiko(&workspace, &["net", "--to", url, "--", "true"]).refused(2, &["another yamabiko", "yamabiko0"]);
    // A run with a server of the testbed does not use the host's network.
    let own = format!("exec {} serve {} --listen 0.0.0.0:8080", yamabiko().display(), str_of(&workspace.www()));
    let in_testbed = ["bench", "http://server:8080/10k.bin", "--server", &own, "-n", "20", "--json", "--no-save"];
    assert_eq!(count(&hosts.host.yamabiko(&workspace, &in_testbed).json(), "load.completed"), 20);
    first.signal(Signal::SIGKILL);
    first.finish();
    wait_until("the device is removed", || !hosts.host.has_device("yamabiko"));

    hosts.host.ip(&["route", "add", "198.18.7.0/24", "dev", "up0"]);
    hosts.host.yamabiko(&workspace, &bench).refused(2, &["198.18.7.0/24", "up0", "benchmarks", "--server"]);
    hosts.host.ip(&["route", "del", "198.18.7.0/24", "dev", "up0"]);
    // A rule that routes the responses to another table.
    hosts.host.ip(&["route", "add", "default", "dev", "up0", "table", "77"]);
    hosts.host.ip(&["rule", "add", "to", "198.19.0.0/16", "lookup", "77", "pref", "100"]);
    hosts.host.yamabiko(&workspace, &bench).refused(2, &["routing rules", "up0", "ip rule"]);
    hosts.host.ip(&["rule", "del", "pref", "100"]);
    assert_eq!(fs::read_dir(workspace.runs()).unwrap().count(), 0, "a refused run is not stored");
    assert_eq!(count(&hosts.host.yamabiko(&workspace, &bench).json(), "load.completed"), 20);
}

#[test]
fn an_unprivileged_user_is_refused_before_the_run() {
    let workspace = Workspace::concurrent_as_root();
    let hosts = Hosts::new(&workspace);
    let _nginx = hosts.host.nginx(&workspace, "nginx", &["listen 127.0.0.1:8081;"]);
    let program = workspace.path().join("yamabiko");
    fs::copy(yamabiko(), &program).unwrap();
    set_mode(&program, 0o755);
    let user = |arguments: &[&str]| -> Output {
        let pid = hosts.host.pid().to_string();
        let mut command = Command::new("unshare");
        // A TUN device that any user may open, in a mount namespace that ends with the program.
        let script = "mount -t tmpfs -o mode=755 tmpfs /dev/net && mknod -m 666 /dev/net/tun c 10 200 && \
                      exec setpriv --reuid 65534 --regid 65534 --clear-groups \"$@\"";
        command.args(["--mount", "nsenter", "-t", &pid, "-n", "--", "sh", "-c", script, "sh", str_of(&program)]);
        command.args(arguments).stdin(Stdio::null());
        workspace.start_command(command).finish()
    };
    let url = "http://127.0.0.1:8081/10k.bin";
    let fix = ["this host's own network", "CAP_NET_ADMIN", "root", "--server", "--path none"];
    user(&["bench", url, "--rtt", "5ms", "-d", "1s"]).refused(2, &fix);
    user(&["bench", &format!("http://{}:8080/", REMOTE[0]), "--rtt", "5ms", "-d", "1s"]).refused(2, &fix);
    user(&["net", "--to", url, "--", "true"]).refused(2, &fix);
    assert_eq!(fs::read_dir(workspace.runs()).unwrap().count(), 0, "a refused run is not stored");
    // Without a path, and with a server of the testbed, over both address families.
    let direct = user(&["bench", url, "-n", "20", "--json", "--no-save"]);
    assert_eq!(count(&direct.json(), "load.completed"), 20, "{direct}");
    let own = format!("exec {} serve {} --listen [::]:8080", program.display(), str_of(&workspace.www()));
    for family in ["-4", "-6"] {
        let in_testbed = ["bench", "http://server:8080/10k.bin", "--server", &own, family, "--rtt", "5ms", "-n", "20"];
        let output = user(&[&in_testbed[..], &["--json", "--no-save"]].concat());
        assert_eq!(count(&output.json(), "load.completed"), 20, "{output}");
    }
}
