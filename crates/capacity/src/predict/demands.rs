//! Measures the cost of a class of requests: a closed loop for scale, light loads, saturated loads.

mod classes;
mod load_result;

use std::time::Duration;

use plan::{LoadPlan, Plan, WatchAt, WatchPlan};
use schema::document::CheckState;
use schema::{MeasuredLoad, PredictPart, Verdict};
use stats::Rng;
use store::RunStore;
use sys::signal::Interrupts;
use units::{CpuShare, RequestRate};

pub use self::classes::{RequestClass, classes};
use self::load_result::result_of;
pub use self::load_result::{LoadResult, core_list, is_usable};

use super::gauge::Gauge;
use super::model::{ClassCost, SaturatedLoad};
use super::path::Traffic;
use super::{PredictOptions, PredictPlan};
use experiment::ExperimentError;
use experiment::Stage;
use experiment::progress::ExperimentProgress;
use experiment::verdict;

/// Connections of a closed loop.
const CONNECTIONS: u32 = 64;
/// Length of the closed loop that estimates the throughput.
const ROUGH_LOAD_LENGTH: Duration = Duration::from_secs(1);
/// Rates of light loads, as shares of that throughput.
const LIGHT_RATE_SHARES: (f64, f64) = (0.1, 0.5);
/// CPU limits of saturated loads, as shares of the server's own limit: not far below, since the cost of a request
/// depends on the pause between two quota periods.
const SATURATED_SHARES: (f64, f64) = (0.5, 0.9);
/// A server that uses less than this share of its limit may not have been saturated.
const SATURATED_USED_MIN: f64 = 0.9;
/// Busy share of the generator from which on the generator may have been the limit.
const GENERATOR_BUSY: f64 = 0.8;
/// Smallest quota that the kernel accepts.
const SHARE_MIN: f64 = 0.01;
/// Loads from which on a line has an error estimate, and loads from which on a mean has one.
const LIGHT_MIN: usize = 3;
pub const SATURATED_MIN: usize = 2;
/// Share of a class's loads that may be excluded without a noticeable effect.
const LEFT_OUT_MAX: f64 = 0.2;

/// Selects the loads on which figures are based. Excluded are loads without information about costs; invalid loads, as
/// long as `least` others remain; and suspect loads, if they are at most a fifth. Checks of the remaining loads count
/// for the prediction. Returns the used and the excluded loads.
pub fn counted(loads: Vec<LoadResult>, least: usize) -> (Vec<LoadResult>, Vec<LoadResult>) {
    let all = loads.len();
    let (mut used_loads, mut out): (Vec<LoadResult>, Vec<LoadResult>) =
        loads.into_iter().partition(LoadResult::is_usable);
    let most = (LEFT_OUT_MAX * all as f64) as usize;
    for (spoilt, is_bounded) in [(Verdict::Invalid, false), (Verdict::Suspect, true)] {
        let is_spoilt = |result: &LoadResult| verdict::named(&result.part.verdict) == spoilt;
        let some = used_loads.iter().filter(|result| is_spoilt(result)).count();
        // If invalid loads are used, suspect loads are used as well.
        if used_loads.len() - some < least && some > 0 || is_bounded && out.len() + some > most {
            break;
        }
        let (left_out, rest): (Vec<LoadResult>, Vec<LoadResult>) = used_loads.into_iter().partition(is_spoilt);
        used_loads = rest;
        out.extend(left_out);
    }
    (used_loads, out)
}

/// Makes loads one after the other.
pub struct Measuring<'a> {
    /// The input.
    pub input: &'a PredictPlan,
    /// Command that repeats the prediction.
    pub command: &'a str,
    /// Ctrl-C.
    pub interrupts: &'a Interrupts,
    /// Progress display.
    pub stage: &'a mut dyn Stage,
    /// Run store for the loads that are read again.
    pub run_store: Option<&'a RunStore>,
    /// All loads made, in order.
    pub loads: Vec<MeasuredLoad>,
    /// Notes for the reader.
    pub notes: Vec<String>,
    /// Facts of the machine, after the first run.
    pub host: Option<schema::document::Host>,
    /// Time measured, in seconds.
    pub duration_s: f64,
    /// Whether the server's CPU can be limited here; unknown before the first try.
    can_hold: Option<bool>,
    /// Receiver of the progress document, if any.
    pub showing: Option<&'a ExperimentProgress>,
}

/// Measured costs of a class.
#[derive(Clone, Debug, Default)]
pub struct ClassMeasurement {
    /// Cost to the server's processes.
    pub processes: ClassCost,
    /// Cost including receive processing.
    pub cores: ClassCost,
    /// Bytes and packets of a request.
    pub traffic: Option<Traffic>,
    /// Share of resumed handshakes, in light and in saturated loads; absent without TLS.
    pub resumed: (Option<f64>, Option<f64>),
    /// Highest rate among the loads.
    pub rate_max: f64,
    /// Number of light and of saturated loads.
    pub points: (u32, u32),
}

impl<'a> Measuring<'a> {
    /// No loads yet.
    pub fn new(
        input: &'a PredictPlan,
        command: &'a str,
        interrupts: &'a Interrupts,
        stage: &'a mut dyn Stage,
        run_store: Option<&'a RunStore>,
    ) -> Self {
        Measuring {
            input,
            command,
            interrupts,
            stage,
            run_store,
            loads: Vec::new(),
            notes: Vec::new(),
            host: None,
            duration_s: 0.0,
            can_hold: None,
            showing: None,
        }
    }

    /// Whether an interrupt occurred.
    pub fn is_interrupted(&self) -> bool {
        self.interrupts.count() > 0
    }

    fn options(&self) -> &'a PredictOptions {
        &self.input.options
    }

    /// All loads of a class. `None`: interrupted, or no response.
    ///
    /// # Errors
    /// No load could be made.
    pub fn class(&mut self, class: &RequestClass) -> Result<Option<ClassMeasurement>, ExperimentError> {
        let Some(rough) = self.rough(class)? else { return Ok(None) };
        // This load only gives the scale of the others.
        self.leave_out([&rough]);
        let mut light = Vec::new();
        for rate in self.shuffled(&class.name, spread(LIGHT_RATE_SHARES, self.options().loads)) {
            let Some(rate) = RequestRate::from_per_second(rate * rough.part.rate_per_s) else { continue };
            let mut load = class.load.clone();
            load.rate = Some(rate);
            load.warmup_rises = true;
            self.keep_few(&mut load);
            let what = format!("{}, {rate:.0} a second", class.name, rate = rate.per_second());
            light.extend(self.measure(&class.name, "light", &self.plan_of(load), self.options().each, &what)?);
            if self.is_interrupted() {
                return Ok(None);
            }
        }
        let saturated = self.saturated(class, rough.part.busy_processes)?;
        if self.is_interrupted() {
            return Ok(None);
        }
        let [(light, no_light), (saturated, no_saturated)] =
            [counted(light, LIGHT_MIN), counted(saturated, SATURATED_MIN)];
        self.leave_out(no_light.iter().chain(&no_saturated));
        Ok(Some(measured(&light, &saturated)))
    }

    /// Marks the excluded loads in the document.
    pub fn leave_out<'m>(&mut self, loads: impl IntoIterator<Item = &'m LoadResult>) {
        for result in loads {
            if let Some(load) = self.loads.get_mut(result.number) {
                load.left_out = true;
            }
        }
    }

    /// Throughput of a closed loop of a second.
    ///
    /// # Errors
    /// The server does not respond, or not as expected.
    pub fn rough(&mut self, class: &RequestClass) -> Result<Option<LoadResult>, ExperimentError> {
        let load = closed(&class.load);
        let what = format!("{}, closed loop", class.name);
        let result = self.measure(&class.name, "rough", &self.plan_of(load), ROUGH_LOAD_LENGTH, &what)?;
        match result {
            Some(result) if result.part.rate_per_s > 0.0 => Ok(Some(result)),
            _ if self.is_interrupted() => Ok(None),
            _ => Err(ExperimentError::Plan(format!(
                "{}: no request succeeded in a closed loop of {} s; try the same load with `yamabiko bench`",
                class.name,
                ROUGH_LOAD_LENGTH.as_secs()
            ))),
        }
    }

    /// Saturated loads: closed loops with the server's CPU limited to shares of its own limit.
    ///
    /// # Errors
    /// A load could not be made although the server's CPU can be limited.
    pub fn saturated(&mut self, class: &RequestClass, cores: f64) -> Result<Vec<LoadResult>, ExperimentError> {
        let Some(server) = &self.input.plan.server else { return Ok(Vec::new()) };
        let share = server.cpu.map_or(cores, CpuShare::cores);
        let mut saturated = Vec::new();
        for part in self.shuffled(&class.name, spread(SATURATED_SHARES, self.options().loads)) {
            if self.can_hold == Some(false) || self.is_interrupted() {
                break;
            }
            let Some(part) = share_of((part * share).max(SHARE_MIN)) else { continue };
            let mut plan = self.plan_of(closed(&class.load));
            let cpu = plan.server.as_mut().map(|server| server.cpu_measured.insert(part));
            debug_assert!(cpu.is_some());
            let what = format!("{}, limited to {part}", class.name);
            // Half as long, since there are many more requests.
            let lasts = (self.options().each / 2).max(Duration::from_millis(500));
            match self.measure(&class.name, "saturated", &plan, lasts, &what) {
                Ok(result) => {
                    self.can_hold = Some(true);
                    saturated.extend(result);
                }
                // Without a control group the light loads suffice.
                Err(error) if server.cpu.is_none() && self.can_hold.is_none() => {
                    self.can_hold = Some(false);
                    self.notes.push(format!("the server's CPU could not be limited ({error})"));
                }
                Err(error) => return Err(error),
            }
        }
        // A server whose CPU share other programs used is saturated nevertheless. With a fully busy generator the
        // server may not be saturated.
        let (used_loads, idle): (Vec<LoadResult>, Vec<LoadResult>) = saturated.into_iter().partition(|result| {
            let used =
                result.part.limited_cores.is_none_or(|limit| result.part.busy_processes >= limit * SATURATED_USED_MIN);
            used || result.loop_busy < GENERATOR_BUSY
        });
        self.leave_out(&idle);
        if let Some(idle) = idle.first() {
            self.notes.push(format!(
                "{}: with a limit of {:.1} % of a core it used {:.1} % only, and the generator was fully busy: such \
                 loads do not count",
                class.name,
                idle.part.limited_cores.unwrap_or(0.0) * 100.0,
                idle.part.busy_processes * 100.0
            ));
        }
        Ok(used_loads)
    }

    /// Limits keep-alive connections to a few if they only serve to separate the cost of a connection: a server with
    /// one worker per connection starts with few workers, and each idle connection occupies one.
    fn keep_few(&self, load: &mut LoadPlan) {
        if self.input.plan.load.close && !load.close {
            load.clients = load.clients.min(KEEP_ALIVE_CLIENTS);
            load.connections = Some(KEEP_ALIVE_CONNECTIONS);
        }
    }

    fn shuffled(&self, class: &str, mut values: Vec<f64>) -> Vec<f64> {
        let mut rng = Rng::named(self.input.plan.seed, class);
        for last in (1..values.len()).rev() {
            values.swap(last, rng.below(last as u64 + 1) as usize);
        }
        values
    }

    /// The plan of a load without a path.
    pub fn plan_of(&self, load: LoadPlan) -> Plan {
        let mut plan = self.input.plan.clone();
        plan.load = load;
        plan.path = plan.path.map(|path| plan::PathPlan {
            rtt: Some(Duration::ZERO),
            offload: path.offload,
            ..plan::PathPlan::default()
        });
        plan
    }

    /// Makes one load; `None`: interrupted.
    ///
    /// # Errors
    /// The load could not be made.
    pub fn measure(
        &mut self,
        class: &str,
        kind: &str,
        plan: &Plan,
        lasts: Duration,
        what: &str,
    ) -> Result<Option<LoadResult>, ExperimentError> {
        let mut plan = Plan {
            name: format!("{}-{kind}", plan.name),
            watch: WatchPlan { at: Some(WatchAt::None), ..plan.watch },
            slo: None,
            ..plan.clone()
        };
        plan.load.duration = Some(lasts);
        let mut gauge = Gauge::new(self.stage.begin(what), self.options().pid);
        let outcome = testbed::bench(&plan, self.command, self.run_store, self.interrupts, &mut gauge)?;
        if self.is_interrupted() {
            return Ok(None);
        }
        let document = &outcome.document;
        self.duration_s += document.run.duration_s;
        self.host.get_or_insert_with(|| document.run.host.clone());
        let mut result = result_of(class, kind, &plan, &outcome, &gauge);
        result.number = self.loads.len();
        self.loads.push(result.part.clone());
        if let Some(showing) = self.showing {
            let so_far = PredictPart { loads: self.loads.clone(), notes: self.notes.clone(), ..PredictPart::default() };
            showing.put(|progress| progress.predict = Some(so_far));
        }
        let failed_check = document
            .validity
            .checks
            .iter()
            .find(|check| check.state == CheckState::Failed && check.name == "server_alive");
        if let Some(failed_check) = failed_check {
            return Err(ExperimentError::Plan(format!("{what}: {}", failed_check.why)));
        }
        Ok(Some(result))
    }
}

/// A load as a closed loop.
fn closed(load: &LoadPlan) -> LoadPlan {
    let mut load = load.clone();
    load.rate = None;
    load.connections = Some(CONNECTIONS);
    load.clients = load.clients.min(CONNECTIONS);
    load
}

/// `count` values, evenly spaced.
fn spread((from, to): (f64, f64), count: u32) -> Vec<f64> {
    let steps = f64::from(count.max(2) - 1);
    (0..count.max(2)).map(|at| from + (to - from) * f64::from(at) / steps).collect()
}

/// A share of these cores, to a thousandth of a percent.
pub fn share_of(cores: f64) -> Option<CpuShare> {
    format!("{:.3}%", cores * 100.0).parse().ok()
}

/// Costs of a class from its loads.
pub fn measured(light: &[LoadResult], saturated: &[LoadResult]) -> ClassMeasurement {
    let sound = |loads| Vec::from_iter(<[LoadResult]>::iter(loads).filter(|result| result.is_usable()));
    let (light, saturated): (Vec<&LoadResult>, Vec<&LoadResult>) = (sound(light), sound(saturated));
    let cost = |busy: fn(&MeasuredLoad) -> f64| {
        let light: Vec<(f64, f64)> = light.iter().map(|result| (result.part.rate_per_s, busy(&result.part))).collect();
        let saturated = saturated.iter().map(|result| SaturatedLoad {
            rate_per_s: result.part.rate_per_s,
            busy: busy(&result.part),
            longer_pause_s: result.longer_pause_s,
        });
        ClassCost::of(&light, &Vec::from_iter(saturated))
    };
    let usable = if saturated.is_empty() { &light } else { &saturated };
    let resumed = |loads: &[&LoadResult]| {
        let sum =
            |of: fn(&MeasuredLoad) -> Option<u64>| loads.iter().filter_map(|result| of(&result.part)).sum::<u64>();
        let (full, resumed) = (sum(|load| load.handshakes_full), sum(|load| load.handshakes_resumed));
        (full + resumed > 0).then(|| resumed as f64 / (full + resumed) as f64)
    };
    ClassMeasurement {
        processes: cost(|load| load.busy_processes),
        cores: cost(|load| load.busy_cores).known_to([coarse(&light), coarse(&saturated)]),
        traffic: light.iter().chain(&saturated).find_map(|result| result.traffic),
        resumed: (resumed(&light), resumed(&saturated)),
        rate_max: usable.iter().map(|result| result.part.rate_per_s).fold(0.0, f64::max),
        points: (light.len() as u32, saturated.len() as u32),
    }
}

/// Half width of the interval of the CPU time per request, over these loads.
fn coarse(loads: &[&LoadResult]) -> f64 {
    let (half, rate) = loads.iter().fold((0.0, 0.0), |(half, rate), result| {
        let [low, high] = result.part.busy_cores_interval.unwrap_or([result.part.busy_cores; 2]);
        (half + (high - low) / 2.0, rate + result.part.rate_per_s)
    });
    if rate > 0.0 { half / rate } else { 0.0 }
}

/// For light loads with keep-alive where the plan has none: a request takes much less than a millisecond, so few
/// connections suffice for thousands a second.
const KEEP_ALIVE_CLIENTS: u32 = 4;
const KEEP_ALIVE_CONNECTIONS: u32 = 16;

#[cfg(test)]
mod tests;
