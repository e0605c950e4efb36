//! Converts URL paths to file paths and to the normalised path of routes.

use crate::response::Status;

/// Writes the file path of `path` (beginning with `/`, without query) below the root into `file`: percent-decoded,
/// without leading slashes. Dots stay: the kernel resolves them and refuses paths out of the root. A backslash is an
/// ordinary character.
///
/// # Errors
/// 400 for a broken percent escape or a NUL byte (invalid in file names), 414 for a path beyond the kernel's limit.
pub(crate) fn file_path(path: &[u8], file: &mut Vec<u8>) -> Result<(), Status> {
    decode(path, file)?;
    let slashes = file.iter().position(|&byte| byte != b'/').unwrap_or(file.len());
    file.drain(..slashes);
    if file.len() >= PATH_MAX { Err(Status::TargetTooLong) } else { Ok(()) }
}

/// Whether a path from [`file_path`] has a segment with a leading dot: a file that its owner did not mean to publish
/// (`.git`, `.htpasswd`). `.well-known` at the root is public (RFC 8615).
pub(crate) fn is_hidden(file: &[u8]) -> bool {
    file.split(|&byte| byte == b'/').enumerate().any(|(at, segment)| {
        segment.first() == Some(&b'.') && segment != b"." && segment != b".." && !(at == 0 && segment == b".well-known")
    })
}

/// The normalised path for routes: percent-decoded, slashes merged, dot segments resolved (`..` stays at the root).
/// Otherwise `/%61pp/x` would bypass a route `/app` and be served as a file. Free of cost without percent signs, `//`
/// and `/.`; `scratch` receives any other path.
///
/// # Errors
/// Those of [`file_path`].
pub(crate) fn plain<'a>(path: &'a [u8], scratch: &'a mut Vec<u8>) -> Result<&'a [u8], Status> {
    let mut before = 0;
    let is_plain = path.iter().all(|&byte| {
        let plain = byte != b'%' && !(before == b'/' && matches!(byte, b'/' | b'.'));
        before = byte;
        plain
    });
    if is_plain || path.first() != Some(&b'/') {
        return Ok(path);
    }
    let mut decoded = Vec::with_capacity(path.len());
    decode(path, &mut decoded)?;
    scratch.clear();
    let ends_open = matches!(decoded.rsplit(|&byte| byte == b'/').next(), Some(b"" | b"." | b".."));
    for segment in decoded.split(|&byte| byte == b'/') {
        match segment {
            b"" | b"." => {}
            b".." => scratch.truncate(scratch.iter().rposition(|&byte| byte == b'/').unwrap_or(0)),
            name => {
                scratch.push(b'/');
                scratch.extend_from_slice(name);
            }
        }
    }
    if ends_open || scratch.is_empty() {
        scratch.push(b'/');
    }
    Ok(scratch)
}

fn decode(path: &[u8], into: &mut Vec<u8>) -> Result<(), Status> {
    into.clear();
    let mut bytes = path.iter();
    while let Some(&byte) = bytes.next() {
        let byte = match byte {
            b'%' => {
                let high = bytes.next().and_then(|&digit| hex(digit)).ok_or(Status::BadRequest)?;
                let low = bytes.next().and_then(|&digit| hex(digit)).ok_or(Status::BadRequest)?;
                high << 4 | low
            }
            plain => plain,
        };
        if byte == 0 {
            return Err(Status::BadRequest);
        }
        into.push(byte);
    }
    Ok(())
}

fn hex(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        b'A'..=b'F' => Some(digit - b'A' + 10),
        _ => None,
    }
}

/// The kernel's limit of a path, including NUL (linux/limits.h).
const PATH_MAX: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn decoded(path: &[u8]) -> Result<Vec<u8>, Status> {
        let mut file = b"left over".to_vec();
        file_path(path, &mut file).map(|()| file)
    }

    #[test]
    fn request_paths_map_to_file_paths() {
        assert_eq!(decoded(b"/a/b.css").unwrap(), b"a/b.css");
        assert_eq!(decoded(b"/").unwrap(), b"");
        assert_eq!(decoded(b"/docs/").unwrap(), b"docs/");
        assert_eq!(decoded(b"///etc/passwd").unwrap(), b"etc/passwd");
        assert_eq!(decoded(b"/%2Fetc/passwd").unwrap(), b"etc/passwd");
        assert_eq!(decoded(b"/a%20b%e3%81%93").unwrap(), "a bこ".as_bytes());
        assert_eq!(decoded(b"/%252e").unwrap(), b"%2e");
        assert_eq!(decoded(b"/..\\..\\x").unwrap(), b"..\\..\\x");
    }

    #[test]
    fn paths_that_are_no_file_names_are_refused() {
        for broken in [&b"/%"[..], b"/%4", b"/%zz", b"/%4g", b"/%00", b"/a%00.html", b"/%-1"] {
            assert_eq!(decoded(broken), Err(Status::BadRequest), "{broken:?}");
            assert_eq!(plain(broken, &mut Vec::new()), Err(Status::BadRequest), "{broken:?}");
        }
        let longest = [b"/".as_slice(), &vec![b'a'; PATH_MAX - 1]].concat();
        assert!(decoded(&longest).is_ok());
        let longer = [b"/".as_slice(), &vec![b'a'; PATH_MAX]].concat();
        assert_eq!(decoded(&longer), Err(Status::TargetTooLong));
    }

    #[test]
    fn segments_with_a_leading_dot_are_hidden() {
        for hidden in [".git/config", "a/.htpasswd", "a/../.git", "a/.well-known/x", "...", "..a", ".well-known2"] {
            assert!(is_hidden(hidden.as_bytes()), "{hidden}");
        }
        for shown in ["", "a", "a.b", "./a", "../a", "a/./b", ".well-known/acme", "a/"] {
            assert!(!is_hidden(shown.as_bytes()), "{shown}");
        }
    }

    #[test]
    fn routes_compare_the_normalised_path() {
        for (path, spelt) in [
            ("/app/x", "/app/x"),
            ("/%61pp/x", "/app/x"),
            ("//app", "/app"),
            ("/./app/", "/app/"),
            ("/a/../app", "/app"),
            ("/../../app", "/app"),
            ("/a/..", "/"),
            ("/a/b/.", "/a/b/"),
            ("/a%2f..%2Fapp", "/app"),
            ("/", "/"),
            ("*", "*"),
            ("/.", "/"),
        ] {
            assert_eq!(plain(path.as_bytes(), &mut Vec::new()), Ok(spelt.as_bytes()), "{path}");
        }
    }

    proptest! {
        #[test]
        fn percent_encoding_round_trips(name in proptest::collection::vec(1u8..=255, 1..200)) {
            prop_assume!(name[0] != b'/' && name[name.len() - 1] != b'/');
            let encoded: String = name.iter().map(|byte| format!("%{byte:02X}")).collect();
            prop_assert_eq!(decoded(format!("/{encoded}").as_bytes()).unwrap(), name);
        }

        #[test]
        fn file_paths_are_relative_and_contain_no_nul(path in proptest::collection::vec(any::<u8>(), 0..200)) {
            if let Ok(file) = decoded(&path) {
                prop_assert!(file.first() != Some(&b'/') && !file.contains(&0));
            }
        }

        /// Normalisation is idempotent: the result begins with a slash, and no segment but the last is empty or dots.
        #[test]
        fn a_plain_path_is_unchanged(path in "(/|/[.]{1,3}|/a|%2e|%2F|b){1,12}") {
            let path = format!("/{path}");
            let mut scratch = Vec::new();
            let once = plain(path.as_bytes(), &mut scratch).unwrap().to_vec();
            prop_assert!(once.starts_with(b"/") && !once.windows(2).any(|pair| pair == b"//"));
            let segments: Vec<_> = once.split(|&byte| byte == b'/').collect();
            prop_assert!(!segments.iter().any(|&segment| segment == b"." || segment == b".."));
            let mut room = Vec::new();
            prop_assert_eq!(plain(&once, &mut room).unwrap(), &once[..]);
        }
    }
}
