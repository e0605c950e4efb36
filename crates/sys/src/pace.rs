//! How fast a processor is just now, by a piece of work that is always the same.
//!
//! A processor of a virtual machine shares a core and its caches with whoever else is on the host, and its clock changes. What a request
//! costs changes with it, by a quarter within minutes on a busy host, while nothing is stolen that the kernel would count.

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::time::Duration;

use crate::clock::thread_cpu_time;

/// Bytes through a pipe in one piece of work.
const BYTES: usize = 20;

/// A piece of work that is mostly the kernel's, as serving is: single bytes through a pipe, to and fro within this thread.
#[derive(Debug)]
pub struct Piece {
    from: File,
    to: File,
}

impl Piece {
    /// With a pipe of its own.
    ///
    /// # Errors
    /// pipe2(2) fails: no descriptors are left.
    pub fn new() -> io::Result<Self> {
        let (from, to) = nix::unistd::pipe2(nix::fcntl::OFlag::O_CLOEXEC)?;
        Ok(Piece { from: from.into(), to: to.into() })
    }

    /// Does it once; the processor time that this thread spent on it.
    ///
    /// # Errors
    /// The pipe fails, which it has no reason to.
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
    fn a_piece_takes_some_microseconds() {
        let mut piece = Piece::new().unwrap();
        let mut times: Vec<Duration> = (0..99).map(|_| piece.time().unwrap()).collect();
        times.sort();
        // Forty calls into the kernel; the least of them on any machine, the most on a slow one without optimisation.
        assert!((Duration::from_micros(1)..Duration::from_millis(5)).contains(&times[49]), "{:?}", times[49]);
    }
}
