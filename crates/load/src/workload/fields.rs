//! Reads the header fields of a response.

/// The fields of an unmodified head: a status line, then `name: value` lines up to an empty line or the end. Names are
/// unmodified, values are trimmed. A line without a colon, or with an empty name, is skipped.
///
/// The driver converts the fields of HTTP/2 to this form.
pub fn fields(head: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
    let lines = head.split(|&byte| byte == b'\n').skip(1);
    let lines = lines.map(|line| line.strip_suffix(b"\r").unwrap_or(line)).take_while(|line| !line.is_empty());
    lines.filter_map(|line| {
        let colon = line.iter().position(|&byte| byte == b':').filter(|&colon| colon > 0)?;
        Some((line[..colon].trim_ascii_end(), line[colon + 1..].trim_ascii()))
    })
}

/// The value of the first field with this name, case-insensitive.
pub fn first<'a>(head: &'a [u8], name: &str) -> Option<&'a [u8]> {
    fields(head).find(|(field, _)| field.eq_ignore_ascii_case(name.as_bytes())).map(|(_, value)| value)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn header_fields_are_read_up_to_the_empty_line() {
        let head = b"HTTP/1.1 200 OK\r\nSet-Cookie: a=b\r\nX-Empty:\r\nno colon\r\n: no name\r\nset-cookie:c=d \r\n\r\nLater: x\r\n";
        let read: Vec<_> = fields(head).collect();
        let expected: [(&[u8], &[u8]); 3] = [(b"Set-Cookie", b"a=b"), (b"X-Empty", b""), (b"set-cookie", b"c=d")];
        assert_eq!(read, expected);
        assert_eq!(first(head, "SET-COOKIE"), Some(&b"a=b"[..]));
        assert_eq!((first(head, "later"), first(b"", "a")), (None, None));
        assert_eq!(first(b"HTTP/1.1 200 OK\nA: b\n\n", "a"), Some(&b"b"[..]), "bare line feeds");
    }

    proptest! {
        #[test]
        fn field_parsing_never_panics_on_any_head(head in prop::collection::vec(any::<u8>(), 0..300)) {
            for (name, value) in fields(&head) {
                prop_assert!(!value.contains(&b'\n') && !name.contains(&b':'));
            }
        }
    }
}
