//! What a request must be before anything looks at it, and what every answer says.
//!
//! In this order: the host's name, the secret, the method, the length of the body. Each refusal is a line of text that says
//! what to do; none repeats anything of the request.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use axum::Router;
use axum::extract::{DefaultBodyLimit, Request, State};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use http::header::{
    ALLOW, AUTHORIZATION, CACHE_CONTROL, CONTENT_LENGTH, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HOST, REFERRER_POLICY,
    TRANSFER_ENCODING, WWW_AUTHENTICATE, X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
};
use http::{HeaderName, HeaderValue, Method, StatusCode, Uri};

use crate::strangers::Arrived;
use crate::{Hosts, Key, Refusals, Secret, Settings};

/// What a page may load and where it may send: its own files and nothing else; no script or style that stands in the page.
pub const CONTENT_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
                                  img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// A file of a page as an answer. `kind` is its media type.
pub fn page(kind: &'static str, body: impl Into<axum::body::Body>) -> Response {
    let mut response = Response::new(body.into());
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}

struct Guard {
    /// `None`: any name will do.
    hosts: Option<Hosts>,
    key: Key,
    reads_only: bool,
    body: usize,
    refusals: Option<Refusals>,
}

/// The router behind its guard.
pub(crate) fn stand_before(router: Router, settings: &Settings) -> Router {
    let guard = Guard {
        hosts: (!settings.any_host).then(|| Hosts::new(&settings.hosts)),
        key: settings.key.clone(),
        reads_only: settings.reads_only,
        body: settings.bounds.body,
        refusals: settings.refusals.clone(),
    };
    let router = router.layer(DefaultBodyLimit::max(settings.bounds.body));
    // The router is a fallback, so that it sees the path that the guard leaves of the URL.
    Router::new().fallback_service(router).layer(from_fn_with_state(Arc::new(guard), answer))
}

async fn answer(State(guard): State<Arc<Guard>>, mut request: Request, next: Next) -> Response {
    let mut response = match guard.admit(&mut request) {
        Ok(()) => next.run(request).await,
        Err(refusal) => {
            if let Some(Refusals(tell)) = &guard.refusals {
                tell(request.extensions().get::<Arrived>().map(Arrived::peer), refusal.status());
            }
            *refusal
        }
    };
    for (name, value) in SAID {
        // An answer may say something of its own instead.
        response.headers_mut().entry(name).or_insert(HeaderValue::from_static(value));
    }
    response
}

impl Guard {
    fn admit(&self, request: &mut Request) -> Result<(), Box<Response>> {
        if !self.knows_host(request) {
            return Err(refuse(
                StatusCode::FORBIDDEN,
                "This page does not answer to the host name that was asked for. Use its address, or start it with \
                 --allow-host NAME.",
            ));
        }
        match &self.key {
            Key::None => {}
            Key::InUrl(secret) => {
                let Some(rest) = without_secret(request.uri(), secret) else {
                    return Err(refuse(
                        StatusCode::FORBIDDEN,
                        "The URL lacks its secret. It was printed at the start, whole.",
                    ));
                };
                *request.uri_mut() = rest;
            }
            Key::Bearer(secret) => {
                let shown = request.headers().get(AUTHORIZATION).map(HeaderValue::as_bytes).unwrap_or_default();
                let shown = match shown.split_at_checked(BEARER.len()) {
                    Some((scheme, rest)) if scheme.eq_ignore_ascii_case(BEARER) => rest,
                    _ => &[],
                };
                if !secret.is(shown) {
                    let mut refusal =
                        refuse(StatusCode::UNAUTHORIZED, "The field `Authorization: Bearer SECRET` is wanted.");
                    refusal.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
                    return Err(refusal);
                }
            }
        }
        if self.reads_only && !matches!(*request.method(), Method::GET | Method::HEAD) {
            let mut refusal = refuse(StatusCode::METHOD_NOT_ALLOWED, "Only GET and HEAD are answered.");
            refusal.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
            return Err(refusal);
        }
        if self.body_is_too_long(request) {
            return Err(refuse(StatusCode::PAYLOAD_TOO_LARGE, "The request's body is longer than is taken."));
        }
        if !matches!(self.key, Key::None)
            && let Some(arrived) = request.extensions().get::<Arrived>()
        {
            // The connection limit is shared out by address.
            arrived.greet(&arrived.peer().ip().to_string());
        }
        Ok(())
    }

    /// Exactly one `Host`, and where the target names one as well, that too.
    fn knows_host(&self, request: &Request) -> bool {
        let Some(hosts) = &self.hosts else { return true };
        let local = request.extensions().get::<Arrived>().map_or(IpAddr::V4(Ipv4Addr::LOCALHOST), |on| on.local().ip());
        let mut fields = request.headers().get_all(HOST).iter();
        let (Some(host), None) = (fields.next(), fields.next()) else { return false };
        let permit = |host: &str| hosts.permit(host, local);
        let named = request.uri().authority().is_none_or(|authority| permit(authority.as_str()));
        named && host.to_str().is_ok_and(permit)
    }

    /// By what it says of itself; what it turns out to be is held to the same bound where it is read.
    fn body_is_too_long(&self, request: &Request) -> bool {
        let length = request.headers().get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse::<u64>().ok());
        let chunked = request.headers().contains_key(TRANSFER_ENCODING);
        length.unwrap_or(0) > self.body as u64 || (chunked && self.body == 0)
    }
}

/// The URL as the router shall see it; `None` where its path does not begin with the secret.
fn without_secret(uri: &Uri, secret: &Secret) -> Option<Uri> {
    let path = uri.path().strip_prefix('/')?;
    let (shown, rest) = path.split_at(path.find('/').unwrap_or(path.len()));
    if !secret.is(shown.as_bytes()) {
        return None;
    }
    let rest = if rest.is_empty() { "/" } else { rest };
    let query = uri.query().map(|query| format!("?{query}")).unwrap_or_default();
    format!("{rest}{query}").parse().ok()
}

fn refuse(status: StatusCode, why: &'static str) -> Box<Response> {
    Box::new((status, [(CONTENT_TYPE, "text/plain; charset=utf-8")], format!("{why}\n")).into_response())
}

const BEARER: &[u8] = b"Bearer ";

/// What every answer says. No page of another origin may hold this one in a frame, read it, or learn its URL.
const SAID: [(HeaderName, &str); 7] = [
    (CONTENT_SECURITY_POLICY, CONTENT_POLICY),
    (X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (REFERRER_POLICY, "no-referrer"),
    (X_FRAME_OPTIONS, "DENY"),
    (CACHE_CONTROL, "no-store"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
];
