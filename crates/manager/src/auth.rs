//! Authentication of requests, and the responses to those that fail it.
//!
//! ```text
//!   request ──▶ outermost: counts and logs every refusal               all responses from status 400 on
//!                  └──▶ bearer: token ─SHA-256─▶ index ──▶ Identity ──▶ handlers      before a byte of the body is read
//! ```
//!
//! The token is looked up with every request, so that a revoked token is rejected immediately, on open connections as
//! well. An unknown token costs a hash and one index lookup. A connection with a valid token counts as authenticated
//! ([`web::ConnectionHandle::authenticate`]); until then it is limited in number and time.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::header::{ALLOW, AUTHORIZATION, EXPECT, RETRY_AFTER};
use axum::http::{HeaderMap, StatusCode};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use http_body_util::BodyExt as _;
use web::ConnectionHandle;

use crate::data::Data;
use crate::notes::Notes;
use crate::refused::Refused;
use crate::tokens::{self, Role};
use tap_protocol::RefusalReason;

/// The identity of a client: an extension of every authenticated request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Identity {
    /// An agent, by the name of its token. It may use only its own two routes.
    Agent(String),
    /// Reads and changes.
    Operator(String),
    /// Reads.
    Reader(String),
    /// A viewer of the page, by the secret in its URL: reads and changes.
    Page,
}

impl Identity {
    /// Name of the token; `page` for a viewer of the page.
    pub fn name(&self) -> &str {
        match self {
            Identity::Agent(name) | Identity::Operator(name) | Identity::Reader(name) => name,
            Identity::Page => "page",
        }
    }

    /// Whether it may read data.
    pub fn reads(&self) -> bool {
        !matches!(self, Identity::Agent(_))
    }

    /// Whether it may change settings, rules and groups.
    pub fn changes(&self) -> bool {
        matches!(self, Identity::Operator(_) | Identity::Page)
    }
}

/// State of the authentication.
#[derive(Clone)]
pub(crate) struct Auth {
    pub(crate) data: Arc<Data>,
    pub(crate) notes: Notes,
}

impl Auth {
    /// Requires a token for `router`.
    pub(crate) fn before(self, router: Router) -> Router {
        let inner = finish(router).layer(from_fn_with_state(self.clone(), bearer));
        inner.layer(from_fn_with_state(self, log_refusal))
    }

    /// Authenticates requests of the page's server, whose URL has the secret: all are [`Identity::Page`].
    pub(crate) fn before_page(self, router: Router) -> Router {
        let inner = finish(router).layer(axum::middleware::from_fn(page));
        inner.layer(from_fn_with_state(self, log_refusal))
    }
}

/// Adds refusals in the common format for unknown paths and methods.
fn finish(router: Router) -> Router {
    router.method_not_allowed_fallback(|| async { Refused::method() }).fallback(|| async { Refused::not_found() })
}

async fn bearer(State(auth): State<Auth>, mut request: Request, next: Next) -> Response {
    let token_owner = match token_of(request.headers()) {
        Some(token) => auth.data.read(|index| tokens::find(index, &tokens::digest(token))),
        None => Ok(None),
    };
    match token_owner {
        Ok(Some((name, role))) => {
            auth.notes.token_used(&name, role);
            if let Some(connection) = request.extensions().get::<ConnectionHandle>() {
                connection.authenticate(&format!("{} {name}", role.as_str()));
            }
            let identity = match role {
                Role::Agent => Identity::Agent(name),
                Role::Operator => Identity::Operator(name),
                Role::Reader => Identity::Reader(name),
            };
            request.extensions_mut().insert(identity.clone());
            let mut response = next.run(request).await;
            response.extensions_mut().insert(identity);
            response
        }
        Ok(None) => {
            let refused = Refused::new(
                RefusalReason::Unauthenticated,
                "Authentication needed: `Authorization: Bearer TOKEN`. `yamabiko tap manager token add NAME` creates a \
                 token; a revoked token is not valid.",
            );
            reject(request, refused, DISCARD_BYTES_MAX)
        }
        Err(error) => {
            auth.notes.trouble(&format!("reading the token: {error}"));
            reject(request, Refused::new(RefusalReason::Unavailable, "The index cannot be read now."), 0)
        }
    }
}

async fn page(mut request: Request, next: Next) -> Response {
    if let Some(connection) = request.extensions().get::<ConnectionHandle>() {
        connection.authenticate("page");
    }
    request.extensions_mut().insert(Identity::Page);
    let mut response = next.run(request).await;
    response.extensions_mut().insert(Identity::Page);
    response
}

/// The outermost layer: counts and logs all refusals.
async fn log_refusal(State(auth): State<Auth>, request: Request, next: Next) -> Response {
    let connection = request.extensions().get::<ConnectionHandle>().cloned();
    let method = request.method().clone();
    let path = request.uri().path().to_owned();
    let mut response = next.run(request).await;
    let status = response.status();
    if status.as_u16() >= 400 {
        let refused = match response.extensions_mut().remove::<Refused>() {
            Some(refused) => refused,
            None => {
                let refused = by_status(status);
                response = as_refusal(response, &refused);
                refused
            }
        };
        let name = match response.extensions().get::<Identity>() {
            Some(identity) => identity.name(),
            None => "",
        };
        let peer = connection.map(|connection| connection.peer());
        auth.notes.refused(&refused, status.as_u16(), name, peer, &format!("{method} {path}"));
    }
    response
}

/// Turns a response of the framework into JSON like all others.
fn as_refusal(original: Response, refused: &Refused) -> Response {
    let mut json = refused.clone().into_response();
    *json.status_mut() = original.status();
    for name in [ALLOW, RETRY_AFTER] {
        if let Some(value) = original.headers().get(&name) {
            json.headers_mut().insert(name, value.clone());
        }
    }
    if let Some(identity) = original.extensions().get::<Identity>() {
        json.extensions_mut().insert(identity.clone());
    }
    json
}

/// A refusal by a handler, with its text.
fn by_status(status: StatusCode) -> Refused {
    let why = match status.as_u16() {
        401 => RefusalReason::Unauthenticated,
        403 => RefusalReason::Forbidden,
        404 => RefusalReason::NotFound,
        405 => RefusalReason::MethodNotAllowed,
        409 => RefusalReason::AlreadyStored,
        413 => RefusalReason::TooLarge,
        415 => RefusalReason::UnsupportedMediaType,
        422 => RefusalReason::InvalidValue,
        429 => RefusalReason::TooManyRequests,
        500.. => RefusalReason::Unavailable,
        _ => RefusalReason::Malformed,
    };
    Refused::new(
        why,
        format!("{}. /api/1/openapi.json describes all requests.", status.canonical_reason().unwrap_or("Refused")),
    )
}

/// Sends the response while up to `bytes_max` bytes of the request body are discarded: a client that is cut off while
/// sending often does not read the response. A client that waits for 100-continue has not sent a body.
pub(crate) fn reject(request: Request, refused: Refused, bytes_max: usize) -> Response {
    let waits_for_continue = request.headers().contains_key(EXPECT);
    let body = request.into_body();
    if !waits_for_continue && bytes_max > 0 {
        discard_body(body, bytes_max);
    }
    refused.into_response()
}

/// Discards up to `bytes_max` bytes of a body, in a task of its own: see [`reject`].
pub(crate) fn discard_body(body: Body, bytes_max: usize) {
    tokio::spawn(async move {
        let mut body = body;
        let mut bytes_left = bytes_max;
        let discard = async {
            while let Some(Ok(frame)) = body.frame().await {
                bytes_left = bytes_left.saturating_sub(frame.data_ref().map_or(0, |bytes| bytes.len()));
                if bytes_left == 0 {
                    break;
                }
            }
        };
        let _ = tokio::time::timeout(DISCARD_TIMEOUT, discard).await;
    });
}

fn token_of(headers: &HeaderMap) -> Option<&[u8]> {
    let mut fields = headers.get_all(AUTHORIZATION).iter();
    let (Some(field), None) = (fields.next(), fields.next()) else { return None };
    let (scheme, token) = field.as_bytes().split_at_checked(BEARER.len())?;
    (scheme.eq_ignore_ascii_case(BEARER) && token.len() <= tokens::TEXT_MAX).then_some(token)
}

const BEARER: &[u8] = b"Bearer ";
/// Bytes of a refused body that are discarded, so that the client reads the reason: several times the maximum of a
/// batch. This costs an unauthenticated client more than the manager.
pub(crate) const DISCARD_BYTES_MAX: usize = 8 << 20;
/// Maximum time to discard a refused body.
const DISCARD_TIMEOUT: Duration = Duration::from_secs(2);

#[cfg(test)]
mod tests;
