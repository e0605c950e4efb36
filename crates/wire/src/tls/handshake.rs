//! Handshake messages of TLS (RFC 8446, section 4), without the records around them.

/// The header of a handshake message: its type, and the length of its body.
pub fn header(bytes: &[u8]) -> Option<(u8, usize)> {
    let &[kind, a, b, c] = bytes.first_chunk::<4>()?;
    Some((kind, u32::from_be_bytes([0, a, b, c]) as usize))
}

/// The parts of a ClientHello that an observer uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientHello<'a> {
    /// Random bytes, by which a key log names the connection.
    pub random: [u8; 32],
    /// Host name of the server, as sent.
    pub server_name: Option<&'a [u8]>,
    /// The list of offered application protocols; see [`protocols`].
    pub protocols: Option<&'a [u8]>,
    /// QUIC transport parameters (RFC 9001, section 8.2).
    pub transport_parameters: Option<&'a [u8]>,
}

impl<'a> ClientHello<'a> {
    /// Parses the body of a complete message; `None` if its lengths are inconsistent.
    pub fn parse(body: &'a [u8]) -> Option<ClientHello<'a>> {
        let (_, rest) = body.split_at_checked(2)?;
        let (random, mut rest) = rest.split_first_chunk::<32>()?;
        // Session, cipher suites, compression methods.
        for width in [1, 2, 1] {
            vector(&mut rest, width)?;
        }
        let mut hello = ClientHello { random: *random, server_name: None, protocols: None, transport_parameters: None };
        if rest.is_empty() {
            return Some(hello);
        }
        extensions(&mut rest, |kind, content| match kind {
            SERVER_NAME => hello.server_name = host_name(content),
            PROTOCOLS => hello.protocols = list(content),
            QUIC_TRANSPORT_PARAMETERS => hello.transport_parameters = Some(content),
            _ => {}
        })?;
        Some(hello)
    }
}

/// The parts of a ServerHello that an observer uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServerHello {
    /// Random bytes.
    pub random: [u8; 32],
    /// Cipher suite.
    pub cipher_suite: u16,
    /// Version of TLS: 0x0304 for TLS 1.3.
    pub version: u16,
    /// Whether it asks for another ClientHello (HelloRetryRequest).
    pub is_retry: bool,
}

impl ServerHello {
    /// Parses the body of a complete message; `None` if its lengths are inconsistent.
    pub fn parse(body: &[u8]) -> Option<ServerHello> {
        let (version, rest) = body.split_first_chunk::<2>()?;
        let (random, mut rest) = rest.split_first_chunk::<32>()?;
        vector(&mut rest, 1)?;
        let (suite, rest) = rest.split_first_chunk::<2>()?;
        let (_, mut rest) = rest.split_first()?;
        let mut version = u16::from_be_bytes(*version);
        if !rest.is_empty() {
            extensions(&mut rest, |kind, content| {
                if let (SUPPORTED_VERSIONS, Some(chosen)) = (kind, content.first_chunk()) {
                    version = u16::from_be_bytes(*chosen);
                }
            })?;
        }
        let cipher_suite = u16::from_be_bytes(*suite);
        Some(ServerHello { random: *random, cipher_suite, version, is_retry: *random == RETRY })
    }
}

/// The application protocol in the body of EncryptedExtensions, if there is one.
pub fn chosen_protocol(body: &[u8]) -> Option<&[u8]> {
    let mut chosen = None;
    let mut rest = body;
    extensions(&mut rest, |kind, content| {
        if kind == PROTOCOLS {
            chosen = list(content).and_then(|list| protocols(list).next());
        }
    })?;
    chosen
}

/// The names in a list of application protocols (RFC 7301).
pub fn protocols(mut list: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || vector(&mut list, 1))
}

/// The value of a QUIC transport parameter that is an integer (RFC 9000, section 18).
pub fn transport_parameter(mut parameters: &[u8], wanted: u64) -> Option<u64> {
    loop {
        let kind = crate::quic::varint(&mut parameters)?;
        let length = usize::try_from(crate::quic::varint(&mut parameters)?).ok()?;
        let (mut value, rest) = parameters.split_at_checked(length)?;
        if kind == wanted {
            return crate::quic::varint(&mut value);
        }
        parameters = rest;
    }
}

/// Calls `each` with type and content of every extension of the list at the start of `bytes`.
fn extensions<'a>(bytes: &mut &'a [u8], mut each: impl FnMut(u16, &'a [u8])) -> Option<()> {
    let mut list = vector(bytes, 2)?;
    while !list.is_empty() {
        let (kind, rest) = list.split_first_chunk::<2>()?;
        list = rest;
        each(u16::from_be_bytes(*kind), vector(&mut list, 2)?);
    }
    Some(())
}

/// The content of a vector with a length of `width` bytes; shortens `bytes` by both.
fn vector<'a>(bytes: &mut &'a [u8], width: usize) -> Option<&'a [u8]> {
    let (length, rest) = bytes.split_at_checked(width)?;
    let length = length.iter().fold(0, |length, &byte| length << 8 | usize::from(byte));
    let (content, rest) = rest.split_at_checked(length)?;
    *bytes = rest;
    Some(content)
}

/// The content of a vector that is a whole extension.
fn list(mut content: &[u8]) -> Option<&[u8]> {
    vector(&mut content, 2)
}

/// The first name of a list of server names, if it is a host name of 1 to 255 bytes.
fn host_name(content: &[u8]) -> Option<&[u8]> {
    let (&kind, mut rest) = list(content)?.split_first()?;
    let name = vector(&mut rest, 2)?;
    (kind == 0 && (1..=255).contains(&name.len())).then_some(name)
}

/// Types of messages.
pub mod kind {
    /// ClientHello.
    pub const CLIENT_HELLO: u8 = 1;
    /// ServerHello, or HelloRetryRequest.
    pub const SERVER_HELLO: u8 = 2;
    /// EncryptedExtensions.
    pub const ENCRYPTED_EXTENSIONS: u8 = 8;
    /// Finished.
    pub const FINISHED: u8 = 20;
    /// KeyUpdate.
    pub const KEY_UPDATE: u8 = 24;
}

/// The transport parameter with the idle timeout in milliseconds.
pub const MAX_IDLE_TIMEOUT: u64 = 1;
/// The transport parameter with the bytes of all streams that the peer may send at first.
pub const INITIAL_MAX_DATA: u64 = 4;
/// The transport parameter with the bytes that the peer may send at first on a stream that this end opened.
pub const INITIAL_MAX_STREAM_DATA_BIDI_LOCAL: u64 = 5;
/// The transport parameter with the exponent of the delays in ACKs.
pub const ACK_DELAY_EXPONENT: u64 = 10;

const SERVER_NAME: u16 = 0;
const PROTOCOLS: u16 = 16;
const SUPPORTED_VERSIONS: u16 = 43;
const QUIC_TRANSPORT_PARAMETERS: u16 = 57;
/// The random of HelloRetryRequest: the SHA-256 of its name (RFC 8446, section 4.1.3).
const RETRY: [u8; 32] = [
    0xCF, 0x21, 0xAD, 0x74, 0xE5, 0x9A, 0x61, 0x11, 0xBE, 0x1D, 0x8C, 0x02, 0x1E, 0x65, 0xB8, 0x91, 0xC2, 0xA2, 0x11,
    0x16, 0x7A, 0xBB, 0x8C, 0x5E, 0x07, 0x9E, 0x09, 0xE2, 0xC8, 0xA8, 0x33, 0x9C,
];

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn extension(kind: u16, content: &[u8]) -> Vec<u8> {
        [&kind.to_be_bytes()[..], &(content.len() as u16).to_be_bytes(), content].concat()
    }

    fn hello(extensions: &[u8]) -> Vec<u8> {
        let length = (extensions.len() as u16).to_be_bytes();
        [&[3, 3][..], &[7; 32], &[1, 9], &[0, 2, 0x13, 1], &[1, 0], &length, extensions].concat()
    }

    #[test]
    fn client_hello_has_its_name_protocols_and_parameters() {
        let extensions = [
            extension(SERVER_NAME, b"\0\x08\0\0\x05a.org"),
            extension(PROTOCOLS, b"\0\x06\x02h3\x02hq"),
            extension(QUIC_TRANSPORT_PARAMETERS, b"\x04\x01\x05\x01\x04\x80\0\x75\x30"),
        ]
        .concat();
        let body = hello(&extensions);
        let hello = ClientHello::parse(&body).unwrap();
        assert_eq!((hello.random, hello.server_name), ([7; 32], Some(&b"a.org"[..])));
        assert_eq!(protocols(hello.protocols.unwrap()).collect::<Vec<_>>(), [b"h3", b"hq"]);
        let parameters = hello.transport_parameters.unwrap();
        assert_eq!(transport_parameter(parameters, MAX_IDLE_TIMEOUT), Some(30_000));
        assert_eq!(transport_parameter(parameters, 2), None);
        // A message may end before its extensions.
        let before_extensions = body.len() - extensions.len() - 2;
        for length in (0..body.len()).filter(|&length| length != before_extensions) {
            assert_eq!(ClientHello::parse(&body[..length]), None, "{length} bytes");
        }
        let hello = ClientHello::parse(&body[..before_extensions]).unwrap();
        assert_eq!((hello.server_name, hello.protocols, hello.transport_parameters), (None, None, None));
    }

    #[test]
    fn server_hello_has_the_negotiated_version_and_suite() {
        let mut body =
            [&[3, 3][..], &[5; 32], &[0, 0x13, 2, 0, 0, 6], &extension(SUPPORTED_VERSIONS, &[3, 4])].concat();
        let hello = ServerHello::parse(&body).unwrap();
        assert_eq!((hello.cipher_suite, hello.version, hello.is_retry), (0x1302, 0x0304, false));
        body[2..34].copy_from_slice(&RETRY);
        assert!(ServerHello::parse(&body).unwrap().is_retry);
        let old = [&[3, 3][..], &[5; 32], &[0, 0xC0, 0x2F, 0]].concat();
        assert_eq!(ServerHello::parse(&old).unwrap().version, 0x0303);
        assert_eq!(chosen_protocol(&[&[0, 9][..], &extension(PROTOCOLS, b"\0\x03\x02h3")].concat()), Some(&b"h3"[..]));
    }

    proptest! {
        #[test]
        fn any_bytes_are_parsed_without_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..200), at in 0usize..100, value: u8) {
            let _ = (ClientHello::parse(&bytes), ServerHello::parse(&bytes), chosen_protocol(&bytes), header(&bytes));
            let mut bytes = hello(&extension(SERVER_NAME, b"\0\x08\0\0\x05a.org"));
            if let Some(byte) = bytes.get_mut(at) { *byte = value; }
            let _ = ClientHello::parse(&bytes);
        }
    }
}
