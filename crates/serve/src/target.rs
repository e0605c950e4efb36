//! From the path of a URL to the path of a file.

use crate::response::Status;

/// Writes into `file` the path below the root that `path` (beginning with `/`, without query) names: percent signs
/// decoded, leading slashes gone, `index.html` added to what ends in a slash. Dots are left in place: the kernel
/// resolves them, and refuses those that lead out of the root.
///
/// # Errors
/// 400 for a broken percent sign or a NUL byte (no file name can hold one), 414 for a path longer than the kernel
/// takes.
pub(crate) fn file_path(path: &[u8], file: &mut Vec<u8>) -> Result<(), Status> {
    file.clear();
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
        match byte {
            0 => return Err(Status::BadRequest),
            b'/' if file.is_empty() => {}
            _ => file.push(byte),
        }
    }
    if file.last().is_none_or(|&last| last == b'/') {
        file.extend_from_slice(b"index.html");
    }
    if file.len() >= PATH_MAX { Err(Status::TargetTooLong) } else { Ok(()) }
}

fn hex(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        b'A'..=b'F' => Some(digit - b'A' + 10),
        _ => None,
    }
}

/// The kernel's bound on a path, its NUL included (linux/limits.h).
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
    fn paths_become_files() {
        assert_eq!(decoded(b"/a/b.css").unwrap(), b"a/b.css");
        assert_eq!(decoded(b"/").unwrap(), b"index.html");
        assert_eq!(decoded(b"/docs/").unwrap(), b"docs/index.html");
        assert_eq!(decoded(b"///etc/passwd").unwrap(), b"etc/passwd");
        assert_eq!(decoded(b"/%2Fetc/passwd").unwrap(), b"etc/passwd");
        assert_eq!(decoded(b"/a%20b%e3%81%93").unwrap(), "a bこ".as_bytes());
        assert_eq!(decoded(b"/%252e").unwrap(), b"%2e");
    }

    #[test]
    fn what_no_file_can_be_called_is_refused() {
        for broken in [&b"/%"[..], b"/%4", b"/%zz", b"/%4g", b"/%00", b"/a%00.html", b"/%-1"] {
            assert_eq!(decoded(broken), Err(Status::BadRequest), "{broken:?}");
        }
        let longest = [b"/".as_slice(), &vec![b'a'; PATH_MAX - 1]].concat();
        assert!(decoded(&longest).is_ok());
        let longer = [b"/".as_slice(), &vec![b'a'; PATH_MAX]].concat();
        assert_eq!(decoded(&longer), Err(Status::TargetTooLong));
    }

    proptest! {
        #[test]
        fn an_encoded_name_comes_back(name in proptest::collection::vec(1u8..=255, 1..200)) {
            prop_assume!(name[0] != b'/' && name[name.len() - 1] != b'/');
            let encoded: String = name.iter().map(|byte| format!("%{byte:02X}")).collect();
            prop_assert_eq!(decoded(format!("/{encoded}").as_bytes()).unwrap(), name);
        }

        #[test]
        fn the_result_is_relative_and_without_nul(path in proptest::collection::vec(any::<u8>(), 0..200)) {
            if let Ok(file) = decoded(&path) {
                prop_assert!(!file.is_empty() && file[0] != b'/' && !file.contains(&0));
            }
        }
    }
}
