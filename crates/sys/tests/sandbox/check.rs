//! Helpers of several cases: short commands in sandboxes, waiting for a condition, one HTTP request.

use std::ffi::OsString;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use sys::sandbox::{Exit, Sandbox, SandboxSpec, Stdio, Stdio3};

/// A shell script as a spec, silent, in a new network.
pub fn shell(script: &str) -> SandboxSpec<'static> {
    let mut spec = command(&["sh", "-c", script]);
    spec.stdio = Stdio3 { stdin: Stdio::Null, stdout: Stdio::Inherit, stderr: Stdio::Inherit };
    spec
}

pub fn command(argv: &[&str]) -> SandboxSpec<'static> {
    SandboxSpec::new(argv.iter().map(OsString::from).collect())
}

/// Starts a sandbox and its command.
pub fn start(spec: SandboxSpec<'_>) -> Sandbox {
    let mut sandbox = Sandbox::start(spec).expect("sandbox");
    sandbox.exec().expect("command");
    sandbox
}

/// Runs a command to its end; returns its exit status and standard output.
pub fn output(mut spec: SandboxSpec<'_>) -> (Exit, String) {
    let (mut reading, writing) = std::io::pipe().expect("pipe");
    spec.stdio.stdout = Stdio::File(OwnedFd::from(writing));
    let mut sandbox = start(spec);
    let mut text = String::new();
    reading.read_to_string(&mut text).expect("output");
    (ended(&mut sandbox), text)
}

/// Waits for the command to end.
pub fn ended(sandbox: &mut Sandbox) -> Exit {
    wait_for("the command ends", || sandbox.try_exit().expect("status"))
}

/// Polls every 2 ms, for up to 20 s.
pub fn wait_for<T>(what: &str, mut poll: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        if let Some(response) = poll() {
            return response;
        }
        assert!(Instant::now() < deadline, "timeout after 20 s: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

pub fn wait_until(what: &str, mut poll: impl FnMut() -> bool) {
    wait_for(what, || poll().then_some(()));
}

/// Whether a process of this number is alive (a zombie is not).
pub fn is_running(pid: i32) -> bool {
    sys::accounting::ProcessStat::read(pid).is_some_and(|stat| stat.state != 'Z')
}

/// The first line of the response to a GET of `/`, requested inside the sandbox's network once a server listens.
pub fn http_status(sandbox: &Sandbox, port: u16) -> String {
    let address = SocketAddr::from(([127, 0, 0, 1], port));
    let mut stream =
        wait_for("the server listens", || sandbox.net().run(|| TcpStream::connect(address).ok()).expect("enter"));
    stream.set_read_timeout(Some(Duration::from_secs(10))).expect("timeout");
    stream.write_all(b"GET / HTTP/1.0\r\n\r\n").expect("request");
    let mut response = String::new();
    stream.read_to_string(&mut response).expect("response");
    response.lines().next().unwrap_or_default().to_owned()
}
