//! Resolves redirects: the target and the method of the next request.

use schema::Method;

use super::template::percent_encode;
use crate::Target;

/// Maximum bytes of a Location that is followed.
pub const LOCATION_BYTES_MAX: usize = 16 * 1024;

/// Why a redirect cannot be followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadLocation {
    /// The header is missing or empty.
    #[error("the redirect has no Location")]
    Missing,
    /// The Location has a control character, an invalid host or port, or more than [`LOCATION_BYTES_MAX`] bytes.
    #[error("the redirect's Location cannot be read")]
    Unreadable,
    /// The scheme is neither http nor https.
    #[error("the redirect leads to a scheme other than http and https")]
    Scheme,
    /// The URL has a user name: credentials from a server are not used.
    #[error("the redirect's Location carries a user name")]
    User,
}

/// The method of the request after a redirect (RFC 9110, section 15.4). 303 requires a GET, or a HEAD after a HEAD.
/// After 301 and 302 a POST becomes a GET, as in browsers. 307 and 308 preserve the method. `None` if `status` is not a
/// redirect that can be followed. A request whose method has changed has no body.
pub fn method_after(status: u16, method: Method) -> Option<Method> {
    match (status, method) {
        (303, Method::Head) => Some(Method::Head),
        (303, _) | (301 | 302, Method::Post) => Some(Method::Get),
        (301 | 302 | 307 | 308, method) => Some(method),
        _ => None,
    }
}

/// Resolves the Location of a response by RFC 3986, section 5.2. `base` and `base_path` (path and query as sent) are
/// those of the request. The result's path is ready to be sent: dot segments are resolved, the fragment is dropped, and
/// characters that are invalid in path and query (spaces, bytes outside ASCII) are percent-encoded.
///
/// # Errors
/// The Location is missing or cannot be requested.
pub fn resolve(base: &Target, base_path: &[u8], location: &[u8]) -> Result<Target, BadLocation> {
    let location = location.trim_ascii();
    if location.is_empty() {
        return Err(BadLocation::Missing);
    }
    if location.len() > LOCATION_BYTES_MAX || location.iter().any(u8::is_ascii_control) {
        return Err(BadLocation::Unreadable);
    }
    let location = before(location, b'#');
    let (scheme, rest) = match split_scheme(location) {
        Some((scheme, rest)) if scheme.eq_ignore_ascii_case(b"http") => (Some("http"), rest),
        Some((scheme, rest)) if scheme.eq_ignore_ascii_case(b"https") => (Some("https"), rest),
        Some(_) => return Err(BadLocation::Scheme),
        None => (None, location),
    };
    let own_scheme = if base.secure { "https" } else { "http" };
    if let Some(rest) = rest.strip_prefix(b"//") {
        let end = rest.iter().position(|byte| b"/?".contains(byte)).unwrap_or(rest.len());
        let (authority, path) = rest.split_at(end);
        return target(scheme.unwrap_or(own_scheme), authority, path);
    }
    // `http:path` has a scheme but no host, which is invalid (RFC 3986, section 4.2).
    if scheme.is_some() {
        return Err(BadLocation::Unreadable);
    }
    let base_path = before(base_path, b'#');
    let own = before(base_path, b'?');
    let authority = base.authority.as_bytes();
    match rest {
        [] => target(own_scheme, authority, base_path),
        [b'/', ..] => target(own_scheme, authority, rest),
        [b'?', ..] => target(own_scheme, authority, &[own, rest].concat()),
        // A relative path is appended to the base's path up to its last slash.
        _ => {
            let folder = own.iter().rposition(|&byte| byte == b'/').map_or(&b"/"[..], |slash| &own[..=slash]);
            target(own_scheme, authority, &[folder, rest].concat())
        }
    }
}

fn target(scheme: &str, authority: &[u8], path_and_query: &[u8]) -> Result<Target, BadLocation> {
    if authority.contains(&b'@') {
        return Err(BadLocation::User);
    }
    let path = before(path_and_query, b'?');
    let mut url = [scheme.as_bytes(), b"://", authority].concat();
    percent_encode(&without_dots(path), &mut url);
    percent_encode(&path_and_query[path.len()..], &mut url);
    let url = str::from_utf8(&url).map_err(|_| BadLocation::Unreadable)?;
    Target::parse(url).map_err(|_| BadLocation::Unreadable)
}

/// Removes dot segments (RFC 3986, section 5.2.4). The result begins with a slash.
fn without_dots(path: &[u8]) -> Vec<u8> {
    let path = path.strip_prefix(b"/").unwrap_or(path);
    let mut output: Vec<&[u8]> = Vec::new();
    let mut segments = path.split(|&byte| byte == b'/').peekable();
    while let Some(segment) = segments.next() {
        let last = segments.peek().is_none();
        match segment {
            b"." | b".." => {
                if segment == b".." {
                    output.pop();
                }
                // A path that ends with a dot segment becomes a directory, with a final slash.
                if last {
                    output.push(b"");
                }
            }
            _ => output.push(segment),
        }
    }
    let mut whole = vec![b'/'];
    whole.extend_from_slice(&output.join(&b'/'));
    whole
}

/// Splits a leading `scheme:` off (RFC 3986, section 3.1).
fn split_scheme(location: &[u8]) -> Option<(&[u8], &[u8])> {
    let colon = location.iter().position(|byte| b":/?#".contains(byte)).filter(|&at| location[at] == b':')?;
    let scheme = &location[..colon];
    let rest = scheme.iter().all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(byte));
    (scheme.first().is_some_and(u8::is_ascii_alphabetic) && rest).then(|| (scheme, &location[colon + 1..]))
}

fn before(text: &[u8], byte: u8) -> &[u8] {
    text.split(|&other| other == byte).next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn from(base: &str, location: &[u8]) -> Result<String, BadLocation> {
        let base = Target::parse(base).unwrap();
        let resolved = resolve(&base, base.path_and_query.as_bytes(), location)?;
        Ok(format!(
            "{}://{}{}",
            if resolved.secure { "https" } else { "http" },
            resolved.authority,
            resolved.path_and_query
        ))
    }

    /// The normal and abnormal examples of RFC 3986, section 5.4, without schemes and fragments.
    #[test]
    fn relative_redirects_resolve_as_in_rfc_3986() {
        for (location, expected) in [
            ("g", "http://a/b/c/g"),
            ("./g", "http://a/b/c/g"),
            ("g/", "http://a/b/c/g/"),
            ("/g", "http://a/g"),
            ("//g", "http://g/"),
            ("?y", "http://a/b/c/d;p?y"),
            ("g?y", "http://a/b/c/g?y"),
            ("#s", "http://a/b/c/d;p?q"),
            ("g#s", "http://a/b/c/g"),
            ("g?y#s", "http://a/b/c/g?y"),
            (";x", "http://a/b/c/;x"),
            ("g;x?y#s", "http://a/b/c/g;x?y"),
            (".", "http://a/b/c/"),
            ("./", "http://a/b/c/"),
            ("..", "http://a/b/"),
            ("../", "http://a/b/"),
            ("../g", "http://a/b/g"),
            ("../..", "http://a/"),
            ("../../", "http://a/"),
            ("../../g", "http://a/g"),
            ("../../../g", "http://a/g"),
            ("../../../../g", "http://a/g"),
            ("/./g", "http://a/g"),
            ("/../g", "http://a/g"),
            ("g.", "http://a/b/c/g."),
            (".g", "http://a/b/c/.g"),
            ("g..", "http://a/b/c/g.."),
            ("..g", "http://a/b/c/..g"),
            ("./../g", "http://a/b/g"),
            ("./g/.", "http://a/b/c/g/"),
            ("g/./h", "http://a/b/c/g/h"),
            ("g/../h", "http://a/b/c/h"),
            ("g;x=1/./y", "http://a/b/c/g;x=1/y"),
            ("g;x=1/../y", "http://a/b/c/y"),
            ("g?y/./x", "http://a/b/c/g?y/./x"),
            ("g?y/../x", "http://a/b/c/g?y/../x"),
        ] {
            assert_eq!(from("http://a/b/c/d;p?q", location.as_bytes()).as_deref(), Ok(expected), "{location}");
        }
        assert_eq!(from("http://a/b", b"g:h"), Err(BadLocation::Scheme));
        assert_eq!(from("http://a/b", b"http:g"), Err(BadLocation::Unreadable));
    }

    #[test]
    fn redirects_to_other_hosts_ports_and_schemes_are_resolved() {
        assert_eq!(from("https://a:8443/x", b"//b:81/y").as_deref(), Ok("https://b:81/y"));
        assert_eq!(from("https://a:8443/x", b"y").as_deref(), Ok("https://a:8443/y"));
        assert_eq!(from("http://a/x", b"HTTPS://B/y?z").as_deref(), Ok("https://B/y?z"));
        assert_eq!(from("http://a/x", b"http://[2001:2::1]:80").as_deref(), Ok("http://[2001:2::1]:80/"));
        assert_eq!(from("http://a/x", b"http://b?q").as_deref(), Ok("http://b/?q"));
        assert_eq!(from("http://a/x", b"a/b:c").as_deref(), Ok("http://a/a/b:c"), "a colon after a slash");
    }

    #[test]
    fn invalid_redirect_locations_are_rejected() {
        assert_eq!(from("http://a/x", b" /\xe5\xb1\xb1 b\"<>\\^`{|} ").as_deref(), {
            Ok("http://a/%E5%B1%B1%20b%22%3C%3E%5C%5E%60%7B%7C%7D")
        });
        assert_eq!(
            from("http://a/x", b"/%41%zz%").as_deref(),
            Ok("http://a/%41%zz%"),
            "encoded characters stay unchanged"
        );
        for (location, why) in [
            (&b""[..], BadLocation::Missing),
            (b"  ", BadLocation::Missing),
            (b"/a\r\nX: y", BadLocation::Unreadable),
            (b"/a\0", BadLocation::Unreadable),
            (b"http://", BadLocation::Unreadable),
            (b"http:///path", BadLocation::Unreadable),
            (b"//a b/", BadLocation::Unreadable),
            (b"//\xff/", BadLocation::Unreadable),
            (b"http://a:0/", BadLocation::Unreadable),
            (b"http://a:65536/", BadLocation::Unreadable),
            (b"http://user:pw@a/", BadLocation::User),
            (b"javascript:alert(1)", BadLocation::Scheme),
            (b"file:///etc/passwd", BadLocation::Scheme),
        ] {
            assert_eq!(from("http://a/x", location), Err(why), "{}", location.escape_ascii());
        }
        assert_eq!(from("http://a/x", &[b'a'; LOCATION_BYTES_MAX + 1]), Err(BadLocation::Unreadable));
        assert!(from("http://a/x", &[b'a'; LOCATION_BYTES_MAX]).is_ok());
    }

    #[test]
    fn redirect_methods_follow_rfc_9110() {
        for status in [301, 302] {
            assert_eq!(method_after(status, Method::Post), Some(Method::Get));
            assert_eq!(method_after(status, Method::Put), Some(Method::Put));
            assert_eq!(method_after(status, Method::Head), Some(Method::Head));
        }
        assert_eq!(method_after(303, Method::Put), Some(Method::Get));
        assert_eq!(method_after(303, Method::Head), Some(Method::Head));
        assert_eq!(
            (method_after(307, Method::Post), method_after(308, Method::Post)),
            (Some(Method::Post), Some(Method::Post))
        );
        for status in [0, 200, 300, 304, 305, 306, 309, 404] {
            assert_eq!(method_after(status, Method::Get), None, "{status}");
        }
    }

    proptest! {
        /// Every Location is rejected, or resolves to a valid target that resolves to itself.
        #[test]
        fn every_location_is_rejected_or_resolves_to_a_valid_target(
            location in prop::collection::vec(
                prop_oneof![prop::sample::select(&b"/.?#:%@[]ab1 "[..]), any::<u8>()],
                0..40,
            ),
        ) {
            let base = Target::parse("http://a:81/b/c?d").unwrap();
            if let Ok(resolved) = resolve(&base, b"/b/c?d", &location) {
                let line = resolved.path_and_query.as_bytes();
                prop_assert!(line[0] == b'/' && line.iter().all(|byte| byte.is_ascii_graphic()));
                let path = before(line, b'?');
                prop_assert!(path.split(|&byte| byte == b'/').all(|segment| segment != b"." && segment != b".."));
                let again = resolve(&base, b"/b/c?d", resolved.url().as_bytes());
                prop_assert_eq!(again.as_ref(), Ok(&resolved));
            }
        }
    }
}
