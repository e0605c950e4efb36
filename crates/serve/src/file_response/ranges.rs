//! The Range field (RFC 9110, section 14).

use std::ops::Range;

/// The requested part of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum RequestedRange {
    /// The complete file: the field is invalid, or has too many ranges.
    Whole,
    /// Ranges: at least one, none empty, none adjoining another, in the order requested.
    Parts(Vec<Range<u64>>),
    /// No satisfiable range.
    Nothing,
}

/// Reads the value of a Range field for a file of `length` bytes.
pub(super) fn requested_range(value: &[u8], length: u64) -> RequestedRange {
    let Some(set) =
        value.split_at_checked(6).and_then(|(unit, set)| unit.eq_ignore_ascii_case(b"bytes=").then_some(set))
    else {
        return RequestedRange::Whole;
    };
    let mut parts: Vec<Range<u64>> = Vec::new();
    let (mut requested, mut satisfiable) = (0, false);
    for spec in set.split(|&byte| byte == b',').map(<[u8]>::trim_ascii).filter(|spec| !spec.is_empty()) {
        requested += 1;
        if requested > RANGES_MAX {
            return RequestedRange::Whole;
        }
        match one(spec, length) {
            Err(NotARange) => return RequestedRange::Whole,
            Ok(None) => {}
            Ok(Some(part)) => {
                satisfiable = true;
                if !part.is_empty() {
                    join(&mut parts, part);
                }
            }
        }
    }
    match (requested, satisfiable, parts.is_empty()) {
        // No range at all; or the last bytes of an empty file, which Content-Range cannot express.
        (0, ..) | (_, true, true) => RequestedRange::Whole,
        (_, false, _) => RequestedRange::Nothing,
        (_, true, false) => RequestedRange::Parts(parts),
    }
}

/// Not a valid range: the field is ignored.
struct NotARange;

/// One range; `None` if it is not satisfiable.
fn one(spec: &[u8], length: u64) -> Result<Option<Range<u64>>, NotARange> {
    let dash = spec.iter().position(|&byte| byte == b'-').ok_or(NotARange)?;
    let (first, last) = (&spec[..dash], &spec[dash + 1..]);
    match (first, last) {
        (b"", b"") => Err(NotARange),
        (b"", suffix) => match number(suffix)? {
            0 => Ok(None),
            suffix => Ok(Some(length.saturating_sub(suffix)..length)),
        },
        (first, last) => {
            let first = number(first)?;
            let end = if last.is_empty() { u64::MAX } else { number(last)?.saturating_add(1) };
            if end <= first && end != u64::MAX {
                return Err(NotARange);
            }
            Ok((first < length).then(|| first..end.min(length)))
        }
    }
}

/// Digits; a number beyond 64 bits counts as the maximum, past the end of any file.
fn number(digits: &[u8]) -> Result<u64, NotARange> {
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return Err(NotARange);
    }
    Ok(digits.iter().fold(0u64, |sum, digit| sum.saturating_mul(10).saturating_add(u64::from(digit - b'0'))))
}

/// Adds a range, or merges it with the ranges that it touches.
fn join(parts: &mut Vec<Range<u64>>, part: Range<u64>) {
    let touches = |a: &Range<u64>, b: &Range<u64>| a.start <= b.end && b.start <= a.end;
    let Some(at) = parts.iter().position(|earlier| touches(earlier, &part)) else {
        parts.push(part);
        return;
    };
    let mut wide = parts[at].start.min(part.start)..parts[at].end.max(part.end);
    let mut next = at + 1;
    while next < parts.len() {
        if touches(&parts[next], &wide) {
            let other = parts.remove(next);
            wide = wide.start.min(other.start)..wide.end.max(other.end);
            // Ranges that did not touch before may touch now.
            next = at + 1;
        } else {
            next += 1;
        }
    }
    parts[at] = wide;
}

/// More ranges than any client in use requests. A longer list gets the complete file (RFC 9110, section 14.2).
const RANGES_MAX: usize = 32;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn parts(value: &str, length: u64) -> Vec<(u64, u64)> {
        match requested_range(value.as_bytes(), length) {
            RequestedRange::Parts(parts) => parts.into_iter().map(|part| (part.start, part.end)).collect(),
            other => panic!("{value}: {other:?}"),
        }
    }

    #[test]
    fn single_ranges_are_parsed() {
        assert_eq!(parts("bytes=0-0", 10), [(0, 1)]);
        assert_eq!(parts("BYTES=2-", 10), [(2, 10)]);
        assert_eq!(parts("bytes=-3", 10), [(7, 10)]);
        assert_eq!(parts("bytes=-30", 10), [(0, 10)]);
        assert_eq!(parts("bytes=9-99999999999999999999999", 10), [(9, 10)]);
        assert_eq!(parts("bytes= , 1-2 ,", 10), [(1, 3)]);
    }

    #[test]
    fn adjoining_ranges_are_merged() {
        assert_eq!(parts("bytes=0-1,4-5", 10), [(0, 2), (4, 6)]);
        assert_eq!(parts("bytes=4-5, 0-1", 10), [(4, 6), (0, 2)]);
        assert_eq!(parts("bytes=0-1,2-3", 10), [(0, 4)]);
        assert_eq!(parts("bytes=6-7,0-1,1-6", 10), [(0, 8)]);
        assert_eq!(parts("bytes=0-1,99-", 10), [(0, 2)]);
        assert_eq!(parts(&format!("bytes={}", "0-,".repeat(RANGES_MAX)), 10), [(0, 10)]);
        assert_eq!(
            requested_range(format!("bytes={}", "0-,".repeat(RANGES_MAX + 1)).as_bytes(), 10),
            RequestedRange::Whole
        );
    }

    #[test]
    fn unsatisfiable_ranges_are_refused() {
        for value in ["bytes=10-", "bytes=10-20", "bytes=-0", "bytes=99999999999999999999-", "bytes=10-,11-"] {
            assert_eq!(requested_range(value.as_bytes(), 10), RequestedRange::Nothing, "{value}");
        }
        assert_eq!(requested_range(b"bytes=0-", 0), RequestedRange::Nothing);
        assert_eq!(requested_range(b"bytes=-5", 0), RequestedRange::Whole);
    }

    #[test]
    fn malformed_ranges_are_ignored() {
        for value in [
            "",
            "bytes",
            "bytes=",
            "bytes=-",
            "bytes=a-b",
            "bytes=2-1",
            "bytes=1",
            "bytes 0-1",
            "lines=0-1",
            "bytes=0-1,x",
            "bytes=0x0-1",
            "bytes=--1",
            "bytes=1-2-3",
            "bytes=+0-1",
            "bytes=0 - 1",
            "bytes:0-1",
        ] {
            assert_eq!(requested_range(value.as_bytes(), 10), RequestedRange::Whole, "{value}");
        }
    }

    proptest! {
        /// Ranges are inside the file, separate from one another, and cover exactly the requested bytes.
        #[test]
        fn merged_ranges_cover_the_requested_bytes(
            requested in proptest::collection::vec((0u64..60, 0u64..60), 1..12),
            length in 1u64..50,
        ) {
            let requested: Vec<_> = requested.into_iter().map(|(a, b)| (a.min(b), a.max(b))).collect();
            let list: Vec<String> = requested.iter().map(|(first, last)| format!("{first}-{last}")).collect();
            let covered = |byte: u64| requested.iter().any(|(first, last)| (*first..=*last).contains(&byte));
            let parts = match requested_range(format!("bytes={}", list.join(",")).as_bytes(), length) {
                RequestedRange::Parts(parts) => parts,
                other => {
                    prop_assert_eq!(other, RequestedRange::Nothing);
                    Vec::new()
                }
            };
            for byte in 0..length {
                let holding = parts.iter().filter(|part| part.contains(&byte)).count();
                prop_assert_eq!(holding, usize::from(covered(byte)));
            }
            for (at, part) in parts.iter().enumerate() {
                prop_assert!(!part.is_empty() && part.end <= length);
                prop_assert!(parts.iter().skip(at + 1).all(|other| other.start > part.end || part.start > other.end));
            }
        }

        #[test]
        fn any_range_field_is_read_without_panic(value in proptest::collection::vec(any::<u8>(), 0..60), length in any::<u64>()) {
            requested_range(&value, length);
            requested_range(&[b"bytes=".as_slice(), &value].concat(), length);
        }
    }
}
