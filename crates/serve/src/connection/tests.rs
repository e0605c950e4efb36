//! Tests of the connection's state machine: the output does not depend on how input and output are split.

use std::os::unix::fs::FileExt as _;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use proptest::prelude::*;
use sys::file::Root;

use super::backlog::CHECK_ABOVE_BYTES;
use super::*;
use crate::cache::Finding;
use crate::dynamic::{Event, FakeRelay, RelayCall};
use crate::figures::{Figures, Refusal};
use crate::files::Files;
use crate::journal::Recorder;
use crate::spec::{FileRules, Limits};
use crate::status::{StatusSources, StatusSpec};

/// A connection with a worker context and a fake relay that echoes requests.
struct TestConnection {
    connection: Connection,
    context: WorkerContext,
    relay: FakeRelay,
    /// Pending events of the fake relay.
    events: Vec<Event>,
    /// The request body received so far, and its end.
    body: Vec<u8>,
    request_in_progress: bool,
    _directory: tempfile::TempDir,
}

impl TestConnection {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let long_ago = SystemTime::UNIX_EPOCH + Duration::from_secs(784_111_777);
        for size in [0usize, 6, 20_000, 70_000, 300_000] {
            let content: Vec<u8> = (0..size).map(|at| (at % 251) as u8).collect();
            let path = directory.path().join(size.to_string());
            std::fs::write(&path, content).unwrap();
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
        TestConnection {
            connection,
            context,
            relay,
            events: Vec::new(),
            body: Vec::new(),
            request_in_progress: false,
            _directory: directory,
        }
    }

    /// Sends at most `most` bytes; false if there was no output.
    fn send(&mut self, most: usize, out: &mut Vec<u8>) -> bool {
        let from = out.len();
        match self.connection.outbound(&self.context) {
            Outbound::Nothing => return false,
            Outbound::Bytes(bytes, _) => out.extend_from_slice(bytes),
            Outbound::Both(front, rest) => {
                out.extend_from_slice(front);
                out.extend_from_slice(rest);
            }
            Outbound::File { front, file, range, .. } => {
                out.extend_from_slice(front);
                let mut content = vec![0; (range.end - range.start) as usize];
                file.read_exact_at(&mut content, range.start).unwrap();
                out.extend_from_slice(&content);
            }
        }
        out.truncate(from + most.min(out.len() - from));
        let taken = out.len() - from;
        self.connection.sent(&mut self.context, taken);
        true
    }

    /// One turn: sends at most `most` bytes up to `sends` times, and proceeds with waiting requests.
    fn turn(&mut self, sends: usize, most: usize, out: &mut Vec<u8>) {
        for _ in 0..sends {
            if !self.send(most, out) {
                if !self.connection.has_more() {
                    break;
                }
                self.connection.proceed(&mut self.context);
            }
        }
        self.connection.settle(&mut self.context);
        assert!(self.context.out.is_empty(), "the output buffer is shared by all connections");
    }

    /// The fake relay processes the calls of the worker.
    fn process_relay_calls(&mut self) {
        while let Some(call) = self.relay.next() {
            match call {
                RelayCall::RelayRequest(head) => {
                    assert!(!std::mem::replace(&mut self.request_in_progress, true), "one request at a time");
                    assert!(head.starts_with(b"POST /app") || head.starts_with(b"GET /app"));
                    self.body.clear();
                    // The list is processed from its end.
                    self.events.push(Event::Room(700));
                    if head.starts_with(b"GET") {
                        self.queue_response(Some(b"got".to_vec()));
                    }
                }
                RelayCall::Body(bytes) => {
                    self.body.extend_from_slice(&bytes);
                    self.events.insert(0, Event::Room(bytes.len()));
                }
                RelayCall::BodyEnded => {
                    let body = std::mem::take(&mut self.body);
                    self.queue_response(None);
                    for part in body.chunks(300) {
                        self.events.insert(1, Event::Body(Bytes::copy_from_slice(part)));
                    }
                }
                RelayCall::Cancel => panic!("no client has disconnected"),
                RelayCall::Taken(_) => {}
            }
        }
    }

    /// Queues a response of known length or in chunks.
    fn queue_response(&mut self, content: Option<Vec<u8>>) {
        let length = content.as_ref().map(|content| content.len() as u64);
        let fields = Bytes::from_static(b"Date: Sun, 06 Nov 1994 08:49:37 GMT\r\n");
        let head = Event::Head { status: 200, fields, length, finding: Finding::NONE };
        let content = content.map(|content| Event::Body(content.into()));
        // The list is processed from its end, so the first event comes last.
        let mut events: Vec<Event> = std::mem::take(&mut self.events);
        let mut all = vec![Event::End];
        all.extend(content);
        all.push(head);
        all.append(&mut events);
        self.events = all;
    }

    /// Processes the next event, if there is one.
    fn process_event(&mut self) -> bool {
        let Some(event) = self.events.pop() else { return false };
        self.request_in_progress &= !matches!(event, Event::End);
        self.connection.relay_event(&mut self.context, event);
        true
    }
}

/// Feeds `input` in pieces of `pieces` bytes (repeatedly), sends `takes` bytes at a time, and delivers relay events
/// only in some of the turns.
fn responses(input: &[u8], pieces: &[usize], takes: &[usize]) -> Vec<u8> {
    let mut test = TestConnection::new();
    let mut out = Vec::new();
    let (mut at, mut idle) = (0, 0);
    for turn in 0.. {
        let take = takes[turn % takes.len()];
        if at < input.len() {
            let end = (at + pieces[turn % pieces.len()]).min(input.len());
            test.connection.take(&mut test.context, &input[at..end]);
            at = end;
        }
        let before = out.len();
        test.turn(1 + turn % 3, take, &mut out);
        test.process_relay_calls();
        let mut relay_event = false;
        if turn % 2 == 0 {
            relay_event = test.process_event();
            test.turn(1, take, &mut out);
        }
        test.process_relay_calls();
        let busy = at < input.len()
            || relay_event
            || out.len() > before
            || test.connection.has_pending_output()
            || test.connection.has_more();
        idle = if busy { 0 } else { idle + 1 };
        if idle > 3 {
            break;
        }
        assert!(turn < 200_000, "no progress at {at} of {}, {} bytes out", input.len(), out.len());
    }
    test.connection.leave(&mut test.context);
    let total = test.context.status_sources.figures.total();
    assert_eq!(total.requests(), out.windows(9).filter(|window| window == b"HTTP/1.1 ").count() as u64);
    out
}

fn request(kind: usize) -> Vec<u8> {
    let body = "x".repeat(1500);
    match kind {
        0 => b"GET /6 HTTP/1.1\r\nHost: x\r\n\r\n".to_vec(),
        1 => b"GET /20000 HTTP/1.1\r\nHost: x\r\n\r\n".to_vec(),
        2 => b"GET /300000 HTTP/1.1\r\nHost: x\r\n\r\n".to_vec(),
        3 => b"HEAD /70000 HTTP/1.1\r\nHost: x\r\n\r\n".to_vec(),
        4 => b"GET /300000 HTTP/1.1\r\nHost: x\r\nRange: bytes=1-5,100-69000\r\n\r\n".to_vec(),
        5 => b"GET /absent HTTP/1.1\r\nHost: x\r\n\r\n".to_vec(),
        6 => b"GET /0 HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nHTTP/".to_vec(),
        7 => b"GET /6 HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n4;a=b\r\nGET \r\n0\r\n\r\n".to_vec(),
        8 => b"GET /app/x HTTP/1.1\r\nHost: x\r\n\r\n".to_vec(),
        9 => format!("POST /app HTTP/1.1\r\nHost: x\r\nContent-Length: 1500\r\n\r\n{body}").into_bytes(),
        _ => format!("POST /app HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5dc\r\n{body}\r\n0\r\n\r\n")
            .into_bytes(),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn fragmentation_of_input_and_output_does_not_change_the_responses(
        kinds in proptest::collection::vec(0usize..11, 1..8),
        pieces in proptest::collection::vec(1usize..3000, 1..6),
        takes in proptest::collection::vec(1usize..40_000, 1..6),
    ) {
        let input: Vec<u8> = kinds.iter().flat_map(|&kind| request(kind)).collect();
        let whole = same_boundary(responses(&input, &[usize::MAX / 2], &[usize::MAX / 2]));
        let cut = same_boundary(responses(&input, &pieces, &takes));
        prop_assert_eq!(whole.len(), cut.len());
        let differs = whole.iter().zip(&cut).position(|(a, b)| a != b);
        prop_assert!(differs.is_none(), "{:?}", differs.map(|at| at.saturating_sub(80)..at + 80).map(|part| {
            [&whole, &cut].map(|all| String::from_utf8_lossy(&all[part.start..part.end.min(all.len())]).into_owned())
        }));
    }
}

/// Replaces multipart boundaries and dates, which differ between runs.
fn same_boundary(mut bytes: Vec<u8>) -> Vec<u8> {
    const DATE: &[u8] = b"\r\nDate: ";
    for at in 0..bytes.len().saturating_sub(DATE.len() + 29) {
        if bytes[at..].starts_with(DATE) {
            bytes[at + DATE.len()..][..29].fill(b'D');
        }
    }
    let text: String = bytes.iter().map(|&byte| char::from(byte)).collect();
    let boundaries = text.split("boundary=").skip(1).filter_map(|rest| rest.split(['\r', ';']).next());
    let same = boundaries.fold(text.clone(), |text, boundary| text.replace(boundary.trim_matches('"'), "boundary"));
    same.chars().map(|char| char as u8).collect()
}

#[test]
fn a_client_that_expects_100_continue_gets_it_when_the_relay_reads_the_body() {
    let mut test = TestConnection::new();
    let mut out = Vec::new();
    let head = b"POST /app HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\n";
    test.connection.take(&mut test.context, head);
    test.turn(9, 9999, &mut out);
    assert!(out.is_empty(), "the relay has not requested the body");
    test.process_relay_calls();
    assert!(test.process_event());
    test.turn(9, 9999, &mut out);
    assert_eq!(out, b"HTTP/1.1 100 Continue\r\n\r\n");
    test.connection.take(&mut test.context, b"abc");
    test.process_relay_calls();
    while test.process_event() {}
    test.turn(9, 9999, &mut out);
    assert!(out.ends_with(b"\r\n3\r\nabc\r\n0\r\n\r\n"), "{:?}", String::from_utf8_lossy(&out));
    assert_eq!(test.connection.step(), Step::Receive);
}

#[test]
fn a_disconnected_client_cancels_its_dynamic_request() {
    let mut test = TestConnection::new();
    test.connection.take(&mut test.context, &request(8));
    test.connection.ended();
    test.connection.settle(&mut test.context);
    assert_eq!(test.connection.step(), Step::Close);
    test.connection.leave(&mut test.context);
    assert!(matches!(test.relay.next(), Some(RelayCall::RelayRequest(_))));
    assert_eq!(test.relay.next(), Some(RelayCall::Cancel));
    assert_eq!(test.relay.next(), None);
}

#[test]
fn a_malformed_request_body_is_never_forwarded_as_complete() {
    for (status, body) in [("400", &b"zz\r\n"[..]), ("413", b"ffffffff\r\n")] {
        let mut test = TestConnection::new();
        let mut out = Vec::new();
        let head = b"POST /app HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n";
        test.connection.take(&mut test.context, head);
        test.process_relay_calls();
        assert!(test.process_event());
        test.connection.take(&mut test.context, body);
        assert_eq!(test.relay.next(), Some(RelayCall::Cancel));
        test.turn(9, 9999, &mut out);
        let out = String::from_utf8(out).unwrap();
        assert!(out.starts_with(&format!("HTTP/1.1 {status} ")) && out.contains("\r\nConnection: close\r\n"), "{out}");
        assert_eq!(test.connection.step(), Step::SendFin);
    }
}

#[test]
fn a_response_that_breaks_off_resets_the_connection() {
    for (length, events) in [(Some(10), "four"), (Some(3), "four"), (None, "four")] {
        let mut test = TestConnection::new();
        let mut out = Vec::new();
        test.connection.take(&mut test.context, &request(8));
        let fields = Bytes::from_static(b"Date: now\r\n");
        let head = Event::Head { status: 200, fields, length, finding: Finding::NONE };
        let last = if length.is_none() { Event::Broken } else { Event::End };
        for event in [head, Event::Body(events.into()), last] {
            test.connection.relay_event(&mut test.context, event);
            test.turn(9, 9999, &mut out);
        }
        assert_eq!(test.connection.step(), Step::Close, "{length:?}");
        let total = test.context.status_sources.figures.total();
        assert_eq!(total.requests(), 1);
    }
}

#[test]
fn a_stopping_server_finishes_responses_in_progress() {
    let mut test = TestConnection::new();
    let mut out = Vec::new();
    test.connection.take(&mut test.context, &request(8));
    test.turn(9, 9999, &mut out);
    test.context.stopping = true;
    test.connection.stop();
    test.process_relay_calls();
    while test.process_event() {}
    test.turn(9, 9999, &mut out);
    let text = String::from_utf8(out).unwrap();
    assert!(text.contains("\r\nConnection: close\r\n") && text.ends_with("\r\n\r\ngot"), "{text}");
    assert_eq!(test.connection.step(), Step::SendFin);
    let mut test = TestConnection::new();
    test.connection.stop();
    assert_eq!(test.connection.step(), Step::Close, "an idle connection closes immediately");
}

#[test]
fn a_client_without_progress_times_out() {
    let mut test = TestConnection::new();
    let mut out = Vec::new();
    let start = test.context.now;
    test.connection.take(&mut test.context, &request(2));
    test.turn(1, 10, &mut out);
    let stall = test.context.limits.stall_time;
    assert_eq!(test.connection.deadline(), start + stall);
    // Little progress does not reset the deadline; enough progress does.
    test.context.now = start + stall / 2;
    test.turn(1, 1000, &mut out);
    assert_eq!(test.connection.deadline(), start + stall);
    test.turn(1, 20_000, &mut out);
    assert_eq!(test.connection.deadline(), test.context.now + stall);
    test.context.now = test.connection.deadline();
    test.connection.late(&mut test.context);
    assert_eq!(test.connection.step(), Step::Close);
    assert!(test.connection.is_aborted());
}

#[test]
fn bytes_acknowledged_by_the_client_are_progress() {
    let mut test = TestConnection::new();
    let mut out = Vec::new();
    test.connection.take(&mut test.context, &request(2));
    test.turn(1, 10, &mut out);
    assert!(test.connection.begins_stall_timeout());
    test.connection.stall_timeout_began(300_000);
    assert!(!test.connection.begins_stall_timeout());
    let deadline = test.connection.deadline();
    assert!(!test.connection.is_stalled(test.context.now));
    test.context.now = deadline;
    assert!(test.connection.is_stalled(deadline));
    let left = 300_000 - 16 * 1024;
    assert!(!test.connection.has_progressed(&test.context, left + 1), "a byte less than enough");
    assert!(test.connection.has_progressed(&test.context, left));
    assert_eq!(test.connection.deadline(), deadline + test.context.limits.stall_time);
    // Bytes that the kernel accepted meanwhile were acknowledged too.
    test.turn(1, 10_000, &mut out);
    assert!(!test.connection.has_progressed(&test.context, left));
    assert!(test.connection.has_progressed(&test.context, left - 6_384));
    // Without a report of the engine nothing is known.
    test.turn(1, 20_000, &mut out);
    assert!(test.connection.begins_stall_timeout() && !test.connection.has_progressed(&test.context, 0));
}

/// Memory of an idle connection, as documented with the limits.
#[test]
fn an_idle_connection_allocates_no_buffers() {
    let mut test = TestConnection::new();
    let mut out = Vec::new();
    test.connection.take(&mut test.context, &request(0));
    test.turn(9, usize::MAX, &mut out);
    let Connection { unread, unsent, exchange, tail, .. } = &test.connection;
    assert!(unread.capacity() == 0 && unsent.capacity() == 0 && exchange.is_none() && tail.is_none());
    assert!(size_of::<Connection>() <= 320, "{} bytes", size_of::<Connection>());
}

/// Without a timeout the exchange would occupy its upstream slot for a client that does not read.
#[test]
fn a_client_that_does_not_read_a_dynamic_response_times_out() {
    let mut test = TestConnection::new();
    let mut out = Vec::new();
    test.connection.take(&mut test.context, &request(8));
    assert!(matches!(test.relay.next(), Some(RelayCall::RelayRequest(_))));
    let fields = Bytes::from_static(b"Date: now\r\n");
    let head = Event::Head { status: 200, fields, length: None, finding: Finding::NONE };
    for event in [head, Event::Body(vec![b'x'; 100_000].into())] {
        test.connection.relay_event(&mut test.context, event);
    }
    test.turn(1, 10, &mut out);
    test.context.now = test.connection.deadline();
    test.connection.late(&mut test.context);
    assert_eq!(test.connection.step(), Step::Close);
    assert!(test.connection.is_aborted());
    test.connection.leave(&mut test.context);
    assert_eq!(test.relay.next(), Some(RelayCall::Taken(10)));
    assert_eq!(test.relay.next(), Some(RelayCall::Cancel));
    assert_eq!(test.relay.next(), None);
    let total = test.context.status_sources.figures.total();
    assert_eq!((total.requests(), total.truncated), (1, 1));
}

#[test]
fn no_100_continue_is_sent_inside_another_response() {
    let mut test = TestConnection::new();
    let mut out = Vec::new();
    let head = b"POST /app HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\n";
    test.connection.take(&mut test.context, head);
    let fields = Bytes::from_static(b"Date: now\r\n");
    let head = Event::Head { status: 200, fields, length: Some(3), finding: Finding::NONE };
    for event in [head, Event::Room(700), Event::Body("got".into()), Event::End] {
        test.connection.relay_event(&mut test.context, event);
        test.turn(9, 9999, &mut out);
    }
    let out = String::from_utf8(out).unwrap();
    assert!(out.starts_with("HTTP/1.1 200 ") && out.ends_with("\r\n\r\ngot"), "{out}");
}

/// After the client's FIN, receiving would return end-of-file immediately and repeatedly.
#[test]
fn no_input_is_received_after_the_last_request() {
    let mut test = TestConnection::new();
    let mut out = Vec::new();
    test.connection.take(&mut test.context, &request(8));
    let fields = Bytes::from_static(b"Date: now\r\n");
    let head = Event::Head { status: 200, fields, length: Some(3), finding: Finding::NONE };
    for event in [head, Event::Body("got".into())] {
        test.connection.relay_event(&mut test.context, event);
    }
    test.turn(9, 9999, &mut out);
    assert_eq!(test.connection.step(), Step::Receive);
    test.connection.ended();
    test.connection.settle(&mut test.context);
    assert_eq!(
        test.connection.step(),
        Step::Pause,
        "the client has the complete response, only the relay's end is missing"
    );
    test.connection.relay_event(&mut test.context, Event::End);
    test.turn(9, 9999, &mut out);
    assert_eq!(test.connection.step(), Step::Close);
}

#[test]
fn status_path_takes_precedence_over_a_route_for_every_path() {
    for (spec, own) in [(StatusSpec::All, true), (StatusSpec::Off, false)] {
        let mut test = TestConnection::new();
        let (front, mut relay) = FakeRelay::new("/=http://127.0.0.1:1");
        test.context.front = Some(front);
        test.context.status_sources.spec = spec;
        let mut out = Vec::new();
        test.connection.take(&mut test.context, b"GET /-/status HTTP/1.1\r\nHost: x\r\n\r\n");
        test.turn(9, 9999, &mut out);
        assert_eq!(out.starts_with(b"HTTP/1.1 200 OK\r\n"), own);
        assert_eq!(relay.next().is_none(), own);
    }
}

/// Input of a refused client is discarded for a limited time.
#[test]
fn input_of_a_refused_client_is_discarded_up_to_a_limit() {
    let mut test = TestConnection::new();
    let mut out = Vec::new();
    test.connection.take(&mut test.context, &[b"GET / HTTP/1.1\r\nA: ".as_slice(), &[b'a'; 9000]].concat());
    test.connection.settle(&mut test.context);
    assert_eq!(test.connection.step(), Step::Discard, "input is also discarded before the response is sent");
    test.turn(9, 9999, &mut out);
    assert!(out.starts_with(b"HTTP/1.1 431 "));
    assert_eq!(test.connection.step(), Step::SendFin);
    test.connection.finished(&test.context);
    let ends_at = test.connection.deadline();
    assert_eq!(ends_at, test.context.now + LINGER);
    // Discarded bytes count whether the connection or the engine discards them.
    test.connection.take(&mut test.context, &[b'a'; 1000]);
    test.connection.discarded(DISCARDED_MAX as usize - 1001);
    test.connection.settle(&mut test.context);
    assert_eq!(test.connection.step(), Step::Discard);
    test.connection.discarded(1);
    assert_eq!(test.connection.step(), Step::CloseWhenAcknowledged);
    // The client's FIN may arrive first; the deadline stays the same.
    assert_eq!(test.connection.deadline(), ends_at);
    test.context.now = ends_at;
    test.connection.late(&mut test.context);
    assert_eq!(test.connection.step(), Step::Close);
}

#[test]
fn bytes_after_the_last_request_do_not_reset_its_response() {
    let mut test = TestConnection::new();
    let mut out = Vec::new();
    test.connection.take(&mut test.context, b"GET /300000 HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    test.turn(1, 1000, &mut out);
    assert_eq!(test.connection.step(), Step::Discard);
    test.connection.discarded(10);
    test.turn(9, usize::MAX, &mut out);
    assert!(out.len() > 300_000);
    assert_eq!(test.connection.step(), Step::SendFin, "an immediate close would reset the connection");
}

/// Clients of one worker that send requests and never read.
#[test]
fn unsent_and_unread_bytes_of_all_connections_are_limited() {
    let mut test = TestConnection::new();
    let bound = test.context.backlog.bytes_max;
    let address = "127.0.0.1:7".parse().unwrap();
    let burst = request(1);
    let small = request(0).repeat(500);
    let mut clients = Vec::new();
    let buffered = |client: &Connection| client.unread.capacity() + client.unsent.capacity();
    for ticket in 2..4000 {
        let mut client = Connection::new(ticket, address, address, false, &test.context);
        // The socket buffer accepts some; it is full from the second burst on.
        for _ in 0..4 {
            if client.step() == Step::Receive {
                client.take(&mut test.context, &small);
                client.settle(&mut test.context);
            }
        }
        clients.push(client);
    }
    let all: usize = clients.iter().map(buffered).sum();
    assert!(all < bound + (64 << 10) + clients.len() * CHECK_ABOVE_BYTES as usize, "{all} bytes");
    let total = test.context.status_sources.figures.total();
    assert!(total.refused[Refusal::Backlog.index()] > 0);
    let cut = clients.iter().filter(|client| client.is_aborted() && client.step() == Step::Close).count();
    assert_eq!(cut as u64, total.refused[Refusal::Backlog.index()]);
    // A client that reads gets its responses, also a file that its socket accepts only in part.
    let mut out = Vec::new();
    test.connection.take(&mut test.context, &request(0));
    test.turn(9, usize::MAX, &mut out);
    test.connection.take(&mut test.context, &burst);
    test.turn(1, 100, &mut out);
    assert!(!test.connection.is_aborted());
    test.turn(9, usize::MAX, &mut out);
    assert!(out.len() > 20_000);
    assert_eq!(test.connection.step(), Step::Receive);
    // The backlog is empty after all clients have disconnected.
    for mut client in clients {
        client.leave(&mut test.context);
    }
    assert!(!test.context.backlog.is_short());
    test.connection.leave(&mut test.context);
    assert_eq!(test.context.backlog.bytes(), 0);
}

/// Clients with no buffered response, but with pipelined requests.
#[test]
fn bytes_buffered_before_a_file_count_against_the_backlog() {
    let mut test = TestConnection::new();
    test.context.backlog.bytes_max = 200_000;
    let address = "127.0.0.1:7".parse().unwrap();
    let ahead = request(0).repeat(200);
    let mut clients = Vec::new();
    for ticket in 2..100 {
        let mut client = Connection::new(ticket, address, address, false, &test.context);
        client.take(&mut test.context, &request(2));
        while !test.context.out.is_empty() {
            let head = test.context.out.len();
            client.sent(&mut test.context, head);
        }
        client.settle(&mut test.context);
        if client.step() == Step::Receive {
            client.take(&mut test.context, &ahead);
            client.settle(&mut test.context);
        }
        clients.push(client);
    }
    let all: usize = clients.iter().map(|client| client.unread.capacity()).sum();
    assert!(all > 80_000 && all < 200_000, "{all} bytes");
    assert!(
        clients.iter().all(|client| client.has_pending_output() && !client.is_aborted()),
        "the connections are only not read"
    );
}

#[test]
fn a_short_backlog_stops_pipelining_and_read_ahead() {
    let mut test = TestConnection::new();
    test.context.backlog.bytes_max = 40_000;
    test.context.backlog.change(0, 20_000);
    test.connection.take(&mut test.context, &request(0).repeat(400));
    test.connection.settle(&mut test.context);
    assert!(test.connection.unsent.len() < 1000, "one response is buffered");
    assert_eq!(test.connection.step(), Step::Pause);
    // Each time the client reads, the next response follows.
    let mut out = Vec::new();
    test.turn(2000, usize::MAX, &mut out);
    assert_eq!(out.windows(9).filter(|window| window == b"HTTP/1.1 ").count(), 400);
    assert_eq!(test.connection.step(), Step::Receive);
}
