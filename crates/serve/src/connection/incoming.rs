//! The body of a request, as it comes.

use std::ops::Range;

use crate::request::{Body, Chunks, Step};
use crate::response::Status;

/// What of a request's body is still to come.
#[derive(Debug)]
pub(super) enum Incoming {
    /// Nothing: the next byte is that of a head.
    Nothing,
    /// So many bytes.
    Bytes(u64),
    /// Chunks.
    Chunks(Box<Chunks>),
}

impl Incoming {
    /// Before the body that a head announced, of which at most `most` bytes are taken.
    ///
    /// # Errors
    /// 413: it is announced to be longer.
    pub fn new(body: Body, most: u64) -> Result<Self, Status> {
        match body {
            Body::None => Ok(Incoming::Nothing),
            Body::Bytes(bytes) if bytes > most => Err(Status::ContentTooLarge),
            Body::Bytes(bytes) => Ok(Incoming::Bytes(bytes)),
            Body::Chunked => Ok(Incoming::Chunks(Box::new(Chunks::new(most)))),
        }
    }

    /// Nothing more comes.
    pub fn is_nothing(&self) -> bool {
        matches!(self, Incoming::Nothing)
    }

    /// Reads from the beginning of `input`: how much of it is done with, and where in that there is content.
    ///
    /// # Errors
    /// The body is malformed (400), its trailers are too long (431) or it is (413): what follows has no meaning.
    pub fn read(&mut self, input: &[u8]) -> Result<(usize, Range<usize>), Status> {
        match self {
            Incoming::Nothing => Ok((0, 0..0)),
            Incoming::Bytes(left) => {
                let here = usize::try_from(*left).unwrap_or(usize::MAX).min(input.len());
                *left -= here as u64;
                if *left == 0 {
                    *self = Incoming::Nothing;
                }
                Ok((here, 0..here))
            }
            Incoming::Chunks(chunks) => match chunks.step(input)? {
                Step::More => Ok((input.len(), 0..0)),
                Step::Data(range) => Ok((range.end, range)),
                Step::End(at) => {
                    *self = Incoming::Nothing;
                    Ok((at, 0..0))
                }
            },
        }
    }
}
