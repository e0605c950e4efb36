//! The key of a stored response: the requested URI.

use std::sync::Arc;

/// Scheme, host, path and query as one byte string. Path and query are as sent: only the origin knows whether two
/// spellings are equivalent. The host is in lower case and without the default port. Only GET is stored, so the key
/// contains no method.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Key(Arc<[u8]>);

impl Key {
    /// The key of a request.
    pub(crate) fn new(secure: bool, host: &[u8], path: &[u8], query: Option<&[u8]>) -> Self {
        let mut bytes = Vec::new();
        Key::write(&mut bytes, secure, host, path, query);
        Key(bytes.into())
    }

    /// Writes a key into `bytes`, for a lookup without allocation.
    pub(crate) fn write(bytes: &mut Vec<u8>, secure: bool, host: &[u8], path: &[u8], query: Option<&[u8]>) {
        bytes.clear();
        bytes.extend_from_slice(if secure { b"https://" } else { b"http://" });
        let from = bytes.len();
        bytes.extend_from_slice(without_default_port(secure, host));
        bytes[from..].make_ascii_lowercase();
        // A host contains neither slash nor question mark, and a path begins with a slash: different URIs have
        // different keys.
        bytes.extend_from_slice(path);
        if let Some(query) = query {
            bytes.push(b'?');
            bytes.extend_from_slice(query);
        }
    }

    /// The key's bytes.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// The key of the URI in a Location or Content-Location field of a response to this key, if it has the same origin
    /// (RFC 9111, section 4.4). A relative reference is resolved against this key's path.
    pub(crate) fn same_origin(&self, reference: &[u8]) -> Option<Key> {
        let scheme_end = self.0.iter().position(|&byte| byte == b':')? + 3;
        let origin_end = scheme_end + self.0[scheme_end..].iter().position(|&byte| byte == b'/')?;
        let (origin, own_path) = self.0.split_at(origin_end);
        let end = reference.iter().position(|&byte| byte == b'#').unwrap_or(reference.len());
        let reference = &reference[..end];
        let secure = origin.starts_with(b"https:");
        let lower = reference.to_ascii_lowercase();
        let scheme: &[u8] = if secure { b"https:" } else { b"http:" };
        let authority_and_path = match &*lower {
            _ if lower.starts_with(b"//") => &reference[2..],
            _ if lower.starts_with(scheme) && lower[scheme.len()..].starts_with(b"//") => {
                &reference[scheme.len() + 2..]
            }
            [b'/', ..] => return Some(Key([origin, reference].concat().into())),
            _ if has_scheme(&lower) => return None,
            [] => return Some(self.clone()),
            [b'?', ..] => {
                let path_end = own_path.iter().position(|&byte| byte == b'?').unwrap_or(own_path.len());
                return Some(Key([origin, &own_path[..path_end], reference].concat().into()));
            }
            _ => {
                let path_end = own_path.iter().position(|&byte| byte == b'?').unwrap_or(own_path.len());
                let folder = own_path[..path_end].iter().rposition(|&byte| byte == b'/').map_or(0, |at| at + 1);
                let (path, query) =
                    reference.split_at(reference.iter().position(|&byte| byte == b'?').unwrap_or(reference.len()));
                let path = without_dots(&[&own_path[..folder], path].concat());
                return Some(Key([origin, &path, query].concat().into()));
            }
        };
        let split = authority_and_path.iter().position(|&byte| matches!(byte, b'/' | b'?'));
        let (host, rest) = authority_and_path.split_at(split.unwrap_or(authority_and_path.len()));
        let host = without_default_port(secure, host).to_ascii_lowercase();
        if host != origin[scheme_end..] {
            return None;
        }
        let slash: &[u8] = if rest.first() == Some(&b'/') { b"" } else { b"/" };
        Some(Key([origin, slash, rest].concat().into()))
    }
}

impl std::borrow::Borrow<[u8]> for Key {
    fn borrow(&self) -> &[u8] {
        &self.0
    }
}

/// RFC 3986, section 5.2.4, for a path that begins with a slash.
fn without_dots(path: &[u8]) -> Vec<u8> {
    let mut segments: Vec<&[u8]> = Vec::new();
    let mut parts = path[1..].split(|&byte| byte == b'/').peekable();
    while let Some(part) = parts.next() {
        match part {
            b"." | b".." => {
                if part == b".." {
                    segments.pop();
                }
                if parts.peek().is_none() {
                    segments.push(b"");
                }
            }
            _ => segments.push(part),
        }
    }
    [b"/", &*segments.join(&b'/')].concat()
}

fn has_scheme(reference: &[u8]) -> bool {
    match reference.iter().position(|&byte| matches!(byte, b':' | b'/' | b'?')) {
        Some(at) => reference[at] == b':' && at > 0,
        None => false,
    }
}

fn without_default_port(secure: bool, host: &[u8]) -> &[u8] {
    let port: &[u8] = if secure { b":443" } else { b":80" };
    let bare = host.strip_suffix(port).unwrap_or(host);
    bare.strip_suffix(b":").unwrap_or(bare)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(host: &str, path: &str, query: Option<&str>) -> Key {
        Key::new(false, host.as_bytes(), path.as_bytes(), query.map(str::as_bytes))
    }

    #[test]
    fn equivalent_urls_have_one_key_and_different_urls_do_not() {
        assert_eq!(key("Example.org:80", "/a", None), key("example.org", "/a", None));
        assert_ne!(key("example.org:8080", "/a", None), key("example.org", "/a", None));
        assert_ne!(key("a", "/x", Some("")), key("a", "/x", None));
        assert_ne!(key("a", "/x", Some("b&c")), key("a", "/x", Some("c&b")));
        assert_ne!(key("a", "/%61", None), key("a", "/a", None));
        assert_ne!(Key::new(true, b"a", b"/", None), Key::new(false, b"a", b"/", None));
        assert_eq!(Key::new(true, b"a:443", b"/", None), Key::new(true, b"a", b"/", None));
    }

    #[test]
    fn location_fields_of_the_same_origin_give_keys() {
        let base = key("a.example:8080", "/d/e", Some("q"));
        let of = |reference: &str| {
            base.same_origin(reference.as_bytes()).map(|key| String::from_utf8(key.bytes().to_vec()).unwrap())
        };
        let some = |text: &str| Some(text.to_owned());
        assert_eq!(of("/x?y#z"), some("http://a.example:8080/x?y"));
        assert_eq!(of("HTTP://A.example:8080/x"), some("http://a.example:8080/x"));
        assert_eq!(of("//a.example:8080"), some("http://a.example:8080/"));
        assert_eq!(of("f"), some("http://a.example:8080/d/f"));
        assert_eq!(of("../f/./g?../h"), some("http://a.example:8080/f/g?../h"));
        assert_eq!(of("../../.."), some("http://a.example:8080/"));
        assert_eq!(of("?r"), some("http://a.example:8080/d/e?r"));
        assert_eq!(of(""), some("http://a.example:8080/d/e?q"));
        for other in ["http://a.example/x", "https://a.example:8080/x", "//b/x", "mailto:a", "http:x"] {
            assert_eq!(of(other), None, "{other}");
        }
    }
}
