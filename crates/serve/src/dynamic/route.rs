//! Maps a path to its route.

use super::spec::Route;

/// The prefixes of all routes, longest first.
#[derive(Debug)]
pub(super) struct Prefixes(Vec<(Box<[u8]>, usize)>);

impl Prefixes {
    pub(super) fn new(routes: &[Route]) -> Self {
        let mut stems: Vec<(Box<[u8]>, usize)> =
            routes.iter().enumerate().map(|(index, route)| (route.stem().as_bytes().into(), index)).collect();
        // A stable sort: the first of equal prefixes wins.
        stems.sort_by_key(|(stem, _)| std::cmp::Reverse(stem.len()));
        Prefixes(stems)
    }

    /// The route of a normalised path: percent signs decoded, slashes merged, dot segments resolved. Files use the same
    /// form; otherwise an unusual spelling of a program's path would serve its source file.
    pub(super) fn find(&self, path: &[u8]) -> Option<usize> {
        let below = |stem: &[u8]| path.strip_prefix(stem).is_some_and(|rest| matches!(rest.first(), None | Some(b'/')));
        self.0.iter().find(|(stem, _)| below(stem)).map(|(_, index)| *index)
    }
}

/// Whether a path may be forwarded. Dot segments are refused, plain or encoded, with parameters (`..;x`, which some
/// servers treat as `..`) or between backslashes (which some treat as slashes): an upstream that resolves them would
/// serve paths outside the prefix. A broken percent escape or an encoded NUL is refused too.
pub(super) fn may_pass(path: &[u8]) -> bool {
    if path.contains(&b'%') { decoded(path).is_some_and(|path| !dotted(&path)) } else { !dotted(path) }
}

/// The percent-decoded path; `None` for a broken escape or an encoded NUL.
pub(super) fn decoded(path: &[u8]) -> Option<Vec<u8>> {
    let mut plain = Vec::with_capacity(path.len());
    let mut bytes = path.iter();
    while let Some(&byte) = bytes.next() {
        let byte = match byte {
            b'%' => {
                let mut digit = || (*bytes.next()? as char).to_digit(16);
                (digit()? << 4 | digit()?) as u8
            }
            plain => plain,
        };
        if byte == 0 {
            return None;
        }
        plain.push(byte);
    }
    Some(plain)
}

fn dotted(path: &[u8]) -> bool {
    path.split(|byte| matches!(byte, b'/' | b'\\')).any(|part| {
        let name = part.split(|&byte| byte == b';').next().unwrap_or(part);
        name == b"." || name == b".."
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prefixes(typed: &[&str]) -> Prefixes {
        let routes: Vec<Route> = typed.iter().map(|prefix| format!("{prefix}=http://h:1").parse().unwrap()).collect();
        Prefixes::new(&routes)
    }

    #[test]
    fn the_longest_prefix_of_complete_segments_wins() {
        let some = prefixes(&["/app", "/app/admin/", "/x/"]);
        for (path, expected) in [
            ("/app", Some(0)),
            ("/app/", Some(0)),
            ("/app/a.b/..c", Some(0)),
            ("/app/100%", Some(0)),
            ("/apple", None),
            ("/app/admin", Some(1)),
            ("/app/admin/users", Some(1)),
            ("/app/adminx", Some(0)),
            ("/x", Some(2)),
            ("/", None),
            ("*", None),
        ] {
            assert_eq!(some.find(path.as_bytes()), expected, "{path}");
        }
        assert_eq!(prefixes(&[]).find(b"/app"), None);
        let all = prefixes(&["/"]);
        assert_eq!((all.find(b"/"), all.find(b"/a/b"), all.find(b"*")), (Some(0), Some(0), None));
    }

    #[test]
    fn paths_that_leave_their_prefix_are_not_forwarded() {
        for path in ["/app/..c", "/app/a..", "/app/%2541", "/app/%2e%2e%2e", "/app/a;b/.c", "/app/...", "/"] {
            assert!(may_pass(path.as_bytes()), "{path}");
        }
        for path in [
            "/app/../secret",
            "/app/..",
            "/app/./x",
            "/app/%2e%2e/secret",
            "/app/.%2E/secret",
            "/app%2f..%2fsecret",
            "/app/..;/secret",
            "/app/..%3bx/secret",
            "/app\\..\\secret",
            "/app/%5c..%5csecret",
            "/app/%",
            "/app/%zz",
            "/app/%+1",
            "/app/%00",
        ] {
            assert!(!may_pass(path.as_bytes()), "{path}");
        }
    }
}
