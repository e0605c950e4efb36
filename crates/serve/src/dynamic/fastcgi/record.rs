//! FastCGI records (specification 1.0, section 3.3): encoded, and decoded from a stream in any fragmentation. Pure.

use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};

/// Begins a request in the responder role; `keep` leaves the connection open.
pub(super) fn begin(out: &mut Vec<u8>, keep: bool) {
    header(out, BEGIN_REQUEST, 8);
    out.put_u16(RESPONDER);
    out.put_u8(u8::from(keep));
    out.put_bytes(0, 5);
}

/// Bytes of a stream in as many records as needed. No record for no bytes: an empty record ends the stream.
pub(super) fn stream(out: &mut Vec<u8>, kind: u8, bytes: &[u8]) {
    for piece in bytes.chunks(CONTENT_MAX) {
        header(out, kind, piece.len() as u16);
        out.extend_from_slice(piece);
    }
}

/// The end of a stream.
pub(super) fn end(out: &mut Vec<u8>, kind: u8) {
    header(out, kind, 0);
}

/// One name-value pair (section 3.4).
pub(super) fn pair(out: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    for length in [name.len(), value.len()] {
        match u8::try_from(length) {
            Ok(short) if short < 128 => out.put_u8(short),
            _ => out.put_u32(length as u32 | 1 << 31),
        }
    }
    out.extend_from_slice(name);
    out.extend_from_slice(value);
}

fn header(out: &mut Vec<u8>, kind: u8, length: u16) {
    out.extend_from_slice(&[VERSION, kind]);
    out.put_u16(REQUEST);
    out.put_u16(length);
    // No padding: nothing is aligned here.
    out.extend_from_slice(&[0, 0]);
}

/// A part of the program's output.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Part {
    /// Bytes of the response.
    Stdout(Bytes),
    /// Bytes for the operator.
    Stderr(Bytes),
    /// The request ended: exit status and protocol status.
    End { status: u32, protocol: u8 },
}

/// Decodes records. Content is returned as it arrives, also of an incomplete record.
#[derive(Debug, Default)]
pub(super) struct Decoder {
    kind: u8,
    /// Remaining content of the current record.
    content: usize,
    padding: usize,
}

/// Not FastCGI.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Malformed {
    #[error("a record of version {0}, expected 1: check that the upstream is a FastCGI server")]
    Version(u8),
    #[error("an end-of-request record of {0} bytes, expected 8")]
    End(usize),
}

impl Decoder {
    /// The next part in `input`; `None` if more bytes are needed. Skips records of other requests and irrelevant types.
    pub(super) fn next(&mut self, input: &mut BytesMut) -> Result<Option<Part>, Malformed> {
        loop {
            if self.content == 0 {
                let skipped = self.padding.min(input.len());
                input.advance(skipped);
                self.padding -= skipped;
                if self.padding > 0 || !self.begin(input)? {
                    return Ok(None);
                }
                continue;
            }
            match self.kind {
                END_REQUEST if input.len() < self.content => return Ok(None),
                END_REQUEST => {
                    let mut body = input.split_to(self.content);
                    self.content = 0;
                    return Ok(Some(Part::End { status: body.get_u32(), protocol: body.get_u8() }));
                }
                _ if input.is_empty() => return Ok(None),
                kind => {
                    let bytes = input.split_to(self.content.min(input.len()));
                    self.content -= bytes.len();
                    match kind {
                        STDOUT => return Ok(Some(Part::Stdout(bytes.freeze()))),
                        STDERR => return Ok(Some(Part::Stderr(bytes.freeze()))),
                        _ => {}
                    }
                }
            }
        }
    }

    /// Whether the decoder is between two records: the connection could carry another request.
    pub(super) fn between(&self) -> bool {
        self.content == 0 && self.padding == 0
    }

    /// Decodes a header; false if it is incomplete.
    fn begin(&mut self, input: &mut BytesMut) -> Result<bool, Malformed> {
        if let Some(&version) = input.first()
            && version != VERSION
        {
            return Err(Malformed::Version(version));
        }
        if input.len() < HEADER {
            return Ok(false);
        }
        let mut header = input.split_to(HEADER);
        header.advance(1);
        let (kind, request) = (header.get_u8(), header.get_u16());
        self.content = usize::from(header.get_u16());
        self.padding = usize::from(header.get_u8());
        // Type 0 is ignored.
        self.kind = if request == REQUEST { kind } else { 0 };
        match self.kind {
            END_REQUEST if self.content != 8 => Err(Malformed::End(self.content)),
            _ => Ok(true),
        }
    }
}

/// Protocol statuses of an ended request (section 5.5).
pub(super) const COMPLETE: u8 = 0;
/// The program is overloaded.
pub(super) const OVERLOADED: u8 = 2;

pub(super) const PARAMS: u8 = 4;
pub(super) const STDIN: u8 = 5;

const BEGIN_REQUEST: u8 = 1;
const END_REQUEST: u8 = 3;
const STDOUT: u8 = 6;
const STDERR: u8 = 7;

const VERSION: u8 = 1;
const RESPONDER: u16 = 1;
/// One request at a time per connection, always with this number.
const REQUEST: u16 = 1;
const HEADER: usize = 8;
/// Largest content of a record.
const CONTENT_MAX: usize = 65_535;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn record(kind: u8, request: u16, content: &[u8], padding: u8) -> Vec<u8> {
        let mut bytes = vec![VERSION, kind];
        bytes.put_u16(request);
        bytes.put_u16(content.len() as u16);
        bytes.extend_from_slice(&[padding, 0]);
        bytes.extend_from_slice(content);
        bytes.resize(bytes.len() + usize::from(padding), 0xee);
        bytes
    }

    /// STDOUT, STDERR, ends.
    type Decoded = (Vec<u8>, Vec<u8>, Vec<(u32, u8)>);

    /// Decodes `bytes` in pieces of `step`: joined streams and ends.
    fn decoded(bytes: &[u8], step: usize) -> Result<Decoded, Malformed> {
        let (mut decoder, mut input) = (Decoder::default(), BytesMut::new());
        let (mut out, mut err, mut ends) = (Vec::new(), Vec::new(), Vec::new());
        for piece in bytes.chunks(step) {
            input.extend_from_slice(piece);
            while let Some(part) = decoder.next(&mut input)? {
                match part {
                    Part::Stdout(bytes) => out.extend_from_slice(&bytes),
                    Part::Stderr(bytes) => err.extend_from_slice(&bytes),
                    Part::End { status, protocol } => ends.push((status, protocol)),
                }
            }
        }
        assert!(decoder.between() || bytes.is_empty() || !ends.is_empty());
        Ok((out, err, ends))
    }

    #[test]
    fn padded_split_and_foreign_records_are_decoded() {
        let mut bytes = record(STDOUT, 1, b"Status: 200\r\n", 3);
        bytes.extend(record(STDOUT, 2, b"someone else's", 0));
        bytes.extend(record(STDERR, 1, b"oops", 255));
        bytes.extend(record(10, 0, b"values", 2));
        bytes.extend(record(STDOUT, 1, b"\r\nbody", 0));
        bytes.extend(record(STDOUT, 1, b"", 8));
        bytes.extend(record(END_REQUEST, 1, &[0, 0, 0, 7, 0, 1, 2, 3], 0));
        for step in [1, 2, 7, 8, 9, 1000] {
            let (out, err, ends) = decoded(&bytes, step).unwrap();
            assert_eq!((&out[..], &err[..], &ends[..]), (&b"Status: 200\r\n\r\nbody"[..], &b"oops"[..], &[(7, 0)][..]));
        }
    }

    #[test]
    fn a_wrong_protocol_version_is_an_error() {
        assert_eq!(decoded(b"HTTP/1.1 400 Bad Request\r\n", 1), Err(Malformed::Version(b'H')));
        assert_eq!(decoded(&record(END_REQUEST, 1, b"short", 0), 100), Err(Malformed::End(5)));
    }

    #[test]
    fn long_names_and_streams_are_encoded() {
        let mut out = Vec::new();
        pair(&mut out, b"A", &[b'x'; 127]);
        assert_eq!(&out[..3], [1, 127, b'A']);
        out.clear();
        pair(&mut out, b"A", &[b'x'; 128]);
        assert_eq!(&out[..6], [1, 0x80, 0, 0, 128, b'A']);
        out.clear();
        stream(&mut out, STDIN, &vec![7; CONTENT_MAX + 1]);
        assert_eq!(out.len(), CONTENT_MAX + 1 + 2 * HEADER);
        out.clear();
        stream(&mut out, STDIN, b"");
        assert!(out.is_empty());
    }

    proptest! {
        #[test]
        fn any_records_are_decoded_or_refused_without_panic(bytes in proptest::collection::vec(any::<u8>(), 0..400), step in 1usize..50) {
            let (mut decoder, mut input) = (Decoder::default(), BytesMut::new());
            'all: for piece in bytes.chunks(step) {
                input.extend_from_slice(piece);
                loop {
                    match decoder.next(&mut input) {
                        Ok(Some(_)) => {}
                        Ok(None) => break,
                        Err(_) => break 'all,
                    }
                }
            }
        }

        #[test]
        fn encoded_records_are_decoded_unchanged(content in proptest::collection::vec(any::<u8>(), 0..200_000)) {
            let mut bytes = Vec::new();
            stream(&mut bytes, STDOUT, &content);
            end(&mut bytes, STDOUT);
            bytes.extend(record(END_REQUEST, 1, &[0; 8], 0));
            prop_assert_eq!(decoded(&bytes, 10_000).unwrap(), (content, vec![], vec![(0, 0)]));
        }
    }
}
