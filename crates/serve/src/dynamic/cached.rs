//! Requests that may use the result cache: between client and upstream.
//!
//! ```text
//!   exchange ── stored and usable ──▶ served ── stale-while-revalidate: and a Flight without a client
//!       │ else
//!       ├─ the same is being fetched ──▶ follow the Flight ──▶ its response, as it streams
//!       └─ no fetch in flight ─────────▶ lead one: upstream::send ──┬─ shareable: a task fills Filling, read by all
//!                                                                   └─ private: leader only; followers fetch themselves
//! ```
//!
//! One upstream request for any number of waiting clients, and never a response to a client that may not have it:
//! followers get a response only after its head permits reuse for their request (RFC 9111, section 4). Everything here
//! runs on the relay's thread, so only the store is locked.

mod bypass;
mod filling;
mod flight;
mod request;

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::spawn_local;
use units::Timestamp;

use super::RelayRequest;
use super::client::{Client, RequestBody};
use super::relay::forward;
use super::upstream::{Changes, Failure, RouteState, UpstreamResponse, send};
use crate::cache::{
    Cache, CacheRequest, CacheStatus, Finding, Found, Freshened, Head, Key, Outcome, Reason, Rendered,
    RequestDirectives, Stored, Usable, conditions, freshened, is_error, terms, usable, usable_on_error,
};
use crate::request::{Body, Parsed, parse_within};
use bypass::{bypass, marked, only_if_cached, refuse};
use filling::Filling;
use flight::{FetchResult, Flight, Flights, Leader};
use request::{header_lines, is_unsafe, key_of};

/// The result cache as the relay uses it.
#[derive(Debug)]
pub(crate) struct Cached {
    cache: Arc<Cache>,
    flights: Rc<Flights>,
    /// Keys whose responses were for one client only, and until when that is assumed: other clients do not wait for
    /// them.
    alone: RefCell<HashMap<Key, Timestamp>>,
}

impl Cached {
    /// Wraps the cache that the workers share.
    pub(crate) fn new(cache: Arc<Cache>) -> Rc<Self> {
        Rc::new(Cached { cache, flights: Rc::default(), alone: RefCell::default() })
    }

    fn is_alone(&self, key: &Key) -> bool {
        let now = self.cache.now();
        self.alone.borrow().get(key).is_some_and(|until| *until > now)
    }

    /// `None`: responses of this key may be shared.
    fn set_alone(&self, key: &Key, time: Option<Duration>) {
        let now = self.cache.now();
        let mut keys = self.alone.borrow_mut();
        let Some(time) = time else {
            keys.remove(key);
            return;
        };
        if keys.len() >= UNSHARED_KEYS_MAX {
            keys.retain(|_, until| *until > now);
            if keys.len() >= UNSHARED_KEYS_MAX {
                // Clearing only costs the next requests a wait for a head.
                keys.clear();
            }
        }
        keys.insert(key.clone(), now + time);
    }

    /// RFC 9111, section 4.4: an unsafe request may have changed its target, so stored responses and fetches of it are
    /// invalid.
    fn invalidate(&self, key: &Key, fields: &[u8]) {
        let named = header_lines(fields).filter(|(name, _)| {
            name.eq_ignore_ascii_case(b"location") || name.eq_ignore_ascii_case(b"content-location")
        });
        for invalidated in named.filter_map(|(_, value)| key.same_origin(value)).chain([key.clone()]) {
            self.cache.invalidate(&invalidated);
            self.flights.invalidate(&invalidated);
        }
    }
}

/// One exchange of a client through the cache. Dropped when the client disconnects.
pub(crate) async fn exchange(
    cached: &Rc<Cached>,
    route: &Rc<RouteState>,
    relay_request: RelayRequest,
    body: Option<RequestBody>,
    client: Client,
) {
    let head = Rc::<[u8]>::from(&*relay_request.head);
    let Parsed::Complete(request) = parse_within(&head, usize::MAX, FIELDS_MAX) else {
        // Workers send complete heads only; a head that does not parse here is refused by the upstream code.
        return bypass(cached, route, &relay_request, body, client, Reason::Method, None).await;
    };
    let cache_request = match CacheRequest::of(&request, relay_request.secure) {
        Ok(cache_request) => cache_request,
        Err(reason) => {
            let key = is_unsafe(&request).then(|| key_of(&request, relay_request.secure));
            return bypass(cached, route, &relay_request, body, client, reason, key).await;
        }
    };
    let in_flight = InFlightRequest {
        cached,
        route,
        relay_request: &relay_request,
        head: &head,
        cache_request,
        directives: cached.cache.directives(cache_request.fields),
    };
    in_flight.run(client).await;
}

/// The request of one client.
struct InFlightRequest<'a> {
    cached: &'a Rc<Cached>,
    route: &'a Rc<RouteState>,
    relay_request: &'a RelayRequest,
    /// The head of `relay_request`, for tasks that outlive it.
    head: &'a Rc<[u8]>,
    cache_request: CacheRequest<'a>,
    directives: RequestDirectives<'a>,
}

/// A fetch to make.
struct Fetch {
    why: Reason,
    /// The stored response to validate.
    candidate: Option<Stored>,
}

impl InFlightRequest<'_> {
    async fn run(&self, mut client: Client) {
        let arrived_at = self.cached.cache.now();
        let key = self.cache_request.key();
        for attempt in 0.. {
            let planned_fetch = match self.look_up() {
                Action::Give(stored, finding) => {
                    if finding.reason == Reason::WhileRevalidating {
                        self.revalidate_behind(&key, &stored);
                    }
                    return self.give(&stored, CacheStatus::hit(finding), client).await;
                }
                Action::Bypass(reason) => {
                    return bypass(self.cached, self.route, self.relay_request, None, client, reason, None).await;
                }
                Action::OnlyIfCached => return only_if_cached(client).await,
                Action::Fetch(planned_fetch) => planned_fetch,
            };
            // With credentials the response is rarely shareable, and a shared response needs the origin's permission.
            if self.directives.has_credentials || self.cached.is_alone(&key) || attempt > ATTEMPTS_MAX {
                let leading = Leader::alone(&self.cached.flights, &key, self.head);
                return self.fetch(&key, leading, planned_fetch, Some(client)).await;
            }
            let known = planned_fetch.candidate.as_ref().map(|stored| &*stored.head);
            match self.cached.flights.find(&key, &self.directives, known, arrived_at, self.cached.cache.now()) {
                None => {
                    let leading = Leader::new(&self.cached.flights, &key, self.head);
                    return self.fetch(&key, leading, planned_fetch, Some(client)).await;
                }
                Some(flight) => match self.follow(&flight, &planned_fetch, arrived_at, client).await {
                    None => return,
                    Some(unserved) => client = unserved,
                },
            }
        }
    }

    fn look_up(&self) -> Action {
        let now = self.cached.cache.now();
        let planned_fetch = match self.cached.cache.find(&self.cache_request) {
            Found::Nothing => Fetch { why: Reason::Absent, candidate: None },
            Found::OtherVariants => Fetch { why: Reason::OtherVariant, candidate: None },
            Found::Answer(stored) => match usable(&stored.head, &self.directives, now) {
                Usable::Fresh => return Action::Give(stored, Finding::new(Outcome::Hit, Reason::Fresh)),
                Usable::Stale(reason) => return Action::Give(stored, Finding::new(Outcome::Stale, reason)),
                Usable::Validate(why) => Fetch { why, candidate: Some(stored) },
                Usable::No(reason) => return Action::Bypass(reason),
            },
        };
        if self.directives.demands.only_if_cached {
            return Action::OnlyIfCached;
        }
        if self.directives.demands.no_store {
            return Action::Bypass(Reason::ClientForbids);
        }
        if self.cache_request.head_only {
            return Action::Bypass(Reason::Method);
        }
        if self.cache_request.fields.range.is_some() {
            return Action::Bypass(Reason::Range);
        }
        Action::Fetch(planned_fetch)
    }

    /// Validates a stored response in the background while clients get it; at most one such fetch per key.
    fn revalidate_behind(&self, key: &Key, stored: &Stored) {
        let now = self.cached.cache.now();
        let under_way = self.cached.flights.find(key, &self.directives, Some(&stored.head), Timestamp::ZERO, now);
        // A HEAD response has no body to store.
        if under_way.is_some() || self.cache_request.head_only {
            return;
        }
        let leading = Leader::new(&self.cached.flights, key, self.head);
        let (cached, route, head, key) =
            (Rc::clone(self.cached), Rc::clone(self.route), Rc::clone(self.head), key.clone());
        let relay_request =
            RelayRequest { head: self.relay_request.head.clone(), body: Body::None, ..*self.relay_request };
        let planned_fetch = Fetch { why: Reason::Expired, candidate: Some(stored.clone()) };
        spawn_local(async move {
            let Parsed::Complete(request) = parse_within(&head, usize::MAX, FIELDS_MAX) else { return };
            let Ok(cache_request) = CacheRequest::of(&request, relay_request.secure) else { return };
            let directives = cached.cache.directives(cache_request.fields);
            let in_flight = InFlightRequest {
                cached: &cached,
                route: &route,
                relay_request: &relay_request,
                head: &head,
                cache_request,
                directives,
            };
            in_flight.fetch(&key, leading, planned_fetch, None).await;
        });
    }

    /// Forwards the request, for this client and for all followers of `leading`.
    async fn fetch(&self, key: &Key, leading: Leader, mut planned_fetch: Fetch, client: Option<Client>) {
        let cache = &self.cached.cache;
        // Followers cannot use a response that depends on this client's conditions. Without followers the client keeps
        // its conditions and may get a 304.
        let own_conditions = !leading.has_followers() && planned_fetch.candidate.is_none();
        let hints = client.as_ref().map(Client::hints);
        loop {
            let mut changes = Changes { hints: hints.clone(), ..Changes::default() };
            if !own_conditions {
                changes.without.extend(["if-none-match", "if-modified-since", "if-range", "range"]);
            }
            if let Some(stored) = &planned_fetch.candidate {
                changes.with = conditions(&stored.head);
            }
            let requested_at = cache.now();
            let outcome = send(self.route, self.relay_request, &changes, None).await;
            let received = cache.received(requested_at);
            let answer = match outcome {
                Ok(answer) => answer,
                Err(failure) => return self.failed(failure, leading, &planned_fetch, client).await,
            };
            if is_error(answer.status)
                && let Some(stored) = planned_fetch
                    .candidate
                    .as_ref()
                    .filter(|stored| self.may_replace_failed_fetch(stored, leading.flight()))
            {
                leading.complete(FetchResult::Errored);
                return self.send_stale(stored, Some(answer.status), planned_fetch.why, client).await;
            }
            let Some(stored) = planned_fetch
                .candidate
                .take()
                .filter(|stored| answer.status == 304 && stored.head.terms.has_validator())
            else {
                return self.answered(key, leading, planned_fetch.why, answer, received, client).await;
            };
            let UpstreamResponse { fields, mut body, .. } = answer;
            // A 304 has no content; reading its end releases the connection.
            let _ = body.next().await;
            let finding = Finding::new(Outcome::Revalidated, planned_fetch.why);
            let status =
                CacheStatus { forwarded_status: Some(304), ..CacheStatus::forwarded(finding, planned_fetch.why) };
            match freshened(&stored.head, &self.directives, &fields, received, cache.spec()) {
                Freshened::StillValid(head) => {
                    let stored = Stored { head: Arc::new(head), body: stored.body };
                    let is_stored = !leading.flight().is_invalidated()
                        && cache.put(key.clone(), self.cache_request.fields, stored.clone());
                    leading.complete(FetchResult::StillValid(stored.clone()));
                    let Some(client) = client else { return };
                    return self.give(&stored, CacheStatus { stored: is_stored, ..status }, client).await;
                }
                Freshened::Once(head) => {
                    cache.forget(key, self.cache_request.fields);
                    leading.complete(FetchResult::Alone);
                    let Some(client) = client else { return };
                    let stored = Stored { head: Arc::new(head), body: stored.body };
                    return self.give(&stored, status, client).await;
                }
                // The 304 describes another response: repeat the request without conditions.
                Freshened::Other => cache.forget(key, self.cache_request.fields),
            }
        }
    }

    /// The upstream sent something other than a 304 to our own condition.
    async fn answered(
        &self,
        key: &Key,
        leading: Leader,
        why: Reason,
        answer: UpstreamResponse,
        received: crate::cache::Received,
        client: Option<Client>,
    ) {
        let cache = &self.cached.cache;
        let too_large = |bytes: u64| bytes > cache.spec().object_bytes_max as u64;
        let storable =
            terms(&self.directives, answer.status, &answer.fields, received, cache.spec()).and_then(|found| {
                match answer.length {
                    Some(bytes) if too_large(bytes) => Err(Reason::TooLarge),
                    // Responses being sent to slow clients count too; otherwise memory would be unlimited.
                    length if cache.is_full_of_unsent(length.unwrap_or(0)) => Err(Reason::NoRoom),
                    _ => Ok(found),
                }
            });
        let (terms, vary) = match storable {
            Ok(found) => found,
            Err(reason) => {
                match answer.status {
                    // A 304 to the client's own condition.
                    304 => {}
                    // The origin's latest response replaces the stored one; a server error does not.
                    500.. => self.cached.set_alone(key, Some(UNSHARED_TIME_AFTER_FAILURE)),
                    _ => {
                        cache.forget(key, self.cache_request.fields);
                        self.cached.set_alone(key, Some(UNSHARED_TIME));
                    }
                }
                leading.complete(FetchResult::Alone);
                let Some(client) = client else { return };
                let finding = Finding::new(Outcome::Bypass, reason);
                return forward(marked(answer, &CacheStatus::forwarded(finding, why)), client, finding).await;
            }
        };
        self.cached.set_alone(key, None);
        let UpstreamResponse { status, fields, length, body } = answer;
        let head = Arc::new(Head::new(status, &fields, vary, terms, received));
        let filling = Rc::new(Filling::new(head, length, cache.unsent()));
        let flight = leading.share(&filling, cache.now());
        spawn_local(filling::fill(
            Rc::clone(self.cached),
            key.clone(),
            Rc::clone(self.head),
            flight,
            Rc::clone(&filling),
            body,
        ));
        let Some(client) = client else { return };
        // The first client gets all received fields, including those for one client only.
        let finding = Finding::new(Outcome::Miss, why);
        let mark = CacheStatus { stored: true, ..CacheStatus::forwarded(finding, why) };
        let rendered = Rendered::of(&filling.head, &self.cache_request, length);
        let mut first_client_fields = Vec::with_capacity(fields.len() + 128);
        if rendered.status == status {
            first_client_fields.extend_from_slice(&fields);
            mark.append(&mut first_client_fields, Some(filling.head.ttl_s(cache.now())));
        } else {
            rendered.append(&filling.head, &mark, cache.now(), &mut first_client_fields);
        }
        filling.stream(&rendered, first_client_fields.into(), finding, client).await;
    }

    /// The upstream sent no response.
    async fn failed(&self, failure: Failure, leading: Leader, planned_fetch: &Fetch, client: Option<Client>) {
        let stale =
            planned_fetch.candidate.as_ref().filter(|stored| self.may_replace_failed_fetch(stored, leading.flight()));
        leading.complete(FetchResult::Failed(failure.clone()));
        match stale {
            Some(stored) => self.send_stale(stored, None, planned_fetch.why, client).await,
            None => {
                let Some(client) = client else { return };
                refuse(&failure, planned_fetch.why, client).await;
            }
        }
    }

    /// Waits for another client's fetch. Returns the client if its response is not shareable with it.
    async fn follow(
        &self,
        flight: &Rc<Flight>,
        planned_fetch: &Fetch,
        arrived_at: Timestamp,
        client: Client,
    ) -> Option<Client> {
        let finding = Finding::new(Outcome::Collapsed, Reason::UnderWay);
        let mark = CacheStatus::forwarded(finding, planned_fetch.why);
        match flight.fetched().await {
            FetchResult::StillValid(stored) => {
                if !flight::may_have(&stored.head, &self.directives, arrived_at, self.cached.cache.now()) {
                    return Some(client);
                }
                self.give(&stored, mark, client).await;
                None
            }
            FetchResult::Shared(filling) => {
                if !flight::may_have(&filling.head, &self.directives, arrived_at, self.cached.cache.now()) {
                    return Some(client);
                }
                if filling.length.is_none() {
                    // The response may still exceed the storable size, and then only the first client gets it.
                    return match filling.whole().await {
                        Ok(Some(stored)) => {
                            self.give(&stored, mark, client).await;
                            None
                        }
                        Ok(None) => Some(client),
                        Err(_) => {
                            refuse(
                                &Failure::bad("the response that this request waited for broke off"),
                                planned_fetch.why,
                                client,
                            )
                            .await;
                            None
                        }
                    };
                }
                let rendered = Rendered::of(&filling.head, &self.cache_request, filling.length);
                let mut fields = Vec::with_capacity(filling.head.fields.len() + 128);
                rendered.append(&filling.head, &mark, self.cached.cache.now(), &mut fields);
                filling.stream(&rendered, fields.into(), finding, client).await;
                None
            }
            FetchResult::Failed(failure) => {
                match planned_fetch.candidate.as_ref().filter(|stored| self.may_replace_failed_fetch(stored, flight)) {
                    Some(stored) => self.send_stale(stored, None, planned_fetch.why, Some(client)).await,
                    None => refuse(&failure, planned_fetch.why, client).await,
                }
                None
            }
            FetchResult::Errored => {
                match planned_fetch.candidate.as_ref().filter(|stored| self.may_replace_failed_fetch(stored, flight)) {
                    Some(stored) => {
                        self.send_stale(stored, None, planned_fetch.why, Some(client)).await;
                        None
                    }
                    None => Some(client),
                }
            }
            FetchResult::Alone | FetchResult::Abandoned => Some(client),
        }
    }

    /// Whether a stored response may replace a failed fetch: not if the target was changed meanwhile.
    fn may_replace_failed_fetch(&self, stored: &Stored, flight: &Flight) -> bool {
        !flight.is_invalidated() && usable_on_error(&stored.head, &self.directives, self.cached.cache.now())
    }

    async fn send_stale(&self, stored: &Stored, upstream: Option<u16>, why: Reason, client: Option<Client>) {
        let Some(client) = client else { return };
        let finding = Finding::new(Outcome::Stale, Reason::UpstreamFailed);
        let mark = CacheStatus { forwarded_status: upstream, ..CacheStatus::forwarded(finding, why) };
        self.give(stored, mark, client).await;
    }

    /// Serves a stored response.
    async fn give(&self, stored: &Stored, mark: CacheStatus, mut client: Client) {
        let rendered = Rendered::of(&stored.head, &self.cache_request, Some(stored.body.len() as u64));
        let mut fields = Vec::with_capacity(stored.head.fields.len() + 128);
        rendered.append(&stored.head, &mark, self.cached.cache.now(), &mut fields);
        if client.head(rendered.status, fields.into(), rendered.length, mark.finding).await.is_err() {
            return;
        }
        let body = stored.body.slice(rendered.body.start as usize..rendered.body.end as usize);
        if client.body(body).await.is_ok() {
            client.end();
        }
    }
}

/// The action for a request.
enum Action {
    Give(Stored, Finding),
    Bypass(Reason),
    OnlyIfCached,
    Fetch(Fetch),
}

/// Workers pass no head with more fields.
const FIELDS_MAX: usize = 128;
/// Fetches of other clients that a client waits for in vain, before it makes its own.
const ATTEMPTS_MAX: usize = 3;
/// Time for which a key counts as unshareable after a response for one client.
const UNSHARED_TIME: Duration = Duration::from_secs(10);
/// The same after a failure, which may be short.
const UNSHARED_TIME_AFTER_FAILURE: Duration = Duration::from_secs(1);
/// Number of such keys.
const UNSHARED_KEYS_MAX: usize = 4096;
