//! Conditions of a request (RFC 9110, section 13), in the order of its section 13.2.2.

use crate::date::read_date;
use crate::files::Page;
use crate::request::Fields;

/// Result of the preconditions of a GET or HEAD.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PreconditionResult {
    /// They hold, or there are none.
    Proceed,
    /// 304: the client has the current version.
    NotModified,
    /// 412
    Failed,
}

/// Compares the validators of the selected page with the request. `year_now` is for two-digit years.
pub(super) fn evaluate(fields: &Fields<'_>, page: &Page, year_now: i64) -> PreconditionResult {
    let etag = page.etag.as_deref().map(str::as_bytes);
    if let Some(value) = fields.if_match {
        let holds = any_value(fields, value, b"if-match", |value| {
            // A weak tag does not match here.
            is_any(value) || Tags(value).any(|tag| !tag.weak && Some(tag.opaque) == etag)
        });
        if !holds {
            return PreconditionResult::Failed;
        }
    } else if let Some(since) = date(fields, fields.if_unmodified_since, b"if-unmodified-since", year_now)
        && page.modified_s.is_some_and(|modified| modified > since)
    {
        return PreconditionResult::Failed;
    }
    if let Some(value) = fields.if_none_match {
        let known = any_value(fields, value, b"if-none-match", |value| {
            is_any(value) || Tags(value).any(|tag| Some(tag.opaque) == etag)
        });
        if known {
            return PreconditionResult::NotModified;
        }
    } else if let Some(since) = date(fields, fields.if_modified_since, b"if-modified-since", year_now)
        && page.modified_s.is_some_and(|modified| modified <= since)
    {
        return PreconditionResult::NotModified;
    }
    PreconditionResult::Proceed
}

/// Whether Range applies: without If-Range, or if it names the current version (RFC 9110, section 13.1.5). A date is
/// accepted: Last-Modified is never sent in the second of a change, so it is a strong validator.
pub(super) fn range_applies(fields: &Fields<'_>, page: &Page, year_now: i64) -> bool {
    let Some(value) = fields.if_range else { return true };
    if fields.repeated && fields.values(b"if-range").nth(1).is_some() {
        return false;
    }
    if value.contains(&b'"') {
        let mut tags = Tags(value);
        let first = tags.next();
        return tags.next().is_none()
            && first.is_some_and(|tag| !tag.weak && Some(tag.opaque) == page.etag.as_deref().map(str::as_bytes));
    }
    read_date(value, year_now).is_some_and(|date| page.modified_s == Some(date))
}

/// The date of a single valid If-Modified-Since.
pub(crate) fn modified_since(fields: &Fields<'_>, year_now: i64) -> Option<i64> {
    date(fields, fields.if_modified_since, b"if-modified-since", year_now)
}

/// Whether a tag list, as in If-None-Match, contains this tag (with its quotes), weak or not.
pub(crate) fn names(list: &[u8], etag: &[u8]) -> bool {
    Tags(list).any(|tag| tag.opaque == etag)
}

fn is_any(value: &[u8]) -> bool {
    value == b"*"
}

/// Whether `holds` is true for any line of the field; `first` is its first value.
fn any_value(fields: &Fields<'_>, first: &[u8], name: &'static [u8], mut holds: impl FnMut(&[u8]) -> bool) -> bool {
    holds(first) || (fields.repeated && fields.values(name).skip(1).any(holds))
}

/// The date of a single valid field; otherwise the field is ignored (RFC 9110, section 13.1.3).
fn date(fields: &Fields<'_>, value: Option<&[u8]>, name: &'static [u8], year_now: i64) -> Option<i64> {
    let value = value?;
    if fields.repeated && fields.values(name).nth(1).is_some() {
        return None;
    }
    read_date(value, year_now)
}

/// An entity tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Tag<'a> {
    weak: bool,
    /// With its quotes.
    opaque: &'a [u8],
}

/// The entity tags of a list, up to the first malformed one. A tag may contain commas.
struct Tags<'a>(&'a [u8]);

impl<'a> Iterator for Tags<'a> {
    type Item = Tag<'a>;

    fn next(&mut self) -> Option<Tag<'a>> {
        let start = self.0.iter().position(|byte| !matches!(byte, b' ' | b'\t' | b','))?;
        let rest = &self.0[start..];
        let (weak, rest) = match rest.strip_prefix(b"W/") {
            Some(rest) => (true, rest),
            None => (false, rest),
        };
        let tag = rest.strip_prefix(b"\"").and_then(|inner| {
            let end = inner.iter().position(|&byte| byte == b'"')?;
            // RFC 9110, section 8.8.3: no white space within.
            inner[..end].iter().all(|&byte| byte > b' ' && byte != 0x7f).then_some(&rest[..end + 2])
        });
        let Some(opaque) = tag else {
            self.0 = &[];
            return None;
        };
        let after = &rest[opaque.len()..];
        // Between two tags there is a comma.
        let follows = after.trim_ascii_start();
        self.0 = if follows.first() == Some(&b',') { follows } else { &[] };
        Some(Tag { weak, opaque })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn entity_tag_lists_are_parsed() {
        let tags = |value: &'static str| -> Vec<(bool, &str)> {
            Tags(value.as_bytes()).map(|tag| (tag.weak, std::str::from_utf8(tag.opaque).unwrap())).collect()
        };
        assert_eq!(tags("\"a\""), [(false, "\"a\"")]);
        assert_eq!(tags(" W/\"a\" ,, \"b,c\"\t,\"\""), [(true, "\"a\""), (false, "\"b,c\""), (false, "\"\"")]);
        assert_eq!(tags("\"a\" \"b\""), [(false, "\"a\"")]);
        assert_eq!(tags("\"a\", b, \"c\""), [(false, "\"a\"")]);
        for none in ["", "a", "\"a", "w/\"a\"", "W/a", "\"a b\"", "*"] {
            assert_eq!(tags(none), [], "{none}");
        }
    }

    proptest! {
        #[test]
        fn any_entity_tag_list_is_read_without_panic(value in proptest::collection::vec(any::<u8>(), 0..60)) {
            for tag in Tags(&value) {
                prop_assert!(tag.opaque.len() >= 2 && tag.opaque.starts_with(b"\"") && tag.opaque.ends_with(b"\""));
            }
        }
    }
}
