//! Where a message is: one direction's place in its stream of messages.

use http1::Chunked;
use http1::chunked::ByObserver;

/// The place in the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// Before a message.
    Between,
    /// Inside a head.
    Head,
    /// Inside a body: so many bytes are left.
    Body(u64),
    /// Inside a chunked body.
    Chunked(Chunked<ByObserver>),
    /// The message goes on to the end of the connection.
    UntilClose,
    /// The end of the message is not known: it ends when the other side speaks.
    Lost,
}

impl Stage {
    /// How many of the next bytes are passed over by length.
    pub(super) fn passed_over(&self) -> u64 {
        match self {
            Stage::Body(left) => *left,
            Stage::Chunked(chunked) => chunked.data_left(),
            Stage::UntilClose => u64::MAX,
            Stage::Between | Stage::Head | Stage::Lost => 0,
        }
    }
}
