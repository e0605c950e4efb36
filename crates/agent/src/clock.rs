//! What time it is at the manager. The agent's wall clock may be wrong by minutes, and set at any time; moments of its rows come
//! from the monotonic clock, whose zero is told to the manager in the manager's own time.
//!
//! ```text
//!   agent    sent ─────────┐                    ┌──▶ heard         zero = half of (received - sent) + (answered - heard)
//!   manager                └▶ received  answered┘                  off by at most half of the time on the way
//! ```
//!
//! Of the last eight answers the quickest counts. All is measured against CLOCK_BOOTTIME, which goes on while the machine sleeps;
//! CLOCK_MONOTONIC does not, and each batch says how far it was behind.

use std::collections::VecDeque;
use std::io;

use nix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};
use sys::clock::{Clock, monotonic_ns};

use crate::disk::{Disk, Lasting};

/// When something was, by the clocks of one boot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Moment {
    /// CLOCK_MONOTONIC, ns.
    pub at_ns: u64,
    /// What the wall clock showed when that was 0, as it went at this moment; ns since 1970.
    pub zero_own_unix_ns: u64,
    /// By how much CLOCK_BOOTTIME was ahead: the time slept. Negative in a time namespace that has it so.
    pub suspended_ns: i64,
}

/// Where an agent has its time from.
pub(crate) trait Time: Send {
    /// Now.
    fn now(&self) -> Moment;

    /// CLOCK_BOOTTIME alone, ns.
    fn boot_ns(&self) -> i64 {
        let now = self.now();
        signed(now.at_ns) + now.suspended_ns
    }
}

/// The machine's.
#[derive(Debug)]
pub(crate) struct Own;

impl Time for Own {
    fn now(&self) -> Moment {
        let at_ns = monotonic_ns();
        let ahead = boottime_ns() - signed(at_ns);
        // Two reads are some nanoseconds apart.
        let suspended_ns = if ahead.abs() < 1_000_000 { 0 } else { ahead };
        Moment { at_ns, zero_own_unix_ns: Clock::of_boot().zero_unix_ns(), suspended_ns }
    }
}

fn boottime_ns() -> i64 {
    // Every kernel since 2.6.39 has it.
    clock_gettime(ClockId::CLOCK_BOOTTIME).map_or(0, |now| now.tv_sec() * 1_000_000_000 + now.tv_nsec())
}

/// What the manager's clock showed at a zero of this machine's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Zero {
    /// ns since 1970.
    pub unix_ns: i64,
    /// Off by at most so much.
    pub error_ns: i64,
}

/// The manager's clock, as far as its answers tell.
#[derive(Debug)]
pub(crate) struct Offset {
    boot: String,
    /// At the zero of CLOCK_BOOTTIME. The latest last.
    heard: VecDeque<Zero>,
    /// Of boots before this, with batches of theirs that may still wait.
    before: Vec<(String, Zero)>,
    written: Option<Zero>,
}

impl Offset {
    /// Nothing heard in `boot`; what was heard in earlier ones is in the folder.
    pub fn open(disk: &Disk, boot: &str) -> Offset {
        let kept = disk.get(FILE, 65_536).ok().flatten();
        let kept: Vec<(String, Zero)> = kept.and_then(|bytes| serde_json::from_slice(&bytes).ok()).unwrap_or_default();
        let (own, before): (Vec<_>, Vec<_>) = kept.into_iter().partition(|(name, _)| name == boot);
        Offset { boot: boot.to_owned(), heard: own.into_iter().map(|(_, zero)| zero).collect(), before, written: None }
    }

    /// An answer came. `sent` and `heard` are of CLOCK_BOOTTIME, `received` and `answered` of the manager's clock, all in ns.
    pub fn hear(&mut self, sent: i64, heard: i64, received: u64, answered: u64) {
        let (received, answered) = (signed(received), signed(answered));
        let way = (heard - sent) - (answered - received);
        if answered < received || heard < sent {
            // Its clock was set meanwhile.
            return;
        }
        let unix_ns = received.saturating_sub(sent) / 2 + answered.saturating_sub(heard) / 2;
        let new = Zero { unix_ns, error_ns: way.max(0) / 2 };
        // One clock cannot show both: it was set, and what was heard before counts no more.
        if self.best().is_some_and(|best| apart(best, new) > best.error_ns + new.error_ns + SET_NS) {
            self.heard.clear();
        }
        if self.heard.len() == HEARD_MAX {
            self.heard.pop_front();
        }
        self.heard.push_back(new);
    }

    /// What the manager's clock showed at the zero of CLOCK_MONOTONIC that a batch of `boot`, sealed at `moment`, counts from.
    pub fn zero(&self, boot: &str, moment: &Moment) -> Option<Zero> {
        let zero = if boot == self.boot {
            self.best()
        } else {
            self.before.iter().find(|(name, _)| name == boot).map(|(_, zero)| *zero)
        };
        zero.map(|zero| Zero { unix_ns: zero.unix_ns + moment.suspended_ns, ..zero })
    }

    /// Keeps what was heard for the next boot, if it is news.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn keep(&mut self, disk: &Disk) -> io::Result<()> {
        let Some(best) = self.best() else { return Ok(()) };
        if self.written.is_some_and(|written| apart(written, best) < KEEP_NS) {
            return Ok(());
        }
        let mut kept = self.before.clone();
        kept.push((self.boot.clone(), best));
        let first = kept.len().saturating_sub(BOOTS_MAX);
        disk.put(FILE, &serde_json::to_vec(&kept[first..])?, Lasting::Yes)?;
        self.written = Some(best);
        Ok(())
    }

    /// The quickest answer's.
    pub fn best(&self) -> Option<Zero> {
        self.heard.iter().min_by_key(|zero| zero.error_ns).copied()
    }
}

fn apart(a: Zero, b: Zero) -> i64 {
    (a.unix_ns - b.unix_ns).abs()
}

fn signed(ns: u64) -> i64 {
    // 292 years.
    i64::try_from(ns).unwrap_or(i64::MAX)
}

const FILE: &str = "clock.json";
const HEARD_MAX: usize = 8;
/// Beyond what errors explain, and beyond what two clocks drift apart between answers: it was set.
const SET_NS: i64 = 1_000_000_000;
/// Written again when it is off by more: rows of an earlier boot are as exact.
const KEEP_NS: i64 = 10_000_000;
/// Boots of which something is kept.
const BOOTS_MAX: usize = 4;

#[cfg(test)]
mod tests {
    use super::*;

    fn at(suspended_ns: i64) -> Moment {
        Moment { suspended_ns, ..Moment::default() }
    }

    fn offset(folder: &std::path::Path, boot: &str) -> (Disk, Offset) {
        let disk = Disk::open(folder).unwrap();
        let offset = Offset::open(&disk, boot);
        (disk, offset)
    }

    #[test]
    fn the_quickest_of_the_last_eight_counts() {
        let folder = tempfile::tempdir().unwrap();
        let (_, mut offset) = offset(folder.path(), "a");
        assert_eq!(offset.zero("a", &at(0)), None);
        // The manager's clock shows 1,000,000 at the zero. 10 there, 30 back, 5 at the manager: half of the difference is the error.
        offset.hear(100, 145, 1_000_110, 1_000_115);
        assert_eq!(offset.zero("a", &at(0)), Some(Zero { unix_ns: 1_000_000 - 10, error_ns: 20 }));
        offset.hear(200, 204, 1_000_202, 1_000_202);
        assert_eq!(offset.zero("a", &at(7)), Some(Zero { unix_ns: 1_000_007, error_ns: 2 }));
        // Eight slow ones later the quick one is forgotten.
        (0..8).for_each(|_| offset.hear(300, 400, 1_000_350, 1_000_350));
        assert_eq!(offset.zero("a", &at(0)), Some(Zero { unix_ns: 1_000_000, error_ns: 50 }));
        offset.hear(500, 400, 1, 2);
        offset.hear(500, 600, 2, 1);
        assert_eq!(offset.heard.len(), 8, "nonsense is not heard");
    }

    #[test]
    fn a_clock_that_was_set_is_believed_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let (_, mut offset) = offset(folder.path(), "a");
        let hour = 3_600_000_000_000;
        offset.hear(0, 10, 5, 5);
        offset.hear(0, 1_000, hour, hour);
        let zero = offset.zero("a", &at(0)).unwrap();
        assert_eq!((zero.unix_ns, zero.error_ns), (3_600_000_000_000 - 500, 500));
    }

    #[test]
    fn what_was_heard_is_there_after_a_restart_and_after_a_reboot() {
        let folder = tempfile::tempdir().unwrap();
        let (disk, mut first) = offset(folder.path(), "a");
        first.keep(&disk).unwrap();
        assert_eq!(disk.length(FILE).unwrap(), None);
        first.hear(0, 10, 1_000, 1_000);
        first.keep(&disk).unwrap();
        let known = first.zero("a", &at(0));
        assert_eq!(offset(folder.path(), "a").1.zero("a", &at(0)), known);
        let (disk, mut second) = offset(folder.path(), "b");
        assert_eq!((second.zero("b", &at(0)), second.zero("a", &at(0))), (None, known));
        second.hear(0, 10, 2_000, 2_000);
        second.keep(&disk).unwrap();
        let (_, third) = offset(folder.path(), "c");
        assert_eq!(third.zero("a", &at(0)), known);
        assert!(third.zero("b", &at(0)).is_some());
    }

    #[test]
    fn this_machine_has_a_time() {
        let (a, b) = (Own.now(), Own.now());
        assert!(a.at_ns <= b.at_ns && a.zero_own_unix_ns > 1_600_000_000_000_000_000);
        assert!(Own.boot_ns() >= signed(a.at_ns) + a.suspended_ns - 1_000_000);
    }
}
