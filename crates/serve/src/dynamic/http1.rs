//! HTTP/1.1 to an upstream, and the connections kept to it.

use std::cell::RefCell;
use std::pin::Pin;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use ::http1::{Asked, Role, Version};
use bytes::Bytes;
use http::header::{self, HeaderValue};
use http::{Method, Request};
use hyper::body::{Body as _, Incoming};
use hyper::client::conn::http1::{Builder, SendRequest};
use hyper_util::rt::TokioIo;
use tokio::time::{Instant, timeout, timeout_at};

use super::account::count;
use super::admission::Place;
use super::client::RequestBody;
use super::fields::{Asker, RequestHead, for_client, for_upstream, framing, told_length};
use super::interim::Interim;
use super::socket;
use super::spec::Transport;
use super::upstream::{Changes, FIELDS_MAX, Failure, Gate, RouteState};

/// Connections that wait for the next request. The one used last is used next, so that the others grow old and go.
#[derive(Debug, Default)]
pub(super) struct Pool(RefCell<Vec<Kept>>);

#[derive(Debug)]
struct Kept {
    sender: SendRequest<RequestBody>,
    since: Instant,
}

/// The content of an answer, and the connection it comes on.
#[derive(Debug)]
pub(super) struct Content {
    body: Incoming,
    sender: SendRequest<RequestBody>,
}

impl Pool {
    fn take(&self) -> Option<SendRequest<RequestBody>> {
        self.sweep();
        let mut kept = self.0.borrow_mut();
        while let Some(Kept { sender, .. }) = kept.pop() {
            if sender.is_ready() {
                return Some(sender);
            }
        }
        None
    }

    fn put(&self, sender: SendRequest<RequestBody>) {
        self.0.borrow_mut().push(Kept { sender, since: Instant::now() });
    }

    /// Drops what the upstream closed and what was idle for too long.
    pub(super) fn sweep(&self) {
        let now = Instant::now();
        self.0.borrow_mut().retain(|kept| !kept.sender.is_closed() && now - kept.since < IDLE_TIME);
    }
}

/// Status, field lines, length and content of the answer.
pub(super) async fn ask(
    route: &RouteState,
    head: &RequestHead,
    asker: Asker,
    changes: &Changes,
    body: RequestBody,
    base: Option<&str>,
) -> Result<(u16, Bytes, Option<u64>, Content), Failure> {
    let progress = body.progress();
    let bodyless = body.length() == Some(0);
    let mut request = request(route, head, asker, changes, body, base)?;
    let interim = Interim::new(changes.hints.clone(), route.limits.head_bytes);
    interim.watch(&mut request);
    let mut again = (head.is_safe() && bodyless).then(|| {
        let mut copy = copy(&request);
        interim.watch(&mut copy);
        copy
    });
    let mut too_many = std::pin::pin!(interim.exceeded());
    loop {
        let kept = route.gate.http.take();
        let was_kept = kept.is_some();
        let mut sender = match kept {
            Some(sender) => sender,
            None => connect(route).await?,
        };
        if was_kept {
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
                Ok(None) => return Err(Failure::bad("interim responses without end")),
                // Unless the client's body moved meanwhile.
                Err(_) if progress.last() + route.limits.first_byte_time <= Instant::now() => {
                    return Err(Failure::late("no answer in time"));
                }
                Err(_) => {}
            }
        };
        match outcome {
            Ok(response) => return answered(head, response, sender),
            Err(mut error) => {
                // Kept connections may be closed by the upstream at any time. What was not sent at all, or may be sent
                // twice, is sent once more on a new one.
                let unsent = error.take_message();
                match (was_kept, unsent, again.take()) {
                    (true, Some(unsent), _) => request = unsent,
                    (true, None, Some(copy)) => request = copy,
                    _ => return Err(Failure::bad(chain(error.error()))),
                }
                route.gate.http.0.borrow_mut().clear();
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
    // 101 would end HTTP on this connection; nobody asked for it, since Upgrade is not passed on.
    if !(200..=599).contains(&status) {
        return Err(Failure::bad(format!("an answer with status {status}")));
    }
    check_framing(head, &parts).map_err(|fault| Failure::bad(fault.to_string()))?;
    let length = match status {
        204 => None,
        304 => told_length(&parts.headers),
        _ if head.method == Method::HEAD => told_length(&parts.headers),
        _ => body.size_hint().exact(),
    };
    Ok((status, for_client(&parts.headers), length, Content { body, sender }))
}

/// Whether the answer's body can be passed on. hyper reads a body by its last transfer coding and leaves the others in
/// it, and the fields that name them are not passed on: the client would take coded bytes for the content.
fn check_framing(head: &RequestHead, parts: &http::response::Parts) -> Result<::http1::Body, ::http1::Fault> {
    let version = if parts.version == http::Version::HTTP_10 { Version::Http10 } else { Version::Http11 };
    let asked = if head.method == Method::HEAD { Asked::Head } else { Asked::Other };
    framing(&parts.headers).response(Role::Gateway, parts.status.as_u16(), version, asked)
}

/// The request, built anew.
fn request(
    route: &RouteState,
    head: &RequestHead,
    asker: Asker,
    changes: &Changes,
    body: RequestBody,
    base: Option<&str>,
) -> Result<Request<RequestBody>, Failure> {
    let target = match base {
        Some(base) => {
            let rebased = rebased(&head.target, route.spec.stem(), base);
            rebased.ok_or_else(|| Failure::new(400, "an odd spelling of the prefix"))?
        }
        None => head.target.clone(),
    };
    let mut fields = for_upstream(head, asker, changes);
    if !fields.contains_key(header::HOST) {
        // Only a client of HTTP/1.0 may leave it out, and HTTP/1.1 wants one.
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
    let uri = http::Uri::try_from(target).map_err(|_| Failure::new(400, "a target that is no URI"))?;
    let mut request = Request::new(body);
    *request.method_mut() = head.method.clone();
    *request.uri_mut() = uri;
    *request.headers_mut() = fields;
    Ok(request)
}

/// The same request, for one without a body.
fn copy(request: &Request<RequestBody>) -> Request<RequestBody> {
    let mut copy = Request::new(RequestBody::none());
    *copy.method_mut() = request.method().clone();
    *copy.uri_mut() = request.uri().clone();
    *copy.headers_mut() = request.headers().clone();
    copy
}

/// The target with `base` in the place of the prefix: `/app/x?q` with `/base` becomes `/base/x?q`. `None` for an odd
/// spelling of the prefix (`/%61pp`), which cannot be cut off and must not go on: it could name anything there.
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
        .handshake(TokioIo::new(socket::HalfDeaf::new(stream)))
        .await
        .map_err(|error| Failure::bad(chain(&error)))?;
    // Its errors come out at the sender or in the content.
    tokio::task::spawn_local(connection);
    Ok(sender)
}

impl Content {
    /// The next piece.
    pub(super) async fn next(&mut self) -> Result<Option<Bytes>, String> {
        loop {
            match std::future::poll_fn(|cx| Pin::new(&mut self.body).poll_frame(cx)).await {
                None => return Ok(None),
                // Trailers are not passed on.
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(bytes) if !bytes.is_empty() => return Ok(Some(bytes)),
                    _ => {}
                },
                Some(Err(error)) => return Err(chain(&error)),
            }
        }
    }

    /// There is no piece left.
    pub(super) fn ended(&self) -> bool {
        self.body.is_end_stream()
    }

    /// The connection waits for the next request; the place is free when it does.
    pub(super) fn give_back(self, gate: &Rc<Gate>, place: Place) {
        let Content { mut sender, .. } = self;
        if sender.is_ready() {
            return gate.http.put(sender);
        }
        let gate = Rc::clone(gate);
        tokio::task::spawn_local(async move {
            // It becomes ready once it has seen the end of both messages; or is closed, if the upstream wants that, or
            // if the request's body never became whole.
            if let Ok(Ok(())) = timeout(READY_TIME, sender.ready()).await {
                gate.http.put(sender);
            }
            drop(place);
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

/// Longer than programs usually keep an idle connection is of no use; 5 s is what many of them have.
const IDLE_TIME: Duration = Duration::from_secs(4);
/// For a connection that has its whole answer to be ready again.
const READY_TIME: Duration = Duration::from_millis(200);
/// hyper takes no smaller buffer.
const HYPER_BUFFER_MIN: usize = 8192;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_base_takes_the_place_of_the_prefix() {
        for (target, stem, base, wanted) in [
            ("/app/x?q", "/app", "/base", "/base/x?q"),
            ("/app", "/app", "/base", "/base"),
            ("/app", "/app", "/base/", "/base/"),
            ("/app?q", "/app", "/", "/?q"),
            ("/app/", "/app", "/", "/"),
            ("/app/x", "/app", "/", "/x"),
            ("/x", "", "/base", "/base/x"),
        ] {
            let rebased = rebased(target.as_bytes(), stem, base).unwrap();
            assert_eq!(String::from_utf8(rebased).unwrap(), wanted, "{target} {base}");
        }
        assert_eq!(rebased(b"/%61pp/x", "/app", "/base"), None);
    }
}
