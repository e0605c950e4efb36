//! HTTP dates sent by clients.

use jiff::civil::DateTime;

use super::{MONTHS, WEEKDAYS};

/// Seconds since 1970 of a date in one of the three forms of RFC 9110, section 5.6.7: `Sun, 06 Nov 1994 08:49:37 GMT`,
/// `Sunday, 06-Nov-94 08:49:37 GMT`, `Sun Nov 6 08:49:37 1994`. `None` for anything else. `year_now` determines the
/// century of the second form: a year more than 50 years ahead belongs to the past century.
pub(crate) fn read_date(text: &[u8], year_now: i64) -> Option<i64> {
    match text.iter().position(|&byte| byte == b',') {
        Some(3) => imf(text),
        Some(at) => rfc_850(text, at, year_now),
        None => asctime(text),
    }
}

fn imf(text: &[u8]) -> Option<i64> {
    let fits = text.len() == 29
        && WEEKDAYS.iter().any(|&name| text.starts_with(name))
        && has_at(text, 3, b", ")
        && has_at(text, 7, b" ")
        && has_at(text, 11, b" ")
        && has_at(text, 16, b" ")
        && has_at(text, 25, b" GMT");
    if !fits {
        return None;
    }
    unix_seconds(number(&text[12..16])?, &text[8..11], number(&text[5..7])?, &text[17..25])
}

fn rfc_850(text: &[u8], comma: usize, year_now: i64) -> Option<i64> {
    let (day_name, text) = text.split_at(comma);
    let fits = LONG_WEEKDAYS.contains(&day_name)
        && text.len() == 24
        && has_at(text, 0, b", ")
        && has_at(text, 4, b"-")
        && has_at(text, 8, b"-")
        && has_at(text, 11, b" ")
        && has_at(text, 20, b" GMT");
    if !fits {
        return None;
    }
    let in_century = year_now - year_now.rem_euclid(100) + number(&text[9..11])?;
    let year = if in_century > year_now + 50 { in_century - 100 } else { in_century };
    unix_seconds(year, &text[5..8], number(&text[2..4])?, &text[12..20])
}

fn asctime(text: &[u8]) -> Option<i64> {
    let fits = text.len() == 24
        && WEEKDAYS.iter().any(|&name| text.starts_with(name))
        && has_at(text, 3, b" ")
        && has_at(text, 7, b" ")
        && has_at(text, 10, b" ")
        && has_at(text, 19, b" ");
    if !fits {
        return None;
    }
    let day = if text[8] == b' ' { &text[9..10] } else { &text[8..10] };
    unix_seconds(number(&text[20..24])?, &text[4..7], number(day)?, &text[11..19])
}

fn has_at(text: &[u8], at: usize, expected: &[u8]) -> bool {
    text[at..].starts_with(expected)
}

fn number(digits: &[u8]) -> Option<i64> {
    digits.iter().try_fold(0, |sum, &digit| digit.is_ascii_digit().then(|| sum * 10 + i64::from(digit - b'0')))
}

/// `time`: `08:49:37`, possibly with a leap second.
fn unix_seconds(year: i64, month: &[u8], day: i64, time: &[u8]) -> Option<i64> {
    let month = 1 + MONTHS.iter().position(|&name| name == month)? as i8;
    if !has_at(time, 2, b":") || !has_at(time, 5, b":") {
        return None;
    }
    let (hour, minute, second) = (number(&time[..2])?, number(&time[3..5])?, number(&time[6..8])?);
    if second > 60 {
        return None;
    }
    let small = |number: i64| i8::try_from(number).ok();
    // A leap second counts as the following second.
    let whole = second.min(59);
    let civil =
        DateTime::new(i16::try_from(year).ok()?, month, small(day)?, small(hour)?, small(minute)?, small(whole)?, 0);
    Some(civil.ok()?.duration_since(DateTime::constant(1970, 1, 1, 0, 0, 0, 0)).as_secs() + second - whole)
}

const LONG_WEEKDAYS: [&[u8]; 7] = [b"Sunday", b"Monday", b"Tuesday", b"Wednesday", b"Thursday", b"Friday", b"Saturday"];

#[cfg(test)]
mod tests {
    use super::super::http_date;
    use super::*;
    use proptest::prelude::*;
    use std::time::{Duration, UNIX_EPOCH};

    fn date(text: &str) -> Option<i64> {
        read_date(text.as_bytes(), 2026)
    }

    #[test]
    fn http_dates_in_three_forms_are_parsed() {
        let expected = Some(784_111_777);
        assert_eq!(date("Sun, 06 Nov 1994 08:49:37 GMT"), expected);
        assert_eq!(date("Sunday, 06-Nov-94 08:49:37 GMT"), expected);
        assert_eq!(date("Sun Nov  6 08:49:37 1994"), expected);
        assert_eq!(date("Wed Nov 16 08:49:37 1994"), expected.map(|s| s + 864_000));
        // The current year determines the century: 76 is 50 years ahead of 2026; 77 is not 2077.
        assert_eq!(date("Sunday, 06-Nov-76 08:49:37 GMT"), date("Fri, 06 Nov 2076 08:49:37 GMT"));
        assert_eq!(date("Sunday, 06-Nov-77 08:49:37 GMT"), date("Sun, 06 Nov 1977 08:49:37 GMT"));
        assert_eq!(date("Wed, 31 Dec 1969 23:59:59 GMT"), Some(-1));
    }

    #[test]
    fn invalid_dates_are_refused() {
        for wrong in [
            "",
            "0",
            ",",
            "Sun, 06 Nov 1994 08:49:37",
            "Sun, 06 Nov 1994 08:49:37 UTC",
            "Sun, 6 Nov 1994 08:49:37 GMT",
            "Sun, 31 Nov 1994 08:49:37 GMT",
            "Sun, 29 Feb 2100 08:49:37 GMT",
            "Sun, 06 Nov 1994 24:49:37 GMT",
            "Sun, 06 Nov 1994 08:60:37 GMT",
            "Sun, 06 Nov 1994 08:49:61 GMT",
            "Sun, 06 nov 1994 08:49:37 GMT",
            "Sun, 00 Nov 1994 08:49:37 GMT",
            "Sun, 06 Nov 1994 08:49:37 GMTx",
            "Son, 06 Nov 1994 08:49:37 GMT",
            "Sunday, 06-Nov-1994 08:49:37 GMT",
            "Sun Nov 6 08:49:37 1994",
            "784111777",
        ] {
            assert_eq!(date(wrong), None, "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn written_dates_are_read_back(unix in 0i64..253_402_300_800) {
            let text = http_date(UNIX_EPOCH + Duration::from_secs(unix as u64));
            prop_assert_eq!(read_date(&text, 2026), Some(unix));
        }

        #[test]
        fn any_bytes_are_read_without_panic(text in proptest::collection::vec(any::<u8>(), 0..40)) {
            read_date(&text, 2026);
        }

        #[test]
        fn damaged_dates_are_read_without_panic(at in 0usize..30, byte in any::<u8>(), form in 0usize..3) {
            let forms = ["Sun, 06 Nov 1994 08:49:37 GMT", "Sunday, 06-Nov-94 08:49:37 GMT", "Sun Nov  6 08:49:37 1994"];
            let mut text = forms[form].as_bytes().to_vec();
            let at = at % text.len();
            text[at] = byte;
            read_date(&text, 2026);
            text.truncate(at);
            prop_assert_eq!(read_date(&text, 2026), None);
        }
    }
}
