//! Framing state of one direction: its position in its stream of messages.

use http1::Chunked;
use http1::chunked::ByObserver;

/// Position in the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// Before a message.
    Between,
    /// Inside a head.
    Head,
    /// Inside a body: number of remaining bytes.
    Body(u64),
    /// Inside a chunked body.
    Chunked(Chunked<ByObserver>),
    /// The message lasts until the end of the connection.
    UntilClose,
    /// The end of the message is unknown: it ends when the other side sends.
    Lost,
}

impl Stage {
    /// Number of the next bytes that are skipped by length.
    pub(super) fn skipped_bytes(&self) -> u64 {
        match self {
            Stage::Body(left) => *left,
            Stage::Chunked(chunked) => chunked.data_left(),
            Stage::UntilClose => u64::MAX,
            Stage::Between | Stage::Head | Stage::Lost => 0,
        }
    }
}
