//! The origin workload: every response is verified by the virtual users' own checker.
#![allow(
    clippy::disallowed_methods,
    reason = "an origin uses the wall clock for objects and a monotonic clock for think times"
)]

use super::*;

use std::sync::Arc;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use polymix::{
    CacheWorkload, CheckedResponse, Checker, Content, Distribution, DrawnRequest, Expires, Form, KindSpec, LifeSpec,
    Object, OriginFigures, RequestId, ResponseIdentity, Vary, Version, World,
};
use schema::Method;

use crate::OriginSpec;

/// A server and the requested world.
struct Origin {
    server: Running,
    world: Arc<World>,
}

/// Compressed pages, uncompressed objects, files of three megabytes.
fn spec() -> CacheWorkload {
    let usual = CacheWorkload::polymix(1);
    let life = LifeSpec {
        cycle: Distribution::Constant(86_400.0),
        variance: 0.0,
        last_modified: 1.0,
        expires: Expires::NextChange,
        etag: 1.0,
    };
    let kind = |name: &str, media_type: &str, size| KindSpec {
        name: name.into(),
        ext: String::new(),
        media_type: media_type.into(),
        share: 1.0,
        size,
        cacheable: 1.0,
        life: life.clone(),
        gzip: false,
        vary: Vary::None,
        embeds: None,
    };
    let page = kind("page", "text/html", Distribution::Exponential(13_000.0));
    let page = KindSpec { ext: ".html".into(), gzip: true, vary: Vary::AcceptEncoding, ..page };
    let thing = kind("thing", "image/png", Distribution::Exponential(13_000.0));
    let large = kind("large", "application/octet-stream", Distribution::Constant(3_000_000.0));
    let spec = CacheWorkload {
        name: "test".into(),
        think: None,
        origin_uses: Some(Distribution::Constant(1_000_000.0)),
        kinds: vec![page, thing, large],
        ..usual
    };
    spec.check().unwrap();
    spec
}

fn seconds(seconds: f64) -> Option<Distribution> {
    Some(Distribution::Constant(seconds))
}

const PAGE: u8 = 0;
const THING: u8 = 1;
const LARGE: u8 = 2;

impl Origin {
    fn start(spec: CacheWorkload) -> Self {
        Self::with(spec, 1, Limits::default())
    }

    fn with(spec: CacheWorkload, threads: usize, limits: Limits) -> Self {
        let world = Arc::new(World::new(Arc::new(spec), 7, 0x1f3a));
        let mut origin = OriginSpec::new(Arc::clone(&world));
        origin.accept_any_world = false;
        let directory = tempfile::tempdir().unwrap();
        let listen = "127.0.0.1:0".parse().unwrap();
        let spec = ServeSpec { threads, limits, engine: ENGINE, ..ServeSpec::of_origin(origin, listen) };
        let stop = Arc::new(EventFd::new().unwrap());
        let (address_sender, address_receiver) = mpsc::channel();
        let stopped = Arc::clone(&stop);
        let thread = thread::spawn(move || serve(&spec, stopped.as_fd(), |bound| address_sender.send(bound).unwrap()));
        let server = Running { address: address_receiver.recv().unwrap(), directory, stop, thread: Some(thread) };
        Origin { server, world }
    }

    fn path(&self, object: Object) -> String {
        let mut path = Vec::new();
        self.world.write_path(object, &mut path);
        String::from_utf8(path).unwrap()
    }

    /// A request head with `more` fields.
    fn request(&self, method: &str, object: Object, sequence: u64, more: &str) -> String {
        let mut request_id = Vec::new();
        id(sequence).write(&mut request_id);
        let (path, request_id) = (self.path(object), String::from_utf8(request_id).unwrap());
        format!("{method} {path} HTTP/1.1\r\nHost: other.example\r\nX-Yamabiko-Request-Id: {request_id}\r\n{more}\r\n")
    }

    /// Sends a request over `client` and verifies the response.
    fn check(&self, client: &mut Client, object: Object, sequence: u64, gzip: bool) -> (Response, CheckedResponse) {
        let more = if gzip { "Accept-Encoding: gzip\r\n" } else { "" };
        client.send(self.request("GET", object, sequence, more).as_bytes());
        let response = client.response(true);
        let seen = self.seen(&response, object, sequence, gzip);
        (response, seen)
    }

    fn seen(&self, response: &Response, object: Object, sequence: u64, gzip: bool) -> CheckedResponse {
        let request = DrawnRequest {
            number: sequence,
            object,
            form: Form::Basic,
            method: Method::Get,
            gzip,
            secure: false,
            repeat: false,
            offered: false,
            abort_after: None,
            post_bytes: 0,
        };
        let mut checker = Checker::new(Arc::clone(&self.world), request, id(sequence), unix_ms());
        checker.head(response.head.as_bytes());
        for piece in response.body.chunks(7777) {
            checker.body(piece);
        }
        checker.end()
    }

    /// Requests an object of another world, with these header fields.
    fn request_in_world(&self, client: &mut Client, world: u32, fields: &str) -> Response {
        client.send(format!("GET /y/{world:x}/B1 HTTP/1.1\r\nHost: o\r\n{fields}\r\n").as_bytes());
        client.response(!fields.contains("If-None-Match"))
    }

    fn figures(&self) -> OriginFigures {
        serde_json::from_slice(&self.server.connect().get("/-/origin").body).unwrap()
    }

    /// Reads the counters until they satisfy a condition.
    fn wait_for_figures(&self, condition: impl Fn(&OriginFigures) -> bool) -> OriginFigures {
        let begun = Instant::now();
        loop {
            let figures = self.figures();
            if condition(&figures) {
                return figures;
            }
            assert!(begun.elapsed() < Duration::from_secs(60), "{figures:?}");
            thread::sleep(Duration::from_millis(2));
        }
    }

    fn version(&self, object: Object) -> Version {
        self.world.version(object, (unix_ms() / 1000) as i64)
    }
}

fn id(sequence: u64) -> RequestId {
    RequestId { run: 0xbeef, sequence }
}

fn unix_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis() as u64
}

fn object(kind: u8, number: u64) -> Object {
    Object { kind, number }
}

fn identity(response: &Response) -> ResponseIdentity {
    ResponseIdentity::read(response.field("X-Yamabiko").unwrap().as_bytes()).unwrap()
}

/// A long-lived origin counts the current worlds, and reports which worlds it has no counts of.
#[test]
fn current_worlds_are_counted_and_unknown_worlds_are_reported() {
    let origin = Origin::start(spec());
    let mut client = origin.server.connect();
    for world in 1..=OriginFigures::WORLDS_MAX as u32 {
        assert_eq!(origin.request_in_world(&mut client, world, "").status(), "200 OK");
    }
    let before = origin.figures();
    assert_eq!((before.worlds.len(), before.worlds_forgotten), (OriginFigures::WORLDS_MAX, 0));
    for request_id in ["", "X-Yamabiko-Request-Id: 1.1\r\n", "X-Yamabiko-Request-Id: 1.2\r\n"] {
        origin.request_in_world(&mut client, 0x1000, request_id);
    }
    let after = origin.figures();
    assert_eq!((after.worlds.len(), after.worlds_forgotten), (OriginFigures::WORLDS_MAX, 1));
    let counted = after.of_world(Some(&before), 0x1000).unwrap();
    assert_eq!((counted.requests, counted.without_request_id), (3, 1));
    assert!(counted.content_bytes > 0);
    assert_eq!(after.of_world(Some(&before), 1), None, "the counts of this world were evicted");
    assert_eq!(
        before.of_world(None, 0x1000).unwrap().requests,
        0,
        "a world that was never requested has zero requests"
    );
    assert_eq!(after.digest, origin.world.spec.digest(7));
    assert!(after.started_unix_ms.abs_diff(unix_ms()) < 600_000);
}

/// A response without a request id is distinguishable from a revalidated one.
#[test]
fn requests_without_id_and_revalidations_have_different_identities() {
    let origin = Origin::start(spec());
    let mut client = origin.server.connect();
    let unnamed = identity(&origin.request_in_world(&mut client, 0x1f3a, ""));
    assert_eq!((unnamed.request_id, unnamed.renewed), (None, false));
    let named = identity(&origin.request_in_world(&mut client, 0x1f3a, "X-Yamabiko-Request-Id: 1.2\r\n"));
    assert_eq!((named.request_id, named.renewed), (Some(RequestId { run: 1, sequence: 2 }), false));
    let renewed =
        identity(&origin.request_in_world(&mut client, 0x1f3a, "X-Yamabiko-Request-Id: 1.3\r\nIf-None-Match: *\r\n"));
    assert_eq!((renewed.request_id, renewed.renewed), (None, true));
}

#[test]
fn every_response_matches_its_identity() {
    let origin = Origin::start(spec());
    let mut client = origin.server.connect();
    for sequence in 0..150 {
        let kind = if sequence % 50 == 0 { LARGE } else { (sequence % 2) as u8 };
        let (object, gzip) = (object(kind, sequence / 3), sequence % 3 == 0);
        let (response, seen) = origin.check(&mut client, object, sequence, gzip);
        assert_eq!(response.status(), "200 OK");
        assert_eq!(seen.content, Content::Right, "{}", response.head);
        let identity = seen.identity.unwrap();
        assert_eq!((identity.world, identity.object, identity.request_id), (0x1f3a, object, Some(id(sequence))));
        assert!(identity.generated_unix_ms.abs_diff(unix_ms()) < 60_000);
        assert_eq!(response.field("Content-Type").unwrap(), origin.world.spec.kinds[usize::from(kind)].media_type);
        let coded = kind == PAGE && gzip;
        assert_eq!(response.field("Content-Encoding"), coded.then_some("gzip"));
        assert_eq!(
            response.field("Vary"),
            (kind == PAGE).then_some("Accept-Encoding"),
            "whether or not the request accepts gzip"
        );
        assert_eq!(response.field("Cache-Control"), Some("public"));
        assert!(response.field("Expires").is_some() && response.field("Connection").is_none());
    }
    // The same with one connection per request, closed after the response.
    for sequence in 150..200 {
        let object = object(if sequence == 160 { LARGE } else { THING }, sequence);
        let response_text = origin.request("GET", object, sequence, "Connection: close\r\n");
        let mut client = origin.server.connect();
        client.send(response_text.as_bytes());
        let response = client.response(true);
        assert_eq!(origin.seen(&response, object, sequence, false).content, Content::Right);
        assert_eq!(response.field("Connection"), Some("close"));
        assert!(client.rest().is_empty());
    }
    let figures = origin.figures();
    assert_eq!((figures.requests, figures.get, figures.full, figures.connections), (200, 200, 200, 51));
    assert_eq!((figures.foreign, figures.without_request_id, figures.not_modified, figures.refused), (0, 0, 0, 0));
    assert_eq!((figures.workload.as_str(), figures.seed), ("test", 7));
    assert_eq!(figures.worlds["1f3a"].requests, 200);
    assert_eq!(figures.worlds["1f3a"].content_bytes, figures.content_bytes);
    assert_eq!(figures.think_timing_error_ns.count, 0);
}

#[test]
fn conditional_requests_by_date_and_tag_get_304() {
    let origin = Origin::start(spec());
    let mut client = origin.server.connect();
    let object = object(PAGE, 3);
    let first = client_get(&origin, &mut client, object, 0, "");
    let (modified, etag) = (first.field("Last-Modified").unwrap(), first.field("ETag").unwrap());
    let modified_s = origin.version(object).modified_s;
    let date = |seconds: i64| String::from_utf8(crate::date::http_date_s(seconds).to_vec()).unwrap();
    assert_eq!(modified, date(modified_s));
    let since = |seconds| format!("If-Modified-Since: {}\r\n", date(seconds));
    let tag = |tag: &str| format!("If-None-Match: {tag}\r\n");
    for (fields, status) in [
        (since(modified_s - 1), "200 OK"),
        (since(modified_s), "304 Not Modified"),
        (since(modified_s + 1), "304 Not Modified"),
        (tag(etag), "304 Not Modified"),
        (tag(&format!("\"x\", W/{etag}")), "304 Not Modified"),
        (tag("\"x\"") + &tag(etag), "304 Not Modified"),
        (tag("*"), "304 Not Modified"),
        // The tag takes precedence over the date.
        (tag("\"x\"") + &since(modified_s + 1), "200 OK"),
        ("If-Modified-Since: yesterday\r\n".to_owned(), "200 OK"),
    ] {
        client.send(origin.request("GET", object, 1, &fields).as_bytes());
        let response = client.response(status.starts_with("200"));
        assert_eq!(response.status(), status, "{fields}");
        let identity = identity(&response);
        assert_eq!(
            identity.request_id,
            status.starts_with("200").then_some(id(1)),
            "a 304 has no request id, so that a renewed copy retains its own"
        );
        assert_eq!(
            (identity.object, response.field("ETag"), response.field("Last-Modified")),
            (object, Some(etag), Some(modified))
        );
        assert_eq!(response.field("Vary"), Some("Accept-Encoding"));
        assert_eq!(response.field("Expires"), first.field("Expires"));
    }
    // The other coding is another representation.
    let coded = client_get(&origin, &mut client, object, 2, "Accept-Encoding: gzip\r\n");
    assert_ne!(coded.field("ETag").unwrap(), etag);
    let both = format!("Accept-Encoding: gzip\r\n{}", tag(etag));
    assert_eq!(client_get(&origin, &mut client, object, 3, &both).status(), "200 OK");
    // A POST has no condition.
    client.send(origin.request("POST", object, 4, &tag(etag)).as_bytes());
    assert_eq!(client.response(true).status(), "200 OK");
    let figures = origin.figures();
    assert_eq!((figures.not_modified, figures.full, figures.conditional), (6, 7, 9));
}

fn client_get(origin: &Origin, client: &mut Client, object: Object, sequence: u64, more: &str) -> Response {
    client.send(origin.request("GET", object, sequence, more).as_bytes());
    client.response(true)
}

#[test]
fn methods_other_than_get_head_and_post_are_refused() {
    let origin = Origin::start(spec());
    let mut client = origin.server.connect();
    for kind in [PAGE, THING, LARGE] {
        let object = object(kind, 1);
        let get = client_get(&origin, &mut client, object, 0, "");
        client.send(origin.request("HEAD", object, 0, "").as_bytes());
        let head = client.response(false);
        for field in ["Content-Length", "ETag", "Expires", "Last-Modified", "Vary", "Content-Type"] {
            assert_eq!(head.field(field), get.field(field));
        }
    }
    let body = "x".repeat(8192);
    let posted = |client: &mut Client| {
        let response = client.response(true);
        assert_eq!(response.status(), "200 OK");
        assert_eq!(response.field("Cache-Control"), Some("private, no-store"));
        assert_eq!(origin.seen(&response, object(THING, 9), 1, false).content, Content::Right);
    };
    let post = |more: &str| origin.request("POST", object(THING, 9), 1, more);
    client.send((post("Content-Length: 8192\r\n") + &body).as_bytes());
    posted(&mut client);
    // Byte by byte: no response before the last byte.
    client.send(post("Content-Length: 8192\r\n").as_bytes());
    client.send(&body.as_bytes()[1..]);
    origin.wait_for_figures(|figures| figures.post == 2);
    assert_eq!(origin.figures().full, 7);
    client.send(b"x");
    posted(&mut client);
    client.send(post("Transfer-Encoding: chunked\r\n").as_bytes());
    client.send(format!("2000\r\n{body}\r\n0\r\n\r\n").as_bytes());
    posted(&mut client);
    client.send(post("Content-Length: 8192\r\nExpect: 100-continue\r\n").as_bytes());
    assert_eq!(client.response(false).status(), "100 Continue");
    client.send(body.as_bytes());
    posted(&mut client);
    // The next request follows the body.
    client.send((post("Content-Length: 3\r\n") + "abc" + &post("")).as_bytes());
    posted(&mut client);
    posted(&mut client);
    client.send(origin.request("OPTIONS", object(PAGE, 1), 1, "").as_bytes());
    assert_eq!(client.response(false).field("Allow"), Some("GET, HEAD, POST, OPTIONS"));
    client.send(origin.request("DELETE", object(PAGE, 1), 1, "").as_bytes());
    assert!(client.response(true).status().starts_with("405 "));
    let figures = origin.figures();
    assert_eq!((figures.head, figures.post, figures.refused), (3, 6, 1));
}

#[test]
fn paths_of_no_object_give_404() {
    let origin = Origin::start(spec());
    let mut client = origin.server.connect();
    for path in [
        "/",
        "/y/",
        "/y/1f3a/",
        "/etc/passwd",
        "/y/1f3a/Z1",
        "/-/nothing",
        "/y/1f3a/A1.html/..",
        "/y/1f3a/A1",
        "/y/01f3a/A1.html",
    ] {
        let response = client.get(path);
        assert!(response.status().starts_with("404 ") || response.status().starts_with("400 "), "{path}");
        assert_eq!(response.field("X-Yamabiko"), None);
    }
    // For another world, for another host, or without a request id: served and counted.
    let other = Arc::new(origin.world.with_id(0xabc));
    let mut path = Vec::new();
    other.write_path(object(THING, 5), &mut path);
    let path = String::from_utf8(path).unwrap();
    client.send(format!("GET http://far.example:81{path} HTTP/1.1\r\nHost: near.example\r\n\r\n").as_bytes());
    let response = client.response(true);
    let identity = identity(&response);
    assert_eq!((identity.world, identity.object, identity.request_id), (0xabc, object(THING, 5), None));
    assert!(response.body.len() as u64 == other.size(object(THING, 5)));
    let figures = origin.figures();
    assert_eq!((figures.requests, figures.foreign, figures.without_request_id), (1, 1, 1));
    assert_eq!(figures.worlds.keys().collect::<Vec<_>>(), ["abc"]);
}

#[test]
fn uncacheable_objects_have_cache_control() {
    let mut spec = spec();
    spec.kinds[0].cacheable = 0.0;
    spec.kinds[1].life.expires = Expires::MaxAge(Distribution::Constant(90.0));
    spec.kinds[2].life =
        LifeSpec { expires: Expires::Absent, last_modified: 0.0, etag: 0.0, ..spec.kinds[2].life.clone() };
    let origin = Origin::start(spec);
    let mut client = origin.server.connect();
    let [page, thing, large] =
        [PAGE, THING, LARGE].map(|kind| client_get(&origin, &mut client, object(kind, 0), 0, ""));
    assert_eq!((page.field("Cache-Control"), page.field("Expires")), (Some("private, no-store"), None));
    assert_eq!((thing.field("Cache-Control"), thing.field("Expires")), (Some("public, max-age=90"), None));
    assert_eq!((large.field("Cache-Control"), large.field("Expires")), (Some("public"), None));
    assert_eq!((large.field("Last-Modified"), large.field("ETag")), (None, None));
    // Without a validator there is no condition.
    let ever = "If-Modified-Since: Fri, 31 Dec 9999 23:59:59 GMT\r\n";
    assert_eq!(client_get(&origin, &mut client, object(LARGE, 0), 0, ever).status(), "200 OK");
}

#[test]
fn an_object_changes_at_its_scheduled_second() {
    let mut spec = spec();
    spec.kinds[1].life.cycle = Distribution::Constant(1.0);
    let origin = Origin::start(spec);
    let mut client = origin.server.connect();
    let object = object(THING, 4);
    let (mut first, mut changes) = (None, 0);
    for sequence in 0.. {
        let (response, seen) = origin.check(&mut client, object, sequence, false);
        let identity = seen.identity.unwrap();
        let due = origin.world.version(object, (identity.generated_unix_ms / 1000) as i64);
        assert_eq!((identity.version, seen.content), (due.number, Content::Right));
        // No response is dated after its time.
        let dates = ["Last-Modified", "Date", "Expires"]
            .map(|name| crate::date::read_date(response.field(name).unwrap().as_bytes(), 2026).unwrap());
        assert!(dates[0] <= dates[1] && dates[1] <= dates[2], "{dates:?}");
        assert_eq!(dates[1], (identity.generated_unix_ms / 1000) as i64);
        changes += u32::from(first.is_some_and(|before| before != identity.version));
        first = Some(identity.version);
        if changes == 2 {
            break;
        }
        thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn responses_break_off_as_the_workload_plans() {
    let origin = Origin::start(CacheWorkload { origin_abort: 1.0, ..spec() });
    let mut cut_bytes = 0;
    for sequence in 0..12 {
        let object = object(if sequence % 4 == 0 { LARGE } else { THING }, sequence);
        let mut client = origin.server.connect();
        client.send(origin.request("GET", object, sequence, "").as_bytes());
        let response_text = client.rest();
        let end = response_text.windows(4).position(|window| window == b"\r\n\r\n").unwrap() + 4;
        let head = String::from_utf8(response_text[..end].to_vec()).unwrap();
        let response = Response { head, body: response_text[end..].to_vec() };
        let length: u64 = response.field("Content-Length").unwrap().parse().unwrap();
        let planned = origin.world.origin_aborts(id(sequence)).unwrap().min(length - 1);
        assert_eq!(response.body.len() as u64, planned, "of {length}");
        assert_eq!(response.field("Connection"), None, "no field announces the abort");
        cut_bytes += planned;
    }
    // Neither responses without a body nor those to requests without an id.
    let mut client = origin.server.connect();
    client.send(origin.request("HEAD", object(THING, 1), 1, "").as_bytes());
    client.response(false);
    let whole = client.get(&origin.path(object(THING, 1)));
    assert_eq!(origin.seen(&whole, object(THING, 1), 1, false).content, Content::Right);
    let figures = origin.figures();
    assert_eq!((figures.aborted, figures.full), (12, 14));
    assert_eq!(figures.content_bytes, cut_bytes + whole.body.len() as u64);
}

#[test]
fn the_origin_closes_a_connection_after_its_number_of_requests() {
    let origin = Origin::start(CacheWorkload { origin_uses: Some(Distribution::Constant(3.0)), ..spec() });
    for _ in 0..2 {
        let mut client = origin.server.connect();
        let thrice: String = (0..3).map(|sequence| origin.request("GET", object(THING, 1), sequence, "")).collect();
        client.send((thrice + &origin.request("GET", object(THING, 1), 3, "")).as_bytes());
        let closes: Vec<bool> = (0..3).map(|_| client.response(true).field("Connection") == Some("close")).collect();
        assert_eq!(closes, [false, false, true]);
        assert!(client.rest().is_empty(), "the fourth request gets no response");
    }
    let old = origin.path(object(THING, 1));
    let response_text = origin.server.ask(&format!("GET {old} HTTP/1.0\r\n\r\n"));
    assert!(response_text.contains("\r\nConnection: close\r\n"));
    assert_eq!(origin.figures().connections, 3);
}

#[test]
fn responses_are_delayed_by_the_think_time_and_never_early() {
    let think = Duration::from_millis(120);
    let origin = Origin::with(CacheWorkload { think: seconds(0.12), ..spec() }, 2, Limits::default());
    let mut clients: Vec<Client> = (0..200).map(|_| origin.server.connect()).collect();
    let requested_at: Vec<Instant> = (0..)
        .zip(&mut clients)
        .map(|(sequence, client)| {
            let requested_at = Instant::now();
            // The second one waits for the first: responses keep their order.
            let both = [sequence, sequence + 1000].map(|it| origin.request("GET", object(THING, it), it, ""));
            client.send(both.concat().as_bytes());
            requested_at
        })
        .collect();
    for (sequence, (client, requested_at)) in (0..).zip(clients.iter_mut().zip(requested_at)) {
        for (sequence, thought) in [(sequence, think), (sequence + 1000, 2 * think)] {
            let response = client.response(true);
            assert!(requested_at.elapsed() >= thought, "{:?}", requested_at.elapsed());
            assert_eq!(identity(&response).request_id, Some(id(sequence)));
            assert_eq!(origin.seen(&response, object(THING, sequence), sequence, false).content, Content::Right);
        }
    }
    // Bodies arrive meanwhile.
    let client = &mut clients[0];
    client.send(origin.request("POST", object(PAGE, 7), 7, "Content-Length: 5\r\n").as_bytes());
    client.send(b"12345");
    assert_eq!(client.response(true).status(), "200 OK");
    let figures = origin.figures();
    assert_eq!((figures.requests, figures.thinking, figures.abandoned), (401, 0, 0));
    assert_eq!(figures.think_timing_error_ns.count, 401);
}

#[test]
fn a_thousand_delayed_responses_survive_client_disconnects() {
    let origin = Origin::start(CacheWorkload { think: seconds(600.0), ..spec() });
    let mut clients: Vec<Client> = (0..1000)
        .map(|sequence| {
            let mut client = origin.server.connect();
            client.send(origin.request("GET", object(THING, sequence), sequence, "").as_bytes());
            client
        })
        .collect();
    origin.wait_for_figures(|figures| figures.thinking == 1000);
    clients.truncate(400);
    let figures = origin.wait_for_figures(|figures| figures.thinking == 400);
    assert_eq!((figures.abandoned, figures.requests, figures.full), (600, 1000, 0));
    // The first stop waits for think times; the second ends immediately.
    origin.server.stop.write(1).unwrap();
    while TcpStream::connect(origin.server.address).is_ok() {
        thread::yield_now();
    }
    drop(origin);
    assert!(clients[0].rest().is_empty());
}

#[test]
fn a_stopping_origin_sends_delayed_responses() {
    let origin = Origin::start(CacheWorkload { think: seconds(0.5), ..spec() });
    let mut clients: Vec<Client> = (0..50).map(|_| origin.server.connect()).collect();
    for client in &mut clients {
        client.send(origin.request("GET", object(THING, 1), 1, "").as_bytes());
    }
    origin.wait_for_figures(|figures| figures.requests == 50);
    origin.server.stop.write(1).unwrap();
    for client in &mut clients {
        let response_text = client.rest();
        assert!(response_text.starts_with(b"HTTP/1.1 200 "), "{:?}", String::from_utf8_lossy(&response_text));
    }
}

#[test]
fn a_missing_request_body_times_out() {
    let limits = Limits { body_time: Duration::from_millis(60), ..Limits::default() };
    let origin = Origin::with(CacheWorkload { think: seconds(0.01), ..spec() }, 1, limits);
    for (more, status) in [("Content-Length: 100\r\n", "408 "), ("Transfer-Encoding: chunked\r\n", "400 ")] {
        let mut client = origin.server.connect();
        client.send((origin.request("POST", object(THING, 1), 1, more) + "only this").as_bytes());
        let response_text = String::from_utf8(client.rest()).unwrap();
        assert!(response_text.starts_with(&format!("HTTP/1.1 {status}")), "{response_text}");
    }
    let figures = origin.wait_for_figures(|figures| figures.thinking == 0);
    assert_eq!((figures.requests, figures.abandoned, figures.full), (2, 2, 0));
}
