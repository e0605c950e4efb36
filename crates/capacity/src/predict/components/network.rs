//! Components with network: a minimal server (`serve --component exchange`) behind the testbed's devices, in a control
//! group of its own, saturated as at its capacity.
//!
//! Receiving cannot be measured alone, since the client sends a request only after a response. So the cost of the
//! smallest exchange is split in halves between `receive` and `send`, and bytes are added to each. The sum of both is
//! an exchange as measured.

use std::path::Path;
use std::time::Duration;

use plan::{
    AddressFamily, BodyFrom, ComponentsPlan, HostPlan, LoadPlan, PathPlan, Plan, ServerPlan, TargetPlan, Waits,
};
use schema::ComponentPoint;
use stats::regression::line;

use super::costs::MeasuredComponent;
use super::sum::part;
use crate::predict::demands::{LoadResult, Measuring, RequestClass, SATURATED_MIN, counted};
use crate::predict::model::Estimate;
use crate::predict::path::Traffic;
use crate::predict::{PredictOptions, PredictPlan};
use experiment::ExperimentError;
use experiment::programs::quoted;
use stats::median;

/// Response bodies to measure, in addition to the model's largest.
const RESPONSE_BODIES: [u64; 4] = [0, 4 << 10, 16 << 10, 64 << 10];
/// Largest body to measure; larger ones are extrapolated.
pub const BODY_MAX: u64 = 4 << 20;
/// Bytes added to a request.
const REQUEST_PADS: [usize; 2] = [2 << 10, 7 << 10];
/// Saturated loads per plan.
const LOADS: u32 = 3;

/// Fewest loads for an interval.
const USABLE_MIN: usize = SATURATED_MIN;
/// Most loads per plan on a busy machine, where some loads are unusable.
const BATCHES: u32 = 3;

/// Results.
#[derive(Clone, Debug)]
pub struct Network {
    /// `receive`, `send`, and `connection` with a connection per request.
    pub parts: Vec<MeasuredComponent>,
    /// Bytes of a request.
    pub request_bytes: f64,
    /// Bytes of a response head.
    pub head_bytes: f64,
    /// Response sizes, with the bytes and packets on the path for each.
    flow: Vec<(f64, Traffic)>,
    /// Bytes and packets that a connection adds.
    connection: Traffic,
}

impl Network {
    /// A path that adds nothing to a response.
    #[cfg(test)]
    pub fn of_tests() -> Self {
        let at = |bytes: f64| {
            let traffic = Traffic {
                up_bytes: 200.0,
                down_bytes: bytes,
                up_packets: 2.0,
                down_packets: 2.0,
                response_body_bytes: bytes,
            };
            (bytes, traffic)
        };
        let flow = [100.0, 1000.0, 100_000.0].map(at).to_vec();
        Network { parts: Vec::new(), request_bytes: 100.0, head_bytes: 100.0, flow, connection: Traffic::default() }
    }

    /// Bytes and packets of a request with a response of this size, head included; with a connection where that was
    /// measured.
    pub fn traffic(&self, response_body_bytes: f64) -> Traffic {
        let at = |of: fn(&Traffic) -> f64| {
            let points: Vec<(f64, f64)> = self.flow.iter().map(|(bytes, traffic)| (*bytes, of(traffic))).collect();
            let mean = points.iter().map(|(_, y)| y).sum::<f64>() / points.len().max(1) as f64;
            line(&points).map_or(mean, |line| line.at(response_body_bytes)).max(0.0) + of(&self.connection)
        };
        Traffic {
            up_bytes: at(|traffic| traffic.up_bytes),
            down_bytes: at(|traffic| traffic.down_bytes),
            up_packets: at(|traffic| traffic.up_packets),
            down_packets: at(|traffic| traffic.down_packets),
            response_body_bytes,
        }
    }
}

/// Number of different loads.
pub fn kinds(described: &ComponentsPlan, close: bool) -> u32 {
    (bodies(described).len() + REQUEST_PADS.len()) as u32 + u32::from(close)
}

/// Length of a load, without the testbed's own time.
pub fn each(options: &PredictOptions) -> Duration {
    long_enough(options.each) / 2 * LOADS
}

/// Resource usage is read once a second: half of this is the shortest load with a reading.
fn long_enough(each: Duration) -> Duration {
    each.max(Duration::from_secs(3))
}

/// Runs of the testbed per load.
pub const RUNS: u32 = LOADS;

fn bodies(described: &ComponentsPlan) -> Vec<u64> {
    let largest = described.objects.iter().map(|object| object.size.0.min(BODY_MAX)).max().unwrap_or(0);
    let mut bodies = RESPONSE_BODIES.to_vec();
    bodies.extend((largest > RESPONSE_BODIES[RESPONSE_BODIES.len() - 1]).then_some(largest));
    bodies
}

/// Measures them. `None`: interrupted.
///
/// # Errors
/// The testbed could not make a run, or there was no response.
pub fn measure(
    measuring: &mut Measuring<'_>,
    described: &ComponentsPlan,
    program: &Path,
    folder: &Path,
) -> Result<Option<Network>, ExperimentError> {
    let close = measuring.input.plan.load.close;
    let plan = |body: u64, pad: usize, close: bool| {
        let command = command(program, folder, described, (body, close), &measuring.input.plan);
        plan(measuring.input, described, command, pad, close)
    };
    let bodies = bodies(described);
    let mut plans: Vec<(String, PredictPlan)> = Vec::new();
    for &body in &bodies {
        plans.push((format!("component send, {body} bytes of body"), plan(body, 0, false)));
    }
    for &pad in &REQUEST_PADS {
        plans.push((format!("component receive, {pad} bytes more"), plan(0, pad, false)));
    }
    if close {
        plans.push(("component connection".into(), plan(0, 0, true)));
    }
    let mut cores = None;
    let mut load_results = Vec::new();
    for (name, plan) in &plans {
        let Some(loads) = saturated(measuring, name, plan, &mut cores)? else { return Ok(None) };
        if loads.len() < USABLE_MIN {
            return Err(ExperimentError::Plan(format!(
                "{name}: too few usable loads ({} of at least {USABLE_MIN}): use a less busy machine, or longer loads \
                 (--load-time); `yamabiko bench` shows whether runs work here at all",
                loads.len()
            )));
        }
        load_results.push(loads);
    }
    let (sends, rest) = load_results.split_at(bodies.len());
    let (receives, connections) = rest.split_at(REQUEST_PADS.len());
    network(sends, receives, connections.first().map(Vec::as_slice), described).map(Some).ok_or_else(|| {
        ExperimentError::Plan(
            "the components with network took no measurable time: use longer loads (--load-time)".into(),
        )
    })
}

/// The loads of one plan: saturated, or closed loops where the CPU cannot be limited.
fn saturated(
    measuring: &mut Measuring<'_>,
    name: &str,
    plan: &PredictPlan,
    cores: &mut Option<f64>,
) -> Result<Option<Vec<LoadResult>>, ExperimentError> {
    let mut own =
        Measuring::new(plan, measuring.command, measuring.interrupts, &mut *measuring.stage, measuring.run_store);
    let class = RequestClass { name: name.to_owned(), load: plan.plan.load.clone() };
    // All plans have the same cores; one closed loop determines their number.
    let busy = match *cores {
        Some(busy) => Some(busy),
        None => {
            let rough = own.rough(&class)?;
            own.leave_out(&rough);
            rough.map(|load_result| *cores.insert(load_result.part.busy_processes))
        }
    };
    let sound = |load_result: &LoadResult| load_result.part.rate_per_s > 0.0 && load_result.is_usable();
    let mut all = Vec::new();
    for _ in 0..BATCHES {
        all.extend(busy.map(|busy| own.saturated(&class, busy)).transpose()?.unwrap_or_default());
        if all.iter().filter(|load_result| sound(load_result)).count() >= USABLE_MIN || own.is_interrupted() {
            break;
        }
    }
    if !all.iter().any(sound) && !own.is_interrupted() {
        for _ in 0..LOADS {
            all.extend(own.rough(&class)?);
        }
    }
    let (load_results, mut out) = counted(all, USABLE_MIN);
    let (load_results, nothing): (Vec<LoadResult>, Vec<LoadResult>) = load_results.into_iter().partition(sound);
    out.extend(nothing);
    own.leave_out(&out);
    let interrupted = own.is_interrupted();
    let (mut loads, mut notes, host, duration_s) =
        (std::mem::take(&mut own.loads), std::mem::take(&mut own.notes), own.host.take(), own.duration_s);
    loads.iter_mut().for_each(|load| load.kind = "component".into());
    measuring.loads.append(&mut loads);
    notes.retain(|note| !measuring.notes.contains(note));
    measuring.notes.append(&mut notes);
    if measuring.host.is_none() {
        measuring.host = host;
    }
    measuring.duration_s += duration_s;
    Ok((!interrupted).then_some(load_results))
}

/// A point of a load.
fn point(bytes: f64, load_result: &LoadResult) -> ComponentPoint {
    let rate = load_result.part.rate_per_s;
    ComponentPoint {
        bytes: bytes as u64,
        count: load_result.completed,
        processes_s: load_result.part.busy_processes / rate,
        cores_s: load_result.part.busy_cores / rate,
        elapsed_s: None,
    }
}

fn network(
    sends: &[Vec<LoadResult>],
    receives: &[Vec<LoadResult>],
    connections: Option<&[LoadResult]>,
    described: &ComponentsPlan,
) -> Option<Network> {
    let response_bytes =
        |load_result: &LoadResult| load_result.traffic.map_or(0.0, |traffic| traffic.response_body_bytes);
    let least = sends.first()?;
    let first = least.first()?;
    let (request_bytes, head_bytes) = (first.request_bytes, response_bytes(first));
    // The smallest exchange, half of it for each side.
    let whole = |cost: fn(&LoadResult) -> f64| {
        let costs: Vec<f64> = least.iter().map(|load_result| cost(load_result) / load_result.part.rate_per_s).collect();
        let half = Estimate::of(&costs).map_or(0.0, |mean| mean.half);
        Estimate { value: median(costs), half }
    };
    let least_costs =
        [whole(|load_result| load_result.part.busy_processes), whole(|load_result| load_result.part.busy_cores)];
    let points = |loads: &[Vec<LoadResult>], bytes: &dyn Fn(&LoadResult) -> f64| -> Vec<ComponentPoint> {
        loads.iter().flatten().map(|load_result| point(bytes(load_result), load_result)).collect()
    };
    let with_least = |loads: &[Vec<LoadResult>]| [std::slice::from_ref(least), loads].concat();
    let halved = |mut measured_component: MeasuredComponent, errors: f64| {
        let half = |whole: Estimate| Estimate { value: whole.value / 2.0, half: whole.half * errors };
        measured_component.processes = measured_component.processes.less(half(least_costs[0]));
        measured_component.cores = measured_component.cores.less(half(least_costs[1]));
        measured_component
    };
    let waits = match described.waits {
        Waits::Epoll => "epoll",
        Waits::IoUring => "io_uring",
        Waits::Threads => "a thread for each connection",
    };
    let from =
        if described.body == BodyFrom::Sendfile { "head from memory and body by sendfile" } else { "from memory" };
    let receive = MeasuredComponent::of(
        part::RECEIVE,
        format!(
            "a request on one of 64 keep-alive connections, waiting by {waits}; with half of the smallest exchange"
        ),
        points(&with_least(receives), &|load_result| load_result.request_bytes),
    )?;
    let send = MeasuredComponent::of(
        part::SEND,
        format!("a response, {from}; with the other half of the smallest exchange"),
        points(sends, &response_bytes),
    )?;
    // The half taken off both sides is one figure, so its error counts once.
    let mut parts = vec![halved(receive, 0.0), halved(send, 1.0)];
    let mut connection = Traffic::default();
    if let Some(closing) = connections {
        // A connection costs the difference between an exchange with a connection of its own and one without.
        let rows: Vec<ComponentPoint> = closing
            .iter()
            .map(|load_result| {
                let row = point(0.0, load_result);
                ComponentPoint {
                    processes_s: row.processes_s - least_costs[0].value,
                    cores_s: row.cores_s - least_costs[1].value,
                    ..row
                }
            })
            .collect();
        let mut measured_component = MeasuredComponent::of(
            part::CONNECTION,
            "accept and close: the smallest exchange on a new connection less one on an open connection",
            rows,
        )?;
        let error = |whole: Estimate| Estimate { value: 0.0, half: whole.half };
        measured_component.processes = measured_component.processes.less(error(least_costs[0]));
        measured_component.cores = measured_component.cores.less(error(least_costs[1]));
        parts.push(measured_component);
        if let (Some(with), Some(without)) = (closing.iter().find_map(|load_result| load_result.traffic), first.traffic)
        {
            let more = |of: fn(&Traffic) -> f64| (of(&with) - of(&without)).max(0.0);
            connection = Traffic {
                up_bytes: more(|traffic| traffic.up_bytes),
                down_bytes: more(|traffic| traffic.down_bytes),
                up_packets: more(|traffic| traffic.up_packets),
                down_packets: more(|traffic| traffic.down_packets),
                response_body_bytes: 0.0,
            };
        }
    }
    let flow = sends
        .iter()
        .flatten()
        .filter_map(|load_result| Some((response_bytes(load_result), load_result.traffic?)))
        .collect();
    Some(Network { parts, request_bytes, head_bytes, flow, connection })
}

fn command(
    program: &Path,
    folder: &Path,
    described: &ComponentsPlan,
    (body, close): (u64, bool),
    plan: &Plan,
) -> String {
    let waits = match described.waits {
        Waits::Epoll => "epoll",
        Waits::IoUring => "io_uring",
        Waits::Threads => "threads",
    };
    let sendfile = if described.body == BodyFrom::Sendfile { " --component-sendfile" } else { "" };
    let close = if close { " --component-close" } else { "" };
    let any = if plan.target.family == AddressFamily::Ipv6 { "[::]" } else { "0.0.0.0" };
    format!(
        "exec {} serve {} --component exchange --component-bytes {body}B --component-waits {waits}{sendfile}{close} \
         --listen {any}:{}",
        quoted(program),
        quoted(folder),
        url(plan).1
    )
}

/// The plan's first URL without TLS at the testbed's server, and its port.
fn url(plan: &Plan) -> (String, u16) {
    let typed = if plan.load.url.is_empty() { "http://server:8080/" } else { &plan.load.url };
    let (scheme, rest) = typed.split_once("://").unwrap_or(("http", typed));
    let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    let usual = if scheme.eq_ignore_ascii_case("https") { 443 } else { 80 };
    let port = host.rsplit_once(':').and_then(|(_, port)| port.parse().ok()).unwrap_or(usual);
    (format!("http://server:{port}/{path}"), port)
}

fn plan(input: &PredictPlan, described: &ComponentsPlan, command: String, pad: usize, close: bool) -> PredictPlan {
    let server_plan = &input.plan;
    let mut headers = server_plan.load.headers.clone();
    headers.extend((pad > 0).then(|| format!("X-Part: {}", "p".repeat(pad))));
    let plan = Plan {
        name: server_plan.name.clone(),
        seed: server_plan.seed,
        load: LoadPlan {
            headers,
            close,
            clients: server_plan.load.clients,
            warmup: server_plan.load.warmup,
            duration: server_plan.load.duration,
            ..LoadPlan::get(&url(server_plan).0)
        },
        path: Some(PathPlan {
            rtt: Some(Duration::ZERO),
            offload: server_plan.path.as_ref().is_none_or(|path| path.offload),
            ..PathPlan::default()
        }),
        server: Some(ServerPlan {
            command,
            names: server_plan.server.as_ref().map_or_else(Vec::new, |server| server.names.clone()),
            cpu: described.cpu.or(server_plan.server.as_ref().and_then(|server| server.cpu)),
            ..ServerPlan::default()
        }),
        target: TargetPlan { family: server_plan.target.family, ..TargetPlan::default() },
        watch: server_plan.watch,
        host: HostPlan { threads: 1, ..server_plan.host.clone() },
        ..Plan::default()
    };
    PredictPlan {
        plan,
        options: PredictOptions {
            loads: LOADS,
            each: long_enough(input.options.each),
            components: false,
            ..input.options.clone()
        },
    }
}

#[cfg(test)]
mod tests;
