//! HTTP/1 responses, read as they come, in pieces of any size. Bodies are counted, and kept only
//! where the workload asks for something of them.
//!
//! ```text
//!   bytes --> head (httparse, at most 64 KiB, 128 headers) --> framing --> none | length | chunked | until close
//!               ^ interim 1xx: again                            (RFC 9112, section 6.3)
//! ```
//!
//! What comes out does not depend on how the bytes were cut: a property test holds that. A head without end, a body
//! without end and a trickle are bounded by the limits here and by the response timeout in the engine.
//!
//! Read [`response`] first.

pub mod chunked;
pub mod head;
pub mod response;

pub use response::{AtClose, BODY_KEPT_MAX, Fault, Progress, Response};
