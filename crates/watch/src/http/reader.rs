//! Position of one direction of an HTTP connection.

use schema::Framing;

use super::framing::Stage;

/// The reader of one direction.
#[derive(Debug)]
pub(super) struct Reader {
    pub(super) stage: Stage,
    /// A head in several segments.
    pub(super) held: Vec<u8>,
    /// How far `held` was searched for its end.
    pub(super) searched: usize,
    /// `held` has a complete line.
    pub(super) has_line: bool,
    /// A message has begun and not ended.
    pub(super) is_open: bool,
    /// How the end of the current message will be found.
    pub(super) framing: Framing,
}

impl Reader {
    /// Before the first message, or at an unknown position.
    pub(super) fn new(is_fresh: bool) -> Reader {
        let stage = if is_fresh { Stage::Between } else { Stage::Lost };
        Reader { stage, held: Vec::new(), searched: 0, has_line: false, is_open: false, framing: Framing::Exact }
    }

    /// Takes the stored bytes.
    pub(super) fn take_held(&mut self) -> Vec<u8> {
        (self.searched, self.has_line) = (0, false);
        std::mem::take(&mut self.held)
    }

    /// Marks the end of the current message as unknown.
    pub(super) fn lose(&mut self) {
        self.stage = Stage::Lost;
        self.framing = Framing::ByDirection;
    }
}
