//! One request to one upstream, and its response.
//!
//! ```text
//!   send: program up? -> permit -> connection (reused or new) -> request -> head = UpstreamResponse
//!   UpstreamResponse.body.next() .. until None: permit and connection released
//! ```
//!
//! The permit is held until the response has been read to its end or is dropped; dropping a response closes its
//! connection, so that the program notices the disconnect.

use std::cell::{Cell, RefCell};
use std::fs::Metadata;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use sys::file::Root;
use tokio::time::{Instant, timeout_at};

use super::admission::{Admission, LoadState, Permit};
use super::client::{BufferedBytes, Hints, RequestBody};
use super::fields::{ClientInfo, RequestHead};
use super::spec::{DynamicLimits, FastCgiScript, Route, Upstream};
use super::usage::{Counts, GaugeGuard, ProgramState, count};
use super::{RelayRequest, fastcgi, http1, route};

/// Differences between the client's request and the forwarded one.
#[derive(Clone, Debug, Default)]
pub(crate) struct Changes {
    /// Field names to remove, in lower case.
    pub(crate) without: Vec<&'static str>,
    /// Fields to add afterwards.
    pub(crate) with: Vec<(&'static str, Vec<u8>)>,
    /// Receives interim responses; without it they are dropped.
    pub(crate) hints: Option<Hints>,
}

/// An upstream's response.
#[derive(Debug)]
pub(crate) struct UpstreamResponse {
    /// 200 to 599.
    pub(crate) status: u16,
    /// As for [`Event::Head`](super::Event::Head).
    pub(crate) fields: Bytes,
    /// As for [`Event::Head`](super::Event::Head).
    pub(crate) length: Option<u64>,
    /// Its content.
    pub(crate) body: UpstreamBody,
}

/// The response broke off and must not be treated as complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Broken;

/// No response, or no valid one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    /// 400, 404, 413, 502, 503 or 504.
    pub(crate) status: u16,
    /// With 503: the Retry-After value.
    pub(crate) retry_after_s: Option<u32>,
    /// The reason, for the log.
    pub(crate) why: String,
}

/// The content of a response, piece by piece.
#[derive(Debug)]
pub(crate) struct UpstreamBody {
    source: Source,
    guard: Option<ResponseGuard>,
}

#[derive(Debug)]
enum Source {
    Whole(Bytes),
    Http(http1::Content),
    FastCgi(fastcgi::Content),
}

/// Resources of the upstream that a response holds until it ends.
#[derive(Debug)]
struct ResponseGuard {
    route: Rc<RouteState>,
    permit: Permit,
    _in_flight: GaugeGuard,
    deadline: Instant,
}

/// One route of the relay.
#[derive(Debug)]
pub(crate) struct RouteState {
    pub(super) spec: Route,
    pub(super) limits: DynamicLimits,
    pub(super) counts: Arc<Counts>,
    pub(super) upstream_state: Rc<UpstreamState>,
    /// The program that the server started for this route, if it did.
    pub(super) program: Option<Arc<ProgramState>>,
    /// The directory of FastCGI scripts.
    pub(super) scripts: Option<Scripts>,
    warned_at: Cell<Option<Instant>>,
    /// Lines printed since then.
    warnings_printed: Cell<u64>,
    /// Lines suppressed.
    suppressed: Cell<u64>,
}

/// A directory of scripts. Its path is resolved again once a second, as for served files.
#[derive(Debug)]
pub(super) struct Scripts {
    open: RefCell<OpenScripts>,
}

#[derive(Debug)]
struct OpenScripts {
    /// Without symbolic links: the upstream gets this path, and its script cache uses it as a key.
    directory: PathBuf,
    root: Root,
    checked_at: Instant,
}

/// State shared by all routes to one upstream.
#[derive(Debug)]
pub(super) struct UpstreamState {
    pub(super) admission: Rc<Admission>,
    pub(super) http: http1::Pool,
    pub(super) fastcgi: fastcgi::Pool,
    /// Request bodies that arrive while their request is queued.
    ahead: BufferedBytes,
}

impl Scripts {
    pub(super) fn open(directory: &Path) -> std::io::Result<Scripts> {
        let root = Root::open(directory)?;
        let directory = root.path().canonicalize()?;
        Ok(Scripts { open: RefCell::new(OpenScripts { directory, root, checked_at: Instant::now() }) })
    }

    /// The directory for the upstream: absolute and without symbolic links.
    pub(super) fn directory(&self) -> PathBuf {
        self.follow();
        self.open.borrow().directory.clone()
    }

    /// Whether `relative` is a file below the directory.
    pub(super) fn has(&self, relative: &[u8]) -> bool {
        self.follow();
        self.open.borrow().root.metadata(relative).as_ref().is_ok_and(Metadata::is_file)
    }

    /// Resolves the directory's path again, once a second.
    fn follow(&self) {
        let mut open = self.open.borrow_mut();
        let now = Instant::now();
        if now - open.checked_at < FOLLOW_INTERVAL {
            return;
        }
        open.checked_at = now;
        // If the path does not exist, the old directory stays; removed scripts are not found in it.
        if let Ok(true) = open.root.follow()
            && let Ok(directory) = open.root.path().canonicalize()
        {
            open.directory = directory;
        }
    }
}

impl UpstreamState {
    pub(super) fn new(limits: &DynamicLimits, load_state: Arc<LoadState>) -> Self {
        UpstreamState {
            admission: Rc::new(Admission::new(limits, load_state)),
            http: http1::Pool::default(),
            fastcgi: fastcgi::Pool::default(),
            ahead: BufferedBytes::default(),
        }
    }
}

impl RouteState {
    pub(super) fn new(
        spec: Route,
        limits: DynamicLimits,
        counts: Arc<Counts>,
        upstream_state: Rc<UpstreamState>,
        program: Option<Arc<ProgramState>>,
        scripts: Option<Scripts>,
    ) -> Self {
        RouteState {
            spec,
            limits,
            counts,
            upstream_state,
            program,
            scripts,
            warned_at: Cell::new(None),
            warnings_printed: Cell::new(0),
            suppressed: Cell::new(0),
        }
    }

    /// Prints a warning on stderr, a few lines a second at most, so that a flood of failures does not flood the log.
    pub(super) fn warn(&self, why: &str) {
        let now = Instant::now();
        if self.warned_at.get().is_none_or(|since| now - since >= WARNING_INTERVAL) {
            self.warned_at.set(Some(now));
            self.warnings_printed.set(0);
        }
        self.warnings_printed.set(self.warnings_printed.get() + 1);
        if self.warnings_printed.get() > WARNINGS_MAX {
            self.suppressed.set(self.suppressed.get() + 1);
            return;
        }
        let more = match self.suppressed.replace(0) {
            0 => String::new(),
            more => format!(" ({more} more since the last of these lines)"),
        };
        super::print_line(format_args!("{}: {why}{more}", self.spec));
    }

    /// Forwards stderr of the program: made printable, and limited in lines a second.
    pub(super) fn words(&self, words: &[u8]) {
        let text = String::from_utf8_lossy(&words[..words.len().min(WORDS_MAX)]);
        for line in text.lines().filter(|line| !line.trim().is_empty()) {
            let plain: String = line.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
            self.warn(&format!("stderr of the program: {plain}"));
        }
    }

    /// Whether the program is up, as far as is known.
    fn up(&self) -> bool {
        self.program.as_ref().is_none_or(|program| program.is_up())
    }
}

/// Sends a request to the upstream of `route`. Waits for a permit; dropping the future releases it and closes the
/// connection. A request without a body is sent again when a reused connection turns out to be closed.
///
/// # Errors
/// Why there is no response; [`Failure::answer`] makes the client's error response.
pub(crate) async fn send(
    route: &Rc<RouteState>,
    request: &RelayRequest,
    changes: &Changes,
    body: Option<RequestBody>,
) -> Result<UpstreamResponse, Failure> {
    let head = RequestHead::parse(&request.head).filter(|head| route::may_pass(head.path()));
    let head = head.ok_or_else(|| Failure::new(400, "a target that cannot be forwarded"))?;
    if !route.up() {
        count(&route.counts.refused_down);
        return Err(Failure::down());
    }
    // From here on a cancelled exchange is counted, wherever it waited.
    let mut unfinished = UnfinishedExchange(Some(&route.counts));
    let mut body = body.unwrap_or_else(RequestBody::none);
    body.buffer_body(&route.upstream_state.ahead).await;
    let permit = route.upstream_state.admission.enter(&route.counts).await.inspect_err(|_| unfinished.0 = None)?;
    let in_flight = GaugeGuard::raise(&route.counts, |counts| &counts.in_flight);
    let deadline = Instant::now() + route.limits.timeout;
    body.open();
    let client_info = ClientInfo { peer: request.peer, local: request.local, secure: request.secure };
    let exchange = async {
        match &route.spec.upstream {
            Upstream::Http { base, .. } => {
                http1::send_request(route, &head, client_info, changes, body, base.as_deref())
                    .await
                    .map(|(status, fields, length, content)| (status, fields, length, Source::Http(content)))
            }
            Upstream::FastCgi { script, .. } => fastcgi::send_request(route, &head, client_info, changes, body, script)
                .await
                .map(|(status, fields, length, content)| (status, fields, length, Source::FastCgi(content))),
        }
    };
    let outcome = timeout_at(deadline, exchange)
        .await
        .unwrap_or_else(|_| Err(Failure::late("no complete response within the time allowed")));
    unfinished.0 = None;
    match outcome {
        Ok((status, fields, length, source)) => {
            if let Some(program) = &route.program {
                program.has_answered();
            }
            let guard = ResponseGuard { route: Rc::clone(route), permit, _in_flight: in_flight, deadline };
            Ok(UpstreamResponse { status, fields, length, body: UpstreamBody { source, guard: Some(guard) } })
        }
        Err(failure) => {
            if !route.up() {
                // The program ended during the request.
                count(&route.counts.refused_down);
                return Err(Failure::down());
            }
            match failure.status {
                504 => count(&route.counts.timed_out),
                502 => count(&route.counts.failed),
                _ => {}
            }
            if failure.status >= 500 {
                route.warn(&failure.why);
            }
            Err(failure)
        }
    }
}

/// Counts an exchange that is dropped before its response.
struct UnfinishedExchange<'a>(Option<&'a Counts>);

impl Drop for UnfinishedExchange<'_> {
    fn drop(&mut self) {
        if let Some(counts) = self.0 {
            count(&counts.cancelled);
        }
    }
}

impl UpstreamBody {
    /// Content that is completely available.
    pub(crate) fn whole(bytes: Bytes) -> Self {
        UpstreamBody { source: Source::Whole(bytes), guard: None }
    }

    /// The next piece; `Ok(None)` after a complete, valid end.
    ///
    /// # Errors
    /// The response broke off, stalled for too long, or exceeded the timeout of the exchange.
    pub(crate) async fn next(&mut self) -> Result<Option<Bytes>, Broken> {
        let Some(guard) = &self.guard else {
            return match &mut self.source {
                Source::Whole(bytes) if !bytes.is_empty() => Ok(Some(std::mem::take(bytes))),
                _ => Ok(None),
            };
        };
        let until = guard.deadline.min(Instant::now() + guard.route.limits.stall_time);
        let piece = async {
            match &mut self.source {
                Source::Whole(_) => Ok(None),
                Source::Http(content) => content.next().await,
                Source::FastCgi(content) => content.next().await,
            }
        };
        let outcome = timeout_at(until, piece).await.unwrap_or_else(|_| Err("the response stalled".to_owned()));
        match outcome {
            Ok(Some(bytes)) => Ok(Some(bytes)),
            Ok(None) => {
                self.finish();
                Ok(None)
            }
            Err(why) => {
                if let Some(guard) = self.guard.take() {
                    count(&guard.route.counts.broken);
                    guard.route.warn(&format!("a response broke off: {why}"));
                }
                self.source = Source::Whole(Bytes::new());
                Err(Broken)
            }
        }
    }

    /// The response is complete: releases connection and permit.
    fn finish(&mut self) {
        if let Some(guard) = self.guard.take() {
            count(&guard.route.counts.answered);
            match std::mem::replace(&mut self.source, Source::Whole(Bytes::new())) {
                Source::Whole(_) => {}
                Source::Http(content) => content.give_back(&guard.route.upstream_state, guard.permit),
                Source::FastCgi(content) => content.give_back(&guard.route.upstream_state, guard.permit),
            }
        }
    }
}

impl Drop for UpstreamBody {
    fn drop(&mut self) {
        let ended = matches!(&self.source, Source::Http(content) if content.ended());
        if ended {
            self.finish();
        } else if let Some(guard) = &self.guard {
            count(&guard.route.counts.cancelled);
        }
    }
}

impl Failure {
    pub(super) fn new(status: u16, why: impl Into<String>) -> Self {
        Failure { status, retry_after_s: None, why: why.into() }
    }

    /// 502: no connection, or no valid response.
    pub(super) fn bad(why: impl Into<String>) -> Self {
        Failure::new(502, why)
    }

    /// 504.
    pub(super) fn late(why: impl Into<String>) -> Self {
        Failure::new(504, why)
    }

    /// 503: queue full, or queue time exceeded.
    pub(super) fn busy(retry_after_s: u32) -> Self {
        Failure {
            status: 503,
            retry_after_s: Some(retry_after_s),
            why: "the upstream is at its limit of requests".to_owned(),
        }
    }

    /// 503: the program is starting or down.
    pub(super) fn down() -> Self {
        Failure { status: 503, retry_after_s: Some(1), why: "the program is not up".to_owned() }
    }

    /// 502: the task of the exchange ended without a response.
    pub(super) fn lost() -> Self {
        Failure::bad("lost")
    }

    /// The error response for the client.
    pub(crate) fn answer(&self) -> UpstreamResponse {
        let (status, fields, text) = self.page();
        UpstreamResponse { status, fields, length: Some(text.len() as u64), body: UpstreamBody::whole(text) }
    }

    /// Status, field lines and text.
    pub(super) fn page(&self) -> (u16, Bytes, Bytes) {
        let reason = match self.status {
            400 => "Bad Request",
            404 => "Not Found",
            413 => "Content Too Large",
            503 => "Service Unavailable",
            504 => "Gateway Timeout",
            _ => "Bad Gateway",
        };
        let mut fields = http::HeaderMap::new();
        let fixed = http::HeaderValue::from_static;
        fields.insert("server", fixed("yamabiko"));
        fields.insert("content-type", fixed("text/plain; charset=utf-8"));
        fields.insert("cache-control", fixed("no-store"));
        if let Some(seconds) = self.retry_after_s {
            fields.insert("retry-after", seconds.into());
        }
        (self.status, super::fields::for_client(&fields), format!("{} {reason}\n", self.status).into())
    }
}

/// The script directory of this upstream; `served` by default.
pub(super) fn scripts_directory<'a>(upstream: &'a Upstream, served: &'a Path) -> Option<&'a Path> {
    match upstream {
        Upstream::FastCgi { script: FastCgiScript::Below(directory), .. } => {
            Some(directory.as_deref().unwrap_or(served))
        }
        Upstream::FastCgi { .. } | Upstream::Http { .. } => None,
    }
}

/// Fields of a response; more give 502.
pub(super) const FIELDS_MAX: usize = 256;
/// Bytes of one line of stderr.
const WORDS_MAX: usize = 2048;
/// Lines per interval; the next printed line reports the number of suppressed ones.
const WARNINGS_MAX: u64 = 5;
/// As served files are checked.
const FOLLOW_INTERVAL: Duration = Duration::from_secs(1);
const WARNING_INTERVAL: Duration = Duration::from_secs(1);
