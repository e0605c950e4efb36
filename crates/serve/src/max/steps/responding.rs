//! What is done for a request, with the features that were asked for.

use std::io::Read as _;
use std::net::SocketAddr;

use sys::file::Root;
use units::Timestamp;

use super::{Feature, StepsSpec};
use crate::cache::Finding;
use crate::date::{DateField, seconds};
use crate::figures::{Figures, Kind};
use crate::file_response::{Tail, answer};
use crate::files::{Content, Files, Found};
use crate::journal::{Entry, Journal, Recorder};
use crate::request::{Body, Parsed, Request, parse};
use crate::response::{Persistence, SERVER, Status, write_head, write_refusal};
use crate::spec::Limits;
use crate::target::file_path;

/// The features, and what they work on.
pub(super) struct Answering {
    parse: bool,
    date: bool,
    find: Find,
    /// Figures, and the log where there is one.
    recorder: Option<Recorder>,
    /// The answer to everything, in two parts between which a Date has its place.
    head: Box<[u8]>,
    rest: Box<[u8]>,
    root: Root,
    files: Files,
    date_field: DateField,
    limits: Limits,
    now: Timestamp,
    /// Decoded path of the request at hand.
    path: Vec<u8>,
    /// The last answer could not be put into memory whole.
    cut: bool,
}

/// How the file is found.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Find {
    /// It is not: one answer for all.
    Not,
    /// Opened anew.
    Open,
    /// Held in memory.
    Held,
    /// The same, with all that may be asked of it.
    Whole,
}

/// How far one request got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Taken {
    /// Its head is not complete.
    Incomplete,
    /// It took so many bytes of the input and is answered in `out`.
    Answered {
        /// Bytes of the input.
        bytes: usize,
        /// The connection ends with it.
        last: bool,
    },
}

impl Answering {
    /// `body` answers everything where no file is looked up.
    pub(super) fn new(
        spec: &StepsSpec,
        body: &[u8],
        root: Root,
        files: Files,
        journal: Option<Journal>,
        now: Timestamp,
    ) -> Self {
        let find = [(Feature::Conditional, Find::Whole), (Feature::Held, Find::Held), (Feature::Open, Find::Open)];
        let find = find.iter().find(|(feature, _)| spec.has(*feature)).map_or(Find::Not, |(_, find)| *find);
        let recorder = (spec.has(Feature::Figures) || spec.has(Feature::Log)).then(|| {
            let counters = Figures::new().worker();
            Recorder::new(counters, journal)
        });
        let mut rest = b"\r\n".to_vec();
        rest.extend_from_slice(body);
        Answering {
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

    /// A turn of the loop begins.
    pub(super) fn begin(&mut self, now: Timestamp) {
        self.now = now;
        if self.date {
            self.date_field.refresh(now);
        }
    }

    /// Once a second.
    pub(super) fn tick(&mut self) {
        if let Some(recorder) = &mut self.recorder {
            recorder.tick(self.now);
        }
    }

    /// Reads one request from the beginning of `input`, which is not empty, and appends its answer to `out`.
    pub(super) fn take(&mut self, input: &[u8], peer: SocketAddr, out: &mut Vec<u8>) -> Taken {
        if !self.parse {
            let Some(end) = memchr::memmem::find(input, b"\r\n\r\n") else { return Taken::Incomplete };
            self.prepared(out);
            return Taken::Answered { bytes: end + 4, last: false };
        }
        let request = match parse(input, &self.limits) {
            Parsed::Incomplete => return Taken::Incomplete,
            Parsed::Complete(request) => request,
            Parsed::Refused(status) => {
                write_refusal(out, status, self.date_field.line(), Persistence::Close, false);
                return Taken::Answered { bytes: input.len(), last: true };
            }
        };
        // A yardstick: what none of its requests has ends the connection.
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
        // A file that is not held in memory is more than a yardstick has to serve.
        Taken::Answered { bytes: request.length, last: last || self.cut }
    }

    fn answer(&mut self, request: &Request<'_>, persistence: Persistence, out: &mut Vec<u8>) -> (u16, u64) {
        let date = if self.date { self.date_field.line() } else { b"" };
        match self.find {
            Find::Not if persistence == Persistence::KeepAlive => {
                self.prepared(out);
                (200, self.rest.len() as u64 - 2)
            }
            Find::Not => {
                write_head(out, &self.head, date, persistence);
                out.extend_from_slice(&self.rest[2..]);
                (200, self.rest.len() as u64 - 2)
            }
            Find::Open => self.opened(request, persistence, out),
            Find::Held => match self.files.find(request.path, seconds(self.now)) {
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
            Find::Whole => {
                let reply = answer(&mut self.files, request, seconds(self.now), date, persistence, out);
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

    /// openat2, fstat, read, close: what a server without a memory does.
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
            // It became shorter while it was read.
            _ => {
                out.resize(before + metadata.len() as usize, b' ');
                (200, metadata.len())
            }
        }
    }

    /// Without a Date both parts are as they were made.
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

/// What `open` reads into memory for one answer.
const FILE_BYTES_MAX: u64 = 1 << 20;
