//! What is looked at: each run, and the list of runs, once, however many look on.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::Result;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use door::{Hub, Viewers};
use report::live::{Follower, RunList, State, step};
use store::Book;

use super::Wake;

/// Everything that is looked at. Handlers of requests join; the main thread reads and publishes.
pub(super) struct Topics {
    book: Book,
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
    /// A run of the book, by its id.
    Run(String),
}

struct Held {
    hub: Hub,
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

impl Topics {
    /// Of this book; `shown` stands at the root.
    pub(super) fn new(book: Book, shown: Option<PathBuf>, wakes: Sender<Wake>) -> Result<Topics> {
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
        let mut held = self.lock();
        if !held.contains_key(&topic) {
            if held.len() >= TOPICS_MAX {
                return (StatusCode::SERVICE_UNAVAILABLE, "Too many runs are looked at already.\n").into_response();
            }
            let source = match &topic {
                Topic::Runs | Topic::Root => Source::List(RunList::default()),
                Topic::Run(id) => match self.dir_of(id) {
                    Some(dir) => Source::Run(Box::new(Follower::new(&dir))),
                    None => return (StatusCode::NOT_FOUND, "There is no such run in the book.\n").into_response(),
                },
            };
            let Ok(hub) = Hub::new(&self.viewers) else { return StatusCode::INTERNAL_SERVER_ERROR.into_response() };
            held.insert(topic.clone(), Held::new(hub, source));
        }
        let Some(topic) = held.get_mut(&topic) else { return StatusCode::INTERNAL_SERVER_ERROR.into_response() };
        topic.unseen = 0;
        topic.quiet = 0;
        let response = topic.hub.join(after);
        drop(held);
        // The main thread is there as long as this is.
        let _ = self.wakes.lock().unwrap_or_else(PoisonError::into_inner).send(Wake::Joined);
        response
    }

    /// The folder of a run of the book. What a URL names is compared with the names there are, and never made into a path.
    pub(super) fn dir_of(&self, id: &str) -> Option<PathBuf> {
        self.book.dirs().ok()?.into_iter().find(|dir| dir.file_name().is_some_and(|name| name == id))
    }

    /// Shows this folder at the root from now on.
    pub(super) fn show(&self, dir: PathBuf) {
        if let Some(root) = self.lock().get_mut(&Topic::Root) {
            root.source = Source::Run(Box::new(Follower::new(&dir)));
            root.quiet = 0;
        }
    }

    /// Standard input says what stands at the root; until then nothing does.
    pub(super) fn wait_for_folder(&self) {
        if let Some(root) = self.lock().get_mut(&Topic::Root) {
            root.source = Source::Nothing;
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

    fn look_at(&self, all: bool) {
        let mut held = self.lock();
        for held in held.values_mut() {
            held.look(&self.book, all);
        }
        held.retain(|topic, held| *topic == Topic::Root || held.unseen < FORGOTTEN);
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Topic, Held>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Held {
    fn new(hub: Hub, source: Source) -> Self {
        Held { hub, source, state: None, unseen: 0, quiet: 0 }
    }

    fn look(&mut self, book: &Book, always: bool) {
        let is_seen = self.hub.viewers() > 0;
        self.unseen = if is_seen { 0 } else { self.unseen + 1 };
        // A run that is over is looked at now and then: a search for a capacity can be taken up again.
        let is_over = self.state.as_ref().is_some_and(|state| state.is_over);
        let rests = is_over && self.quiet > 0 && !self.quiet.is_multiple_of(SELDOM);
        if !always && self.state.is_some() && (!is_seen || rests) {
            self.quiet = self.quiet.saturating_add(1);
            return self.beat();
        }
        let state = match &mut self.source {
            Source::Run(follower) => {
                follower.look();
                follower.state()
            }
            Source::List(list) => list.look(&book.dirs().unwrap_or_default()),
            Source::Nothing => waiting(),
        };
        self.publish(state);
    }

    fn publish(&mut self, state: State) {
        let step = match self.state.as_deref() {
            Some(before) if *before == state => {
                self.quiet = self.quiet.saturating_add(1);
                return self.beat();
            }
            Some(before) => step(before, &state),
            None => None,
        };
        self.quiet = 0;
        let state = Arc::new(state);
        self.state = Some(Arc::clone(&state));
        self.hub.publish(step.as_deref(), Box::new(move || state.whole()));
    }

    /// A sign of life where there is no news.
    fn beat(&self) {
        if self.quiet % BEAT == BEAT - 1 {
            self.hub.beat();
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
