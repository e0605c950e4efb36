//! Escapes text from outside for a terminal.

use std::borrow::Cow;
use std::fmt::Write as _;

/// Escapes every character that could control a terminal or hide part of the text. Control characters become Rust
/// escapes (`\r`, `\u{1b}`). Characters that change the direction of writing, separate lines or are invisible become
/// their code (`\u{202e}`). All other characters, backslashes included, stay unchanged.
pub fn printable(text: &str) -> Cow<'_, str> {
    if !text.contains(is_unprintable) {
        return Cow::Borrowed(text);
    }
    let mut plain = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        match c {
            c if c.is_control() => {
                let _ = write!(plain, "{}", c.escape_default());
            }
            c if is_unprintable(c) => {
                let _ = write!(plain, "{}", c.escape_unicode());
            }
            c => plain.push(c),
        }
    }
    Cow::Owned(plain)
}

/// Escapes text of several lines as [`printable`] does, but keeps line feeds and turns each tab into a space.
pub fn printable_lines(text: &str) -> Cow<'_, str> {
    if !text.contains(|c| c != '\n' && is_unprintable(c)) {
        return Cow::Borrowed(text);
    }
    let lines = text.split('\n').map(|line| printable(&line.replace('\t', " ")).into_owned());
    Cow::Owned(lines.collect::<Vec<_>>().join("\n"))
}

/// Whether [`printable`] escapes this character.
pub fn is_unprintable(c: char) -> bool {
    c.is_control()
        || matches!(c,
        // Direction of writing (Unicode Standard Annex 9).
        '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
        // Separators of lines and paragraphs.
        | '\u{2028}' | '\u{2029}'
        // Invisible characters: zero-width spaces, the byte order mark, annotations, tags.
        | '\u{200b}' | '\u{2060}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_and_bidirectional_characters_are_escaped() {
        for (text, shown) in [
            ("a\u{1b}[31mb\r\n\u{9b}x\u{202e}", "a\\u{1b}[31mb\\r\\n\\u{9b}x\\u{202e}"),
            ("\u{7f}\0\u{8}", "\\u{7f}\\u{0}\\u{8}"),
            ("\u{2066}\u{200f}\u{61c}\u{2028}", "\\u{2066}\\u{200f}\\u{61c}\\u{2028}"),
            ("pay\u{200b}pal\u{feff}\u{e0041}", "pay\\u{200b}pal\\u{feff}\\u{e0041}"),
        ] {
            assert_eq!(printable(text), shown);
            assert!(!printable(text).contains(is_unprintable));
        }
        for plain in ["山彦 é \\ 👩\u{200d}🚀", ""] {
            assert!(matches!(printable(plain), Cow::Borrowed(text) if text == plain));
        }
        assert_eq!(printable_lines("a\tb\nc\u{202e}"), "a b\nc\\u{202e}");
        assert_eq!(printable_lines("a\nb\n"), "a\nb\n");
    }
}
