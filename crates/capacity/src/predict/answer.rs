//! From what requests cost to what the server will do: limits, the least of them, response time against load, users, machines; pure.

use std::time::Duration;

use plan::slo::Slo;
use schema::document::{Document, Load};
use schema::{CurvePoint, Machines, PredictLimit, UsersPoint};
use stats::queueing::{MvaPoint, Station, mva, simulate_ps};
use stats::{Histogram, Rng};

use super::model::Mixed;
use super::path::{Manner, PathModel, Traffic};

/// Arrivals simulated for a point of the curve, and for each step towards the objective.
const ARRIVALS: u64 = 40_000;
/// Shares of what the processor allows at which the curve has points.
const SHARES: [f64; 12] = [0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.98];
/// The objective's load is found to this share.
const OBJECTIVE_WIDTH: f64 = 0.005;
/// Most users whose rate is computed.
pub const USERS_MAX: u32 = 100_000;

/// What the processor may do for the server.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Processor {
    /// Share of one core to which its processes are held, with the period in which it is dealt out; absent where they are not.
    pub quota: Option<(f64, Duration)>,
    /// Cores that it can use.
    pub cores: f64,
}

/// Everything that the answer follows from.
#[derive(Clone, Debug)]
pub struct Known<'a> {
    /// What it may use.
    pub processor: Processor,
    /// Processor time of its processes for a request of the mix.
    pub processes: Mixed,
    /// And with the receiving of packets: no less, see [`Mixed::covering`].
    pub cores: Mixed,
    /// Each class of the mix: its share, and its demand over that of the mix.
    pub classes: Vec<(f64, f64)>,
    /// What a request takes besides the processor and the distance, in seconds: stacks, devices, a sleeping server's wake-up.
    pub beside_s: f64,
    /// Distances, with how connections are used and what a request sends.
    pub path: Option<(&'a PathModel, Manner, Traffic)>,
    /// Processes or threads that each keep one connection at a time.
    pub workers: Option<u32>,
    /// How long a connection holds one, in seconds, without queueing.
    pub worker_held_s: Option<f64>,
    /// How long a connection is in process, in seconds; absent where connections are kept alive.
    pub connection_s: Option<f64>,
    /// Connections that memory has room for.
    pub connections_by_memory: Option<f64>,
    /// Connections that there are descriptors for.
    pub connections_by_descriptors: Option<f64>,
    /// Requests a second that storage can bring, and how that comes about; absent where nothing comes from it.
    pub disk: Option<(f64, String)>,
    /// What is asked of response times.
    pub slo: Option<&'a Slo>,
    /// Of every random choice.
    pub seed: u64,
}

/// The limits, the least first; empty where nothing is known of the processor's.
pub fn limits(known: &Known<'_>) -> Vec<PredictLimit> {
    let mut limits = processor_limits(known);
    if limits.is_empty() {
        return limits;
    }
    let mut plain = |resource: &str, rate_per_s: f64, words: String| {
        if rate_per_s.is_finite() && rate_per_s > 0.0 {
            limits.push(PredictLimit { resource: resource.into(), rate_per_s, interval: None, words });
        }
    };
    if let (Some(workers), Some(held_s)) = (known.workers, known.worker_held_s) {
        // Besides the time on the way a worker is held while its request is computed.
        let busy_s = held_s + known.processes.at(0.0, f64::INFINITY);
        let words = format!("{workers} workers, each held by a connection for {}", seconds(busy_s));
        plain("workers", f64::from(workers) / busy_s, words);
    }
    if let Some(connection_s) = known.connection_s.filter(|time| *time > 0.0) {
        if let Some(most) = known.connections_by_memory {
            plain(
                "memory",
                most / connection_s,
                format!("room for {most:.0} connections, each in process for {}", seconds(connection_s)),
            );
        }
        if let Some(most) = known.connections_by_descriptors {
            let words = format!("descriptors for {most:.0} connections, each in process for {}", seconds(connection_s));
            plain("descriptors", most / connection_s, words);
        }
    }
    if let Some((path, _, traffic)) = &known.path {
        let (up, down) = path.link_rates(traffic);
        plain("link_up", up, format!("{:.0} bytes up for a request", traffic.up_bytes));
        plain("link_down", down, format!("{:.0} bytes down for a request", traffic.down_bytes));
    }
    if let Some((rate_per_s, words)) = &known.disk {
        plain("disk", *rate_per_s, words.clone());
    }
    limits.sort_by(|a, b| a.rate_per_s.total_cmp(&b.rate_per_s));
    limits.extend(objective(known, &limits));
    limits.sort_by(|a, b| a.rate_per_s.total_cmp(&b.rate_per_s));
    limits
}

fn processor_limits(known: &Known<'_>) -> Vec<PredictLimit> {
    let of = |resource: &str, demand: &Mixed, cores: f64, what: String| {
        let (rate_per_s, interval) = demand.rate_within(cores)?;
        let each = seconds(demand.behind.value);
        Some(PredictLimit {
            resource: resource.into(),
            rate_per_s,
            interval: Some(interval).filter(|[low, high]| low.is_finite() && high.is_finite()),
            words: format!("{what}, {each} for a request"),
        })
    };
    let Processor { quota, cores } = known.processor;
    let quota = quota.and_then(|(share, _)| {
        of("cpu_quota", &known.processes, share, format!("{:.0} % of a core for its processes", share * 100.0))
    });
    let number = if cores.fract() == 0.0 { format!("{cores:.0}") } else { format!("{cores:.2}") };
    let cores = of("cores", &known.cores, cores, format!("{number} {}", if cores == 1.0 { "core" } else { "cores" }));
    quota.into_iter().chain(cores).collect()
}

/// The largest load at which the objective is met, if that is less than what the resources allow.
fn objective(known: &Known<'_>, limits: &[PredictLimit]) -> Option<PredictLimit> {
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
    let (mut low, mut high) = (most * SHARES[0], most * SHARES[11]);
    let interval = |rate: f64| least.interval.map(|ends| ends.map(|end| end * rate / most));
    if is_met(high) {
        return None;
    }
    if !is_met(low) {
        let words = format!("`{slo}` is missed at {low:.1}/s already, which is next to nothing");
        return Some(PredictLimit { resource: "objective".into(), rate_per_s: low, interval: None, words });
    }
    while high / low > 1.0 + OBJECTIVE_WIDTH {
        let middle = (low * high).sqrt();
        if is_met(middle) { low = middle } else { high = middle }
    }
    let words = format!("`{slo}` holds up to there, by simulation");
    Some(PredictLimit { resource: "objective".into(), rate_per_s: low, interval: interval(low), words })
}

/// Response times at a rate, as the queue of [`Service`] and the path make them. Mean and percentiles of every prediction are of this one
/// distribution.
fn simulated(known: &Known<'_>, rate: f64) -> Histogram {
    // The same draws at every rate, so that more load never looks like less.
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
    // In random order: a client's distance does not depend on how long the server takes.
    for last in (1..values.len()).rev() {
        values.swap(last, rng.below(last as u64 + 1) as usize);
    }
    let count = values.len();
    let mut times = Histogram::new();
    for (index, at_server) in values.into_iter().enumerate() {
        let way_s =
            known.path.as_ref().map_or(0.0, |(path, manner, traffic)| path.response_s((index, count), manner, traffic));
        times.record(at_server + ((way_s + known.beside_s) * 1e9) as u64);
    }
    times
}

/// What the first resource allows, whatever the objective.
fn first(known: &Known<'_>) -> Option<f64> {
    limits(&Known { slo: None, ..known.clone() }).first().map(|limit| limit.rate_per_s)
}

/// Cores busy at a rate, of the resource that is the processor's limit; and whether those are of its processes alone.
pub fn busy(known: &Known<'_>, rate: f64) -> (f64, bool) {
    let (demand, cores) = bound(known);
    (rate * demand.at(rate, cores), std::ptr::eq(demand, &raw const known.processes))
}

/// The processor's tightest limit: the demand, and the cores that it has.
fn bound<'a>(known: &'a Known<'_>) -> (&'a Mixed, f64) {
    let cores = (&known.cores, known.processor.cores);
    let Some((share, _)) = known.processor.quota else { return cores };
    let rate = |(demand, cores): (&Mixed, f64)| demand.rate_within(cores).map_or(f64::INFINITY, |(rate, _)| rate);
    let quota = (&known.processes, share);
    if rate(quota) <= rate(cores) { quota } else { cores }
}

/// What the simulated server is at a rate. Mean, percentiles and the share that is busy follow from this alone, so that no two of them have
/// different demands.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Service {
    /// Processor time of a request of the mix, the receiving of its packets included.
    demand_s: f64,
    /// Cores that it can use.
    cores: u32,
    /// Its share of them, in units of `demand_s`, and the period in which that is dealt out; absent where nothing limits it.
    quota: Option<(f64, Duration)>,
    /// Share of the tightest resource that is used.
    busy: f64,
}

impl Service {
    fn at(known: &Known<'_>, rate: f64) -> Self {
        let (demand, cores) = bound(known);
        let busy = rate * demand.at(rate, cores) / cores;
        let processes_s = known.processes.at_busy(busy);
        let demand_s = known.cores.at_busy(busy).max(processes_s);
        // A quota counts the time of the processes alone: of all of a request it pays for as much more.
        let quota = known.processor.quota.filter(|_| processes_s > 0.0);
        Service {
            demand_s,
            cores: known.processor.cores.max(1.0) as u32,
            quota: quota.map(|(share, period)| (share * demand_s / processes_s, period)),
            busy,
        }
    }
}

/// Response time against load, up to just below what the first resource allows.
pub fn curve(known: &Known<'_>) -> Vec<CurvePoint> {
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
    SHARES.iter().map(|share| point(*share)).collect()
}

/// What 1 to `users` users come to who think for `think` between answer and request, at numbers that tell the course; and the number from
/// which on they wait for each other.
pub fn users(known: &Known<'_>, users: u32, think: Duration) -> (Vec<UsersPoint>, Option<f64>) {
    let (demand, cores) = bound(known);
    let each_s = demand.behind.value;
    let Some(most) = first(known).filter(|_| users > 0) else { return (Vec::new(), None) };
    // A share of a core is a slower core; whole cores are several.
    let station = match cores {
        some if some >= 1.0 => Station { demand_s: each_s, servers: some.floor() },
        part => Station { demand_s: each_s / part, servers: 1.0 },
    };
    let way_s = known.beside_s
        + known.path.as_ref().map_or(0.0, |(path, manner, traffic)| path.response_mean_s(manner, traffic));
    let think_s = think.as_secs_f64();
    let all = mva(&[station, Station { demand_s: way_s, servers: f64::INFINITY }], think_s, users.min(USERS_MAX));
    let point = |point: &MvaPoint| {
        // Workers or a link are no stations of the recursion: from where they bind on, everybody beyond waits (Little's law).
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

/// Machines of this kind behind a distributor for a peak, each with `headroom` of what it can do to spare.
pub fn machines(rate_per_s: f64, peak_per_s: f64, headroom: f64) -> Machines {
    let carrying = (peak_per_s / (rate_per_s * (1.0 - headroom))).ceil().max(1.0) as u64;
    Machines { peak_per_s, headroom, carrying, with_headroom: carrying + 1 }
}

/// Requests a day with `rate_per_s` at its peak.
pub fn per_day(rate_per_s: f64, peak_to_mean: f64) -> f64 {
    rate_per_s * 86_400.0 / peak_to_mean
}

/// A time for people.
pub fn seconds(seconds: f64) -> String {
    match seconds {
        s if s < 1e-3 => format!("{:.3} us", s * 1e6).replace(".000", ""),
        s if s < 1.0 => format!("{:.3} ms", s * 1e3),
        s => format!("{s:.2} s"),
    }
}

#[cfg(test)]
mod tests;
