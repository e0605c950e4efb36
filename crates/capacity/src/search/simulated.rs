//! Simulated servers of known capacity in virtual time, to compare a search's result with the truth.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use load::Span;
use plan::slo::Slo;
use plan::{CapacityPlan, Find, Turn};
use schema::document::{Check, CheckState, Document, Load, Validity, Weight};
use schema::{Level, ServerSecond, TrialPart};
use stats::{Histogram, Rng};
use units::Timestamp;

use super::quantity::{MachineLimit, SearchQuantity};
use super::sequence::{Rules, TrialSequence};
use super::trial::{Purpose, TrialEvidence, TrialRequest, TrialVerdict, figures, growth_of, judge, with};
use super::{Trials, findings, warmup};
use experiment::ExperimentError;

/// A queue in front of workers, first come, first served.
#[derive(Clone, Debug)]
pub struct Server {
    /// Requests processed concurrently.
    pub workers: usize,
    /// Mean work of a request, in seconds.
    pub service_s: f64,
    /// Whether the work is exponential, otherwise fixed.
    pub exponential: bool,
    /// Relative growth of the work per second.
    pub slower_by: f64,
    /// Stalls: length and period in seconds.
    pub stall: Option<(f64, f64)>,
    /// Growth of resident memory in bytes per second.
    pub leak: f64,
    /// Work of a new connection in addition to its request, in seconds.
    pub accept_s: f64,
    /// Limit of open connections; more are refused.
    pub connections: usize,
    /// Extra work per request for each open connection, in seconds: a server that scans all connections.
    pub each_s: f64,
}

impl Server {
    /// A single worker with this many requests per second.
    pub fn one(rate: f64) -> Self {
        Server {
            workers: 1,
            service_s: 1.0 / rate,
            exponential: false,
            slower_by: 0.0,
            stall: None,
            leak: 0.0,
            accept_s: 0.0,
            connections: usize::MAX,
            each_s: 0.0,
        }
    }

    /// A single worker with this many requests per second of exponential work.
    pub fn exponential(rate: f64) -> Self {
        Server { exponential: true, ..Server::one(rate) }
    }

    /// Four workers of 20 ms: 200/s.
    pub fn four() -> Self {
        Server { workers: 4, service_s: 0.02, ..Server::one(1.0) }
    }
}

/// Trials of a simulated server, each with its own random numbers.
pub struct Simulated {
    pub server: Server,
    pub slo: Slo,
    pub poisson: bool,
    /// Think time of users: mean in seconds, and whether it is exponential, otherwise constant.
    pub think: (f64, bool),
    /// Highest load of the generator, in users or connections.
    pub most: f64,
    /// CPU steal of every trial, and the machine's stall in it, in nanoseconds.
    pub disturbance: (f64, u64),
    pub seed: u64,
    /// Rate from which on the generator is late.
    pub generator: f64,
    /// Numbers of the disturbed trials.
    pub disturbed: Vec<usize>,
    /// The trials requested.
    pub requests: Vec<TrialRequest>,
}

impl Simulated {
    pub fn new(server: Server, slo: &str, seed: u64) -> Self {
        let slo = slo.parse().unwrap();
        Simulated {
            server,
            slo,
            poisson: false,
            think: (7.0, false),
            most: f64::INFINITY,
            disturbance: (0.0, 0),
            seed,
            generator: f64::INFINITY,
            disturbed: Vec::new(),
            requests: Vec::new(),
        }
    }

    pub fn rules(&self, plan: CapacityPlan) -> Rules {
        let (think_s, exponential) = self.think;
        let think = Duration::from_secs_f64(think_s);
        let quantity = match plan.find {
            Find::Users => {
                let turn = Turn { lasts: think, steps: 1.0, requests: 1.0, begins_spread: exponential };
                SearchQuantity::users(&turn, if exponential { Duration::ZERO } else { think })
            }
            Find::Connections => SearchQuantity::connections(&plan, &self.slo),
            find => SearchQuantity::of_rate(find),
        };
        let most = self.most.is_finite().then(|| MachineLimit { load: self.most, words: "open files".into() });
        Rules {
            plan,
            quantity: SearchQuantity { most, ..quantity },
            warmup: Some(Duration::from_secs(1)),
            first: None,
            requests_min: self.slo.requests_min(),
            can_limit: false,
            generator_limit: None,
            response_limit: self.slo.response_limit().unwrap(),
            shards: 1,
        }
    }

    /// Simulates one trial.
    pub fn trial(&self, request: &TrialRequest, number: usize) -> TrialPart {
        let mut rng = Rng::new(self.seed, number as u64);
        let is_guess = request.purpose == Purpose::Guess;
        // The closed loop achieves the server's capacity.
        let rate =
            if is_guess { 0.97 * self.server.workers as f64 / self.server.service_s } else { request.rate_per_s };
        let (warmup_s, lasts_s) = (request.warmup.as_secs_f64(), request.lasts.as_secs_f64());
        let mut workers = self.server.workers(match request.find {
            Find::NewConnections => self.server.accept_s,
            Find::Connections => self.server.each_s * request.load,
            _ => 0.0,
        });
        let until_s = warmup_s + lasts_s;
        let requests = match request.find {
            Find::Users if !is_guess && request.purpose != Purpose::Limit => {
                self.of_users(request.load as usize, until_s, &mut workers, &mut rng)
            }
            _ => self.of_rate(rate, until_s, &mut workers, &mut rng),
        };
        self.judged(request, &requests, warmup_s, lasts_s, number)
    }

    /// Arrival and completion times of an open loop.
    fn of_rate(&self, rate: f64, until_s: f64, workers: &mut Workers<'_>, rng: &mut Rng) -> Vec<(f64, f64)> {
        let mut arrived_s = 0.0;
        let count = (rate * until_s) as usize;
        (0..count)
            .map(|at| {
                arrived_s = if self.poisson { arrived_s + rng.exponential() / rate } else { at as f64 / rate };
                (arrived_s, workers.done(arrived_s, rng))
            })
            .collect()
    }

    /// Arrival and completion times of users, who think first; with constant think time their starts are evenly
    /// staggered.
    fn of_users(&self, users: usize, until_s: f64, workers: &mut Workers<'_>, rng: &mut Rng) -> Vec<(f64, f64)> {
        let (think_s, exponential) = self.think;
        let thinks = |rng: &mut Rng| if exponential { think_s * rng.exponential() } else { think_s };
        let begins_s = |user: usize| if exponential { 0.0 } else { think_s * user as f64 / users as f64 };
        let ns = |seconds: f64| Reverse((seconds * 1e9) as u64);
        let mut asking: BinaryHeap<Reverse<u64>> = (0..users).map(|user| ns(begins_s(user) + thinks(rng))).collect();
        let mut requests = Vec::new();
        while let Some(Reverse(at_ns)) = asking.pop() {
            let arrived_s = at_ns as f64 / 1e9;
            if arrived_s >= until_s {
                break;
            }
            let done_s = workers.done(arrived_s, rng);
            requests.push((arrived_s, done_s));
            asking.push(ns(done_s + thinks(rng)));
        }
        requests
    }

    fn judged(
        &self,
        request: &TrialRequest,
        requests: &[(f64, f64)],
        warmup_s: f64,
        lasts_s: f64,
        number: usize,
    ) -> TrialPart {
        let spans = spans(requests, warmup_s, lasts_s);
        let mut times = Histogram::new();
        let of_phase = requests.iter().filter(|(arrived_s, _)| (warmup_s..warmup_s + lasts_s).contains(arrived_s));
        of_phase.for_each(|(arrived_s, done_s)| times.record(((done_s - arrived_s) * 1e9) as u64));
        let within = requests.iter().filter(|(_, done_s)| (warmup_s..warmup_s + lasts_s).contains(done_s)).count();
        let levels: Vec<f64> = spans.iter().map(|span| span.in_flight_mean).collect();
        let load = Load {
            offered_requests: times.len(),
            completed: times.len(),
            achieved_rate_per_s: within as f64 / lasts_s,
            response_time_ns: times.quantiles(),
            in_flight: Level { mean: levels.iter().sum::<f64>() / levels.len().max(1) as f64, p50: 0, max: 0 },
            ..Load::default()
        };
        let document = self.document(request, load, lasts_s);
        let growth = growth_of(request, &levels);
        let loop_busy = (request.rate_per_s / self.generator).min(1.0);
        let evidence = TrialEvidence { document: &document, growth, loop_busy, lost: None, request };
        let judged = match request.purpose {
            _ if self.disturbed.contains(&number) => TrialVerdict::Void("disturbed".into()),
            Purpose::Guess => TrialVerdict::Good,
            _ if request.rate_per_s > self.generator => TrialVerdict::ClientLimit("the generator was late".into()),
            Purpose::Limit | Purpose::Calibration => TrialVerdict::Good,
            _ => judge(&evidence, &self.slo),
        };
        let mut part = with(figures(&evidence, &self.slo), judged);
        if request.purpose == Purpose::Calibration {
            part.settled_s = warmup::settled(&spans);
        }
        if matches!(request.purpose, Purpose::Confirmation | Purpose::Long) || part.verdict == "bad" {
            let plan = plan::Plan::from_toml("[load]\nurl = \"http://a/\"\nduration = \"1s\"\n", "simulated").unwrap();
            part.findings = findings::of_trial(&spans, &self.memory(lasts_s), request.purpose, &plan);
        }
        part
    }

    fn document(&self, request: &TrialRequest, load: Load, lasts_s: f64) -> Document {
        let is_of_connections = request.find == Find::Connections && request.purpose != Purpose::Guess;
        let missing = is_of_connections.then(|| (request.load - self.server.connections as f64).max(0.0));
        let (steal_share, stall_ns) = self.disturbance;
        let check = |name: &str, value: f64, limit: f64| Check {
            name: name.into(),
            state: if value > limit { CheckState::Failed } else { CheckState::Ok },
            weight: Weight::Suspect,
            value: Some(value),
            limit: Some(limit),
            unit: String::new(),
            why: name.into(),
        };
        let passed = missing.map(|missing| check("open_connections_established", missing, 0.5));
        // The run's own check `loop_not_stalled` would fail in a stalled trial and make a bad trial void.
        let checks = passed.into_iter().chain([check("loop_not_stalled", stall_ns as f64, f64::INFINITY)]);
        let mut document =
            Document { validity: Validity::from_checks(checks.collect()), ..Document::of_load(load, lasts_s) };
        document.run.host.steal_share = Some(steal_share);
        document
    }

    fn memory(&self, lasts_s: f64) -> Vec<ServerSecond> {
        let rss = |second: u32| 100_000_000 + (self.server.leak * f64::from(second)) as u64;
        (0..lasts_s as u32)
            .map(|second| ServerSecond { second, rss_bytes: rss(second), ..ServerSecond::default() })
            .collect()
    }
}

/// The server's workers in one trial.
struct Workers<'a> {
    server: &'a Server,
    /// Extra work per request, in seconds.
    besides_s: f64,
    /// When each worker is free, in nanoseconds, since floats are not `Ord`.
    free: BinaryHeap<Reverse<u64>>,
}

impl Workers<'_> {
    /// Completion time of a request that arrives now; calls are in order of arrival.
    fn done(&mut self, arrived_s: f64, rng: &mut Rng) -> f64 {
        let server = self.server;
        let Reverse(free_ns) = self.free.pop().expect("one entry per worker");
        let begins_s = server.awake(arrived_s.max(free_ns as f64 / 1e9));
        let mean_s = (server.service_s + self.besides_s) * (1.0 + server.slower_by * begins_s);
        let work_s = if server.exponential { mean_s * rng.exponential() } else { mean_s };
        let done_s = begins_s + work_s;
        self.free.push(Reverse((done_s * 1e9) as u64));
        done_s
    }
}

impl Server {
    fn workers(&self, besides_s: f64) -> Workers<'_> {
        Workers { server: self, besides_s, free: (0..self.workers).map(|_| Reverse(0)).collect() }
    }

    /// Start time of work that is ready at `at_s`: later during a stall.
    fn awake(&self, at_s: f64) -> f64 {
        match self.stall {
            Some((still_s, period_s)) if at_s % period_s < still_s => at_s - at_s % period_s + still_s,
            _ => at_s,
        }
    }
}

impl Trials for Simulated {
    fn make(&mut self, request: &TrialRequest, number: usize, _: f64) -> Result<Option<TrialPart>, ExperimentError> {
        self.requests.push(*request);
        Ok(Some(self.trial(request, number)))
    }

    fn record(&mut self, _: &TrialPart, sequence: &TrialSequence<'_>) -> Result<(), ExperimentError> {
        assert!(sequence.trials().len() < 200, "the search does not end: {:?}", sequence.so_far());
        Ok(())
    }
}

/// The measured phase in spans as the testbed reports it: numbers in flight are means over time.
fn spans(requests: &[(f64, f64)], warmup_s: f64, lasts_s: f64) -> Vec<Span> {
    let length_s = Span::LENGTH.as_secs_f64();
    let count = (lasts_s / length_s + 1e-9) as usize;
    let mut spans: Vec<Span> = (0..count)
        .map(|at| Span {
            from: Timestamp::from_nanos(((warmup_s + at as f64 * length_s) * 1e9) as u64),
            ..Span::default()
        })
        .collect();
    for &(arrived_s, done_s) in requests {
        let (from, to) = ((arrived_s - warmup_s) / length_s, (done_s - warmup_s) / length_s);
        if let Some(span) = (from >= 0.0).then(|| spans.get_mut(from as usize)).flatten() {
            span.offered += 1;
        }
        if let Some(span) = (to >= 0.0).then(|| spans.get_mut(to as usize)).flatten() {
            span.completed += 1;
            span.response_mean_ns += (done_s - arrived_s) * 1e9;
        }
        let (first, last) = (from.max(0.0) as usize, (to.max(0.0) as usize).min(count.saturating_sub(1)));
        for at in first..=last {
            let Some(span) = spans.get_mut(at) else { break };
            let share = (to.min((at + 1) as f64) - from.max(at as f64)).max(0.0);
            span.in_flight_mean += share;
        }
    }
    for span in &mut spans {
        span.response_mean_ns /= span.completed.max(1) as f64;
    }
    spans
}
