//! The receiver's HTTP server: which requests are accepted. The crate `web` limits connections, request heads and times, with a separate limit for
//! connections that have not shown the token.

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

use super::sessions::{Full, Sessions};
use crate::token::Token;
use crate::verb::watch::message::{self, BODY_MAX, Message, PATH};

/// What came.
pub enum Event {
    /// A message that is whole and sound.
    Message(Box<Message>),
    /// A request that was turned away, from where and why.
    Refused(SocketAddr, String),
}

/// Listens until dropped.
pub struct Listener {
    address: SocketAddr,
    _open: RunningServer,
}

impl Listener {
    /// Listens on `address`. Events wait in `events`; while it is full, senders are asked to come again.
    ///
    /// # Errors
    /// The address cannot be had; no thread or descriptor is left.
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
            bounds: Bounds { connections: CONNECTIONS, body: BODY_MAX, head: HEAD_MAX, timeout: PATIENCE },
            // The token is what counts: senders use whatever name they know this host by.
            any_host: true,
            unauthenticated: Some(UnauthenticatedLimits { connections: CONNECTIONS, timeout: PATIENCE }),
            refusals: None,
        };
        let server = Server::bind(settings)?;
        let address = server.address();
        let receiver = Arc::new(Receiver { clock: Clock::start(), token, events, sessions });
        let router = Router::new().fallback(answer).with_state(receiver);
        Ok(Listener { address, _open: server.start(router, || {})? })
    }

    /// Where it listens, with the port that it got.
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
    match receiver.take(request).await {
        Ok(()) => StatusCode::NO_CONTENT.into_response(),
        Err((status, why)) => {
            if let Some(peer) = peer {
                // Only a notice: where they come faster than they are told, some are not told.
                let _ = receiver.events.try_send(Event::Refused(peer, why.clone()));
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
    async fn take(&self, request: Request<Body>) -> Result<(), (StatusCode, String)> {
        let refused = |status, why: &str| Err((status, why.to_owned()));
        if let Some(token) = &self.token {
            let header = request.headers().get(AUTHORIZATION);
            if !header.is_some_and(|header| token.is_in(header.as_bytes())) {
                let what = if header.is_some() { "wrong token" } else { "no token" };
                return refused(StatusCode::UNAUTHORIZED, what);
            }
        }
        if request.uri().path() != PATH {
            return refused(StatusCode::NOT_FOUND, "no such page: this takes the series of `yamabiko watch --to`");
        }
        if request.method() != Method::POST {
            return refused(StatusCode::METHOD_NOT_ALLOWED, "only POST is taken");
        }
        if request.headers().get(CONTENT_TYPE).is_none_or(|kind| kind != message::CONTENT_TYPE) {
            return refused(StatusCode::UNSUPPORTED_MEDIA_TYPE, "the content type is another");
        }
        // It is a sender: it has the token, or is on loopback and asks for the right thing. The connection limit is shared out by address.
        if let Some(connection) = request.extensions().get::<ConnectionHandle>() {
            connection.authenticate(&connection.peer().ip().to_string());
        }
        let body = match timeout(PATIENCE, Limited::new(request.into_body(), BODY_MAX).collect()).await {
            Err(_) => return refused(StatusCode::REQUEST_TIMEOUT, "the message came too slowly"),
            Ok(Err(error)) if is_too_long(&*error) => {
                return refused(StatusCode::PAYLOAD_TOO_LARGE, "the message is too long");
            }
            Ok(Err(_)) => return refused(StatusCode::BAD_REQUEST, "the message was cut short"),
            Ok(Ok(body)) => body.to_bytes(),
        };
        let message = message::parse(&body).map_err(|why| (StatusCode::BAD_REQUEST, why))?;
        let session = message.head.session.clone();
        let indices = message.rows.iter().map(|row| row.index);
        let is_new = self.sessions.enter(&session, indices, self.clock.now()).map_err(|full| {
            let status = match full {
                Full::Series(_) | Full::Begun(_) => StatusCode::SERVICE_UNAVAILABLE,
                Full::Seconds => StatusCode::TOO_MANY_REQUESTS,
            };
            (status, full.to_string())
        })?;
        self.events.try_send(Event::Message(Box::new(message))).map_err(|_| {
            if is_new {
                self.sessions.end(&session);
            }
            (StatusCode::SERVICE_UNAVAILABLE, "more comes than can be kept; come again".to_owned())
        })
    }
}

/// Whether a body was longer than is taken, whichever of those who hold it to that said so.
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

/// Connections of senders at once, and as many of those who have not shown a token yet.
const CONNECTIONS: usize = 128;
/// For the head of a request, and for its body.
const PATIENCE: Duration = Duration::from_secs(10);
/// Bytes of a request's head.
const HEAD_MAX: usize = 16 * 1024;
