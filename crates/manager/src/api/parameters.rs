//! Parses the query of a URL. Unknown and repeated parameters are rejected: a typo must not silently widen a
//! selection.

use std::collections::BTreeMap;
use std::str::FromStr;

use axum::extract::{FromRequestParts, Path, Query};
use http::Uri;
use http::request::Parts;
use jiff::{Timestamp, civil, tz::TimeZone};
use serde::de::DeserializeOwned;

use super::responses::{ApiResponse, malformed};
use crate::refused::Refused;

/// The parameters of a request, removed one after the other.
#[derive(Debug)]
pub(super) struct Parameters(BTreeMap<String, String>);

impl Parameters {
    /// Parses the query of `uri`, which may have the parameters `known`.
    pub(super) fn of(uri: &Uri, known: &[&str]) -> ApiResponse<Parameters> {
        if uri.query().is_some_and(|query| query.len() > LENGTH_MAX) {
            return Err(malformed("The query of the URL is longer than 4,096 bytes."));
        }
        let Ok(Query(pairs)) = Query::<Vec<(String, String)>>::try_from_uri(uri) else {
            return Err(malformed("The query of the URL cannot be parsed: expected NAME=VALUE&NAME=VALUE .."));
        };
        let mut found = BTreeMap::new();
        for (name, value) in pairs {
            if !known.contains(&name.as_str()) {
                return Err(malformed(match known {
                    [] => "This request has no parameters.".to_owned(),
                    known => format!("Unknown parameter. Known parameters: {}.", known.join(", ")),
                }));
            }
            if value.chars().any(|c| c.is_control() || c == char::REPLACEMENT_CHARACTER) {
                return Err(malformed(format!("`{name}` has control characters, or is not UTF-8.")));
            }
            let known = known.iter().find(|known| **known == name).copied().unwrap_or_default();
            if found.insert(name, value).is_some() {
                return Err(malformed(format!("`{known}` occurs twice; separate several values with commas.")));
            }
        }
        Ok(Parameters(found))
    }

    /// A parameter as text. An empty value is valid.
    pub(super) fn text(&mut self, name: &str) -> Option<String> {
        self.0.remove(name)
    }

    /// Values separated by commas; none if the parameter is absent. At most 100.
    pub(super) fn list(&mut self, name: &str) -> ApiResponse<Vec<String>> {
        let Some(text) = self.0.remove(name) else { return Ok(Vec::new()) };
        let values: Vec<String> = text.split(',').map(str::to_owned).collect();
        if values.len() > VALUES_MAX {
            return Err(malformed(format!("`{name}` has more than {VALUES_MAX} values.")));
        }
        Ok(values)
    }

    /// A parsed value; `what` describes the format.
    pub(super) fn parsed<T: FromStr>(&mut self, name: &str, what: &str) -> ApiResponse<Option<T>> {
        let Some(text) = self.0.remove(name) else { return Ok(None) };
        text.parse().map(Some).map_err(|_| malformed(format!("`{name}`: expected {what}.")))
    }

    /// A whole number within limits; `otherwise` if it is absent.
    pub(super) fn number(&mut self, name: &str, least: u64, greatest: u64, otherwise: u64) -> ApiResponse<u64> {
        let what = format!("a whole number from {least} to {greatest}");
        let number = self.parsed(name, &what)?.unwrap_or(otherwise);
        if !(least..=greatest).contains(&number) {
            return Err(malformed(format!("`{name}`: expected {what}.")));
        }
        Ok(number)
    }

    /// A time in ns since 1970, with the current time `now_ns`.
    pub(super) fn time(&mut self, name: &str, now_ns: u64) -> ApiResponse<Option<u64>> {
        let Some(text) = self.0.remove(name) else { return Ok(None) };
        time(&text, now_ns).map(Some).ok_or_else(|| {
            malformed(format!(
                "`{name}`: expected a time: 2026-11-22T10:00:00Z, 2026-11-22 10:00 (UTC), 2026-11-22, nanoseconds \
                 since 1970, or a time ago: 90s, 15min, 1h, 7d."
            ))
        })
    }
}

/// Names in the URL's path.
pub(super) struct Named<T>(pub(super) T);

impl<S: Send + Sync, T: DeserializeOwned + Send> FromRequestParts<S> for Named<T> {
    type Rejection = Refused;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> ApiResponse<Self> {
        let named = Path::from_request_parts(parts, state).await;
        let Path(names) = named.map_err(|_| malformed("A name in the path of the URL is not UTF-8."))?;
        Ok(Named(names))
    }
}

/// Parses a time; `None` for other text, and for times before 1970 or after 2200.
fn time(text: &str, now_ns: u64) -> Option<u64> {
    let inside = |ns: u64| (ns <= LAST_NS).then_some(ns);
    if text.len() > 9 && text.bytes().all(|byte| byte.is_ascii_digit()) {
        return inside(text.parse().ok()?);
    }
    let days = text.strip_suffix('d').and_then(|days| days.parse::<u32>().ok());
    if let Some(days) = days {
        return Some(now_ns.saturating_sub(u64::from(days).saturating_mul(DAY_NS)));
    }
    if let Ok(ago) = units::parse_duration(text) {
        return Some(now_ns.saturating_sub(units::time::saturating_nanos(ago)));
    }
    let at = text.parse::<Timestamp>().or_else(|error| {
        // Without a zone the time is UTC, as all stored times.
        let whole = text.parse::<civil::DateTime>();
        let whole = whole.or_else(|_| text.parse::<civil::Date>().map(|day| day.at(0, 0, 0, 0)));
        whole.and_then(|at| at.to_zoned(TimeZone::UTC)).map(|at| at.timestamp()).map_err(|_| error)
    });
    inside(u64::try_from(at.ok()?.as_nanosecond()).ok()?)
}

/// Maximum bytes of a query, and maximum values of a list.
const LENGTH_MAX: usize = 4096;
const VALUES_MAX: usize = 100;
const DAY_NS: u64 = 86_400_000_000_000;
/// The beginning of 2200. Signed 64-bit nanoseconds last until 2262.
const LAST_NS: u64 = 7_258_118_400_000_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 1_800_000_000_000_000_000;

    fn of(query: &str) -> ApiResponse<Parameters> {
        Parameters::of(&format!("/x?{query}").parse().unwrap(), &["since", "agent", "limit"])
    }

    #[test]
    fn known_parameters_are_accepted_and_others_rejected() {
        let mut good = of("since=1h&agent=a%2Cb,c&limit=7").unwrap();
        assert_eq!(good.time("since", NOW).unwrap(), Some(NOW - 3_600_000_000_000));
        assert_eq!(good.list("agent").unwrap(), ["a", "b", "c"]);
        assert_eq!(good.number("limit", 1, 10, 5).unwrap(), 7);
        assert_eq!(good.number("limit", 1, 10, 5).unwrap(), 5, "the parameter was removed when it was read");
        assert!(of("").is_ok());
        for bad in ["sinse=1h", "agent=a&agent=b", "agent=%00", "agent=%ff", "=x", "agents"] {
            assert!(of(bad).is_err(), "{bad}");
        }
        assert!(of(&format!("agent={}", "x".repeat(LENGTH_MAX))).is_err());
        for bad in ["0", "11", "-1", "1.5", "", "x", "99999999999999999999"] {
            assert!(of(&format!("limit={bad}")).unwrap().number("limit", 1, 10, 5).is_err(), "{bad}");
        }
    }

    #[test]
    fn time_parameters_are_parsed() {
        let second = |text| time(text, NOW).map(|ns| ns / 1_000_000_000);
        assert_eq!(second("2027-01-15T08:00:00Z"), Some(1_800_000_000));
        assert_eq!(second("2027-01-15T09:00:00+01:00"), Some(1_800_000_000));
        assert_eq!(second("2027-01-15 08:00"), Some(1_800_000_000));
        assert_eq!(second("2027-01-15"), Some(1_800_000_000 - 8 * 3_600));
        assert_eq!(second("1800000000000000000"), Some(1_800_000_000));
        assert_eq!(second("2d"), Some(1_800_000_000 - 2 * 86_400));
        assert_eq!(second("4294967295d"), Some(0));
        for bad in ["yesterday", "", "1969-12-31", "2201-01-01", "9999999999999999999", "-1h", "d"] {
            assert_eq!(second(bad), None, "{bad}");
        }
    }
}
