//! Two networks of a trial's own, a pair of devices between them, and the way to cut it.
//!
//! ```text
//!   manager's network                        agents' network: agents, programs, the server that they ask (on loopback)
//!     198.18.77.1  yfm ════ veth ════ yfa  198.18.77.2
//! ```
//!
//! Each network is held by a process that sleeps; both and the devices are gone when the processes are. Nothing of the host changes.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use super::process::Process;
use super::{Result, TEST_TIMEOUT};

/// Where the manager listens, in its network.
pub const MANAGER: &str = "198.18.77.1";
const AGENTS: &str = "198.18.77.2";

/// Both networks.
pub struct Networks {
    manager: Process,
    agents: Process,
}

impl Networks {
    /// Makes them. `folder` is for what their holders say.
    pub fn make(folder: &Path) -> Result<Networks> {
        let networks = Networks { manager: hold(folder)?, agents: hold(folder)? };
        let agents = networks.agents.pid().to_string();
        let ip = |words: &str| networks.at_manager(&[&["ip"][..], &words.split(' ').collect::<Vec<_>>()[..]].concat());
        done(ip(&format!("link add yfm type veth peer name yfa netns {agents}")))?;
        for words in ["link set lo up", "link set yfm up", &format!("addr add {MANAGER}/24 dev yfm")] {
            done(ip(words))?;
        }
        let ip = |words: &str| networks.at_agents(&[&["ip"][..], &words.split(' ').collect::<Vec<_>>()[..]].concat());
        for words in ["link set lo up", "link set yfa up", &format!("addr add {AGENTS}/24 dev yfa")] {
            done(ip(words))?;
        }
        // Many short connections to few ports.
        let ports = "echo 10000 65000 > /proc/sys/net/ipv4/ip_local_port_range";
        done(networks.at_agents(&["sh", "-c", ports]))?;
        Ok(networks)
    }

    /// A command in the manager's network.
    pub fn at_manager(&self, words: &[&str]) -> Command {
        inside(&self.manager, words)
    }

    /// A command in the agents' network.
    pub fn at_agents(&self, words: &[&str]) -> Command {
        inside(&self.agents, words)
    }

    /// Packets between them are lost from now on, without notice.
    pub fn cut(&self) -> Result<()> {
        done(self.at_agents(&["ip", "link", "set", "yfa", "down"]))
    }

    /// As before.
    pub fn fix(&self) -> Result<()> {
        done(self.at_agents(&["ip", "link", "set", "yfa", "up"]))
    }

    /// The process whose network is the manager's: for `nsenter -t PID -n`.
    pub fn manager_pid(&self) -> u32 {
        self.manager.pid()
    }
}

fn inside(holder: &Process, words: &[&str]) -> Command {
    let mut command = Command::new("nsenter");
    command.args(["-t", &holder.pid().to_string(), "-n", "--"]).args(words);
    command
}

fn hold(folder: &Path) -> Result<Process> {
    let mut command = Command::new("unshare");
    command.args(["--net", "sleep", "infinity"]);
    let process = Process::start(command, &folder.join("networks.log"))?;
    let network = |pid: &str| fs::read_link(format!("/proc/{pid}/ns/net"));
    let (own, deadline) = (network("self")?, Instant::now() + TEST_TIMEOUT);
    while network(&process.pid().to_string())? == own {
        process.still_runs()?;
        if Instant::now() > deadline {
            return Err("unshare --net makes no network".into());
        }
        sleep(Duration::from_millis(2));
    }
    Ok(process)
}

/// Runs a command that must succeed.
pub fn done(mut command: Command) -> Result<()> {
    let output = command.stdin(Stdio::null()).output().map_err(|error| format!("{command:?}: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    Err(format!("{command:?}: {}\n{}", output.status, String::from_utf8_lossy(&output.stderr)).into())
}
