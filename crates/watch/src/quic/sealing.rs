//! Protected packets of a connection whose secrets are known, for tests and fuzz targets: never for use.

use std::sync::Arc;

use schema::Direction;
use wire::quic::{ConnectionId, VERSION_1, VERSION_2, is_long};

use super::protection::{Protection, initial};
use crate::KeyLog;
use crate::crypto::{Secret, Suite};

/// Protects a packet, as its sender does. `header` ends with the packet number, whose place is `number_at`.
pub(super) fn protect(protection: &Protection, header: &[u8], number_at: usize, number: u64, plain: &[u8]) -> Vec<u8> {
    let mut packet = [header, &protection.keys.seal(number, header, plain)].concat();
    let mask = protection.mask_of(&packet, number_at).expect("a packet with a sample");
    let length = header.len() - number_at;
    packet[0] ^= mask[0] & if is_long(packet[0]) { 0x0F } else { 0x1F };
    for (byte, mask) in packet[number_at..number_at + length].iter_mut().zip(&mask[1..]) {
        *byte ^= mask;
    }
    packet
}

/// A packet with a long header of the type `code` with a protected payload.
pub(super) fn long(
    protection: &Protection,
    code: u8,
    version: u32,
    ids: [ConnectionId; 2],
    number: u32,
    plain: &[u8],
) -> Vec<u8> {
    long_from(0xC3, protection, code, version, ids, number, plain)
}

/// The same, from a first byte without the type; `ids` are the destination's and the source's.
pub(super) fn long_from(
    first: u8,
    protection: &Protection,
    code: u8,
    version: u32,
    ids: [ConnectionId; 2],
    number: u32,
    plain: &[u8],
) -> Vec<u8> {
    let mut header = vec![first | code << 4];
    header.extend(version.to_be_bytes());
    for id in ids {
        header.push(id.len() as u8);
        header.extend(id.as_bytes());
    }
    if code == 0 || version == VERSION_2 && code == 1 {
        header.push(0);
    }
    header.extend((0x4000 | (4 + plain.len() + 16) as u16).to_be_bytes());
    let number_at = header.len();
    header.extend(number.to_be_bytes());
    protect(protection, &header, number_at, number.into(), plain)
}

/// A key log with the secrets [`secret`] for the client of the standard's example (RFC 9001, appendix A.2).
pub(super) fn key_log() -> Arc<KeyLog> {
    let random = "ebf8fa56f12939b9584a3896472ec40bb863cfd3e86804fe3a47f06a2b69484c";
    let line = |label: &str, digits: &str| format!("{label} {random} {}\n", digits.repeat(32));
    let text = [
        line("CLIENT_EARLY_TRAFFIC_SECRET", "11"),
        line("CLIENT_HANDSHAKE_TRAFFIC_SECRET", "22"),
        line("SERVER_HANDSHAKE_TRAFFIC_SECRET", "33"),
        line("CLIENT_TRAFFIC_SECRET_0", "44"),
        line("SERVER_TRAFFIC_SECRET_0", "55"),
    ]
    .concat();
    Arc::new(KeyLog::parse(text.as_bytes()).expect("a valid key log"))
}

/// The secret of a line of [`key_log`].
pub(super) fn secret(digits: u8) -> Secret {
    Secret::new(Suite::Aes128, &[digits; 32]).expect("a secret of 32 bytes")
}

/// Bytes of hexadecimal digits, with white space between them.
pub(super) fn bytes(hex: &str) -> Vec<u8> {
    let digits: Vec<u8> = hex.bytes().filter(|byte| !byte.is_ascii_whitespace()).collect();
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).expect("digits"), 16).expect("digits");
    digits.chunks(2).map(byte).collect()
}

/// The plain text of the client's Initial packet of RFC 9001, appendix A.2, with its padding, and its header.
pub(super) fn client_initial() -> (Vec<u8>, Vec<u8>) {
    let crypto = bytes(
        "060040f1010000ed0303ebf8fa56f12939b9584a3896472ec40bb863cfd3e868 04fe3a47f06a2b69484c00000413011302010000c0\
         00000010000e00000b6578616d706c652e636f6dff01000100000a0008000600 1d0017001800100007000504616c706e000500050100\
         000000003300260024001d00209370b2c9caa47fbabaf4559fedba753de171fa 71f50f1ce15d43e994ec74d748002b00030203040\
         00d0010000e0403050306030203080408050806002d00020101001c000240010 03900320408ffffffffffffffff05048000ffff07\
         048000ffff0801100104800075300901100f088394c8f03e51570806048000ffff",
    );
    let mut plain = crypto;
    plain.resize(1162, 0);
    (bytes("c300000001088394c8f03e5157080000449e00000002"), plain)
}

/// The ServerHello in a CRYPTO frame, then the EncryptedExtensions that choose `protocol` in another.
pub(super) fn server_hello(protocol: &[u8]) -> [Vec<u8>; 2] {
    let body = [&[3, 3][..], &[9; 32], &[0, 0x13, 1, 0, 0, 6, 0, 43, 0, 2, 3, 4]].concat();
    let hello = [&[2, 0, 0, body.len() as u8][..], &body].concat();
    let list = [&[0, protocol.len() as u8 + 1, protocol.len() as u8][..], protocol].concat();
    let extension = [&[0, 16, 0, list.len() as u8][..], &list].concat();
    let extensions = [&[8, 0, 0, extension.len() as u8 + 2, 0, extension.len() as u8][..], &extension].concat();
    [hello, extensions].map(|message| [&[6, 0, message.len() as u8][..], &message].concat())
}

/// What a packet is protected with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// Keys that anyone can derive.
    Initial,
    /// Keys of the rest of the handshake.
    Handshake,
    /// Early data of the client.
    EarlyData,
    /// Data.
    Data,
}

/// Both ends of a connection of HTTP/3 (version 1, AES-128) whose frames are given.
#[derive(Debug)]
pub struct Sealer {
    ids: [ConnectionId; 2],
    initial: [Protection; 2],
    handshake: [Protection; 2],
    early: Protection,
    data: [Protection; 2],
}

impl Default for Sealer {
    fn default() -> Sealer {
        let id = |bytes: &[u8]| ConnectionId::new(bytes).expect("an ID of at most 20 bytes");
        let protection = |digits| Protection::new(VERSION_1, &secret(digits)).expect("valid secrets");
        let original = id(&[0x83, 0x94, 0xC8, 0xF0, 0x3E, 0x51, 0x57, 0x08]);
        Sealer {
            ids: [id(&[0xC1; 4]), id(&[0xF0; 8])],
            initial: initial(VERSION_1, &original).expect("a known version"),
            handshake: [protection(0x22), protection(0x33)],
            early: protection(0x11),
            data: [protection(0x44), protection(0x55)],
        }
    }
}

impl Sealer {
    /// The secrets of the connection.
    pub fn key_log() -> Arc<KeyLog> {
        key_log()
    }

    /// The first datagrams of client and server, after which all levels can be decrypted.
    pub fn opening(&self) -> [Vec<u8>; 2] {
        let original = ConnectionId::new(&[0x83, 0x94, 0xC8, 0xF0, 0x3E, 0x51, 0x57, 0x08]).expect("8 bytes");
        let [client, server] = self.ids;
        let (_, hello) = client_initial();
        let first = long(&self.initial[0], 0, VERSION_1, [original, client], 0, &hello);
        let [hello, extensions] = server_hello(b"h3");
        let answer = long(&self.initial[1], 0, VERSION_1, [client, server], 0, &hello);
        let rest = long(&self.handshake[1], 2, VERSION_1, [client, server], 0, &extensions);
        [first, [answer, rest].concat()]
    }

    /// A datagram with one packet. Early data is always the client's.
    pub fn datagram(&self, level: Level, direction: Direction, number: u32, frames: &[u8]) -> Vec<u8> {
        let direction = if level == Level::EarlyData { Direction::Up } else { direction };
        let [client, server] = self.ids;
        let own = direction.index();
        let ids = if direction == Direction::Up { [server, client] } else { [client, server] };
        match level {
            Level::Initial => long(&self.initial[own], 0, VERSION_1, ids, number, frames),
            Level::EarlyData => long(&self.early, 1, VERSION_1, ids, number, frames),
            Level::Handshake => long(&self.handshake[own], 2, VERSION_1, ids, number, frames),
            Level::Data => {
                let header = [&[0x43][..], ids[0].as_bytes(), &number.to_be_bytes()].concat();
                protect(&self.data[own], &header, 1 + ids[0].len(), number.into(), frames)
            }
        }
    }
}
