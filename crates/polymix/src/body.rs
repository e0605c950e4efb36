//! Body content: bodies are sequences of pieces precomputed in memory, so that they cost neither time nor memory.
//!
//! ```text
//!   Noise  |.........1 MiB of noise.........|   a body begins at an offset and wraps around
//!   Text   |chunk|chunk|chunk|..|tail|          16 KiB chunks in the order of the body, a tail of n * 256 bytes
//!   gzip   head | deflated chunk | .. | deflated tail | end of stream, CRC, length
//! ```
//!
//! Every chunk and tail is deflated once, followed by a full flush, so that pieces in any order form one gzip member:
//! some caches reject or truncate files of several members. The CRC is combined from those of the pieces.

use std::fmt;
use std::sync::{Arc, LazyLock};

use crc32fast::Hasher;
use flate2::{Compress, Compression, FlushCompress, Status};
use stats::Rng;

use crate::Variant;
use crate::world::TEXT_STEP;

/// Precomputed content of all bodies, the same in every process of a build. [`BodyContent::digest`] identifies builds,
/// whose compressors may differ.
pub struct BodyContent {
    noise: Box<[u8]>,
    chunks: Box<[Piece]>,
    /// By text, then by length in steps less one.
    tails: Box<[Piece]>,
    /// Deflated bytes of all chunks together.
    round_deflated: u64,
    /// CRC shifts by length in steps less one.
    shifts: Box<[Shift]>,
    digest: u32,
}

/// One piece of text.
struct Piece {
    plain: Box<[u8]>,
    /// Raw deflate ended by a full flush: byte-aligned, without later references to it.
    deflated: Box<[u8]>,
    crc: u32,
}

const NOISE_BYTES: usize = 1 << 20;
const CHUNK_BYTES: usize = 16 << 10;
/// A power of two, so that an odd stride visits all chunks.
const CHUNKS: usize = 64;
const TAIL_TEXTS: usize = 4;
/// Longest tail in steps.
const TAIL_STEPS: usize = CHUNK_BYTES / TEXT_STEP as usize - 1;

/// RFC 1952: deflate, no name, no time, system unknown.
const GZIP_HEAD: [u8; 10] = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255];
/// An empty last block with fixed codes; CRC-32 and length follow.
const GZIP_END: [u8; 2] = [3, 0];
const GZIP_TRAILER_BYTES: usize = GZIP_END.len() + 8;

static SHARED: LazyLock<Arc<BodyContent>> = LazyLock::new(|| Arc::new(BodyContent::new()));

impl BodyContent {
    /// The instance of this process, created at the first call: about 5 MB, 0.1 s.
    pub fn shared() -> Arc<BodyContent> {
        Arc::clone(&SHARED)
    }

    fn new() -> BodyContent {
        let mut rng = Rng::named(0, "matter");
        let noise: Box<[u8]> = (0..NOISE_BYTES / 8).flat_map(|_| rng.next().to_le_bytes()).collect();
        let words = words(&mut rng);
        let chunks: Box<[Piece]> = (0..CHUNKS).map(|_| Piece::new(text(&mut rng, &words))).collect();
        let texts: Vec<_> = (0..TAIL_TEXTS).map(|_| text(&mut rng, &words)).collect();
        let lengths = || (1..=TAIL_STEPS).map(|steps| steps * TEXT_STEP as usize);
        let tails: Box<[Piece]> =
            texts.iter().flat_map(|text| lengths().map(|length| Piece::new(text[..length].into()))).collect();
        let round_deflated = chunks.iter().map(|chunk| chunk.deflated.len() as u64).sum();
        let mut digest = Hasher::new();
        digest.update(&noise);
        for piece in chunks.iter().chain(&tails) {
            digest.update(&piece.plain);
            digest.update(&piece.deflated);
        }
        let shifts = (1..=TAIL_STEPS + 1).map(|steps| Shift::by(steps as u64 * TEXT_STEP)).collect();
        BodyContent { noise, chunks, tails, round_deflated, shifts, digest: digest.finalize() }
    }

    /// CRC-32 of all content. Ends with different digests generate different bodies.
    pub fn digest(&self) -> u32 {
        self.digest
    }

    fn tail(&self, text: u8, steps: u8) -> Option<&Piece> {
        let steps = usize::from(steps).checked_sub(1)?;
        Some(&self.tails[usize::from(text) * TAIL_STEPS + steps])
    }
}

impl fmt::Debug for BodyContent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BodyContent({:08x})", self.digest)
    }
}

impl Piece {
    fn new(plain: Box<[u8]>) -> Piece {
        let mut compress = Compress::new(Compression::new(6), false);
        // Text shrinks; the flush adds a few bytes.
        let mut deflated = Vec::with_capacity(plain.len() + 64);
        let status = compress.compress_vec(&plain, &mut deflated, FlushCompress::Full);
        let is_whole = compress.total_in() == plain.len() as u64 && deflated.len() < deflated.capacity();
        assert!(matches!(status, Ok(Status::Ok)) && is_whole, "the buffer is large enough for a deflated piece");
        let crc = crc32fast::hash(&plain);
        Piece { plain, deflated: deflated.into(), crc }
    }
}

/// Shift of a CRC-32 by a number of bytes: linear in its bits, stored as the image of each bit.
struct Shift([u32; 32]);

impl Shift {
    fn by(bytes: u64) -> Shift {
        Shift(std::array::from_fn(|bit| {
            let mut one = Hasher::new_with_initial_len(1 << bit, 1);
            one.combine(&Hasher::new_with_initial_len(0, bytes));
            one.finalize()
        }))
    }

    fn of(&self, crc: u32) -> u32 {
        self.0.iter().enumerate().fold(0, |sum, (bit, shifted)| sum ^ if crc >> bit & 1 != 0 { *shifted } else { 0 })
    }
}

/// Words for texts that compress like today's scripts and pages, to a third.
fn words(rng: &mut Rng) -> Vec<String> {
    let word = |rng: &mut Rng| {
        let length = 2 + rng.below(8);
        (0..length).map(|_| char::from(b'a' + rng.below(26) as u8)).collect()
    };
    (0..300).map(|_| word(rng)).collect()
}

/// One chunk of text in lines.
fn text(rng: &mut Rng, words: &[String]) -> Box<[u8]> {
    let mut text = Vec::with_capacity(CHUNK_BYTES + 16);
    while text.len() < CHUNK_BYTES {
        // A product of uniform numbers prefers the first words, as in natural language.
        let word = (rng.uniform() * rng.uniform() * rng.uniform() * words.len() as f64) as usize;
        text.extend_from_slice(words[word].as_bytes());
        text.extend_from_slice([&b" "[..], b" ", b" ", b" ", b"(", b");\n", b" = ", b"."][rng.below(8) as usize]);
    }
    text.truncate(CHUNK_BYTES);
    text.into()
}

/// Kind of pieces of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Selection {
    /// Incompressible: images, fonts, archives.
    Noise,
    /// Lengths are multiples of [`TEXT_STEP`].
    Text,
}

/// A body: a sequence of precomputed pieces. Cheap to create and to clone.
#[derive(Clone, Debug)]
pub struct Body {
    content: Arc<BodyContent>,
    layout: Layout,
    length: u64,
}

#[derive(Clone, Debug)]
enum Layout {
    Noise { from: u32 },
    Text(Order),
    Gzip { order: Order, trailer: [u8; GZIP_TRAILER_BYTES] },
}

/// Order of the chunks, and the tail.
#[derive(Clone, Copy, Debug)]
struct Order {
    first: u8,
    stride: u8,
    chunks: u64,
    tail_text: u8,
    tail_steps: u8,
}

impl Order {
    fn chunk(self, index: u64) -> usize {
        (u64::from(self.first).wrapping_add(index.wrapping_mul(u64::from(self.stride))) % CHUNKS as u64) as usize
    }
}

impl Body {
    /// A body of `length` bytes before coding; `mark` selects the pieces.
    pub(crate) fn new(
        content: Arc<BodyContent>,
        selection: Selection,
        mark: u64,
        length: u64,
        variant: Variant,
    ) -> Body {
        if selection == Selection::Noise {
            let layout = Layout::Noise { from: (mark % NOISE_BYTES as u64) as u32 };
            return Body { content, layout, length };
        }
        debug_assert!(length.is_multiple_of(TEXT_STEP), "{length} bytes of text");
        let order = Order {
            first: (mark % CHUNKS as u64) as u8,
            stride: (mark >> 8) as u8 | 1,
            chunks: length / CHUNK_BYTES as u64,
            tail_text: (mark >> 16) as u8 % TAIL_TEXTS as u8,
            tail_steps: (length % CHUNK_BYTES as u64 / TEXT_STEP) as u8,
        };
        match variant {
            Variant::Plain => Body { content, layout: Layout::Text(order), length },
            Variant::Gzip => Body::gzip(content, order, length),
        }
    }

    fn gzip(content: Arc<BodyContent>, order: Order, length: u64) -> Body {
        let (mut crc, mut deflated) = (0, 0);
        let mut add = |piece: &Piece| {
            let steps = piece.plain.len() / TEXT_STEP as usize;
            crc = content.shifts[steps - 1].of(crc) ^ piece.crc;
            deflated += piece.deflated.len() as u64;
        };
        (0..order.chunks).for_each(|index| add(&content.chunks[order.chunk(index)]));
        content.tail(order.tail_text, order.tail_steps).into_iter().for_each(add);
        let mut trailer = [0; GZIP_TRAILER_BYTES];
        trailer[..2].copy_from_slice(&GZIP_END);
        trailer[2..6].copy_from_slice(&crc.to_le_bytes());
        // Modulo 2^32, as the format requires.
        trailer[6..].copy_from_slice(&(length as u32).to_le_bytes());
        let length = (GZIP_HEAD.len() + GZIP_TRAILER_BYTES) as u64 + deflated;
        Body { content, layout: Layout::Gzip { order, trailer }, length }
    }

    /// An empty body.
    pub fn empty(content: Arc<BodyContent>) -> Body {
        Body { content, layout: Layout::Noise { from: 0 }, length: 0 }
    }

    /// Length as sent, in bytes.
    pub fn length(&self) -> u64 {
        self.length
    }

    /// The longest contiguous piece at offset `at`; empty at the end and beyond.
    pub fn piece(&self, at: u64) -> &[u8] {
        let Some(left) = self.length.checked_sub(at).filter(|&left| left > 0) else { return &[] };
        let piece = match &self.layout {
            Layout::Noise { from } => &self.content.noise[((u64::from(*from) + at) % NOISE_BYTES as u64) as usize..],
            Layout::Text(order) => {
                let (index, offset) = (at / CHUNK_BYTES as u64, (at % CHUNK_BYTES as u64) as usize);
                let plain = if index < order.chunks {
                    &self.content.chunks[order.chunk(index)].plain
                } else {
                    self.content.tail(order.tail_text, order.tail_steps).map_or(&[][..], |tail| &tail.plain)
                };
                &plain[offset..]
            }
            Layout::Gzip { order, trailer } => self.gzip_piece(*order, trailer, at),
        };
        &piece[..usize::try_from(left).unwrap_or(usize::MAX).min(piece.len())]
    }

    fn gzip_piece<'a>(&'a self, order: Order, trailer: &'a [u8], at: u64) -> &'a [u8] {
        let Some(mut at) = at.checked_sub(GZIP_HEAD.len() as u64) else { return &GZIP_HEAD[at as usize..] };
        // Skip complete rounds through all chunks.
        let rounds = (at / self.content.round_deflated).min(order.chunks / CHUNKS as u64);
        at -= rounds * self.content.round_deflated;
        let chunks = (rounds * CHUNKS as u64..order.chunks).map(|index| &self.content.chunks[order.chunk(index)]);
        for piece in chunks.chain(self.content.tail(order.tail_text, order.tail_steps)) {
            match at.checked_sub(piece.deflated.len() as u64) {
                Some(beyond) => at = beyond,
                None => return &piece.deflated[at as usize..],
            }
        }
        &trailer[at as usize..]
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use proptest::prelude::*;

    use super::*;

    fn body(selection: Selection, mark: u64, length: u64, variant: Variant) -> Body {
        Body::new(BodyContent::shared(), selection, mark, length, variant)
    }

    /// All bytes of a body, by its pieces.
    fn bytes(body: &Body) -> Vec<u8> {
        let mut bytes = Vec::new();
        while !body.piece(bytes.len() as u64).is_empty() {
            let at = bytes.len() as u64;
            bytes.extend_from_slice(body.piece(at));
        }
        bytes
    }

    fn inflated(gzip: &[u8]) -> Vec<u8> {
        let mut plain = Vec::new();
        let mut decoder = flate2::bufread::GzDecoder::new(gzip);
        decoder.read_to_end(&mut plain).expect("one complete gzip member");
        assert!(decoder.into_inner().is_empty(), "no bytes follow the gzip member");
        plain
    }

    #[test]
    fn gzip_bodies_of_every_tail_length_inflate_to_the_plain_body() {
        for steps in 1..=(2 * CHUNK_BYTES as u64 / TEXT_STEP + 3) {
            let length = steps * TEXT_STEP;
            let plain = bytes(&body(Selection::Text, steps * 77_777, length, Variant::Plain));
            let gzip = body(Selection::Text, steps * 77_777, length, Variant::Gzip);
            assert_eq!(plain.len() as u64, length);
            let sent = bytes(&gzip);
            assert_eq!(sent.len() as u64, gzip.length());
            assert!(inflated(&sent) == plain, "{length} bytes");
        }
    }

    #[test]
    fn gzip_body_longer_than_all_chunks_inflates_to_the_plain_body() {
        let length = 3 * (CHUNKS * CHUNK_BYTES) as u64 + 5 * TEXT_STEP;
        let plain = bytes(&body(Selection::Text, 0xdead_beef, length, Variant::Plain));
        let sent = bytes(&body(Selection::Text, 0xdead_beef, length, Variant::Gzip));
        assert!(inflated(&sent) == plain);
        let shrunk = sent.len() as f64 / plain.len() as f64;
        assert!((0.15..0.45).contains(&shrunk), "{shrunk}");
    }

    #[test]
    fn different_marks_give_different_bodies() {
        for (selection, length) in [(Selection::Noise, 100), (Selection::Text, 512), (Selection::Text, 40_960)] {
            let of = |mark: u64| bytes(&body(selection, mark, length, Variant::Plain));
            assert_eq!(of(0x0102_0304), of(0x0102_0304));
            assert_ne!(of(0x0102_0304), of(0x0103_0405), "{selection:?} {length}");
        }
    }

    #[test]
    fn body_content_is_deterministic_within_a_build() {
        assert_eq!(BodyContent::new().digest(), BodyContent::shared().digest());
    }

    proptest! {
        #[test]
        fn body_piece_at_any_offset_matches_the_complete_body(
            mark: u64, steps in 1..400u64, kind in 0..3u8, at: prop::sample::Index, over in 0..3u64,
        ) {
            let (selection, variant) = match kind {
                0 => (Selection::Noise, Variant::Plain),
                1 => (Selection::Text, Variant::Plain),
                _ => (Selection::Text, Variant::Gzip),
            };
            let body = body(selection, mark, steps * TEXT_STEP, variant);
            let whole = bytes(&body);
            prop_assert_eq!(whole.len() as u64, body.length());
            let at = at.index(whole.len());
            let piece = body.piece(at as u64);
            prop_assert!(!piece.is_empty());
            prop_assert_eq!(piece, &whole[at..at + piece.len()]);
            prop_assert!(body.piece(body.length() + over).is_empty());
        }

        #[test]
        fn noise_body_of_any_length_has_few_pieces(mark: u64, length in 1..3 * NOISE_BYTES as u64) {
            let body = body(Selection::Noise, mark, length, Variant::Plain);
            let (mut at, mut pieces) = (0, 0);
            while !body.piece(at).is_empty() {
                at += body.piece(at).len() as u64;
                pieces += 1;
            }
            prop_assert_eq!(at, length);
            prop_assert!(pieces <= 4);
        }
    }
}
