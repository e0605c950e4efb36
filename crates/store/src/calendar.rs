//! Wall-clock moments as text, in UTC: the run's name and `started_at`. Handed in, never read here.

use std::time::{SystemTime, UNIX_EPOCH};

/// A moment split into its parts, proleptic Gregorian, UTC.
pub(crate) struct Utc {
    year: i64,
    month: u32,
    day: u32,
    hour: u64,
    minute: u64,
    second: u64,
    milli: u32,
}

impl Utc {
    /// Moments before 1970 become 1970: no run was started then.
    pub(crate) fn from_system(moment: SystemTime) -> Self {
        let since = moment.duration_since(UNIX_EPOCH).unwrap_or_default();
        let (days, in_day) = (since.as_secs() / 86_400, since.as_secs() % 86_400);
        let (year, month, day) = civil(i64::try_from(days).unwrap_or(i64::MAX / 2));
        let (hour, minute, second) = (in_day / 3600, in_day / 60 % 60, in_day % 60);
        Utc { year, month, day, hour, minute, second, milli: since.subsec_millis() }
    }

    /// `20261120-093005`: sorts by time.
    pub(crate) fn compact(&self) -> String {
        let Utc { year, month, day, hour, minute, second, .. } = self;
        format!("{year:04}{month:02}{day:02}-{hour:02}{minute:02}{second:02}")
    }
}

/// `2026-11-20T09:30:05.123Z`: RFC 3339, UTC, to the millisecond (rounded down).
pub fn rfc3339(moment: SystemTime) -> String {
    let Utc { year, month, day, hour, minute, second, milli } = Utc::from_system(moment);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{milli:03}Z")
}

/// Milliseconds since 1970 of a moment as [`rfc3339`] writes it; `None` for any other text.
pub fn unix_ms(moment: &str) -> Option<u64> {
    let bytes = moment.as_bytes();
    let shape = b"0000-00-00T00:00:00.000Z";
    let fits = |(&byte, &wanted): (&u8, &u8)| if wanted == b'0' { byte.is_ascii_digit() } else { byte == wanted };
    if bytes.len() != shape.len() || !bytes.iter().zip(shape).all(fits) {
        return None;
    }
    let number = |from: usize, to: usize| moment[from..to].parse::<u64>().ok();
    let (year, month, day) = (number(0, 4)?, number(5, 7)?, number(8, 10)?);
    let days = days_since_1970(year, month, day)?;
    let seconds = ((days * 24 + number(11, 13)?) * 60 + number(14, 16)?) * 60 + number(17, 19)?;
    Some(seconds * 1000 + number(20, 23)?)
}

/// The inverse of [`civil`], from 1970 on. Source: H. Hinnant, `days_from_civil`.
fn days_since_1970(year: u64, month: u64, day: u64) -> Option<u64> {
    if !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    let shifted = if month <= 2 { year.checked_sub(1)? } else { year };
    let (era, year_of_era) = (shifted / 400, shifted % 400);
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    (era * 146_097 + day_of_era).checked_sub(719_468)
}

/// `Fri Nov 20 09:30:05 2026`: as C's ctime writes it, in UTC.
pub fn ctime(moment: SystemTime) -> String {
    const DAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
    const MONTHS: [&str; 12] = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let Utc { year, month, day, hour, minute, second, .. } = Utc::from_system(moment);
    // 1970 began on a Thursday.
    let days = moment.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs() / 86_400;
    let (weekday, month) = (DAYS[(days % 7) as usize], MONTHS[month as usize - 1]);
    format!("{weekday} {month} {day:02} {hour:02}:{minute:02}:{second:02} {year}")
}

/// Year, month and day of a day counted from 1970-01-01.
///
/// Source: H. Hinnant, "chrono-Compatible Low-Level Date Algorithms", `civil_from_days`: years begin in March, so that
/// the leap day is the last, and 400 years are one period of 146,097 days.
fn civil(days: i64) -> (i64, u32, u32) {
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let day_of_era = shifted.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let march_month = (5 * day_of_year + 2) / 153;
    let day = (day_of_year - (153 * march_month + 2) / 5 + 1) as u32;
    let month = if march_month < 10 { march_month + 3 } else { march_month - 9 } as u32;
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    (year, month, day)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn at(seconds: u64) -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(seconds)
    }

    #[test]
    fn known_moments() {
        // Each pair is what `date -u -d @SECONDS` prints.
        assert_eq!(rfc3339(at(0)), "1970-01-01T00:00:00.000Z");
        assert_eq!(rfc3339(at(951_782_399)), "2000-02-28T23:59:59.000Z");
        assert_eq!(rfc3339(at(951_782_400)), "2000-02-29T00:00:00.000Z");
        assert_eq!(rfc3339(at(951_868_800)), "2000-03-01T00:00:00.000Z");
        assert_eq!(rfc3339(at(1_735_689_599)), "2024-12-31T23:59:59.000Z");
        assert_eq!(rfc3339(at(4_107_542_400)), "2100-03-01T00:00:00.000Z");
        assert_eq!(Utc::from_system(at(1_735_689_599)).compact(), "20241231-235959");
        assert_eq!(rfc3339(UNIX_EPOCH + Duration::from_millis(1_500)), "1970-01-01T00:00:01.500Z");
    }

    #[test]
    fn moments_are_read_back() {
        for seconds in [0, 951_782_399, 951_868_800, 1_735_689_599, 1_795_167_005, 4_107_542_400] {
            assert_eq!(unix_ms(&rfc3339(at(seconds) + Duration::from_millis(123))), Some(seconds * 1000 + 123));
        }
        let wrong = [
            "",
            "2026-11-20T09:30:05Z",
            "2026-13-20T09:30:05.000Z",
            "1969-12-31T23:59:59.000Z",
            "2026-11-20T09:30:05.000\u{e9}",
        ];
        assert!(wrong.iter().all(|text| unix_ms(text).is_none()));
    }

    #[test]
    fn moments_as_ctime_writes_them() {
        assert_eq!(ctime(at(0)), "Thu Jan 01 00:00:00 1970");
        assert_eq!(ctime(at(951_782_400)), "Tue Feb 29 00:00:00 2000");
        assert_eq!(ctime(at(1_795_167_005)), "Fri Nov 20 09:30:05 2026");
    }

    #[test]
    fn each_day_follows_the_one_before() {
        let mut before = civil(-1);
        assert_eq!(before, (1969, 12, 31));
        for days in 0..60_000 {
            let (year, month, day) = civil(days);
            let follows = (year, month, day) == (before.0, before.1, before.2 + 1)
                || (year, month, day) == (before.0, before.1 + 1, 1)
                || (year, month, day) == (before.0 + 1, 1, 1);
            assert!(follows, "{before:?} then {year}-{month}-{day}");
            before = (year, month, day);
        }
    }
}
