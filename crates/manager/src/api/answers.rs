//! What is answered, and where the work for it is done.
//!
//! A handler looks at the request on the door's thread, which must not wait, and does the rest by [`Work`]: on a thread of its
//! own, so many at once and no more.

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
use tap_protocol::Why;

/// What was asked for, or why not.
pub(super) type Answer<T> = Result<T, Refused>;

/// Not done, and why.
pub(super) fn refused(why: Why, message: impl Into<String>) -> Refused {
    Refused::new(why, message)
}

/// The request is not of the shape that it should be.
pub(super) fn malformed(message: impl Into<String>) -> Refused {
    refused(Why::Malformed, message)
}

/// A value as JSON.
pub(super) fn json<T: Serialize>(value: &T) -> Response {
    Json(value).into_response()
}

/// Nothing to say but that it is done.
pub(super) fn done() -> Response {
    StatusCode::NO_CONTENT.into_response()
}

/// The request's body, JSON of this shape and nothing else.
pub(super) async fn body<T: DeserializeOwned>(request: Request) -> Answer<T> {
    is_json(request.headers())?;
    let bytes = axum::body::to_bytes(request.into_body(), BODY_MAX).await;
    let bytes = bytes.map_err(|_| refused(Why::TooLarge, "The body is longer than 64 KB, or broke off."))?;
    serde_json::from_slice(&bytes).map_err(|error| {
        // The text of the error may repeat what was sent: its place does not.
        malformed(format!(
            "The body is no JSON of the shape that openapi.json has for this: line {}, column {}.",
            error.line(),
            error.column()
        ))
    })
}

fn is_json(headers: &HeaderMap) -> Answer<()> {
    let kind = headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let essence = kind.split(';').next().unwrap_or_default().trim();
    if essence.eq_ignore_ascii_case("application/json") {
        return Ok(());
    }
    Err(refused(Why::MediaType, "The body must be JSON, and the request say so: `Content-Type: application/json`."))
}

/// Places for work that reads the disk.
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
    /// Does something that takes milliseconds. Who comes while all places are taken waits.
    pub(super) async fn short<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> Answer<T> + Send + 'static,
    ) -> Answer<T> {
        let place = Arc::clone(&self.short).acquire_owned().await.map_err(|_| broken())?;
        on_a_thread(place, work).await
    }

    /// A place for something that may take seconds, such as reading the files of many days; refused where all are taken.
    pub(super) fn place(&self) -> Answer<OwnedSemaphorePermit> {
        Arc::clone(&self.long)
            .try_acquire_owned()
            .map_err(|_| refused(Why::TooMany, "Too many look through the files already. Try again in a few seconds."))
    }

    /// Does something that may take seconds.
    pub(super) async fn long<T: Send + 'static>(&self, work: impl FnOnce() -> Answer<T> + Send + 'static) -> Answer<T> {
        on_a_thread(self.place()?, work).await
    }
}

async fn on_a_thread<T: Send + 'static>(
    place: OwnedSemaphorePermit,
    work: impl FnOnce() -> Answer<T> + Send + 'static,
) -> Answer<T> {
    let done = tokio::task::spawn_blocking(move || {
        let outcome = work();
        drop(place);
        outcome
    });
    // It fails where the work panicked; the place is free then, too.
    done.await.map_err(|_| broken())?
}

fn broken() -> Refused {
    refused(Why::Unavailable, "This broke the thread that did it. Please report it, with the request.")
}

/// Bytes of a body that the API takes; batches come by another way.
const BODY_MAX: usize = 64 << 10;
/// Questions to the index at once.
const SHORT_MAX: usize = 8;
/// Readers of files at once: each may hold a processor.
const LONG_MAX: usize = 4;
