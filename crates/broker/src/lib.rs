//! Messages of many senders in a stream of NATS JetStream, from which several readers take them.
//!
//! ```text
//!   sender  -- publish, acknowledged --> yamabiko.STREAM.tap.NAME.ID  ==+
//!   sender  -- publish, acknowledged --> yamabiko.STREAM.tap.NAME.ID  ==+== STREAM ==> Reader of each manager
//! ```
//!
//! The stream of JetStream is a log with limits: it discards its oldest messages, whether they were read or not. So a
//! sender numbers its messages, and a reader finds by the numbers what it never received.
//!
//! - [`Publisher`]: a sender's end. A message is published after the one before it on the same subject, or not at all:
//!   the server compares ([`Publisher::publish`], `after`). `Nats-Msg-Id` identifies a repeated one within the server's
//!   window.
//! - [`Reader`]: a reader's end. [`Cursor`] decides about each delivery: what was seen is skipped, and after a gap in
//!   the deliveries the reader begins again after the last message that its user stored.
//!
//! Connections, certificates and credentials are those of [`coordination::nats::connect`]. [`Subject`] has the subjects.

mod address;
mod cursor;
mod publish;
mod read;
mod session;

pub use address::{Kind, StreamAddress, Subject};
pub use cursor::{Cursor, Delivery};
pub use publish::{Header, Last, Publisher};
pub use read::{Message, Position, Reader, ReaderPlan, Start};
pub use session::{Failure, Limits};
