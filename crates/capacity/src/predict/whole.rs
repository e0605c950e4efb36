//! Everything measured of an assembled server, and the document that it becomes.

use std::time::Duration;

use plan::{HttpVersion, TlsVersion};
use schema::document::{Check, Run, SCHEMA};
use schema::{Demand, MeasuredLoad, PathTimes, PerConnection, PredictDocument, PredictPart, Validity, Verdict};
use stats::Rng;
use stats::regression::Line;
use store::RunFolder;
use testbed::host;
use units::{CpuShare, RequestRate};

use super::answer::{self, Known, Processor};
use super::class_costs::{A_CONNECTION_EACH, MixComponent};
use super::demands::{self, ClassMeasurement, Measuring};
use super::model::{self, Each, Mixed};
use super::path::{self, Manner, PathModel, Traffic};
use super::{PATH_RATE_MAX, PATH_SHARE, PredictPlan, assumptions, doubts, memory, period};
use experiment::ExperimentError;
use experiment::Order;
use experiment::verdict;

/// Everything measured.
pub struct Whole<'a> {
    /// What is asked.
    pub asked: &'a PredictPlan,
    /// Classes, and what each request brings along.
    pub parts: Vec<MixComponent>,
    /// What a connection takes, where that was measured.
    pub memory: Option<PerConnection>,
}

impl Whole<'_> {
    /// What a request of the mix costs: classes by their shares. Where each has a connection of its own, the first class less what it costs
    /// on an open connection and as it is measured with one; so nothing that cancels out adds to the error.
    pub fn mixed(
        &self,
        of: fn(&MixComponent) -> Each,
        measured: fn(&ClassMeasurement) -> &model::ClassCost,
    ) -> Option<Mixed> {
        let connection = self.parts.iter().find(|part| part.is_connection()).and_then(|part| part.measured.as_ref());
        let classes = self.parts.iter().filter(|part| !part.is_connection());
        let mut terms: Vec<(f64, Each)> = classes.filter_map(|part| Some((part.each?, of(part)))).collect();
        if let (Some(with), Some((share, _))) = (connection, terms.first_mut()) {
            *share -= 1.0;
            terms.push((1.0, Each::of(measured(with))));
        }
        Mixed::of(&terms)
    }

    pub fn manner(&self) -> Manner {
        let load = &self.asked.plan.load;
        let resumed = self
            .parts
            .iter()
            .filter_map(|part| part.measured.as_ref().and_then(|it| it.resumed.1.or(it.resumed.0)))
            .next_back()
            .unwrap_or(0.0);
        let server = self.asked.plan.server.as_ref();
        Manner {
            close: load.close && load.http != HttpVersion::Http2,
            tls_round_trips: match &load.tls {
                None => 0.0,
                Some(tls) if tls.version == TlsVersion::V12 => 2.0 - resumed,
                Some(_) => 1.0,
            },
            initcwnd: server.and_then(|server| server.tcp.initcwnd).unwrap_or(path::INITCWND),
        }
    }

    /// Of a request of the mix, as far as known: by shares over the classes, with connections where each has one.
    pub fn traffic(&self) -> Option<Traffic> {
        if self.asked.plan.load.close {
            let with = self.parts.iter().find(|part| part.is_connection())?;
            return with.measured.as_ref()?.traffic;
        }
        let mut sum = Traffic::default();
        for part in &self.parts {
            let (Some(each), Some(measured)) = (part.each, &part.measured) else { continue };
            let traffic = measured.traffic?;
            sum.up_bytes += each * traffic.up_bytes;
            sum.down_bytes += each * traffic.down_bytes;
            sum.up_packets += each * traffic.up_packets;
            sum.down_packets += each * traffic.down_packets;
            sum.answer_bytes += each * traffic.answer_bytes;
        }
        Some(sum)
    }

    fn processor(&self, measuring: &mut Measuring<'_>) -> Processor {
        let host = measuring.host.clone().unwrap_or_default();
        let cores =
            host.server_cores.as_deref().map_or(host.cores as usize, |list| demands::core_list(list).len()).max(1)
                as f64;
        let share = self.asked.plan.server.as_ref().and_then(|server| server.cpu).map(CpuShare::cores);
        let quota = share.map(|share| (share, period(share)));
        let used = measuring
            .loads
            .iter()
            .filter(|load| load.kind == "rough")
            .map(|load| load.busy_processes)
            .fold(0.0, f64::max);
        if quota.is_none() && used < cores * 0.8 && cores > 1.0 {
            let usable = used.ceil().clamp(1.0, cores);
            // So a figure rests on what otherwise says where to begin.
            measuring.loads.iter_mut().filter(|load| load.kind == "rough").for_each(|load| load.left_out = false);
            measuring.notes.push(format!(
                "in a closed loop the server used {used:.2} of {cores:.0} cores: it is taken to be able to use {usable:.0} (fewer threads than \
                 cores, a lock, or a generator that was slower than it)"
            ));
            return Processor { quota, cores: usable };
        }
        Processor { quota, cores }
    }

    /// What it comes to, and what is doubtful of it.
    pub fn answered(self, measuring: &mut Measuring<'_>) -> Result<(PredictPart, Vec<Check>), ExperimentError> {
        let asked = self.asked;
        let processes = self.mixed(|part| part.processes, |it| &it.processes);
        let cores = self.mixed(|part| part.cores, |it| &it.cores);
        let cores = processes.zip(cores).map(|(processes, cores)| cores.covering(&processes));
        let processor = self.processor(measuring);
        let (manner, traffic) = (self.manner(), self.traffic());
        let model = path_model(asked)?;
        let mut predict = PredictPart {
            demands: self.parts.iter().flat_map(demand_rows).collect(),
            memory: self.memory,
            peak_to_mean: asked.asked.peak_to_mean,
            ..PredictPart::default()
        };
        let known = processes.zip(cores).map(|(processes, cores)| {
            let way = model.as_ref().zip(traffic).map(|(model, traffic)| (model, manner, traffic));
            let nofile = sys::limits::raise_open_files() as f64;
            let per = self.memory.as_ref();
            let memory = asked.plan.server.as_ref().and_then(|server| server.memory);
            Known {
                processor,
                classes: self.classes(cores.behind.value),
                processes,
                cores,
                // Beyond the demand of the simulated queue, which has the receiving in it.
                beside_s: beside(&measuring.loads, asked.plan.load.close, cores.light.map_or(0.0, |light| light.value)),
                path: way,
                workers: asked.asked.workers,
                worker_held_s: None,
                connection_s: None,
                connections_by_memory: memory
                    .zip(per)
                    .and_then(|(bytes, per)| memory::connections(per, bytes.0 as f64)),
                connections_by_descriptors: per
                    .and_then(|per| per.descriptors)
                    .filter(|each| *each > 0.0)
                    .map(|each| nofile / each),
                disk: None,
                slo: asked.plan.slo.as_ref(),
                seed: asked.plan.seed,
            }
        });
        if let Some(mut known) = known {
            let first = answer::limits(&Known { slo: None, ..known.clone() }).first().map(|limit| limit.rate_per_s);
            if let (Some((path, manner, traffic)), Some(first)) = (known.path, first) {
                let times = self.way(path, manner, traffic, first, measuring)?;
                known.connection_s = times.measured_connection_s.or(times.connection_s);
                known.worker_held_s = times.worker_held_s;
                predict.path = Some(times);
            } else if manner.close {
                known.worker_held_s = Some(0.0);
            }
            fill(&mut predict, &known, &measuring.loads, asked);
            assumptions::assumes(&mut predict, &known, &asked.asked);
        }
        let checks = doubts::checks(&predict, &measuring.loads, processes.as_ref(), asked);
        Ok((predict, checks))
    }

    /// Shares of the classes, and what each costs over the mix, the receiving included as in the simulated queue. What each request brings along is in all of them alike.
    pub fn classes(&self, mix_s: f64) -> Vec<(f64, f64)> {
        let is_class = |part: &&MixComponent| part.measured.is_some() && !part.is_connection();
        let of = |part: &MixComponent| part.cores.behind().map_or(0.0, |demand| demand.value);
        let classes: Vec<&MixComponent> =
            self.parts.iter().filter(is_class).filter(|part| part.each.is_some_and(|each| each > 0.0)).collect();
        let sum: f64 = classes.iter().map(|part| part.each.unwrap_or(0.0) * of(part)).sum();
        let along = mix_s - sum;
        let least = mix_s * 1e-6;
        classes.iter().map(|part| (part.each.unwrap_or(0.0), (of(part) + along).max(least) / mix_s)).collect()
    }

    /// What the path adds, with one load there at a part of what the server can do.
    fn way(
        &self,
        path: &PathModel,
        manner: Manner,
        traffic: Traffic,
        first: f64,
        measuring: &mut Measuring<'_>,
    ) -> Result<PathTimes, ExperimentError> {
        let asked = self.asked;
        let mut times = way_by_model(asked, path, manner, traffic);
        if !asked.is_far() {
            return Ok(times);
        }
        let mut plan = asked.plan.clone();
        plan.load.rate =
            RequestRate::from_per_second(rate_behind_path(first, asked.asked.workers, times.worker_held_s));
        plan.load.warmup_rises = true;
        let longest = asked.plan.path.as_ref().and_then(|path| testbed::distances::spec(path, plan.load.clients).ok());
        let longest = longest.map_or(Duration::ZERO, |spec| testbed::distances::longest_rtt(&spec));
        plan.load.warmup = (longest * 4 + Duration::from_millis(500)).min(Duration::from_secs(15));
        let lasts = asked.asked.each.max(longest * 2);
        let made = measuring.measure("mix", "path", &plan, lasts, "the path, lightly")?;
        let Some(made) = made else { return Ok(times) };
        if verdict::named(&made.part.verdict) == Verdict::Invalid {
            measuring.notes.push(format!(
                "the load behind the path was invalid ({}): what the path takes is by the model alone",
                made.part.failed.join(", ")
            ));
            measuring.leave_out([&made]);
            return Ok(times);
        }
        times.measured_mean_s = Some(made.part.response_mean_ns / 1e9);
        if manner.close && made.connection_s > 0.0 {
            times.measured_connection_s = Some(made.connection_s);
            times.worker_held_s = Some((made.connection_s - made.connect_s).max(0.0));
        }
        Ok(times)
    }
}

/// The rate of the load behind the path: light for what the server can do nearby, and for its workers, which the distance holds for `held_s` each by the
/// model: connections that wait for one would say how long they waited.
pub fn rate_behind_path(first: f64, workers: Option<u32>, held_s: Option<f64>) -> f64 {
    let of_workers =
        workers.zip(held_s.filter(|held_s| *held_s > 0.0)).map(|(workers, held_s)| f64::from(workers) / held_s);
    (first.min(of_workers.unwrap_or(f64::INFINITY)) * PATH_SHARE).min(PATH_RATE_MAX)
}

/// The document of what was foretold.
pub fn document(
    predict: PredictPart,
    checks: Vec<Check>,
    order: &Order,
    record: &RunFolder,
    measuring: &mut Measuring<'_>,
) -> Result<PredictDocument, ExperimentError> {
    Ok(PredictDocument {
        schema: SCHEMA.into(),
        run: Run {
            id: record.id().into(),
            dir: record.path().display().to_string(),
            command: order.command.clone(),
            seed: measuring.asked.plan.seed,
            started_at: store::rfc3339(order.started),
            duration_s: measuring.duration_s,
            host: match measuring.host.take() {
                Some(host) => host,
                None => host::facts(&host::CorePlan::default(), 1)?,
            },
            ..Run::default()
        },
        validity: Validity::from_checks(checks),
        predict,
    })
}

/// The distances of the plan; none without a path.
pub fn path_model(asked: &PredictPlan) -> Result<Option<PathModel>, ExperimentError> {
    let Some(path) = &asked.plan.path else { return Ok(None) };
    let spec = testbed::distances::spec(path, asked.plan.load.clients).map_err(testbed::LabError::from)?;
    Ok(Some(PathModel::of(&spec)))
}

/// What the path adds by the model alone.
pub fn way_by_model(asked: &PredictPlan, path: &PathModel, manner: Manner, traffic: Traffic) -> PathTimes {
    let response_mean_s = path.response_mean_s(&manner, &traffic);
    PathTimes {
        name: asked.plan.path.as_ref().map(testbed::distances::name).unwrap_or_default(),
        rtt_mean_s: path.rtt_mean_s(),
        round_trips: path::round_trips(&manner, traffic.answer_bytes),
        response_mean_s,
        connection_s: manner.close.then_some(response_mean_s),
        // Accepted when the handshake is over, one round trip after it began.
        worker_held_s: manner.close.then(|| response_mean_s - path.rtt_mean_s()),
        up_bytes: traffic.up_bytes,
        down_bytes: traffic.down_bytes,
        up_packets: traffic.up_packets,
        down_packets: traffic.down_packets,
        ..PathTimes::default()
    }
}

/// The answer and all that follows from it.
pub fn fill(predict: &mut PredictPart, known: &Known<'_>, loads: &[MeasuredLoad], asked: &PredictPlan) {
    predict.limits = answer::limits(known);
    let Some(least) = predict.limits.first().cloned() else { return };
    predict.rate_per_s = Some(least.rate_per_s);
    predict.interval = least.interval;
    predict.bound_by.clone_from(&least.resource);
    let (busy, of_processes) = answer::busy(known, least.rate_per_s);
    // Those of parts alone count where there are no others.
    let of = |kinds: &[&str]| {
        let loads = loads.iter().filter(|load| kinds.contains(&load.kind.as_str()) && !load.left_out);
        loads.map(|load| if of_processes { load.busy_processes } else { load.busy_cores }).fold(0.0, f64::max)
    };
    let telling = of(if known.processes.held { &["held"] } else { &["light", "held"] });
    let most = if telling > 0.0 { telling } else { of(&["part"]) };
    predict.beyond = if most > 0.0 { busy / most } else { f64::INFINITY };
    predict.curve = answer::curve(known);
    predict.connections_in_process = known.connection_s.map(|time| time * least.rate_per_s);
    let (asked, seed) = (&asked.asked, asked.plan.seed);
    if let Some(users) = asked.users {
        (predict.closed, predict.users_at_saturation) = answer::users(known, users, asked.think);
    }
    predict.per_day = answer::per_day(least.rate_per_s, asked.peak_to_mean);
    predict.machines =
        asked.peak.map(|peak| answer::machines(least.rate_per_s, peak.per_second(), asked.headroom.value()));
    let points: Vec<(f64, f64)> = loads
        .iter()
        .filter(|load| load.kind == "light" && load.in_flight >= 1.0 && !load.left_out)
        .map(|load| (load.in_flight, load.rate_per_s))
        .collect();
    predict.usl = usl(&points, seed);
}

/// What the median request took beyond its demand in the lightest load that was served as it came, of those with a connection for each request where
/// the plan has that.
pub fn beside(loads: &[MeasuredLoad], close: bool, demand_s: f64) -> f64 {
    let served = |load: &&MeasuredLoad| {
        demands::is_sound(load) && !load.left_out && !load.failed.iter().any(|check| check == "achieved_as_offered")
    };
    let light = loads.iter().filter(|load| load.kind == "light" && load.class.ends_with(A_CONNECTION_EACH) == close);
    let lightest = light.filter(served);
    let lightest = lightest.min_by(|a, b| a.rate_per_s.total_cmp(&b.rate_per_s));
    lightest.map_or(0.0, |load| (load.response_p50_ns as f64 / 1e9 - demand_s).max(0.0))
}

/// The universal scalability law through loads, where there are enough.
pub fn usl(points: &[(f64, f64)], seed: u64) -> Option<schema::UslPart> {
    let fit = stats::usl::usl(points, &mut Rng::named(seed, "usl"))?;
    Some(schema::UslPart {
        gamma: fit.law.gamma,
        gamma_interval: fit.gamma,
        alpha: fit.law.alpha,
        alpha_interval: fit.alpha,
        beta: fit.law.beta,
        beta_interval: fit.beta,
        r2: fit.law.r2,
        number_max: points.iter().map(|(number, _)| *number).fold(0.0, f64::max),
    })
}

pub fn demand_rows(part: &MixComponent) -> Vec<Demand> {
    let is_derived = part.measured.is_none() || part.is_connection();
    let mut rows = Vec::new();
    let measured = |resource: &str| {
        part.measured
            .as_ref()
            .filter(|_| !is_derived)
            .map(|measured| if resource == "cores" { &measured.cores } else { &measured.processes })
    };
    for (resource, each) in [("processes", &part.processes), ("cores", &part.cores)] {
        for (loads, estimate) in [("held", each.held), ("light", each.light)] {
            let Some(estimate) = estimate else { continue };
            let line: Option<Line> = measured(resource).and_then(|cost| cost.light).filter(|_| loads == "light");
            let points = part.measured.as_ref().map_or((0, 0), |measured| measured.points);
            rows.push(Demand {
                class: part.name.clone(),
                each: part.each,
                resource: resource.into(),
                loads: if is_derived { format!("derived, {loads}") } else { loads.into() },
                seconds: estimate.value,
                interval: estimate.interval(),
                idle_cores: line.map(|line| line.intercept),
                curvature_t: line.map(|line| line.curvature.clamp(-1e6, 1e6)),
                points: if loads == "held" { points.1 } else { points.0 },
            });
        }
    }
    rows
}
