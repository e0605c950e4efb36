//! CDN-Cache-Control: Cache-Control for caches in front of an origin (RFC 9213), a dictionary of structured fields
//! (RFC 9651).
//!
//! Where the field is there, not empty and valid, it alone counts: Cache-Control and Expires mean nothing to this cache. It
//! is valid if it can be parsed to the letter and each directive known here has a value of its type; otherwise it is passed
//! over whole.

use std::borrow::Cow;

use super::directives::{Allowances, SECONDS_MAX};
use super::fields::is_named;

/// The directives of all CDN-Cache-Control fields among `lines`; `None` where there are none that count.
pub(crate) fn targeted<'a>(lines: impl Iterator<Item = (&'a [u8], &'a [u8])>) -> Option<Allowances> {
    let mut fields = lines.filter(|(name, _)| is_named(name, b"cdn-cache-control")).map(|(_, value)| value);
    let first = fields.next()?;
    // RFC 9651, section 4.2: several lines are one list.
    let all = fields.fold(Cow::Borrowed(first), |mut all, next| {
        all.to_mut().extend_from_slice(b", ");
        all.to_mut().extend_from_slice(next);
        all
    });
    allowances(&dictionary(&all)?)
}

/// What the members say; `None` if one has a value of the wrong type, or there is none.
fn allowances(members: &[(&[u8], Value)]) -> Option<Allowances> {
    if members.is_empty() {
        return None;
    }
    let mut found = Allowances { targeted: true, ..Allowances::default() };
    for (name, value) in members {
        match *name {
            b"no-store" => found.no_store = value.flag()?,
            b"no-cache" => match value {
                Value::Text(names) => {
                    let names = names.split(|&byte| byte == b',').map(|name| name.trim_ascii().to_ascii_lowercase());
                    found.no_cache_fields = names.collect();
                }
                _ => found.no_cache = value.flag()?,
            },
            // With a field list it is taken as without, as in Cache-Control.
            b"private" => found.private = matches!(value, Value::Text(_)) || value.flag()?,
            b"public" => found.public = value.flag()?,
            b"must-revalidate" => found.must_revalidate = value.flag()?,
            b"proxy-revalidate" => found.proxy_revalidate = value.flag()?,
            b"must-understand" => found.must_understand = value.flag()?,
            b"max-age" => found.max_age_s = Some(value.seconds()?),
            b"s-maxage" => found.s_maxage_s = Some(value.seconds()?),
            b"stale-while-revalidate" => found.stale_while_revalidate_s = Some(value.seconds()?),
            b"stale-if-error" => found.stale_if_error_s = Some(value.seconds()?),
            _ => {}
        }
    }
    Some(found)
}

/// The value of a member, as far as directives have such.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Value {
    Flag(bool),
    Integer(i64),
    /// A string, its escapes undone, or a token.
    Text(Vec<u8>),
    /// Of any other type: no directive known here has it.
    Other,
}

impl Value {
    fn flag(&self) -> Option<bool> {
        if let Value::Flag(flag) = self { Some(*flag) } else { None }
    }

    fn seconds(&self) -> Option<u64> {
        let Value::Integer(seconds) = self else { return None };
        u64::try_from(*seconds).ok().map(|seconds| seconds.min(SECONDS_MAX))
    }
}

/// RFC 9651, section 4.2.2. Of a key that comes twice the last value counts. `None`: not a dictionary.
fn dictionary(text: &[u8]) -> Option<Vec<(&[u8], Value)>> {
    let mut rest = Rest(text);
    let mut members: Vec<(&[u8], Value)> = Vec::new();
    rest.skip(b" ");
    while !rest.0.is_empty() {
        let key = rest.key()?;
        let value = if rest.take(b'=') { rest.item_or_list()? } else { Value::Flag(true) };
        rest.parameters()?;
        members.retain(|(known, _)| *known != key);
        members.push((key, value));
        rest.skip(b" \t");
        if rest.0.is_empty() {
            return Some(members);
        }
        if !rest.take(b',') {
            return None;
        }
        rest.skip(b" \t");
        if rest.0.is_empty() {
            return None;
        }
    }
    Some(members)
}

/// What is not read yet.
struct Rest<'a>(&'a [u8]);

impl<'a> Rest<'a> {
    fn peek(&self) -> Option<u8> {
        self.0.first().copied()
    }

    fn take(&mut self, byte: u8) -> bool {
        let found = self.peek() == Some(byte);
        if found {
            self.0 = &self.0[1..];
        }
        found
    }

    fn skip(&mut self, bytes: &[u8]) {
        self.take_while(|byte| bytes.contains(&byte));
    }

    fn take_while(&mut self, is_part: impl Fn(u8) -> bool) -> &'a [u8] {
        let end = self.0.iter().position(|&byte| !is_part(byte)).unwrap_or(self.0.len());
        let (taken, rest) = self.0.split_at(end);
        self.0 = rest;
        taken
    }

    /// Section 4.2.3.3.
    fn key(&mut self) -> Option<&'a [u8]> {
        self.peek().filter(|&byte| byte.is_ascii_lowercase() || byte == b'*')?;
        Some(self.take_while(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"_-.*".contains(&byte)))
    }

    fn item_or_list(&mut self) -> Option<Value> {
        if !self.take(b'(') {
            return self.bare_item();
        }
        // Section 4.2.1.2: an inner list.
        loop {
            self.skip(b" ");
            if self.take(b')') {
                return Some(Value::Other);
            }
            self.bare_item()?;
            self.parameters()?;
            self.peek().filter(|byte| b" )".contains(byte))?;
        }
    }

    /// Section 4.2.3.2. Parameters of directives mean nothing (RFC 9213, section 2.1), and are read all the same.
    fn parameters(&mut self) -> Option<()> {
        while self.take(b';') {
            self.skip(b" ");
            self.key()?;
            if self.take(b'=') {
                self.bare_item()?;
            }
        }
        Some(())
    }

    /// Section 4.2.3.1.
    fn bare_item(&mut self) -> Option<Value> {
        match self.peek()? {
            b'-' | b'0'..=b'9' => self.number(),
            b'"' => self.string(),
            b'*' | b'A'..=b'Z' | b'a'..=b'z' => {
                let token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~:/".contains(&byte);
                Some(Value::Text(self.take_while(token).to_vec()))
            }
            b'?' => {
                self.take(b'?');
                let flag = self.take(b'1');
                (flag || self.take(b'0')).then_some(Value::Flag(flag))
            }
            b':' => {
                self.take(b':');
                self.take_while(|byte| byte.is_ascii_alphanumeric() || b"+/=".contains(&byte));
                self.take(b':').then_some(Value::Other)
            }
            b'@' => {
                self.take(b'@');
                matches!(self.number()?, Value::Integer(_)).then_some(Value::Other)
            }
            b'%' => {
                self.take(b'%');
                // A display string: its percent signs are not looked into, since no directive has one.
                self.peek().filter(|&byte| byte == b'"')?;
                self.string().map(|_| Value::Other)
            }
            _ => None,
        }
    }

    /// Section 4.2.4: an integer of up to 15 digits, or a decimal of up to 12 and 3.
    fn number(&mut self) -> Option<Value> {
        let negative = self.take(b'-');
        let whole = self.take_while(|byte| byte.is_ascii_digit());
        if self.take(b'.') {
            let fraction = self.take_while(|byte| byte.is_ascii_digit());
            let fits = (1..=12).contains(&whole.len()) && (1..=3).contains(&fraction.len());
            return fits.then_some(Value::Other);
        }
        if !(1..=15).contains(&whole.len()) {
            return None;
        }
        let value = whole.iter().fold(0, |sum, digit| sum * 10 + i64::from(digit - b'0'));
        Some(Value::Integer(if negative { -value } else { value }))
    }

    /// Section 4.2.5.
    fn string(&mut self) -> Option<Value> {
        self.take(b'"');
        let mut text = Vec::new();
        loop {
            let byte = self.peek()?;
            self.0 = &self.0[1..];
            match byte {
                b'"' => return Some(Value::Text(text)),
                b'\\' => {
                    text.push(self.peek().filter(|byte| b"\"\\".contains(byte))?);
                    self.0 = &self.0[1..];
                }
                b' '..=b'~' => text.push(byte),
                _ => return None,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(lines: &[&str]) -> Option<Allowances> {
        targeted(lines.iter().map(|value| (b"cdn-CACHE-control".as_slice(), value.as_bytes())))
    }

    #[test]
    fn directives_have_the_values_of_their_types() {
        let plain = || Allowances { targeted: true, ..Allowances::default() };
        for (text, wanted) in [
            ("max-age=60", Allowances { max_age_s: Some(60), ..plain() }),
            ("max-age=1, max-age=2", Allowances { max_age_s: Some(2), ..plain() }),
            ("max-age=60;x=\"y\";  z", Allowances { max_age_s: Some(60), ..plain() }),
            ("foobar, max-age=999999999999999", Allowances { max_age_s: Some(SECONDS_MAX), ..plain() }),
            ("no-store", Allowances { no_store: true, ..plain() }),
            ("no-store=?0", plain()),
            ("no-store;a=1,\tprivate=?1", Allowances { no_store: true, private: true, ..plain() }),
            ("private=\"x\"", Allowances { private: true, ..plain() }),
            (
                "no-cache=\"Set-Cookie, a\\\\b\"",
                Allowances { no_cache_fields: vec![b"set-cookie".to_vec(), b"a\\b".to_vec()], ..plain() },
            ),
            ("x=(a \"b\" 1.5;q);r, public", Allowances { public: true, ..plain() }),
            ("x=:YQ==:, y=@-5, z=%\"a%20\", a=?0", plain()),
            (
                "s-maxage=5,stale-while-revalidate=6, stale-if-error=7",
                Allowances {
                    s_maxage_s: Some(5),
                    stale_while_revalidate_s: Some(6),
                    stale_if_error_s: Some(7),
                    ..plain()
                },
            ),
        ] {
            assert_eq!(of(&[text]), Some(wanted), "{text}");
        }
        assert_eq!(of(&["max-age=1", "no-store"]), of(&["max-age=1, no-store"]));
    }

    #[test]
    fn what_is_not_valid_or_empty_counts_for_nothing() {
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
        // One bad line spoils all.
        assert_eq!(of(&["max-age=60", "=="]), None);
    }
}
