//! The receiver's HTTP server: decides which requests are accepted. The crate `web` limits connections, request heads
//! and times, with a separate limit for unauthenticated connections.

use std::sync::Arc;
use std::sync::mpsc::SyncSender;
use std::time::Duration;

use anyhow::Result;
use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use http::header::{AUTHORIZATION, CONTENT_TYPE, WWW_AUTHENTICATE};
use http::{Method, StatusCode};
use http_body_util::{BodyExt, Limited};
use std::net::SocketAddr;
use sys::clock::Clock;
use tokio::time::timeout;
use web::{Bounds, ConnectionHandle, Key, RunningServer, Server, Settings, UnauthenticatedLimits};

use super::sessions::{LimitReached, Sessions};
use crate::token::Token;
use crate::verb::watch::message::{self, BODY_MAX, Message, PATH};

/// A request that the receiver accepted or refused.
pub enum Event {
    /// A complete and valid message.
    Message(Box<Message>),
    /// A refused message: where it came from, and the reason.
    Refused(String, String),
    /// A line for the user.
    Note(String),
    /// Receiving has ended: the reason.
    Failed(String),
}

/// Listens until dropped.
pub struct Listener {
    address: SocketAddr,
    _open: RunningServer,
}

impl Listener {
    /// Listens on `address`. Events wait in `events`; while the queue is full, senders receive status 503 and retry.
    ///
    /// # Errors
    /// The address cannot be bound, or no thread or descriptor is available.
    pub fn start(
        address: SocketAddr,
        token: Option<Token>,
        events: SyncSender<Event>,
        sessions: Sessions,
    ) -> Result<Listener> {
        let settings = Settings {
            listen: address,
            hosts: Vec::new(),
            key: Key::None,
            tls: None,
            read_only: false,
            bounds: Bounds { connections: CONNECTIONS, body: BODY_MAX, head: HEAD_MAX, timeout: READ_TIMEOUT },
            // The token authenticates senders, so any host name is accepted in the `Host` header.
            any_host: true,
            unauthenticated: Some(UnauthenticatedLimits { connections: CONNECTIONS, timeout: READ_TIMEOUT }),
            refusals: None,
        };
        let server = Server::bind(settings)?;
        let address = server.address();
        let receiver = Arc::new(Receiver { clock: Clock::start(), token, events, sessions });
        let router = Router::new().fallback(answer).with_state(receiver);
        Ok(Listener { address, _open: server.start(router, || {})? })
    }

    /// The bound address, with the actual port.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

struct Receiver {
    clock: Clock,
    token: Option<Token>,
    events: SyncSender<Event>,
    sessions: Sessions,
}

async fn answer(State(receiver): State<Arc<Receiver>>, request: Request) -> Response {
    let peer = request.extensions().get::<ConnectionHandle>().map(ConnectionHandle::peer);
    match receiver.accept(request).await {
        Ok(()) => StatusCode::NO_CONTENT.into_response(),
        Err((status, why)) => {
            if let Some(peer) = peer {
                // A refusal is only reported; while the queue is full, refusals go unreported.
                let _ = receiver.events.try_send(Event::Refused(peer.to_string(), why.clone()));
            }
            let mut response = (status, format!("{why}\n")).into_response();
            if status == StatusCode::UNAUTHORIZED {
                response.headers_mut().insert(WWW_AUTHENTICATE, http::header::HeaderValue::from_static("Bearer"));
            }
            response
        }
    }
}

impl Receiver {
    /// Checks a request and queues its message; otherwise the status and reason of the refusal.
    async fn accept(&self, request: Request<Body>) -> Result<(), (StatusCode, String)> {
        let refused = |status, why: &str| Err((status, why.to_owned()));
        if let Some(token) = &self.token {
            let header = request.headers().get(AUTHORIZATION);
            if !header.is_some_and(|header| token.is_in(header.as_bytes())) {
                let what = if header.is_some() { "wrong token" } else { "no token" };
                return refused(StatusCode::UNAUTHORIZED, what);
            }
        }
        if request.uri().path() != PATH {
            return refused(
                StatusCode::NOT_FOUND,
                "not found: this server receives the series of `yamabiko watch --to`",
            );
        }
        if request.method() != Method::POST {
            return refused(StatusCode::METHOD_NOT_ALLOWED, "only POST is accepted");
        }
        if request.headers().get(CONTENT_TYPE).is_none_or(|kind| kind != message::CONTENT_TYPE) {
            return refused(StatusCode::UNSUPPORTED_MEDIA_TYPE, "the content type is not that of a series");
        }
        // The peer is a sender: it has the token, or is on loopback and uses the right method, path and type. From here
        // on the connection counts as authenticated, with a limit per address.
        if let Some(arrived) = request.extensions().get::<ConnectionHandle>() {
            arrived.authenticate(&arrived.peer().ip().to_string());
        }
        let body = match timeout(READ_TIMEOUT, Limited::new(request.into_body(), BODY_MAX).collect()).await {
            Err(_) => return refused(StatusCode::REQUEST_TIMEOUT, "the message arrived too slowly"),
            Ok(Err(error)) if is_too_long(&*error) => {
                return refused(StatusCode::PAYLOAD_TOO_LARGE, "the message is too long");
            }
            Ok(Err(_)) => return refused(StatusCode::BAD_REQUEST, "the message is incomplete"),
            Ok(Ok(body)) => body.to_bytes(),
        };
        let message = message::parse(&body).map_err(|why| (StatusCode::BAD_REQUEST, why))?;
        let session = message.head.session.clone();
        let indices = message.rows.iter().map(|row| row.index);
        let is_new = self.sessions.enter(&session, indices, self.clock.now()).map_err(|limit| {
            let status = match limit {
                LimitReached::Series(_) | LimitReached::NewSeries(_) => StatusCode::SERVICE_UNAVAILABLE,
                LimitReached::Seconds => StatusCode::TOO_MANY_REQUESTS,
            };
            (status, limit.to_string())
        })?;
        self.events.try_send(Event::Message(Box::new(message))).map_err(|_| {
            if is_new {
                self.sessions.end(&session);
            }
            (StatusCode::SERVICE_UNAVAILABLE, "too many messages are waiting; retry later".to_owned())
        })
    }
}

/// Whether an error, or one of its causes, is that the body exceeds its limit.
fn is_too_long(error: &(dyn std::error::Error + 'static)) -> bool {
    let mut cause = Some(error);
    while let Some(error) = cause {
        if error.is::<http_body_util::LengthLimitError>() {
            return true;
        }
        cause = error.source();
    }
    false
}

/// Most concurrent connections of senders, and as many unauthenticated ones.
const CONNECTIONS: usize = 128;
/// How long a request's head may take, and its body.
const READ_TIMEOUT: Duration = Duration::from_secs(10);
/// Most bytes of a request's head.
const HEAD_MAX: usize = 16 * 1024;
