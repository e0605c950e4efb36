//! Parses the dates of cookies.

use jiff::civil::DateTime;

/// Parses a date of the attribute Expires (RFC 6265, section 5.1.1) into Unix seconds. The parts may be in any order,
/// so that the three formats of HTTP and many variants are accepted. The time zone is always UTC. `None` if a part is
/// missing or out of range.
pub(super) fn read(text: &[u8]) -> Option<i64> {
    let (mut time, mut day, mut month, mut year) = (None, None, None, None);
    for token in text.split(|&byte| is_delimiter(byte)).filter(|token| !token.is_empty()) {
        if time.is_none()
            && let Some(value) = hours_minutes_seconds(token)
        {
            time = Some(value);
        } else if day.is_none()
            && let Some(value) = number(token, 1, 2)
        {
            day = Some(value);
        } else if month.is_none()
            && let Some(value) = month_number(token)
        {
            month = Some(value);
        } else if year.is_none()
            && let Some(value) = number(token, 2, 4)
        {
            year = Some(match value {
                70..=99 => value + 1900,
                0..=69 => value + 2000,
                _ => value,
            });
        }
    }
    let (hour, minute, second) = time?;
    let year = year.filter(|&year| year >= 1601)?;
    let small = |number: u16| i8::try_from(number).ok();
    let civil =
        DateTime::new(i16::try_from(year).ok()?, month?, small(day?)?, small(hour)?, small(minute)?, small(second)?, 0);
    // jiff's Timestamp is not used, as its range ends a day before the end of the year 9999.
    Some(civil.ok()?.duration_since(DateTime::constant(1970, 1, 1, 0, 0, 0, 0)).as_secs())
}

fn is_delimiter(byte: u8) -> bool {
    matches!(byte, b'\t' | b' '..=b'/' | b';'..=b'@' | b'['..=b'`' | b'{'..=b'~')
}

/// Parses the leading digits of a token, if their number is from `least` to `most`.
fn number(token: &[u8], least: usize, most: usize) -> Option<u16> {
    let digits = token.iter().take_while(|byte| byte.is_ascii_digit()).count();
    if !(least..=most).contains(&digits) {
        return None;
    }
    str::from_utf8(&token[..digits]).ok()?.parse().ok()
}

fn hours_minutes_seconds(token: &[u8]) -> Option<(u16, u16, u16)> {
    let mut parts = token.splitn(3, |&byte| byte == b':');
    let whole = |part: &[u8]| if part.iter().all(u8::is_ascii_digit) { number(part, 1, 2) } else { None };
    Some((whole(parts.next()?)?, whole(parts.next()?)?, number(parts.next()?, 1, 2)?))
}

fn month_number(token: &[u8]) -> Option<i8> {
    const MONTHS: [&[u8]; 12] =
        [b"jan", b"feb", b"mar", b"apr", b"may", b"jun", b"jul", b"aug", b"sep", b"oct", b"nov", b"dec"];
    let front = token.get(..3)?.to_ascii_lowercase();
    MONTHS.iter().position(|month| *month == front).map(|place| place as i8 + 1)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn cookie_dates_are_parsed_in_many_formats() {
        // The example of RFC 9110 in its three formats, and common variants.
        for text in [
            "Sun, 06 Nov 1994 08:49:37 GMT",
            "Sunday, 06-Nov-94 08:49:37 GMT",
            "Sun Nov  6 08:49:37 1994",
            "Sun, 06-Nov-1994 08:49:37 GMT",
            "6 nov 1994 8:49:37",
            "1994 6 November 08:49:37Z",
        ] {
            assert_eq!(read(text.as_bytes()), Some(784_111_777), "{text}");
        }
        assert_eq!(read(b"Thu, 01 Jan 1970 00:00:00 GMT"), Some(0));
        assert_eq!(read(b"Fri, 31 Dec 9999 23:59:59 GMT"), Some(253_402_300_799));
        assert_eq!(read(b"Mon, 29-Feb-2024 00:00:00 GMT"), Some(1_709_164_800));
    }

    #[test]
    fn invalid_cookie_dates_are_ignored() {
        for text in [
            "",
            "0",
            "Sun, 06 Nov 1994",
            "06 Nov 08:49:37",
            "32 Nov 1994 08:49:37",
            "29 Feb 2023 00:00:00",
            "06 Nov 1994 24:00:00",
            "06 Nov 1994 08:60:00",
            "06 Nov 1994 08:49:60",
            "06 Nov 1600 08:49:37",
            "06 Foo 1994 08:49:37",
            "06 Nov 19945 08:49:37",
        ] {
            assert_eq!(read(text.as_bytes()), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn parsing_never_panics_on_any_text(text in "([0-9]{1,5}|:| |-|[Jj]an|[Dd]ec|.){0,20}") {
            let _ = read(text.as_bytes());
        }
    }
}
