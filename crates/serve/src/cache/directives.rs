//! Cache-Control: directives of responses and of requests (RFC 9111, section 5.2; RFC 5861).
//!
//! Where the RFC does not define the meaning of a malformed or repeated directive, the reading that reuses less wins:
//! an invalid lifetime is 0, the shorter of two lifetimes counts, an unexpected argument is ignored.

use super::fields::is_named;
use super::targeted::targeted;

/// The directives of a response. Times in seconds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ResponseDirectives {
    pub(crate) no_store: bool,
    /// Without a field list: applies to every request.
    pub(crate) no_cache: bool,
    /// With a field list: these fields are for one client only (lower case).
    pub(crate) no_cache_fields: Vec<Vec<u8>>,
    /// With or without a field list: treated as without one, which the RFC allows.
    pub(crate) private: bool,
    pub(crate) public: bool,
    pub(crate) max_age_s: Option<u64>,
    pub(crate) s_maxage_s: Option<u64>,
    pub(crate) must_revalidate: bool,
    pub(crate) proxy_revalidate: bool,
    pub(crate) must_understand: bool,
    pub(crate) stale_while_revalidate_s: Option<u64>,
    pub(crate) stale_if_error_s: Option<u64>,
    /// The directives come from CDN-Cache-Control: Cache-Control and Expires are ignored (RFC 9213, section 2.2).
    pub(crate) targeted: bool,
}

/// The directives of a request. Times in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Demands {
    pub(crate) no_cache: bool,
    pub(crate) no_store: bool,
    pub(crate) max_age_s: Option<u64>,
    pub(crate) min_fresh_s: Option<u64>,
    /// Permitted staleness; `u64::MAX` for any.
    pub(crate) max_stale_s: Option<u64>,
    pub(crate) only_if_cached: bool,
    pub(crate) stale_if_error_s: Option<u64>,
}

impl ResponseDirectives {
    /// Reads a valid, non-empty CDN-Cache-Control; otherwise all Cache-Control fields among `lines`.
    pub(crate) fn of<'a>(lines: impl Iterator<Item = (&'a [u8], &'a [u8])> + Clone) -> Self {
        if let Some(found) = targeted(lines.clone()) {
            return found;
        }
        let mut found = ResponseDirectives::default();
        for (_, value) in lines.filter(|(name, _)| is_named(name, b"cache-control")) {
            for directive in Directives(value) {
                found.apply(&directive);
            }
        }
        found
    }

    fn apply(&mut self, directive: &Directive<'_>) {
        match &*directive.name.to_ascii_lowercase() {
            b"no-store" => self.no_store = true,
            b"no-cache" => match directive.argument {
                None => self.no_cache = true,
                Some(names) => self
                    .no_cache_fields
                    .extend(names.split(|&byte| byte == b',').map(|name| name.trim_ascii().to_ascii_lowercase())),
            },
            b"private" => self.private = true,
            b"public" => self.public = true,
            b"max-age" => set_to_shorter(&mut self.max_age_s, directive),
            b"s-maxage" => set_to_shorter(&mut self.s_maxage_s, directive),
            b"must-revalidate" => self.must_revalidate = true,
            b"proxy-revalidate" => self.proxy_revalidate = true,
            b"must-understand" => self.must_understand = true,
            b"stale-while-revalidate" => set_to_shorter(&mut self.stale_while_revalidate_s, directive),
            b"stale-if-error" => set_to_shorter(&mut self.stale_if_error_s, directive),
            _ => {}
        }
    }
}

impl Demands {
    /// Reads all Cache-Control fields among `lines`; Pragma only without Cache-Control (section 5.4).
    pub(crate) fn of<'a>(lines: impl Iterator<Item = (&'a [u8], &'a [u8])>) -> Self {
        let mut found = Demands::default();
        let (mut controlled, mut pragma) = (false, false);
        for (name, value) in lines {
            if is_named(name, b"cache-control") {
                controlled = true;
                for directive in Directives(value) {
                    found.apply(&directive);
                }
            } else if is_named(name, b"pragma") {
                pragma |= Directives(value).any(|directive| directive.name.eq_ignore_ascii_case(b"no-cache"));
            }
        }
        found.no_cache |= pragma && !controlled;
        found
    }

    fn apply(&mut self, directive: &Directive<'_>) {
        match &*directive.name.to_ascii_lowercase() {
            b"no-cache" => self.no_cache = true,
            b"no-store" => self.no_store = true,
            b"max-age" => set_to_shorter(&mut self.max_age_s, directive),
            // The longer value permits less reuse.
            b"min-fresh" => self.min_fresh_s = self.min_fresh_s.max(Some(directive.seconds().unwrap_or(u64::MAX))),
            b"max-stale" if directive.argument.is_none() => self.max_stale_s = Some(u64::MAX),
            b"max-stale" => set_to_shorter(&mut self.max_stale_s, directive),
            b"only-if-cached" => self.only_if_cached = true,
            b"stale-if-error" => set_to_shorter(&mut self.stale_if_error_s, directive),
            _ => {}
        }
    }
}

fn set_to_shorter(lifetime_s: &mut Option<u64>, directive: &Directive<'_>) {
    let seconds = directive.seconds().unwrap_or(0);
    *lifetime_s = Some(lifetime_s.map_or(seconds, |before| before.min(seconds)));
}

/// One directive, its argument without quotes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Directive<'a> {
    name: &'a [u8],
    argument: Option<&'a [u8]>,
}

impl Directive<'_> {
    fn seconds(&self) -> Option<u64> {
        self.argument.and_then(delta_seconds)
    }
}

/// Section 1.2.2: digits. Values beyond 31 bits count as the maximum.
pub(crate) fn delta_seconds(text: &[u8]) -> Option<u64> {
    if text.is_empty() || !text.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let value = text.iter().fold(0u64, |sum, digit| sum.saturating_mul(10).saturating_add(u64::from(digit - b'0')));
    Some(value.min(SECONDS_MAX))
}

/// Splits a list at commas outside of quotes.
struct Directives<'a>(&'a [u8]);

impl<'a> Iterator for Directives<'a> {
    type Item = Directive<'a>;

    fn next(&mut self) -> Option<Directive<'a>> {
        loop {
            if self.0.is_empty() {
                return None;
            }
            let (mut quoted, mut escaped) = (false, false);
            let end = self.0.iter().position(|&byte| {
                if escaped {
                    escaped = false;
                    return false;
                }
                match byte {
                    b'\\' if quoted => escaped = true,
                    b'"' => quoted = !quoted,
                    b',' => return !quoted,
                    _ => {}
                }
                false
            });
            let end = end.unwrap_or(self.0.len());
            let item = self.0[..end].trim_ascii();
            self.0 = self.0.get(end + 1..).unwrap_or_default();
            if item.is_empty() {
                continue;
            }
            let Some(equals) = item.iter().position(|&byte| byte == b'=') else {
                return Some(Directive { name: item, argument: None });
            };
            let argument = item[equals + 1..].trim_ascii();
            let unquoted = argument.strip_prefix(b"\"").and_then(|rest| rest.strip_suffix(b"\""));
            return Some(Directive { name: item[..equals].trim_ascii(), argument: Some(unquoted.unwrap_or(argument)) });
        }
    }
}

/// 68 years: the maximum that section 1.2.2 requires of a cache.
pub(crate) const SECONDS_MAX: u64 = 1 << 31;

#[cfg(test)]
mod tests {
    use super::*;

    fn allowed(value: &str) -> ResponseDirectives {
        ResponseDirectives::of([(b"Cache-Control".as_slice(), value.as_bytes())].into_iter())
    }

    fn parse_demands(lines: &[(&str, &str)]) -> Demands {
        Demands::of(lines.iter().map(|(name, value)| (name.as_bytes(), value.as_bytes())))
    }

    #[test]
    fn response_directives_are_parsed() {
        let all = allowed("No-Store, no-cache, PRIVATE=\"x\", public, max-age=5 , s-maxage=\"6\",,must-revalidate");
        assert!(all.no_store && all.no_cache && all.private && all.public && all.must_revalidate);
        assert_eq!((all.max_age_s, all.s_maxage_s), (Some(5), Some(6)));
        assert_eq!(allowed("stale-while-revalidate=7, stale-if-error=8").stale_while_revalidate_s, Some(7));
        let listed = allowed("no-cache=\"Set-Cookie, X-A\", max-age=1");
        assert_eq!((listed.no_cache, listed.max_age_s), (false, Some(1)));
        assert_eq!(listed.no_cache_fields, [b"set-cookie".to_vec(), b"x-a".to_vec()]);
    }

    #[test]
    fn invalid_and_repeated_lifetimes_are_read_as_the_shorter() {
        assert_eq!(allowed("max-age=10, max-age=5").max_age_s, Some(5));
        for text in ["max-age=", "max-age", "max-age=-1", "max-age=1.5", "max-age=soon", "max-age=+5"] {
            assert_eq!(allowed(text).max_age_s, Some(0), "{text}");
        }
        assert_eq!(allowed("max-age=99999999999999999999999").max_age_s, Some(SECONDS_MAX));
        // An unterminated quote covers the rest, so no lifetime is granted.
        assert_eq!(allowed("x=\"a, max-age=5").max_age_s, None);
        assert_eq!(
            allowed("x=\"a\\\", max-age=5\", no-store"),
            ResponseDirectives { no_store: true, ..ResponseDirectives::default() }
        );
    }

    #[test]
    fn request_directives_are_parsed() {
        let demands = parse_demands(&[
            ("cache-control", "max-age=0, max-stale, min-fresh=3, only-if-cached"),
            ("Pragma", "no-cache"),
        ]);
        assert_eq!((demands.max_age_s, demands.max_stale_s, demands.min_fresh_s), (Some(0), Some(u64::MAX), Some(3)));
        assert!(demands.only_if_cached && !demands.no_cache);
        assert!(parse_demands(&[("pragma", "x, No-Cache")]).no_cache);
        assert_eq!(parse_demands(&[("Cache-Control", "max-stale=4, min-fresh=x")]).max_stale_s, Some(4));
        assert_eq!(parse_demands(&[("Cache-Control", "min-fresh=x")]).min_fresh_s, Some(u64::MAX));
    }
}
