//! The outcome of parsing a stream of bytes.

use load::http1::{AtClose, Fault, Progress, Response};
use schema::Method;

/// The end of a response whose connection closes after the last byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Complete after this many bytes, before the close.
    Whole(usize),
    /// Complete at the close.
    WholeAtClose,
    /// Incomplete at the close.
    Short,
    /// Closed before the first byte.
    Nothing,
    Malformed,
    TooLarge,
}

/// The outcome of one response, and the properties of its head and body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Read {
    pub outcome: Outcome,
    pub status: u16,
    pub keep_alive: bool,
    /// Bytes of the body without framing; number and digest of the stored bytes.
    pub body: (u64, Option<(usize, u64)>),
}

/// Parses pieces of input, then the close.
pub fn read<'a>(response: &mut Response, method: Method, pieces: impl IntoIterator<Item = &'a [u8]>) -> Read {
    response.forget_connection();
    response.reset(method);
    response.store_head();
    response.store_body();
    let outcome = feed(response, pieces);
    let stored = response.body().map(|body| (body.len(), digest(body)));
    let body = (response.body_length(), stored);
    assert!(stored.is_none_or(|(length, _)| length as u64 == body.0), "a body is stored completely or not at all");
    Read { outcome, status: response.status(), keep_alive: response.keep_alive(), body }
}

/// A digest that distinguishes bodies.
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
