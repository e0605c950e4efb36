//! HTTP dates, and the `Date` field that all responses of one second share.

mod read;

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use jiff::SignedDuration;
use jiff::civil::DateTime;
use units::Timestamp;

pub(crate) use read::read_date;

/// `Date: Sun, 06 Nov 1994 08:49:37 GMT` and its line end, rebuilt once a second; behind it optionally a field that all
/// responses of this server have, too.
#[derive(Debug)]
pub(crate) struct DateField {
    line: Vec<u8>,
    made_at_s: u64,
}

impl DateField {
    /// The field as of now.
    pub(crate) fn new(now: Timestamp) -> Self {
        let mut field = DateField { line: b"Date: Thu, 01 Jan 1970 00:00:00 GMT\r\n".to_vec(), made_at_s: 0 };
        field.make(now);
        field
    }

    /// Reads the wall clock if a second of the monotonic clock has begun since the last time.
    pub(crate) fn refresh(&mut self, now: Timestamp) {
        if seconds(now) != self.made_at_s {
            self.make(now);
        }
    }

    /// Appends a field line, with its line end, that follows the date in every response of this server.
    pub(crate) fn append(&mut self, line: &[u8]) {
        self.line.extend_from_slice(line);
    }

    /// The field lines that follow the date; for responses that have a date of their own.
    pub(crate) fn appended(&self) -> &[u8] {
        &self.line[DATE_LINE_BYTES..]
    }

    /// The field with its CR LF, and those that follow.
    pub(crate) fn line(&self) -> &[u8] {
        &self.line
    }

    #[allow(clippy::disallowed_methods, reason = "Date has the wall clock; no duration is computed from it")]
    fn make(&mut self, now: Timestamp) {
        self.made_at_s = seconds(now);
        self.line[6..35].copy_from_slice(&http_date(SystemTime::now()));
    }
}

/// Whole seconds of a timestamp.
pub(crate) fn seconds(at: Timestamp) -> u64 {
    at.as_nanos() / 1_000_000_000
}

/// [`http_date`] of seconds since 1970.
pub(crate) fn http_date_s(unix_s: i64) -> [u8; 29] {
    http_date(UNIX_EPOCH + Duration::from_secs(u64::try_from(unix_s).unwrap_or(0).min(END_OF_9999)))
}

/// RFC 9110, section 5.6.7: IMF-fixdate. Times before 1970 become 1970, times after 9999 the end of 9999.
pub(crate) fn http_date(at: SystemTime) -> [u8; 29] {
    let unix = at.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs()).min(END_OF_9999);
    let civil = civil(unix);
    let mut text = *b"Thu, 01 Jan 1970 00:00:00 GMT";
    text[..3].copy_from_slice(WEEKDAYS[civil.weekday().to_sunday_zero_offset() as usize]);
    two_digits(&mut text[5..7], civil.day());
    text[8..11].copy_from_slice(MONTHS[civil.month() as usize - 1]);
    write_year_and_time(&mut text[12..25], civil);
    text
}

/// `1994 08:49:37`; the byte between year and time is unchanged.
pub(crate) fn write_year_and_time(at: &mut [u8], civil: DateTime) {
    two_digits(&mut at[0..2], (civil.year() / 100) as i8);
    two_digits(&mut at[2..4], (civil.year() % 100) as i8);
    two_digits(&mut at[5..7], civil.hour());
    two_digits(&mut at[8..10], civil.minute());
    two_digits(&mut at[11..13], civil.second());
}

/// Date and time in UTC of seconds since 1970; the end of 9999 for later times.
pub(crate) fn civil(unix_s: u64) -> DateTime {
    let since = SignedDuration::from_secs(unix_s.min(END_OF_9999) as i64);
    DateTime::constant(1970, 1, 1, 0, 0, 0, 0).saturating_add(since)
}

pub(crate) fn two_digits(at: &mut [u8], value: i8) {
    at[0] = b'0' + (value / 10) as u8;
    at[1] = b'0' + (value % 10) as u8;
}

/// The Date field with its line end.
const DATE_LINE_BYTES: usize = 37;
const WEEKDAYS: [&[u8; 3]; 7] = [b"Sun", b"Mon", b"Tue", b"Wed", b"Thu", b"Fri", b"Sat"];
pub(crate) const MONTHS: [&[u8; 3]; 12] =
    [b"Jan", b"Feb", b"Mar", b"Apr", b"May", b"Jun", b"Jul", b"Aug", b"Sep", b"Oct", b"Nov", b"Dec"];
/// The format has four digits for the year.
const END_OF_9999: u64 = 253_402_300_799;

#[cfg(test)]
mod tests {
    use super::*;

    fn date(unix: u64) -> String {
        String::from_utf8(http_date(UNIX_EPOCH + Duration::from_secs(unix)).to_vec()).unwrap()
    }

    #[test]
    fn known_times_are_formatted_as_http_dates() {
        assert_eq!(date(0), "Thu, 01 Jan 1970 00:00:00 GMT");
        // The example of RFC 9110.
        assert_eq!(date(784_111_777), "Sun, 06 Nov 1994 08:49:37 GMT");
        // Around leap days: 2000 has one, 1900 and 2100 do not.
        assert_eq!(date(951_782_399), "Mon, 28 Feb 2000 23:59:59 GMT");
        assert_eq!(date(951_782_400), "Tue, 29 Feb 2000 00:00:00 GMT");
        assert_eq!(date(4_107_542_399), "Sun, 28 Feb 2100 23:59:59 GMT");
        assert_eq!(date(4_107_542_400), "Mon, 01 Mar 2100 00:00:00 GMT");
        assert_eq!(date(END_OF_9999), "Fri, 31 Dec 9999 23:59:59 GMT");
        assert_eq!(date(END_OF_9999 + 1), date(END_OF_9999));
    }

    #[test]
    fn the_date_field_starts_at_its_offset_in_the_line() {
        let field = DateField::new(Timestamp::ZERO);
        let line = std::str::from_utf8(field.line()).unwrap();
        assert!(line.starts_with("Date: ") && line.ends_with(" GMT\r\n"), "{line:?}");
    }
}
