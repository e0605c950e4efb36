//! The documented HTTP API and the page, over what the manager has.
//!
//! ```text
//!   --listen (tokens)      ─gate▶ Who ┐                   ┌─ answers: JSON, bounded
//!                                     ├─ admit ─▶ routes ─┤
//!   --page (secret in URL) ─gate▶ Who ┘    │              └─ page: HTML, its files, the event stream
//!                                          '─ reader: GET; operator, page: all; a browser's request: from the page itself
//! ```
//!
//! Every route is told once, in [`routes`], and described in `api/openapi.json`; a test holds one against the other. A
//! parameter that is not known is refused. Handlers wait for the disk on threads of their own ([`answers`]).

mod agents;
mod alerts;
mod answers;
mod days;
mod exchanges;
mod facts;
mod overview;
mod page;
mod parameters;
mod quality;
mod routes;
mod settings;
mod tokens;

use std::fmt;
use std::sync::Arc;

use axum::Router;
use axum::extract::Request;
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse as _, Response};
use http::Method;
use rusqlite::Connection;
use web::{Hub, Viewers};

pub use overview::Overview;
pub use page::router as page_router;

use self::answers::{Answer, Work, refused};
use self::routes::Routes;
use crate::data::Data;
use crate::error::Error;
use crate::gate::Who;
use crate::notes::Notes;
use crate::refused::Refused;
use tap_protocol::Why;

/// What the API needs. Clones are the same.
#[derive(Clone)]
pub struct State {
    data: Arc<Data>,
    notes: Notes,
    facts: Facts,
    work: Work,
    started_unix_ns: u64,
    /// What those who look at the page are sent.
    hub: Hub,
    bell: overview::Bell,
}

/// What the API tells of the manager that it does not find in the index.
#[derive(Clone, Debug)]
pub struct Facts {
    /// Of the program.
    pub version: &'static str,
    /// How long rows are kept, in seconds; absent: for ever.
    pub keep_for_s: Option<u64>,
    /// How many bytes the files of days may have; absent: without bound.
    pub keep_bytes: Option<u64>,
}

impl State {
    /// Over the manager's folder. Folders that an export which was killed has left are removed.
    ///
    /// # Errors
    /// No random bytes can be had for the event stream's name.
    pub fn new(data: Arc<Data>, notes: Notes, facts: Facts) -> Result<State, web::DoorError> {
        exchanges::tidy(data.folder());
        let hub = Hub::new(&Viewers::new(VIEWERS_MAX))?;
        Ok(State {
            data,
            notes,
            facts,
            work: Work::default(),
            started_unix_ns: now_ns(),
            hub,
            bell: Default::default(),
        })
    }

    /// Reads the index, on a thread that may wait.
    async fn read<T: Send + 'static>(
        &self,
        ask: impl FnOnce(&Connection) -> rusqlite::Result<T> + Send + 'static,
    ) -> Answer<T> {
        let with = self.clone();
        self.work.short(move || with.data.read(ask).map_err(|error| with.unavailable(&error))).await
    }

    /// Changes something, on a thread that may wait.
    async fn change<T: Send + 'static>(
        &self,
        act: impl FnOnce(&Data) -> Result<T, Error> + Send + 'static,
    ) -> Answer<T> {
        let with = self.clone();
        let outcome = self.work.short(move || act(&with.data).map_err(|error| with.not_done(&error))).await;
        self.bell.ring();
        outcome
    }

    fn not_done(&self, error: &Error) -> Refused {
        match error {
            Error::Refused(why) => refused(Why::Impossible, why.as_str()),
            Error::Unknown { kind, .. } => refused(Why::NotFound, format!("There is no {kind} of this name.")),
            other => self.unavailable(other),
        }
    }

    /// It cannot be done now. What was wrong goes to the log and not to who asked: it may name files of this machine.
    fn unavailable(&self, error: &dyn fmt::Display) -> Refused {
        self.trouble(error);
        refused(Why::Unavailable, "This cannot be answered now; the manager's log says why. Try again in a while.")
    }

    fn trouble(&self, error: &dyn fmt::Display) {
        self.notes.trouble(&format!("api: {error}"));
    }

    fn viewers(&self) -> usize {
        self.hub.viewers()
    }
}

/// The API, behind a gate that says [`Who`] asks.
pub fn router(state: State) -> Router {
    routes().router().layer(from_fn(admit)).with_state(state)
}

/// Every route of the API: method in small letters, and path as [`OPENAPI`] writes it.
pub fn known() -> Vec<(&'static str, &'static str)> {
    routes().known().to_vec()
}

fn routes() -> Routes {
    Routes::default()
        .get("/api/1/openapi.json", openapi)
        .get("/api/1/agents", agents::list)
        .get("/api/1/agents/{agent}", agents::one)
        .put("/api/1/agents/{agent}/settings", settings::of_agent)
        .get("/api/1/groups", settings::groups)
        .put("/api/1/groups/{group}/settings", settings::of_group)
        .get("/api/1/quality", quality::quality)
        .get("/api/1/compare", quality::compare)
        .get("/api/1/exchanges", exchanges::list)
        .get("/api/1/exchanges/export", exchanges::export)
        .get("/api/1/days", days::list)
        .get("/api/1/days/{day}", days::one)
        .get("/api/1/days/{day}/{file}", days::file)
        .get("/api/1/alerts", alerts::list)
        .put("/api/1/alerts/{alert}", alerts::put)
        .delete("/api/1/alerts/{alert}", alerts::remove)
        .get("/api/1/alert-log", alerts::log)
        .get("/api/1/refusals", facts::refusals)
        .get("/api/1/tokens", tokens::list)
        .post("/api/1/tokens", tokens::make)
        .delete("/api/1/tokens/{name}", tokens::revoke)
        .get("/api/1/retention", facts::retention)
        .get("/api/1/health", facts::health)
}

/// Whether this one may do this. A request without a [`Who`] did not come by a gate, and is nobody's.
async fn admit(request: Request, next: Next) -> Response {
    let reads = matches!(*request.method(), Method::GET | Method::HEAD);
    let secret = request.uri().path().starts_with("/api/1/tokens");
    let may = match request.extensions().get::<Who>() {
        Some(who) if reads && !secret => who.reads(),
        Some(who) => who.changes(),
        None => false,
    };
    if !may {
        return Refused::forbidden().into_response();
    }
    if !is_own(&request) {
        return refused(Why::Forbidden, "This was asked for by a page of another site.").into_response();
    }
    next.run(request).await
}

/// Whether a browser that says where its request comes from says that it comes from this very page, or from its user. Who
/// knows a page's URL could otherwise let a visitor's browser ask. A link from elsewhere may open the page, which is shown to its reader
/// alone.
fn is_own(request: &Request) -> bool {
    let headers = request.headers();
    let opens = request.method() == Method::GET
        && request.uri().path() == "/"
        && headers.get("sec-fetch-mode").is_some_and(|mode| mode == "navigate");
    opens || headers.get_all("sec-fetch-site").iter().all(|site| matches!(site.as_bytes(), b"same-origin" | b"none"))
}

/// `GET /api/1/openapi.json`: for all who may read. It tells nothing of this manager.
async fn openapi(uri: http::Uri) -> Answer<Response> {
    parameters::Parameters::of(&uri, &[])?;
    Ok(web::page("application/json", OPENAPI))
}

/// The manager's clock, ns since 1970.
fn now_ns() -> u64 {
    sys::clock::realtime_ns()
}

/// The description of the API (OpenAPI 3.1), as it is served at `/api/1/openapi.json`.
pub const OPENAPI: &str = include_str!("api/openapi.json");
/// Pages that look on at once.
const VIEWERS_MAX: usize = 64;
