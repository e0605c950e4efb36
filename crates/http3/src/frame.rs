//! Frames of HTTP/3 (RFC 9114, section 7): the head of a frame, as bytes arrive, and SETTINGS.

use crate::code::Code;
use crate::varint;

/// The body of a message.
pub const DATA: u64 = 0x00;
/// A field section.
pub const HEADERS: u64 = 0x01;
/// Cancels a push.
pub const CANCEL_PUSH: u64 = 0x03;
/// Settings of a side.
pub const SETTINGS: u64 = 0x04;
/// Announces a push.
pub const PUSH_PROMISE: u64 = 0x05;
/// The connection ends.
pub const GOAWAY: u64 = 0x07;
/// Allows pushes.
pub const MAX_PUSH_ID: u64 = 0x0d;

/// Whether a frame's kind is one of HTTP/2 that HTTP/3 reserves, which is an error wherever it occurs (section 7.2.8).
pub fn is_reserved(kind: u64) -> bool {
    matches!(kind, 0x02 | 0x06 | 0x08 | 0x09)
}

/// Longest head of a frame: two integers.
const HEAD_MAX: usize = 16;

/// Head of a frame, as its bytes arrive.
#[derive(Clone, Debug, Default)]
pub(crate) struct FrameHead {
    bytes: [u8; HEAD_MAX],
    length: usize,
}

/// A complete head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Head {
    pub(crate) kind: u64,
    /// Length of the payload.
    pub(crate) length: u64,
    /// Length of the head itself.
    pub(crate) bytes: usize,
}

impl FrameHead {
    /// Takes bytes from the front of `input`, until the head is complete.
    pub(crate) fn take(&mut self, input: &mut &[u8]) -> Option<Head> {
        loop {
            if let Some(head) = self.complete() {
                self.length = 0;
                return Some(head);
            }
            let (&byte, rest) = input.split_first()?;
            *input = rest;
            self.bytes[self.length] = byte;
            self.length += 1;
        }
    }

    /// Whether a head has begun and is not complete.
    pub(crate) fn is_partial(&self) -> bool {
        self.length > 0
    }

    fn complete(&self) -> Option<Head> {
        let bytes = &self.bytes[..self.length];
        let (kind, first) = varint::get(bytes)?;
        let (length, second) = varint::get(&bytes[first..])?;
        Some(Head { kind, length, bytes: first + second })
    }
}

/// Appends the head of a frame.
pub fn put_head(kind: u64, length: u64, into: &mut Vec<u8>) {
    varint::put(kind, into);
    varint::put(length, into);
}

/// Settings that a side announces (RFC 9114, section 7.2.4.1; RFC 9204, section 5).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// Largest field section that it accepts, bytes with 32 more for each field; `None`: unlimited.
    pub max_field_section_size: Option<u64>,
    /// Largest dynamic table that it allows the other side's encoder, bytes.
    pub qpack_max_table_capacity: u64,
    /// Streams that it lets wait for entries of that table.
    pub qpack_blocked_streams: u64,
}

const QPACK_MAX_TABLE_CAPACITY: u64 = 0x01;
const MAX_FIELD_SECTION_SIZE: u64 = 0x06;
const QPACK_BLOCKED_STREAMS: u64 = 0x07;

impl Settings {
    /// Appends a SETTINGS frame.
    pub fn put(&self, into: &mut Vec<u8>) {
        let mut payload = Vec::new();
        let mut put = |id: u64, value: u64| {
            varint::put(id, &mut payload);
            varint::put(value, &mut payload);
        };
        if let Some(size) = self.max_field_section_size {
            put(MAX_FIELD_SECTION_SIZE, size);
        }
        if self.qpack_max_table_capacity > 0 {
            put(QPACK_MAX_TABLE_CAPACITY, self.qpack_max_table_capacity);
            put(QPACK_BLOCKED_STREAMS, self.qpack_blocked_streams);
        }
        put_head(SETTINGS, payload.len() as u64, into);
        into.extend_from_slice(&payload);
    }

    /// Reads the payload of a SETTINGS frame. Unknown settings are ignored.
    ///
    /// # Errors
    /// The code of the connection error: an incomplete setting, one that occurs twice, or one of HTTP/2.
    pub fn parse(mut payload: &[u8]) -> Result<Self, Code> {
        let mut settings = Settings::default();
        let mut seen = Vec::new();
        while !payload.is_empty() {
            let (Some(id), Some(value)) = (varint::take(&mut payload), varint::take(&mut payload)) else {
                return Err(Code::FRAME_ERROR);
            };
            if seen.contains(&id) || matches!(id, 0x00 | 0x02..=0x05) {
                return Err(Code::SETTINGS_ERROR);
            }
            seen.push(id);
            match id {
                QPACK_MAX_TABLE_CAPACITY => settings.qpack_max_table_capacity = value,
                MAX_FIELD_SECTION_SIZE => settings.max_field_section_size = Some(value),
                QPACK_BLOCKED_STREAMS => settings.qpack_blocked_streams = value,
                _ => {}
            }
        }
        Ok(settings)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_is_found_however_its_bytes_arrive() {
        let mut bytes = Vec::new();
        put_head(0x21, 70_000, &mut bytes);
        bytes.push(7);
        for pieces in 1..bytes.len() {
            let (mut head, mut found) = (FrameHead::default(), None);
            for mut piece in bytes.chunks(pieces) {
                while found.is_none() && !piece.is_empty() {
                    found = head.take(&mut piece);
                }
            }
            assert_eq!(found, Some(Head { kind: 0x21, length: 70_000, bytes: 5 }));
        }
        let mut head = FrameHead::default();
        assert!(head.take(&mut &bytes[..3]).is_none() && head.is_partial());
    }

    #[test]
    fn settings_survive_and_faults_have_their_codes() {
        let settings =
            Settings { max_field_section_size: Some(65_536), qpack_max_table_capacity: 4096, qpack_blocked_streams: 9 };
        let mut frame = Vec::new();
        settings.put(&mut frame);
        assert_eq!(Settings::parse(&frame[2..]), Ok(settings));
        assert_eq!(Settings::parse(&[]), Ok(Settings::default()));
        // An unknown setting; one twice; one of HTTP/2; half a setting.
        assert!(Settings::parse(&[0x21, 5]).is_ok());
        assert_eq!(Settings::parse(&[6, 1, 6, 1]), Err(Code::SETTINGS_ERROR));
        assert_eq!(Settings::parse(&[2, 1]), Err(Code::SETTINGS_ERROR));
        assert_eq!(Settings::parse(&[6]), Err(Code::FRAME_ERROR));
    }
}
