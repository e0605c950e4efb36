//! Parses times that select runs: a day, a minute, a second, or an age. All times are in UTC, as in the IDs of runs.

use std::str::FromStr;
use std::time::{Duration, SystemTime};

use jiff::civil::{Date, DateTime};
use store::rfc3339;
use units::parse_duration;

/// A span of time from its first second to its last, in the format of run IDs: `20261120-093005`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TimeSpan {
    /// The first second.
    pub first: String,
    /// The last second.
    pub last: String,
}

impl FromStr for TimeSpan {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        #[allow(clippy::disallowed_methods, reason = "an age such as `2h` is relative to the current time")]
        parse(text, SystemTime::now())
    }
}

fn parse(text: &str, now: SystemTime) -> Result<TimeSpan, String> {
    let text = text.trim();
    if let Ok(day) = text.parse::<Date>()
        && text.len() <= 10
    {
        let day = day.strftime("%Y%m%d");
        return Ok(TimeSpan { first: format!("{day}-000000"), last: format!("{day}-235959") });
    }
    let bare = text.strip_suffix('Z').unwrap_or(text);
    if let Ok(time) = bare.parse::<DateTime>() {
        let minute = time.strftime("%Y%m%d-%H%M");
        // A time without seconds is the whole minute.
        let has_seconds = bare.matches(':').count() == 2;
        let second = |default: i8| if has_seconds { time.second() } else { default };
        return Ok(TimeSpan { first: format!("{minute}{:02}", second(0)), last: format!("{minute}{:02}", second(59)) });
    }
    let ago = ago(text).ok_or_else(|| {
        format!(
            "`{text}` is not a valid time: expected a form such as 2026-11-20, 2026-11-20T09:30 (UTC), or 7d, 12h ago"
        )
    })?;
    let then = now.checked_sub(ago).unwrap_or(SystemTime::UNIX_EPOCH);
    let compact: String = rfc3339(then).chars().take(19).filter(|c| !matches!(c, '-' | ':')).collect();
    let name = compact.replace('T', "-");
    Ok(TimeSpan { first: name.clone(), last: name })
}

/// Parses an age: a duration, or a number of days or weeks.
fn ago(text: &str) -> Option<Duration> {
    let days = |number: &str, days: u64| {
        number.parse::<u32>().ok().map(|number| Duration::from_secs(86_400 * days * u64::from(number)))
    };
    match (text.strip_suffix('d'), text.strip_suffix('w')) {
        (Some(number), _) => days(number, 1),
        (_, Some(number)) => days(number, 7),
        _ => parse_duration(text).ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_parsed_as_dates_or_ages() {
        // 2026-11-20 09:30:05 UTC.
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_795_167_005);
        let of = |text: &str| parse(text, now).map(|span| format!("{} {}", span.first, span.last));
        assert_eq!(of("2026-11-19").unwrap(), "20261119-000000 20261119-235959");
        assert_eq!(of("2026-11-19T09:30").unwrap(), "20261119-093000 20261119-093059");
        assert_eq!(of("2026-11-19 09:30:07").unwrap(), "20261119-093007 20261119-093007");
        assert_eq!(of("2026-11-19T09:30:07Z").unwrap(), "20261119-093007 20261119-093007");
        assert_eq!(of("1d").unwrap(), "20261119-093005 20261119-093005");
        assert_eq!(of("1w").unwrap(), "20261113-093005 20261113-093005");
        assert_eq!(of("90m").unwrap(), "20261120-080005 20261120-080005");
        assert_eq!(of("999999d").unwrap(), "19700101-000000 19700101-000000");
        for wrong in ["", "yesterday", "2026-13-01", "2026-11-31", "20", "-1d", "d"] {
            assert!(of(wrong).is_err(), "{wrong}: {:?}", of(wrong));
        }
    }
}
