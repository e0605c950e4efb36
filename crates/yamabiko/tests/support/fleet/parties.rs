//! How the programs of a trial are made and started: the one place that knows their command lines.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use super::networks::done;
use super::process::Process;
use super::{Result, TEST_TIMEOUT};

/// The address of the talkers' server, and an unused port.
const PORTS: [&str; 4] = ["7001", "7002", "7003", "7004"];
const CLOSED: &str = "7009";
/// What the two programs of a machine are called.
pub const PROGRAMS: [&str; 2] = ["till", "stock"];

/// The programs of a trial that are made for it, in a folder.
pub struct Programs {
    talkers: [PathBuf; 2],
    wall: PathBuf,
}

impl Programs {
    /// Compiles them: `sources` has `talker.c` and `wall.c`.
    pub fn make(sources: &Path, folder: &Path) -> Result<Programs> {
        let cc = |words: &[&str], from: &str, to: &str| {
            let mut command = Command::new("cc");
            command.args(["-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror"]).args(words);
            command.arg("-o").arg(folder.join(to)).arg(sources.join(from));
            done(command).map(|()| folder.join(to))
        };
        let first = cc(&[], "talker.c", PROGRAMS[0])?;
        let second = folder.join(PROGRAMS[1]);
        fs::copy(&first, &second)?;
        Ok(Programs { talkers: [first, second], wall: cc(&["-shared", "-fPIC"], "wall.c", "wall.so")? })
    }

    /// What the talkers ask: at ports of a network of its own, or at any that are free, which it then names.
    pub fn server(&self, anywhere: bool) -> Vec<OsString> {
        let ports = if anywhere { ["0"; 4] } else { PORTS };
        let words = [self.talkers[0].as_os_str(), "serve".as_ref()];
        words.into_iter().chain(ports.iter().map(AsRef::as_ref)).map(Into::into).collect()
    }

    /// A talker that asks so many times, so many a second, in a network of its own.
    pub fn talker(&self, which: usize, account: &Path, exchanges: u64, rate: u64) -> Vec<OsString> {
        self.talker_to(which, account, [exchanges, rate], CLOSED, &PORTS)
    }

    /// The same at ports that the server named; nothing is refused.
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
        let words = [self.talkers[which].as_os_str(), "ask".as_ref(), account.as_os_str()];
        let words = words.into_iter().chain([exchanges.as_ref(), rate.as_ref(), closed.as_ref()]);
        words.chain(ports.iter().map(AsRef::as_ref)).map(Into::into).collect()
    }

    /// Variables of a process whose wall clock is to be so wrong.
    pub fn shifted(&self, by_s: i64) -> [(&'static str, OsString); 2] {
        [("LD_PRELOAD", self.wall.clone().into()), ("WALL_SHIFT_S", by_s.to_string().into())]
    }
}

/// Runs `yamabiko` to its end with these words; what it printed.
pub fn ask(yamabiko: &Path, words: &[&str]) -> Result<String> {
    let output = Command::new(yamabiko).args(words).stdin(Stdio::null()).output()?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    Err(format!("yamabiko {}: {}\n{}", words.join(" "), output.status, String::from_utf8_lossy(&output.stderr)).into())
}

/// Makes a token; its file, which only its owner reads.
pub fn token(yamabiko: &Path, data: &Path, name: &str, role: &str, file: &Path) -> Result<()> {
    let (data, file) = (path(data), path(file));
    ask(yamabiko, &["tap", "manager", "token", "add", name, "--role", role, "--data", data, "--output", file]).map(drop)
}

/// The words behind `yamabiko` that start a manager. Port 0 is the kernel's choice.
pub fn manager_words<'a>(listen: &'a str, host: &'a str, data: &'a Path) -> Vec<&'a str> {
    vec!["tap", "manager", "--listen", listen, "--host", host, "--data", path(data), "--page", "127.0.0.1:0"]
}

/// What a manager prints once it listens.
#[derive(Clone, Debug)]
pub struct Listening {
    /// ADDRESS:PORT of the agents' door.
    pub agents: String,
    /// The page, with its secret.
    pub page: String,
}

/// Parses that from its output since the start; `None`: not yet.
pub fn listening(said: &str) -> Option<Listening> {
    // Nothing that is still being written.
    let whole = &said[..=said.rfind('\n')?];
    let url = |of: &str| Some(whole.lines().find_map(|line| line.strip_prefix(of))?.trim().to_owned());
    let agents = url("agents ")?;
    Some(Listening { agents: agents.strip_prefix("https://")?.trim_end_matches('/').to_owned(), page: url("page ")? })
}

/// The certificate that agents need to trust a manager with a self-made certificate.
pub fn certificate(data: &Path) -> PathBuf {
    data.join("ca.pem")
}

/// An agent's files.
pub struct Agent {
    /// Its name.
    pub name: String,
    /// By how much its machine's wall clock is wrong.
    pub shift_s: i64,
    /// Of its own.
    pub data: PathBuf,
    /// Library and ring, for programs.
    pub rings: PathBuf,
    /// Its token.
    pub token: PathBuf,
    /// Its words.
    pub log: PathBuf,
}

impl Agent {
    /// The words behind `yamabiko` that start it.
    pub fn words<'a>(&'a self, manager: &'a str, authority: &'a Path) -> Vec<&'a str> {
        let mut words =
            vec!["tap", "agent", "--manager", manager, "--token", path(&self.token), "--ca", path(authority)];
        // Many share this machine, and few threads use sockets on each.
        words.extend(["--data", path(&self.data), "--folder", path(&self.rings), "--threads", "16"]);
        words
    }

    /// The library that a program is to load.
    pub fn library(&self) -> PathBuf {
        self.rings.join("libyamabiko_tap.so")
    }

    /// Variables of a program that is to be seen.
    pub fn environment(&self) -> [(&'static str, OsString); 2] {
        [("LD_PRELOAD", self.library().into()), ("YAMABIKO_TAP", self.rings.clone().into())]
    }

    /// Waits until programs can be started under it.
    pub fn ready(&self, process: &Process) -> Result<()> {
        wait(&format!("{} has its ring", self.name), || {
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
            return Err(format!("waited in vain for {TEST_TIMEOUT:?}: {what}").into());
        }
        sleep(Duration::from_millis(20));
    }
    Ok(())
}

/// A path of a trial: temporary folders have plain names.
pub fn path(path: &Path) -> &str {
    path.to_str().unwrap_or_default()
}
