//! A workspace for one test: a folder, a run store, and the program under test started in it.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::sleep;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, Uid};
use serde_json::Value;
use tempfile::TempDir;

/// Held by the one test that may measure: tests of one binary would disturb each other's figures.
static MEASURING: Mutex<()> = Mutex::new(());

/// Timeout of a program that a test waits for: far more than any of them takes.
pub const TEST_TIMEOUT: Duration = Duration::from_secs(90);

/// The program under test.
pub fn yamabiko() -> PathBuf {
    std::env::var_os("YAMABIKO_BIN").map_or_else(|| env!("CARGO_BIN_EXE_yamabiko").into(), PathBuf::from)
}

/// A folder that any user may read, with pages to serve, a folder that servers may write, and a run store.
pub struct Workspace {
    folder: TempDir,
    _measuring: Option<MutexGuard<'static, ()>>,
}

impl Workspace {
    /// The workspace of a test that checks figures, as root. Waits until no other test of this binary measures.
    pub fn new() -> Workspace {
        assert!(Uid::effective().is_root(), "these tests make namespaces: run them as root");
        Workspace::create(Some(MEASURING.lock().unwrap_or_else(PoisonError::into_inner)))
    }

    /// The workspace of a test that runs as root concurrently with others: it checks no figures, and its programs
    /// mostly wait, so that the measuring test is not disturbed.
    pub fn concurrent_as_root() -> Workspace {
        assert!(Uid::effective().is_root(), "these tests make namespaces: run them as root");
        Workspace::create(None)
    }

    /// The workspace of a test that runs as any user concurrently with others: it checks no figures.
    pub fn concurrent() -> Workspace {
        Workspace::create(None)
    }

    fn create(measuring: Option<MutexGuard<'static, ()>>) -> Workspace {
        let folder = tempfile::Builder::new().prefix("yamabiko-real-").tempdir().unwrap();
        let workspace = Workspace { folder, _measuring: measuring };
        set_mode(workspace.path(), 0o755);
        for (name, mode) in [("www", 0o755), ("var", 0o777), ("runs", 0o777), ("out", 0o777)] {
            fs::create_dir(workspace.path().join(name)).unwrap();
            set_mode(&workspace.path().join(name), mode);
        }
        fs::write(workspace.www().join("10k.bin"), page(10 * 1024)).unwrap();
        fs::write(workspace.www().join("100k.bin"), page(100 * 1024)).unwrap();
        workspace
    }

    /// The workspace's folder.
    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// The folder of the pages `10k.bin` and `100k.bin`.
    pub fn www(&self) -> PathBuf {
        self.path().join("www")
    }

    /// The folder of the run store.
    pub fn runs(&self) -> PathBuf {
        self.path().join("runs")
    }

    /// The path of a file in a folder that any user may write.
    pub fn file(&self, name: &str) -> PathBuf {
        self.path().join("out").join(name)
    }

    /// The program with these arguments, not started yet.
    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(yamabiko());
        command.args(arguments);
        command
    }

    /// Starts the program.
    pub fn start(&self, arguments: &[&str]) -> Running {
        self.start_command(self.command(arguments))
    }

    /// Starts a command in the workspace's folder with its run store. stdout and stderr go to files. The process ends
    /// with the test.
    pub fn start_command(&self, mut command: Command) -> Running {
        let (out, err) = (tempfile::tempfile().unwrap(), tempfile::tempfile().unwrap());
        let command_line = format!("{command:?}");
        if command.get_current_dir().is_none() {
            command.current_dir(self.path());
        }
        let child = command
            .env("YAMABIKO_RUNS", self.runs())
            .env("NO_COLOR", "1")
            .stdout(out.try_clone().unwrap())
            .stderr(err.try_clone().unwrap())
            .spawn()
            .unwrap_or_else(|error| panic!("{command_line}: {error}"));
        Running { child, out, err, command_line, started: Instant::now() }
    }

    /// Starts a command like [`Workspace::start_command`], with a pipe as its standard input.
    pub fn start_with_input(&self, mut command: Command) -> (Running, ChildStdin) {
        command.stdin(Stdio::piped());
        let mut running = self.start_command(command);
        let input = running.child.stdin.take().expect("stdin is a pipe");
        (running, input)
    }

    /// Runs the program without input and waits for its end.
    pub fn run(&self, arguments: &[&str]) -> Output {
        let mut command = self.command(arguments);
        command.stdin(Stdio::null());
        self.start_command(command).finish()
    }

    /// Runs `bench`, `run` or `report` with `--json`. The exit status may be 0 or 3, as the machine's noise can make a
    /// correct result invalid. The test checks the document.
    pub fn run_json(&self, arguments: &[&str]) -> Value {
        self.run(arguments).assert_measured().json()
    }
}

/// A process that ends with the test.
pub struct Running {
    child: Child,
    out: File,
    err: File,
    command_line: String,
    started: Instant,
}

impl Running {
    /// The process number.
    pub fn pid(&self) -> i32 {
        self.child.id() as i32
    }

    /// Sends a signal to the process.
    pub fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.pid()), signal).unwrap();
    }

    /// The process's stderr so far.
    pub fn stderr(&self) -> String {
        text(&self.err)
    }

    /// The process's stdout so far.
    pub fn stdout(&self) -> String {
        text(&self.out)
    }

    /// Whether the process has ended.
    pub fn ended(&mut self) -> bool {
        self.child.try_wait().unwrap().is_some()
    }

    /// Waits for the end of the process, at most [`TEST_TIMEOUT`].
    pub fn finish(self) -> Output {
        self.finish_within(TEST_TIMEOUT)
    }

    /// Waits for the end of the process, at most `timeout`: for a program that makes many runs.
    pub fn finish_within(mut self, timeout: Duration) -> Output {
        let deadline = Instant::now() + timeout;
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            assert!(
                Instant::now() < deadline,
                "still running after {timeout:?}: {}\n{}",
                self.command_line,
                text(&self.err)
            );
            sleep(Duration::from_millis(5));
        };
        self.output(status)
    }

    fn output(&self, status: ExitStatus) -> Output {
        Output {
            code: status.code(),
            signal: status.signal(),
            stdout: text(&self.out),
            stderr: text(&self.err),
            command_line: self.command_line.clone(),
            elapsed: self.started.elapsed(),
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // An error means that the process has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// How a process ended.
pub struct Output {
    pub code: Option<i32>,
    pub signal: Option<i32>,
    pub stdout: String,
    pub stderr: String,
    pub command_line: String,
    pub elapsed: Duration,
}

impl Output {
    /// Asserts that the exit status is 0 or 3: the machine's noise can make a correct measurement invalid.
    pub fn assert_measured(&self) -> &Output {
        assert!(matches!(self.code, Some(0 | 3)), "{self}");
        self
    }

    /// Asserts that the exit status is 0.
    pub fn success(self) -> Output {
        assert_eq!(self.code, Some(0), "{self}");
        self
    }

    /// Parses stdout, which must be one JSON document and nothing else.
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{error}\n{self}"))
    }

    /// Asserts that the program printed nothing to stdout and one line to stderr, which contains all of `words`.
    pub fn refused(&self, code: i32, words: &[&str]) {
        assert_eq!(self.code, Some(code), "{self}");
        assert_eq!(self.stderr.trim_end().lines().count(), 1, "stderr has one line\n{self}");
        assert_eq!(self.stdout, "", "{self}");
        for word in words {
            assert!(self.stderr.contains(word), "stderr does not contain `{word}`\n{self}");
        }
    }
}

impl std::fmt::Display for Output {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{}\nstatus {:?}, signal {:?}\nstdout: {}\nstderr: {}",
            self.command_line, self.code, self.signal, self.stdout, self.stderr
        )
    }
}

/// Waits until `done` returns true; `what` describes the condition in the failure message.
pub fn wait_until(what: &str, mut done: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !done() {
        assert!(Instant::now() < deadline, "timeout waiting until {what}");
        sleep(Duration::from_millis(5));
    }
}

/// Calls `each` for every case, `at_a_time` cases concurrently: for cases that mostly wait.
pub fn concurrently<T: Send>(
    at_a_time: usize,
    cases: impl IntoIterator<Item = T, IntoIter: Send>,
    each: impl Fn(T) + Sync,
) {
    let cases = Mutex::new(cases.into_iter());
    let next = || cases.lock().unwrap_or_else(PoisonError::into_inner).next();
    std::thread::scope(|scope| {
        for _ in 0..at_a_time {
            scope.spawn(|| {
                while let Some(case) = next() {
                    each(case);
                }
            });
        }
    });
}

/// Sets a file's permissions.
pub fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

/// A path as text.
pub fn str_of(path: &(impl AsRef<OsStr> + ?Sized)) -> &str {
    path.as_ref().to_str().expect("temporary folders have plain names")
}

/// Pseudo-random bytes.
fn page(size: usize) -> Vec<u8> {
    let mut random = 0x2545_f491_4f6c_dd1d_u64;
    let mut next = || {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (random >> 56) as u8
    };
    (0..size).map(|_| next()).collect()
}

/// The content of a file that another process writes through the same open file description, whose position must not
/// change.
fn text(file: &File) -> String {
    use std::os::unix::fs::FileExt;
    let mut bytes = vec![0; file.metadata().unwrap().len() as usize];
    let read = file.read_at(&mut bytes, 0).unwrap();
    bytes.truncate(read);
    String::from_utf8_lossy(&bytes).into_owned()
}
