//! The peer's unidirectional streams: control, QPACK's two, pushes, and unknown kinds (RFC 9114, section 6.2).

use quinn_proto::{Side, StreamId};

use crate::code::Code;
use crate::frame::{self, FrameHead, SETTINGS, Settings};
use crate::varint;

/// The peer's unidirectional streams.
#[derive(Debug)]
pub struct Control {
    /// Who opens the streams.
    peer: Side,
    /// Never more than the peer may have open, since those of unknown kinds are stopped.
    streams: Vec<(StreamId, Kind)>,
    has_control: bool,
    has_encoder: bool,
    has_decoder: bool,
    /// The identifier in the last GOAWAY.
    goaway: Option<u64>,
    /// The identifier in the last MAX_PUSH_ID.
    max_push_id: Option<u64>,
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
    /// No streams yet, of `peer`.
    pub fn new(peer: Side) -> Self {
        Control {
            peer,
            streams: Vec::new(),
            has_control: false,
            has_encoder: false,
            has_decoder: false,
            goaway: None,
            max_push_id: None,
        }
    }

    /// The peer has opened a stream.
    pub fn accept(&mut self, id: StreamId) {
        self.streams.push((id, Kind::Undetermined(Vec::new())));
    }

    /// Nothing more of a stream is read.
    pub fn forget(&mut self, id: StreamId) {
        self.streams.retain(|(other, _)| *other != id);
    }

    /// Whether a stream is of an unknown kind: it is stopped, and forgotten.
    pub fn is_unknown(&self, id: StreamId) -> bool {
        self.streams.iter().any(|(other, kind)| *other == id && matches!(kind, Kind::Unknown))
    }

    /// Reads bytes of a stream; `goaway` gets the identifier of a GOAWAY.
    ///
    /// # Errors
    /// The code of the connection error.
    pub fn feed(&mut self, id: StreamId, bytes: &[u8], goaway: impl FnMut(u64)) -> Result<(), Code> {
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
            Kind::Control(control) => {
                let mut identifiers = Identifiers { goaway: &mut self.goaway, max_push_id: &mut self.max_push_id };
                control.feed(rest, self.peer, &mut identifiers, goaway)
            }
            Kind::Encoder => encoder(rest),
            Kind::Decoder(open) => decoder(rest, open),
            Kind::Undetermined(_) | Kind::Unknown => Ok(()),
        }
    }

    /// A stream has ended, or was reset.
    ///
    /// # Errors
    /// The code of the connection error.
    pub fn end(&mut self, id: StreamId) -> Result<(), Code> {
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
            // No push was allowed; only servers push (section 6.2.2).
            PUSH if self.peer == Side::Server => Err(Code::ID_ERROR),
            PUSH => Err(Code::STREAM_CREATION_ERROR),
            _ => Ok(Kind::Unknown),
        }
    }
}

/// What later frames of the control stream are compared with.
struct Identifiers<'a> {
    goaway: &'a mut Option<u64>,
    max_push_id: &'a mut Option<u64>,
}

impl ControlStream {
    fn feed(
        &mut self,
        mut rest: &[u8],
        peer: Side,
        identifiers: &mut Identifiers<'_>,
        mut goaway: impl FnMut(u64),
    ) -> Result<(), Code> {
        loop {
            if self.frame.is_none() {
                let Some(head) = self.head.take(&mut rest) else { return Ok(()) };
                self.check(head, peer)?;
                self.frame = Some((head.kind, Vec::new(), head.length));
            }
            if let Some((kind, stored, left)) = &mut self.frame {
                let length = usize::try_from(*left).unwrap_or(usize::MAX).min(rest.len());
                let (piece, after) = rest.split_at(length);
                rest = after;
                *left -= piece.len() as u64;
                if is_stored(*kind) {
                    stored.extend_from_slice(piece);
                }
                if *left > 0 {
                    return Ok(());
                }
                let (kind, payload) = (*kind, std::mem::take(stored));
                self.frame = None;
                match kind {
                    SETTINGS => drop(Settings::parse(&payload)?),
                    frame::GOAWAY => goaway(identifiers.goaway(&payload, peer)?),
                    frame::MAX_PUSH_ID => identifiers.max_push_id(&payload)?,
                    // No push was promised that could be cancelled, whatever identifier it has.
                    frame::CANCEL_PUSH => return identifier(&payload).and(Err(Code::ID_ERROR)),
                    _ => {}
                }
            }
        }
    }

    fn check(&mut self, head: frame::Head, peer: Side) -> Result<(), Code> {
        let is_first = !std::mem::replace(&mut self.has_settings, true);
        match head.kind {
            SETTINGS if !is_first => Err(Code::FRAME_UNEXPECTED),
            SETTINGS if head.length > PAYLOAD_MAX => Err(Code::EXCESSIVE_LOAD),
            SETTINGS => Ok(()),
            _ if is_first => Err(Code::MISSING_SETTINGS),
            // Only a client sends it (section 7.2.7).
            frame::MAX_PUSH_ID if peer == Side::Server => Err(Code::FRAME_UNEXPECTED),
            frame::DATA | frame::HEADERS | frame::PUSH_PROMISE => Err(Code::FRAME_UNEXPECTED),
            kind if is_stored(kind) && head.length > 8 => Err(Code::FRAME_ERROR),
            kind if frame::is_reserved(kind) => Err(Code::FRAME_UNEXPECTED),
            _ => Ok(()),
        }
    }
}

/// Whether the payload of a control frame is read: SETTINGS, or one identifier. Others are skipped.
fn is_stored(kind: u64) -> bool {
    matches!(kind, SETTINGS | frame::GOAWAY | frame::MAX_PUSH_ID | frame::CANCEL_PUSH)
}

impl Identifiers<'_> {
    /// Section 5.2: a client's bidirectional stream, or of a client any push, and never higher than before.
    fn goaway(&mut self, payload: &[u8], peer: Side) -> Result<u64, Code> {
        let first = identifier(payload)?;
        let is_stream = first % 4 == 0 || peer == Side::Client;
        if !is_stream || self.goaway.is_some_and(|last| first > last) {
            return Err(Code::ID_ERROR);
        }
        *self.goaway = Some(first);
        Ok(first)
    }

    /// Section 7.2.7: never lower than before.
    fn max_push_id(&mut self, payload: &[u8]) -> Result<(), Code> {
        let most = identifier(payload)?;
        if self.max_push_id.is_some_and(|last| most < last) {
            return Err(Code::ID_ERROR);
        }
        *self.max_push_id = Some(most);
        Ok(())
    }
}

/// The one integer of a payload.
fn identifier(payload: &[u8]) -> Result<u64, Code> {
    let (value, length) = varint::get(payload).ok_or(Code::FRAME_ERROR)?;
    if length == payload.len() { Ok(value) } else { Err(Code::FRAME_ERROR) }
}

/// Instructions of the peer's encoder: no dynamic table was announced, so only its capacity 0 is allowed (RFC 9204,
/// section 4.3.1).
fn encoder(bytes: &[u8]) -> Result<(), Code> {
    const CAPACITY_0: u8 = 0b0010_0000;
    if bytes.iter().all(|&byte| byte == CAPACITY_0) { Ok(()) } else { Err(Code::QPACK_ENCODER_STREAM_ERROR) }
}

/// Instructions of the peer's decoder: this side uses no dynamic table, so only a cancelled stream is allowed (RFC
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

    /// The identifiers of GOAWAY frames on a server's streams with these bytes, or the error.
    fn feed(streams: &[&[u8]]) -> Result<Vec<u64>, Code> {
        feed_from(Side::Server, streams)
    }

    fn feed_from(peer: Side, streams: &[&[u8]]) -> Result<Vec<u64>, Code> {
        let (mut control, mut goaways) = (Control::new(peer), Vec::new());
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
    fn a_client_may_limit_pushes_but_open_none() {
        let raised = control(&[framed(frame::MAX_PUSH_ID, &[1]), framed(frame::MAX_PUSH_ID, &[1]), framed(13, &[9])]);
        assert_eq!(feed_from(Side::Client, &[&raised]), Ok(vec![]));
        // A push, not a stream.
        assert_eq!(feed_from(Side::Client, &[&control(&[framed(frame::GOAWAY, &[3])])]), Ok(vec![3]));
        for (what, bytes, code) in [
            ("MAX_PUSH_ID that falls", control(&[framed(13, &[2]), framed(13, &[1])]), Code::ID_ERROR),
            ("MAX_PUSH_ID without identifier", control(&[framed(13, &[])]), Code::FRAME_ERROR),
            ("MAX_PUSH_ID with more", control(&[framed(13, &[1, 1])]), Code::FRAME_ERROR),
            ("a long MAX_PUSH_ID", control(&[framed(13, &[1; 9])]), Code::FRAME_ERROR),
            ("CANCEL_PUSH of a push that was not promised", control(&[framed(3, &[1])]), Code::ID_ERROR),
            ("CANCEL_PUSH without identifier", control(&[framed(3, &[])]), Code::FRAME_ERROR),
            ("a push stream", vec![1], Code::STREAM_CREATION_ERROR),
            ("PUSH_PROMISE", control(&[framed(frame::PUSH_PROMISE, &[1])]), Code::FRAME_UNEXPECTED),
        ] {
            assert_eq!(feed_from(Side::Client, &[&bytes]), Err(code), "{what}");
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
            let mut control = Control::new(Side::Server);
            control.accept(id(0));
            control.feed(id(0), &[kind], |_| {}).unwrap();
            assert_eq!(control.end(id(0)), expected);
        }
    }
}
