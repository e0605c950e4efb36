//! One request to one upstream, and its answer.
//!
//! ```text
//!   send: program up? -> a place -> connection (kept or new) -> request -> head of the answer   = Answer
//!   Answer.body.next() ..                                                   until None: place and connection given back
//! ```
//!
//! The place is held until the answer has been read to its end or is dropped; a dropped answer closes its connection, so
//! that the program learns that nobody waits.

use std::cell::{Cell, RefCell};
use std::fs::Metadata;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use sys::file::Root;
use tokio::time::{Instant, timeout_at};

use super::account::{Counts, Level, ProgramState, count};
use super::admission::{Admission, Door, Place};
use super::client::{Ahead, Hints, RequestBody};
use super::fields::{Asker, RequestHead};
use super::spec::{DynamicLimits, FastCgiScript, Route, Upstream};
use super::{Ask, fastcgi, http1, route};

/// How a request to the upstream differs from the client's, and what else comes of it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Changes {
    /// Names to leave out, in lower case.
    pub(crate) without: Vec<&'static str>,
    /// Fields to add after that.
    pub(crate) with: Vec<(&'static str, Vec<u8>)>,
    /// Where interim answers go; they are passed over without.
    pub(crate) hints: Option<Hints>,
}

/// An upstream's answer.
#[derive(Debug)]
pub(crate) struct Answer {
    /// 200 to 599.
    pub(crate) status: u16,
    /// As for [`Event::Head`](super::Event::Head).
    pub(crate) fields: Bytes,
    /// As for [`Event::Head`](super::Event::Head).
    pub(crate) length: Option<u64>,
    /// Its content.
    pub(crate) body: AnswerBody,
}

/// The answer broke off: it must not be taken for whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Broken;

/// No answer came, or none that means anything.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    /// 400, 404, 413, 502, 503 or 504.
    pub(crate) status: u16,
    /// With 503: when to come back.
    pub(crate) retry_after_s: Option<u32>,
    /// For the log: what happened.
    pub(crate) why: String,
}

/// The content of an answer, piece by piece.
#[derive(Debug)]
pub(crate) struct AnswerBody {
    source: Source,
    held: Option<Held>,
}

#[derive(Debug)]
enum Source {
    Whole(Bytes),
    Http(http1::Content),
    FastCgi(fastcgi::Content),
}

/// What an answer holds of its upstream until it ends.
#[derive(Debug)]
struct Held {
    route: Rc<RouteState>,
    place: Place,
    _in_flight: Level,
    deadline: Instant,
}

/// One route, as the relay has it.
#[derive(Debug)]
pub(crate) struct RouteState {
    pub(super) spec: Route,
    pub(super) limits: DynamicLimits,
    pub(super) counts: Arc<Counts>,
    pub(super) gate: Rc<Gate>,
    /// Of the program that answers, if the server started it.
    pub(super) program: Option<Arc<ProgramState>>,
    /// Where FastCGI scripts are looked up.
    pub(super) scripts: Option<Scripts>,
    complained_at: Cell<Option<Instant>>,
    /// Lines since then.
    said: Cell<u64>,
    /// Lines left out.
    complaints: Cell<u64>,
}

/// A directory of scripts. Its path is compared with the directory once a second, as that of served files is.
#[derive(Debug)]
pub(super) struct Scripts {
    open: RefCell<OpenScripts>,
}

#[derive(Debug)]
struct OpenScripts {
    /// Without symbolic links: the upstream is told this path, and its caches of scripts go by it.
    directory: PathBuf,
    root: Root,
    checked_at: Instant,
}

/// What all routes to one upstream share.
#[derive(Debug)]
pub(super) struct Gate {
    pub(super) admission: Rc<Admission>,
    pub(super) http: http1::Pool,
    pub(super) fastcgi: fastcgi::Pool,
    /// What was sent to it before its turn.
    ahead: Ahead,
}

impl Scripts {
    pub(super) fn open(directory: &Path) -> std::io::Result<Scripts> {
        let root = Root::open(directory)?;
        let directory = root.path().canonicalize()?;
        Ok(Scripts { open: RefCell::new(OpenScripts { directory, root, checked_at: Instant::now() }) })
    }

    /// The directory, as the upstream is told it: absolute and without symbolic links.
    pub(super) fn directory(&self) -> PathBuf {
        self.follow();
        self.open.borrow().directory.clone()
    }

    /// Whether `relative` is a file below the directory, reached without leaving it.
    pub(super) fn has(&self, relative: &[u8]) -> bool {
        self.follow();
        self.open.borrow().root.metadata(relative).as_ref().is_ok_and(Metadata::is_file)
    }

    /// Turns to the directory that the path leads to now, once a second.
    fn follow(&self) {
        let mut open = self.open.borrow_mut();
        let now = Instant::now();
        if now - open.checked_at < FOLLOW_INTERVAL {
            return;
        }
        open.checked_at = now;
        // Where nothing stands there, the former directory stays: scripts that are gone from it are not found.
        if let Ok(true) = open.root.follow()
            && let Ok(directory) = open.root.path().canonicalize()
        {
            open.directory = directory;
        }
    }
}

impl Gate {
    pub(super) fn new(limits: &DynamicLimits, door: Arc<Door>) -> Self {
        Gate {
            admission: Rc::new(Admission::new(limits, door)),
            http: http1::Pool::default(),
            fastcgi: fastcgi::Pool::default(),
            ahead: Ahead::default(),
        }
    }
}

impl RouteState {
    pub(super) fn new(
        spec: Route,
        limits: DynamicLimits,
        counts: Arc<Counts>,
        gate: Rc<Gate>,
        program: Option<Arc<ProgramState>>,
        scripts: Option<Scripts>,
    ) -> Self {
        RouteState {
            spec,
            limits,
            counts,
            gate,
            program,
            scripts,
            complained_at: Cell::new(None),
            said: Cell::new(0),
            complaints: Cell::new(0),
        }
    }

    /// Tells the operator on stderr, a few lines a second at most: a flood of failures is not to become a flood of lines.
    pub(super) fn complain(&self, why: &str) {
        let now = Instant::now();
        if self.complained_at.get().is_none_or(|since| now - since >= COMPLAINT_INTERVAL) {
            self.complained_at.set(Some(now));
            self.said.set(0);
        }
        self.said.set(self.said.get() + 1);
        if self.said.get() > COMPLAINTS_MAX {
            self.complaints.set(self.complaints.get() + 1);
            return;
        }
        let more = match self.complaints.replace(0) {
            0 => String::new(),
            more => format!(" ({more} more since the last of these lines)"),
        };
        super::say(format_args!("{}: {why}{more}", self.spec));
    }

    /// Passes on what the program says to its operator: printable, and bounded in lines a second.
    pub(super) fn words(&self, words: &[u8]) {
        let text = String::from_utf8_lossy(&words[..words.len().min(WORDS_MAX)]);
        for line in text.lines().filter(|line| !line.trim().is_empty()) {
            let plain: String = line.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
            self.complain(&format!("the program says: {plain}"));
        }
    }

    /// The program is there, as far as the server knows.
    fn up(&self) -> bool {
        self.program.as_ref().is_none_or(|program| program.is_up())
    }
}

/// Asks the upstream of `route`. Takes its place in queue and concurrency; dropping the future gives it back and closes
/// what was opened. A request without a body may be sent a second time when a kept connection turns out to be dead.
///
/// # Errors
/// Why there is no answer: [`Failure::answer`] is what the client may be told.
pub(crate) async fn send(
    route: &Rc<RouteState>,
    ask: &Ask,
    changes: &Changes,
    body: Option<RequestBody>,
) -> Result<Answer, Failure> {
    let head = RequestHead::parse(&ask.head).filter(|head| route::may_pass(head.path()));
    let head = head.ok_or_else(|| Failure::new(400, "a target that may not be passed on"))?;
    if !route.up() {
        count(&route.counts.refused_down);
        return Err(Failure::down());
    }
    // Who leaves from here on is counted, wherever it waited.
    let mut unfinished = Unfinished(Some(&route.counts));
    let mut body = body.unwrap_or_else(RequestBody::none);
    body.gather(&route.gate.ahead).await;
    let place = route.gate.admission.enter(&route.counts).await.inspect_err(|_| unfinished.0 = None)?;
    let in_flight = Level::raise(&route.counts, |counts| &counts.in_flight);
    let deadline = Instant::now() + route.limits.whole_time;
    body.open();
    let asker = Asker { peer: ask.peer, local: ask.local, secure: ask.secure };
    let asked = async {
        match &route.spec.upstream {
            Upstream::Http { base, .. } => http1::ask(route, &head, asker, changes, body, base.as_deref())
                .await
                .map(|(status, fields, length, content)| (status, fields, length, Source::Http(content))),
            Upstream::FastCgi { script, .. } => fastcgi::ask(route, &head, asker, changes, body, script)
                .await
                .map(|(status, fields, length, content)| (status, fields, length, Source::FastCgi(content))),
        }
    };
    let outcome =
        timeout_at(deadline, asked).await.unwrap_or_else(|_| Err(Failure::late("no answer in the whole time allowed")));
    unfinished.0 = None;
    match outcome {
        Ok((status, fields, length, source)) => {
            if let Some(program) = &route.program {
                program.has_answered();
            }
            let held = Held { route: Rc::clone(route), place, _in_flight: in_flight, deadline };
            Ok(Answer { status, fields, length, body: AnswerBody { source, held: Some(held) } })
        }
        Err(failure) => {
            if !route.up() {
                // It ended while it was asked.
                count(&route.counts.refused_down);
                return Err(Failure::down());
            }
            match failure.status {
                504 => count(&route.counts.timed_out),
                502 => count(&route.counts.failed),
                _ => {}
            }
            if failure.status >= 500 {
                route.complain(&failure.why);
            }
            Err(failure)
        }
    }
}

/// Counts an exchange that is dropped before its answer came.
struct Unfinished<'a>(Option<&'a Counts>);

impl Drop for Unfinished<'_> {
    fn drop(&mut self) {
        if let Some(counts) = self.0 {
            count(&counts.cancelled);
        }
    }
}

impl AnswerBody {
    /// Content that is all there.
    pub(crate) fn whole(bytes: Bytes) -> Self {
        AnswerBody { source: Source::Whole(bytes), held: None }
    }

    /// The next piece, `Ok(None)` once all of it came: then it was whole and ended well.
    ///
    /// # Errors
    /// It broke off, stalled for too long, or took longer than the whole exchange may.
    pub(crate) async fn next(&mut self) -> Result<Option<Bytes>, Broken> {
        let Some(held) = &self.held else {
            return match &mut self.source {
                Source::Whole(bytes) if !bytes.is_empty() => Ok(Some(std::mem::take(bytes))),
                _ => Ok(None),
            };
        };
        let until = held.deadline.min(Instant::now() + held.route.limits.stall_time);
        let piece = async {
            match &mut self.source {
                Source::Whole(_) => Ok(None),
                Source::Http(content) => content.next().await,
                Source::FastCgi(content) => content.next().await,
            }
        };
        let outcome = timeout_at(until, piece).await.unwrap_or_else(|_| Err("the answer stalled".to_owned()));
        match outcome {
            Ok(Some(bytes)) => Ok(Some(bytes)),
            Ok(None) => {
                self.finish();
                Ok(None)
            }
            Err(why) => {
                if let Some(held) = self.held.take() {
                    count(&held.route.counts.broken);
                    held.route.complain(&format!("an answer broke off: {why}"));
                }
                self.source = Source::Whole(Bytes::new());
                Err(Broken)
            }
        }
    }

    /// Everything was read: connection and place go back.
    fn finish(&mut self) {
        if let Some(held) = self.held.take() {
            count(&held.route.counts.answered);
            match std::mem::replace(&mut self.source, Source::Whole(Bytes::new())) {
                Source::Whole(_) => {}
                Source::Http(content) => content.give_back(&held.route.gate, held.place),
                Source::FastCgi(content) => content.give_back(&held.route.gate, held.place),
            }
        }
    }
}

impl Drop for AnswerBody {
    fn drop(&mut self) {
        let ended = matches!(&self.source, Source::Http(content) if content.ended());
        if ended {
            self.finish();
        } else if let Some(held) = &self.held {
            count(&held.route.counts.cancelled);
        }
    }
}

impl Failure {
    pub(super) fn new(status: u16, why: impl Into<String>) -> Self {
        Failure { status, retry_after_s: None, why: why.into() }
    }

    /// 502: no connection, or nothing that is an answer.
    pub(super) fn bad(why: impl Into<String>) -> Self {
        Failure::new(502, why)
    }

    /// 504.
    pub(super) fn late(why: impl Into<String>) -> Self {
        Failure::new(504, why)
    }

    /// 503: queue full, or waited in it for too long.
    pub(super) fn busy(retry_after_s: u32) -> Self {
        Failure { status: 503, retry_after_s: Some(retry_after_s), why: "no place at the upstream".to_owned() }
    }

    /// 503: the program is starting, or down.
    pub(super) fn down() -> Self {
        Failure { status: 503, retry_after_s: Some(1), why: "the program is not up".to_owned() }
    }

    /// 502: the task that should have answered is gone.
    pub(super) fn lost() -> Self {
        Failure::bad("lost")
    }

    /// What the client is told.
    pub(crate) fn answer(&self) -> Answer {
        let (status, fields, text) = self.page();
        Answer { status, fields, length: Some(text.len() as u64), body: AnswerBody::whole(text) }
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

/// The directory that FastCGI scripts of this upstream lie in; `served` when it names none.
pub(super) fn scripts_directory<'a>(upstream: &'a Upstream, served: &'a Path) -> Option<&'a Path> {
    match upstream {
        Upstream::FastCgi { script: FastCgiScript::Below(directory), .. } => {
            Some(directory.as_deref().unwrap_or(served))
        }
        Upstream::FastCgi { .. } | Upstream::Http { .. } => None,
    }
}

/// Fields of an answer; beyond it 502.
pub(super) const FIELDS_MAX: usize = 256;
/// Of one piece of what a program says.
const WORDS_MAX: usize = 2048;
/// Lines in each interval; the next one that is told says how many were left out.
const COMPLAINTS_MAX: u64 = 5;
/// As served files are compared with the disk.
const FOLLOW_INTERVAL: Duration = Duration::from_secs(1);
const COMPLAINT_INTERVAL: Duration = Duration::from_secs(1);
