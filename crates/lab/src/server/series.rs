//! The server's account, second by second.

use std::time::Duration;

use ledger::ServerSecond;
use sys::sched::Cores;
use units::Timestamp;

use super::Account;

const SECOND: Duration = Duration::from_secs(1);

/// Collects a row a second from readings that may come late.
#[derive(Debug, Default)]
pub struct Series {
    /// The last reading that is a row's end, and the beginning.
    last: Option<(Timestamp, Account)>,
    began: Timestamp,
    rows: Vec<ServerSecond>,
}

impl Series {
    /// The measured phase begins at `now`, with this account.
    pub fn begin(&mut self, now: Timestamp, account: Account) {
        self.began = now;
        self.last = Some((now, account));
    }

    /// When the next reading is wanted; none before the beginning.
    pub fn due(&self) -> Option<Timestamp> {
        // Of the phase, not of the last reading, so that late ones do not add up.
        self.last.as_ref().map(|(at, _)| self.began + SECOND * (at.since(self.began).as_secs() as u32 + 1))
    }

    /// A reading: the row of the time since the last one. `steered`: where the server's packets are received, if that is on its cores;
    /// `bounded`: whether it is held to a share of the processor.
    pub fn add(&mut self, now: Timestamp, account: Account, steered: Option<&Cores>, bounded: bool) {
        let Some((at, earlier)) = &self.last else { return };
        let elapsed_s = now.since(*at).as_secs_f64();
        if elapsed_s <= 0.0 {
            return;
        }
        let since = |now: Duration, before: Duration| now.saturating_sub(before).as_secs_f64();
        let periods = account.periods.zip(earlier.periods).filter(|_| bounded);
        let throttled = account.throttled.zip(earlier.throttled).filter(|_| bounded);
        self.rows.push(ServerSecond {
            second: at.since(self.began).as_secs() as u32,
            at_ns: now.as_nanos(),
            elapsed_s,
            cpu_user_s: since(account.user, earlier.user),
            cpu_system_s: since(account.system, earlier.system),
            cpu_receive_s: steered.map(|cores| account.receive_since(earlier, cores)),
            throttled_s: throttled.map(|(now, before)| since(now, before)),
            periods: periods.map(|(now, before)| now.all.saturating_sub(before.all)),
            periods_throttled: periods.map(|(now, before)| now.throttled.saturating_sub(before.throttled)),
            rss_bytes: account.rss_bytes,
            descriptors: account.descriptors,
        });
        self.last = Some((now, account));
    }

    /// The rows so far.
    pub fn rows(&self) -> &[ServerSecond] {
        &self.rows
    }

    /// The rows. The last may be of less than a second.
    pub fn into_rows(self) -> Vec<ServerSecond> {
        self.rows
    }
}

#[cfg(test)]
mod tests {
    use sys::accounting::CpuTimes;
    use sys::cgroup::Periods;

    use super::*;

    fn at(ms: u64) -> Timestamp {
        Timestamp::from_nanos(ms * 1_000_000)
    }

    fn account(user_ms: u64, periods: (u64, u64)) -> Account {
        Account {
            user: Duration::from_millis(user_ms),
            system: Duration::from_millis(user_ms / 2),
            throttled: Some(Duration::from_millis(periods.1)),
            periods: Some(Periods { all: periods.0, throttled: periods.1 }),
            rss_bytes: 1000 + user_ms,
            descriptors: Some(7),
            from_cgroup: true,
            cores: Vec::new(),
            at: Duration::ZERO,
            ours: Duration::ZERO,
        }
    }

    #[test]
    fn a_late_reading_is_of_a_longer_time_and_moves_none_after_it() {
        let mut series = Series::default();
        assert_eq!(series.due(), None);
        series.add(at(500), account(1, (1, 1)), None, true);
        series.begin(at(1_500), account(100, (10, 0)));
        assert_eq!(series.due(), Some(at(2_500)));
        series.add(at(2_510), account(300, (210, 100)), None, true);
        assert_eq!(series.due(), Some(at(3_500)));
        // So late that a second has no row.
        series.add(at(4_600), account(500, (600, 200)), None, true);
        assert_eq!(series.due(), Some(at(5_500)));
        series.add(at(4_600), account(500, (600, 200)), None, true);
        let rows = series.into_rows();
        assert_eq!(rows.iter().map(|row| row.second).collect::<Vec<_>>(), [0, 1]);
        assert!((rows[0].elapsed_s - 1.01).abs() < 1e-9 && (rows[1].elapsed_s - 2.09).abs() < 1e-9);
        assert!((rows[0].cpu_user_s - 0.2).abs() < 1e-9 && (rows[0].cpu_system_s - 0.1).abs() < 1e-9);
        assert_eq!((rows[0].periods, rows[0].periods_throttled), (Some(200), Some(100)));
        assert_eq!((rows[1].rss_bytes, rows[1].descriptors, rows[1].at_ns), (1500, Some(7), 4_600_000_000));
        assert_eq!(rows[1].cpu_receive_s, None);
    }

    #[test]
    fn receiving_is_what_is_left_of_the_time_that_was_not_idle() {
        let ms = Duration::from_millis;
        let of = |user_ms, at, ours, cores: &[(u64, u64, u64)]| {
            // What the kernel says of interrupts comes from its tick, and is not looked at.
            let times = cores.iter().map(|&(idle, iowait, steal)| CpuTimes {
                idle: ms(idle),
                iowait: ms(iowait),
                steal: ms(steal),
                softirq: ms(at),
                ..Default::default()
            });
            Account { at: ms(at), ours: ms(ours), cores: times.enumerate().collect(), ..account(user_ms, (0, 0)) }
        };
        let earlier = of(100, 5_000, 7, &[(0, 0, 0), (1_000, 50, 0), (1_000, 50, 3)]);
        // In a second its two cores were not idle for 300 and 200 ms; 2 * 150 ms of it were the server's, 10 this program's, 20 another guest's.
        let now = of(300, 6_000, 17, &[(1_000, 0, 0), (1_690, 60, 0), (1_790, 50, 23)]);
        let left = now.receive_since(&earlier, &Cores::new(vec![1, 2]));
        assert!((left - (0.3 + 0.19 - 0.3 - 0.01)).abs() < 1e-9, "{left}");
        // Idle time is told in steps of 10 ms: less than nothing is nothing.
        let idle = of(100, 5_005, 7, &[(0, 0, 0), (1_010, 50, 0), (1_010, 50, 3)]);
        assert_eq!(idle.receive_since(&earlier, &Cores::new(vec![1, 2])), 0.0);
    }

    #[test]
    fn without_a_bound_nothing_is_said_of_one() {
        let mut series = Series::default();
        series.begin(at(0), account(0, (0, 0)));
        series.add(at(1_000), account(10, (5, 5)), None, false);
        let rows = series.into_rows();
        assert_eq!((rows[0].throttled_s, rows[0].periods, rows[0].periods_throttled), (None, None, None));
    }
}
