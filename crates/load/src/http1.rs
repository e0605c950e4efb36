//! Parses HTTP/1 responses incrementally, from pieces of any size. Bodies are counted, and stored only if the workload
//! needs them.
//!
//! ```text
//!   bytes --> stray empty lines --> head (at most 64 KiB, 512 header lines) --> none | length | chunked | until close
//!             skipped, counted        ^ interim 1xx: again
//! ```
//!
//! The crate `http1` finds the end of a head and determines the framing of its body, as for every other reader of this
//! program. The result does not depend on the segmentation of the input; a property test checks this. The limits here
//! and the response timeout of the engine bound endless heads, endless bodies and slow responses.
//!
//! Read [`response`] first.

pub mod response;

pub use response::{AtClose, BODY_STORED_MAX, Fault, Progress, Response};
