//! As an ordinary user: with a server of the lab everything works, and what does not is said with its mend.
#![allow(clippy::disallowed_methods, reason = "tests of the whole program wait for it")]

mod support;

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use serde_json::Value;

use support::document::{assert_fields, assert_held, count, disturbed, number};
use support::lab::{Output, Room, set_mode, str_of, yamabiko};
use support::servers::{bench, net, nginx, own_from};

#[test]
fn benches_its_own_server() {
    let user = User::new();
    let document = benched(&user, &own_from(&user.program, &user.room));
    assert_eq!(document["server"]["source"], "/proc", "an ordinary user has no control group");
}

#[test]
fn benches_nginx() {
    let user = User::new();
    benched(&user, &nginx(&user.room));
}

fn benched(user: &User, server: &str) -> Value {
    let options = "--rtt 30ms --clients 50 --rate 100/s --close --warmup 500ms -d 3s --json";
    let output = user.run(Tun::ForAll, &bench(server, options));
    assert!(matches!(output.code, Some(0 | 3)), "{output}");
    let document = output.json();
    assert_held(&document, &["conservation", "nothing_dropped_by_mistake"]);
    assert_held(&document, &["responses_whole", "server_alive", "records_kept"]);
    // An ordinary user's path has no right to come before others: where they keep it waiting, the run must say so.
    if !disturbed(&document) {
        assert_held(&document, &["rtt_as_asked"]);
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
fn programs_run_at_the_far_end() {
    let user = User::new();
    let pinged = user.run(Tun::ForAll, &net("--rtt 10ms", "ping -n -c 3 -i 0.2 server"));
    assert_eq!(pinged.code, Some(0), "{pinged}");
    assert!(pinged.stdout.contains("3 received") && pinged.stdout.contains("time=10."), "{pinged}");
    let who = user.run(Tun::ForAll, &["net", "--", "sh", "-c", "id -u; exit 9"]);
    assert_eq!((who.code, who.stdout.trim()), (Some(9), "65534"), "it is who it was: {who}");
}

#[test]
fn no_tun_device_no_path() {
    let user = User::new();
    let server = own_from(&user.program, &user.room);
    let mend = ["/dev/net/tun", "chmod"];
    user.run(Tun::ForRoot, &bench(&server, "-d 1s")).refused(2, &mend);
    user.run(Tun::ForRoot, &net("--rtt 1ms", "true")).refused(2, &mend);
    user.run(Tun::Missing, &net("", "true")).refused(2, &["/dev/net/tun"]);
    assert_eq!(fs::read_dir(user.room.runs()).unwrap().count(), 0, "a run that could not be made is not in the book");
}

#[test]
fn no_control_group_no_share() {
    let user = User::new();
    let server = own_from(&user.program, &user.room);
    user.run(Tun::ForAll, &bench(&server, "--server-cpu 50% -d 1s")).refused(2, &["--server-cpu", "root"]);
}

/// User 65534 with a copy of the program that it may run.
struct User {
    room: Room,
    program: PathBuf,
}

/// What the user finds at /dev/net/tun.
#[derive(Clone, Copy)]
enum Tun {
    ForAll,
    ForRoot,
    Missing,
}

impl User {
    fn new() -> User {
        let room = Room::new();
        let program = room.path().join("yamabiko");
        fs::copy(yamabiko(), &program).unwrap();
        set_mode(&program, 0o755);
        User { room, program }
    }

    /// Runs the program as that user. The device is one of a mount namespace that ends with it: this machine's own is
    /// left alone.
    fn run(&self, tun: Tun, arguments: &[&str]) -> Output {
        let device = match tun {
            Tun::ForAll => "mknod -m 666 /dev/net/tun c 10 200",
            Tun::ForRoot => "mknod -m 600 /dev/net/tun c 10 200",
            Tun::Missing => "true",
        };
        let script = format!(
            "mount -t tmpfs -o mode=755 tmpfs /dev/net && {device} && \
             exec setpriv --reuid {NOBODY} --regid {NOBODY} --clear-groups \"$@\""
        );
        let mut command = Command::new("unshare");
        command.args(["--mount", "sh", "-c", &script, "sh", str_of(&self.program)]).args(arguments);
        command.stdin(Stdio::null());
        self.room.start_command(command).finish()
    }
}

const NOBODY: u32 = 65534;
