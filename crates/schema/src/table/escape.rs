//! Escaping of untrusted bytes for a UTF-8 column, reversible byte for byte.

use std::borrow::Cow;
use std::fmt::Write;

/// Escapes control characters, the backslash and bytes that are not UTF-8 as `\xNN`.
pub(super) fn escaped(word: &[u8]) -> Cow<'_, str> {
    match std::str::from_utf8(word) {
        Ok(text) if !text.contains(is_escaped) => Cow::Borrowed(text),
        _ => {
            let mut text = String::with_capacity(word.len() + 12);
            for chunk in word.utf8_chunks() {
                for c in chunk.valid().chars() {
                    if is_escaped(c) {
                        c.encode_utf8(&mut [0; 4]).bytes().for_each(|byte| put(&mut text, byte));
                    } else {
                        text.push(c);
                    }
                }
                chunk.invalid().iter().for_each(|&byte| put(&mut text, byte));
            }
            Cow::Owned(text)
        }
    }
}

/// Reverses [`escaped`]; `None` if a backslash is not followed by `x` and two digits.
pub(super) fn unescaped(text: &str) -> Option<Vec<u8>> {
    let mut word = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('\\') {
        word.extend(before.as_bytes());
        let digits = after.strip_prefix('x')?.get(..2)?;
        word.push(u8::from_str_radix(digits, 16).ok()?);
        rest = &after[3..];
    }
    word.extend(rest.as_bytes());
    Some(word)
}

fn is_escaped(c: char) -> bool {
    c.is_control() || c == '\\'
}

fn put(text: &mut String, byte: u8) {
    let _ = write!(text, "\\x{byte:02x}");
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn plain_text_is_not_escaped() {
        assert_eq!(escaped("/山彦?a='b'".as_bytes()), "/山彦?a='b'");
        assert_eq!(escaped(b"/a\\b\x1b[31m\xFF"), "/a\\x5cb\\x1b[31m\\xff");
        assert_eq!(unescaped("a\\"), None);
        assert_eq!(unescaped("a\\xg0"), None);
        assert_eq!(unescaped("a\\x1é"), None);
    }

    proptest! {
        #[test]
        fn escaped_text_round_trips(word in prop::collection::vec(any::<u8>(), 0..40)) {
            prop_assert_eq!(unescaped(&escaped(&word)), Some(word));
        }
    }
}
