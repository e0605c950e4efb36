//! The server's unidirectional streams: control, QPACK's two, pushes, and unknown kinds (RFC 9114, section 6.2).

use quinn_proto::StreamId;

use crate::code::Code;
use crate::frame::{self, FrameHead, SETTINGS, Settings};
use crate::varint;

/// The server's unidirectional streams.
#[derive(Debug, Default)]
pub(super) struct Control {
    /// Never more than the server may have open, since those of unknown kinds are stopped.
    streams: Vec<(StreamId, Kind)>,
    has_control: bool,
    has_encoder: bool,
    has_decoder: bool,
    /// The identifier in the last GOAWAY.
    goaway: Option<u64>,
}

/// What a stream is, and how far it was read.
#[derive(Debug)]
enum Kind {
    /// The kind itself is incomplete.
    Undetermined(Vec<u8>),
    Control(ControlStream),
    Encoder,
    Decoder(Option<PrefixInteger>),
    Unknown,
}

#[derive(Debug, Default)]
struct ControlStream {
    head: FrameHead,
    /// Kind of the current frame, its stored payload, and the number of bytes that follow.
    frame: Option<(u64, Vec<u8>, u64)>,
    has_settings: bool,
}

/// The continuation of an integer whose prefix was all ones.
#[derive(Clone, Copy, Debug)]
struct PrefixInteger {
    bytes: u8,
}

const CONTROL: u64 = 0x00;
const PUSH: u64 = 0x01;
const ENCODER: u64 = 0x02;
const DECODER: u64 = 0x03;

/// Longest payload of a control frame that is stored: far more settings than exist.
const PAYLOAD_MAX: u64 = 4096;

impl Control {
    pub(super) fn accept(&mut self, id: StreamId) {
        self.streams.push((id, Kind::Undetermined(Vec::new())));
    }

    pub(super) fn forget(&mut self, id: StreamId) {
        self.streams.retain(|(other, _)| *other != id);
    }

    pub(super) fn is_unknown(&self, id: StreamId) -> bool {
        self.streams.iter().any(|(other, kind)| *other == id && matches!(kind, Kind::Unknown))
    }

    /// Reads bytes of a stream; `goaway` gets the identifier of a GOAWAY.
    ///
    /// # Errors
    /// The code of the connection error.
    pub(super) fn feed(&mut self, id: StreamId, bytes: &[u8], goaway: impl FnMut(u64)) -> Result<(), Code> {
        let Some(position) = self.streams.iter().position(|(other, _)| *other == id) else { return Ok(()) };
        let mut rest = bytes;
        while let Kind::Undetermined(begun) = &mut self.streams[position].1 {
            let Some((&byte, after)) = rest.split_first() else { return Ok(()) };
            rest = after;
            begun.push(byte);
            if let Some((kind, _)) = varint::get(begun) {
                self.streams[position].1 = self.begin(kind)?;
            }
        }
        match &mut self.streams[position].1 {
            Kind::Control(control) => control.feed(rest, &mut self.goaway, goaway),
            Kind::Encoder => encoder(rest),
            Kind::Decoder(open) => decoder(rest, open),
            Kind::Undetermined(_) | Kind::Unknown => Ok(()),
        }
    }

    /// A stream has ended, or was reset.
    ///
    /// # Errors
    /// The code of the connection error.
    pub(super) fn end(&mut self, id: StreamId) -> Result<(), Code> {
        let kind = self.streams.iter().find(|(other, _)| *other == id).map(|(_, kind)| kind);
        if let Some(Kind::Control(_) | Kind::Encoder | Kind::Decoder(_)) = kind {
            return Err(Code::CLOSED_CRITICAL_STREAM);
        }
        self.forget(id);
        Ok(())
    }

    fn begin(&mut self, kind: u64) -> Result<Kind, Code> {
        let once =
            |has: &mut bool| if std::mem::replace(has, true) { Err(Code::STREAM_CREATION_ERROR) } else { Ok(()) };
        match kind {
            CONTROL => once(&mut self.has_control).map(|()| Kind::Control(ControlStream::default())),
            ENCODER => once(&mut self.has_encoder).map(|()| Kind::Encoder),
            DECODER => once(&mut self.has_decoder).map(|()| Kind::Decoder(None)),
            // No push was allowed.
            PUSH => Err(Code::ID_ERROR),
            _ => Ok(Kind::Unknown),
        }
    }
}

impl ControlStream {
    fn feed(
        &mut self,
        mut rest: &[u8],
        last_goaway: &mut Option<u64>,
        mut goaway: impl FnMut(u64),
    ) -> Result<(), Code> {
        loop {
            if self.frame.is_none() {
                let Some(head) = self.head.take(&mut rest) else { return Ok(()) };
                self.check(head)?;
                self.frame = Some((head.kind, Vec::new(), head.length));
            }
            if let Some((kind, stored, left)) = &mut self.frame {
                let length = usize::try_from(*left).unwrap_or(usize::MAX).min(rest.len());
                let (piece, after) = rest.split_at(length);
                rest = after;
                *left -= piece.len() as u64;
                if matches!(*kind, SETTINGS | frame::GOAWAY) {
                    stored.extend_from_slice(piece);
                }
                if *left > 0 {
                    return Ok(());
                }
                let (kind, payload) = (*kind, std::mem::take(stored));
                self.frame = None;
                match kind {
                    SETTINGS => drop(Settings::parse(&payload)?),
                    frame::GOAWAY => {
                        let (first, length) = varint::get(&payload).ok_or(Code::FRAME_ERROR)?;
                        if length != payload.len() {
                            return Err(Code::FRAME_ERROR);
                        }
                        // A client's bidirectional stream, and never higher than before (section 5.2).
                        if first % 4 != 0 || last_goaway.is_some_and(|last| first > last) {
                            return Err(Code::ID_ERROR);
                        }
                        *last_goaway = Some(first);
                        goaway(first);
                    }
                    _ => {}
                }
            }
        }
    }

    fn check(&mut self, head: frame::Head) -> Result<(), Code> {
        let is_first = !std::mem::replace(&mut self.has_settings, true);
        match head.kind {
            SETTINGS if !is_first => Err(Code::FRAME_UNEXPECTED),
            SETTINGS if head.length > PAYLOAD_MAX => Err(Code::EXCESSIVE_LOAD),
            SETTINGS => Ok(()),
            _ if is_first => Err(Code::MISSING_SETTINGS),
            frame::GOAWAY if head.length > 8 => Err(Code::FRAME_ERROR),
            frame::DATA | frame::HEADERS | frame::PUSH_PROMISE | frame::MAX_PUSH_ID => Err(Code::FRAME_UNEXPECTED),
            // No push was allowed that could be cancelled.
            frame::CANCEL_PUSH => Err(Code::ID_ERROR),
            kind if frame::is_reserved(kind) => Err(Code::FRAME_UNEXPECTED),
            _ => Ok(()),
        }
    }
}

/// Instructions of the server's encoder: no dynamic table was announced, so only its capacity 0 is allowed (RFC 9204,
/// section 4.3.1).
fn encoder(bytes: &[u8]) -> Result<(), Code> {
    const CAPACITY_0: u8 = 0b0010_0000;
    if bytes.iter().all(|&byte| byte == CAPACITY_0) { Ok(()) } else { Err(Code::QPACK_ENCODER_STREAM_ERROR) }
}

/// Instructions of the server's decoder: requests use no dynamic table, so only a cancelled stream is allowed (RFC
/// 9204, section 4.4.2).
fn decoder(bytes: &[u8], open: &mut Option<PrefixInteger>) -> Result<(), Code> {
    const CANCELLATION: u8 = 0b0100_0000;
    const PREFIX: u8 = 0b0011_1111;
    for &byte in bytes {
        match open {
            Some(integer) => {
                integer.bytes += 1;
                if integer.bytes > INTEGER_BYTES_MAX {
                    return Err(Code::QPACK_DECODER_STREAM_ERROR);
                }
                if byte & 0x80 == 0 {
                    *open = None;
                }
            }
            None if byte & 0b1100_0000 != CANCELLATION => return Err(Code::QPACK_DECODER_STREAM_ERROR),
            None if byte & PREFIX == PREFIX => *open = Some(PrefixInteger { bytes: 0 }),
            None => {}
        }
    }
    Ok(())
}

/// Most bytes after the prefix of an integer below 2^62.
const INTEGER_BYTES_MAX: u8 = 9;

#[cfg(test)]
mod tests {
    use quinn_proto::{Dir, Side};

    use super::*;
    use crate::frame::put_head;

    fn id(index: u64) -> StreamId {
        StreamId::new(Side::Server, Dir::Uni, index)
    }

    /// The identifiers of GOAWAY frames on streams with these bytes, or the error.
    fn feed(streams: &[&[u8]]) -> Result<Vec<u64>, Code> {
        let (mut control, mut goaways) = (Control::default(), Vec::new());
        for (index, bytes) in streams.iter().enumerate() {
            let id = id(index as u64);
            control.accept(id);
            for byte in *bytes {
                control.feed(id, &[*byte], |first| goaways.push(first))?;
            }
        }
        Ok(goaways)
    }

    fn framed(kind: u64, payload: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        put_head(kind, payload.len() as u64, &mut bytes);
        bytes.extend_from_slice(payload);
        bytes
    }

    fn control(frames: &[Vec<u8>]) -> Vec<u8> {
        [vec![0], framed(SETTINGS, &[]), frames.concat()].concat()
    }

    #[test]
    fn the_streams_of_usual_servers_are_accepted() {
        let goaway = control(&[framed(0x21, b"xyz"), framed(frame::GOAWAY, &[8]), framed(frame::GOAWAY, &[4])]);
        let settings = [vec![0], framed(SETTINGS, &[1, 0x50, 0, 7, 16, 6, 0x40, 0x80])].concat();
        assert_eq!(feed(&[&goaway, &[2, 0x20], &[3, 0x48, 0x7f, 0x81, 0x01]]), Ok(vec![8, 4]));
        assert_eq!(feed(&[&settings, &[2], &[3]]), Ok(vec![]));
        // A stream of an unknown kind.
        assert_eq!(feed(&[&[0x21, 1, 2, 3]]), Ok(vec![]));
    }

    #[test]
    fn violations_have_the_codes_of_the_specification() {
        for (what, streams, code) in [
            ("no settings", vec![[vec![0], framed(frame::GOAWAY, &[0])].concat()], Code::MISSING_SETTINGS),
            ("settings twice", vec![control(&[framed(SETTINGS, &[])])], Code::FRAME_UNEXPECTED),
            ("huge settings", vec![vec![0, 4, 0x80, 1, 0, 0]], Code::EXCESSIVE_LOAD),
            ("a setting of HTTP/2", vec![[vec![0], framed(SETTINGS, &[4, 1])].concat()], Code::SETTINGS_ERROR),
            ("two control streams", vec![control(&[]), control(&[])], Code::STREAM_CREATION_ERROR),
            ("two encoder streams", vec![vec![2], vec![2]], Code::STREAM_CREATION_ERROR),
            ("two decoder streams", vec![vec![3], vec![3]], Code::STREAM_CREATION_ERROR),
            ("a push stream", vec![vec![1]], Code::ID_ERROR),
            ("DATA", vec![control(&[framed(frame::DATA, b"x")])], Code::FRAME_UNEXPECTED),
            ("HEADERS", vec![control(&[framed(frame::HEADERS, b"x")])], Code::FRAME_UNEXPECTED),
            ("MAX_PUSH_ID", vec![control(&[framed(frame::MAX_PUSH_ID, &[1])])], Code::FRAME_UNEXPECTED),
            ("CANCEL_PUSH", vec![control(&[framed(frame::CANCEL_PUSH, &[1])])], Code::ID_ERROR),
            ("PRIORITY of HTTP/2", vec![control(&[framed(0x02, &[1])])], Code::FRAME_UNEXPECTED),
            ("GOAWAY of a server's stream", vec![control(&[framed(frame::GOAWAY, &[1])])], Code::ID_ERROR),
            ("GOAWAY that rises", vec![control(&[framed(7, &[4]), framed(7, &[8])])], Code::ID_ERROR),
            ("GOAWAY without identifier", vec![control(&[framed(7, &[])])], Code::FRAME_ERROR),
            ("GOAWAY with more", vec![control(&[framed(7, &[0, 0])])], Code::FRAME_ERROR),
            ("a dynamic table", vec![vec![2, 0x3f]], Code::QPACK_ENCODER_STREAM_ERROR),
            ("an insertion", vec![vec![2, 0xc0, 0]], Code::QPACK_ENCODER_STREAM_ERROR),
            ("a section acknowledged", vec![vec![3, 0x80]], Code::QPACK_DECODER_STREAM_ERROR),
            ("an insert count", vec![vec![3, 0x01]], Code::QPACK_DECODER_STREAM_ERROR),
            ("an endless integer", vec![[vec![3, 0x7f], vec![0xff; 11]].concat()], Code::QPACK_DECODER_STREAM_ERROR),
        ] {
            let streams: Vec<&[u8]> = streams.iter().map(Vec::as_slice).collect();
            assert_eq!(feed(&streams), Err(code), "{what}");
        }
    }

    #[test]
    fn critical_streams_must_stay_open() {
        for (kind, expected) in [
            (0, Err(Code::CLOSED_CRITICAL_STREAM)),
            (2, Err(Code::CLOSED_CRITICAL_STREAM)),
            (3, Err(Code::CLOSED_CRITICAL_STREAM)),
            (0x21, Ok(())),
        ] {
            let mut control = Control::default();
            control.accept(id(0));
            control.feed(id(0), &[kind], |_| {}).unwrap();
            assert_eq!(control.end(id(0)), expected);
        }
    }
}
