//! Blanks comments and literals of Rust source, so that rules about code ignore text. Lines and columns stay the same.

/// `text` with every byte of a comment, string or character literal replaced by a space, except line ends.
pub fn code_only(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut code = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let end = match bytes[at] {
            b'/' if bytes[at..].starts_with(b"//") => line_end(bytes, at),
            b'/' if bytes[at..].starts_with(b"/*") => comment_end(bytes, at),
            b'"' => string_end(bytes, at),
            b'\'' => character_end(text, at),
            b'r' | b'b' | b'c' if at == 0 || !is_word(bytes[at - 1]) => raw_string_end(bytes, at),
            _ => at,
        };
        if end == at {
            code.push(bytes[at]);
            at += 1;
        } else {
            code.extend(bytes[at..end].iter().map(|&byte| if byte == b'\n' { b'\n' } else { b' ' }));
            at = end;
        }
    }
    // Only complete literals and comments are blanked, so the rest is valid UTF-8.
    String::from_utf8_lossy(&code).into_owned()
}

/// Whether `line` contains `word` at word boundaries.
pub fn has_word(line: &str, word: &str) -> bool {
    line.match_indices(word).any(|(at, _)| {
        let before = line[..at].bytes().next_back().is_some_and(is_word);
        let after = line[at + word.len()..].bytes().next().is_some_and(is_word);
        !before && !after
    })
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte >= 0x80
}

fn line_end(bytes: &[u8], from: usize) -> usize {
    bytes[from..].iter().position(|&byte| byte == b'\n').map_or(bytes.len(), |length| from + length)
}

/// Block comments nest in Rust.
fn comment_end(bytes: &[u8], from: usize) -> usize {
    let (mut at, mut depth) = (from, 0);
    while at < bytes.len() {
        if bytes[at..].starts_with(b"/*") {
            depth += 1;
            at += 2;
        } else if bytes[at..].starts_with(b"*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += 1;
        }
    }
    bytes.len()
}

fn string_end(bytes: &[u8], from: usize) -> usize {
    let mut at = from + 1;
    while at < bytes.len() {
        match bytes[at] {
            b'\\' => at += 2,
            b'"' => return at + 1,
            _ => at += 1,
        }
    }
    bytes.len()
}

/// The end of a character literal, or `from` when the quote begins a lifetime.
fn character_end(text: &str, from: usize) -> usize {
    let inside = &text[from + 1..];
    let Some(first) = inside.chars().next() else { return from };
    if first == '\\' {
        // The character after a backslash belongs to the literal, also if it is a quote.
        return inside[1..].char_indices().skip(1).find(|(_, c)| *c == '\'').map_or(from, |(at, _)| from + at + 3);
    }
    let after = from + 1 + first.len_utf8();
    if text.as_bytes().get(after) == Some(&b'\'') { after + 1 } else { from }
}

/// The end of `r".."`, `r#".."#`, `br".."` or `cr".."`; `from` if there is no raw string.
fn raw_string_end(bytes: &[u8], from: usize) -> usize {
    let mut at = from + usize::from(bytes[from] != b'r');
    if bytes.get(at) != Some(&b'r') {
        return from;
    }
    at += 1;
    let hashes = bytes[at..].iter().take_while(|&&byte| byte == b'#').count();
    at += hashes;
    if bytes.get(at) != Some(&b'"') {
        return from;
    }
    let close = [&b"\""[..], &vec![b'#'; hashes]].concat();
    let body = &bytes[at + 1..];
    body.windows(close.len())
        .position(|window| window == close)
        .map_or(bytes.len(), |length| at + 1 + length + close.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        code_only(text).split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn comments_and_literals_are_blanked_and_code_stays() {
        assert_eq!(words("a // unsafe\nb /* x /* y */ z */ c"), ["a", "b", "c"]);
        assert_eq!(
            words(r#"a("x \" unsafe", 'b', '\'', '"', '\u{1F600}', 'é') d"#),
            ["a(", ",", ",", ",", ",", ",", ")", "d"]
        );
        assert_eq!(words("r#\"unsafe \" x\"# a br\"\\\" b cr##\"\"# \"## c"), ["a", "b", "c"]);
        let lifetimes = "fn f<'a>(x: &'a str, r: u8, bar: &'static str)";
        assert_eq!(code_only(lifetimes), lifetimes);
        assert_eq!(words("r#type b'x' b"), ["r#type", "b", "b"]);
    }

    #[test]
    fn blanking_keeps_lines_and_columns() {
        let text = "x /* a\nb */ y \"c\nd\" z // e\nw";
        let code = code_only(text);
        assert_eq!(code.len(), text.len());
        assert_eq!(code.lines().map(str::trim_end).collect::<Vec<_>>(), ["x", "     y", "   z", "w"]);
    }

    #[test]
    fn unterminated_literals_end_at_the_end_of_the_file() {
        for text in ["\"abc", "/* a", "r#\"a\"", "'", "'\\", "b", "r", "c", "'\\n"] {
            assert_eq!(code_only(text).len(), text.len(), "{text}");
        }
    }

    #[test]
    fn words_match_at_word_boundaries() {
        assert!(has_word("unsafe {", "unsafe") && has_word("(unsafe)", "unsafe"));
        assert!(!has_word("unsafe_op", "unsafe") && !has_word("not_unsafe", "unsafe"));
        assert!(has_word("unsafe_op; unsafe", "unsafe"));
    }
}
