//! Framing of the control connection: each message is authenticated against insertion, omission, changes and replay.
//!
//! ```text
//!   length:u32 (of the text, at most 64 KiB) | text: JSON | tag:32
//!   tag = HMAC(key of the direction, "frame" | number:u64 | text)
//! ```
//!
//! Both ends number the frames of each direction. The first frame that is not authentic or out of sequence ends the
//! session. Frames are not encrypted: figures are not secret.

use std::fmt;

use ring::hmac;
use subtle::ConstantTimeEq;

use super::secret::{Keys, tag};

/// Largest length of a text in bytes.
pub const TEXT_MAX: usize = 64 << 10;

/// Direction of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameDirection {
    /// From the client to the server.
    Up,
    /// From the server to the client.
    Down,
}

impl FrameDirection {
    fn key(self, keys: &Keys) -> hmac::Key {
        match self {
            FrameDirection::Up => keys.up.clone(),
            FrameDirection::Down => keys.down.clone(),
        }
    }
}

/// Writes the frames of one direction.
pub struct FrameWriter {
    key: hmac::Key,
    number: u64,
}

impl FrameWriter {
    /// Starts with the first frame of a connection.
    pub fn new(keys: &Keys, direction: FrameDirection) -> Self {
        FrameWriter { key: direction.key(keys), number: 0 }
    }

    /// The next frame with this text.
    ///
    /// # Panics
    /// The text is longer than [`TEXT_MAX`].
    pub fn write(&mut self, text: &[u8]) -> Vec<u8> {
        assert!(text.len() <= TEXT_MAX, "a message of {} bytes", text.len());
        let tag = tag(&self.key, &[LABEL, &self.number.to_le_bytes(), text]);
        self.number += 1;
        [&(text.len() as u32).to_le_bytes()[..], text, &tag].concat()
    }
}

/// Reads the frames of one direction from pieces of any length. Buffers at most one frame and the bytes received with
/// its end.
pub struct FrameReader {
    key: hmac::Key,
    number: u64,
    buffered: Vec<u8>,
    broken: bool,
}

impl FrameReader {
    /// Starts with the first frame of a connection.
    pub fn new(keys: &Keys, direction: FrameDirection) -> Self {
        FrameReader { key: direction.key(keys), number: 0, buffered: Vec::new(), broken: false }
    }

    /// Buffers received bytes. Call [`FrameReader::next`] afterwards until it returns `None`.
    pub fn push(&mut self, bytes: &[u8]) {
        if !self.broken {
            self.buffered.extend_from_slice(bytes);
        }
    }

    /// The text of the next frame; `None` until the frame is complete.
    ///
    /// # Errors
    /// The frame is out of sequence or not authentic; every later call fails, too.
    #[allow(clippy::should_implement_trait, reason = "it is fed in between, and the end of its input is not final")]
    pub fn next(&mut self) -> Result<Option<Vec<u8>>, InvalidFrame> {
        if self.broken {
            return Err(InvalidFrame);
        }
        let Some((length, rest)) = self.buffered.split_first_chunk::<4>() else { return Ok(None) };
        let length = u32::from_le_bytes(*length) as usize;
        if length > TEXT_MAX {
            return self.reject();
        }
        let Some((text, rest)) = rest.split_at_checked(length) else { return Ok(None) };
        let Some(received_tag) = rest.get(..TAG_BYTES) else { return Ok(None) };
        let expected = tag(&self.key, &[LABEL, &self.number.to_le_bytes(), text]);
        if !bool::from(expected.ct_eq(received_tag)) {
            return self.reject();
        }
        let text = text.to_vec();
        self.number += 1;
        self.buffered.drain(..4 + length + TAG_BYTES);
        Ok(Some(text))
    }

    /// Number of buffered bytes, which wait for the rest of their frame.
    pub fn buffered(&self) -> usize {
        self.buffered.len()
    }

    fn reject(&mut self) -> Result<Option<Vec<u8>>, InvalidFrame> {
        self.broken = true;
        self.buffered = Vec::new();
        Err(InvalidFrame)
    }
}

/// A frame that is not authentic or out of sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InvalidFrame;

impl fmt::Display for InvalidFrame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("received a message that is not authentic")
    }
}

const LABEL: &[u8] = b"frame";
const TAG_BYTES: usize = 32;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tester::handshake::{HandshakeStep, Opening, Proof, ServerHandshake};
    use crate::tester::secret::Secret;
    use proptest::prelude::*;

    fn keys() -> Keys {
        let secret = Secret::new(b"correct-horse-battery-staple");
        let mut server = ServerHandshake::with_nonce(&secret, [7; 32]);
        server.receive(&Opening::Control.write());
        match server.receive(Proof::new(&secret, &Opening::Control, [7; 32]).bytes()) {
            HandshakeStep::Proven { keys, .. } => *keys,
            _ => panic!("not proven"),
        }
    }

    fn read_all(reader: &mut FrameReader, bytes: &[u8], cut: usize) -> (Vec<Vec<u8>>, bool) {
        let mut texts = Vec::new();
        for piece in bytes.chunks(cut) {
            reader.push(piece);
            loop {
                match reader.next() {
                    Ok(Some(text)) => texts.push(text),
                    Ok(None) => break,
                    Err(InvalidFrame) => return (texts, false),
                }
            }
        }
        (texts, true)
    }

    proptest! {
        #[test]
        fn frames_split_at_any_byte_round_trip(
            texts in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..200), 0..8),
            cut in 1usize..300,
        ) {
            let keys = keys();
            let mut writer = FrameWriter::new(&keys, FrameDirection::Up);
            let bytes: Vec<u8> = texts.iter().flat_map(|text| writer.write(text)).collect();
            let mut reader = FrameReader::new(&keys, FrameDirection::Up);
            prop_assert_eq!(read_all(&mut reader, &bytes, cut), (texts, true));
            prop_assert_eq!(reader.buffered(), 0);
        }

        #[test]
        fn frame_with_any_changed_byte_ends_the_session(at in 0usize..3000, bit in 0u32..8, cut in 1usize..300) {
            let keys = keys();
            let mut writer = FrameWriter::new(&keys, FrameDirection::Down);
            let frames: Vec<Vec<u8>> = (0..3).map(|_| writer.write(b"{\"do\":\"alive\"}")).collect();
            let mut bytes = frames.concat();
            let at = at % bytes.len();
            bytes[at] ^= 1 << bit;
            let (texts, whole) = read_all(&mut FrameReader::new(&keys, FrameDirection::Down), &bytes, cut);
            // After a length that is too large, the reader waits for further bytes and returns no text.
            prop_assert_eq!(texts.len(), at / frames[0].len());
            prop_assert!(!whole || at % frames[0].len() < 4);
        }
    }

    #[test]
    fn replayed_or_redirected_frame_is_rejected() {
        let keys = keys();
        let mut writer = FrameWriter::new(&keys, FrameDirection::Up);
        let [one, two, three] = [b"one", b"two", b"six"].map(|text| writer.write(text));
        for (bytes, texts) in [
            ([&one[..], &one].concat(), 1),
            ([&one[..], &three].concat(), 1),
            ([&two[..], &one].concat(), 0),
            ([&one[..], &two, &one].concat(), 2),
        ] {
            let (read, whole) = read_all(&mut FrameReader::new(&keys, FrameDirection::Up), &bytes, 1000);
            assert_eq!((read.len(), whole), (texts, false));
        }
        assert_eq!(
            read_all(&mut FrameReader::new(&keys, FrameDirection::Down), &one, 1000),
            (vec![], false),
            "a frame of the other direction is rejected"
        );
    }

    #[test]
    fn frame_text_limit_is_enforced() {
        let keys = keys();
        let frame = FrameWriter::new(&keys, FrameDirection::Up).write(&vec![b'x'; TEXT_MAX]);
        let (texts, whole) = read_all(&mut FrameReader::new(&keys, FrameDirection::Up), &frame, 1 << 20);
        assert!(whole && texts[0].len() == TEXT_MAX);
        let mut reader = FrameReader::new(&keys, FrameDirection::Up);
        reader.push(&(TEXT_MAX as u32 + 1).to_le_bytes());
        assert_eq!(reader.next(), Err(InvalidFrame));
        reader.push(&[0; 1000]);
        assert_eq!((reader.buffered(), reader.next()), (0, Err(InvalidFrame)), "a rejected frame is not buffered");
    }
}
