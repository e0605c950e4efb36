//! Where an HTTP/1 message ends, decided once for every part of the program that reads one.
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
//! differ where RFC 9112 lets them: a server refuses a request that two parsers could read differently, a client may
//! still read a response. Each difference is a column of one table, [`framing::Role`], and `tests/framing.txt` lists
//! the cases with what each role makes of them. The tests of `load`, `watch` and `serve` read the same file.
//!
//! A [`Fault`] names what is wrong, with an excerpt, in words for the user.
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
pub use framing::{Asked, Body, Fields, Role, Version};
