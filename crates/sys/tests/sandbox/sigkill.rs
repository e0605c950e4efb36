//! SIGKILL of the main process, at any time, leaves nothing behind.
//!
//! A victim (this binary again) builds a testbed: a control group, a server sandbox with daemons that tried every way
//! to escape, a second sandbox in another network, devices. It is killed after a random time, mostly within the first
//! milliseconds, when the sandboxes are half built. Every process of it has a mark in its environment.

use std::collections::HashSet;
use std::fs;
use std::io::{Read, Seek, Write};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use nix::unistd::getuid;
use sys::cgroup::{Cgroup, Limits};
use sys::namespace::enter_user_namespace;
use sys::sandbox::Stdio as SandboxStdio;
use sys::tun::Tun;

use crate::check::{shell, start, wait_until};
use crate::runner::VICTIM;

pub fn sigkill_of_root_leaves_nothing() {
    kill_at_random_times("root", 200);
}

pub fn sigkill_of_rootless_leaves_nothing() {
    kill_at_random_times("rootless", 100);
}

/// Each delay is drawn from a fixed seed; three in four are within 20 ms, during which the testbed is being built.
fn kill_at_random_times(kind: &str, times: u32) {
    let mounts = mounts();
    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    let (mut seen, mut complete, mut longest) = (0, 0, Duration::ZERO);
    for time in 0..times {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let range_us = if time % 4 == 3 { 120_000 } else { 10_000 * (1 + u64::from(time % 2)) };
        let delay = Duration::from_micros((random >> 33) % range_us);
        let mark = format!("{MARK}={}-{time}", std::process::id());
        let (name, value) = mark.split_once('=').unwrap();
        let mut log = tempfile::tempfile().unwrap();
        let mut victim = Command::new("/proc/self/exe")
            .args([VICTIM, kind])
            .env(name, value)
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .spawn()
            .unwrap();
        std::thread::sleep(delay);
        victim.kill().unwrap();
        let pid = victim.id();
        victim.wait().unwrap();
        let killed = Instant::now();
        let mut output = String::new();
        log.rewind().unwrap();
        log.read_to_string(&mut output).unwrap();
        let networks: HashSet<&str> = output.lines().filter_map(|line| line.strip_prefix("net:")).collect();
        seen += usize::from(!networks.is_empty());
        complete += usize::from(output.contains("complete"));
        let mut clean = 0;
        wait_until("nothing is left of the victim", || {
            // A process during exec shows no environment: check twice.
            clean = if marked(&mark).is_empty() && !in_use(&networks) { clean + 1 } else { 0 };
            clean == 2
        });
        longest = longest.max(killed.elapsed());
        if getuid().is_root() {
            wait_until("the next start sweeps its control groups", || {
                sys::cgroup::sweep().unwrap();
                groups_of(pid) == 0
            });
        }
    }
    assert_eq!(self::mounts(), mounts);
    println!(
        "note: killed {times} times: {seen} with a namespace made, {complete} with the whole testbed \
         running; removed within {longest:?}"
    );
    assert!(
        seen > 0 && complete > 0 && complete < times as usize,
        "the kills must hit before, during and after the start"
    );
}

/// Builds the testbed and waits to be killed.
pub fn be_the_victim(kind: &str) {
    let rootless = kind == "rootless";
    if rootless {
        enter_user_namespace().unwrap();
    }
    let group = (!rootless)
        .then(|| Cgroup::create("victim", Limits { cpu: Some("50%".parse().unwrap()), ..Limits::default() }).unwrap());
    let quiet = |script: &str| {
        let mut spec = shell(script);
        spec.stdio.stdout = SandboxStdio::Null;
        spec.stdio.stderr = SandboxStdio::Null;
        spec.hosts = vec![("198.18.0.1".parse().unwrap(), "server".to_owned())];
        spec
    };
    let other_user = if rootless { "" } else { "setpriv --reuid 65533 --regid 65533 --clear-groups" };
    let mut spec = quiet(&format!(
        "setsid {other_user} sh -c 'trap \"\" TERM HUP INT; (setsid sleep 1000 &) ; sleep 1000' & setsid sleep 1000 & exit 0"
    ));
    spec.cgroup = group.as_ref();
    spec.rootless = rootless;
    spec.new_session = true;
    let server = start(spec);
    print_line(&format!("net:{}", server.net().inode().unwrap()));
    let tun = server.net().run(|| Tun::open("s0").unwrap()).unwrap();
    let client = start(quiet("sleep 1000"));
    print_line(&format!("net:{}", client.net().inode().unwrap()));
    let other = client.net().run(|| Tun::open("c0").unwrap()).unwrap();
    while server.pids().len() < 4 {
        std::thread::sleep(Duration::from_millis(1));
    }
    print_line("complete");
    std::thread::sleep(Duration::from_secs(1000));
    drop((tun, other));
}

fn print_line(line: &str) {
    println!("{line}");
    std::io::stdout().flush().unwrap();
}

/// Running processes with the mark.
fn marked(mark: &str) -> Vec<i32> {
    let own = std::process::id() as i32;
    let carries = |pid: &i32| {
        fs::read(format!("/proc/{pid}/environ"))
            .is_ok_and(|environment| environment.split(|byte| *byte == 0).any(|variable| variable == mark.as_bytes()))
    };
    processes().filter(|pid| *pid != own).filter(carries).collect()
}

/// Whether any process is in one of these network namespaces or holds a descriptor of it.
fn in_use(networks: &HashSet<&str>) -> bool {
    let is_one = |link: std::io::Result<std::path::PathBuf>| {
        link.is_ok_and(|link| {
            link.to_str().and_then(|l| l.strip_prefix("net:[")?.strip_suffix(']')).is_some_and(|n| networks.contains(n))
        })
    };
    !networks.is_empty()
        && processes().any(|pid| {
            is_one(fs::read_link(format!("/proc/{pid}/ns/net")))
                || fs::read_dir(format!("/proc/{pid}/fd"))
                    .into_iter()
                    .flatten()
                    .flatten()
                    .any(|fd| is_one(fs::read_link(fd.path())))
        })
}

fn processes() -> impl Iterator<Item = i32> {
    fs::read_dir("/proc").unwrap().flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// Control group directories of a process, over all hierarchies.
fn groups_of(pid: u32) -> usize {
    let probe = Cgroup::create("probe", Limits::default()).unwrap();
    let of_victim = format!("-{pid}-");
    let parents: HashSet<_> =
        probe.procs_paths().iter().map(|file| file.parent().unwrap().parent().unwrap().to_owned()).collect();
    let names = parents.iter().flat_map(|parent| fs::read_dir(parent).unwrap().flatten());
    names.filter(|entry| entry.file_name().to_string_lossy().contains(&of_victim)).count()
}

/// This namespace's mounts of the kinds that sandboxes create.
fn mounts() -> Vec<String> {
    let kinds = ["/etc/hosts", " proc ", " sysfs ", "nsfs"];
    let all = fs::read_to_string("/proc/self/mountinfo").unwrap();
    all.lines().filter(|line| kinds.iter().any(|kind| line.contains(kind))).map(str::to_owned).collect()
}

const MARK: &str = "YAMABIKO_TEST_MARK";
