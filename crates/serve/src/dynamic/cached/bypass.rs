//! Requests that no stored answer may serve: passed on, and what they change is no longer valid in the cache.

use std::rc::Rc;

use super::{Cached, marked};
use crate::cache::{CacheStatus, Finding, Key, Outcome, Reason};
use crate::dynamic::Ask;
use crate::dynamic::client::{Client, RequestBody};
use crate::dynamic::relay::pass_on;
use crate::dynamic::upstream::{Changes, Failure, RouteState, send};

/// Passes a request on and its answer back. `changed`: the key of what an unsafe request is about.
pub(super) async fn bypass(
    cached: &Rc<Cached>,
    route: &Rc<RouteState>,
    ask: &Ask,
    body: Option<RequestBody>,
    client: Client,
    reason: Reason,
    changed: Option<Key>,
) {
    let mut changing = Changing { cached, key: changed };
    let changes = Changes { hints: Some(client.hints()), ..Changes::default() };
    let answer = match send(route, ask, &changes, body).await {
        Ok(answer) => answer,
        Err(failure) => {
            if failure.status == 503 {
                // It was not sent.
                changing.key = None;
            }
            return refuse(&failure, reason, client).await;
        }
    };
    if let Some(key) = changing.key.take()
        && (200..400).contains(&answer.status)
    {
        // Before the client hears of it: what he asks next must not find what was.
        cached.invalidate(&key, &answer.fields);
    }
    let finding = Finding::new(Outcome::Bypass, reason);
    pass_on(marked(answer, &CacheStatus::forwarded(finding, reason)), client, finding).await;
}

/// An unsafe request under way. Whose answer never comes, because its client leaves or the upstream breaks off, may have
/// changed things all the same.
struct Changing<'a> {
    cached: &'a Cached,
    key: Option<Key>,
}

impl Drop for Changing<'_> {
    fn drop(&mut self) {
        if let Some(key) = self.key.take() {
            self.cached.invalidate(&key, b"");
        }
    }
}

pub(super) async fn refuse(failure: &Failure, why: Reason, client: Client) {
    let finding = Finding::new(Outcome::Bypass, Reason::UpstreamUnavailable);
    pass_on(marked(failure.answer(), &CacheStatus::forwarded(finding, why)), client, finding).await;
}

/// Answers a request that wants a stored answer or none (RFC 9111, section 5.2.1.7).
pub(super) async fn only_if_cached(client: Client) {
    let finding = Finding::new(Outcome::Bypass, Reason::OnlyIfCached);
    let failure = Failure::late("not in the cache, and the client wants nothing else");
    let mut answer = failure.answer();
    let mut fields = answer.fields.to_vec();
    fields.extend_from_slice(b"Cache-Status: yamabiko; detail=only_if_cached\r\n");
    answer.fields = fields.into();
    pass_on(answer, client, finding).await;
}
