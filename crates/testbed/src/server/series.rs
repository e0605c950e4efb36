//! The server's resource usage, second by second.

use std::time::Duration;

use schema::ServerSecond;
use units::Timestamp;

use super::Account;

const SECOND: Duration = Duration::from_secs(1);

/// Collects a row per second from readings that may be late.
#[derive(Debug, Default)]
pub struct Series {
    /// The last reading that ended a row, and the first one.
    last: Option<(Timestamp, Account)>,
    began: Timestamp,
    rows: Vec<ServerSecond>,
    /// Resource usage at the start, and receive processing in the rows so far.
    first: Option<Account>,
    received_s: f64,
}

impl Series {
    /// Begins the measured phase at `now`, with this resource usage.
    pub fn begin(&mut self, now: Timestamp, account: Account) {
        self.began = now;
        self.first = Some(account.clone());
        self.last = Some((now, account));
    }

    /// When the next reading is due; none before the start.
    pub fn due(&self) -> Option<Timestamp> {
        // Relative to the phase, not to the last reading, so that delays do not add up.
        self.last.as_ref().map(|(at, _)| self.began + SECOND * (at.since(self.began).as_secs() as u32 + 1))
    }

    /// Adds a row for the time since the last reading. `steered`: whether the server's packets are received on its own
    /// cores; `bounded`: whether it has a CPU limit.
    pub fn add(&mut self, now: Timestamp, account: Account, steered: bool, bounded: bool) {
        let Some((at, earlier)) = &self.last else { return };
        let elapsed_s = now.since(*at).as_secs_f64();
        if elapsed_s <= 0.0 {
            return;
        }
        let since = |now: Duration, before: Duration| now.saturating_sub(before).as_secs_f64();
        // The total so far less that of earlier rows: idle time advances in steps, whose errors must not add up.
        let spent = self.first.as_ref().filter(|_| steered).and_then(|first| account.spent_since(first, 0.0));
        let received = spent.map(|spent| (spent.receive - self.received_s).max(0.0));
        self.received_s += received.unwrap_or(0.0);
        let periods = account.periods.zip(earlier.periods).filter(|_| bounded);
        let throttled = account.throttled.zip(earlier.throttled).filter(|_| bounded);
        self.rows.push(ServerSecond {
            second: at.since(self.began).as_secs() as u32,
            at_ns: now.as_nanos(),
            elapsed_s,
            cpu_user_s: since(account.user, earlier.user),
            cpu_system_s: since(account.system, earlier.system),
            cpu_receive_s: received,
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

    /// All rows. The last may be shorter than a second.
    pub fn into_rows(self) -> Vec<ServerSecond> {
        self.rows
    }
}

#[cfg(test)]
mod tests {
    use sys::cgroup::Periods;

    use super::super::attribution::CoreTimes;
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
            times: None,
        }
    }

    #[test]
    fn a_late_reading_covers_a_longer_time_and_does_not_delay_later_ones() {
        let mut series = Series::default();
        assert_eq!(series.due(), None);
        series.add(at(500), account(1, (1, 1)), false, true);
        series.begin(at(1_500), account(100, (10, 0)));
        assert_eq!(series.due(), Some(at(2_500)));
        series.add(at(2_510), account(300, (210, 100)), false, true);
        assert_eq!(series.due(), Some(at(3_500)));
        // A reading so late that one second has no row of its own.
        series.add(at(4_600), account(500, (600, 200)), false, true);
        assert_eq!(series.due(), Some(at(5_500)));
        series.add(at(4_600), account(500, (600, 200)), false, true);
        let rows = series.into_rows();
        assert_eq!(rows.iter().map(|row| row.second).collect::<Vec<_>>(), [0, 1]);
        assert!((rows[0].elapsed_s - 1.01).abs() < 1e-9 && (rows[1].elapsed_s - 2.09).abs() < 1e-9);
        assert!((rows[0].cpu_user_s - 0.2).abs() < 1e-9 && (rows[0].cpu_system_s - 0.1).abs() < 1e-9);
        assert_eq!((rows[0].periods, rows[0].periods_throttled), (Some(200), Some(100)));
        assert_eq!((rows[1].rss_bytes, rows[1].descriptors, rows[1].at_ns), (1500, Some(7), 4_600_000_000));
        assert_eq!(rows[1].cpu_receive_s, None);
    }

    #[test]
    fn receive_processing_of_the_rows_adds_up_to_the_total() {
        let ms = Duration::from_millis;
        // One core: per second 20 ms of the server and 10 of interrupts; idle time advances in steps of 20 ms.
        let of = |second: u64| {
            let idle = ms(second * 970 / 20 * 20);
            let times = CoreTimes {
                at: ms(second * 1000),
                cores: 1,
                idle: [idle, idle],
                tasks: Some(ms(second * 20)),
                ..CoreTimes::default()
            };
            Account { user: ms(second * 20), system: Duration::ZERO, times: Some(times), ..account(0, (0, 0)) }
        };
        let mut series = Series::default();
        series.begin(at(0), of(0));
        (1..=10).for_each(|second| series.add(at(second * 1000), of(second), true, false));
        let rows = series.into_rows();
        let received: Vec<f64> = rows.iter().filter_map(|row| row.cpu_receive_s).collect();
        assert_eq!(received.len(), 10);
        let sum: f64 = received.iter().sum();
        assert!((sum - 0.1).abs() < 0.021, "{received:?}");
    }

    #[test]
    fn without_a_cpu_limit_rows_have_no_throttled_time() {
        let mut series = Series::default();
        series.begin(at(0), account(0, (0, 0)));
        series.add(at(1_000), account(10, (5, 5)), false, false);
        let rows = series.into_rows();
        assert_eq!((rows[0].throttled_s, rows[0].periods, rows[0].periods_throttled), (None, None, None));
    }
}
