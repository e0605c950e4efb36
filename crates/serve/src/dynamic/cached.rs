//! Requests that the result cache may answer, or whose answers it may keep: between client and upstream.
//!
//! ```text
//!   exchange ── stored and usable ──▶ given ── stale-while-revalidate: and a Flight without a client
//!       │ else
//!       ├─ the same is being fetched ──▶ follow the Flight ──▶ its answer, as it streams
//!       └─ nobody fetches it ──────────▶ lead one: upstream::send ──┬─ may be shared: a task fills Filling, all read from it
//!                                                                   └─ may not: leader alone; followers go on their own
//! ```
//!
//! One fetch for each answer however many wait, and never an answer to one who may not have it: followers are given an
//! answer only once its head is there and says that it may be reused for their request (RFC 9111, section 4).
//! Everything here runs on the relay's thread, so nothing is locked but the store.

mod bypass;
mod filling;
mod flight;

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::task::spawn_local;
use units::Timestamp;

use super::Ask;
use super::client::{Client, RequestBody};
use super::relay::pass_on;
use super::upstream::{Answer, Changes, Failure, RouteState, send};
use crate::cache::{
    Asked, Cache, CacheStatus, Finding, Found, Freshened, Head, Key, Outcome, Question, Reason, Rendered, Stored,
    Usable, conditions, freshened, is_error, terms, usable, usable_on_error,
};
use crate::request::{Body, Method, Parsed, Request, parse_within};
use bypass::{bypass, only_if_cached, refuse};
use filling::Filling;
use flight::{Flight, Flights, Landing, Leading};

/// The result cache as the relay uses it.
#[derive(Debug)]
pub(crate) struct Cached {
    cache: Arc<Cache>,
    flights: Rc<Flights>,
    /// Keys whose answers were found to be for one client alone, and until when that is believed: nobody waits for them.
    alone: RefCell<HashMap<Key, Timestamp>>,
}

impl Cached {
    /// Around the cache that the workers share.
    pub(crate) fn new(cache: Arc<Cache>) -> Rc<Self> {
        Rc::new(Cached { cache, flights: Rc::default(), alone: RefCell::default() })
    }

    fn is_alone(&self, key: &Key) -> bool {
        let now = self.cache.now();
        self.alone.borrow().get(key).is_some_and(|until| *until > now)
    }

    /// `None`: they are not.
    fn set_alone(&self, key: &Key, time: Option<Duration>) {
        let now = self.cache.now();
        let mut keys = self.alone.borrow_mut();
        let Some(time) = time else {
            keys.remove(key);
            return;
        };
        if keys.len() >= ALONE_MAX {
            keys.retain(|_, until| *until > now);
            if keys.len() >= ALONE_MAX {
                // Forgetting costs the next requests a wait for a head, no more.
                keys.clear();
            }
        }
        keys.insert(key.clone(), now + time);
    }

    /// RFC 9111, section 4.4: what an unsafe request was about may have changed, whatever was stored or is being fetched.
    fn invalidate(&self, key: &Key, fields: &[u8]) {
        let named = header_lines(fields).filter(|(name, _)| {
            name.eq_ignore_ascii_case(b"location") || name.eq_ignore_ascii_case(b"content-location")
        });
        for doomed in named.filter_map(|(_, value)| key.same_origin(value)).chain([key.clone()]) {
            self.cache.invalidate(&doomed);
            self.flights.doom(&doomed);
        }
    }
}

/// One exchange of a client, by way of the cache. Dropped when the client goes away.
pub(crate) async fn exchange(
    cached: &Rc<Cached>,
    route: &Rc<RouteState>,
    ask: Ask,
    body: Option<RequestBody>,
    client: Client,
) {
    let head = Rc::<[u8]>::from(&*ask.head);
    let Parsed::Complete(request) = parse_within(&head, usize::MAX, FIELDS_MAX) else {
        // Workers hand over complete heads only; the upstream's own reader refuses what this one does not know.
        return bypass(cached, route, &ask, body, client, Reason::Method, None).await;
    };
    let asked = match Asked::of(&request, ask.secure) {
        Ok(asked) => asked,
        Err(reason) => {
            let key = changes_things(&request).then(|| key_of(&request, ask.secure));
            return bypass(cached, route, &ask, body, client, reason, key).await;
        }
    };
    let errand = Errand { cached, route, ask: &ask, head: &head, asked, question: cached.cache.question(asked.fields) };
    errand.run(client).await;
}

/// What is to be got for one client.
struct Errand<'a> {
    cached: &'a Rc<Cached>,
    route: &'a Rc<RouteState>,
    ask: &'a Ask,
    /// The same as in `ask`, for those who outlive it.
    head: &'a Rc<[u8]>,
    asked: Asked<'a>,
    question: Question<'a>,
}

/// What is to be fetched, and what for.
struct Wanted {
    why: Reason,
    /// Stored, to be validated.
    candidate: Option<Stored>,
}

impl Errand<'_> {
    async fn run(&self, mut client: Client) {
        let arrived_at = self.cached.cache.now();
        let key = self.asked.key();
        for attempt in 0.. {
            let wanted = match self.look() {
                Look::Give(stored, finding) => {
                    if finding.reason == Reason::WhileRevalidating {
                        self.revalidate_behind(&key, &stored);
                    }
                    return self.give(&stored, CacheStatus::hit(finding), client).await;
                }
                Look::Bypass(reason) => {
                    return bypass(self.cached, self.route, self.ask, None, client, reason, None).await;
                }
                Look::OnlyIfCached => return only_if_cached(client).await,
                Look::Fetch(wanted) => wanted,
            };
            // Credentials: its answer is seldom for others, and it takes theirs only with a word of the origin.
            if self.question.has_credentials || self.cached.is_alone(&key) || attempt > ATTEMPTS_MAX {
                let leading = Leading::alone(&self.cached.flights, &key, self.head);
                return self.fetch(&key, leading, wanted, Some(client)).await;
            }
            let known = wanted.candidate.as_ref().map(|stored| &*stored.head);
            match self.cached.flights.find(&key, &self.question, known, arrived_at, self.cached.cache.now()) {
                None => {
                    let leading = Leading::new(&self.cached.flights, &key, self.head);
                    return self.fetch(&key, leading, wanted, Some(client)).await;
                }
                Some(flight) => match self.follow(&flight, &wanted, arrived_at, client).await {
                    None => return,
                    Some(unserved) => client = unserved,
                },
            }
        }
    }

    fn look(&self) -> Look {
        let now = self.cached.cache.now();
        let wanted = match self.cached.cache.find(&self.asked) {
            Found::Nothing => Wanted { why: Reason::Absent, candidate: None },
            Found::OtherVariants => Wanted { why: Reason::OtherVariant, candidate: None },
            Found::Answer(stored) => match usable(&stored.head, &self.question, now) {
                Usable::Fresh => return Look::Give(stored, Finding::new(Outcome::Hit, Reason::Fresh)),
                Usable::Stale(reason) => return Look::Give(stored, Finding::new(Outcome::Stale, reason)),
                Usable::Validate(why) => Wanted { why, candidate: Some(stored) },
                Usable::No(reason) => return Look::Bypass(reason),
            },
        };
        if self.question.demands.only_if_cached {
            return Look::OnlyIfCached;
        }
        if self.question.demands.no_store {
            return Look::Bypass(Reason::ClientForbids);
        }
        if self.asked.head_only {
            return Look::Bypass(Reason::Method);
        }
        if self.asked.fields.range.is_some() {
            return Look::Bypass(Reason::Range);
        }
        Look::Fetch(wanted)
    }

    /// Validates a stored answer while clients get it as it is; at most one such fetch at a time.
    fn revalidate_behind(&self, key: &Key, stored: &Stored) {
        let now = self.cached.cache.now();
        let under_way = self.cached.flights.find(key, &self.question, Some(&stored.head), Timestamp::ZERO, now);
        // A HEAD brings no body that could be stored.
        if under_way.is_some() || self.asked.head_only {
            return;
        }
        let leading = Leading::new(&self.cached.flights, key, self.head);
        let (cached, route, head, key) =
            (Rc::clone(self.cached), Rc::clone(self.route), Rc::clone(self.head), key.clone());
        let ask = Ask { head: self.ask.head.clone(), body: Body::None, ..*self.ask };
        let wanted = Wanted { why: Reason::Expired, candidate: Some(stored.clone()) };
        spawn_local(async move {
            let Parsed::Complete(request) = parse_within(&head, usize::MAX, FIELDS_MAX) else { return };
            let Ok(asked) = Asked::of(&request, ask.secure) else { return };
            let question = cached.cache.question(asked.fields);
            let errand = Errand { cached: &cached, route: &route, ask: &ask, head: &head, asked, question };
            errand.fetch(&key, leading, wanted, None).await;
        });
    }

    /// Asks the upstream, for this client and for all that follow `leading`.
    async fn fetch(&self, key: &Key, leading: Leading, mut wanted: Wanted, client: Option<Client>) {
        let cache = &self.cached.cache;
        // Followers could not use an answer that depends on what this client alone has already. One who fetches for
        // himself keeps his conditions: a 304 is then his to have.
        let own_conditions = !leading.has_followers() && wanted.candidate.is_none();
        let hints = client.as_ref().map(Client::hints);
        loop {
            let mut changes = Changes { hints: hints.clone(), ..Changes::default() };
            if !own_conditions {
                changes.without.extend(["if-none-match", "if-modified-since", "if-range", "range"]);
            }
            if let Some(stored) = &wanted.candidate {
                changes.with = conditions(&stored.head);
            }
            let requested_at = cache.now();
            let outcome = send(self.route, self.ask, &changes, None).await;
            let received = cache.received(requested_at);
            let answer = match outcome {
                Ok(answer) => answer,
                Err(failure) => return self.failed(failure, leading, &wanted, client).await,
            };
            if is_error(answer.status)
                && let Some(stored) =
                    wanted.candidate.as_ref().filter(|stored| self.may_stand_in(stored, leading.flight()))
            {
                leading.land(Landing::Errored);
                return self.give_stale(stored, Some(answer.status), wanted.why, client).await;
            }
            let Some(stored) =
                wanted.candidate.take().filter(|stored| answer.status == 304 && stored.head.terms.has_validator())
            else {
                return self.answered(key, leading, wanted.why, answer, received, client).await;
            };
            let Answer { fields, mut body, .. } = answer;
            // A 304 has no content; reading its end gives the connection back.
            let _ = body.next().await;
            let finding = Finding::new(Outcome::Revalidated, wanted.why);
            let status = CacheStatus { forwarded_status: Some(304), ..CacheStatus::forwarded(finding, wanted.why) };
            match freshened(&stored.head, &self.question, &fields, received, cache.spec()) {
                Freshened::Kept(head) => {
                    let stored = Stored { head: Arc::new(head), body: stored.body };
                    let is_stored =
                        !leading.flight().is_doomed() && cache.put(key.clone(), self.asked.fields, stored.clone());
                    leading.land(Landing::Kept(stored.clone()));
                    let Some(client) = client else { return };
                    return self.give(&stored, CacheStatus { stored: is_stored, ..status }, client).await;
                }
                Freshened::Once(head) => {
                    cache.forget(key, self.asked.fields);
                    leading.land(Landing::Alone);
                    let Some(client) = client else { return };
                    let stored = Stored { head: Arc::new(head), body: stored.body };
                    return self.give(&stored, status, client).await;
                }
                // The origin speaks of another answer than the one asked about: ask for all of it.
                Freshened::Other => cache.forget(key, self.asked.fields),
            }
        }
    }

    /// The upstream answered with something else than a 304 to our own condition.
    async fn answered(
        &self,
        key: &Key,
        leading: Leading,
        why: Reason,
        answer: Answer,
        received: crate::cache::Received,
        client: Option<Client>,
    ) {
        let cache = &self.cached.cache;
        let too_large = |bytes: u64| bytes > cache.spec().object_bytes_max as u64;
        let storable = terms(&self.question, answer.status, &answer.fields, received, cache.spec()).and_then(|found| {
            match answer.length {
                Some(bytes) if too_large(bytes) => Err(Reason::TooLarge),
                // Answers on their way to slow clients count too, or there would be no bound.
                length if cache.is_full_of_unsent(length.unwrap_or(0)) => Err(Reason::NoRoom),
                _ => Ok(found),
            }
        });
        let (terms, vary) = match storable {
            Ok(found) => found,
            Err(reason) => {
                match answer.status {
                    // To a condition of the client's own.
                    304 => {}
                    // The origin's latest word overrules what is stored; a failure of it does not.
                    500.. => self.cached.set_alone(key, Some(ALONE_AFTER_FAILURE)),
                    _ => {
                        cache.forget(key, self.asked.fields);
                        self.cached.set_alone(key, Some(ALONE_FOR));
                    }
                }
                leading.land(Landing::Alone);
                let Some(client) = client else { return };
                let finding = Finding::new(Outcome::Bypass, reason);
                return pass_on(marked(answer, &CacheStatus::forwarded(finding, why)), client, finding).await;
            }
        };
        self.cached.set_alone(key, None);
        let Answer { status, fields, length, body } = answer;
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
        // The first client gets the fields as they came, also those that are for him alone.
        let finding = Finding::new(Outcome::Miss, why);
        let mark = CacheStatus { stored: true, ..CacheStatus::forwarded(finding, why) };
        let rendered = Rendered::of(&filling.head, &self.asked, length);
        let mut own = Vec::with_capacity(fields.len() + 128);
        if rendered.status == status {
            own.extend_from_slice(&fields);
            mark.append(&mut own, Some(filling.head.ttl_s(cache.now())));
        } else {
            rendered.append(&filling.head, &mark, cache.now(), &mut own);
        }
        filling.stream(&rendered, own.into(), finding, client).await;
    }

    /// There is no answer.
    async fn failed(&self, failure: Failure, leading: Leading, wanted: &Wanted, client: Option<Client>) {
        let stale = wanted.candidate.as_ref().filter(|stored| self.may_stand_in(stored, leading.flight()));
        leading.land(Landing::Failed(failure.clone()));
        match stale {
            Some(stored) => self.give_stale(stored, None, wanted.why, client).await,
            None => {
                let Some(client) = client else { return };
                refuse(&failure, wanted.why, client).await;
            }
        }
    }

    /// Waits for another client's fetch. The client comes back when that answer is not for him.
    async fn follow(
        &self,
        flight: &Rc<Flight>,
        wanted: &Wanted,
        arrived_at: Timestamp,
        client: Client,
    ) -> Option<Client> {
        let finding = Finding::new(Outcome::Collapsed, Reason::UnderWay);
        let mark = CacheStatus::forwarded(finding, wanted.why);
        match flight.landed().await {
            Landing::Kept(stored) => {
                if !flight::may_have(&stored.head, &self.question, arrived_at, self.cached.cache.now()) {
                    return Some(client);
                }
                self.give(&stored, mark, client).await;
                None
            }
            Landing::Shared(filling) => {
                if !flight::may_have(&filling.head, &self.question, arrived_at, self.cached.cache.now()) {
                    return Some(client);
                }
                if filling.length.is_none() {
                    // It may yet turn out too large to be kept for those who come after the first.
                    return match filling.whole().await {
                        Ok(Some(stored)) => {
                            self.give(&stored, mark, client).await;
                            None
                        }
                        Ok(None) => Some(client),
                        Err(_) => {
                            refuse(&Failure::bad("an answer broke off that was awaited"), wanted.why, client).await;
                            None
                        }
                    };
                }
                let rendered = Rendered::of(&filling.head, &self.asked, filling.length);
                let mut fields = Vec::with_capacity(filling.head.fields.len() + 128);
                rendered.append(&filling.head, &mark, self.cached.cache.now(), &mut fields);
                filling.stream(&rendered, fields.into(), finding, client).await;
                None
            }
            Landing::Failed(failure) => {
                match wanted.candidate.as_ref().filter(|stored| self.may_stand_in(stored, flight)) {
                    Some(stored) => self.give_stale(stored, None, wanted.why, Some(client)).await,
                    None => refuse(&failure, wanted.why, client).await,
                }
                None
            }
            Landing::Errored => match wanted.candidate.as_ref().filter(|stored| self.may_stand_in(stored, flight)) {
                Some(stored) => {
                    self.give_stale(stored, None, wanted.why, Some(client)).await;
                    None
                }
                None => Some(client),
            },
            Landing::Alone | Landing::Abandoned => Some(client),
        }
    }

    /// Whether a stored answer may be given for a fetch that failed: not if what it is about was changed meanwhile.
    fn may_stand_in(&self, stored: &Stored, flight: &Flight) -> bool {
        !flight.is_doomed() && usable_on_error(&stored.head, &self.question, self.cached.cache.now())
    }

    async fn give_stale(&self, stored: &Stored, upstream: Option<u16>, why: Reason, client: Option<Client>) {
        let Some(client) = client else { return };
        let finding = Finding::new(Outcome::Stale, Reason::UpstreamFailed);
        let mark = CacheStatus { forwarded_status: upstream, ..CacheStatus::forwarded(finding, why) };
        self.give(stored, mark, client).await;
    }

    /// Gives a stored answer.
    async fn give(&self, stored: &Stored, mark: CacheStatus, mut client: Client) {
        let rendered = Rendered::of(&stored.head, &self.asked, Some(stored.body.len() as u64));
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

/// What can be done at once.
enum Look {
    Give(Stored, Finding),
    Bypass(Reason),
    OnlyIfCached,
    Fetch(Wanted),
}

/// The answer with a line of Cache-Status more.
fn marked(mut answer: Answer, mark: &CacheStatus) -> Answer {
    let mut fields = Vec::with_capacity(answer.fields.len() + 96);
    fields.extend_from_slice(&answer.fields);
    mark.append(&mut fields, None);
    answer.fields = Bytes::from(fields);
    answer
}

fn key_of(request: &Request<'_>, secure: bool) -> Key {
    Key::new(secure, request.fields.host.unwrap_or_default(), request.path, request.query)
}

/// RFC 9110, section 9.2.1: any method that is not known to be safe.
fn changes_things(request: &Request<'_>) -> bool {
    !matches!(request.method, Method::Get | Method::Head | Method::Options | Method::Trace)
}

fn header_lines(fields: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
    fields.split_inclusive(|&byte| byte == b'\n').filter_map(|line| {
        let colon = memchr::memchr(b':', line)?;
        Some((&line[..colon], line[colon + 1..].trim_ascii()))
    })
}

/// A worker let no head with more fields pass.
const FIELDS_MAX: usize = 128;
/// How often a client may wait for a fetch whose answer then is not for him, before he goes on his own.
const ATTEMPTS_MAX: usize = 3;
/// How long an answer that was for one client alone lets one believe that the next are too.
const ALONE_FOR: Duration = Duration::from_secs(10);
/// The same after a failure, which may be over soon.
const ALONE_AFTER_FAILURE: Duration = Duration::from_secs(1);
/// Keys of such answers that are remembered.
const ALONE_MAX: usize = 4096;
