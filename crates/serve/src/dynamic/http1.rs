//! HTTP/1.1 to an upstream, and its pool of persistent connections.

use std::cell::RefCell;
use std::pin::Pin;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use ::http1::{RequestMethod, Role, Version};
use bytes::Bytes;
use http::header::{self, HeaderValue};
use http::{Method, Request};
use hyper::body::{Body as _, Incoming};
use hyper::client::conn::http1::{Builder, SendRequest};
use hyper_util::rt::TokioIo;
use tokio::time::{Instant, timeout, timeout_at};

use super::admission::Permit;
use super::client::RequestBody;
use super::fields::{ClientInfo, RequestHead, declared_length, for_client, for_upstream, framing};
use super::interim::Interim;
use super::socket;
use super::spec::Transport;
use super::upstream::{Changes, FIELDS_MAX, Failure, RouteState, UpstreamState};
use super::usage::count;

/// Idle connections. The most recently used one is reused first, so that surplus connections expire.
#[derive(Debug, Default)]
pub(super) struct Pool(RefCell<Vec<IdleConnection>>);

#[derive(Debug)]
struct IdleConnection {
    sender: SendRequest<RequestBody>,
    since: Instant,
}

/// The content of a response and its connection.
#[derive(Debug)]
pub(super) struct Content {
    body: Incoming,
    sender: SendRequest<RequestBody>,
}

impl Pool {
    fn take(&self) -> Option<SendRequest<RequestBody>> {
        self.sweep();
        let mut idle_connections = self.0.borrow_mut();
        while let Some(IdleConnection { sender, .. }) = idle_connections.pop() {
            if sender.is_ready() {
                return Some(sender);
            }
        }
        None
    }

    fn put(&self, sender: SendRequest<RequestBody>) {
        self.0.borrow_mut().push(IdleConnection { sender, since: Instant::now() });
    }

    /// Drops connections that the upstream closed or that were idle for too long.
    pub(super) fn sweep(&self) {
        let now = Instant::now();
        self.0
            .borrow_mut()
            .retain(|idle_connection| !idle_connection.sender.is_closed() && now - idle_connection.since < IDLE_TIME);
    }
}

/// Returns status, field lines, length and content of the response.
pub(super) async fn send_request(
    route: &RouteState,
    head: &RequestHead,
    client_info: ClientInfo,
    changes: &Changes,
    body: RequestBody,
    base: Option<&str>,
) -> Result<(u16, Bytes, Option<u64>, Content), Failure> {
    let progress = body.progress();
    let bodyless = body.length() == Some(0);
    let mut request = request(route, head, client_info, changes, body, base)?;
    let interim = Interim::new(changes.hints.clone(), route.limits.head_bytes);
    interim.watch(&mut request);
    let mut again = (head.is_safe() && bodyless).then(|| {
        let mut copy = copy(&request);
        interim.watch(&mut copy);
        copy
    });
    let mut too_many = std::pin::pin!(interim.exceeded());
    loop {
        let idle_connection = route.upstream_state.http.take();
        let was_idle = idle_connection.is_some();
        let mut sender = match idle_connection {
            Some(sender) => sender,
            None => connect(route).await?,
        };
        if was_idle {
            count(&route.counts.reused);
        }
        progress.touch();
        let mut answer = std::pin::pin!(sender.try_send_request(request));
        let outcome = loop {
            let due = progress.last() + route.limits.first_byte_time;
            let bounded = std::future::poll_fn(|cx| match too_many.as_mut().poll(cx) {
                Poll::Ready(()) => Poll::Ready(None),
                Poll::Pending => answer.as_mut().poll(cx).map(Some),
            });
            match timeout_at(due, bounded).await {
                Ok(Some(outcome)) => break outcome,
                Ok(None) => return Err(Failure::bad("endless interim responses")),
                // Unless the client's body made progress meanwhile.
                Err(_) if progress.last() + route.limits.first_byte_time <= Instant::now() => {
                    return Err(Failure::late("no response in time"));
                }
                Err(_) => {}
            }
        };
        match outcome {
            Ok(response) => return answered(head, response, sender),
            Err(mut error) => {
                // The upstream may close persistent connections at any time. A request that was not sent, or is
                // repeatable, is sent again on a new connection.
                let unsent = error.take_message();
                match (was_idle, unsent, again.take()) {
                    (true, Some(unsent), _) => request = unsent,
                    (true, None, Some(copy)) => request = copy,
                    _ => return Err(Failure::bad(chain(error.error()))),
                }
                route.upstream_state.http.0.borrow_mut().clear();
            }
        }
    }
}

fn answered(
    head: &RequestHead,
    response: http::Response<Incoming>,
    sender: SendRequest<RequestBody>,
) -> Result<(u16, Bytes, Option<u64>, Content), Failure> {
    let (parts, body) = response.into_parts();
    let status = parts.status.as_u16();
    // 101 would end HTTP on this connection; Upgrade is not forwarded, so the upstream must not send it.
    if !(200..=599).contains(&status) {
        return Err(Failure::bad(format!("a response with status {status}")));
    }
    check_framing(head, &parts).map_err(|fault| Failure::bad(fault.to_string()))?;
    let length = match status {
        204 => None,
        304 => declared_length(&parts.headers),
        _ if head.method == Method::HEAD => declared_length(&parts.headers),
        _ => body.size_hint().exact(),
    };
    Ok((status, for_client(&parts.headers), length, Content { body, sender }))
}

/// Whether the framing of the response can be forwarded. hyper decodes the last transfer coding only, and the fields
/// that name others are not forwarded: the client would read coded bytes as content.
fn check_framing(head: &RequestHead, parts: &http::response::Parts) -> Result<::http1::Body, ::http1::Fault> {
    let version = if parts.version == http::Version::HTTP_10 { Version::Http10 } else { Version::Http11 };
    let request_kind = if head.method == Method::HEAD { RequestMethod::Head } else { RequestMethod::Other };
    framing(&parts.headers).response(Role::Gateway, parts.status.as_u16(), version, request_kind)
}

/// The rebuilt request.
fn request(
    route: &RouteState,
    head: &RequestHead,
    client_info: ClientInfo,
    changes: &Changes,
    body: RequestBody,
    base: Option<&str>,
) -> Result<Request<RequestBody>, Failure> {
    let target = match base {
        Some(base) => {
            let rebased = rebased(&head.target, route.spec.stem(), base);
            rebased.ok_or_else(|| Failure::new(400, "an unusual spelling of the prefix"))?
        }
        None => head.target.clone(),
    };
    let mut fields = for_upstream(head, client_info, changes);
    if !fields.contains_key(header::HOST) {
        // HTTP/1.1 requires a Host; only an HTTP/1.0 client may omit it.
        let host = match route.spec.upstream.transport() {
            Transport::Tcp(authority) => HeaderValue::from_str(authority).ok(),
            Transport::Unix(_) => None,
        };
        fields.insert(header::HOST, host.unwrap_or(HeaderValue::from_static("localhost")));
    }
    match body.length() {
        Some(0) if !matches!(head.method, Method::POST | Method::PUT | Method::PATCH) => {}
        Some(length) => {
            fields.insert(header::CONTENT_LENGTH, length.into());
        }
        None => {
            fields.insert(header::TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
        }
    }
    let uri = http::Uri::try_from(target).map_err(|_| Failure::new(400, "a target that is not a valid URI"))?;
    let mut request = Request::new(body);
    *request.method_mut() = head.method.clone();
    *request.uri_mut() = uri;
    *request.headers_mut() = fields;
    Ok(request)
}

/// A copy of a request without body.
fn copy(request: &Request<RequestBody>) -> Request<RequestBody> {
    let mut copy = Request::new(RequestBody::none());
    *copy.method_mut() = request.method().clone();
    *copy.uri_mut() = request.uri().clone();
    *copy.headers_mut() = request.headers().clone();
    copy
}

/// The target with the prefix replaced by `base`: `/app/x?q` with `/base` becomes `/base/x?q`. `None` for an encoded
/// spelling of the prefix (`/%61pp`): it cannot be replaced, and forwarded unchanged it could name anything at the
/// upstream.
fn rebased(target: &[u8], stem: &str, base: &str) -> Option<Vec<u8>> {
    let rest = target.strip_prefix(stem.as_bytes())?;
    let mut rebased = base.trim_end_matches('/').as_bytes().to_vec();
    if rest.first() != Some(&b'/') && (rebased.is_empty() || base.ends_with('/')) {
        rebased.push(b'/');
    }
    rebased.extend_from_slice(rest);
    Some(rebased)
}

async fn connect(route: &RouteState) -> Result<SendRequest<RequestBody>, Failure> {
    let stream = socket::connect(route.spec.upstream.transport(), route.limits.connect_time).await?;
    count(&route.counts.connects);
    let buffer = route.limits.head_bytes.max(HYPER_BUFFER_MIN);
    let (sender, connection) = Builder::new()
        .max_buf_size(buffer)
        .max_header_size(buffer)
        .max_headers(FIELDS_MAX)
        .title_case_headers(true)
        .handshake(TokioIo::new(socket::IgnoreBrokenPipe::new(stream)))
        .await
        .map_err(|error| Failure::bad(chain(&error)))?;
    // Its errors appear at the sender or in the content.
    tokio::task::spawn_local(connection);
    Ok(sender)
}

impl Content {
    /// The next piece.
    pub(super) async fn next(&mut self) -> Result<Option<Bytes>, String> {
        loop {
            match std::future::poll_fn(|cx| Pin::new(&mut self.body).poll_frame(cx)).await {
                None => return Ok(None),
                // Trailers are not forwarded.
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(bytes) if !bytes.is_empty() => return Ok(Some(bytes)),
                    _ => {}
                },
                Some(Err(error)) => return Err(chain(&error)),
            }
        }
    }

    /// Whether the content is complete.
    pub(super) fn ended(&self) -> bool {
        self.body.is_end_stream()
    }

    /// Returns the connection to the pool; the permit is released then.
    pub(super) fn give_back(self, upstream_state: &Rc<UpstreamState>, permit: Permit) {
        let Content { mut sender, .. } = self;
        if sender.is_ready() {
            return upstream_state.http.put(sender);
        }
        let upstream_state = Rc::clone(upstream_state);
        tokio::task::spawn_local(async move {
            // The connection is ready after both messages have ended; it closes if the upstream requires it or the
            // request's body stayed incomplete.
            if let Ok(Ok(())) = timeout(READY_TIME, sender.ready()).await {
                upstream_state.http.put(sender);
            }
            drop(permit);
        });
    }
}

/// An error with its causes.
pub(super) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}

/// Idle timeout of upstream connections: shorter than that of most programs, often 5 s.
const IDLE_TIME: Duration = Duration::from_secs(4);
/// Time for a connection with a complete response to become ready again.
const READY_TIME: Duration = Duration::from_millis(200);
/// hyper's smallest buffer.
const HYPER_BUFFER_MIN: usize = 8192;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_base_path_replaces_the_prefix() {
        for (target, stem, base, expected) in [
            ("/app/x?q", "/app", "/base", "/base/x?q"),
            ("/app", "/app", "/base", "/base"),
            ("/app", "/app", "/base/", "/base/"),
            ("/app?q", "/app", "/", "/?q"),
            ("/app/", "/app", "/", "/"),
            ("/app/x", "/app", "/", "/x"),
            ("/x", "", "/base", "/base/x"),
        ] {
            let rebased = rebased(target.as_bytes(), stem, base).unwrap();
            assert_eq!(String::from_utf8(rebased).unwrap(), expected, "{target} {base}");
        }
        assert_eq!(rebased(b"/%61pp/x", "/app", "/base"), None);
    }
}
