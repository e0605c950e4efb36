//! Tests of HTTP/2 in memory: frames in, frames out, against files of a directory and a fake relay.

#[path = "tests/errors.rs"]
mod errors;
#[path = "tests/floods.rs"]
mod floods;
#[path = "tests/responses.rs"]
mod responses;
#[path = "tests/windows.rs"]
mod windows;

use std::time::{Duration, SystemTime};

use field_compression::hpack::{Decoder, encode_field};
use sys::file::Root;
use units::Timestamp;

use super::frame::*;
use crate::connection::{Connection, Outbound, Step, WorkerContext};
use crate::dynamic::{Event, FakeRelay};
use crate::figures::Figures;
use crate::files::Files;
use crate::journal::Recorder;
use crate::spec::{FileRules, Limits};
use crate::status::{StatusSources, StatusSpec};

/// A frame of the server.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Frame {
    kind: u8,
    flags: u8,
    stream: u32,
    payload: Vec<u8>,
}

impl Frame {
    fn ends(&self) -> bool {
        self.flags & END_STREAM != 0
    }

    /// The error code of RST_STREAM or GOAWAY.
    fn code(&self) -> u32 {
        let at = if self.kind == GOAWAY { 4 } else { 0 };
        u32::from_be_bytes(self.payload[at..at + 4].try_into().unwrap())
    }
}

/// A server's end of a connection, and what its client has received.
struct TestConnection {
    connection: Connection,
    context: WorkerContext,
    relay: FakeRelay,
    decoder: Decoder,
    received: Vec<u8>,
    _directory: tempfile::TempDir,
}

impl TestConnection {
    /// A connection whose client has sent its preface and `settings`.
    fn with(settings: &[(u16, u32)]) -> Self {
        let mut test = TestConnection::new();
        test.send(&[&PREFACE[..], &settings_frame(settings)].concat());
        let frames = test.frames();
        assert_eq!(frames.iter().map(|frame| frame.kind).collect::<Vec<_>>(), [SETTINGS, WINDOW_UPDATE, SETTINGS]);
        assert_eq!((frames[0].flags, frames[2].flags), (0, ACK));
        test
    }

    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let long_ago = SystemTime::UNIX_EPOCH + Duration::from_secs(784_111_777);
        for size in [0usize, 6, 20_000, 300_000] {
            let path = directory.path().join(size.to_string());
            std::fs::write(&path, content(size)).unwrap();
            let file = std::fs::File::options().write(true).open(path).unwrap();
            file.set_times(std::fs::FileTimes::new().set_modified(long_ago)).unwrap();
        }
        let files = Files::new(Root::open(directory.path()).unwrap(), FileRules::default());
        let figures = Figures::new();
        let recorder = Recorder::new(figures.worker(), None);
        let status_sources =
            StatusSources { spec: StatusSpec::Off, figures, cache: None, log: None, usage_reader: None };
        let now = Timestamp::from_nanos(5_000_000_000);
        let mut context = WorkerContext::new(files, Limits::default(), now, recorder, status_sources);
        let (front, relay) = FakeRelay::new("/app=http://127.0.0.1:1");
        context.front = Some(front);
        let address = "127.0.0.1:7".parse().unwrap();
        let connection = Connection::new(1, address, address, false, &context);
        let (decoder, received) = (Decoder::default(), Vec::new());
        TestConnection { connection, context, relay, decoder, received, _directory: directory }
    }

    /// The server receives bytes, and sends what it can.
    fn send(&mut self, bytes: &[u8]) {
        self.connection.take(&mut self.context, bytes);
        self.turn(usize::MAX);
    }

    /// An event of the relay for a stream.
    fn relay_event(&mut self, stream: u64, event: Event) {
        self.connection.relay_event_of(&mut self.context, stream, event);
        self.turn(usize::MAX);
    }

    /// The server sends at most `most` bytes.
    fn turn(&mut self, mut most: usize) {
        loop {
            let count = match self.connection.outbound(&self.context) {
                Outbound::Nothing if self.connection.has_more() => {
                    self.connection.proceed(&mut self.context);
                    continue;
                }
                Outbound::Nothing => break,
                Outbound::Bytes(bytes, _) => {
                    let count = bytes.len().min(most);
                    self.received.extend_from_slice(&bytes[..count]);
                    count
                }
                other => panic!("frames are bytes in memory: {other:?}"),
            };
            self.connection.sent(&mut self.context, count);
            most -= count;
            if most == 0 {
                break;
            }
        }
        self.connection.settle(&mut self.context);
        assert!(self.context.out.is_empty() && self.context.frames.is_empty(), "buffers are shared by all connections");
    }

    /// The complete frames that the client has received since the last call.
    fn frames(&mut self) -> Vec<Frame> {
        let mut frames = Vec::new();
        let mut at = 0;
        while let Some(head) = FrameHead::read(&self.received[at..]) {
            let from = at + FRAME_HEAD_BYTES;
            let Some(payload) = self.received.get(from..from + head.length) else { break };
            assert!(head.length <= FRAME_BYTES_MAX);
            frames.push(Frame { kind: head.kind, flags: head.flags, stream: head.stream, payload: payload.to_vec() });
            at = from + head.length;
        }
        self.received.drain(..at);
        frames
    }

    /// Status and other fields of a HEADERS frame.
    fn fields(&mut self, frame: &Frame) -> (u16, String) {
        assert_eq!((frame.kind, frame.flags & END_HEADERS), (HEADERS, END_HEADERS), "{frame:?}");
        let mut lines = Lines(String::new());
        self.decoder.decode(&frame.payload, 4096, |name, value| lines.field(name, value)).unwrap();
        let (status, rest) = lines.0.split_once('\n').unwrap();
        (status.strip_prefix(":status: ").unwrap().parse().unwrap(), rest.to_owned())
    }

    /// The response to a request that has been sent: status, fields and content.
    fn response(&mut self, stream: u32) -> (u16, String, Vec<u8>) {
        let frames = self.frames();
        let mut of_stream = frames.iter().filter(|frame| frame.stream == stream);
        let head = of_stream.next().expect("a response");
        let (status, fields) = self.fields(head);
        let mut body = Vec::new();
        let mut ended = head.ends();
        for frame in of_stream.filter(|frame| frame.kind == DATA) {
            assert!(!ended);
            body.extend_from_slice(&frame.payload);
            ended = frame.ends();
        }
        assert!(ended, "{frames:?}");
        (status, fields, body)
    }

    /// The server ended the connection with this code.
    fn assert_over(&mut self, code: ErrorCode, why: &str) {
        let last = self.frames().pop().unwrap_or_else(|| panic!("{why}: no frame"));
        assert_eq!((last.kind, last.code()), (GOAWAY, code as u32), "{why}");
        assert_eq!(self.connection.step(), Step::SendFin, "{why}");
    }
}

struct Lines(String);

impl Lines {
    fn field(&mut self, name: &[u8], value: &[u8]) {
        self.0 += &format!("{}: {}\n", String::from_utf8_lossy(name), String::from_utf8_lossy(value));
    }
}

/// The content of the file of this size.
fn content(size: usize) -> Vec<u8> {
    (0..size).map(|at| (at % 251) as u8).collect()
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    write(&mut out, kind, flags, stream, payload);
    out
}

fn settings_frame(settings: &[(u16, u32)]) -> Vec<u8> {
    let payload: Vec<u8> =
        settings.iter().flat_map(|(name, value)| [&name.to_be_bytes()[..], &value.to_be_bytes()].concat()).collect();
    frame(SETTINGS, 0, 0, &payload)
}

fn window_frame(stream: u32, bytes: u32) -> Vec<u8> {
    frame(WINDOW_UPDATE, 0, stream, &bytes.to_be_bytes())
}

fn section(fields: &[(&str, &str)]) -> Vec<u8> {
    let mut section = Vec::new();
    for (name, value) in fields {
        encode_field(name.as_bytes(), value.as_bytes(), &mut section);
    }
    section
}

/// The fields of a request.
fn request<'a>(method: &'a str, path: &'a str, more: &[(&'a str, &'a str)]) -> Vec<u8> {
    let first = [(":method", method), (":scheme", "http"), (":authority", "x"), (":path", path)];
    section(&[&first[..], more].concat())
}

/// A complete request.
fn get(stream: u32, path: &str) -> Vec<u8> {
    frame(HEADERS, END_HEADERS | END_STREAM, stream, &request("GET", path, &[]))
}
