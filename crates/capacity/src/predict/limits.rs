//! Computes limits, response times by load, users and machines from the costs of requests; pure functions.

use std::time::Duration;

use plan::slo::Slo;
use schema::document::{Document, Load};
use schema::{CurvePoint, Machines, PredictLimit, UsersPoint};
use stats::queueing::{MvaPoint, Station, mva, simulate_ps};
use stats::{Histogram, Rng};
use units::figures::duration_f64;

use super::model::WorkloadDemand;
use super::path::{ConnectionUse, PathModel, Traffic};

/// Simulated arrivals per point of the curve and per step of the search for the objective's limit.
const ARRIVALS: u64 = 40_000;
/// Points of the curve, as shares of the CPU's limit.
const CURVE_LOAD_SHARES: [f64; 12] = [0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.98];
/// Relative width of the search for the objective's limit.
const OBJECTIVE_WIDTH: f64 = 0.005;
/// Most users whose rate is computed.
pub const USERS_MAX: u32 = 100_000;

/// CPU available to the server.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Processor {
    /// CPU limit of its processes as a share of a core, with its quota period; absent without a limit.
    pub quota: Option<(f64, Duration)>,
    /// Cores that the server can use.
    pub cores: f64,
}

/// All inputs of a prediction.
#[derive(Clone, Debug)]
pub struct PredictionInputs<'a> {
    /// Available CPU.
    pub processor: Processor,
    /// CPU time of the server's processes per request of the workload.
    pub processes: WorkloadDemand,
    /// CPU time per request including receive processing: never less, see [`WorkloadDemand::covering`].
    pub cores: WorkloadDemand,
    /// Classes of the workload: share, and demand relative to the workload's mean.
    pub classes: Vec<(f64, f64)>,
    /// Time of a request in addition to CPU and path, in seconds: network stacks, devices, wake-up of a sleeping
    /// server.
    pub extra_s: f64,
    /// Distances, use of connections, and bytes of a request.
    pub path: Option<(&'a PathModel, ConnectionUse, Traffic)>,
    /// Processes or threads that each serve one connection at a time.
    pub workers: Option<u32>,
    /// Time for which a connection occupies a worker, in seconds, without queueing.
    pub worker_occupied_s: Option<f64>,
    /// Lifetime of a connection in seconds; absent with keep-alive.
    pub connection_s: Option<f64>,
    /// Connections that fit into memory.
    pub connections_by_memory: Option<f64>,
    /// Connections that the limit of descriptors permits.
    pub connections_by_descriptors: Option<f64>,
    /// Requests per second that storage permits, with an explanation; absent without storage reads.
    pub disk: Option<(f64, String)>,
    /// The objective.
    pub slo: Option<&'a Slo>,
    /// Seed of all random choices.
    pub seed: u64,
}

/// The limits, lowest first; empty if the CPU demand is unknown.
pub fn limits(known: &PredictionInputs<'_>) -> Vec<PredictLimit> {
    let mut limits = processor_limits(known);
    if limits.is_empty() {
        return limits;
    }
    let mut plain = |resource: &str, rate_per_s: f64, words: String| {
        if rate_per_s.is_finite() && rate_per_s > 0.0 {
            limits.push(PredictLimit { resource: resource.into(), rate_per_s, interval: None, words });
        }
    };
    if let (Some(workers), Some(occupied_s)) = (known.workers, known.worker_occupied_s) {
        // A worker is occupied for the path's time and while its request is computed.
        let busy_s = occupied_s + known.processes.at(0.0, f64::INFINITY);
        let words = format!("{workers} workers, each occupied by a connection for {}", seconds(busy_s));
        plain("workers", f64::from(workers) / busy_s, words);
    }
    if let Some(connection_s) = known.connection_s.filter(|time| *time > 0.0) {
        if let Some(most) = known.connections_by_memory {
            plain(
                "memory",
                most / connection_s,
                format!("memory for {most:.0} connections, each open for {}", seconds(connection_s)),
            );
        }
        if let Some(most) = known.connections_by_descriptors {
            let words = format!("descriptors for {most:.0} connections, each open for {}", seconds(connection_s));
            plain("descriptors", most / connection_s, words);
        }
    }
    if let Some((path, _, traffic)) = &known.path {
        let (up, down) = path.link_rates(traffic);
        plain("link_up", up, format!("{:.0} bytes up per request", traffic.up_bytes));
        plain("link_down", down, format!("{:.0} bytes down per request", traffic.down_bytes));
    }
    if let Some((rate_per_s, words)) = &known.disk {
        plain("disk", *rate_per_s, words.clone());
    }
    limits.sort_by(|a, b| a.rate_per_s.total_cmp(&b.rate_per_s));
    limits.extend(objective(known, &limits));
    limits.sort_by(|a, b| a.rate_per_s.total_cmp(&b.rate_per_s));
    limits
}

fn processor_limits(known: &PredictionInputs<'_>) -> Vec<PredictLimit> {
    let of = |resource: &str, demand: &WorkloadDemand, cores: f64, what: String| {
        let (rate_per_s, interval) = demand.rate_within(cores)?;
        let each = seconds(demand.at_saturation.value);
        Some(PredictLimit {
            resource: resource.into(),
            rate_per_s,
            interval: Some(interval).filter(|[low, high]| low.is_finite() && high.is_finite()),
            words: format!("{what}, {each} per request"),
        })
    };
    let Processor { quota, cores } = known.processor;
    let quota = quota.and_then(|(share, _)| {
        of("cpu_quota", &known.processes, share, format!("CPU limit of {:.0} % of a core", share * 100.0))
    });
    let number = if cores.fract() == 0.0 { format!("{cores:.0}") } else { format!("{cores:.2}") };
    let cores = of("cores", &known.cores, cores, format!("{number} {}", if cores == 1.0 { "core" } else { "cores" }));
    quota.into_iter().chain(cores).collect()
}

/// The highest load that meets the objective, if below the limits of the resources.
fn objective(known: &PredictionInputs<'_>, limits: &[PredictLimit]) -> Option<PredictLimit> {
    let slo = known.slo?;
    let least = limits.first()?;
    let most = least.rate_per_s;
    let is_met = |rate: f64| {
        let load = Load {
            response_time_ns: simulated(known, rate).quantiles(),
            offered_requests: ARRIVALS,
            completed: ARRIVALS,
            ..Load::default()
        };
        slo.judge(&Document::of_load(load, 0.0)).met
    };
    let (mut low, mut high) = (most * CURVE_LOAD_SHARES[0], most * CURVE_LOAD_SHARES[11]);
    let interval = |rate: f64| least.interval.map(|ends| ends.map(|end| end * rate / most));
    if is_met(high) {
        return None;
    }
    if !is_met(low) {
        let words = format!("`{slo}` is missed at {low:.1}/s already, close to zero load");
        return Some(PredictLimit { resource: "objective".into(), rate_per_s: low, interval: None, words });
    }
    while high / low > 1.0 + OBJECTIVE_WIDTH {
        let middle = (low * high).sqrt();
        if is_met(middle) { low = middle } else { high = middle }
    }
    let words = format!("highest load at which the simulation meets `{slo}`");
    Some(PredictLimit { resource: "objective".into(), rate_per_s: low, interval: interval(low), words })
}

/// Response times at a rate, from the simulated queue of [`Service`] and the path. Mean and percentiles of a prediction
/// come from this one distribution.
fn simulated(known: &PredictionInputs<'_>, rate: f64) -> Histogram {
    // The same random numbers at every rate, so that response times rise monotonically with load.
    let mut rng = Rng::named(known.seed, "predict");
    let Service { demand_s, cores, quota, .. } = Service::at(known, rate);
    let classes: Vec<(f64, f64)> = known.classes.iter().map(|(share, of_mix)| (*share, demand_s * of_mix)).collect();
    let served = simulate_ps(&classes, rate, cores, quota, ARRIVALS, &mut rng);
    let inner = served.inner();
    let mut values: Vec<u64> = inner
        .iter_recorded()
        .flat_map(|bucket| {
            let middle = inner.median_equivalent(bucket.value_iterated_to());
            std::iter::repeat_n(middle, bucket.count_at_value() as usize)
        })
        .collect();
    // Shuffled, since a client's distance is independent of the server's time.
    for last in (1..values.len()).rev() {
        values.swap(last, rng.below(last as u64 + 1) as usize);
    }
    let count = values.len();
    let mut times = Histogram::new();
    for (index, at_server) in values.into_iter().enumerate() {
        let way_s = known
            .path
            .as_ref()
            .map_or(0.0, |(path, connection_use, traffic)| path.response_s((index, count), connection_use, traffic));
        times.record(at_server + ((way_s + known.extra_s) * 1e9) as u64);
    }
    times
}

/// The lowest limit of a resource, apart from the objective.
fn first(known: &PredictionInputs<'_>) -> Option<f64> {
    limits(&PredictionInputs { slo: None, ..known.clone() }).first().map(|limit| limit.rate_per_s)
}

/// Busy cores at a rate, of the CPU resource with the lowest limit; and whether those are of the processes alone.
pub fn busy(known: &PredictionInputs<'_>, rate: f64) -> (f64, bool) {
    let (demand, cores) = bound(known);
    (rate * demand.at(rate, cores), std::ptr::eq(demand, &raw const known.processes))
}

/// The CPU resource with the lowest limit: its demand, and its cores.
fn bound<'a>(known: &'a PredictionInputs<'_>) -> (&'a WorkloadDemand, f64) {
    let cores = (&known.cores, known.processor.cores);
    let Some((share, _)) = known.processor.quota else { return cores };
    let rate =
        |(demand, cores): (&WorkloadDemand, f64)| demand.rate_within(cores).map_or(f64::INFINITY, |(rate, _)| rate);
    let quota = (&known.processes, share);
    if rate(quota) <= rate(cores) { quota } else { cores }
}

/// The simulated server at a rate. Mean, percentiles and busy share all derive from it, so that they share one demand.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Service {
    /// CPU time of a request of the workload, receive processing included.
    demand_s: f64,
    /// Cores that the server can use.
    cores: u32,
    /// CPU limit of the server in units of `demand_s`, and the quota period; absent without a limit.
    quota: Option<(f64, Duration)>,
    /// Used share of the tightest resource.
    busy: f64,
}

impl Service {
    fn at(known: &PredictionInputs<'_>, rate: f64) -> Self {
        let (demand, cores) = bound(known);
        let busy = rate * demand.at(rate, cores) / cores;
        let processes_s = known.processes.at_busy(busy);
        let demand_s = known.cores.at_busy(busy).max(processes_s);
        // The quota counts the processes' time only, so it permits proportionally more of the whole demand.
        let quota = known.processor.quota.filter(|_| processes_s > 0.0);
        Service {
            demand_s,
            cores: known.processor.cores.max(1.0) as u32,
            quota: quota.map(|(share, period)| (share * demand_s / processes_s, period)),
            busy,
        }
    }
}

/// Response time by load, up to just below the lowest resource limit.
pub fn curve(known: &PredictionInputs<'_>) -> Vec<CurvePoint> {
    let Some(most) = first(known) else { return Vec::new() };
    let point = |share: f64| {
        let rate = most * share;
        let times = simulated(known, rate);
        let at = |q: f64| times.value_at(q) as f64 / 1e9;
        CurvePoint {
            rate_per_s: rate,
            busy: Service::at(known, rate).busy,
            mean_s: times.mean() / 1e9,
            p50_s: at(0.5),
            p99_s: at(0.99),
        }
    };
    CURVE_LOAD_SHARES.iter().map(|share| point(*share)).collect()
}

/// Rates and response times of 1 to `users` users with think time `think`, at selected numbers; and the number from
/// which on users wait for each other.
pub fn users(known: &PredictionInputs<'_>, users: u32, think: Duration) -> (Vec<UsersPoint>, Option<f64>) {
    let (demand, cores) = bound(known);
    let each_s = demand.at_saturation.value;
    let Some(most) = first(known).filter(|_| users > 0) else { return (Vec::new(), None) };
    // A share of a core is a slower core; whole cores are several servers.
    let station = match cores {
        some if some >= 1.0 => Station { demand_s: each_s, servers: some.floor() },
        part => Station { demand_s: each_s / part, servers: 1.0 },
    };
    let way_s = known.extra_s
        + known
            .path
            .as_ref()
            .map_or(0.0, |(path, connection_use, traffic)| path.response_mean_s(connection_use, traffic));
    let think_s = think.as_secs_f64();
    let all = mva(&[station, Station { demand_s: way_s, servers: f64::INFINITY }], think_s, users.min(USERS_MAX));
    let point = |point: &MvaPoint| {
        // Workers and links are not stations of the recursion. Beyond their limit all further users wait (Little's
        // law).
        let rate_per_s = point.rate_per_s.min(most);
        let response_s = point.response_s.max(f64::from(point.users) / rate_per_s - think_s);
        UsersPoint { users: point.users, rate_per_s, response_s, busy: point.busy[0] * rate_per_s / point.rate_per_s }
    };
    let mut numbers: Vec<usize> = (1..=10).map(|tenth| all.len() * tenth / 10).filter(|number| *number > 0).collect();
    numbers.insert(0, 1);
    numbers.dedup();
    let rows = numbers.into_iter().map(|number| point(&all[number - 1])).collect();
    (rows, Some((station.demand_s + way_s + think_s) * most))
}

/// Number of machines of this kind behind a load balancer for a peak, each with the share `headroom` of its result
/// unused.
pub fn machines(rate_per_s: f64, peak_per_s: f64, headroom: f64) -> Machines {
    let at_peak = (peak_per_s / (rate_per_s * (1.0 - headroom))).ceil().max(1.0) as u64;
    Machines { peak_per_s, headroom, at_peak, with_headroom: at_peak + 1 }
}

/// Requests per day with a peak of `rate_per_s`.
pub fn per_day(rate_per_s: f64, peak_to_mean: f64) -> f64 {
    rate_per_s * 86_400.0 / peak_to_mean
}

/// Formats a duration in seconds.
pub fn seconds(seconds: f64) -> String {
    duration_f64(seconds * 1e9)
}

#[cfg(test)]
mod tests;
