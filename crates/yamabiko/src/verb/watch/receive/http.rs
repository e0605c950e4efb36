//! The receiver's end of HTTP: who may speak, how much, and for how long.

use std::convert::Infallible;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::mpsc::SyncSender;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Body, Bytes, Incoming};
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, WWW_AUTHENTICATE};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::runtime;
use tokio::sync::{Semaphore, oneshot};
use tokio::time::{sleep, timeout};

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
    closes: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Listener {
    /// Serves a socket that is bound. Events wait in `events`; while it is full, senders are asked to come again.
    ///
    /// # Errors
    /// No thread or descriptor left.
    pub fn start(socket: TcpListener, token: Option<Token>, events: SyncSender<Event>) -> io::Result<Listener> {
        socket.set_nonblocking(true)?;
        let runtime = runtime::Builder::new_current_thread().enable_io().enable_time().build()?;
        let listener = {
            let _entered = runtime.enter();
            tokio::net::TcpListener::from_std(socket)?
        };
        let (closes, closed) = oneshot::channel();
        let door = Arc::new(Door { token, events });
        let thread = thread::Builder::new().name("receive".into()).spawn(move || {
            runtime.block_on(async {
                let listening = tokio::spawn(listen(listener, door));
                // An error is the sender's being dropped, which is how it is used.
                let _ = closed.await;
                listening.abort();
            });
        })?;
        Ok(Listener { closes: Some(closes), thread: Some(thread) })
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.closes.take();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

struct Door {
    token: Option<Token>,
    events: SyncSender<Event>,
}

async fn listen(listener: tokio::net::TcpListener, door: Arc<Door>) {
    let places = Arc::new(Semaphore::new(CONNECTIONS));
    loop {
        let Ok((stream, peer)) = listener.accept().await else {
            // No descriptor is left: they come back as connections end.
            sleep(PAUSE).await;
            continue;
        };
        // Beyond the bound a connection is closed at once; a sender comes again.
        let Ok(place) = places.clone().try_acquire_owned() else { continue };
        let door = door.clone();
        tokio::spawn(async move {
            let answer = service_fn(|request| {
                let door = door.clone();
                async move { Ok::<_, Infallible>(door.answer(peer, request).await) }
            });
            let connection = http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(PATIENCE)
                .max_buf_size(HEAD_MAX)
                .serve_connection(TokioIo::new(stream), answer);
            // What a peer does wrong below HTTP ends its connection and concerns nobody else.
            let _ = connection.await;
            drop(place);
        });
    }
}

impl Door {
    async fn answer(&self, peer: SocketAddr, request: Request<Incoming>) -> Response<Full<Bytes>> {
        match self.take(request).await {
            Ok(()) => respond(StatusCode::NO_CONTENT, ""),
            Err((status, why)) => {
                // Only a notice: where they come faster than they are told, some are not told.
                let _ = self.events.try_send(Event::Refused(peer, why.clone()));
                respond(status, &why)
            }
        }
    }

    async fn take(&self, request: Request<Incoming>) -> Result<(), (StatusCode, String)> {
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
        if request.body().size_hint().lower() > BODY_MAX as u64 {
            return refused(StatusCode::PAYLOAD_TOO_LARGE, "the message is too long");
        }
        let body = match timeout(PATIENCE, Limited::new(request.into_body(), BODY_MAX).collect()).await {
            Err(_) => return refused(StatusCode::REQUEST_TIMEOUT, "the message came too slowly"),
            Ok(Err(error)) if error.is::<http_body_util::LengthLimitError>() => {
                return refused(StatusCode::PAYLOAD_TOO_LARGE, "the message is too long");
            }
            Ok(Err(_)) => return refused(StatusCode::BAD_REQUEST, "the message was cut short"),
            Ok(Ok(body)) => body.to_bytes(),
        };
        let message = message::parse(&body).map_err(|why| (StatusCode::BAD_REQUEST, why))?;
        match self.events.try_send(Event::Message(Box::new(message))) {
            Ok(()) => Ok(()),
            Err(_) => refused(StatusCode::SERVICE_UNAVAILABLE, "more comes than can be kept; come again"),
        }
    }
}

fn respond(status: StatusCode, why: &str) -> Response<Full<Bytes>> {
    let text = if why.is_empty() { String::new() } else { format!("{why}\n") };
    let mut response = Response::new(Full::new(Bytes::from(text)));
    *response.status_mut() = status;
    if status == StatusCode::UNAUTHORIZED {
        response.headers_mut().insert(WWW_AUTHENTICATE, hyper::header::HeaderValue::from_static("Bearer"));
    }
    response
}

/// Connections at once.
const CONNECTIONS: usize = 128;
/// For the head of a request, and for its body.
const PATIENCE: Duration = Duration::from_secs(10);
/// Bytes of a request's head.
const HEAD_MAX: usize = 16 * 1024;
const PAUSE: Duration = Duration::from_millis(100);
