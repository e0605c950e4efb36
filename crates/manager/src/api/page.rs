//! The page: HTML, its files, and the stream of changes. Its writes use the API.

use std::collections::HashMap;

use axum::Router;
use axum::body::Bytes;
use axum::extract::{Query, State as With};
use axum::middleware::from_fn;
use axum::response::Response;
use axum::routing::get;
use http::HeaderMap;

use super::{State, admit};

/// The page and the API, behind the authentication of the page's server.
pub fn router(state: State) -> Router {
    let mut router: Router<State> = Router::new()
        .route("/", get(|| async { web::page("text/html; charset=utf-8", report::fleet::html()) }))
        .route("/events", get(events));
    for asset in report::fleet::assets() {
        let text = Bytes::from(asset.text);
        let respond = move || {
            let text = text.clone();
            async move { web::page(asset.kind, text) }
        };
        router = router.route(&format!("/{}", asset.name), get(respond));
    }
    let page = router.layer(from_fn(admit)).with_state(state.clone());
    page.merge(super::router(state))
}

async fn events(
    With(state): With<State>,
    Query(query): Query<HashMap<String, String>>,
    headers: HeaderMap,
) -> Response {
    // The last event received: the browser sends it on reconnect, otherwise the page does.
    let last_event_id = headers.get("last-event-id").and_then(|id| id.to_str().ok());
    let response = state.hub.join(last_event_id.or(query.get("after").map(String::as_str)));
    // The stored state may be old if there was no viewer for a while.
    state.signal.notify();
    response
}
