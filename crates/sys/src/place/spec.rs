//! What a place is to be.

use std::ffi::OsString;
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::time::Duration;

use crate::cgroup::Cgroup;
use crate::namespace::NetNamespace;

/// A command and the surroundings it runs in. [`PlaceSpec::new`] fills in the defaults.
#[derive(Debug)]
pub struct PlaceSpec<'a> {
    /// The program and its arguments. Looked up on the command's PATH, then in the sbin folders, where Debian keeps
    /// servers and ordinary users have no PATH to.
    pub argv: Vec<OsString>,
    /// Variables set over those of this process.
    pub env: Vec<(OsString, OsString)>,
    /// Its working directory; this process's otherwise.
    pub cwd: Option<PathBuf>,
    /// Names the command can look up besides those in the host's /etc/hosts, and before them.
    pub hosts: Vec<(IpAddr, String)>,
    /// Its standard streams.
    pub stdio: Stdio3,
    /// Whether it gets a session of its own: no terminal, so Ctrl-C does not reach it.
    pub new_session: bool,
    /// The cores it may run on; those of this process otherwise.
    pub cpus: Option<Vec<usize>>,
    /// The control group it joins. Stop the place before dropping the group.
    pub cgroup: Option<&'a Cgroup>,
    /// Its network namespace.
    pub net: Net,
    /// For a process that called [`crate::namespace::enter_user_namespace`]: the command gets its real user back (a
    /// nested user namespace), instead of being a root who is refused chown and setuid. It has no capabilities, but
    /// in a [`Net::New`] it may use any port and ping.
    pub rootless: bool,
    /// When the place is dropped its processes get TERM, and so long to end, before they are killed; zero: killed.
    pub grace: Duration,
}

/// The network namespace of a place.
#[derive(Debug)]
pub enum Net {
    /// A new one, with its loopback up.
    New,
    /// This one, as it is.
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
    /// This process's own.
    #[default]
    Inherit,
    /// /dev/null.
    Null,
    /// An open file, pipe or socket.
    File(OwnedFd),
}

impl PlaceSpec<'_> {
    /// The command in a new network namespace, as root, its streams inherited, bound to nothing.
    pub fn new(argv: Vec<OsString>) -> Self {
        PlaceSpec {
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
