//! Sessions: steps, think times, embedded objects, extracted values, users, and the end of the phase.

use std::time::Duration;

use load::workload::{Choice, Extract, Names, SessionSpec, Source, Step, Template, Think, When};
use load::{Arrivals, LoadSpec, RequestSpec, Shard, Target};
use schema::{FailureCause, RequestRecord};
use units::Timestamp;

use crate::world::*;

pub fn get(path: &str) -> RequestSpec {
    RequestSpec::get(Target::parse(&format!("http://server{path}")).unwrap())
}

pub fn think(milliseconds: u64) -> When {
    When::After(Think::Constant(ms(milliseconds)))
}

pub fn step(request: u32, when: When) -> Step {
    Step { request, when, embedded: Vec::new(), parallel: 1 }
}

pub fn session(steps: Vec<Step>) -> SessionSpec {
    SessionSpec { name: None, weight: 1.0, steps, goes_on: false }
}

/// A load of one session of `steps`, with requests for /0, /1, /2 ..
fn one(requests: u32, steps: Vec<Step>) -> LoadSpec {
    let mut spec = spec(constant(0.001));
    spec.workload.requests = (0..requests).map(|path| get(&format!("/{path}"))).collect();
    spec.workload.choice = Choice::Sessions(vec![session(steps)]);
    spec
}

fn run(spec: LoadSpec, server: impl Server) -> World<impl Server> {
    let mut world = World::new(spec, server);
    world.stores_requests = true;
    world.run()
}

/// URL, scheduled time and end of each request, in the order of the sequence numbers.
fn times(world: &World<impl Server>) -> Vec<(u32, Timestamp, Timestamp)> {
    sorted(world).iter().map(|record| (record.url, record.scheduled_at, record.done_at)).collect()
}

fn sorted(world: &World<impl Server>) -> Vec<RequestRecord> {
    let mut records = world.records.clone();
    records.sort_by_key(|record| record.sequence);
    records
}

#[test]
fn session_steps_follow_after_their_think_times() {
    let steps = vec![step(0, think(0)), step(1, think(500)), step(2, think(0)), step(0, think(1000))];
    let world = run(one(3, steps), answering(ms(8)));
    // 2 ms to connect, then 10 ms per request.
    let expected = [(0, 0, 12), (1, 512, 522), (2, 522, 532), (0, 1532, 1542)];
    assert_eq!(times(&world), expected.map(|(url, from, to)| (url, at(ms(from)), at(ms(to)))));
    assert!(world.records.iter().all(|record| record.session == Some(0) && record.failure.is_none()));
    assert!(world.records.iter().all(|record| record.started_at == Some(record.scheduled_at)), "no send lag");
    assert_eq!(world.connects.len(), 1);
    let live = world.load.live();
    assert_eq!((live.sessions_begun, live.sessions_ended, live.offered), (1, 1, 4));
}

#[test]
fn session_steps_at_fixed_times_do_not_wait_for_responses() {
    // The second step is due before the first has ended; the third waits for the second.
    let mut fixed = vec![step(0, When::At(ms(100))), step(1, When::At(ms(105))), step(2, think(50))];
    let world = run(one(3, fixed.clone()), answering(ms(8)));
    let expected = [(0, 100, 112), (1, 105, 117), (2, 167, 177)];
    assert_eq!(times(&world), expected.map(|(url, from, to)| (url, at(ms(from)), at(ms(to)))));
    assert_eq!((world.open_max, world.load.live().sessions_ended), (2, 1));
    // Steps run in the order of their times, whatever their order in the spec.
    fixed.swap(0, 1);
    fixed.truncate(2);
    let world = run(one(3, fixed), answering(ms(8)));
    assert_eq!(times(&world)[0].1, at(ms(100)));
    assert_eq!(world.records.len(), 2);
}

#[test]
fn embedded_objects_are_fetched_with_limited_concurrency() {
    let page = Step { request: 0, when: think(0), embedded: vec![1; 10], parallel: 4 };
    let world = run(one(3, vec![page, step(2, think(100))]), answering(ms(8)));
    let records = sorted(&world);
    assert_eq!((records.len(), world.open_max), (12, 4));
    let objects = &records[1..11];
    assert!(objects.iter().all(|record| record.url == 1));
    // The first object uses the page's connection; three more take 2 ms to connect. Each further object is scheduled
    // when an earlier one has ended.
    let scheduled: Vec<u64> = objects.iter().map(|record| record.scheduled_at.as_nanos() / 1_000_000).collect();
    assert_eq!(scheduled, [12, 12, 12, 12, 22, 24, 24, 24, 32, 34]);
    assert!(objects.iter().all(|record| record.started_at == Some(record.scheduled_at)), "no send lag");
    let last = objects.iter().map(|record| record.done_at).max().unwrap();
    assert_eq!(last, at(ms(44)));
    // The step ends with its last object.
    assert_eq!(records[11].scheduled_at, last + ms(100));
}

#[test]
fn a_failed_request_ends_its_session_unless_configured_to_continue() {
    let broken = || {
        Site(|received: &ReceivedRequest| match received.path() {
            "/1" => vec![(ms(8), Reply::Reset)],
            _ => vec![(ms(8), Reply::Bytes(OK.to_vec()))],
        })
    };
    let page = Step { request: 0, when: think(0), embedded: vec![2, 1, 2, 2], parallel: 2 };
    let mut spec = one(3, vec![page, step(0, think(10))]);
    let world = run(spec.clone(), broken());
    // The object concurrent with the failed one completes; the others are not requested.
    assert_eq!(times(&world).iter().map(|(url, ..)| *url).collect::<Vec<_>>(), [0, 2, 1, 2]);
    let live = world.load.live();
    assert_eq!((live.sessions_failed, live.sessions_ended, live.failed), (1, 0, 1));

    let Choice::Sessions(sessions) = &mut spec.workload.choice else { unreachable!() };
    sessions[0].goes_on = true;
    let world = run(spec.clone(), broken());
    assert_eq!(world.records.len(), 6);
    assert_eq!((world.load.live().sessions_ended, world.load.live().failed), (1, 1));
    // The embedded objects of a failed page are not requested.
    let Choice::Sessions(sessions) = &mut spec.workload.choice else { unreachable!() };
    sessions[0].steps[0].request = 1;
    let world = run(spec, broken());
    assert_eq!(times(&world).iter().map(|(url, ..)| *url).collect::<Vec<_>>(), [1, 0]);
}

#[test]
fn extracted_values_are_used_in_the_next_request_of_the_session() {
    let mut names = Names::default();
    let (token, item) = (names.define("token").unwrap(), names.define("item").unwrap());
    let mut spec = spec(constant(100.0));
    spec.requests_max = Some(600);
    let mut login = get("/login/{session}");
    login.path = Template::parse("/login/{session}", &names).unwrap();
    login.extract = vec![
        Extract { variable: token, source: Source::Header("x-token".into()) },
        Extract { variable: item, source: Source::Json("/list/1".into()) },
    ];
    let mut shop = get("/");
    shop.path = Template::parse("/{session}/{item}", &names).unwrap();
    shop.headers = vec![("Authorization".into(), Template::parse("Bearer {token}", &names).unwrap())];
    spec.workload.requests = vec![login, shop];
    spec.workload.variables = 2;
    spec.workload.choice = Choice::Sessions(vec![session(vec![step(0, think(0)), step(1, think(30))])]);
    let server = Site(|received: &ReceivedRequest| {
        let reply = match received.path().strip_prefix("/login/") {
            Some(session) => {
                let body = format!("{{\"list\": [0, \"item {session}\"]}}");
                // The body is chunked; the framing is not part of the value.
                let (front, back) = body.split_at(12);
                let head = format!("HTTP/1.1 200 OK\r\nX-Token: t{session}\r\nTransfer-Encoding: chunked\r\n\r\n");
                let chunks = format!("{:x}\r\n{front}\r\n{:x}\r\n{back}\r\n0\r\n\r\n", front.len(), back.len());
                Reply::Bytes(format!("{head}{chunks}").into_bytes())
            }
            None => Reply::Bytes(OK.to_vec()),
        };
        vec![(ms(8), reply)]
    });
    let world = run(spec, server);
    assert!(world.records.iter().all(|record| record.failure.is_none()));
    let shopping: Vec<&ReceivedRequest> =
        world.received.iter().filter(|received| !received.path().starts_with("/login")).collect();
    assert!(shopping.len() > 250);
    for received in shopping {
        let (session, item) = received.path()[1..].split_once('/').unwrap();
        assert_eq!(item, format!("item%20{session}"));
        assert_eq!(received.header("authorization"), Some(&*format!("Bearer t{session}")));
    }
}

#[test]
fn a_missing_value_fails_the_request_and_ends_the_session() {
    let mut spec = one(2, vec![step(0, think(0)), step(1, think(0))]);
    spec.workload.variables = 1;
    spec.workload.requests[0].extract = vec![Extract { variable: 0, source: Source::Header("X-Token".into()) }];
    let world = run(spec, answering(ms(1)));
    assert_eq!(world.failures(FailureCause::MissingValue), 1);
    assert_eq!((world.records.len(), world.load.live().sessions_failed), (1, 1));
}

#[test]
fn the_end_of_the_phase_cuts_sessions_and_schedules_no_more_requests() {
    let mut spec = one(2, vec![step(0, think(0)), step(1, think(300)), step(0, think(300))]);
    spec.arrivals = constant(100.0);
    (spec.warmup, spec.duration) = (ms(500), Some(Duration::from_secs(1)));
    spec.clients = 200;
    let world = run(spec, answering(ms(8)));
    let end = world.load.measured().1.unwrap();
    assert_eq!(end, at(ms(1500)));
    assert!(world.records.iter().all(|record| record.scheduled_at < end && record.failure.is_none()));
    let live = world.load.live();
    assert_eq!((live.sessions_begun, live.sessions_begun_measured), (150, 100));
    // A session takes 632 ms at most. Those that began at least 632 ms before the end have ended.
    assert!((85..=89).contains(&live.sessions_ended), "{live:?}");
    assert_eq!((live.sessions_failed, live.sessions_ended + live.sessions_cut), (0, 150));
    let measured = world.records.iter().filter(|record| record.scheduled_at >= at(ms(500))).count() as u64;
    assert_eq!(live.offered_measured, measured, "a session of the warm-up has requests in the measured phase");
}

#[test]
fn a_request_limit_counts_requests_not_sessions() {
    for arrivals in [constant(10.0), Arrivals::Closed] {
        let mut spec = one(2, vec![step(0, think(10)), step(1, think(20)), step(0, think(30))]);
        spec.connections_max = if arrivals.is_open() { 100 } else { 3 };
        spec.arrivals = arrivals;
        (spec.requests_max, spec.duration) = (Some(20), None);
        let world = run(spec, answering(ms(8)));
        assert_eq!(world.records.len(), 20);
        let live = world.load.live();
        assert_eq!(live.sessions_begun, live.sessions_ended + live.sessions_cut);
        assert!(live.sessions_ended >= 5 && live.sessions_cut >= 1, "{live:?}");
    }
}

#[test]
fn a_closed_loop_user_runs_one_session_after_another() {
    let page = Step { request: 0, when: think(0), embedded: vec![1, 1, 1], parallel: 3 };
    let mut spec = one(2, vec![page, step(1, think(100))]);
    spec.arrivals = Arrivals::Closed;
    (spec.connections_max, spec.clients) = (4, 4);
    assert_eq!(spec.connections_limit(), 12);
    let world = run(spec, answering(ms(8)));
    assert_eq!(world.open_max, 12, "every user has as many connections as concurrent requests");
    assert_eq!(world.connects.len(), 12, "connections stay open between sessions");
    for client in 0..4 {
        let mut own: Vec<_> = world.records.iter().filter(|record| record.client == client).collect();
        own.sort_by_key(|record| record.sequence);
        let sessions: Vec<&[&RequestRecord]> = own.chunk_by(|a, b| a.session == b.session).collect();
        assert!(sessions.len() > 70, "{}", sessions.len());
        for pair in sessions.windows(2) {
            assert_eq!(pair[0].len(), 5);
            assert_eq!(pair[1][0].scheduled_at, pair[0][4].done_at);
        }
    }
    let live = world.load.live();
    assert_eq!((live.sessions_failed, live.sessions_cut), (0, 4));
}

#[test]
fn a_closed_loop_user_with_fixed_times_requests_on_schedule() {
    let steps = (0..8).map(|_| step(0, When::At(ms(100)))).collect();
    let spec = LoadSpec {
        arrivals: Arrivals::Closed,
        connections_max: 1,
        requests_max: Some(8),
        duration: None,
        ..one(1, steps)
    };
    let world = run(spec, answering(ms(8)));
    // The user has six connections, as a browser; the last two requests wait for a connection.
    let started: Vec<_> = sorted(&world).iter().map(|record| record.started_at).collect();
    assert_eq!(started, [100, 100, 100, 100, 100, 100, 112, 112].map(|after| Some(at(ms(after)))));
    assert_eq!(world.open_max, 6);
}

#[test]
fn users_start_evenly_spread_for_any_number_of_shards() {
    // Ten users with a think time of one second and immediate responses: spread over a second, one request every 100
    // ms.
    let mut spec = one(1, vec![step(0, think(1_000))]);
    (spec.arrivals, spec.clients, spec.duration) = (Arrivals::Closed, 10, Some(Duration::from_secs(5)));
    let scheduled = |of: u32| {
        let mut all = Vec::new();
        for index in 0..of {
            let shard = Shard::new(index, of);
            let spec = LoadSpec { shard, connections_max: shard.share(10) as u32, ..spec.clone() };
            let mut world = World::new(spec, answering(ms(0)));
            world.load.spread_users(Duration::from_secs(1));
            all.extend(world.run().records.iter().map(|record| record.scheduled_at));
        }
        all.sort_unstable();
        all
    };
    let alone = scheduled(1);
    let first: Vec<_> = alone.iter().take(10).copied().collect();
    assert_eq!(first, (10..20).map(|tenth| at(ms(100 * tenth))).collect::<Vec<_>>());
    assert_eq!(scheduled(2)[..10], first[..], "two shards of five users each have the same schedule");
}

#[test]
fn a_user_backs_off_while_requests_fail() {
    struct Refusing;
    impl Server for Refusing {
        fn connect(&mut self, _now: Timestamp, _client: u32) -> Accept {
            Accept::Refuse
        }
        fn request(&mut self, _now: Timestamp, _nth: u32) -> Vec<(Duration, Reply)> {
            unreachable!()
        }
    }
    let mut spec = one(1, vec![step(0, think(0))]);
    (spec.arrivals, spec.connections_max, spec.duration) = (Arrivals::Closed, 1, Some(Duration::from_secs(4)));
    let world = run(spec, Refusing);
    let pauses: Vec<u128> =
        world.connects.windows(2).map(|pair| (pair[1].0.since(pair[0].0) - ms(2)).as_millis()).collect();
    assert_eq!(pauses, [10, 20, 40, 80, 160, 320, 640, 1000, 1000]);
}

#[test]
fn the_connection_limit_of_an_open_loop_includes_embedded_objects() {
    let page = Step { request: 0, when: think(0), embedded: vec![1; 6], parallel: 6 };
    let mut spec = one(2, vec![page]);
    (spec.arrivals, spec.connections_max, spec.clients) = (constant(20.0), 4, 50);
    let world = run(spec, answering(ms(8)));
    assert_eq!(world.open_max, 4);
    assert!(world.load.live().cap_hits > 0);
    assert_eq!(world.load.live().sessions_ended, 200);
}

#[test]
fn think_times_and_choices_do_not_depend_on_the_server() {
    let mut spec = one(3, Vec::new());
    let random = || When::After(Think::Exponential { mean: ms(200), max: Duration::from_secs(2) });
    let a = session(vec![step(0, random()), step(1, random())]);
    let b = SessionSpec { weight: 3.0, ..session(vec![step(2, random()), step(2, random())]) };
    spec.workload.choice = Choice::Sessions(vec![a, b]);
    (spec.arrivals, spec.clients) = (poisson(100.0), 1000);
    // First request, its scheduled time, and the following think time of each session.
    let gaps = |service| {
        let world = run(spec.clone(), answering(ms(service)));
        let mut records = world.records.clone();
        records.sort_by_key(|record| (record.session, record.sequence));
        let mut sessions = std::collections::BTreeMap::new();
        for pair in records.windows(2).filter(|pair| pair[0].session == pair[1].session) {
            let gap = pair[1].scheduled_at.since(pair[0].done_at);
            sessions.insert(pair[0].session, (pair[0].url, pair[0].scheduled_at, gap));
        }
        sessions
    };
    let (fast, slow) = (gaps(1), gaps(50));
    let both: Vec<_> = fast.iter().filter(|(session, _)| slow.contains_key(session)).collect();
    assert!(both.len() > 900, "{}", both.len());
    assert!(both.iter().all(|(session, fast)| slow[session] == **fast));
    let heavy = both.iter().filter(|(_, (url, ..))| *url == 2).count() as f64 / both.len() as f64;
    // The expected share is 0.75 with a standard deviation of 0.014; the limit is five times that.
    assert!((heavy - 0.75).abs() < 0.07, "{heavy}");
}

#[test]
fn sessions_do_not_depend_on_the_number_of_shards() {
    let random = || When::After(Think::Exponential { mean: ms(100), max: Duration::from_secs(1) });
    let page = Step { request: 0, when: random(), embedded: vec![1; 5], parallel: 3 };
    let mut spec = one(3, vec![page, step(2, random())]);
    spec.workload.requests[2].path = Template::parse("/{session}?{random 1..1000000}", &Names::default()).unwrap();
    (spec.arrivals, spec.clients, spec.duration) = (poisson(50.0), 30, Some(Duration::from_secs(4)));
    let sessions = |of: u32| {
        let mut requests = Vec::new();
        let mut sequences = Vec::new();
        let mut texts = Vec::new();
        for index in 0..of {
            let world = run(LoadSpec { shard: Shard::new(index, of), ..spec.clone() }, answering(ms(8)));
            sequences.extend(world.records.iter().map(|record| record.sequence));
            let identity = |it: &RequestRecord| (it.session, it.scheduled_at, it.client, it.url, it.done_at);
            requests.extend(world.records.iter().map(identity));
            texts.extend(world.received.into_iter().map(|received| received.text));
        }
        sequences.sort_unstable();
        assert!(sequences.windows(2).all(|pair| pair[0] < pair[1]), "sequence numbers are unique");
        requests.sort_unstable();
        texts.sort_unstable();
        (requests, texts)
    };
    let whole = sessions(1);
    assert!(whole.0.len() > 1_000, "{}", whole.0.len());
    assert!(sessions(2) == whole && sessions(3) == whole);
}
