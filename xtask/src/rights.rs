//! Whether this program can run commands as root.

use std::process::{Command, Stdio};

/// How to become root.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rights {
    /// This process runs as root.
    Root,
    /// `sudo` works without a password.
    Sudo,
    /// Neither.
    Ordinary,
}

impl Rights {
    /// Determines how to become root.
    pub fn find() -> Self {
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        if effective_user(&status) == Some(0) {
            return Rights::Root;
        }
        let quiet = |command: &mut Command| {
            let quiet = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
            quiet.status().is_ok_and(|status| status.success())
        };
        if quiet(Command::new("sudo").args(["-n", "true"])) { Rights::Sudo } else { Rights::Ordinary }
    }

    /// A command that runs `program` as root if possible, otherwise as the current user.
    pub fn command(self, program: &str) -> Command {
        match self {
            Rights::Root | Rights::Ordinary => Command::new(program),
            Rights::Sudo => {
                let mut command = Command::new("sudo");
                command.args(["-n", program]);
                command
            }
        }
    }
}

/// The effective user id: the second number of the `Uid:` line of /proc/self/status.
fn effective_user(status: &str) -> Option<u32> {
    let line = status.lines().find_map(|line| line.strip_prefix("Uid:"))?;
    line.split_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::effective_user;

    #[test]
    fn rights_follow_the_effective_user() {
        assert_eq!(effective_user("Name:\tx\nUid:\t1000\t0\t1000\t1000\nGid:\t1\t1\t1\t1\n"), Some(0));
        assert_eq!(effective_user("Uid:\t0\t1000\t0\t0\n"), Some(1000));
        assert_eq!(effective_user(""), None);
    }
}
