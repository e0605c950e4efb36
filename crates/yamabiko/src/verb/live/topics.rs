//! What is looked at: each run, and the list of runs, once, however many look on.
//!
//! ```text
//!   handlers ──join, scrape──▶ [ topics, each with its hub ] ◀──takes what reads, puts it back── main thread
//! ```
//!
//! Folders are read by the main thread alone and outside the lock, so that nobody who comes waits for a disk, nor for a long run
//! that somebody else looks at.

use std::collections::BTreeMap;
use std::mem;
use std::path::PathBuf;
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::Result;
use axum::body::Bytes;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use report::export;
use report::live::{Follower, RunList, State, step};
use store::RunStore;
use sys::clock::monotonic_ns;
use tokio::sync::oneshot;
use web::{Hub, Viewers};

use super::Wake;

/// Everything that is looked at. Handlers of requests join and ask; the main thread reads and publishes.
pub(super) struct Topics {
    book: RunStore,
    viewers: Viewers,
    wakes: Mutex<Sender<Wake>>,
    held: Mutex<BTreeMap<Topic, Held>>,
}

/// A thing to look at.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Topic {
    /// What stands at the root: the run that was asked for, or the one that standard input named, or the list.
    Root,
    /// The list of runs.
    Runs,
    /// A stored run, by its id.
    Run(String),
}

/// What handlers of requests and the main thread share of a topic.
struct Held {
    hub: Hub,
    /// Absent while the main thread reads.
    reader: Option<Reader>,
    /// Somebody came since the last look.
    joined: bool,
    /// Scrapes that wait for the next look.
    scrapes: Vec<oneshot::Sender<Option<Bytes>>>,
    /// What the last scrape was told, and when, on the monotonic clock in nanoseconds.
    told: Option<(u64, Bytes)>,
}

/// What reads a topic, and what it found.
struct Reader {
    source: Source,
    /// What was published last.
    state: Option<Arc<State>>,
    /// Looks since somebody looked on.
    unseen: u32,
    /// Looks that brought nothing new, since the last that did.
    quiet: u32,
}

enum Source {
    Run(Box<Follower>),
    List(RunList),
    /// Standard input has named none yet.
    Nothing,
}

/// What a look is for.
#[derive(Clone, Copy)]
struct Call {
    /// The last look of all.
    always: bool,
    /// Somebody came.
    joined: bool,
    /// Somebody wants the figures.
    scraped: bool,
}

/// Why there is nothing to look at.
type Refusal = (StatusCode, &'static str);

impl Topics {
    /// Of this book; `shown` stands at the root.
    pub(super) fn new(book: RunStore, shown: Option<PathBuf>, wakes: Sender<Wake>) -> Result<Topics> {
        let topics =
            Topics { book, viewers: Viewers::new(VIEWERS_MAX), wakes: Mutex::new(wakes), held: Mutex::default() };
        let source = match shown {
            Some(dir) => Source::Run(Box::new(Follower::new(&dir))),
            None => Source::List(RunList::default()),
        };
        let root = Held::new(Hub::new(&topics.viewers)?, source);
        topics.lock().insert(Topic::Root, root);
        Ok(topics)
    }

    /// Somebody looks on; `after` is the id of the last event that they had.
    pub(super) fn join(&self, topic: Topic, after: Option<&str>) -> Response {
        let joined = self.with(topic, |held| {
            held.joined = true;
            held.hub.join(after)
        });
        match joined {
            Ok(response) => {
                self.wake();
                response
            }
            Err(refusal) => refusal.into_response(),
        }
    }

    /// The figures of a run for a Prometheus, made at the next look; one text a second, however many scrape.
    pub(super) async fn scrape(&self, topic: Topic) -> Response {
        let (tells, told) = oneshot::channel();
        let now = monotonic_ns();
        let known = self.with(topic, |held| match &held.told {
            Some((at, text)) if now.saturating_sub(*at) < TOLD_AGAIN.as_nanos() as u64 => Some(text.clone()),
            _ => {
                held.scrapes.push(tells);
                None
            }
        });
        let text = match known {
            Err(refusal) => return refusal.into_response(),
            Ok(Some(text)) => Some(text),
            Ok(None) => {
                self.wake();
                told.await.ok().flatten()
            }
        };
        match text {
            Some(text) => web::page(export::exposition::PROMETHEUS_TYPE, text),
            None => {
                (StatusCode::NOT_FOUND, "No run is shown here; a stored run has /run/ID/metrics.\n").into_response()
            }
        }
    }

    /// Does something with what is held of a topic, which is made where nobody has asked for it before.
    fn with<T>(&self, topic: Topic, act: impl FnOnce(&mut Held) -> T) -> Result<T, Refusal> {
        // Looked for without the lock: a book on a slow disk keeps nobody else waiting.
        let is_known = self.lock().contains_key(&topic);
        let source = match &topic {
            _ if is_known => None,
            Topic::Runs | Topic::Root => Some(Source::List(RunList::default())),
            Topic::Run(id) => match self.dir_of(id) {
                Some(dir) => Some(Source::Run(Box::new(Follower::new(&dir)))),
                None => return Err((StatusCode::NOT_FOUND, "There is no such stored run.\n")),
            },
        };
        let mut topics = self.lock();
        if let Some(source) = source.filter(|_| !topics.contains_key(&topic)) {
            if topics.len() >= TOPICS_MAX {
                return Err((StatusCode::SERVICE_UNAVAILABLE, "Too many runs are looked at already.\n"));
            }
            let Ok(hub) = Hub::new(&self.viewers) else {
                return Err((StatusCode::INTERNAL_SERVER_ERROR, "No random bytes are to be had.\n"));
            };
            topics.insert(topic.clone(), Held::new(hub, source));
        }
        match topics.get_mut(&topic) {
            Some(held) => Ok(act(held)),
            None => Err((StatusCode::SERVICE_UNAVAILABLE, "It was just forgotten; ask again.\n")),
        }
    }

    /// Lets the main thread look at once; it is there as long as this is.
    fn wake(&self) {
        let _ = self.wakes.lock().unwrap_or_else(PoisonError::into_inner).send(Wake::Joined);
    }

    /// The folder of a stored run. What a URL names is compared with the names there are, and never made into a path.
    pub(super) fn dir_of(&self, id: &str) -> Option<PathBuf> {
        self.book.dirs().ok()?.into_iter().find(|dir| dir.file_name().is_some_and(|name| name == id))
    }

    /// Shows this folder at the root from now on. As all that reads, of the main thread.
    pub(super) fn show(&self, dir: PathBuf) {
        self.replace_root(Source::Run(Box::new(Follower::new(&dir))));
    }

    /// Standard input says what stands at the root; until then nothing does.
    pub(super) fn wait_for_folder(&self) {
        self.replace_root(Source::Nothing);
    }

    fn replace_root(&self, source: Source) {
        if let Some(root) = self.lock().get_mut(&Topic::Root) {
            root.told = None;
            if let Some(reader) = &mut root.reader {
                reader.source = source;
                reader.quiet = 0;
            }
        }
    }

    /// Reads what is new of everything that somebody looks at, and sends it.
    pub(super) fn look(&self) {
        self.look_at(false);
    }

    /// The last state, whether or not somebody was there to see the one before, and the end.
    pub(super) fn close(&self) {
        self.look_at(true);
        self.lock().values().for_each(|held| held.hub.close());
    }

    fn look_at(&self, always: bool) {
        let taken: Vec<_> = self.lock().iter_mut().filter_map(|(topic, held)| held.take(topic, always)).collect();
        for mut taken in taken {
            taken.reader.look(&taken.hub, &self.book, taken.call);
            let told = taken.call.scraped.then(|| taken.reader.exposition()).flatten();
            // Who has gone meanwhile needs no answer.
            taken.scrapes.into_iter().for_each(|tells| drop(tells.send(told.clone())));
            if let Some(held) = self.lock().get_mut(&taken.topic) {
                held.reader = Some(taken.reader);
                held.told = told.map(|text| (monotonic_ns(), text)).or(held.told.take());
            }
        }
        self.lock().retain(|topic, held| *topic == Topic::Root || held.is_wanted());
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Topic, Held>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What the main thread takes away to read.
struct Taken {
    topic: Topic,
    hub: Hub,
    reader: Reader,
    call: Call,
    scrapes: Vec<oneshot::Sender<Option<Bytes>>>,
}

impl Held {
    fn new(hub: Hub, source: Source) -> Self {
        let reader = Reader { source, state: None, unseen: 0, quiet: 0 };
        Held { hub, reader: Some(reader), joined: false, scrapes: Vec::new(), told: None }
    }

    fn take(&mut self, topic: &Topic, always: bool) -> Option<Taken> {
        let reader = self.reader.take()?;
        let scrapes = mem::take(&mut self.scrapes);
        let call = Call { always, joined: mem::take(&mut self.joined), scraped: !scrapes.is_empty() };
        Some(Taken { topic: topic.clone(), hub: self.hub.clone(), reader, call, scrapes })
    }

    /// Whether somebody was here in the last minute.
    fn is_wanted(&self) -> bool {
        self.joined || !self.scrapes.is_empty() || self.reader.as_ref().is_none_or(|reader| reader.unseen < FORGOTTEN)
    }
}

impl Reader {
    fn look(&mut self, hub: &Hub, book: &RunStore, call: Call) {
        let is_seen = hub.viewers() > 0;
        self.unseen = if is_seen || call.joined || call.scraped { 0 } else { self.unseen + 1 };
        if call.joined {
            self.quiet = 0;
        }
        // A run that is over is looked at now and then: a search for a capacity can be taken up again.
        let is_over = self.state.as_ref().is_some_and(|state| state.is_over);
        let rests = is_over && self.quiet > 0 && !self.quiet.is_multiple_of(SELDOM);
        if !call.always && !call.scraped && self.state.is_some() && (!is_seen || rests) {
            self.quiet = self.quiet.saturating_add(1);
            return self.beat(hub);
        }
        let state = match &mut self.source {
            Source::Run(follower) => {
                follower.look();
                follower.state()
            }
            Source::List(list) => list.look(&book.dirs().unwrap_or_default()),
            Source::Nothing => waiting(),
        };
        self.publish(hub, state);
    }

    /// What a scrape is told; `None` where no run is shown.
    fn exposition(&self) -> Option<Bytes> {
        match &self.source {
            Source::Run(follower) => Some(export::prometheus(&export::metrics(&follower.figures())).into()),
            Source::List(_) | Source::Nothing => None,
        }
    }

    fn publish(&mut self, hub: &Hub, state: State) {
        let step = match self.state.as_deref() {
            Some(before) if *before == state => {
                self.quiet = self.quiet.saturating_add(1);
                return self.beat(hub);
            }
            Some(before) => step(before, &state),
            None => None,
        };
        self.quiet = 0;
        let state = Arc::new(state);
        self.state = Some(Arc::clone(&state));
        hub.publish(step.as_deref(), Box::new(move || state.whole()));
    }

    /// A sign of life where there is no news.
    fn beat(&self, hub: &Hub) {
        if self.quiet % BEAT == BEAT - 1 {
            hub.heartbeat();
        }
    }
}

fn waiting() -> State {
    State {
        title: "Starting".to_owned(),
        lead: "No run has begun yet.".to_owned(),
        aloud: "No run has begun yet.".to_owned(),
        ..State::default()
    }
}

/// Browsers at once, over all topics.
const VIEWERS_MAX: usize = 64;
/// Runs looked at at once, with the root and the list.
const TOPICS_MAX: usize = 18;
/// Looks without anybody after which a run is forgotten: a minute.
const FORGOTTEN: u32 = 120;
/// Looks at a run that is over: one in so many.
const SELDOM: u32 = 10;
/// Looks without news after which a sign of life is sent: ten seconds.
const BEAT: u32 = 20;
/// How long a scrape is told what the one before was.
const TOLD_AGAIN: Duration = Duration::from_secs(1);
