//! CDN-Cache-Control: Cache-Control for caches in front of an origin (RFC 9213), a dictionary of structured fields (RFC
//! 9651).
//!
//! A valid, non-empty field overrides Cache-Control and Expires. It is valid if it parses strictly and each known
//! directive has a value of its type; otherwise the field is ignored.

use std::borrow::Cow;

use sfv::{BareItem, Dictionary, ListEntry, Parser};

use super::directives::{ResponseDirectives, SECONDS_MAX};
use super::fields::is_named;

/// The directives of all CDN-Cache-Control fields among `lines`; `None` if there is no valid one.
pub(crate) fn targeted<'a>(lines: impl Iterator<Item = (&'a [u8], &'a [u8])>) -> Option<ResponseDirectives> {
    let mut fields = lines.filter(|(name, _)| is_named(name, b"cdn-cache-control")).map(|(_, value)| value);
    let first = fields.next()?;
    // RFC 9651, section 4.2: several lines are one list.
    let all = fields.fold(Cow::Borrowed(first), |mut all, next| {
        all.to_mut().extend_from_slice(b", ");
        all.to_mut().extend_from_slice(next);
        all
    });
    allowances(&Parser::new(&all).parse::<Dictionary>().ok()?)
}

/// The directives; `None` if one has a value of the wrong type or there is none. Parameters are ignored (RFC 9213,
/// section 2.1).
fn allowances(members: &Dictionary) -> Option<ResponseDirectives> {
    if members.is_empty() {
        return None;
    }
    let mut found = ResponseDirectives { targeted: true, ..ResponseDirectives::default() };
    for (name, entry) in members {
        // No known directive is a list: an empty byte sequence stands for a value of the wrong type.
        let list = BareItem::ByteSequence(Vec::new());
        let value = match entry {
            ListEntry::Item(item) => &item.bare_item,
            ListEntry::InnerList(_) => &list,
        };
        match name.as_str() {
            "no-store" => found.no_store = flag(value)?,
            "no-cache" => match text(value) {
                Some(names) => {
                    let names = names.split(',').map(|name| name.trim_ascii().to_ascii_lowercase().into_bytes());
                    found.no_cache_fields = names.collect();
                }
                None => found.no_cache = flag(value)?,
            },
            // With a field list it is treated as without one, as in Cache-Control.
            "private" => found.private = text(value).is_some() || flag(value)?,
            "public" => found.public = flag(value)?,
            "must-revalidate" => found.must_revalidate = flag(value)?,
            "proxy-revalidate" => found.proxy_revalidate = flag(value)?,
            "must-understand" => found.must_understand = flag(value)?,
            "max-age" => found.max_age_s = Some(seconds(value)?),
            "s-maxage" => found.s_maxage_s = Some(seconds(value)?),
            "stale-while-revalidate" => found.stale_while_revalidate_s = Some(seconds(value)?),
            "stale-if-error" => found.stale_if_error_s = Some(seconds(value)?),
            _ => {}
        }
    }
    Some(found)
}

/// The value of a flag.
fn flag(value: &BareItem) -> Option<bool> {
    if let BareItem::Boolean(flag) = value { Some(*flag) } else { None }
}

/// Seconds, at least 0.
fn seconds(value: &BareItem) -> Option<u64> {
    let BareItem::Integer(seconds) = value else { return None };
    u64::try_from(i64::from(*seconds)).ok().map(|seconds| seconds.min(SECONDS_MAX))
}

/// A string or a token.
fn text(value: &BareItem) -> Option<&str> {
    match value {
        BareItem::String(text) => Some(text.as_str()),
        BareItem::Token(text) => Some(text.as_str()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(lines: &[&str]) -> Option<ResponseDirectives> {
        targeted(lines.iter().map(|value| (b"cdn-CACHE-control".as_slice(), value.as_bytes())))
    }

    #[test]
    fn targeted_directives_need_values_of_their_types() {
        let plain = || ResponseDirectives { targeted: true, ..ResponseDirectives::default() };
        for (text, expected) in [
            ("max-age=60", ResponseDirectives { max_age_s: Some(60), ..plain() }),
            ("max-age=1, max-age=2", ResponseDirectives { max_age_s: Some(2), ..plain() }),
            ("max-age=60;x=\"y\";  z", ResponseDirectives { max_age_s: Some(60), ..plain() }),
            ("foobar, max-age=999999999999999", ResponseDirectives { max_age_s: Some(SECONDS_MAX), ..plain() }),
            ("no-store", ResponseDirectives { no_store: true, ..plain() }),
            ("no-store=?0", plain()),
            ("no-store;a=1,\tprivate=?1", ResponseDirectives { no_store: true, private: true, ..plain() }),
            ("private=\"x\"", ResponseDirectives { private: true, ..plain() }),
            (
                "no-cache=\"Set-Cookie, a\\\\b\"",
                ResponseDirectives { no_cache_fields: vec![b"set-cookie".to_vec(), b"a\\b".to_vec()], ..plain() },
            ),
            ("x=(a \"b\" 1.5;q);r, public", ResponseDirectives { public: true, ..plain() }),
            ("x=:YQ==:, y=@-5, z=%\"a%20\", a=?0", plain()),
            (
                "s-maxage=5,stale-while-revalidate=6, stale-if-error=7",
                ResponseDirectives {
                    s_maxage_s: Some(5),
                    stale_while_revalidate_s: Some(6),
                    stale_if_error_s: Some(7),
                    ..plain()
                },
            ),
        ] {
            assert_eq!(of(&[text]), Some(expected), "{text}");
        }
        assert_eq!(of(&["max-age=1", "no-store"]), of(&["max-age=1, no-store"]));
    }

    #[test]
    fn invalid_or_empty_targeted_fields_are_ignored() {
        assert_eq!(of(&[]), None);
        for text in [
            "",
            " ",
            "max-age=\"60\"",
            "max-age=60.5",
            "max-age=-1",
            "max-age",
            "max-age=?1",
            "max-age=(1)",
            "max-age= 60",
            "max-age =60",
            "MaX-aGe=60",
            "max-age=60, &&&&&",
            "max-age=60,",
            ",max-age=60",
            "max-age=60 public",
            "max-age=1234567890123456",
            "no-store=1",
            "no-store=?2",
            "no-store=token",
            "public=\"x\"",
            "a=\"open",
            "a=(1",
            "a=(1,2)",
            "a=:YQ==",
            "a=\"\\x\"",
            "a=\"\u{e9}\"",
            "a=1.",
            "a=1.2345",
            "a=@1.5",
            "a=-",
            "a;=1",
            "a=%x",
        ] {
            assert_eq!(of(&[text]), None, "{text:?}");
        }
        // One malformed line invalidates the field.
        assert_eq!(of(&["max-age=60", "=="]), None);
    }
}
