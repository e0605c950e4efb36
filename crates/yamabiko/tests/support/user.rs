//! Runs the program as an unprivileged user; the test itself runs as root.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use super::workspace::{Output, Workspace, set_mode, str_of, yamabiko};

/// User 65534 (nobody), with a copy of the program that this user may execute.
pub struct User {
    pub workspace: Workspace,
    pub program: PathBuf,
}

/// State of the device /dev/net/tun.
#[derive(Clone, Copy)]
pub enum Tun {
    ForAll,
    ForRoot,
    Missing,
}

impl User {
    pub fn new() -> User {
        User::of(Workspace::new())
    }

    /// The user in a workspace of [`Workspace::concurrent_as_root`].
    pub fn concurrent() -> User {
        User::of(Workspace::concurrent_as_root())
    }

    fn of(workspace: Workspace) -> User {
        let program = workspace.path().join("yamabiko");
        fs::copy(yamabiko(), &program).unwrap();
        set_mode(&program, 0o755);
        User { workspace, program }
    }

    /// Runs the program as that user. The device is in a mount namespace that ends with the program, so the machine's
    /// own device is not touched.
    pub fn run(&self, tun: Tun, arguments: &[&str]) -> Output {
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
        self.workspace.start_command(command).finish()
    }
}

/// The user id of the user nobody.
pub const NOBODY: u32 = 65534;
