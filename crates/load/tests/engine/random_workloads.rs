//! Random workloads, servers and failures: every request is accounted for, and a seed reproduces a run.
//!
//! `World` checks every run: offered = completed + failed + in flight + backlog at every step, one record per request,
//! one Close per Connect, no session left, timestamps in order. The engine itself asserts that all its state is
//! released.

use std::time::Duration;

use load::workload::{Choice, Names, SessionSpec, Step, Template, Think, When};
use load::{Arrivals, HttpVersion, LoadSpec, RequestSpec, Reuse, Target};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use schema::FailureCause;
use stats::Rng;
use units::Timestamp;

use crate::world::*;

const HOSTS: [&str; 3] = ["http://a", "http://b:81", "https://c"];

/// A server with random behaviour.
struct RandomServer {
    rng: Rng,
    /// Percentage of requests that fail.
    bad: u64,
    /// Percentage of requests that are redirected.
    redirected: u64,
}

impl Server for RandomServer {
    fn connect(&mut self, _now: Timestamp, _client: u32) -> Accept {
        match self.rng.below(400) {
            0 if self.bad > 0 => Accept::Ignore,
            n if n < 4 * self.bad / 2 => Accept::Refuse,
            _ => Accept::Yes,
        }
    }

    fn handshake(&mut self, _now: Timestamp) -> Handshake {
        match self.rng.below(400) {
            0 if self.bad > 0 => Handshake::Silence,
            n if n < self.bad => Handshake::Fails(FailureCause::TlsCertificate),
            n if n < 2 * self.bad => Handshake::Fin,
            _ => Handshake::RoundTrips(1),
        }
    }

    fn request(&mut self, _now: Timestamp, _nth: u32) -> Vec<(Duration, Reply)> {
        unreachable!("the server implements `respond`")
    }

    fn respond(&mut self, _now: Timestamp, _nth: u32, received: &ReceivedRequest) -> Vec<(Duration, Reply)> {
        let after = Duration::from_micros(self.rng.below(20_000));
        let reply = match self.rng.below(100) {
            n if n < self.bad => match self.rng.below(6) {
                0 => return vec![],
                5 => return vec![(ms(0), Reply::Crossed), (ms(0), Reply::Fin)],
                1 => Reply::Reset,
                2 => Reply::Fin,
                3 => Reply::Bytes(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nshort".to_vec()),
                _ => Reply::Bytes(b"nonsense\r\n\r\n".to_vec()),
            },
            n if n < self.bad + self.redirected => {
                let location = ["/x", "?y", "http://a/z", "http://b:81/", "https://c/w", "http://elsewhere/", ""];
                let location = location[self.rng.below(location.len() as u64) as usize];
                let status = [301, 302, 303, 307, 308][self.rng.below(5) as usize];
                response(status, &[&format!("Location: {location}")], "")
            }
            n => {
                let status = if n.is_multiple_of(9) { 404 } else { 200 };
                let cookie = format!("Set-Cookie: c{}={n}", self.rng.below(3));
                response(status, &[&cookie], if received.method() == "HEAD" { "" } else { "body" })
            }
        };
        // One response in ten is followed by a close, announced or not.
        let closes = self.rng.below(10) == 0 && matches!(reply, Reply::Bytes(_));
        let mut replies = vec![(after, reply)];
        replies.extend(closes.then_some((after, Reply::Fin)));
        replies
    }

    fn idle_timeout(&self) -> Option<Duration> {
        Some(ms(300))
    }
}

fn requests() -> impl Strategy<Value = Vec<RequestSpec>> {
    let request =
        (0..HOSTS.len(), 0u8..4, any::<bool>(), 0usize..schema::Method::ALL.len(), 0.1..10.0f64, any::<bool>());
    let request = request.prop_map(|(host, redirects_max, placeholders, method, weight, expects)| {
        let mut request = RequestSpec::get(Target::parse(&format!("{}/", HOSTS[host])).unwrap());
        (request.redirects_max, request.weight) = (redirects_max, weight);
        request.method = schema::Method::ALL[method];
        if placeholders {
            let text = "/{client}/{session}/{sequence}?{random 1..9}";
            request.path = Template::parse(text, &Names::default()).unwrap();
        }
        if expects {
            request.expect.status = vec![200..=299];
        }
        request
    });
    prop::collection::vec(request, 1..5)
}

fn step(requests: u32) -> impl Strategy<Value = Step> {
    let when = prop_oneof![
        Just(When::After(Think::Constant(Duration::ZERO))),
        (0u64..200).prop_map(|mean| When::After(Think::Exponential { mean: ms(mean), max: ms(1000) })),
        (0u64..400).prop_map(|at| When::At(ms(at))),
    ];
    (0..requests, when, prop::collection::vec(0..requests, 0..6), 0u16..5)
        .prop_map(|(request, when, embedded, parallel)| Step { request, when, embedded, parallel })
}

fn workloads() -> impl Strategy<Value = (Vec<RequestSpec>, Choice)> {
    requests().prop_flat_map(|requests| {
        let n = requests.len() as u32;
        let session = (prop::collection::vec(step(n), 1..5), 0.1..5.0f64, any::<bool>());
        let session = session.prop_map(|(steps, weight, goes_on)| SessionSpec { name: None, weight, steps, goes_on });
        let choice = prop_oneof![
            Just(Choice::InTurn),
            Just(Choice::Drawn),
            prop::collection::vec(session, 1..3).prop_map(Choice::Sessions),
        ];
        (Just(requests), choice)
    })
}

fn loads() -> impl Strategy<Value = LoadSpec> {
    let shape = (any::<bool>(), any::<bool>(), any::<bool>(), any::<bool>(), any::<bool>());
    let sizes = (1u32..20, 1u32..12, prop::option::of(0u64..150), 0u64..400, any::<u64>());
    (workloads(), shape, sizes).prop_map(|((requests, choice), shape, sizes)| {
        let (open, keeps, old, cookies, absolute) = shape;
        let (connections, clients, requests_max, warmup, seed) = sizes;
        let mut spec = spec(if open { poisson(60.0) } else { Arrivals::Closed });
        (spec.workload.requests, spec.workload.choice, spec.workload.cookies) = (requests, choice, cookies);
        (spec.connections_max, spec.clients, spec.requests_max) = (connections, clients, requests_max);
        (spec.absolute_form, spec.seed, spec.warmup) = (absolute, seed, ms(warmup));
        spec.reuse = if keeps { Reuse::KeepAlive } else { Reuse::Close };
        spec.version = if old { HttpVersion::Http10 } else { HttpVersion::Http11 };
        (spec.connect_timeout, spec.response_timeout) = (ms(150), ms(200));
        spec.duration = Some(ms(1500));
        spec
    })
}

fn run(spec: &LoadSpec, bad: u64, redirected: u64, stop_at: Option<u64>) -> World<RandomServer> {
    let server = RandomServer { rng: Rng::named(spec.seed, "whims"), bad, redirected };
    let mut world = World::new(spec.clone(), server);
    if let Some(stop_at) = stop_at {
        world.run_until(at(ms(stop_at)));
        world.load.stop(world.now);
    }
    world.run()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn every_request_ends_exactly_once(
        spec in loads(),
        bad in prop_oneof![Just(0u64), 0u64..40],
        redirected in 0u64..50,
        stop_at in prop::option::weighted(0.2, 0u64..2000),
    ) {
        let world = run(&spec, bad, redirected, stop_at);
        prop_assert!(world.open_max <= spec.connections_limit() as usize);
        let live = world.load.live();
        let (begin, end) = world.load.measured();
        let end = end.expect("the run is over");
        let measured = world.records.iter().filter(|record| record.scheduled_at >= begin);
        prop_assert_eq!(measured.clone().count() as u64, live.offered_measured);
        prop_assert!(measured.clone().all(|record| record.scheduled_at < end));
        if let Some(requests_max) = spec.requests_max {
            prop_assert!(live.offered_measured <= requests_max);
        }
        let with_sessions = matches!(spec.workload.choice, Choice::Sessions(_));
        prop_assert!(world.records.iter().all(|record| record.session.is_some() == with_sessions));
        prop_assert!(with_sessions || live.sessions_begun == 0);
        // Redirects are followed only by requests with `redirects_max`.
        for record in &world.records {
            let beyond = matches!(record.failure, Some(FailureCause::TooManyRedirects | FailureCause::BadRedirect));
            prop_assert!(!beyond || spec.workload.requests[record.url as usize].redirects_max > 0);
        }
    }

    #[test]
    fn the_same_seed_gives_the_same_run(spec in loads(), bad in 0u64..30, redirected in 0u64..50) {
        let (first, second) = (run(&spec, bad, redirected, None), run(&spec, bad, redirected, None));
        prop_assert_eq!(first.records, second.records);
        prop_assert_eq!(first.ends, second.ends);
        prop_assert_eq!(first.load.live(), second.load.live());
    }
}

/// The random workloads reach every kind of result and failure.
#[test]
fn random_workloads_cover_every_option() {
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let mut totals = load::Live::default();
    let mut causes = std::collections::BTreeSet::new();
    let (mut hops, mut connections) = (0, 0);
    for nth in 0..100 {
        let spec = loads().new_tree(&mut runner).unwrap().current();
        let world = run(&spec, nth % 20, 40, (nth % 3 == 0).then_some(300 + 13 * nth));
        let live = world.load.live();
        totals.completed += live.completed;
        totals.retried += live.retried;
        totals.cap_hits += live.cap_hits;
        totals.sessions_ended += live.sessions_ended;
        totals.sessions_failed += live.sessions_failed;
        totals.sessions_cut += live.sessions_cut;
        causes.extend(world.records.iter().filter_map(|record| record.failure));
        hops += world
            .records
            .iter()
            .filter(|record| record.failure.is_none() && (301..309).contains(&record.status))
            .count();
        connections += world.ends.len();
    }
    assert!(totals.completed > 5_000 && hops > 1_000 && connections > 1_000, "{totals:?}, {hops} hops");
    assert!(
        totals
            .retried
            .min(totals.cap_hits)
            .min(totals.sessions_ended)
            .min(totals.sessions_failed)
            .min(totals.sessions_cut)
            > 20,
        "{totals:?}"
    );
    use FailureCause::*;
    let expected = [
        ConnectTimeout,
        ConnectRefused,
        TlsHandshake,
        TlsCertificate,
        ResponseTimeout,
        ClosedBeforeResponse,
        ClosedEarly,
        Reset,
        Malformed,
        UnexpectedStatus,
        TooManyRedirects,
        BadRedirect,
        Aborted,
    ];
    assert!(expected.iter().all(|cause| causes.contains(cause)), "{causes:?}");
}
