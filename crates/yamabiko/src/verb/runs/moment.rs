//! Moments as typed to find runs: a day, a minute, or so long ago. Runs are named by their moments in UTC, and so are these.

use std::str::FromStr;
use std::time::{Duration, SystemTime};

use jiff::civil::{Date, DateTime};
use store::rfc3339;
use units::parse_duration;

/// A span of moments from its first second to its last, both as the names of runs write them: `20261120-093005`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Moment {
    /// Its first second.
    pub first: String,
    /// Its last.
    pub last: String,
}

impl FromStr for Moment {
    type Err = String;

    fn from_str(typed: &str) -> Result<Self, String> {
        #[allow(clippy::disallowed_methods, reason = "`2h` is so long before this moment")]
        parse(typed, SystemTime::now())
    }
}

fn parse(typed: &str, now: SystemTime) -> Result<Moment, String> {
    let typed = typed.trim();
    if let Ok(day) = typed.parse::<Date>()
        && typed.len() <= 10
    {
        let day = day.strftime("%Y%m%d");
        return Ok(Moment { first: format!("{day}-000000"), last: format!("{day}-235959") });
    }
    let bare = typed.strip_suffix('Z').unwrap_or(typed);
    if let Ok(moment) = bare.parse::<DateTime>() {
        let minute = moment.strftime("%Y%m%d-%H%M");
        // A minute without its second is the whole minute.
        let seconds = bare.matches(':').count() == 2;
        let second = |otherwise: i8| if seconds { moment.second() } else { otherwise };
        return Ok(Moment { first: format!("{minute}{:02}", second(0)), last: format!("{minute}{:02}", second(59)) });
    }
    let ago = ago(typed).ok_or_else(|| {
        format!(
            "`{typed}` is not a valid time: expected a form such as 2026-11-20, 2026-11-20T09:30 (UTC), or 7d, 12h ago"
        )
    })?;
    let then = now.checked_sub(ago).unwrap_or(SystemTime::UNIX_EPOCH);
    let compact: String = rfc3339(then).chars().take(19).filter(|c| !matches!(c, '-' | ':')).collect();
    let name = compact.replace('T', "-");
    Ok(Moment { first: name.clone(), last: name })
}

/// Days and weeks besides the units of every duration.
fn ago(typed: &str) -> Option<Duration> {
    let days = |number: &str, days: u64| {
        number.parse::<u32>().ok().map(|number| Duration::from_secs(86_400 * days * u64::from(number)))
    };
    match (typed.strip_suffix('d'), typed.strip_suffix('w')) {
        (Some(number), _) => days(number, 1),
        (_, Some(number)) => days(number, 7),
        _ => parse_duration(typed).ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_parsed_as_dates_or_ages() {
        // 2026-11-20 09:30:05 UTC.
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_795_167_005);
        let of = |typed: &str| parse(typed, now).map(|moment| format!("{} {}", moment.first, moment.last));
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
