//! Position of one direction of an HTTP/2 connection.

use super::frame::{Frame, HEADER};
use crate::fields::hpack::Decoder;
use crate::out::Out;

/// The reader of one direction.
#[derive(Debug)]
pub(super) struct Side {
    pub(super) position: Position,
    /// The header of the current frame, and how much of it was received.
    pub(super) header: [u8; HEADER],
    pub(super) header_length: usize,
    pub(super) frame: Frame,
    /// Time of the frame's first byte.
    pub(super) frame_at: u64,
    /// The content of a frame in several segments.
    pub(super) content: Vec<u8>,
    /// The fields of a head in several frames.
    pub(super) block: Option<Block>,
    pub(super) decoder: Decoder,
    /// Memory of the decoder that is reserved.
    decoder_held: usize,
}

/// Position in the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Position {
    /// In the client's preface: number of bytes received.
    Preface(usize),
    /// In a frame's header.
    Header,
    /// In a frame's content that is read: number of remaining bytes.
    Content(u32),
    /// In a frame's content that is skipped: number of remaining bytes.
    Skip(u32),
    /// Unknown: bytes were not captured.
    Lost,
}

/// A block of fields, while its frames arrive.
#[derive(Debug)]
pub(super) struct Block {
    pub(super) stream: u32,
    pub(super) ends_stream: bool,
    /// It is that of a promise, which belongs to no request.
    pub(super) is_promise: bool,
    pub(super) bytes: Vec<u8>,
}

impl Side {
    pub(super) fn new(position: Position) -> Side {
        Side {
            decoder: Decoder::new(position != Position::Lost),
            position,
            header: [0; HEADER],
            header_length: 0,
            frame: Frame::default(),
            frame_at: 0,
            content: Vec::new(),
            block: None,
            decoder_held: 0,
        }
    }

    /// Reserves the memory that the decoder has taken; forgets its table if there is none.
    pub(super) fn account(&mut self, out: &mut Out<'_>) {
        out.release(self.decoder_held);
        self.decoder_held = self.decoder.memory();
        if self.decoder_held > 0 && !out.hold(self.decoder_held) {
            self.decoder.forget();
            self.decoder_held = 0;
        }
    }

    /// The position is unknown from here on, and so is the table of fields.
    pub(super) fn lose(&mut self, out: &mut Out<'_>) {
        self.release(out);
        self.position = Position::Lost;
    }

    /// Releases all memory.
    pub(super) fn release(&mut self, out: &mut Out<'_>) {
        let block = self.block.take().map_or(0, |block| block.bytes.len());
        out.release(block + self.content.len());
        self.content = Vec::new();
        self.header_length = 0;
        self.decoder.forget();
        self.account(out);
    }

    /// Stores bytes of the current frame's content, if there is memory for them.
    pub(super) fn store(&mut self, bytes: &[u8], out: &mut Out<'_>) -> bool {
        let held = self.content.len() + self.block.as_ref().map_or(0, |block| block.bytes.len());
        let fits = held + bytes.len() <= out.limits.held_per_direction && out.hold(bytes.len());
        if fits {
            self.content.extend_from_slice(bytes);
        }
        fits
    }

    /// Takes the stored content, whose memory is released.
    pub(super) fn take_content(&mut self, out: &mut Out<'_>) -> Vec<u8> {
        out.release(self.content.len());
        std::mem::take(&mut self.content)
    }
}
