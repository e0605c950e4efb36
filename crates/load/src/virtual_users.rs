//! Virtual users: the clients of a workload, which ask for a world's objects and hold every reply against it.
//!
//! ```text
//!   arrival --Stream--> DrawnRequest --request::write--> path, X-Yamabiko-Request-Id, form, body
//!                        |                      response --Checker--> CheckedResponse   (the head where it lies, the body as it comes)
//!                        |                                             |
//!                        |                                             \--> verdict, CacheExchange
//!                        \--what its page embeds, PARALLEL at a time, once the page is whole
//! ```
//!
//! Every shard draws the whole stream of asks in the order of the schedule, those of other shards included, so that it is the
//! same however many shards make it ([`Turns`](crate::turns::Turns)). Numbers do not depend on what comes back either: the
//! n-th arrival has number n, and the k-th object that its page embeds has n + k 2^40.

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

/// Counters of a workload that a run keeps while it goes; nothing of it is in the results.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct CacheCounters {
    /// Plain GETs that ended well: what hit ratios are a share of.
    pub basic_gets: u64,
    /// Of these, the ones whose reply was made for another ask.
    pub hits: u64,
    /// Connections opened by a client that had [`PARALLEL`] open already.
    pub crowded: u64,
}

impl CacheCounters {
    /// The counters of two shards of one load as one.
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

/// Objects of one page that are asked for at once, and connections that a virtual user is meant to have at most: as many as Web
/// Polygraph's virtual users of PolyMix-2 and later have.
pub const PARALLEL: u32 = 4;

/// The k-th object that a page embeds has the number of the page and k shifted by so many bits: there are fewer arrivals.
const NTH_SHIFT: u32 = 40;

/// A request of a workload that has been intended and has not ended.
#[derive(Debug)]
pub(crate) struct WorkloadRequest {
    pub(crate) ask: DrawnRequest,
    pub(crate) id: RequestId,
    /// What the page embeds.
    embedded: Vec<DrawnRequest>,
    /// The page that embeds it.
    page: Option<u32>,
    /// Unix time in ms when it was sent, or intended.
    requested_unix_ms: u64,
}

/// What is written into a request of a workload.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RequestContent<'a> {
    world: &'a World,
    asking: &'a WorkloadRequest,
    /// No other request follows on its connection.
    pub(crate) is_last: bool,
}

/// What became of a reply.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reply {
    /// What the checker saw of it; `None` where no head came.
    pub(crate) seen: Option<CheckedResponse>,
    /// The client left before the end, as planned.
    pub(crate) is_cut: bool,
}

impl Reply {
    /// There was none.
    pub(crate) const NONE: Reply = Reply { seen: None, is_cut: false };
}

/// A page that is whole, and what it embeds.
#[derive(Debug)]
struct Page {
    client: u32,
    left: VecDeque<(RequestId, DrawnRequest)>,
    /// Embedded objects requested and not complete.
    out: u32,
}

/// The virtual users of one shard.
#[derive(Debug)]
pub(crate) struct VirtualUsers {
    mix: CacheWorkloadLoad,
    stream: Stream,
    pages: Slab<Page>,
    /// Requests on a connection, and the seed of their numbers.
    uses: Option<(Distribution, u64)>,
    /// Connections open by client.
    open: Vec<u32>,
    live: CacheCounters,
    first_request: Option<Box<[u8]>>,
}

impl VirtualUsers {
    pub(crate) fn new(mix: CacheWorkloadLoad, clients: u32, seed: u64) -> Self {
        let uses = mix.world.spec.client_uses.clone();
        VirtualUsers {
            stream: Stream::new(&mix.world),
            pages: Slab::new(),
            uses: uses.map(|law| (law, Rng::named(seed, "uses of connections").next())),
            open: vec![0; clients as usize],
            live: CacheCounters::default(),
            first_request: None,
            mix,
        }
    }

    pub(crate) fn live(&self) -> CacheCounters {
        self.live
    }

    pub(crate) fn first_request(&self) -> Option<&[u8]> {
        self.first_request.as_deref()
    }

    /// The next arrival, `since` the load's start, has number `sequence` and is this shard's.
    pub(crate) fn draw(&mut self, sequence: u64, since: Duration, at: Timestamp) -> WorkloadRequest {
        let ask = self.stream.next(since);
        let embedded = self.stream.embedded(&ask);
        let id = RequestId { run: self.mix.run, sequence };
        WorkloadRequest { ask, id, embedded, page: None, requested_unix_ms: self.unix_ms(at) }
    }

    /// The next arrival is another shard's.
    pub(crate) fn pass_over(&mut self, since: Duration) {
        self.stream.next(since);
    }

    /// Which request of the workload stands for an ask: one for each kind, and the same again for those that are secured.
    pub(crate) fn request_of(&self, ask: &DrawnRequest) -> u32 {
        let kinds = self.mix.world.spec.kinds.len() as u32;
        u32::from(ask.object.kind) + if ask.secure { kinds } else { 0 }
    }

    /// Requests that a new connection is to carry; 0 for any number.
    pub(crate) fn uses(&self, connection: u64) -> u32 {
        let Some((law, seed)) = &self.uses else { return 0 };
        (law.draw(&mut Rng::new(*seed, connection)).round() as u32).max(1)
    }

    /// A client opens a connection.
    pub(crate) fn opens(&mut self, client: u32) {
        let open = &mut self.open[client as usize];
        self.live.crowded += u64::from(*open >= PARALLEL);
        *open += 1;
    }

    /// A client's connection is closed.
    pub(crate) fn closes(&mut self, client: u32) {
        self.open[client as usize] -= 1;
    }

    /// What is to be written for an ask.
    pub(crate) fn asked<'a>(&'a self, asking: &'a WorkloadRequest) -> RequestContent<'a> {
        RequestContent { world: &self.mix.world, asking, is_last: false }
    }

    pub(crate) fn note_written(&mut self, bytes: &[u8]) {
        self.first_request.get_or_insert_with(|| bytes.into());
    }

    /// An ask goes out at `now`: what looks at its reply, and whether that looks at the body.
    pub(crate) fn checker(&self, asking: &WorkloadRequest) -> (Box<Checker>, bool) {
        let compares = match self.mix.verify {
            Verify::All => true,
            Verify::OneIn(n) => asking.id.sequence.is_multiple_of(u64::from(n.max(1))),
            Verify::Heads => false,
        };
        let world = Arc::clone(&self.mix.world);
        let checker = Checker::new(world, asking.ask, asking.id, asking.requested_unix_ms);
        // The end of a reply that is to be left lies in its body.
        (Box::new(checker), compares || asking.ask.abort_after.is_some())
    }

    pub(crate) fn unix_ms(&self, at: Timestamp) -> u64 {
        self.mix.wall_zero_ns.saturating_add(at.as_nanos()) / 1_000_000
    }

    /// A request's exchange; its failure is what it is found to be. `record` tells by now all that was seen of the response.
    pub(crate) fn conclude(
        &mut self,
        asking: &WorkloadRequest,
        record: &RequestRecord,
        reply: Reply,
        failure: Option<FailureCause>,
    ) -> CacheExchange {
        let Reply { seen, is_cut } = reply;
        let stamp = seen.and_then(|seen| seen.identity);
        let world = &self.mix.world;
        let DrawnRequest { object, form, method, gzip, secure, repeat, offered, .. } = asking.ask;
        let due = world.version(object, (asking.requested_unix_ms / 1000) as i64);
        let variant = world.variant(object, gzip);
        let object_bytes = world.body(object, due, variant).length();
        let planned = failure.is_some_and(is_of_a_cut_reply) && self.was_cut_by_origin(asking, stamp);
        let verdict = match failure {
            Some(_) if planned => Ok(()),
            Some(cause) => Err(cause),
            None => look(world, asking, record.status, seen.as_ref(), is_cut),
        };
        let made_for = stamp.and_then(|stamp| stamp.request_id);
        let exchange = CacheExchange {
            sequence: record.sequence,
            client: record.client,
            run: self.mix.run,
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
            requested_unix_ms: asking.requested_unix_ms,
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
            age_s: seen.and_then(|seen| seen.age_s),
            expected_version: due.number,
            expires_unix_s: due.expires_s.unwrap_or(i64::MAX),
            body_gzip: seen.is_some_and(|seen| seen.content_encoding_gzip),
            content: seen.map_or(Content::NotCompared, |seen| seen.content).into(),
            body_bytes: seen.map_or(0, |seen| seen.body_bytes),
            hit: false,
            wrong: None,
        };
        if exchange.failure.is_none() && exchange.is_basic() && !is_cut {
            self.live.basic_gets += 1;
            self.live.hits += u64::from(polymix::verifier::is_hit(&exchange));
        }
        exchange
    }

    /// Whether the origin was to cut the response to `asking`, whose head had this identity. A cache may join asks, so that the
    /// reply is another's and was cut for that one; but not one that was over before this was asked: that stump was kept.
    fn was_cut_by_origin(&self, asking: &WorkloadRequest, stamp: Option<ResponseIdentity>) -> bool {
        let Some(stamp) = stamp else {
            // No head came. That of this ask may have been lost with the end.
            return self.mix.world.origin_aborts(asking.id).is_some();
        };
        // What names no ask the origin does not cut.
        stamp.request_id.is_some_and(|made_for| {
            let is_now =
                stamp.generated_unix_ms.saturating_add(polymix::verifier::CLOCK_SLACK_MS) >= asking.requested_unix_ms;
            made_for.run == self.mix.run
                && self.mix.world.origin_aborts(made_for).is_some()
                && (made_for == asking.id || is_now)
        })
    }

    /// A page is whole: what it embeds is to be asked for by `client`. The page, if there is anything.
    pub(crate) fn open_page(&mut self, asking: &WorkloadRequest, client: u32) -> Option<u32> {
        if asking.embedded.is_empty() {
            return None;
        }
        let id = |nth: u64| RequestId { sequence: asking.id.sequence + (nth << NTH_SHIFT), ..asking.id };
        let left = (1..).map(id).zip(asking.embedded.iter().copied()).collect();
        let page = self.pages.insert(Page { client, left, out: 0 });
        Some(u32::try_from(page).expect("fewer pages than requests in hand"))
    }

    /// An ask of a page is over.
    pub(crate) fn one_over(&mut self, page: u32) {
        self.pages[page as usize].out -= 1;
        self.tidy(page);
    }

    /// The next object of a page that may be asked for at `at`, with its client.
    pub(crate) fn next_of(&mut self, page: u32, at: Timestamp) -> Option<(u32, WorkloadRequest)> {
        let entry = self.pages.get_mut(page as usize).filter(|entry| entry.out < PARALLEL)?;
        let (id, ask) = entry.left.pop_front()?;
        entry.out += 1;
        let client = entry.client;
        let requested_unix_ms = self.unix_ms(at);
        Some((client, WorkloadRequest { ask, id, embedded: Vec::new(), page: Some(page), requested_unix_ms }))
    }

    /// Nothing more of a page is asked for.
    pub(crate) fn give_up(&mut self, page: u32) {
        if let Some(entry) = self.pages.get_mut(page as usize) {
            entry.left.clear();
            self.tidy(page);
        }
    }

    fn tidy(&mut self, page: u32) {
        if self.pages.get(page as usize).is_some_and(|entry| entry.out == 0 && entry.left.is_empty()) {
            self.pages.remove(page as usize);
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.pages.is_empty()
    }
}

impl WorkloadRequest {
    /// The page that embeds it.
    pub(crate) fn page(&self) -> Option<u32> {
        self.page
    }

    /// It goes out, at this Unix time.
    pub(crate) fn set_asked(&mut self, unix_ms: u64) {
        self.requested_unix_ms = unix_ms;
    }
}

/// What a whole reply is found to be by itself. What only the replies before it can tell is the judge's to say.
fn look(
    world: &World,
    asking: &WorkloadRequest,
    status: u16,
    seen: Option<&CheckedResponse>,
    is_cut: bool,
) -> Result<(), FailureCause> {
    let conditional = matches!(asking.ask.form, Form::Ims200 | Form::Ims304);
    match status {
        200 => {}
        304 if conditional => return Ok(()),
        _ => return Err(FailureCause::UnexpectedStatus),
    }
    let Some(seen) = seen else { return Err(FailureCause::UnexpectedBody) };
    let is_it = seen.identity.is_some_and(|stamp| stamp.world == world.id && stamp.object == asking.ask.object);
    match seen.content {
        _ if !is_it => Err(FailureCause::UnexpectedBody),
        Content::Short if is_cut => Ok(()),
        Content::Short => Err(FailureCause::UnexpectedLength),
        Content::Differs { .. } | Content::Long => Err(FailureCause::UnexpectedBody),
        Content::Right | Content::NotCompared | Content::Recoded => Ok(()),
    }
}

/// Ends of a reply whose sender left.
fn is_of_a_cut_reply(cause: FailureCause) -> bool {
    use FailureCause::{ClosedBeforeResponse, ClosedEarly, Reset, TlsTruncated};
    matches!(cause, ClosedBeforeResponse | ClosedEarly | Reset | TlsTruncated)
}

impl RequestContent<'_> {
    pub(crate) fn method(&self) -> Method {
        self.asking.ask.method
    }

    pub(crate) fn path(&self, into: &mut Vec<u8>) {
        self.world.write_path(self.asking.ask.object, into);
    }

    /// The header fields of its own, each with its line end.
    pub(crate) fn fields(&self, into: &mut Vec<u8>) {
        let WorkloadRequest { ask, id, requested_unix_ms, .. } = self.asking;
        into.extend_from_slice(polymix::REQUEST_ID_FIELD.as_bytes());
        into.extend_from_slice(b": ");
        id.write(into);
        into.extend_from_slice(b"\r\n");
        if ask.gzip {
            into.extend_from_slice(b"Accept-Encoding: gzip\r\n");
        }
        // Dates are in whole seconds: one of them is as near as a condition comes to the moment of a change.
        let since = match ask.form {
            Form::Ims200 => -1,
            Form::Ims304 => 1,
            Form::Basic => return,
            Form::Reload => {
                // Pragma is for those that know HTTP/1.0 alone (RFC 9111, section 5.4).
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

    /// Bytes of its body.
    pub(crate) fn body_length(&self) -> usize {
        self.asking.ask.post_bytes as usize
    }

    /// Its body, at the end of `into`: what stands in it matters to nobody.
    pub(crate) fn body(&self, into: &mut Vec<u8>) {
        into.resize(into.len() + self.body_length(), b'y');
    }
}
