//! Parses lists and numbers in field values (RFC 9110, sections 5.6.1 and 8.6).

/// Whether a byte is white space around list members: SP, HTAB, and the CR and LF that a folded line leaves in a value.
fn is_space(byte: &u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\r' | b'\n')
}

/// The value without white space at both ends.
pub fn trim(mut value: &[u8]) -> &[u8] {
    while let [first, rest @ ..] = value
        && is_space(first)
    {
        value = rest;
    }
    while let [rest @ .., last] = value
        && is_space(last)
    {
        value = rest;
    }
    value
}

/// The members of a comma-separated list, trimmed. Empty members are skipped.
pub fn members(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value.split(|&byte| byte == b',').map(trim).filter(|member| !member.is_empty())
}

/// Why a text is not a decimal number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotDecimal {
    /// The text is empty.
    Empty,
    /// The text has a character that is not a digit: a sign, a space, a point.
    Digits,
    /// The number exceeds 64 bits.
    Overflow,
}

/// Parses a decimal number that consists of digits only.
///
/// # Errors
/// The text is not a number, or exceeds 64 bits.
pub fn decimal(text: &[u8]) -> Result<u64, NotDecimal> {
    if text.is_empty() {
        return Err(NotDecimal::Empty);
    }
    if !text.iter().all(u8::is_ascii_digit) {
        return Err(NotDecimal::Digits);
    }
    let value = text.iter().try_fold(0u64, |value, &digit| value.checked_mul(10)?.checked_add(u64::from(digit - b'0')));
    value.ok_or(NotDecimal::Overflow)
}

/// Whether a byte may occur in a token (RFC 9110, section 5.6.2): a method, a field name, a transfer coding.
pub fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric()
        || matches!(byte, b'!' | b'#'..=b'\'' | b'*' | b'+' | b'-' | b'.' | b'^' | b'_' | b'`' | b'|' | b'~')
}

/// Whether a byte may occur in a field value: every byte except control characters other than the tab.
pub fn is_text(byte: u8) -> bool {
    byte == b'\t' || (byte >= b' ' && byte != 0x7f)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn list_members_are_trimmed_and_empty_ones_dropped() {
        let read: Vec<_> = members(b" a ,\tb,, c d ,\r\n e,").collect();
        assert_eq!(read, [&b"a"[..], b"b", b"c d", b"e"]);
        assert_eq!(members(b" , ,").count(), 0);
        assert_eq!(trim(b"\r\n  x\x0b\x0c \t"), b"x\x0b\x0c");
    }

    #[test]
    fn content_length_accepts_only_digits() {
        assert_eq!(decimal(b"0"), Ok(0));
        assert_eq!(decimal(b"007"), Ok(7));
        assert_eq!(decimal(b"18446744073709551615"), Ok(u64::MAX));
        assert_eq!(decimal(b"18446744073709551616"), Err(NotDecimal::Overflow));
        assert_eq!(decimal(b""), Err(NotDecimal::Empty));
        for wrong in [&b"+5"[..], b"-5", b"5 5", b"0x5", b"5.0", b"\xd9\xa5", b" 5"] {
            assert_eq!(decimal(wrong), Err(NotDecimal::Digits));
        }
    }
}
