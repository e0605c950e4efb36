//! The documented HTTP API and the page of the manager.
//!
//! ```text
//!   --listen (tokens)      ─auth▶ Identity ┐                   ┌─ responses: JSON, limited
//!                                     ├─ admit ─▶ routes ─┤
//!   --page (secret in URL) ─auth▶ Identity ┘    │              └─ page: HTML, its files, the event stream
//!                                          '─ reader: GET; operator, page: all; a browser's request: from the page itself
//! ```
//!
//! Every route is defined once, in [`routes`], and described in `api/openapi.json`; a test compares the two. Unknown
//! parameters are rejected. Handlers read the disk on separate threads ([`responses`]).

mod agents;
mod alerts;
mod days;
mod exchanges;
mod facts;
mod overview;
mod page;
mod parameters;
mod quality;
mod responses;
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

use self::responses::{ApiResponse, Work, refused};
use self::routes::Routes;
use crate::auth::Identity;
use crate::data::Data;
use crate::error::Error;
use crate::notes::Notes;
use crate::refused::Refused;
use tap_protocol::RefusalReason;

/// State of the API. Clones share it.
#[derive(Clone)]
pub struct State {
    data: Arc<Data>,
    notes: Notes,
    facts: Facts,
    work: Work,
    started_unix_ns: u64,
    /// Event stream of the page's viewers.
    hub: Hub,
    signal: overview::UpdateSignal,
}

/// Facts about the manager that are not in the index.
#[derive(Clone, Debug)]
pub struct Facts {
    /// Version of the program.
    pub version: &'static str,
    /// Retention of rows in seconds; absent: forever.
    pub keep_for_s: Option<u64>,
    /// Maximum bytes of the day files; absent: unlimited.
    pub keep_bytes: Option<u64>,
}

impl State {
    /// An API for the manager's folder. Removes folders of exports that were killed.
    ///
    /// # Errors
    /// The kernel has no random bytes for the name of the event stream.
    pub fn new(data: Arc<Data>, notes: Notes, facts: Facts) -> Result<State, web::WebServerError> {
        exchanges::remove_exports(data.folder());
        let hub = Hub::new(&Viewers::new(VIEWERS_MAX))?;
        Ok(State {
            data,
            notes,
            facts,
            work: Work::default(),
            started_unix_ns: now_ns(),
            hub,
            signal: Default::default(),
        })
    }

    /// Reads the index, on a thread that may block.
    async fn read<T: Send + 'static>(
        &self,
        query: impl FnOnce(&Connection) -> rusqlite::Result<T> + Send + 'static,
    ) -> ApiResponse<T> {
        let with = self.clone();
        self.work.short(move || with.data.read(query).map_err(|error| with.unavailable(&error))).await
    }

    /// Changes the index, on a thread that may block.
    async fn change<T: Send + 'static>(
        &self,
        act: impl FnOnce(&Data) -> Result<T, Error> + Send + 'static,
    ) -> ApiResponse<T> {
        let with = self.clone();
        let outcome = self.work.short(move || act(&with.data).map_err(|error| with.refusal_for(&error))).await;
        self.signal.notify();
        outcome
    }

    fn refusal_for(&self, error: &Error) -> Refused {
        match error {
            Error::Refused(why) => refused(RefusalReason::InvalidValue, why.as_str()),
            Error::Unknown { kind, .. } => refused(RefusalReason::NotFound, format!("No {kind} has this name.")),
            other => self.unavailable(other),
        }
    }

    /// The refusal for a request that fails now. The reason is logged and not sent, since it may name files of this
    /// machine.
    fn unavailable(&self, error: &dyn fmt::Display) -> Refused {
        self.trouble(error);
        refused(RefusalReason::Unavailable, "The request failed; the manager's log has the reason. Try again later.")
    }

    fn trouble(&self, error: &dyn fmt::Display) {
        self.notes.trouble(&format!("api: {error}"));
    }

    fn viewers(&self) -> usize {
        self.hub.viewers()
    }
}

/// The API, behind an authentication that sets the [`Identity`].
pub fn router(state: State) -> Router {
    routes().router().layer(from_fn(admit)).with_state(state)
}

/// Every route of the API: lower-case method, and path as in [`OPENAPI`].
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

/// Whether this identity may do this. A request without an [`Identity`] did not pass the authentication and is
/// rejected.
async fn admit(request: Request, next: Next) -> Response {
    let reads = matches!(*request.method(), Method::GET | Method::HEAD);
    let secret = request.uri().path().starts_with("/api/1/tokens");
    let may = match request.extensions().get::<Identity>() {
        Some(identity) if reads && !secret => identity.reads(),
        Some(identity) => identity.changes(),
        None => false,
    };
    if !may {
        return Refused::forbidden().into_response();
    }
    if !is_same_origin(&request) {
        return refused(RefusalReason::Forbidden, "The request came from a page of another site.").into_response();
    }
    next.run(request).await
}

/// Whether a browser that reports the origin of its request reports this page, or its user. Otherwise a site that
/// knows the page's URL could make a visitor's browser send requests. A link from elsewhere may open the page, which
/// only the user of that browser sees.
fn is_same_origin(request: &Request) -> bool {
    let headers = request.headers();
    let opens = request.method() == Method::GET
        && request.uri().path() == "/"
        && headers.get("sec-fetch-mode").is_some_and(|mode| mode == "navigate");
    opens || headers.get_all("sec-fetch-site").iter().all(|site| matches!(site.as_bytes(), b"same-origin" | b"none"))
}

/// `GET /api/1/openapi.json`: for all who may read. It has no data of this manager.
async fn openapi(uri: http::Uri) -> ApiResponse<Response> {
    parameters::Parameters::of(&uri, &[])?;
    Ok(web::page("application/json", OPENAPI))
}

/// The manager's clock, ns since 1970.
fn now_ns() -> u64 {
    sys::clock::realtime_ns()
}

/// The description of the API (OpenAPI 3.1), served at `/api/1/openapi.json`.
pub const OPENAPI: &str = include_str!("api/openapi.json");
/// Maximum number of viewers of the page.
const VIEWERS_MAX: usize = 64;
