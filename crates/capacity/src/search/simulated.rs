//! Servers of known capacity in virtual time: what the search finds is held against what is there.

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

use super::course::{Course, Rules};
use super::question::{LoadQuestion, Most};
use super::trial::{Judged, Purpose, TrialEvidence, TrialRequest, figures, growth_of, judge, with};
use super::{Trials, findings, warmup};
use experiment::ExperimentError;

/// A queue in front of workers, first come, first served.
#[derive(Clone, Debug)]
pub struct Server {
    /// Requests at work at once.
    pub workers: usize,
    /// Seconds of work that a request is, the mean.
    pub service_s: f64,
    /// Whether that is exponential, or fixed.
    pub exponential: bool,
    /// Its work grows by this share of itself a second.
    pub slower_by: f64,
    /// It stands still for the first at the beginning of each of the second, in seconds.
    pub stall: Option<(f64, f64)>,
    /// Resident memory grows by so many bytes a second.
    pub leak: f64,
    /// Seconds of work that a new connection is, besides its request.
    pub accept_s: f64,
    /// It holds so many connections and refuses any other.
    pub connections: usize,
    /// Each connection that is held makes every request so much more work, in seconds: a server that looks through all of them.
    pub each_s: f64,
}

impl Server {
    /// So many a second at most, one after the other.
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

    /// The same with work that is exponential.
    pub fn exponential(rate: f64) -> Self {
        Server { exponential: true, ..Server::one(rate) }
    }

    /// Four workers of 20 ms: 200/s.
    pub fn four() -> Self {
        Server { workers: 4, service_s: 0.02, ..Server::one(1.0) }
    }
}

/// Trials of a simulated server, each with its own chances.
pub struct Simulated {
    pub server: Server,
    pub slo: Slo,
    pub poisson: bool,
    /// Of users: the mean of the time for which they think, in seconds, and whether that is exponential, or always the same.
    pub think: (f64, bool),
    /// The most of the load that the generator can make, of users and connections.
    pub most: f64,
    /// What the hypervisor takes of every trial, and how long the machine stands still in it, in nanoseconds.
    pub disturbance: (f64, u64),
    pub seed: u64,
    /// The rate from which on the generator itself is late.
    pub generator: f64,
    /// Trials, by their number, that something disturbs.
    pub disturbed: Vec<usize>,
    /// What was asked for.
    pub asked: Vec<TrialRequest>,
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
            asked: Vec::new(),
        }
    }

    pub fn rules(&self, plan: CapacityPlan) -> Rules {
        let (think_s, exponential) = self.think;
        let think = Duration::from_secs_f64(think_s);
        let question = match plan.find {
            Find::Users => {
                let turn = Turn { lasts: think, steps: 1.0, requests: 1.0, begins_spread: exponential };
                LoadQuestion::users(&turn, if exponential { Duration::ZERO } else { think })
            }
            Find::Connections => LoadQuestion::connections(&plan, &self.slo),
            find => LoadQuestion::of_rate(find),
        };
        let most = self.most.is_finite().then(|| Most { load: self.most, words: "open files".into() });
        Rules {
            plan,
            question: LoadQuestion { most, ..question },
            warmup: Some(Duration::from_secs(1)),
            first: None,
            requests_min: self.slo.requests_min(),
            can_limit: false,
            generator_limit: None,
            response_limit: self.slo.response_limit().unwrap(),
        }
    }

    /// One trial.
    pub fn trial(&self, asked: &TrialRequest, number: usize) -> TrialPart {
        let mut rng = Rng::new(self.seed, number as u64);
        let is_guess = asked.purpose == Purpose::Guess;
        // What a closed loop gets is what there is.
        let rate = if is_guess { 0.97 * self.server.workers as f64 / self.server.service_s } else { asked.rate_per_s };
        let (warmup_s, lasts_s) = (asked.warmup.as_secs_f64(), asked.lasts.as_secs_f64());
        let mut workers = self.server.workers(match asked.find {
            Find::NewConnections => self.server.accept_s,
            Find::Connections => self.server.each_s * asked.load,
            _ => 0.0,
        });
        let until_s = warmup_s + lasts_s;
        let requests = match asked.find {
            Find::Users if !is_guess && asked.purpose != Purpose::Limit => {
                self.of_users(asked.load as usize, until_s, &mut workers, &mut rng)
            }
            _ => self.of_rate(rate, until_s, &mut workers, &mut rng),
        };
        self.judged(asked, &requests, warmup_s, lasts_s, number)
    }

    /// When each request came and was done, of an open loop.
    fn of_rate(&self, rate: f64, until_s: f64, workers: &mut Workers<'_>, rng: &mut Rng) -> Vec<(f64, f64)> {
        let mut came_s = 0.0;
        let count = (rate * until_s) as usize;
        (0..count)
            .map(|at| {
                came_s = if self.poisson { came_s + rng.exponential() / rate } else { at as f64 / rate };
                (came_s, workers.done(came_s, rng))
            })
            .collect()
    }

    /// The same of users, who think first, and begin evenly over a think time if that is always the same.
    fn of_users(&self, users: usize, until_s: f64, workers: &mut Workers<'_>, rng: &mut Rng) -> Vec<(f64, f64)> {
        let (think_s, exponential) = self.think;
        let thinks = |rng: &mut Rng| if exponential { think_s * rng.exponential() } else { think_s };
        let begins_s = |user: usize| if exponential { 0.0 } else { think_s * user as f64 / users as f64 };
        let ns = |seconds: f64| Reverse((seconds * 1e9) as u64);
        let mut asking: BinaryHeap<Reverse<u64>> = (0..users).map(|user| ns(begins_s(user) + thinks(rng))).collect();
        let mut requests = Vec::new();
        while let Some(Reverse(at_ns)) = asking.pop() {
            let came_s = at_ns as f64 / 1e9;
            if came_s >= until_s {
                break;
            }
            let done_s = workers.done(came_s, rng);
            requests.push((came_s, done_s));
            asking.push(ns(done_s + thinks(rng)));
        }
        requests
    }

    fn judged(
        &self,
        asked: &TrialRequest,
        requests: &[(f64, f64)],
        warmup_s: f64,
        lasts_s: f64,
        number: usize,
    ) -> TrialPart {
        let spans = spans(requests, warmup_s, lasts_s);
        let mut times = Histogram::new();
        let of_phase = requests.iter().filter(|(came_s, _)| (warmup_s..warmup_s + lasts_s).contains(came_s));
        of_phase.for_each(|(came_s, done_s)| times.record(((done_s - came_s) * 1e9) as u64));
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
        let document = self.document(asked, load, lasts_s);
        let growth = growth_of(asked, &levels);
        let loop_busy = (asked.rate_per_s / self.generator).min(1.0);
        let seen = TrialEvidence { document: &document, growth, loop_busy, lost: None, asked };
        let judged = match asked.purpose {
            _ if self.disturbed.contains(&number) => Judged::Void("disturbed".into()),
            Purpose::Guess => Judged::Good,
            _ if asked.rate_per_s > self.generator => Judged::ClientLimit("the generator was late".into()),
            Purpose::Limit | Purpose::Calibration => Judged::Good,
            _ => judge(&seen, &self.slo),
        };
        let mut part = with(figures(&seen, &self.slo), judged);
        if asked.purpose == Purpose::Calibration {
            part.settled_s = warmup::settled(&spans);
        }
        if matches!(asked.purpose, Purpose::Confirmation | Purpose::Long) || part.verdict == "bad" {
            let plan = plan::Plan::from_toml("[load]\nurl = \"http://a/\"\nduration = \"1s\"\n", "simulated").unwrap();
            part.findings = findings::of_trial(&spans, &self.memory(lasts_s), asked.purpose, &plan);
        }
        part
    }

    fn document(&self, asked: &TrialRequest, load: Load, lasts_s: f64) -> Document {
        let is_held = asked.find == Find::Connections && asked.purpose != Purpose::Guess;
        let missing = is_held.then(|| (asked.load - self.server.connections as f64).max(0.0));
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
        let held = missing.map(|missing| check("open_connections_established", missing, 0.5));
        // The lab's own `loop_not_stalled` would fail in a trial that stood still, and make a bad one void.
        let checks = held.into_iter().chain([check("loop_not_stalled", stall_ns as f64, f64::INFINITY)]);
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

/// A server's workers in one trial.
struct Workers<'a> {
    server: &'a Server,
    /// What a request is more than its own work, in seconds.
    besides_s: f64,
    /// When each is free, in nanoseconds, since floats have no order.
    free: BinaryHeap<Reverse<u64>>,
}

impl Workers<'_> {
    /// When a request is done that comes at this moment; those before it came earlier.
    fn done(&mut self, came_s: f64, rng: &mut Rng) -> f64 {
        let server = self.server;
        let Reverse(free_ns) = self.free.pop().expect("as many as there are workers");
        let begins_s = server.awake(came_s.max(free_ns as f64 / 1e9));
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

    /// When work that could begin at this moment begins.
    fn awake(&self, at_s: f64) -> f64 {
        match self.stall {
            Some((still_s, period_s)) if at_s % period_s < still_s => at_s - at_s % period_s + still_s,
            _ => at_s,
        }
    }
}

impl Trials for Simulated {
    fn make(&mut self, asked: &TrialRequest, number: usize, _: f64) -> Result<Option<TrialPart>, ExperimentError> {
        self.asked.push(*asked);
        Ok(Some(self.trial(asked, number)))
    }

    fn made(&mut self, _: &TrialPart, course: &Course<'_>) -> Result<(), ExperimentError> {
        assert!(course.made().len() < 200, "it does not end: {:?}", course.so_far());
        Ok(())
    }
}

/// The measured phase in spans, as the lab gives it: levels are means over time.
fn spans(requests: &[(f64, f64)], warmup_s: f64, lasts_s: f64) -> Vec<Span> {
    let length_s = Span::LENGTH.as_secs_f64();
    let count = (lasts_s / length_s + 1e-9) as usize;
    let mut spans: Vec<Span> = (0..count)
        .map(|at| Span {
            from: Timestamp::from_nanos(((warmup_s + at as f64 * length_s) * 1e9) as u64),
            ..Span::default()
        })
        .collect();
    for &(came_s, done_s) in requests {
        let (from, to) = ((came_s - warmup_s) / length_s, (done_s - warmup_s) / length_s);
        if let Some(span) = (from >= 0.0).then(|| spans.get_mut(from as usize)).flatten() {
            span.offered += 1;
        }
        if let Some(span) = (to >= 0.0).then(|| spans.get_mut(to as usize)).flatten() {
            span.completed += 1;
            span.response_mean_ns += (done_s - came_s) * 1e9;
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
