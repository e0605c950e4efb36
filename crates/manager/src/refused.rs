//! A refused request: kind, message and response.

use axum::Json;
use axum::http::header::{CONNECTION, RETRY_AFTER, WWW_AUTHENTICATE};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use tap_protocol::{Refusal, RefusalReason};

/// A refused request as a response: JSON as [`tap_protocol::Refusal`](Refusal). The authentication layer logs and
/// counts it.
#[derive(Clone, Debug, PartialEq)]
pub struct Refused {
    /// The reason.
    pub why: RefusalReason,
    /// Explanation and what to do. The text repeats nothing of the request.
    pub message: String,
    /// See [`Refusal::stored_through`].
    pub stored_through: Option<u64>,
    /// Seconds after which to retry.
    pub retry_after_s: Option<u32>,
}

impl Refused {
    /// A refusal with this reason and text.
    pub fn new(why: RefusalReason, message: impl Into<String>) -> Refused {
        let retry_after_s = match why {
            RefusalReason::TooManyRequests => Some(1),
            RefusalReason::Unavailable => Some(5),
            _ => None,
        };
        Refused { why, message: message.into(), stored_through: None, retry_after_s }
    }

    /// The refusal of an unknown path or name.
    pub fn not_found() -> Refused {
        Refused::new(RefusalReason::NotFound, "Not found. /api/1/openapi.json lists all paths.")
    }

    /// The refusal of a method that the path does not support.
    pub fn method() -> Refused {
        Refused::new(
            RefusalReason::MethodNotAllowed,
            "The method is not allowed here. /api/1/openapi.json lists the methods.",
        )
    }

    /// The refusal of a token whose role does not permit the request.
    pub fn forbidden() -> Refused {
        Refused::new(RefusalReason::Forbidden, "The role of the token does not allow this.")
    }
}

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.why.status()).expect("every refusal reason has a valid status");
        let body = Refusal { error: self.why, message: self.message.clone(), stored_through: self.stored_through };
        let mut response = (status, Json(body)).into_response();
        let headers = response.headers_mut();
        if let Some(seconds) = self.retry_after_s {
            headers.insert(RETRY_AFTER, HeaderValue::from(seconds));
        }
        if self.why == RefusalReason::Unauthenticated {
            headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
            // Each guess needs a new connection.
            headers.insert(CONNECTION, HeaderValue::from_static("close"));
        }
        response.extensions_mut().insert(self);
        response
    }
}
