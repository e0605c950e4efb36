//! The Range field (RFC 9110, section 14).

use std::ops::Range;

/// What part of a file is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Wanted {
    /// All of it: the field is none that means something here, or asks for more than is sensible.
    Whole,
    /// Parts: at least one, none empty, none touching another, in the order asked for.
    Parts(Vec<Range<u64>>),
    /// Nothing that is there.
    Nothing,
}

/// Reads the value of a Range field for a file of `length` bytes.
pub(super) fn wanted(value: &[u8], length: u64) -> Wanted {
    let Some(set) =
        value.split_at_checked(6).and_then(|(unit, set)| unit.eq_ignore_ascii_case(b"bytes=").then_some(set))
    else {
        return Wanted::Whole;
    };
    let mut parts: Vec<Range<u64>> = Vec::new();
    let (mut asked, mut satisfiable) = (0, false);
    for spec in set.split(|&byte| byte == b',').map(<[u8]>::trim_ascii).filter(|spec| !spec.is_empty()) {
        asked += 1;
        if asked > ASKED_MAX {
            return Wanted::Whole;
        }
        match one(spec, length) {
            Err(NotARange) => return Wanted::Whole,
            Ok(None) => {}
            Ok(Some(part)) => {
                satisfiable = true;
                if !part.is_empty() {
                    join(&mut parts, part);
                }
            }
        }
    }
    match (asked, satisfiable, parts.is_empty()) {
        // No range at all; or the last bytes of an empty file, which no Content-Range can express.
        (0, ..) | (_, true, true) => Wanted::Whole,
        (_, false, _) => Wanted::Nothing,
        (_, true, false) => Wanted::Parts(parts),
    }
}

/// The syntax is not that of a range: the whole field is void.
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

/// Digits; more than 64 bits hold is as good as the largest number, which is past the end of any file.
fn number(digits: &[u8]) -> Result<u64, NotARange> {
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return Err(NotARange);
    }
    Ok(digits.iter().fold(0u64, |sum, digit| sum.saturating_mul(10).saturating_add(u64::from(digit - b'0'))))
}

/// Adds a part, or widens the first that it touches, and joins what then touches that.
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
            // What did not touch before may do so now.
            next = at + 1;
        } else {
            next += 1;
        }
    }
    parts[at] = wide;
}

/// More ranges than any client in use asks for. A longer list is answered with the whole file (RFC 9110, section 14.2).
const ASKED_MAX: usize = 32;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn parts(value: &str, length: u64) -> Vec<(u64, u64)> {
        match wanted(value.as_bytes(), length) {
            Wanted::Parts(parts) => parts.into_iter().map(|part| (part.start, part.end)).collect(),
            other => panic!("{value}: {other:?}"),
        }
    }

    #[test]
    fn single_ones() {
        assert_eq!(parts("bytes=0-0", 10), [(0, 1)]);
        assert_eq!(parts("BYTES=2-", 10), [(2, 10)]);
        assert_eq!(parts("bytes=-3", 10), [(7, 10)]);
        assert_eq!(parts("bytes=-30", 10), [(0, 10)]);
        assert_eq!(parts("bytes=9-99999999999999999999999", 10), [(9, 10)]);
        assert_eq!(parts("bytes= , 1-2 ,", 10), [(1, 3)]);
    }

    #[test]
    fn several_are_joined_where_they_touch() {
        assert_eq!(parts("bytes=0-1,4-5", 10), [(0, 2), (4, 6)]);
        assert_eq!(parts("bytes=4-5, 0-1", 10), [(4, 6), (0, 2)]);
        assert_eq!(parts("bytes=0-1,2-3", 10), [(0, 4)]);
        assert_eq!(parts("bytes=6-7,0-1,1-6", 10), [(0, 8)]);
        assert_eq!(parts("bytes=0-1,99-", 10), [(0, 2)]);
        assert_eq!(parts(&format!("bytes={}", "0-,".repeat(ASKED_MAX)), 10), [(0, 10)]);
        assert_eq!(wanted(format!("bytes={}", "0-,".repeat(ASKED_MAX + 1)).as_bytes(), 10), Wanted::Whole);
    }

    #[test]
    fn what_is_not_there() {
        for value in ["bytes=10-", "bytes=10-20", "bytes=-0", "bytes=99999999999999999999-", "bytes=10-,11-"] {
            assert_eq!(wanted(value.as_bytes(), 10), Wanted::Nothing, "{value}");
        }
        assert_eq!(wanted(b"bytes=0-", 0), Wanted::Nothing);
        assert_eq!(wanted(b"bytes=-5", 0), Wanted::Whole);
    }

    #[test]
    fn what_is_no_range() {
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
            assert_eq!(wanted(value.as_bytes(), 10), Wanted::Whole, "{value}");
        }
    }

    proptest! {
        /// Parts are inside the file, apart from one another, and cover exactly the bytes that were asked for.
        #[test]
        fn the_same_bytes(asked in proptest::collection::vec((0u64..60, 0u64..60), 1..12), length in 1u64..50) {
            let asked: Vec<_> = asked.into_iter().map(|(a, b)| (a.min(b), a.max(b))).collect();
            let list: Vec<String> = asked.iter().map(|(first, last)| format!("{first}-{last}")).collect();
            let covered = |byte: u64| asked.iter().any(|(first, last)| (*first..=*last).contains(&byte));
            let parts = match wanted(format!("bytes={}", list.join(",")).as_bytes(), length) {
                Wanted::Parts(parts) => parts,
                other => {
                    prop_assert_eq!(other, Wanted::Nothing);
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
        fn any_bytes(value in proptest::collection::vec(any::<u8>(), 0..60), length in any::<u64>()) {
            wanted(&value, length);
            wanted(&[b"bytes=".as_slice(), &value].concat(), length);
        }
    }
}
