//! The URLs of the live page: pages, files, and streams of events.
//!
//! | path | what |
//! |---|---|
//! | `/` | the run of the command line, or the list |
//! | `/runs/` | the list of runs |
//! | `/run/ID/` | a stored run |
//! | `.../events` | the stream of such a page |
//! | `/metrics`, `/run/ID/metrics` | the run's newest figures, as Prometheus scrapes them |
//! | `/live.css`, `/live.js`, `/uplot.js` | the page's files |

use std::collections::HashMap;
use std::sync::Arc;

use axum::Router;
use axum::body::Bytes;
use axum::extract::{Path, Query, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::get;

use super::topics::{Topic, Topics};

pub(super) fn router(topics: Arc<Topics>) -> Router {
    let mut router = Router::new()
        .route("/", get(|| async { page("") }))
        .route("/events", get(root_events))
        .route("/metrics", get(root_metrics))
        .route("/runs/", get(|| async { page("../") }))
        .route("/runs/events", get(list_events))
        .route("/run/{id}/", get(run_page))
        .route("/run/{id}/events", get(run_events))
        .route("/run/{id}/metrics", get(run_metrics))
        .fallback(|| async { (StatusCode::NOT_FOUND, "There is no such page here.\n") })
        .with_state(topics);
    for asset in report::live::assets() {
        let text = Bytes::from(asset.text);
        let answer = move || {
            let text = text.clone();
            async move { web::page(asset.kind, text) }
        };
        router = router.route(&format!("/{}", asset.name), get(answer));
    }
    router
}

fn page(root: &str) -> Response {
    web::page("text/html; charset=utf-8", report::live::html(root))
}

async fn run_page(State(topics): State<Arc<Topics>>, Path(id): Path<String>) -> Response {
    match topics.dir_of(&id) {
        Some(_) => page("../../"),
        None => (StatusCode::NOT_FOUND, "There is no such stored run.\n").into_response(),
    }
}

async fn root_events(
    State(topics): State<Arc<Topics>>,
    Query(query): Query<HashMap<String, String>>,
    headers: HeaderMap,
) -> Response {
    topics.join(Topic::Root, after(&query, &headers))
}

async fn list_events(
    State(topics): State<Arc<Topics>>,
    Query(query): Query<HashMap<String, String>>,
    headers: HeaderMap,
) -> Response {
    topics.join(Topic::Runs, after(&query, &headers))
}

async fn run_events(
    State(topics): State<Arc<Topics>>,
    Path(id): Path<String>,
    Query(query): Query<HashMap<String, String>>,
    headers: HeaderMap,
) -> Response {
    topics.join(Topic::Run(id), after(&query, &headers))
}

async fn root_metrics(State(topics): State<Arc<Topics>>) -> Response {
    topics.scrape(Topic::Root).await
}

async fn run_metrics(State(topics): State<Arc<Topics>>, Path(id): Path<String>) -> Response {
    topics.scrape(Topic::Run(id)).await
}

/// ID of the last event that the viewer received: from the browser on its own reconnection, otherwise from the page.
fn after<'a>(query: &'a HashMap<String, String>, headers: &'a HeaderMap) -> Option<&'a str> {
    let last_event_id = headers.get("last-event-id").and_then(|id| id.to_str().ok());
    last_event_id.or(query.get("after").map(String::as_str))
}
