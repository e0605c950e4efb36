//! Configuration of a sandbox.

use std::ffi::OsString;
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::time::Duration;

use crate::cgroup::Cgroup;
use crate::namespace::NetNamespace;

/// A command and its environment. [`SandboxSpec::new`] fills in the defaults.
#[derive(Debug)]
pub struct SandboxSpec<'a> {
    /// The program and its arguments. Searched on the command's PATH, then in the sbin directories, where Debian
    /// installs servers and which are not in an ordinary user's PATH.
    pub argv: Vec<OsString>,
    /// Environment variables in addition to those of this process.
    pub env: Vec<(OsString, OsString)>,
    /// The command's working directory; `None`: this process's.
    pub cwd: Option<PathBuf>,
    /// Additional host names for the command, before those of the host's /etc/hosts.
    pub hosts: Vec<(IpAddr, String)>,
    /// The command's standard streams.
    pub stdio: Stdio3,
    /// Whether it gets its own session: no terminal, so Ctrl-C does not reach it.
    pub new_session: bool,
    /// The cores it may run on; `None`: those of this process.
    pub cpus: Option<Vec<usize>>,
    /// The control group it joins. Stop the sandbox before dropping the group.
    pub cgroup: Option<&'a Cgroup>,
    /// The command's network namespace.
    pub net: Net,
    /// For a process that called [`crate::namespace::enter_user_namespace`]: the command gets its real user (a nested
    /// user namespace), instead of being a root without chown and setuid. It has no capabilities, but in a [`Net::New`]
    /// it may use any port and ping.
    pub rootless: bool,
    /// When the sandbox is dropped its processes get TERM, and this time to end before KILL; zero: immediate KILL.
    pub grace: Duration,
}

/// The network namespace of a sandbox.
#[derive(Debug)]
pub enum Net {
    /// A new one, with its loopback up.
    New,
    /// An existing one, unchanged.
    Existing(NetNamespace),
}

/// The three standard streams.
#[derive(Debug, Default)]
pub struct Stdio3 {
    /// Descriptor 0.
    pub stdin: Stdio,
    /// Descriptor 1.
    pub stdout: Stdio,
    /// Descriptor 2.
    pub stderr: Stdio,
}

/// One standard stream.
#[derive(Debug, Default)]
pub enum Stdio {
    /// The stream of this process.
    #[default]
    Inherit,
    /// /dev/null.
    Null,
    /// An open file, pipe or socket.
    File(OwnedFd),
}

impl SandboxSpec<'_> {
    /// The command in a new network namespace, as root, with inherited streams and all cores.
    pub fn new(argv: Vec<OsString>) -> Self {
        SandboxSpec {
            argv,
            env: Vec::new(),
            cwd: None,
            hosts: Vec::new(),
            stdio: Stdio3::default(),
            new_session: false,
            cpus: None,
            cgroup: None,
            net: Net::New,
            rootless: false,
            grace: Duration::ZERO,
        }
    }
}
