//! What a stream of bytes came to.

use ledger::Method;
use load::http1::{AtClose, Fault, Progress, Response};

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
}

/// Feeds pieces, then closes.
pub fn read<'a>(response: &mut Response, method: Method, pieces: impl IntoIterator<Item = &'a [u8]>) -> Read {
    response.reset(method);
    let outcome = feed(response, pieces);
    Read { outcome, status: response.status(), keep_alive: response.keep_alive() }
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
