//! Where one direction of an HTTP connection has come to.

use schema::Framing;

use super::framing::Stage;

/// One direction's place.
#[derive(Debug)]
pub(super) struct Reader {
    pub(super) stage: Stage,
    /// A head in pieces.
    pub(super) held: Vec<u8>,
    /// How far `held` was searched for its end.
    pub(super) searched: usize,
    /// `held` has a whole line.
    pub(super) has_line: bool,
    /// A message has begun and not ended.
    pub(super) is_open: bool,
    /// How the end of the message in progress will be found.
    pub(super) framing: Framing,
}

impl Reader {
    /// Before the first message, or in the middle of anything.
    pub(super) fn new(is_fresh: bool) -> Reader {
        let stage = if is_fresh { Stage::Between } else { Stage::Lost };
        Reader { stage, held: Vec::new(), searched: 0, has_line: false, is_open: false, framing: Framing::Exact }
    }

    /// Takes what is held out.
    pub(super) fn take_held(&mut self) -> Vec<u8> {
        (self.searched, self.has_line) = (0, false);
        std::mem::take(&mut self.held)
    }

    /// The end of the message in progress can no longer be told.
    pub(super) fn lose(&mut self) {
        self.stage = Stage::Lost;
        self.framing = Framing::ByDirection;
    }
}
