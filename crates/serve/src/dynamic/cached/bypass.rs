//! Requests that no stored response may serve: forwarded; unsafe ones invalidate stored responses.

use std::rc::Rc;

use bytes::Bytes;

use super::Cached;
use crate::cache::{CacheStatus, Finding, Key, Outcome, Reason};
use crate::dynamic::RelayRequest;
use crate::dynamic::client::{Client, RequestBody};
use crate::dynamic::relay::forward;
use crate::dynamic::upstream::{Changes, Failure, RouteState, UpstreamResponse, send};

/// Forwards a request and its response. `changed`: the key of an unsafe request's target.
pub(super) async fn bypass(
    cached: &Rc<Cached>,
    route: &Rc<RouteState>,
    relay_request: &RelayRequest,
    body: Option<RequestBody>,
    client: Client,
    reason: Reason,
    changed: Option<Key>,
) {
    let mut changing = UnsafeRequest { cached, key: changed };
    let changes = Changes { hints: Some(client.hints()), ..Changes::default() };
    let answer = match send(route, relay_request, &changes, body).await {
        Ok(answer) => answer,
        Err(failure) => {
            if failure.status == 503 {
                // The request was not sent.
                changing.key = None;
            }
            return refuse(&failure, reason, client).await;
        }
    };
    if let Some(key) = changing.key.take()
        && (200..400).contains(&answer.status)
    {
        // Before the client gets the response: its next request must not find the old one.
        cached.invalidate(&key, &answer.fields);
    }
    let finding = Finding::new(Outcome::Bypass, reason);
    forward(marked(answer, &CacheStatus::forwarded(finding, reason)), client, finding).await;
}

/// An unsafe request in flight. Without a response, because its client disconnected or the upstream failed, it may have
/// changed its target too.
struct UnsafeRequest<'a> {
    cached: &'a Cached,
    key: Option<Key>,
}

impl Drop for UnsafeRequest<'_> {
    fn drop(&mut self) {
        if let Some(key) = self.key.take() {
            self.cached.invalidate(&key, b"");
        }
    }
}

pub(super) async fn refuse(failure: &Failure, why: Reason, client: Client) {
    let finding = Finding::new(Outcome::Bypass, Reason::UpstreamUnavailable);
    forward(marked(failure.answer(), &CacheStatus::forwarded(finding, why)), client, finding).await;
}

/// Responds to a request with only-if-cached (RFC 9111, section 5.2.1.7).
pub(super) async fn only_if_cached(client: Client) {
    let finding = Finding::new(Outcome::Bypass, Reason::OnlyIfCached);
    let failure = Failure::late("not in the cache, and the request says only-if-cached");
    let mut answer = failure.answer();
    let mut fields = answer.fields.to_vec();
    fields.extend_from_slice(b"Cache-Status: yamabiko; detail=only_if_cached\r\n");
    answer.fields = fields.into();
    forward(answer, client, finding).await;
}

/// The response with a Cache-Status line added.
pub(super) fn marked(mut answer: UpstreamResponse, mark: &CacheStatus) -> UpstreamResponse {
    let mut fields = Vec::with_capacity(answer.fields.len() + 96);
    fields.extend_from_slice(&answer.fields);
    mark.append(&mut fields, None);
    answer.fields = Bytes::from(fields);
    answer
}
