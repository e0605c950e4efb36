//! HTTP/3: frames and error codes of both sides, and a client connection over quinn-proto.
//!
//! ```text
//!   client::Connection   requests, responses, streams of a connection     events for its owner
//!     request, response    messages as frames (RFC 9114)
//!       message              frames of a message     \
//!       control              unidirectional streams   > of either side: crate `serve` reads requests with them
//!       frame, code          layout, SETTINGS, codes /
//!     session              TLS (RFC 9001): rustls behind quinn-proto's traits
//!       packet               whose bytes a packet carries
//!     transport, time      settings, and the run's clock as quinn-proto takes it
//!     congestion           when a window grows, of either side
//! ```
//!
//! Field sections are those of crate `field_compression`.
//!
//! quinn-proto is QUIC without I/O. Nothing here owns a descriptor, a thread or a clock; TLS has a random generator and
//! a clock of its own for certificates. The messages are read and written here, not by the h3 crate: see
//! docs/decisions/0032.
//!
//! Read [`client`] first.

pub mod client;
pub mod code;
pub mod congestion;
pub mod control;
pub mod frame;
mod lost;
pub mod message;
mod packet;
pub mod request;
pub mod response;
mod session;
pub mod time;
pub mod transport;
pub mod varint;

pub use client::{Client, Connection, Event};
pub use code::Code;
pub use lost::Lost;
pub use session::TlsClient;
pub use time::TimeBase;
pub use transport::{CongestionControl, Transport};
