//! The body of a request as it arrives.

use std::ops::Range;

use crate::request::{Body, Chunks, Step};
use crate::response::Status;

/// The remaining part of a request's body.
#[derive(Debug)]
pub(super) enum Incoming {
    /// Nothing: the next byte belongs to a head.
    Nothing,
    /// Remaining bytes.
    Bytes(u64),
    /// Chunks.
    Chunks(Box<Chunks>),
}

impl Incoming {
    /// Expects the body that a head announced, up to `most` bytes.
    ///
    /// # Errors
    /// 413: the announced body is longer.
    pub fn new(body: Body, most: u64) -> Result<Self, Status> {
        match body {
            Body::None => Ok(Incoming::Nothing),
            Body::Bytes(bytes) if bytes > most => Err(Status::ContentTooLarge),
            Body::Bytes(bytes) => Ok(Incoming::Bytes(bytes)),
            Body::Chunked => Ok(Incoming::Chunks(Box::new(Chunks::new(most)))),
        }
    }

    /// Whether no body remains.
    pub fn is_nothing(&self) -> bool {
        matches!(self, Incoming::Nothing)
    }

    /// Reads from the beginning of `input`: the number of bytes used and the range of content in them.
    ///
    /// # Errors
    /// The body is malformed (400), or its trailers (431) or the body (413) are too long: the following bytes have no
    /// meaning.
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
