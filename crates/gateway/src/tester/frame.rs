//! The control connection after the handshake: messages that nobody can put in, leave out, change or repeat.
//!
//! ```text
//!   length:u32 (of the text, at most 64 KiB) | text: JSON | tag:32 = HMAC(key of this way, "frame" | number:u64 | text)
//! ```
//!
//! Both ends count the frames of each way. The first that is not in order ends the session: there is no going on after it.
//! Nothing is encrypted: figures are no secret.

use std::fmt;

use ring::hmac;
use subtle::ConstantTimeEq;

use super::secret::{Keys, tag};

/// The longest text.
pub const TEXT_MAX: usize = 64 << 10;

/// Which of a connection's two directions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameDirection {
    /// From the client to the server.
    Up,
    /// Back.
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

/// Makes the frames of one way.
pub struct FrameWriter {
    key: hmac::Key,
    number: u64,
}

impl FrameWriter {
    /// From the first frame on.
    pub fn new(keys: &Keys, way: FrameDirection) -> Self {
        FrameWriter { key: way.key(keys), number: 0 }
    }

    /// The next frame.
    ///
    /// # Panics
    /// The text is longer than [`TEXT_MAX`].
    pub fn write(&mut self, text: &[u8]) -> Vec<u8> {
        assert!(text.len() <= TEXT_MAX, "a message of {} bytes", text.len());
        let tag = tag(&self.key, &[WORD, &self.number.to_le_bytes(), text]);
        self.number += 1;
        [&(text.len() as u32).to_le_bytes()[..], text, &tag].concat()
    }
}

/// Reads the frames of one way, however they are cut. Holds one frame and what came with its end.
pub struct FrameReader {
    key: hmac::Key,
    number: u64,
    held: Vec<u8>,
    broken: bool,
}

impl FrameReader {
    /// From the first frame on.
    pub fn new(keys: &Keys, way: FrameDirection) -> Self {
        FrameReader { key: way.key(keys), number: 0, held: Vec::new(), broken: false }
    }

    /// Takes bytes as they came. To be followed by [`FrameReader::next`] until there is none.
    pub fn take(&mut self, bytes: &[u8]) {
        if !self.broken {
            self.held.extend_from_slice(bytes);
        }
    }

    /// The text of the next frame; `None` until the frame is complete.
    ///
    /// # Errors
    /// The frame is out of sequence or not authentic; every later call fails, too.
    #[allow(clippy::should_implement_trait, reason = "it is fed in between, and the end of its input is not final")]
    pub fn next(&mut self) -> Result<Option<Vec<u8>>, NotTheirs> {
        if self.broken {
            return Err(NotTheirs);
        }
        let Some((length, rest)) = self.held.split_first_chunk::<4>() else { return Ok(None) };
        let length = u32::from_le_bytes(*length) as usize;
        if length > TEXT_MAX {
            return self.refuse();
        }
        let Some((text, rest)) = rest.split_at_checked(length) else { return Ok(None) };
        let Some(theirs) = rest.get(..TAG) else { return Ok(None) };
        let expected = tag(&self.key, &[WORD, &self.number.to_le_bytes(), text]);
        if !bool::from(expected.ct_eq(theirs)) {
            return self.refuse();
        }
        let text = text.to_vec();
        self.number += 1;
        self.held.drain(..4 + length + TAG);
        Ok(Some(text))
    }

    /// Bytes that wait for the rest of their frame.
    pub fn held(&self) -> usize {
        self.held.len()
    }

    fn refuse(&mut self) -> Result<Option<Vec<u8>>, NotTheirs> {
        self.broken = true;
        self.held = Vec::new();
        Err(NotTheirs)
    }
}

/// A frame that the other end did not send, or not now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotTheirs;

impl fmt::Display for NotTheirs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a message came that the other end did not send")
    }
}

const WORD: &[u8] = b"frame";
const TAG: usize = 32;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tester::handshake::{Answering, HandshakeStep, Opening, Proof};
    use crate::tester::secret::Secret;
    use proptest::prelude::*;

    fn keys() -> Keys {
        let secret = Secret::new(b"correct-horse-battery-staple");
        let mut server = Answering::with_nonce(&secret, [7; 32]);
        server.take(&Opening::Control.write());
        match server.take(Proof::new(&secret, &Opening::Control, [7; 32]).bytes()) {
            HandshakeStep::Proven { keys, .. } => *keys,
            _ => panic!("not proven"),
        }
    }

    fn read_all(reader: &mut FrameReader, bytes: &[u8], cut: usize) -> (Vec<Vec<u8>>, bool) {
        let mut texts = Vec::new();
        for piece in bytes.chunks(cut) {
            reader.take(piece);
            loop {
                match reader.next() {
                    Ok(Some(text)) => texts.push(text),
                    Ok(None) => break,
                    Err(NotTheirs) => return (texts, false),
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
            prop_assert_eq!(reader.held(), 0);
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
            // A length that grew waits for more than there is, and never gives a text.
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
            let (got, whole) = read_all(&mut FrameReader::new(&keys, FrameDirection::Up), &bytes, 1000);
            assert_eq!((got.len(), whole), (texts, false));
        }
        assert_eq!(
            read_all(&mut FrameReader::new(&keys, FrameDirection::Down), &one, 1000),
            (vec![], false),
            "sent back"
        );
    }

    #[test]
    fn frame_text_limit_is_enforced() {
        let keys = keys();
        let frame = FrameWriter::new(&keys, FrameDirection::Up).write(&vec![b'x'; TEXT_MAX]);
        let (texts, whole) = read_all(&mut FrameReader::new(&keys, FrameDirection::Up), &frame, 1 << 20);
        assert!(whole && texts[0].len() == TEXT_MAX);
        let mut reader = FrameReader::new(&keys, FrameDirection::Up);
        reader.take(&(TEXT_MAX as u32 + 1).to_le_bytes());
        assert_eq!(reader.next(), Err(NotTheirs));
        reader.take(&[0; 1000]);
        assert_eq!((reader.held(), reader.next()), (0, Err(NotTheirs)), "nothing is kept of it");
    }
}
