//! Makes a stored run of an hour at 10,000 requests/s in virtual time: arrivals of the load's schedule, a server with a
//! few workers that stalls now and then, and clients at several distances. The load's own tally counts it and the
//! store's own writers write it. It is test data for long runs: how fast a report is made, how large its page is.
//!
//! ```console
//! $ cargo run --release -p testbed --example an_hour -- RUNS [SECONDS [RATE]]
//! $ time YAMABIKO_RUNS=RUNS yamabiko report --html hour.html
//! ```
//!
//! All times follow from the seed. Tables: requests, wire_requests, series, watch_series, server_series, distributions;
//! 36 million rows in each of the first two.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::net::SocketAddr;
use std::time::{Duration, SystemTime};

use load::arrivals::Schedule;
use load::{Arrivals, Ending, GaugeSampler, Live, Outcome, Tally, TallySpec, Urls};
use schema::document::{Document, Path, Run, Server, Verdict};
use schema::{
    Bucket, DistributionRecord, Framing, Measure, RequestRecord, ServerSecond, Validity, WatchPart, WatchSecond,
    WireRequest,
};
use stats::{Histogram, Rng, quantiles_of};
use store::{RunFolder, RunStore};
use units::{RequestRate, Timestamp};

const SEED: u64 = 7;
/// Start of the load, as in every run.
const BEGIN: Timestamp = Timestamp::from_nanos(50_000_000);
const CLIENTS: u32 = 10_000;
const WORKERS: usize = 24;
/// Mean time of a request at a worker.
const SERVICE_NS: f64 = 1_600_000.0;
/// Seconds between two stalls of the server.
const STALL_EVERY_S: u64 = 97;
const STALL_NS: u64 = 120_000_000;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let run_store = arguments.next().ok_or("expected the directory of a run store")?;
    let seconds: u64 = arguments.next().map_or(Ok(3_600), |word| word.parse())?;
    let rate: f64 = arguments.next().map_or(Ok(10_000.0), |word| word.parse())?;
    let started = SystemTime::UNIX_EPOCH + Duration::from_secs(1_795_000_000);
    let folder = RunStore::at(run_store).create("an-hour", started, SEED)?;
    make(&folder, seconds, rate, started)?;
    println!("{}", folder.path().display());
    Ok(())
}

fn make(folder: &RunFolder, seconds: u64, rate: f64, started: SystemTime) -> Result<(), Box<dyn std::error::Error>> {
    let rtts: Vec<u64> = (0..CLIENTS).map(rtt_of).collect();
    let end = BEGIN + Duration::from_secs(seconds);
    let mut tally = Tally::new(TallySpec {
        open_loop: true,
        measured: (BEGIN, Some(end)),
        clients_rtt_ns: Some(rtts.clone()),
        urls: Urls::named(["http://server/"]),
        phases: Vec::new(),
    });
    let mut simulation = Simulation::new(&rtts, BEGIN);
    let arrivals = Arrivals::poisson(RequestRate::from_per_second(rate).ok_or("expected a rate above 0")?);
    let mut schedule = Schedule::new(&arrivals, BEGIN, SEED).ok_or("an open loop has a schedule")?;
    let (mut requests, mut wires) = (folder.requests(), folder.wire_requests());
    let (mut rows, mut wire_rows) = (Vec::new(), Vec::new());
    let mut offered = 0;
    loop {
        let at = schedule.take();
        if at >= end {
            break;
        }
        let (record, wire) = simulation.request(offered, at);
        offered += 1;
        tally.add_request(&record);
        rows.push(record);
        wire_rows.push(wire);
        if rows.len() == 10_000 {
            requests.append(&mut rows)?;
            wires.append(&mut wire_rows)?;
        }
    }
    requests.append(&mut rows)?;
    wires.append(&mut wire_rows)?;
    requests.finish()?;
    wires.finish()?;
    let levels = simulation.levels(end);
    let outcome = tally.finish(Ending { measured_end: end, offered, unfinished: 0, levels });
    write_tables(folder, &simulation, &outcome, seconds, started, &rtts)
}

/// Clients, path and server, in virtual time.
struct Simulation<'a> {
    rtts: &'a [u64],
    rng: Rng,
    /// When each worker is free, the earliest first.
    workers: BinaryHeap<Reverse<u64>>,
    /// When requests in flight end.
    in_flight_ends: BinaryHeap<Reverse<u64>>,
    sampler: GaugeSampler,
    /// Response times counted by second and bucket.
    distributions: BTreeMap<(u32, u16), u64>,
    wire_rtt: Histogram,
    wire_service: Histogram,
    busy_ns: BTreeMap<u64, u64>,
}

impl<'a> Simulation<'a> {
    fn new(rtts: &'a [u64], begin: Timestamp) -> Self {
        Simulation {
            rtts,
            rng: Rng::named(SEED, "an hour"),
            workers: (0..WORKERS).map(|_| Reverse(0)).collect(),
            in_flight_ends: BinaryHeap::new(),
            sampler: GaugeSampler::new(SEED, begin, begin),
            distributions: BTreeMap::new(),
            wire_rtt: Histogram::new(),
            wire_service: Histogram::new(),
            busy_ns: BTreeMap::new(),
        }
    }

    /// One request on its own connection: SYN, request, response.
    fn request(&mut self, sequence: u64, scheduled: Timestamp) -> (RequestRecord, WireRequest) {
        self.advance(scheduled.as_nanos());
        let client = self.rng.below(u64::from(CLIENTS)) as u32;
        let rtt = self.rtts[client as usize] + self.rng.below(40_000);
        let started = scheduled.as_nanos() + 2_000 + self.rng.below(20_000);
        let connected = started + rtt;
        let arrived = connected + rtt / 2;
        let Reverse(free) = self.workers.pop().expect("there are workers");
        let service = (self.rng.exponential() * SERVICE_NS) as u64 + 80_000;
        // Waits are computed in the order of scheduled times: Poisson arrivals that are each delayed independently are
        // Poisson arrivals again, so waits are as long.
        let queued = scheduled.as_nanos();
        let mut from = queued.max(free);
        let stall = from / 1_000_000_000 % STALL_EVERY_S;
        if stall == 0 {
            // Work that would begin during a stall begins at its end.
            from = from.max(from / 1_000_000_000 * 1_000_000_000 + STALL_NS);
        }
        self.workers.push(Reverse(from + service));
        let answered = arrived + (from - queued) + service;
        *self.busy_ns.entry(answered / 1_000_000_000).or_default() += service;
        let done = answered + rtt / 2;
        self.in_flight_ends.push(Reverse(done));
        let bucket = Bucket::of(done - scheduled.as_nanos());
        *self.distributions.entry(((done / 1_000_000_000) as u32, bucket.0)).or_default() += 1;
        self.wire_rtt.record(rtt);
        self.wire_service.record(answered - arrived);
        let at = |nanos: u64| Some(Timestamp::from_nanos(nanos));
        let record = RequestRecord {
            sequence,
            client,
            connection: Some(sequence),
            session: None,
            url: 0,
            stream: None,
            scheduled_at: scheduled,
            started_at: at(started),
            connected_at: at(connected),
            secured_at: None,
            sent_at: at(connected + 9_000),
            first_byte_at: at(done),
            done_at: Timestamp::from_nanos(done),
            status: 200,
            bytes_received: 10_400,
            head_bytes: 240,
            keep_alive: false,
            bytes_sent: 80,
            attempts: 1,
            early_response: false,
            queued: false,
            failure: None,
        };
        let wire = WireRequest {
            connection: sequence,
            client: SocketAddr::from(([198, 19, (client >> 8) as u8, client as u8], 40_000)),
            server: SocketAddr::from(([198, 18, 0, 1], 80)),
            index: 0,
            request_first_at: at(arrived),
            request_last_at: at(arrived),
            response_first_at: at(answered),
            response_last_at: at(answered),
            method: None,
            host: None,
            path: None,
            minor_version: None,
            http_version: 1,
            stream: None,
            referer: None,
            user_agent: None,
            status: Some(200),
            request_bytes: 80,
            response_bytes: 10_400,
            framing: Framing::Exact,
            complete: true,
        };
        (record, wire)
    }

    /// Advances time to `now`: ends what ends before it, and samples the gauges.
    fn advance(&mut self, to: u64) {
        while let Some(&Reverse(done)) = self.in_flight_ends.peek()
            && done <= to
        {
            self.sampler.sample(Timestamp::from_nanos(done), live(self.in_flight_ends.len()));
            self.in_flight_ends.pop();
        }
        self.sampler.sample(Timestamp::from_nanos(to), live(self.in_flight_ends.len()));
    }

    fn levels(&mut self, end: Timestamp) -> load::Levels {
        self.sampler.set_measured_end(end);
        self.advance(end.as_nanos());
        self.sampler.finish()
    }
}

fn live(in_flight: usize) -> Live {
    Live { in_flight: in_flight as u64, connections: in_flight as u64, ..Live::default() }
}

fn write_tables(
    folder: &RunFolder,
    simulation: &Simulation<'_>,
    outcome: &Outcome,
    seconds: u64,
    started: SystemTime,
    rtts: &[u64],
) -> Result<(), Box<dyn std::error::Error>> {
    let mut series = folder.series();
    series.push(&outcome.seconds)?;
    series.finish()?;
    let mut table = folder.distributions();
    for (&(second, bucket), &count) in &simulation.distributions {
        let bucket = Bucket(bucket);
        let (from_ns, to_ns) = (bucket.from_ns(), bucket.to_ns());
        table.push(&[DistributionRecord { second, measure: Measure::ResponseTime, from_ns, to_ns, count }])?;
    }
    table.finish()?;
    let mut watched = folder.watch_series();
    for row in &outcome.seconds {
        watched.push(&[WatchSecond {
            second: u64::from(row.second),
            watched_ns: 1_000_000_000,
            connections_mean: row.connections_mean,
            in_flight_mean: row.in_flight_mean * 0.3,
            requests: row.started,
            responses: row.completed,
            ..WatchSecond::default()
        }])?;
    }
    watched.finish()?;
    let mut server = folder.server_series();
    for second in 0..seconds {
        let busy = simulation.busy_ns.get(&second).copied().unwrap_or(0) as f64 / 1e9 / WORKERS as f64;
        server.push(&[ServerSecond {
            second: second as u32,
            at_ns: BEGIN.as_nanos() + (second + 1) * 1_000_000_000,
            elapsed_s: 1.0,
            cpu_user_s: busy * 0.7,
            cpu_system_s: busy * 0.3,
            rss_bytes: 40_000_000 + second * 1_000,
            ..ServerSecond::default()
        }])?;
    }
    server.finish()?;
    let whole = [(0, BEGIN.as_nanos() + seconds * 1_000_000_000)];
    let histograms = &outcome.histograms;
    for (name, values) in [
        ("response_time", &histograms.response_time),
        ("service_time", &histograms.service_time),
        ("connect", &histograms.connect),
        ("first_byte", &histograms.first_byte),
        ("wire_rtt", &simulation.wire_rtt),
        ("wire_service", &simulation.wire_service),
    ] {
        folder.write_hlog(name, &whole.map(|(from, to)| (from, to, values)))?;
    }
    folder.write_plan("# made in virtual time: crates/testbed/examples/an_hour.rs\n")?;
    let document = document(folder, simulation, outcome, seconds, started, rtts);
    folder.write_summary(&document)?;
    Ok(())
}

fn document(
    folder: &RunFolder,
    simulation: &Simulation<'_>,
    outcome: &Outcome,
    seconds: u64,
    started: SystemTime,
    rtts: &[u64],
) -> Document {
    let requests = outcome.load.offered_requests;
    Document {
        schema: schema::document::SCHEMA.into(),
        run: Run {
            id: folder.id().into(),
            dir: folder.path().display().to_string(),
            command: "cargo run --release -p testbed --example an_hour".into(),
            seed: SEED,
            started_at: store::rfc3339(started),
            duration_s: seconds as f64,
            ..Run::default()
        },
        validity: Validity { verdict: Verdict::Suspect, checks: Vec::new() },
        load: Some(outcome.load.clone()),
        path: Some(Path {
            profile: "invented".into(),
            clients: u64::from(CLIENTS),
            configured_rtt_ns: quantiles_of(rtts),
            measured_rtt_ns: Some(simulation.wire_rtt.quantiles()),
            measured_rtt_source: "handshakes".into(),
            packets: requests * 18,
            bytes: requests * 11_000,
            ..Path::default()
        }),
        watch: Some(WatchPart {
            source: "virtual time".into(),
            requests,
            responses: requests,
            request_rate_per_s: requests as f64 / seconds as f64,
            response_rate_per_s: requests as f64 / seconds as f64,
            handshake_rtt_ns: simulation.wire_rtt.quantiles(),
            service_time_ns: simulation.wire_service.quantiles(),
            ..WatchPart::default()
        }),
        tap: None,
        server: Some(Server {
            command: "a model of workers in virtual time".into(),
            cpu_user_s: simulation.busy_ns.values().sum::<u64>() as f64 / 1e9 / WORKERS as f64,
            rss_bytes_max: 44_000_000,
            ..Server::default()
        }),
        slo: None,
        cache: None,
    }
}

/// Distances of clients: from 2 ms to 0.7 s, half within 31 ms.
fn rtt_of(client: u32) -> u64 {
    let rank = (f64::from(client) + 0.5) / f64::from(CLIENTS);
    (2e6 * (350.0_f64).powf(rank.powf(1.1))) as u64
}
