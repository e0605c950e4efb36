//! The two routes of agents: checks before a body is read, and the reading of it.

use std::net::SocketAddr;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::{Extension, Path, Request, State};
use axum::http::header::{CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE};
use axum::http::{HeaderMap, HeaderName};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::{Json, Router};
use http_body_util::BodyExt as _;
use sys::clock::realtime_ns;
use web::ConnectionHandle;

use super::queue::{BodyKind, Ingest, Outcome};
use crate::auth::{self, DISCARD_BYTES_MAX, Identity};
use crate::refused::Refused;
use tap_protocol::{BODY_MAX, RefusalReason};

/// Routes of agents: `/api/1/agents/NAME/hello` and `/api/1/agents/NAME/batches`.
pub fn routes(ingest: Ingest) -> Router {
    Router::new()
        .route("/api/1/agents/{name}/hello", post(hello))
        .route("/api/1/agents/{name}/batches", post(batches))
        .with_state(ingest)
}

async fn hello(
    State(ingest): State<Ingest>,
    Extension(identity): Extension<Identity>,
    Path(name): Path<String>,
    request: Request,
) -> Response {
    handle(ingest, identity, name, request, |_| Ok(Kind::Hello)).await
}

async fn batches(
    State(ingest): State<Ingest>,
    Extension(identity): Extension<Identity>,
    Path(name): Path<String>,
    request: Request,
) -> Response {
    handle(ingest, identity, name, request, |headers| {
        let zero_ns = number(headers, tap_protocol::ZERO)?;
        Ok(Kind::Batch { zero_ns, zero_error_ns: number(headers, tap_protocol::ZERO_ERROR)?.unwrap_or(0) })
    })
    .await
}

/// Kind of the request, known before the body.
enum Kind {
    Hello,
    Batch { zero_ns: Option<u64>, zero_error_ns: u64 },
}

async fn handle(
    ingest: Ingest,
    identity: Identity,
    name: String,
    request: Request,
    kind: impl FnOnce(&HeaderMap) -> Result<Kind, Refused>,
) -> Response {
    let received_unix_ns = realtime_ns();
    let headers = request.headers();
    let admitted = check_owner(&identity, &name)
        .and_then(|()| is_gzip(headers))
        .and_then(|is_gzip| Ok((is_gzip, length(headers)?, kind(headers)?)));
    let (is_gzip, length, kind) = match admitted {
        Ok(admitted) => admitted,
        Err(refused) => return auth::reject(request, refused, DISCARD_BYTES_MAX),
    };
    let peer = request.extensions().get::<ConnectionHandle>().map(ConnectionHandle::peer);
    let reservation = match ingest.reserve(&name, length.unwrap_or(BODY_MAX)) {
        Ok(reservation) => reservation,
        Err(refused) => return auth::reject(request, refused, DISCARD_BYTES_MAX),
    };
    let body = match read(request.into_body()).await {
        Ok(body) => body,
        Err((refused, rest)) => {
            auth::discard_body(rest, DISCARD_BYTES_MAX);
            return refused.into_response();
        }
    };
    let what = match kind {
        Kind::Hello => BodyKind::Hello,
        Kind::Batch { zero_ns, zero_error_ns } => BodyKind::Batch { zero_ns, zero_error_ns },
    };
    match ingest
        .submit(name, peer.map(|peer: SocketAddr| peer.ip()), what, body, is_gzip, received_unix_ns, reservation)
        .await
    {
        Ok(Outcome::Welcome(mut welcome)) => {
            welcome.answered_unix_ns = realtime_ns();
            Json(welcome).into_response()
        }
        Ok(Outcome::Stored(mut stored)) => {
            stored.answered_unix_ns = realtime_ns();
            Json(stored).into_response()
        }
        Err(refused) => refused.into_response(),
    }
}

/// Checks that the request's agent is that of its token.
fn check_owner(identity: &Identity, name: &str) -> Result<(), Refused> {
    match identity {
        Identity::Agent(agent) if agent == name => Ok(()),
        Identity::Agent(_) => {
            Err(Refused::new(RefusalReason::Forbidden, "The token belongs to another agent than the one in the URL."))
        }
        _ => Err(Refused::new(RefusalReason::Forbidden, "The token is not a token of an agent.")),
    }
}

/// Checks the media type; returns whether the body is compressed.
fn is_gzip(headers: &HeaderMap) -> Result<bool, Refused> {
    let refuse = || {
        Err(Refused::new(
            RefusalReason::UnsupportedMediaType,
            "The body must be JSON (Content-Type: application/json), plain or gzip (Content-Encoding: gzip).",
        ))
    };
    if let Some(kind) = headers.get(CONTENT_TYPE) {
        let kind = kind.to_str().unwrap_or_default().split(';').next().unwrap_or_default().trim();
        if !kind.eq_ignore_ascii_case("application/json") {
            return refuse();
        }
    }
    let mut codings = headers.get_all(CONTENT_ENCODING).iter();
    match (codings.next().map(|coding| coding.as_bytes().to_ascii_lowercase()), codings.next()) {
        (None, None) => Ok(false),
        (Some(coding), None) if coding == b"identity" => Ok(false),
        (Some(coding), None) if coding == b"gzip" => Ok(true),
        _ => refuse(),
    }
}

/// The length of the body; `None` if not declared.
fn length(headers: &HeaderMap) -> Result<Option<usize>, Refused> {
    let Some(length) = headers.get(CONTENT_LENGTH) else { return Ok(None) };
    // The server has already rejected an invalid length.
    let length = length.to_str().ok().and_then(|length| length.parse::<usize>().ok()).unwrap_or(usize::MAX);
    if length > BODY_MAX { Err(too_large()) } else { Ok(Some(length)) }
}

fn too_large() -> Refused {
    Refused::new(RefusalReason::TooLarge, format!("The body is too large: at most {BODY_MAX} bytes as sent."))
}

/// A header that is a number.
fn number(headers: &HeaderMap, name: &'static str) -> Result<Option<u64>, Refused> {
    let name = HeaderName::from_static(name);
    let mut fields = headers.get_all(&name).iter();
    let number = |field: &axum::http::HeaderValue| field.to_str().ok()?.parse::<u64>().ok();
    match (fields.next(), fields.next()) {
        (None, _) => Ok(None),
        (Some(field), None) if number(field).is_some() => Ok(number(field)),
        _ => {
            Err(Refused::new(RefusalReason::Malformed, format!("The header {name} must be one number of nanoseconds.")))
        }
    }
}

/// Reads the body; on an error returns the refusal and the rest of the body.
async fn read(mut body: Body) -> Result<Bytes, (Refused, Body)> {
    let mut bytes = Vec::new();
    let reading = async {
        while let Some(frame) = body.frame().await {
            let Ok(frame) = frame else {
                return Err(Refused::new(RefusalReason::Malformed, "The body ended early."));
            };
            if let Some(data) = frame.data_ref() {
                if bytes.len() + data.len() > BODY_MAX {
                    return Err(too_large());
                }
                bytes.extend_from_slice(data);
            }
        }
        Ok(())
    };
    let outcome = tokio::time::timeout(BODY_TIMEOUT, reading).await;
    match outcome {
        Ok(Ok(())) => Ok(bytes.into()),
        Ok(Err(refused)) => Err((refused, body)),
        Err(_) => Err((
            Refused::new(RefusalReason::Unavailable, "The body did not arrive in time. Try again."),
            Body::empty(),
        )),
    }
}

/// Timeout for a body, longer than an agent waits: 2 MB over a line of 0.3 Mbit/s.
const BODY_TIMEOUT: Duration = Duration::from_secs(60);
