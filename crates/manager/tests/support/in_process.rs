//! A manager without servers: its folder, filled with a day of scripted agents, and its routers, which receive
//! requests as from the authentication layer.

use std::cell::RefCell;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::Request;
use axum::http::{Method, StatusCode};
use http_body_util::BodyExt as _;
use manager::api::{self, Facts, State};
use manager::ingest::{self, IngestThread};
use manager::notes::{Notes, NotesWriter};
use manager::tokens::{self, Role};
use manager::{Data, Identity, Refused, days, settings};
use serde::Serialize;
use serde_json::Value;
use tower::ServiceExt as _;

use super::scripted::{DISCONNECTED_AGENT, ScriptedAgent, agents};

pub const SECOND_NS: u64 = 1_000_000_000;
/// Timeout for anything expected immediately.
const WAIT_TIMEOUT: Duration = Duration::from_secs(120);
const HOUR_NS: u64 = 3600 * SECOND_NS;

/// See the module.
pub struct Manager {
    /// The state shared by its routers.
    pub state: State,
    router: Router,
    ingest: Router,
    agents: RefCell<Vec<ScriptedAgent>>,
    /// Number of stored rows.
    pub rows: u64,
    /// When it was filled.
    pub now_ns: u64,
    runtime: tokio::runtime::Runtime,
    data: Arc<Data>,
    _threads: (IngestThread, NotesWriter),
    folder: tempfile::TempDir,
}

/// A complete response.
pub struct Answered {
    pub status: StatusCode,
    /// Media type of the response.
    pub kind: String,
    pub body: Vec<u8>,
}

impl Answered {
    pub fn text(&self) -> String {
        String::from_utf8(self.body.clone()).unwrap()
    }

    pub fn json(&self) -> Value {
        assert!(self.status.is_success(), "{}: {}", self.status, self.text());
        serde_json::from_slice(&self.body).unwrap()
    }
}

impl Manager {
    /// A manager with this number of agents, and one that never connected: a day in files, and some minutes of pending
    /// batches.
    pub fn with_a_day(count: usize) -> Manager {
        let folder = tempfile::tempdir().unwrap();
        let data = Data::open(folder.path()).unwrap();
        let (notes, writing) = Notes::start(Arc::clone(&data), Arc::new(|_| {})).unwrap();
        let (ingest, taking) = IngestThread::start(Arc::clone(&data), notes.clone(), |_| {}).unwrap();
        let now_ns = sys::clock::realtime_ns();
        let facts = Facts { version: "0.1.0", keep_for_s: Some(86_400), keep_bytes: None };
        let state = State::new(Arc::clone(&data), notes, facts).unwrap();
        let mut manager = Manager {
            router: finish(api::page_router(state.clone())),
            state,
            ingest: ingest::routes(ingest),
            agents: RefCell::new(agents(count, now_ns - 30 * HOUR_NS)),
            rows: 0,
            now_ns,
            runtime: tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap(),
            data,
            _threads: (taking, writing),
            folder,
        };
        manager.fill();
        manager
    }

    fn fill(&mut self) {
        let now = self.now_ns;
        let mut agents = self.agents.take();
        for agent in &mut agents {
            tokens::add(&self.data, &agent.name, Role::Agent, now).unwrap();
            self.send(agent, "hello", &agent.hello(now));
            let group = agent.group;
            self.data.change(|index| settings::set_group(index, &agent.name, group, now)).unwrap();
            let batch = agent.batch(now - 24 * HOUR_NS, now - 600 * SECOND_NS, 600 * SECOND_NS, now - 600 * SECOND_NS);
            self.rows += batch.rows.len() as u64;
            self.send(agent, "batches", &batch);
        }
        while days::place(&self.data, 0, now).unwrap().more {}
        for agent in &mut agents {
            let batch = agent.batch(now - 600 * SECOND_NS, now, 120 * SECOND_NS, now);
            self.rows += batch.rows.len() as u64;
            self.send(agent, "batches", &batch);
        }
        tokens::add(&self.data, "never-came", Role::Agent, now).unwrap();
        if let Some(disconnected) = agents.get(DISCONNECTED_AGENT) {
            let last = (now - 3 * HOUR_NS) as i64;
            let sql = "UPDATE agents SET last_seen_at = ?2 WHERE name = ?1";
            self.data.change(|index| index.execute(sql, rusqlite::params![disconnected.name, last])).unwrap();
        }
        self.agents.replace(agents);
    }

    /// The manager's folder.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The name of an agent.
    pub fn name_of(&self, at: usize) -> &'static str {
        self.agents.borrow()[at].name.clone().leak()
    }

    /// Sends a batch without rows from an agent with this settings version.
    pub fn heartbeat(&self, name: &str, settings: u64) -> Value {
        let mut agents = self.agents.borrow_mut();
        let agent = agents.iter_mut().find(|agent| agent.name == name).unwrap();
        let now = sys::clock::realtime_ns();
        let batch = tap_protocol::Batch { settings, ..agent.batch(now, now, 1, now) };
        self.send(agent, "batches", &batch)
    }

    fn send(&self, agent: &ScriptedAgent, what: &str, body: &impl Serialize) -> Value {
        let body = serde_json::to_value(body).unwrap();
        let url = format!("/api/1/agents/{}/{what}", agent.name);
        let zero = agent.zero_ns.to_string();
        let headers = [(tap_protocol::ZERO, &*zero), (tap_protocol::ZERO_ERROR, "300000")];
        let identity = Identity::Agent(agent.name.clone());
        self.send_to(&self.ingest, identity, Method::POST, &url, Some(&body), &headers).json()
    }

    /// Sends a request to the router of the page and the API.
    pub fn request(
        &self,
        identity: Identity,
        method: Method,
        url: &str,
        body: Option<&Value>,
        headers: &[(&str, &str)],
    ) -> Answered {
        self.send_to(&self.router, identity, method, url, body, headers)
    }

    /// Starts to read a response of the page's server.
    pub fn stream(&self, url: &str) -> (StatusCode, Stream<'_>) {
        let mut request = Request::builder().uri(url).body(Body::empty()).unwrap();
        request.extensions_mut().insert(Identity::Page);
        let response = self.runtime.block_on(self.router.clone().oneshot(request)).unwrap();
        (response.status(), Stream { runtime: &self.runtime, body: response.into_body(), text: String::new() })
    }

    fn send_to(
        &self,
        router: &Router,
        identity: Identity,
        method: Method,
        url: &str,
        body: Option<&Value>,
        headers: &[(&str, &str)],
    ) -> Answered {
        let mut request = Request::builder().method(method).uri(url);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let body = body.map_or_else(Body::empty, |body| Body::from(body.to_string()));
        let mut request = request.body(body).unwrap();
        request.extensions_mut().insert(identity);
        self.runtime.block_on(async {
            let response = router.clone().oneshot(request).await.unwrap();
            let kind = response.headers().get("content-type").map(|kind| kind.to_str().unwrap().to_owned());
            let status = response.status();
            let body = to_bytes(response.into_body(), 1 << 30).await.unwrap().to_vec();
            Answered { status, kind: kind.unwrap_or_default(), body }
        })
    }
}

/// A response in progress.
pub struct Stream<'a> {
    runtime: &'a tokio::runtime::Runtime,
    body: Body,
    /// The received part.
    pub text: String,
}

impl Stream<'_> {
    /// Reads to the end; returns whether the transfer ended early.
    pub fn fails(&mut self) -> bool {
        loop {
            match self.runtime.block_on(self.body.frame()) {
                Some(Ok(_)) => {}
                Some(Err(_)) => return true,
                None => return false,
            }
        }
    }

    /// Reads until the received part fulfils a condition; `false` if the response ended before.
    pub fn until(&mut self, is_such: impl Fn(&str) -> bool) -> bool {
        while !is_such(&self.text) {
            let frame = async { tokio::time::timeout(WAIT_TIMEOUT, self.body.frame()).await };
            let frame = self.runtime.block_on(frame).unwrap_or_else(|_| panic!("waited in vain: {}", self.text));
            let Some(frame) = frame else { return false };
            self.text.push_str(str::from_utf8(frame.unwrap().data_ref().unwrap()).unwrap());
        }
        true
    }
}

/// Sends a request as the authentication layer passes it on.
fn finish(router: Router) -> Router {
    router.method_not_allowed_fallback(|| async { Refused::method() }).fallback(|| async { Refused::not_found() })
}
