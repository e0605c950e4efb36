//! The programs of a trial: how they are compiled, and their command lines.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use super::networks::run_command;
use super::process::Process;
use super::{Result, TEST_TIMEOUT};

/// Ports of the talkers' server, and a port without a listener.
const PORTS: [&str; 4] = ["7001", "7002", "7003", "7004"];
const CLOSED: &str = "7009";
/// Names of the two programs of each machine.
pub const PROGRAMS: [&str; 2] = ["till", "stock"];

/// The compiled programs of a trial.
pub struct Programs {
    talkers: [PathBuf; 2],
    wall: PathBuf,
}

impl Programs {
    /// Compiles the programs into `folder`: `sources` contains `talker.c` and `wall.c`.
    pub fn make(sources: &Path, folder: &Path) -> Result<Programs> {
        let cc = |words: &[&str], from: &str, to: &str| {
            let mut command = Command::new("cc");
            command.args(["-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror"]).args(words);
            command.arg("-o").arg(folder.join(to)).arg(sources.join(from));
            run_command(command).map(|()| folder.join(to))
        };
        let first = cc(&[], "talker.c", PROGRAMS[0])?;
        let second = folder.join(PROGRAMS[1]);
        fs::copy(&first, &second)?;
        Ok(Programs { talkers: [first, second], wall: cc(&["-shared", "-fPIC"], "wall.c", "wall.so")? })
    }

    /// Command of the talkers' server: at the fixed ports in a network of its own, or with `anywhere` at free ports,
    /// which the server prints.
    pub fn server(&self, anywhere: bool) -> Vec<OsString> {
        let ports = if anywhere { ["0"; 4] } else { PORTS };
        let words = [self.talkers[0].as_os_str(), "serve".as_ref()];
        words.into_iter().chain(ports.iter().map(AsRef::as_ref)).map(Into::into).collect()
    }

    /// Command of a talker that makes `exchanges` requests, `rate` per second, to the fixed ports in a network of its
    /// own.
    pub fn talker(&self, which: usize, account: &Path, exchanges: u64, rate: u64) -> Vec<OsString> {
        self.talker_to(which, account, [exchanges, rate], CLOSED, &PORTS)
    }

    /// Command of a talker that makes `exchanges` requests, `rate` per second, to ports that the server has printed. No
    /// connection is refused.
    pub fn talker_at(
        &self,
        which: usize,
        account: &Path,
        exchanges: u64,
        rate: u64,
        ports: &[String],
    ) -> Vec<OsString> {
        self.talker_to(which, account, [exchanges, rate], "0", ports)
    }

    fn talker_to(
        &self,
        which: usize,
        account: &Path,
        counts: [u64; 2],
        closed: &str,
        ports: &[impl AsRef<std::ffi::OsStr>],
    ) -> Vec<OsString> {
        let [exchanges, rate] = counts.map(|count| count.to_string());
        let words = [self.talkers[which].as_os_str(), "client".as_ref(), account.as_os_str()];
        let words = words.into_iter().chain([exchanges.as_ref(), rate.as_ref(), closed.as_ref()]);
        words.chain(ports.iter().map(AsRef::as_ref)).map(Into::into).collect()
    }

    /// Environment variables of a process whose wall clock is wrong by `by_s` seconds.
    pub fn shifted(&self, by_s: i64) -> [(&'static str, OsString); 2] {
        [("LD_PRELOAD", self.wall.clone().into()), ("WALL_SHIFT_S", by_s.to_string().into())]
    }
}

/// Runs `yamabiko` with these arguments and waits for its end; returns its stdout.
pub fn run_yamabiko(yamabiko: &Path, words: &[&str]) -> Result<String> {
    let output = Command::new(yamabiko).args(words).stdin(Stdio::null()).output()?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    Err(format!("yamabiko {}: {}\n{}", words.join(" "), output.status, String::from_utf8_lossy(&output.stderr)).into())
}

/// Creates a token and writes it to `file`, which only its owner can read.
pub fn token(yamabiko: &Path, data: &Path, name: &str, role: &str, file: &Path) -> Result<()> {
    let (data, file) = (path(data), path(file));
    run_yamabiko(yamabiko, &["tap", "manager", "token", "add", name, "--role", role, "--data", data, "--output", file])
        .map(drop)
}

/// Arguments of `yamabiko` that start a manager. Port 0 is the kernel's choice.
pub fn manager_arguments<'a>(listen: &'a str, host: &'a str, data: &'a Path) -> Vec<&'a str> {
    vec!["tap", "manager", "--listen", listen, "--host", host, "--data", path(data), "--page", "127.0.0.1:0"]
}

/// The addresses that a manager prints once it listens.
#[derive(Clone, Debug)]
pub struct Listening {
    /// ADDRESS:PORT for agents.
    pub agents: String,
    /// URL of the page, with its secret.
    pub page: String,
}

/// Parses the addresses from the manager's output. `None` if they are not printed yet.
pub fn listening(output: &str) -> Option<Listening> {
    // Only complete lines: the last one may be half written.
    let complete = &output[..=output.rfind('\n')?];
    let url = |of: &str| Some(complete.lines().find_map(|line| line.strip_prefix(of))?.trim().to_owned());
    let agents = url("agents ")?;
    Some(Listening { agents: agents.strip_prefix("https://")?.trim_end_matches('/').to_owned(), page: url("page ")? })
}

/// The certificate that agents need to trust a manager with a self-made certificate.
pub fn certificate(data: &Path) -> PathBuf {
    data.join("ca.pem")
}

/// An agent and its files.
pub struct Agent {
    /// The agent's name.
    pub name: String,
    /// Error of the agent's wall clock in seconds.
    pub shift_s: i64,
    /// Folder of the agent's data.
    pub data: PathBuf,
    /// Folder of the library and the ring that programs use.
    pub rings: PathBuf,
    /// File of the agent's token.
    pub token: PathBuf,
    /// File of the agent's output.
    pub log: PathBuf,
    /// The stream of NATS that it publishes to, instead of a manager.
    pub stream: Option<String>,
}

impl Agent {
    /// Arguments of `yamabiko` that start the agent.
    pub fn arguments<'a>(&'a self, manager: &'a str, authority: &'a Path) -> Vec<&'a str> {
        let mut words = match &self.stream {
            Some(stream) => vec!["tap", "agent", "--to", stream, "--name", &self.name],
            None => vec!["tap", "agent", "--manager", manager, "--token", path(&self.token), "--ca", path(authority)],
        };
        // Many agents share this machine, and each has few threads that use sockets.
        words.extend(["--data", path(&self.data), "--folder", path(&self.rings), "--threads", "16"]);
        words
    }

    /// The library that programs preload.
    pub fn library(&self) -> PathBuf {
        self.rings.join("libyamabiko_tap.so")
    }

    /// Environment variables of a program that the agent observes.
    pub fn environment(&self) -> [(&'static str, OsString); 2] {
        [("LD_PRELOAD", self.library().into()), ("YAMABIKO_TAP", self.rings.clone().into())]
    }

    /// Waits until programs can be started under the agent.
    pub fn ready(&self, process: &Process) -> Result<()> {
        wait(&format!("agent {} has created its ring", self.name), || {
            process.still_runs()?;
            Ok(self.library().exists() && self.rings.join("ring").exists())
        })
    }
}

/// Waits until `done` returns true; `what` describes the condition in the failure message.
pub fn wait(what: &str, mut done: impl FnMut() -> Result<bool>) -> Result<()> {
    let deadline = Instant::now() + TEST_TIMEOUT;
    while !done()? {
        if Instant::now() > deadline {
            return Err(format!("timeout of {TEST_TIMEOUT:?} waiting until {what}").into());
        }
        sleep(Duration::from_millis(20));
    }
    Ok(())
}

/// A path as text: temporary folders have ASCII names.
pub fn path(path: &Path) -> &str {
    path.to_str().unwrap_or_default()
}
