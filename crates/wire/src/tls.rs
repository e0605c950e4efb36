//! The server name in a TLS ClientHello (RFC 8446, RFC 6066).
//!
//! The hello may span several records; its bytes are read one by one across record headers, so that only the name is
//! copied.

pub mod handshake;

/// The server name in the first bytes of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServerName {
    /// The name, as sent: ASCII by the standard, any bytes in practice. 1 to 255 bytes.
    Name(Box<[u8]>),
    /// A complete ClientHello without a name.
    Absent,
    /// An incomplete ClientHello; more bytes are needed.
    Incomplete,
    /// Not a ClientHello.
    NotHello,
}

/// Reads the server name from `bytes`, the start of a client's stream. The cost is linear in their number.
pub fn server_name(bytes: &[u8]) -> ServerName {
    match read(&mut Handshake { bytes, at: 0, record: 0 }) {
        Ok(name) => name,
        Err(End::Incomplete) => ServerName::Incomplete,
        Err(End::Malformed) => ServerName::NotHello,
    }
}

/// Whether `bytes` start like a TLS handshake record; `None` while fewer than three are available and match.
pub fn is_handshake(bytes: &[u8]) -> Option<bool> {
    let expected = [HANDSHAKE_RECORD, 3];
    if bytes.iter().zip(expected).any(|(&found, byte)| found != byte) {
        return Some(false);
    }
    bytes.get(2).map(|&minor| minor <= 4)
}

fn read(hello: &mut Handshake<'_>) -> Result<ServerName, End> {
    if hello.byte()? != CLIENT_HELLO {
        return Err(End::Malformed);
    }
    let mut left = hello.number(3)?;
    let mut fixed = |hello: &mut Handshake<'_>, width: usize, extra: usize| -> Result<(), End> {
        // A field of `width` length bytes (none: 0) and its content, and `extra` bytes before it.
        hello.skip(extra)?;
        let length = if width == 0 { 0 } else { hello.number(width)? };
        hello.skip(length)?;
        left = left.checked_sub(extra + width + length).ok_or(End::Malformed)?;
        Ok(())
    };
    // Version and random; then session, cipher suites, compression methods.
    fixed(hello, 1, 34)?;
    fixed(hello, 2, 0)?;
    fixed(hello, 1, 0)?;
    if left < 2 {
        return Ok(ServerName::Absent);
    }
    let mut extensions = hello.number(2)?;
    while extensions >= 4 {
        let (kind, length) = (hello.number(2)?, hello.number(2)?);
        extensions = extensions.checked_sub(4 + length).ok_or(End::Malformed)?;
        if kind != SERVER_NAME {
            hello.skip(length)?;
            continue;
        }
        // A list of one entry in practice: its length, the kind 0 (a host name), the name's length, the name.
        if length < 5 {
            return Ok(ServerName::Absent);
        }
        let (_, kind, size) = (hello.number(2)?, hello.byte()?, hello.number(2)?);
        if kind != 0 || size == 0 || size > 255 || size + 5 > length {
            return Ok(ServerName::Absent);
        }
        let mut name = [0u8; 255];
        for byte in &mut name[..size] {
            *byte = hello.byte()?;
        }
        return Ok(ServerName::Name(name[..size].into()));
    }
    Ok(ServerName::Absent)
}

/// Handshake bytes without the record headers between them.
struct Handshake<'a> {
    bytes: &'a [u8],
    at: usize,
    /// Remaining bytes of the current record.
    record: usize,
}

impl Handshake<'_> {
    fn open_record(&mut self) -> Result<(), End> {
        while self.record == 0 {
            let rest = &self.bytes[self.at..];
            if is_handshake(rest) == Some(false) {
                return Err(End::Malformed);
            }
            let header = rest.first_chunk::<5>().ok_or(End::Incomplete)?;
            self.record = usize::from(u16::from_be_bytes([header[3], header[4]]));
            self.at += 5;
            if self.record == 0 {
                return Err(End::Malformed);
            }
        }
        Ok(())
    }

    fn byte(&mut self) -> Result<u8, End> {
        self.open_record()?;
        let byte = *self.bytes.get(self.at).ok_or(End::Incomplete)?;
        self.at += 1;
        self.record -= 1;
        Ok(byte)
    }

    fn number(&mut self, width: usize) -> Result<usize, End> {
        (0..width).try_fold(0, |number, _| Ok(number << 8 | usize::from(self.byte()?)))
    }

    fn skip(&mut self, mut count: usize) -> Result<(), End> {
        while count > 0 {
            self.open_record()?;
            let step = count.min(self.record).min(self.bytes.len() - self.at);
            if step == 0 {
                return Err(End::Incomplete);
            }
            self.at += step;
            self.record -= step;
            count -= step;
        }
        Ok(())
    }
}

enum End {
    Incomplete,
    Malformed,
}

const HANDSHAKE_RECORD: u8 = 22;
const CLIENT_HELLO: u8 = 1;
const SERVER_NAME: usize = 0;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A hello with the given extensions, in records of at most `cut` bytes.
    fn hello(extensions: &[u8], cut: usize) -> Vec<u8> {
        let mut body = vec![3, 3];
        body.extend([7; 32]);
        body.extend([2, 9, 9]);
        body.extend([0, 4, 0x13, 1, 0x13, 2]);
        body.extend([1, 0]);
        if !extensions.is_empty() {
            body.extend((extensions.len() as u16).to_be_bytes());
            body.extend(extensions);
        }
        let mut message = vec![1, 0, 0, body.len() as u8];
        message.extend(body);
        message.chunks(cut).flat_map(|part| [&[22, 3, 1, 0, part.len() as u8][..], part].concat()).collect()
    }

    fn named() -> Vec<u8> {
        [&[0, 10, 0, 2, 0, 29][..], &[0, 0, 0, 12, 0, 10, 0, 0, 7], b"a.b.org", &[0, 5, 0, 1, 1]].concat()
    }

    #[test]
    fn server_name_is_found_in_one_record_and_in_many() {
        for cut in [200, 50, 7, 1] {
            let bytes = hello(&named(), cut);
            assert_eq!(server_name(&bytes), ServerName::Name(b"a.b.org"[..].into()), "records of {cut}");
        }
    }

    #[test]
    fn complete_hello_without_a_name_is_absent() {
        assert_eq!(server_name(&hello(&[], 200)), ServerName::Absent);
        assert_eq!(server_name(&hello(&[0, 10, 0, 2, 0, 29], 200)), ServerName::Absent);
        assert_eq!(server_name(b"GET / HTTP/1.1\r\n"), ServerName::NotHello);
        assert_eq!(server_name(&[]), ServerName::Incomplete);
        assert_eq!(is_handshake(&[22, 3]), None);
        assert_eq!(is_handshake(&[22, 3, 1]), Some(true));
        assert_eq!(is_handshake(&[22, 4]), Some(false));
    }

    #[test]
    fn hello_prefix_is_incomplete_until_the_name_ends() {
        let bytes = hello(&named(), 200);
        let end = bytes.windows(7).position(|window| window == b"a.b.org").unwrap() + 7;
        for length in 0..end {
            assert_eq!(server_name(&bytes[..length]), ServerName::Incomplete, "{length} bytes");
        }
        assert!(matches!(server_name(&bytes[..end]), ServerName::Name(_)));
    }

    proptest! {
        #[test]
        fn server_name_of_any_bytes_does_not_panic(mut bytes in prop::collection::vec(any::<u8>(), 0..300), at in 0usize..120, value: u8) {
            let _ = server_name(&bytes);
            bytes = hello(&named(), 30);
            if let Some(byte) = bytes.get_mut(at) { *byte = value; }
            let _ = server_name(&bytes);
        }
    }
}
