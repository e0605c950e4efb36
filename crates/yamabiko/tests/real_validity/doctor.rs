//! `doctor` predicts correctly which verbs work: as root, as an unprivileged user, without the TUN device. It leaves
//! nothing behind.

use std::fs;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::support::servers::{bench, net, yamabiko_serve_from};
use crate::support::user::{Tun, User};
use crate::support::workspace::{Output, Workspace, str_of, yamabiko};

fn verb<'a>(document: &'a Value, name: &str) -> &'a Value {
    let verbs = document["verbs"].as_array().unwrap();
    verbs.iter().find(|verb| verb["verb"] == name).unwrap_or_else(|| panic!("verb `{name}` is missing in {document}"))
}

fn finding<'a>(document: &'a Value, name: &str) -> &'a Value {
    let findings = document["findings"].as_array().unwrap();
    findings.iter().find(|finding| finding["name"] == name).unwrap_or_else(|| panic!("no finding `{name}`"))
}

/// Whether a verb worked. A verb that did not must have been refused with a reference to `doctor`.
fn worked(output: &Output) -> bool {
    match output.code {
        Some(2) => {
            assert!(output.stderr.contains("for details run: yamabiko doctor"), "{output}");
            false
        }
        Some(0 | 3) => true,
        _ => panic!("{output}"),
    }
}

#[test]
fn doctor_reports_a_working_testbed_and_its_timing_error_to_root() {
    let workspace = Workspace::new();
    let output = workspace.run(&["doctor", "--json"]).success();
    let document = output.json();
    for name in ["bench --server", "net", "watch -i", "bench --rtt, this host"] {
        assert_ne!(verb(&document, name)["state"], "missing", "{name}\n{output}");
    }
    for name in ["namespaces", "tun", "offloads", "client addresses", "sandboxes", "capture", "host network"] {
        assert_eq!(finding(&document, name)["state"], "ok", "{name}\n{output}");
    }
    let measured = &document["measured"];
    let wake_ups = measured["wake_up"].as_array().unwrap();
    assert_eq!(wake_ups.len(), 8, "two ways to wait times four distances");
    for wake_up in wake_ups {
        // Delays depend on the machine; no wait may end early, and the percentiles must be in order.
        let late = |quantile: &str| wake_up["late_ns"][quantile].as_u64().unwrap();
        assert!(late("count") >= 20 && late("p50") <= late("p99") && late("p99") <= late("max"), "{wake_up}");
    }
    assert!(measured["clock_read_ns"]["p50"].as_u64().unwrap() > 0, "{measured}");
    assert!(measured["tun_write_ns"]["count"].as_u64().unwrap() > 0, "packets pass through the device: {measured}");
    assert!(output.elapsed.as_secs() < 30, "{output}");
}

/// `doctor` runs in its own network, which no other process changes: devices, addresses, routes, rules, settings,
/// mounts and control groups are identical before and after.
#[test]
fn doctor_changes_nothing_and_leaves_nothing() {
    let workspace = Workspace::new();
    let look = "{ ip -o link; ip -o addr; ip route show table all; ip -6 route show table all; ip rule; ip -6 rule; nft list ruleset; \
                cat /proc/self/mountinfo; find /sys/fs/cgroup -maxdepth 4 -name 'yamabiko-*'; \
                find /proc/sys/net/ipv4 /proc/sys/net/ipv6 -type f -perm -u=r ! -name '*stable_secret' \
                -exec grep -H . {} +; grep -H . /proc/sys/kernel/sched_rt_runtime_us; } | sort";
    let script = format!(
        "({look}) > out/before; \"$0\" doctor --json > out/document; echo $? > out/status; ({look}) > out/after"
    );
    let mut command = Command::new("unshare");
    command.args(["--net", "sh", "-c", &script, str_of(&yamabiko())]).stdin(Stdio::null());
    let ran = workspace.start_command(command);
    let pid = ran.pid();
    ran.finish().success();
    let read = |name: &str| fs::read_to_string(workspace.file(name)).unwrap();
    let (before, after) = (read("before"), read("after"));
    assert!(before.lines().count() > 100, "the snapshot has content:\n{before}");
    let differ: Vec<_> = before.lines().zip(after.lines()).filter(|(before, after)| before != after).collect();
    assert_eq!((before.lines().count(), differ), (after.lines().count(), Vec::new()));
    assert_eq!(read("status").trim(), "0");
    assert_eq!(crate::support::processes::descendants(pid), Vec::<i32>::new());
    let document: Value = serde_json::from_str(&read("document")).unwrap();
    assert_eq!(finding(&document, "tun")["state"], "ok");
}

/// For each state of the TUN device, the prediction for a verb equals the verb's result.
#[test]
fn doctor_predicts_what_an_unprivileged_user_can_measure() {
    let user = User::new();
    let server = yamabiko_serve_from(&user.program, &user.workspace);
    for (tun, fix) in [(Tun::ForAll, ""), (Tun::ForRoot, "chmod 666 /dev/net/tun"), (Tun::Missing, "modprobe tun")] {
        let output = user.run(tun, &["doctor", "--quick", "--json"]);
        let document = output.json();
        let is_predicted = |name: &str| verb(&document, name)["state"] != "missing";
        assert_eq!(is_predicted("bench --server"), fix.is_empty(), "{output}");
        assert_eq!(output.code, Some(if fix.is_empty() { 0 } else { 2 }), "{output}");
        let advice = verb(&document, "bench --server")["fix"].as_str().unwrap();
        assert!(advice.contains(if fix.is_empty() { "root" } else { fix }), "{advice}");

        let short = bench(&server, "-n 5 --no-save");
        assert_eq!(worked(&user.run(tun, &short)), is_predicted("bench --server"));
        assert_eq!(worked(&user.run(tun, &net("--rtt 1ms", "true"))), is_predicted("net"));
        let bounded = bench(&server, "-n 5 --no-save --server-cpu 50%");
        assert_eq!(worked(&user.run(tun, &bounded)), is_predicted("bench --server-cpu"));
        let watched = user.run(tun, &["watch", "-i", "lo", "-d", "100ms", "--plain", "--no-save"]);
        assert_eq!(worked(&watched), is_predicted("watch -i"));
        assert!(!is_predicted("watch -i") && !is_predicted("bench --rtt, this host"), "{output}");
    }
    assert_eq!(fs::read_dir(user.workspace.runs()).unwrap().count(), 0);
}

/// Root without CAP_NET_ADMIN, as in most containers.
#[test]
fn doctor_reports_root_without_capabilities() {
    let workspace = Workspace::new();
    let as_container = |arguments: &[&str]| {
        let mut command = Command::new("setpriv");
        command.args(["--bounding-set", "-net_admin,-sys_admin,-net_raw,-sys_nice"]);
        command.args(["--inh-caps", "-net_admin,-sys_admin,-net_raw,-sys_nice", str_of(&yamabiko())]);
        command.args(arguments).stdin(Stdio::null());
        workspace.start_command(command).finish()
    };
    let output = as_container(&["doctor", "--quick", "--json"]);
    let document = output.json();
    assert_eq!(verb(&document, "watch -i")["state"], "missing", "{output}");
    assert_eq!(verb(&document, "bench --rtt, this host")["state"], "missing", "{output}");
    assert_eq!(finding(&document, "host network")["state"], "missing");
    // It can still be root of a user namespace, and reports that.
    let runs = worked(&as_container(&net("--rtt 1ms", "true")));
    assert_eq!(runs, verb(&document, "net")["state"] != "missing", "{output}");
    assert_ne!(finding(&document, "privilege")["state"], "ok", "{output}");
}
