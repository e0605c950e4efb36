//! The unsent bytes of a connection that the kernel may buffer: few for most, more for some fast clients.
//!
//! A send that the kernel does not accept completely costs a wake-up and further system calls. A client that reads a
//! large file as fast as it arrives gets a higher limit, so that few sends remain. The kernel's memory for TCP bounds the
//! number of such connections: those that then stop reading occupy the kernel's memory until their timeout.

use std::net::TcpStream;
use std::time::Duration;

use units::Timestamp;

use crate::connection::WorkerContext;

/// The limit of one connection.
#[derive(Debug, Default)]
pub(crate) struct UnsentLimit {
    /// When the kernel's buffer became full; cleared when the kernel next accepts a part of what it is offered.
    blocked_at: Option<Timestamp>,
    raised: bool,
}

impl UnsentLimit {
    /// The kernel's buffer is full.
    pub(super) fn blocked(&mut self, now: Timestamp) {
        self.blocked_at.get_or_insert(now);
    }

    /// The kernel accepted a part of what it was offered: raises the limit if that was shortly after the buffer became
    /// full and the worker has a raise left. A full buffer reports free space once half of it is empty. Returns whether
    /// the limit was raised: more can be sent then.
    pub(super) fn raise(&mut self, stream: &TcpStream, context: &mut WorkerContext) -> bool {
        let Some(blocked_at) = self.blocked_at.take() else { return false };
        if self.raised || context.raises_left == 0 || context.now.since(blocked_at) > FAST {
            return false;
        }
        self.raised = sys::datagrams::bound_unsent(stream, RAISED_BYTES).is_ok();
        context.raises_left -= u32::from(self.raised);
        self.raised
    }

    /// The connection ends: another one may have its raise.
    pub(crate) fn leave(&mut self, context: &mut WorkerContext) {
        context.raises_left += u32::from(std::mem::take(&mut self.raised));
    }
}

/// The number of raises of each of `threads` workers: together a quarter of the memory that TCP uses before it saves
/// memory, and at least [`RAISES_MIN`] each.
pub(crate) fn raises(threads: usize) -> u32 {
    // Other network namespaces than the first lack the file: the minimum applies there.
    let text = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_mem").unwrap_or_default();
    raises_of(&text, threads)
}

fn raises_of(tcp_mem: &str, threads: usize) -> u32 {
    let pages: u64 = tcp_mem.split_whitespace().next().and_then(|pages| pages.parse().ok()).unwrap_or(0);
    let bytes = pages.saturating_mul(PAGE_BYTES) / 4;
    let each = bytes / u64::from(RAISED_BYTES) / threads.max(1) as u64;
    u32::try_from(each).unwrap_or(u32::MAX).max(RAISES_MIN)
}

/// The raised limit: with it, 10 MiB cost 0.53 of the CPU time that they cost with 256 KiB, and no limit costs 0.52.
pub(crate) const RAISED_BYTES: u32 = 2 << 20;
/// Time in which a fast client empties half of a buffer of 256 KiB: 52 Mbit/s.
const FAST: Duration = Duration::from_millis(20);
/// Raises of a worker where the memory for TCP is small or unknown.
const RAISES_MIN: u32 = 8;
/// The unit of `tcp_mem`.
const PAGE_BYTES: u64 = 4096;

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use sys::file::Root;

    use super::*;
    use crate::figures::Figures;
    use crate::files::Files;
    use crate::journal::Recorder;
    use crate::spec::{FileRules, Limits};
    use crate::status::{StatusSources, StatusSpec};

    #[test]
    fn a_fast_client_gets_a_raise_that_the_next_one_gets_after_its_end() {
        let directory = tempfile::tempdir().unwrap();
        let files = Files::new(Root::open(directory.path()).unwrap(), FileRules::default());
        let figures = Figures::new();
        let recorder = Recorder::new(figures.worker(), None);
        let status_sources =
            StatusSources { spec: StatusSpec::Off, figures, cache: None, log: None, usage_reader: None };
        let now = Timestamp::from_nanos(5_000_000_000);
        let mut context = WorkerContext::new(files, Limits::default(), now, recorder, status_sources);
        context.raises_left = 1;
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut first, mut second) = (UnsentLimit::default(), UnsentLimit::default());
        assert!(!first.raise(&stream, &mut context), "the buffer was never full");
        first.blocked(context.now);
        context.now += FAST + Duration::from_nanos(1);
        assert!(!first.raise(&stream, &mut context), "a nanosecond too slow");
        first.blocked(context.now);
        context.now += FAST;
        assert!(first.raise(&stream, &mut context));
        first.blocked(context.now);
        assert!(!first.raise(&stream, &mut context), "the limit is raised already");
        second.blocked(context.now);
        assert!(!second.raise(&stream, &mut context), "no raise is left");
        first.leave(&mut context);
        first.leave(&mut context);
        assert_eq!(context.raises_left, 1);
        second.blocked(context.now);
        assert!(second.raise(&stream, &mut context));
        assert_eq!(context.raises_left, 0);
    }

    #[test]
    fn the_number_of_raises_follows_the_memory_for_tcp() {
        assert_eq!(raises_of("287898\t383866\t575796\n", 1), 140);
        assert_eq!(raises_of("287898\t383866\t575796\n", 2), 70);
        assert_eq!(raises_of("11000 14000 22000", 1), RAISES_MIN);
        assert_eq!(raises_of("", 1), RAISES_MIN);
        assert_eq!(raises_of("18446744073709551615 1 1", 0), u32::MAX);
    }
}
