//! One connection, from accept to close.
//!
//! ```text
//!   reading ──complete head──▶ answering ──response in the buffer──▶ writing ──all taken──▶ reading
//!                                  │ a request that ends the connection               │ the last response
//!                                  └────────────────────▶ writing ──all taken──▶ lingering or closed
//! ```
//!
//! Responses leave in the order of their requests because a request is read only when everything owed so far is in
//! the write buffer, and at most one body outside that buffer is owed at a time. The set is edge-triggered: every
//! call of [`Connection::advance`] goes on until the kernel has nothing more to give or takes nothing more.

use std::io::{self, ErrorKind, IoSlice, Read as _, Write as _};
use std::net::{Shutdown, TcpStream};
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd};
use std::rc::Rc;
use std::time::Duration;

use nix::libc::MSG_MORE;
use nix::sys::socket::{MsgFlags, send};
use sys::file::send_file;
use units::Timestamp;

use crate::date::{DateField, seconds};
use crate::files::{Content, Files, Found, Page};
use crate::request::{Body, Method, Parsed, Request, parse};
use crate::response::{Fate, write_head, write_moved, write_refusal};
use crate::spec::Limits;

/// What a worker lends to the connection it is busy with.
#[derive(Debug)]
pub(crate) struct Desk {
    pub(crate) files: Files,
    pub(crate) date: DateField,
    pub(crate) limits: Limits,
    pub(crate) now: Timestamp,
    /// Bytes as read. Longer than the longest head, so that a read always has room.
    input: Box<[u8]>,
    /// Responses to be sent with the next system call. Empty between connections.
    output: Vec<u8>,
}

impl Desk {
    pub(crate) fn new(files: Files, limits: Limits, now: Timestamp) -> Self {
        let limits = Limits { head_bytes: limits.head_bytes.min(INPUT_BYTES / 2), ..limits };
        let output = Vec::with_capacity(OUTPUT_FULL + COPY_MAX);
        Desk { files, date: DateField::new(now), limits, now, input: vec![0; INPUT_BYTES].into_boxed_slice(), output }
    }
}

/// What the worker has to do next about a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// Wait for a report that the client sent something.
    Wait,
    /// Wait also for a report that the kernel takes more.
    Blocked,
    /// Call again soon: it had its turn, and there is more.
    Again,
    /// Drop it.
    Close,
}

/// The state of one connection.
#[derive(Debug)]
pub(crate) struct Connection {
    stream: TcpStream,
    /// Read, but not yet a complete request, or not yet its turn.
    unread: Vec<u8>,
    /// Bytes of a request's body still to be passed over.
    skip: u64,
    /// Responses that the kernel did not take at once.
    unsent: Vec<u8>,
    /// The body that follows them.
    body: Option<Owed>,
    phase: Phase,
    /// A head has begun, and the deadline is that of its end. True from accept on: the first head is awaited no
    /// longer than the others.
    head_began: bool,
    /// When patience ends.
    deadline: Timestamp,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Requests are read and answered.
    Open,
    /// The last response is being sent; then the connection is closed.
    Ending,
    /// The same, but input may be left: closing at once would reset the connection and could destroy the response on
    /// its way (RFC 9112, section 9.6).
    EndingGently,
    /// Sent everything and said so; reading away what still comes.
    Lingering,
}

/// A body outside the write buffer.
#[derive(Debug)]
struct Owed {
    page: Rc<Page>,
    /// Bytes of it already taken by the kernel.
    sent: u64,
}

/// Why answering stopped.
enum Pause {
    /// No complete request is left.
    Input,
    /// Enough is owed: send first.
    Output,
}

/// Outcome of sending.
enum Sent {
    All,
    /// The kernel takes no more now.
    Blocked,
    /// A big body had its turn.
    Enough,
}

impl Connection {
    /// Takes over an accepted, non-blocking stream.
    pub(crate) fn new(stream: TcpStream, desk: &Desk) -> Self {
        Connection {
            stream,
            unread: Vec::new(),
            skip: 0,
            unsent: Vec::new(),
            body: None,
            phase: Phase::Open,
            head_began: true,
            deadline: desk.now + desk.limits.head_time,
        }
    }

    /// The moment after which the worker drops the connection.
    pub(crate) fn deadline(&self) -> Timestamp {
        self.deadline
    }

    /// Does all that can be done now. `hung_up`: the set reported that the peer sent its last byte, so a read that
    /// is shorter than its buffer does not mean that nothing more will be reported.
    pub(crate) fn advance(&mut self, desk: &mut Desk, hung_up: bool) -> Next {
        let next = self.work(desk, hung_up).unwrap_or(Next::Close);
        desk.output.clear();
        next
    }

    fn work(&mut self, desk: &mut Desk, hung_up: bool) -> io::Result<Next> {
        if self.phase == Phase::Lingering {
            return self.drain(desk);
        }
        let mut start = 0;
        let mut end = self.unread.len();
        desk.input[..end].copy_from_slice(&self.unread);
        self.unread.clear();
        // What was read earlier is answered first.
        let mut wants_input = end == 0;
        let mut drained = false;
        let owed_before = !self.unsent.is_empty() || self.body.is_some();
        for turn in 0..TURNS {
            let mut progress = turn > 0 || !owed_before;
            match self.flush(desk, &mut progress)? {
                Sent::All => {}
                waiting => {
                    self.unread.extend_from_slice(&desk.input[start..end]);
                    if progress {
                        self.deadline = desk.now + desk.limits.stall_time;
                    }
                    return Ok(if matches!(waiting, Sent::Enough) { Next::Again } else { Next::Blocked });
                }
            }
            if self.phase != Phase::Open {
                return self.finish(desk);
            }
            if wants_input {
                if drained {
                    return Ok(self.rest(desk, start, end));
                }
                desk.input.copy_within(start..end, 0);
                end -= start;
                start = 0;
                match self.stream.read(&mut desk.input[end..]) {
                    // Half a request, or none: nothing is owed.
                    Ok(0) => return Ok(Next::Close),
                    Ok(got) => {
                        // A read shorter than its buffer has emptied the socket (epoll(7)), so one that would only
                        // say so is spared.
                        drained = !hung_up && end + got < desk.input.len();
                        end += got;
                    }
                    Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(self.rest(desk, start, end)),
                    Err(error) if error.kind() == ErrorKind::Interrupted => {}
                    Err(error) => return Err(error),
                }
            }
            wants_input = matches!(self.answer(desk, &mut start, end), Pause::Input);
        }
        self.unread.extend_from_slice(&desk.input[start..end]);
        self.stash(desk, 0);
        Ok(Next::Again)
    }

    /// Nothing more can be done before the client sends more: keeps what it began.
    fn rest(&mut self, desk: &Desk, start: usize, end: usize) -> Next {
        if start == end && self.skip == 0 {
            if !self.head_began {
                self.deadline = desk.now + desk.limits.idle_time;
            }
            self.unread = Vec::new();
        } else {
            if !self.head_began {
                // The clock of a head starts with its first byte; further bytes do not wind it up again.
                self.head_began = true;
                self.deadline = desk.now + desk.limits.head_time;
            }
            self.unread.extend_from_slice(&desk.input[start..end]);
        }
        Next::Wait
    }

    /// Answers complete requests of `input[start..end]`, as many as the write buffer takes.
    fn answer(&mut self, desk: &mut Desk, start: &mut usize, end: usize) -> Pause {
        loop {
            if self.phase != Phase::Open || self.body.is_some() || desk.output.len() >= OUTPUT_FULL {
                return Pause::Output;
            }
            let passed_over = usize::try_from(self.skip).unwrap_or(usize::MAX).min(end - *start);
            *start += passed_over;
            self.skip -= passed_over as u64;
            if *start == end {
                return Pause::Input;
            }
            let Desk { files, date, limits, now, input, output } = &mut *desk;
            match parse(&input[*start..end], limits.head_bytes) {
                Parsed::Incomplete => return Pause::Input,
                Parsed::Complete(request) => {
                    *start += request.length;
                    self.respond(&request, files.find(request.path, seconds(*now)), date.line(), output);
                    if self.phase == Phase::Ending && *start < end {
                        self.phase = Phase::EndingGently;
                    }
                }
                Parsed::Refused(status) => {
                    write_refusal(output, status, date.line(), Fate::Closed, false);
                    self.phase = Phase::EndingGently;
                }
            }
        }
    }

    fn respond(&mut self, request: &Request<'_>, found: Found, date: &[u8], output: &mut Vec<u8>) {
        let fate = match (request.keep_alive, request.old) {
            (true, false) => Fate::Kept,
            (true, true) => Fate::KeptOld,
            (false, _) => Fate::Closed,
        };
        let has_body = match request.body {
            Body::Bytes(bytes) => {
                self.skip = bytes;
                bytes > 0
            }
            Body::Unfollowed => true,
        };
        self.head_began = false;
        if !request.keep_alive {
            self.phase = if has_body { Phase::EndingGently } else { Phase::Ending };
        }
        match found {
            Found::Nothing(status) => write_refusal(output, status, date, fate, request.method == Method::Head),
            Found::Directory => write_moved(output, request.path, date, fate),
            Found::Page(page) => {
                write_head(output, &page.head, date, fate);
                match &page.content {
                    _ if request.method == Method::Head => {}
                    // Copying a little is cheaper than a second element in the system call.
                    Content::Held(bytes) if bytes.len() <= COPY_MAX => output.extend_from_slice(bytes),
                    _ => self.body = Some(Owed { page, sent: 0 }),
                }
            }
        }
    }

    /// Sends what is owed: first what the kernel refused earlier, or else the write buffer, then the body.
    /// Notes whether the kernel took anything.
    fn flush(&mut self, desk: &mut Desk, progress: &mut bool) -> io::Result<Sent> {
        let mut from_buffer = 0;
        let mut allowance = TURN_BYTES;
        loop {
            let front = if self.unsent.is_empty() { &desk.output[from_buffer..] } else { &self.unsent };
            let front_length = front.len();
            let taken = match &self.body {
                None if front.is_empty() => break,
                None => taken((&self.stream).write(front))?,
                Some(owed) => owed.send(&self.stream, front)?,
            };
            let Some(taken) = taken else {
                self.stash(desk, from_buffer);
                return Ok(Sent::Blocked);
            };
            *progress |= taken > 0;
            let of_front = taken.min(front_length);
            if self.unsent.is_empty() {
                from_buffer += of_front;
            } else if of_front == front_length {
                self.unsent = Vec::new();
            } else {
                self.unsent.drain(..of_front);
            }
            if let Some(owed) = &mut self.body {
                owed.sent += (taken - of_front) as u64;
                if taken >= front_length && owed.sent == owed.page.content.length() {
                    self.body = None;
                }
            }
            allowance = allowance.saturating_sub(taken);
            if allowance == 0 && self.body.is_some() {
                self.stash(desk, from_buffer);
                return Ok(Sent::Enough);
            }
        }
        desk.output.clear();
        Ok(Sent::All)
    }

    /// Keeps the unsent part of the worker's write buffer, which the next connection needs.
    fn stash(&mut self, desk: &mut Desk, from: usize) {
        if self.unsent.is_empty() {
            self.unsent.extend_from_slice(&desk.output[from..]);
        }
        desk.output.clear();
    }

    /// The last response is out.
    fn finish(&mut self, desk: &mut Desk) -> io::Result<Next> {
        if self.phase == Phase::Ending {
            return Ok(Next::Close);
        }
        self.stream.shutdown(Shutdown::Write)?;
        self.phase = Phase::Lingering;
        self.deadline = desk.now + LINGER;
        self.drain(desk)
    }

    /// Reads away what a client still sends after the last response.
    fn drain(&mut self, desk: &mut Desk) -> io::Result<Next> {
        for _ in 0..TURNS {
            match self.stream.read(&mut desk.input) {
                Ok(0) => return Ok(Next::Close),
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(Next::Wait),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(Next::Again)
    }
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

impl Owed {
    /// Sends `front` and as much of the body as one system call takes.
    fn send(&self, stream: &TcpStream, front: &[u8]) -> io::Result<Option<usize>> {
        match &self.page.content {
            Content::Held(bytes) => {
                let rest = &bytes[self.sent as usize..];
                taken((&*stream).write_vectored(&[IoSlice::new(front), IoSlice::new(rest)]))
            }
            // MSG_MORE: the head waits for the first bytes of the file instead of travelling alone.
            Content::Stored(_, length) if !front.is_empty() => {
                let more = if *length > self.sent { MSG_MORE } else { 0 };
                let flags = MsgFlags::MSG_NOSIGNAL | MsgFlags::from_bits_retain(more);
                taken(send(stream.as_raw_fd(), front, flags).map_err(io::Error::from))
            }
            Content::Stored(file, length) => {
                let count = (length - self.sent).min(TURN_BYTES as u64) as usize;
                match send_file(stream.as_fd(), file.as_fd(), self.sent, count)? {
                    // The file was cut short after its length was announced: only breaking off tells the client.
                    Some(0) => Err(ErrorKind::UnexpectedEof.into()),
                    other => Ok(other),
                }
            }
        }
    }
}

/// `None` when the kernel takes nothing now.
fn taken(outcome: io::Result<usize>) -> io::Result<Option<usize>> {
    match outcome {
        Ok(0) => Err(ErrorKind::WriteZero.into()),
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(None),
        Err(error) if error.kind() == ErrorKind::Interrupted => Ok(Some(0)),
        Err(error) => Err(error),
    }
}

/// Room for one read: a burst of pipelined requests in one system call.
const INPUT_BYTES: usize = 64 << 10;
/// Responses collected before they are sent: enough to make a system call worth it, little enough to stay in the
/// processor's cache.
const OUTPUT_FULL: usize = 64 << 10;
/// Bodies up to this size are copied behind their head.
const COPY_MAX: usize = 16 << 10;
/// Rounds of reading or answering before other connections have their turn.
const TURNS: usize = 64;
/// Bytes of bodies before other connections have their turn.
const TURN_BYTES: usize = 1 << 20;
/// How long a client may take to notice that the connection has ended. Its own data is not wanted.
const LINGER: Duration = Duration::from_secs(2);
