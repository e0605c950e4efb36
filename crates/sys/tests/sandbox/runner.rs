//! Runs each case in a separate process, as root or as an ordinary user.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use nix::sys::stat::{Mode, SFlag, makedev, mknod};
use nix::unistd::getuid;

/// One test.
#[derive(Clone, Copy)]
pub struct Case {
    pub name: &'static str,
    pub identity: Identity,
    pub run: fn(),
}

/// The user that a case runs as.
#[derive(Clone, Copy, PartialEq)]
pub enum Identity {
    Root,
    /// User 65534, with a /dev/net/tun that any user may open.
    Ordinary,
}

/// A hidden program of this binary that a case starts as a process: see [`crate::sigkill`].
pub const VICTIM: &str = "--victim";

pub fn main(cases: &[Case]) {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let find = |name: &str| *cases.iter().find(|case| case.name == name).expect("no such case");
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["--case", name] => (find(name).run)(),
        ["--as-ordinary-user", name] => become_ordinary(find(name).name),
        [VICTIM, kind] => crate::sigkill::be_the_victim(kind),
        _ => run_all(cases, &arguments),
    }
}

fn run_all(cases: &[Case], arguments: &[String]) {
    let filters: Vec<&String> = arguments.iter().filter(|argument| !argument.starts_with('-')).collect();
    let is_selected =
        |case: &&Case| filters.is_empty() || filters.iter().any(|filter| case.name.contains(filter.as_str()));
    let cases: Vec<&Case> = cases.iter().filter(is_selected).collect();
    if arguments.iter().any(|argument| argument == "--list") {
        cases.iter().for_each(|case| println!("{}: test", case.name));
        return;
    }
    let binary = PublicCopy::make();
    println!("\nrunning {} tests", cases.len());
    let failed = cases.iter().filter(|case| !run_one(case, &binary.file)).count();
    let passed = cases.len() - failed;
    println!("\ntest result: {}. {passed} passed; {failed} failed\n", if failed == 0 { "ok" } else { "FAILED" });
    drop(binary);
    std::process::exit(if failed == 0 { 0 } else { 101 });
}

fn run_one(case: &Case, binary: &Path) -> bool {
    let started = Instant::now();
    let outcome = match (getuid().is_root(), case.identity) {
        (false, Identity::Root) => Err("this test makes namespaces: run it as root".to_owned()),
        (true, Identity::Ordinary) => run_process(binary, "--as-ordinary-user", case.name),
        _ => run_process(binary, "--case", case.name),
    };
    let seconds = started.elapsed().as_secs_f64();
    match &outcome {
        Ok(output) => println!("test {} ... ok ({seconds:.1} s){output}", case.name),
        Err(why) => println!("test {} ... FAILED ({seconds:.1} s)\n{why}", case.name),
    }
    outcome.is_ok()
}

/// `Ok` with the notes (lines that start with `note:`), or the whole output.
fn run_process(binary: &Path, how: &str, name: &str) -> Result<String, String> {
    let log = tempfile::tempfile().expect("a temporary file");
    let mut child = Command::new(binary)
        .args([how, name])
        .stdin(Stdio::null())
        .stdout(log.try_clone().expect("dup"))
        .stderr(log.try_clone().expect("dup"))
        .spawn()
        .expect("this binary starts");
    let deadline = Instant::now() + TIMEOUT;
    let status = loop {
        match child.try_wait().expect("waitpid") {
            Some(status) => break Some(status),
            None if Instant::now() > deadline => {
                child.kill().expect("kill");
                child.wait().expect("waitpid");
                break None;
            }
            None => std::thread::sleep(Duration::from_millis(2)),
        }
    };
    let mut log = log;
    std::io::Seek::rewind(&mut log).expect("seek");
    let text = std::io::read_to_string(log).unwrap_or_default();
    match status {
        Some(status) if status.success() => {
            Ok(text.lines().filter(|line| line.starts_with("note:")).map(|line| format!("\n    {line}")).collect())
        }
        Some(status) => Err(format!("{text}{status}")),
        None => Err(format!("{text}still running after {TIMEOUT:?}")),
    }
}

/// Makes /dev/net/tun accessible to all, for this process only; then drops root; then runs the case.
fn become_ordinary(name: &str) {
    let none: Option<&str> = None;
    unshare(CloneFlags::CLONE_NEWNS).expect("unshare CLONE_NEWNS");
    mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none).expect("mount --make-rprivate");
    mount(Some("tmpfs"), "/dev/net", Some("tmpfs"), MsFlags::empty(), none).expect("mount tmpfs on /dev/net");
    let everyone = Mode::from_bits_truncate(0o666);
    mknod("/dev/net/tun", SFlag::S_IFCHR, everyone, makedev(10, 200)).expect("mknod tun");
    fs::set_permissions("/dev/net/tun", fs::Permissions::from_mode(0o666)).expect("chmod tun");
    let own = std::env::current_exe().expect("/proc/self/exe");
    let error = Command::new(own).args(["--case", name]).uid(NOBODY).gid(NOBODY).current_dir("/").exec();
    panic!("exec as user {NOBODY}: {error}");
}

/// A copy of this binary that every user can run: target directories may be under root's home.
struct PublicCopy {
    _folder: tempfile::TempDir,
    file: PathBuf,
}

impl PublicCopy {
    fn make() -> PublicCopy {
        let folder = tempfile::tempdir().expect("a temporary folder");
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).expect("chmod");
        let file = folder.path().join("sandbox");
        fs::copy(std::env::current_exe().expect("/proc/self/exe"), &file).expect("copy of this binary");
        PublicCopy { _folder: folder, file }
    }
}

/// A user that owns nothing.
pub const NOBODY: u32 = 65534;

/// Far more than any case takes.
const TIMEOUT: Duration = Duration::from_secs(180);
