//! All measurements of a real server, and its document.

use std::time::Duration;

use plan::TlsVersion;
use schema::document::{Check, Run, SCHEMA};
use schema::{Demand, MeasuredLoad, PathTimes, PerConnection, PredictDocument, PredictPart, Validity, Verdict};
use stats::Rng;
use stats::regression::Line;
use store::RunFolder;
use testbed::host;
use units::{CpuShare, RequestRate};

use super::class_costs::{CONNECTION_SUFFIX, WorkloadClass};
use super::demands::{self, ClassMeasurement, Measuring};
use super::limits::{self, PredictionInputs, Processor};
use super::model::{self, ItemCost, WorkloadDemand};
use super::path::{self, ConnectionUse, PathModel, Traffic};
use super::{PATH_RATE_MAX, PATH_SHARE, PredictPlan, assumptions, checks, memory, period};
use experiment::ExperimentError;
use experiment::Order;
use experiment::verdict;

/// All measurements.
pub struct RealServer<'a> {
    /// The input.
    pub input: &'a PredictPlan,
    /// Classes, and connections or handshakes per request.
    pub parts: Vec<WorkloadClass>,
    /// Memory per connection, if measured.
    pub memory: Option<PerConnection>,
}

impl RealServer<'_> {
    /// Cost of a request of the workload: classes by their shares. With a connection per request, the first class is
    /// replaced by its measurement with connections, so that no error is added by subtraction.
    pub fn workload_demand(
        &self,
        of: fn(&WorkloadClass) -> ItemCost,
        measured: fn(&ClassMeasurement) -> &model::ClassCost,
    ) -> Option<WorkloadDemand> {
        let connection = self.parts.iter().find(|part| part.is_connection()).and_then(|part| part.measured.as_ref());
        let classes = self.parts.iter().filter(|part| !part.is_connection());
        let mut terms: Vec<(f64, ItemCost)> = classes.filter_map(|part| Some((part.each?, of(part)))).collect();
        if let (Some(with), Some((share, _))) = (connection, terms.first_mut()) {
            *share -= 1.0;
            terms.push((1.0, ItemCost::of(measured(with))));
        }
        WorkloadDemand::of(&terms)
    }

    pub fn connection_use(&self) -> ConnectionUse {
        let load = &self.input.plan.load;
        let resumed = self
            .parts
            .iter()
            .filter_map(|part| part.measured.as_ref().and_then(|it| it.resumed.1.or(it.resumed.0)))
            .next_back()
            .unwrap_or(0.0);
        let server = self.input.plan.server.as_ref();
        ConnectionUse {
            close: load.close && load.http.is_http1(),
            tls_round_trips: match &load.tls {
                None => 0.0,
                Some(tls) if tls.version == TlsVersion::V12 => 2.0 - resumed,
                Some(_) => 1.0,
            },
            initcwnd: server.and_then(|server| server.tcp.initcwnd).unwrap_or(path::INITCWND),
        }
    }

    /// Traffic of a request of the workload, as far as known: by shares over the classes, with connections where each
    /// request has one.
    pub fn traffic(&self) -> Option<Traffic> {
        if self.input.plan.load.close {
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
            sum.response_body_bytes += each * traffic.response_body_bytes;
        }
        Some(sum)
    }

    fn processor(&self, measuring: &mut Measuring<'_>) -> Processor {
        let host = measuring.host.clone().unwrap_or_default();
        let cores =
            host.server_cores.as_deref().map_or(host.cores as usize, |list| demands::core_list(list).len()).max(1)
                as f64;
        let share = self.input.plan.server.as_ref().and_then(|server| server.cpu).map(CpuShare::cores);
        let quota = share.map(|share| (share, period(share)));
        let used = measuring
            .loads
            .iter()
            .filter(|load| load.kind == "rough")
            .map(|load| load.busy_processes)
            .fold(0.0, f64::max);
        if quota.is_none() && used < cores * 0.8 && cores > 1.0 {
            let usable = used.ceil().clamp(1.0, cores);
            // Here a figure is based on the closed loop that otherwise only gives the scale.
            measuring.loads.iter_mut().filter(|load| load.kind == "rough").for_each(|load| load.left_out = false);
            measuring.notes.push(format!(
                "in a closed loop the server used {used:.2} of {cores:.0} cores: assumed usable are {usable:.0} \
                 (fewer threads than cores, a lock, or a generator that was slower than it)"
            ));
            return Processor { quota, cores: usable };
        }
        Processor { quota, cores }
    }

    /// The prediction and its checks.
    pub fn with_response(self, measuring: &mut Measuring<'_>) -> Result<(PredictPart, Vec<Check>), ExperimentError> {
        let input = self.input;
        let processes = self.workload_demand(|part| part.processes, |it| &it.processes);
        let cores = self.workload_demand(|part| part.cores, |it| &it.cores);
        let cores = processes.zip(cores).map(|(processes, cores)| cores.covering(&processes));
        let processor = self.processor(measuring);
        let (connection_use, traffic) = (self.connection_use(), self.traffic());
        let model = path_model(input)?;
        let mut predict = PredictPart {
            demands: self.parts.iter().flat_map(demand_rows).collect(),
            memory: self.memory,
            peak_to_mean: input.options.peak_to_mean,
            ..PredictPart::default()
        };
        let known = processes.zip(cores).map(|(processes, cores)| {
            let path_times = model.as_ref().zip(traffic).map(|(model, traffic)| (model, connection_use, traffic));
            let nofile = sys::limits::raise_open_files() as f64;
            let per = self.memory.as_ref();
            let memory = input.plan.server.as_ref().and_then(|server| server.memory);
            PredictionInputs {
                processor,
                classes: self.classes(cores.at_saturation.value),
                processes,
                cores,
                // Excess over the demand of the simulated queue, which includes receive processing.
                extra_s: extra_time(
                    &measuring.loads,
                    input.plan.load.close,
                    cores.light.map_or(0.0, |light| light.value),
                ),
                path: path_times,
                workers: input.options.workers,
                worker_occupied_s: None,
                connection_s: None,
                connections_by_memory: memory
                    .zip(per)
                    .and_then(|(bytes, per)| memory::connections(per, bytes.0 as f64)),
                connections_by_descriptors: per
                    .and_then(|per| per.descriptors)
                    .filter(|each| *each > 0.0)
                    .map(|each| nofile / each),
                disk: None,
                slo: input.plan.slo.as_ref(),
                seed: input.plan.seed,
            }
        });
        if let Some(mut known) = known {
            let first =
                limits::limits(&PredictionInputs { slo: None, ..known.clone() }).first().map(|limit| limit.rate_per_s);
            if let (Some((path, connection_use, traffic)), Some(first)) = (known.path, first) {
                let times = self.path_times(path, connection_use, traffic, first, measuring)?;
                known.connection_s = times.measured_connection_s.or(times.connection_s);
                known.worker_occupied_s = times.worker_occupied_s;
                predict.path = Some(times);
            } else if connection_use.close {
                known.worker_occupied_s = Some(0.0);
            }
            fill(&mut predict, &known, &measuring.loads, input);
            assumptions::assumes(&mut predict, &known, &input.options);
        }
        let checks = checks::checks(&predict, &measuring.loads, processes.as_ref(), input);
        Ok((predict, checks))
    }

    /// Shares of the classes, and their costs relative to the workload, receive processing included as in the simulated
    /// queue. Connections and handshakes are the same in all classes.
    pub fn classes(&self, mix_s: f64) -> Vec<(f64, f64)> {
        let is_class = |part: &&WorkloadClass| part.measured.is_some() && !part.is_connection();
        let of = |part: &WorkloadClass| part.cores.at_saturation().map_or(0.0, |demand| demand.value);
        let classes: Vec<&WorkloadClass> =
            self.parts.iter().filter(is_class).filter(|part| part.each.is_some_and(|each| each > 0.0)).collect();
        let sum: f64 = classes.iter().map(|part| part.each.unwrap_or(0.0) * of(part)).sum();
        let along = mix_s - sum;
        let least = mix_s * 1e-6;
        classes.iter().map(|part| (part.each.unwrap_or(0.0), (of(part) + along).max(least) / mix_s)).collect()
    }

    /// Path times, with one light load on the path.
    fn path_times(
        &self,
        path: &PathModel,
        connection_use: ConnectionUse,
        traffic: Traffic,
        first: f64,
        measuring: &mut Measuring<'_>,
    ) -> Result<PathTimes, ExperimentError> {
        let input = self.input;
        let mut times = path_times_by_model(input, path, connection_use, traffic);
        if !input.is_far() {
            return Ok(times);
        }
        let mut plan = input.plan.clone();
        plan.load.rate =
            RequestRate::from_per_second(rate_of_path_load(first, input.options.workers, times.worker_occupied_s));
        plan.load.warmup_rises = true;
        let longest = input.plan.path.as_ref().and_then(|path| testbed::distances::spec(path, plan.load.clients).ok());
        let longest = longest.map_or(Duration::ZERO, |spec| testbed::distances::longest_rtt(&spec));
        plan.load.warmup = (longest * 4 + Duration::from_millis(500)).min(Duration::from_secs(15));
        let lasts = input.options.each.max(longest * 2);
        let load_result = measuring.measure("workload", "path", &plan, lasts, "the path, light load")?;
        let Some(load_result) = load_result else { return Ok(times) };
        if verdict::named(&load_result.part.verdict) == Verdict::Invalid {
            measuring.notes.push(format!(
                "the load on the path was invalid ({}): path times are those of the model alone",
                load_result.part.failed.join(", ")
            ));
            measuring.leave_out([&load_result]);
            return Ok(times);
        }
        times.measured_mean_s = Some(load_result.part.response_mean_ns / 1e9);
        if connection_use.close && load_result.connection_s > 0.0 {
            times.measured_connection_s = Some(load_result.connection_s);
            times.worker_occupied_s = Some((load_result.connection_s - load_result.connect_s).max(0.0));
        }
        Ok(times)
    }
}

/// Rate of the load on the path: light for the server and for its workers, which the distance occupies for `held_s`
/// each by the model; waiting for a worker would distort the measured times.
pub fn rate_of_path_load(first: f64, workers: Option<u32>, held_s: Option<f64>) -> f64 {
    let of_workers =
        workers.zip(held_s.filter(|held_s| *held_s > 0.0)).map(|(workers, held_s)| f64::from(workers) / held_s);
    (first.min(of_workers.unwrap_or(f64::INFINITY)) * PATH_SHARE).min(PATH_RATE_MAX)
}

/// The document of the prediction.
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
            seed: measuring.input.plan.seed,
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

/// Distances of the plan; `None` without a path.
pub fn path_model(input: &PredictPlan) -> Result<Option<PathModel>, ExperimentError> {
    let Some(path) = &input.plan.path else { return Ok(None) };
    let spec = testbed::distances::spec(path, input.plan.load.clients).map_err(testbed::TestbedError::from)?;
    Ok(Some(PathModel::of(&spec)))
}

/// Path times by the model alone.
pub fn path_times_by_model(
    input: &PredictPlan,
    path: &PathModel,
    connection_use: ConnectionUse,
    traffic: Traffic,
) -> PathTimes {
    let response_mean_s = path.response_mean_s(&connection_use, &traffic);
    PathTimes {
        name: input.plan.path.as_ref().map(testbed::distances::name).unwrap_or_default(),
        rtt_mean_s: path.rtt_mean_s(),
        round_trips: path::round_trips(&connection_use, traffic.response_body_bytes),
        response_mean_s,
        connection_s: connection_use.close.then_some(response_mean_s),
        // A connection is accepted at the end of the handshake, one round trip after its start.
        worker_occupied_s: connection_use.close.then(|| response_mean_s - path.rtt_mean_s()),
        up_bytes: traffic.up_bytes,
        down_bytes: traffic.down_bytes,
        up_packets: traffic.up_packets,
        down_packets: traffic.down_packets,
        ..PathTimes::default()
    }
}

/// The result and all derived figures.
pub fn fill(predict: &mut PredictPart, known: &PredictionInputs<'_>, loads: &[MeasuredLoad], input: &PredictPlan) {
    predict.limits = limits::limits(known);
    let Some(least) = predict.limits.first().cloned() else { return };
    predict.rate_per_s = Some(least.rate_per_s);
    predict.interval = least.interval;
    predict.bound_by.clone_from(&least.resource);
    let (busy, of_processes) = limits::busy(known, least.rate_per_s);
    // Loads of components count if there are no others.
    let of = |kinds: &[&str]| {
        let loads = loads.iter().filter(|load| kinds.contains(&load.kind.as_str()) && !load.left_out);
        loads.map(|load| if of_processes { load.busy_processes } else { load.busy_cores }).fold(0.0, f64::max)
    };
    let telling = of(if known.processes.saturated { &["saturated"] } else { &["light", "saturated"] });
    let most = if telling > 0.0 { telling } else { of(&["component"]) };
    predict.beyond = if most > 0.0 { busy / most } else { f64::INFINITY };
    predict.curve = limits::curve(known);
    predict.concurrent_connections = known.connection_s.map(|time| time * least.rate_per_s);
    let (options, seed) = (&input.options, input.plan.seed);
    if let Some(users) = options.users {
        (predict.closed, predict.users_at_saturation) = limits::users(known, users, options.think);
    }
    predict.per_day = limits::per_day(least.rate_per_s, options.peak_to_mean);
    predict.machines =
        options.peak.map(|peak| limits::machines(least.rate_per_s, peak.per_second(), options.headroom.value()));
    let points: Vec<(f64, f64)> = loads
        .iter()
        .filter(|load| load.kind == "light" && load.in_flight >= 1.0 && !load.left_out)
        .map(|load| (load.in_flight, load.rate_per_s))
        .collect();
    predict.usl = usl(&points, seed);
}

/// Excess of the median response time over the demand in the lightest load, of loads with a connection per request if
/// the plan has that.
pub fn extra_time(loads: &[MeasuredLoad], close: bool, demand_s: f64) -> f64 {
    let served = |load: &&MeasuredLoad| {
        demands::is_usable(load) && !load.left_out && !load.failed.iter().any(|check| check == "achieved_as_offered")
    };
    let light = loads.iter().filter(|load| load.kind == "light" && load.class.ends_with(CONNECTION_SUFFIX) == close);
    let lightest = light.filter(served);
    let lightest = lightest.min_by(|a, b| a.rate_per_s.total_cmp(&b.rate_per_s));
    lightest.map_or(0.0, |load| (load.response_p50_ns as f64 / 1e9 - demand_s).max(0.0))
}

/// The universal scalability law, if there are enough loads.
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

pub fn demand_rows(part: &WorkloadClass) -> Vec<Demand> {
    let is_derived = part.measured.is_none() || part.is_connection();
    let mut rows = Vec::new();
    let measured = |resource: &str| {
        part.measured
            .as_ref()
            .filter(|_| !is_derived)
            .map(|measured| if resource == "cores" { &measured.cores } else { &measured.processes })
    };
    for (resource, each) in [("processes", &part.processes), ("cores", &part.cores)] {
        for (loads, estimate) in [("saturated", each.saturated), ("light", each.light)] {
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
                points: if loads == "saturated" { points.1 } else { points.0 },
            });
        }
    }
    rows
}
