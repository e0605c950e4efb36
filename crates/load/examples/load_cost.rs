//! Measures the CPU time of the engine per request on a persistent connection, from arrival to record, without I/O.
//!
//! `cargo run --release -p load --example load_cost`
//!
//! Each request takes all steps of a real one in the engine: arrival, client, idle connection, Send, timeouts, parsing
//! of a response of nginx, record. This program's loop replaces the network.

use std::hint::black_box;
use std::time::{Duration, Instant};

use load::http1::Response;
use load::workload::{Choice, Names, SessionSpec, Step, Template, Think, When};
use load::{
    Action, Arrivals, ConnectionKey, GaugeSampler, HttpVersion, Load, LoadSpec, Retry, Reuse, Shard, Tally, TallySpec,
    Target, Workload,
};
use schema::Method;
use units::{RequestRate, Timestamp};

const REQUESTS: u64 = 1_000_000;
const ROUNDS: usize = 5;

fn main() {
    let response = response();
    println!("requests {REQUESTS}, response of {} bytes, median of {ROUNDS} rounds", response.len());
    report("parsing alone", || parse(&response));
    report("open loop, constant, 100 clients", || run(spec(constant(), 100), false, &response));
    report("open loop, constant, 10000 clients", || run(spec(constant(), 10_000), false, &response));
    report("open loop, Poisson, 10000 clients", || run(spec(poisson(), 10_000), false, &response));
    report("closed loop, 64 connections", || run(spec(Arrivals::Closed, 64), false, &response));
    report("open loop, 10000 clients, and the tally", || run(spec(constant(), 10_000), true, &response));
    report("open loop, requests with placeholders", || run(with_placeholders(), false, &response));
    report("100000 users, each thinking for 1 s", || run(thinking(), false, &response));
    let before = resident();
    let million = of_many(1_000_000);
    let spec_mb = resident();
    let load = Load::new(million.clone(), Timestamp::ZERO);
    let with_engine = resident();
    drop(load);
    report("open loop, drawn among 1000000 requests", || run(million.clone(), false, &response));
    let spec_mb = spec_mb.saturating_sub(before);
    println!("a million requests take {spec_mb} MB as a spec; a copy with its engine {} MB", with_engine - spec_mb);
}

/// Every request is rendered when it is sent.
fn with_placeholders() -> LoadSpec {
    let mut spec = spec(constant(), 10_000);
    let names = Names::default();
    spec.workload.requests[0].path = Template::parse("/{client}?n={sequence}", &names).expect("a template");
    spec
}

/// A hundred thousand sessions, of which nearly all wait for their next step at any time.
fn thinking() -> LoadSpec {
    let mut spec = spec(Arrivals::Closed, 100_000);
    let think = Think::Exponential { mean: Duration::from_secs(1), max: Duration::from_secs(100) };
    let step = Step { request: 0, when: When::After(think), embedded: Vec::new(), parallel: 1 };
    let session = SessionSpec { name: None, weight: 1.0, steps: vec![step; 5], goes_on: false };
    spec.workload.choice = Choice::Sessions(vec![session]);
    spec
}

/// As many different requests as in a log: far more than are prepared.
fn of_many(requests: u32) -> LoadSpec {
    let mut spec = spec(constant(), 10_000);
    let url = |nth: u32| format!("http://server/catalogue/section-{}/item-{nth}.html?from=home", nth % 100);
    spec.workload = Workload::of((0..requests).map(|nth| Target::parse(&url(nth)).expect("a URL")));
    spec.workload.choice = Choice::Drawn;
    spec
}

/// Memory of this process, in MB.
fn resident() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    statm.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok()).unwrap_or_default() * 4096 / 1_000_000
}

fn report(what: &str, mut once: impl FnMut() -> Duration) {
    let mut rounds: Vec<Duration> = (0..ROUNDS).map(|_| once()).collect();
    rounds.sort_unstable();
    println!("{what:45} {:6.0} ns a request", rounds[ROUNDS / 2].as_nanos() as f64 / REQUESTS as f64);
}

fn response() -> Vec<u8> {
    let mut response = b"HTTP/1.1 200 OK\r\nServer: nginx/1.22.1\r\nDate: Sat, 01 Aug 2026 12:00:00 GMT\r\n\
        Content-Type: application/octet-stream\r\nContent-Length: 1024\r\n\
        Last-Modified: Sat, 01 Aug 2026 11:00:00 GMT\r\nConnection: keep-alive\r\nETag: \"66ab5b30-400\"\r\n\
        Accept-Ranges: bytes\r\n\r\n"
        .to_vec();
    response.resize(response.len() + 1024, b'x');
    response
}

fn parse(bytes: &[u8]) -> Duration {
    let mut response = Response::new(Method::Get);
    let begin = now();
    for _ in 0..REQUESTS {
        response.reset(Method::Get);
        black_box(response.feed(black_box(bytes)).expect("a valid response"));
    }
    begin.elapsed()
}

/// Each request gets its response one interval later, so that a request is in flight when the next one arrives.
fn run(spec: LoadSpec, tallied: bool, response: &[u8]) -> Duration {
    let mut load = Load::new(spec, Timestamp::ZERO);
    let measured = load.measured();
    let urls = load::Urls::named(["http://server/1k"]);
    let mut tally = Tally::new(TallySpec { open_loop: true, measured, clients_rtt_ns: None, urls, phases: Vec::new() });
    let mut sampler = GaugeSampler::new(1, Timestamp::ZERO, Timestamp::ZERO);
    let (mut sent, mut connecting) = (Vec::<ConnectionKey>::new(), Vec::<ConnectionKey>::new());
    let (mut answering, mut records) = (Vec::<ConnectionKey>::new(), Vec::new());
    let mut at = Timestamp::ZERO;
    let begin = now();
    while !load.finished() {
        at = load.next_wake().map_or(at, |wake| wake.min(at + STEP).max(at));
        sampler.sample(at, load.live());
        load.handle_time(at);
        for key in connecting.drain(..) {
            load.handle_connected(at, key);
        }
        std::mem::swap(&mut sent, &mut answering);
        for key in answering.drain(..) {
            load.handle_bytes(at, key, response);
        }
        while let Some(action) = load.poll_action(at) {
            match action {
                Action::Connect { key, .. } => connecting.push(key),
                Action::Send { key, bytes, .. } => {
                    let length = bytes.len();
                    load.handle_sent(at, key, length);
                    sent.push(key);
                }
                Action::Open { .. } | Action::Reset { .. } => unreachable!("HTTP/1 has no streams"),
                Action::Close { .. } => {}
            }
        }
        load.take_records(&mut records);
        if tallied {
            records.iter().for_each(|record| tally.add_request(record));
        }
        black_box(&records);
        records.clear();
    }
    let took = begin.elapsed();
    assert_eq!((load.live().completed, load.live().failed), (REQUESTS, 0));
    took
}

const STEP: Duration = Duration::from_micros(10);

fn constant() -> Arrivals {
    Arrivals::constant(RequestRate::from_per_second(100_000.0).expect("a rate in range"))
}

fn poisson() -> Arrivals {
    Arrivals::poisson(RequestRate::from_per_second(100_000.0).expect("a rate in range"))
}

fn spec(arrivals: Arrivals, clients: u32) -> LoadSpec {
    LoadSpec {
        workload: Workload::of([Target::parse("http://server/1k").expect("a URL")]),
        absolute_form: false,
        version: HttpVersion::Http11,
        streams_max: 1,
        reuse: Reuse::KeepAlive,
        retry: Retry::IdleRace,
        connections_max: if arrivals.is_open() { 20_000 } else { clients },
        arrivals,
        requests_max: Some(REQUESTS),
        clients,
        connect_timeout: Duration::from_secs(10),
        response_timeout: Duration::from_secs(30),
        shard: Shard::WHOLE,
        seed: 1,
        warmup: Duration::ZERO,
        duration: None,
    }
}

#[expect(clippy::disallowed_methods, reason = "an example measures the library from outside")]
fn now() -> Instant {
    Instant::now()
}
