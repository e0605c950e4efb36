//! The compared emulators as programs: found on this machine, started over a path, ended with the measurement.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use schema::Document;
use sys::clock::Deadline;

use super::probe::{Answer, Probe, RATTAN_BASE, ServerName};
use super::stages::{LinkStage, mahimahi_shells, rattan_config, yamabiko_profile};
use experiment::ExperimentError;

/// Environment variable with the folder of mahimahi's programs.
pub const MAHIMAHI_VARIABLE: &str = "YAMABIKO_MAHIMAHI";
/// Environment variable with another build of yamabiko, to be measured in the place of this one.
pub const YAMABIKO_VARIABLE: &str = "YAMABIKO_PROGRAM";
/// Environment variable with rattan's program.
pub const RATTAN_VARIABLE: &str = "YAMABIKO_RATTAN";
/// Time between the starts of instances: mahimahi chooses free addresses and rattan names, both not safely at once.
pub const START_INTERVAL_S: f64 = 0.02;
/// What an emulator and a probe may take beyond the measurement itself.
const START_TIMEOUT: Duration = Duration::from_secs(20);
/// mahimahi's shells refuse to run as root; they run as this user.
const UNPRIVILEGED: &str = "65534";
/// A copy of sysctl, setuid root, in the measurement's own /run: switches forwarding on between mahimahi's shells.
const FORWARD: &str = "/run/forward";
const FORWARD_AND_EXEC: &str = "/run/forward -qw net.ipv4.ip_forward=1 && exec \"$@\"";
/// Enough for 4 Gbit/s over 50 ms.
const FAST_SEND_BUFFER: usize = 64 << 20;

/// A compared emulator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Emulator {
    /// No emulator: loopback in a namespace. What the probes and the kernel cost.
    Direct,
    /// `yamabiko net`.
    Yamabiko,
    /// mahimahi's shells.
    Mahimahi,
    /// `rattan run`.
    Rattan,
}

impl Emulator {
    /// All, in the order of rows.
    pub const ALL: [Emulator; 4] = [Emulator::Yamabiko, Emulator::Mahimahi, Emulator::Rattan, Emulator::Direct];

    /// Name in the rows.
    pub const fn name(self) -> &'static str {
        match self {
            Emulator::Direct => "loopback",
            Emulator::Yamabiko => "yamabiko",
            Emulator::Mahimahi => "mahimahi",
            Emulator::Rattan => "rattan",
        }
    }

    /// How a probe finds its server at the far end.
    pub fn server(self) -> ServerName {
        match self {
            Emulator::Direct => ServerName::Address([127, 0, 0, 1].into()),
            Emulator::Yamabiko => ServerName::Address([198, 18, 0, 1].into()),
            Emulator::Mahimahi => ServerName::Variable("MAHIMAHI_BASE".into()),
            Emulator::Rattan => ServerName::Variable(RATTAN_BASE.into()),
        }
    }
}

/// Why an emulator has no figure.
#[derive(Clone, Debug, PartialEq)]
pub enum NotRun {
    /// The emulator is not on this machine.
    NotFound,
    /// The emulator cannot be this path.
    Inexpressible(String),
    /// The emulator or a probe failed.
    Failed(String),
}

impl NotRun {
    /// A note for the row.
    pub fn note(&self) -> String {
        match self {
            NotRun::NotFound => "not run: not found".into(),
            NotRun::Inexpressible(why) => format!("not possible: {why}"),
            NotRun::Failed(why) => format!("failed: {why}"),
        }
    }
}

/// What a measurement gave: the answer of each probe that ended well, and yamabiko's document.
#[derive(Debug)]
pub struct Measured {
    /// Answers; with several instances there may be fewer than probes.
    pub answers: Vec<Answer>,
    /// The document of `yamabiko net`.
    pub document: Option<Document>,
}

/// A path, what is probed through it, and for how long.
#[derive(Clone, Debug)]
pub struct Measurement<'a> {
    /// The path of each instance.
    pub stages: &'a [LinkStage],
    /// Number of paths: clients of yamabiko, instances of the others.
    pub paths: u32,
    /// The probe of one instance; yamabiko has one for all its clients.
    pub probe: Probe,
    /// Approximate length of the probe.
    pub seconds: f64,
    /// Seed of yamabiko; mahimahi has none, and rattan's is fixed.
    pub seed: u64,
}

/// The emulators of this machine.
#[derive(Debug)]
pub struct Emulators {
    yamabiko: PathBuf,
    /// This program, as the probes.
    probe: PathBuf,
    mahimahi: Option<PathBuf>,
    rattan: Option<PathBuf>,
}

impl Emulators {
    /// Looks for the peers: the environment variables first, then PATH. `program` is this program.
    pub fn find(program: &Path) -> Self {
        let variable = |name: &str| std::env::var_os(name).map(PathBuf::from);
        let mahimahi = variable(MAHIMAHI_VARIABLE)
            .or_else(|| on_path("mm-delay").and_then(|file| file.parent().map(Path::to_owned)));
        Emulators {
            yamabiko: variable(YAMABIKO_VARIABLE).unwrap_or_else(|| program.to_owned()),
            probe: program.to_owned(),
            mahimahi: mahimahi.filter(|folder| folder.join("mm-delay").is_file()),
            rattan: variable(RATTAN_VARIABLE).or_else(|| on_path("rattan")).filter(|file| file.is_file()),
        }
    }

    /// Whether the emulator is on this machine.
    pub fn has(&self, emulator: Emulator) -> bool {
        match emulator {
            Emulator::Direct | Emulator::Yamabiko => true,
            Emulator::Mahimahi => self.mahimahi.is_some(),
            Emulator::Rattan => self.rattan.is_some(),
        }
    }

    /// Makes one measurement.
    ///
    /// # Errors
    /// A file could not be written, or a program not be started at all.
    pub fn measure(
        &self,
        emulator: Emulator,
        measurement: &Measurement<'_>,
    ) -> Result<Result<Measured, NotRun>, ExperimentError> {
        let folder = tempfile::tempdir().map_err(ExperimentError::file(std::env::temp_dir()))?;
        let at = folder.path();
        // mahimahi's shells read their traces as another user.
        fs::set_permissions(at, fs::Permissions::from_mode(0o755)).map_err(ExperimentError::file(at))?;
        let mut command = match self.command(emulator, measurement, at) {
            Err(not_run) => return Ok(Err(not_run)),
            Ok(Prepared { command, files }) => {
                for (name, content) in files {
                    let file = at.join(name);
                    fs::write(&file, content).map_err(ExperimentError::file(file))?;
                }
                command
            }
        };
        let starts = if emulator == Emulator::Yamabiko { 0.0 } else { f64::from(measurement.paths) * START_INTERVAL_S };
        let timeout = START_TIMEOUT + Duration::from_secs_f64(measurement.seconds + 2.0 * starts);
        let (stdout, stderr) = (at.join("stdout"), at.join("stderr"));
        let output = |file: &Path| fs::File::create(file).map_err(ExperimentError::file(file));
        // Errors become notes in documents, without colours.
        command.env("NO_COLOR", "1").stdin(Stdio::null()).stdout(output(&stdout)?).stderr(output(&stderr)?);
        let child = command.spawn().map_err(ExperimentError::file(command.get_program()))?;
        let ended = wait(child, timeout);
        let text = |file: &Path| fs::read(file).map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        let answers: Vec<Answer> =
            text(&stdout).unwrap_or_default().lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
        if answers.is_empty() {
            // rattan reports its errors on stdout.
            let said = text(&stdout).unwrap_or_default() + &text(&stderr).unwrap_or_default();
            let last = said.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("no answer");
            return Ok(Err(NotRun::Failed(if ended { last.to_owned() } else { format!("no end; {last}") })));
        }
        let document = fs::read(at.join("net.json")).ok().and_then(|bytes| serde_json::from_slice(&bytes).ok());
        Ok(Ok(Measured { answers, document }))
    }

    fn command(&self, emulator: Emulator, what: &Measurement<'_>, folder: &Path) -> Result<Prepared, NotRun> {
        let mut prepared = Prepared { command: Command::new(&self.yamabiko), files: Vec::new() };
        let probe = self.probe_words(&what.probe);
        // One fast flow needs more than the kernel's limit of some MB; many flows of this size would fill the memory.
        let serve = Probe::Serve { send_buffer: (what.paths == 1).then_some(FAST_SEND_BUFFER) };
        if emulator == Emulator::Yamabiko {
            prepared.files.push(("path.toml".into(), yamabiko_profile(what.stages)));
            let serve = self.probe_words(&serve).iter().map(|word| quoted(word)).collect::<Vec<_>>().join(" ");
            prepared
                .command
                .args(["net", "--watch", "none", "--clients", &what.paths.to_string()])
                .args(["--seed", &what.seed.to_string(), "--path"])
                .arg(folder.join("path.toml"))
                .args(["--server", &format!("exec {serve}"), "--json"])
                .arg(folder.join("net.json"))
                .arg("--")
                .args(probe);
            return Ok(prepared);
        }
        let client = match emulator {
            Emulator::Rattan => {
                let rattan = self.rattan.as_ref().ok_or(NotRun::NotFound)?;
                prepared.files.push(("rattan.toml".into(), rattan_config(what.stages)));
                let mut words = vec![rattan.display().to_string(), "run".into(), "--left-stdout".into(), "-c".into()];
                words.push(folder.join("rattan.toml").display().to_string());
                words.push("--left".into());
                words.extend(probe);
                words.push("--right".into());
                words.extend(self.probe_words(&serve));
                words
            }
            Emulator::Mahimahi => {
                let programs = self.mahimahi.as_ref().ok_or(NotRun::NotFound)?;
                let (shells, files) =
                    mahimahi_shells(what.stages, folder).map_err(|why| NotRun::Inexpressible(why.into()))?;
                prepared.files.extend(files);
                let mut words = ["setpriv", "--clear-groups"].map(str::to_owned).to_vec();
                words.extend([format!("--reuid={UNPRIVILEGED}"), format!("--regid={UNPRIVILEGED}")]);
                for (depth, mut shell) in shells.into_iter().enumerate() {
                    // A shell refuses to start where nothing is forwarded, as in the namespace of the shell around it.
                    if depth > 0 {
                        words.extend(["sh", "-c", FORWARD_AND_EXEC, "sh"].map(str::to_owned));
                    }
                    shell[0] = programs.join(&shell[0]).display().to_string();
                    words.extend(shell);
                }
                words.extend(probe);
                words
            }
            _ => probe,
        };
        // rattan starts a server for each instance.
        let server = (emulator != Emulator::Rattan).then(|| self.probe_words(&serve));
        prepared.command = Command::new("unshare");
        // A sandbox of its own for each measurement: killed, it takes every process of the emulator with it, and
        // nothing of its network or its files in /run stays.
        prepared
            .command
            .args(["--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c"])
            .arg(script(&client, server.as_deref(), what.paths));
        Ok(prepared)
    }

    /// This program as a probe.
    fn probe_words(&self, probe: &Probe) -> Vec<String> {
        let json = serde_json::to_string(probe).unwrap_or_default();
        vec![self.probe.display().to_string(), "reproduce".into(), "emulator-probe".into(), json]
    }
}

/// A command and the files that it reads.
struct Prepared {
    command: Command,
    files: Vec<(String, String)>,
}

/// The shell script that starts the server and the instances of a peer, and waits for them.
fn script(client: &[String], server: Option<&[String]>, instances: u32) -> String {
    let join = |words: &[String]| words.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(" ");
    let mut lines = vec![
        "mount -t tmpfs none /run".to_owned(),
        "ip link set lo up".to_owned(),
        "echo 1 > /proc/sys/net/ipv4/ip_forward".to_owned(),
        format!("cp \"$(command -v sysctl)\" {FORWARD} && chmod 4755 {FORWARD}"),
    ];
    if let Some(server) = server {
        lines.push(format!("{} &", join(server)));
    }
    if instances == 1 {
        lines.push(format!("exec {}", join(client)));
    } else {
        lines.push("all=".to_owned());
        lines.push(format!("for i in $(seq {instances}); do"));
        lines.push(format!("  {} & all=\"$all $!\"; sleep {START_INTERVAL_S}", join(client)));
        lines.push("done".to_owned());
        lines.push("wait $all".to_owned());
    }
    lines.join("\n")
}

/// A word of a shell command.
fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', "'\\''"))
}

/// Waits for the end; a child that takes longer than `timeout` is killed, and the result is false.
#[allow(clippy::disallowed_methods, reason = "waits for a foreign program")]
fn wait(mut child: Child, timeout: Duration) -> bool {
    let deadline = Deadline::after(timeout);
    while !deadline.has_passed() {
        match child.try_wait() {
            Ok(None) => std::thread::sleep(Duration::from_millis(20)),
            _ => return true,
        }
    }
    let _ = child.kill();
    let _ = child.wait();
    false
}

fn on_path(program: &str) -> Option<PathBuf> {
    std::env::split_paths(&std::env::var_os("PATH")?).map(|folder| folder.join(program)).find(|file| file.is_file())
}
