//! Finds where an HTTP/1 message ends, by the same rules for every part of the program that reads HTTP/1.
//!
//! ```text
//!   field lines --> framing::Fields --> Body: none | length | chunked | until close | tunnel, or a Fault
//!   chunked body --> chunked::Chunked --> data, end, or a Fault          (RFC 9112, section 7.1)
//!   response head --> response::parse --> Head                           (clients)
//!   one response, to the close --> whole::whole --> Whole
//!   bytes after a response --> between::Between --> stray empty lines    (clients)
//! ```
//!
//! Two readers that disagree about the end of a message disagree about every message after it. The readers of this
//! program are the load generator, the packet analysis, the server, and the server's relay to other programs. They
//! differ where RFC 9112 allows it: a server rejects a request that two parsers could read differently, a client may
//! accept such a response. Each reader is a [`framing::Role`]. `tests/framing.txt` lists cases with the expected result
//! for each role; the tests of `load`, `watch` and `serve` read the same file.
//!
//! A [`Fault`] describes what is wrong with a message, with an excerpt of it, for the user.
//!
//! Read [`framing`] first.

pub mod between;
pub mod chunked;
pub mod fault;
pub mod framing;
pub mod list;
pub mod response;
pub mod whole;

pub use between::Between;
pub use chunked::{Chunked, Step};
pub use fault::{Fault, Reason};
pub use framing::{Body, Fields, RequestMethod, Role, Version};
