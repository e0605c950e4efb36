//! The manager's clock, as estimated by the agent. The agent's wall clock may be wrong by minutes and may be set at
//! any time. Times of rows are on the monotonic clock, and the manager is sent its zero in the manager's time.
//!
//! ```text
//!   agent    sent ─────────┐                    ┌──▶ returned
//!   manager                └▶ received  answered┘
//!
//!   zero = half of (received - sent) + (answered - returned), error: at most half of the network time
//! ```
//!
//! The estimate is that of the fastest of the last eight responses. All times are measured against CLOCK_BOOTTIME,
//! which runs while the machine is suspended. CLOCK_MONOTONIC does not, and each batch has the difference.

use std::collections::VecDeque;
use std::io;

use nix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};
use sys::clock::{Clock, monotonic_ns};

use crate::disk::{Disk, Durability};

/// A point in time on the clocks of one boot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ClockReading {
    /// CLOCK_MONOTONIC, ns.
    pub at_ns: u64,
    /// The wall clock at the zero of CLOCK_MONOTONIC, computed now; ns since 1970.
    pub zero_own_unix_ns: u64,
    /// CLOCK_BOOTTIME less CLOCK_MONOTONIC: the time suspended. Negative in a time namespace with such an offset.
    pub suspended_ns: i64,
}

/// Source of time.
pub(crate) trait Time: Send {
    /// The current time.
    fn now(&self) -> ClockReading;

    /// CLOCK_BOOTTIME alone, ns.
    fn boot_ns(&self) -> i64 {
        let now = self.now();
        signed(now.at_ns) + now.suspended_ns
    }
}

/// The clocks of the machine.
#[derive(Debug)]
pub(crate) struct SystemClocks;

impl Time for SystemClocks {
    fn now(&self) -> ClockReading {
        let at_ns = monotonic_ns();
        let ahead = boottime_ns() - signed(at_ns);
        // The two clocks are read some nanoseconds apart.
        let suspended_ns = if ahead.abs() < 1_000_000 { 0 } else { ahead };
        ClockReading { at_ns, zero_own_unix_ns: Clock::of_boot().zero_unix_ns(), suspended_ns }
    }
}

fn boottime_ns() -> i64 {
    // Every kernel since 2.6.39 has this clock.
    clock_gettime(ClockId::CLOCK_BOOTTIME).map_or(0, |now| now.tv_sec() * 1_000_000_000 + now.tv_nsec())
}

/// The manager's clock at a zero of this machine's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ClockZero {
    /// ns since 1970.
    pub unix_ns: i64,
    /// Maximum error.
    pub error_ns: i64,
}

/// Estimates the manager's clock from its responses.
#[derive(Debug)]
pub(crate) struct ClockOffset {
    boot: String,
    /// Estimates at the zero of CLOCK_BOOTTIME, the latest last.
    estimates: VecDeque<ClockZero>,
    /// Estimates of earlier boots, whose batches may still wait.
    earlier_boots: Vec<(String, ClockZero)>,
    last_saved: Option<ClockZero>,
}

impl ClockOffset {
    /// Opens the estimates: none of `boot` yet, those of earlier boots from the folder.
    pub fn open(disk: &Disk, boot: &str) -> ClockOffset {
        let saved = disk.get(FILE, 65_536).ok().flatten();
        let saved: Vec<(String, ClockZero)> =
            saved.and_then(|bytes| serde_json::from_slice(&bytes).ok()).unwrap_or_default();
        let (current, earlier_boots): (Vec<_>, Vec<_>) = saved.into_iter().partition(|(name, _)| name == boot);
        ClockOffset {
            boot: boot.to_owned(),
            estimates: current.into_iter().map(|(_, zero)| zero).collect(),
            earlier_boots,
            last_saved: None,
        }
    }

    /// Adds a response. `sent` and `returned` are on CLOCK_BOOTTIME, `received` and `answered` on the manager's clock,
    /// all in ns.
    pub fn add_response(&mut self, sent: i64, returned: i64, received: u64, answered: u64) {
        let (received, answered) = (signed(received), signed(answered));
        let round_trip = (returned - sent) - (answered - received);
        if answered < received || returned < sent {
            // The manager's clock was set during the request.
            return;
        }
        let unix_ns = received.saturating_sub(sent) / 2 + answered.saturating_sub(returned) / 2;
        let new = ClockZero { unix_ns, error_ns: round_trip.max(0) / 2 };
        // The two estimates contradict each other: a clock was set, and earlier estimates are discarded.
        if self.best().is_some_and(|best| difference(best, new) > best.error_ns + new.error_ns + CLOCK_STEP_NS) {
            self.estimates.clear();
        }
        if self.estimates.len() == SAMPLES_MAX {
            self.estimates.pop_front();
        }
        self.estimates.push_back(new);
    }

    /// The manager's clock at the zero of CLOCK_MONOTONIC for a batch of `boot`, sealed at `clock`.
    pub fn zero(&self, boot: &str, clock: &ClockReading) -> Option<ClockZero> {
        let zero = if boot == self.boot {
            self.best()
        } else {
            self.earlier_boots.iter().find(|(name, _)| name == boot).map(|(_, zero)| *zero)
        };
        zero.map(|zero| ClockZero { unix_ns: zero.unix_ns + clock.suspended_ns, ..zero })
    }

    /// Saves the estimate for the next boot, if it changed.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn save(&mut self, disk: &Disk) -> io::Result<()> {
        let Some(best) = self.best() else { return Ok(()) };
        if self.last_saved.is_some_and(|last_saved| difference(last_saved, best) < SAVE_CHANGE_NS) {
            return Ok(());
        }
        let mut saved = self.earlier_boots.clone();
        saved.push((self.boot.clone(), best));
        let first = saved.len().saturating_sub(BOOTS_MAX);
        disk.put(FILE, &serde_json::to_vec(&saved[first..])?, Durability::Yes)?;
        self.last_saved = Some(best);
        Ok(())
    }

    /// The estimate of the fastest response.
    pub fn best(&self) -> Option<ClockZero> {
        self.estimates.iter().min_by_key(|zero| zero.error_ns).copied()
    }
}

fn difference(a: ClockZero, b: ClockZero) -> i64 {
    (a.unix_ns - b.unix_ns).abs()
}

fn signed(ns: u64) -> i64 {
    // The maximum is 292 years.
    i64::try_from(ns).unwrap_or(i64::MAX)
}

const FILE: &str = "clock.json";
/// Maximum number of estimates of this boot.
const SAMPLES_MAX: usize = 8;
/// A difference beyond measurement error and clock drift: the clock was set.
const CLOCK_STEP_NS: i64 = 1_000_000_000;
/// Change of the estimate after which it is saved again: accurate enough for rows of an earlier boot.
const SAVE_CHANGE_NS: i64 = 10_000_000;
/// Maximum number of saved boots.
const BOOTS_MAX: usize = 4;

#[cfg(test)]
mod tests {
    use super::*;

    fn at(suspended_ns: i64) -> ClockReading {
        ClockReading { suspended_ns, ..ClockReading::default() }
    }

    fn offset(folder: &std::path::Path, boot: &str) -> (Disk, ClockOffset) {
        let disk = Disk::open(folder).unwrap();
        let offset = ClockOffset::open(&disk, boot);
        (disk, offset)
    }

    #[test]
    fn the_clock_offset_uses_the_fastest_of_the_last_eight_responses() {
        let folder = tempfile::tempdir().unwrap();
        let (_, mut offset) = offset(folder.path(), "a");
        assert_eq!(offset.zero("a", &at(0)), None);
        // The manager's clock shows 1,000,000 at the zero. 10 ns there, 30 ns back, 5 ns at the manager: the error is
        // half of the difference.
        offset.add_response(100, 145, 1_000_110, 1_000_115);
        assert_eq!(offset.zero("a", &at(0)), Some(ClockZero { unix_ns: 1_000_000 - 10, error_ns: 20 }));
        offset.add_response(200, 204, 1_000_202, 1_000_202);
        assert_eq!(offset.zero("a", &at(7)), Some(ClockZero { unix_ns: 1_000_007, error_ns: 2 }));
        // After eight slow responses the fast one is forgotten.
        (0..8).for_each(|_| offset.add_response(300, 400, 1_000_350, 1_000_350));
        assert_eq!(offset.zero("a", &at(0)), Some(ClockZero { unix_ns: 1_000_000, error_ns: 50 }));
        offset.add_response(500, 400, 1, 2);
        offset.add_response(500, 600, 2, 1);
        assert_eq!(offset.estimates.len(), 8, "impossible times are ignored");
    }

    #[test]
    fn a_clock_step_of_the_manager_is_adopted_immediately() {
        let folder = tempfile::tempdir().unwrap();
        let (_, mut offset) = offset(folder.path(), "a");
        let hour = 3_600_000_000_000;
        offset.add_response(0, 10, 5, 5);
        offset.add_response(0, 1_000, hour, hour);
        let zero = offset.zero("a", &at(0)).unwrap();
        assert_eq!((zero.unix_ns, zero.error_ns), (3_600_000_000_000 - 500, 500));
    }

    #[test]
    fn the_clock_offset_survives_restart_and_reboot() {
        let folder = tempfile::tempdir().unwrap();
        let (disk, mut first) = offset(folder.path(), "a");
        first.save(&disk).unwrap();
        assert_eq!(disk.length(FILE).unwrap(), None);
        first.add_response(0, 10, 1_000, 1_000);
        first.save(&disk).unwrap();
        let first_estimate = first.zero("a", &at(0));
        assert_eq!(offset(folder.path(), "a").1.zero("a", &at(0)), first_estimate);
        let (disk, mut second) = offset(folder.path(), "b");
        assert_eq!((second.zero("b", &at(0)), second.zero("a", &at(0))), (None, first_estimate));
        second.add_response(0, 10, 2_000, 2_000);
        second.save(&disk).unwrap();
        let (_, third) = offset(folder.path(), "c");
        assert_eq!(third.zero("a", &at(0)), first_estimate);
        assert!(third.zero("b", &at(0)).is_some());
    }

    #[test]
    fn system_clocks_are_readable() {
        let (a, b) = (SystemClocks.now(), SystemClocks.now());
        assert!(a.at_ns <= b.at_ns && a.zero_own_unix_ns > 1_600_000_000_000_000_000);
        assert!(SystemClocks.boot_ns() >= signed(a.at_ns) + a.suspended_ns - 1_000_000);
    }
}
