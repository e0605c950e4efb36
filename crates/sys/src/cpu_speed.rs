//! CPU speed probe: measures the present speed of a CPU with a constant piece of work.
//!
//! A CPU of a virtual machine shares a core and its caches with other guests, and its clock frequency changes. The cost
//! of a request changes accordingly, by a quarter within minutes on a busy host, although the kernel counts no stolen
//! time.

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::time::Duration;

use crate::clock::thread_cpu_time;

/// Bytes through a pipe in one piece of work.
const BYTES: usize = 20;

/// A piece of work that mostly runs in the kernel, like serving: single bytes through a pipe, back and forth within
/// this thread.
#[derive(Debug)]
pub struct Probe {
    from: File,
    to: File,
}

impl Probe {
    /// Opens the pipe.
    ///
    /// # Errors
    /// pipe2(2) fails: no descriptors are left.
    pub fn new() -> io::Result<Self> {
        let (from, to) = nix::unistd::pipe2(nix::fcntl::OFlag::O_CLOEXEC)?;
        Ok(Probe { from: from.into(), to: to.into() })
    }

    /// Runs the piece of work once; returns the CPU time that this thread spent on it.
    ///
    /// # Errors
    /// The pipe fails, which is not expected.
    pub fn time(&mut self) -> io::Result<Duration> {
        let before = thread_cpu_time();
        let mut byte = [0];
        for _ in 0..BYTES {
            self.to.write_all(&byte)?;
            self.from.read_exact(&mut byte)?;
        }
        Ok(thread_cpu_time().saturating_sub(before))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_probe_takes_microseconds() {
        let mut probe = Probe::new().unwrap();
        let mut times: Vec<Duration> = (0..99).map(|_| probe.time().unwrap()).collect();
        times.sort();
        // Forty system calls: the lower bound holds on any machine, the upper one on a slow machine without
        // optimisation.
        assert!((Duration::from_micros(1)..Duration::from_millis(5)).contains(&times[49]), "{:?}", times[49]);
    }
}
