//! What a stream of bytes came to.

use load::http1::{AtClose, Fault, Progress, Response};
use schema::Method;

/// The end of a response, the connection being closed after the last byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Whole after so many bytes, without the close.
    Whole(usize),
    /// The close made it whole.
    WholeAtClose,
    /// The close cut it off.
    Short,
    /// The close came before any byte.
    Nothing,
    Malformed,
    TooLarge,
}

/// What one response came to, and what was read from its head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Read {
    pub outcome: Outcome,
    pub status: u16,
    pub keep_alive: bool,
    /// Bytes of the body without framing, and of those that were kept their number and a digest.
    pub body: (u64, Option<(usize, u64)>),
}

/// Feeds pieces, then closes.
pub fn read<'a>(response: &mut Response, method: Method, pieces: impl IntoIterator<Item = &'a [u8]>) -> Read {
    response.forget_connection();
    response.reset(method);
    response.keep_head();
    response.keep_body();
    let outcome = feed(response, pieces);
    let kept = response.body().map(|body| (body.len(), digest(body)));
    let body = (response.body_length(), kept);
    assert!(kept.is_none_or(|(length, _)| length as u64 == body.0), "all of a body is kept, or nothing said of it");
    Read { outcome, status: response.status(), keep_alive: response.keep_alive(), body }
}

/// Tells one body from another.
pub fn digest(body: &[u8]) -> u64 {
    body.iter().fold(7, |digest: u64, &byte| digest.wrapping_mul(31).wrapping_add(byte.into()))
}

fn feed<'a>(response: &mut Response, pieces: impl IntoIterator<Item = &'a [u8]>) -> Outcome {
    let mut fed = 0;
    for piece in pieces {
        match response.feed(piece) {
            Ok(Progress::More) => fed += piece.len(),
            Ok(Progress::Whole { consumed }) => return Outcome::Whole(fed + consumed),
            Err(Fault::Malformed) => return Outcome::Malformed,
            Err(Fault::HeadTooLarge) => return Outcome::TooLarge,
        }
    }
    match response.close() {
        AtClose::Whole => Outcome::WholeAtClose,
        AtClose::Short => Outcome::Short,
        AtClose::Nothing => Outcome::Nothing,
        AtClose::Malformed => Outcome::Malformed,
    }
}
