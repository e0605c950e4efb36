//! Header fields as text lines, the form in which they arrive from an upstream and are stored.

/// The fields of a block of lines `Name: value CRLF`, with values trimmed.
pub(crate) fn lines(block: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> + Clone {
    block.split_inclusive(|&byte| byte == b'\n').filter_map(|line| {
        let colon = memchr::memchr(b':', line)?;
        Some((&line[..colon], line[colon + 1..].trim_ascii()))
    })
}

/// The first value of the fields called `name` (lower case).
pub(crate) fn first<'a>(block: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    lines(block).find(|(this, _)| is_named(this, name)).map(|(_, value)| value)
}

/// Whether a field name equals `name`, which is in lower case.
pub(crate) fn is_named(this: &[u8], name: &[u8]) -> bool {
    this.eq_ignore_ascii_case(name)
}

/// Appends one field.
pub(crate) fn push(block: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    block.extend_from_slice(name);
    block.extend_from_slice(b": ");
    block.extend_from_slice(value);
    block.extend_from_slice(b"\r\n");
}

/// Seconds since 1970 of a date in one of the three forms of RFC 9110, section 5.6.7; 0 for dates before 1970.
pub(crate) fn http_seconds(text: &[u8]) -> Option<u64> {
    let at = httpdate::parse_http_date(std::str::from_utf8(text).ok()?).ok()?;
    Some(at.duration_since(std::time::UNIX_EPOCH).map_or(0, |since| since.as_secs()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn header_fields_round_trip() {
        let mut block = Vec::new();
        push(&mut block, b"A", b"1");
        push(&mut block, b"b-c", b"");
        block.extend_from_slice(b"D:  x:y \r\n");
        let found: Vec<_> = lines(&block).collect();
        assert_eq!(found, [(&b"A"[..], &b"1"[..]), (b"b-c", b""), (b"D", b"x:y")]);
        assert_eq!((first(&block, b"d"), first(&block, b"e")), (Some(&b"x:y"[..]), None));
    }

    #[test]
    fn http_dates_are_read_in_three_forms() {
        for text in ["Sun, 06 Nov 1994 08:49:37 GMT", "Sunday, 06-Nov-94 08:49:37 GMT", "Sun Nov  6 08:49:37 1994"] {
            assert_eq!(http_seconds(text.as_bytes()), Some(784_111_777), "{text}");
        }
        for text in ["0", "-1", "", "now", "Sun, 06 Nov 1994 08:49:37 +0900"] {
            assert_eq!(http_seconds(text.as_bytes()), None, "{text}");
        }
    }
}
