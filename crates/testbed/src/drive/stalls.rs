//! Stalls: times in which the loop made no progress although it had work: stopped (SIGSTOP, a debugger), preempted by
//! the kernel or the hypervisor, or blocked in one piece of work.
//!
//! ```text
//!   working  o--o-o---o-----------------o--o      a gap between two readings of the clock
//!   waiting  |.... meant to end ....|......o      a wait that ended late
//!   stall             |-----------------|
//! ```
//!
//! No system call is needed: the loop reads its clock before every action, and while a response may arrive it waits for
//! at most [`BEAT`]. A stall is therefore found anywhere in the loop, with or without a path, in open and closed loops.

use std::time::Duration;

use load::Stall;
use units::Timestamp;

/// While a response may arrive, the loop wakes at least this often: a stall that is longer by [`STALL_MIN`] is found,
/// also in a wait that a response ended. A thousand waits a second cost an idle loop about 0.3 % of its core, and a
/// busy one nothing.
const BEAT: Duration = Duration::from_millis(1);

/// The next beat after `at`. Beats are on a fixed grid, so that a loop that waits often sets its timer once a beat and
/// not once a wait.
pub(crate) fn next_beat_after(at: Timestamp) -> Timestamp {
    let beat = BEAT.as_nanos() as u64;
    Timestamp::from_nanos((at.as_nanos() / beat + 1) * beat)
}

/// Shortest gap that counts as a stall. Work between two clock readings (a connect, a step of a TLS handshake, a batch
/// of packets) usually takes less, as do wake-ups of a thread with its own core.
const STALL_MIN: Duration = Duration::from_micros(200);

/// A wake-up that is late by at most this is usual work and not the machine's delay: a poll takes under 1 us.
pub(super) const LATE_WAKEUP_MIN: Duration = Duration::from_micros(10);

/// Finds stalls from the times at which the loop is seen busy.
#[derive(Debug, Default)]
pub struct Stalls {
    seen: Option<Timestamp>,
    found: Vec<Stall>,
    late_wakeups: Vec<Stall>,
}

impl Stalls {
    /// Notes that the loop is busy at `now`.
    #[inline]
    pub fn working(&mut self, now: Timestamp) {
        if let Some(seen) = self.seen.replace(now)
            && now.since(seen) > STALL_MIN
        {
            self.found.push(Stall { from: seen, to: now });
        }
    }

    /// Notes that the loop waited from `from` to `to`, and meant to wait until `until`: its next beat, or the time
    /// `due` at which something is due. `ready`: an event had happened.
    ///
    /// A beat late by up to one beat, with nothing due and no event, delayed no request: it is a slow wake-up of an
    /// idle processor. A longer one is a stall all the same, because no event can happen while the whole machine is
    /// paused.
    ///
    /// Bias: the event may have happened at any time of the wait, so a wait that ended late counts whole.
    pub fn waited(&mut self, from: Timestamp, until: Timestamp, due: Timestamp, to: Timestamp, ready: bool) {
        self.working(from);
        self.seen = Some(to);
        self.woke(due.max(from), to);
        let late = to.since(until);
        let delays_work = ready || due <= to || late > BEAT;
        if late > STALL_MIN && delays_work {
            self.found.push(Stall { from: if ready { from } else { until.max(from) }, to });
        }
    }

    /// Notes that the loop meant to wake at `due`, and woke at `at`.
    pub fn woke(&mut self, due: Timestamp, at: Timestamp) {
        if at.since(due) > LATE_WAKEUP_MIN {
            self.late_wakeups.push(Stall { from: due, to: at });
        }
    }

    /// Moves the late wake-ups since the last call to the end of `into`.
    pub fn drain_late_wakeups_into(&mut self, into: &mut Vec<Stall>) {
        into.append(&mut self.late_wakeups);
    }

    /// Moves the stalls found since the last call to the end of `into`.
    pub fn drain_into(&mut self, into: &mut Vec<Stall>) {
        into.append(&mut self.found);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Due time of a loop in which nothing is due.
    const IDLE: Timestamp = Timestamp::MAX;

    fn us(us: u64) -> Timestamp {
        Timestamp::from_nanos(us * 1000)
    }

    fn found(stalls: &mut Stalls) -> Vec<(u64, u64)> {
        let mut found = Vec::new();
        stalls.drain_into(&mut found);
        found.iter().map(|stall| (stall.from.as_nanos() / 1000, stall.to.as_nanos() / 1000)).collect()
    }

    #[test]
    fn a_gap_while_busy_is_a_stall_and_a_wait_is_not() {
        let mut stalls = Stalls::default();
        stalls.working(us(5_000));
        stalls.working(us(5_150));
        stalls.waited(us(5_200), us(6_200), IDLE, us(6_200), false);
        stalls.waited(us(6_210), us(7_210), IDLE, us(6_900), true);
        assert_eq!(found(&mut stalls), []);
        stalls.working(us(9_900));
        assert_eq!(found(&mut stalls), [(6_900, 9_900)]);
        // The gap was before the wait, not in it.
        stalls.waited(us(12_900), us(13_900), IDLE, us(13_900), false);
        assert_eq!(found(&mut stalls), [(9_900, 12_900)]);
    }

    #[test]
    fn a_late_wait_with_an_event_is_a_stall_of_its_whole_length() {
        let mut stalls = Stalls::default();
        stalls.waited(us(100), us(1_100), IDLE, us(4_000), false);
        assert_eq!(found(&mut stalls), [(1_100, 4_000)]);
        stalls.waited(us(4_010), us(5_010), IDLE, us(8_000), true);
        assert_eq!(found(&mut stalls), [(4_010, 8_000)]);
        // A wait without an end is not late.
        stalls.waited(us(8_010), Timestamp::MAX, IDLE, us(900_000), true);
        assert_eq!(found(&mut stalls), []);
    }

    #[test]
    fn a_wake_up_is_late_if_something_was_due_over_10_us_before() {
        let mut stalls = Stalls::default();
        // In time, at a beat with nothing due, and by an event before the due time.
        stalls.waited(us(100), us(200), us(200), us(205), false);
        stalls.waited(us(300), us(400), IDLE, us(500), false);
        stalls.waited(us(600), us(700), us(700), us(650), true);
        // Late; and due before the wait began.
        stalls.waited(us(800), us(900), us(900), us(930), false);
        stalls.waited(us(1_000), us(1_100), us(990), us(1_050), true);
        let mut late = Vec::new();
        stalls.drain_late_wakeups_into(&mut late);
        let late: Vec<_> = late.iter().map(|late| (late.from, late.to)).collect();
        assert_eq!(late, [(us(900), us(930)), (us(1_000), us(1_050))]);
    }

    #[test]
    fn a_slow_wake_up_without_events_is_not_a_stall() {
        let mut stalls = Stalls::default();
        stalls.waited(us(0), us(1_000), IDLE, us(1_900), false);
        assert_eq!(found(&mut stalls), []);
        // Something was due, an event had happened, or it took longer than a wake-up.
        stalls.waited(us(1_910), us(2_000), us(2_400), us(2_500), false);
        stalls.waited(us(2_510), us(3_000), IDLE, us(3_500), true);
        stalls.waited(us(3_510), us(4_000), IDLE, us(5_100), false);
        assert_eq!(found(&mut stalls), [(2_000, 2_500), (2_510, 3_500), (4_000, 5_100)]);
    }

    /// A stall in an awake loop is found wherever it begins, if it is longer than a beat and the shortest stall; one
    /// without events, if it is longer than two beats.
    #[test]
    fn every_stall_longer_than_a_beat_is_found() {
        let beat = BEAT.as_micros() as u64;
        let least = STALL_MIN.as_micros() as u64;
        for begins in (0..3 * beat).step_by(50) {
            for has_response in [false, true] {
                let shortest = if has_response { beat + least + 60 } else { 2 * beat + 60 };
                for lasts in [shortest, 3_000, 5_000, 15_000] {
                    let mut stalls = Stalls::default();
                    stalls.working(us(0));
                    let (mut now, mut stalled) = (0, false);
                    // The machine stalls once, from `begins` on.
                    let mut pass = |now: &mut u64, by: u64| {
                        let (from, to) = (*now, *now + by);
                        let stops = !stalled && (from..=to).contains(&begins);
                        stalled |= stops;
                        *now = if stops { to.max(begins + lasts) } else { to };
                    };
                    while now < 60_000 {
                        pass(&mut now, 50);
                        stalls.working(us(now));
                        let (from, until) = (now, next_beat_after(us(now)));
                        let whole = until.as_nanos() / 1000 - from;
                        // A response ends the wait halfway.
                        pass(&mut now, if has_response { whole / 2 } else { whole });
                        stalls.waited(us(from), until, IDLE, us(now), has_response);
                    }
                    let found = found(&mut stalls);
                    let covers = |&(from, to): &(u64, u64)| from <= begins + beat && to >= begins + lasts;
                    assert!(found.len() == 1 && found.iter().any(covers), "{begins} {lasts} {has_response}: {found:?}");
                }
            }
        }
    }
}
