//! Responses of the API, and the threads that compute them.
//!
//! A handler parses the request on the server's thread, which must not block, and does the rest with [`Work`]: on a
//! limited number of separate threads.

use std::sync::Arc;

use axum::Json;
use axum::extract::Request;
use axum::response::{IntoResponse as _, Response};
use http::header::CONTENT_TYPE;
use http::{HeaderMap, StatusCode};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::refused::Refused;
use tap_protocol::RefusalReason;

/// The result of a handler, or the refusal.
pub(super) type ApiResponse<T> = Result<T, Refused>;

/// A refusal with its reason.
pub(super) fn refused(why: RefusalReason, message: impl Into<String>) -> Refused {
    Refused::new(why, message)
}

/// The request has an invalid format.
pub(super) fn malformed(message: impl Into<String>) -> Refused {
    refused(RefusalReason::Malformed, message)
}

/// A value as JSON.
pub(super) fn json<T: Serialize>(value: &T) -> Response {
    Json(value).into_response()
}

/// A response without a body.
pub(super) fn done() -> Response {
    StatusCode::NO_CONTENT.into_response()
}

/// The request's body: JSON of this type only.
pub(super) async fn body<T: DeserializeOwned>(request: Request) -> ApiResponse<T> {
    is_json(request.headers())?;
    let bytes = axum::body::to_bytes(request.into_body(), BODY_MAX).await;
    let bytes =
        bytes.map_err(|_| refused(RefusalReason::TooLarge, "The body is longer than 64 KB, or ended early."))?;
    serde_json::from_slice(&bytes).map_err(|error| {
        // The text of the error may repeat the input: only its position is sent.
        malformed(format!(
            "The body is not JSON as described in openapi.json: line {}, column {}.",
            error.line(),
            error.column()
        ))
    })
}

fn is_json(headers: &HeaderMap) -> ApiResponse<()> {
    let kind = headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let essence = kind.split(';').next().unwrap_or_default().trim();
    if essence.eq_ignore_ascii_case("application/json") {
        return Ok(());
    }
    Err(refused(
        RefusalReason::UnsupportedMediaType,
        "The body must be JSON with the header `Content-Type: application/json`.",
    ))
}

/// Limits of the threads that read the disk.
#[derive(Clone, Debug)]
pub(super) struct Work {
    short: Arc<Semaphore>,
    long: Arc<Semaphore>,
}

impl Default for Work {
    fn default() -> Self {
        Work { short: Arc::new(Semaphore::new(SHORT_MAX)), long: Arc::new(Semaphore::new(LONG_MAX)) }
    }
}

impl Work {
    /// Does work of milliseconds. Waits while all threads are busy.
    pub(super) async fn short<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> ApiResponse<T> + Send + 'static,
    ) -> ApiResponse<T> {
        let permit = Arc::clone(&self.short).acquire_owned().await.map_err(|_| broken())?;
        on_a_thread(permit, work).await
    }

    /// A permit for work of seconds, such as reading the files of many days; refused if all are taken.
    pub(super) fn long_permit(&self) -> ApiResponse<OwnedSemaphorePermit> {
        Arc::clone(&self.long).try_acquire_owned().map_err(|_| {
            refused(
                RefusalReason::TooManyRequests,
                "Too many requests read the files at the same time. Try again in a few \
             seconds.",
            )
        })
    }

    /// Does work of seconds.
    pub(super) async fn long<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> ApiResponse<T> + Send + 'static,
    ) -> ApiResponse<T> {
        on_a_thread(self.long_permit()?, work).await
    }
}

async fn on_a_thread<T: Send + 'static>(
    permit: OwnedSemaphorePermit,
    work: impl FnOnce() -> ApiResponse<T> + Send + 'static,
) -> ApiResponse<T> {
    let done = tokio::task::spawn_blocking(move || {
        let outcome = work();
        drop(permit);
        outcome
    });
    // The join fails if the work panicked; the permit is released in that case, too.
    done.await.map_err(|_| broken())?
}

fn broken() -> Refused {
    refused(
        RefusalReason::Unavailable,
        "Internal error while handling the request. Please report it, with the request.",
    )
}

/// Maximum bytes of a request body; batches have another limit.
const BODY_MAX: usize = 64 << 10;
/// Maximum concurrent index queries.
const SHORT_MAX: usize = 8;
/// Maximum concurrent file readers: each may use a core.
const LONG_MAX: usize = 4;
