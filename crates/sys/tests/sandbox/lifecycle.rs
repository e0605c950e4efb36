//! A sandbox starts, matches its spec, and ends.

use std::fs::{self, File};
use std::io::Read;
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use sys::Error;
use sys::sandbox::{Exit, Net, Sandbox, Stdio};

use crate::check::{command, ended, is_running, output, shell, start, wait_for, wait_until};

pub fn command_ends_with_its_exit_code() {
    let mut sandbox = Sandbox::start(shell("exit 7")).unwrap();
    assert_eq!(sandbox.try_exit().unwrap(), None);
    assert!(!sandbox.alive().unwrap(), "no process runs before exec");
    sandbox.exec().unwrap();
    assert!(matches!(sandbox.exec(), Err(Error::Unexpected { .. })), "a second exec is rejected");
    let readable =
        poll(&mut [PollFd::new(sandbox.status_fd(), PollFlags::POLLIN)], PollTimeout::from(10_000u16)).unwrap();
    assert_eq!(readable, 1, "status_fd is readable");
    assert_eq!(ended(&mut sandbox), Exit::Code(7));
    wait_until("the sandbox is empty", || !sandbox.alive().unwrap());
    assert!(is_running(sandbox.init_pid()), "init is_running until the sandbox is stopped");
    let init = sandbox.init_pid();
    sandbox.stop(Duration::from_secs(5));
    assert!(!is_running(init));
}

pub fn command_ends_by_a_signal() {
    assert_eq!(ended(&mut start(shell("kill -KILL $$"))), Exit::Signal(9));
}

pub fn failed_exec_is_reported() {
    let error = Sandbox::start(command(&["no-such-server"])).unwrap_err().to_string();
    assert!(error.starts_with("no-such-server: no such program on the PATH"), "{error}");

    let mut sandbox = Sandbox::start(command(&["/nowhere/nginx"])).unwrap();
    assert_eq!(sandbox.exec().unwrap_err().to_string(), "/nowhere/nginx: No such file or directory");
    assert!(!sandbox.alive().unwrap());

    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("server");
    fs::write(&file, "#!/nowhere/interpreter\n").unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
    let path = file.to_str().unwrap();
    let error = Sandbox::start(command(&[path])).unwrap().exec().unwrap_err().to_string();
    assert_eq!(error, format!("{path}: Permission denied"));
    fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
    let error = Sandbox::start(command(&[path])).unwrap().exec().unwrap_err().to_string();
    assert_eq!(error, format!("{path}: No such file or directory"));
}

pub fn failed_setup_step_is_reported() {
    let mut spec = shell("true");
    spec.cwd = Some("/nowhere".into());
    let error = Sandbox::start(spec).unwrap().exec().unwrap_err().to_string();
    assert_eq!(error, "chdir /nowhere: No such file or directory");

    let mut spec = shell("true");
    spec.cpus = Some(vec![1000]);
    let error = Sandbox::start(spec).unwrap().exec().unwrap_err().to_string();
    assert!(error.contains("sched_setaffinity") && error.contains("Invalid argument"), "{error}");

    let error = Sandbox::start(command(&["sh", "a\0b"])).unwrap_err().to_string();
    assert!(error.contains("NUL"), "{error}");
}

pub fn start_fails_with_several_threads() {
    let (stop, stopped) = std::sync::mpsc::channel::<()>();
    let other = std::thread::spawn(move || stopped.recv());
    let error = Sandbox::start(shell("true")).unwrap_err();
    assert!(matches!(error, Error::Threads { threads: 2 }), "{error}");
    drop(stop);
    let _ = other.join();
    Sandbox::start(shell("true")).expect("the process has one thread again");
}

pub fn sandbox_sees_only_its_own_processes() {
    let (exit, text) = output(shell("ls /proc | grep -c '^[0-9]'; echo $$"));
    assert_eq!(exit, Exit::Code(0));
    let numbers: Vec<u32> = text.lines().map(|line| line.parse().unwrap()).collect();
    // init, sh, ls, grep; and the shell is process 2 of the namespace.
    assert!(numbers[0] <= 4 && numbers[1] == 2, "{text}");
}

pub fn sandbox_has_its_own_hosts_file() {
    let before = fs::read("/etc/hosts").unwrap();
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let mut spec = shell("getent hosts server; getent hosts six; getent hosts localhost; ls /proc/self/stat");
    let six: IpAddr = "2001:2:0:1::1".parse().unwrap();
    spec.hosts = vec![("198.18.0.1".parse().unwrap(), "server".to_owned()), (six, "six".to_owned())];
    let (exit, text) = output(spec);
    assert_eq!(exit, Exit::Code(0), "{text}");
    assert!(text.contains("198.18.0.1") && text.contains("2001:2:0:1::1") && text.contains("localhost"), "{text}");
    assert_eq!(fs::read("/etc/hosts").unwrap(), before);
    assert_eq!(fs::read_to_string("/proc/self/mountinfo").unwrap(), mounts);
}

pub fn command_inherits_no_descriptors_or_signal_settings() {
    // Descriptors, ignored and blocked signals, exact timers: settings of main that a server must not inherit.
    let _open: Vec<File> = (0..20).map(|_| File::open("/dev/null").unwrap()).collect();
    let mut blocked = nix::sys::signal::SigSet::empty();
    blocked.add(Signal::SIGTERM);
    blocked.thread_block().unwrap();
    nix::sys::prctl::set_timerslack(1).unwrap();
    let (exit, text) = output(shell(
        "echo fds: $(ls /proc/self/fd); grep -E '^Sig(Ign|Blk)' /proc/self/status; cat /proc/self/timerslack_ns",
    ));
    assert_eq!(exit, Exit::Code(0));
    let lines: Vec<&str> = text.lines().collect();
    // ls itself opens the directory as 3.
    assert_eq!((lines[0], lines[1], lines[3]), ("fds: 0 1 2 3", "SigBlk:\t0000000000000000", "50000"), "{text}");
    // Signals 32 and 33 are glibc's own: its posix_spawn, which started this process, ignores them.
    let ignored = u64::from_str_radix(lines[2].strip_prefix("SigIgn:\t").unwrap(), 16).unwrap();
    assert_eq!(ignored & !(0b11 << 31), 0, "{text}");
}

pub fn command_gets_the_settings_of_its_spec() {
    let folder = tempfile::tempdir().unwrap();
    let mut spec = shell(
        "echo $COLOUR; pwd; grep Cpus_allowed_list /proc/self/status; cut -d' ' -f6 /proc/$$/stat; echo $$; cat; \
         echo oops >&2",
    );
    spec.env = vec![("COLOUR".into(), "green".into())];
    spec.cwd = Some(folder.path().to_owned());
    spec.cpus = Some(vec![0]);
    spec.new_session = true;
    let input = folder.path().join("input");
    fs::write(&input, "typed\n").unwrap();
    spec.stdio.stdin = Stdio::File(File::open(&input).unwrap().into());
    let errors = folder.path().join("errors");
    spec.stdio.stderr = Stdio::File(File::create(&errors).unwrap().into());
    let (exit, text) = output(spec);
    assert_eq!(exit, Exit::Code(0));
    let here = folder.path().to_str().unwrap();
    assert_eq!(text.lines().collect::<Vec<_>>(), ["green", here, "Cpus_allowed_list:\t0", "2", "2", "typed"], "{text}");
    assert_eq!(fs::read_to_string(errors).unwrap(), "oops\n");
}

pub fn output_pipe_ends_with_the_command() {
    let (mut reading, writing) = std::io::pipe().unwrap();
    let mut spec = shell("echo end of output");
    spec.stdio.stdout = Stdio::File(OwnedFd::from(writing));
    let sandbox = start(spec);
    let mut text = String::new();
    reading.read_to_string(&mut text).unwrap();
    assert_eq!(text, "end of output\n");
    assert!(is_running(sandbox.init_pid()), "init has no end of the pipe open");
}

pub fn daemon_survives_its_launcher() {
    let mut sandbox = start(shell("setsid sleep 1000 & setsid sh -c 'sleep 1000' & exit 0"));
    assert_eq!(ended(&mut sandbox), Exit::Code(0));
    wait_until("both daemons sleep", || sandbox.pids().len() >= 2);
    assert!(sandbox.alive().unwrap());
    let pids = sandbox.pids();
    assert!(sandbox.usage().processes >= 2);
    sandbox.signal(Signal::SIGKILL).unwrap();
    wait_until("the sandbox is empty", || !sandbox.alive().unwrap());
    assert!(pids.iter().all(|pid| !is_running(*pid)));
}

pub fn stop_kills_after_the_grace_period() {
    let folder = tempfile::tempdir().unwrap();
    let output_file = folder.path().join("output_file");
    let ready = folder.path().join("ready");
    // The script reports when its trap is set: before that TERM would kill it.
    let script = format!(
        "trap 'echo bye > {}; exit 0' TERM; : > {}; while :; do sleep 0.01; done",
        output_file.display(),
        ready.display()
    );

    // Handles TERM, even when it is stopped at that time.
    let mut sandbox = start(shell(&script));
    wait_until("the trap is set", || ready.exists());
    sandbox.signal(Signal::SIGSTOP).unwrap();
    let before = Instant::now();
    sandbox.stop(Duration::from_secs(20));
    assert!(before.elapsed() < Duration::from_secs(10));
    assert_eq!(fs::read_to_string(&output_file).unwrap(), "bye\n");

    // Ignores TERM: killed at the end of the grace period, not before. Its second process starts after the trap is set.
    let mut sandbox = start(shell("trap '' TERM; while :; do sleep 0.01; done"));
    wait_until("the loop runs", || sandbox.pids().len() >= 2);
    let pids = sandbox.pids();
    assert!(sandbox.alive().unwrap());
    let before = Instant::now();
    sandbox.stop(Duration::from_millis(300));
    assert!(before.elapsed() >= Duration::from_millis(300));
    assert!(pids.iter().all(|pid| !is_running(*pid)));

    // No grace period: killed immediately.
    let before = Instant::now();
    start(shell("trap '' TERM; while :; do sleep 0.01; done")).stop(Duration::ZERO);
    assert!(before.elapsed() < Duration::from_secs(10));
}

pub fn dropped_sandbox_kills_its_processes() {
    let sandbox = start(shell("sleep 1000"));
    wait_until("the command sleeps", || !sandbox.pids().is_empty());
    let pids = [sandbox.pids(), vec![sandbox.init_pid()]].concat();
    drop(sandbox);
    assert!(pids.iter().all(|pid| !is_running(*pid)));
}

pub fn usage_includes_running_and_ended_processes() {
    // One busy loop that is waited for, after a second of CPU time; then one that continues.
    let sandbox = start(shell("(ulimit -t 1; while :; do :; done); while :; do :; done & sleep 1000"));
    // The shell, the second busy loop, sleep. CPU time is no criterion: the kernel counts the second of the limit in
    // ticks, and on a busy machine the first loop may have used much more before it ends.
    let usage = wait_for("the second busy loop runs", || Some(sandbox.usage()).filter(|usage| usage.processes == 3));
    let used = usage.user + usage.system;
    let all_counted = used > Duration::from_millis(700) && usage.user > usage.system && usage.rss_bytes > 100_000;
    assert!(all_counted, "{usage:?}");
    let more = || sandbox.usage().user + sandbox.usage().system > used + Duration::from_millis(100);
    wait_until("the running loop is counted too", more);
    sandbox.stop(Duration::ZERO);
}

pub fn killed_init_is_reported() {
    let mut sandbox = start(shell("sleep 1000"));
    kill(Pid::from_raw(sandbox.init_pid()), Signal::SIGKILL).unwrap();
    wait_until("the end of init is reported", || matches!(sandbox.try_exit(), Err(Error::SandboxLost)));
    assert!(sandbox.alive().is_err() && sandbox.signal(Signal::SIGTERM).is_err());
    sandbox.stop(Duration::from_secs(5));
}

pub fn sandbox_joins_an_existing_network() {
    let first = start(shell("sleep 1000"));
    let mut spec = shell("readlink /proc/self/ns/net; ping -c1 -W5 127.0.0.1");
    spec.net = Net::Existing(first.net().try_clone().unwrap());
    let (exit, text) = output(spec);
    assert_eq!(exit, Exit::Code(0), "{text}");
    assert!(text.starts_with(&format!("net:[{}]", first.net().inode().unwrap())), "{text}");
}
