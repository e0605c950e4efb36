//! What the scheduler measured of one thread, to the nanosecond.

use std::fs::{self, File};
use std::time::Duration;

/// How the scheduler served a thread since it began; of one that runs now as of its last tick.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Served {
    /// How long it ran.
    pub ran: Duration,
    /// How long it was ready to run and had no core.
    pub waited: Duration,
}

/// Thread `thread` of process `process`, by their numbers; the first thread of a process has the number of that. `None` when it
/// has ended, or where the kernel does not measure it (it is built with CONFIG_SCHED_INFO nearly everywhere).
pub fn served(process: i32, thread: i32) -> Option<Served> {
    parse(&fs::read_to_string(format!("/proc/{process}/task/{thread}/schedstat")).ok()?)
}

/// One thread that is looked at again and again, by its number alone; what it counts stays that of this thread when its number is given to another.
#[derive(Debug)]
pub struct ServedThread(File);

impl ServedThread {
    /// `None` when it has ended, or where the kernel does not measure it.
    pub fn open(thread: i32) -> Option<ServedThread> {
        File::open(format!("/proc/{thread}/schedstat")).ok().map(ServedThread)
    }

    /// How it was served up to now; `None` when it has ended.
    pub fn read(&self, buffer: &mut Vec<u8>) -> Option<Served> {
        parse(super::read_again(&self.0, buffer))
    }
}

/// The number of the calling thread, as [`served`] wants it.
pub fn this_thread() -> i32 {
    nix::unistd::gettid().as_raw()
}

/// Time on a core and time waiting for one in nanoseconds, and how often it got one.
fn parse(text: &str) -> Option<Served> {
    let mut fields = text.split_whitespace().map(str::parse::<u64>);
    let (ran, waited) = (fields.next()?.ok()?, fields.next()?.ok()?);
    Some(Served { ran: Duration::from_nanos(ran), waited: Duration::from_nanos(waited) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_thread_has_run() {
        let own = std::process::id() as i32;
        // What runs without a pause is counted at every tick of the kernel.
        while served(own, this_thread()).unwrap().ran == Duration::ZERO {}
        assert_eq!(served(own, i32::MAX), None);
        let thread = ServedThread::open(this_thread()).unwrap();
        assert!(thread.read(&mut Vec::new()).unwrap().ran > Duration::ZERO && ServedThread::open(i32::MAX).is_none());
    }

    #[test]
    fn a_kernel_that_does_not_measure_is_no_figure() {
        let ns = Duration::from_nanos;
        assert_eq!(parse("12 34 5\n"), Some(Served { ran: ns(12), waited: ns(34) }));
        assert_eq!((parse(""), parse("12\n"), parse("x y 1\n")), (None, None, None));
    }
}
