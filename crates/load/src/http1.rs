//! HTTP/1 responses, read as they come, in pieces of any size. Bodies are counted, and kept only
//! where the workload asks for something of them.
//!
//! ```text
//!   bytes --> stray empty lines --> head (at most 64 KiB, 512 header lines) --> none | length | chunked | until close
//!             skipped, counted        ^ interim 1xx: again
//! ```
//!
//! Where a head ends and how its body is framed is decided by the crate `http1`, as for every other reader of this
//! program. What comes out does not depend on how the bytes were cut: a property test holds that. A head without end,
//! a body without end and a trickle are bounded by the limits here and by the response timeout in the engine.
//!
//! Read [`response`] first.

pub mod response;

pub use response::{AtClose, BODY_KEPT_MAX, Fault, Progress, Response};
