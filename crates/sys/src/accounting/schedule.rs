//! The scheduler's own measurement of one thread, to the nanosecond.

use std::fs::{self, File};
use std::time::Duration;

/// CPU time and waiting time of a thread since its start; for a running thread as of its last tick.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Served {
    /// CPU time.
    pub ran: Duration,
    /// Time for which it was ready to run and had no core.
    pub waited: Duration,
}

/// Thread `thread` of process `process`, by their numbers; the first thread has the number of its process. `None` after
/// its end, or if the kernel does not measure it (nearly every kernel has CONFIG_SCHED_INFO).
pub fn served(process: i32, thread: i32) -> Option<Served> {
    parse(&fs::read_to_string(format!("/proc/{process}/task/{thread}/schedstat")).ok()?)
}

/// One thread that is read repeatedly, by its number alone; the figures remain those of this thread even if its number
/// is reused.
#[derive(Debug)]
pub struct ThreadScheduleFile(File);

impl ThreadScheduleFile {
    /// `None` after its end, or if the kernel does not measure it.
    pub fn open(thread: i32) -> Option<ThreadScheduleFile> {
        File::open(format!("/proc/{thread}/schedstat")).ok().map(ThreadScheduleFile)
    }

    /// The figures up to now; `None` after its end.
    pub fn read(&self, buffer: &mut Vec<u8>) -> Option<Served> {
        parse(super::read_again(&self.0, buffer))
    }
}

/// The number of the calling thread, as [`served`] expects it.
pub fn this_thread() -> i32 {
    nix::unistd::gettid().as_raw()
}

/// Time on a core and time waiting for one in nanoseconds, and number of times scheduled.
fn parse(text: &str) -> Option<Served> {
    let mut fields = text.split_whitespace().map(str::parse::<u64>);
    let (ran, waited) = (fields.next()?.ok()?, fields.next()?.ok()?);
    Some(Served { ran: Duration::from_nanos(ran), waited: Duration::from_nanos(waited) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scheduler_figures_of_this_thread_are_above_zero() {
        let own = std::process::id() as i32;
        // A busy thread is counted at every tick of the kernel.
        while served(own, this_thread()).unwrap().ran == Duration::ZERO {}
        assert_eq!(served(own, i32::MAX), None);
        let thread = ThreadScheduleFile::open(this_thread()).unwrap();
        assert!(
            thread.read(&mut Vec::new()).unwrap().ran > Duration::ZERO && ThreadScheduleFile::open(i32::MAX).is_none()
        );
    }

    #[test]
    fn malformed_scheduler_figures_are_none() {
        let ns = Duration::from_nanos;
        assert_eq!(parse("12 34 5\n"), Some(Served { ran: ns(12), waited: ns(34) }));
        assert_eq!((parse(""), parse("12\n"), parse("x y 1\n")), (None, None, None));
    }
}
