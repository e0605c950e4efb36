//! Checks of every request, and header fields of every response.
//!
//! The order is: host name, secret, method, length of the body. Each refusal is a line of text with the fix;
//! no refusal repeats text of the request.

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

use crate::unauthenticated::ConnectionHandle;
use crate::{Hosts, Key, Refusals, Secret, Settings};

/// Content Security Policy: a page loads and contacts its own origin only; no inline script or style.
pub const CONTENT_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
                                  img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// A page's file as a response. `kind` is its media type.
pub fn page(kind: &'static str, body: impl Into<axum::body::Body>) -> Response {
    let mut response = Response::new(body.into());
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}

struct Guard {
    /// `None` permits every name.
    hosts: Option<Hosts>,
    key: Key,
    read_only: bool,
    body: usize,
    refusals: Option<Refusals>,
}

/// Wraps a router into these checks.
pub(crate) fn wrap(router: Router, settings: &Settings) -> Router {
    let guard = Guard {
        hosts: (!settings.any_host).then(|| Hosts::new(&settings.hosts)),
        key: settings.key.clone(),
        read_only: settings.read_only,
        body: settings.bounds.body,
        refusals: settings.refusals.clone(),
    };
    let router = router.layer(DefaultBodyLimit::max(settings.bounds.body));
    // The router is a fallback service, so that it sees the path without the secret.
    Router::new().fallback_service(router).layer(from_fn_with_state(Arc::new(guard), check_request))
}

async fn check_request(State(guard): State<Arc<Guard>>, mut request: Request, next: Next) -> Response {
    let mut response = match guard.admit(&mut request) {
        Ok(()) => next.run(request).await,
        Err(refusal) => {
            if let Some(Refusals(report)) = &guard.refusals {
                report(request.extensions().get::<ConnectionHandle>().map(ConnectionHandle::peer), refusal.status());
            }
            *refusal
        }
    };
    for (name, value) in SECURITY_HEADERS {
        // A response may set the field itself.
        response.headers_mut().entry(name).or_insert(HeaderValue::from_static(value));
    }
    response
}

impl Guard {
    fn admit(&self, request: &mut Request) -> Result<(), Box<Response>> {
        if !self.permits_host(request) {
            return Err(refuse(
                StatusCode::FORBIDDEN,
                "This page is not served under the requested host name. Use its address, or start it with --allow-host \
                 NAME.",
            ));
        }
        match &self.key {
            Key::None => {}
            Key::InUrl(secret) => {
                let Some(rest) = without_secret(request.uri(), secret) else {
                    return Err(refuse(
                        StatusCode::FORBIDDEN,
                        "The URL lacks its secret. Use the complete URL that was printed at the start.",
                    ));
                };
                *request.uri_mut() = rest;
            }
            Key::Bearer(secret) => {
                let presented = request.headers().get(AUTHORIZATION).map(HeaderValue::as_bytes).unwrap_or_default();
                let presented = match presented.split_at_checked(BEARER.len()) {
                    Some((scheme, rest)) if scheme.eq_ignore_ascii_case(BEARER) => rest,
                    _ => &[],
                };
                if !secret.is(presented) {
                    let mut refusal =
                        refuse(StatusCode::UNAUTHORIZED, "The request needs the field `Authorization: Bearer SECRET`.");
                    refusal.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
                    return Err(refusal);
                }
            }
        }
        if self.read_only && !matches!(*request.method(), Method::GET | Method::HEAD) {
            let mut refusal = refuse(StatusCode::METHOD_NOT_ALLOWED, "Only GET and HEAD are supported.");
            refusal.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
            return Err(refusal);
        }
        if self.body_is_too_long(request) {
            return Err(refuse(StatusCode::PAYLOAD_TOO_LARGE, "The request's body is longer than the limit."));
        }
        if !matches!(self.key, Key::None)
            && let Some(connection) = request.extensions().get::<ConnectionHandle>()
        {
            // The connection limit is shared by address.
            connection.authenticate(&connection.peer().ip().to_string());
        }
        Ok(())
    }

    /// Whether exactly one `Host` is present and permitted, and also the host of an absolute target.
    fn permits_host(&self, request: &Request) -> bool {
        let Some(hosts) = &self.hosts else { return true };
        let local = request
            .extensions()
            .get::<ConnectionHandle>()
            .map_or(IpAddr::V4(Ipv4Addr::LOCALHOST), |on| on.local().ip());
        let mut fields = request.headers().get_all(HOST).iter();
        let (Some(host), None) = (fields.next(), fields.next()) else { return false };
        let permit = |host: &str| hosts.permit(host, local);
        let named = request.uri().authority().is_none_or(|authority| permit(authority.as_str()));
        named && host.to_str().is_ok_and(permit)
    }

    /// Whether the announced length exceeds the limit. The actual length is checked while the body is read.
    fn body_is_too_long(&self, request: &Request) -> bool {
        let length = request.headers().get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse::<u64>().ok());
        let chunked = request.headers().contains_key(TRANSFER_ENCODING);
        length.unwrap_or(0) > self.body as u64 || (chunked && self.body == 0)
    }
}

/// The URL without the secret, for the router; `None` if its path does not begin with the secret.
fn without_secret(uri: &Uri, secret: &Secret) -> Option<Uri> {
    let path = uri.path().strip_prefix('/')?;
    let (presented, rest) = path.split_at(path.find('/').unwrap_or(path.len()));
    if !secret.is(presented.as_bytes()) {
        return None;
    }
    let rest = if rest.is_empty() { "/" } else { rest };
    let query = uri.query().map(|query| format!("?{query}")).unwrap_or_default();
    format!("{rest}{query}").parse().ok()
}

fn refuse(status: StatusCode, text: &'static str) -> Box<Response> {
    Box::new((status, [(CONTENT_TYPE, "text/plain; charset=utf-8")], format!("{text}\n")).into_response())
}

const BEARER: &[u8] = b"Bearer ";

/// Header fields of every response. Pages of other origins cannot frame this one, read it or learn its URL.
const SECURITY_HEADERS: [(HeaderName, &str); 7] = [
    (CONTENT_SECURITY_POLICY, CONTENT_POLICY),
    (X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (REFERRER_POLICY, "no-referrer"),
    (X_FRAME_OPTIONS, "DENY"),
    (CACHE_CONTROL, "no-store"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
];
