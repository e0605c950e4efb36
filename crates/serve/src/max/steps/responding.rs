//! Processing of one request with the enabled features.

use std::io::Read as _;
use std::net::SocketAddr;

use sys::file::Root;
use units::Timestamp;

use super::{Feature, StepsSpec};
use crate::cache::Finding;
use crate::date::{DateField, seconds};
use crate::figures::{Figures, Kind};
use crate::file_response::{COPY_MAX, Tail, answer};
use crate::files::{Content, Files, Found};
use crate::journal::{Entry, Journal, Recorder};
use crate::request::{Body, Parsed, Request, parse};
use crate::response::{Persistence, SERVER, Status, write_head, write_refusal};
use crate::spec::Limits;
use crate::target::file_path;

/// The features and their state.
pub(super) struct Responder {
    parse: bool,
    date: bool,
    find: FileLookup,
    /// Counters and the log, if enabled.
    recorder: Option<Recorder>,
    /// The prepared response, in two parts between which the Date is inserted.
    head: Box<[u8]>,
    rest: Box<[u8]>,
    root: Root,
    files: Files,
    date_field: DateField,
    limits: Limits,
    now: Timestamp,
    /// Decoded path of the current request.
    path: Vec<u8>,
    /// The last response did not fit into memory completely.
    cut: bool,
}

/// How the file is found.
#[derive(Clone, Copy, PartialEq, Eq)]
enum FileLookup {
    /// No lookup: one response for all.
    Not,
    /// Opened for every request.
    Open,
    /// From memory.
    Held,
    /// From memory, with conditions, ranges and codings.
    Whole,
}

/// Result of processing one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ProcessResult {
    /// The head is incomplete.
    Incomplete,
    /// The request used `bytes` of the input; its response is in `out`.
    Answered {
        /// Bytes of the input used.
        bytes: usize,
        /// The connection closes after it.
        last: bool,
    },
}

impl Responder {
    /// `body` is the response to everything without a file lookup.
    pub(super) fn new(
        spec: &StepsSpec,
        body: &[u8],
        root: Root,
        files: Files,
        journal: Option<Journal>,
        now: Timestamp,
    ) -> Self {
        let find = [
            (Feature::Conditional, FileLookup::Whole),
            (Feature::Held, FileLookup::Held),
            (Feature::Open, FileLookup::Open),
        ];
        let find = find.iter().find(|(feature, _)| spec.has(*feature)).map_or(FileLookup::Not, |(_, find)| *find);
        let recorder = (spec.has(Feature::Figures) || spec.has(Feature::Log)).then(|| {
            let counters = Figures::new().worker();
            Recorder::new(counters, journal)
        });
        let mut rest = b"\r\n".to_vec();
        rest.extend_from_slice(body);
        Responder {
            parse: spec.has(Feature::Parse),
            date: spec.has(Feature::Date),
            find,
            recorder,
            head: head(body.len() as u64).into(),
            rest: rest.into(),
            root,
            files,
            date_field: DateField::new(now),
            limits: Limits::default(),
            now,
            path: Vec::with_capacity(256),
            cut: false,
        }
    }

    /// Begins a turn of the loop.
    pub(super) fn begin(&mut self, now: Timestamp) {
        self.now = now;
        if self.date {
            self.date_field.refresh(now);
        }
    }

    /// Called once a second.
    pub(super) fn tick(&mut self) {
        if let Some(recorder) = &mut self.recorder {
            recorder.tick(self.now);
        }
    }

    /// Processes one request at the beginning of `input`, which is not empty, and appends its response to `out`.
    pub(super) fn take(&mut self, input: &[u8], peer: SocketAddr, out: &mut Vec<u8>) -> ProcessResult {
        if !self.parse {
            let Some(end) = memchr::memmem::find(input, b"\r\n\r\n") else { return ProcessResult::Incomplete };
            self.prepared(out);
            return ProcessResult::Answered { bytes: end + 4, last: false };
        }
        let request = match parse(input, &self.limits) {
            Parsed::Incomplete => return ProcessResult::Incomplete,
            Parsed::Complete(request) => request,
            Parsed::Refused(status) => {
                write_refusal(out, status, self.date_field.line(), Persistence::Close, false);
                return ProcessResult::Answered { bytes: input.len(), last: true };
            }
        };
        // This benchmark server closes connections whose requests have features that its clients never use.
        let last = !request.keep_alive || request.body != Body::None;
        let persistence = match (last, request.old) {
            (true, _) => Persistence::Close,
            (false, true) => Persistence::KeepAliveHttp10,
            (false, false) => Persistence::KeepAlive,
        };
        if let Some(recorder) = &self.recorder {
            recorder.began();
        }
        let (status, content_bytes) = self.answer(&request, persistence, out);
        if let Some(recorder) = &mut self.recorder {
            recorder.answered(&Entry {
                peer: peer.ip(),
                head: request.head,
                status,
                content_bytes,
                kind: Kind::Static,
                finding: Finding::NONE,
                began: self.now,
                ended: self.now,
                whole: true,
            });
        }
        // This benchmark server does not serve files that do not fit into memory.
        ProcessResult::Answered { bytes: request.length, last: last || self.cut }
    }

    fn answer(&mut self, request: &Request<'_>, persistence: Persistence, out: &mut Vec<u8>) -> (u16, u64) {
        let date = if self.date { self.date_field.line() } else { b"" };
        match self.find {
            FileLookup::Not if persistence == Persistence::KeepAlive => {
                self.prepared(out);
                (200, self.rest.len() as u64 - 2)
            }
            FileLookup::Not => {
                write_head(out, &self.head, date, persistence);
                out.extend_from_slice(&self.rest[2..]);
                (200, self.rest.len() as u64 - 2)
            }
            FileLookup::Open => self.opened(request, persistence, out),
            FileLookup::Held => match self.files.find(request.path, seconds(self.now)) {
                Found::Page(page) => {
                    let Content::Held(bytes) = &page.content else {
                        return refuse(out, Status::NotFound, date, persistence);
                    };
                    write_head(out, page.head.whole(), date, persistence);
                    out.extend_from_slice(bytes);
                    (200, bytes.len() as u64)
                }
                Found::Directory => refuse(out, Status::NotFound, date, persistence),
                Found::Nothing(status) => refuse(out, status, date, persistence),
            },
            FileLookup::Whole => {
                let reply = answer(&mut self.files, request, COPY_MAX, seconds(self.now), date, persistence, out);
                match &reply.body {
                    None => {}
                    Some(Tail::Page(page, range)) => match &page.content {
                        Content::Held(bytes) => out.extend_from_slice(&bytes[range.start as usize..range.end as usize]),
                        Content::Stored(..) => self.cut = true,
                    },
                    Some(_) => self.cut = true,
                }
                (reply.status, reply.content_bytes)
            }
        }
    }

    /// openat2, fstat, read, close: the work of a server without a cache.
    fn opened(&mut self, request: &Request<'_>, persistence: Persistence, out: &mut Vec<u8>) -> (u16, u64) {
        let date = if self.date { self.date_field.line() } else { b"" };
        if let Err(status) = file_path(request.path, &mut self.path) {
            return refuse(out, status, date, persistence);
        }
        let opened = self.root.open_file(&self.path).and_then(|file| Ok((file.metadata()?, file)));
        let Ok((metadata, file)) = opened else { return refuse(out, Status::NotFound, date, persistence) };
        if !metadata.is_file() || metadata.len() > FILE_BYTES_MAX {
            return refuse(out, Status::NotFound, date, persistence);
        }
        write_head(out, &head(metadata.len()), date, persistence);
        let before = out.len();
        out.reserve(metadata.len() as usize);
        match file.take(metadata.len()).read_to_end(out) {
            Ok(read) if read as u64 == metadata.len() => (200, metadata.len()),
            // The file was truncated while it was read.
            _ => {
                out.resize(before + metadata.len() as usize, b' ');
                (200, metadata.len())
            }
        }
    }

    /// Without a Date both parts are sent as prepared.
    fn prepared(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.head);
        if self.date {
            out.extend_from_slice(self.date_field.line());
        }
        out.extend_from_slice(&self.rest);
    }
}

fn refuse(out: &mut Vec<u8>, status: Status, date: &[u8], persistence: Persistence) -> (u16, u64) {
    write_refusal(out, status, date, persistence, false);
    (status.code(), 0)
}

/// Status line and fields, without the empty line.
fn head(bytes: u64) -> Vec<u8> {
    let mut head = b"HTTP/1.1 200 OK\r\n".to_vec();
    head.extend_from_slice(SERVER);
    head.extend_from_slice(format!("Content-Type: text/html\r\nContent-Length: {bytes}\r\n").as_bytes());
    head
}

/// Largest file that `open` reads into memory.
const FILE_BYTES_MAX: u64 = 1 << 20;
