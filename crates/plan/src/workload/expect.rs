//! Expectations of responses, and values taken from them.

use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;

use load::workload::{BodyExpected, Expect, Source};
use regex::bytes::Regex;
use serde::{Deserialize, Serialize};
use units::Bytes;

#[cfg(feature = "cli")]
use crate::cli::WORKLOAD;

/// What a response must be for its request to count as completed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[cfg_attr(feature = "cli", derive(clap::Args), command(next_help_heading = WORKLOAD))]
pub struct ExpectPlan {
    /// Fail a request whose response has another status: 200, 2xx, 200-299, or several, separated by commas
    // Plan: Also a number or a list, `200` or `[200, 304]`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "cli", arg(id = "expect_status", long = "expect-status", value_name = "STATUS"))]
    pub status: Option<StatusSet>,
    /// Fail a request whose response body has another length: 1KB, 1KB.., ..2KB, 1KB..2KB
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "cli", arg(id = "expect_length", long = "expect-length", value_name = "LENGTH"))]
    pub length: Option<LengthRange>,
    /// Fail a request whose response body does not contain this text
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "cli", arg(id = "expect_body", long = "expect-body", value_name = "TEXT"))]
    pub body_contains: Option<String>,
    /// Regular expression that must match in the body.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "cli", arg(skip))]
    pub body_matches: Option<String>,
    /// The complete body.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "cli", arg(skip))]
    pub body_is: Option<String>,
}

impl ExpectPlan {
    /// The checks of the load generator.
    ///
    /// # Errors
    /// Nothing expected, several conditions on the body, or an invalid expression; one sentence.
    pub fn checks(&self) -> Result<Expect, String> {
        if *self == ExpectPlan::default() {
            return Err("expect is empty: give status, length, body_contains, body_matches or body_is".into());
        }
        let bytes = |text: &String| Box::from(text.as_bytes());
        let body = match (&self.body_contains, &self.body_matches, &self.body_is) {
            (None, None, None) => None,
            (Some(text), None, None) if text.is_empty() => {
                return Err("body_contains (--expect-body) is empty: expected a text".into());
            }
            (Some(text), None, None) => Some(BodyExpected::Contains(bytes(text))),
            (None, Some(expression), None) => Some(BodyExpected::Matches(regex("body_matches", expression)?)),
            (None, None, Some(text)) => Some(BodyExpected::Is(bytes(text))),
            _ => return Err("body_contains, body_matches and body_is exclude each other: give one of them".into()),
        };
        Ok(Expect {
            status: self.status.as_ref().map(|set| set.0.clone()).unwrap_or_default(),
            length: self.length.map(|range| range.from..=range.to.unwrap_or(u64::MAX)),
            body,
        })
    }

    /// Whether it has a condition on the body.
    pub fn of_body(&self) -> bool {
        self.length.is_some() || self.body_contains.is_some() || self.body_matches.is_some() || self.body_is.is_some()
    }
}

/// Where in a response a value is: one of these.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExtractPlan {
    /// Name of a header.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub header: Option<String>,
    /// JSON pointer (RFC 6901) into the body.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub json: Option<String>,
    /// Regular expression on the body; its first group, or the whole match.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub regex: Option<String>,
}

impl ExtractPlan {
    /// The source that the load generator reads.
    ///
    /// # Errors
    /// No or several places, an invalid header name, pointer or expression; one sentence.
    pub fn source(&self) -> Result<Source, String> {
        match (&self.header, &self.json, &self.regex) {
            (Some(name), None, None) => match load::parse_header(&format!("{name}:")) {
                Ok(_) if !name.contains(':') => Ok(Source::Header(name.clone())),
                _ => Err(format!("header = \"{}\" is not a valid header name", name.escape_debug())),
            },
            (None, Some(pointer), None) if pointer.is_empty() || pointer.starts_with('/') => {
                Ok(Source::Json(pointer.clone()))
            }
            (None, Some(pointer), None) => Err(format!(
                "json = \"{}\" is not a JSON pointer: expected it to begin with / , as in \"/user/id\" or \"/items/0\"",
                pointer.escape_debug()
            )),
            (None, None, Some(expression)) => Ok(Source::Body(regex("regex", expression)?)),
            _ => Err("expected exactly one of header, json and regex".into()),
        }
    }
}

fn regex(key: &str, expression: &str) -> Result<Regex, String> {
    Regex::new(expression).map_err(|error| {
        // The last line states the error; those before show its position.
        let error = error.to_string();
        let why = error.lines().last().unwrap_or_default().trim_start_matches("error: ").to_owned();
        format!("{key} = \"{}\" is not a valid regular expression: {why}", expression.escape_debug())
    })
}

/// Ranges of statuses. Printed and parsed as `2xx, 304, 400-404`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "StatusTyped", into = "String")]
pub struct StatusSet(pub Vec<RangeInclusive<u16>>);

/// The forms of a status in a plan.
#[derive(Deserialize)]
#[serde(
    untagged,
    expecting = "status is a number such as 200, a list such as [200, 304], or text such as \"2xx\" or \"200-299\""
)]
enum StatusTyped {
    One(u16),
    Text(String),
    Several(Vec<StatusTyped>),
}

const STATUS_EXPECTED_FORM: &str =
    "expected a status from 200 to 599, such as 200, `2xx`, or `200-299`, or several, separated by commas";

impl FromStr for StatusSet {
    type Err = String;

    fn from_str(typed: &str) -> Result<Self, String> {
        let refused = || format!("`{}` is not a valid status: {STATUS_EXPECTED_FORM}", typed.escape_debug());
        let ranges = typed.split(',').map(str::trim).map(|part| {
            if let Some(class) = part.to_ascii_lowercase().strip_suffix("xx") {
                return class
                    .parse::<u16>()
                    .ok()
                    .filter(|class| (2..=5).contains(class))
                    .map(|class| class * 100..=class * 100 + 99);
            }
            let (from, to) = part.split_once('-').unwrap_or((part, part));
            let (from, to) = (from.trim().parse().ok()?, to.trim().parse().ok()?);
            ((200..=599).contains(&from) && (from..=599).contains(&to)).then_some(from..=to)
        });
        ranges.collect::<Option<Vec<_>>>().map(StatusSet).ok_or_else(refused)
    }
}

impl TryFrom<StatusTyped> for StatusSet {
    type Error = String;

    fn try_from(typed: StatusTyped) -> Result<Self, String> {
        match typed {
            StatusTyped::One(status) => status.to_string().parse(),
            StatusTyped::Text(text) => text.parse(),
            StatusTyped::Several(several) if several.is_empty() => {
                Err(format!("status = [] is empty: {STATUS_EXPECTED_FORM}"))
            }
            StatusTyped::Several(several) => {
                let sets = several.into_iter().map(StatusSet::try_from).collect::<Result<Vec<_>, _>>()?;
                Ok(StatusSet(sets.into_iter().flat_map(|set| set.0).collect()))
            }
        }
    }
}

impl fmt::Display for StatusSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, range) in self.0.iter().enumerate() {
            let (from, to) = (*range.start(), *range.end());
            f.write_str(if place > 0 { ", " } else { "" })?;
            match to - from {
                0 => write!(f, "{from}")?,
                99 if from % 100 == 0 => write!(f, "{}xx", from / 100)?,
                _ => write!(f, "{from}-{to}")?,
            }
        }
        Ok(())
    }
}

impl From<StatusSet> for String {
    fn from(set: StatusSet) -> String {
        set.to_string()
    }
}

/// Range of body lengths in bytes, both ends included. Printed and parsed as `1KB..2KB`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct LengthRange {
    /// Least.
    pub from: u64,
    /// Most; `None`: no limit.
    pub to: Option<u64>,
}

impl FromStr for LengthRange {
    type Err = String;

    fn from_str(typed: &str) -> Result<Self, String> {
        let refused = || {
            format!(
                "`{}` is not a valid length: expected 1KB (exactly), 1KB.. , ..2KB or 1KB..2KB",
                typed.escape_debug()
            )
        };
        let bytes = |text: &str| text.trim().parse::<Bytes>().map(|bytes| bytes.0).map_err(|_| refused());
        let range = match typed.split_once("..") {
            None => {
                let exact = bytes(typed)?;
                LengthRange { from: exact, to: Some(exact) }
            }
            Some((from, to)) if !(from.trim().is_empty() && to.trim().is_empty()) => LengthRange {
                from: if from.trim().is_empty() { 0 } else { bytes(from)? },
                to: if to.trim().is_empty() { None } else { Some(bytes(to)?) },
            },
            Some(_) => return Err(refused()),
        };
        if range.to.is_some_and(|to| to < range.from) {
            return Err(refused());
        }
        Ok(range)
    }
}

impl fmt::Display for LengthRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let from = Bytes(self.from);
        match self.to {
            None => write!(f, "{from}.."),
            Some(to) if to == self.from => write!(f, "{from}"),
            Some(to) => write!(f, "{from}..{}", Bytes(to)),
        }
    }
}

impl TryFrom<String> for LengthRange {
    type Error = String;

    fn try_from(typed: String) -> Result<Self, String> {
        typed.parse()
    }
}

impl From<LengthRange> for String {
    fn from(range: LengthRange) -> String {
        range.to_string()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn statuses_parse_as_numbers_classes_ranges_and_lists() {
        let read = |typed: &str| typed.parse::<StatusSet>().map(|set| set.to_string());
        for (typed, printed) in [
            ("200", "200"),
            ("2xx", "2xx"),
            ("2XX,304", "2xx, 304"),
            ("200-299", "2xx"),
            (" 400 - 404 , 500", "400-404, 500"),
        ] {
            assert_eq!(read(typed).as_deref(), Ok(printed));
        }
        for bad in ["", "2x", "6xx", "1xx", "20", "199", "600", "299-200", "200,", "-200", "ok"] {
            assert!(read(bad).unwrap_err().contains("200-299"), "{bad}");
        }
    }

    #[test]
    fn lengths_parse_as_exact_or_open_ranges() {
        let read = |typed: &str| typed.parse::<LengthRange>().map(|range| (range.from, range.to));
        assert_eq!(read("1KB"), Ok((1000, Some(1000))));
        assert_eq!(read("1KB.."), Ok((1000, None)));
        assert_eq!((read("..2KiB"), read("0B..0B")), (Ok((0, Some(2048))), Ok((0, Some(0)))));
        for bad in ["", "..", "1000", "2KB..1KB", "1KB..2KB..3KB", "-1B.."] {
            assert!(read(bad).unwrap_err().contains("1KB..2KB"), "{bad}");
        }
    }

    #[test]
    fn invalid_expectations_and_extractions_are_refused() {
        let expect = |change: fn(&mut ExpectPlan)| {
            let mut plan = ExpectPlan::default();
            change(&mut plan);
            plan.checks().map(drop).unwrap_err()
        };
        assert!(expect(|_| {}).contains("expect is empty"));
        assert!(expect(|plan| plan.body_contains = Some(String::new())).contains("empty"));
        let bad = expect(|plan| plan.body_matches = Some("a(b".into()));
        assert!(bad.contains("`a(b`") || bad.contains("a(b") && bad.contains("unclosed group"), "{bad}");
        assert!(
            expect(|plan| (plan.body_is, plan.body_contains) = (Some("a".into()), Some("b".into())))
                .contains("one of them")
        );
        let extract = |plan: ExtractPlan| plan.source().map(drop).unwrap_err();
        assert!(extract(ExtractPlan::default()).contains("one of header"));
        assert!(
            extract(ExtractPlan { header: Some("a b".into()), ..Default::default() })
                .contains("not a valid header name")
        );
        assert!(
            extract(ExtractPlan { header: Some("a: b".into()), ..Default::default() })
                .contains("not a valid header name")
        );
        assert!(extract(ExtractPlan { json: Some("user".into()), ..Default::default() }).contains("begin with /"));
        assert!(
            extract(ExtractPlan { regex: Some("[".into()), ..Default::default() })
                .contains("not a valid regular expression")
        );
    }

    proptest! {
        #[test]
        fn printed_statuses_and_lengths_read_back(
            ranges in prop::collection::vec((200u16..=599, 0u16..200), 1..5),
            from in 0u64..1 << 40,
            more in prop::option::of(0u64..1 << 40)
        ) {
            let set = StatusSet(ranges.into_iter().map(|(from, more)| from..=(from + more).min(599)).collect());
            prop_assert_eq!(set.to_string().parse(), Ok(set));
            let range = LengthRange { from, to: more.map(|more| from + more) };
            prop_assert_eq!(range.to_string().parse(), Ok(range));
        }
    }
}
