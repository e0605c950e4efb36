//! The viewed runs and the list of runs: each is read once, for any number of viewers.
//!
//! ```text
//!   handlers ──join, scrape──▶ [ topics, each with its hub ] ◀──takes a reader, puts it back── main thread
//! ```
//!
//! Only the main thread reads folders, outside the lock: a request never waits for a disk, nor for another viewer's
//! long run.

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

/// All viewed topics. Request handlers add viewers and scrapes; the main thread reads and publishes.
pub(super) struct Topics {
    run_store: RunStore,
    viewers: Viewers,
    wakes: Mutex<Sender<Wake>>,
    states: Mutex<BTreeMap<Topic, TopicState>>,
}

/// A run or the list of runs.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Topic {
    /// The content of the root page: the run of the command line, the run that standard input named, or the list.
    Root,
    /// The list of runs.
    Runs,
    /// A stored run, by its id.
    Run(String),
}

/// The state of a topic that request handlers and the main thread share.
struct TopicState {
    hub: Hub,
    /// Absent while the main thread reads.
    reader: Option<Reader>,
    /// Whether a viewer joined since the last poll.
    joined: bool,
    /// Scrapes that wait for the next poll.
    scrapes: Vec<oneshot::Sender<Option<Bytes>>>,
    /// The response to the last scrape, and its time on the monotonic clock, in ns.
    exposition: Option<(u64, Bytes)>,
}

/// Reads the files of a topic.
struct Reader {
    source: Source,
    /// The state that was published last.
    state: Option<Arc<State>>,
    /// Polls since the topic last had a viewer.
    polls_without_viewer: u32,
    /// Polls since the state last changed.
    polls_without_change: u32,
}

enum Source {
    Run(Box<Follower>),
    List(RunList),
    /// Standard input has not named a folder yet.
    Nothing,
}

/// Why a topic is polled.
#[derive(Clone, Copy)]
struct Reasons {
    /// The poll is the last one.
    is_last: bool,
    /// A viewer joined.
    joined: bool,
    /// A scrape waits for the figures.
    scraped: bool,
}

/// Status and text of a refused request.
type Refusal = (StatusCode, &'static str);

impl Topics {
    /// The topics of a run store; `shown` is the run at the root.
    pub(super) fn new(run_store: RunStore, shown: Option<PathBuf>, wakes: Sender<Wake>) -> Result<Topics> {
        let topics = Topics {
            run_store,
            viewers: Viewers::new(VIEWERS_MAX),
            wakes: Mutex::new(wakes),
            states: Mutex::default(),
        };
        let source = match shown {
            Some(dir) => Source::Run(Box::new(Follower::new(&dir))),
            None => Source::List(RunList::default()),
        };
        let root = TopicState::new(Hub::new(&topics.viewers)?, source);
        topics.lock().insert(Topic::Root, root);
        Ok(topics)
    }

    /// Adds a viewer; `after` is the ID of the last event that the viewer received.
    pub(super) fn join(&self, topic: Topic, after: Option<&str>) -> Response {
        let joined = self.with(topic, |state| {
            state.joined = true;
            state.hub.join(after)
        });
        match joined {
            Ok(response) => {
                self.wake();
                response
            }
            Err(refusal) => refusal.into_response(),
        }
    }

    /// The figures of a run for Prometheus, read at the next poll. Scrapes within a second get the same text.
    pub(super) async fn scrape(&self, topic: Topic) -> Response {
        let (sender, response) = oneshot::channel();
        let now = monotonic_ns();
        let recent = self.with(topic, |state| match &state.exposition {
            Some((at, text)) if now.saturating_sub(*at) < EXPOSITION_MAX_AGE.as_nanos() as u64 => Some(text.clone()),
            _ => {
                state.scrapes.push(sender);
                None
            }
        });
        let text = match recent {
            Err(refusal) => return refusal.into_response(),
            Ok(Some(text)) => Some(text),
            Ok(None) => {
                self.wake();
                response.await.ok().flatten()
            }
        };
        match text {
            Some(text) => web::page(export::exposition::PROMETHEUS_TYPE, text),
            None => {
                (StatusCode::NOT_FOUND, "No run is shown here; a stored run has /run/ID/metrics.\n").into_response()
            }
        }
    }

    /// Calls `act` with the state of a topic, which is created if it does not exist.
    fn with<T>(&self, topic: Topic, act: impl FnOnce(&mut TopicState) -> T) -> Result<T, Refusal> {
        // The folder is searched without the lock, so that a slow disk delays no other request.
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
                return Err((StatusCode::SERVICE_UNAVAILABLE, "Too many runs are being viewed.\n"));
            }
            let Ok(hub) = Hub::new(&self.viewers) else {
                return Err((StatusCode::INTERNAL_SERVER_ERROR, "No random bytes are available.\n"));
            };
            topics.insert(topic.clone(), TopicState::new(hub, source));
        }
        match topics.get_mut(&topic) {
            Some(state) => Ok(act(state)),
            None => Err((StatusCode::SERVICE_UNAVAILABLE, "The run was just closed; retry.\n")),
        }
    }

    /// Makes the main thread poll immediately.
    fn wake(&self) {
        let _ = self.wakes.lock().unwrap_or_else(PoisonError::into_inner).send(Wake::Joined);
    }

    /// The folder of a stored run. The ID of a URL is compared with existing names, and never made into a path.
    pub(super) fn dir_of(&self, id: &str) -> Option<PathBuf> {
        self.run_store.dirs().ok()?.into_iter().find(|dir| dir.file_name().is_some_and(|name| name == id))
    }

    /// Shows this folder at the root from now on. To be called by the main thread, as everything that reads.
    pub(super) fn show(&self, dir: PathBuf) {
        self.replace_root(Source::Run(Box::new(Follower::new(&dir))));
    }

    /// Shows nothing at the root until standard input names a folder.
    pub(super) fn wait_for_folder(&self) {
        self.replace_root(Source::Nothing);
    }

    fn replace_root(&self, source: Source) {
        if let Some(root) = self.lock().get_mut(&Topic::Root) {
            root.exposition = None;
            if let Some(reader) = &mut root.reader {
                reader.source = source;
                reader.polls_without_change = 0;
            }
        }
    }

    /// Reads the changes of every viewed topic, and publishes them.
    pub(super) fn poll(&self) {
        self.poll_all(false);
    }

    /// Publishes the last state of every topic, and ends the streams.
    pub(super) fn close(&self) {
        self.poll_all(true);
        self.lock().values().for_each(|state| state.hub.close());
    }

    fn poll_all(&self, is_last: bool) {
        let taken: Vec<_> = self.lock().iter_mut().filter_map(|(topic, state)| state.take(topic, is_last)).collect();
        for mut taken in taken {
            taken.reader.poll(&taken.hub, &self.run_store, taken.reasons);
            let exposition = taken.reasons.scraped.then(|| taken.reader.exposition()).flatten();
            // A scrape whose client has disconnected needs no response.
            taken.scrapes.into_iter().for_each(|sender| drop(sender.send(exposition.clone())));
            if let Some(state) = self.lock().get_mut(&taken.topic) {
                state.reader = Some(taken.reader);
                state.exposition = exposition.map(|text| (monotonic_ns(), text)).or(state.exposition.take());
            }
        }
        self.lock().retain(|topic, state| *topic == Topic::Root || state.is_in_use());
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Topic, TopicState>> {
        self.states.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A topic's reader while the main thread reads.
struct Taken {
    topic: Topic,
    hub: Hub,
    reader: Reader,
    reasons: Reasons,
    scrapes: Vec<oneshot::Sender<Option<Bytes>>>,
}

impl TopicState {
    fn new(hub: Hub, source: Source) -> Self {
        let reader = Reader { source, state: None, polls_without_viewer: 0, polls_without_change: 0 };
        TopicState { hub, reader: Some(reader), joined: false, scrapes: Vec::new(), exposition: None }
    }

    fn take(&mut self, topic: &Topic, is_last: bool) -> Option<Taken> {
        let reader = self.reader.take()?;
        let scrapes = mem::take(&mut self.scrapes);
        let reasons = Reasons { is_last, joined: mem::take(&mut self.joined), scraped: !scrapes.is_empty() };
        Some(Taken { topic: topic.clone(), hub: self.hub.clone(), reader, reasons, scrapes })
    }

    /// Whether the topic had a viewer or a scrape in the last minute.
    fn is_in_use(&self) -> bool {
        self.joined
            || !self.scrapes.is_empty()
            || self.reader.as_ref().is_none_or(|reader| reader.polls_without_viewer < UNUSED_POLLS_MAX)
    }
}

impl Reader {
    fn poll(&mut self, hub: &Hub, run_store: &RunStore, reasons: Reasons) {
        let has_viewers = hub.viewers() > 0;
        let is_used = has_viewers || reasons.joined || reasons.scraped;
        self.polls_without_viewer = if is_used { 0 } else { self.polls_without_viewer + 1 };
        if reasons.joined {
            self.polls_without_change = 0;
        }
        // A finished run is read less often. It can change, since a capacity search can be resumed.
        let is_over = self.state.as_ref().is_some_and(|state| state.is_over);
        let unchanged = self.polls_without_change;
        let is_skipped = is_over && unchanged > 0 && !unchanged.is_multiple_of(FINISHED_RUN_POLLS);
        if !reasons.is_last && !reasons.scraped && self.state.is_some() && (!has_viewers || is_skipped) {
            self.polls_without_change = self.polls_without_change.saturating_add(1);
            return self.heartbeat(hub);
        }
        let state = match &mut self.source {
            Source::Run(follower) => {
                follower.poll();
                follower.state()
            }
            Source::List(list) => list.poll(&run_store.dirs().unwrap_or_default()),
            Source::Nothing => waiting(),
        };
        self.publish(hub, state);
    }

    /// The response to a scrape; `None` if the topic is not a run.
    fn exposition(&self) -> Option<Bytes> {
        match &self.source {
            Source::Run(follower) => Some(export::prometheus(&export::metrics(&follower.figures())).into()),
            Source::List(_) | Source::Nothing => None,
        }
    }

    fn publish(&mut self, hub: &Hub, state: State) {
        let step = match self.state.as_deref() {
            Some(before) if *before == state => {
                self.polls_without_change = self.polls_without_change.saturating_add(1);
                return self.heartbeat(hub);
            }
            Some(before) => step(before, &state),
            None => None,
        };
        self.polls_without_change = 0;
        let state = Arc::new(state);
        self.state = Some(Arc::clone(&state));
        hub.publish(step.as_deref(), Box::new(move || state.whole()));
    }

    /// Sends a heartbeat after [`HEARTBEAT_POLLS`] polls without a change.
    fn heartbeat(&self, hub: &Hub) {
        if self.polls_without_change % HEARTBEAT_POLLS == HEARTBEAT_POLLS - 1 {
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

/// Most concurrent viewers, over all topics.
const VIEWERS_MAX: usize = 64;
/// Most topics, including the root and the list.
const TOPICS_MAX: usize = 18;
/// Polls without a viewer after which a topic is removed: a minute.
const UNUSED_POLLS_MAX: u32 = 120;
/// A finished run is read once in so many polls.
const FINISHED_RUN_POLLS: u32 = 10;
/// Polls without a change after which a heartbeat is sent: ten seconds.
const HEARTBEAT_POLLS: u32 = 20;
/// Age up to which the response to a scrape is reused.
const EXPOSITION_MAX_AGE: Duration = Duration::from_secs(1);
