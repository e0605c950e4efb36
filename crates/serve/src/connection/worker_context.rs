//! What a worker lends to the connection that it processes.

use std::sync::Arc;

use units::Timestamp;

use super::OUTPUT_FULL;
use super::backlog::Backlog;
use crate::cache::Cache;
use crate::date::DateField;
use crate::dynamic::RelayHandle;
use crate::engine::turn::Turn;
use crate::file_response::COPY_MAX;
use crate::files::Files;
use crate::journal::Recorder;
use crate::multiplexed::{HeadCaches, RequestHead};
use crate::origin::Origin;
use crate::spec::Limits;
use crate::status::StatusSources;
use crate::tls::{Records, Tls};

/// What a worker lends to the connection that it processes.
#[derive(Debug)]
pub(crate) struct WorkerContext {
    pub(crate) files: Files,
    pub(crate) date: DateField,
    pub(crate) limits: Limits,
    pub(crate) now: Timestamp,
    pub(crate) recorder: Recorder,
    pub(crate) status_sources: StatusSources,
    /// Access to the relay, if there are dynamic routes.
    pub(crate) front: Option<RelayHandle>,
    /// The result cache.
    pub(crate) cache: Option<Arc<Cache>>,
    /// The origin workload, which replaces everything else.
    pub(crate) origin: Option<Box<Origin>>,
    /// Output of the current connection: heads and small bodies. Empty between connections.
    pub(crate) out: Vec<u8>,
    /// Output of the current connection in frames, while [`WorkerContext::out`] has that of one of its streams.
    pub(crate) frames: Vec<u8>,
    /// The head of a request of HTTP/2 or HTTP/3.
    pub(crate) request_head: RequestHead,
    /// Encoded heads of responses.
    pub(crate) head_caches: HeadCaches,
    /// Content up to this length is copied behind its head.
    pub(crate) copy_max: usize,
    /// The certificate, over TLS.
    pub(crate) tls: Option<Tls>,
    /// Output in TLS records.
    pub(crate) sealed: Records,
    /// Decrypted input of the current connection.
    pub(crate) plain: Vec<u8>,
    /// Plaintext about to be encrypted.
    pub(crate) chunk: Vec<u8>,
    /// Memory of all connections.
    pub(crate) backlog: Backlog,
    /// Connections whose limit of unsent bytes may still be raised.
    pub(crate) raises_left: u32,
    /// The normalised path that is compared with the routes.
    pub(super) path: Vec<u8>,
    /// The server stops: every response is the last one of its connection.
    pub(crate) stopping: bool,
    /// Time limit of heavy work in this turn of the loop.
    pub(crate) turn: Turn,
}

impl WorkerContext {
    pub(crate) fn new(
        files: Files,
        limits: Limits,
        now: Timestamp,
        recorder: Recorder,
        status_sources: StatusSources,
    ) -> Self {
        let limits = Limits { head_bytes: limits.head_bytes.min(HEAD_BYTES_MAX), ..limits };
        let out = Vec::with_capacity(OUTPUT_FULL + COPY_MAX);
        WorkerContext {
            files,
            date: DateField::new(now),
            limits,
            now,
            recorder,
            status_sources,
            front: None,
            cache: None,
            origin: None,
            out,
            frames: Vec::new(),
            request_head: RequestHead::default(),
            head_caches: HeadCaches::default(),
            copy_max: COPY_MAX,
            tls: None,
            sealed: Records::default(),
            plain: Vec::new(),
            chunk: Vec::new(),
            backlog: Backlog::new(),
            raises_left: 0,
            path: Vec::new(),
            stopping: false,
            turn: Turn::default(),
        }
    }
}

/// Maximum length of a head: one more receive always makes progress.
const HEAD_BYTES_MAX: usize = 32 << 10;
