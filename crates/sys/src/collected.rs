//! Runs a program to its end and collects its output and resource usage; the program is killed when this process ends.
//!
//! For external measurement programs (`fio`) that end by themselves. Servers and programs that start children need a
//! [sandbox](crate::sandbox): here only the program itself is killed, with all its threads, not its children.

use std::ffi::OsString;
use std::io::Read;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, getppid};

use crate::error::{Error, Result};
use crate::sandbox::Exit;
use crate::signal::Interrupts;

/// Maximum stored output per stream; the rest is read and discarded.
const OUTPUT_MAX: u64 = 64 << 20;
/// Polling interval for the program's end and for an interrupt.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Result of a program.
#[derive(Debug)]
pub struct Collected {
    /// Exit status.
    pub exit: Exit,
    /// The reason if it was killed.
    pub killed: Option<Killed>,
    /// Output on descriptor 1, at most 64 MiB.
    pub stdout: Vec<u8>,
    /// Output on descriptor 2, at most 64 MiB.
    pub stderr: Vec<u8>,
    /// Resource usage by the kernel: getrusage(2).
    pub used: Used,
}

/// Why this process killed the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Killed {
    /// The program exceeded its time limit.
    Late,
    /// The user interrupted.
    Interrupted,
}

/// Resource usage of a process that ended, including its threads and the children it waited for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Used {
    /// CPU time in user mode.
    pub user: Duration,
    /// CPU time in the kernel.
    pub system: Duration,
    /// Bytes read from storage for it, including read-ahead, without page cache hits.
    pub storage_read_bytes: u64,
    /// Bytes written to storage: counted when a page of a file becomes dirty, or is written with direct I/O.
    pub storage_written_bytes: u64,
}

/// Runs `argv` to its end, for at most `limit`, or until the user interrupts. Its standard input is /dev/null. Each
/// descriptor in `inherited` is open in it under the same number. It is killed when the calling thread ends.
///
/// # Errors
/// Unknown program; process limit reached.
pub fn collect(
    argv: &[OsString],
    inherited: &[BorrowedFd<'_>],
    limit: Duration,
    interrupts: Option<&Interrupts>,
) -> Result<Collected> {
    let (program, arguments) = argv
        .split_first()
        .ok_or_else(|| Error::Unexpected { call: "start a program".to_owned(), answer: "no program".to_owned() })?;
    let parent = nix::unistd::getpid();
    let numbers: Vec<RawFd> = inherited.iter().map(AsRawFd::as_raw_fd).collect();
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let bind = move || {
        set_pdeathsig(Signal::SIGKILL)?;
        // The parent may have died before that.
        if getppid() != parent {
            return Err(Errno::ESRCH.into());
        }
        for &number in &numbers {
            // SAFETY: a descriptor of the caller that stays open during the call; only its flag in the child changes.
            Errno::result(unsafe { libc::fcntl(number, libc::F_SETFD, 0) })?;
        }
        Ok(())
    };
    // SAFETY: between fork and exec it makes system calls only, and reads a list made before.
    unsafe { command.pre_exec(bind) };
    let failed = |source| Error::Exec { program: program.to_string_lossy().into_owned(), source };
    let mut running = Running::new(command.spawn().map_err(failed)?);
    let stdout = gather(running.child.stdout.take());
    let stderr = gather(running.child.stderr.take());
    let (killed, ended) = running.wait(Instant::now() + limit, interrupts)?;
    let (exit, used) = ended;
    let whole = |reader: JoinHandle<Vec<u8>>| reader.join().unwrap_or_default();
    Ok(Collected { exit, killed, stdout: whole(stdout), stderr: whole(stderr), used })
}

/// Reads a stream to its end in a separate thread, so that the program never waits for the reader.
fn gather(stream: Option<impl Read + Send + 'static>) -> JoinHandle<Vec<u8>> {
    std::thread::spawn(move || {
        let mut output = Vec::new();
        if let Some(mut stream) = stream {
            let _ = stream.by_ref().take(OUTPUT_MAX).read_to_end(&mut output);
            let _ = std::io::copy(&mut stream, &mut std::io::sink());
        }
        output
    })
}

/// A child that is killed if it is not waited for.
struct Running {
    child: Child,
    reaped: bool,
}

impl Running {
    fn new(child: Child) -> Self {
        Running { child, reaped: false }
    }

    fn pid(&self) -> Pid {
        Pid::from_raw(self.child.id().cast_signed())
    }

    fn wait(&mut self, deadline: Instant, interrupts: Option<&Interrupts>) -> Result<(Option<Killed>, (Exit, Used))> {
        loop {
            if let Some(ended) = self.ended(libc::WNOHANG)? {
                return Ok((None, ended));
            }
            let why = match interrupts {
                Some(interrupts) if interrupts.count() > 0 => Some(Killed::Interrupted),
                _ if Instant::now() >= deadline => Some(Killed::Late),
                _ => None,
            };
            if why.is_some() {
                let _ = kill(self.pid(), Signal::SIGKILL);
                loop {
                    if let Some(ended) = self.ended(0)? {
                        return Ok((why, ended));
                    }
                }
            }
            std::thread::sleep(POLL_INTERVAL);
        }
    }

    /// Exit status and usage, if it ended; with flags 0 waits for the end.
    fn ended(&mut self, flags: i32) -> Result<Option<(Exit, Used)>> {
        let mut status = 0;
        // SAFETY: all zero is a valid rusage.
        let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
        // SAFETY: a child of this process that was not waited for yet, and two result variables that outlive the call.
        let answer = unsafe { libc::wait4(self.pid().as_raw(), &raw mut status, flags, &raw mut usage) };
        match Errno::result(answer) {
            Ok(0) | Err(Errno::EINTR) => Ok(None),
            Ok(_) => {
                self.reaped = true;
                let exit = if libc::WIFEXITED(status) {
                    Exit::Code(libc::WEXITSTATUS(status))
                } else {
                    Exit::Signal(libc::WTERMSIG(status))
                };
                Ok(Some((exit, used(&usage))))
            }
            Err(error) => Err(Error::of("wait4")(error)),
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if !self.reaped {
            let _ = kill(self.pid(), Signal::SIGKILL);
            while matches!(self.ended(0), Ok(None)) {}
        }
    }
}

fn used(usage: &libc::rusage) -> Used {
    let time = |of: libc::timeval| {
        Duration::from_secs(of.tv_sec.unsigned_abs()) + Duration::from_micros(of.tv_usec.unsigned_abs())
    };
    // Linux counts blocks of 512 bytes here, for any file system: getrusage(2).
    let bytes = |blocks: libc::c_long| blocks.unsigned_abs().saturating_mul(512);
    Used {
        user: time(usage.ru_utime),
        system: time(usage.ru_stime),
        storage_read_bytes: bytes(usage.ru_inblock),
        storage_written_bytes: bytes(usage.ru_oublock),
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::Write as _;
    use std::os::fd::AsFd as _;

    use super::*;

    const LONG_LIMIT: Duration = Duration::from_secs(60);

    fn shell(command: &str) -> Vec<OsString> {
        ["/bin/sh", "-c", command].map(OsString::from).to_vec()
    }

    #[test]
    fn program_streams_status_and_cpu_time_are_collected() {
        let done = collect(&shell("echo out; echo err >&2; exit 3"), &[], LONG_LIMIT, None).unwrap();
        assert_eq!((done.exit, done.killed), (Exit::Code(3), None));
        assert_eq!((&done.stdout[..], &done.stderr[..]), (&b"out\n"[..], &b"err\n"[..]));
        let busy = collect(&shell("i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done"), &[], LONG_LIMIT, None).unwrap();
        assert!(busy.used.user > Duration::ZERO, "{:?}", busy.used);
        assert!(collect(&["/no/such/program".into()], &[], LONG_LIMIT, None).is_err());
        assert!(collect(&[], &[], LONG_LIMIT, None).is_err());
    }

    #[test]
    fn program_output_beyond_the_pipe_capacity_is_read() {
        let done = collect(&shell("head -c 1000000 /dev/zero"), &[], LONG_LIMIT, None).unwrap();
        assert_eq!(done.stdout.len(), 1_000_000);
    }

    #[test]
    fn program_beyond_its_time_limit_is_killed() {
        let done = collect(&shell("exec sleep 1000"), &[], Duration::from_millis(50), None).unwrap();
        assert_eq!((done.exit, done.killed), (Exit::Signal(9), Some(Killed::Late)));
    }

    #[test]
    fn passed_descriptors_keep_their_numbers() {
        let folder = tempfile::tempdir().unwrap();
        let file = File::create_new(folder.path().join("gone")).unwrap();
        std::fs::remove_file(folder.path().join("gone")).unwrap();
        let number = file.as_raw_fd();
        let write = format!("echo written > /proc/self/fd/{number}");
        assert_eq!(collect(&shell(&write), &[file.as_fd()], LONG_LIMIT, None).unwrap().exit, Exit::Code(0));
        // Another process wrote into the unnamed file.
        assert_eq!(std::fs::read(format!("/proc/self/fd/{number}")).unwrap(), b"written\n");
        let read = format!("cat <&{number}");
        assert_ne!(
            collect(&shell(&read), &[], LONG_LIMIT, None).unwrap().exit,
            Exit::Code(0),
            "the descriptor was inherited"
        );
    }

    #[test]
    fn written_storage_bytes_are_counted_on_a_file_system_with_a_device() {
        let folder = tempfile::tempdir().unwrap();
        let mut file = File::create_new(folder.path().join("file")).unwrap();
        file.write_all(b"begun").unwrap();
        let number = file.as_raw_fd();
        let write = format!("head -c 1048576 /dev/zero > /proc/self/fd/{number}");
        let done = collect(&shell(&write), &[file.as_fd()], LONG_LIMIT, None).unwrap();
        // `head` is a child that the shell waited for. A file system without a device counts nothing.
        let written = done.used.storage_written_bytes;
        assert!(written == 0 || written >= 1 << 20, "{written}");
    }
}
