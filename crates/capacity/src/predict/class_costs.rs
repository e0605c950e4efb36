//! Loads of each class of requests, and costs that are differences of two loads.

use plan::Plan;
use schema::PredictPart;
use schema::document::Check;
use units::RequestRate;

use super::demands::{self, ClassMeasurement, Measuring, RequestClass};
use super::limits;
use super::memory;
use super::model::{self, Estimate, ItemCost};
use super::real_server::RealServer;
use super::{PATH_SHARE, PredictPlan};
use experiment::ExperimentError;

/// Prefix of names of classes that are a connection per request.
const NEW_CONNECTION: &str = "new connection";

/// A measured class of the workload.
pub struct WorkloadClass {
    /// Name of the class.
    pub name: String,
    /// Number per request; absent: measured for comparison only.
    pub each: Option<f64>,
    /// Measured loads; absent: a difference of other classes.
    pub measured: Option<ClassMeasurement>,
    /// Cost to the server's processes.
    pub processes: ItemCost,
    /// Cost including receive processing.
    pub cores: ItemCost,
}

impl WorkloadClass {
    /// A class with measured loads.
    pub fn of(name: &str, each: Option<f64>, measured: ClassMeasurement) -> Self {
        let (processes, cores) = (ItemCost::of(&measured.processes), ItemCost::of(&measured.cores));
        WorkloadClass {
            name: name.into(),
            each,
            measured: Some(measured),
            processes,
            cores: cores.covering(&processes),
        }
    }

    /// Whether it is the connection of a request.
    pub fn is_connection(&self) -> bool {
        self.name.starts_with(NEW_CONNECTION)
    }

    /// A class that is a difference of others.
    pub fn derived(name: &str, each: Option<f64>, [processes, cores]: [ItemCost; 2]) -> Self {
        WorkloadClass { name: name.into(), each, measured: None, processes, cores: cores.covering(&processes) }
    }
}

/// Measures the real server: costs, notes and checks.
///
/// # Errors
/// A load could not be made, or an interrupt occurred.
pub fn predict(
    input: &PredictPlan,
    measuring: &mut Measuring<'_>,
) -> Result<(PredictPart, Vec<Check>), ExperimentError> {
    let mut classes = demands::classes(&input.plan);
    if let Some((hit, miss)) = &input.options.hit_and_miss {
        classes = cached(&input.plan, hit, miss);
    }
    let mut parts = Vec::new();
    for (class, share) in &classes {
        // Costs of a request on an open connection; the connection is a class of its own.
        let mut class = class.clone();
        class.load.close = false;
        let measured = measuring.class(&class)?.ok_or_else(super::interrupted)?;
        parts.push(WorkloadClass::of(&class.name, Some(*share), measured));
    }
    if input.options.hit_and_miss.is_some() {
        shares_of_hits(input, measuring, &mut parts)?;
    }
    if input.plan.load.close {
        connections(input, measuring, &classes[0].0, &mut parts)?;
    }
    let memory = match input.options.memory && input.plan.server.is_some() {
        true => memory::measure(measuring, &classes[0].0)?,
        false => None,
    };
    if measuring.is_interrupted() {
        return Err(super::interrupted());
    }
    let whole = RealServer { input, parts, memory };
    whole.with_response(measuring)
}

/// Classes for hits and misses of a result cache.
fn cached(plan: &Plan, hit: &str, miss: &str) -> Vec<(RequestClass, f64)> {
    let class = |name: &str, url: &str| {
        let mut load = plan.load.clone();
        (load.request, load.urls, load.content) = (Vec::new(), None, None);
        load.url = url.to_owned();
        (RequestClass { name: name.into(), load }, 0.5)
    };
    vec![class("hit", hit), class("miss", miss)]
}

/// The share of hits: configured, or fitted so that hits and misses add up to the cost of the plan's own requests in
/// one light load.
fn shares_of_hits(
    input: &PredictPlan,
    measuring: &mut Measuring<'_>,
    parts: &mut [WorkloadClass],
) -> Result<(), ExperimentError> {
    let share = match input.options.hit_ratio {
        Some(ratio) => ratio.value(),
        None => {
            let (Some(hit), Some(miss)) = (parts[0].processes.light, parts[1].processes.light) else { return Ok(()) };
            let mut load = input.plan.load.clone();
            load.close = false;
            let rough = parts[1].measured.as_ref().map_or(0.0, |miss| miss.rate_max);
            load.rate = RequestRate::from_per_second(rough * PATH_SHARE);
            let plan = measuring.plan_of(load);
            let Some(load_result) =
                measuring.measure("workload", "workload", &plan, input.options.each, "workload, light load")?
            else {
                return Ok(());
            };
            let each =
                (load_result.part.busy_processes - parts[1].processes.idle) / load_result.part.rate_per_s.max(1e-9);
            let Some(share) = model::hit_share(hit.value, miss.value, each) else {
                measuring.notes.push(
                    "a hit and a miss cost nearly the same, so the share of hits is unknown and \
                                      hardly matters"
                        .into(),
                );
                return Ok(());
            };
            measuring.notes.push(format!(
                "share of hits {:.1} %: with it, hits of {} and misses of {} give the {} that the workload cost in \
                 one light load; a cache that started empty, over {}",
                share * 100.0,
                limits::seconds(hit.value),
                limits::seconds(miss.value),
                limits::seconds(each),
                units::format_duration(input.options.each)
            ));
            share
        }
    };
    (parts[0].each, parts[1].each) = (Some(share), Some(1.0 - share));
    Ok(())
}

/// Suffix of names of classes with a connection per request.
pub const CONNECTION_SUFFIX: &str = ", a connection per request";

/// Cost that a connection adds to a request; with TLS, full and resumed handshakes separately.
fn connections(
    input: &PredictPlan,
    measuring: &mut Measuring<'_>,
    class: &RequestClass,
    parts: &mut Vec<WorkloadClass>,
) -> Result<(), ExperimentError> {
    let less = |measured: &ClassMeasurement, parts: &[WorkloadClass]| {
        [
            ItemCost::of(&measured.processes).less(&parts[0].processes),
            ItemCost::of(&measured.cores).less(&parts[0].cores),
        ]
    };
    let as_is = RequestClass { name: format!("{}{CONNECTION_SUFFIX}", class.name), load: class.load.clone() };
    let with = measuring.class(&as_is)?.ok_or_else(super::interrupted)?;
    let connection = less(&with, parts);
    let is_tls = class.load.tls.is_some();
    let name = if is_tls { format!("{NEW_CONNECTION} and handshake") } else { NEW_CONNECTION.to_owned() };
    let resumed = with.resumed;
    parts.push(WorkloadClass { measured: Some(with), ..WorkloadClass::derived(&name, Some(1.0), connection) });
    let resumes = input.plan.load.tls.as_ref().is_some_and(|tls| tls.resumption);
    if !resumes || resumed == (None, None) {
        return Ok(());
    }
    let mut load = class.load.clone();
    if let Some(tls) = &mut load.tls {
        tls.resumption = false;
    }
    let in_full = RequestClass { name: format!("{}, full handshakes only", class.name), load };
    let full = measuring.class(&in_full)?.ok_or_else(super::interrupted)?;
    let full = less(&full, parts);
    let apart = |index: usize| {
        let of = |pick: fn(&ItemCost) -> Option<Estimate>, resumed: Option<f64>| {
            let resumed = resumed.filter(|share| *share > 0.05)?;
            model::ends(&[(0.0, pick(&full[index])?), (resumed, pick(&connection[index])?)])
        };
        let (light, saturated) = (of(|each| each.light, resumed.0), of(|each| each.saturated, resumed.1));
        let pick = |which: fn((Estimate, Estimate)) -> Estimate| ItemCost {
            light: light.map(which),
            saturated: saturated.map(which),
            idle: 0.0,
        };
        [pick(|ends| ends.0), pick(|ends| ends.1)]
    };
    let ([full_processes, resumed_processes], [full_cores, resumed_cores]) = (apart(0), apart(1));
    parts.push(WorkloadClass::derived("connection, full TLS handshake", None, [full_processes, full_cores]));
    parts.push(WorkloadClass::derived("connection, resumed TLS handshake", None, [resumed_processes, resumed_cores]));
    Ok(())
}
