//! FastCGI to an upstream (specification 1.0, the responder's role), implemented on byte streams in both directions.
//!
//! ```text
//!   writer task: BEGIN_REQUEST, PARAMS, STDIN as the client sends it ──▶ program
//!   ask, Content: STDOUT ── CGI head, then content; STDERR ── to the operator; END_REQUEST ◀── program
//! ```
//!
//! Programs such as PHP's serve one connection at a time, so that an idle connection blocks one of their processes. A
//! connection therefore persists only while no other exchange waits for its first byte, and for a short time.

use std::cell::{Cell, RefCell};
use std::pin::Pin;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::Method;
use http::header::{HeaderMap, HeaderName, HeaderValue};
use tokio::io::{AsyncRead as _, AsyncReadExt as _, AsyncWriteExt as _, ReadBuf, ReadHalf, WriteHalf, split};
use tokio::task::{JoinHandle, spawn_local};
use tokio::time::{Instant, timeout_at};

use super::admission::Permit;
use super::client::{Progress, RequestBody};
use super::fields::{ClientInfo, RequestHead, declared_length, for_client, for_upstream};
use super::socket::{self, Stream};
use super::spec::FastCgiScript;
use super::upstream::{Changes, FIELDS_MAX, Failure, RouteState, UpstreamState};
use super::usage::count;

use record::{Decoder, Part};
use variables::{Script, ScriptDirectory};

mod record;
mod variables;

/// Idle connections, and the number of exchanges without a first byte.
#[derive(Debug, Default)]
pub(super) struct Pool {
    idle_connections: RefCell<Vec<(Box<dyn Stream>, Instant)>>,
    awaiting: Cell<usize>,
}

/// The content of a response and its connection.
#[derive(Debug)]
pub(super) struct Content {
    reader: Reader,
    writer: Writer,
    route: Rc<RouteState>,
    /// Content received with the head.
    first: Bytes,
    /// Remaining bytes, if the script announced a length.
    left: Option<u64>,
    /// HEAD, 204 or 304: content of the script is dropped.
    bodyless: bool,
    ended: bool,
}

/// Sends a request while its response is read; returns its half of the connection when everything is sent.
#[derive(Debug)]
struct Writer(JoinHandle<Option<WriteHalf<Box<dyn Stream>>>>);

impl Drop for Writer {
    fn drop(&mut self) {
        self.0.abort();
    }
}

#[derive(Debug)]
struct Reader {
    half: ReadHalf<Box<dyn Stream>>,
    buffer: BytesMut,
    decoder: Decoder,
}

impl Pool {
    /// An open idle connection.
    fn take(&self) -> Option<Box<dyn Stream>> {
        self.sweep();
        let mut idle_connections = self.idle_connections.borrow_mut();
        while let Some((mut stream, _)) = idle_connections.pop() {
            if is_silent(&mut stream) {
                return Some(stream);
            }
        }
        None
    }

    /// Drops connections that were idle for too long.
    pub(super) fn sweep(&self) {
        let now = Instant::now();
        self.idle_connections.borrow_mut().retain_mut(|(stream, since)| now - *since < IDLE_TIME && is_silent(stream));
    }
}

/// Whether the connection is open and without unexpected bytes.
fn is_silent(stream: &mut Box<dyn Stream>) -> bool {
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    let mut byte = [0];
    matches!(Pin::new(stream).poll_read(&mut context, &mut ReadBuf::new(&mut byte)), Poll::Pending)
}

/// Returns status, field lines, length and content of the response.
pub(super) async fn send_request(
    route: &Rc<RouteState>,
    head: &RequestHead,
    client_info: ClientInfo,
    changes: &Changes,
    mut body: RequestBody,
    script: &FastCgiScript,
) -> Result<(u16, Bytes, Option<u64>, Content), Failure> {
    let (is_file, directory);
    let below = match &route.scripts {
        Some(scripts) => {
            is_file = |relative: &[u8]| scripts.has(relative);
            directory = scripts.directory();
            Some(ScriptDirectory { directory: &directory, is_file: &is_file })
        }
        None => None,
    };
    let script = Script::find(script, route.spec.stem().as_bytes(), head.path(), below);
    let script = script.ok_or_else(|| Failure::new(404, "no such script"))?;
    let fields = for_upstream(head, client_info, changes);
    let bodyless = body.length() == Some(0);
    // CGI requires the length of a body.
    let whole = match body.length() {
        Some(_) => None,
        None => Some(collect(&mut body).await?),
    };
    let length = whole.as_ref().map_or(body.length(), |whole| Some(whole.len() as u64));
    let mut request = Vec::with_capacity(2048);
    record::begin(&mut request, true);
    let mut variables = Vec::with_capacity(2048);
    variables::write(&mut variables, head, &fields, client_info, &script, length);
    record::stream(&mut request, record::PARAMS, &variables);
    record::end(&mut request, record::PARAMS);
    if let Some(whole) = &whole {
        record::stream(&mut request, record::STDIN, whole);
        body = RequestBody::none();
    }
    let progress = body.progress();
    if head.is_safe() && bodyless {
        // The program may close an idle connection at any time; a request without body may be sent twice.
        while let Some(stream) = route.upstream_state.fastcgi.take() {
            match exchange(route, head, stream, request.clone(), RequestBody::none(), &progress).await {
                // Closed while idle. A timeout instead means that the program processes the request.
                Err(HeadError::Silent(failure)) if failure.status != 504 => {}
                Err(HeadError::Silent(failure) | HeadError::Failed(failure)) => return Err(failure),
                Ok(answered) => {
                    count(&route.counts.reused);
                    return Ok(answered);
                }
            }
        }
    }
    let stream = socket::connect(route.spec.upstream.transport(), route.limits.connect_time).await?;
    count(&route.counts.connects);
    exchange(route, head, stream, request, body, &progress).await.map_err(|trouble| match trouble {
        HeadError::Silent(failure) | HeadError::Failed(failure) => failure,
    })
}

/// An error before the end of the head.
enum HeadError {
    /// Not a byte arrived.
    Silent(Failure),
    Failed(Failure),
}

async fn exchange(
    route: &Rc<RouteState>,
    head: &RequestHead,
    stream: Box<dyn Stream>,
    request: Vec<u8>,
    body: RequestBody,
    progress: &Progress,
) -> Result<(u16, Bytes, Option<u64>, Content), HeadError> {
    let (half, write_half) = split(stream);
    let writer = Writer(spawn_local(write(write_half, request, body)));
    let mut reader = Reader { half, buffer: BytesMut::new(), decoder: Decoder::default() };
    let awaiting = FirstByteWait::count_one(Rc::clone(&route.upstream_state));
    progress.touch();
    let mut text = BytesMut::new();
    let mut awaiting = Some(awaiting);
    let fields = loop {
        let part = next_in_time(&mut reader, progress, route.limits.first_byte_time).await.map_err(|failure| {
            if awaiting.is_some() { HeadError::Silent(failure) } else { HeadError::Failed(failure) }
        })?;
        awaiting = None;
        match part {
            Part::Stderr(words) => route.words(&words),
            Part::Stdout(bytes) => {
                // A head may span several records, up to the size limit.
                text.extend_from_slice(&bytes);
                let end = head_end(&text, bytes.len());
                if end.unwrap_or(text.len()) > route.limits.head_bytes {
                    return Err(HeadError::Failed(Failure::bad("a response head that is too long")));
                }
                if let Some(end) = end {
                    break text.split_to(end);
                }
            }
            Part::End { protocol: record::OVERLOADED, .. } => return Err(HeadError::Failed(Failure::busy(1))),
            Part::End { status, protocol } => {
                let why = format!("an end without a response (status {status}, protocol status {protocol})");
                return Err(HeadError::Failed(Failure::bad(why)));
            }
        }
    };
    let (status, fields) = read_head(&fields).map_err(HeadError::Failed)?;
    let bodyless = head.method == Method::HEAD || matches!(status, 204 | 304);
    let declared = declared_length(&fields);
    let length = if status == 204 { None } else { declared };
    let left = if bodyless { None } else { declared };
    let first = text.freeze();
    let content = Content { reader, writer, route: Rc::clone(route), first, left, bodyless, ended: false };
    Ok((status, for_client(&fields), length, content))
}

async fn next_in_time(reader: &mut Reader, progress: &Progress, within: Duration) -> Result<Part, Failure> {
    loop {
        let due = progress.last() + within;
        match timeout_at(due, reader.next()).await {
            Ok(outcome) => return outcome.map_err(Failure::bad),
            // Unless the client's body made progress meanwhile.
            Err(_) if progress.last() + within <= Instant::now() => return Err(Failure::late("no response in time")),
            Err(_) => {}
        }
    }
}

/// Buffers a body of unknown length completely.
async fn collect(body: &mut RequestBody) -> Result<BytesMut, Failure> {
    let mut whole = BytesMut::new();
    while let Some(piece) = body.next().await {
        let piece = piece.map_err(|_| Failure::new(400, "the client's body is incomplete"))?;
        if whole.len() + piece.len() > COLLECTED_MAX {
            return Err(Failure::new(413, "a chunked body too long to be buffered"));
        }
        whole.extend_from_slice(&piece);
    }
    Ok(whole)
}

async fn write(
    mut half: WriteHalf<Box<dyn Stream>>,
    mut request: Vec<u8>,
    mut body: RequestBody,
) -> Option<WriteHalf<Box<dyn Stream>>> {
    if body.length() != Some(0) {
        half.write_all(&request).await.ok()?;
        request.clear();
        while let Some(piece) = body.next().await {
            let Ok(piece) = piece else {
                // A partial body must never appear complete.
                let _ = half.shutdown().await;
                return None;
            };
            record::stream(&mut request, record::STDIN, &piece);
            half.write_all(&request).await.ok()?;
            request.clear();
        }
    }
    record::end(&mut request, record::STDIN);
    half.write_all(&request).await.ok()?;
    half.flush().await.ok()?;
    Some(half)
}

impl Reader {
    async fn next(&mut self) -> Result<Part, String> {
        loop {
            if let Some(part) = self.decoder.next(&mut self.buffer).map_err(|error| error.to_string())? {
                return Ok(part);
            }
            self.buffer.reserve(READ);
            match self.half.read_buf(&mut self.buffer).await {
                Ok(0) => return Err("the program closed the connection".to_owned()),
                Ok(_) => {}
                Err(error) => return Err(format!("read: {error}")),
            }
        }
    }
}

impl Content {
    /// The next piece.
    pub(super) async fn next(&mut self) -> Result<Option<Bytes>, String> {
        loop {
            if !self.first.is_empty() {
                let bytes = std::mem::take(&mut self.first);
                if let Some(bytes) = self.counted(bytes)? {
                    return Ok(Some(bytes));
                }
            }
            if self.ended {
                return Ok(None);
            }
            match self.reader.next().await? {
                Part::Stdout(bytes) => self.first = bytes,
                Part::Stderr(words) => self.route.words(&words),
                Part::End { protocol, .. } if protocol != record::COMPLETE => {
                    return Err(format!("an end with protocol status {protocol}"));
                }
                Part::End { status, .. } => {
                    self.ended = true;
                    if self.left.is_some_and(|left| left > 0) {
                        return Err("less content than its Content-Length".to_owned());
                    }
                    if status != 0 {
                        self.route.warn(&format!("a script ended with status {status}"));
                    }
                }
            }
        }
    }

    /// Limits content to the announced length.
    fn counted(&mut self, bytes: Bytes) -> Result<Option<Bytes>, String> {
        if self.bodyless {
            return Ok(None);
        }
        if let Some(left) = &mut self.left {
            *left = left.checked_sub(bytes.len() as u64).ok_or("more content than its Content-Length")?;
        }
        Ok(Some(bytes))
    }

    /// Returns the connection to the pool, if the exchange is complete and no other exchange needs the program.
    pub(super) fn give_back(self, upstream_state: &Rc<UpstreamState>, permit: Permit) {
        let Content { reader, mut writer, .. } = self;
        let idle = reader.decoder.between() && reader.buffer.is_empty();
        if !idle || !writer.0.is_finished() || upstream_state.fastcgi.awaiting.get() > 0 {
            return;
        }
        let upstream_state = Rc::clone(upstream_state);
        spawn_local(async move {
            if let Ok(Some(half)) = (&mut writer.0).await {
                upstream_state.fastcgi.idle_connections.borrow_mut().push((reader.half.unsplit(half), Instant::now()));
            }
            drop(permit);
        });
    }
}

/// Counts an exchange without a first byte.
struct FirstByteWait(Rc<UpstreamState>);

impl FirstByteWait {
    fn count_one(upstream_state: Rc<UpstreamState>) -> Self {
        let awaiting = &upstream_state.fastcgi.awaiting;
        awaiting.set(awaiting.get() + 1);
        FirstByteWait(upstream_state)
    }
}

impl Drop for FirstByteWait {
    fn drop(&mut self) {
        let awaiting = &self.0.fastcgi.awaiting;
        awaiting.set(awaiting.get() - 1);
    }
}

/// The end of the head, after an empty line with or without CR; `news` bytes are unchecked.
fn head_end(text: &[u8], news: usize) -> Option<usize> {
    let from = (text.len() - news).saturating_sub(3);
    (from..text.len()).find_map(|at| {
        let end = at + 1;
        let after = &text[..end];
        // The head may be a single empty line: a script without header fields.
        let empty = after == b"\n" || after == b"\r\n" || after.ends_with(b"\n\n") || after.ends_with(b"\n\r\n");
        empty.then_some(end)
    })
}

/// Status and fields of a CGI head (RFC 3875, section 6.3).
fn read_head(text: &[u8]) -> Result<(u16, HeaderMap), Failure> {
    let mut headers = [httparse::EMPTY_HEADER; FIELDS_MAX];
    let parsed = match httparse::parse_headers(text, &mut headers) {
        Ok(httparse::Status::Complete((_, parsed))) => parsed,
        Ok(httparse::Status::Partial) => return Err(Failure::bad("a response with an incomplete head")),
        Err(error) => return Err(Failure::bad(format!("a response head that is not valid CGI: {error}"))),
    };
    let mut status = None;
    let mut fields = HeaderMap::with_capacity(parsed.len());
    for field in parsed.iter() {
        if field.name.eq_ignore_ascii_case("status") {
            let code = field.value.trim_ascii().split(|byte| *byte == b' ').next().unwrap_or_default();
            let code = std::str::from_utf8(code).ok().and_then(|code| code.parse().ok());
            status = Some(
                code.filter(|code| (200..=599).contains(code))
                    .ok_or_else(|| Failure::bad("an invalid Status field"))?,
            );
            continue;
        }
        let (Ok(name), Ok(value)) =
            (HeaderName::from_bytes(field.name.as_bytes()), HeaderValue::from_bytes(field.value))
        else {
            return Err(Failure::bad("a response with an invalid field"));
        };
        fields.append(name, value);
    }
    // Section 6.2.3: a Location without Status is a redirect.
    let default = if fields.contains_key("location") { 302 } else { 200 };
    Ok((status.unwrap_or(default), fields))
}

/// PHP processes are blocked by idle connections.
const IDLE_TIME: Duration = Duration::from_secs(1);
/// Largest chunked body that is buffered, since CGI requires the length first.
const COLLECTED_MAX: usize = 1 << 20;
/// Bytes of one read.
const READ: usize = 32 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cgi_head_ends_at_the_first_empty_line_in_any_fragmentation() {
        for text in ["A: 1\r\n\r\nbody\n\n", "A: 1\n\nbody", "A: 1\r\nB: 2\n\r\nbody"] {
            let end = text.find("body").unwrap();
            let mut seen = BytesMut::new();
            let found = text.bytes().find_map(|byte| {
                seen.extend_from_slice(&[byte]);
                head_end(&seen, 1)
            });
            assert_eq!(found, Some(end), "{text:?}");
            assert_eq!(head_end(text.as_bytes(), text.len()), Some(end), "{text:?}");
        }
        assert_eq!(head_end(b"\r\nbody", 6), Some(2));
        assert_eq!(head_end(b"\nbody", 5), Some(1));
        assert_eq!(head_end(b"A: 1\r\nB", 7), None);
    }

    #[test]
    fn cgi_heads_are_parsed_into_status_and_fields() {
        let head = |text: &str| {
            read_head(text.as_bytes()).map(|(status, fields)| (status, fields.len())).map_err(|f| f.status)
        };
        assert_eq!(head("Content-Type: text/html\r\n\r\n"), Ok((200, 1)));
        assert_eq!(head("Status: 404 Not Found\nX: 1\n\n"), Ok((404, 1)));
        assert_eq!(head("Location: /x\r\n\r\n"), Ok((302, 1)));
        assert_eq!(head("Status: 201\r\nLocation: /x\r\n\r\n"), Ok((201, 1)));
        assert_eq!(head("\r\n"), Ok((200, 0)));
        assert_eq!(head("Status: 99\r\n\r\n"), Err(502));
        assert_eq!(head("Status: \r\n\r\n"), Err(502));
        assert_eq!(head("no field\r\n\r\n"), Err(502));
        assert_eq!(head("A: \x01\r\n\r\n"), Err(502));
        let many = |count: usize| format!("{}\r\n", "a:\n".repeat(count));
        assert_eq!(head(&many(FIELDS_MAX)), Ok((200, FIELDS_MAX)));
        // Without the limit so many fields would exceed the capacity of a header map and panic.
        assert_eq!((head(&many(FIELDS_MAX + 1)), head(&many(40_000))), (Err(502), Err(502)));
    }
}
