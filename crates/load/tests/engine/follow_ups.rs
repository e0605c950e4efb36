//! Follow-ups of a response: redirects, cookies and expectations.

use std::time::Duration;

use load::workload::{BodyExpected, Choice, Extract, Source};
use load::{Arrivals, HttpVersion, LoadSpec, RequestSpec, Reuse, Target, Workload};
use schema::{FailureCause, Method, RequestRecord};

use crate::sessions::{get, session, step, think};
use crate::world::*;

/// A load of one `request`, with the URLs of further requests of the workload.
fn one(request: RequestSpec, others: &[&str]) -> LoadSpec {
    let mut spec = spec(constant(0.001));
    spec.workload.requests = vec![request];
    spec.workload.requests.extend(others.iter().map(|url| RequestSpec::get(Target::parse(url).unwrap())));
    spec
}

fn run(spec: LoadSpec, server: impl Server) -> World<impl Server> {
    let mut world = World::new(spec, server);
    world.stores_requests = true;
    let mut world = world.run();
    world.records.sort_by_key(|record| record.sequence);
    world
}

/// A server that responds to each path with a status and a Location.
fn redirecting(
    routes: &'static [(&'static str, u16, &'static str)],
) -> Site<impl FnMut(&ReceivedRequest) -> Vec<(Duration, Reply)>> {
    Site(move |received: &ReceivedRequest| {
        let reply = match routes.iter().find(|(path, ..)| *path == received.path()) {
            Some((_, status, "")) => response(*status, &[], "nowhere"),
            Some((_, status, location)) => response(*status, &[&format!("Location: {location}")], "elsewhere"),
            None => response(200, &[], "here"),
        };
        vec![(ms(8), reply)]
    })
}

fn outcomes(world: &World<impl Server>) -> Vec<(u16, Option<FailureCause>)> {
    world.records.iter().map(|record| (record.status, record.failure)).collect()
}

fn paths<S>(world: &World<S>) -> Vec<String> {
    world.received.iter().map(|received| format!("{} {}", received.method(), received.path())).collect()
}

#[test]
fn each_hop_of_a_redirect_is_a_request_of_its_own() {
    let mut request = get("/a/b?c");
    request.redirects_max = 3;
    request.expect.status = vec![200..=200];
    let server = redirecting(&[("/a/b?c", 301, "d?e"), ("/a/d?e", 302, "/f"), ("/f", 307, "//server/g#h")]);
    let world = run(one(request, &[]), server);
    assert_eq!(paths(&world), ["GET /a/b?c", "GET /a/d?e", "GET /f", "GET /g"]);
    assert_eq!(outcomes(&world), [(301, None), (302, None), (307, None), (200, None)]);
    assert!(world.records.windows(2).all(|pair| pair[1].scheduled_at == pair[0].done_at));
    assert!(world.records.iter().all(|record| record.url == 0 && record.started_at == Some(record.scheduled_at)));
    assert_eq!(world.connects.len(), 1);
    let first = &world.records[0];
    assert_eq!(first.bytes_sent, world.received[0].text.len() as u64);
}

#[test]
fn redirect_loops_end_at_the_limit() {
    let failing = |routes, redirects_max, others: &[&str]| {
        let mut request = get("/a");
        request.redirects_max = redirects_max;
        let world = run(one(request, others), redirecting(routes));
        (world.records.len(), world.records.last().unwrap().failure)
    };
    let circle: &'static [_] = &[("/a", 302, "/b"), ("/b", 302, "/a")];
    assert_eq!(failing(circle, 5, &[]), (6, Some(FailureCause::TooManyRedirects)));
    assert_eq!(failing(circle, 255, &[]), (256, Some(FailureCause::TooManyRedirects)));
    assert_eq!(failing(circle, 0, &[]), (1, None), "a redirect is a response like any other");
    assert_eq!(failing(&[("/a", 302, "/b")], 1, &[]), (2, None));
    for (location, cause) in [
        ("", Some(FailureCause::BadRedirect)),
        ("ftp://server/", Some(FailureCause::BadRedirect)),
        ("http://other/", Some(FailureCause::BadRedirect)),
        ("http://server:81/", Some(FailureCause::BadRedirect)),
        ("https://server/", Some(FailureCause::BadRedirect)),
    ] {
        let routes: &'static [_] = Box::leak(Box::new([("/a", 302, location)]));
        assert_eq!(failing(routes, 5, &[]), (1, cause), "{location}");
    }
    // Redirects to a host of the plan are followed.
    assert_eq!(failing(&[("/a", 302, "http://Other/x")], 5, &["http://other/"]), (2, None));
    assert_eq!(failing(&[("/a", 300, "/b")], 5, &[]), (1, None), "status 300 is not followed");
}

#[test]
fn redirects_change_methods_and_drop_bodies_and_credentials() {
    let posting = |status: u16, location: &str| {
        let mut request = get("/form");
        (request.method, request.redirects_max) = (Method::Post, 5);
        request.body = load::workload::Template::literal("a=b");
        let header = |name: &str, value: &str| (name.to_owned(), load::workload::Template::literal(value));
        request.headers = vec![header("Content-Type", "text/plain"), header("X-Own", "1"), header("Host", "front")];
        request.basic_auth = Some(load::workload::Template::literal("user:pw"));
        let routes: &'static [_] = Box::leak(Box::new([("/form", status, &*String::leak(location.to_owned()))]));
        let world = run(one(request, &["http://other/"]), redirecting(routes));
        let second = world.received[1].clone();
        let has = |name| second.header(name).is_some();
        (
            second.method().to_owned(),
            second.body().to_owned(),
            has("Content-Type"),
            has("Content-Length"),
            has("X-Own"),
            has("Authorization"),
            second.header("Host").unwrap().to_owned(),
        )
    };
    let hop = |method: &str, body: &str, typed, sized, own, trusted, host: &str| {
        (method.to_owned(), body.to_owned(), typed, sized, own, trusted, host.to_owned())
    };
    for status in [301, 302, 303] {
        assert_eq!(posting(status, "/x"), hop("GET", "", false, false, true, true, "front"), "{status}");
    }
    for status in [307, 308] {
        assert_eq!(posting(status, "/x"), hop("POST", "a=b", true, true, true, true, "front"), "{status}");
        let elsewhere = posting(status, "http://other/x");
        assert_eq!(
            elsewhere,
            hop("POST", "a=b", true, true, true, false, "other"),
            "{status}: credentials are not sent to another host"
        );
    }
    let mut request = get("/form");
    (request.method, request.redirects_max) = (Method::Head, 5);
    let world = run(one(request, &[]), redirecting(&[("/form", 303, "/x")]).0.without_bodies());
    assert_eq!(paths(&world), ["HEAD /form", "HEAD /x"]);
}

/// Removes the bodies of responses, for HEAD requests.
trait WithoutBodies: FnMut(&ReceivedRequest) -> Vec<(Duration, Reply)> + Sized {
    fn without_bodies(mut self) -> Site<impl FnMut(&ReceivedRequest) -> Vec<(Duration, Reply)>> {
        Site(move |received: &ReceivedRequest| {
            let mut replies = self(received);
            for (_, reply) in &mut replies {
                if let Reply::Bytes(bytes) = reply {
                    let head = bytes.windows(4).position(|window| window == b"\r\n\r\n").unwrap() + 4;
                    bytes.truncate(head);
                }
            }
            replies
        })
    }
}

impl<F: FnMut(&ReceivedRequest) -> Vec<(Duration, Reply)>> WithoutBodies for F {}

#[test]
fn a_redirect_in_a_session_belongs_to_its_step() {
    let mut spec = one(get("/start"), &[]);
    spec.workload.requests[0].redirects_max = 2;
    spec.workload.requests[0].extract = vec![Extract { variable: 0, source: Source::Header("X-End".into()) }];
    spec.workload.requests.push(get("/next"));
    spec.workload.variables = 1;
    spec.workload.choice = Choice::Sessions(vec![session(vec![step(0, think(0)), step(1, think(50))])]);
    let server = Site(|received: &ReceivedRequest| {
        let reply = match received.path() {
            "/start" => response(302, &["Location: /end"], ""),
            "/end" => response(200, &["X-End: yes"], ""),
            _ => response(200, &[], ""),
        };
        vec![(ms(8), reply)]
    });
    let world = run(spec, server);
    assert_eq!(paths(&world), ["GET /start", "GET /end", "GET /next"]);
    assert!(world.records.iter().all(|record| record.session == Some(0) && record.failure.is_none()));
    assert_eq!(world.records[2].scheduled_at, world.records[1].done_at + ms(50));
    assert_eq!(world.load.live().sessions_ended, 1);
}

#[test]
fn a_closed_loop_follows_redirects_on_its_open_connections() {
    let server = || redirecting(&[("/a", 302, "/b"), ("/c", 302, "http://other/d")]);
    let base = |path: &str| {
        let mut request = get(path);
        request.redirects_max = 5;
        let mut spec = one(request, &["http://other/"]);
        spec.workload.requests.truncate(2);
        (spec.arrivals, spec.connections_max, spec.clients) = (Arrivals::Closed, 3, 3);
        (spec.requests_max, spec.duration) = (Some(60), None);
        spec
    };
    let chains = |world: &World<_>| -> Vec<String> {
        let text = |received: &ReceivedRequest| format!("{}{}", received.target, received.path());
        let mut all: Vec<String> = world.received.iter().map(text).collect();
        all.sort();
        all.dedup();
        all
    };
    let world = run(base("/a"), server());
    assert_eq!((world.records.len(), world.open_max), (60, 3));
    assert_eq!(chains(&world), ["0/a", "0/b", "1/"]);
    assert!(world.records.iter().all(|record| record.failure.is_none()));
    let world = run(base("/c"), server());
    assert_eq!((world.records.len(), world.open_max), (60, 3));
    assert_eq!(chains(&world), ["0/c", "1/", "1/d"]);
    for record in &world.records {
        assert_eq!(record.failure, None);
    }
}

#[test]
fn without_keep_alive_a_redirect_stays_with_its_client() {
    let mut request = get("/a");
    request.redirects_max = 5;
    let mut spec = one(request, &[]);
    (spec.arrivals, spec.connections_max, spec.clients) = (Arrivals::Closed, 2, 5);
    (spec.reuse, spec.requests_max, spec.duration) = (Reuse::Close, Some(40), None);
    let server = Site(|received: &ReceivedRequest| {
        let reply = match received.path() {
            "/a" => response(302, &["Location: /b", "Connection: close"], ""),
            _ => response(200, &["Connection: close"], ""),
        };
        vec![(ms(1), reply), (ms(2), Reply::Fin)]
    });
    let world = run(spec, server);
    assert_eq!((world.records.len(), world.connects.len(), world.open_max), (40, 40, 2));
    let of = |path: &str| -> Vec<u32> {
        world.received.iter().filter(|received| received.path() == path).map(|received| received.client).collect()
    };
    assert_eq!(of("/a"), of("/b"));
    assert_eq!(of("/a"), (0..20).map(|nth| nth % 5).collect::<Vec<_>>());
}

#[test]
fn each_client_keeps_its_own_cookies() {
    for arrivals in [constant(50.0), Arrivals::Closed] {
        let mut spec = one(get("/"), &["http://other/"]);
        spec.workload.cookies = true;
        spec.connections_max = if arrivals.is_open() { 100 } else { 5 };
        (spec.arrivals, spec.clients, spec.requests_max) = (arrivals, 5, Some(100));
        let mut cookies_set = 0;
        let server = Site(move |received: &ReceivedRequest| {
            let reply = match received.header("Cookie") {
                None => {
                    cookies_set += 1;
                    response(
                        200,
                        &[&format!("Set-Cookie: id={}-{}-{cookies_set}; Path=/", received.client, received.target)],
                        "",
                    )
                }
                Some(_) => response(200, &[], ""),
            };
            vec![(ms(1), reply)]
        });
        let world = run(spec, server);
        let mut first = std::collections::HashMap::new();
        let mut without = 0;
        for received in &world.received {
            match received.header("cookie") {
                None => without += 1,
                Some(cookie) => {
                    assert!(cookie.starts_with(&format!("id={}-{}-", received.client, received.target)), "{cookie}");
                    assert_eq!(first.entry((received.client, received.target)).or_insert(cookie.to_owned()), cookie);
                }
            }
        }
        assert_eq!((without, first.len(), world.received.len()), (10, 10, 100));
        assert!(world.records.iter().all(|record| record.failure.is_none()));
    }
}

#[test]
fn a_cookie_set_by_a_redirect_is_sent_to_the_next_hop() {
    let mut request = get("/login");
    request.redirects_max = 1;
    let mut spec = one(request, &[]);
    spec.workload.cookies = true;
    let server = Site(|received: &ReceivedRequest| {
        let reply = match (received.path(), received.header("Cookie")) {
            ("/login", None) => response(302, &["Location: /in", "Set-Cookie: s=1"], ""),
            ("/in", Some("s=1")) => response(200, &[], ""),
            _ => response(403, &[], ""),
        };
        vec![(ms(1), reply)]
    });
    assert_eq!(outcomes(&run(spec, server)), [(302, None), (200, None)]);
}

#[test]
fn an_unexpected_response_fails_the_request_and_keeps_the_connection() {
    let regex = |text: &str| BodyExpected::Matches(regex::bytes::Regex::new(text).unwrap());
    type Change = Box<dyn Fn(&mut RequestSpec)>;
    let is = |change: fn(&mut RequestSpec)| -> Change { Box::new(change) };
    let cases: [(Change, Option<FailureCause>); 9] = [
        (is(|r| r.expect.status = vec![200..=299, 404..=404]), None),
        (is(|r| r.expect.status = vec![300..=399]), Some(FailureCause::UnexpectedStatus)),
        (is(|r| r.expect.length = Some(4..=4)), None),
        (is(|r| r.expect.length = Some(5..=9)), Some(FailureCause::UnexpectedLength)),
        (is(|r| r.expect.body = Some(BodyExpected::Is(b"here"[..].into()))), None),
        (is(|r| r.expect.body = Some(BodyExpected::Contains(b"her "[..].into()))), Some(FailureCause::UnexpectedBody)),
        (Box::new(move |r| r.expect.body = Some(regex("^h.*e$"))), None),
        (is(|r| r.extract = vec![Extract { variable: 0, source: Source::Header("content-length".into()) }]), None),
        (
            is(|r| r.extract = vec![Extract { variable: 0, source: Source::Json("/a".into()) }]),
            Some(FailureCause::MissingValue),
        ),
    ];
    for (number, (change, cause)) in cases.iter().enumerate() {
        for arrivals in [constant(50.0), Arrivals::Closed] {
            let mut spec = one(get("/"), &[]);
            change(&mut spec.workload.requests[0]);
            (spec.arrivals, spec.clients, spec.requests_max) = (arrivals, 1, Some(20));
            spec.connections_max = 1;
            let world = run(spec, redirecting(&[]));
            assert_eq!(world.connects.len(), 1, "case {number}");
            let as_it_was =
                |record: &RequestRecord| (record.status, record.failure, record.keep_alive) == (200, *cause, true);
            assert!(world.records.iter().all(as_it_was), "case {number}: {:?}", world.records[0]);
        }
    }
}

/// The framing of chunks is not part of a body. A body that is too long to store never meets an expectation.
#[test]
fn expected_bodies_are_compared_without_chunk_framing_up_to_a_limit() {
    let chunked = |body: &[u8]| {
        let mut text = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n".to_vec();
        for part in body.chunks(body.len().div_ceil(3)) {
            text.extend(format!("{:x};x=y\r\n", part.len()).bytes());
            text.extend_from_slice(part);
            text.extend_from_slice(b"\r\n");
        }
        text.extend_from_slice(b"0\r\nTrailer: t\r\n\r\n");
        text
    };
    let until_close = |body: &[u8]| [b"HTTP/1.1 200 OK\r\n\r\n", body].concat();
    let with_length =
        |body: &[u8]| [format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len()).as_bytes(), body].concat();
    type Writer<'a> = &'a dyn Fn(&[u8]) -> Vec<u8>;
    let writers: [Writer<'_>; 3] = [&chunked, &until_close, &with_length];
    for (length, cause) in [
        (100, None),
        (load::http1::BODY_STORED_MAX, None),
        (load::http1::BODY_STORED_MAX + 1, Some(FailureCause::UnexpectedBody)),
    ] {
        let body = vec![b'x'; length];
        for (number, writer) in writers.iter().enumerate() {
            let text = writer(&body);
            let mut spec = one(get("/"), &[]);
            spec.workload.requests[0].expect.length = Some(length as u64..=length as u64);
            spec.workload.requests[0].expect.body = Some(BodyExpected::Is(body.clone().into_boxed_slice()));
            // Delivered in two reads, cut in the middle.
            let server = Site(move |_: &ReceivedRequest| {
                let (front, back) = text.split_at(text.len() / 2);
                let pieces = [(ms(1), front), (ms(2), back)].map(|(after, part)| (after, Reply::Bytes(part.to_vec())));
                pieces.into_iter().chain([(ms(3), Reply::Fin)]).collect()
            });
            let world = run(spec, server);
            assert_eq!(world.records[0].failure, cause, "{length}, writer {number}");
        }
    }
}

/// Every combination of load model, reuse, version, proxy form and hosts, with all kinds of follow-ups, ends.
#[test]
fn a_load_ends_with_every_combination_of_options() {
    let server = || {
        Site(|received: &ReceivedRequest| {
            let version = if received.text.contains(" HTTP/1.0\r\n") { "HTTP/1.0" } else { "HTTP/1.1" };
            let closes = match received.header("Connection") {
                Some(how) => how.eq_ignore_ascii_case("close"),
                None => version == "HTTP/1.0",
            };
            let persistence = if closes { "close" } else { "keep-alive" };
            let path = received
                .path()
                .strip_prefix("http://")
                .map_or(received.path(), |rest| &rest[rest.find('/').unwrap()..]);
            let more = match path {
                "/moved" => "Location: http://other:81/there\r\n",
                "/posted" => "Location: /there\r\n",
                _ => "Set-Cookie: a=b\r\n",
            };
            let status = if more.starts_with("Location") { 303 } else { 200 };
            let head =
                format!("{version} {status} X\r\nConnection: {persistence}\r\n{more}Content-Length: 2\r\n\r\nok");
            let mut replies = vec![(ms(2), Reply::Bytes(head.into_bytes()))];
            replies.extend(closes.then_some((ms(3), Reply::Fin)));
            replies
        })
    };
    let mut combinations = 0;
    for arrivals in [constant(40.0), Arrivals::Closed] {
        for (reuse, version) in [
            (Reuse::KeepAlive, HttpVersion::Http11),
            (Reuse::Close, HttpVersion::Http11),
            (Reuse::KeepAlive, HttpVersion::Http10),
            (Reuse::Close, HttpVersion::Http10),
        ] {
            for (absolute_form, sessions, cookies) in
                [(false, false, false), (false, true, true), (true, true, false), (true, false, true)]
            {
                let mut spec = one(get("/moved"), &["http://other:81/there", "http://server/plain"]);
                let mut posting = get("/posted");
                posting.method = Method::Post;
                spec.workload.requests.push(posting);
                spec.workload.requests.iter_mut().for_each(|request| {
                    request.redirects_max = 3;
                    request.expect.status = vec![200..=200];
                });
                if sessions {
                    let page =
                        load::workload::Step { request: 0, when: think(5), embedded: vec![1, 2, 3, 2], parallel: 3 };
                    spec.workload.choice = Choice::Sessions(vec![session(vec![page, step(3, think(20))])]);
                }
                spec.workload.cookies = cookies;
                (spec.arrivals, spec.reuse, spec.version, spec.absolute_form) =
                    (arrivals.clone(), reuse, version, absolute_form);
                spec.connections_max = if arrivals.is_open() { 20 } else { 4 };
                (spec.clients, spec.duration) = (6, Some(Duration::from_secs(2)));
                let open_limit = spec.connections_limit() as usize;
                let world = run(spec, server());
                assert!(world.open_max <= open_limit);
                assert!(world.records.len() > 80, "{}", world.records.len());
                assert!(world.records.iter().all(|record| record.failure.is_none()), "{:?}", world.load.live());
                let form = |received: &ReceivedRequest| received.path().starts_with("http://") == absolute_form;
                assert!(world.received.iter().all(form));
                let hops = world.records.iter().filter(|record| record.status == 303).count();
                assert!(hops > 20, "{hops}");
                let with_cookie = world.received.iter().filter(|received| received.header("Cookie").is_some()).count();
                assert_eq!(with_cookie > 0, cookies);
                combinations += 1;
            }
        }
    }
    assert_eq!(combinations, 32);
}

#[test]
fn a_closed_loop_without_sessions_requests_several_hosts() {
    let mut spec = spec(Arrivals::Closed);
    spec.workload = Workload::of(["http://a/", "http://b/", "http://a:81/"].map(|url| Target::parse(url).unwrap()));
    (spec.connections_max, spec.requests_max, spec.duration) = (4, Some(90), None);
    let world = run(spec, answering(ms(3)));
    assert_eq!((world.records.len(), world.open_max), (90, 4));
    let mut counts = [0; 3];
    world.received.iter().for_each(|received| counts[received.target] += 1);
    assert_eq!(counts, [30, 30, 30]);
}
