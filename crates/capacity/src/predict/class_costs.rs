//! From classes of requests to what each costs: which loads are made, and what is a difference of two.

use plan::Plan;
use schema::PredictPart;
use schema::document::Check;
use units::RequestRate;

use super::answer;
use super::demands::{self, Class, ClassMeasurement, Measuring};
use super::memory;
use super::model::{self, Each, Estimate};
use super::whole::Whole;
use super::{PATH_SHARE, PredictPlan};
use experiment::ExperimentError;

/// The name that a part begins with that is a connection of its own for each request.
const NEW_CONNECTION: &str = "new connection";

/// A class in the mix, measured.
pub struct MixComponent {
    /// Its name.
    pub name: String,
    /// How many each request brings; none: measured for comparison.
    pub each: Option<f64>,
    /// As measured; none: a difference of others.
    pub measured: Option<ClassMeasurement>,
    /// Of the server's processes.
    pub processes: Each,
    /// And with the receiving of packets.
    pub cores: Each,
}

impl MixComponent {
    /// As measured.
    pub fn of(name: &str, each: Option<f64>, measured: ClassMeasurement) -> Self {
        let (processes, cores) = (Each::of(&measured.processes), Each::of(&measured.cores));
        MixComponent { name: name.into(), each, measured: Some(measured), processes, cores: cores.covering(&processes) }
    }

    /// Whether it is the connection that each request has of its own.
    pub fn is_connection(&self) -> bool {
        self.name.starts_with(NEW_CONNECTION)
    }

    /// A difference of others.
    pub fn derived(name: &str, each: Option<f64>, [processes, cores]: [Each; 2]) -> Self {
        MixComponent { name: name.into(), each, measured: None, processes, cores: cores.covering(&processes) }
    }
}

/// What the assembled server will do, and what is doubtful of that.
///
/// # Errors
/// A load could not be made; an interrupt.
pub fn predict(
    asked: &PredictPlan,
    measuring: &mut Measuring<'_>,
) -> Result<(PredictPart, Vec<Check>), ExperimentError> {
    let mut classes = demands::classes(&asked.plan);
    if let Some((hit, miss)) = &asked.asked.hit_and_miss {
        classes = cached(&asked.plan, hit, miss);
    }
    let mut parts = Vec::new();
    for (class, share) in &classes {
        // Of a request on an open connection; the connection is a part of its own.
        let mut class = class.clone();
        class.load.close = false;
        let measured = measuring.class(&class)?.ok_or_else(super::interrupted)?;
        parts.push(MixComponent::of(&class.name, Some(*share), measured));
    }
    if asked.asked.hit_and_miss.is_some() {
        shares_of_hits(asked, measuring, &mut parts)?;
    }
    if asked.plan.load.close {
        connections(asked, measuring, &classes[0].0, &mut parts)?;
    }
    let memory = match asked.asked.memory && asked.plan.server.is_some() {
        true => memory::measure(measuring, &classes[0].0)?,
        false => None,
    };
    if measuring.is_interrupted() {
        return Err(super::interrupted());
    }
    let whole = Whole { asked, parts, memory };
    whole.answered(measuring)
}

/// What a cache of results makes two of.
fn cached(plan: &Plan, hit: &str, miss: &str) -> Vec<(Class, f64)> {
    let class = |name: &str, url: &str| {
        let mut load = plan.load.clone();
        (load.request, load.urls, load.content) = (Vec::new(), None, None);
        load.url = url.to_owned();
        (Class { name: name.into(), load }, 0.5)
    };
    vec![class("hit", hit), class("miss", miss)]
}

/// The share of hits: as given, or that with which the two cost what the plan's own requests do, in one light load.
fn shares_of_hits(
    asked: &PredictPlan,
    measuring: &mut Measuring<'_>,
    parts: &mut [MixComponent],
) -> Result<(), ExperimentError> {
    let share = match asked.asked.hit_ratio {
        Some(ratio) => ratio.value(),
        None => {
            let (Some(hit), Some(miss)) = (parts[0].processes.light, parts[1].processes.light) else { return Ok(()) };
            let mut load = asked.plan.load.clone();
            load.close = false;
            let rough = parts[1].measured.as_ref().map_or(0.0, |miss| miss.rate_max);
            load.rate = RequestRate::from_per_second(rough * PATH_SHARE);
            let plan = measuring.plan_of(load);
            let Some(made) = measuring.measure("mix", "mix", &plan, asked.asked.each, "the mix, lightly")? else {
                return Ok(());
            };
            let each = (made.part.busy_processes - parts[1].processes.idle) / made.part.rate_per_s.max(1e-9);
            let Some(share) = model::hit_share(hit.value, miss.value, each) else {
                measuring.notes.push("a hit and a miss cost nearly the same, so that the share of hits cannot be told and hardly matters".into());
                return Ok(());
            };
            measuring.notes.push(format!(
                "share of hits {:.1} %: with it hits of {} and misses of {} come to the {} that the mix cost in one light load; a cache that \
                 was empty when it began, over {}",
                share * 100.0,
                answer::seconds(hit.value),
                answer::seconds(miss.value),
                answer::seconds(each),
                units::format_duration(asked.asked.each)
            ));
            share
        }
    };
    (parts[0].each, parts[1].each) = (Some(share), Some(1.0 - share));
    Ok(())
}

/// Behind the name of a class whose requests have each a connection.
pub const A_CONNECTION_EACH: &str = ", a connection each";

/// What a connection of its own adds to a request; with TLS, a handshake in full and a resumed one apart.
fn connections(
    asked: &PredictPlan,
    measuring: &mut Measuring<'_>,
    class: &Class,
    parts: &mut Vec<MixComponent>,
) -> Result<(), ExperimentError> {
    let less = |measured: &ClassMeasurement, parts: &[MixComponent]| {
        [Each::of(&measured.processes).less(&parts[0].processes), Each::of(&measured.cores).less(&parts[0].cores)]
    };
    let as_is = Class { name: format!("{}{A_CONNECTION_EACH}", class.name), load: class.load.clone() };
    let with = measuring.class(&as_is)?.ok_or_else(super::interrupted)?;
    let connection = less(&with, parts);
    let is_tls = class.load.tls.is_some();
    let name = if is_tls { format!("{NEW_CONNECTION} and handshake") } else { NEW_CONNECTION.to_owned() };
    let resumed = with.resumed;
    parts.push(MixComponent { measured: Some(with), ..MixComponent::derived(&name, Some(1.0), connection) });
    let resumes = asked.plan.load.tls.as_ref().is_some_and(|tls| tls.resumption);
    if !resumes || resumed == (None, None) {
        return Ok(());
    }
    let mut load = class.load.clone();
    if let Some(tls) = &mut load.tls {
        tls.resumption = false;
    }
    let in_full = Class { name: format!("{}, every handshake in full", class.name), load };
    let full = measuring.class(&in_full)?.ok_or_else(super::interrupted)?;
    let full = less(&full, parts);
    let apart = |index: usize| {
        let of = |pick: fn(&Each) -> Option<Estimate>, resumed: Option<f64>| {
            let resumed = resumed.filter(|share| *share > 0.05)?;
            model::ends(&[(0.0, pick(&full[index])?), (resumed, pick(&connection[index])?)])
        };
        let (light, held) = (of(|each| each.light, resumed.0), of(|each| each.held, resumed.1));
        let pick = |which: fn((Estimate, Estimate)) -> Estimate| Each {
            light: light.map(which),
            held: held.map(which),
            idle: 0.0,
        };
        [pick(|ends| ends.0), pick(|ends| ends.1)]
    };
    let ([full_processes, resumed_processes], [full_cores, resumed_cores]) = (apart(0), apart(1));
    parts.push(MixComponent::derived("connection, full TLS handshake", None, [full_processes, full_cores]));
    parts.push(MixComponent::derived("connection, resumed TLS handshake", None, [resumed_processes, resumed_cores]));
    Ok(())
}
