//! HPACK (RFC 7541): decoding with the dynamic table, encoding without it.

use std::collections::VecDeque;

use super::{FieldSink, MalformedSection, huffman, integer};

/// The decoder of one connection.
#[derive(Debug, Default)]
pub(crate) struct Decoder {
    /// Entries of the dynamic table, newest first, and the length of each name.
    entries: VecDeque<(usize, Box<[u8]>)>,
    /// Size of the dynamic table (section 4.1).
    bytes: usize,
    /// What the client set as its maximum; the announced one is the default of [`TABLE_MAX`].
    bytes_max: Option<usize>,
    /// A decoded name, behind it a decoded value.
    text: Vec<u8>,
}

impl Decoder {
    /// Decodes a complete field section into `sink`. Of a string of more than `string_max` bytes, and more than the
    /// table holds, one byte more than that is passed on: the sink finds it too long.
    ///
    /// # Errors
    /// The section is malformed, or refers to a field that is not in a table.
    pub(crate) fn decode(
        &mut self,
        mut input: &[u8],
        string_max: usize,
        sink: &mut impl FieldSink,
    ) -> Result<(), MalformedSection> {
        // A string that the table can keep must be whole.
        let string_max = string_max.max(TABLE_MAX);
        let mut text = std::mem::take(&mut self.text);
        let mut begins = true;
        while let Some(&first) = input.first() {
            text.clear();
            if first & 0x80 != 0 {
                let index = integer::read(&mut input, 7)?;
                let (name, value) = self.entry(index)?;
                sink.field(name, value);
            } else if first & 0xe0 == 0x20 {
                // Section 4.2: only before the first field.
                if !begins {
                    return Err(MalformedSection);
                }
                let bytes = integer::read(&mut input, 5)? as usize;
                if bytes > TABLE_MAX {
                    return Err(MalformedSection);
                }
                self.bytes_max = Some(bytes);
                self.shrink(bytes);
                continue;
            } else {
                let is_kept = first & 0x40 != 0;
                let index = integer::read(&mut input, if is_kept { 6 } else { 4 })?;
                if index == 0 {
                    string(&mut input, &mut text, string_max)?;
                } else {
                    text.extend_from_slice(self.entry(index)?.0);
                }
                let name_bytes = text.len();
                string(&mut input, &mut text, string_max)?;
                let (name, value) = text.split_at(name_bytes);
                sink.field(name, value);
                if is_kept {
                    self.keep(name_bytes, &text);
                }
            }
            begins = false;
        }
        // The memory of a rare long string is released.
        text.shrink_to(512);
        self.text = text;
        Ok(())
    }

    /// A field of either table (section 2.3.3).
    fn entry(&self, index: u64) -> Result<(&[u8], &[u8]), MalformedSection> {
        let index = (index as usize).checked_sub(1).ok_or(MalformedSection)?;
        if let Some(&field) = STATIC.get(index) {
            return Ok(field);
        }
        let (name_bytes, text) = self.entries.get(index - STATIC.len()).ok_or(MalformedSection)?;
        Ok(text.split_at(*name_bytes))
    }

    /// Adds a field to the dynamic table (section 4.4).
    fn keep(&mut self, name_bytes: usize, text: &[u8]) {
        let most = self.bytes_max.unwrap_or(TABLE_MAX);
        let bytes = text.len() + ENTRY_OVERHEAD;
        if bytes > most {
            self.entries.clear();
            self.bytes = 0;
            return;
        }
        self.shrink(most - bytes);
        self.entries.push_front((name_bytes, text.into()));
        self.bytes += bytes;
    }

    fn shrink(&mut self, most: usize) {
        while self.bytes > most {
            let Some((_, text)) = self.entries.pop_back() else { return };
            self.bytes -= text.len() + ENTRY_OVERHEAD;
        }
    }
}

/// Appends a string (section 5.2) to `text`.
fn string(input: &mut &[u8], text: &mut Vec<u8>, most: usize) -> Result<(), MalformedSection> {
    let is_huffman = input.first().ok_or(MalformedSection)? & 0x80 != 0;
    let length = integer::read(input, 7)? as usize;
    let (string, rest) = input.split_at_checked(length).ok_or(MalformedSection)?;
    *input = rest;
    if is_huffman {
        huffman::decode(string, text, most + 1)?;
    } else {
        text.extend_from_slice(&string[..length.min(most + 1)]);
    }
    Ok(())
}

/// Appends the status of a response.
pub(crate) fn encode_status(status: &[u8; 3], out: &mut Vec<u8>) {
    match STATIC[STATUSES].iter().position(|(_, value)| value == status) {
        Some(at) => out.push(0x80 | (STATUSES.start + 1 + at) as u8),
        None => {
            out.push(STATUSES.start as u8 + 1);
            encode_string(status, out);
        }
    }
}

/// Appends a field, which no table keeps. `name` is in lower case.
pub(crate) fn encode_field(name: &[u8], value: &[u8], out: &mut Vec<u8>) {
    match STATIC[NAMES_FROM..].iter().position(|(known, _)| *known == name) {
        Some(at) => integer::write(out, 0, 4, NAMES_FROM + 1 + at),
        None => {
            out.push(0);
            encode_string(name, out);
        }
    }
    encode_string(value, out);
}

/// Appends a string in the shorter of the two encodings.
fn encode_string(text: &[u8], out: &mut Vec<u8>) {
    let length = huffman::encoded_bytes(text);
    if length < text.len() {
        integer::write(out, 0x80, 7, length);
        huffman::encode(text, out);
    } else {
        integer::write(out, 0, 7, text.len());
        out.extend_from_slice(text);
    }
}

/// The default of SETTINGS_HEADER_TABLE_SIZE, which this server keeps.
const TABLE_MAX: usize = 4096;
/// Size of an entry beyond its strings (section 4.1).
const ENTRY_OVERHEAD: usize = 32;
/// The statuses in [`STATIC`].
const STATUSES: std::ops::Range<usize> = 7..14;
/// The ordinary fields in [`STATIC`].
const NAMES_FROM: usize = 14;
/// The static table (appendix A); its first index is 1.
const STATIC: [(&[u8], &[u8]); 61] = [
    (b":authority", b""),
    (b":method", b"GET"),
    (b":method", b"POST"),
    (b":path", b"/"),
    (b":path", b"/index.html"),
    (b":scheme", b"http"),
    (b":scheme", b"https"),
    (b":status", b"200"),
    (b":status", b"204"),
    (b":status", b"206"),
    (b":status", b"304"),
    (b":status", b"400"),
    (b":status", b"404"),
    (b":status", b"500"),
    (b"accept-charset", b""),
    (b"accept-encoding", b"gzip, deflate"),
    (b"accept-language", b""),
    (b"accept-ranges", b""),
    (b"accept", b""),
    (b"access-control-allow-origin", b""),
    (b"age", b""),
    (b"allow", b""),
    (b"authorization", b""),
    (b"cache-control", b""),
    (b"content-disposition", b""),
    (b"content-encoding", b""),
    (b"content-language", b""),
    (b"content-length", b""),
    (b"content-location", b""),
    (b"content-range", b""),
    (b"content-type", b""),
    (b"cookie", b""),
    (b"date", b""),
    (b"etag", b""),
    (b"expect", b""),
    (b"expires", b""),
    (b"from", b""),
    (b"host", b""),
    (b"if-match", b""),
    (b"if-modified-since", b""),
    (b"if-none-match", b""),
    (b"if-range", b""),
    (b"if-unmodified-since", b""),
    (b"last-modified", b""),
    (b"link", b""),
    (b"location", b""),
    (b"max-forwards", b""),
    (b"proxy-authenticate", b""),
    (b"proxy-authorization", b""),
    (b"range", b""),
    (b"referer", b""),
    (b"refresh", b""),
    (b"retry-after", b""),
    (b"server", b""),
    (b"set-cookie", b""),
    (b"strict-transport-security", b""),
    (b"transfer-encoding", b""),
    (b"user-agent", b""),
    (b"vary", b""),
    (b"via", b""),
    (b"www-authenticate", b""),
];
