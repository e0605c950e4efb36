//! One host, reached by the system's ssh.

use std::fs::File;
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context as _, Result, bail, ensure};
use plan::{ShardOf, StartAt};
use serde_json::Value;

use crate::command_line::quote;
use crate::terminal::print_message;

/// Options for every connection: no question at a terminal, and a dead host is noticed after 10 s.
const OPTIONS: [&str; 6] =
    ["-oBatchMode=yes", "-oConnectTimeout=10", "-oServerAliveInterval=2", "-oServerAliveCountMax=5", "-x", "-T"];
/// Prefix of the line by which a host reports the process of its shard.
const PROCESS: &str = "yamabiko-process ";
/// Most bytes of a host's document.
const DOCUMENT_MAX: u64 = 64 << 20;
/// Longest line of a host's stderr that is passed on.
const LINE_MAX: u64 = 4 << 10;
/// Largest archive of a run.
const ARCHIVE_MAX: u64 = 64 << 30;

/// A host.
pub struct Remote {
    ssh: String,
    host: String,
    /// The process of the shard while it runs; 0 before and after.
    process: AtomicU32,
}

/// How a shard ended.
#[derive(Debug, Default)]
pub struct Ended {
    /// Its run, if it has a result.
    pub run: Option<String>,
    /// Why it has none.
    pub lost: Option<String>,
}

impl Remote {
    /// A host that is reached by this command.
    pub fn new(ssh: &str, host: &str) -> Self {
        Remote { ssh: ssh.to_owned(), host: host.to_owned(), process: AtomicU32::new(0) }
    }

    /// The host as typed.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// Whether the host can be reached and has this version of the program.
    ///
    /// # Errors
    /// It cannot be reached, or has another version or none.
    pub fn check_version(&self) -> Result<()> {
        let output = self.output("yamabiko --version")?;
        let own = format!("yamabiko {}", env!("CARGO_PKG_VERSION"));
        let version = String::from_utf8_lossy(&output.stdout);
        ensure!(
            version.trim() == own,
            "{} has {}, this machine {own}: expected the same version",
            self.host,
            units::printable(version.trim())
        );
        Ok(())
    }

    /// Makes a shard, and waits for its end. Its messages are passed on, with the host's name.
    pub fn run(&self, plan: &str, shard: ShardOf, at: StartAt) -> Ended {
        match self.document(plan, shard, at) {
            Ok(document) => match document["run"]["id"].as_str() {
                Some(run) => Ended { run: Some(run.to_owned()), lost: None },
                None => Ended { run: None, lost: Some("its result has no run".into()) },
            },
            Err(error) => Ended { run: None, lost: Some(format!("{error:#}")) },
        }
    }

    fn document(&self, plan: &str, shard: ShardOf, at: StartAt) -> Result<Value> {
        let command =
            format!("echo {PROCESS}$$ >&2; exec yamabiko run /dev/stdin --shard {shard} --start-at {at} --json");
        let mut child = self.spawn(&command, Stdio::piped(), Stdio::piped())?;
        let (input, output, errors) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let (mut input, output) = (input.context("stdin")?, output.context("stdout")?);
        let errors = errors.context("stderr")?;
        let mut document = Vec::new();
        let read = std::thread::scope(|scope| {
            scope.spawn(|| self.pass_on(errors));
            // A host that ends early closes its end: the reason is on its stderr.
            let _ = input.write_all(plan.as_bytes());
            drop(input);
            output.take(DOCUMENT_MAX).read_to_end(&mut document)
        });
        let status = child.wait().context("wait for ssh");
        self.process.store(0, Ordering::SeqCst);
        read.context("read from ssh")?;
        let status = status?;
        // 3 and 4 are results that are invalid or miss their objective.
        if !matches!(status.code(), Some(0 | 3 | 4)) {
            bail!("ssh or the shard ended with {status}");
        }
        serde_json::from_slice(&document).context("its result is not a document")
    }

    /// Prints a host's messages, and notes the process of its shard.
    fn pass_on(&self, errors: impl io::Read) {
        let mut errors = BufReader::new(errors);
        let mut line = Vec::new();
        while errors.by_ref().take(LINE_MAX).read_until(b'\n', &mut line).is_ok_and(|count| count > 0) {
            let text = String::from_utf8_lossy(&line);
            match text.trim_end().strip_prefix(PROCESS).and_then(|process| process.parse().ok()) {
                Some(process) => self.process.store(process, Ordering::SeqCst),
                None => print_message(format_args!("{}: {}", self.host, text.trim_end())),
            }
            line.clear();
        }
    }

    /// Ends the load of a shard that runs, as Ctrl-C would.
    pub fn interrupt(&self) {
        let process = self.process.load(Ordering::SeqCst);
        if process == 0 {
            return;
        }
        // The run's end shows whether it arrived; nothing waits for it here.
        if let Ok(mut child) = self.spawn(&format!("kill -INT {process}"), Stdio::null(), Stdio::null()) {
            std::thread::spawn(move || child.wait());
        }
    }

    /// Fetches a stored run as an archive.
    ///
    /// # Errors
    /// The host cannot be reached, or does not have the run; a full disk.
    pub fn fetch(&self, run: &str, archive: &Path) -> Result<()> {
        let command = format!("yamabiko runs export {} -", quote(run));
        let mut child = self.spawn(&command, Stdio::null(), Stdio::piped())?;
        let output = child.stdout.take().context("stdout")?;
        let mut file = File::create(archive).with_context(|| format!("create {}", archive.display()))?;
        let errors = child.stderr.take();
        let copied = std::thread::scope(|scope| {
            // Read, so that the host does not wait; only what fails is worth a message.
            scope.spawn(|| errors.map(|mut errors| io::copy(&mut errors, &mut io::sink())));
            io::copy(&mut output.take(ARCHIVE_MAX), &mut file)
        });
        let status = child.wait().context("wait for ssh")?;
        copied.context("read from ssh")?;
        ensure!(status.success(), "ssh or the export ended with {status}");
        Ok(file.sync_all()?)
    }

    /// The output of a short command.
    fn output(&self, command: &str) -> Result<Output> {
        let child = self.spawn(command, Stdio::null(), Stdio::piped())?;
        let output = child.wait_with_output().context("wait for ssh")?;
        ensure!(
            output.status.success(),
            "{}: `{command}` ended with {}: {}",
            self.host,
            output.status,
            units::printable(String::from_utf8_lossy(&output.stderr).trim())
        );
        Ok(output)
    }

    fn spawn(&self, command: &str, input: Stdio, output: Stdio) -> Result<Child> {
        use std::os::unix::process::CommandExt as _;
        // The command of --ssh is one of the user's shell, like git's.
        let mut shell = Command::new("/bin/sh");
        shell.args(["-c", &format!("exec {} \"$@\"", self.ssh), "ssh"]).args(OPTIONS).args(["--", &self.host, command]);
        // Ctrl-C at the terminal must not cut the connections: the hosts are told.
        shell.process_group(0).stdin(input).stdout(output).stderr(Stdio::piped());
        shell.spawn().context("start ssh")
    }
}
