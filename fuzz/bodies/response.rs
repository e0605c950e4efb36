//! Any bytes as a response to the load generator's parser. The first byte selects whether the request is HEAD.

#[path = "../../crates/load/tests/http1/outcome.rs"]
mod outcome;

use load::http1::Response;
use outcome::{Outcome, read};
use schema::Method;

/// The end of the response and its outcome do not depend on the pieces.
pub fn run(bytes: &[u8]) {
    let [first, bytes @ ..] = bytes else { return };
    let method = if first & 1 == 1 { Method::Head } else { Method::Get };
    let mut response = Response::new(method);
    let whole = read(&mut response, method, [bytes]);
    if let Outcome::Whole(consumed) = whole.outcome {
        assert!(consumed <= bytes.len());
        assert!((200..1000).contains(&whole.status));
    }
    for piece in [1, 3, 61] {
        assert_eq!(read(&mut response, method, bytes.chunks(piece)), whole, "in pieces of {piece}");
    }
}
