//! The compared emulators as programs: found on this machine, started over a path, ended with the measurement.

use std::ffi::OsString;
use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use schema::Document;
use sys::clock::Deadline;
use sys::sandbox::TiedProcess;
use sys::signal::Interrupts;

use super::probe::{Answer, Probe, RATTAN_BASE, ServerName};
use super::stages::{LinkStage, NamedFile, mahimahi_shells, rattan_config, yamabiko_profile};
use experiment::ExperimentError;
use experiment::programs::quoted;

/// Environment variable with the folder of mahimahi's programs.
pub const MAHIMAHI_VARIABLE: &str = "YAMABIKO_MAHIMAHI";
/// Environment variable with another build of yamabiko, to be measured instead of this one.
pub const YAMABIKO_VARIABLE: &str = "YAMABIKO_PROGRAM";
/// Environment variable with rattan's program.
pub const RATTAN_VARIABLE: &str = "YAMABIKO_RATTAN";
/// Time between the starts of instances: mahimahi chooses free addresses and rattan free names, neither safe against
/// an instance that starts concurrently.
pub const START_INTERVAL_S: f64 = 0.02;
/// What an emulator and a probe may take beyond the measurement itself.
const START_TIMEOUT: Duration = Duration::from_secs(20);
/// Interval in which the end of an emulator is checked.
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// Most bytes read of an emulator's output; an answer has less than 10 MB.
const OUTPUT_BYTES_MAX: u64 = 16 << 20;
/// Most characters of an emulator's error in a note.
const NOTE_CHARS_MAX: usize = 300;
/// Runs the arguments, with stdout and stderr in files of the folder `$0`.
const REDIRECTED: &str = "exec \"$@\" >\"$0/stdout\" 2>\"$0/stderr\"";
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

    /// Makes one measurement. An interrupt ends it; then there is no answer. Call it from a thread that exists as long
    /// as the measurement: the emulator ends with that thread.
    ///
    /// # Errors
    /// A file could not be written, or no process could be started.
    pub fn measure(
        &self,
        emulator: Emulator,
        measurement: &Measurement<'_>,
        interrupts: &Interrupts,
    ) -> Result<Result<Measured, NotRun>, ExperimentError> {
        let folder = tempfile::tempdir().map_err(ExperimentError::file(std::env::temp_dir()))?;
        let at = folder.path();
        super::open_to_all(at)?;
        let Prepared { words, files } = match self.command(emulator, measurement, at) {
            Err(not_run) => return Ok(Err(not_run)),
            Ok(prepared) => prepared,
        };
        for (name, content) in files {
            let file = at.join(name);
            fs::write(&file, content).map_err(ExperimentError::file(file))?;
        }
        let starts = if emulator == Emulator::Yamabiko { 0.0 } else { f64::from(measurement.paths) * START_INTERVAL_S };
        let timeout = START_TIMEOUT + Duration::from_secs_f64(measurement.seconds + 2.0 * starts);
        let mut argv = ["/bin/sh", "-c", REDIRECTED].map(OsString::from).to_vec();
        argv.push(at.as_os_str().to_owned());
        argv.extend(words.into_iter().map(OsString::from));
        // Errors become notes in documents, without colours.
        let environment = [(OsString::from("NO_COLOR"), OsString::from("1"))];
        let ended = wait(TiedProcess::start(&argv, &environment, None)?, timeout, interrupts);
        let (stdout, stderr) = (text(&at.join("stdout")), text(&at.join("stderr")));
        let answers: Vec<Answer> = stdout.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
        if answers.is_empty() {
            // rattan reports its errors on stdout.
            let mut lines = stdout.lines().chain(stderr.lines()).rev();
            let last = lines.find(|line| !line.trim().is_empty()).unwrap_or("no answer");
            let why: String = last.chars().take(NOTE_CHARS_MAX).collect();
            return Ok(Err(NotRun::Failed(if ended { why } else { format!("timeout; {why}") })));
        }
        let document = fs::read(at.join("net.json")).ok().and_then(|bytes| serde_json::from_slice(&bytes).ok());
        Ok(Ok(Measured { answers, document }))
    }

    fn command(&self, emulator: Emulator, what: &Measurement<'_>, folder: &Path) -> Result<Prepared, NotRun> {
        let file = |name: &str| folder.join(name).display().to_string();
        let mut files: Vec<NamedFile> = Vec::new();
        let probe = self.probe_words(&what.probe);
        // One fast flow needs more than the kernel's limit of some MB; many flows of this size would fill the memory.
        let serve = Probe::Serve { send_buffer: (what.paths == 1).then_some(FAST_SEND_BUFFER) };
        if emulator == Emulator::Yamabiko {
            files.push(("path.toml".into(), yamabiko_profile(what.stages)));
            let server = format!("exec {}", shell_command(&self.probe_words(&serve)));
            let mut words = vec![self.yamabiko.display().to_string()];
            words.extend(["net", "--watch", "none", "--clients", &what.paths.to_string()].map(str::to_owned));
            words.extend(["--seed", &what.seed.to_string(), "--path", &file("path.toml")].map(str::to_owned));
            words.extend(["--server", &server, "--json", &file("net.json"), "--"].map(str::to_owned));
            words.extend(probe);
            return Ok(Prepared { words, files });
        }
        let client = match emulator {
            Emulator::Rattan => {
                let rattan = self.rattan.as_ref().ok_or(NotRun::NotFound)?;
                files.push(("rattan.toml".into(), rattan_config(what.stages)));
                let mut words = vec![rattan.display().to_string(), "run".into(), "--left-stdout".into(), "-c".into()];
                words.push(file("rattan.toml"));
                words.push("--left".into());
                words.extend(probe);
                words.push("--right".into());
                words.extend(self.probe_words(&serve));
                words
            }
            Emulator::Mahimahi => {
                let programs = self.mahimahi.as_ref().ok_or(NotRun::NotFound)?;
                let (shells, traces) =
                    mahimahi_shells(what.stages, folder).map_err(|why| NotRun::Inexpressible(why.into()))?;
                files.extend(traces);
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
        // Namespaces for each measurement alone: they end with the shell that is their first process, and all
        // processes of the emulator, its network and its files in /run with them.
        let unshare = ["unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c"];
        let mut words = unshare.map(str::to_owned).to_vec();
        words.push(script(&client, server.as_deref(), what.paths));
        Ok(Prepared { words, files })
    }

    /// This program as a probe.
    fn probe_words(&self, probe: &Probe) -> Vec<String> {
        let json = serde_json::to_string(probe).unwrap_or_default();
        vec![self.probe.display().to_string(), "reproduce".into(), "emulator-probe".into(), json]
    }
}

/// A command and the files that it reads.
struct Prepared {
    words: Vec<String>,
    files: Vec<NamedFile>,
}

/// The shell script that starts the server and the instances of a peer, and waits for the instances. The shell stays
/// the first process of its PID namespace: in its place setpriv, which changes the user, would lose the signal with
/// which the kernel ends the namespace when unshare ends.
fn script(client: &[String], server: Option<&[String]>, instances: u32) -> String {
    let mut lines = vec![
        "mount -t tmpfs none /run".to_owned(),
        "ip link set lo up".to_owned(),
        "echo 1 > /proc/sys/net/ipv4/ip_forward".to_owned(),
        format!("cp \"$(command -v sysctl)\" {FORWARD} && chmod 4755 {FORWARD}"),
    ];
    if let Some(server) = server {
        lines.push(format!("{} &", shell_command(server)));
    }
    lines.push("all=".to_owned());
    lines.push(format!("for i in $(seq {instances}); do"));
    lines.push(format!("  {} & all=\"$all $!\"; sleep {START_INTERVAL_S}", shell_command(client)));
    lines.push("done".to_owned());
    lines.push("wait $all".to_owned());
    lines.join("\n")
}

/// Words as a shell command.
fn shell_command(words: &[String]) -> String {
    words.iter().map(|word| quoted(Path::new(word))).collect::<Vec<_>>().join(" ")
}

/// Waits for the end; after `timeout` or an interrupt the process group is killed, and the result is false.
fn wait(mut process: TiedProcess, timeout: Duration, interrupts: &Interrupts) -> bool {
    let deadline = Deadline::after(timeout);
    while !deadline.has_passed() && interrupts.count() == 0 {
        match process.try_exit() {
            Ok(None) => interrupts.wait(POLL_INTERVAL),
            _ => return true,
        }
    }
    false
}

/// The beginning of a file as text; empty if the file cannot be read.
fn text(file: &Path) -> String {
    let mut bytes = Vec::new();
    let _ = fs::File::open(file).and_then(|file| file.take(OUTPUT_BYTES_MAX).read_to_end(&mut bytes));
    String::from_utf8_lossy(&bytes).into_owned()
}

fn on_path(program: &str) -> Option<PathBuf> {
    std::env::split_paths(&std::env::var_os("PATH")?).map(|folder| folder.join(program)).find(|file| file.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn script_waits_for_the_instances_and_its_shell_is_not_replaced() {
        let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let text = script(&words("mm-delay 24 probe"), Some(words("server").as_slice()), 1);
        assert!(text.contains("\n'server' &\n"), "{text}");
        assert!(text.contains("$(seq 1); do\n  'mm-delay' '24' 'probe' & "), "{text}");
        assert!(text.ends_with("\nwait $all") && !text.contains("exec "), "{text}");
        assert!(!script(&words("rattan run"), None, 8).contains("server"));
    }

    #[test]
    fn output_of_an_emulator_is_read_only_up_to_a_limit() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("stdout");
        fs::File::create(&file).unwrap().set_len(OUTPUT_BYTES_MAX + 1).unwrap();
        assert_eq!(text(&file).len() as u64, OUTPUT_BYTES_MAX);
        assert_eq!(text(&folder.path().join("missing")), "");
    }
}
