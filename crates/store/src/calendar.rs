//! Wall-clock times as text, in UTC: for run ids and `started_at`. The time is a parameter; no clock is read.

use std::time::{SystemTime, UNIX_EPOCH};

use jiff::SignedDuration;
use jiff::civil::DateTime;

/// A time in UTC to the second, and its milliseconds. Times before 1970 become 1970.
fn civil(time: SystemTime) -> (DateTime, u32) {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    let seconds = SignedDuration::from_secs(i64::try_from(since.as_secs()).unwrap_or(i64::MAX));
    (EPOCH.saturating_add(seconds), since.subsec_millis())
}

const EPOCH: DateTime = DateTime::constant(1970, 1, 1, 0, 0, 0, 0);

/// `20261120-093005`: sorts by time.
pub(crate) fn compact(time: SystemTime) -> String {
    civil(time).0.strftime("%Y%m%d-%H%M%S").to_string()
}

/// `2026-11-20T09:30:05.123Z`: RFC 3339, UTC, to the millisecond (rounded down).
pub fn rfc3339(time: SystemTime) -> String {
    let (civil, milli) = civil(time);
    format!("{civil}.{milli:03}Z")
}

/// Milliseconds since 1970 of a text in the format of [`rfc3339`]; `None` for any other text.
pub fn unix_ms(text: &str) -> Option<u64> {
    let bytes = text.as_bytes();
    let shape = b"0000-00-00T00:00:00.000Z";
    let fits = |(&byte, &expected): (&u8, &u8)| if expected == b'0' { byte.is_ascii_digit() } else { byte == expected };
    if bytes.len() != shape.len() || !bytes.iter().zip(shape).all(fits) {
        return None;
    }
    let civil: DateTime = text[..19].parse().ok()?;
    let seconds = u64::try_from(civil.duration_since(EPOCH).as_secs()).ok()?;
    Some(seconds * 1000 + text[20..23].parse::<u64>().ok()?)
}

/// `Fri Nov 20 09:30:05 2026`: as C's ctime writes it, in UTC.
pub fn ctime(time: SystemTime) -> String {
    civil(time).0.strftime("%a %b %d %H:%M:%S %Y").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn at(seconds: u64) -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(seconds)
    }

    #[test]
    fn calendar_matches_known_times() {
        // Each pair is what `date -u -d @SECONDS` prints.
        assert_eq!(rfc3339(at(0)), "1970-01-01T00:00:00.000Z");
        assert_eq!(rfc3339(at(951_782_399)), "2000-02-28T23:59:59.000Z");
        assert_eq!(rfc3339(at(951_782_400)), "2000-02-29T00:00:00.000Z");
        assert_eq!(rfc3339(at(951_868_800)), "2000-03-01T00:00:00.000Z");
        assert_eq!(rfc3339(at(1_735_689_599)), "2024-12-31T23:59:59.000Z");
        assert_eq!(rfc3339(at(4_107_542_400)), "2100-03-01T00:00:00.000Z");
        assert_eq!(compact(at(1_735_689_599)), "20241231-235959");
        assert_eq!(rfc3339(UNIX_EPOCH + Duration::from_millis(1_500)), "1970-01-01T00:00:01.500Z");
    }

    #[test]
    fn rfc3339_times_round_trip() {
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
    fn ctime_format_matches_c() {
        assert_eq!(ctime(at(0)), "Thu Jan 01 00:00:00 1970");
        assert_eq!(ctime(at(951_782_400)), "Tue Feb 29 00:00:00 2000");
        assert_eq!(ctime(at(1_795_167_005)), "Fri Nov 20 09:30:05 2026");
    }
}
