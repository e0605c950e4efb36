//! Identity may come in, and how others are told that they may not.
//!
//! ```text
//!   request ──▶ outermost: is it refused? told, counted, logged       every answer from 400 on, whoever made it
//!                  └──▶ bearer: token ─SHA-256─▶ index ──▶ Identity ──▶ handlers      before a byte of the body is read
//! ```
//!
//! A token is looked for with every request, so that one that was revoked is worth nothing from then on, on open connections as
//! well. An unknown one costs a hash and one look into an index. A connection on which a good token was shown is a known one
//! from then on ([`web::Arrived::greet`]); until then it is a stranger's, and short-lived.

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
use web::Arrived;

use crate::data::Data;
use crate::notes::Notes;
use crate::refused::Refused;
use crate::tokens::{self, Role};
use tap_protocol::Why;

/// Identity makes a request: an extension of every request that comes past the gate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Identity {
    /// An agent, by the name of its token. It has its own two routes and no others.
    Agent(String),
    /// Reads and changes.
    Operator(String),
    /// Reads.
    Reader(String),
    /// Identity has the secret of the page's URL: reads and changes.
    Page,
}

impl Identity {
    /// The token's name; `page` for the page.
    pub fn name(&self) -> &str {
        match self {
            Identity::Agent(name) | Identity::Operator(name) | Identity::Reader(name) => name,
            Identity::Page => "page",
        }
    }

    /// Whether it may read what agents saw.
    pub fn reads(&self) -> bool {
        !matches!(self, Identity::Agent(_))
    }

    /// Whether it may change settings, rules and groups.
    pub fn changes(&self) -> bool {
        matches!(self, Identity::Operator(_) | Identity::Page)
    }
}

/// What the gate needs.
#[derive(Clone)]
pub(crate) struct Auth {
    pub(crate) data: Arc<Data>,
    pub(crate) notes: Notes,
}

impl Auth {
    /// The door for tokens: `router` behind the look at them.
    pub(crate) fn before(self, router: Router) -> Router {
        let inner = finish(router).layer(from_fn_with_state(self.clone(), bearer));
        inner.layer(from_fn_with_state(self, tell))
    }

    /// The page's door, whose URL has the secret: whoever comes this far is [`Identity::Page`].
    pub(crate) fn before_page(self, router: Router) -> Router {
        let inner = finish(router).layer(axum::middleware::from_fn(page));
        inner.layer(from_fn_with_state(self, tell))
    }
}

/// What is not there, and what is not done so, is refused as all else is.
fn finish(router: Router) -> Router {
    router.method_not_allowed_fallback(|| async { Refused::method() }).fallback(|| async { Refused::not_found() })
}

async fn bearer(State(auth): State<Auth>, mut request: Request, next: Next) -> Response {
    let known = match token_of(request.headers()) {
        Some(token) => auth.data.read(|index| tokens::find(index, &tokens::digest(token))),
        None => Ok(None),
    };
    match known {
        Ok(Some((name, role))) => {
            auth.notes.token_used(&name, role);
            if let Some(arrived) = request.extensions().get::<Arrived>() {
                arrived.greet(&format!("{} {name}", role.as_str()));
            }
            let who = match role {
                Role::Agent => Identity::Agent(name),
                Role::Operator => Identity::Operator(name),
                Role::Reader => Identity::Reader(name),
            };
            request.extensions_mut().insert(who.clone());
            let mut response = next.run(request).await;
            response.extensions_mut().insert(who);
            response
        }
        Ok(None) => {
            let refused = Refused::new(
                Why::Unauthenticated,
                "Authentication needed: `Authorization: Bearer TOKEN`. `yamabiko tap manager token add NAME` creates a \
                 token; a revoked token is not valid.",
            );
            reject(request, refused, DISCARD_BYTES_MAX)
        }
        Err(error) => {
            auth.notes.trouble(&format!("reading the token: {error}"));
            reject(request, Refused::new(Why::Unavailable, "The index cannot be read now."), 0)
        }
    }
}

async fn page(mut request: Request, next: Next) -> Response {
    if let Some(arrived) = request.extensions().get::<Arrived>() {
        arrived.greet("page");
    }
    request.extensions_mut().insert(Identity::Page);
    let mut response = next.run(request).await;
    response.extensions_mut().insert(Identity::Page);
    response
}

/// Outermost: whatever was refused, and by whom, is counted, and told to the log.
async fn tell(State(auth): State<Auth>, request: Request, next: Next) -> Response {
    let arrived = request.extensions().get::<Arrived>().cloned();
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
            Some(who) => who.name(),
            None => "",
        };
        let peer = arrived.map(|arrived| arrived.peer());
        auth.notes.refused(&refused, status.as_u16(), name, peer, &format!("{method} {path}"));
    }
    response
}

/// An answer of the framework's own making, as the JSON that all others are.
fn as_refusal(theirs: Response, refused: &Refused) -> Response {
    let mut ours = refused.clone().into_response();
    *ours.status_mut() = theirs.status();
    for name in [ALLOW, RETRY_AFTER] {
        if let Some(value) = theirs.headers().get(&name) {
            ours.headers_mut().insert(name, value.clone());
        }
    }
    if let Some(who) = theirs.extensions().get::<Identity>() {
        ours.extensions_mut().insert(who.clone());
    }
    ours
}

/// What a handler has refused in words of its own.
fn by_status(status: StatusCode) -> Refused {
    let why = match status.as_u16() {
        401 => Why::Unauthenticated,
        403 => Why::Forbidden,
        404 => Why::NotFound,
        405 => Why::MethodNotAllowed,
        409 => Why::AlreadyStored,
        413 => Why::TooLarge,
        415 => Why::UnsupportedMediaType,
        422 => Why::InvalidValue,
        429 => Why::TooManyRequests,
        500.. => Why::Unavailable,
        _ => Why::Malformed,
    };
    Refused::new(
        why,
        format!("{}. /api/1/openapi.json describes all requests.", status.canonical_reason().unwrap_or("Refused")),
    )
}

/// The answer, while what the client still sends runs into the void, up to `most` bytes: who is cut off in the middle of sending
/// mostly does not read the answer. Identity asks first whether to send a body has not sent it.
pub(crate) fn reject(request: Request, refused: Refused, most: usize) -> Response {
    let asks_first = request.headers().contains_key(EXPECT);
    let body = request.into_body();
    if !asks_first && most > 0 {
        discard_body(body, most);
    }
    refused.into_response()
}

/// See [`reject`].
pub(crate) fn discard_body(body: Body, most: usize) {
    tokio::spawn(async move {
        let mut body = body;
        let mut left = most;
        let run_out = async {
            while let Some(Ok(frame)) = body.frame().await {
                left = left.saturating_sub(frame.data_ref().map_or(0, |bytes| bytes.len()));
                if left == 0 {
                    break;
                }
            }
        };
        let _ = tokio::time::timeout(DISCARD_TIMEOUT, run_out).await;
    });
}

fn token_of(headers: &HeaderMap) -> Option<&[u8]> {
    let mut fields = headers.get_all(AUTHORIZATION).iter();
    let (Some(field), None) = (fields.next(), fields.next()) else { return None };
    let (scheme, token) = field.as_bytes().split_at_checked(BEARER.len())?;
    (scheme.eq_ignore_ascii_case(BEARER) && token.len() <= tokens::TEXT_MAX).then_some(token)
}

const BEARER: &[u8] = b"Bearer ";
/// Bytes that are let run out, so that who sends them hears why they were not wanted: several times what a batch may have. Identity
/// shows no token pays for them more than they cost here.
pub(crate) const DISCARD_BYTES_MAX: usize = 8 << 20;
const DISCARD_TIMEOUT: Duration = Duration::from_secs(2);

#[cfg(test)]
mod tests;
