//! Virtual users of cache workloads: requests, verified responses, and embedded objects of pages.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use load::workload::{CacheWorkloadLoad, Choice, Template, Verify};
use load::{LoadSpec, PARALLEL, RequestSpec, Reuse, Shard, Target, Workload};
use polymix::{
    CacheWorkload, Distribution, DrawnRequest, EmbedSpec, Form, IDENTITY_FIELD, KindSpec, Object, REQUEST_ID_FIELD,
    RequestId, ResponseIdentity, Stream, Variant,
};
use schema::{CacheContent, CacheExchange, CacheForm, FailureCause, Method};
use units::Timestamp;

use crate::world::*;

/// Unix time at time zero of the load.
const ZERO_UNIX_S: u64 = 1_700_000_000;
const RUN: u32 = 0xbeef;

/// PolyMix-1 without think times and without a limit of requests per connection. It has one kind of objects.
fn plain() -> CacheWorkload {
    CacheWorkload { think: None, client_uses: None, ..CacheWorkload::polymix(1) }
}

fn world_of(spec: &CacheWorkload) -> Arc<polymix::World> {
    spec.check().unwrap();
    Arc::new(polymix::World::new(Arc::new(spec.clone()), 42, 7))
}

/// An open loop of `per_second` arrivals of a workload for two seconds.
fn load_of(spec: &CacheWorkload, per_second: f64) -> LoadSpec {
    let cache_load = CacheWorkloadLoad {
        world: world_of(spec),
        run: RUN,
        wall_zero_ns: ZERO_UNIX_S * 1_000_000_000,
        verify: Verify::All,
    };
    let schemes = ["http://origin/", "https://origin/"];
    let requests = schemes.iter().take(cache_load.requests() / spec.kinds.len()).flat_map(|url| {
        spec.kinds.iter().map(|kind| {
            let target = Target::parse(url).unwrap();
            RequestSpec { name: Some(kind.name.clone()), ..RequestSpec::get(target) }
        })
    });
    let workload = Workload {
        requests: requests.collect(),
        choice: Choice::CacheWorkload(cache_load),
        cookies: false,
        variables: 0,
    };
    LoadSpec { workload, duration: Some(Duration::from_secs(2)), ..crate::world::spec(constant(per_second)) }
}

fn cache_workload_of(load: &mut LoadSpec) -> &mut CacheWorkloadLoad {
    match &mut load.workload.choice {
        Choice::CacheWorkload(cache_load) => cache_load,
        _ => unreachable!("the load has a cache workload"),
    }
}

/// The requests of a load as drawn from the workload's stream, with the times of their arrivals.
fn drawn(load: &LoadSpec) -> Vec<(Duration, DrawnRequest)> {
    let Choice::CacheWorkload(cache_load) = &load.workload.choice else {
        unreachable!("the load has a cache workload")
    };
    let mut stream = Stream::new(&cache_load.world);
    let load::Arrivals::Open { rate, .. } = &load.arrivals else { unreachable!("an open loop") };
    let gap = 1.0 / rate.per_second(Duration::ZERO);
    let times = (0..).map(|n| Duration::from_secs_f64(f64::from(n) * gap));
    let within = times.take_while(|at| *at < load.duration.unwrap());
    within.map(|at| (at, stream.next(at))).collect()
}

/// An origin server for a cache workload.
struct Origin {
    world: Arc<polymix::World>,
    /// Responses stored by a cache in front of the origin; `None` without a cache.
    cache: Option<HashMap<(Object, bool), Vec<u8>>>,
    /// Server processing time.
    delay: Duration,
    /// Whether the origin closes the connection after each response, with `Connection: close`.
    closes: bool,
    /// A change to every response before it is sent.
    corrupt: fn(Vec<u8>) -> Vec<u8>,
}

impl Origin {
    fn of(load: &LoadSpec) -> Self {
        let Choice::CacheWorkload(cache_load) = &load.workload.choice else {
            unreachable!("the load has a cache workload")
        };
        Origin {
            world: Arc::clone(&cache_load.world),
            cache: None,
            delay: ms(5),
            closes: false,
            corrupt: |reply| reply,
        }
    }

    fn reply(&mut self, now: Timestamp, received: &ReceivedRequest) -> Vec<u8> {
        let path = received.path().strip_prefix("http://origin").unwrap_or(received.path());
        let (world, object) = polymix::World::read_path(path.as_bytes()).expect("a path of the world");
        assert_eq!(world, self.world.id);
        let gzip = received.header("Accept-Encoding").is_some_and(|value| value.contains("gzip"));
        if let Some(reply) = self.cache.as_ref().and_then(|cache| cache.get(&(object, gzip))) {
            return reply.clone();
        }
        let id = RequestId::read(received.header(REQUEST_ID_FIELD).expect("a request has an id").as_bytes()).unwrap();
        assert_eq!(id.run, RUN);
        let unix_s = ZERO_UNIX_S as i64 + (now.as_nanos() / 1_000_000_000) as i64;
        let version = self.world.version(object, unix_s);
        let variant = self.world.variant(object, gzip);
        let since = received.header("If-Modified-Since").map(unix_of);
        let not_modified = since.is_some_and(|since| since >= version.modified_s);
        let made_ms = ZERO_UNIX_S * 1000 + now.as_nanos() / 1_000_000;
        let ask = Some(id).filter(|_| !not_modified);
        let number = version.number;
        let stamp = ResponseIdentity {
            world,
            object,
            version: number,
            variant,
            request_id: ask,
            renewed: not_modified,
            generated_unix_ms: made_ms,
        };
        let mut stamped = Vec::new();
        stamp.write(&mut stamped);
        let body = self.world.body(object, version, variant);
        let status = if not_modified { "304 Not Modified" } else { "200 OK" };
        let close = if self.closes { "Connection: close\r\n" } else { "" };
        let coding = if variant == Variant::Gzip { "Content-Encoding: gzip\r\n" } else { "" };
        let length = if not_modified { String::new() } else { format!("Content-Length: {}\r\n", body.length()) };
        let stamped = String::from_utf8(stamped).unwrap();
        let mut reply =
            format!("HTTP/1.1 {status}\r\n{IDENTITY_FIELD}: {stamped}\r\n{coding}{length}{close}\r\n").into_bytes();
        if !not_modified && received.method() != "HEAD" {
            let mut at = 0;
            while at < body.length() {
                let piece = body.piece(at);
                reply.extend_from_slice(piece);
                at += piece.len() as u64;
            }
        }
        if let Some(cache) = self.cache.as_mut().filter(|_| self.world.cacheable(object) && !not_modified) {
            cache.insert((object, gzip), reply.clone());
        }
        reply
    }
}

impl Server for Origin {
    fn request(&mut self, _now: Timestamp, _nth: u32) -> Vec<(Duration, Reply)> {
        unreachable!("the server implements `respond`")
    }

    fn respond(&mut self, now: Timestamp, _nth: u32, received: &ReceivedRequest) -> Vec<(Duration, Reply)> {
        let reply = (self.corrupt)(self.reply(now, received));
        let mut out = vec![(self.delay, Reply::Bytes(reply))];
        if self.closes {
            out.push((self.delay, Reply::Fin));
        }
        out
    }
}

/// Unix time in seconds of an HTTP date.
fn unix_of(date: &str) -> i64 {
    let at = httpdate::parse_http_date(date).expect("an HTTP date");
    at.duration_since(std::time::UNIX_EPOCH).unwrap().as_secs() as i64
}

fn run_with(load: LoadSpec, change: impl FnOnce(&mut Origin)) -> World<Origin> {
    let mut origin = Origin::of(&load);
    change(&mut origin);
    let mut world = World::new(load, origin);
    world.stores_requests = true;
    let mut world = world.run();
    assert_eq!(world.records.len(), world.exchanges.len(), "an exchange for each record");
    for (record, exchange) in world.records.iter().zip(&world.exchanges) {
        assert_eq!(
            (record.sequence, record.client, record.scheduled_at, record.done_at, record.status, record.failure),
            (
                exchange.sequence,
                exchange.client,
                exchange.scheduled_at,
                exchange.done_at,
                exchange.status,
                exchange.failure
            )
        );
    }
    world.records.sort_by_key(|record| record.sequence);
    world.exchanges.sort_by_key(|exchange| exchange.sequence);
    world
}

fn run(load: LoadSpec) -> World<Origin> {
    run_with(load, |_| {})
}

fn path_of(world: &polymix::World, object: Object) -> String {
    let mut path = Vec::new();
    world.write_path(object, &mut path);
    String::from_utf8(path).unwrap()
}

#[test]
fn every_request_form_and_method_is_serialized_correctly() {
    let spec = CacheWorkload {
        forms: polymix::FormShares { ims200: 0.2, ims304: 0.2, reload: 0.2 },
        methods: polymix::MethodShares { post: 0.15, head: 0.15 },
        post_body: Distribution::Constant(600.0),
        ..plain()
    };
    let load = load_of(&spec, 200.0);
    let asks = drawn(&load);
    let origin = world_of(&spec);
    let world = run(load);
    assert_eq!(world.received.len(), asks.len());
    let mut forms = BTreeMap::<(&str, &str), u32>::new();
    for (received, (sequence, (_, ask))) in world.received.iter().zip((0u64..).zip(&asks)) {
        let unix_s = (ZERO_UNIX_S as i64)
            + (world.records[sequence as usize].started_at.unwrap().as_nanos() / 1_000_000_000) as i64;
        let date = |plus: i64| {
            let at = (origin.version(ask.object, unix_s).modified_s + plus) as u64;
            httpdate::fmt_http_date(std::time::UNIX_EPOCH + Duration::from_secs(at))
        };
        let own = match ask.form {
            Form::Basic => String::new(),
            Form::Ims200 => format!("If-Modified-Since: {}\r\n", date(-1)),
            Form::Ims304 => format!("If-Modified-Since: {}\r\n", date(1)),
            Form::Reload => "Cache-Control: no-cache\r\nPragma: no-cache\r\n".to_owned(),
        };
        let body = "y".repeat(ask.post_bytes as usize);
        let length =
            if ask.method == Method::Post { format!("Content-Length: {}\r\n", body.len()) } else { String::new() };
        let expected = format!(
            "{} {} HTTP/1.1\r\nHost: origin\r\nUser-Agent: yamabiko/{}\r\nAccept: */*\r\n{REQUEST_ID_FIELD}: {RUN:x}.{sequence:x}\r\n{own}{length}\r\n{body}",
            ask.method.as_str(),
            path_of(&origin, ask.object),
            env!("CARGO_PKG_VERSION"),
        );
        assert_eq!(received.text, expected);
        *forms.entry((ask.method.as_str(), ask.form.name())).or_default() += 1;
    }
    assert_eq!(forms.len(), 6, "every form and method occurred: {forms:?}");
    assert_eq!(world.exchanges.iter().find(|exchange| exchange.failure.is_some()), None);
    for (exchange, (_, ask)) in world.exchanges.iter().zip(&asks) {
        assert_eq!(exchange.status, if ask.form == Form::Ims304 { 304 } else { 200 });
        assert_eq!((exchange.form, exchange.method, exchange.object), (ask.form, ask.method, ask.object.number));
    }
    assert_eq!(world.load.first_request(), world.received[0].text.as_bytes());
}

#[test]
fn the_request_that_produced_a_response_is_identified() {
    let mut load = load_of(&plain(), 100.0);
    load.clients = 3;
    let asks = drawn(&load);
    let cold = run(load.clone());
    let own = |exchange: &CacheExchange| {
        (exchange.from_run, exchange.from_sequence) == (Some(RUN), Some(exchange.sequence))
            && exchange.content == CacheContent::Right
            && exchange.body_bytes == exchange.object_bytes
            && exchange.response_object == Some(exchange.object)
            && exchange.response_version == exchange.expected_version
    };
    assert!(cold.exchanges.iter().all(own));
    assert_eq!(cold.load.cache_counters().hits, 0);
    assert_eq!(cold.load.cache_counters().basic_gets, cold.exchanges.len() as u64);

    let warm = run_with(load, |origin| origin.cache = Some(HashMap::new()));
    let mut first = HashMap::new();
    let mut hits = 0;
    for (sequence, (_, ask)) in (0u64..).zip(&asks) {
        let exchange = &warm.exchanges[sequence as usize];
        let made_for = *first.entry(ask.object).or_insert(sequence);
        let expected = if exchange.cacheable { made_for } else { sequence };
        assert_eq!(exchange.from_sequence, Some(expected), "{sequence}");
        assert_eq!((exchange.repeat, exchange.offered), (ask.repeat, ask.offered));
        hits += u64::from(expected != sequence);
    }
    assert!(hits > 20, "{hits}");
    assert_eq!(warm.load.cache_counters().hits, hits);
}

#[test]
fn a_response_with_a_wrong_body_fails_its_request() {
    fn flip(mut reply: Vec<u8>) -> Vec<u8> {
        *reply.last_mut().unwrap() ^= 1;
        reply
    }
    fn unstamped(reply: Vec<u8>) -> Vec<u8> {
        replace(reply, IDENTITY_FIELD.as_bytes(), b"X-Nothing")
    }
    fn unfound(reply: Vec<u8>) -> Vec<u8> {
        replace(reply, b"200 OK", b"404 No")
    }
    fn moved(reply: Vec<u8>) -> Vec<u8> {
        replace(reply, b"200 OK", b"302 No")
    }
    fn unchanged(reply: Vec<u8>) -> Vec<u8> {
        let head = reply.windows(4).position(|four| four == b"\r\n\r\n").unwrap() + 4;
        replace(reply[..head].to_vec(), b"200 OK", b"304 No")
    }
    fn shortened(reply: Vec<u8>) -> Vec<u8> {
        // One byte less, with the matching length.
        let head = reply.windows(4).position(|four| four == b"\r\n\r\n").unwrap() + 4;
        let length = reply.len() - head;
        let text = String::from_utf8(reply[..head].to_vec()).unwrap();
        let text = text.replace(&format!("Content-Length: {length}"), &format!("Content-Length: {}", length - 1));
        [text.as_bytes(), &reply[head..reply.len() - 1]].concat()
    }
    fn replace(reply: Vec<u8>, from: &[u8], to: &[u8]) -> Vec<u8> {
        let at = reply.windows(from.len()).position(|window| window == from).unwrap();
        [&reply[..at], to, &reply[at + from.len()..]].concat()
    }
    type Corruption = fn(Vec<u8>) -> Vec<u8>;
    let corruptions: [(Corruption, FailureCause, CacheContent); 6] = [
        (flip, FailureCause::UnexpectedBody, CacheContent::Differs),
        (unstamped, FailureCause::UnexpectedBody, CacheContent::NotLooked),
        (unfound, FailureCause::UnexpectedStatus, CacheContent::NotLooked),
        (moved, FailureCause::UnexpectedStatus, CacheContent::NotLooked),
        (unchanged, FailureCause::UnexpectedStatus, CacheContent::NotLooked),
        (shortened, FailureCause::UnexpectedLength, CacheContent::Short),
    ];
    for (nth, (corrupt, cause, content)) in corruptions.into_iter().enumerate() {
        let mut load = load_of(&plain(), 50.0);
        load.clients = 2;
        let world = run_with(load, |origin| origin.corrupt = corrupt);
        let whole = |exchange: &&CacheExchange| exchange.object_bytes > 1;
        for exchange in world.exchanges.iter().filter(whole) {
            assert_eq!((exchange.failure, exchange.content), (Some(cause), content), "{nth}: {exchange:?}");
        }
        assert_eq!(world.load.cache_counters().basic_gets, 0);
        // The connection stays open.
        assert!(world.load.live().connections_opened <= 4, "{nth}");
    }
}

#[test]
fn a_response_with_another_object_is_wrong() {
    let load = load_of(&CacheWorkload { recurrence: 0.0, ..plain() }, 20.0);
    let other = {
        let mut origin = Origin::of(&load);
        let text = format!(
            "GET {} HTTP/1.1\r\n{REQUEST_ID_FIELD}: {RUN:x}.0\r\n\r\n",
            path_of(&origin.world, Object { kind: 0, number: 99_999 })
        );
        origin.reply(Timestamp::ZERO, &ReceivedRequest { at: Timestamp::ZERO, client: 0, target: 0, text })
    };
    let world = World::new(load, Site(move |_: &ReceivedRequest| vec![(ms(5), Reply::Bytes(other.clone()))])).run();
    for exchange in &world.exchanges {
        assert_eq!(exchange.failure, Some(FailureCause::UnexpectedBody));
        assert_eq!((exchange.response_object, exchange.from_sequence), (Some(99_999), Some(0)));
        assert_eq!(
            exchange.content,
            CacheContent::Right,
            "the body is compared with that of the object in the response"
        );
    }
}

#[test]
fn a_planned_client_abort_completes_the_request() {
    let load = load_of(&CacheWorkload { client_abort: 1.0, ..plain() }, 50.0);
    let asks = drawn(&load);
    let world = run(load);
    let mut left = 0;
    for ((record, exchange), (_, ask)) in world.records.iter().zip(&world.exchanges).zip(&asks) {
        assert_eq!(record.failure, None, "{record:?}");
        let leaves = ask.abort_after.is_some_and(|after| u64::from(after) <= exchange.object_bytes);
        assert_eq!(exchange.aborted, leaves, "{exchange:?}");
        assert!(!leaves || !record.keep_alive || exchange.body_bytes > 0);
        left += u64::from(leaves);
    }
    assert!(left > 50, "{left}");
    // Each planned abort closes its connection.
    assert!(world.load.live().connections_opened >= left, "{} for {left}", world.load.live().connections_opened);
    assert!(world.ends.iter().all(|end| end.requests <= 2 || left < world.records.len() as u64));
}

/// Responses without a request id, as behind a proxy that does not forward it, do not count as hits.
#[test]
fn a_fresh_response_without_a_request_id_is_not_a_hit() {
    fn unnamed(reply: Vec<u8>) -> Vec<u8> {
        let head = reply.windows(4).position(|four| four == b"\r\n\r\n").unwrap();
        let text = String::from_utf8(reply[..head].to_vec()).unwrap();
        let value = text.split(&format!("{IDENTITY_FIELD}: ")).nth(1).unwrap().split("\r\n").next().unwrap();
        let stamp = ResponseIdentity { request_id: None, ..ResponseIdentity::read(value.as_bytes()).unwrap() };
        let mut without = Vec::new();
        stamp.write(&mut without);
        [text.replace(value, std::str::from_utf8(&without).unwrap()).as_bytes(), &reply[head..]].concat()
    }
    let mut load = load_of(&plain(), 50.0);
    load.clients = 2;
    let world = run_with(load.clone(), |origin| origin.corrupt = unnamed);
    assert_eq!(
        (world.load.cache_counters().hits, world.load.cache_counters().basic_gets),
        (0, world.exchanges.len() as u64)
    );
    for exchange in &world.exchanges {
        assert_eq!((exchange.failure, exchange.from_sequence, exchange.renewed), (None, None, false));
        assert!(exchange.is_without_identity() && !polymix::verifier::is_hit(exchange), "{exchange:?}");
    }
    // From a cache, a response that is older than the request counts as a hit.
    let world = run_with(load, |origin| (origin.corrupt, origin.cache) = (unnamed, Some(HashMap::new())));
    let is_old = |exchange: &&CacheExchange| {
        exchange.generated_unix_ms + polymix::verifier::CLOCK_SLACK_MS < exchange.requested_unix_ms
            && exchange.cacheable
    };
    let hits = world.exchanges.iter().filter(is_old).count() as u64;
    assert!(hits > 5, "{hits}");
    assert_eq!(world.load.cache_counters().hits, hits);
}

/// A cache stores a response that the origin truncated, and serves it to later requests.
#[test]
fn a_cached_truncated_body_is_not_a_planned_abort() {
    let load = load_of(&CacheWorkload { origin_abort: 1.0, ..plain() }, 50.0);
    let mut origin = Origin::of(&load);
    let mut stored = HashMap::new();
    let server = Site(move |received: &ReceivedRequest| {
        let truncated = stored.entry(received.path().to_owned()).or_insert_with(|| {
            let whole = origin.reply(received.at, received);
            let head = whole.windows(4).position(|four| four == b"\r\n\r\n").unwrap() + 4;
            whole[..head + (whole.len() - head) / 2].to_vec()
        });
        vec![(ms(5), Reply::Bytes(truncated.clone())), (ms(6), Reply::Fin)]
    });
    let world = World::new(load, server).run();
    let (mut fresh, mut old) = (0, 0);
    for exchange in world.exchanges.iter().filter(|exchange| exchange.object_bytes > 1) {
        let is_own = exchange.from_sequence == Some(exchange.sequence);
        let is_old = exchange.generated_unix_ms + polymix::verifier::CLOCK_SLACK_MS < exchange.requested_unix_ms;
        if is_own || !is_old {
            fresh += 1;
            assert_eq!((exchange.failure, exchange.aborted), (None, true), "{exchange:?}");
        } else {
            old += 1;
            assert_eq!((exchange.failure, exchange.aborted), (Some(FailureCause::ClosedEarly), false), "{exchange:?}");
            let mut judge = polymix::Verifier::new(
                world_of(&CacheWorkload { origin_abort: 1.0, ..plain() }),
                (Timestamp::ZERO, None),
            );
            let mut exchange = *exchange;
            judge.add(&mut exchange);
            assert_eq!(exchange.wrong, Some(schema::Wrong::Truncated));
        }
    }
    assert!(fresh > 20 && old > 5, "{fresh} {old}");
}

/// The origin truncates the body and closes the connection.
#[test]
fn a_planned_origin_abort_is_not_a_failure() {
    for planned in [0.0, 1.0] {
        let load = load_of(&CacheWorkload { origin_abort: planned, ..plain() }, 50.0);
        let mut origin = Origin::of(&load);
        let server = Site(move |received: &ReceivedRequest| {
            let whole = origin.reply(received.at, received);
            let head = whole.windows(4).position(|four| four == b"\r\n\r\n").unwrap() + 4;
            let half = head + (whole.len() - head) / 2;
            vec![(ms(5), Reply::Bytes(whole[..half].to_vec())), (ms(6), Reply::Fin)]
        });
        let world = World::new(load, server).run();
        for exchange in world.exchanges.iter().filter(|exchange| exchange.object_bytes > 1) {
            let failure = Some(FailureCause::ClosedEarly).filter(|_| planned == 0.0);
            assert_eq!((exchange.failure, exchange.aborted), (failure, planned == 1.0), "{exchange:?}");
            assert_eq!(exchange.content, CacheContent::Short);
        }
    }
}

#[test]
fn connections_carry_the_drawn_number_of_requests() {
    let mut load = load_of(&CacheWorkload { client_uses: Some(Distribution::Constant(3.0)), ..plain() }, 50.0);
    load.clients = 1;
    let world = run(load);
    let full = world.ends.iter().filter(|end| end.requests == 3).count();
    assert!(full * 3 + 8 >= world.records.len() && world.ends.iter().all(|end| end.requests <= 3), "{full}");
    let mut by_connection = BTreeMap::<u64, Vec<&str>>::new();
    for received in &world.received {
        let id = RequestId::read(received.header(REQUEST_ID_FIELD).unwrap().as_bytes()).unwrap();
        let connection = world.records[id.sequence as usize].connection.unwrap();
        by_connection.entry(connection).or_default().push(received.header("Connection").unwrap_or(""));
    }
    for headers in by_connection.values() {
        assert!(headers[..headers.len().min(2)].iter().all(|header| header.is_empty()), "{headers:?}");
        assert!(headers.get(2).is_none_or(|header| *header == "close"), "{headers:?}");
    }
}

/// A workload of pages with six images each.
fn pages() -> CacheWorkload {
    let mut spec = plain();
    let image =
        KindSpec { name: "image".into(), share: 0.0, size: Distribution::Constant(2_000.0), ..spec.kinds[0].clone() };
    spec.kinds[0].name = "html".into();
    spec.kinds[0].embeds = Some(EmbedSpec { kind: "image".into(), count: Distribution::Constant(6.0) });
    spec.kinds.push(image);
    spec
}

/// Embedded objects have the number of their page plus their index shifted by this many bits.
const NTH_SHIFT: u32 = 40;

#[test]
fn a_page_fetches_its_embedded_objects() {
    let load = load_of(&pages(), 10.0);
    let arrivals = drawn(&load).len() as u64;
    let world = run(load);
    let by_sequence: BTreeMap<u64, &CacheExchange> =
        world.exchanges.iter().map(|exchange| (exchange.sequence, exchange)).collect();
    assert_eq!(by_sequence.len(), world.exchanges.len());
    let mut whole_pages = 0;
    for page in 0..arrivals {
        let html = by_sequence[&page];
        assert_eq!(html.kind, 0);
        let images: Vec<_> = (1..=6).filter_map(|nth| by_sequence.get(&(page + (nth << NTH_SHIFT)))).collect();
        // The images of pages near the end of the phase are not all scheduled.
        if html.done_at > at(Duration::from_millis(1900)) {
            continue;
        }
        whole_pages += 1;
        assert_eq!(images.len(), 6);
        for image in &images {
            assert_eq!((image.kind, image.client, image.failure), (1, html.client, None));
            assert!(image.scheduled_at >= html.done_at);
            let others = images
                .iter()
                .filter(|other| other.scheduled_at <= image.scheduled_at && other.done_at > image.scheduled_at);
            assert!(others.count() <= PARALLEL as usize, "page {page}");
        }
        let concurrent = images.iter().filter(|image| image.scheduled_at == html.done_at).count();
        assert_eq!(concurrent, PARALLEL as usize);
        assert!(images.iter().all(|image| {
            image.scheduled_at == html.done_at || images.iter().any(|other| other.done_at == image.scheduled_at)
        }));
    }
    assert!(whole_pages >= 15, "{whole_pages}");
    assert_eq!(
        world.records.iter().filter(|record| record.url == 1).count() as u64 + arrivals,
        world.records.len() as u64
    );
}

/// The tolerance covers five standard errors of the mean number of images per page, and images that the end of the
/// phase cuts off.
#[test]
fn a_workload_makes_the_configured_number_of_requests_per_arrival() {
    let mut load = load_of(&CacheWorkload { think: None, ..CacheWorkload::polymix(4) }, 200.0);
    load.duration = Some(Duration::from_secs(60));
    let arrivals = drawn(&load).len() as f64;
    let mut world = World::new(load.clone(), Origin::of(&load));
    world.server.delay = ms(2);
    let world = world.run();
    let actual = world.records.len() as f64 / arrivals;
    let expected = cache_workload_of(&mut load).world.spec.requests_per_arrival();
    assert!((actual / expected - 1.0).abs() < 0.06, "{actual} for {expected}");
}

#[test]
fn a_failed_page_fetches_no_embedded_objects() {
    let world = run_with(load_of(&pages(), 10.0), |origin| {
        origin.corrupt = |reply| [&b"HTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n"[..], &reply[..0]].concat();
    });
    assert!(
        world.records.iter().all(|record| record.url == 0 && record.failure == Some(FailureCause::UnexpectedStatus))
    );
}

#[test]
fn proxy_requests_have_absolute_targets_and_https_uses_a_tunnel() {
    let mut load = load_of(&CacheWorkload { https: 0.5, ..plain() }, 50.0);
    load.absolute_form = true;
    load.workload.requests.iter_mut().for_each(|request| {
        request.headers.push(("X-Own".into(), Template::literal("1")));
    });
    let asks = drawn(&load);
    let world = run(load);
    let mut secure = 0;
    for received in &world.received {
        let id = RequestId::read(received.header(REQUEST_ID_FIELD).unwrap().as_bytes()).unwrap();
        let ask = &asks[id.sequence as usize].1;
        let path = path_of(&world.server.world, ask.object);
        assert_eq!(received.path(), if ask.secure { path } else { format!("http://origin{path}") });
        assert_eq!(received.target, usize::from(ask.secure));
        assert_eq!((received.header("Host"), received.header("X-Own")), (Some("origin"), Some("1")));
        assert_eq!(world.records[id.sequence as usize].url, u32::from(ask.secure));
        assert_eq!(world.exchanges[id.sequence as usize].secure, ask.secure);
        secure += u32::from(ask.secure);
    }
    assert!((10..90).contains(&secure), "{secure}");
}

#[test]
fn connections_close_or_persist_in_both_http_versions() {
    for (reuse, version) in [
        (Reuse::Close, load::HttpVersion::Http11),
        (Reuse::Close, load::HttpVersion::Http10),
        (Reuse::KeepAlive, load::HttpVersion::Http11),
    ] {
        let mut load = load_of(&plain(), 50.0);
        (load.reuse, load.version, load.clients) = (reuse, version, 2);
        let world = run_with(load, |origin| origin.closes = reuse == Reuse::Close);
        assert!(world.exchanges.iter().all(|exchange| exchange.failure.is_none()));
        let opened = world.load.live().connections_opened as usize;
        assert_eq!(opened == world.records.len(), reuse == Reuse::Close, "{opened}");
    }
}

#[test]
fn workload_requests_do_not_depend_on_the_number_of_shards() {
    type Identity = (u64, u32, Timestamp, u8, u64, CacheForm);
    for spec in
        [plain(), CacheWorkload { forms: polymix::FormShares { ims200: 0.1, ims304: 0.1, reload: 0.1 }, ..pages() }]
    {
        let identities = |of: u32| {
            let mut all = Vec::<Identity>::new();
            for index in 0..of {
                let load = LoadSpec { shard: Shard::new(index, of), clients: 5, ..load_of(&spec, 40.0) };
                let world = run(load);
                all.extend(world.exchanges.iter().map(|exchange| {
                    // Images depend on the completion of their page, which is the same here as every response takes
                    // equally long.
                    let CacheExchange { sequence, client, scheduled_at, kind, object, form, .. } = *exchange;
                    (sequence, client, scheduled_at, kind, object, form)
                }));
            }
            all.sort_unstable_by_key(|it| (it.0, it.1));
            all.retain(|it| it.0 < 1 << NTH_SHIFT || it.2 < at(Duration::from_millis(1800)));
            all
        };
        let whole = identities(1);
        assert!(whole.len() >= 80);
        for of in [2, 3, 4] {
            assert_eq!(
                identities(of).iter().map(key).collect::<Vec<_>>(),
                whole.iter().map(key).collect::<Vec<_>>(),
                "{of} shards"
            );
        }
        fn key(it: &Identity) -> (u64, u32, u8, u64, CacheForm) {
            (it.0, it.1, it.3, it.4, it.5)
        }
    }
}

#[test]
fn bodies_without_comparison_can_be_discarded_unread() {
    for (verify, interval) in [(Verify::All, 1), (Verify::OneIn(4), 4), (Verify::Heads, u64::MAX)] {
        let mut load = load_of(&plain(), 50.0);
        cache_workload_of(&mut load).verify = verify;
        let world = run_with(load, |origin| {
            origin.corrupt = |mut reply| {
                *reply.last_mut().unwrap() ^= 1;
                reply
            };
        });
        for exchange in world.exchanges.iter().filter(|exchange| exchange.object_bytes > 0) {
            let is_compared = interval != u64::MAX && exchange.sequence % interval == 0;
            let content = if is_compared { CacheContent::Differs } else { CacheContent::NotLooked };
            assert_eq!((exchange.content, exchange.failure.is_some()), (content, is_compared), "{verify:?}");
            assert_eq!(exchange.body_bytes, exchange.object_bytes);
        }
    }
}
