//! Converts request targets from the escaped form of logs to the percent-encoded form of requests.
//!
//! Apache escapes bytes that would end or garble a line as `\"`, `\\`, `\n` and so on or `\xHH` (`ap_escape_logitem`);
//! nginx uses only `\xHH`. The original bytes are sent percent-encoded, as most of them are invalid in a request line.

/// Decodes the escapes of Apache and nginx. A backslash that does not begin an escape stays unchanged.
pub(super) fn unescaped(text: &str) -> Vec<u8> {
    let bytes = text.as_bytes();
    let mut plain = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        let (value, length) = match (byte, bytes.get(at + 1)) {
            (b'\\', Some(b'x')) => match bytes.get(at + 2..at + 4).and_then(hexadecimal) {
                Some(value) => (value, 4),
                None => (byte, 1),
            },
            (b'\\', Some(quoted @ (b'"' | b'\\'))) => (*quoted, 2),
            (b'\\', Some(b'b')) => (0x08, 2),
            (b'\\', Some(b't')) => (b'\t', 2),
            (b'\\', Some(b'n')) => (b'\n', 2),
            (b'\\', Some(b'v')) => (0x0b, 2),
            (b'\\', Some(b'r')) => (b'\r', 2),
            _ => (byte, 1),
        };
        plain.push(value);
        at += length;
    }
    plain
}

/// Encodes a target for a request line: bytes other than visible ASCII, quotes and backslashes are percent-encoded. All
/// other bytes stay unchanged.
pub(super) fn percent_encoded(target: &[u8]) -> String {
    let mut encoded = String::with_capacity(target.len());
    for &byte in target {
        match byte {
            b'"' | b'\\' => encoded.push_str(&format!("%{byte:02X}")),
            b'!'..=b'~' => encoded.push(char::from(byte)),
            _ => encoded.push_str(&format!("%{byte:02X}")),
        }
    }
    encoded
}

fn hexadecimal(digits: &[u8]) -> Option<u8> {
    let text = std::str::from_utf8(digits).ok().filter(|text| text.bytes().all(|byte| byte.is_ascii_hexdigit()))?;
    u8::from_str_radix(text, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn apache_and_nginx_escapes_are_decoded_and_percent_encoded() {
        for (logged, sent) in [
            (r"/caf\xc3\xa9?x=\x22", "/caf%C3%A9?x=%22"),
            (r"/caf\xC3\xA9", "/caf%C3%A9"),
            (r#"/a\"b\\c"#, "/a%22b%5Cc"),
            (r"/tab\tline\nreturn\r\b\v", "/tab%09line%0Areturn%0D%08%0B"),
            (r"/\x41\x2f\x7f\x00", "/A/%7F%00"),
            // Invalid escapes stay unchanged.
            (r"/\x4\xzz\q\", r"/%5Cx4%5Cxzz%5Cq%5C"),
            ("/a%20b|{c}~", "/a%20b|{c}~"),
            ("/é", "/%C3%A9"),
        ] {
            assert_eq!(percent_encoded(&unescaped(logged)), sent, "{logged}");
        }
    }
}
