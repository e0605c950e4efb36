//! What a worker lends to the connection it is busy with.

use std::sync::Arc;

use units::Timestamp;

use super::OUTPUT_FULL;
use super::backlog::Backlog;
use crate::answer::COPY_MAX;
use crate::cache::Cache;
use crate::date::DateField;
use crate::dynamic::Front;
use crate::engine::turn::Turn;
use crate::files::Files;
use crate::journal::Books;
use crate::origin::Origin;
use crate::spec::Limits;
use crate::status::Board;

/// What a worker lends to the connection it is busy with.
#[derive(Debug)]
pub(crate) struct Desk {
    pub(crate) files: Files,
    pub(crate) date: DateField,
    pub(crate) limits: Limits,
    pub(crate) now: Timestamp,
    pub(crate) books: Books,
    pub(crate) board: Board,
    /// The way to the relay, where something is dynamic.
    pub(crate) front: Option<Front>,
    /// The results that the relay keeps.
    pub(crate) cache: Option<Arc<Cache>>,
    /// The objects of a mix, which take the place of everything else.
    pub(crate) origin: Option<Box<Origin>>,
    /// Heads and small bodies that the connection at hand has to send. Empty between connections.
    pub(crate) out: Vec<u8>,
    /// The same in TLS records.
    pub(crate) sealed: Vec<u8>,
    /// What a client said through TLS, while it is taken in.
    pub(crate) plain: Vec<u8>,
    /// What is about to be sealed.
    pub(crate) chunk: Vec<u8>,
    /// What is kept for all connections.
    pub(crate) backlog: Backlog,
    /// A path that is compared with the routes.
    pub(super) path: Vec<u8>,
    /// The server ends: answers are the last ones of their connections.
    pub(crate) stopping: bool,
    /// How long heavy work may go on in this turn of the loop.
    pub(crate) turn: Turn,
}

impl Desk {
    pub(crate) fn new(files: Files, limits: Limits, now: Timestamp, books: Books, board: Board) -> Self {
        let limits = Limits { head_bytes: limits.head_bytes.min(HEAD_BYTES_MAX), ..limits };
        let out = Vec::with_capacity(OUTPUT_FULL + COPY_MAX);
        Desk {
            files,
            date: DateField::new(now),
            limits,
            now,
            books,
            board,
            front: None,
            cache: None,
            origin: None,
            out,
            sealed: Vec::new(),
            plain: Vec::new(),
            chunk: Vec::new(),
            backlog: Backlog::new(),
            path: Vec::new(),
            stopping: false,
            turn: Turn::default(),
        }
    }
}

/// Heads may be this long: one more receive always makes progress.
const HEAD_BYTES_MAX: usize = 32 << 10;
