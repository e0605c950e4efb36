//! Virtual users: the clients of a cache workload, which request the objects of a world and verify every response.
//!
//! ```text
//!   arrival --Stream--> DrawnRequest --request::write--> path, X-Yamabiko-Request-Id, form, body
//!                        |                      response --Checker--> CheckedResponse   (head and body in place)
//!                        |                                             |
//!                        |                                             \--> verdict, CacheExchange
//!                        \--embedded objects, PARALLEL concurrently, once the page is complete
//! ```
//!
//! Every shard draws the whole sequence of requests in the order of the schedule, those of other shards included, so
//! that it does not depend on the number of shards ([`ArrivalSource`](crate::arrival_source::ArrivalSource)). Request
//! numbers do not depend on responses either: the n-th arrival has number n, and the k-th object that its page embeds
//! has n + k 2^40.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use polymix::{
    CheckedResponse, Checker, Content, Distribution, DrawnRequest, Form, RequestId, ResponseIdentity, Stream, Variant,
    World,
};
use schema::{CacheExchange, FailureCause, Method, RequestRecord};
use slab::Slab;
use stats::Rng;
use units::Timestamp;

use crate::workload::{CacheWorkloadLoad, Verify};

/// Live counters of a cache workload; they are not part of the results.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct CacheCounters {
    /// Completed plain GET requests, the denominator of hit ratios.
    pub basic_gets: u64,
    /// Of these, the ones whose response was generated for another request.
    pub hits: u64,
    /// Connections opened by a client that already had [`PARALLEL`] open.
    pub crowded: u64,
}

impl CacheCounters {
    /// The sums of the counters of two shards of one load.
    #[must_use]
    pub fn plus(self, other: CacheCounters) -> CacheCounters {
        let CacheCounters { basic_gets, hits, crowded } = other;
        CacheCounters {
            basic_gets: self.basic_gets + basic_gets,
            hits: self.hits + hits,
            crowded: self.crowded + crowded,
        }
    }
}

/// Maximum concurrent requests for the objects of one page, and intended maximum connections of a virtual user: the
/// values of Web Polygraph's clients since PolyMix-2.
pub const PARALLEL: u32 = 4;

/// The k-th object that a page embeds has the number of the page plus k shifted by this many bits. A run has fewer
/// arrivals than 2^40.
const NTH_SHIFT: u32 = 40;

/// A request of a cache workload that has been scheduled and has not ended.
#[derive(Debug)]
pub(crate) struct WorkloadRequest {
    pub(crate) ask: DrawnRequest,
    pub(crate) id: RequestId,
    /// The objects that the page embeds.
    embedded: Vec<DrawnRequest>,
    /// Index of the page that embeds the object.
    page: Option<u32>,
    /// Unix time in ms when it was sent; before that, when it was scheduled.
    requested_unix_ms: u64,
}

/// The parts of an HTTP request that the cache workload determines.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RequestContent<'a> {
    world: &'a World,
    workload_request: &'a WorkloadRequest,
    /// Whether it is the last request on its connection.
    pub(crate) is_last: bool,
}

/// The verified response to a request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reply {
    /// The checker's result; `None` without a complete head.
    pub(crate) checked: Option<CheckedResponse>,
    /// Whether the client aborted the response, as planned.
    pub(crate) is_cut: bool,
}

impl Reply {
    /// No response.
    pub(crate) const NONE: Reply = Reply { checked: None, is_cut: false };
}

/// A complete page, with the objects that it embeds.
#[derive(Debug)]
struct Page {
    client: u32,
    /// Embedded objects that are not requested yet.
    left: VecDeque<(RequestId, DrawnRequest)>,
    /// Requests for embedded objects that have not ended.
    in_flight: u32,
}

/// The virtual users of one shard.
#[derive(Debug)]
pub(crate) struct VirtualUsers {
    cache_load: CacheWorkloadLoad,
    stream: Stream,
    pages: Slab<Page>,
    /// Distribution of the number of requests per connection, and the seed of its draws.
    uses: Option<(Distribution, u64)>,
    /// Open connections by client.
    open: Vec<u32>,
    live: CacheCounters,
    first_request: Option<Box<[u8]>>,
}

impl VirtualUsers {
    pub(crate) fn new(cache_load: CacheWorkloadLoad, clients: u32, seed: u64) -> Self {
        let uses = cache_load.world.spec.client_uses.clone();
        VirtualUsers {
            stream: Stream::new(&cache_load.world),
            pages: Slab::new(),
            uses: uses.map(|law| (law, Rng::named(seed, "uses of connections").next())),
            open: vec![0; clients as usize],
            live: CacheCounters::default(),
            first_request: None,
            cache_load,
        }
    }

    pub(crate) fn live(&self) -> CacheCounters {
        self.live
    }

    pub(crate) fn first_request(&self) -> Option<&[u8]> {
        self.first_request.as_deref()
    }

    /// Draws the request of this shard's arrival `sequence`, which is scheduled for `at`, `since` after the load's
    /// start.
    pub(crate) fn draw(&mut self, sequence: u64, since: Duration, at: Timestamp) -> WorkloadRequest {
        let ask = self.stream.next(since);
        let embedded = self.stream.embedded(&ask);
        let id = RequestId { run: self.cache_load.run, sequence };
        WorkloadRequest { ask, id, embedded, page: None, requested_unix_ms: self.unix_ms(at) }
    }

    /// Skips the request of another shard's arrival.
    pub(crate) fn skip(&mut self, since: Duration) {
        self.stream.next(since);
    }

    /// Index into the workload's requests: one request per kind, followed by one per kind for requests over TLS.
    pub(crate) fn request_of(&self, ask: &DrawnRequest) -> u32 {
        let kinds = self.cache_load.world.spec.kinds.len() as u32;
        u32::from(ask.object.kind) + if ask.secure { kinds } else { 0 }
    }

    /// Maximum requests on a new connection; 0 for unlimited.
    pub(crate) fn uses(&self, connection: u64) -> u32 {
        let Some((law, seed)) = &self.uses else { return 0 };
        (law.draw(&mut Rng::new(*seed, connection)).round() as u32).max(1)
    }

    /// Counts a connection that a client opens.
    pub(crate) fn opens(&mut self, client: u32) {
        let open = &mut self.open[client as usize];
        self.live.crowded += u64::from(*open >= PARALLEL);
        *open += 1;
    }

    /// Counts the close of a client's connection.
    pub(crate) fn closes(&mut self, client: u32) {
        self.open[client as usize] -= 1;
    }

    /// The parts of the HTTP request that the cache workload determines.
    pub(crate) fn content_of<'a>(&'a self, workload_request: &'a WorkloadRequest) -> RequestContent<'a> {
        RequestContent { world: &self.cache_load.world, workload_request, is_last: false }
    }

    pub(crate) fn note_written(&mut self, bytes: &[u8]) {
        self.first_request.get_or_insert_with(|| bytes.into());
    }

    /// The checker of a request's response, and whether it verifies the body.
    pub(crate) fn checker(&self, workload_request: &WorkloadRequest) -> (Box<Checker>, bool) {
        let compares = match self.cache_load.verify {
            Verify::All => true,
            Verify::OneIn(n) => workload_request.id.sequence.is_multiple_of(u64::from(n.max(1))),
            Verify::Heads => false,
        };
        let world = Arc::clone(&self.cache_load.world);
        let checker =
            Checker::new(world, workload_request.ask, workload_request.id, workload_request.requested_unix_ms);
        // A response that the client aborts ends within its body.
        (Box::new(checker), compares || workload_request.ask.abort_after.is_some())
    }

    pub(crate) fn unix_ms(&self, at: Timestamp) -> u64 {
        self.cache_load.wall_zero_ns.saturating_add(at.as_nanos()) / 1_000_000
    }

    /// Evaluates an ended request; the exchange's failure is the verdict. `record` already contains the response's
    /// properties.
    pub(crate) fn conclude(
        &mut self,
        workload_request: &WorkloadRequest,
        record: &RequestRecord,
        reply: Reply,
        failure: Option<FailureCause>,
    ) -> CacheExchange {
        let Reply { checked, is_cut } = reply;
        let stamp = checked.and_then(|checked| checked.identity);
        let world = &self.cache_load.world;
        let DrawnRequest { object, form, method, gzip, secure, repeat, offered, .. } = workload_request.ask;
        let due = world.version(object, (workload_request.requested_unix_ms / 1000) as i64);
        let variant = world.variant(object, gzip);
        let object_bytes = world.body(object, due, variant).length();
        let planned = failure.is_some_and(is_of_a_cut_reply) && self.was_cut_by_origin(workload_request, stamp);
        let verdict = match failure {
            Some(_) if planned => Ok(()),
            Some(cause) => Err(cause),
            None => verify_response(world, workload_request, record.status, checked.as_ref(), is_cut),
        };
        let made_for = stamp.and_then(|stamp| stamp.request_id);
        let exchange = CacheExchange {
            sequence: record.sequence,
            client: record.client,
            run: self.cache_load.run,
            world: world.id,
            kind: object.kind,
            object: object.number,
            object_bytes,
            variant_gzip: variant == Variant::Gzip,
            accepts_gzip: gzip,
            form,
            method,
            repeat,
            offered,
            cacheable: world.cacheable(object),
            renewable: world.has_last_modified(object) || world.has_etag(object),
            secure,
            aborted: is_cut || planned,
            scheduled_at: record.scheduled_at,
            sent_at: record.sent_at,
            done_at: record.done_at,
            requested_unix_ms: workload_request.requested_unix_ms,
            status: record.status,
            failure: verdict.err(),
            from_sequence: made_for.map(|id| id.sequence),
            from_run: made_for.map(|id| id.run),
            response_world: stamp.map_or(0, |stamp| stamp.world),
            response_object: stamp.map(|stamp| stamp.object.number),
            response_kind: stamp.map_or(0, |stamp| stamp.object.kind),
            response_version: stamp.map_or(0, |stamp| stamp.version),
            generated_unix_ms: stamp.map_or(0, |stamp| stamp.generated_unix_ms),
            renewed: stamp.is_some_and(|stamp| stamp.renewed),
            age_s: checked.and_then(|checked| checked.age_s),
            expected_version: due.number,
            expires_unix_s: due.expires_s.unwrap_or(i64::MAX),
            body_gzip: checked.is_some_and(|checked| checked.content_encoding_gzip),
            content: checked.map_or(Content::NotCompared, |checked| checked.content).into(),
            body_bytes: checked.map_or(0, |checked| checked.body_bytes),
            hit: false,
            wrong: None,
        };
        if exchange.failure.is_none() && exchange.is_basic() && !is_cut {
            self.live.basic_gets += 1;
            self.live.hits += u64::from(polymix::verifier::is_hit(&exchange));
        }
        exchange
    }

    /// Whether the origin aborted the response to `workload_request` as planned; `stamp` identifies the response. A
    /// cache may collapse requests and deliver the response to another request, which the origin aborted. This excuses
    /// the end only if that request was concurrent; otherwise the cache stored a truncated response.
    fn was_cut_by_origin(&self, workload_request: &WorkloadRequest, stamp: Option<ResponseIdentity>) -> bool {
        let Some(stamp) = stamp else {
            // Without a head, the response to this very request may have been lost with the abort.
            return self.cache_load.world.origin_aborts(workload_request.id).is_some();
        };
        // The origin aborts only responses that name a request.
        stamp.request_id.is_some_and(|made_for| {
            let is_now = stamp.generated_unix_ms.saturating_add(polymix::verifier::CLOCK_SLACK_MS)
                >= workload_request.requested_unix_ms;
            made_for.run == self.cache_load.run
                && self.cache_load.world.origin_aborts(made_for).is_some()
                && (made_for == workload_request.id || is_now)
        })
    }

    /// Registers a complete page whose embedded objects `client` will request. Returns `None` if the page embeds
    /// nothing.
    pub(crate) fn open_page(&mut self, workload_request: &WorkloadRequest, client: u32) -> Option<u32> {
        if workload_request.embedded.is_empty() {
            return None;
        }
        let id =
            |nth: u64| RequestId { sequence: workload_request.id.sequence + (nth << NTH_SHIFT), ..workload_request.id };
        let left = (1..).map(id).zip(workload_request.embedded.iter().copied()).collect();
        let page = self.pages.insert(Page { client, left, in_flight: 0 });
        Some(u32::try_from(page).expect("fewer pages than requests in flight"))
    }

    /// Counts the end of a request for an embedded object.
    pub(crate) fn end_one(&mut self, page: u32) {
        self.pages[page as usize].in_flight -= 1;
        self.remove_if_done(page);
    }

    /// The next embedded object of a page to request at `at`, with its client; `None` at the maximum of concurrent
    /// requests.
    pub(crate) fn next_of(&mut self, page: u32, at: Timestamp) -> Option<(u32, WorkloadRequest)> {
        let entry = self.pages.get_mut(page as usize).filter(|entry| entry.in_flight < PARALLEL)?;
        let (id, ask) = entry.left.pop_front()?;
        entry.in_flight += 1;
        let client = entry.client;
        let requested_unix_ms = self.unix_ms(at);
        Some((client, WorkloadRequest { ask, id, embedded: Vec::new(), page: Some(page), requested_unix_ms }))
    }

    /// Drops the remaining embedded objects of a page.
    pub(crate) fn drop_rest(&mut self, page: u32) {
        if let Some(entry) = self.pages.get_mut(page as usize) {
            entry.left.clear();
            self.remove_if_done(page);
        }
    }

    fn remove_if_done(&mut self, page: u32) {
        if self.pages.get(page as usize).is_some_and(|entry| entry.in_flight == 0 && entry.left.is_empty()) {
            self.pages.remove(page as usize);
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.pages.is_empty()
    }
}

impl WorkloadRequest {
    /// Index of the page that embeds the object.
    pub(crate) fn page(&self) -> Option<u32> {
        self.page
    }

    /// Sets the Unix time at which the request is sent.
    pub(crate) fn set_requested_unix_ms(&mut self, unix_ms: u64) {
        self.requested_unix_ms = unix_ms;
    }
}

/// Checks a complete response by itself. `polymix::verifier` checks it against earlier responses.
fn verify_response(
    world: &World,
    workload_request: &WorkloadRequest,
    status: u16,
    checked: Option<&CheckedResponse>,
    is_cut: bool,
) -> Result<(), FailureCause> {
    let conditional = matches!(workload_request.ask.form, Form::Ims200 | Form::Ims304);
    match status {
        200 => {}
        304 if conditional => return Ok(()),
        _ => return Err(FailureCause::UnexpectedStatus),
    }
    let Some(checked) = checked else { return Err(FailureCause::UnexpectedBody) };
    let is_it =
        checked.identity.is_some_and(|stamp| stamp.world == world.id && stamp.object == workload_request.ask.object);
    match checked.content {
        _ if !is_it => Err(FailureCause::UnexpectedBody),
        Content::Short if is_cut => Ok(()),
        Content::Short => Err(FailureCause::UnexpectedLength),
        Content::Differs { .. } | Content::Long => Err(FailureCause::UnexpectedBody),
        Content::Right | Content::NotCompared | Content::Recoded => Ok(()),
    }
}

/// Whether a failure is one that a sender's abort causes.
fn is_of_a_cut_reply(cause: FailureCause) -> bool {
    use FailureCause::{ClosedBeforeResponse, ClosedEarly, Reset, TlsTruncated};
    matches!(cause, ClosedBeforeResponse | ClosedEarly | Reset | TlsTruncated)
}

impl RequestContent<'_> {
    pub(crate) fn method(&self) -> Method {
        self.workload_request.ask.method
    }

    pub(crate) fn path(&self, into: &mut Vec<u8>) {
        self.world.write_path(self.workload_request.ask.object, into);
    }

    /// Appends the header fields of the cache workload, each with its line end.
    pub(crate) fn fields(&self, into: &mut Vec<u8>) {
        let WorkloadRequest { ask, id, requested_unix_ms, .. } = self.workload_request;
        into.extend_from_slice(polymix::REQUEST_ID_FIELD.as_bytes());
        into.extend_from_slice(b": ");
        id.write(into);
        into.extend_from_slice(b"\r\n");
        if ask.gzip {
            into.extend_from_slice(b"Accept-Encoding: gzip\r\n");
        }
        // HTTP dates have whole seconds, so the condition differs from the modification time by one second.
        let since = match ask.form {
            Form::Ims200 => -1,
            Form::Ims304 => 1,
            Form::Basic => return,
            Form::Reload => {
                // Pragma is for caches that support only HTTP/1.0 (RFC 9111, section 5.4).
                into.extend_from_slice(b"Cache-Control: no-cache\r\nPragma: no-cache\r\n");
                return;
            }
        };
        let modified_s = self.world.version(ask.object, (requested_unix_ms / 1000) as i64).modified_s;
        let date = UNIX_EPOCH + Duration::from_secs(modified_s.saturating_add(since).max(0) as u64);
        into.extend_from_slice(b"If-Modified-Since: ");
        into.extend_from_slice(httpdate::fmt_http_date(date).as_bytes());
        into.extend_from_slice(b"\r\n");
    }

    /// Bytes of the request's body.
    pub(crate) fn body_length(&self) -> usize {
        self.workload_request.ask.post_bytes as usize
    }

    /// Appends the request's body, whose content is irrelevant.
    pub(crate) fn body(&self, into: &mut Vec<u8>) {
        into.resize(into.len() + self.body_length(), b'y');
    }
}
