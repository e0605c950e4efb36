//! Two network namespaces of a trial, connected by a veth pair that can be cut.
//!
//! ```text
//!   manager's network                        agents' network: agents, programs and their server (on loopback)
//!     198.18.77.1  yfm ════ veth ════ yfa  198.18.77.2
//! ```
//!
//! A sleeping process keeps each namespace alive. The namespaces and devices end with these processes. The host's
//! network does not change.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use super::process::Process;
use super::{Result, TEST_TIMEOUT};

/// The manager's address in its network.
pub const MANAGER: &str = "198.18.77.1";
const AGENTS: &str = "198.18.77.2";

/// Both networks of a trial.
pub struct Networks {
    manager: Process,
    agents: Process,
}

impl Networks {
    /// Creates the networks. `folder` gets the output of the sleeping processes.
    pub fn make(folder: &Path) -> Result<Networks> {
        let networks = Networks { manager: start_namespace(folder)?, agents: start_namespace(folder)? };
        let agents = networks.agents.pid().to_string();
        let ip = |arguments: &str| {
            networks.at_manager(&[&["ip"][..], &arguments.split(' ').collect::<Vec<_>>()[..]].concat())
        };
        run_command(ip(&format!("link add yfm type veth peer name yfa netns {agents}")))?;
        for arguments in ["link set lo up", "link set yfm up", &format!("addr add {MANAGER}/24 dev yfm")] {
            run_command(ip(arguments))?;
        }
        let ip = |arguments: &str| {
            networks.at_agents(&[&["ip"][..], &arguments.split(' ').collect::<Vec<_>>()[..]].concat())
        };
        for arguments in ["link set lo up", "link set yfa up", &format!("addr add {AGENTS}/24 dev yfa")] {
            run_command(ip(arguments))?;
        }
        // Many short connections to few server ports need many client ports.
        let ports = "echo 10000 65000 > /proc/sys/net/ipv4/ip_local_port_range";
        run_command(networks.at_agents(&["sh", "-c", ports]))?;
        Ok(networks)
    }

    /// A command that runs in the manager's network.
    pub fn at_manager(&self, arguments: &[&str]) -> Command {
        inside(&self.manager, arguments)
    }

    /// A command that runs in the agents' network.
    pub fn at_agents(&self, arguments: &[&str]) -> Command {
        inside(&self.agents, arguments)
    }

    /// Cuts the link: packets between the networks are lost without an error.
    pub fn cut(&self) -> Result<()> {
        run_command(self.at_agents(&["ip", "link", "set", "yfa", "down"]))
    }

    /// Repairs the link.
    pub fn fix(&self) -> Result<()> {
        run_command(self.at_agents(&["ip", "link", "set", "yfa", "up"]))
    }

    /// A process in the manager's network, for `nsenter -t PID -n`.
    pub fn manager_pid(&self) -> u32 {
        self.manager.pid()
    }
}

fn inside(holder: &Process, arguments: &[&str]) -> Command {
    let mut command = Command::new("nsenter");
    command.args(["-t", &holder.pid().to_string(), "-n", "--"]).args(arguments);
    command
}

fn start_namespace(folder: &Path) -> Result<Process> {
    let mut command = Command::new("unshare");
    command.args(["--net", "sleep", "infinity"]);
    let process = Process::start(command, &folder.join("networks.log"))?;
    let network = |pid: &str| fs::read_link(format!("/proc/{pid}/ns/net"));
    let (own, deadline) = (network("self")?, Instant::now() + TEST_TIMEOUT);
    while network(&process.pid().to_string())? == own {
        process.still_runs()?;
        if Instant::now() > deadline {
            return Err("unshare --net has created no network namespace".into());
        }
        sleep(Duration::from_millis(2));
    }
    Ok(process)
}

/// Runs a command that must succeed.
pub fn run_command(mut command: Command) -> Result<()> {
    let output = command.stdin(Stdio::null()).output().map_err(|error| format!("{command:?}: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    Err(format!("{command:?}: {}\n{}", output.status, String::from_utf8_lossy(&output.stderr)).into())
}
