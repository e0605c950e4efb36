//! Records of one direction of a TLS connection: their headers, and their contents when they are decrypted.

use crate::out::Out;

/// Puts the bytes of one direction together to records.
#[derive(Debug, Default)]
pub(super) struct Records {
    header: [u8; HEADER],
    header_length: usize,
    /// Remaining bytes of the current record.
    left: usize,
    /// Content of a record in several segments.
    held: Vec<u8>,
    /// The position is unknown: bytes were not captured.
    is_lost: bool,
}

/// What the next bytes are.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Next<'a> {
    /// A record: its header, and its content in place.
    Whole([u8; HEADER], &'a [u8]),
    /// A record whose content was stored: take it.
    Stored([u8; HEADER]),
    /// More bytes are needed.
    More,
    /// Bytes were not captured, or are no record.
    Lost,
}

impl Records {
    /// Takes the stored content, and releases its memory.
    pub(super) fn take(&mut self, out: &mut Out<'_>) -> Vec<u8> {
        out.release(self.held.len());
        std::mem::take(&mut self.held)
    }

    /// Gives up.
    pub(super) fn lose(&mut self, out: &mut Out<'_>) {
        self.take(out);
        self.is_lost = true;
    }

    /// Reads from the next `length` bytes, of which `bytes` were captured; shortens both by what was used.
    pub(super) fn read<'a>(&mut self, bytes: &mut &'a [u8], length: &mut u64, out: &mut Out<'_>) -> Next<'a> {
        loop {
            if self.is_lost {
                *length = 0;
                return Next::Lost;
            }
            if *length == 0 {
                return Next::More;
            }
            if bytes.is_empty() {
                self.lose(out);
                continue;
            }
            crate::work::spend(1);
            if self.left == 0 {
                let used = bytes.len().min(HEADER - self.header_length);
                self.header[self.header_length..][..used].copy_from_slice(&bytes[..used]);
                self.header_length += used;
                (*bytes, *length) = (&bytes[used..], *length - used as u64);
                if self.header_length < HEADER {
                    continue;
                }
                self.header_length = 0;
                self.left = usize::from(u16::from_be_bytes([self.header[3], self.header[4]]));
                let is_record = (20..=24).contains(&self.header[0]) && self.header[1] == 3;
                if !is_record || self.left == 0 || self.left > RECORD_MAX {
                    self.lose(out);
                }
                continue;
            }
            let used = bytes.len().min(self.left);
            let (content, rest) = bytes.split_at(used);
            (*bytes, *length) = (rest, *length - used as u64);
            if used == self.left && self.held.is_empty() {
                self.left = 0;
                return Next::Whole(self.header, content);
            }
            if !out.hold(used) {
                self.lose(out);
                continue;
            }
            crate::work::spend(used);
            self.held.extend_from_slice(content);
            self.left -= used;
            if self.left == 0 {
                return Next::Stored(self.header);
            }
        }
    }
}

pub(super) const HEADER: usize = 5;
/// RFC 8446, section 5.2; RFC 5246 permits 2048 bytes of expansion.
const RECORD_MAX: usize = (1 << 14) + 2048;
